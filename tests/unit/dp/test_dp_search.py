"""Private hyper-parameter search, and what it costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pacprivacy._random import SimulatedSource, SystemSource
from pacprivacy.dp import (
    FixedBatch,
    FullBatch,
    Logistic,
    PoissonBatch,
    ReplacementBatch,
    Steps,
    dp_descent_noise,
    dp_search,
    dp_search_noise,
)
from pacprivacy.dp.sgd import draw_search_runs
from pacprivacy.errors import BudgetError, DataError, MechanismError

POISSON = PoissonBatch(size=20, n_public=1000)


def test_numbers_of_runs_follow_their_law() -> None:
    source = SimulatedSource(0)
    drawn = [draw_search_runs(4.0, source) for _ in range(4000)]
    assert min(drawn) == 1
    counts = np.bincount(np.minimum(drawn, 8), minlength=9)[1:]
    law = stats.geom(0.25)
    expected = np.append(law.pmf(np.arange(1, 8)), law.sf(7)) * 4000
    assert stats.chisquare(counts, expected).pvalue > 1e-6


@pytest.mark.claim("G-4")
def test_search_needs_more_noise_than_a_run() -> None:
    settings = {"n_steps": 100, "epsilon": 1.0, "delta": 1e-5}
    single = dp_descent_noise(POISSON, 0, **settings)
    found = {mean: dp_search_noise(POISSON, 0, mean_runs=mean, **settings) for mean in (5.0, 20.0)}
    assert single < found[5.0] < found[20.0] < 3 * single


@pytest.mark.claim("G-4")
def test_search_noise_by_the_published_formula() -> None:
    """Theorem 2 of Papernot and Steinke for Gaussian runs, whose divergences are linear."""
    n_steps, delta = 10, 1e-5
    noise = dp_search_noise(
        FullBatch(n_public=5), 5, n_steps=n_steps, mean_runs=5.0, epsilon=2.0, delta=delta
    )
    orders = np.arange(2, 65)
    rho = n_steps / (2 * noise**2)
    constant = 2 * np.min((1 - 1 / orders) * rho * orders + math.log(5) / orders)
    divergences = rho * orders + math.log(5) / (orders - 1) + constant
    converted = (
        divergences + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    )
    assert converted.min() == pytest.approx(2.0, rel=0.01)


def blobs(n: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(2)
    y = generator.integers(2, size=n)
    return generator.normal(size=(n, 2)) * 0.4 + np.where(y[:, None] == 1, 0.5, -0.5), y


def test_search_finds_the_better_setting() -> None:
    X, y = blobs(3000)
    public_X, public_y = blobs(500)
    settings: dict[str, Any] = {
        "loss": Logistic(classes=(0, 1)),
        "candidates": [
            Steps(n_steps=20, learning_rate=rate, clip_norm=0.5) for rate in (1e-4, 1.0)
        ],
        "score": lambda w: -np.logaddexp(0, -(2 * public_y - 1) * (public_X @ w)).mean(),
        "epsilon": 2.0,
        "delta": 1e-6,
        "x_bound": 1.0,
        "batch": FullBatch(n_public=3000),
        "mean_runs": 6.0,
    }
    kept = [dp_search(X, y, **settings, simulate=seed).value["candidate"] for seed in range(12)]
    assert np.mean(kept) > 0.7  # an even draw would keep the better one half of the time
    release = dp_search(X, y, **settings)
    assert release.value["weights"].shape == (2,)
    assert not release.certificate.simulation
    assert (release.certificate.epsilon, release.certificate.delta) == (2.0, 1e-6)
    assert "mean 6" in release.certificate.mechanism


def test_bad_searches_are_refused_before_anything_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = blobs(50)

    def spend(self: object, size: int) -> None:
        raise AssertionError("something was drawn")

    monkeypatch.setattr(SystemSource, "words", spend)
    one = Steps(n_steps=5, learning_rate=0.1, clip_norm=1.0)
    good: dict[str, Any] = {
        "loss": Logistic(classes=(0, 1)),
        "candidates": [one],
        "score": lambda w: 0.0,
        "epsilon": 1.0,
        "delta": 1e-6,
        "x_bound": 1.0,
        "batch": FixedBatch(size=5),
        "mean_runs": 3.0,
    }
    two = Steps(n_steps=6, learning_rate=0.1, clip_norm=1.0)
    for bad, error, match in (
        ({"epsilon": 0.0}, BudgetError, "epsilon must be"),
        ({"mean_runs": 1.0}, BudgetError, "mean_runs must be above 1"),
        ({"delta": 0.0}, BudgetError, "delta must be between"),
        ({"delta": 1e-12}, BudgetError, "large enough for the grid"),
        ({"candidates": []}, MechanismError, "candidates must be"),
        ({"candidates": [one, two]}, MechanismError, "same number of steps"),
        ({"batch": ReplacementBatch(size=5)}, BudgetError, "batch must be"),
        ({"loss": Logistic(classes=("5", "6"))}, DataError, "classes must be of the type"),
    ):
        with pytest.raises(error, match=match):
            dp_search(X, y, **(good | bad))
