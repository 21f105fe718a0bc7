"""Means, sums, counts, variances and quantiles, in all or by the levels of categories."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector, as_told
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Batch, Columns, Data, fixed_mechanism, subset_sums
from pacprivacy.pool import Pool
from pacprivacy.stats.statistic import Statistic, StatisticRows, label_statistic


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedStatistic(Statistic):
    """A function of sums over the rows, so that all candidates are evaluated at once."""

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the numbers of one candidate."""
        sums = self._features(self.read(parts)).sum(axis=0)
        return self._combine(sums[None])[0]

    @property
    def batch(self) -> Batch | None:
        """All candidates at once, unless gaps are filled by the mean of each."""
        return None if self.missing == "mean" else self._at_once

    def _at_once(self, data: Data, pool: Pool) -> Matrix:
        rows = self.read(data.parts)
        width = self._features(rows.take(np.arange(1))).shape[1]
        return self._combine(subset_sums(pool, lambda i: self._features(rows.take(i)), width))

    @abstractmethod
    def _features(self, rows: StatisticRows) -> Matrix:
        """Return what is summed, one line per row."""

    @abstractmethod
    def _combine(self, sums: Matrix) -> Matrix:
        """Return the numbers of every candidate, given its sums."""

    def _spread_out(self, rows: StatisticRows, columns: Sequence[Matrix]) -> Matrix:
        """Put each row's numbers where its cell is; shape (rows, kinds * terms * cells)."""
        stacked = np.stack(columns, axis=1)  # rows, kinds, terms
        if not self.by:
            return stacked.reshape(len(stacked), -1)
        spread = np.zeros((*stacked.shape, self._n_cells))
        inside = np.flatnonzero(rows.cells >= 0)
        spread[inside, :, :, rows.cells[inside]] = stacked[inside]
        return spread.reshape(len(stacked), -1)

    def _parts(self, sums: Matrix, kinds: int) -> list[Matrix]:
        parts = sums.reshape(len(sums), kinds, -1)
        return [parts[:, kind] for kind in range(kinds)]

    def _there(self, rows: StatisticRows) -> Matrix:
        return np.where(np.isnan(rows.X), 0.0, rows.weights[:, None])

    def _per_number(self, by_term: Vector) -> Vector:
        """Repeat what belongs to a column for every cell."""
        return np.repeat(by_term, self._n_cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(SummedStatistic):
    """Means; of a category, the share of each level."""

    kind = "mean"

    def _features(self, rows: StatisticRows) -> Matrix:
        there = self._there(rows)
        centred = np.nan_to_num(rows.X - fixed_mechanism(self.layout, "layout").centre)
        return self._spread_out(rows, [there, there * centred])

    def _combine(self, sums: Matrix) -> Matrix:
        number, total = self._parts(sums, 2)
        empty = number <= 0
        centre = self._per_number(fixed_mechanism(self.layout, "layout").centre)
        return self._nobody(empty, centre + total / np.where(empty, 1.0, number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(SummedStatistic):
    """Sums over the rows of a candidate; a release scales them to all records."""

    kind = "sum"
    totals: ClassVar[Literal["sum", "count"]] = "sum"

    def _features(self, rows: StatisticRows) -> Matrix:
        return self._spread_out(rows, [self._there(rows) * np.nan_to_num(rows.X)])

    def _combine(self, sums: Matrix) -> Matrix:
        return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(SummedStatistic):
    """Numbers of rows, of entries, or of entries of each level."""

    kind = "count"
    totals: ClassVar[Literal["sum", "count"]] = "count"

    def _columns(self, frame: Columns) -> tuple[str, ...]:
        return self.columns or ()

    def _features(self, rows: StatisticRows) -> Matrix:
        if not self.columns:
            return self._spread_out(rows, [rows.weights[:, None]])
        is_level = np.array(
            [level is not None for *_, level in fixed_mechanism(self.layout, "").terms]
        )
        hits = np.where(is_level, np.nan_to_num(rows.X), 1.0)
        return self._spread_out(rows, [self._there(rows) * hits])

    def _combine(self, sums: Matrix) -> Matrix:
        return sums

    @property
    def _shape(self) -> tuple[int, ...]:
        layout = fixed_mechanism(self.layout, "layout")
        return (max(1, len(layout.terms)), *(len(layout.levels[name]) for name in self.by))

    def finish(self, value: Any) -> Any:
        """Put names on released numbers."""
        layout = fixed_mechanism(self.layout, "layout")
        axes = [layout.names or ("rows",), *(layout.levels[name] for name in self.by)]
        numbers = np.asarray(value, dtype=np.float64).reshape(self._shape)
        if self.by and len(axes[0]) == 1:
            axes, numbers = axes[1:], numbers[0]
        return label_statistic(numbers, axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance(SummedStatistic):
    """Variances with the divisor n - 1."""

    kind = "variance"
    weighted = False

    def _features(self, rows: StatisticRows) -> Matrix:
        there = self._there(rows)
        centred = np.nan_to_num(rows.X - fixed_mechanism(self.layout, "layout").centre)
        return self._spread_out(rows, [there, there * centred, there * np.square(centred)])

    def _combine(self, sums: Matrix) -> Matrix:
        number, first, second = self._parts(sums, 3)
        few = number <= 1
        safe = np.where(few, 2.0, number)
        return self._nobody(few, np.maximum(second - first * first / safe, 0.0) / (safe - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles(Statistic):
    """Quantiles by linear interpolation."""

    kind = "quantiles"
    weighted = False
    q: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        # A class with slots is made anew; its super() without arguments would be the old one.
        super(Quantiles, self).__post_init__()
        if not self.q or not all(0 <= q <= 1 for q in self.q):
            raise MechanismError(
                f"q must be numbers between 0 and 1; got {as_told(self.q)}. "
                "Write q=(0.25, 0.5, 0.75)."
            )

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        plain = super(Quantiles, self).name
        return plain.replace("quantiles", "median", 1) if self.q == (0.5,) else plain

    @property
    def _shape(self) -> tuple[int, ...]:
        first, *rest = super(Quantiles, self)._shape
        return (first, *rest, len(self.q))

    @property
    def _n_cells(self) -> int:
        return int(np.prod(self._shape[1:-1], dtype=np.int64))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the quantiles of one candidate."""
        found = [_quantile(values, self.q) for _, values in self._sorted(self.read(parts))]
        values = np.concatenate(found)[None]
        return self._check(values)[0]

    @property
    def batch(self) -> Batch | None:
        """All candidates, sorted once; not where gaps are filled by the mean of each."""
        return None if self.missing == "mean" else self._at_once

    def _at_once(self, data: Data, pool: Pool) -> Matrix:
        cells = list(self._sorted(self.read(data.parts)))
        values = np.empty((pool.n_subsets, len(cells) * len(self.q)))
        for k in range(pool.n_subsets):
            mask = pool.row_mask(k)
            values[k] = np.concatenate([_quantile(v[mask[rows]], self.q) for rows, v in cells])
        return self._check(values)

    def _sorted(self, rows: StatisticRows) -> Any:
        """Yield the rows of every column and cell in the order of their values, and these."""
        for column in rows.X.T:
            usable = (rows.weights > 0) & ~np.isnan(column)
            for cell in range(self._n_cells):
                own = np.flatnonzero(usable & (rows.cells == cell))
                own = own[np.argsort(column[own], kind="stable")]
                yield own, column[own]

    def _check(self, values: Matrix) -> Matrix:
        empty = np.asarray(np.isnan(values[:, :: len(self.q)]))
        if empty.any() and self.fill is None:
            plain = Mean(by=self.by, layout=self.layout)  # one number for each cell
            plain._nobody(empty, np.zeros(empty.shape))
        return np.where(np.isnan(values), self.fill or 0.0, values)

    def finish(self, value: Any) -> Any:
        """Put names on released numbers, in order where noise has put them out of it."""
        layout = fixed_mechanism(self.layout, "layout")
        numbers = np.sort(np.asarray(value, dtype=np.float64).reshape(self._shape), axis=-1)
        axes = [layout.names, *(layout.levels[name] for name in self.by)]
        axes.append(tuple(f"{q:g}" for q in sorted(self.q)))
        if len(self.q) == 1:
            axes, numbers = axes[:-1], numbers[..., 0]
        if self.by and len(layout.names) == 1:
            axes, numbers = axes[1:], numbers[0]
        return label_statistic(numbers, axes)


def _quantile(values: Vector, q: tuple[float, ...]) -> Vector:
    """Return quantiles of sorted values, as numpy does; NaN of nothing."""
    if not len(values):
        return np.full(len(q), np.nan)
    place = np.sort(np.asarray(q)) * (len(values) - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(values) - 1)
    return np.asarray(values[low] + (place - low) * (values[high] - values[low]))
