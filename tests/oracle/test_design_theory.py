"""Formulas of privacy-conscious design against printed values, brute force and simulation."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from pacprivacy.design.descent import (
    _mean_inverse_size,
    descent_step,
    subset_gradient_variance,
)
from pacprivacy.design.ridge import noise_ratio, ridge_penalty
from pacprivacy.errors import BudgetError

GOLDEN = (np.sqrt(np.longdouble(5)) - 1) / 2
N_PROBLEMS = 1000


def golden_minimum(
    objective: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Minimise many one-dimensional functions at once, in extended precision."""
    a, b = low.astype(np.longdouble), high.astype(np.longdouble)
    for _ in range(140):
        left, right = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
        lower = objective(left) < objective(right)
        a, b = np.where(lower, a, left), np.where(lower, right, b)
    return ((a + b) / 2).astype(np.float64)


# --- printed values ---------------------------------------------------------------------------


@pytest.mark.claim("D-4")
def test_exact_step_differs_from_the_formula_as_printed() -> None:
    problem = {"start_error": 10.0, "gradient_var": 1.0, "convexity": 1.0, "n_steps": 50}
    assert round(float(descent_step(**problem)), 4) == 0.1241
    assert round(float(descent_step(exact=True, **problem)), 4) == 0.1189


# --- brute force ------------------------------------------------------------------------------


@pytest.mark.claim("D-2")
def test_ridge_penalty_minimises_its_objective() -> None:
    generator = np.random.default_rng(2)
    w = generator.normal(size=N_PROBLEMS)
    sigma2, gram = np.exp(generator.normal(0, 2, size=(2, N_PROBLEMS)))
    ratio = np.exp(generator.uniform(-3, 9, size=N_PROBLEMS))

    def objective(log_penalty: np.ndarray) -> np.ndarray:
        # The error less its value at one end, subtracted by hand: a search that compares values
        # must see the differences, not a constant that swallows them.
        penalty, spread = np.exp(log_penalty), (1 + ratio) * sigma2
        to_infinity = gram * (spread - gram * w**2 - 2 * penalty * w**2)
        to_zero = (penalty * w) ** 2 - spread * (2 * penalty + penalty**2 / gram)
        far = spread > gram * w**2
        return np.where(far, to_infinity, to_zero) / (gram + penalty) ** 2

    formula = ridge_penalty(w, sigma2, ratio=ratio)
    brute = golden_minimum(objective, np.full(N_PROBLEMS, -30.0), np.full(N_PROBLEMS, 40.0))
    np.testing.assert_allclose(formula, np.exp(brute), rtol=1e-6)


def random_descents(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "start_error": np.exp(generator.uniform(-9, 5, N_PROBLEMS)),
        "gradient_var": np.exp(generator.uniform(-12, 2, N_PROBLEMS)),
        "convexity": np.exp(generator.uniform(-4, 1, N_PROBLEMS)),
        "ratio": np.where(
            generator.random(N_PROBLEMS) < 0.2, 0.0, np.exp(generator.uniform(0, 15, N_PROBLEMS))
        ),
    }


@pytest.mark.claim("D-4")
@pytest.mark.parametrize("n_steps", [1, 2, 10, 50, 1000])
def test_step_formula_minimises_the_exponential_approximation(n_steps: int) -> None:
    problem = random_descents(n_steps)
    mu, e0 = problem["convexity"], problem["start_error"]
    beta = (1 + problem["ratio"]) * problem["gradient_var"] / mu

    def objective(log_step: np.ndarray) -> np.ndarray:
        step = np.exp(log_step)
        decay = mu * n_steps * step
        return np.expm1(-decay) * (e0 - beta * step)  # less e0, its value at zero

    formula = descent_step(**problem, n_steps=n_steps)
    brute = golden_minimum(objective, np.log(formula) - 8.0, np.log(formula) + 8.0)
    np.testing.assert_allclose(formula, np.exp(brute), rtol=1e-6)


@pytest.mark.claim("D-4")
@pytest.mark.parametrize("n_steps", [2, 10, 50, 1000])
def test_exact_step_minimises_the_bound(n_steps: int) -> None:
    problem = random_descents(100 + n_steps)
    mu, e0 = problem["convexity"], problem["start_error"]
    spread = (1 + problem["ratio"]) * problem["gradient_var"]

    def objective(log_shrink: np.ndarray) -> np.ndarray:
        shrink = np.exp(log_shrink)
        left = n_steps * np.log1p(-shrink)
        return np.expm1(left) * (e0 - shrink / mu**2 * spread)  # less e0, its value at zero

    exact = descent_step(exact=True, **problem, n_steps=n_steps)
    top = np.minimum(np.log(exact * mu) + 8.0, -1e-12)
    brute = golden_minimum(objective, np.log(exact * mu) - 8.0, top)
    np.testing.assert_allclose(exact * mu, np.exp(brute), rtol=1e-6)
    by_formula = descent_step(**problem, n_steps=n_steps, largest=1 / mu)
    with np.errstate(divide="ignore"):
        best, other = (objective(np.log(step * mu)) for step in (exact, by_formula))
    assert (best <= other + 1e-12 * e0).all()


