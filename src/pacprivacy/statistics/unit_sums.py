"""Sums over units, and the statistics that are functions of sums: each written once, as a formula.

A formula knows no table, no candidate and no noise. The caller reads the rows, shifts and scales
their columns alike (``x -> (x - centre) / scale``), sums the moments in its own way, and puts the
units back. Pools sum over every candidate, groups over every cell, and differential privacy over
all records, with centres and scales from declared ranges.

Sums lie in *cells*: the groups of a table, the bins of a histogram, or one cell for all. Every cell
has the same number of sums (its *block*): a count, sums of columns, sums of squares. What a unit
adds to a cell is one *entry*; a unit of several rows has at most one entry in each cell.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt
import scipy

from pacprivacy._checks import LARGEST_OUTPUT, Array, Integers, Matrix, Vector
from pacprivacy._rounding import power_of_two
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    Batch,
    Data,
    Mechanism,
    Parts,
    Value,
    products_of_columns,
    row_blocks,
)
from pacprivacy.sample import Pool
from pacprivacy.statistics.declared import Declaration

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


WIDEST_BLOCK: Final = 512  # sums of a cell whose noise is correlated
CENTRE_STEPS: Final = 32  # of the power of two above a deviation: at most 1/16 of the deviation
DERIVATIVE_STEP: Final = 2.0**-16
FLAT: Final = 1e-12  # a deviation below this share of the centre is rounding error
SPARSE: Final = 4  # places for each entry: more are sorted
Cube = npt.NDArray[np.float64]
_NUMBERS_AT_ONCE: Final = 1 << 16  # half a megabyte, which stays in the cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitSums:
    """Contribution of every unit to every sum, curator-only.

    Parameters
    ----------
    values : array of shape (entries, block), curator-only
        Ordered by cell, within a cell by unit.
    units : array of shape (entries,) or None, curator-only
        Unit of every entry. None: entry ``i`` is unit ``i``, and there is one cell.
    starts : array of shape (n_cells + 1,)
        The entries of cell ``c`` are ``starts[c]`` to ``starts[c + 1] - 1``.
    n_units : int
        Number of units, also of those without an entry.
    centre : array of shape (columns,), public
        Centres subtracted from the columns before summing.
    largest : float, curator-only
        The size of the largest number of all.
    scales : array, public
        In which units the outputs of a cell are compared; one of each.
    """

    values: Matrix = field(repr=False)
    units: Integers | None = field(repr=False)
    starts: Integers = field(repr=False)
    n_units: int
    centre: Vector
    scales: Vector | None = None
    largest: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        sizes = (values.min(initial=0.0), values.max(initial=0.0))
        # NaN fails both comparisons.
        if values.ndim != 2 or not (sizes[0] >= -LARGEST_OUTPUT and sizes[1] <= LARGEST_OUTPUT):
            raise MechanismError(
                f"contributions must be finite, of shape (entries, sums) and below "
                f"{LARGEST_OUTPUT:g}; got shape {values.shape} with others. Leave out or fill gaps "
                "before they are summed."
            )
        object.__setattr__(self, "largest", max(-float(sizes[0]), float(sizes[1])))
        self._check_cells(len(values))
        units = self.units
        if units is None:
            if not (self.n_cells == 1 and len(values) == self.n_units):
                raise MechanismError(
                    f"units must be given for every entry; got None for {len(values)} entries of "
                    f"{self.n_units} units. Use UnitSums.of_rows."
                )
            return
        _check_codes("units", units, 0, self.n_units)
        again = np.diff(units) <= 0
        firsts = self.starts[1:-1]
        again[firsts[(firsts > 0) & (firsts < len(units))] - 1] = False  # another cell begins
        if again.any():  # two entries would be charged as if they were at right angles
            raise MechanismError(
                "units must have at most one entry in a cell, in order; got a unit twice, or out "
                "of order. Use UnitSums.of_rows."
            )

    def _check_cells(self, n_entries: int) -> None:
        starts = self.starts
        lengths = n_entries if self.units is None else len(self.units)
        if not (
            len(starts) >= 2
            and starts[0] == 0
            and starts[-1] == n_entries == lengths
            and (np.diff(starts) >= 0).all()
        ):
            raise MechanismError(
                f"starts must lead from 0 to the number of entries, {n_entries}, and units must be "
                "one for each of these; got other arrays. Use UnitSums.of_rows."
            )

    def with_units(self, n_units: int) -> Self:
        """Return the same for a table of more units, who add nothing."""
        if n_units == self.n_units:
            return self
        units = np.arange(len(self.values)) if self.units is None else self.units
        return replace(self, units=units, n_units=n_units)

    @property
    def n_cells(self) -> int:
        return len(self.starts) - 1

    @property
    def block(self) -> int:
        return int(self.values.shape[1])

    @property
    def entries_per_cell(self) -> Integers:
        return np.diff(self.starts)

    @property
    def tables(self) -> tuple[UnitSums, ...]:
        """The sums of each table; several are in one cell where a release has them together."""
        return (self,)

    def chunks(self) -> Iterator[tuple[int, slice]]:
        """Yield cells and slices of their entries, in bounded pieces."""
        rows = max(64, _NUMBERS_AT_ONCE // max(1, self.block))
        for cell in range(self.n_cells):
            stop = int(self.starts[cell + 1])
            for start in range(int(self.starts[cell]), stop, rows):
                yield cell, slice(start, min(start + rows, stop))

    def units_of(self, entries: slice) -> npt.NDArray[np.int64] | slice:
        """Return the index of the units of some entries in an array over units."""
        return entries if self.units is None else self.units[entries]

    @property
    def entry_units(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.values)) if self.units is None else self.units

    def add_by_unit(self, numbers: Vector) -> Vector:
        """Return, for every unit, the sum of the numbers of its entries."""
        if self.units is None:
            return numbers
        added = np.bincount(self.units, weights=numbers, minlength=self.n_units)
        return np.asarray(added, dtype=np.float64)

    def total(self, factors: Vector | None = None) -> Sums:
        """Return the sums over all units, each counted ``factors`` times."""
        each = np.ones(self.n_units) if factors is None else factors
        squares = np.einsum("ij,ij->j", self.values, self.values)
        sizes = np.sqrt(max(1, self.n_units) * squares)
        total = np.zeros((self.n_cells, self.block))
        for cell, entries in self.chunks():
            total[cell] += each[self.units_of(entries)] @ self.values[entries]
        return Sums(values=total, centre=self.centre, sizes=sizes)

    def squares(self, factors: Vector) -> Matrix:
        """Return the sums over units of squares, each unit counted ``factors`` times."""
        total = np.zeros((self.n_cells, self.block))
        for cell, entries in self.chunks():
            total[cell] += np.square(factors[self.units_of(entries)]) @ np.square(
                self.values[entries]
            )
        return total

    def lines_of_rows(self) -> Callable[[Integers], Matrix]:
        """Return a function from numbers of units to their contributions, one a line."""
        if self.units is None:
            return lambda rows: self.values[rows]
        cells = np.repeat(np.arange(self.n_cells), self.entries_per_cell)
        columns = cells[:, None] * self.block + np.arange(self.block)
        lines = scipy.sparse.csr_array(
            (self.values.ravel(), (np.repeat(self.units, self.block), columns.ravel())),
            shape=(self.n_units, self.n_cells * self.block),
        )
        return lambda rows: lines[rows].toarray()

    @classmethod
    def of_rows(
        cls,
        values: Matrix,
        *,
        units: Array | None = None,
        n_units: int | None = None,
        cells: Array | None = None,
        n_cells: int = 1,
        centre: Vector | None = None,
        scales: Vector | None = None,
    ) -> Self:
        """Add up the rows of every unit in every cell; rows of cell -1 have no part.

        ``units`` numbers the unit of every row (None: every row is one), ``cells`` its cell.
        """
        values = np.ascontiguousarray(values, dtype=np.float64)
        number = n_units
        if number is None:
            number = len(values) if units is None else int(np.max(units, initial=-1)) + 1
        centre = np.zeros(0) if centre is None else centre
        if units is None and cells is None:
            starts = np.array([0, len(values)])
            return cls(
                values=values, units=None, starts=starts, n_units=number, centre=centre,
                scales=scales,
            )  # fmt: skip
        of_unit = _read_codes("units", units, 0, number, np.arange(len(values)))
        of_cell = _read_codes("cells", cells, -1, n_cells, np.zeros(len(values), dtype=np.int64))
        inside = (of_cell >= 0) & (values.T != 0).any(axis=0)
        places = of_cell * number + of_unit
        if not inside.all():
            places, values = places[inside], values[inside]
        distinct, entry = _distinct_places(places, n_cells * number)
        added = np.empty((len(distinct), values.shape[1]))
        for column in range(values.shape[1]):
            weights = values[:, column]
            added[:, column] = np.bincount(entry, weights=weights, minlength=len(distinct))
        starts = np.searchsorted(distinct, np.arange(n_cells + 1) * number).astype(np.int64)
        return cls(
            values=added, units=distinct % number, starts=starts, n_units=number, centre=centre,
            scales=scales,
        )  # fmt: skip


def _distinct_places(places: Integers, n_places: int) -> tuple[Integers, Integers]:
    """Return the places that occur, in order, and the number of each entry among them."""
    if n_places > SPARSE * len(places):
        distinct, entry = np.unique(places, return_inverse=True)
        return distinct, entry
    occurs = np.zeros(n_places, dtype=np.bool_)
    occurs[places] = True  # no sorting
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[places]


def _check_codes(name: str, codes: Array, least: int, end: int) -> None:
    whole = codes.dtype.kind in "iu" and codes.ndim == 1
    if not whole or (len(codes) and not least <= int(codes.min()) <= int(codes.max()) < end):
        raise MechanismError(
            f"{name} must be numbered from {least} to {end - 1}, in whole numbers; got others. "
            "Use code_units for units."
        )


def _read_codes(
    name: str, codes: Array | None, least: int, end: int, default: Integers
) -> Integers:
    if codes is None:
        return default
    codes = np.asarray(codes)
    if codes.shape != default.shape:
        raise MechanismError(
            f"{name} must be one for each of {len(default)} rows; got shape {codes.shape}. Pass "
            "them in the order of the rows."
        )
    _check_codes(name, codes, least, end)
    return codes.astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums:
    """The sums of all cells, with noise or without.

    Parameters
    ----------
    values : array of shape (n_cells, block)
        Public if they have noise, else curator-only.
    centre : array of shape (columns,), public
        Centres subtracted from the columns before summing.
    noise_std : array of shape (n_cells, block), public, optional
        Standard deviation of the noise of every sum.
    sizes : array of shape (block,), curator-only, optional
        Typical sizes of the sums: what they would be if all units added the same.
    """

    values: Matrix = field(repr=False)
    centre: Vector
    noise_std: Matrix | None = None
    sizes: Vector | None = field(default=None, repr=False)


class SumStatistic(Mechanism):
    """A statistic that is a function of sums over units.

    A subclass defines the contributions of units and the value of the sums. The value may be
    anything that numbers can be computed from; noise goes to the sums.
    """

    __slots__ = ()
    has_errors: ClassVar[bool] = True  # whether post-processing acts on every number alone

    @abstractmethod
    def contributions(self, data: Data, units: Integers | None = None) -> UnitSums:
        """Return the contributions of units; ``units`` numbers the unit of every row from 0 on."""

    @abstractmethod
    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        """Return the numbers that are released, given sums over units kept with probability
        ``keep``. Defined for *all* sums; empty cells have a declared value, or are NaN.
        """  # noqa: D205

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        data = Data(parts=parts, n_rows=len(parts[0]), single=len(parts) == 1)
        numbers = self.value(self.contributions(data).total())
        return self.shaped(self.check_empty(numbers[None])[0], data)

    @property
    def batch(self) -> Batch | None:
        """All candidates at once, unless a row's contribution depends on others."""
        return None if self.coin_obstacle() is not None else self._evaluate_pool

    def _evaluate_pool(self, data: Data, pool: Pool) -> Matrix:
        sums = self.contributions(data)
        lines, width = sums.lines_of_rows(), sums.n_cells * sums.block
        totals = np.zeros((pool.n_subsets, width))
        for rows, inside in row_blocks(pool, width):
            totals += inside @ lines(rows)
        cells = totals.reshape(-1, sums.n_cells, sums.block)
        return self.check_empty(
            np.stack([self.value(Sums(values=each, centre=sums.centre)) for each in cells])
        )

    def check_empty(self, values: Matrix) -> Matrix:
        wrong = int(np.isnan(values).any(axis=0).sum())
        if wrong:
            raise MechanismError(
                f"{self.name} must see rows enough in every subset; got subsets with too few for "
                f"{wrong} numbers. Use more records or a pool of larger subsets."
            )
        return values

    def arrange(self, per_cell: Matrix) -> Vector:
        """Return figures of every cell, shape (n_cells, outputs), in the order of the value."""
        return per_cell.ravel()

    def shaped(self, numbers: Vector, data: Data) -> Any:
        """Return the numbers of the value in the shape that is released."""
        return numbers

    def cell_values(self, sums: Sums) -> Matrix:
        """Return the outputs of every cell, shape (n_cells, outputs), for all units."""
        return self.value(sums).reshape(len(sums.values), -1)

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        """Return the derivatives of the outputs of a cell by its sums, (n_cells, outputs, block).

        Central differences approximate them. Noise and error bars use them; no promise does.
        """
        at = sums.values
        typical = np.abs(at) if sums.sizes is None else np.broadcast_to(sums.sizes, at.shape)
        steps = DERIVATIVE_STEP * np.where(typical > 0, typical, 1.0)
        columns = []
        for j in range(at.shape[1]):
            shift = np.zeros_like(at)
            shift[:, j] = steps[:, j]
            high = self.cell_values(Sums(values=at + shift, centre=sums.centre))
            low = self.cell_values(Sums(values=at - shift, centre=sums.centre))
            columns.append((high - low) / (2 * steps[:, j : j + 1]))
        slopes: npt.NDArray[np.float64] = np.nan_to_num(np.stack(columns, axis=2))
        return slopes

    def flat_slopes(self, sums: Sums) -> Matrix:
        """Return the derivatives of all numbers, in the order of the value, by all sums."""
        slopes = self.jacobian(sums)
        n_cells, n_outputs, _ = slopes.shape
        order = self.arrange(np.arange(n_cells * n_outputs).reshape(n_cells, n_outputs))
        return flatten_slopes(slopes)[order.astype(np.int64)]

    def own_deviations(self, sums: Sums) -> Vector:
        """Return deviations of the numbers besides noise and sample, as by rounding."""
        return np.zeros(len(self.value(sums)))

    def design_spread(
        self, moved: Callable[[], Matrix], data: Data, units: Integers | None
    ) -> tuple[Vector, int] | None:
        """Return deviations of the numbers by the design of a survey, and degrees of freedom.

        ``moved`` returns the change by every unit; None where units are drawn one by one.
        """
        return None

    def declare(self, rows_per_unit: int) -> tuple[Self, Declaration]:
        """Return the statistic with everything from declared ranges, and the declaration.

        Refused where something would have to be read off the records.
        """
        raise MechanismError(
            "a statistic must have declared ranges where presence is hidden; got "
            f"{type(self).__name__}. Use count, sum, mean, variance, crosstab or histogram of "
            "pac.stats with ranges=."
        )

    def declared_errors(self, sums: Sums, deviations: Matrix) -> Matrix:
        """Return deviations of every cell, within the declared bounds."""
        return deviations

    def output_slopes(self, contributions: UnitSums) -> npt.NDArray[np.float64]:
        """Return the derivatives at the sums of all units, in the units of the outputs."""
        slopes = self.jacobian(contributions.total())
        if contributions.scales is None:
            return slopes
        return np.asarray(slopes / contributions.scales[:, None])


