"""A query taken apart: its group keys, its cells, and sums over units that cells are made of.

The *core* of a query gives the cells of one candidate: group keys, and numbers that are made of
aggregates. What only arranges released cells (HAVING, ORDER BY, LIMIT, expressions of keys) is done
after the noise, on what was released. Where all numbers are functions of sums over the rows of each
unit, :func:`sums_plan` says which; they give the cells of all candidates at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np

from pacprivacy.errors import QueryError
from pacprivacy.queries.engines import SHARE, UNIT, WHOLE
from pacprivacy.queries.grammar import fragment, read_sql, refuse
from pacprivacy.queries.names import (
    MAX_NODES,
    column_origin,
    has_aggregate,
    is_aggregate,
    outer_columns,
    reads_tables,
    resolve_query,
    row_sources,
)
from pacprivacy.queries.tables import Tables
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
    Order,
    Select,
    Share,
    Source,
    Table,
    Window,
    both,
    call,
    children,
    number,
    operation,
    substitute,
    walk,
    with_children,
)
from pacprivacy.statistics import round_centre

CELLS: Final = "pac_cells"
MAX_SETS: Final = 2**10  # grouping sets of a query
COUNTS: Final = frozenset({"count", "count_star", "count_if"})
NARROW: Final = 1e-5  # spreads below this share of the mean have few digits, whoever computes them
ROUNDED: Final = "its spread, which is small beside its mean, would be rounded in another way"
IN_SUBQUERY: Final = "it reads private tables in a subquery"
DIVISIONS: Final = frozenset({"/", "//", "%"})
TOTALS: Final = COUNTS | {"sum", "sumkahan", "kahan_sum", "fsum"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellColumn:
    """One number of every cell; if it ``counts``, it is rounded after the noise."""

    name: str
    value: Node
    counts: bool

    @property
    def scaled(self) -> bool:
        """Whether it is an estimate for all units, from the share that a candidate holds."""
        return any(isinstance(part, Share) for part in walk(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellQuery:
    """A query taken apart.

    ``select`` has its names written out. ``keys`` are ``k0``, ``k1`` and so on in the core, numbers
    of a cell (``columns``) ``c0``, ``c1``. ``shown`` has expression over the released cells, and
    name, of every output; ``having`` and ``order`` are done to the released cells.
    """

    text: str
    select: Select
    keys: tuple[Node, ...]
    key_names: tuple[str, ...]
    columns: tuple[CellColumn, ...]
    shown: tuple[tuple[Node, str], ...]
    having: Node | None
    order: tuple[Order, ...]

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """Keys of every grouping set (ROLLUP, CUBE), the last its GROUPING; empty without any."""
        return self.select.sets if self.keys else ()

    @property
    def n_keys(self) -> int:
        """Number of keys of a cell."""
        return len(self.keys) + bool(self.sets)

    def core(self, share: Node) -> Select:
        """Return the query of one candidate, which holds a share of the units."""
        return Select(
            items=(*key_items(self.keys, sets=self.sets), *self._cells(share)),
            source=self.select.source,
            where=self.select.where,
            groups=self.keys,
            sets=self.sets,
        )

    def empty(self) -> Select:
        """Return the cells of a group without rows: zero for counts and sums, NULL for most."""
        return Select(items=self._cells(number(1.0)), source=self.select.source, where=FALSE)

    def arranged(self, items: Sequence[Item], *, plain: bool = False) -> Select:
        """Return the query of released cells; with ``plain`` all of them, as they are."""
        source = Table(path=(CELLS,))
        if plain:
            return Select(items=tuple(items), source=source)
        select = self.select
        return Select(
            items=tuple(items),
            source=source,
            where=self.having,
            order=self.order,
            limit=select.limit,
            offset=select.offset,
        )

    def _cells(self, share: Node) -> tuple[Item, ...]:
        values = (with_share(column.value, share) for column in self.columns)
        return tuple(Item(value=value, name=f"c{i}") for i, value in enumerate(values))

    def is_subtotal(self, cell: Sequence[Any], key: int) -> bool:
        """Whether a cell covers all values of a key."""
        return bool(self.sets) and bool(cell[-1] >> (len(self.keys) - 1 - key) & 1)


def key_items(keys: Sequence[Node], *, sets: Sequence[Any]) -> tuple[Item, ...]:
    """Return group keys as outputs; with grouping sets one more says which keys are summed over."""
    grouping = [operation("GROUPING", *keys)] if sets else []
    return tuple(Item(value=key, name=f"k{i}") for i, key in enumerate((*keys, *grouping)))


def with_share(value: Node, share: Node) -> Node:
    """Return an expression in which the share of the units is written out."""
    return substitute(value, {Share(): share})


def parse_query(text: str, tables: Tables) -> CellQuery:
    """Take a query apart; refuse what cannot be answered with noise, and say why.

    Guarantee
    ---------
    Claims Q-2, Q-4. Reads no row: a function of the text, and of names and types of columns.
    """
    resolved = resolve_query(text, tables)
    select = resolved.query
    for name, part in (("DISTINCT", select.distinct), ("QUALIFY", select.qualify)):
        if part:
            reason = f"the outer query must not use {name}"
            raise refuse(text, name, reason, "Put it in a subquery, or group by the columns.")
    if not reads_tables(select, tables.private):
        raise QueryError(
            "the query must read a private table; it reads only tables that neither unit nor via "
            "names, which are public. If one has rows about people, name it in via (--via "
            "TABLE=COLUMN); if not, its answer is public and needs no noise: run it as it is."
        )
    if len(select.sets) > MAX_SETS or len(set(select.sets)) < len(select.sets):
        raise QueryError(
            f"a query must have at most {MAX_SETS} grouping sets, each of them once; got "
            f"{len(select.sets)}. Name the sets that you want."
        )
    return _Cells(text, select, tables).query(resolved.labels)


class _Cells:
    """The columns of a query, which grow while its outputs are read."""

    def __init__(self, text: str, select: Select, tables: Tables) -> None:
        self.text, self.select, self.tables = text, select, tables
        self.keys = tuple(dict.fromkeys(select.groups))
        self.values: list[Node] = []  # of the columns, as they were written
        self.columns: list[CellColumn] = []

    def refuse(self, node: Node, reason: str, advice: str) -> QueryError:
        return refuse(self.text, node.at, reason, advice)

    def query(self, labels: Sequence[str]) -> CellQuery:
        select = self.select
        if select.sets and len(self.keys) < len(select.groups):
            raise QueryError("GROUP BY must name every key once; got one twice. Leave it out.")
        shown: list[tuple[Node, str]] = []
        for item, label in zip(select.items, labels, strict=True):
            shown.append((self.output(item, label), label))
        aggregated = any(has_aggregate(item.value) for item in select.items)
        if not (self.keys and self.columns) and not aggregated:
            raise self.refuse(
                select.items[0],
                "the query must have an aggregate",
                "Add one, such as count(*): rows of a private table are never shown.",
            )
        having = None if select.having is None else self.over_cells(select.having)
        order = tuple(replace(o, value=self.over_cells(o.value)) for o in select.order)
        return CellQuery(
            text=self.text,
            select=select,
            keys=self.keys,
            key_names=tuple(self.key_name(key, labels) for key in self.keys),
            columns=tuple(self.columns),
            shown=tuple(shown),
            having=having,
            order=order,
        )

    def key_name(self, key: Node, labels: Sequence[str]) -> str:
        for item, label in zip(self.select.items, labels, strict=True):
            if item.value == key:
                return label
        return " ".join(fragment(self.text, key.at).split()) or "key"

    def output(self, item: Item, label: str) -> Node:
        value = item.value
        nested = any(isinstance(part, Nested) for part in walk(value))
        if not (has_aggregate(value) or nested):
            return self.over_cells(value)
        for part in walk(value, into_queries=False):
            if isinstance(part, Window):
                reason = "the outer query must not use windows"
                raise self.refuse(part, reason, "Put it in a subquery.")
        self.check_columns(value)
        return self.column(value, label)

    def column(self, value: Node, label: str) -> Column:
        if value not in self.values:
            self.values.append(value)
            scaled = self.with_totals(value, self.select)
            column = CellColumn(name=label, value=scaled, counts=_counts(value))
            self.columns.append(column)
        return Column(name=f"c{self.values.index(value)}")

    def check_columns(self, node: Node) -> None:
        """Refuse columns beside the aggregates that are no keys."""
        if node in self.keys or is_aggregate(node) or isinstance(node, Nested):
            return
        if isinstance(node, Column):
            raise self.refuse(
                node,
                "every output must be an aggregate or a group key",
                "Group by it, or aggregate it: rows of a private table are never shown.",
            )
        for part in children(node):
            self.check_columns(part)

    def over_cells(self, node: Node) -> Node:
        """Write an expression in terms of released cells."""
        if node in self.keys:
            return Column(name=f"k{self.keys.index(node)}")
        if node in self.values:
            return Column(name=f"c{self.values.index(node)}")
        if isinstance(node, Operation) and node.symbol == "GROUPING":
            return self.grouping(node)
        if is_aggregate(node):
            name = " ".join(fragment(self.text, node.at).split()).lower()
            return self.column(node, name or "cell")
        if isinstance(node, Nested):
            raise self.refuse(
                node,
                "what is done to released cells must not read tables",
                "Put it in a subquery of FROM.",
            )
        if isinstance(node, Window):
            reason = "the outer query must not use windows"
            raise self.refuse(node, reason, "Put it in a subquery.")
        if isinstance(node, Column):
            self.check_columns(node)
        return with_children(node, [self.over_cells(part) for part in children(node)])

    def grouping(self, node: Operation) -> Node:
        """Write GROUPING of some keys in terms of that of all of them, which is the last key."""
        bits: list[Node] = []
        if not self.select.sets:
            reason = "GROUPING must stand with ROLLUP, CUBE or GROUPING SETS"
            raise self.refuse(node, reason, "Leave it out.")
        for place, key in enumerate(reversed(node.operands)):
            if key not in self.keys:
                raise self.refuse(key, "GROUPING must be of group keys", "Name one.")
            bit = len(self.keys) - 1 - self.keys.index(key)
            every = Column(name=f"k{len(self.keys)}")
            digit = operation("%", operation("//", every, number(1 << bit)), number(2))
            bits.append(operation("*", digit, number(1 << place)))
        return operation("+", *bits) if len(bits) > 1 else bits[0]

    # totals

    def with_totals(self, node: Node, query: Select) -> Node:
        """Write counts and sums of private rows as estimates for all units.

        A total that belongs to a row, or is over public tables, does not grow with the units.
        """
        if isinstance(node, Nested):
            return self._nested_totals(node) if query is self.select else node
        if not is_aggregate(node):
            parts = [self.with_totals(part, query) for part in children(node)]
            return with_children(node, parts)
        if not self._grows(node, query):
            return node
        # No rows are a total of zero; a query inside has none then.
        total = operation("COALESCE", node, number(0)) if query is self.select else node
        return operation("/", total, Share())

    def _nested_totals(self, node: Nested) -> Node:
        query = node.query
        if node.kind != "SCALAR" or not isinstance(query, Select) or query.groups:
            return node
        if outer_columns(query):
            return node
        items = (replace(i, value=self.with_totals(i.value, query)) for i in query.items)
        return replace(node, query=replace(query, items=tuple(items)))

    def _grows(self, node: Node, query: Select) -> bool:
        """Whether an aggregate of a query is a total over rows of private tables."""
        if not (isinstance(node, Call) and node.name in TOTALS):
            return False
        rows = row_sources(query.source)
        if not any(reads_tables(source, self.tables.private) for source in rows):
            return False
        if node.distinct:
            origin = column_origin(node.arguments[0], query)
            return node.name == "count" and origin is not None and self.tables.is_key(*origin)
        return True


def _counts(node: Node) -> bool:
    while isinstance(node, Cast):
        node = node.operand
    if isinstance(node, Operation) and node.symbol in ("+", "-"):
        return all(map(_counts, node.operands))
    return isinstance(node, Call) and node.name in COUNTS


class NoSumError(Exception):
    """A query is no function of sums over units; the words say why."""


# --- sums per unit -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsPlan:
    """A core as sums over units.

    ``query`` gives group keys ``k0...``, unit ``u``, sums ``s0...`` over the unit's rows, and
    ``pac_two``: whether some row belongs to two units. ``cells`` are the columns of the core as
    expressions of the sums over a sample, and of ``pac_share``; sums that something is divided by
    are called ``n0...`` there. ``crossings`` ask whether a left join meets rows of another unit:
    without that unit it would keep a row that is not there otherwise. ``centres`` were subtracted
    from columns, to a sixteenth of their deviations.
    """

    query: Select
    n_sums: int
    cells: tuple[Node, ...]
    crossings: tuple[Select, ...]
    centres: tuple[float, ...] = ()

    @property
    def counts(self) -> tuple[bool, ...]:
        """Sums that count rows."""
        values = [item.value for item in self.query.items if re.fullmatch(r"s\d+", item.name)]
        return tuple(isinstance(value, Call) and value.name in COUNTS for value in values)


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
    return SumsPlan(
        query=per_unit,
        n_sums=len(sums.values),
        cells=cells,
        crossings=crossings,
        centres=tuple(sums.subtracted),
    )


def _inlined(select: Select) -> Select:
    """Write subqueries that only pick rows and columns into the query around them."""
    if max(_sizes(select.source).values(), default=0) > MAX_NODES:
        return select
    values: dict[Column, Node] = {}
    wheres: list[Node | None] = []

    def merged(source: Source) -> Source:
        if isinstance(source, Join) and source.kind in ("INNER", "CROSS", "LEFT"):
            left = merged(source.left)
            right = source.right if source.kind == "LEFT" else merged(source.right)
            return replace(source, left=left, right=right)
        if isinstance(source, Derived) and _only_picks(source.query):
            inner = source.query
            assert isinstance(inner, Select) and inner.source is not None  # noqa: PT018
            inside = merged(inner.source)
            for item in inner.items:
                values[Column(name=item.name, source=source.alias)] = substitute(item.value, values)
            wheres.append(inner.where)
            return inside
        return source

    new = replace(select, source=None if select.source is None else merged(select.source))
    whole = substitute(replace(new, where=both(*wheres, select.where)), values)
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
    parts = (query.groups, query.sets, query.distinct, query.order, query.ctes)
    if any(parts) or (query.having, query.qualify, query.limit, query.offset) != (None,) * 4:
        return False
    plain = [item.value for item in query.items]
    windows = any(isinstance(part, Window) for value in plain for part in walk(value))
    return not windows and not any(map(has_aggregate, plain))


def _over_all(source: Source | None, tables: Tables) -> Source | None:
    """Return a FROM clause over the private tables of all units, which carry the unit."""
    private = (p for p in walk(source) if isinstance(p, Table) and p.path[-1] in tables.private)
    whole = {part: replace(part, path=(WHOLE, part.path[-1])) for part in private}
    new = None if source is None else substitute(source, whole)
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
        self.subtracted: list[float] = []

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
            if outer_columns(node.query):
                raise NoSumError("a number is made of aggregates and of a query of its own")
            return node  # of public tables: the same for all units
        if isinstance(node, Call) and is_aggregate(node):
            return self.aggregate(node)
        parts = [self.of(part) for part in children(node)]
        if isinstance(node, Operation) and node.symbol in DIVISIONS and len(parts) == 2:
            parts[1] = self.divisor(parts[1])
        return with_children(node, parts)

    def divisor(self, node: Node) -> Node:
        """Name the sum in a divisor, if it is one, so that it can be missing where it is noise."""
        sums = {part for part in walk(node) if isinstance(part, Column) and part.name[0] == "s"}
        if len(sums) != 1:
            return node
        (column,) = sums
        divisor = Column(name=f"n{column.name[1:]}")
        # A sum is never NULL, and what is missing must not become zero again.
        whole = operation("COALESCE", column, number(0))
        return substitute(substitute(node, {whole: divisor}), {column: divisor})

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
            count = self.divisor(self.sum(call("count", arguments[0], where=where)))
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
            parts = {"n": self.divisor(self.sum(call("count", arguments[0], where=where)))}
            parts |= {"x": self.total(values[0], where), "xx": self.total(square, where)}
        else:
            there = operation("AND", *(operation("IS NOT NULL", a) for a in arguments))
            y, x = (Case(branches=((there, value),), otherwise=NULL) for value in values)
            one = Case(branches=((there, number(1)),), otherwise=NULL)
            parts = {"n": self.divisor(self.sum(call("count", one, where=where)))}
            products = {"xy": (x, y), "xx": (x, x), "yy": (y, y)}
            parts |= {"x": self.total(x, where), "y": self.total(y, where)}
            for name, pair in products.items():
                parts[name] = self.total(operation("*", *pair), where)

        named = {Column(name=name): part for name, part in parts.items()}
        return substitute(_template(MOMENTS[node.name]), named)

    def centres(self, arguments: Sequence[Node]) -> list[Node]:
        doubles = [Cast(operand=argument, type="DOUBLE") for argument in arguments]
        aggregates = [call(name, x) for name in ("avg", "stddev_pop") for x in doubles]
        query = Select(
            items=tuple(Item(value=v, name=f"c{i}") for i, v in enumerate(aggregates)),
            source=_over_all(self.core.source, self.tables),
            where=self.core.where,
        )
        (row,) = self.tables.ask(query)
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
