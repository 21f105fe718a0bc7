"""What the names in a query mean: every column gets its source, every source a name of ours.

The result holds no name that the person chose but those of declared tables and of their columns:
aliases become ``t0``, ``t1`` and so on, outputs ``c0``, ``c1``. Common table expressions and views
are written into the query wherever they are read; so they pass the same door as the rest of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeGuard

from pacprivacy.errors import QueryError
from pacprivacy.queries.grammar import AGGREGATES, TYPES, fragment, read_sql, reason_against, refuse
from pacprivacy.queries.tables import Tables
from pacprivacy.queries.tree import (
    Call,
    Cast,
    Column,
    Constant,
    Derived,
    Item,
    Join,
    Nested,
    Node,
    Order,
    Query,
    Select,
    SetOperation,
    Source,
    Star,
    Table,
    Window,
    both,
    children,
    folded,
    operation,
    walk,
    with_children,
    write_sql,
)

MAX_SOURCES: Final = 500  # of a query, after all names are written out
MAX_NODES: Final = 50_000  # parts of its expressions, after all aliases are written out
SHOWN_NAMES: Final = 12


@dataclass(slots=True)
class _Visible:
    """A source as a query sees it: its name, and its columns by their names there."""

    name: str
    columns: dict[str, Node]
    labels: dict[str, str]  # the same names, as they were written
    refused: dict[str, str] = field(default_factory=dict)  # columns of other types


@dataclass(slots=True)
class _Scope:
    """The sources of a query, and those of the queries around it."""

    parent: _Scope | None
    sources: list[_Visible] = field(default_factory=list)
    merged: dict[tuple[str, str], Node] = field(default_factory=dict)  # what USING made of columns
    hidden: set[tuple[str, str]] = field(default_factory=set)  # their second copies

    def find_source(self, name: str) -> _Visible | None:
        for source in self.sources:
            if source.name == name:
                return source
        return self.parent.find_source(name) if self.parent else None

    def find(self, name: str) -> list[Node]:
        """Return the columns of a name in the nearest query that has one."""
        return self.find_here(name) or (self.parent.find(name) if self.parent else [])

    def find_here(self, name: str) -> list[Node]:
        merged = [value for (_, column), value in self.merged.items() if column == name]
        return merged or [s.columns[name] for s in self.sources if name in s.columns]

    def labels(self) -> list[str]:
        return [label for source in self.sources for label in source.labels.values()]

    def kind_of(self, name: str) -> str | None:
        """Return the type of a column that may not be read."""
        for source in self.sources:
            if name in source.refused:
                return source.refused[name]
        return self.parent.kind_of(name) if self.parent else None


@dataclass(frozen=True, slots=True)
class _Named:
    """A common table expression: its query, and where its names are looked up."""

    query: Query
    columns: tuple[str, ...]
    ctes: Mapping[str, _Named]


_Ctes = Mapping[str, "_Named"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A query whose names are written out, and what its outputs are called."""

    query: Select
    labels: tuple[str, ...]


def resolve_query(text: str, schema: Tables) -> Resolved:
    """Read a SELECT and write out its names; refuse what is not there.

    Guarantee
    ---------
    Claim Q-2. Reads declared tables and nothing else: a table in the result has the path of one.
    """
    tree = read_sql(text)
    if not isinstance(tree, Select):
        raise refuse(
            text,
            text[:60],
            "the query must be a SELECT of aggregates, not a set operation",
            "Put the rest in a subquery: SELECT key, sum(x) FROM (...) GROUP BY key.",
        )
    query, labels = _Resolver(text, schema).select(tree, {}, None, outer=True)
    return Resolved(query=query, labels=labels)


