"""Quantiles of named columns, in all or by the levels of categories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, as_told
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    Batch,
    Data,
    Mechanism,
    fixed_mechanism,
    read_data_numbers,
)
from pacprivacy.sample import Pool
from pacprivacy.statistics.averaged import (
    AveragedStatistic,
    CoinUnits,
    OrderStatistics,
    RankedSet,
    SampleValue,
    interpolated_quantiles,
)
from pacprivacy.statistics.table import Statistic, StatisticRows
from pacprivacy.statistics.unit_quantiles import UnitQuantiles


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
        """Name shown in the certificate."""
        plain = super(TableQuantiles, self).name
        return plain.replace("quantiles", "median", 1) if self.q == (0.5,) else plain

    @property
    def _sorted_q(self) -> tuple[float, ...]:
        return tuple(sorted(self.q))

    @property
    def _per_cell(self) -> tuple[str, ...]:
        return tuple(f"{q:g}" for q in self._sorted_q)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the quantiles of one candidate."""
        found = [
            interpolated_quantiles(values, self._sorted_q)
            for _, values in self._sorted(self.read(parts))
        ]
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
            values[k] = np.concatenate(
                [interpolated_quantiles(v[mask[rows]], self._sorted_q) for rows, v in cells]
            )
        return self._check(values)

    def _sorted(self, rows: StatisticRows) -> Iterator[tuple[npt.NDArray[np.int64], Vector]]:
        """Yield the rows of every column and cell in the order of their values, and these."""
        for column in rows.X.T:
            usable = (rows.weights > 0) & ~np.isnan(column)
            for cell in range(self.n_cells):
                own = np.flatnonzero(usable & (rows.cells == cell))
                own = own[np.argsort(column[own], kind="stable")]
                yield own, column[own]

    def _check(self, values: Matrix) -> Matrix:
        empty = np.isnan(values[:, :: len(self.q)])  # one number for each cell
        self._nobody(empty, np.zeros(empty.shape))
        return np.where(np.isnan(values), self.fill or 0.0, values)

    def on_samples(
        self, data: Data, units: npt.NDArray[Any] | None, coins: CoinUnits
    ) -> SampleValue:
        """Return the quantiles of every column and group."""
        if self.missing == "mean":
            raise MechanismError(
                "missing must be 'drop', 'category' or 'error' where every unit has a coin; got "
                "'mean'. Use a pool (pac.Balanced), or drop gaps."
            )
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
        """Return the quantiles of one candidate, interpolated."""
        q = self.probabilities[0] if self.scalar else self.probabilities
        return np.quantile(read_data_numbers(parts, self.name), q, axis=0)

    def on_samples(
        self, data: Data, units: npt.NDArray[Any] | None, coins: CoinUnits
    ) -> SampleValue:
        """Return the quantiles of every column."""
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
        """Return the numbers as NumPy does: one line a quantile, unless there is one."""
        row_shape = read_data_numbers(data.parts, self.name).shape[1:]
        by_quantile = numbers.reshape(-1, len(self.probabilities)).T
        if self.scalar:
            return by_quantile[0].reshape(row_shape) if row_shape else float(numbers[0])
        return by_quantile.reshape(len(self.probabilities), *row_shape)
