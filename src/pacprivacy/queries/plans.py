"""Two ways to ask a query of all candidates at once: sums over the units, and a column of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from pacprivacy.errors import QueryError
from pacprivacy.queries.engines import BLOCK, MEMBERS, SHARE, UNIT, WHOLE
from pacprivacy.queries.grammar import read_sql
from pacprivacy.queries.names import (
    MAX_NODES,
    column_origin,
    has_aggregate,
    is_aggregate,
    outer_columns,
    reads_tables,
    resolve_query,
)
from pacprivacy.queries.query import CellQuery, key_items
from pacprivacy.queries.tables import Tables, cut_tables
from pacprivacy.queries.tree import (
    FALSE,
    NULL,
    Call,
    Case,
    Cast,
    Column,
    Derived,
    Item,
    Join,
    Nested,
    Node,
    Operation,
    Recursive,
    Select,
    SetOperation,
    Share,
    Source,
    Table,
    Window,
    both,
    call,
    number,
    operation,
    rebuild,
    transform,
    walk,
)

NARROW: Final = 1e-5  # spreads below this share of the mean have few digits, whoever computes them
ROUNDED: Final = "its spread, which is small beside its mean, would be rounded in another way"
IN_SUBQUERY: Final = "it reads private tables in a subquery"


class NoSumError(Exception):
    """A query is no function of sums over units; the words say why."""


# --- sums per unit -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsPlan:
    """A core as sums over units.

    ``query`` gives group keys ``k0...``, unit ``u``, sums ``s0...`` over the unit's rows, and
    ``pac_two``: whether some row belongs to two units. ``cells`` are the columns of the core as
    expressions of the sums over a candidate, and of ``pac_share``. ``crossings`` ask whether a left
    join meets rows of another unit: without that unit it would keep a row that is not there
    otherwise.
    """

    query: Select
    n_sums: int
    cells: tuple[Node, ...]
    crossings: tuple[Select, ...]


def sums_plan(query: CellQuery, tables: Tables) -> SumsPlan | str:
    """Write a query's core as sums over units; or return why it cannot be."""
    core = _inlined(query.core(Share()))
    n_keys = query.n_keys
    try:
        unit, two, crossings = _unit_of_rows(core, tables)
        sums = _Sums(core, tables)
        cells = tuple(sums.of(item.value) for item in core.items[n_keys:])
    except NoSumError as error:
        return str(error)
    keys = core.groups
    shown = [Item(value=value, name=f"s{i}") for i, value in enumerate(sums.values)]
    shown.append(Item(value=call("bool_or", two), name="pac_two"))
    per_unit = Select(
        items=(*key_items(keys, sets=core.sets), Item(value=unit, name="u"), *shown),
        source=_over_all(core.source, tables),
        where=core.where,
        groups=(unit, *keys),  # in the order in which the sets name them
        sets=tuple((0, *(i + 1 for i in chosen)) for chosen in core.sets),
    )
    return SumsPlan(query=per_unit, n_sums=len(sums.values), cells=cells, crossings=crossings)


def _inlined(select: Select) -> Select:
    """Write subqueries that only pick rows and columns into the query around them."""
    if max(_sizes(select.source).values(), default=0) > MAX_NODES:
        return select
    values: dict[tuple[str, str], Node] = {}
    wheres: list[Node | None] = []

    def merged(source: Source) -> Source:
        if isinstance(source, Join) and source.kind in ("INNER", "CROSS", "LEFT"):
            left = merged(source.left)
            right = source.right if source.kind == "LEFT" else merged(source.right)
            return replace(source, left=left, right=right)
        if isinstance(source, Derived) and _only_picks(source.query):
            inner = source.query
            assert isinstance(inner, Select) and inner.source is not None  # noqa: PT018
            values.update({(source.alias, item.name): item.value for item in inner.items})
            wheres.append(inner.where)
            return merged(inner.source)
        return source

    def written_out(part: Node) -> Node | None:
        if isinstance(part, Column) and (part.source, part.name) in values:
            return transform(values[part.source, part.name], written_out)
        return None

    new = replace(select, source=None if select.source is None else merged(select.source))
    new = replace(new, where=both(*wheres, select.where))
    whole = transform(new, written_out)
    assert isinstance(whole, Select)
    return whole


