"""Counts of a column by bins, and quantiles that are read off such counts.

A quantile is no sum, but the counts below the points of a grid are. So quantiles join other sums in
one release, also with weights. The promise then holds against an attacker who knows all others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, as_floats
from pacprivacy._rounding import power_of_two
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, fixed_mechanism
from pacprivacy.statistics.declared import Declaration
from pacprivacy.statistics.sums import SummedStatistic
from pacprivacy.statistics.table import StatisticRows
from pacprivacy.statistics.unit_sums import COUNT_STD, SUM, Sums, UnitSums, bin_of

STEPS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024, 4096)  # to a side
ROUNDED_DEVIATION: Final = 0.52  # of a whole number: a 95 % interval reaches the next one
STEPS_A_DEVIATION: Final = 256
MIDDLES_A_DEVIATION: Final = 16
SMOOTHED: Final = 0.1  # share of the rows about a quantile over which density is measured
NEAR_ROWS: Final = 50.0  # about a quantile, within which counts matter most
LEAST_NEAR, MOST_NEAR = 0.002, 0.1  # the same as shares
FALL: Final = 1.5  # power of the distance with which counts matter less

Grid = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binned(SummedStatistic):
    """Ones at the bins of every column; NaN is in none."""

    formula = SUM
    declared_kind = "count"
    grids: tuple[Grid, ...] = field(default=(), repr=False)

    def _summed(self, rows: StatisticRows) -> Matrix:
        columns = zip(rows.X.T, self.grids, strict=True)
        return np.hstack([_ones(column, grid) for column, grid in columns])

    def _output_scales(self, deviations: Vector) -> Vector:
        return np.ones(1)  # outputs are in units of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistogram(_Binned):
    """Numbers of rows by bins of one column, of bins that are declared."""

    kind = "histogram"
    totals: ClassVar[Literal["sum", "count"]] = "count"
    edges: Grid = ()

    def prepare(self, data: Data) -> Self:
        prepared = super(TableHistogram, self).prepare(data)
        edges = as_floats("bins", self.edges)
        one_number = [level for *_, level in prepared.layout.terms] == [None]  # type: ignore[union-attr]
        rising = edges.ndim == 1 and len(edges) > 1 and bool((np.diff(edges) > 0).all())
        if not (one_number and rising):
            raise MechanismError(
                "a histogram must be of one column of numbers, with at least two edges in order; "
                "got others. Write bins=[0, 10, 20]."
            )
        return replace(prepared, grids=(tuple(edges.tolist()),))

    def declare(self, rows_per_unit: int) -> tuple[Self, Declaration]:
        """Return the histogram, whose edges are declared, and the declaration: bins are levels."""
        declared, declaration = super(TableHistogram, self).declare(rows_per_unit)
        (column,) = declaration.columns
        bins = replace(column, low=0.0, high=1.0, n_levels=len(self.grids[0]) - 1)
        return declared, replace(declaration, columns=(bins,))

    def _of_cells(self, sums: Sums, keep: float) -> Matrix:
        return sums.values / keep

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        n_bins = len(self.grids[0]) - 1
        return np.broadcast_to(np.eye(n_bins), (len(sums.values), n_bins, n_bins))

    @property
    def _labels(self) -> tuple[str, ...]:
        grid = self.grids[0]
        named = [f"{low:g} to under {high:g}" for low, high in itertools.pairwise(grid)]
        return (*named[:-1], f"{grid[-2]:g} to {grid[-1]:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountQuantiles(_Binned):
    """Quantiles by counts on a grid that is finest about those of all records.

    The grid shows these to a sixteenth of a power of two below the deviation. Within a step rows
    count as spread evenly, as in quantiles of grouped data.
    """

    kind = "quantiles"
    q: tuple[float, ...] = (0.5,)
    whole: tuple[bool, ...] = field(default=(), repr=False)  # columns of whole numbers

    def prepare(self, data: Data) -> Self:
        prepared = super(CountQuantiles, self).prepare(data)
        rows = prepared.read(data.parts)
        whole = tuple(bool((np.nan_to_num(column) % 1 == 0).all()) for column in rows.X.T)
        columns = zip(rows.X.T, prepared._columns_of_terms, whole, strict=True)
        grids = tuple(
            _grid(column, rows.weights, self.q, self.ranges.get(name), whole=is_whole)
            for column, name, is_whole in columns
        )
        return replace(prepared, grids=grids, whole=whole)

    @property
    def _columns_of_terms(self) -> tuple[str, ...]:
        return tuple(name for _, name, _ in fixed_mechanism(self.layout, "layout").terms)

    @property
    def published(self) -> tuple[str, ...]:
        facts = super(CountQuantiles, self).published
        names = ", ".join(dict.fromkeys(self._columns_of_terms)) if self.layout else "columns"
        return (
            *facts,
            f"quantiles of {names}, rounded to a sixteenth of a deviation: their grids",
            f"whether {names} hold whole numbers",
        )

    def _summed(self, rows: StatisticRows) -> Matrix:
        """Return a one for every entry, then ones at its bin, of every column."""
        columns = zip(rows.X.T, self.grids, strict=True)
        parts = []
        for column, grid in columns:
            hits = _ones(np.clip(column, grid[0], grid[-1]), grid)
            parts.append(np.column_stack([hits.sum(axis=1), hits]))
        return np.hstack(parts)

    def _places(self) -> Iterator[tuple[Grid, int, slice]]:
        """Yield the grid of every column, and where its number and its counts stand."""
        start = 0
        for grid in self.grids:
            stop = start + len(grid)
            yield grid, start, slice(start + 1, stop)
            start = stop

    @property
    def _cell_parts(self) -> tuple[str, ...]:
        return tuple(f"{q:g}" for q in self.q)

    def arrange(self, per_cell: Matrix) -> Vector:
        apart = np.asarray(per_cell).reshape(len(per_cell), len(self.grids), len(self.q))
        return np.swapaxes(apart, 0, 1).ravel()

    def _of_cells(self, sums: Sums, keep: float) -> Matrix:
        values = []
        noise = np.zeros_like(sums.values) if sums.noise_std is None else sums.noise_std
        for (grid, number, bins), whole in zip(self._places(), self.whole, strict=True):
            read = read_quantiles(grid, sums.values[:, bins], self.q)
            empty = sums.values[:, number] <= COUNT_STD * noise[:, number]
            fill = math.nan if self.fill is None else self.fill
            values.append(np.where(empty[:, None], fill, np.rint(read) if whole else read))
        return np.hstack(values)

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        slopes = np.zeros((len(sums.values), len(self.grids), len(self.q), sums.values.shape[1]))
        for column, (grid, _, bins) in enumerate(self._places()):
            for cell, line in enumerate(sums.values[:, bins]):
                slopes[cell, column, :, bins] = quantile_slopes(np.array(grid), line, self.q)
        return slopes.reshape(len(slopes), -1, slopes.shape[-1])

    def own_deviations(self, sums: Sums) -> Vector:
        """Return the error of evenly spread rows within a step, or of rounded whole numbers."""
        values, each = self._of_cells(sums, 1.0), []
        for column, (grid, _, bins) in enumerate(self._places()):
            at = values[:, column * len(self.q) : (column + 1) * len(self.q)]
            whole = self.whole[column]
            each.append(step_deviations(grid, sums.values[:, bins], at, whole=whole))
        return self.arrange(np.hstack(each))

    def output_slopes(self, contributions: UnitSums) -> npt.NDArray[np.float64]:
        """Return the derivatives of the counts below each grid point."""
        values, shapes = contributions.total().values, []
        for grid, number, bins in self._places():
            slopes = np.zeros((len(values), len(grid) - 2, values.shape[1]))
            slopes[:, :, bins] = shaping_counts(values[:, number], values[:, bins], self.q)
            shapes.append(slopes)
        return np.concatenate(shapes, axis=1)


def _ones(column: Vector, grid: Grid) -> Matrix:
    """Return a one at the bin of every row; NaN and rows outside have none."""
    places = bin_of(column, grid)
    hits = np.zeros((len(column), len(grid)))
    hits[np.arange(len(column)), places] = 1.0
    hits[np.isnan(column)] = np.nan
    return hits[:, :-1]


def _grid(
    column: Vector,
    weights: Vector,
    q: Sequence[float],
    limits: tuple[float, float] | None,
    *,
    whole: bool,
) -> Grid:
    """Return a grid that is finest about the quantiles; rows beyond it count at its ends."""
    there = ~np.isnan(column) & (weights > 0)
    values, weights = column[there], weights[there]
    if not len(values):
        raise MechanismError("a quantile must have rows; got none. Name another column.")
    order = np.argsort(values, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    at = values[order][np.minimum(np.searchsorted(shares, [*q, 0.1, 0.9]), len(values) - 1)]
    spread = float(at[-1] - at[-2]) / 2.5 or float(values.std()) or max(abs(float(at[0])), 1.0)
    return quantile_grid(at[:-2], spread, limits, whole=whole)


def quantile_grid(
    at: Vector, spread: float, limits: tuple[float, float] | None = None, *, whole: bool
) -> Grid:
    """Return a grid that is finest about quantiles, which it shows rounded."""
    step = float(power_of_two(np.array([spread]))[0]) / STEPS_A_DEVIATION
    coarse = step * STEPS_A_DEVIATION / MIDDLES_A_DEVIATION
    if whole:  # numbers in the middle of bins
        step, coarse = max(step, 1.0), max(coarse, 1.0)
    middles = np.rint(at / coarse) * coarse + (0.5 if whole else 0.0)
    offsets = step * np.array([*(-s for s in reversed(STEPS)), 0, *STEPS])
    points = np.unique(middles[:, None] + offsets)
    low, high = limits or (points[0], points[-1])
    inner = points[(points > low) & (points < high)]
    return (float(low), *inner.tolist(), float(high))


def _cumulated(counts: Matrix) -> Matrix:
    """Return the counts below every point of the grid; with noise they may not rise."""
    below = np.hstack([np.zeros((len(counts), 1)), counts.cumsum(axis=1)])
    rising = np.maximum.accumulate(below, axis=1)
    falling = np.minimum.accumulate(below[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((rising + falling) / 2)


def read_quantiles(grid: Sequence[float], counts: Matrix, q: Sequence[float]) -> Matrix:
    """Return quantiles of every cell, read off its counts."""
    below = _cumulated(counts)
    return np.array([np.interp(np.array(q) * line[-1], line, grid) for line in below])


def step_deviations(
    grid: Sequence[float], counts: Matrix, at: Matrix, *, whole: bool = False
) -> Matrix:
    """Return the error of evenly spread rows within the step of a quantile.

    A ``whole`` number is in the middle of its bin, and the result is rounded to it.
    """
    if whole:
        return np.full(at.shape, ROUNDED_DEVIATION)
    place = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(grid) - 2)
    rows = np.maximum(np.take_along_axis(counts, place, axis=1), 1.0)
    return np.asarray(np.diff(grid)[place] / (2.0 * np.sqrt(rows)))


def shaping_counts(number: Vector, counts: Matrix, q: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the derivatives of the shares below the points of a grid, by distance from ``q``."""
    total = np.maximum(number, 1.0)[:, None]
    shares = counts.cumsum(axis=1)[:, :-1] / total
    far = np.abs(shares[:, :, None] - np.array(q)).min(axis=2)
    near = np.clip(NEAR_ROWS / total, LEAST_NEAR, MOST_NEAR)
    weights = 1.0 / (1.0 + (far / near) ** FALL)
    n_bins = counts.shape[1]
    slopes = np.tri(n_bins - 1, n_bins)[None] - shares[:, :, None]
    return np.asarray(slopes * (weights / total)[:, :, None])


def quantile_slopes(grid: Vector, counts: Vector, q: Sequence[float]) -> Matrix:
    """Return the derivatives of quantiles by counts, with the density of about a tenth of rows."""
    below = np.concatenate([[0.0], np.maximum(counts, 0.0).cumsum()])
    total = below[-1]
    slopes = np.zeros((len(q), len(counts)))
    if total <= 0:
        return slopes
    for i, share in enumerate(q):
        ends = np.interp(
            np.clip([share - SMOOTHED / 2, share + SMOOTHED / 2], 0, 1) * total, below, grid
        )
        density = (np.interp(ends[1], grid, below) - np.interp(ends[0], grid, below)) / max(
            float(ends[1] - ends[0]), 1e-300
        )
        at = np.interp(share * total, below, grid)
        place = int(np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(counts) - 1))
        within = (at - grid[place]) / (grid[place + 1] - grid[place])
        slopes[i] = share
        slopes[i, :place] -= 1.0
        slopes[i, place] -= within
        slopes[i] /= density
    return slopes
