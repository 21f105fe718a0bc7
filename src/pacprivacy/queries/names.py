"""Names in a query: every column gets its source, every source a name of ours.

The result holds no name that the person chose but those of declared tables and of their columns:
aliases become ``t0``, ``t1`` and so on, outputs ``c0``, ``c1``. Common table expressions are
written into the query wherever they are read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeGuard

from pacprivacy.errors import QueryError
from pacprivacy.queries import tree as sql
from pacprivacy.queries.grammar import AGGREGATES, TYPES, fragment, read_sql, reason_against, refuse
from pacprivacy.queries.tables import Tables
from pacprivacy.queries.tree import children, folded, number, operation, walk

MAX_SOURCES: Final = 500  # of a query, after all names are written out
MAX_NODES: Final = 50_000  # parts of its expressions, after all aliases are written out
MAX_PICKED: Final = 500  # parts of a subquery's column that is written into the query around it
SHOWN_NAMES: Final = 12
_Outputs = tuple[str, ...]  # what the outputs of a query are called


@dataclass(slots=True)
class _Visible:
    name: str
    columns: dict[str, sql.Node]
    labels: dict[str, str]  # the same names, as they were written
    refused: Mapping[str, str]  # columns of other types


@dataclass(frozen=True, slots=True)
class _Cte:
    """A common table expression: its query, and those that it may name."""

    query: sql.Query
    ctes: Mapping[str, _Cte]


_Aliases = Mapping[str, sql.Node]  # what the names of outputs stand for


@dataclass(slots=True)
class _Scope:
    """Names in reach of a query: its sources, its CTEs, and those of the queries around it."""

    parent: _Scope | None
    ctes: Mapping[str, _Cte]
    sources: list[_Visible] = field(default_factory=list)
    wheres: list[sql.Node] = field(default_factory=list)  # of subqueries that are written in
    # what USING made of columns, and their second copies
    merged: dict[tuple[str, str], sql.Node] = field(default_factory=dict)
    hidden: set[tuple[str, str]] = field(default_factory=set)

    def find_source(self, name: str) -> _Visible | None:
        for source in self.sources:
            if source.name == name:
                return source
        return self.parent.find_source(name) if self.parent else None

    def find(self, name: str) -> list[sql.Node]:
        """Return the columns of a name from the nearest query that defines it."""
        return self.find_here(name) or (self.parent.find(name) if self.parent else [])

    def find_here(self, name: str) -> list[sql.Node]:
        merged = [value for (_, column), value in self.merged.items() if column == name]
        return merged or [s.columns[name] for s in self.sources if name in s.columns]

    def labels(self) -> list[str]:
        return [label for source in self.sources for label in source.labels.values()]

    def kind_of(self, name: str) -> str | None:
        for source in self.sources:
            if name in source.refused:
                return source.refused[name]
        return self.parent.kind_of(name) if self.parent else None


def resolve_query(text: str, schema: Tables) -> tuple[sql.Select, _Outputs]:
    """Read a SELECT and write out its names; return the names of its outputs, too.

    Guarantee
    ---------
    Claim Q-2. Reads declared tables and nothing else: a table in the result has the path of one.
    """
    tree = read_sql(text)
    if not isinstance(tree, sql.Select):
        raise refuse(
            text,
            text[:60],
            "the query must be a SELECT of aggregates, not a set operation",
            "Put the rest in a subquery: SELECT key, sum(x) FROM (...) GROUP BY key.",
        )
    return _Resolver(text, schema).select(tree, {}, None, outer=True)


class _Resolver:
    def __init__(self, text: str, schema: Tables) -> None:
        self.text, self.schema = text, schema
        self.n_sources = self.n_nodes = 0  # that were written out

    def _refuse(self, node: sql.Node | str, reason: str, advice: str) -> QueryError:
        return refuse(self.text, node if isinstance(node, str) else node.at, reason, advice)

    def _alias(self) -> str:
        self.n_sources += 1
        if self.n_sources > MAX_SOURCES:
            raise QueryError(
                f"the query must read at most {MAX_SOURCES} sources once WITH is written out; got "
                "more. Write it with fewer."
            )
        return f"t{self.n_sources - 1}"

    # queries

    def query(
        self, node: sql.Query, ctes: Mapping[str, _Cte], parent: _Scope | None
    ) -> tuple[sql.Query, _Outputs]:
        if isinstance(node, sql.Select):
            return self.select(node, ctes, parent)
        return self._set_operation(node, ctes, parent)

    def _with_ctes(self, node: sql.Query, ctes: Mapping[str, _Cte]) -> Mapping[str, _Cte]:
        known = dict(ctes)
        for cte in node.ctes:
            name = folded(cte.name)
            if self.schema.find_table(name):
                reason = "WITH must not reuse the name of a table"
                raise self._refuse(cte.name, reason, "Rename it.")
            known[name] = _Cte(cte.query, dict(known))
        return known

    def select(
        self,
        node: sql.Select,
        ctes: Mapping[str, _Cte],
        parent: _Scope | None,
        *,
        outer: bool = False,
    ) -> tuple[sql.Select, _Outputs]:
        scope = _Scope(parent, self._with_ctes(node, ctes))
        source = None if node.source is None else self._source(node.source, scope)
        aliases: dict[str, sql.Node] = {}
        items: list[sql.Item] = []
        labels: list[str] = []
        for item in node.items:
            for value, label in self._outputs(item, scope, aliases, outer=outer):
                value = _no_position(value)
                items.append(sql.Item(value=value, name=f"c{len(items)}", at=item.at))
                labels.append(label)
                if item.name:  # the last of a name
                    aliases[folded(item.name)] = value

        def resolved(part: sql.Node | None) -> sql.Node | None:
            return None if part is None else self._value(part, scope, aliases)

        def place(part: sql.Node, *, first: bool = False) -> sql.Node:
            """Write out a position or an alias; a single one may go before a column."""
            if not _is_whole(part):
                first = first and isinstance(part, sql.Column)
                return self._value(part, scope, aliases, first=first)
            if not 1 <= int(part.text) <= len(items):
                reason = f"positions must be 1 to {len(items)}"
                raise self._refuse(part, reason, "Name the output.")
            return items[int(part.text) - 1].value

        groups = tuple(map(place, node.groups))
        if node.all_keys:
            groups = tuple(item.value for item in items if not has_aggregate(item.value))
        query = sql.Select(
            items=tuple(items),
            source=source,
            where=sql.both(*scope.wheres, resolved(node.where)),
            groups=groups,
            sets=node.sets,
            having=resolved(node.having),
            distinct=node.distinct,
            order=tuple(replace(o, value=place(o.value, first=True)) for o in node.order),
            limit=self._count(node.limit),
            offset=self._count(node.offset),
            at=node.at,
        )
        self._check_picks(query, outer=outer)
        return query, tuple(labels)

    def _set_operation(
        self, node: sql.SetOperation, ctes: Mapping[str, _Cte], parent: _Scope | None
    ) -> tuple[sql.SetOperation, _Outputs]:
        ctes = self._with_ctes(node, ctes)
        parts = [self.query(query, ctes, parent) for query in node.queries]
        labels = parts[0][1]
        if any(len(each[1]) != len(labels) for each in parts):
            raise QueryError(f"{node.symbol} must be of queries with as many columns. Mend it.")
        lowered = [folded(label) for label in labels]

        def place(order: sql.Order) -> sql.Order:
            value = order.value
            if _is_whole(value):
                return order
            name = folded(value.name) if isinstance(value, sql.Column) else ""
            if name not in lowered or (isinstance(value, sql.Column) and value.source):
                reason = f"ORDER BY of {node.symbol} must name an output"
                raise self._refuse(value, reason, "Name one.")
            return replace(order, value=number(lowered.index(name) + 1))

        query = sql.SetOperation(
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

    def _check_picks(self, query: sql.Query, *, outer: bool) -> None:
        """Refuse a choice of rows by the order of storage."""
        for word, part in (("LIMIT", query.limit), ("OFFSET", query.offset)):
            if part is not None and not outer and not query.order:
                reason = "rows must not be picked by where they are stored"
                raise self._refuse(f"{word} {sql.write_sql(part)}", reason, "Say ORDER BY.")

    def _count(self, node: sql.Node | None) -> sql.Node | None:
        if node is not None and not _is_whole(node):
            raise self._refuse(node, "LIMIT and OFFSET must be whole numbers", "Write one.")
        return node

    # outputs and values

    def _outputs(
        self, item: sql.Item, scope: _Scope, aliases: _Aliases, *, outer: bool
    ) -> list[tuple[sql.Node, str]]:
        value = item.value
        if isinstance(value, sql.Star):
            return self._star(value, scope, outer=outer)
        label = item.name or (value.name if isinstance(value, sql.Column) else "")
        label = label or " ".join(fragment(self.text, item.at).split()).lower()
        return [(self._value(value, scope, aliases), label)]

    def _star(self, node: sql.Star, scope: _Scope, *, outer: bool) -> list[tuple[sql.Node, str]]:
        chosen = scope.sources
        if node.source:
            source = scope.find_source(folded(node.source))
            if source is None:
                raise self._refuse(node, "* must be of a source of the query", "Name one.")
            chosen = [source]
        if not chosen:
            raise self._refuse(node, "* must be of some table", "Say FROM.")
        odd = {name: kind for source in chosen for name, kind in source.refused.items()}
        for name in () if outer else odd:
            reason = f"* must be of numbers, texts, days or times; {name!r} is {odd[name]}"
            raise self._refuse(node, reason, "Name the columns.")
        columns = []
        merged = {} if node.source else scope.merged
        for source in chosen:
            for name, column in source.columns.items():
                if node.source or (source.name, name) not in scope.hidden:
                    value = merged.get((source.name, name), column)
                    columns.append((self._written(value, node), source.labels[name]))
        return columns

    def _value(
        self, node: sql.Node, scope: _Scope, aliases: _Aliases, *, first: bool = False
    ) -> sql.Node:
        """Return an expression with its columns written out; aliases where there is no column."""

        def resolved(part: sql.Node) -> sql.Node:
            self._count_nodes(1)
            if isinstance(part, sql.Column):
                return self._column(part, scope, aliases, first=first)
            if isinstance(part, sql.Star):
                raise self._refuse(part, "* must stand alone in SELECT or count", "Name a column.")
            if isinstance(part, sql.Nested):
                query, _ = self.query(part.query, scope.ctes, scope)
                operand = None if part.operand is None else resolved(part.operand)
                return replace(part, query=query, operand=operand)
            return sql.with_children(part, [resolved(each) for each in children(part)])

        return resolved(node)

    def _column(
        self, node: sql.Column, scope: _Scope, aliases: _Aliases, *, first: bool
    ) -> sql.Node:
        name = folded(node.name)
        if node.source:
            source = scope.find_source(folded(node.source))
            if source is not None and name in source.columns:
                return self._written(source.columns[name], node)
            kind = source.refused.get(name) if source is not None else None
            labels = list(source.labels.values()) if source is not None else scope.labels()
        else:
            if name in aliases and (first or not scope.find_here(name)):
                return self._written(aliases[name], node)
            columns = scope.find(name)
            if len(columns) > 1:
                reason = "a column must belong to one table"
                raise self._refuse(node, reason, "Write it as table.column.")
            if columns:
                return self._written(columns[0], node)
            kind, labels = scope.kind_of(name), scope.labels()
        if kind is not None:
            reason = f"columns must be numbers, texts, days or times, not {kind}"
            raise self._refuse(node, reason, "Make a plain column of it.")
        reason, advice = reason_against(name)
        if reason:
            raise self._refuse(node, reason, advice)
        shown = ", ".join(labels[:SHOWN_NAMES]) or "none"
        raise self._refuse(node, "columns must be those of the tables", f"There are {shown}.")

    def _written(self, value: sql.Node, at: sql.Node) -> sql.Node:
        """Return the meaning of a name; aliases of aliases would double with every word."""
        self._count_nodes(sum(1 for _ in walk(value)))
        return replace(value, at=at.at)

    def _count_nodes(self, n_nodes: int) -> None:
        self.n_nodes += n_nodes
        if self.n_nodes > MAX_NODES:
            raise QueryError(
                f"the query must have at most {MAX_NODES:,} parts once aliases are written out; "
                "got more. Write it with fewer."
            )

    # sources

    def _source(self, node: sql.Source, scope: _Scope, *, certain: bool = True) -> sql.Source:
        """Return a source of rows; ``certain`` if every row of the result has a row of it."""
        if isinstance(node, sql.Join):
            return self._join(node, scope, certain=certain)
        alias = self._alias()
        if isinstance(node, sql.Table):
            return self._table(node, scope, alias, certain=certain)
        around = scope if scope.sources else scope.parent
        made = self.query(node.query, scope.ctes, around)
        return self._add_query(node, node.alias or alias, *made, scope, alias, certain=certain)

    def _table(self, node: sql.Table, scope: _Scope, alias: str, *, certain: bool) -> sql.Source:
        name, shown = folded(node.path[-1]), node.alias or node.path[-1]
        if len(node.path) == 1 and name in scope.ctes:
            cte = scope.ctes[name]
            made = self.query(cte.query, cte.ctes, None)
            return self._add_query(node, shown, *made, scope, alias, certain=certain)
        declared = self.schema.find_table(name) if len(node.path) == 1 else None
        if declared is None:
            known = ", ".join(self.schema.names)
            reason = "tables must be those that were declared"
            raise self._refuse(node, reason, f"There are {known}.")
        types = self.schema.table_columns(declared)
        plain = [c for c, kind in types.items() if re.sub(r"\(.*\)", "", kind) in TYPES]
        other = {folded(c): kind for c, kind in types.items() if c not in plain}
        columns = [(c, sql.Column(name=c, source=alias)) for c in plain]
        self._add_columns(node, shown, columns, scope, other)
        return sql.Table(path=(declared,), alias=alias, at=node.at)

    def _add_query(
        self,
        node: sql.Node,
        name: str,
        query: sql.Query,
        labels: _Outputs,
        scope: _Scope,
        alias: str,
        *,
        certain: bool,
    ) -> sql.Source:
        """Return a subquery as a source; a choice of rows and columns is written in."""
        source = _picked_from(query) if certain else None
        if source is None:
            source = sql.Derived(query=query, alias=alias, at=node.at)
            values: list[sql.Node] = [
                sql.Column(name=f"c{i}", source=alias) for i in range(len(labels))
            ]
        else:
            assert isinstance(query, sql.Select)
            values = [item.value for item in query.items]
            scope.wheres += [] if query.where is None else [query.where]
        self._add_columns(node, name, list(zip(labels, values, strict=True)), scope, {})
        return source

    def _add_columns(
        self,
        node: sql.Node,
        name: str,
        labelled: Sequence[tuple[str, sql.Node]],
        scope: _Scope,
        refused: Mapping[str, str],
    ) -> None:
        if any(source.name == folded(name) for source in scope.sources):
            raise self._refuse(node, "sources must have different names", "Give one an alias.")
        columns: dict[str, sql.Node] = {}
        shown: dict[str, str] = {}
        for label, value in labelled:  # a second output of that name cannot be read
            columns.setdefault(folded(label), value)
            shown.setdefault(folded(label), label)
        scope.sources.append(_Visible(folded(name), columns, shown, refused))

    def _join(self, node: sql.Join, scope: _Scope, *, certain: bool) -> sql.Join:
        inner, start = node.kind in ("INNER", "CROSS"), len(scope.sources)
        left = self._source(node.left, scope, certain=certain and (inner or node.kind == "LEFT"))
        before = len(scope.sources)
        right = self._source(node.right, scope, certain=certain and inner)
        sides = scope.sources[start:before], scope.sources[before:]
        kind, condition = node.kind, None
        if node.using:
            names = map(folded, node.using)
            condition = sql.both(*(self._merge(node, name, scope, sides) for name in names))
        elif node.condition is not None:
            condition = self._value(node.condition, scope, {})
        if kind in ("SEMI", "ANTI"):
            del scope.sources[before:]
        return sql.Join(left=left, right=right, kind=kind, condition=condition, at=node.at)

    def _merge(
        self, node: sql.Join, name: str, scope: _Scope, sides: Iterable[Sequence[_Visible]]
    ) -> sql.Node:
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
        if node.kind not in ("SEMI", "ANTI"):
            scope.hidden.add((twin.name, name))
            scope.merged.pop((twin.name, name), None)
            either = operation("COALESCE", left, right) if node.kind == "FULL" else left
            scope.merged[mine.name, name] = right if node.kind == "RIGHT" else either
        return operation("=", left, right)


def _is_whole(node: sql.Node) -> TypeGuard[sql.Constant]:
    return isinstance(node, sql.Constant) and node.kind == "INTEGER"


def _picked_from(query: sql.Query) -> sql.Source | None:
    """Return the source of a query that only picks rows and computes columns of them."""
    if not isinstance(query, sql.Select):
        return None
    parts = (query.groups, query.sets, query.distinct, query.order, query.having, query.limit)
    if any(parts) or query.offset is not None:
        return None
    for value in (item.value for item in query.items):
        nodes = list(walk(value))
        if len(nodes) > MAX_PICKED or any(isinstance(part, sql.Window) for part in nodes):
            return None
        if has_aggregate(value):
            return None
    return query.source


def _no_position(value: sql.Node) -> sql.Node:
    """Return an output so that GROUP BY and ORDER BY never take it for the position of another."""
    bits = int(value.text).bit_length() if _is_whole(value) else 128
    if bits > 127:  # no whole number, or read as a float
        return value
    kind = "INTEGER" if bits < 32 else "BIGINT" if bits < 64 else "HUGEINT"
    return sql.Cast(operand=value, type=kind, at=value.at)


# --- questions about resolved queries ------------------------------------------------------------


def is_aggregate(node: sql.Node) -> bool:
    return isinstance(node, sql.Call) and node.name in AGGREGATES


def has_aggregate(node: sql.Node) -> bool:
    """Whether an expression has an aggregate, those of subqueries and windows apart."""
    if isinstance(node, sql.Nested):
        return node.operand is not None and has_aggregate(node.operand)
    if isinstance(node, sql.Window):
        return any(map(has_aggregate, children(node.call)))
    return is_aggregate(node) or any(map(has_aggregate, children(node)))


def reads_tables(node: sql.Node | None, tables: Collection[str]) -> bool:
    """Whether a part of a query reads one of some tables."""
    return any(isinstance(part, sql.Table) and part.path[-1] in tables for part in walk(node))


def row_sources(node: sql.Source | None) -> Iterator[sql.Source]:
    """Return the sources whose rows a FROM clause hands on, from left to right."""
    if isinstance(node, sql.Join):
        yield from row_sources(node.left)
        if node.kind not in ("SEMI", "ANTI"):
            yield from row_sources(node.right)
    elif node is not None:
        yield node


def outer_columns(query: sql.Query) -> list[sql.Column]:
    """Return the columns of a query that belong to a query around it."""
    inside = {part.alias for part in walk(query) if isinstance(part, sql.Table | sql.Derived)}
    columns = (part for part in walk(query) if isinstance(part, sql.Column) and part.source)
    return [column for column in columns if column.source not in inside]


def column_origin(column: sql.Node, query: sql.Node) -> tuple[str, str] | None:
    """Return the table and column that a column of ``query`` hands on, or None."""
    if not isinstance(column, sql.Column):
        return None
    for part in walk(query):
        if isinstance(part, sql.Table) and part.alias == column.source:
            return part.path[-1], column.name
        if isinstance(part, sql.Derived) and part.alias == column.source:
            inner = part.query
            if isinstance(inner, sql.Select) and not inner.sets:
                values = {item.name: item.value for item in inner.items}
                return column_origin(values[column.name], inner)
            return None
    return None