def _sizes(source: Node | None) -> dict[tuple[str, str], int]:
    """Return how many parts the columns of subqueries would have, written out."""
    if isinstance(source, Join):
        return _sizes(source.left) | _sizes(source.right)
    if not (isinstance(source, Derived) and isinstance(source.query, Select)):
        return {}
    inner = _sizes(source.query.source)
    return {
        (source.alias, item.name): sum(
            inner.get((part.source, part.name), 1) if isinstance(part, Column) else 1
            for part in walk(item.value)
        )
        for item in source.query.items
    }


def _only_picks(query: Node) -> bool:
    """Whether a query only picks rows and computes columns of them."""
    if not isinstance(query, Select) or query.source is None:
        return False
    parts = (query.groups, query.sets, query.distinct, query.distinct_on, query.order, query.ctes)
    if any(parts) or (query.having, query.qualify, query.limit, query.offset) != (None,) * 4:
        return False
    plain = [item.value for item in query.items]
    windows = any(isinstance(part, Window) for value in plain for part in walk(value))
    return not windows and not any(map(has_aggregate, plain))


def _over_all(source: Source | None, tables: Tables) -> Source | None:
    """Return a FROM clause over the private tables of all units, which carry the unit."""

    def whole(part: Node) -> Node | None:
        if isinstance(part, Table) and part.path[-1] in tables.private:
            return replace(part, path=(WHOLE, part.path[-1]))
        return None

    new = None if source is None else transform(source, whole)
    assert new is None or isinstance(new, Source)
    return new


def _unit_of_rows(select: Select, tables: Tables) -> tuple[Node, Node, tuple[Select, ...]]:
    """Return the unit of a joined row, when it has two, and crossings."""
    certain: list[Node] = []
    optional: list[tuple[Node, Join]] = []

    def leaf(source: Source) -> Node | None:
        """Return the unit of a private table; None for what is public."""
        if isinstance(source, Table) and source.path[-1] in tables.private:
            return Column(name=UNIT, source=source.alias)
        if reads_tables(source, tables.private):
            raise NoSumError(IN_SUBQUERY)
        return None

    def visit(source: Source, *, inside: bool = False) -> None:
        if not isinstance(source, Join):
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
        if isinstance(source.right, Join):
            raise NoSumError("it has joins in brackets")
        unit = leaf(source.right)
        if unit is not None:
            optional.append((unit, source))

    if select.source is not None:
        visit(select.source)
    if not certain:
        raise NoSumError("no private table stands first")
    values = (part for part in walk(select) if isinstance(part, Nested))
    if any(reads_tables(part.query, tables.private) for part in values):
        raise NoSumError(IN_SUBQUERY)
    first = certain[0]
    others = [operation("<>", unit, first) for unit in certain[1:]]
    two = FALSE if not others else operation("OR", *others) if len(others) > 1 else others[0]
    crossings = tuple(
        Select(
            items=(Item(value=call("bool_or", operation("<>", unit, first)), name="c0"),),
            source=_over_all(join, tables),
        )
        for unit, join in optional
    )
    return first, two, crossings


