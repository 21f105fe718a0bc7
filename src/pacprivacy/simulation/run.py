"""The mechanism's value on every subset of the pool."""

from __future__ import annotations

import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import LARGEST_OUTPUT, Matrix, Vector, as_told, column_spreads
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy._system import begin, show_stages, single_threaded
from pacprivacy._values import ESTIMATES
from pacprivacy.errors import (
    CheckpointError,
    DataError,
    InterruptedRun,
    MechanismError,
    QueryError,
)
from pacprivacy.mechanism import (
    Batch,
    Data,
    Mechanism,
    Structure,
    Value,
    as_mechanism,
    coerce_data,
    flatten,
    total_numbers,
)
from pacprivacy.sample import Pool
from pacprivacy.simulation.checkpoint import Checkpoint, CheckpointHeader, read_checkpoint_header
from pacprivacy.simulation.workers import BACKENDS, Task, Workers

_TARGET_SECONDS: Final = 0.25
_BATCHES_PER_WORKER: Final = 8
EVALUATING: Final = "evaluating candidates"
SEARCHING: Final = "finding the noise"
PROVING: Final = "proving"
WRITING: Final = "writing the certificate"


Notice = tuple[str, type[Warning], str, int]  # text, category, file and line of a warning


def _unchanged(value: Value) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outputs:
    """Values of a mechanism on all subsets; ``values`` and ``seed`` are curator-only.

    Row ``k`` of ``values``, shape (m, d), is the flattened value on subset ``k``, divided by
    ``scales`` (:func:`scale_run_outputs`). ``public`` was computed from all records or declared;
    ``published`` lists those that the value shows. With ``rounds``, released numbers are counts.
    ``model`` applies the value to new rows; ``own_units``: numbers are of several kinds. ``on_all``
    is the value on all records, in the units of ``values``; curator-only, None where it was not
    computed, NaN where there is none of this shape.
    """

    values: npt.NDArray[np.float64] = field(repr=False)
    structure: Structure
    mechanism_name: str
    public: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    seed: int = field(repr=False)
    finish: Callable[[Any], Any] = field(default=_unchanged, repr=False)
    scales: Vector | None = field(default=None, repr=False)
    rounds: bool = field(default=False, repr=False)
    model: Mapping[str, Any] | None = field(default=None, repr=False)
    own_units: bool = field(default=False, repr=False)
    on_all: Vector | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, dtype=np.float64).view()
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @property
    def n_subsets(self) -> int:
        return int(self.values.shape[0])

    @property
    def n_outputs(self) -> int:
        return int(self.values.shape[1])

    def restore(self, vector: npt.ArrayLike, *, exact: bool = False) -> Value:
        """Turn a released vector into the user's value (claim M-1); ``exact``: counts unrounded."""
        numbers = np.asarray(vector, dtype=np.float64)
        if self.scales is not None and numbers.shape == self.scales.shape:
            numbers = numbers * self.scales
        if self.rounds and not exact:
            numbers = numbers.round() + 0.0  # no minus sign before a zero
        return self.finish(self.structure.restore(numbers))


def run_on_all(prepared: Mechanism, data: Data) -> Vector:
    """Return the flattened value of a prepared mechanism on all records; curator-only."""
    everyone = data.take(np.arange(data.n_rows))
    return flatten(prepared.evaluate(everyone, np.random.default_rng(0)))[0]


AGREEMENT: Final = 1e-8  # of the largest number: how far batch may be from evaluate


def run_at_once(batch: Batch, job: RunJob) -> tuple[Matrix, Structure]:
    """Return the values of all subsets and their common structure.

    The shape, the finiteness, and the value on the first subset are checked.
    """
    pool = job.pool
    values = np.asarray(batch(job.data, pool), dtype=np.float64)
    vector, structure = job.evaluate(0)
    if values.shape != (pool.n_subsets, vector.size):
        raise MechanismError(
            f"batch must return shape {(pool.n_subsets, vector.size)}; got {values.shape}. "
            "It must agree with evaluate."
        )
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise MechanismError(
            f"the mechanism failed on subset {bad[0]}: value must be finite; got NaN or infinite "
            "entries. Use more records per subset or a mechanism that is defined on few."
        )
    # Sums over all rows are as exact as the largest of their values, which an outlier makes large.
    largest = max(float(np.abs(vector).max()), float(np.abs(values).max()))
    if np.abs(vector - values[0]).max() > AGREEMENT * largest:
        raise MechanismError(
            "batch must agree with evaluate; got another value on subset 0. "
            "Compute the same function in both."
        )
    return values, structure


