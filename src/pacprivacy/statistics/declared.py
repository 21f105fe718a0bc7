"""Bounds on the contribution of a unit: ranges, levels, weights, rows per unit.

Where all of it is declared, noise need not be computed from records. The sums are split into
*axes*, each with the largest length that one row can have along it. Every axis gets a fixed share
of the cost of a unit. A row's contribution is bounded by the sum over axes; all axes reach their
bound together, so no noise is wasted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Finite, Integers
from pacprivacy.errors import MechanismError

DeclaredKind = Literal["count", "sum", "mean", "variance", "histogram"]
# Of what a unit may cost, by moment: the count, the sum and the sum of squares of a column. A count
# has twice the relative noise of its sum: least error for means an eighth of the range off centre.
MOMENT_SHARES: Final[dict[DeclaredKind, tuple[float, ...]]] = {
    "count": (1.0,),
    "sum": (1.0,),
    "histogram": (1.0,),
    "mean": (0.2, 0.8),
    "variance": (0.14, 0.28, 0.58),
}
ROUND_UP_REACH: Final = 1 + 2.0**-30  # covers centring in floats and adding the rows of a unit
MOST_CELLS: Final = 1 << 24
MOST_LEVELS: Final = 1 << 16
WIDEST: Final = 1e40  # of a range; products of squares, weights and rows stay below LARGEST_OUTPUT
Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST_CELLS)]


class SumAxis(NamedTuple):
    """Sums of a cell that have noise of one size.

    ``places`` are those of the sums in the block of a cell. ``merged`` sums are equal for every
    row, and have one noise between them. ``reach`` is the most that one row adds, in Euclidean
    length, and ``share`` the part of a unit's squared cost.
    """

    places: tuple[int, ...]
    merged: bool
    reach: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredColumn:
    """A column by its range, or by the number of its levels."""

    name: str
    low: Finite = 0.0
    high: Finite = 1.0
    n_levels: Annotated[int, msgspec.Meta(ge=0, le=MOST_LEVELS)] = 0

    @property
    def width(self) -> int:
        """Number of terms: one of a number, one for every level of a category."""
        return max(1, self.n_levels)

    @property
    def centre(self) -> float:
        """The middle of a range; the share of a level if all were alike."""
        return 1.0 / self.n_levels if self.n_levels else self.low / 2 + self.high / 2

    def __str__(self) -> str:
        if self.n_levels:
            return f"{self.name}: {self.n_levels} levels"
        return f"{self.name}: {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Everything that the noise of declared sums rests on besides the budget; public.

    Parameters
    ----------
    statistic : str
        Value computed from the sums.
    columns : tuple of DeclaredColumn
        In the order of the sums. Numbers are moved into their ranges.
    n_cells : int
        Number of groups, by their declared levels; of a histogram, the number of bins in all.
    rows_per_unit : int
        The most rows of a unit that are used.
    largest_weight : float
        To which weights are cut.
    """

    statistic: DeclaredKind
    columns: tuple[DeclaredColumn, ...]
    n_cells: Positive
    rows_per_unit: Positive
    largest_weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0

    def __post_init__(self) -> None:
        for column in self.columns:
            ends = max(abs(column.low), abs(column.high))
            if not (column.high - column.low >= 1 / WIDEST and ends <= WIDEST):
                raise MechanismError(
                    f"ranges must be pairs low < high, at least {1 / WIDEST:g} wide and within "
                    f"{WIDEST:g} of 0; got other ends for {column.name!r}. Write (0, 100)."
                )
        if not 1 / WIDEST <= self.largest_weight <= WIDEST:
            raise MechanismError(f"weights must be at most {WIDEST:g}; got a larger range.")

    @property
    def n_axes_of_row(self) -> int:
        """The most sums, each with separate noise, that one row can change."""
        if self.statistic == "histogram":
            return max(1, len(self.columns))
        return sum(1 if axis.merged else len(axis.places) for axis in self.axes())

    def axes(self) -> tuple[SumAxis, ...]:
        """Return the sums of a cell by axes; the shares add up to 1 at most.

        Guarantee
        ---------
        Claim C-9. The contribution of a row of declared values has at most the length ``reach``
        along every axis, in exact arithmetic; it lies in one cell (of a histogram, in one for
        every column).
        """
        if self.statistic == "histogram":
            return (SumAxis((0,), merged=False, reach=math.sqrt(len(self.columns)), share=1.0),)
        if not self.columns:
            return (SumAxis((0,), merged=False, reach=self.largest_weight, share=1.0),)
        return tuple(self._axes())

    def _axes(self) -> Iterator[SumAxis]:
        n_terms = sum(column.width for column in self.columns)
        shares = MOMENT_SHARES[self.statistic]
        counted, start = len(shares) > 1, 0
        for column, apart in self._parts():
            terms = range(start, start + column.width)
            start += column.width
            for moment, share in enumerate(shares):
                power = moment if counted else 1
                each = share / len(self._parts()) * (1.0 / column.width if apart else 1.0)
                places = tuple(moment * n_terms + term for term in terms)
                reach = self.largest_weight * self._reach(column, power, apart=apart)
                if not apart:
                    yield SumAxis(places, merged=power == 0, reach=reach, share=each)
                    continue
                for place in places:
                    yield SumAxis((place,), merged=False, reach=reach, share=each)

    def _parts(self) -> list[tuple[DeclaredColumn, bool]]:
        """Return columns, and whether every level of them is a value: those of squares are."""
        squares = self.statistic == "variance"
        return [(column, squares and column.n_levels > 0) for column in self.columns]

    def _reach(self, column: DeclaredColumn, power: int, *, apart: bool) -> float:
        if power == 0 or self.statistic == "count":
            return 1.0
        if self.statistic == "sum":
            return 1.0 if column.n_levels else max(abs(column.low), abs(column.high))
        if column.n_levels and not apart:  # one of the levels, less the share of each
            return math.sqrt(1.0 - 1.0 / column.n_levels) or 1.0
        centre = self.centre_of(column)
        return float(max(column.high - centre, centre - column.low) ** power)

    def centre_of(self, column: DeclaredColumn) -> float:
        """Return the centre of a column, subtracted before the sum."""
        if self.statistic not in ("mean", "variance"):
            return 0.0
        apart = self.statistic == "variance" and column.n_levels > 0
        return 0.5 if apart else column.centre

    def row_influence(self, noise_std: npt.NDArray[np.float64]) -> float:
        """Return the most that one row changes, in deviations of the noise.

        ``noise_std`` has shape (n_cells, coordinates): those of the axes one after the other. A
        row may be in any cell, so the least noise of an axis counts.
        """
        least, start, squares = noise_std.min(axis=0), 0, []
        for axis in self.axes():
            width = 1 if axis.merged else len(axis.places)
            squares.append((axis.reach / float(least[start : start + width].min())) ** 2)
            start += width
        return math.sqrt(math.fsum(squares)) * ROUND_UP_REACH

    def unit_influence(
        self, grid: npt.NDArray[np.float64], units_per_std: npt.NDArray[np.int64]
    ) -> float:
        """Return the most that any unit of the declared domain changes, in deviations, rounded up.

        Guarantee
        ---------
        Claim C-9. At least the distance between the integers with and without a unit, whatever its
        rows and everybody else's are.
        """
        rows = self.rows_per_unit
        rounding = math.sqrt(rows * self.n_axes_of_row) / float(units_per_std.min())
        return rows * self.row_influence(grid * units_per_std) + rounding * ROUND_UP_REACH

    def text(self, unit: str) -> str:
        """Return the declarations in words."""
        cells = "bins" if self.statistic == "histogram" else "groups"
        declared = [str(column) for column in self.columns]
        if self.n_cells > 1:
            declared.append(f"{self.n_cells} {cells}")
        if self.largest_weight != 1.0:
            declared.append(f"weights of at most {self.largest_weight:g}")
        more = "" if self.rows_per_unit == 1 else f", the first {self.rows_per_unit} at most"
        declared.append(f"rows of one {unit}: {self.rows_per_unit}{more}")
        return "; ".join(declared)


def first_rows(units: Integers, most: int) -> Integers:
    """Return the used rows: the first ones of every unit, in the order of the table.

    Whether a row is used depends on the rows of its own unit alone.

    Examples
    --------
    >>> first_rows(np.array([0, 1, 0, 0, 1]), 2).tolist()
    [0, 1, 2, 4]
    """
    order = np.argsort(units, kind="stable")
    ordered = units[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(units) else order
    rank = np.arange(len(units)) - np.repeat(starts, np.diff(np.r_[starts, len(units)]))
    return np.sort(order[rank < most])
