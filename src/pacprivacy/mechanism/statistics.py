"""Statistics that are evaluated on all subsets at once: mean and covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.base import Mechanism
from pacprivacy.mechanism.columns import read_columns, read_numbers
from pacprivacy.mechanism.data import Data
from pacprivacy.mechanism.histogram import Histogram
from pacprivacy.mechanism.sums import subset_sizes, subset_sums
from pacprivacy.pool import Pool

__all__ = ["Covariance", "Histogram", "Mean"]

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(Mechanism):
    """Mean over the rows: a number for one-dimensional data, else an array of one row's shape.

    Examples
    --------
    >>> Mean().evaluate((np.array([[1.0, 2.0], [3.0, 4.0]]),), np.random.default_rng(0))
    array([2., 3.])
    """

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return "Mean"

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the mean of one subset."""
        X = read_numbers(parts, self.name)
        mean = X.mean(axis=0)
        return float(mean) if X.ndim == 1 else mean

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the means of all subsets, shape (m, d)."""
        X = read_numbers(data.parts, self.name)
        X = X.reshape(len(X), -1)
        centre = X.mean(axis=0)
        sums = subset_sums(pool, lambda rows: X[rows] - centre, X.shape[1])
        means: Matrix = centre + sums / subset_sizes(pool)[:, None]
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

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0, 2.0], [3.0, 6.0]])
    >>> triangle = Covariance().evaluate((rows,), np.random.default_rng(0))
    >>> Covariance().finish(triangle)
    array([[2., 4.],
           [4., 8.]])
    """

    ddof: int = 1

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return "Covariance"

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the upper triangle of the covariance matrix of one subset."""
        X = read_columns(parts, self.name)
        self._check_sizes(len(X))
        centred = X - X.mean(axis=0)
        matrix = centred.T @ centred / (len(X) - self.ddof)
        return matrix[np.triu_indices(X.shape[1])]

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the upper triangles of all subsets, shape (m, p (p + 1) / 2)."""
        X = read_columns(data.parts, self.name)
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
