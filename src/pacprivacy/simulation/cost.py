"""What a run will take: seconds and memory, predicted from a pilot before anything else runs."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from pacprivacy._system import available_memory, used_memory
from pacprivacy.mechanism import Data
from pacprivacy.pool import Balanced, Pool
from pacprivacy.simulation.run import EVALUATING, RunJob, prepare_run, run_seconds_after
from pacprivacy.simulation.workers import open_workers

FEW, MORE = 16, 64  # candidates of the two pilots where all are evaluated at once
_PROOF_BYTES: Final = 300_000_000  # what search and proof hold besides, for any pool
_COPIES: Final = 6  # of the outputs, while noise is found


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Predicted seconds of the stages of a run, and its memory; right to a factor of two or so."""

    seconds: dict[str, float]
    memory_bytes: float
    available_bytes: float | None
    n_subsets: int
    n_workers: int
    n_outputs: int

    @property
    def fits(self) -> bool:
        """Whether the run fits into the memory that is there now."""
        return self.available_bytes is None or self.memory_bytes <= self.available_bytes

    @property
    def advice(self) -> str:
        """What to change where it does not fit; empty where it does."""
        if self.fits:
            return ""
        fewer = "fewer workers (n_jobs), " if self.n_workers > 1 else ""
        return (
            f"This run will not fit: it needs about {self.memory_bytes / 1e9:.3g} GB and "
            f"{(self.available_bytes or 0) / 1e9:.3g} GB are free. Use {fewer}fewer candidates "
            "(n_subsets), fewer columns, Balanced(blocks=True), or pac.Dataset for files that are "
            "read in passes."
        )


def predict_cost(
    mechanism: Any,
    data: Data,
    *,
    n_subsets: int,
    strategy: Any = None,
    units: Any = None,
    n_jobs: int | None = None,
    backend: str | None = None,
) -> Cost:
    """Predict a run from two candidates, or from two small pools where all are evaluated at once.

    Time and memory of the latter are lines in the number of candidates.
    """
    strategy = Balanced() if strategy is None else strategy
    labels = data.parts[-1] if len(data.parts) > 1 else None

    def draw(m: int) -> Pool:
        pool: Pool = strategy.with_subsets(m).draw(data.n_rows, rng=0, units=units, strata=labels)
        return pool

    before, start = used_memory(), time.perf_counter()
    prepared = prepare_run(mechanism, data)
    fixing, batch, n_workers = time.perf_counter() - start, prepared.batch, 1
    if batch is None:
        few = draw(FEW)
        job = RunJob(mechanism=prepared, data=data, seed=0)
        (vector, _), first, _ = _measure(lambda: job.evaluate(0, few.rows(0)), memory=False)
        _, second, peak = _measure(lambda: job.evaluate(0, few.rows(0)), memory=True)
        _, third, _ = _measure(lambda: job.evaluate(0, few.rows(0)), memory=False)
        with open_workers(n_jobs, backend) as workers:
            n_workers = workers.count
        evaluating = n_subsets * min(first, second, third) / n_workers
        held, n_outputs = _pool_bytes(few) * n_subsets / FEW + peak * n_workers, vector.size
    else:
        at_once = batch  # known to be there
        few_run, more_run, few_peak, more_peak = (
            _measure(partial(lambda m: at_once(data, draw(m)), m), memory=memory)
            for memory in (False, True)
            for m in (FEW, MORE)
        )
        evaluating = fixing + _line(few_run[1], more_run[1], n_subsets)
        held = _line(few_peak[2], more_peak[2], n_subsets)
        n_outputs = int(np.shape(few_run[0])[1])
    after = run_seconds_after(n_subsets, len(data.parts[0]), n_outputs)
    outputs = 8.0 * n_subsets * n_outputs * _COPIES
    return Cost(
        seconds={EVALUATING: evaluating, **after},
        memory_bytes=before + held + outputs + _PROOF_BYTES,
        available_bytes=None if (free := available_memory()) is None else before + free,
        n_subsets=n_subsets,
        n_workers=n_workers,
        n_outputs=n_outputs,
    )


def _line(few: float, more: float, n_subsets: int) -> float:
    """Follow the line through two pilots; never below the larger one for more candidates."""
    slope = max(0.0, (more - few) / (MORE - FEW))
    return max(few, more + slope * (n_subsets - MORE))


def _measure(function: Callable[[], Any], *, memory: bool) -> tuple[Any, float, int]:
    """Return the value, the seconds, and the most bytes that were held at a time."""
    if memory and not tracemalloc.is_tracing():
        tracemalloc.start()
        try:
            value, seconds, _ = _measure(function, memory=False)
            return value, seconds, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    start = time.perf_counter()
    value = function()
    return value, time.perf_counter() - start, 0


def _pool_bytes(pool: Pool) -> int:
    return pool.bits.nbytes if isinstance(pool.bits, np.ndarray) else 0
