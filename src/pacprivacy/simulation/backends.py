"""Running batches of subsets here or through joblib, whose backends are all ours."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, Structure
from pacprivacy.pool import Pool
from pacprivacy.simulation.worker import BatchResult, Failure, Job, run_batch

__all__ = ["choose_batch_size", "count_workers", "make_batches", "run_subsets"]

Batch = tuple[tuple[int, ...], npt.NDArray[np.uint8]]

_TARGET_SECONDS: Final = 0.25
_BATCHES_PER_WORKER: Final = 8
_SHARE_BYTES: Final = 1_000_000


def choose_batch_size(n_left: int, seconds_each: float, n_workers: int) -> int:
    """Return how many subsets to send at a time; results never depend on it."""
    by_time = int(_TARGET_SECONDS / max(seconds_each, 1e-9))
    by_share = n_left // (_BATCHES_PER_WORKER * n_workers)
    return max(1, min(by_time, by_share))


def run_subsets(
    job: Job,
    structure: Structure,
    batches: Iterable[Batch],
    *,
    n_jobs: int | None,
) -> Generator[BatchResult, None, None]:
    """Yield the results of the batches, in any order.

    Raises
    ------
    MechanismError
        For the lowest-numbered subset that fails, whatever the number of workers. Batches are
        taken in order and those already taken are waited for, so no lower one can be missed.
    """
    failures: list[Failure] = []

    def until_failure() -> Iterator[Batch]:
        for batch in batches:
            if failures:
                return
            yield batch

    run = _run_here if count_workers(n_jobs) == 1 else _run_parallel
    with closing(run(job, structure, until_failure(), n_jobs)) as results:
        for result in results:
            if result.failure is not None:
                failures.append(result.failure)
            yield result
    if failures:
        raise min(failures, key=lambda failure: failure.subset).to_error()


def make_batches(pool: Pool, subsets: list[int], size: int) -> Iterator[Batch]:
    """Yield the subsets in order, ``size`` at a time, with their rows as packed bits."""
    for start in range(0, len(subsets), size):
        chosen = tuple(subsets[start : start + size])
        yield chosen, np.packbits([pool.row_mask(k) for k in chosen], axis=1)


def count_workers(n_jobs: int | None) -> int:
    """Return how many subsets will be evaluated at a time."""
    import joblib  # slow to import, not always needed

    whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        raise ValueError(
            f"n_jobs must be None or an integer other than 0; got {n_jobs!r}. Use -1 for all cores."
        )
    return int(joblib.effective_n_jobs(n_jobs))


def _run_here(
    job: Job, structure: Structure, batches: Iterator[Batch], n_jobs: int | None
) -> Generator[BatchResult, None, None]:
    for chosen, packed in batches:
        yield run_batch(job, structure, chosen, packed)


def _run_parallel(
    job: Job, structure: Structure, batches: Iterator[Batch], n_jobs: int | None
) -> Generator[BatchResult, None, None]:
    import joblib

    with _shared(job.data) as data:
        shared = replace(job, data=data)
        tasks = (joblib.delayed(run_batch)(shared, structure, *batch) for batch in batches)
        parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
        try:
            results = parallel(tasks)
            try:
                yield from results
            finally:
                results.close()
        except (KeyboardInterrupt, GeneratorExit, MechanismError):
            raise
        except Exception as error:
            raise MechanismError(
                "the mechanism must run in worker processes; got "
                f"{type(error).__name__}: {error}. A worker may have run out of memory, or the "
                "function cannot be sent to it: use fewer workers, n_jobs=1, or "
                "joblib.parallel_config(backend='threading')."
            ) from error


@contextmanager
def _shared(data: Data) -> Iterator[Data]:
    """Yield the data with large arrays in a memory-mapped file, which all workers share."""
    import joblib

    large = [
        isinstance(part, np.ndarray) and part.dtype.kind != "O" and part.nbytes >= _SHARE_BYTES
        for part in data.parts
    ]
    if not any(large):
        yield data
        return
    folder = Path(tempfile.mkdtemp(prefix="pacprivacy-"))
    try:
        parts = []
        for i, (part, is_large) in enumerate(zip(data.parts, large, strict=True)):
            if is_large:
                path = folder / f"part{i}"
                joblib.dump(part, path)
                part = joblib.load(path, mmap_mode="r")
            parts.append(part)
        yield replace(data, parts=tuple(parts))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
