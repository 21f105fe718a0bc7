"""What runs in a worker: a few subsets, each with its own public generator."""

from __future__ import annotations

import os
import threading
import traceback
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pacprivacy._random import public_generator
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, Mechanism, Structure, flatten
from pacprivacy.simulation.notices import Notice, collect_notices
from pacprivacy.simulation.threads import single_threaded

__all__ = ["BatchResult", "Failure", "Job", "explain", "run_batch"]

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything a worker needs besides the rows of a subset."""

    mechanism: Mechanism
    data: Data
    seed: int
    home: int = field(default_factory=os.getpid)

    def evaluate(self, k: int, rows: npt.NDArray[np.int64]) -> tuple[Vector, Structure]:
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


def run_batch(
    job: Job, structure: Structure, subsets: tuple[int, ...], packed: npt.NDArray[np.uint8]
) -> BatchResult:
    """Run the mechanism on several subsets, up to the first failure.

    Parameters
    ----------
    job : Job
    structure : Structure
        The structure of the first subset, which every other must share.
    subsets : tuple of int
        Their numbers.
    packed : uint8 array
        Their rows as packed bits, one line for each.
    """
    # Warnings are global to a process: they can be collected here only if no other thread of
    # this process evaluates subsets. The caller's process collects its own.
    if os.getpid() == job.home or threading.current_thread() is not threading.main_thread():
        return _run_batch(job, structure, subsets, packed)
    notices: list[Notice] = []
    with collect_notices(notices):
        result = _run_batch(job, structure, subsets, packed)
    return replace(result, notices=tuple(notices))


def _run_batch(
    job: Job, structure: Structure, subsets: tuple[int, ...], packed: npt.NDArray[np.uint8]
) -> BatchResult:
    values: dict[int, Vector] = {}
    failure = None
    with single_threaded():
        for k, line in zip(subsets, packed, strict=True):
            rows = np.flatnonzero(np.unpackbits(line, count=job.data.n_rows)).astype(np.int64)
            try:
                vector, found = job.evaluate(k, rows)
            except Exception as error:
                failure = explain(k, error)
                break
            where = structure.difference(found)
            if where is not None:
                failure = Failure(subset=k, reason=_explain_difference(where), details="")
                break
            values[k] = vector
    return BatchResult(values=values, failure=failure)


def explain(k: int, error: Exception) -> Failure:
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


def _short_traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error)[-6:]).rstrip()
