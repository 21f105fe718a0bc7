"""Means, covariances and histograms; all subsets at once, by matrix products in bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, as_floats, as_told
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import Data, read_data_columns, read_data_numbers
from pacprivacy.mechanism.mechanism import Mechanism, fixed_mechanism
from pacprivacy.pool import Pool

Features = Callable[[npt.NDArray[np.int64]], Matrix]
Sums = Callable[[Pool, Features, int], Matrix]

_CHUNK_NUMBERS: Final = 2**23  # float64 numbers held at a time, about 64 MB
_CACHED_NUMBERS: Final = 2**19
_SLAB: Final = 4096  # features that are summed at a time


_ELSEWHERE: ContextVar[Sums | None] = ContextVar("elsewhere", default=None)


@contextmanager
def statistics_sums_made_by(sums: Sums | None) -> Iterator[None]:
    """Have sums over subsets made by somebody else inside: by a cluster that holds the rows."""
    token = _ELSEWHERE.set(sums)
    try:
        yield
    finally:
        _ELSEWHERE.reset(token)


def subset_sums(pool: Pool, features: Features, n_features: int) -> Matrix:
    """Return the sum of the features over the rows of every subset, shape (m, n_features).

    ``features`` maps row numbers to a float64 matrix with one line per row. Never more than about
    64 MB of temporary memory beyond the result, or a quarter of it.
    """
    elsewhere = _ELSEWHERE.get()
    if elsewhere is not None:
        return elsewhere(pool, features, n_features)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(Mechanism):
    """Mean over the rows: a number for one-dimensional data, else an array of one row's shape."""

    name = "Mean"
    streams: ClassVar[bool] = True

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the mean of one subset."""
        X = read_data_numbers(parts, self.name)
        mean = X.mean(axis=0)
        return float(mean) if X.ndim == 1 else mean

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the means of all subsets, shape (m, d)."""
        X = read_data_numbers(data.parts, self.name)
        X = X.reshape(len(X), -1)
        centre = X.mean(axis=0)
        mine = isinstance(X, np.ndarray)  # then rows that are asked for are a copy

        def features(rows: npt.NDArray[np.int64]) -> Matrix:
            block = X[rows]
            centred: Matrix = np.subtract(block, centre, out=block if mine else None)
            return centred

        means = subset_sums(pool, features, X.shape[1])
        means /= subset_sizes(pool)[:, None]
        means += centre
        return means


@dataclass(frozen=True, slots=True, kw_only=True)
class Covariance(Mechanism):
    """Covariance matrix of the columns.

    The measured vector is the upper triangle, row by row; the released value is the symmetric
    matrix. With noise it need not be positive semi-definite.

    Parameters
    ----------
    ddof : int, public
        The divisor is the number of rows of the subset minus ``ddof``; 1 as in ``numpy.cov``.
    """

    name = "Covariance"
    streams: ClassVar[bool] = True
    ddof: int = 1

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the upper triangle of the covariance matrix of one subset."""
        X = read_data_columns(parts, self.name)
        self._check_sizes(len(X))
        centred = X - X.mean(axis=0)
        matrix = centred.T @ centred / (len(X) - self.ddof)
        return matrix[np.triu_indices(X.shape[1])]

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the upper triangles of all subsets, shape (m, p (p + 1) / 2)."""
        X = read_data_columns(data.parts, self.name)
        # Centring at the universe's mean keeps the subtraction below from cancelling.
        X = X - X.mean(axis=0)
        p = X.shape[1]
        rows_of, columns_of = np.triu_indices(p)

        def features(rows: npt.NDArray[np.int64]) -> Matrix:
            block = X[rows]
            return np.hstack([block, block[:, rows_of] * block[:, columns_of]])

        sums = subset_sums(pool, features, p + len(rows_of))
        sizes = subset_sizes(pool)[:, None]
        self._check_sizes(int(sizes.min()))
        first, second = sums[:, :p], sums[:, p:]
        scatter = second - first[:, rows_of] * first[:, columns_of] / sizes
        return scatter / (sizes - self.ddof)

    def finish(self, value: Any) -> Matrix:
        """Return the symmetric matrix with that upper triangle."""
        triangle = np.asarray(value, dtype=np.float64)
        p = int((np.sqrt(8.0 * triangle.size + 1.0) - 1.0) / 2.0 + 0.5)
        matrix = np.zeros((p, p))
        matrix[np.triu_indices(p)] = triangle
        return matrix + np.triu(matrix, 1).T

    def _check_sizes(self, smallest: int) -> None:
        if smallest <= self.ddof:
            raise MechanismError(
                f"Covariance must see more than {self.ddof} rows in a subset; got {smallest}. "
                "Use more records or a pool of larger subsets."
            )


