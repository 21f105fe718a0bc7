"""Standard errors of descents: how far coins and noise move the end, against simulated releases."""

from __future__ import annotations

import numpy as np
import pytest

from pacprivacy._random import SimulatedSource
from pacprivacy.mechanism import Descent, coerce_data
from pacprivacy.noise import plan_descent, simulate_descent_errors

RNG = np.random.default_rng(4)
N, RUNS = 600, 60
X = RNG.normal(size=(N, 2)) * [1.0, 20.0]
SCORES = X @ [0.8, -0.03]
TARGETS = {
    "logistic": (SCORES + RNG.logistic(size=N) > 0).astype(float),
    "squared": SCORES + RNG.normal(size=N),
    "poisson": RNG.poisson(np.exp(SCORES / 2)).astype(float),
}


@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("source", ["coins", "noise"])
def test_errors_are_those_of_repeated_releases(loss: str, source: str) -> None:
    fit = Descent(loss=loss, errors=True)  # type: ignore[arg-type]
    data = coerce_data((X, TARGETS[loss]))
    fit = fit.prepare(data)
    keep = 0.5 if source == "coins" else 1.0
    problem = fit.problem(data.parts)
    plan = plan_descent(fit, problem, None, n_units=N, success=0.95, keep=keep, seed=0)
    errors = simulate_descent_errors(plan, seed=0)
    assert errors is not None
    coins, noise = np.random.default_rng(1), SimulatedSource(3)
    ends = [plan.release(coins.random(N) < keep, noise).weights.ravel() for _ in range(RUNS)]
    seen = np.sqrt(np.square(np.array(ends) - errors.end).mean())
    shifts = errors.by_noise + (errors.by_coins if source == "coins" else 0.0)
    predicted = np.sqrt(np.square(shifts).mean())
    # 180 numbers that are not independent vary by 8 % or so; errors of half the size are refused.
    assert 0.75 < seen / predicted < 1.25