class _Sums:
    """The sums over the rows of a unit that the cells of a core are made of."""

    def __init__(self, core: Select, tables: Tables) -> None:
        self.core, self.tables = core, tables
        self.values: list[Node] = []

    def sum(self, value: Node) -> Node:
        if value not in self.values:
            self.values.append(value)
        return Column(name=f"s{self.values.index(value)}")

    def total(self, value: Node, where: Node | None) -> Node:
        return self.sum(operation("COALESCE", call("sum", value, where=where), number(0)))

    def of(self, node: Node) -> Node:
        """Write an expression of aggregates as one of sums over units."""
        if isinstance(node, Share):
            return Column(name=SHARE)
        if isinstance(node, Column) or (isinstance(node, Operation) and node.symbol == "GROUPING"):
            raise NoSumError("a number is made of aggregates and of group keys")
        if isinstance(node, Nested):
            if self.tables.spark is not None or outer_columns(node.query):
                raise NoSumError("a number is made of aggregates and of a query of its own")
            return node  # of public tables: the same for all units
        if isinstance(node, Call) and is_aggregate(node):
            return self.aggregate(node)
        return rebuild(node, self.of)

    def aggregate(self, node: Call) -> Node:
        where, arguments = node.where, node.arguments
        if node.name == "count_star":
            return self.sum(node)
        if node.name == "count" and node.distinct:
            origin = column_origin(arguments[0], self.core)
            if len(arguments) == 1 and origin is not None and self.tables.is_key(*origin):
                any_value = operation(">", call("count", arguments[0], where=where), number(0))
                return self.sum(Cast(operand=any_value, type="INTEGER"))
            raise NoSumError("it counts distinct values")
        if node.distinct:
            raise NoSumError(f"{node.name}(DISTINCT ...) is no sum over units")
        if node.name == "count":
            return self.sum(node)
        if node.name == "count_if":
            return self.total(Cast(operand=arguments[0], type="INTEGER"), where)
        if node.name == "sum":
            return self.total(arguments[0], where)
        if node.name == "avg":
            count = self.sum(call("count", arguments[0], where=where))
            return operation("/", self.total(arguments[0], where), call("nullif", count, number(0)))
        if node.name not in MOMENTS:
            raise NoSumError(f"{node.name} is no function of sums over units")
        return self.moments(node)

    def moments(self, node: Call) -> Node:
        # About the mean of all rows: squares of large numbers would lose the digits that matter.
        where, arguments = node.where, node.arguments
        centres = self.centres(arguments)
        values: list[Node] = [
            operation("-", Cast(operand=a, type="DOUBLE"), centre)
            for a, centre in zip(arguments, centres, strict=True)
        ]
        if len(arguments) == 1:
            square = operation("*", values[0], values[0])
            parts = {"n": self.sum(call("count", arguments[0], where=where))}
            parts |= {"x": self.total(values[0], where), "xx": self.total(square, where)}
        else:
            there = operation("AND", *(operation("IS NOT NULL", a) for a in arguments))
            y, x = (Case(branches=((there, value),), otherwise=NULL) for value in values)
            one = Case(branches=((there, number(1)),), otherwise=NULL)
            parts = {"n": self.sum(call("count", one, where=where))}
            products = {"xy": (x, y), "xx": (x, x), "yy": (y, y)}
            parts |= {"x": self.total(x, where), "y": self.total(y, where)}
            for name, pair in products.items():
                parts[name] = self.total(operation("*", *pair), where)

        def filled(part: Node) -> Node | None:
            return parts[part.name] if isinstance(part, Column) else None

        return transform(_template(MOMENTS[node.name]), filled)

    def centres(self, arguments: Sequence[Node]) -> list[Node]:
        doubles = [Cast(operand=argument, type="DOUBLE") for argument in arguments]
        aggregates = [call(name, x) for name in ("avg", "stddev_pop") for x in doubles]
        query = Select(
            items=tuple(Item(value=v, name=f"c{i}") for i, v in enumerate(aggregates)),
            source=_over_all(self.core.source, self.tables),
            where=self.core.where,
        )
        (row,) = self.tables.ask(query)
        means = [value or 0.0 for value in row[: len(doubles)]]
        for mean, spread in zip(means, row[len(doubles) :], strict=True):
            if (spread or 0.0) < NARROW * abs(mean):
                raise NoSumError(ROUNDED)
        if self.tables.spark is not None:  # a mean of all rows must not stand in plans it shows
            return [
                Nested(kind="SCALAR", query=replace(query, items=(item,)))
                for item in query.items[: len(doubles)]
            ]
        return [number(float(mean)) for mean in means]


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


@cache
def _template(text: str) -> Node:
    query = read_sql(f"SELECT {text}")
    assert isinstance(query, Select)
    return query.items[0].value


