"""Quantiles of units with several rows: interpolated, and what one unit moves, draw by draw.

Records far from every quantile are all moved to the end of a window around it, which changes no
quantile of all records, and that of a sample with a negligible chance. The window is a function of
all records, so this is part of what the statistic is, and no approximation. Units whose records are
then the same move quantiles by the same law: one of them is looked at for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy.statistics.averaged import InfluencedValue, RankedSet, interpolated_quantiles

WINDOW_STD: Final = 6.0  # deviations of the rank of a quantile by the coins, to either side
WINDOW_MORE: Final = 2  # rows of the unit with the most, beyond that
_ROUNDING: Final = 2.0**-48  # of the largest record: of an interpolated number


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitQuantiles(InfluencedValue):
    """Interpolated quantiles of the used records, where a unit may have several; curator-only.

    The quantiles of the first set come first, in the order of ``probabilities``. If no unit of a
    set is used, its quantiles are those of all its records. No two units of ``distinct`` have the
    same records.
    """

    sets: tuple[RankedSet, ...] = field(repr=False)
    probabilities: tuple[float, ...]
    n_units: int
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
        """Units to test: no two of them have the same records."""
        return self.distinct

    @property
    def scales(self) -> Vector:
        """The deviation of the column."""
        return np.repeat([each.scale for each in self.sets], len(self.probabilities))

    @property
    def shared_cells(self) -> Integers:
        """Cell of every number; one cell for all if a unit is in two of them."""
        cells = np.repeat([each.cell for each in self.sets], len(self.probabilities))
        own = np.full(self.n_units, -1)
        for each in self.sets:
            if ((own[each.units] >= 0) & (own[each.units] != each.cell)).any():
                return np.zeros_like(cells)
            own[each.units] = each.cell
        return cells

    @property
    def public(self) -> tuple[str, ...]:
        """Definition of the quantile."""
        return (
            "quantiles: interpolated between used records; those far from it count by their side",
        )

    def value(self, kept: Mask) -> Vector:
        """Return the quantiles of the used units."""
        numbers = []
        for each in self.sets:
            used = each.values[kept[each.units]]
            records = used if len(used) else each.values
            numbers.append(interpolated_quantiles(records, self.probabilities))
        return np.concatenate(numbers)

    def influence(self, kept: Mask, units: Integers) -> Matrix:
        """Return the influence of units on the quantiles."""
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
        """Return the most that rounding errors add to a distance, in deviations."""
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
        """Return the quantile for every unit, of so many records."""
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
        found = np.zeros(len(rank))
        if len(others):
            found = others[np.clip(index, 0, len(others) - 1)]
        hit = ~leaves & (self.ranks == sought)
        found[self.owner[hit]] = self.values[hit]
        return found


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
