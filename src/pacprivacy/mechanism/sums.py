"""Sums over the rows of every subset at once, by matrix products in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy.pool import Pool

__all__ = ["subset_sizes", "subset_sums"]

Matrix = npt.NDArray[np.float64]
Features = Callable[[npt.NDArray[np.int64]], Matrix]

_CHUNK_NUMBERS: Final = 2**23  # float64 numbers held at a time, about 64 MB


def subset_sums(pool: Pool, features: Features, n_features: int) -> Matrix:
    """Return the sum of the features over the rows of every subset.

    Parameters
    ----------
    pool : Pool
        The subsets.
    features : callable
        Maps row numbers to a float64 matrix with one line per row and ``n_features`` columns.
    n_features : int
        Width of the result.

    Returns
    -------
    array of shape (m, n_features), curator-only
        Never more than about 64 MB of temporary memory beyond it.
    """
    width = max(1, _CHUNK_NUMBERS // (pool.n_subsets + 2 * n_features))
    signed = np.zeros((pool.n_subsets, n_features))
    total = np.zeros(n_features)
    order, starts = _rows_by_unit(pool)
    for start in range(0, pool.n_units, width):
        stop = min(start + width, pool.n_units)
        block = _unit_features(features, order, starts, start, stop)
        total += block.sum(axis=0)
        signed += pool.signs(start, stop, np.float64) @ block
    # A unit counts +1 when it is in and -1 when it is out: the sum over those in is the mean
    # of the signed sum and the total. Exact for counts below 2**52.
    return (signed + total) / 2.0


def subset_sizes(pool: Pool) -> Matrix:
    """Return the number of rows of every subset, shape (m,)."""
    sizes = subset_sums(pool, lambda rows: np.ones((len(rows), 1)), 1)
    return sizes[:, 0]


def _rows_by_unit(
    pool: Pool,
) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None]:
    if pool.row_units is None:
        return None, None
    order = np.argsort(pool.row_units, kind="stable").astype(np.int64)
    starts = np.searchsorted(pool.row_units[order], np.arange(pool.n_units + 1))
    return order, starts.astype(np.int64)


def _unit_features(
    features: Features,
    order: npt.NDArray[np.int64] | None,
    starts: npt.NDArray[np.int64] | None,
    start: int,
    stop: int,
) -> Matrix:
    if order is None or starts is None:
        return features(np.arange(start, stop, dtype=np.int64))
    first, last = int(starts[start]), int(starts[stop])
    block = features(order[first:last])
    return np.add.reduceat(block, starts[start:stop] - first, axis=0)