def flatten_slopes(slopes: Cube) -> Matrix:
    """Return derivatives of the outputs of cells by their own sums as those by all sums."""
    n_cells, n_outputs, block = slopes.shape
    flat = np.zeros((n_cells, n_outputs, n_cells, block))
    each = np.arange(n_cells)
    flat[each, :, each, :] = slopes
    return flat.reshape(n_cells * n_outputs, n_cells * block)


# --- formulas of columns -----------------------------------------------------------------------

COUNT_STD: Final = 3.0  # a noisy count below so many deviations of its noise is no count


def shape_block(
    formula: Formula, columns: Matrix, weights: Vector | None, *, shared: bool
) -> Matrix:
    """Return the contributions of rows to the sums of a formula: counts, then moments.

    NaN is a gap. Without any, all columns share a count.
    """
    each = np.ones((len(columns), 1)) if weights is None else weights[:, None]
    if shared:
        parts = [each, *formula.moments(columns)]
    else:
        gaps = np.isnan(columns)
        each = np.where(gaps, 0.0, each)
        parts = [each, *formula.moments(np.where(gaps, 0.0, columns))]
    block = np.hstack(parts if formula.counted else parts[1:])
    if weights is not None or not shared:
        n_counts = each.shape[1] if formula.counted else 0
        for start in range(n_counts, block.shape[1], max(1, parts[1].shape[1])):
            block[:, start : start + parts[1].shape[1]] *= each
    return block


