"""Run a mechanism on every subset of a pool."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._random import coerce_seed
from pacprivacy.errors import CheckpointError, DataError, InterruptedRun, MechanismError
from pacprivacy.mechanism import (
    BatchMechanism,
    Data,
    Mechanism,
    Structure,
    as_mechanism,
    coerce_data,
    flatten,
)
from pacprivacy.pool import Pool
from pacprivacy.simulation.backends import run_subsets
from pacprivacy.simulation.checkpoint import Checkpoint, Header, read_header
from pacprivacy.simulation.notices import Notice, collect_notices, show_notices
from pacprivacy.simulation.outputs import Outputs
from pacprivacy.simulation.progress import show_progress
from pacprivacy.simulation.threads import single_threaded
from pacprivacy.simulation.worker import BatchResult, Job, explain

__all__ = ["run_mechanism"]

Vector = npt.NDArray[np.float64]

_BATCH_TOLERANCE: Final = 1e-8


def run_mechanism(
    mechanism: Any,
    data: Any,
    pool: Pool,
    *,
    n_jobs: int | None = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    progress: bool | None = None,
) -> Outputs:
    """Evaluate a mechanism on all subsets of a pool.

    Parameters
    ----------
    mechanism : callable or Mechanism
        See :func:`pacprivacy.mechanism.as_mechanism`.
    data : array, frame, list, or tuple of those
        See :func:`pacprivacy.mechanism.coerce_data`.
    pool : Pool
        The subsets; its number of rows is that of the data.
    n_jobs : int, optional
        Workers, through joblib; -1 for all cores. None is one, or what
        ``joblib.parallel_config`` says.
    checkpoint : path, optional
        A file (readable by its owner only) from which the same call goes on after a stop.
    rng : Generator, int or None
        Seed of the mechanism's public streams. None draws a fresh one, or takes that of the
        checkpoint.
    progress : bool, optional
        Show a bar on stderr; None shows it if stderr is a terminal.

    Returns
    -------
    Outputs

    Raises
    ------
    MechanismError
        If the mechanism fails on a subset, gives other results when run again, or returns
        another structure on another subset. No subset is left out.
    CheckpointError
        If the checkpoint belongs to another run.
    InterruptedRun
        If the user pressed Ctrl-C; the message says how to go on.

    Guarantee
    ---------
    Claim M-2. Assumes that the mechanism is a function of its subset and of ``rng``. The result
    does not depend on workers, on batches or on restarts, to the last bit.
    """
    universe = coerce_data(data)
    if universe.n_rows != pool.n_rows:
        raise DataError(
            f"data must have as many rows as the pool ({pool.n_rows}); got {universe.n_rows}. "
            "Draw the pool for this data."
        )
    path = None if checkpoint is None else Path(checkpoint)
    prepared = as_mechanism(mechanism).prepare(universe)
    notices: list[Notice] = []
    try:
        with collect_notices() as own, single_threaded():
            if isinstance(prepared, BatchMechanism):
                seed = coerce_seed(rng)
                values, structure = _run_batch_mechanism(prepared, universe, pool, seed)
            else:
                seed = _choose_seed(rng, path)
                job = Job(mechanism=prepared, data=universe, seed=seed)
                run = _Run(job=job, pool=pool, path=path, notices=notices)
                values, structure = run.execute(n_jobs=n_jobs, progress=progress)
    except BaseException:
        with suppress(Warning):  # a filter that makes warnings errors must not hide this one
            show_notices([*own, *notices])
        raise
    show_notices([*own, *notices])
    return Outputs(
        values=values,
        structure=structure,
        mechanism_name=prepared.name,
        public=prepared.public,
        seed=seed,
        finish=prepared.finish,
    )


def _choose_seed(rng: np.random.Generator | int | None, path: Path | None) -> int:
    if rng is None and path is not None:
        header = read_header(path)
        if header is not None:
            return header.seed
    return coerce_seed(rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One simulation, subset by subset."""

    job: Job
    pool: Pool
    path: Path | None
    notices: list[Notice]

    def execute(self, *, n_jobs: int | None, progress: bool | None) -> tuple[Vector, Structure]:
        """Return the values of all subsets and their common structure."""
        m = self.pool.n_subsets
        results: dict[int, Vector] = {}
        try:
            start = time.perf_counter()
            first, structure = self._evaluate_first()
            seconds = time.perf_counter() - start
            with ExitStack() as stack:
                file = self._open_checkpoint(stack, first)
                results.update(file.done if file else {})
                self._check_first(results.get(0), first, file)
                results[0] = first
                advance = stack.enter_context(show_progress(m, done=len(results), enabled=progress))

                def accept(batch: BatchResult) -> None:
                    if file and batch.values:
                        file.append(batch.values)
                    results.update(batch.values)
                    self.notices.extend(batch.notices)
                    advance(len(batch.values))

                left = [k for k in range(m) if k not in results]
                run_subsets(
                    self.job,
                    structure,
                    self.pool,
                    left,
                    n_jobs=n_jobs,
                    seconds_each=seconds,
                    accept=accept,
                )
        except KeyboardInterrupt:
            raise InterruptedRun(self._stopped(len(results))) from None
        return np.stack([results[k] for k in range(m)]), structure

    def _evaluate_first(self) -> tuple[Vector, Structure]:
        try:
            return self.job.evaluate(0, self.pool.rows(0))
        except Exception as error:
            raise explain(0, error).to_error() from error

    def _open_checkpoint(self, stack: ExitStack, first: Vector) -> Checkpoint | None:
        if self.path is None:
            return None
        header = Header(
            mechanism=self.job.mechanism.name,
            data=self.job.data.digest(),
            pool=self.pool.digest(),
            n_subsets=self.pool.n_subsets,
            n_outputs=first.size,
            seed=self.job.seed,
            pool_seed=self.pool.seed,
        )
        return stack.enter_context(Checkpoint(self.path, header))

    def _check_first(self, stored: Vector | None, first: Vector, file: Checkpoint | None) -> None:
        """Compare the first subset bit for bit with the checkpoint, or with a second run."""
        if stored is not None:
            if stored.tobytes() != first.tobytes():
                raise CheckpointError(
                    f"checkpoint must come from the same function; got {self.path}, whose values "
                    "differ on subset 0. The function or a library has changed: delete the file "
                    "and start again."
                )
            return
        again, _ = self._evaluate_first()
        if again.tobytes() != first.tobytes():
            raise MechanismError(
                "the mechanism must be deterministic; got two different values on subset 0. "
                "Take a parameter rng and draw from it only, or fix random_state. (The global "
                "generator of numpy is not seeded here.)"
            )
        if file:
            file.append({0: first})

    def _stopped(self, done: int) -> str:
        text = f"stopped after {done} of {self.pool.n_subsets} subsets; "
        if self.path is None:
            return text + "pass checkpoint='a file' to be able to resume."
        return text + f"run the same call again with checkpoint={str(self.path)!r} to resume."


