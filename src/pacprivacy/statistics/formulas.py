"""Each statistic once: what is summed over rows, and the function of these sums.

A formula knows no table, no candidate and no noise. The caller reads the rows, shifts and scales
their columns alike (``x -> (x - centre) / scale``), sums the moments in its own way, and puts the
units back. Pools sum over every candidate, groups over every cell, and differential privacy over
all records, with centres and scales from declared ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import products_of_columns

SINGULAR: Final = 1e-10  # a pivot below this share of the largest: columns determine each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A statistic as sums over rows and a function of them.

    Parameters
    ----------
    moments : callable
        From rows to what is summed beside their weights, one line per row.
    value : callable
        From the sum of the weights (None unless ``counted``) and the sums of the moments, one line
        per candidate, to the statistic. It may overwrite the sums.
    slopes : callable, optional
        From the same to the derivatives of the value by each of them.
    restore : callable, optional
        From values, centre and scale to values of the columns as they were before. Without it they
        must not be scaled.
    counted, centred : bool
        Whether the weights are summed; whether columns may be shifted.
    least : float
        The value is defined where the weights sum to more.
    """

    moments: Callable[[Matrix], tuple[Matrix, ...]]
    value: Callable[..., Matrix]
    slopes: Callable[..., tuple[Matrix, ...]] | None = None
    restore: Callable[[Matrix, Any, Any], Matrix] = lambda values, centre, scale: values
    counted: bool = True
    centred: bool = True
    least: float = 0.0


SUM: Final = Formula(
    moments=lambda X: (X,),
    value=lambda number, total: total,
    slopes=lambda number, total: (np.zeros_like(total), np.ones_like(total)),
    restore=lambda values, centre, scale: values * scale,
    counted=False,
    centred=False,
)
MEAN: Final = Formula(
    moments=lambda X: (X,),
    value=lambda number, total: np.divide(total, number, out=total),
    slopes=lambda number, total: (-total / number**2, 1.0 / number),
    restore=lambda values, centre, scale: np.add(centre, values * scale, out=values),
)
VARIANCE: Final = Formula(  # with the divisor n - 1; never negative by rounding
    moments=lambda X: (X, np.square(X)),
    value=lambda number, first, second: (
        np.maximum(second - first * first / number, 0.0) / (number - 1)
    ),
    slopes=lambda number, first, second: (
        np.square(first / number) / (number - 1)
        - (second - first * first / number) / np.square(number - 1),
        -2.0 * first / number / (number - 1),
        np.broadcast_to(1.0 / (number - 1), first.shape),
    ),
    restore=lambda values, centre, scale: values * np.square(scale),
    least=1.0,
)


def variance_formula(ddof: int, *, root: bool = False) -> Formula:
    """Return the formula of variances with the divisor n - ddof, or of their square roots."""

    def value(number: Any, first: Matrix, second: Matrix) -> Matrix:
        variances = np.maximum(second - first * first / number, 0.0) / (number - ddof)
        return np.asarray(np.sqrt(variances) if root else variances)

    return Formula(moments=lambda X: (X, np.square(X)), value=value, least=float(ddof))


def covariance_formula(ddof: int) -> Formula:
    """Return the formula of the upper triangle of a covariance matrix, row by row."""

    def value(number: Any, first: Matrix, second: Matrix) -> Matrix:
        left, right = np.triu_indices(first.shape[1])
        scatter = second - first[:, left] * first[:, right] / number
        return np.asarray(scatter / (number - ddof))

    return Formula(moments=lambda X: (X, products_of_columns(X)), value=value, least=float(ddof))


def _mean_and_covariance(number: Any, first: Matrix, second: Matrix) -> Matrix:
    return np.hstack([first / number, covariance_formula(1).value(number, first, second)])


def _shift_means(values: Matrix, centre: Any, scale: Any) -> Matrix:
    """Add the centre to the means, which come first; without scales."""
    values[:, : len(centre)] += centre
    return values


MEAN_AND_COVARIANCE: Final = Formula(  # means, then the upper triangle, row by row
    moments=lambda X: (X, products_of_columns(X)),
    value=_mean_and_covariance,
    restore=_shift_means,
    least=1.0,
)

CORRELATION: Final = Formula(  # strict upper triangle, row by row; 0 where a column is constant
    moments=lambda X: (X, products_of_columns(X)),
    value=lambda number, first, second: _correlations(number, first, second),
    least=1.0,
)


def _correlations(number: Any, first: Matrix, second: Matrix) -> Matrix:
    left, right = np.triu_indices(first.shape[1])
    scatter = second - first[:, left] * first[:, right] / number
    spread = np.sqrt(np.maximum(scatter[:, left == right], 0.0))
    apart = left < right
    size = spread[:, left[apart]] * spread[:, right[apart]]
    plain = np.divide(scatter[:, apart], size, out=np.zeros_like(size), where=size > 0)
    return np.asarray(np.clip(plain, -1.0, 1.0))


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
