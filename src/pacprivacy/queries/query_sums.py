"""A query as a function of sums over units: each unit's contribution, and the cells.

The engine joins, filters and groups by cell and unit, once; noise goes to the sums, and the numbers
of the query are computed from noisy sums afterwards. So joins, filters and groups may be anything,
as long as every row of the join belongs to one unit; what is made of the sums may be anything that
the engine can compute of numbers. No statement of the engine ever holds a sample: sums of used
units are made in Python, and what the engine computes of them has noise already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import QueryError
from pacprivacy.mechanism import Data, Parts, Value, fixed_mechanism, flatten
from pacprivacy.queries import tree as sql
from pacprivacy.queries.engines import Row
from pacprivacy.queries.query_mechanism import QueryMechanism, refuse_deep_nesting
from pacprivacy.queries.sums_plan import CountedQuantile, SumsPlan, sums_plan
from pacprivacy.queries.tables import Tables
from pacprivacy.statistics import (
    COUNT_STD,
    DERIVATIVE_STEP,
    Sums,
    SumStatistic,
    UnitSums,
    quantile_slopes,
    read_quantiles,
    shaping_counts,
    step_deviations,
)

ROUNDING_CALLS: Final = frozenset({"round", "floor", "ceil", "ceiling", "trunc"})
ROUNDING_TYPES: Final = ("INT", "DECIMAL", "NUMERIC")
FLAT_SHARE: Final = 1e-12  # of a number: a smaller change of it is rounding
LEAST_TYPICAL: Final = 1e-2  # of what one unit changes in the same column of another group
PLAN: Final = "sums per unit and group, once; noise goes to the sums"
INSTEAD: Final = (
    "Write it with count, sum, avg, variance, stddev, covar, corr or regr_slope of rows that "
    "belong to one unit each"
)
# Why a query is no function of sums, by words of the reason, and what would be one.
REWRITINGS: Final = (
    ("min ", "Ask count(*) FILTER (WHERE x < limit) for a few limits"),
    ("max ", "Ask count(*) FILTER (WHERE x > limit) for a few limits"),
    ("quantile", "Use median or quantile_cont, which are read off counts"),
    ("distinct values", "GROUP BY the column with keys=, and see which groups have rows"),
    ("two units", "Join every private table to the unit alone, or ask two queries"),
    (
        "subquery",
        "Join the table in its place, count with FILTER, or write the mean of counts per unit as "
        "count(*) / count(DISTINCT unit)",
    ),
)


class QuerySums(QueryMechanism, SumStatistic):
    """The cells of a query as functions of sums, for a secret of coins.

    Guarantee
    ---------
    Claim Q-5. Assumes that the rows of the join belong to one unit each, which is checked. A unit
    adds to every sum what its own rows add, for any other rows; the cells are functions of the
    sums and of public tables.
    """

    __slots__ = ()

    def coin_obstacle(self) -> str | None:
        """Return why the cells are no function of sums over units; rows are read to know."""
        if self.plan:
            return None
        with refuse_deep_nesting():
            sums, why = self._sums()
        return None if sums is not None else f"the query is no function of sums over units ({why})"

    def check_words(self) -> None:
        """Refuse queries whose words are no function of sums; no row is read."""
        sums = sums_plan(self.query, self.tables, edges=self.edges, rows=False)
        if isinstance(sums, str):
            raise _no_sums(sums)

    def prepare(self, data: Data) -> Self:
        """Find the cells, which are declared or facts of all records; refuse other queries."""
        if self.plan:
            return self
        sums, why = self._sums()
        if sums is None:
            raise _no_sums(why)
        sums = replace(sums, cells=tuple(map(self._without_queries, sums.cells)))
        cells, published = (self.cells, ()) if self.cells is not None else self._supported(sums)
        grids = (
            f"{q.of}, rounded to a sixteenth of a deviation, and whether all are whole numbers: "
            "the bins that it is read from"
            for q in sums.quantiles
            if not q.declared
        )
        facts = (*published, *grids, f"the plan of the query: {PLAN}")
        return replace(self, cells=cells, sums=sums, plan=PLAN, published=facts)

    def _without_queries(self, cell: sql.Node) -> sql.Node:
        """Write the values of public tables in a cell as numbers."""
        values: dict[sql.Node, sql.Node] = {}
        for part in sql.walk(cell, into_queries=False):
            if isinstance(part, sql.Nested):
                values[part] = self._number_of(part)
        return sql.substitute(cell, values)

    def _number_of(self, query: sql.Nested) -> sql.Node:
        if query.kind != "SCALAR":
            raise QueryError(
                "a query beside aggregates must be one number; got IN or EXISTS. Put it in WHERE."
            )
        ((value,),) = self.tables.ask(
            sql.Select(items=(sql.Item(value=sql.Cast(operand=query, type="DOUBLE"), name="c0"),))
        )
        return sql.NULL if value is None else sql.number(float(value))

    @property
    def public(self) -> tuple[str, ...]:
        facts = ["counts and sums are estimates for all units"]
        if self.fill is not None:
            facts.append(f"cells without a value are {self.fill:g}, as declared")
        return tuple(facts)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        raise QueryError("a query with coins is computed from sums. Use a pool for candidates.")

    # --- sums -----------------------------------------------------------------------------------

    def contributions(self, data: Data, units: npt.NDArray[Any] | None = None) -> UnitSums:
        """Return the contribution of every unit to the sums of every cell.

        Units of the tables are numbered by their keys; ``units`` says whose coin each of them has.
        """
        sums, cells = fixed_mechanism(self.sums, self.name), fixed_mechanism(self.cells, self.name)
        places = {cell: i for i, cell in enumerate(cells)}
        of_cell, of_unit, values = _unit_rows(sums, self.tables, places)
        n_units = self.tables.n_units
        if units is not None:
            of_unit, n_units = np.asarray(units)[of_unit], int(units.max()) + 1
        return UnitSums.of_rows(
            values,
            units=of_unit,
            n_units=n_units,
            cells=of_cell,
            n_cells=len(cells),
            centre=np.array(sums.centres),
        )

    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        """Return the numbers of the query, estimated for all units, in the order of their names."""
        return self.arrange(self.cell_values(sums, keep))

    def cell_values(self, sums: Sums, keep: float = 1.0) -> Matrix:
        """Return the columns of every cell.

        A sum below three deviations of its noise is no divisor: the quotient is ``fill``.
        """
        values = sums.values / keep
        least = np.zeros(values.shape)
        if sums.noise_std is not None:
            least = COUNT_STD * sums.noise_std / keep
        plan = fixed_mechanism(self.sums, self.name)
        read = np.array([_read(q, values) for q in plan.quantiles]).reshape(-1, len(values))
        cells = self._compute(values, least, plan.cells, read)
        fill = np.nan if self.fill is None else self.fill
        return np.where(np.isfinite(cells), cells, fill)

    def _compute(
        self, values: Matrix, least: Matrix, cells: tuple[sql.Node, ...], read: Matrix
    ) -> Matrix:
        plan = fixed_mechanism(self.sums, self.name)
        sizes = np.where(plan.counts, values, np.abs(values))
        divisors = np.ma.masked_array(values, mask=sizes <= least)
        columns: dict[str, Any] = {f"s{i}": values[:, i] for i in range(plan.n_sums)}
        columns |= {f"n{i}": divisors[:, i] for i in range(plan.n_sums)}
        for i, (quantile, numbers) in enumerate(zip(plan.quantiles, read, strict=True)):
            empty = np.ma.getmaskarray(divisors)[:, quantile.number]
            columns[f"q{i}"] = np.ma.masked_array(numbers, mask=empty)
        return self.tables.compute(cells, columns)

    def arrange(self, per_cell: Matrix) -> Vector:
        return np.asarray(per_cell.ravel()[self._order], dtype=np.float64)

    @property
    def _order(self) -> npt.NDArray[np.int64]:
        """Positions of the released numbers, sorted by name, in the cells."""
        shape = (len(fixed_mechanism(self.cells, self.name)), len(self.query.columns))
        places = np.arange(shape[0] * shape[1], dtype=np.float64).reshape(shape)
        return flatten(self._shaped(places))[0].astype(np.int64)

    def shaped(self, numbers: Vector, data: Data) -> Any:
        order = self._order
        cells = np.empty(len(order))
        cells[order] = numbers
        return self._shaped(cells.reshape(-1, len(self.query.columns)))

    # --- derivatives ----------------------------------------------------------------------------

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        """Return the derivatives of the columns of a cell by its sums, by central differences.

        Rounding of outputs is left out of it, which noise of its own size would hide.
        """
        plan, at = fixed_mechanism(self.sums, self.name), sums.values
        n_cells, block = at.shape
        sizes = np.abs(at).max(axis=0) if sums.sizes is None else sums.sizes
        sizes = np.where(sizes > 0, sizes, 1.0)
        part = (np.abs(at) / sizes).max(axis=1, keepdims=True)  # of all sums that is in a cell
        steps = DERIVATIVE_STEP * np.where(part > 0, part, 1.0) * sizes
        shifts = np.einsum("cb,bd->bcd", steps, np.eye(block))
        moved = np.concatenate([at + shifts, at - shifts]).reshape(-1, block)
        smooth = tuple(map(_smooth, plan.cells))
        read = [_moved(quantile, at, steps) for quantile in plan.quantiles]
        values = self._compute(
            moved, np.zeros(moved.shape), smooth, np.array(read).reshape(-1, len(moved))
        )
        high, low = values.reshape(2, block, n_cells, -1)
        with np.errstate(invalid="ignore"):
            changed = np.abs(high - low) > FLAT_SHARE * np.maximum(np.abs(high), np.abs(low))
            slopes = np.where(changed, (high - low) / (2 * steps.T[:, :, None]), 0.0)
        slopes = np.where(np.isfinite(slopes), slopes, 0.0)
        return np.ascontiguousarray(slopes.transpose(1, 2, 0))

    def output_slopes(self, contributions: UnitSums) -> npt.NDArray[np.float64]:
        """Return the derivatives at the sums of all units, over the typical influence of one unit.

        So a table of counts, prices and shares has noise that is alike beside what units change in
        each number.
        """
        slopes = self.jacobian(contributions.total())
        squares = np.zeros(slopes.shape[:2])
        for cell, entries in contributions.chunks():
            squares[cell] += np.square(contributions.values[entries] @ slopes[cell].T).sum(axis=0)
        each = np.maximum(contributions.entries_per_cell, 1)[:, None]
        typical = np.sqrt(squares / each)
        # By groups of all sizes: of sums it is alike in all of them, of means it falls with size.
        elsewhere = np.minimum(typical.max(axis=0), (typical * each).max(axis=0) / each)
        typical = np.maximum(typical, LEAST_TYPICAL * elsewhere)
        scaled = slopes / np.where(typical > 0, typical, 1.0)[:, :, None]
        return np.concatenate([scaled, *self._counts_below(contributions)], axis=1)

    def _counts_below(self, contributions: UnitSums) -> Iterator[npt.NDArray[np.float64]]:
        """Yield the derivatives of the two counts of a quantile, relative to one unit.

        A quantile depends on two counts alone; where the others had no say, noise might be
        anything there, and the quantile would be read at the wrong place.
        """
        values = contributions.total().values
        for quantile in fixed_mechanism(self.sums, self.name).quantiles:
            bins, number = list(quantile.bins), values[:, quantile.number]
            slopes = np.zeros((len(values), len(bins) - 1, values.shape[1]))
            slopes[:, :, bins] = shaping_counts(number, values[:, bins], [quantile.share])
            yield slopes * np.maximum(number, 1.0)[:, None, None]

    def own_deviations(self, sums: Sums) -> Vector:
        """Return the deviation from an even spread of rows within a bin of a quantile."""
        plan, at = fixed_mechanism(self.sums, self.name), sums.values
        squares = np.zeros((len(at), len(self.query.columns)))
        read = np.array([_read(q, at) for q in plan.quantiles]).reshape(-1, len(at))
        for i, quantile in enumerate(plan.quantiles):
            counts, middle = at[:, list(quantile.bins)], read[i][:, None]
            step = step_deviations(quantile.grid, counts, middle, whole=quantile.whole)[:, 0]
            ends = []
            for sign in (-1.0, 1.0):
                shifted = read.copy()
                shifted[i] += sign * step
                ends.append(self._compute(at, np.zeros(at.shape), plan.cells, shifted))
            squares += np.nan_to_num(np.square(ends[1] - ends[0])) / 4
        return self.arrange(np.sqrt(squares))


def _places(places: Mapping[Row, int]) -> dict[str, Any]:
    cells = {f"k{i}": list(values) for i, values in enumerate(zip(*places, strict=True))}
    numbers = np.fromiter(places.values(), dtype=np.int32, count=len(places))
    return {**cells, "cell": numbers}


def _placed(sums: SumsPlan, kept: str, places: Mapping[Row, int]) -> str:
    keys = [f"k{i}" for i in range(len(next(iter(places))))]
    same = " AND ".join(f"q.{key} IS NOT DISTINCT FROM p.{key}" for key in keys) or "true"
    shown = ", ".join(f"q.s{i}::DOUBLE AS s{i}" for i in range(sums.n_sums))
    return f"SELECT p.cell, q.u, {shown} FROM {kept} q JOIN pac_places p ON {same}"


def _unit_rows(
    sums: SumsPlan, tables: Tables, places: Mapping[Row, int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Matrix]:
    """Return cell, unit and sums of every unit in every cell; curator-only."""
    with tables.lend("pac_places", _places(places)):
        text = _placed(sums, "{}", places)
        rows = tables.ask_kept(sums.query, text, arrays=True)
    numbers = [np.asarray(rows[f"s{i}"], dtype=np.float64) for i in range(sums.n_sums)]
    cells, units = (np.asarray(rows[name]).astype(np.int64) for name in ("cell", "u"))
    return cells, units, np.stack(numbers, axis=1)


def _no_sums(why: str) -> QueryError:
    return QueryError(
        "a query must be a function of sums over units where every unit has a coin; "
        f"got one that is none: {why}. {rewriting(why)}; or use a pool: sample=pac.Balanced()."
    )


def _read(quantile: CountedQuantile, values: Matrix) -> Vector:
    counts = values[:, list(quantile.bins)]
    numbers = read_quantiles(quantile.grid, counts, [quantile.share])[:, 0]
    return np.rint(numbers) if quantile.whole else numbers


def _moved(quantile: CountedQuantile, at: Matrix, steps: Matrix) -> Vector:
    """Return a quantile where one sum after the other is a step larger, and then smaller."""
    slopes, bins = np.zeros(at.shape), list(quantile.bins)
    for cell, counts in enumerate(at[:, bins]):
        slopes[cell, bins] = quantile_slopes(np.array(quantile.grid), counts, [quantile.share])[0]
    read = read_quantiles(quantile.grid, at[:, bins], [quantile.share])[:, 0]
    change = (slopes * steps).T
    return np.concatenate([read + change, read - change]).ravel()


def rewriting(why: str) -> str:
    return next((text for word, text in REWRITINGS if word in f"{why} "), INSTEAD)


def _smooth(node: sql.Node) -> sql.Node:
    if isinstance(node, sql.Call) and node.name in ROUNDING_CALLS:
        return _smooth(node.arguments[0])
    if isinstance(node, sql.Cast) and any(word in node.type for word in ROUNDING_TYPES):
        return _smooth(node.operand)
    parts = [_smooth(part) for part in sql.children(node)]
    if isinstance(node, sql.Operation) and node.symbol == "//":
        return sql.Operation(symbol="/", operands=tuple(parts))
    return sql.with_children(node, parts)
