"""Noise with a cost of its own: `Exact(cost=...)` and `Protect(...)`."""

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import exact_information
from pacprivacy.errors import BudgetError
from pacprivacy.noise import (
    Exact,
    Protect,
    calibrate,
    contrasts,
    propose_rule_noise,
)

pytestmark = pytest.mark.usefixtures("few_draws")
RNG = np.random.default_rng(0)
OUTPUTS = RNG.normal(size=(128, 4)) @ RNG.normal(size=(4, 4))


def cost_of(plan: object, cost: np.ndarray) -> float:
    return float(np.trace(cost @ plan.noise_covariance()))  # type: ignore[arg-type]


@pytest.mark.claim("RP-5")
@pytest.mark.parametrize("budget", [0.1, 1.0])
def test_a_weighted_plan_costs_least_and_is_proved(budget: float) -> None:
    cost = np.diag([100.0, 1.0, 1.0, 1.0])
    plain = calibrate(OUTPUTS, pac.Information(budget), rule="exact", rng=0)
    plan = calibrate(OUTPUTS, pac.Information(budget), rule=Exact(cost=cost), rng=0)
    assert plan.mi_upper <= budget
    assert exact_information(plan.view(OUTPUTS), n_draws=50_000, rng=1).lower <= budget
    assert cost_of(plan, cost) < 0.6 * cost_of(plain, cost)
    assert plan.total_variance > plain.total_variance
    assert np.isclose(np.trace(plan.noise_covariance()), plan.total_variance)


def test_weights_matrix_and_subspace_say_the_same() -> None:
    weights = np.array([50.0, 1.0, 1.0, 1.0])
    rules = (Exact(cost=weights), Exact(cost=np.diag(weights)), Protect([[1.0, 0, 0, 0]], 50.0))
    totals = [calibrate(OUTPUTS, pac.Information(0.2), rule=r, rng=0).total_variance for r in rules]
    np.testing.assert_allclose(totals, totals[0], rtol=1e-9)


def test_equal_weights_change_nothing() -> None:
    votes = np.eye(3)[np.arange(60) % 3]
    plain = calibrate(votes, pac.Information(0.8), rule="exact", rng=0)
    same = calibrate(votes, pac.Information(0.8), rule=Exact(cost=[7.0, 7.0, 7.0]), rng=0)
    assert same.total_variance == pytest.approx(plain.total_variance, rel=0.02)


def test_protected_directions_get_noise_last() -> None:
    common = 3.0 * RNG.normal(size=(200, 1))
    logits = RNG.normal(size=(200, 3)) + common
    differences = contrasts(3)
    noise = {
        weight: differences
        @ calibrate(
            logits, pac.Information(0.25), rule=Protect(differences, weight), rng=0
        ).noise_covariance()
        @ differences.T
        for weight in (1.0, 10.0, 1000.0)
    }
    protected = [float(np.trace(noise[weight])) for weight in (1.0, 10.0, 1000.0)]
    assert protected[0] > 1.2 * protected[1] > 1.2 * protected[2]


def test_atoms_are_released_almost_exactly_where_they_are_protected() -> None:
    votes = np.eye(4)[np.arange(120) % 4]
    plan = calibrate(votes, pac.Information(1.2), rule=Protect([[1.0, -1.0, 0.0, 0.0]]), rng=0)
    noise = plan.noise_covariance()
    assert abs(noise[0, 0] + noise[1, 1] - 2 * noise[0, 1]) < 0.01 * np.trace(noise)
    assert exact_information(plan.view(votes), n_draws=50_000, rng=1).lower <= 1.2


@pytest.mark.claim("RP-5")
def test_releases_with_costs_verify() -> None:
    data = RNG.normal(size=(48, 3))
    for budget, rule in (
        (pac.Information(0.3), Protect([[1.0, -1.0, 0.0]])),
        (pac.Membership(0.6), Protect([[1.0, -1.0, 0.0]])),
        (pac.Information(0.3), Exact(cost=[1.0, 2.0, 3.0])),
    ):
        release = pac.privatize(
            lambda d: d.mean(axis=0), data, budget, rule=rule, n_subsets=32, rng=0
        )
        pac.verify(release.certificate, release.bundle)
        assert release.certificate.rule in {"protect", "exact weighted"}
    with pac.Session(data, budget=pac.Information(0.5), n_subsets=32, rng=0) as session:
        session.release(lambda d: d.mean(axis=0), pac.Information(0.25), rule=Exact(cost=np.eye(3)))
        assert session.odometer().spent.mi_nats <= 0.25


def test_wide_outputs_and_proposals() -> None:
    wide = RNG.normal(size=(16, 100))
    for rule in (Protect(np.ones((1, 100))), Exact(cost=np.arange(1.0, 101.0))):
        plan = calibrate(wide, pac.Information(0.3), rule=rule, rng=0)
        proposed = propose_rule_noise(wide, pac.Information(0.3), rule=rule, rng=0).total_variance
        assert plan.mi_upper <= 0.3
        assert proposed == pytest.approx(plan.total_variance, rel=0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Exact(cost=[1.0, 0.0]), "positive in every direction"),
        (lambda: Exact(cost=[[1.0, 2.0], [2.0, 1.0]]), "positive in every direction"),
        (lambda: Exact(cost=[[1.0, 2.0]]), "symmetric matrix"),
        (lambda: Protect([[0.0, 0.0]]), "not all zero"),
        (lambda: Protect([[1.0, 0.0]], weight=0.5), "weight must be at least 1"),
        (lambda: contrasts(1), "n must be at least 2"),
        (lambda: calibrate(OUTPUTS, pac.Information(0.1), rule=Exact(cost=[1.0])), "one row per"),
        (lambda: calibrate(OUTPUTS, pac.Information(0.1), rule=Protect([[1.0]])), "4 columns"),
    ],
)
def test_bad_costs_are_refused(make: object, words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        make()  # type: ignore[operator]
