"""What the exact adversary says about learned noise; nothing here trains."""

import math
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import exact_information
from pacprivacy.errors import BudgetError
from pacprivacy.noise import Shaped, calibrate, propose_rule_noise, spread_of
from pacprivacy.residual import (
    LearnedNoise,
    Training,
    check_learned_noise,
    plan_learned_noise,
)
from pacprivacy.residual.learned_noise import noise_factor


def hand_made(factor: np.ndarray, outputs: np.ndarray, claimed: float = 0.0) -> LearnedNoise:
    m = len(outputs)
    return LearnedNoise(
        follower="mlp",
        mi_nats=0.5,
        claimed_nats=claimed,
        claimed_error=0.0,
        factor=factor,
        spread=spread_of(outputs, np.full(m, 1 / m)),
        log_p=np.full(m, -math.log(m)),
    )


@pytest.mark.parametrize("xp", [np, "jax"])
def test_the_factor_is_lower_triangular_with_the_learned_deviations(xp: Any) -> None:
    xp = pytest.importorskip("jax.numpy") if xp == "jax" else xp
    std, lower = np.array([0.5, 2.0, 3.0]), np.arange(9.0).reshape(3, 3)
    np.testing.assert_allclose(noise_factor({"log_std": np.log(std)}, xp), np.diag(std), rtol=1e-6)
    full = np.asarray(noise_factor({"log_std": np.log(std), "lower": lower}, xp))
    np.testing.assert_allclose(np.diag(full), std, rtol=1e-6)
    np.testing.assert_allclose(full[2], [18.0, 21.0, 3.0], rtol=1e-6)
    assert (np.triu(full, 1) == 0).all()


@pytest.mark.claim("W-1")
@pytest.mark.parametrize("noise_scale", [1.0, 2.5])
def test_the_information_of_noise_is_that_of_the_integral(noise_scale: float) -> None:
    outputs = np.array([[-1.0], [0.2], [1.0]])
    std = noise_scale * 0.4
    learned = hand_made(np.array([[std]]), outputs)
    grid = np.linspace(-16, 16, 80_001)
    far = (grid[:, None] - learned.spread.coordinates[:, 0]) / std
    log_q = -0.5 * np.square(far) - 0.5 * math.log(2 * math.pi) - math.log(std)
    mixed = np.log(np.maximum(np.exp(log_q).mean(axis=1, keepdims=True), 1e-300))
    truth = float((np.exp(log_q) * (log_q - mixed)).sum() / 3 * (grid[1] - grid[0]))
    found = check_learned_noise(learned, n_draws=100_000, rng=0).true_nats
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower < 0.05
    assert found.value == pytest.approx(truth, abs=0.005)


@pytest.mark.claim("W-1")
def test_two_ways_to_the_information_of_a_gaussian_agree() -> None:
    outputs = np.random.default_rng(0).standard_normal((12, 2)) * [2.0, 0.5]
    plan = calibrate(outputs, pac.Information(0.7), rule="waterfill")
    found = check_learned_noise(hand_made(np.diag(plan.noise_std), outputs), rng=1).true_nats
    other = exact_information(plan.view(outputs), n_draws=100_000, rng=2)
    assert found.value == pytest.approx(other.value, abs=0.01)
    assert found.lower <= other.upper
    assert other.lower <= found.upper


def test_more_noise_tells_less() -> None:
    outputs = np.array([[-1.0], [0.0], [1.0]])
    values = [
        check_learned_noise(
            hand_made(scale * np.eye(1), outputs), n_draws=20_000, rng=0
        ).true_nats.value
        for scale in (0.5, 1.0, 3.0)
    ]
    assert values == sorted(values, reverse=True)


def test_shortfall_is_the_truth_less_the_claim() -> None:
    outputs = np.array([[-1.0], [0.0], [1.0]])
    learned = hand_made(np.eye(1), outputs, claimed=0.1)
    found = check_learned_noise(learned, n_draws=20_000, rng=0)
    assert found.value == pytest.approx(found.true_nats.value - 0.1)
    assert found.value < found.upper
    assert "missed" in str(found)
    assert "not certified" in repr(learned)


def test_a_learned_gaussian_becomes_a_certified_plan() -> None:
    outputs = np.random.default_rng(0).standard_normal((32, 2))
    learned = hand_made(np.array([[1.0, 0.0], [1.4, 2.0]]), outputs)
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
    learned = hand_made(np.array([[1.0, 0.0], [1.4, 2.0]]), outputs)
    assert np.trace(learned.covariance()) == pytest.approx(learned.total_variance)
    plan = calibrate(outputs, pac.Information(0.4), rule=Shaped(learned.covariance()), rng=0)
    assert plan.mi_upper <= 0.4
    wanted = learned.covariance() / np.trace(learned.covariance())
    got = plan.noise_covariance()
    np.testing.assert_allclose(got / np.trace(got), wanted, atol=1e-6)
    asked = propose_rule_noise(outputs, pac.Information(0.4), rule=Shaped(learned.covariance()))
    assert asked.total_variance == pytest.approx(plan.total_variance, rel=0.05)
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


def test_a_plan_needs_a_budget() -> None:
    with pytest.raises(BudgetError, match="mi_nats"):
        plan_learned_noise(hand_made(np.eye(1), np.eye(3)[:, :1]), mi_nats=-1.0)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(BudgetError, match="batch must be even"):
        Training(batch=3)
    with pytest.raises(BudgetError, match="n_steps must be at least 1"):
        Training(n_steps=0)
    with pytest.raises(BudgetError, match="n_slices must be at least 0"):
        Training(n_slices=-1)
    with pytest.raises(BudgetError, match="leader_rate"):
        Training(leader_rate=0.0)
