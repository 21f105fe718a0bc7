"""The simulation subset by subset: first one checked, the others fanned out, all kept."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import CheckpointError, InterruptedRun, MechanismError
from pacprivacy.mechanism import Structure
from pacprivacy.pool import Pool
from pacprivacy.simulation.backends import (
    choose_batch_size,
    count_workers,
    make_batches,
    run_subsets,
)
from pacprivacy.simulation.checkpoint import Checkpoint, Header
from pacprivacy.simulation.notices import Notice
from pacprivacy.simulation.progress import show_progress
from pacprivacy.simulation.worker import BatchResult, Job, explain

__all__ = ["SubsetRun"]

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class SubsetRun:
    """One run of a mechanism over a pool.

    Parameters
    ----------
    job : Job
        The mechanism, the data and the seed.
    pool : Pool
        The subsets.
    path : Path or None
        The checkpoint.

    Attributes
    ----------
    n_done : int, public
        How many subsets are finished.
    notices : list of Notice
        Warnings that came back from workers.
    """

    job: Job
    pool: Pool
    path: Path | None
    n_done: int = 0
    notices: list[Notice] = field(default_factory=list)

    def execute(self, *, n_jobs: int | None, progress: bool | None) -> tuple[Matrix, Structure]:
        """Return the values of all subsets and their common structure."""
        try:
            return self._execute(n_jobs, progress)
        except KeyboardInterrupt:
            raise InterruptedRun(self._stopped()) from None

    def _execute(self, n_jobs: int | None, progress: bool | None) -> tuple[Matrix, Structure]:
        n_workers = count_workers(n_jobs)
        start = time.perf_counter()
        first, structure = self._evaluate_first()
        seconds = time.perf_counter() - start
        values = np.empty((self.pool.n_subsets, first.size))
        finished = np.zeros(self.pool.n_subsets, dtype=np.bool_)
        with ExitStack() as stack:
            file = self._open_checkpoint(stack, first.size)
            if file is not None:
                file.load(values, finished)
            if finished[0]:
                self._compare_with_checkpoint(values[0], first)
            else:
                self._compare_with_second_run(first)
            self.n_done = int(finished.sum())
            advance = stack.enter_context(
                show_progress(self.pool.n_subsets, done=self.n_done, enabled=progress)
            )

            def accept(batch: BatchResult) -> None:
                if file is not None and batch.values:
                    file.append(batch.values)
                for k, vector in batch.values.items():
                    values[k] = vector
                self.notices.extend(batch.notices)
                self.n_done += len(batch.values)
                advance(len(batch.values))

            if not finished[0]:
                accept(BatchResult(values={0: first}, failure=None))
            left = [k for k in range(1, self.pool.n_subsets) if not finished[k]]
            size = choose_batch_size(len(left), seconds, n_workers)
            batches = make_batches(self.pool, left, size)
            with closing(run_subsets(self.job, structure, batches, n_jobs=n_jobs)) as results:
                for batch in results:
                    accept(batch)
        return values, structure

    def _evaluate_first(self) -> tuple[Vector, Structure]:
        try:
            return self.job.evaluate(0, self.pool.rows(0))
        except Exception as error:
            raise explain(0, error).to_error() from error

    def _open_checkpoint(self, stack: ExitStack, n_outputs: int) -> Checkpoint | None:
        if self.path is None:
            return None
        header = Header(
            mechanism=self.job.mechanism.name,
            data=self.job.data.digest(),
            pool=self.pool.digest(),
            n_subsets=self.pool.n_subsets,
            n_outputs=n_outputs,
            seed=self.job.seed,
            pool_seed=self.pool.seed,
        )
        return stack.enter_context(Checkpoint(self.path, header))

    def _compare_with_checkpoint(self, stored: Vector, first: Vector) -> None:
        if stored.tobytes() != first.tobytes():
            raise CheckpointError(
                f"checkpoint must come from the same function; got {self.path}, whose values "
                "differ on subset 0. The function or a library has changed, or it is not "
                "deterministic: delete the file and start again."
            )

    def _compare_with_second_run(self, first: Vector) -> None:
        again, _ = self._evaluate_first()
        if again.tobytes() != first.tobytes():
            raise MechanismError(
                "the mechanism must be deterministic; got two different values on subset 0. "
                "Take a parameter rng and draw from it only, or fix random_state. (The global "
                "generator of numpy is not seeded here.)"
            )

    def _stopped(self) -> str:
        text = f"stopped after {self.n_done} of {self.pool.n_subsets} subsets; "
        if self.path is None:
            return text + "pass checkpoint='some file' next time to be able to resume."
        return text + f"run the same call again with checkpoint={str(self.path)!r} to resume."