Edges = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(Mechanism):
    """Counts per bin, one histogram per column, as estimates for all records.

    As in ``numpy.histogram``, bins are half-open but the last one, and rows outside the range
    are not counted. What is measured are the counts of a candidate; a release divides them by the
    candidate's share of the units and rounds them.

    Parameters
    ----------
    bins : int or sequence of float, public
        Number of bins of equal width, or the edges themselves (the same for every column).
    ranges : pair of float, sequence of pairs, or None, public
        Lowest and highest edge, for all columns or for each; needed unless ``bins`` gives the
        edges.
    universe_facts : bool, public
        Take the exact minimum and maximum of every column over the *whole universe* where there
        are no ranges; they leave with the edges, and the certificate says so.
    density : bool, public
        Divide by the number of counted rows and by the width of the bin.
    edges : optional
        Set by :meth:`prepare`.
    """

    name = "Histogram"
    streams: ClassVar[bool] = True
    bins: int | Sequence[float] = 10
    ranges: tuple[float, float] | Sequence[tuple[float, float]] | None = None
    density: bool = False
    universe_facts: bool = False
    edges: Edges | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bins, int | np.integer):
            if self.bins < 1:
                raise MechanismError(f"bins must be at least 1; got {self.bins}. Use about 10.")
            if self.ranges is None and not self.universe_facts:
                raise MechanismError(
                    "ranges must be given with a number of bins; got None. Write ranges=(0, 120), "
                    "or universe_facts=True to publish the exact minimum and maximum."
                )
        else:
            if self.ranges is not None:
                raise MechanismError(
                    "ranges must be None when bins gives the edges; got both. Drop one of them."
                )
            object.__setattr__(self, "bins", _check_edges(self.bins))

    @property
    def totals(self) -> Literal["count"] | None:
        """Counts are scaled up to all records; densities are not."""
        return None if self.density else "count"

    @property
    def public(self) -> tuple[str, ...]:
        """Where the edges come from."""
        return () if self.published else ("histogram edges: declared by the curator",)

    @property
    def published(self) -> tuple[str, ...]:
        """What the edges show of the universe."""
        if self.ranges is None and isinstance(self.bins, int | np.integer):
            return ("histogram range: minimum and maximum of every column over the universe",)
        return ()

    def prepare(self, data: Data) -> Self:
        """Fix the edges for every column."""
        X = read_data_columns(data.parts, self.name)
        return replace(self, edges=self._column_edges(X))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the counts of one subset, shape (columns, bins) or (bins,)."""
        edges = fixed_mechanism(self.edges, "edges")
        X = read_data_columns(parts, self.name)
        counts = np.vstack(
            [
                np.bincount(_locate(x, e), minlength=len(e))[:-1]
                for x, e in zip(X.T, edges, strict=True)
            ]
        ).astype(np.float64)
        return self._scale(counts).reshape(self._shape(parts))

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the counts of all subsets, shape (m, columns * bins)."""
        edges = fixed_mechanism(self.edges, "edges")
        X = read_data_columns(data.parts, self.name)
        n_bins = len(edges[0]) - 1

        def features(rows: npt.NDArray[np.int64]) -> Matrix:
            block, hits = X[rows], np.zeros((len(rows), len(edges), n_bins + 1))
            for column, column_edges in enumerate(edges):
                hits[np.arange(len(rows)), column, _locate(block[:, column], column_edges)] = 1.0
            return hits[:, :, :n_bins].reshape(len(rows), -1)

        sums = subset_sums(pool, features, len(edges) * n_bins)
        return self._scale(sums.reshape(-1, len(edges), n_bins)).reshape(len(sums), -1)

    def finish(self, value: Any) -> dict[str, Any]:
        """Return the released counts with the (public) edges they belong to."""
        edges = np.asarray(fixed_mechanism(self.edges, "edges"))
        return {"counts": value, "edges": edges[0] if np.ndim(value) == 1 else edges}

    def _column_edges(self, X: Matrix) -> Edges:
        if not isinstance(self.bins, int | np.integer):
            edges = tuple(float(edge) for edge in self.bins)
            return (edges,) * int(X.shape[1])
        lows, highs = _limits(self.ranges, X)
        return tuple(
            tuple(np.linspace(low, high, int(self.bins) + 1).tolist())
            for low, high in zip(lows, highs, strict=True)
        )

    def _shape(self, parts: tuple[Any, ...]) -> tuple[int, ...]:
        edges = fixed_mechanism(self.edges, "edges")
        n_bins = len(edges[0]) - 1
        return (n_bins,) if read_data_numbers(parts, self.name).ndim == 1 else (len(edges), n_bins)

    def _scale(self, counts: Matrix) -> Matrix:
        if not self.density:
            return counts
        total = counts.sum(axis=-1, keepdims=True)
        if not total.all():
            raise MechanismError(
                "density must have at least one row inside the range in every subset; got a "
                "subset with none. Widen ranges or use density=False."
            )
        widths = np.diff(np.asarray(fixed_mechanism(self.edges, "edges")), axis=-1)
        scaled: Matrix = counts / total / widths
        return scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles(Mechanism):
    """Quantiles of every column, read off counts on a public grid.

    Between two points of the grid the count is taken to grow evenly. Rows outside the grid count
    at its ends. A finer grid costs time, not noise.

    Parameters
    ----------
    grid : sequence of float, public
        Increasing points, the same for every column.
    probabilities : sequence of float in (0, 1), public
        Which quantiles.
    """

    name = "Quantiles"
    streams: ClassVar[bool] = True
    grid: Sequence[float]
    probabilities: Sequence[float] = (0.25, 0.5, 0.75)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", _check_edges(self.grid))
        if not all(0 < p < 1 for p in self.probabilities):
            raise MechanismError(
                "probabilities must be between 0 and 1; got "
                f"{as_told(self.probabilities)}. Use 0.5."
            )

    @property
    def public(self) -> tuple[str, ...]:
        """Where the grid comes from."""
        return ("grid of the quantiles: declared by the curator",)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the quantiles of one subset, shape (columns, quantiles) or (quantiles,)."""
        X = read_data_columns(parts, self.name)
        found = self._read_off(self._hits(X).sum(axis=0)[None], X.shape[1])[0]
        flat = read_data_numbers(parts, self.name).ndim == 1
        return found if flat else found.reshape(X.shape[1], -1)

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the quantiles of all subsets, shape (m, columns * quantiles)."""
        X = read_data_columns(data.parts, self.name)
        n_cells = X.shape[1] * (len(self.grid) - 1)
        sums = subset_sums(pool, lambda rows: self._hits(X[rows]), n_cells)
        return self._read_off(sums, X.shape[1])

    def _hits(self, block: Matrix) -> Matrix:
        n_bins = len(self.grid) - 1
        inside = np.clip(block, self.grid[0], self.grid[-1])
        hits = np.zeros((len(block), block.shape[1], n_bins))
        for column in range(block.shape[1]):
            where = _locate(inside[:, column], tuple(self.grid))
            hits[np.arange(len(block)), column, where] = 1.0
        return hits.reshape(len(block), -1)

    def _read_off(self, counts: Matrix, n_columns: int) -> Matrix:
        lines = counts.reshape(len(counts) * n_columns, -1)
        cumulated = np.hstack([np.zeros((len(lines), 1)), lines.cumsum(axis=1)])
        found = [
            np.interp(np.asarray(self.probabilities) * line[-1], line, self.grid)
            for line in cumulated
        ]
        return np.asarray(found).reshape(len(counts), -1)