def run_mechanism(
    mechanism: Any,
    data: Any,
    pool: Pool,
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    progress: bool | None = None,
    fixed: bool = False,
) -> Outputs:
    """Evaluate a mechanism on all subsets of a pool; none is left out.

    ``n_jobs``, ``backend``, ``checkpoint`` and ``progress`` are those of
    :func:`pacprivacy.privatize`. ``rng`` seeds the mechanism's public streams; None draws a fresh
    seed, or takes that of the checkpoint. With ``fixed`` the mechanism is prepared already.

    Guarantee
    ---------
    Claim M-2. Assumes that the mechanism is a function of its subset and of ``rng``. The result
    does not depend on workers, on batches or on restarts, to the last bit.
    """
    universe = coerce_for_run(pool, data)
    path = None if checkpoint is None else Path(checkpoint)
    prepared = mechanism if fixed else as_mechanism(mechanism).prepare(universe)
    header = None if path is None or rng is not None else read_checkpoint_header(path)
    seed = coerce_seed(rng) if header is None else header.seed
    job = RunJob(mechanism=prepared, data=universe, pool=pool, seed=seed)
    run = SubsetRun(job=job, path=path)
    notices: list[Notice] = []
    try:
        with show_stages(progress), collect_run_notices(notices), single_threaded():
            batch = prepared.batch
            if batch is not None:
                begin(EVALUATING)
                values, structure = run_at_once(batch, job)
            else:
                values, structure = run.execute(n_jobs=n_jobs, backend=backend)
    except BaseException:
        with suppress(Warning):  # a filter that makes warnings errors must not hide this one
            show_run_notices([*notices, *run.notices])
        raise
    show_run_notices([*notices, *run.notices])
    outputs = Outputs(
        values=values,
        structure=structure,
        mechanism_name=prepared.name,
        public=prepared.public,
        published=prepared.published,
        seed=seed,
        finish=prepared.finish,
        model=prepared.model,
        own_units=prepared.own_units,
    )
    return _scale_totals(outputs, prepared, pool.share)


def _scale_totals(outputs: Outputs, mechanism: Mechanism, share: float) -> Outputs:
    """Divide counts and sums by a candidate's share: estimates for all records."""
    totals = mechanism.totals
    if totals is None:
        return outputs
    chosen = total_numbers(totals, outputs.structure)
    rounds = bool(chosen.all()) and totals in ("count", ("count",))
    text = TOTALS["count" if rounds else "sum" if chosen.all() else "some"]
    listed = ", ".join(totals)[:LONGEST_LIST] if isinstance(totals, tuple) else ""
    return replace(
        outputs,
        values=np.where(chosen, outputs.values / share, outputs.values),
        public=(*outputs.public, text.format(names=listed, share=f"{share:.4g}")),
        rounds=rounds,
    )


TOTALS: Final = {
    "some": f"totals ({{names}}) {ESTIMATES}: those of a candidate divided by {{share}}, its share",
    "sum": f"sums {ESTIMATES}: those of a candidate divided by {{share}}, its share",
    "count": f"counts {ESTIMATES}: those of a candidate divided by {{share}}, its share, and "
    "rounded to whole numbers",
}
LONGEST_LIST: Final = 200
DISPARATE: Final = 100.0  # spreads that differ by less share one unit of noise
ALIKE: Final = 2.0  # the same, where numbers are of several kinds
OWN_SCALE: Final = 64  # numbers of a larger array are of one kind, and share a scale
SHOWN_SCALES: Final = 8
FLAT: Final = 1e-12  # a spread below this share of the number's size is rounding error