class _Resolver:
    """Names of one text; a view has a text of its own."""

    def __init__(
        self,
        text: str,
        schema: Tables,
        numbers: itertools.count[int] | None = None,
        views: tuple[str, ...] = (),
    ) -> None:
        self.text, self.schema, self.views = text, schema, views
        self.numbers = itertools.count() if numbers is None else numbers
        self.n_nodes = 0  # that were written out
        self.sizes: dict[int, int] = {}  # of what aliases stand for

    def _refuse(self, node: Node | str, reason: str, advice: str) -> QueryError:
        return refuse(self.text, node if isinstance(node, str) else node.at, reason, advice)

    def _alias(self) -> str:
        number = next(self.numbers)
        if number >= MAX_SOURCES:
            raise QueryError(
                f"the query must read at most {MAX_SOURCES} sources once WITH and views are "
                "written out; got more. Write it with fewer."
            )
        return f"t{number}"

    # queries

    def query(
        self, node: Query, ctes: _Ctes, parent: _Scope | None
    ) -> tuple[Query, tuple[str, ...]]:
        if isinstance(node, Select):
            return self.select(node, ctes, parent)
        return self._set_operation(node, ctes, parent)

    def _with_ctes(self, node: Query, ctes: _Ctes) -> _Ctes:
        known = dict(ctes)
        for cte in node.ctes:
            name = folded(cte.name)
            if self.schema.find_table(name) or self.schema.find_view(name):
                raise refuse(
                    self.text, cte.name, "WITH must not reuse the name of a table", "Rename it."
                )
            known[name] = _Named(cte.query, cte.columns, dict(known))
        return known

    def select(
        self, node: Select, ctes: _Ctes, parent: _Scope | None, *, outer: bool = False
    ) -> tuple[Select, tuple[str, ...]]:
        ctes = self._with_ctes(node, ctes)
        scope = _Scope(parent)
        source = None if node.source is None else self._source(node.source, ctes, scope)
        named: dict[str, Node] = {}
        items: list[Item] = []
        labels: list[str] = []
        for item in node.items:
            before = self.n_nodes
            for value, label in self._outputs(item, scope, ctes, named, outer=outer):
                value = _no_position(value)
                self.sizes[id(value)] = self.n_nodes - before
                items.append(Item(value=value, name=f"c{len(items)}", at=item.at))
                labels.append(label)
                if item.name:
                    named[folded(item.name)] = value  # the last of a name

        def resolved(part: Node, aliases: bool = True, first: bool = False) -> Node:
            return self._value(part, scope, ctes, named if aliases else {}, first=first)

        def place(part: Node, *, first: bool) -> Node:
            """Write out a position or an alias; one that stands alone may go before a column."""
            if _is_whole(part):
                if not 1 <= int(part.text) <= len(items):
                    reason = f"positions must be 1 to {len(items)}"
                    raise self._refuse(part, reason, "Name the output.")
                return items[int(part.text) - 1].value
            return resolved(part, first=first and isinstance(part, Column))

        groups = tuple(place(part, first=False) for part in node.groups)
        if node.all_keys:
            groups = tuple(item.value for item in items if not has_aggregate(item.value))
        where = None if node.where is None else resolved(node.where)
        having = None if node.having is None else resolved(node.having)
        query = Select(
            items=tuple(items),
            source=source,
            where=where,
            groups=groups,
            sets=node.sets,
            having=having,
            qualify=None if node.qualify is None else resolved(node.qualify),
            distinct=node.distinct,
            order=tuple(replace(o, value=place(o.value, first=True)) for o in node.order),
            limit=self._count(node.limit),
            offset=self._count(node.offset),
            at=node.at,
        )
        self._check_picks(query, outer=outer)
        return query, tuple(labels)

    def _set_operation(
        self, node: SetOperation, ctes: _Ctes, parent: _Scope | None
    ) -> tuple[SetOperation, tuple[str, ...]]:
        ctes = self._with_ctes(node, ctes)
        parts = [self.query(query, ctes, parent) for query in node.queries]
        labels = parts[0][1]
        if any(len(each[1]) != len(labels) for each in parts):
            raise QueryError(f"{node.symbol} must be of queries with as many columns. Mend it.")
        lowered = [folded(label) for label in labels]

        def place(order: Order) -> Order:
            value = order.value
            if isinstance(value, Column) and not value.source and folded(value.name) in lowered:
                position = lowered.index(folded(value.name)) + 1
                return replace(order, value=Constant(kind="INTEGER", text=str(position)))
            if _is_whole(value):
                return order
            reason = f"ORDER BY of {node.symbol} must name an output"
            raise self._refuse(value, reason, "Name one.")

        query = SetOperation(
            symbol=node.symbol,
            every=node.every,
            queries=tuple(each[0] for each in parts),
            order=tuple(map(place, node.order)),
            limit=self._count(node.limit),
            offset=self._count(node.offset),
            at=node.at,
        )
        self._check_picks(query, outer=False)
        return query, labels

    def _check_picks(self, query: Query, *, outer: bool) -> None:
        """Refuse what picks rows by the order in which they happen to be stored."""
        for word, part in (("LIMIT", query.limit), ("OFFSET", query.offset)):
            if part is not None and not outer and not query.order:
                reason = "rows must not be picked by where they are stored"
                raise self._refuse(f"{word} {write_sql(part)}", reason, "Say ORDER BY.")

    def _count(self, node: Node | None) -> Node | None:
        if node is not None and not _is_whole(node):
            raise self._refuse(node, "LIMIT and OFFSET must be whole numbers", "Write one.")
        return node

    # outputs and values

    def _outputs(
        self,
        item: Item,
        scope: _Scope,
        ctes: _Ctes,
        named: Mapping[str, Node],
        *,
        outer: bool,
    ) -> list[tuple[Node, str]]:
        """Return what an output stands for: several columns for a star."""
        value = item.value
        if isinstance(value, Star):
            return self._star(value, scope, outer=outer)
        if item.name:
            label = item.name
        elif isinstance(value, Column):
            label = value.name
        else:
            label = " ".join(fragment(self.text, item.at).split()).lower()
        return [(self._value(value, scope, ctes, named), label)]

    def _star(self, node: Star, scope: _Scope, *, outer: bool) -> list[tuple[Node, str]]:
        chosen = scope.sources
        if node.source:
            source = scope.find_source(folded(node.source))
            if source is None:
                raise self._refuse(node, "* must be of a source of the query", "Name one.")
            chosen = [source]
        if not chosen:
            raise self._refuse(node, "* must be of some table", "Say FROM.")
        excluded = {folded(name) for name in node.excluded}
        odd = {name: kind for source in chosen for name, kind in source.refused.items()}
        for name in () if outer else odd.keys() - excluded:
            reason = f"* must be of numbers, texts, days or times; {name!r} is {odd[name]}"
            raise self._refuse(node, reason, "Name the columns, or EXCLUDE it.")
        columns = []
        merged = {} if node.source else scope.merged
        for source in chosen:
            for name, column in source.columns.items():
                twin = not node.source and (source.name, name) in scope.hidden
                if name not in excluded and not twin:
                    column = replace(merged.get((source.name, name), column), at=node.at)
                    columns.append((column, source.labels[name]))
        return columns

    def _value(
        self,
        node: Node,
        scope: _Scope,
        ctes: _Ctes,
        named: Mapping[str, Node],
        *,
        first: bool = False,
    ) -> Node:
        """Return an expression with its columns written out; aliases where there is no column."""

        def resolved(part: Node) -> Node:
            self._write()
            if isinstance(part, Column):
                return self._column(part, scope, named, first=first)
            if isinstance(part, Star):
                raise self._refuse(part, "* must stand alone in SELECT or count", "Name a column.")
            if isinstance(part, Nested):
                query, _ = self.query(part.query, ctes, scope)
                operand = None if part.operand is None else resolved(part.operand)
                return replace(part, query=query, operand=operand)
            return with_children(part, [resolved(each) for each in children(part)])

        return resolved(node)

    def _column(
        self, node: Column, scope: _Scope, named: Mapping[str, Node], *, first: bool
    ) -> Node:
        name = folded(node.name)
        if node.source:
            source = scope.find_source(folded(node.source))
            if source is not None and name in source.columns:
                return replace(source.columns[name], at=node.at)
            kind = source.refused.get(name) if source is not None else None
            labels = list(source.labels.values()) if source is not None else scope.labels()
        else:
            if name in named and (first or not scope.find_here(name)):
                return self._named(named[name], node)
            columns = scope.find(name)
            if len(columns) > 1:
                raise self._refuse(
                    node, "a column must belong to one table", "Write it as table.column."
                )
            if columns:
                return replace(columns[0], at=node.at)
            kind, labels = scope.kind_of(name), scope.labels()
        if kind is not None:
            reason = f"columns must be numbers, texts, days or times, not {kind}"
            raise self._refuse(node, reason, "Make a plain column of it.")
        reason, advice = reason_against(name)
        if reason:
            raise self._refuse(node, reason, advice)
        shown = ", ".join(labels[:SHOWN_NAMES]) or "none"
        raise self._refuse(node, "columns must be those of the tables", f"There are {shown}.")

    def _named(self, value: Node, alias: Column) -> Node:
        self._write(self.sizes[id(value)])
        return replace(value, at=alias.at)

    def _write(self, n_nodes: int = 1) -> None:
        """Count what is written out: aliases of aliases would double with every word."""
        self.n_nodes += n_nodes
        if self.n_nodes > MAX_NODES:
            raise QueryError(
                f"the query must have at most {MAX_NODES:,} parts once aliases are written out; "
                "got more. Write it with fewer."
            )

    # sources

    def _source(self, node: Source, ctes: _Ctes, scope: _Scope) -> Source:
        if isinstance(node, Join):
            return self._join(node, ctes, scope)
        alias = self._alias()
        if isinstance(node, Table):
            return self._table(node, ctes, scope, alias)
        query, labels = self.query(node.query, ctes, scope if scope.sources else scope.parent)
        return self._add_query(node, query, labels, scope, alias)

    def _add_query(
        self,
        node: Table | Derived,
        query: Query,
        labels: Sequence[str],
        scope: _Scope,
        alias: str,
    ) -> Derived:
        """Return a subquery, common table expression or view as a source of rows."""
        columns = {f"c{i}": label for i, label in enumerate(self._renamed(node, labels))}
        name = node.alias or (node.path[-1] if isinstance(node, Table) else alias)
        self._add_columns(node, name, alias, columns, scope)
        return Derived(query=query, alias=alias, at=node.at)

    def _renamed(self, node: Table | Derived, labels: Sequence[str]) -> list[str]:
        """Return the names of columns after ``AS t(x, y)``."""
        if len(node.columns) > len(labels):
            raise self._refuse(
                node, "an alias must name no more columns than there are", "Mend it."
            )
        return [*node.columns, *labels[len(node.columns) :]]

    def _add_columns(
        self,
        node: Node,
        name: str,
        alias: str,
        labels: Mapping[str, str],
        scope: _Scope,
        refused: Mapping[str, str] | None = None,
    ) -> None:
        if any(source.name == folded(name) for source in scope.sources):
            raise self._refuse(node, "sources must have different names", "Give one an alias.")
        columns: dict[str, Node] = {}
        shown: dict[str, str] = {}
        for column, label in labels.items():
            lowered = folded(label)
            if lowered not in columns:  # a second output of that name cannot be read
                columns[lowered] = Column(name=column, source=alias)
                shown[lowered] = label
        scope.sources.append(_Visible(folded(name), columns, shown, dict(refused or {})))

    def _table(self, node: Table, ctes: _Ctes, scope: _Scope, alias: str) -> Source:
        name = folded(node.path[-1])
        if len(node.path) == 1 and name in ctes:
            return self._cte(node, ctes[name], scope, alias)
        declared = self.schema.find_table(name) if len(node.path) == 1 else None
        if declared is not None:
            types = self.schema.table_columns(declared)
            plain = {c: c for c, kind in types.items() if re.sub(r"\(.*\)", "", kind) in TYPES}
            labels = dict(zip(plain, self._renamed(node, list(plain)), strict=True))
            other = {folded(c): kind for c, kind in types.items() if c not in plain}
            if node.columns and other:
                reason = f"columns must be renamed where all are plain, unlike {min(other)!r}"
                raise self._refuse(node, reason, "Rename them in a subquery.")
            self._add_columns(node, node.alias or node.path[-1], alias, labels, scope, other)
            return Table(path=(declared,), alias=alias, at=node.at)
        view = self.schema.find_view(name) if len(node.path) == 1 else None
        if view is not None and name not in self.views:
            return self._view(node, view, scope, alias)
        shown = ", ".join(self.schema.names)
        raise self._refuse(node, "tables must be those that were declared", f"There are {shown}.")

    def _view(
        self, node: Table, view: tuple[str, tuple[str, ...]], scope: _Scope, alias: str
    ) -> Source:
        (text, names), name = view, folded(node.path[-1])
        inside = _Resolver(text, self.schema, self.numbers, (*self.views, name))
        try:
            query, labels = inside.query(read_sql(text), {}, None)
        except QueryError as error:
            raise self._refuse(
                node, f"a view must be of SQL that is answered; {name!r} is not: {error}", ""
            ) from None
        shown = names if len(names) == len(labels) else labels
        return self._add_query(node, query, shown, scope, alias)

    def _cte(self, node: Table, cte: _Named, scope: _Scope, alias: str) -> Source:
        query, labels = self.query(cte.query, cte.ctes, None)
        shown = (*cte.columns, *labels[len(cte.columns) :])
        return self._add_query(node, query, shown, scope, alias)

    def _join(self, node: Join, ctes: _Ctes, scope: _Scope) -> Join:
        start = len(scope.sources)
        left = self._source(node.left, ctes, scope)
        before = len(scope.sources)
        right = self._source(node.right, ctes, scope)
        sides = scope.sources[start:before], scope.sources[before:]
        kind, condition = node.kind, None
        if node.using:
            names = map(folded, node.using)
            condition = both(*(self._merge(node, name, kind, scope, sides) for name in names))
        elif node.condition is not None:
            condition = self._value(node.condition, scope, ctes, {})
        if kind in ("SEMI", "ANTI"):
            del scope.sources[before:]
        return Join(left=left, right=right, kind=kind, condition=condition, at=node.at)

    def _merge(
        self, node: Join, name: str, kind: str, scope: _Scope, sides: Iterable[Sequence[_Visible]]
    ) -> Node:
        """Return the condition that two columns of a name are equal; from here on they are one."""

        def holder(sources: Sequence[_Visible]) -> _Visible:
            holders = [s for s in sources if name in s.columns]
            visible = [s for s in holders if (s.name, name) not in scope.hidden]
            if len(visible) != 1:
                reason = f"USING must name a column that both sides have once, not {name!r}"
                raise self._refuse(node, reason, "Say ON.")
            return visible[0]

        mine, twin = map(holder, sides)
        left, right = (
            scope.merged.get((side.name, name), side.columns[name]) for side in (mine, twin)
        )
        if kind not in ("SEMI", "ANTI"):
            scope.hidden.add((twin.name, name))
            scope.merged.pop((twin.name, name), None)
            either = operation("COALESCE", left, right) if kind == "FULL" else left
            scope.merged[mine.name, name] = right if kind == "RIGHT" else either
        return operation("=", left, right)


