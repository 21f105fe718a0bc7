"""Seconds and memory of a run, predicted from a pilot."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import PoolError
from pacprivacy.session import Rehearsal, rehearsal
from pacprivacy.simulation import EVALUATING, cost
from pacprivacy.statistics import Covariance, Mean

X = np.random.default_rng(0).normal(size=(20_000, 10))


def predict(mechanism: Any, **options: Any) -> cost.Cost:
    return Rehearsal(X, **options).cost(mechanism)


def test_a_black_box_takes_as_long_as_its_candidates() -> None:
    def sleeps(X: np.ndarray) -> float:
        time.sleep(0.01)
        return float(X.mean())

    found = predict(sleeps, n_subsets=100)
    assert found.seconds[EVALUATING] >= 1.0
    assert found.n_outputs == 1
    two = predict(sleeps, n_subsets=100, n_jobs=2)
    assert two.n_workers == 2


def test_statistics_grow_with_the_candidates() -> None:
    few, many = predict(Covariance(), n_subsets=256), predict(Covariance(), n_subsets=2048)
    assert few.n_outputs == 55
    assert many.memory_bytes > few.memory_bytes + 1792 * len(X) / 8  # packed masks alone
    assert few.seconds[EVALUATING] > 0


def test_what_will_not_fit_says_so_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "available_memory", lambda: 10_000)
    found = predict(Mean(), n_subsets=256)
    assert not found.fits
    assert "will not fit" in found.advice
    assert "Balanced(blocks=True)" in found.advice
    monkeypatch.setattr(rehearsal, "available_memory", lambda: 10_000)
    with pytest.raises(PoolError, match="must fit into memory; got 256 subsets of 20000 units"):
        pac.privatize(Mean(), X, "mi<=1", n_subsets=256)
    pac.plan(Mean(), X, "mi<=1", pool=pac.Balanced(n_subsets=16, blocks=True))