def split_block(
    formula: Formula, values: Matrix, n_columns: int
) -> tuple[Matrix | None, list[Matrix]]:
    """Return the counts and the moments of every cell, as :func:`shape_block` put them."""
    widths = [moment.shape[1] for moment in formula.moments(np.zeros((1, n_columns)))]
    n_counts = values.shape[1] - sum(widths)
    parts = np.split(values, np.cumsum([n_counts, *widths])[:-1], axis=1)
    return (parts[0] if formula.counted else None), [part.copy() for part in parts[1:]]


def value_of_block(
    formula: Formula, sums: Sums, n_columns: int, *, keep: float, fill: float | None
) -> Matrix:
    """Return the outputs of every cell, estimated for all units, shape (n_cells, outputs).

    Where a count is below three deviations of its noise, the output is ``fill``, or NaN.
    """
    number, moments = split_block(formula, sums.values / keep, n_columns)
    if number is None:
        return formula.restore(formula.value(None, *moments), sums.centre, 1.0)
    least = np.full(number.shape, formula.least)
    if sums.noise_std is not None:
        noise = COUNT_STD * sums.noise_std[:, : number.shape[1]] / keep
        least = np.maximum(least, noise)
    empty = number <= least
    plain = formula.value(np.where(empty, formula.least + 1.0, number), *moments)
    values = formula.restore(plain, sums.centre, 1.0)
    return np.asarray(np.where(empty, np.nan if fill is None else fill, values))


