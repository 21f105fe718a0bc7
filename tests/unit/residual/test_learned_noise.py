"""Laws of learned noise, and what the exact adversary says about them; nothing here trains."""

import math
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import exact_information
from pacprivacy.errors import BudgetError
from pacprivacy.noise import Shaped, calibrate, propose_rule_variance, spread_of
from pacprivacy.residual import (
    FlowNoise,
    GaussianNoise,
    LearnedNoise,
    MixtureNoise,
    Training,
    check_learned_noise,
    plan_learned_noise,
)
from pacprivacy.residual.learned_noise import History

FAMILIES = [
    GaussianNoise(),
    GaussianNoise(full=True),
    MixtureNoise(size=3),
    FlowNoise(n_layers=3, hidden=4),
]
NAMES = [family.name for family in FAMILIES]


def some_params(family: Any, dimension: int = 3) -> dict[str, Any]:
    """Parameters that are far from their start, so that every one of them matters."""
    rng = np.random.default_rng(5)
    params = family.start(np.linspace(0.5, 2.0, dimension), rng)
    return {name: a + 0.4 * rng.standard_normal(a.shape) for name, a in params.items()}


def hand_made(
    family: Any, params: dict[str, Any], outputs: np.ndarray, claimed: float = 0.0
) -> LearnedNoise:
    m = len(outputs)
    empty = np.zeros(0)
    return LearnedNoise(
        family=family,
        follower="mlp",
        mi_nats=0.5,
        claimed_nats=claimed,
        claimed_error=0.0,
        params=params,
        spread=spread_of(outputs, np.full(m, 1 / m)),
        log_p=np.full(m, -math.log(m)),
        history=History(noise=empty, claimed_nats=empty.copy(), penalty=empty.copy()),
        seed=0,
    )


@pytest.mark.claim("W-1")
@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_draws_have_the_density(family: Any) -> None:
    params = some_params(family)
    noise = family.draw(params, 200_000, np.random.default_rng(1))
    log_q = family.pair_log_density(params, noise, np.zeros((1, 3)), np)[:, 0]
    # E_q[f/q] is the integral of f over the support: 1 for any density f, narrow ones included.
    for center, width in ((0.0, 0.5), (0.4, 0.3)):
        square = np.square((noise - center) / width).sum(axis=1)
        log_f = -0.5 * square - 1.5 * math.log(2 * math.pi) - 3 * math.log(width)
        ratio = np.exp(log_f - log_q)
        error = ratio.std() / math.sqrt(len(ratio))
        assert error < 0.05
        assert ratio.mean() == pytest.approx(1.0, abs=5 * error)


@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_moments_and_scale_are_those_of_the_draws(family: Any) -> None:
    params = some_params(family)
    noise = family.draw(params, 200_000, np.random.default_rng(2))
    second = family.second_moments(params, noise, np.ones(len(noise)), np)
    np.testing.assert_allclose(second, np.square(noise).mean(axis=0), rtol=0.03)
    twice = family.rescaled(params, 2.0)
    again = family.draw(twice, 200_000, np.random.default_rng(2))
    np.testing.assert_allclose(again, 2 * noise, rtol=1e-12, atol=1e-12)
    zero = np.zeros((1, 3))
    shifted = family.pair_log_density(params, noise[:50], zero, np) - 3 * math.log(2)
    np.testing.assert_allclose(family.pair_log_density(twice, again[:50], zero, np), shifted)


def test_mixtures_have_mean_zero() -> None:
    family = MixtureNoise(size=3)
    noise = family.draw(some_params(family), 400_000, np.random.default_rng(3))
    assert np.abs(noise.mean(axis=0)).max() < 6 * noise.std() / math.sqrt(len(noise))


@pytest.mark.claim("W-1")
def test_information_of_a_mixture_is_that_of_the_integral() -> None:
    family = MixtureNoise(size=2)
    params = {
        "logits": np.array([0.0, 1.0]),
        "means": np.array([[-0.8], [0.5]]),
        "log_std": np.log([[0.2], [0.6]]),
    }
    outputs = np.array([[-1.0], [0.2], [1.0]])
    learned = hand_made(family, params, outputs)
    grid = np.linspace(-8, 8, 40_001)[:, None]
    points = learned.spread.coordinates
    log_q = family.pair_log_density(params, grid, points, np)
    mixed = np.log(np.exp(log_q).mean(axis=1, keepdims=True))
    truth = float((np.exp(log_q) * (log_q - mixed)).sum() / 3 * (grid[1, 0] - grid[0, 0]))
    found = check_learned_noise(learned, n_draws=100_000, rng=0).true_nats
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower < 0.05
    assert found.value == pytest.approx(truth, abs=0.005)


@pytest.mark.claim("W-1")
def test_two_ways_to_the_information_of_a_gaussian_agree() -> None:
    outputs = np.random.default_rng(0).standard_normal((12, 2)) * [2.0, 0.5]
    plan = calibrate(outputs, pac.Information(0.7), rule="waterfill")
    params = {"log_std": np.log(plan.noise_std)}
    found = check_learned_noise(hand_made(GaussianNoise(), params, outputs), rng=1).true_nats
    other = exact_information(plan.view(outputs), n_draws=100_000, rng=2)
    assert found.value == pytest.approx(other.value, abs=0.01)
    assert found.lower <= other.upper
    assert other.lower <= found.upper


