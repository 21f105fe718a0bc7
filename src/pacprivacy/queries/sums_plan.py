"""A query as sums over units: each unit's contribution, and how cells are made of the sums.

Where all numbers of a core are functions of sums over rows that belong to one unit each,
:func:`sums_plan` says which sums, or else why not. Joined rows and their units come from the same
rules.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from pacprivacy.queries import tree as sql
from pacprivacy.queries.engines import SHARE, UNIT, WHOLE, Row
from pacprivacy.queries.grammar import fragment, read_sql
from pacprivacy.queries.names import (
    column_origin,
    is_aggregate,
    outer_columns,
    reads_tables,
    row_sources,
)
from pacprivacy.queries.query import COUNTS, CellQuery, key_items
from pacprivacy.queries.tables import Tables
from pacprivacy.queries.tree import call, number, operation, walk
from pacprivacy.statistics import quantile_grid, round_centre

Edges = Mapping[str, Sequence[float]]  # of bins, for the quantiles of an output
NARROW: Final = 1e-5  # spreads below this share of the mean have few digits, whoever computes them
ROUNDED: Final = "its spread, which is small beside its mean, would be rounded in another way"
IN_SUBQUERY: Final = "it reads private tables in a subquery"
DIVISIONS: Final = frozenset({"/", "//", "%"})


class NoSumError(Exception):
    """A query is no function of sums over units; the words say why."""


# --- sums per unit -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedQuantile:
    """A quantile that is read off counts by bins: which sums they are, and all rows."""

    of: str
    share: float
    grid: tuple[float, ...]
    whole: bool
    declared: bool
    number: int
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsPlan:
    """A core as sums over units.

    ``query`` gives group keys ``k0...``, unit ``u``, sums ``s0...`` over the unit's rows, and
    ``pac_two``: whether some row belongs to two units. ``cells`` are the columns of the core as
    expressions of the sums over a sample, and of ``pac_share``; sums that something is divided by
    are called ``n0...`` there, and quantiles that are read off sums ``q0...``. ``crossings`` ask
    whether a left join meets rows of another unit: without that unit it would keep a row that is
    not there otherwise. ``centres`` were subtracted from columns, to a sixteenth of their
    deviations.
    """

    query: sql.Select
    n_sums: int
    cells: tuple[sql.Node, ...]
    crossings: tuple[sql.Select, ...]
    centres: tuple[float, ...] = ()
    quantiles: tuple[CountedQuantile, ...] = ()

    @property
    def counts(self) -> tuple[bool, ...]:
        values = [item.value for item in self.query.items if re.fullmatch(r"s\d+", item.name)]
        return tuple(isinstance(value, sql.Call) and value.name in COUNTS for value in values)


def sums_plan(
    query: CellQuery, tables: Tables, *, edges: Edges | None = None, rows: bool = True
) -> SumsPlan | str:
    """Write a query's core as sums over units; or return why it cannot be.

    ``edges`` of bins that quantiles of an output are read from are declared. Without ``rows`` none
    is read: centres and bins are those of no table.
    """
    core = query.core(sql.Share())
    n_keys = query.n_keys
    try:
        unit, two, crossings = _unit_of_rows(core, tables)
        sums = _Sums(core, tables, query.text, rows=rows)
        columns = zip(query.columns, core.items[n_keys:], strict=True)
        cells = tuple(sums.output(item.value, (edges or {}).get(c.name)) for c, item in columns)
    except NoSumError as error:
        return str(error)
    keys = core.groups
    shown = [sql.Item(value=value, name=f"s{i}") for i, value in enumerate(sums.values)]
    shown.append(sql.Item(value=two if two == sql.FALSE else call("bool_or", two), name="pac_two"))
    per_unit = sql.Select(
        items=(*key_items(keys, sets=core.sets), sql.Item(value=unit, name="u"), *shown),
        source=_over_all(core.source, tables),
        where=core.where,
        groups=(unit, *keys),  # in the order in which the sets name them
        sets=tuple((0, *(i + 1 for i in chosen)) for chosen in core.sets),
    )
    return SumsPlan(
        query=per_unit,
        n_sums=len(sums.values),
        cells=cells,
        crossings=crossings,
        centres=tuple(sums.subtracted),
        quantiles=tuple(sums.quantiles),
    )


def units_behind(query: CellQuery, tables: Tables) -> sql.Select | None:
    """Return the keys of every group with its units, ``u0...``; None where some have no unit.

    Every source of rows has units of its own, since a key may be that of any: those of a private
    table, or the unit's key that a subquery hands on.
    """
    core = query.core(sql.Share())
    if any(reads_tables(key, tables.private) for key in core.groups):
        return None
    private = [s for s in row_sources(core.source) if reads_tables(s, tables.private)]
    units = [_unit_of_source(source, core, tables) for source in private]
    known = [unit for unit in units if unit is not None]
    if not known or len(known) < len(units):
        return None
    # A row that an outer join leaves without a match is of the units of the others.
    columns = [operation("COALESCE", unit, *known) if len(known) > 1 else unit for unit in known]
    return sql.Select(
        items=(
            *key_items(core.groups, sets=core.sets),
            *(sql.Item(value=unit, name=f"u{i}") for i, unit in enumerate(columns)),
        ),
        source=_over_all(core.source, tables),
        where=core.where,
        groups=(*columns, *core.groups),
        sets=tuple(
            (*range(len(columns)), *(i + len(columns) for i in chosen)) for chosen in core.sets
        ),
    )


def _unit_of_source(source: sql.Source, query: sql.Select, tables: Tables) -> sql.Node | None:
    """Return the unit that all columns of a source are of; None where none can be traced."""
    if isinstance(source, sql.Table):
        return sql.Column(name=UNIT, source=source.alias)
    inner = source.query if isinstance(source, sql.Derived) else None
    if not (isinstance(source, sql.Derived) and isinstance(inner, sql.Select)):
        return None
    parts = (part for item in inner.items for part in walk(item.value))
    private = [s for s in row_sources(inner.source) if reads_tables(s, tables.private)]
    if len(private) != 1 or any(isinstance(part, sql.Window | sql.Nested) for part in parts):
        return None  # values of another unit may stand beside the key
    if _unit_of_source(private[0], inner, tables) is None:
        return None
    columns = (sql.Column(name=item.name, source=source.alias) for item in inner.items)
    origins = ((column, column_origin(column, query)) for column in columns)
    return next((column for column, at in origins if at is not None and tables.is_key(*at)), None)


def _over_all(source: sql.Source | None, tables: Tables) -> sql.Source | None:
    """Return a FROM clause over the private tables of all units, which carry the unit."""
    private = (p for p in walk(source) if isinstance(p, sql.Table) and p.path[-1] in tables.private)
    whole = {part: replace(part, path=(WHOLE, part.path[-1])) for part in private}
    new = None if source is None else sql.substitute(source, whole)
    assert new is None or isinstance(new, sql.Source)
    return new


def _unit_of_rows(
    select: sql.Select, tables: Tables
) -> tuple[sql.Node, sql.Node, tuple[sql.Select, ...]]:
    """Return the unit of a joined row, when it has two, and crossings."""
    certain: list[sql.Node] = []
    optional: list[tuple[sql.Node, sql.Join]] = []

    def leaf(source: sql.Source) -> sql.Node | None:
        if isinstance(source, sql.Table) and source.path[-1] in tables.private:
            return sql.Column(name=UNIT, source=source.alias)
        if reads_tables(source, tables.private):
            raise NoSumError(IN_SUBQUERY)
        return None

    def visit(source: sql.Source, *, inside: bool = False) -> None:
        if not isinstance(source, sql.Join):
            unit = leaf(source)
            certain.extend([] if unit is None else [unit])
            return
        if source.kind not in ("INNER", "CROSS", "LEFT") or (inside and source.kind == "LEFT"):
            raise NoSumError(f"it has a join of the kind {source.kind}")
        visit(source.left, inside=inside)
        if source.kind != "LEFT":
            visit(source.right, inside=True)
            return
        if not certain:
            raise NoSumError("it keeps rows of a public table that match none of a private one")
        if isinstance(source.right, sql.Join):
            raise NoSumError("it has joins in brackets")
        unit = leaf(source.right)
        if unit is not None:
            optional.append((unit, source))

    if select.source is not None:
        visit(select.source)
    if not certain:
        raise NoSumError("no private table stands first")
    values = (part for part in walk(select) if isinstance(part, sql.Nested))
    if any(reads_tables(part.query, tables.private) for part in values):
        raise NoSumError(IN_SUBQUERY)
    first = certain[0]
    others = [operation("<>", unit, first) for unit in certain[1:]]
    two = sql.FALSE if not others else operation("OR", *others) if len(others) > 1 else others[0]
    crossings = tuple(
        sql.Select(
            items=(sql.Item(value=call("bool_or", operation("<>", unit, first)), name="c0"),),
            source=_over_all(join, tables),
        )
        for unit, join in optional
    )
    return first, two, crossings


class _Sums:
    """The sums over the rows of a unit that the cells of a core are made of."""

    def __init__(self, core: sql.Select, tables: Tables, text: str, *, rows: bool) -> None:
        self.core, self.tables, self.text, self.rows = core, tables, text, rows
        self.values: list[sql.Node] = []
        self.subtracted: list[float] = []
        self.quantiles: list[CountedQuantile] = []
        self.edges: Sequence[float] | None = None

    def output(self, value: sql.Node, edges: Sequence[float] | None) -> sql.Node:
        """Write an output of the core, whose quantiles may have declared edges."""
        self.edges = edges
        return self.of(value)

    def place(self, value: sql.Node) -> int:
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)

    def sum(self, value: sql.Node) -> sql.Node:
        return sql.Column(name=f"s{self.place(value)}")

    def total(self, value: sql.Node, where: sql.Node | None) -> sql.Node:
        return self.sum(operation("COALESCE", call("sum", value, where=where), number(0)))

    def of(self, node: sql.Node) -> sql.Node:
        if isinstance(node, sql.Share):
            return sql.Column(name=SHARE)
        if isinstance(node, sql.Column) or (
            isinstance(node, sql.Operation) and node.symbol == "GROUPING"
        ):
            raise NoSumError("a number is made of aggregates and of group keys")
        if isinstance(node, sql.Nested):
            if outer_columns(node.query):
                raise NoSumError("a number is made of aggregates and of a query of its own")
            return node  # of public tables: the same for all units
        if isinstance(node, sql.Call) and is_aggregate(node):
            return self.aggregate(node)
        parts = [self.of(part) for part in sql.children(node)]
        if isinstance(node, sql.Operation) and node.symbol in DIVISIONS and len(parts) == 2:
            parts[1] = self.divisor(parts[1])
        return sql.with_children(node, parts)

    def divisor(self, node: sql.Node) -> sql.Node:
        """Name the sum in a divisor, if it is one, so that it can be missing where it is noise."""
        sums = {part for part in walk(node) if isinstance(part, sql.Column) and part.name[0] == "s"}
        if len(sums) != 1:
            return node
        (column,) = sums
        divisor = sql.Column(name=f"n{column.name[1:]}")
        # A sum is never NULL, and what is missing must not become zero again.
        whole = operation("COALESCE", column, number(0))
        return sql.substitute(sql.substitute(node, {whole: divisor}), {column: divisor})

    def aggregate(self, node: sql.Call) -> sql.Node:
        where, arguments = node.where, node.arguments
        if node.name == "count_star":
            return self.sum(node)
        if node.name == "count" and node.distinct:
            origin = column_origin(arguments[0], self.core)
            if len(arguments) == 1 and origin is not None and self.tables.is_key(*origin):
                any_value = operation(">", call("count", arguments[0], where=where), number(0))
                return self.sum(sql.Cast(operand=any_value, type="INTEGER"))
            raise NoSumError("it counts distinct values")
        if node.distinct:
            raise NoSumError(f"{node.name}(DISTINCT ...) is no sum over units")
        if node.name == "count":
            return self.sum(node)
        if node.name == "count_if":
            return self.total(sql.Cast(operand=arguments[0], type="INTEGER"), where)
        if node.name == "sum":
            return self.total(arguments[0], where)
        if node.name == "avg":
            count = self.divisor(self.sum(call("count", arguments[0], where=where)))
            return operation("/", self.total(arguments[0], where), call("nullif", count, number(0)))
        if node.name in QUANTILES:
            return self.quantile(node)
        if node.name not in MOMENTS:
            raise NoSumError(f"{node.name} is no function of sums over units")
        return self.moments(node)

    def quantile(self, node: sql.Call) -> sql.Node:
        value, where = sql.Cast(operand=node.arguments[0], type="DOUBLE"), node.where
        share = 0.5 if node.name == "median" else _share(node.arguments[1:])
        if self.edges is None:
            grid, whole = self.grid(value, where, share)
        else:
            grid, whole = tuple(map(float, self.edges)), False
        n_rows = self.place(call("count", value, where=where))
        bins = []
        for low, high in itertools.pairwise((None, *grid[1:-1], None)):
            inside = sql.both(
                None if low is None else operation(">=", value, number(low)),
                None if high is None else operation("<", value, number(high)),
            )
            one = sql.Cast(operand=inside or sql.TRUE, type="INTEGER")
            bins.append(self.place(operation("COALESCE", call("sum", one, where=where), number(0))))
        quantile = CountedQuantile(
            of=" ".join(fragment(self.text, node.at).split()) or node.name,
            share=share,
            grid=grid,
            whole=whole,
            declared=self.edges is not None,
            number=n_rows,
            bins=tuple(bins),
        )
        if quantile not in self.quantiles:
            self.quantiles.append(quantile)
        return sql.Column(name=f"q{self.quantiles.index(quantile)}")

    def grid(
        self, value: sql.Node, where: sql.Node | None, share: float
    ) -> tuple[tuple[float, ...], bool]:
        """Return bins that are finest about a quantile of all rows, and whether rows are whole."""
        shares = [call("quantile_cont", value, number(q), where=where) for q in (share, 0.1, 0.9)]
        whole = call("bool_and", operation("=", value, call("floor", value)), where=where)
        (row,) = self.facts([*shares, call("stddev_pop", value, where=where), whole])
        if row[0] is None:
            raise NoSumError("a quantile has no rows")
        at, low, high, deviation = (float(v) for v in row[:4])
        spread = (high - low) / 2.5 or deviation or max(abs(at), 1.0)
        if not math.isfinite(at + spread):
            raise NoSumError("a quantile of infinite numbers")
        return quantile_grid(np.array([at]), spread, whole=bool(row[4])), bool(row[4])

    def facts(self, aggregates: Sequence[sql.Node]) -> list[Row]:
        """Return aggregates over all rows; ones where no row may be read."""
        if not self.rows:
            return [(1.0,) * len(aggregates)]
        query = sql.Select(
            items=tuple(sql.Item(value=v, name=f"c{i}") for i, v in enumerate(aggregates)),
            source=_over_all(self.core.source, self.tables),
            where=self.core.where,
        )
        rows: list[Row] = self.tables.ask(query)
        return rows

    def moments(self, node: sql.Call) -> sql.Node:
        # About the mean of all rows: squares of large numbers would lose the digits that matter.
        where, arguments = node.where, node.arguments
        centres = self.centres(arguments)
        values: list[sql.Node] = [
            operation("-", sql.Cast(operand=a, type="DOUBLE"), centre)
            for a, centre in zip(arguments, centres, strict=True)
        ]
        if len(arguments) == 1:
            square = operation("*", values[0], values[0])
            parts = {"n": self.divisor(self.sum(call("count", arguments[0], where=where)))}
            parts |= {"x": self.total(values[0], where), "xx": self.total(square, where)}
        else:
            there = operation("AND", *(operation("IS NOT NULL", a) for a in arguments))
            y, x = (sql.Case(branches=((there, value),), otherwise=sql.NULL) for value in values)
            one = sql.Case(branches=((there, number(1)),), otherwise=sql.NULL)
            parts = {"n": self.divisor(self.sum(call("count", one, where=where)))}
            products = {"xy": (x, y), "xx": (x, x), "yy": (y, y)}
            parts |= {"x": self.total(x, where), "y": self.total(y, where)}
            for name, pair in products.items():
                parts[name] = self.total(operation("*", *pair), where)

        named = {sql.Column(name=name): part for name, part in parts.items()}
        return sql.substitute(_template(MOMENTS[node.name]), named)

    def centres(self, arguments: Sequence[sql.Node]) -> list[sql.Node]:
        doubles = [sql.Cast(operand=argument, type="DOUBLE") for argument in arguments]
        aggregates = [call(name, x) for name in ("avg", "stddev_pop") for x in doubles]
        (row,) = self.facts(aggregates)
        means, spreads = np.array([float(v or 0.0) for v in row]).reshape(2, len(doubles))
        if (spreads < NARROW * np.abs(means)).any():
            raise NoSumError(ROUNDED)
        centres = round_centre(means, spreads).tolist()
        self.subtracted += centres
        return [number(centre) for centre in centres]


# A difference at the level of rounding is zero: its root would not be small.
_XX: Final = "(CASE WHEN xx - x*x/n > 1e-13*xx THEN xx - x*x/n ELSE 0 END)"
_YY: Final = "(CASE WHEN yy - y*y/n > 1e-13*yy THEN yy - y*y/n ELSE 0 END)"
_XY: Final = "(xy - x*y/n)"
_NAN: Final = "CAST('nan' AS DOUBLE)"  # without a spread, which DuckDB takes for above all numbers
_VARIANCE: Final = f"CASE WHEN n > 1 THEN {_XX}/(n - 1) END"
_DEVIATION: Final = f"CASE WHEN n > 1 THEN sqrt({_XX}/(n - 1)) END"
MOMENTS: Final = {
    "variance": _VARIANCE,
    "var_samp": _VARIANCE,
    "var_pop": f"CASE WHEN n > 0 THEN {_XX}/n END",
    "stddev": _DEVIATION,
    "stddev_samp": _DEVIATION,
    "stddev_pop": f"CASE WHEN n > 0 THEN sqrt({_XX}/n) END",
    "covar_pop": f"CASE WHEN n > 0 THEN {_XY}/n END",
    "covar_samp": f"CASE WHEN n > 1 THEN {_XY}/(n - 1) END",
    "corr": f"CASE WHEN n > 0 THEN coalesce({_XY}/nullif(sqrt({_XX})*sqrt({_YY}), 0), {_NAN}) END",
    "regr_slope": f"CASE WHEN n > 0 THEN coalesce({_XY}/nullif({_XX}, 0), {_NAN}) END",
}


QUANTILES: Final = frozenset({"median", "quantile_cont"})


def _share(arguments: Sequence[sql.Node]) -> float:
    for part in arguments:
        plain = isinstance(part, sql.Constant) and part.kind in ("NUMERIC", "INTEGER")
        if plain and isinstance(part, sql.Constant) and 0 < float(part.text) < 1:
            return float(part.text)
    raise NoSumError("a quantile is of a probability between 0 and 1")


@cache
def _template(text: str) -> sql.Node:
    query = read_sql(f"SELECT {text}")
    assert isinstance(query, sql.Select)
    return query.items[0].value
