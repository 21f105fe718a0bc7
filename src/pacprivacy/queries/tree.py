"""The SQL that is answered, as a tree of our own, and the text that is written from it.

A query reaches the engine only as text that :func:`write_sql` writes from this tree. What the tree
cannot hold cannot be said: there is no node for a file, a setting, a macro or a table function.
Every name that came from a person is written in quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, TypeGuard

NOWHERE: Final = (0, 0)
SUFFIXES: Final = {"IS NULL", "IS NOT NULL"}
BOUNDS: Final = {
    "UNBOUNDED_PRECEDING": "UNBOUNDED PRECEDING",
    "UNBOUNDED_FOLLOWING": "UNBOUNDED FOLLOWING",
    "CURRENT_ROW_RANGE": "CURRENT ROW",
    "CURRENT_ROW_ROWS": "CURRENT ROW",
    "EXPR_PRECEDING_ROWS": "PRECEDING",
    "EXPR_PRECEDING_RANGE": "PRECEDING",
    "EXPR_FOLLOWING_ROWS": "FOLLOWING",
    "EXPR_FOLLOWING_RANGE": "FOLLOWING",
}
_SMALL: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


# --- words ---------------------------------------------------------------------------------------


def folded(name: str) -> str:
    """Return a name so that those that are one to the engine are equal: only A to Z have a case."""
    return name.translate(_SMALL)


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoting:
    name: Callable[[str], str]
    text: Callable[[str], str]

    def named(self, alias: str) -> str:
        """Return ``AS name``; nothing without a name."""
        return f" AS {self.name(alias)}" if alias else ""


DUCKDB_QUOTING: Final = Quoting(name=quote, text=quote_text)


def write_sql(node: Node, quoting: Quoting = DUCKDB_QUOTING) -> str:
    return node._sql(quoting)


def _all(nodes: Iterable[Node], quoting: Quoting) -> str:
    return ", ".join(node._sql(quoting) for node in nodes)


def _after(word: str, node: Node | None, quoting: Quoting) -> str:
    """Return a clause; nothing where it has nothing to say."""
    return "" if node is None else f" {word} {node._sql(quoting)}"


# --- nodes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of a query; ``at`` is where it stands in the text, and no part of its meaning."""

    at: tuple[int, int] = field(default=NOWHERE, compare=False, repr=False)

    def _sql(self, quoting: Quoting) -> str:
        # There is no text for what must be replaced before anything is written.
        raise NotImplementedError(type(self).__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Node):
    kind: str
    text: str = ""

    def _sql(self, quoting: Quoting) -> str:
        if self.kind == "STRING":
            return quoting.text(self.text)
        return "NULL" if self.kind == "NULL_LITERAL" else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Node):
    name: str
    source: str = ""

    def _sql(self, quoting: Quoting) -> str:
        path = (self.source, self.name) if self.source else (self.name,)
        return ".".join(map(quoting.name, path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Star(Node):
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Node):
    """The share of the units that a candidate holds; replaced before anything is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Node):
    value: Node
    descending: bool = False
    nulls: str = ""

    def _sql(self, quoting: Quoting) -> str:
        text = self.value._sql(quoting) + " DESC" * self.descending
        return f"{text} {self.nulls}" if self.nulls else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    name: str
    arguments: tuple[Node, ...] = ()
    distinct: bool = False
    where: Node | None = None
    order: tuple[Order, ...] = ()

    def _sql(self, quoting: Quoting) -> str:
        text = "count(*)"
        if self.name != "count_star":
            order = f" ORDER BY {_all(self.order, quoting)}" if self.order else ""
            distinct = "DISTINCT " * self.distinct
            text = f"{self.name}({distinct}{_all(self.arguments, quoting)}{order})"
        return f"{text} FILTER (WHERE {self.where._sql(quoting)})" if self.where else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Node):
    """An operator between expressions: arithmetic, comparison, logic."""

    symbol: str
    operands: tuple[Node, ...]

    def _sql(self, quoting: Quoting) -> str:
        symbol, texts = self.symbol, [operand._sql(quoting) for operand in self.operands]
        if symbol in SUFFIXES:
            return f"({texts[0]} {symbol})"
        if symbol == "BETWEEN":
            return f"({texts[0]} BETWEEN {texts[1]} AND {texts[2]})"
        if symbol == "IN":
            return f"({texts[0]} IN ({', '.join(texts[1:])}))"
        if symbol in ("COALESCE", "GROUPING"):
            return f"{symbol}({', '.join(texts)})"
        return f"({symbol} {texts[0]})" if len(texts) == 1 else f"({f' {symbol} '.join(texts)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Node):
    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node

    def _sql(self, quoting: Quoting) -> str:
        branches = " ".join(
            f"WHEN {w._sql(quoting)} THEN {v._sql(quoting)}" for w, v in self.branches
        )
        return f"CASE {branches} ELSE {self.otherwise._sql(quoting)} END"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Node):
    """An expression as another type; NULL where that fails, if ``safe``."""

    operand: Node
    type: str
    safe: bool = False

    def _sql(self, quoting: Quoting) -> str:
        return f"{'TRY_' * self.safe}CAST({self.operand._sql(quoting)} AS {self.type})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Node):
    call: Call
    partition: tuple[Node, ...] = ()
    order: tuple[Order, ...] = ()
    frame: tuple[str, str] = ("", "")
    bounds: tuple[Node | None, Node | None] = (None, None)

    def _sql(self, quoting: Quoting) -> str:
        over = []
        if self.partition:
            over.append(f"PARTITION BY {_all(self.partition, quoting)}")
        if self.order:
            over.append(f"ORDER BY {_all(self.order, quoting)}")
        if self.frame != ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"):
            unit = "ROWS" if any("ROWS" in side for side in self.frame) else "RANGE"
            first, last = (
                f"{bound._sql(quoting)} {BOUNDS[side]}" if bound is not None else BOUNDS[side]
                for side, bound in zip(self.frame, self.bounds, strict=True)
            )
            over.append(f"{unit} BETWEEN {first} AND {last}")
        return f"{self.call._sql(quoting)} OVER ({' '.join(over)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested(Node):
    """A query as a value: ``SCALAR``, ``EXISTS``, or ``ANY`` (IN) with an operand."""

    kind: str
    query: Query
    operand: Node | None = None
    symbol: str = ""

    def _sql(self, quoting: Quoting) -> str:
        query = f"({self.query._sql(quoting)})"
        if self.operand is None:
            return f"EXISTS {query}" if self.kind == "EXISTS" else query
        symbol = "IN" if self.symbol == "=" else f"{self.symbol} ANY"
        return f"({self.operand._sql(quoting)} {symbol} {query})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Node):
    path: tuple[str, ...]
    alias: str = ""

    def _sql(self, quoting: Quoting) -> str:
        return ".".join(map(quoting.name, self.path)) + quoting.named(self.alias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Node):
    query: Query
    alias: str = ""

    def _sql(self, quoting: Quoting) -> str:
        return f"({self.query._sql(quoting)}){quoting.named(self.alias)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """Two sources, row by row; ``kind`` is the word before JOIN."""

    left: Source
    right: Source
    kind: str
    condition: Node | None = None
    using: tuple[str, ...] = ()

    def _sql(self, quoting: Quoting) -> str:
        right = self.right._sql(quoting)
        if isinstance(self.right, Join):
            right = f"({right})"
        text = f"{self.left._sql(quoting)} {self.kind} JOIN {right}"
        if self.using:
            return f"{text} USING ({', '.join(map(quoting.name, self.using))})"
        return text + _after("ON", self.condition, quoting)


Source = Table | Derived | Join


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Node):
    value: Node
    name: str = ""

    def _sql(self, quoting: Quoting) -> str:
        return self.value._sql(quoting) + quoting.named(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cte(Node):
    name: str
    query: Query

    def _sql(self, quoting: Quoting) -> str:
        return f"{quoting.name(self.name)} AS ({self.query._sql(quoting)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered(Node):
    """Optional parts of every query: WITH before it, ORDER BY, LIMIT and OFFSET behind it."""

    order: tuple[Order, ...] = ()
    limit: Node | None = None
    offset: Node | None = None
    ctes: tuple[Cte, ...] = ()

    def _around(self, text: str, quoting: Quoting) -> str:
        before = f"WITH {_all(self.ctes, quoting)} " if self.ctes else ""
        order = f" ORDER BY {_all(self.order, quoting)}" if self.order else ""
        limit, offset = _after("LIMIT", self.limit, quoting), _after("OFFSET", self.offset, quoting)
        return before + text + order + limit + offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Ordered):
    """A SELECT; ``all_keys`` is GROUP BY ALL, ``sets`` the keys of every grouping set."""

    items: tuple[Item, ...]
    source: Source | None = None
    where: Node | None = None
    groups: tuple[Node, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()
    all_keys: bool = False
    having: Node | None = None
    distinct: bool = False

    def _sql(self, quoting: Quoting) -> str:
        groups = f" GROUP BY {_all(self.groups, quoting)}" if self.groups else ""
        if self.all_keys:
            groups = " GROUP BY ALL"
        elif self.sets:
            sets = (f"({_all((self.groups[i] for i in chosen), quoting)})" for chosen in self.sets)
            groups = f" GROUP BY GROUPING SETS ({', '.join(sets)})"
        return self._around(
            f"SELECT {'DISTINCT ' * self.distinct}{_all(self.items, quoting)}"
            + _after("FROM", self.source, quoting)
            + _after("WHERE", self.where, quoting)
            + groups
            + _after("HAVING", self.having, quoting),
            quoting,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOperation(Ordered):
    symbol: str
    every: bool
    queries: tuple[Query, ...]

    def _sql(self, quoting: Quoting) -> str:
        word = f" {self.symbol}{' ALL' * self.every} "
        queries = word.join(f"({query._sql(quoting)})" for query in self.queries)
        return self._around(queries, quoting)


Query = Select | SetOperation


# --- walking and changing ------------------------------------------------------------------------


_PARTS: Final[dict[type[Node], tuple[str, ...]]] = {}


def _names(kind: type[Node]) -> tuple[str, ...]:
    if kind not in _PARTS:
        _PARTS[kind] = tuple(part.name for part in fields(kind) if part.name != "at")
    return _PARTS[kind]


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _nodes(part)


def children(node: Node) -> Iterator[Node]:
    for name in _names(type(node)):
        yield from _nodes(getattr(node, name))


def walk(node: Node | None, *, into_queries: bool = True) -> Iterator[Node]:
    """Return a node and all below it; queries that are values are entered if that is wanted."""
    if node is None:
        return
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        if into_queries or not isinstance(part, Nested):
            waiting.extend(children(part))
        elif part.operand is not None:
            waiting.append(part.operand)


def columns_read(query: Node) -> dict[Table, dict[str, None]]:
    """Return the tables that a query names, with the columns that it reads of each."""
    tables = {part.alias: part for part in walk(query) if isinstance(part, Table)}
    read: dict[Table, dict[str, None]] = {table: {} for table in tables.values()}
    for part in walk(query):
        if isinstance(part, Column) and part.source in tables:
            read[tables[part.source]][part.name] = None
    return read


def with_children(node: Node, new: Sequence[Node]) -> Node:
    """Return a node made of other nodes, in the order of :func:`children`."""
    remaining = iter(new)

    def placed(value: Any) -> Any:
        if isinstance(value, Node):
            return next(remaining)
        return tuple(map(placed, value)) if isinstance(value, tuple) else value

    return replace(node, **{name: placed(getattr(node, name)) for name in _names(type(node))})


def substitute(node: Node, new: Mapping[Any, Node]) -> Node:
    """Replace nodes that are equal to one of ``new``; what takes their place is left as it is."""
    if type(node) in {type(old) for old in new} and node in new:
        return new[node]
    parts = list(children(node))
    changed = [substitute(part, new) for part in parts]
    same = all(after is before for after, before in zip(changed, parts, strict=True))
    return node if same else with_children(node, changed)


# --- short forms ---------------------------------------------------------------------------------


def number(value: int | float) -> Node:
    """Return a number as a node: whole ones as they are, others as doubles with all digits."""
    if isinstance(value, int):
        return Constant(kind="INTEGER", text=str(value))
    return Cast(operand=Constant(kind="STRING", text=repr(value)), type="DOUBLE")


def call(name: str, *arguments: Node, where: Node | None = None, distinct: bool = False) -> Call:
    return Call(name=name, arguments=arguments, where=where, distinct=distinct)


def operation(symbol: str, *operands: Node) -> Operation:
    return Operation(symbol=symbol, operands=operands)


def _is_and(node: Node) -> TypeGuard[Operation]:
    return isinstance(node, Operation) and node.symbol == "AND"


def both(*conditions: Node | None) -> Node | None:
    """Return the condition that all of some hold."""
    # Flat, as the engine reads it: an AND within another would be a tree that no text gives.
    real = tuple(
        part
        for condition in conditions
        if condition is not None
        for part in (condition.operands if _is_and(condition) else (condition,))
    )
    return operation("AND", *real) if len(real) > 1 else real[0] if real else None


TRUE: Final = Constant(kind="BOOLEAN", text="true")
FALSE: Final = Constant(kind="BOOLEAN", text="false")
NULL: Final = Constant(kind="NULL_LITERAL")
