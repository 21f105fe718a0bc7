"""Quantiles of columns, in all or by the levels of categories, and the influence of a unit.

Of units with one row each they are order statistics, whose law is a product of binomials. Of units
with several rows they are interpolated. Records far from every quantile are then all moved to the
end of a window around it, which changes no quantile of all records, and that of a sample with a
negligible chance. The window is a function of all records, so this is part of what the statistic
is, and no approximation. Units whose records are then the same move quantiles by the same law: one
of them is tested for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Mask, Matrix, Vector, as_told
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Batch, Data, Mechanism, fixed_mechanism, read_data_numbers
from pacprivacy.sample import Pool
from pacprivacy.statistics.influence import (
    AveragedStatistic,
    CoinUnits,
    InfluencedValue,
    SampleValue,
)
from pacprivacy.statistics.table import Statistic, StatisticRows

WINDOW_STD: Final = 6.0  # deviations of the rank of a quantile by the coins, to either side
WINDOW_MORE: Final = 2  # rows of the unit with the most, beyond that
_ROUNDING: Final = 2.0**-48  # of the largest record: of an interpolated number


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankedSet:
    """The records of one column and one group in increasing order, and whose each is."""

    values: Vector = field(repr=False)
    units: Integers = field(repr=False)
    cell: int
    scale: float

    @classmethod
    def of(cls, values: Vector, units: Integers, *, cell: int, scale: float) -> RankedSet:
        order = np.argsort(values, kind="stable")
        return cls(values=values[order], units=units[order], cell=cell, scale=scale)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _QuantilesOfSets:
    """Quantiles of sets of records; those of the first set come first.

    If no unit of a set is used, its quantiles are those of all its records.
    """

    sets: tuple[RankedSet, ...] = field(repr=False)
    probabilities: tuple[float, ...]
    n_units: int

    @property
    def scales(self) -> Vector:
        return np.repeat([each.scale for each in self.sets], len(self.probabilities))

    @property
    def one_set_each(self) -> bool:
        """Whether no unit is in sets of two different groups."""
        cell_of_unit = np.full(self.n_units, -1)
        for each in self.sets:
            before = cell_of_unit[each.units]
            if ((before >= 0) & (before != each.cell)).any():
                return False
            cell_of_unit[each.units] = each.cell
        return True

    def _used(self, kept: Mask) -> Iterator[Vector]:
        for each in self.sets:
            used = each.values[kept[each.units]]
            yield used if len(used) else each.values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderStatistics(_QuantilesOfSets, SampleValue):
    """Quantiles as order statistics of the used records."""

    @property
    def on_all(self) -> Vector:
        return np.concatenate(
            [interpolated_quantiles(each.values, self.probabilities) for each in self.sets]
        )

    def value(self, kept: Mask) -> Vector:
        places = [
            records[int(quantile_places(q, np.array([len(records)]))[0]) - 1]
            for records in self._used(kept)
            for q in self.probabilities
        ]
        return np.array(places)

    @property
    def one_row_each(self) -> bool:
        return all(len(np.unique(each.units)) == len(each.units) for each in self.sets)

    @property
    def public(self) -> tuple[str, ...]:
        return (
            "quantiles: order statistics of the used records (place ceil(q k) of k), as they are",
        )


def interpolated_quantiles(values: Vector, q: tuple[float, ...]) -> Vector:
    """Return quantiles of values in increasing order, as NumPy does; NaN of nothing."""
    if not len(values):
        return np.full(len(q), np.nan)
    place = np.asarray(q) * (len(values) - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(values) - 1)
    return np.asarray(values[low] + (place - low) * (values[high] - values[low]))


def quantile_places(probability: float, counts: Integers) -> Integers:
    """Return the place of the quantile among so many records: ``ceil(q k)``, at least 1.

    ``probability`` counts as its decimal digits say: a tenth of ten records is one.
    """
    q = Fraction(repr(float(probability)))
    top, bottom = q.numerator, q.denominator
    return np.array([max(1, -(-top * int(k) // bottom)) for k in counts], dtype=np.int64)


# --- units of several rows ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitQuantiles(_QuantilesOfSets, InfluencedValue):
    """Interpolated quantiles of the used records, where a unit may have several; curator-only.

    No two units of ``distinct`` have the same records.
    """

    on_all: Vector = field(repr=False)
    distinct: Integers = field(repr=False)

    @classmethod
    def of(
        cls, sets: tuple[RankedSet, ...], q: tuple[float, ...], n_units: int, keep: float
    ) -> UnitQuantiles:
        """Move records into windows, and find units of which no two have the same records."""
        on_all = np.concatenate([interpolated_quantiles(each.values, q) for each in sets])
        moved = tuple(_in_windows(each, q, keep) for each in sets)
        return cls(
            sets=moved,
            probabilities=q,
            n_units=n_units,
            on_all=on_all,
            distinct=_distinct_units(moved, n_units),
        )

    @property
    def tested_units(self) -> Integers:
        return self.distinct

    @property
    def shared_cells(self) -> Integers:
        """Cell of every number; one cell for all if a unit is in two of them."""
        cells = np.repeat([each.cell for each in self.sets], len(self.probabilities))
        return cells if self.one_set_each else np.zeros_like(cells)

    @property
    def public(self) -> tuple[str, ...]:
        return (
            "quantiles: interpolated between used records; those far from it count by their side",
        )

    def value(self, kept: Mask) -> Vector:
        return np.concatenate(
            [interpolated_quantiles(records, self.probabilities) for records in self._used(kept)]
        )

    def influence(self, kept: Mask, units: Integers) -> Matrix:
        places = np.full(self.n_units, -1)
        places[units] = np.arange(len(units))
        inside = kept[units]
        moved = [self._of_set(each, kept, places, inside) for each in self.sets]
        return np.concatenate(moved, axis=1)

    def _of_set(self, each: RankedSet, kept: Mask, places: Integers, inside: Mask) -> Matrix:
        used = kept[each.units]
        values = each.values[used]
        before: Integers = np.cumsum(used) - used
        sought = np.flatnonzero(places[each.units] >= 0)
        owner = places[each.units[sought]]
        order = np.argsort(owner, kind="stable")
        sought, owner = sought[order], owner[order]
        counts = np.bincount(owner, minlength=len(inside))
        number = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]  # of the unit's own
        own = _OwnRecords(
            owner=owner,
            ranks=before[sought] + np.where(inside[owner], -number, number),
            values=each.values[sought],
        )
        size = len(values) + np.where(inside, -counts, counts)  # without, or with the unit
        moved = np.zeros((len(inside), len(self.probabilities)))
        records = values if len(values) else each.values
        for i, q in enumerate(self.probabilities):
            now = float(interpolated_quantiles(records, (q,))[0])
            otherwise = own.quantiles(q, size, values, inside)
            empty = float(interpolated_quantiles(each.values, (q,))[0])
            otherwise = np.where(size > 0, otherwise, empty)
            difference = np.where(inside, now - otherwise, otherwise - now)
            moved[:, i] = np.where(counts > 0, difference, 0.0)
        return moved

    def rounding(self, whiten: Matrix) -> float:
        largest = max(float(np.abs(each.values).max()) for each in self.sets)
        return _ROUNDING * largest * float(np.linalg.norm(whiten))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OwnRecords:
    """Records of units that are taken out of others, or put among them; curator-only.

    ``ranks``: how many others are below one that is put in, with the unit's own before it; and for
    one that is taken out, how many are below without the unit's own.
    """

    owner: Integers
    ranks: Integers
    values: Vector

    def quantiles(self, q: float, size: Integers, others: Vector, inside: Mask) -> Vector:
        place = q * np.maximum(size - 1, 0)
        low = np.floor(place).astype(np.int64)
        first = self._at(low, others, inside)
        second = self._at(np.minimum(low + 1, np.maximum(size - 1, 0)), others, inside)
        return np.asarray(first + (place - low) * (second - first))

    def _at(self, rank: Integers, others: Vector, inside: Mask) -> Vector:
        sought = rank[self.owner]
        leaves = inside[self.owner]
        passed = np.where(leaves, self.ranks <= sought, self.ranks < sought)
        shift = np.bincount(self.owner, weights=passed, minlength=len(rank)).astype(np.int64)
        index = rank + np.where(inside, shift, -shift)
        entries = np.zeros(len(rank))
        if len(others):
            entries = others[np.clip(index, 0, len(others) - 1)]
        hit = ~leaves & (self.ranks == sought)
        entries[self.owner[hit]] = self.values[hit]
        return entries


def _in_windows(each: RankedSet, q: tuple[float, ...], keep: float) -> RankedSet:
    """Move records that are far from every quantile to the end of a window around one."""
    n = len(each.values)
    rows = np.bincount(each.units)
    spread = math.sqrt((1 - keep) / keep * float(np.square(rows, dtype=np.float64).sum()))
    reach = math.ceil(WINDOW_STD * spread) + WINDOW_MORE * int(rows.max()) + 1
    inside = np.zeros(n, dtype=np.bool_)
    for probability in q:
        place = int(probability * (n - 1))
        inside[max(0, place - reach) : place + reach + 1] = True
    below = np.where(inside, np.arange(n), int(np.argmax(inside)))
    target = np.maximum.accumulate(below)
    return replace(each, values=each.values[target])


def _distinct_units(sets: tuple[RankedSet, ...], n_units: int) -> Integers:
    """Return one unit for each collection of records that a unit has; none without any."""
    keys, first = [], 0
    for each in sets:
        ranks = np.unique(each.values, return_inverse=True)[1]
        keys.append(ranks + first)
        first += int(ranks.max(initial=0)) + 1
    key, unit = np.concatenate(keys), np.concatenate([each.units for each in sets])
    order = np.lexsort((key, unit))
    key, counts = key[order], np.bincount(unit, minlength=n_units)
    starts = np.cumsum(counts) - counts
    chosen = []
    for count in np.unique(counts[counts > 0]).tolist():
        alike = np.flatnonzero(counts == count)
        lines = key[starts[alike][:, None] + np.arange(count)]
        chosen.append(alike[np.unique(lines, axis=0, return_index=True)[1]])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


# --- statistics -----------------------------------------------------------------------------------


def quantiles_on_samples(
    sets: tuple[RankedSet, ...], q: tuple[float, ...], coins: CoinUnits
) -> SampleValue:
    """Return order statistics where no unit has two rows, else interpolated quantiles."""
    ordered = OrderStatistics(sets=sets, probabilities=q, n_units=coins.n_units)
    if ordered.one_row_each:
        return ordered
    return UnitQuantiles.of(sets, q, coins.n_units, coins.keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuantiles(Statistic, AveragedStatistic):
    """Quantiles by linear interpolation."""

    kind = "quantiles"
    weighted = False
    q: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        # A class with slots is made anew; its super() without arguments would be the old one.
        super(TableQuantiles, self).__post_init__()
        if not self.q or not all(0 <= q <= 1 for q in self.q):
            raise MechanismError(
                f"q must be numbers between 0 and 1; got {as_told(self.q)}. "
                "Write q=(0.25, 0.5, 0.75)."
            )

    @property
    def name(self) -> str:
        plain = super(TableQuantiles, self).name
        return plain.replace("quantiles", "median", 1) if self.q == (0.5,) else plain

    @property
    def _sorted_q(self) -> tuple[float, ...]:
        return tuple(sorted(self.q))

    @property
    def _cell_parts(self) -> tuple[str, ...]:
        return tuple(f"{q:g}" for q in self._sorted_q)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        quantiles = [
            interpolated_quantiles(values, self._sorted_q)
            for _, values in self._sorted(self.read(parts))
        ]
        values = np.concatenate(quantiles)[None]
        return self.check_empty(values)[0]

    @property
    def batch(self) -> Batch | None:
        """All candidates, sorted once; not where gaps are filled by the mean of each."""
        return None if self.missing == "mean" else self._at_once

    def _at_once(self, data: Data, pool: Pool) -> Matrix:
        cells = list(self._sorted(self.read(data.parts)))
        values = np.empty((pool.n_subsets, len(cells) * len(self.q)))
        for k in range(pool.n_subsets):
            mask = pool.row_mask(k)
            values[k] = np.concatenate(
                [interpolated_quantiles(v[mask[rows]], self._sorted_q) for rows, v in cells]
            )
        return self.check_empty(values)

    def _sorted(self, rows: StatisticRows) -> Iterator[tuple[npt.NDArray[np.int64], Vector]]:
        """Yield the rows of every column and cell in the order of their values, and these."""
        for column in rows.X.T:
            usable = (rows.weights > 0) & ~np.isnan(column)
            for cell in range(self.n_cells):
                inside = np.flatnonzero(usable & (rows.cells == cell))
                inside = inside[np.argsort(column[inside], kind="stable")]
                yield inside, column[inside]

    def on_samples(self, data: Data, units: Integers | None, coins: CoinUnits) -> SampleValue:
        rows, scales = self.read(data.parts), fixed_mechanism(self.layout, "layout").scales
        codes = np.arange(len(rows.weights)) if units is None else units
        sets = tuple(
            RankedSet.of(
                values,
                codes[own],
                cell=number % self.n_cells,
                scale=float(scales[number // self.n_cells]),
            )
            for number, (own, values) in enumerate(self._sorted(rows))
        )
        if n_empty := sum(not len(each.values) for each in sets):
            raise MechanismError(
                f"groups must have records where every unit has a coin; got {n_empty} of "
                f"{len(sets)} without. Declare levels without them."
            )
        return quantiles_on_samples(sets, self._sorted_q, coins)

    def finish(self, value: Any) -> Any:
        """Put names on released numbers, in order where noise has put them out of it."""
        numbers = np.asarray(value, dtype=np.float64).reshape(-1, len(self.q))
        return super(TableQuantiles, self).finish(np.sort(numbers, axis=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayQuantiles(Mechanism, AveragedStatistic):
    """Quantiles of the columns of an array, as NumPy shapes them."""

    name = "Quantiles"
    probabilities: tuple[float, ...]
    scalar: bool

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        q = self.probabilities[0] if self.scalar else self.probabilities
        return np.quantile(read_data_numbers(parts, self.name), q, axis=0)

    def on_samples(self, data: Data, units: Integers | None, coins: CoinUnits) -> SampleValue:
        X = read_data_numbers(data.parts, self.name)
        X = X[np.arange(len(X))].reshape(len(X), -1)
        codes = np.arange(len(X)) if units is None else units
        deviations = X.std(axis=0)
        sets = tuple(
            RankedSet.of(column, codes, cell=0, scale=float(deviation) or 1.0)
            for column, deviation in zip(X.T, deviations, strict=True)
        )
        return quantiles_on_samples(sets, self.probabilities, coins)

    def shaped(self, numbers: Vector, data: Data) -> Any:
        row_shape = read_data_numbers(data.parts, self.name).shape[1:]
        by_quantile = numbers.reshape(-1, len(self.probabilities)).T
        if self.scalar:
            return by_quantile[0].reshape(row_shape) if row_shape else float(numbers[0])
        return by_quantile.reshape(len(self.probabilities), *row_shape)
