"""The formulas of noise: values, order, extremes, and that waterfill is really the least."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri

from pacprivacy.errors import BudgetError
from pacprivacy.noise.plan import isotropic, isotropic_max, proportional, waterfill
from pacprivacy.theory import log_det_bound

Vector = npt.NDArray[np.float64]
RULES = (isotropic, isotropic_max, proportional, waterfill)


@pytest.mark.claim("N-1", "N-2")
def test_formulas_of_the_papers() -> None:
    variances = np.array([4.0, 1.0, 0.25])
    beta = 0.125
    np.testing.assert_allclose(isotropic(variances, mi_nats=beta), 5.25 / 0.25)
    expected = np.array([2.0, 1.0, 0.5]) * 3.5 / 0.25  # s_i Σ s_j / 2β: variances, from std
    np.testing.assert_allclose(proportional(variances, mi_nats=beta), expected)
    np.testing.assert_allclose(isotropic_max(variances, mi_nats=beta), expected.max())


@pytest.mark.claim("N-3")
def test_waterfill_of_the_house_example() -> None:
    found = waterfill(np.array([4.0, 1.0, 0.0]), mi_nats=0.5)
    np.testing.assert_allclose(found, [4.247, 2.501, 0.0], atol=5e-4)


@pytest.mark.claim("N-3")
def test_one_direction_in_closed_form() -> None:
    for beta in (1e-6, 0.1, 1.0, 20.0):
        found = waterfill(np.array([3.0]), mi_nats=beta)
        assert found[0] == pytest.approx(3.0 / math.expm1(2 * beta), rel=1e-9)


def test_a_coin_beside_a_normal() -> None:
    """At two nats: 1.00 for the papers' rule, 0.313 for waterfill."""
    normal = ndtri((np.arange(4096) + 0.5) / 4096)
    variances = np.array([1.0, float(np.square(normal).mean())])
    assert proportional(variances, mi_nats=2.0).sum() == pytest.approx(1.0, abs=2e-3)
    assert waterfill(variances, mi_nats=2.0).sum() == pytest.approx(0.313, abs=1e-3)


@pytest.mark.claim("N-1", "N-2", "N-3")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("beta", [1e-9, 1e-3, 0.25, 3.0, 40.0])
def test_the_bound_is_met_from_the_side_of_more_noise(rule: object, beta: float) -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 300):
        variances = np.exp(rng.normal(scale=6, size=size))
        noise = rule(variances, mi_nats=beta)  # type: ignore[operator]
        bound = log_det_bound(variances, noise)
        assert bound <= beta * (1 + 1e-12)
        if rule is waterfill:
            assert bound >= beta * (1 - 1e-9)


@pytest.mark.claim("N-3")
def test_no_other_split_of_noise_is_smaller_at_the_same_bound() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        variances = np.exp(rng.normal(scale=2, size=5))
        beta = float(np.exp(rng.normal()))
        best = waterfill(variances, mi_nats=beta)
        for _ in range(20):
            other = best * np.exp(rng.normal(scale=rng.choice([0.01, 0.5]), size=5))
            low, high = 1e-6, 1e6  # scale the other one until it meets the bound as well
            for _ in range(40):  # to 3e-11
                middle = math.sqrt(low * high)
                too_little = log_det_bound(variances, middle * other) > beta
                low, high = (middle, high) if too_little else (low, middle)
            assert high * other.sum() >= best.sum() * (1 - 1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_directions_that_never_move(rule: object) -> None:
    call = rule  # type: ignore[assignment]
    zero = call(np.zeros(3), mi_nats=0.5)  # type: ignore[operator]
    assert np.array_equal(zero, np.zeros(3))
    assert call(np.zeros(0), mi_nats=0.5).shape == (0,)  # type: ignore[operator]
    if rule in (proportional, waterfill):
        assert call(np.array([1.0, 0.0]), mi_nats=0.5)[1] == 0.0  # type: ignore[operator]


@pytest.mark.claim("N-3")
@pytest.mark.parametrize("variances", [[1e300, 1e-300], [1e-200], [1.0, 1e-16], [5e-324, 1e-320]])
def test_extreme_spreads_do_not_overflow(variances: list[float]) -> None:
    values = np.array(variances)
    noise = waterfill(values, mi_nats=0.5)
    assert np.isfinite(noise).all()
    assert (noise >= 0).all()
    if values.min() > 1e-250:
        assert log_det_bound(values, noise) <= 0.5


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_budgets_are_refused(rule: object, bad: float) -> None:
    with pytest.raises(BudgetError, match="mi_nats must be a positive finite number"):
        rule(np.ones(2), mi_nats=bad)  # type: ignore[operator]
