"""The least noise for a true budget: figures, joint design, curves."""

import math
from dataclasses import replace

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import exact_information
from pacprivacy.errors import BudgetError
from pacprivacy.noise import NoisePlan, calibrate
from papers.residual.equilibrium import (
    anisotropy,
    budget_curve,
    free_budget,
)
from papers.residual.examples import example_outputs

LABELS = math.log(4)


def exact_and_waterfill(outputs: np.ndarray, mi_nats: float) -> tuple[NoisePlan, NoisePlan]:
    """Return the least noise for the true information, and for the log-determinant bound."""
    budget = pac.Information(mi_nats)
    return calibrate(outputs, budget, rng=0), calibrate(outputs, budget, rule="waterfill")


@pytest.mark.claim("RP-8")
@pytest.mark.parametrize(
    ("name", "budget", "saving"),
    [
        ("sign beside normal", 2.0, 3.0),
        ("votes", 0.75 * LABELS, 1.15),
        ("votes", 0.9 * LABELS, 1.4),
    ],
)
def test_the_equilibrium_beats_the_gaussian_bound(name: str, budget: float, saving: float) -> None:
    outputs = example_outputs(name, n_subsets=64)
    plan, waterfill = exact_and_waterfill(outputs, budget)
    assert waterfill.total_variance >= saving * plan.total_variance
    assert plan.mi_upper <= budget
    true_mi = exact_information(plan.view(outputs), n_draws=200_000, gamma=1e-3, rng=1)
    assert true_mi.value == pytest.approx(budget, rel=0.01)
    assert true_mi.lower <= budget


@pytest.mark.claim("RP-8")
@pytest.mark.parametrize("budget", [1 / 16, 1 / 4, 1.0])
def test_gaussian_pools_keep_the_gaussian_answer(budget: float) -> None:
    outputs = example_outputs("gaussian", n_subsets=512)
    plan, waterfill = exact_and_waterfill(outputs, budget)
    assert 1 <= waterfill.total_variance / plan.total_variance <= 1.01
    true_mi = exact_information(plan.view(outputs), n_draws=60_000, gamma=1e-3, rng=1)
    assert true_mi.value == pytest.approx(budget, rel=0.01)


def test_few_distinct_outputs_need_no_noise_from_their_entropy_on() -> None:
    votes = example_outputs("votes", n_subsets=64)
    assert free_budget(votes) == pytest.approx(LABELS)
    plan, _ = exact_and_waterfill(votes, LABELS * (1 + 1e-9))
    assert plan.is_noiseless
    assert plan.total_variance == 0.0
    assert not exact_and_waterfill(votes, 0.99 * LABELS)[0].is_noiseless
    skewed = example_outputs("skewed votes", n_subsets=64)
    assert free_budget(skewed) < LABELS - 0.3


def test_curves_are_coherent_and_the_gaussian_bound_flattens() -> None:
    votes = example_outputs("votes", n_subsets=32)
    budgets = [0.3, 0.7, 1.1, 1.3]
    exact = budget_curve(votes, budgets, n_draws=50_000, rng=0)
    gaussian = budget_curve(votes, budgets, rule="waterfill", n_draws=50_000, rng=0)
    for curve in (exact, gaussian):  # a larger budget has less noise
        assert (np.diff(curve.noise) < 0).all()
        assert curve.is_coherent
        assert curve.noise_at(float(curve.true_mi[1])) == pytest.approx(curve.noise[1])
    # At equal truth: waterfill's noise has a worse shape, besides being more than its budget needs.
    for told in (0.3, 0.6, 0.9):
        assert exact.noise_at(told) <= gaussian.noise_at(told) * 1.02
    with pytest.raises(BudgetError, match="true_mi must be between"):
        exact.noise_at(5.0)
    shuffled = replace(exact, true_mi=exact.true_mi[::-1].copy())
    assert not shuffled.is_coherent
    np.testing.assert_allclose(exact.privacy_slope, 1.0, atol=0.06)
    assert (np.diff(gaussian.privacy_slope) < 0).all()
    assert gaussian.privacy_slope[-1] < 0.75
    assert (exact.noise <= gaussian.noise * (1 + 1e-9)).all()
    with pytest.raises(BudgetError, match="increasing"):
        budget_curve(votes, [1.0, 0.5])


def test_anisotropic_noise_saves_what_its_unevenness_says() -> None:
    outputs = np.random.default_rng(0).normal(size=(128, 3)) * [1.0, 0.3, 0.05]
    plans = {
        rule: calibrate(outputs, pac.Information(0.05), rule=rule)
        for rule in ("isotropic", "waterfill")
    }
    assert anisotropy(plans["isotropic"]) == pytest.approx(1.0)
    saved = plans["isotropic"].total_variance / plans["waterfill"].total_variance
    assert saved > 1.5
    assert anisotropy(plans["waterfill"]) > 1.5


@pytest.mark.claim("RP-8")
@pytest.mark.parametrize("name", ["heavy tail", "k-means", "rank deficient", "skewed votes"])
def test_no_pool_gets_more_noise_than_the_gaussian_bound_needs(name: str) -> None:
    outputs = example_outputs(name, n_subsets=24)
    plan, waterfill = exact_and_waterfill(outputs, 0.6)
    assert waterfill.total_variance >= plan.total_variance
    assert plan.mi_upper <= 0.6