@pytest.mark.claim("D-4")
def test_exact_step_of_a_single_step_and_at_the_cap() -> None:
    # T = 1: the bound is quadratic in the step, with its minimum at e0² μ / 2σ² (μ = 1 here).
    problem = {"gradient_var": 1.0, "convexity": 1.0, "n_steps": 1}
    assert float(descent_step(exact=True, start_error=0.5, **problem)) == pytest.approx(
        0.25, rel=1e-14
    )
    assert float(descent_step(exact=True, start_error=9.0, **problem)) == 1.0
    assert float(descent_step(exact=True, start_error=9.0, largest=0.3, **problem)) == 0.3
    assert float(descent_step(exact=True, start_error=0.0, **problem)) == 0.0
    assert float(descent_step(start_error=9.0, largest=0.3, **problem)) == 0.3
    noiseless = {"start_error": 1.0, "gradient_var": 0.0, "convexity": 2.0, "n_steps": 5}
    assert float(descent_step(exact=True, **noiseless)) == 0.5
    assert float(descent_step(**noiseless, largest=0.4)) == 0.4


@pytest.mark.claim("D-4")
def test_steps_do_not_overflow_or_lose_digits() -> None:
    extremes = np.array([1e-300, 1e-30, 1e-12, 1e-6, 1.0, 1e6, 1e30, 1e300])
    common = {"gradient_var": 1.0, "convexity": 1.0, "n_steps": 10}
    steps = descent_step(start_error=extremes, **common)
    assert np.isfinite(steps).all()
    assert (np.diff(steps) > 0).all()
    # For a small start error, e^u + u = 1 + x has the solution u = x/2 - x²/16 + ...
    np.testing.assert_allclose(steps[:3], extremes[:3] / 2, rtol=1e-10)


def test_formulas_broadcast_over_dimensions_and_budgets() -> None:
    budgets = np.array([1 / 4, 1 / 16, 1 / 64])[:, None]
    ratio = noise_ratio(budgets, n_dimensions=5, n_steps=10)
    common = {
        "start_error": np.linspace(0.1, 1, 5),
        "gradient_var": np.linspace(1, 2, 5),
        "convexity": 0.1,
        "n_steps": 10,
    }
    for exact in (False, True):
        steps = descent_step(**common, ratio=ratio, largest=0.5, exact=exact)
        assert steps.shape == (3, 5)
        assert (np.diff(steps, axis=0) < 0).all()  # smaller budgets, smaller steps
    assert ridge_penalty(np.ones(5), 1.0, ratio=ratio).shape == (3, 5)
    assert ridge_penalty(0.0, 1.0) == np.inf


# --- the variance of a subset's mean gradient -------------------------------------------------


@pytest.mark.claim("D-5")
@pytest.mark.parametrize("n_records", [2, 3, 7, 10])
def test_subset_mean_variance_by_enumeration(n_records: int) -> None:
    values = np.random.default_rng(n_records).normal(size=n_records)
    masks = np.array(list(itertools.product([0.0, 1.0], repeat=n_records)))[1:]
    size = masks.sum(axis=1)
    variance = (masks @ values / size).var()
    found = subset_gradient_variance(values.var(ddof=1), n_records)
    assert float(found) == pytest.approx(variance, rel=1e-12)
    assert _mean_inverse_size(n_records) == pytest.approx((1 / size).mean(), rel=1e-12)


@pytest.mark.claim("D-5")
def test_subset_mean_variance_against_simulation_on_twenty_problems() -> None:
    generator = np.random.default_rng(8)
    for _ in range(20):
        n_records, n_draws = int(generator.integers(8, 60)), 200_000
        X = generator.normal(size=(n_records, 2)) * np.exp(generator.normal(size=2))
        y = np.where(generator.random(n_records) < 0.5, 1.0, -1.0)
        slopes = -y / (1 + np.exp(y * (X @ generator.normal(size=2))))
        gradients = slopes[:, None] * X
        masks = (generator.random((n_draws, n_records)) < 0.5).astype(np.float32)
        size = masks.sum(axis=1)
        means = (masks @ gradients.astype(np.float32))[size > 0] / size[size > 0, None]
        formula = subset_gradient_variance(gradients.var(axis=0, ddof=1), n_records)
        np.testing.assert_allclose(means.var(axis=0), formula, rtol=0.015)


def test_mean_inverse_size_of_large_universes() -> None:
    for n_records in (10**4, 10**6, 10**8):
        # E[1/k] = 1/np (1 + (1-p)/np + ...): the second term is all that is left at this size.
        expected = 2 / n_records * (1 + 1 / n_records)
        assert _mean_inverse_size(n_records) == pytest.approx(
            expected, rel=10 / n_records**2 + 1e-9
        )


def test_refusals_name_the_argument() -> None:
    with pytest.raises(BudgetError, match="mi_nats must be above 0"):
        noise_ratio(0.0)
    with pytest.raises(BudgetError, match="n_dimensions and n_steps"):
        noise_ratio(0.1, n_dimensions=0)
    with pytest.raises(BudgetError, match="noise_var must be at least 0"):
        ridge_penalty(1.0, [-1.0, 2.0], ratio=1.0)
    with pytest.raises(BudgetError, match="convexity must be above 0"):
        descent_step(start_error=1.0, gradient_var=1.0, convexity=0.0, n_steps=5)
    with pytest.raises(BudgetError, match="n_steps must be at least 1"):
        descent_step(start_error=1.0, gradient_var=1.0, convexity=1.0, n_steps=0)
    with pytest.raises(BudgetError, match="n_records must be at least 2"):
        subset_gradient_variance(1.0, 1)
