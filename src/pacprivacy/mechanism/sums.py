"""Sums over the rows of every candidate, by matrix products in bounded memory."""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix
from pacprivacy.sample import Pool

Features = Callable[[npt.NDArray[np.int64]], Matrix]

_CHUNK_NUMBERS: Final = 2**23  # float64 numbers held at a time, about 64 MB
_CACHED_NUMBERS: Final = 2**19
_SLAB: Final = 4096  # features that are summed at a time


def subset_sums(pool: Pool, features: Features, n_features: int) -> Matrix:
    """Return the sum of the features over the rows of every subset, shape (m, n_features).

    ``features`` maps row numbers to a float64 matrix with one line per row. Takes about 64 MB of
    temporary memory beyond the result, or a quarter of it.
    """
    most = _CHUNK_NUMBERS // (pool.n_subsets + 2 * n_features)
    least = min(pool.n_subsets // 4, pool.n_units)  # of rows that are wider than there are subsets
    width = max(1, least, min(most, max(_CACHED_NUMBERS // pool.n_subsets, n_features)))
    # The complement of a half has the same signed sum, but for the sign.
    n_products = pool.n_subsets // 2 if pool.folds == 2 else pool.n_subsets
    sums = np.zeros((pool.n_subsets, n_features))
    product, total = sums[:n_products], np.zeros(n_features)
    order, starts = _rows_by_unit(pool)
    for start in range(0, pool.n_units, width):
        stop = min(start + width, pool.n_units)
        block = _unit_features(features, order, starts, start, stop)
        total += block.sum(axis=0)
        if pool.folds > 2:
            factor = (1 - pool.inside(slice(start, stop))).astype(np.float64)
        else:
            factor = pool.signs(start, stop, np.float64, n_subsets=n_products)
        for first in range(0, n_features, _SLAB):
            slab = slice(first, first + _SLAB)
            product[:, slab] += factor @ block[:, slab]
    if pool.folds > 2:  # all minus the fold
        return np.subtract(total, sums, out=sums)
    if pool.folds == 2:
        np.negative(product, out=sums[n_products:])
    # A unit counts +1 when it is in and -1 when it is out: the sum over those in is the mean
    # of the signed sum and the total. Exact for counts below 2**52.
    sums += total
    sums /= 2.0
    return sums


def subset_sizes(pool: Pool) -> Matrix:
    """Return the number of rows of every subset, shape (m,)."""
    if pool.row_units is None:
        return pool.sizes().astype(np.float64)
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


def products_of_columns(X: Matrix) -> Matrix:
    """Return the products of every two columns, in the order of an upper triangle."""
    left, right = np.triu_indices(X.shape[1])
    products: Matrix = X[:, left] * X[:, right]
    return products


def symmetric_matrices(triangles: Matrix) -> Matrix:
    """Return the symmetric matrices with these upper triangles, shape (m, p, p)."""
    p = int((np.sqrt(8.0 * triangles.shape[1] + 1.0) - 1.0) / 2.0 + 0.5)
    left, right = np.triu_indices(p)
    full = np.zeros((len(triangles), p, p))
    full[:, left, right] = full[:, right, left] = triangles
    return full
