"""Mechanisms that evaluate all subsets at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Batch, Structure
from pacprivacy.pool import Pool
from pacprivacy.simulation.worker import Job

__all__ = ["run_at_once"]

Matrix = npt.NDArray[np.float64]

_TOLERANCE: Final = 1e-8  # far above rounding, far below any real difference in the formula


def run_at_once(batch: Batch, job: Job, pool: Pool) -> tuple[Matrix, Structure]:
    """Return the values of all subsets and their structure, which is that of ``evaluate``.

    The shape, the finiteness, and the value on the first subset are checked.
    """
    values = np.asarray(batch(job.data, pool), dtype=np.float64)
    vector, structure = job.evaluate(0, pool.rows(0))
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
    tolerance = _TOLERANCE * float(np.abs(vector).max())
    if np.abs(vector - values[0]).max() > tolerance:
        raise MechanismError(
            "batch must agree with evaluate; got another value on subset 0. "
            "Compute the same function in both."
        )
    return values, structure