def _is_whole(node: Node) -> TypeGuard[Constant]:
    return isinstance(node, Constant) and node.kind == "INTEGER"


def _no_position(value: Node) -> Node:
    """Return an output so that GROUP BY and ORDER BY never take it for the position of another."""
    bits = int(value.text).bit_length() if _is_whole(value) else 128
    if bits > 127:  # no whole number, or read as a float
        return value
    kind = "INTEGER" if bits < 32 else "BIGINT" if bits < 64 else "HUGEINT"
    return Cast(operand=value, type=kind, at=value.at)


# --- questions about resolved queries ------------------------------------------------------------


def is_aggregate(node: Node) -> bool:
    """Whether a node itself is an aggregate over rows."""
    return isinstance(node, Call) and node.name in AGGREGATES


def has_aggregate(node: Node) -> bool:
    """Whether an expression has an aggregate, those of subqueries and windows apart."""
    if isinstance(node, Nested):
        return node.operand is not None and has_aggregate(node.operand)
    if isinstance(node, Window):
        return any(map(has_aggregate, children(node.call)))
    return is_aggregate(node) or any(map(has_aggregate, children(node)))


def reads_tables(node: Node | None, tables: Collection[str]) -> bool:
    """Whether a part of a query reads one of some tables."""
    return any(isinstance(part, Table) and part.path[-1] in tables for part in walk(node))


def row_sources(node: Source | None) -> Iterator[Source]:
    """Return the sources whose rows a FROM clause hands on, from left to right."""
    if isinstance(node, Join):
        yield from row_sources(node.left)
        if node.kind not in ("SEMI", "ANTI"):
            yield from row_sources(node.right)
    elif node is not None:
        yield node


def outer_columns(query: Query) -> list[Column]:
    """Return the columns of a query that belong to a query around it."""
    inside = {part.alias for part in walk(query) if isinstance(part, Table | Derived)}
    columns = (part for part in walk(query) if isinstance(part, Column) and part.source)
    return [column for column in columns if column.source not in inside]


def column_origin(column: Node, query: Node) -> tuple[str, str] | None:
    """Return the table and column that a column of ``query`` hands on, or None."""
    if not isinstance(column, Column):
        return None
    for part in walk(query):
        if isinstance(part, Table) and part.alias == column.source:
            return part.path[-1], column.name
        if isinstance(part, Derived) and part.alias == column.source:
            inner = part.query
            if isinstance(inner, Select) and not inner.sets:
                values = {item.name: item.value for item in inner.items}
                return column_origin(values[column.name], inner)
            return None
    return None
