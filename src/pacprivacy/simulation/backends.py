"""A run subset by subset: the first one checked, the others fanned out, all kept."""

from __future__ import annotations

import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Integers, Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy._system import begin, expect, single_threaded, wipe
from pacprivacy.errors import CheckpointError, DataError, InterruptedRun, MechanismError
from pacprivacy.mechanism import Data, Mechanism, Structure, coerce_data, flatten
from pacprivacy.pool import Pool
from pacprivacy.simulation.checkpoint import Checkpoint, Header
from pacprivacy.simulation.workers import Workers, open_workers


@dataclass(slots=True, kw_only=True)
class SubsetRun:
    """One run of a mechanism over a pool; ``path`` is its checkpoint.

    ``n_done`` subsets are finished, and ``notices`` are the warnings that came back from workers.
    """

    job: Job
    pool: Pool
    path: Path | None
    n_done: int = 0
    notices: list[Notice] = field(default_factory=list)

    def execute(
        self, *, n_jobs: int | None, backend: str | None = None
    ) -> tuple[Matrix, Structure]:
        """Return the values of all subsets and their common structure."""
        try:
            prefer = getattr(self.job.mechanism, "prefer", None)
            with open_workers(n_jobs, backend, prefer=prefer) as workers:
                return self._execute(workers)
        except KeyboardInterrupt:
            raise InterruptedRun(self._stopped()) from None

    def _execute(self, workers: Workers) -> tuple[Matrix, Structure]:
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
                start = time.perf_counter()
                self._compare_with_second_run(first)
                seconds = min(seconds, time.perf_counter() - start)  # without imports
            self.n_done = int(finished.sum())
            left = self.pool.n_subsets - self.n_done
            after = seconds_after(self.pool.n_subsets, self.pool.n_units)
            expect({EVALUATING: left * seconds / workers.count, **after})
            advance = begin(EVALUATING, left)

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
            todo = [k for k in range(1, self.pool.n_subsets) if not finished[k]]
            size = choose_batch_size(len(todo), seconds, workers.count)
            shared = Shared(job=self.job, structure=structure, pool=self.pool)
            with closing(run_subsets(shared, todo, size, workers)) as results:
                for batch in results:
                    accept(batch)
        return values, structure

    def _evaluate_first(self) -> tuple[Vector, Structure]:
        try:
            return self.job.evaluate(0, self.pool.rows(0))
        except (Exception, SystemExit) as error:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything a worker needs besides the rows of a subset."""

    mechanism: Mechanism
    data: Data
    seed: int
    home: int = field(default_factory=os.getpid)

    def evaluate(self, k: int, rows: Integers) -> tuple[Vector, Structure]:
        """Run the mechanism on subset ``k`` and flatten its value."""
        rng = public_generator(self.seed, "mechanism", k)
        vector, structure = flatten(self.mechanism.evaluate(self.data.take(rows), rng))
        if not vector.size:
            raise MechanismError(
                "value must hold at least one number; got none. "
                "Return what is to be released as numbers or arrays."
            )
        if not np.isfinite(vector).all():
            raise MechanismError(
                f"value must be finite; got {np.count_nonzero(~np.isfinite(vector))} NaN or "
                f"infinite entries out of {vector.size}. Make the function total: regularise, "
                "clip, or return a fixed number where it is not defined."
            )
        return vector, structure


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A subset on which the mechanism failed."""

    subset: int
    reason: str
    details: str

    def to_error(self) -> MechanismError:
        """Return the exception to raise in the caller's process."""
        error = MechanismError(f"the mechanism failed on subset {self.subset}: {self.reason}")
        if self.details:
            error.add_note(self.details)
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What comes back from a worker."""

    values: dict[int, Vector]
    failure: Failure | None
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all batches of a run have in common; it travels once to each worker."""

    job: Job
    structure: Structure
    pool: Pool


def run_batch(shared: Shared, *subsets: int) -> BatchResult:
    """Run the mechanism on several subsets, up to the first failure."""
    # Warnings are global to a process: they can be collected here only if no other thread of
    # this process evaluates subsets. The caller's process collects its own.
    here = os.getpid() == shared.job.home
    if here or threading.current_thread() is not threading.main_thread():
        return _run_batch(shared, subsets)
    notices: list[Notice] = []
    with collect_notices(notices):
        result = _run_batch(shared, subsets)
    return replace(result, notices=tuple(notices))


def _run_batch(shared: Shared, subsets: tuple[int, ...]) -> BatchResult:
    values: dict[int, Vector] = {}
    failure = None
    with single_threaded():
        for k in subsets:
            try:
                vector, found = shared.job.evaluate(k, shared.pool.rows(k))
            except (Exception, SystemExit) as error:
                failure = explain(k, error)
                break
            where = shared.structure.difference(found)
            if where is not None:
                failure = Failure(subset=k, reason=_explain_difference(where), details="")
                break
            values[k] = vector
    return BatchResult(values=values, failure=failure)