def slopes_of_block(formula: Formula, sums: Sums, n_columns: int) -> npt.NDArray[np.float64]:
    """Return the derivatives of one output a column by the sums, (n_cells, columns, block)."""
    assert formula.slopes is not None
    number, moments = split_block(formula, sums.values, n_columns)
    n_counts = sums.values.shape[1] - len(moments) * n_columns
    if number is not None:
        number = np.where(number <= formula.least, formula.least + 1.0, number)
    slopes = np.zeros((len(sums.values), n_columns, sums.values.shape[1]))
    of_number, *of_moments = formula.slopes(number, *moments)
    column = np.arange(n_columns)
    if n_counts:
        slopes[:, column, column if n_counts > 1 else 0] = of_number
    for place, each in enumerate(of_moments):
        slopes[:, column, n_counts + place * n_columns + column] = each
    return slopes


def round_centre(centre: Vector, deviations: Vector) -> Vector:
    """Round centres to at most a sixteenth of the deviations, on a grid of powers of two.

    The deviations are published as powers of two. A column of one
    value is not shown exactly, either: its centre has five bits.
    """
    size = np.where(deviations > FLAT * np.abs(centre), deviations, np.abs(centre))
    step = power_of_two(np.where(size > 0, size, 1.0)) / CENTRE_STEPS
    rounded: Vector = np.rint(centre / step) * step
    return rounded
