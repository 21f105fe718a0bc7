"""A step of DP-GD and DP-SGD passes an audit on worst-case neighbours; planted bugs do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pacprivacy.dp.sgd
from pacprivacy._random import SimulatedSource
from pacprivacy.dp import (
    FixedBatch,
    FullBatch,
    Hinge,
    PoissonBatch,
    ReplacementBatch,
    Steps,
    audit_dp,
    dp_descent_noise,
)
from pacprivacy.dp.descent import DPDescentNoise, run_dp_descent
from pacprivacy.dp.records import WholeRows
from pacprivacy.dp.sgd import LinearSGDSums

EPSILON, DELTA, N_TRIALS = 1.0, 1e-3, 40_000
CLIP = 1.0
Draw = Callable[[int, int], np.ndarray]


def records(side: int, neighbours: str) -> LinearSGDSums:
    """Records whose gradients are far longer than the clipping norm; one is there or is not."""
    loss = Hinge(classes=(0, 1))
    X = [[3.0], [3.0], [3.0]]
    if neighbours == "replace":
        X, y = X[:2], [1, side]  # the second record pulls one way or the other
    else:
        X, y = X[: 2 + side], [1, 1, 1][: 2 + side]
    return LinearSGDSums(WholeRows(X, 5.0), loss.encode(y, len(y)), loss, clip_norm=CLIP)


def picks(batch: Any, n_records: int, n_trials: int, source: SimulatedSource) -> np.ndarray:
    """Draw many batches at once; True where a record is in one."""
    chosen = np.zeros((n_trials, n_records), dtype=np.bool_)
    if isinstance(batch, FixedBatch):
        assert batch.size == 1  # a batch of one record is one uniform draw
        drawn = ReplacementBatch(size=n_trials).draw(n_records, source)
        chosen[np.arange(n_trials), drawn] = True
    else:  # coins are independent over records and trials
        chosen.ravel()[batch.draw(chosen.size, source)] = True
    return chosen


def steps_of(batch: Any, *, noise: float | None = None, reach: int | None = None) -> Draw:
    """Draw first steps from zero weights: sums of secret batches, with the noise of a step."""
    used = noise or dp_descent_noise(batch, 2, n_steps=1, epsilon=EPSILON, delta=DELTA)
    source = SimulatedSource(0)
    relation: Any = batch.neighbours if reach is None else ("add_remove", "replace")[reach - 1]

    def draw(side: int, n_trials: int) -> np.ndarray:
        sums = records(side, batch.neighbours)
        alone = [sums.whole_sum(np.zeros(1), np.array([i]))[0] for i in range(sums.n_records)]
        whole = picks(batch, sums.n_records, n_trials, source) @ np.array(alone)
        # As many coordinates as trials: their noise is independent and of the same law.
        return -DPDescentNoise(used, n_trials, relation, source).release(whole)

    return draw


BATCHES = [
    FullBatch(n_public=2),
    FullBatch(neighbours="replace"),
    PoissonBatch(size=1, n_public=2),
    FixedBatch(size=1),
]


@pytest.mark.claim("G-3")
@pytest.mark.parametrize("batch", BATCHES, ids=lambda b: f"{type(b).__name__}-{b.neighbours}")
def test_a_step_passes_and_the_audit_is_tight(batch: Any) -> None:
    found = audit_dp(steps_of(batch), epsilon=EPSILON, delta=DELTA, n_trials=N_TRIALS)
    assert found.verdict == "holds"
    assert found.epsilon_lower > 0.4


@pytest.mark.claim("G-1")
@pytest.mark.parametrize("batch", BATCHES[:3], ids=lambda b: f"{type(b).__name__}-{b.neighbours}")
def test_clipping_with_max_instead_of_min_is_found(
    batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong:
        """numpy, but for the one function that the slides got wrong."""

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def minimum(self, *arguments: Any) -> Any:
            return np.maximum(*arguments)

    monkeypatch.setattr(pacprivacy.dp.sgd, "np", Wrong())
    found = audit_dp(steps_of(batch), epsilon=EPSILON, delta=DELTA, n_trials=N_TRIALS)
    assert found.verdict != "holds"
    assert found.epsilon_lower > EPSILON


@pytest.mark.claim("G-3")
@pytest.mark.parametrize("batch", BATCHES, ids=lambda b: f"{type(b).__name__}-{b.neighbours}")
def test_half_of_the_sensitivity_is_found(batch: Any) -> None:
    right = dp_descent_noise(batch, 2, n_steps=1, epsilon=EPSILON, delta=DELTA)
    wrong = steps_of(batch, noise=right / 2)
    found = audit_dp(wrong, epsilon=EPSILON, delta=DELTA, n_trials=N_TRIALS)
    assert found.verdict != "holds"


def test_noise_of_add_remove_for_a_replacement_is_found() -> None:
    """The trap of the two relations: the noise that suits adding, used for replacing."""
    right = dp_descent_noise(FullBatch(n_public=2), 2, n_steps=1, epsilon=EPSILON, delta=DELTA)
    wrong = steps_of(FullBatch(neighbours="replace"), noise=right, reach=1)
    assert audit_dp(wrong, epsilon=EPSILON, delta=DELTA, n_trials=N_TRIALS).verdict != "holds"


@pytest.mark.claim("G-3")
def test_released_weights_of_one_step_are_what_was_audited() -> None:
    """The audit looked at noisy sums; the released weights are a fixed multiple of them."""
    batch = FullBatch(n_public=4)
    weights, _ = run_dp_descent(
        records(1, "add_remove"),
        np.zeros(1),
        batch=batch,
        steps=Steps(n_steps=1, learning_rate=0.5, clip_norm=CLIP),
        noise=2.0,
        source=SimulatedSource(3),
    )
    sums = records(1, "add_remove").whole_sum(np.zeros(1), np.arange(3))
    noisy = DPDescentNoise(2.0, 1, "add_remove", SimulatedSource(3)).release(sums)
    np.testing.assert_array_equal(weights, -0.5 * CLIP / 4 * noisy)