def explain(k: int, error: BaseException) -> Failure:
    """Describe an exception by type and message; it may not survive the way to the caller."""
    if isinstance(error, MechanismError):
        return Failure(subset=k, reason=str(error), details="")
    reason = (
        f"{type(error).__name__}: {str(error).rstrip('.')}. "
        "Make the function work on every subset of the pool, or draw a pool with larger or "
        "stratified subsets; no subset may be left out."
    )
    return Failure(subset=k, reason=reason, details=_short_traceback(error))


def _explain_difference(where: str) -> str:
    return (
        f"{where} must have the same shape, keys and labels for every subset; got something else "
        "than on subset 0. Fix the shape (or the list of classes) in the function, or stratify "
        "the pool so that every subset has every class."
    )


def _short_traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)[-6:]).rstrip()


def coerce_for(pool: Pool, data: Any) -> Data:
    """Return the universe of a pool; refuse data with another number of rows."""
    universe = coerce_data(data)
    if universe.n_rows != pool.n_rows:
        raise DataError(
            f"data must have as many rows as the pool ({pool.n_rows}); got {universe.n_rows}. "
            "Draw the pool for this data."
        )
    return universe


Train = Callable[[tuple[Any, ...], np.random.Generator], Any]


def train_subsets(
    train: Train,
    data: Any,
    pool: Pool,
    *,
    n_jobs: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> tuple[Any, ...]:
    """Return ``train(rows of subset k, generator of subset k)`` for every subset, in order.

    Unlike :func:`run_mechanism` this keeps objects, such as fitted models, and measures nothing:
    whoever releases a function of them has to measure that function.

    The result is curator-only and does not depend on the workers. If training fails on a subset,
    the error names the lowest-numbered one that came back as failed.
    """
    universe = coerce_for(pool, data)
    shared = (train, universe, pool, coerce_seed(rng))
    trained: dict[int, Any] = {}
    with open_workers(n_jobs) as workers:
        tasks = ((k,) for k in range(pool.n_subsets))
        with closing(workers.run(_train_one, shared, tasks)) as results:
            for k, result in results:
                trained[k] = result
    for k in range(pool.n_subsets):
        if isinstance(trained[k], Failure):
            raise trained[k].to_error()
    return tuple(trained[k] for k in range(pool.n_subsets))


def _train_one(shared: tuple[Train, Data, Pool, int], k: int) -> tuple[int, Any | Failure]:
    train, data, pool, seed = shared
    with single_threaded():
        try:
            return k, train(data.take(pool.rows(k)), public_generator(seed, "mechanism", k))
        except (Exception, SystemExit) as error:
            return k, explain(k, error)


_TARGET_SECONDS: Final = 0.25
_BATCHES_PER_WORKER: Final = 8


def choose_batch_size(n_left: int, seconds_each: float, n_workers: int) -> int:
    """Return how many subsets to send at a time; results never depend on it."""
    by_time = int(_TARGET_SECONDS / max(seconds_each, 1e-9))
    by_share = n_left // (_BATCHES_PER_WORKER * n_workers)
    return max(1, min(by_time, by_share))


def run_subsets(
    shared: Shared, subsets: list[int], size: int, workers: Workers
) -> Generator[BatchResult, None, None]:
    """Yield the results of the subsets, ``size`` at a time, in any order."""
    failures: list[Failure] = []

    def until_failure() -> Iterator[tuple[int, ...]]:
        for start in range(0, len(subsets), size):
            if failures:
                return
            yield tuple(subsets[start : start + size])

    with closing(workers.run(run_batch, shared, until_failure())) as results:
        for result in results:
            if result.failure is not None:
                failures.append(result.failure)
            yield result
    if failures:
        raise min(failures, key=lambda failure: failure.subset).to_error()


# --- what is shown while it runs ---------------------------------------------------------------

EVALUATING: Final = "evaluating candidates"
SEARCHING: Final = "finding the noise"
PROVING: Final = "proving"
WRITING: Final = "writing the certificate"


def seconds_after(n_subsets: int, n_units: int) -> dict[str, float]:
    """Return about how many seconds the stages after the evaluation take.

    From a few means on one core, k chosen by default: right to a factor of two or so.
    """
    search = 6e-3 * n_subsets + 1e-8 * n_subsets * n_units
    return {SEARCHING: search, PROVING: 0.2, WRITING: 1e-3 * n_subsets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One warning, with the place it came from."""

    text: str
    category: type[Warning]
    filename: str
    lineno: int


@contextmanager
def collect_notices(notices: list[Notice]) -> Iterator[None]:
    """Record the warnings given inside; they are in ``notices`` on leaving."""
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            notices.extend(
                Notice(
                    text=str(entry.message),
                    category=entry.category,
                    filename=entry.filename,
                    lineno=entry.lineno,
                )
                for entry in log
            )


def show_notices(notices: Iterable[Notice]) -> None:
    """Give each kind of warning once, with how often it came."""
    wipe()
    groups: dict[tuple[type[Warning], str, int], list[Notice]] = {}
    for notice in notices:
        key = (notice.category, notice.filename, notice.lineno)
        groups.setdefault(key, []).append(notice)
    for (category, filename, lineno), members in groups.items():
        text = members[0].text
        if len(members) > 1:
            text += f" [{len(members)} such warnings while running the subsets]"
        warnings.warn_explicit(text, category, filename, lineno)
