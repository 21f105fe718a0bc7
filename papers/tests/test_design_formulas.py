"""The papers' formulas of privacy-conscious design against printed values and simulation."""

import numpy as np
import pytest

from pacprivacy.design.descent import descent_step
from pacprivacy.design.ridge import noise_ratio, ridge_penalty
from papers.design.formulas import (
    contraction_bound,
    descent_bound,
    released_error,
    ridge_error,
    ridge_error_ratio,
)


@pytest.mark.claim("D-2")
@pytest.mark.parametrize(
    ("budget", "quality", "printed"), [(2**-4, 8.0, 0.587), (2**-10, 10.0, 0.0231)]
)
def test_ridge_ratio_has_the_printed_value(budget: float, quality: float, printed: float) -> None:
    digits = 3 if printed > 0.1 else 4
    assert round(float(ridge_error_ratio(quality, ratio=noise_ratio(budget))), digits) == printed


@pytest.mark.claim("D-2")
def test_the_gain_of_ridge_vanishes_with_the_signal() -> None:
    """The text: at least 40 % for Q of 8 and less, at 1/16 nats."""
    gains = 1 - ridge_error_ratio([8.0, 1.0, 0.01], ratio=noise_ratio(1 / 16))
    assert gains == pytest.approx([0.413, 0.64, 0.065], abs=0.001)


@pytest.mark.claim("D-4")
@pytest.mark.parametrize(
    ("budget", "start_error", "printed"),
    [(2**-2, 1.0, 8.61), (2**-2, 10.0, 2.75), (2**-6, 1.0, 122.1), (2**-6, 10.0, 21.39)],
)
def test_ratio_of_descent_bounds_has_the_printed_value(
    budget: float, start_error: float, printed: float
) -> None:
    problem = {
        "start_error": start_error,
        "gradient_var": 1.0,
        "convexity": 1.0,
        "n_steps": 50,
    }
    ratio = noise_ratio(budget, n_steps=50)
    post_hoc = descent_step(**problem, largest=1.0)
    conscious = descent_step(**problem, ratio=ratio, largest=1.0)
    found = descent_bound(post_hoc, **problem, ratio=ratio) / descent_bound(
        conscious, **problem, ratio=ratio
    )
    assert round(float(found), 1 if printed > 100 else 2) == printed


@pytest.mark.claim("D-1")
def test_released_error_is_the_mean_over_every_subset_and_every_noise() -> None:
    generator = np.random.default_rng(1)
    values, truth, ratio = generator.normal(size=64), 0.3, 7.0
    variance = values.var()
    noise = np.sqrt(ratio * variance) * np.array([-1.0, 1.0])  # mean 0, the right variance
    direct = np.mean((values[:, None] + noise - truth) ** 2) + 0.25
    found = released_error(values.mean() - truth, variance, ratio=ratio, floor=0.25)
    assert float(found) == pytest.approx(direct, rel=1e-12)


@pytest.mark.claim("D-2")
def test_predicted_ratio_is_the_ratio_of_the_errors() -> None:
    generator = np.random.default_rng(3)
    w, sigma2, gram = np.exp(generator.normal(size=(3, 200)))
    ratio = np.exp(generator.uniform(-3, 9, size=200))
    errors = [
        ridge_error(ridge_penalty(w, sigma2, ratio=c), w, sigma2, gram=gram, ratio=ratio)
        for c in (ratio, 0.0)
    ]
    found = ridge_error_ratio(gram * w**2 / sigma2, ratio=ratio)
    np.testing.assert_allclose(found, errors[0] / errors[1], rtol=1e-12)
    assert (found <= 1.0).all()


@pytest.mark.claim("D-2")
def test_ridge_error_is_that_of_a_simulated_fit() -> None:
    generator = np.random.default_rng(4)
    x, w, sigma, penalty, ratio = generator.normal(size=30), 0.4, 0.8, 5.0, 3.0
    targets = x * w + sigma * generator.normal(size=(200_000, 30))
    fitted = targets @ x / (x @ x + penalty)
    noise = np.sqrt(ratio * fitted.var()) * generator.normal(size=len(fitted))
    simulated = np.mean((fitted + noise - w) ** 2)
    formula = ridge_error(penalty, w, sigma**2, gram=x @ x, ratio=ratio)
    assert float(formula) == pytest.approx(simulated, rel=0.015)


@pytest.mark.claim("D-3")
def test_bounds_hold_for_a_quadratic_and_are_attained() -> None:
    generator = np.random.default_rng(6)
    step, mu, n_steps, noise_var = 0.3, 0.7, 12, 0.4
    w = np.full(400_000, 2.0)
    for _ in range(n_steps):
        w = w - step * (mu * w + np.sqrt(noise_var) * generator.normal(size=w.size))
    measured = np.mean(w**2)
    released = np.full(n_steps, noise_var)
    sharp = float(contraction_bound(step, start_error=4.0, released_var=released, convexity=mu))
    loose = float(
        descent_bound(step, start_error=4.0, gradient_var=noise_var, convexity=mu, n_steps=n_steps)
    )
    assert measured == pytest.approx(sharp, rel=0.01)  # curvature μ everywhere: equality
    assert sharp < loose


@pytest.mark.claim("D-3")
def test_bounds_hold_for_a_loss_that_is_not_quadratic() -> None:
    generator = np.random.default_rng(7)
    X, mu, n_steps = generator.normal(size=(60, 3)), 0.2, 30
    y = np.where(X @ [1.0, -1.0, 0.5] + generator.logistic(size=60) > 0, 1.0, -1.0)
    smooth = np.linalg.eigvalsh(X.T @ X / 60)[-1] / 4 + mu
    step = 1 / smooth

    def gradient(weights: np.ndarray) -> np.ndarray:
        slopes = -y / (1 + np.exp(y * (weights @ X.T)))
        return slopes @ X / 60 + mu * weights

    best = np.zeros((1, 3))
    for _ in range(3000):
        best = best - step * gradient(best)
    weights, start = np.zeros((20_000, 3)), float((best**2).sum())
    for _ in range(n_steps):
        weights = weights - step * (gradient(weights) + 0.3 * generator.normal(size=weights.shape))
    measured = ((weights - best) ** 2).sum(axis=1).mean()
    released = np.full(n_steps, 3 * 0.3**2)
    sharp = float(contraction_bound(step, start_error=start, released_var=released, convexity=mu))
    loose = float(
        descent_bound(step, start_error=start, gradient_var=0.27, convexity=mu, n_steps=n_steps)
    )
    assert measured < sharp < loose
    assert measured > 0.2 * sharp  # a bound that is far off would hide a mistake
