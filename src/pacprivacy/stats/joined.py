"""Statistics of joined tables: the engine joins once, and every candidate has rows of its units."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy

from pacprivacy._checks import Matrix
from pacprivacy.errors import DataError
from pacprivacy.mechanism import Batch, Data, MechanismWrapper, coerce_data, subset_sums
from pacprivacy.pool import Pool
from pacprivacy.queries import JoinedRows, Tables, TablesWorld, joined_rows_plan
from pacprivacy.stats.sums_and_quantiles import SummedStatistic


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedStatistic(MechanismWrapper):
    """A statistic of the rows that a FROM clause gives on the tables of a candidate.

    ``rows`` are those of all units, and ``units`` the unit of each; None where rows have none of
    their own (two people in one row, say), and the tables of every candidate are joined anew.

    Guarantee
    ---------
    Claim Q-2. Both ways a candidate has the rows that the clause gives on the tables of Q-1.
    """

    table: str
    columns: str = "*"
    rows: Data | None = field(default=None, repr=False, compare=False)
    units: npt.NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    plan: JoinedRows | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return f"{self.inner.name} in {' '.join(self.table.split())}"

    def prepare(self, data: Data) -> Self:
        """Join the tables of all units, and fix the statistic on these rows."""
        tables = data.parts[0]
        if not isinstance(tables, Tables):
            raise DataError(
                f"data must be pac.Tables for a statistic of a table; got {type(tables).__name__}. "
                "Leave table out, or make Tables of your frames."
            )
        if self.rows is not None:
            return self
        plan, units = joined_rows_plan(self.table, tables, self.columns), None
        if plan.of_all is not None and not any(tables.ask(q)[0][0] for q in plan.crossings):
            frame = tables.ask(plan.of_all, fetch="to_arrow_table")
            if not any(frame.column("pac_two").to_pylist()):
                units = frame.column("pac_u").to_numpy().astype(np.int64)
        if units is None:
            frame = tables.take(np.arange(tables.n_units)).ask(plan.query, fetch="to_arrow_table")
        rows = coerce_data(_labelled(frame, plan))
        return replace(self, inner=self.inner.prepare(rows), rows=rows, units=units, plan=plan)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the statistic of one candidate."""
        world: TablesWorld = parts[0]
        if self.rows is None or self.units is None:
            plan = self.plan or joined_rows_plan(self.table, world.tables, self.columns)
            frame = world.ask(plan.query, fetch="to_arrow_table")
            return self.inner.evaluate((_labelled(frame, plan),), rng)
        inside = np.zeros(world.tables.n_units, dtype=np.bool_)
        inside[world.units] = True
        own = np.flatnonzero(inside[self.units])
        return self.inner.evaluate(self.rows.take(own), rng)

    @property
    def batch(self) -> Batch | None:
        """All candidates at once, where the statistic is a function of sums over rows."""
        summed = isinstance(self.inner, SummedStatistic) and self.inner.batch is not None
        return self._batch if summed and self.units is not None else None

    def _batch(self, data: Data, pool: Pool) -> Matrix:
        assert isinstance(self.inner, SummedStatistic)
        assert self.rows is not None  # fixed with the units
        assert self.units is not None
        features = self.inner._features(self.inner.read(self.rows.parts))
        places = (self.units, np.arange(len(self.units)))
        of_unit = scipy.sparse.csr_array(
            (np.ones(len(self.units)), places), shape=(pool.n_units, len(features))
        )
        sums = of_unit @ features
        return self.inner._combine(subset_sums(pool, lambda some: sums[some], sums.shape[1]))


def _labelled(frame: Any, plan: JoinedRows) -> Any:
    """Return the user's columns; those whose name two tables have are ambiguous, and left out."""
    labels = plan.labels
    once = [i for i, label in enumerate(labels) if labels.count(label) == 1]
    return frame.select([f"c{i}" for i in once]).rename_columns([labels[i] for i in once])