def scale_run_outputs(outputs: Outputs) -> Outputs:
    """Give outputs of very different size a unit each, so that no noise exceeds the small ones.

    Where spreads over the pool differ by more than 100, or than 2 where numbers are of several
    kinds, each number is divided by its own spread, rounded to a power of two (exact in floating
    point); arrays of more than 64 numbers have one unit. The released value is in its own units
    again. The scales are the same for all candidates, and the certificate names them.
    """
    values = outputs.values
    spread, extent, size = column_spreads(values)
    spread = np.where(extent > FLAT * size, spread, 0.0)
    for part in outputs.structure.parts():
        if part.stop - part.start > OWN_SCALE:
            spread[part] = np.sqrt(np.square(spread[part]).mean())
    moves = spread[spread > 0]
    shared = ALIKE if outputs.own_units else DISPARATE
    beyond = size.max(initial=0.0) > LARGEST_OUTPUT  # refused where noise is found
    if beyond or not moves.size or moves.max() <= shared * moves.min():
        return outputs
    scales = np.exp2(np.round(np.log2(np.where(spread > 0, spread, moves.max()))))
    listed = f"from {scales.min():.3g} to {scales.max():.3g}"
    if len(scales) <= SHOWN_SCALES:
        listed = ", ".join(f"{scale:.3g}" for scale in scales)
    note = (
        "units of the noise: every number divided by its spread over the pool, rounded to a power "
        f"of two ({listed}); noise figures are in these units"
    )
    return replace(
        outputs,
        values=values / scales,
        on_all=None if outputs.on_all is None else outputs.on_all / scales,
        scales=scales,
        published=(*outputs.published, note),
    )


