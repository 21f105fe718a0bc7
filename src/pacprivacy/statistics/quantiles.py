"""Quantiles of named columns, in all or by the levels of categories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, as_told
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Batch, Data
from pacprivacy.sample import Pool
from pacprivacy.statistics.table import Statistic, StatisticRows


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuantiles(Statistic):
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
    def _per_cell(self) -> tuple[str, ...]:
        return tuple(f"{q:g}" for q in sorted(self.q))

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

    def _sorted(self, rows: StatisticRows) -> Iterator[tuple[npt.NDArray[np.int64], Vector]]:
        """Yield the rows of every column and cell in the order of their values, and these."""
        for column in rows.X.T:
            usable = (rows.weights > 0) & ~np.isnan(column)
            for cell in range(self._n_cells):
                own = np.flatnonzero(usable & (rows.cells == cell))
                own = own[np.argsort(column[own], kind="stable")]
                yield own, column[own]

    def _check(self, values: Matrix) -> Matrix:
        empty = np.isnan(values[:, :: len(self.q)])  # one number for each cell
        self._nobody(empty, np.zeros(empty.shape))
        return np.where(np.isnan(values), self.fill or 0.0, values)

    def finish(self, value: Any) -> Any:
        """Put names on released numbers, in order where noise has put them out of it."""
        numbers = np.asarray(value, dtype=np.float64).reshape(-1, len(self.q))
        return super(TableQuantiles, self).finish(np.sort(numbers, axis=-1))


def _quantile(values: Vector, q: tuple[float, ...]) -> Vector:
    """Return quantiles of sorted values, as numpy does; NaN of nothing."""
    if not len(values):
        return np.full(len(q), np.nan)
    place = np.sort(np.asarray(q)) * (len(values) - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(values) - 1)
    return np.asarray(values[low] + (place - low) * (values[high] - values[low]))