def test_more_noise_tells_less() -> None:
    learned = hand_made(GaussianNoise(), {"log_std": np.zeros(1)}, np.array([[-1.0], [0.0], [1.0]]))
    values = [
        check_learned_noise(learned, n_draws=20_000, noise_scale=scale, rng=0).true_nats.value
        for scale in (0.5, 1.0, 3.0)
    ]
    assert values == sorted(values, reverse=True)


def test_shortfall_is_the_truth_less_the_claim() -> None:
    outputs = np.array([[-1.0], [0.0], [1.0]])
    learned = hand_made(GaussianNoise(), {"log_std": np.zeros(1)}, outputs, claimed=0.1)
    found = check_learned_noise(learned, n_draws=20_000, rng=0)
    assert found.value == pytest.approx(found.true_nats.value - 0.1)
    assert found.value < found.upper
    assert "missed" in str(found)
    assert "not certified" in repr(learned)


def test_a_learned_gaussian_becomes_a_certified_plan() -> None:
    outputs = np.random.default_rng(0).standard_normal((32, 2))
    params = {"log_std": np.log([1.0, 2.0]), "lower": np.array([[0.0, 0.0], [0.7, 0.0]])}
    learned = hand_made(GaussianNoise(full=True), params, outputs)
    plan = plan_learned_noise(learned, mi_nats=0.4, rng=0)
    assert plan.kind == "exact"
    assert plan.rule == "learned"
    assert plan.mi_upper <= 0.4
    # the shape is the learned one: variances stand in the same ratio
    wanted = learned.covariance_shape().noise_var
    got = np.square(plan.noise_std)
    np.testing.assert_allclose(got / got.sum(), wanted / wanted.sum(), rtol=1e-4)


def test_a_given_shape_is_scaled_and_proved() -> None:
    outputs = np.random.default_rng(0).standard_normal((32, 2))
    params = {"log_std": np.log([1.0, 2.0]), "lower": np.array([[0.0, 0.0], [0.7, 0.0]])}
    learned = hand_made(GaussianNoise(full=True), params, outputs)
    assert np.trace(learned.covariance()) == pytest.approx(learned.total_variance)
    plan = calibrate(outputs, pac.Information(0.4), rule=Shaped(learned.covariance()), rng=0)
    assert plan.mi_upper <= 0.4
    wanted = learned.covariance() / np.trace(learned.covariance())
    got = plan.noise_covariance()
    np.testing.assert_allclose(got / np.trace(got), wanted, atol=1e-6)
    asked = propose_rule_variance(outputs, pac.Information(0.4), rule=Shaped(learned.covariance()))
    assert asked == pytest.approx(plan.total_variance, rel=0.05)
    # one direction without noise: the outputs differ along it, so it must get some
    flat = calibrate(outputs, pac.Information(0.4), rule=Shaped(np.diag([1.0, 0.0])), rng=0)
    assert flat.mi_upper <= 0.4
    assert flat.n_directions == 2


def test_a_shape_that_is_no_covariance_is_refused() -> None:
    for bad in (np.ones(3), np.diag([1.0, -1.0]), np.zeros((2, 2)), np.array([[1.0, 1], [0, 1]])):
        with pytest.raises(BudgetError, match="covariance must be"):
            Shaped(bad)
    with pytest.raises(BudgetError, match="one row per output coordinate"):
        calibrate(np.eye(3), pac.Information(0.4), rule=Shaped(np.eye(2)))


def test_only_a_gaussian_becomes_a_plan() -> None:
    family = MixtureNoise(size=2)
    learned = hand_made(family, some_params(family, 1), np.array([[-1.0], [1.0], [0.3]]))
    with pytest.raises(BudgetError, match="must be Gaussian"):
        plan_learned_noise(learned)
    gaussian = hand_made(GaussianNoise(), {"log_std": np.zeros(1)}, np.eye(3)[:, :1])
    with pytest.raises(BudgetError, match="mi_nats"):
        plan_learned_noise(gaussian, mi_nats=-1.0)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(BudgetError, match="batch must be even"):
        Training(batch=3)
    with pytest.raises(BudgetError, match="n_steps must be at least 1"):
        Training(n_steps=0)
    with pytest.raises(BudgetError, match="n_slices must be at least 0"):
        Training(n_slices=-1)
    with pytest.raises(BudgetError, match="tolerance"):
        Training(tolerance=0.0)
    with pytest.raises(BudgetError, match="size must be"):
        MixtureNoise(size=0)
    with pytest.raises(BudgetError, match="n_layers must be"):
        FlowNoise(n_layers=0)
    with pytest.raises(BudgetError, match="hidden must be"):
        FlowNoise(hidden=0)
    with pytest.raises(BudgetError, match="one direction only"):
        FlowNoise().start(np.ones(1), np.random.default_rng(0))