def _run_batch_mechanism(
    mechanism: BatchMechanism, data: Data, pool: Pool, seed: int
) -> tuple[Vector, Structure]:
    template, structure = flatten(mechanism.template(data))
    values = np.asarray(mechanism.batch(data, pool), dtype=np.float64)
    if values.shape != (pool.n_subsets, template.size):
        raise MechanismError(
            f"batch must return shape {(pool.n_subsets, template.size)}; got {values.shape}. "
            "It must agree with the template."
        )
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise MechanismError(
            f"the mechanism failed on subset {bad[0]}: value must be finite; got NaN or infinite "
            "entries. Use a larger pool of records or declare the range."
        )
    _check_against_evaluate(mechanism, data, pool, seed, values[0], structure)
    return values, structure


def _check_against_evaluate(
    mechanism: Mechanism,
    data: Data,
    pool: Pool,
    seed: int,
    first: Vector,
    structure: Structure,
) -> None:
    vector, found = Job(mechanism=mechanism, data=data, seed=seed).evaluate(0, pool.rows(0))
    scale = np.abs(vector).max()
    if structure != found or np.abs(vector - first).max() > _BATCH_TOLERANCE * scale:
        raise MechanismError(
            "batch must agree with evaluate; got another value on subset 0. "
            "Compute the same function in both."
        )