@dataclass(slots=True, kw_only=True)
class SubsetRun:
    """One run over a pool, with its checkpoint ``path`` and the ``notices`` of its workers."""

    job: RunJob
    path: Path | None
    n_done: int = 0
    notices: list[Notice] = field(default_factory=list)

    def execute(
        self, *, n_jobs: int | None, backend: str | None = None
    ) -> tuple[Matrix, Structure]:
        try:
            with open_workers(n_jobs, backend, prefer=self.job.mechanism.prefer) as workers:
                return self._execute(workers)
        except KeyboardInterrupt:
            raise InterruptedRun(self._stopped()) from None

    def _execute(self, workers: Workers | None) -> tuple[Matrix, Structure]:
        start = time.perf_counter()
        first, structure = self._evaluate_first()
        seconds = time.perf_counter() - start
        values = np.empty((self.job.pool.n_subsets, first.size))
        finished = np.zeros(self.job.pool.n_subsets, dtype=np.bool_)
        with self._open_checkpoint(first.size) as file:
            if file is not None:
                file.load(values, finished)
            if finished[0]:
                self._compare_with_checkpoint(values[0], first)
            else:
                start = time.perf_counter()
                self._compare_with_second_run(first)
                seconds = min(seconds, time.perf_counter() - start)  # without imports
            self.n_done = int(finished.sum())
            advance = begin(EVALUATING, self.job.pool.n_subsets - self.n_done)

            def accept(batch: BatchResult) -> None:
                if file is not None and batch.values:
                    file.append(batch.values)
                for k, vector in batch.values.items():
                    values[k] = vector
                self.notices.extend(batch.notices)
                self.n_done += len(batch.values)
                advance(len(batch.values))

            if not finished[0]:
                accept(BatchResult(values={0: first}))
            todo = [k for k in range(1, self.job.pool.n_subsets) if not finished[k]]
            n_workers = 1 if workers is None else workers.count
            size = choose_run_batch_size(len(todo), seconds, n_workers)
            with closing(run_subsets((self.job, structure), todo, size, workers)) as results:
                for batch in results:
                    accept(batch)
        return values, structure

    def _evaluate_first(self) -> tuple[Vector, Structure]:
        try:
            return self.job.evaluate(0)
        except (Exception, SystemExit) as error:
            raise explain_run_failure(0, error).to_error() from error

    def _open_checkpoint(self, n_outputs: int) -> AbstractContextManager[Checkpoint | None]:
        if self.path is None:
            return nullcontext()
        header = CheckpointHeader(
            mechanism=self.job.mechanism.name,
            data=self.job.data.digest(),
            pool=self.job.pool.digest(),
            n_subsets=self.job.pool.n_subsets,
            n_outputs=n_outputs,
            seed=self.job.seed,
            pool_seed=self.job.pool.seed,
        )
        return Checkpoint(self.path, header)

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
        text = f"stopped after {self.n_done} of {self.job.pool.n_subsets} subsets; "
        if self.path is None:
            return text + "pass checkpoint='some file' next time to be able to resume."
        return text + f"run the same call again with checkpoint={str(self.path)!r} to resume."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """Everything a worker needs besides the numbers of its subsets."""

    mechanism: Mechanism
    data: Data
    pool: Pool
    seed: int
    home: int = field(default_factory=os.getpid)

    def evaluate(self, k: int) -> tuple[Vector, Structure]:
        rng, rows = public_generator(self.seed, "mechanism", k), self.pool.rows(k)
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

    def evaluate_all(self, subsets: tuple[int, ...], structure: Structure) -> BatchResult:
        """Evaluate subsets and check the structure of their values, up to the first failure."""
        values: dict[int, Vector] = {}
        with single_threaded():
            for k in subsets:
                try:
                    vector, other = self.evaluate(k)
                    where = structure.difference(other)
                    if where is not None:
                        raise MechanismError(
                            f"{where} must have the same shape, keys and labels for every subset; "
                            "got something else than on subset 0. Fix the shape (or the list of "
                            "classes) in the function, or stratify the pool so that every subset "
                            "has every class."
                        )
                except (Exception, SystemExit) as error:
                    return BatchResult(values=values, failure=explain_run_failure(k, error))
                values[k] = vector
        return BatchResult(values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """A subset on which the mechanism failed, and why."""

    subset: int
    reason: str
    details: str = ""

    def to_error(self) -> MechanismError:
        error = MechanismError(f"the mechanism failed on subset {self.subset}: {self.reason}")
        if self.details:
            error.add_note(self.details)
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """Values of some subsets, up to the first failure, and the warnings given on the way."""

    values: dict[int, Vector]
    failure: RunFailure | None = None
    notices: tuple[Notice, ...] = ()


def run_batch(shared: tuple[RunJob, Structure], *subsets: int) -> BatchResult:
    """Run the mechanism on several subsets, up to the first failure."""
    # Warnings are global to a process: they can be collected here only if no other thread of
    # this process evaluates subsets. The caller's process collects its own.
    job, structure = shared
    shares_process = os.getpid() == job.home
    if shares_process or threading.current_thread() is not threading.main_thread():
        return job.evaluate_all(subsets, structure)
    notices: list[Notice] = []
    with collect_run_notices(notices):
        result = job.evaluate_all(subsets, structure)
    return replace(result, notices=tuple(notices))


def explain_run_failure(k: int, error: BaseException) -> RunFailure:
    """Describe an exception by type and message; it may not survive the way to the caller."""
    if isinstance(error, MechanismError | QueryError):
        return RunFailure(subset=k, reason=str(error))
    reason = (
        f"{type(error).__name__}: {str(error).rstrip('.')}. "
        "Make the function work on every subset of the pool, or draw a pool with larger or "
        "stratified subsets; no subset may be left out."
    )
    details = "".join(traceback.format_exception(error)[-6:]).rstrip()
    return RunFailure(subset=k, reason=reason, details=details)


def coerce_for_run(pool: Pool, data: Any) -> Data:
    """Return the records of a pool; refuse data with other rows than the pool's."""
    universe = coerce_data(data)
    if universe.n_rows != pool.n_rows:
        raise DataError(
            f"data must have as many rows as the pool ({pool.n_rows}); got {universe.n_rows}. "
            "Draw the pool for this data."
        )
    return universe


def choose_run_batch_size(n_left: int, seconds_each: float, n_workers: int) -> int:
    """Return the number of subsets in a batch; results never depend on it."""
    by_time = int(_TARGET_SECONDS / max(seconds_each, 1e-9))
    by_share = n_left // (_BATCHES_PER_WORKER * n_workers)
    return max(1, min(by_time, by_share))


@contextmanager
def open_workers(
    n_jobs: int | None = None, backend: str | None = None, *, prefer: str | None = None
) -> Iterator[Workers | None]:
    """Yield workers, by name or by the configuration of joblib in force; None for this process."""
    import joblib  # slow to import, not always needed

    whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        raise DataError(
            f"n_jobs must be None or an integer other than 0; got {as_told(n_jobs)}. "
            "Use -1 for all cores."
        )
    if backend not in (None, *BACKENDS):
        raise DataError(
            f"backend must be one of {', '.join(BACKENDS)}; got {as_told(backend)}. "
            "Leave it out for loky."
        )
    try:
        configured = joblib.parallel_config(backend=backend) if backend else nullcontext()
    except (ImportError, ValueError) as error:  # it is not installed, or has no client
        raise DataError(
            f"backend must be connected; got {as_told(backend)}, which is not. Open "
            "distributed.Client('host:8786') first, of the extra cluster: pip install '.[cluster]'."
        ) from error
    with configured:
        of_cluster = backend == "dask" and n_jobs is None
        count = int(joblib.effective_n_jobs(-1 if of_cluster else n_jobs))
        yield None if count == 1 and backend != "dask" else Workers(count, prefer)


def run_tasks(
    function: Callable[..., Any], shared: Any, tasks: Iterable[Task], workers: Workers | None
) -> Generator[Any, None, None]:
    """Yield ``function(shared, *task)`` of all tasks, here or by workers, in any order."""
    if workers is not None:
        return workers.run(function, shared, tasks)
    return (function(shared, *task) for task in tasks)


def run_subsets(
    shared: tuple[RunJob, Structure], subsets: list[int], size: int, workers: Workers | None
) -> Generator[BatchResult, None, None]:
    """Yield results batch by batch; after a failure no more are begun, and the first is raised."""
    failures: list[RunFailure] = []

    def until_failure() -> Iterator[tuple[int, ...]]:
        for start in range(0, len(subsets), size):
            if failures:
                return
            yield tuple(subsets[start : start + size])

    with closing(run_tasks(run_batch, shared, until_failure(), workers)) as results:
        for result in results:
            if result.failure is not None:
                failures.append(result.failure)
            yield result
    if failures:
        raise min(failures, key=lambda failure: failure.subset).to_error()


@contextmanager
def collect_run_notices(notices: list[Notice]) -> Iterator[None]:
    """Record the warnings given inside; they are in ``notices`` on leaving."""
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            notices.extend((str(w.message), w.category, w.filename, w.lineno) for w in log)


def show_run_notices(notices: Iterable[Notice]) -> None:
    """Give each kind of warning once, with its number."""
    groups: dict[tuple[type[Warning], str, int], list[str]] = {}
    for text, category, filename, lineno in notices:
        groups.setdefault((category, filename, lineno), []).append(text)
    for place, texts in groups.items():
        many = f" [{len(texts)} such warnings while running the subsets]" * (len(texts) > 1)
        warnings.warn_explicit(texts[0] + many, *place)


# --- models that are kept, for predictors ---


Train = Callable[[tuple[Any, ...], np.random.Generator], Any]


def train_subsets(
    train: Train,
    data: Any,
    pool: Pool,
    *,
    n_jobs: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> tuple[Any, ...]:
    """Return ``train(rows of subset k, generator of subset k)`` for every subset; curator-only.

    Unlike :func:`run_mechanism` this keeps objects, such as fitted models, and measures nothing:
    the caller has to measure every function of them that is released. The result does not depend on
    the workers; an error names the lowest-numbered subset that failed.
    """
    universe = coerce_for_run(pool, data)
    shared = (train, universe, pool, coerce_seed(rng))
    trained: dict[int, Any] = {}
    with open_workers(n_jobs) as workers:
        tasks = ((k,) for k in range(pool.n_subsets))
        with closing(run_tasks(_train_one, shared, tasks, workers)) as results:
            for k, result in results:
                trained[k] = result
    for k in range(pool.n_subsets):
        if isinstance(trained[k], RunFailure):
            raise trained[k].to_error()
    return tuple(trained[k] for k in range(pool.n_subsets))


def _train_one(shared: tuple[Train, Data, Pool, int], k: int) -> tuple[int, Any | RunFailure]:
    train, data, pool, seed = shared
    with single_threaded():
        try:
            return k, train(data.take(pool.rows(k)), public_generator(seed, "mechanism", k))
        except (Exception, SystemExit) as error:
            return k, explain_run_failure(k, error)