def _locate(x: Matrix, edges: tuple[float, ...]) -> npt.NDArray[np.int64]:
    """Return the bin of every value; values outside get the number of bins."""
    where = np.searchsorted(edges, x, side="right") - 1
    last = len(edges) - 2
    where[x == edges[-1]] = last
    where[(where < 0) | (where > last)] = last + 1
    return where.astype(np.int64, copy=False)


def _limits(limits: Any, X: Matrix) -> tuple[Matrix, Matrix]:
    if limits is None:
        lows, highs = X.min(axis=0), X.max(axis=0)
        flat = lows == highs
        return np.where(flat, lows - 0.5, lows), np.where(flat, highs + 0.5, highs)
    pairs = np.asarray(limits, dtype=np.float64)
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (X.shape[1], 1))
    if pairs.shape != (X.shape[1], 2) or not np.isfinite(pairs).all():
        raise MechanismError(
            f"ranges must be one pair (low, high) or one for each of {X.shape[1]} columns; got "
            f"shape {pairs.shape}. Write ranges=(0, 120)."
        )
    if not (pairs[:, 0] < pairs[:, 1]).all():
        raise MechanismError("ranges must have low < high; got an empty range. Swap the two.")
    return pairs[:, 0], pairs[:, 1]


def _check_edges(bins: Sequence[float]) -> tuple[float, ...]:
    edges = as_floats("bins", bins)
    if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all():
        raise MechanismError(
            f"bins must be a count or at least two finite edges; got shape {edges.shape}. "
            "Write bins=10 or bins=[0, 1, 2]."
        )
    if not (np.diff(edges) > 0).all():
        raise MechanismError("bins must increase; got edges out of order. Sort them.")
    return tuple(edges.tolist())