# --- rows of a join ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRows:
    """The rows of a FROM clause: those of a candidate by ``query``, with outputs called ``labels``.

    ``of_all`` gives the rows of all units; ``pac_u`` is the unit of each, ``pac_two`` whether it
    has another besides. None where a row has no unit of its own, as that of a subquery.
    ``crossings`` are as those of :class:`SumsPlan`.
    """

    query: Select
    labels: tuple[str, ...]
    of_all: Select | None
    crossings: tuple[Select, ...] = ()


def joined_rows_plan(source: str, tables: Tables, columns: str = "*") -> JoinedRows:
    """Return the rows of a FROM clause, with WHERE."""
    if tables.spark is not None:
        raise QueryError(
            "a statistic of tables must have their rows here; got frames of Spark. Use pac.sql."
        )
    resolved = resolve_query(f"SELECT {columns} FROM {source}", tables)
    select = resolved.query
    if not _only_picks(select):
        raise QueryError(
            f"table must be what stands after FROM: names, joins and WHERE; got «{source[:80]}». "
            "Put the rest in a subquery: (SELECT ...)."
        )
    if not reads_tables(select, tables.private):
        raise QueryError(
            "table must read a private table; it reads only public ones. Name another."
        )
    try:
        unit, two, crossings = _unit_of_rows(select, tables)
    except NoSumError:
        return JoinedRows(query=select, labels=resolved.labels, of_all=None)
    extra = (Item(value=unit, name="pac_u"), Item(value=two, name="pac_two"))
    whole = replace(select, items=(*select.items, *extra), source=_over_all(select.source, tables))
    return JoinedRows(query=select, labels=resolved.labels, of_all=whole, crossings=crossings)


# --- a column that says the candidate ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldsPlan:
    """A core for several candidates in one query, and the private tables as often as it reads them.

    It reads ``pac_block``, candidates with their shares, and ``pac_members``, their units.
    """

    query: Select
    tables: tuple[str, ...]


def _reads_beside(core: Select) -> bool:
    """Whether an output has a query of its own, and so a value in a group without rows."""
    return any(isinstance(part, Nested) for item in core.items for part in walk(item))


def worlds_plan(query: CellQuery, tables: Tables) -> WorldsPlan | str:
    """Write a core for several candidates at once; or return why that is not done.

    The core stands in a lateral subquery, once for every row of the table of candidates, and each
    private table in it is cut to the members of that row's candidate. So the engine itself puts
    the candidate into every join, group and set operation, at any depth.
    """
    core = query.core(Column(name=SHARE, source=BLOCK))
    for part in walk(core):
        if isinstance(part, Window) or (
            isinstance(part, Select | SetOperation)
            and (part.limit is not None or part.offset is not None)
        ):
            return "it picks or numbers rows"
        if isinstance(part, Select) and part.distinct_on:
            return "it picks or numbers rows"
        if isinstance(part, Recursive) or (isinstance(part, Join) and part.kind.startswith("ASOF")):
            return "it is recursive or has a join of another kind"
        if (
            isinstance(part, Select)
            and () in part.sets
            and (part is not core or _reads_beside(core))
        ):
            return "its total has a row where no rows are"  # which a join with worlds leaves out
    numbers = itertools.count()

    def cut(table: Table, items: tuple[Item, ...]) -> Select:
        alias = f"m{next(numbers)}"
        unit, code = Column(name=UNIT, source=table.alias), Column(name="code", source=alias)
        join = Join(
            left=table,
            right=Table(path=(MEMBERS,), alias=alias),
            kind="INNER",
            condition=operation("=", unit, code),
        )
        sides = (Column(name="world", source=source) for source in (alias, BLOCK))
        return Select(items=items, source=join, where=operation("=", *sides))

    inner, read = cut_tables(core, tables, cut)
    names = [item.name for item in core.items]
    shown = [Item(value=Column(name="world", source=BLOCK), name="world")]
    shown += [Item(value=Column(name=n, source="q"), name=n) for n in names]
    source = Join(
        left=Table(path=(BLOCK,), alias=BLOCK), right=Derived(query=inner, alias="q"), kind="CROSS"
    )
    return WorldsPlan(query=Select(items=tuple(shown), source=source), tables=tuple(read))
