"""Confidence bounds, checked by enumerating every outcome of small experiments."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pacprivacy.errors import BudgetError
from pacprivacy.theory import (
    Estimate,
    bernstein_estimate,
    clopper_pearson,
    empirical_bernstein,
    std_upper_bound,
)
from pacprivacy.theory.bounds import falling_root


@pytest.mark.claim("T-3")
def test_half_width_by_hand() -> None:
    # ln(2/γ) = 5: sqrt(2 · 0.09 · 5 / 100) + 7 · 2 · 5 / (3 · 99)
    gamma = 2 * math.exp(-5)
    expected = math.sqrt(0.009) + 70 / 297
    assert empirical_bernstein(0.09, 100, width=2.0, gamma=gamma) == pytest.approx(expected)


@pytest.mark.claim("T-3")
def test_half_width_of_many_means_at_once() -> None:
    variances = np.array([[0.0, 0.1], [0.2, 0.3]])
    many = empirical_bernstein(variances, 50, width=1.0, gamma=1e-3)
    for index in np.ndindex(2, 2):
        assert many[index] == empirical_bernstein(
            float(variances[index]), 50, width=1.0, gamma=1e-3
        )


@pytest.mark.claim("T-3")
@pytest.mark.parametrize("gamma", [0.3, 0.05])
@pytest.mark.parametrize("n_draws", [5, 60, 4000])
def test_failure_probability_over_all_outcomes_of_coins(gamma: float, n_draws: int) -> None:
    """Enumerate the number of heads: the bound fails with probability at most gamma."""
    heads = np.arange(n_draws + 1)
    means = heads / n_draws
    variances = heads * (n_draws - heads) / (n_draws * (n_draws - 1))
    half = empirical_bernstein(variances, n_draws, width=1.0, gamma=gamma)
    for rate in (0.001, 0.02, 0.1, 0.5, 0.9, 0.98, 0.999):
        mass = stats.binom.pmf(heads, n_draws, rate)
        assert mass[means + half < rate].sum() <= gamma
        assert mass[means - half > rate].sum() <= gamma
    if n_draws == 60:  # without its second term the bound fails, and the enumeration says so
        first_term = np.sqrt(2 * variances * math.log(2 / gamma) / n_draws)
        assert stats.binom.pmf(heads, n_draws, 0.01)[means + first_term < 0.01].sum() > gamma


@pytest.mark.claim("T-3")
def test_estimate_is_two_sided_and_clipped() -> None:
    estimate = bernstein_estimate(0.55, 0.01, 10_000, low=0.5, high=1.0, gamma=1e-9)
    half = empirical_bernstein(0.01, 10_000, width=0.5, gamma=5e-10)
    assert (estimate.lower, estimate.upper) == (0.55 - half, 0.55 + half)
    assert estimate.confidence == 1 - 1e-9
    few = bernstein_estimate(0.55, 0.01, 3, low=0.5, high=1.0, gamma=1e-9)
    assert (few.lower, few.upper) == (0.5, 1.0)
    rounded = bernstein_estimate(1.0 + 1e-12, 0.0, 100, low=0.5, high=1.0, gamma=0.1)
    assert rounded.value == rounded.upper == 1.0


@pytest.mark.claim("T-4")
def test_std_bound_by_hand() -> None:
    gamma = 3 * math.exp(-2)
    bound = std_upper_bound([0.5, 1.0, 0.0], 2.0, n_subsets=101, n_dimensions=3, gamma=gamma)
    np.testing.assert_allclose(bound, np.array([0.5, 1.0, 0.0]) + 2 * math.sqrt(4 / 100))


@pytest.mark.claim("T-4")
@pytest.mark.parametrize("n_subsets", [5, 60, 1000])
@pytest.mark.parametrize("gamma", [0.5, 0.05])
def test_std_bound_over_all_outcomes_of_coins(n_subsets: int, gamma: float) -> None:
    heads = np.arange(n_subsets + 1)
    std_hat = np.sqrt(heads * (n_subsets - heads) / (n_subsets * (n_subsets - 1)))
    bound = std_upper_bound(std_hat, 1.0, n_subsets=n_subsets, n_dimensions=1, gamma=gamma)
    for rate in (0.001, 0.02, 0.1, 0.3, 0.5):
        mass = stats.binom.pmf(heads, n_subsets, rate)
        assert mass[bound < math.sqrt(rate * (1 - rate))].sum() <= gamma


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (3, 20), (20, 20), (600, 1000)])
def test_clopper_pearson_inverts_the_binomial_tails(successes: int, trials: int) -> None:
    estimate = clopper_pearson(successes, trials, gamma=0.02)
    assert estimate.value == successes / trials
    if successes:
        tail = stats.binom.sf(successes - 1, trials, estimate.lower)
        assert tail == pytest.approx(0.01, rel=1e-6)
    else:
        assert estimate.lower == 0.0
    if successes < trials:
        tail = stats.binom.cdf(successes, trials, estimate.upper)
        assert tail == pytest.approx(0.01, rel=1e-6)
    else:
        assert estimate.upper == 1.0


def test_estimate_is_a_public_immutable_record() -> None:
    estimate = Estimate(value=0.2, lower=0.1, upper=0.3, confidence=0.95, n_draws=7)
    assert estimate.to_public_dict() == {
        "schema_version": 1,
        "value": 0.2,
        "lower": 0.1,
        "upper": 0.3,
        "confidence": 0.95,
        "n_draws": 7,
    }
    assert str(estimate) == "0.2 (between 0.1 and 0.3; confidence 1 - 0.05, 7 draws)"
    exact = Estimate(value=0.2, lower=0.2, upper=0.2, confidence=1.0, n_draws=0)
    assert str(exact) == "0.2 (between 0.2 and 0.2; exact)"
    with pytest.raises(AttributeError):
        estimate.value = 0.5  # type: ignore[misc]


def test_tiny_gamma_is_not_rounded_to_certainty() -> None:
    estimate = bernstein_estimate(0.5, 0.1, 10**6, low=0.0, high=1.0, gamma=1e-30)
    assert estimate.confidence < 1.0


@pytest.mark.parametrize("gamma", [0.0, 1.0, -1e-9, math.nan])
def test_gamma_is_a_probability(gamma: float) -> None:
    for call in (
        lambda: empirical_bernstein(0.1, 10, width=1.0, gamma=gamma),
        lambda: bernstein_estimate(0.1, 0.1, 10, low=0.0, high=1.0, gamma=gamma),
        lambda: std_upper_bound(0.1, 1.0, n_subsets=10, n_dimensions=1, gamma=gamma),
        lambda: clopper_pearson(1, 10, gamma=gamma),
    ):
        with pytest.raises(BudgetError, match="gamma must be above 0 and below 1"):
            call()


def test_refusals() -> None:
    with pytest.raises(BudgetError, match=r"variance must be >= 0; got -0\.1"):
        empirical_bernstein(-0.1, 10, width=1.0, gamma=0.1)
    with pytest.raises(BudgetError, match="n_draws must be at least 2; got 1"):
        empirical_bernstein(0.1, 1, width=1.0, gamma=0.1)
    with pytest.raises(BudgetError, match="width must be a positive finite number; got inf"):
        empirical_bernstein(0.1, 10, width=math.inf, gamma=0.1)
    with pytest.raises(BudgetError, match="low must be below high"):
        bernstein_estimate(0.5, 0.1, 10, low=1.0, high=1.0, gamma=0.1)
    with pytest.raises(BudgetError, match=r"mean must be between low 0\.5 and high 1\.0; got"):
        bernstein_estimate(0.4, 0.1, 10, low=0.5, high=1.0, gamma=0.1)
    with pytest.raises(BudgetError, match="n_subsets must be at least 2"):
        std_upper_bound(0.1, 1.0, n_subsets=1, n_dimensions=1, gamma=0.1)
    with pytest.raises(BudgetError, match="width finite"):
        std_upper_bound(0.1, math.inf, n_subsets=10, n_dimensions=1, gamma=0.1)
    with pytest.raises(BudgetError, match="successes must be between 0 and trials"):
        clopper_pearson(11, 10, gamma=0.1)
    with pytest.raises(BudgetError, match="value must be between lower"):
        Estimate(value=2.0, lower=0.0, upper=1.0, confidence=0.9, n_draws=1)
    with pytest.raises(BudgetError, match="confidence must be above 0"):
        Estimate(value=0.5, lower=0.0, upper=1.0, confidence=0.0, n_draws=1)


@pytest.mark.parametrize(
    ("excess", "root"),
    [
        (lambda x: 2 - math.exp(x), math.log(2)),
        (lambda x: math.exp(-40 * x) - 1e-9, math.log(1e9) / 40),
        (lambda x: 0.25 - x if x < 0.3 else -1e9, 0.25),
        (lambda x: 1.0 if x < 0.7 else -1.0, 0.7),
        (lambda x: -x, 0.0),
    ],
)
def test_the_root_of_a_falling_function_is_never_above_it(excess: Any, root: float) -> None:
    found = falling_root(excess, 0.0, 1.0) if root else falling_root(excess, -1.0, 0.0)
    assert excess(found) <= 0
    assert found == pytest.approx(root, abs=1e-12)
