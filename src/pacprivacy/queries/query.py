"""Parts of a query: its group keys, and its cells.

The *core* of a query gives the cells of one candidate: group keys, and numbers that are made of
aggregates. What only arranges released cells (HAVING, ORDER BY, LIMIT, expressions of keys) is done
after the noise, on what was released.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from pacprivacy.errors import QueryError
from pacprivacy.queries import tree as sql
from pacprivacy.queries.engines import Columns, Row, arrow_of_tables, frame_of_tables
from pacprivacy.queries.grammar import checked_sql, empty_engine, fragment, refuse
from pacprivacy.queries.names import (
    column_origin,
    has_aggregate,
    is_aggregate,
    outer_columns,
    reads_tables,
    resolve_query,
    row_sources,
)
from pacprivacy.queries.tables import Tables
from pacprivacy.queries.tree import children, number, operation, walk

CELLS: Final = "pac_cells"
BESIDE: Final = ("noise", "low", "high")
PLACE: Final = "pac_place"
_Read = TypeVar("_Read")
MAX_SETS: Final = 2**10  # grouping sets of a query
COUNTS: Final = frozenset({"count", "count_star", "count_if"})
TOTALS: Final = COUNTS | {"sum", "sumkahan", "kahan_sum", "fsum"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellColumn:
    """One number of every cell; if it ``counts``, it is rounded after the noise."""

    name: str
    value: sql.Node
    counts: bool

    @property
    def scaled(self) -> bool:
        """Whether it is an estimate for all units, from the share that a candidate holds."""
        return any(isinstance(part, sql.Share) for part in walk(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellQuery:
    """A query taken apart.

    All names in ``select`` are resolved. ``keys`` are ``k0``, ``k1`` and so on in the core, numbers
    of a cell (``columns``) ``c0``, ``c1``. ``shown`` has expression over the released cells, and
    name, of every output; ``having`` and ``order`` are done to the released cells.
    """

    text: str
    select: sql.Select
    keys: tuple[sql.Node, ...]
    key_names: tuple[str, ...]
    columns: tuple[CellColumn, ...]
    shown: tuple[tuple[sql.Node, str], ...]
    having: sql.Node | None
    order: tuple[sql.Order, ...]

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """Keys of every grouping set (ROLLUP, CUBE), the last its GROUPING; empty without any."""
        return self.select.sets if self.keys else ()

    @property
    def n_keys(self) -> int:
        return len(self.keys) + bool(self.sets)

    def core(self, share: sql.Node) -> sql.Select:
        """Return the query of one candidate, which holds a share of the units."""
        return sql.Select(
            items=(*key_items(self.keys, sets=self.sets), *self._cells(share)),
            source=self.select.source,
            where=self.select.where,
            groups=self.keys,
            sets=self.sets,
        )

    def empty(self) -> sql.Select:
        """Return the cells of a group without rows: zero for counts and sums, NULL for most."""
        return sql.Select(
            items=self._cells(number(1.0)), source=self.select.source, where=sql.FALSE
        )

    def _cells(self, share: sql.Node) -> tuple[sql.Item, ...]:
        values = (with_share(column.value, share) for column in self.columns)
        return tuple(sql.Item(value=value, name=f"c{i}") for i, value in enumerate(values))

    def is_subtotal(self, cell: Row, key: int) -> bool:
        return bool(self.sets) and bool(cell[-1] >> (len(self.keys) - 1 - key) & 1)

    # names of columns and cells

    @property
    def column_names(self) -> list[str]:
        """Names of the columns; those that two share are numbered."""
        names: list[str] = []
        for column in self.columns:
            n = 2
            name = column.name
            while name in names:
                name, n = f"{column.name} ({n})", n + 1
            names.append(name)
        return names

    def cell_names(self, cells: Sequence[Row]) -> list[str]:
        """Write the keys of cells for people; a key that a subtotal is over is ``all``."""

        def name(cell: Row) -> str:
            words = []
            for i, key in enumerate(cell[: len(self.keys)]):
                missing = "all" if self.is_subtotal(cell, i) else "NULL"
                words.append(missing if key is None else str(key))
            return ", ".join(words)

        names = [name(cell) for cell in cells]
        return names if len(set(names)) == len(names) else [repr(cell) for cell in cells]

    # after the noise

    def frame(self, cells: Sequence[Row], columns: Columns) -> Any:
        """Return released cells, ``c0``, ``c0_noise`` and so on, as the query arranges them."""
        items = []
        for value, name in self.shown:
            items.append(sql.Item(value=value, name=name))
            cell = cell_column(value)
            items += [
                sql.Item(value=sql.Column(name=f"{cell}_{beside}"), name=f"{name} {beside}")
                for beside in BESIDE
                if f"{cell}_{beside}" in columns
            ]
        return self._over_released(cells, columns, items, frame_of_tables)

    def rows(self, cells: Sequence[Row], columns: Columns) -> list[list[Any]]:
        """Return the place among the cells of every row, and its outputs that are no column."""
        keys = [value for value, _ in self.shown if cell_column(value) not in columns]
        texts = [sql.Cast(operand=key, type="VARCHAR") for key in keys]
        items = [sql.Item(value=text, name=f"x{i}") for i, text in enumerate(texts)]
        place = sql.Item(value=sql.Column(name=PLACE), name=PLACE)

        def text(place: int, key: sql.Node, shown: str | None) -> str:
            if shown is not None:
                return shown
            over = [f"k{i}" for i in range(len(self.keys)) if self.is_subtotal(cells[place], i)]
            return "all" if cell_column(key) in over else "NULL"

        rows = self._over_released(cells, columns, [place, *items], lambda made: made.fetchall())
        return [
            [at, *(text(at, *each) for each in zip(keys, row, strict=True))] for at, *row in rows
        ]

    def check_arranged(self, cells: Sequence[Row]) -> None:
        """Arrange made-up numbers, so that errors come before any charge."""
        import duckdb

        columns = {f"c{i}": np.ones(len(cells)) for i in range(len(self.columns))}
        items = [sql.Item(value=value, name=f"x{i}") for i, (value, _) in enumerate(self.shown)]
        try:
            self._over_cells(cells, columns, items).fetchall()
        except duckdb.Error as error:
            kind = type(error).__name__.removesuffix("Exception")
            raise QueryError(
                "HAVING, ORDER BY and expressions of keys must fit released cells; they do not "
                f"({kind} error). Mend them."
            ) from None
        except OverflowError:
            raise QueryError(
                "keys must be numbers below 2^63; got one that is too large."
            ) from None

    def _over_released(
        self,
        cells: Sequence[Row],
        columns: Columns,
        items: Sequence[sql.Item],
        read: Callable[[Any], _Read],
    ) -> _Read:
        """Read released cells as they are arranged; all as they are where numbers forbid it."""
        import duckdb

        try:
            return read(self._over_cells(cells, columns, items))
        except duckdb.Error:  # a cast or a root, say: what is spent must be shown
            warnings.warn(
                "HAVING, ORDER BY and LIMIT cannot be taken of these released numbers (a cast out "
                "of range, say): all cells are shown, in the order of the keys.",
                stacklevel=2,
            )
            return read(self._over_cells(cells, columns, items, plain=True))

    def _over_cells(
        self,
        cells: Sequence[Row],
        columns: Columns,
        items: Sequence[sql.Item],
        *,
        plain: bool = False,
    ) -> Any:
        """Run a query of released cells, in an engine that has nothing else."""
        import duckdb

        table: dict[str, Any] = {f"k{i}": [cell[i] for cell in cells] for i in range(self.n_keys)}
        table |= {**columns, PLACE: np.arange(len(cells))}
        query = sql.Select(items=tuple(items), source=sql.Table(path=(CELLS,)))
        if not plain:
            limit, offset = self.select.limit, self.select.offset
            query = replace(query, where=self.having, order=self.order, limit=limit, offset=offset)
        text, engine = checked_sql(query), empty_engine()
        try:
            engine.register(CELLS, arrow_of_tables(table))
            return engine.sql(text)
        except duckdb.Error:
            empty_engine(anew=True)
            raise


def cell_column(value: sql.Node) -> str:
    """Return the column of cells that an output is; empty for expressions of them."""
    return value.name if isinstance(value, sql.Column) else ""


def key_items(keys: Sequence[sql.Node], *, sets: Sequence[Any]) -> tuple[sql.Item, ...]:
    """Return group keys as outputs; with grouping sets one more says which keys are summed over."""
    grouping = [operation("GROUPING", *keys)] if sets else []
    return tuple(sql.Item(value=key, name=f"k{i}") for i, key in enumerate((*keys, *grouping)))


def with_share(value: sql.Node, share: sql.Node) -> sql.Node:
    return sql.substitute(value, {sql.Share(): share})


def parse_query(text: str, tables: Tables) -> CellQuery:
    """Split a query into keys and cells; refuse a query that cannot have noise, with the reason.

    Guarantee
    ---------
    Claims Q-2, Q-4. Reads no row: a function of the text, and of names and types of columns.
    """
    select, labels = resolve_query(text, tables)
    if select.distinct:
        reason = "the outer query must not use DISTINCT"
        raise refuse(text, "DISTINCT", reason, "Put it in a subquery, or group by the columns.")
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
    return _Cells(text, select, tables).query(labels)


class _Cells:
    """The columns of a query, which grow while its outputs are read."""

    def __init__(self, text: str, select: sql.Select, tables: Tables) -> None:
        self.text, self.select, self.tables = text, select, tables
        self.keys = tuple(dict.fromkeys(select.groups))
        self.values: list[sql.Node] = []  # of the columns, as they were written
        self.columns: list[CellColumn] = []

    def refuse(self, node: sql.Node, reason: str, advice: str) -> QueryError:
        return refuse(self.text, node.at, reason, advice)

    def query(self, labels: Sequence[str]) -> CellQuery:
        select = self.select
        if select.sets and len(self.keys) < len(select.groups):
            raise QueryError("GROUP BY must name every key once; got one twice. Leave it out.")
        shown: list[tuple[sql.Node, str]] = []
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

    def key_name(self, key: sql.Node, labels: Sequence[str]) -> str:
        for item, label in zip(self.select.items, labels, strict=True):
            if item.value == key:
                return label
        return " ".join(fragment(self.text, key.at).split()) or "key"

    def output(self, item: sql.Item, label: str) -> sql.Node:
        value = item.value
        nested = any(isinstance(part, sql.Nested) for part in walk(value))
        if value in self.keys or not (has_aggregate(value) or nested):
            return self.over_cells(value)
        for part in walk(value, into_queries=False):
            if isinstance(part, sql.Window):
                reason = "the outer query must not use windows"
                raise self.refuse(part, reason, "Put it in a subquery.")
        self.check_columns(value)
        return self.column(value, label)

    def column(self, value: sql.Node, label: str) -> sql.Column:
        if value not in self.values:
            self.values.append(value)
            scaled = self.with_totals(value, self.select)
            column = CellColumn(name=label, value=scaled, counts=_counts(value))
            self.columns.append(column)
        return sql.Column(name=f"c{self.values.index(value)}")

    def check_columns(self, node: sql.Node) -> None:
        """Refuse columns beside the aggregates that are no keys."""
        if node in self.keys or is_aggregate(node) or isinstance(node, sql.Nested):
            return
        if isinstance(node, sql.Column):
            raise self.refuse(
                node,
                "every output must be an aggregate or a group key",
                "Group by it, or aggregate it: rows of a private table are never shown.",
            )
        for part in children(node):
            self.check_columns(part)

    def over_cells(self, node: sql.Node) -> sql.Node:
        if node in self.keys:
            return sql.Column(name=f"k{self.keys.index(node)}")
        if node in self.values:
            return sql.Column(name=f"c{self.values.index(node)}")
        if isinstance(node, sql.Operation) and node.symbol == "GROUPING":
            return self.grouping(node)
        if is_aggregate(node):
            name = " ".join(fragment(self.text, node.at).split()).lower()
            return self.column(node, name or "cell")
        if isinstance(node, sql.Nested):
            raise self.refuse(
                node,
                "what is done to released cells must not read tables",
                "Put it in a subquery of FROM.",
            )
        if isinstance(node, sql.Window):
            reason = "the outer query must not use windows"
            raise self.refuse(node, reason, "Put it in a subquery.")
        if isinstance(node, sql.Column):
            self.check_columns(node)
        return sql.with_children(node, [self.over_cells(part) for part in children(node)])

    def grouping(self, node: sql.Operation) -> sql.Node:
        """Write GROUPING of some keys in terms of that of all of them, which is the last key."""
        bits: list[sql.Node] = []
        if not self.select.sets:
            reason = "GROUPING must stand with ROLLUP, CUBE or GROUPING SETS"
            raise self.refuse(node, reason, "Leave it out.")
        for place, key in enumerate(reversed(node.operands)):
            if key not in self.keys:
                raise self.refuse(key, "GROUPING must be of group keys", "Name one.")
            bit = len(self.keys) - 1 - self.keys.index(key)
            every = sql.Column(name=f"k{len(self.keys)}")
            digit = operation("%", operation("//", every, number(1 << bit)), number(2))
            bits.append(operation("*", digit, number(1 << place)))
        return operation("+", *bits) if len(bits) > 1 else bits[0]

    # totals

    def with_totals(self, node: sql.Node, query: sql.Select) -> sql.Node:
        """Write counts and sums of private rows as estimates for all units.

        A total that belongs to a row, or is over public tables, does not grow with the units.
        """
        if isinstance(node, sql.Nested):
            return self._nested_totals(node) if query is self.select else node
        if not is_aggregate(node):
            parts = [self.with_totals(part, query) for part in children(node)]
            return sql.with_children(node, parts)
        if not self._grows(node, query):
            return node
        # No rows are a total of zero; a query inside has none then.
        total = operation("COALESCE", node, number(0)) if query is self.select else node
        return operation("/", total, sql.Share())

    def _nested_totals(self, node: sql.Nested) -> sql.Node:
        query = node.query
        if node.kind != "SCALAR" or not isinstance(query, sql.Select) or query.groups:
            return node
        if outer_columns(query):
            return node
        items = (replace(i, value=self.with_totals(i.value, query)) for i in query.items)
        return replace(node, query=replace(query, items=tuple(items)))

    def _grows(self, node: sql.Node, query: sql.Select) -> bool:
        """Whether an aggregate of a query is a total over rows of private tables."""
        if not (isinstance(node, sql.Call) and node.name in TOTALS):
            return False
        rows = row_sources(query.source)
        if not any(reads_tables(source, self.tables.private) for source in rows):
            return False
        if node.distinct:
            origin = column_origin(node.arguments[0], query)
            return node.name == "count" and origin is not None and self.tables.is_key(*origin)
        return True


def _counts(node: sql.Node) -> bool:
    while isinstance(node, sql.Cast):
        node = node.operand
    if isinstance(node, sql.Operation) and node.symbol in ("+", "-"):
        return all(map(_counts, node.operands))
    return isinstance(node, sql.Call) and node.name in COUNTS
