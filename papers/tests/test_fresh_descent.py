"""Gradient descent with fresh secrets: its noise, its releases, and what it does not hide."""

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.design import Descent, Objective
from pacprivacy.design.descent import subset_gradient_variance
from pacprivacy.design.ridge import noise_ratio
from pacprivacy.errors import BudgetError
from pacprivacy.theory.bounds import information_slack_bound
from papers.design.fresh import UNITS_PER_STD, descend_fresh, fresh_noise, subset_means


def classes(n: int = 60, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d)) * np.linspace(2.0, 0.5, d)
    y = np.where(X @ np.ones(d) + generator.logistic(size=n) > 0, 1.0, -1.0)
    return X - X.mean(axis=0), y


@pytest.mark.claim("D-8")
@pytest.mark.parametrize("mi_nats", [1e-8, 1e-4, 0.3])
def test_fresh_noise_is_enough_and_not_too_much(mi_nats: float) -> None:
    variances = np.array([1e-12, 1.0, 1e9])
    grid_step, units = fresh_noise(variances, mi_nats=mi_nats, n_records=10_000)
    noise_std = grid_step * units
    worst = np.sqrt(variances) + grid_step / 2  # deviation of the rounded output, at most
    slack = information_slack_bound(1 / (16 * float(UNITS_PER_STD) ** 2), 1 << 10_000)
    assert (0.5 * np.log1p((worst / noise_std) ** 2) + slack <= mi_nats).all()
    np.testing.assert_allclose(noise_std**2, variances / (2 * mi_nats), rtol=1e-3)
    assert (units >= UNITS_PER_STD).all()
    np.testing.assert_array_equal(np.frexp(grid_step)[0], 0.5)  # powers of two
    with pytest.raises(BudgetError, match="for a secret subset of 10000 records"):
        fresh_noise(variances, mi_nats=1e-15, n_records=10_000)


@pytest.mark.claim("D-5", "D-8")
def test_fresh_releases_have_the_mean_and_the_variance_that_was_claimed() -> None:
    X, y = classes(n=12)
    objective, descent = (
        Objective(penalty=0.3),
        Descent(objective=Objective(penalty=0.3), n_steps=1, step=1.0),
    )
    gradients = objective.slopes(np.zeros(12), y)[:, None] * X
    released = -np.array(
        [
            descend_fresh((X, y), pac.Information(0.6), descent, rng=trial, simulate=True).weights
            for trial in range(3000)
        ]
    )
    subset_var = subset_gradient_variance(gradients.var(axis=0, ddof=1), 12)
    total = subset_var * (1 + float(noise_ratio(0.6, n_dimensions=3)))
    errors = np.sqrt(total / 3000)
    assert (np.abs(released.mean(axis=0) - gradients.mean(axis=0)) < 5 * errors).all()
    # Relative standard error of a variance: sqrt(2/3000) = 2.6 %.
    np.testing.assert_allclose(released.var(axis=0), total, rtol=0.12)


def test_subset_means_are_means_of_subsets() -> None:
    columns = np.arange(10.0).reshape(5, 2)
    possible = [
        {float(columns[[i for i in range(5) if bits >> i & 1], j].mean()) for bits in range(1, 32)}
        for j in range(2)
    ]
    drawn = np.array([subset_means(columns, SimulatedSource(seed)) for seed in range(400)])
    for j in range(2):
        assert {float(x) for x in drawn[:, j].round(12)} <= {round(x, 12) for x in possible[j]}
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.2  # every coordinate has a secret of its own


def test_fresh_runs_say_what_they_do_not_hide() -> None:
    X, y = classes()
    run = descend_fresh((X, y), pac.Information(0.1), Descent(n_steps=2))
    assert run.n_secrets == 6
    assert run.ever_used_prior == 1 - 2.0**-6
    assert "1 - 2^-6" in str(run)
    assert "SIMULATION" not in str(run)
    flat = np.hstack([X, np.zeros((60, 1))])
    still = descend_fresh((flat, y), pac.Information(0.1), Descent(n_steps=2), simulate=True, rng=0)
    assert still.weights[3] == 0.0
    assert "SIMULATION" in str(still)


def test_fresh_descents_are_refused_in_words() -> None:
    X, y = classes()
    with pytest.raises(BudgetError, match="budget must be Information for fresh"):
        descend_fresh((X, y), pac.Membership(0.6))  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="targets must be one column"):
        descend_fresh((X, np.column_stack([y, y])), pac.Information(0.1))
