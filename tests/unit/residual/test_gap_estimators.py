"""Lower bounds of the Gaussianity gap stay below the exact one, on pools of every shape."""

import math

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import BudgetError
from pacprivacy.noise import calibrate
from pacprivacy.residual import (
    ReleaseSampler,
    corrected_budget,
    exact_gap,
    sliced_gap,
    variational_gap,
)
from papers.residual.examples import example_outputs

GAMMA = 1e-6  # each of the 12 comparisons below is wrong with at most twice this probability
SHAPES = ("gaussian", "bimodal", "heavy tail", "votes", "rank deficient", "k-means")


@pytest.mark.claim("RP-4")
@pytest.mark.claim("RP-6")
@pytest.mark.claim("RP-7")
@pytest.mark.parametrize("name", SHAPES)
def test_lower_bounds_stay_below_the_exact_gap(name: str) -> None:
    outputs = example_outputs(name, n_subsets=200)
    plan = calibrate(outputs, pac.Information(1.0), rule="waterfill")
    exact = exact_gap(outputs, plan, n_draws=60_000, gamma=GAMMA, rng=0)
    sliced = sliced_gap(outputs, plan, n_directions=64, gamma=GAMMA, rng=0)
    critic = variational_gap(
        outputs, plan, n_draws=60_000, n_train=6000, n_features=48, gamma=GAMMA, rng=0
    )
    for bound in (sliced, critic):
        assert 0 <= bound.lower <= exact.upper
        assert bound.lower <= bound.value <= bound.upper
        assert exact.value <= bound.upper
        assert corrected_budget(plan.log_det_nats, bound) >= plan.log_det_nats - exact.upper
    assert sliced.lower > 0
    # few draws and features; the benchmark has a million draws
    assert critic.lower >= {"bimodal": 0.6, "votes": 0.3}.get(name, 0.0) * exact.value


def test_without_whitening_the_bound_is_the_papers_and_still_holds() -> None:
    outputs = example_outputs("bimodal", n_subsets=100)
    plan = calibrate(outputs, pac.Information(2.0), rule="waterfill")
    exact = exact_gap(outputs, plan, n_draws=50_000, gamma=GAMMA, rng=0)
    plain = sliced_gap(outputs, plan, n_directions=64, whiten=False, gamma=GAMMA, rng=0)
    assert 0 < plain.lower <= exact.upper


def test_wasserstein_of_two_far_points_is_the_closed_form() -> None:
    """Two points far apart: half the mass goes to each; the distance is known."""
    outputs = np.array([[-1.0], [1.0]])
    plan = calibrate(outputs, pac.Information(0.69), rule="waterfill")
    half = 1 / float(plan.noise_std[0])
    found = sliced_gap(outputs, plan, n_directions=2, rng=0)
    quantile = np.linspace(0, 1, 200_001)[1:-1]
    rng = np.random.default_rng(0)
    sample = np.sort(rng.choice([-half, half], 2_000_000) + rng.standard_normal(2_000_000))
    from scipy.stats import norm

    gaussian = norm.ppf(quantile, scale=math.sqrt(1 + half**2))
    own = np.quantile(sample, quantile)
    truth = float(np.mean((own - gaussian) ** 2)) / (2 * (1 + half**2))
    assert found.lower == pytest.approx(truth, rel=0.1)


@pytest.mark.claim("RP-7")
def test_any_critic_is_allowed_and_a_bad_one_proves_nothing() -> None:
    outputs = example_outputs("bimodal", n_subsets=64)
    plan = calibrate(outputs, pac.Information(1.5), rule="waterfill")

    class Wrong:
        low, high = -1.0, 1.0

        def __call__(self, releases: np.ndarray) -> np.ndarray:
            return np.clip(1 - np.abs(releases[:, 0]), -1, 1)

    class Right(Wrong):
        def __call__(self, releases: np.ndarray) -> np.ndarray:
            return np.clip(2 - 2 * np.abs(np.abs(releases[:, 0]) - 1) / 0.5, -1, 1)

    wrong = variational_gap(outputs, plan, critic=Wrong(), n_draws=50_000, gamma=GAMMA, rng=0)
    right = variational_gap(outputs, plan, critic=Right(), n_draws=50_000, gamma=GAMMA, rng=0)
    exact = exact_gap(outputs, plan, n_draws=50_000, gamma=GAMMA, rng=0)
    assert wrong.lower == 0.0
    assert 0 < right.lower <= exact.upper


def test_the_gaussian_of_a_sampler_has_the_moments_of_the_release() -> None:
    outputs = example_outputs("k-means", n_subsets=64)
    sampler = ReleaseSampler.of(outputs, calibrate(outputs, pac.Information(1.0), rule="diagonal"))
    drawn = sampler.released(200_000, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), np.eye(sampler.n_directions), atol=0.03)


def test_too_few_draws_are_refused() -> None:
    outputs = example_outputs("gaussian", n_subsets=16)
    plan = calibrate(outputs, pac.Information(1.0), rule="waterfill")
    with pytest.raises(BudgetError, match="n_directions"):
        sliced_gap(outputs, plan, n_directions=1)
    with pytest.raises(BudgetError, match="n_draws"):
        variational_gap(outputs, plan, n_draws=1)
