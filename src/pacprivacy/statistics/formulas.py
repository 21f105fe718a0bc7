"""Each statistic once: what is summed over rows, and the function of these sums.

A formula knows no table, no candidate and no noise. The caller reads the rows, shifts and scales
their columns alike (``x -> (x - centre) / scale``), sums the moments in its own way, and puts the
units back with :meth:`Formula.rescale`. Pools sum over every candidate, groups over every cell,
and differential privacy over all records, with centres and scales from declared ranges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import MechanismError

Edges = tuple[tuple[float, ...], ...]
Features = Callable[[npt.NDArray[np.int64]], Matrix]
_ROWS_AT_ONCE: Final = 2**14
SINGULAR: Final = 1e-10  # a pivot below this share of the largest: columns determine each other


class Formula(ABC):
    """A statistic as sums over rows and a function of them.

    ``counted`` says whether the sum of the weights is among them, ``centred`` whether columns may
    be shifted. The value is defined where the weights sum to more than ``least``.
    """

    __slots__ = ()
    counted: ClassVar[bool] = True
    centred: ClassVar[bool] = True

    @property
    def least(self) -> float:
        """The sum of weights that is too small."""
        return 0.0

    @abstractmethod
    def moments(self, X: Matrix) -> tuple[Matrix, ...]:
        """Return what is summed beside the weights, one line per row."""

    @abstractmethod
    def value(self, number: Any, *sums: Matrix) -> Matrix:
        """Return the statistic of every line of sums, which may be overwritten."""

    def rescale(self, values: Matrix, centre: Any, scale: Any = 1.0) -> Matrix:
        """Return values of columns that were shifted and scaled, in the units of the columns."""
        return values


@dataclass(frozen=True, slots=True)
class SumFormula(Formula):
    """Sums; of columns of ones, counts."""

    counted = False
    centred = False

    def moments(self, X: Matrix) -> tuple[Matrix, ...]:
        """Return the columns."""
        return (X,)

    def value(self, number: Any, *sums: Matrix) -> Matrix:
        """Return the sums."""
        return sums[0]

    def slopes(self, number: Any, *sums: Matrix) -> tuple[Matrix, ...]:
        """Return 0 and 1."""
        return np.zeros_like(sums[0]), np.ones_like(sums[0])

    def rescale(self, values: Matrix, centre: Any, scale: Any = 1.0) -> Matrix:
        """Return sums in the units of the columns."""
        return values * scale


@dataclass(frozen=True, slots=True)
class MeanFormula(Formula):
    """Means."""

    def moments(self, X: Matrix) -> tuple[Matrix, ...]:
        """Return the columns."""
        return (X,)

    def value(self, number: Any, *sums: Matrix) -> Matrix:
        """Return sums over weights."""
        return np.divide(sums[0], number, out=sums[0])

    def slopes(self, number: Any, *sums: Matrix) -> tuple[Matrix, ...]:
        """Return the derivatives of the ratio."""
        return -sums[0] / number**2, 1.0 / number

    def rescale(self, values: Matrix, centre: Any, scale: Any = 1.0) -> Matrix:
        """Return means in the units of the columns."""
        values = values if np.ndim(scale) == 0 and scale == 1.0 else values * scale
        return np.add(values, centre, out=values)


@dataclass(frozen=True, slots=True)
class VarianceFormula(Formula):
    """Variances with the divisor n - 1."""

    @property
    def least(self) -> float:
        """One row has no variance."""
        return 1.0

    def moments(self, X: Matrix) -> tuple[Matrix, ...]:
        """Return the columns and their squares."""
        return X, np.square(X)

    def value(self, number: Any, *sums: Matrix) -> Matrix:
        """Return variances; never negative by rounding."""
        first, second = sums
        values: Matrix = np.maximum(second - first * first / number, 0.0) / (number - 1)
        return values


@dataclass(frozen=True, slots=True)
class CovarianceFormula(Formula):
    """Upper triangles of covariance matrices, row by row; the divisor is n - ``ddof``."""

    ddof: int = 1

    @property
    def least(self) -> float:
        """As many rows have no covariance."""
        return float(self.ddof)

    def moments(self, X: Matrix) -> tuple[Matrix, ...]:
        """Return the columns and the products of two of them."""
        return X, products_of_columns(X)

    def value(self, number: Any, *sums: Matrix) -> Matrix:
        """Return the triangles."""
        first, second = sums
        left, right = np.triu_indices(first.shape[1])
        scatter = second - first[:, left] * first[:, right] / number
        return scatter / (number - self.ddof)


@dataclass(frozen=True, slots=True)
class LeastSquaresFormula(Formula):
    """Coefficients of the last column on the others, by the normal equations."""

    counted = False

    def moments(self, X: Matrix) -> tuple[Matrix, ...]:
        """Return the products of two columns."""
        return (products_of_columns(X),)

    def value(self, number: Any, *sums: Matrix) -> Matrix:
        """Return one line of coefficients for each line of sums."""
        full = symmetric_matrices(sums[0])
        return solve_normal_equations(full[:, :-1, :-1], full[:, :-1, -1], "ols")


@dataclass(frozen=True, slots=True)
class HistogramFormula(Formula):
    """Counts of the values of every column by its bins; outside the edges nothing is counted.

    With ``density`` they are divided by the number of counted rows and by the width of the bin.
    """

    counted = False
    centred = False
    edges: Edges
    density: bool = False

    def moments(self, X: Matrix) -> tuple[Matrix, ...]:
        """Return ones at the bins of a row, shape (rows, columns * bins)."""
        n_bins, lines = len(self.edges[0]) - 1, np.arange(len(X))
        hits = np.zeros((len(X), len(self.edges), n_bins + 1))
        for column, edges in enumerate(self.edges):
            hits[lines, column, bin_of(X[:, column], edges)] = 1.0
        return (hits[:, :, :n_bins].reshape(len(X), -1),)

    def value(self, number: Any, *sums: Matrix) -> Matrix:
        """Return counts or densities."""
        if not self.density:
            return sums[0]
        counts = sums[0].reshape(len(sums[0]), len(self.edges), -1)
        total = counts.sum(axis=-1, keepdims=True)
        if not total.all():
            raise MechanismError(
                "density must have at least one row inside the range in every subset; got a "
                "subset with none. Widen ranges or use density=False."
            )
        scaled: Matrix = counts / total / np.diff(np.asarray(self.edges), axis=-1)
        return scaled.reshape(len(counts), -1)


@dataclass(frozen=True, slots=True)
class GridQuantileFormula(Formula):
    """Quantiles of every column, read off counts on a grid; rows outside count at its ends."""

    counted = False
    centred = False
    grid: tuple[float, ...]
    probabilities: tuple[float, ...]

    def moments(self, X: Matrix) -> tuple[Matrix, ...]:
        """Return ones at the intervals of a row."""
        inside = np.clip(X, self.grid[0], self.grid[-1])
        return HistogramFormula((self.grid,) * X.shape[1]).moments(inside)

    def value(self, number: Any, *sums: Matrix) -> Matrix:
        """Return the quantiles; between two points of the grid counts grow evenly."""
        lines = sums[0].reshape(-1, len(self.grid) - 1)
        cumulated = np.hstack([np.zeros((len(lines), 1)), lines.cumsum(axis=1)])
        shares = np.asarray(self.probabilities)
        values = [np.interp(shares * line[-1], line, self.grid) for line in cumulated]
        return np.asarray(values).reshape(len(sums[0]), -1)


def sum_of_features(features: Features, n_rows: int) -> Matrix:
    """Return the sum of the features over all rows, shape (1, n_features), in bounded memory."""
    starts = range(0, max(1, n_rows), _ROWS_AT_ONCE)
    blocks = (np.arange(i, min(i + _ROWS_AT_ONCE, n_rows)) for i in starts)
    return np.sum([features(rows).sum(axis=0) for rows in blocks], axis=0)[None]


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


def bin_of(values: Vector, edges: Sequence[float]) -> npt.NDArray[np.int64]:
    """Return the bin of every value; values outside get the number of bins.

    Bins are half-open but the last one, as in ``numpy.histogram``.
    """
    place = np.searchsorted(edges, values, side="right") - 1
    last = len(edges) - 2
    place[values == edges[-1]] = last
    place[(place < 0) | (place > last)] = last + 1
    return place.astype(np.int64, copy=False)


def solve_normal_equations(matrices: Matrix, vectors: Matrix, kind: str) -> Matrix:
    """Solve one system per candidate; refuse columns that determine each other."""
    diagonal = np.einsum("mii->mi", matrices)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = matrices / (size[:, :, None] * size[:, None, :])
    if (diagonal <= 0).any() or (np.linalg.eigvalsh(scaled)[:, 0] < SINGULAR).any():
        raise MechanismError(
            f"the columns of {kind} must not determine each other in any candidate; got "
            "candidates in which they do, or in which a level does not occur. Leave out "
            "columns that follow from others, and merge rare levels."
        )
    solved = np.linalg.solve(scaled, (vectors / size)[:, :, None])[:, :, 0]
    return np.asarray(solved / size)
