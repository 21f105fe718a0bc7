"""The SQL that is answered, as a tree of our own, and the text that is written from it.

A query reaches the engine only as text that :func:`write_sql` writes from this tree. What the tree
cannot hold cannot be said: there is no node for a file, a setting, a macro or a table function.
Every name that came from a person is written in quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

NOWHERE: Final = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of a query; ``at`` is where it stands in the text, and no part of its meaning."""

    at: tuple[int, int] = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Node):
    """A number, a text, TRUE, FALSE or NULL."""

    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Node):
    """A column of a source, or of what is not named yet."""

    name: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Star(Node):
    """All columns of a source, or of all of them."""

    source: str = ""
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Node):
    """The share of the units that a candidate holds; replaced before anything is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Node):
    """An expression that rows are ordered by."""

    value: Node
    descending: bool = False
    nulls: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """A function or an aggregate of expressions."""

    name: str
    arguments: tuple[Node, ...] = ()
    distinct: bool = False
    where: Node | None = None
    order: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Node):
    """An operator between expressions: arithmetic, comparison, logic."""

    symbol: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Node):
    """Conditions with values, and the value where none holds."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Node):
    """An expression as another type; NULL where that fails, if ``safe``."""

    operand: Node
    type: str
    safe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Node):
    """A function over the rows beside each row."""

    call: Call
    partition: tuple[Node, ...] = ()
    order: tuple[Order, ...] = ()
    frame: tuple[str, str] = ("", "")
    bounds: tuple[Node | None, Node | None] = (None, None)
    ignore_nulls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested(Node):
    """A query as a value: ``SCALAR``, ``EXISTS``, or ``ANY`` (IN) with an operand."""

    kind: str
    query: Select | SetOperation
    operand: Node | None = None
    symbol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Node):
    """A table, by its path, under a name of its own."""

    path: tuple[str, ...]
    alias: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Node):
    """A query as a source of rows."""

    query: Select | SetOperation
    alias: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Values(Node):
    """Rows of constants."""

    rows: tuple[tuple[Node, ...], ...]
    alias: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """Two sources, row by row."""

    left: Source
    right: Source
    kind: str
    condition: Node | None = None
    using: tuple[str, ...] = ()


Source = Table | Derived | Values | Join


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Node):
    """An output of a query, and its name."""

    value: Node
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cte(Node):
    """A query with a name, for the query behind WITH."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Node):
    """A SELECT; ``all_keys`` is GROUP BY ALL, ``sets`` the keys of every grouping set."""

    items: tuple[Item, ...]
    source: Source | None = None
    where: Node | None = None
    groups: tuple[Node, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()
    all_keys: bool = False
    having: Node | None = None
    qualify: Node | None = None
    distinct: bool = False
    order: tuple[Order, ...] = ()
    limit: Node | None = None
    offset: Node | None = None
    ctes: tuple[Cte, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOperation(Node):
    """UNION, EXCEPT or INTERSECT of queries."""

    symbol: str
    every: bool
    queries: tuple[Select | SetOperation, ...]
    order: tuple[Order, ...] = ()
    limit: Node | None = None
    offset: Node | None = None
    ctes: tuple[Cte, ...] = ()


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
    """Return the nodes that a node is made of."""
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
    """Return a function of expressions."""
    return Call(name=name, arguments=arguments, where=where, distinct=distinct)


def operation(symbol: str, *operands: Node) -> Operation:
    """Return an operator between expressions."""
    return Operation(symbol=symbol, operands=operands)


def both(*conditions: Node | None) -> Node | None:
    """Return the condition that all of some hold."""
    real = tuple(condition for condition in conditions if condition is not None)
    return operation("AND", *real) if len(real) > 1 else real[0] if real else None


TRUE: Final = Constant(kind="BOOLEAN", text="true")
FALSE: Final = Constant(kind="BOOLEAN", text="false")
NULL: Final = Constant(kind="NULL_LITERAL")


# --- writing -------------------------------------------------------------------------------------

SUFFIXES: Final = {"IS NULL", "IS NOT NULL"}
JOINS: Final = {
    "CROSS": "CROSS JOIN",
    "INNER": "JOIN",
    "LEFT": "LEFT JOIN",
    "RIGHT": "RIGHT JOIN",
    "FULL": "FULL JOIN",
    "SEMI": "SEMI JOIN",
    "ANTI": "ANTI JOIN",
}
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


def folded(name: str) -> str:
    """Return a name so that those that are one to the engine are equal: only A to Z have a case."""
    return name.translate(_SMALL)


def quote(name: str) -> str:
    """Write a name so that SQL reads it as one."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    """Write a text so that SQL reads it as one."""
    return "'" + value.replace("'", "''") + "'"


def write_sql(node: Node) -> str:
    """Return the text of a node."""
    return _WRITERS[type(node)](node)


def _all(nodes: tuple[Node, ...]) -> str:
    return ", ".join(map(write_sql, nodes))


def _constant(node: Constant) -> str:
    if node.kind == "STRING":
        return quote_text(node.text)
    return "NULL" if node.kind == "NULL_LITERAL" else node.text


def _column(node: Column) -> str:
    return f"{quote(node.source)}.{quote(node.name)}" if node.source else quote(node.name)


def _order(node: Order) -> str:
    text = write_sql(node.value) + (" DESC" if node.descending else "")
    return f"{text} {node.nulls}" if node.nulls else text


def _call(node: Call) -> str:
    if node.name == "count_star":
        text = "count(*)"
    else:
        order = f" ORDER BY {_all(node.order)}" if node.order else ""
        distinct = "DISTINCT " if node.distinct else ""
        text = f"{node.name}({distinct}{_all(node.arguments)}{order})"
    return f"{text} FILTER (WHERE {write_sql(node.where)})" if node.where else text


def _operation(node: Operation) -> str:
    symbol, texts = node.symbol, [write_sql(operand) for operand in node.operands]
    if symbol in SUFFIXES:
        return f"({texts[0]} {symbol})"
    if symbol == "BETWEEN":
        return f"({texts[0]} BETWEEN {texts[1]} AND {texts[2]})"
    if symbol == "IN":
        return f"({texts[0]} IN ({', '.join(texts[1:])}))"
    if symbol in ("COALESCE", "GROUPING"):
        return f"{symbol}({', '.join(texts)})"
    if len(texts) == 1:
        return f"({symbol} {texts[0]})"
    return f"({f' {symbol} '.join(texts)})"


def _case(node: Case) -> str:
    branches = " ".join(f"WHEN {write_sql(w)} THEN {write_sql(v)}" for w, v in node.branches)
    return f"CASE {branches} ELSE {write_sql(node.otherwise)} END"


def _cast(node: Cast) -> str:
    return f"{'TRY_' * node.safe}CAST({write_sql(node.operand)} AS {node.type})"


def _window(node: Window) -> str:
    over = []
    if node.partition:
        over.append(f"PARTITION BY {_all(node.partition)}")
    if node.order:
        over.append(f"ORDER BY {_all(node.order)}")
    start, end = node.frame
    if (start, end) != ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"):
        unit = "ROWS" if "ROWS" in start + end else "RANGE"
        first, last = (
            f"{write_sql(bound)} {BOUNDS[side]}" if bound is not None else BOUNDS[side]
            for side, bound in zip(node.frame, node.bounds, strict=True)
        )
        over.append(f"{unit} BETWEEN {first} AND {last}")
    named = node.call
    ignored = " IGNORE NULLS" * node.ignore_nulls
    inner = f"{'DISTINCT ' * named.distinct}{_all(named.arguments)}{ignored}"
    text = "count(*)" if named.name == "count_star" else f"{named.name}({inner})"
    where = f" FILTER (WHERE {write_sql(named.where)})" if named.where else ""
    return f"{text}{where} OVER ({' '.join(over)})"


def _nested(node: Nested) -> str:
    query = f"({write_sql(node.query)})"
    if node.kind == "EXISTS":
        return f"EXISTS {query}"
    if node.operand is None:
        return query
    symbol = "IN" if node.symbol == "=" else f"{node.symbol} ANY"
    return f"({write_sql(node.operand)} {symbol} {query})"


def _alias(node: Table | Derived | Values) -> str:
    columns = f"({', '.join(map(quote, node.columns))})" if node.columns else ""
    return f" AS {quote(node.alias)}{columns}" if node.alias else ""


def _table(node: Table) -> str:
    return ".".join(map(quote, node.path)) + _alias(node)


def _derived(node: Derived) -> str:
    return f"({write_sql(node.query)}){_alias(node)}"


def _values(node: Values) -> str:
    rows = ", ".join(f"({_all(row)})" for row in node.rows)
    return f"(VALUES {rows}){_alias(node)}"


def _join(node: Join) -> str:
    left, right = write_sql(node.left), write_sql(node.right)
    if isinstance(node.right, Join):
        right = f"({right})"
    text = f"{left} {JOINS[node.kind]} {right}"
    if node.using:
        return f"{text} USING ({', '.join(map(quote, node.using))})"
    return f"{text} ON {write_sql(node.condition)}" if node.condition is not None else text


def _item(node: Item) -> str:
    return write_sql(node.value) + (f" AS {quote(node.name)}" if node.name else "")


def _with(ctes: tuple[Cte, ...]) -> str:
    return f"WITH {_all(ctes)} " if ctes else ""


def _cte(node: Cte) -> str:
    columns = f"({', '.join(map(quote, node.columns))})" if node.columns else ""
    return f"{quote(node.name)}{columns} AS ({write_sql(node.query)})"


def _ends(node: Select | SetOperation) -> str:
    text = f" ORDER BY {_all(node.order)}" if node.order else ""
    if node.limit is not None:
        text += f" LIMIT {write_sql(node.limit)}"
    return text + (f" OFFSET {write_sql(node.offset)}" if node.offset is not None else "")


def _groups(node: Select) -> str:
    if node.all_keys:
        return " GROUP BY ALL"
    if node.sets:
        sets = (f"({_all(tuple(node.groups[i] for i in chosen))})" for chosen in node.sets)
        return f" GROUP BY GROUPING SETS ({', '.join(sets)})"
    return f" GROUP BY {_all(node.groups)}" if node.groups else ""


def _select(node: Select) -> str:
    text = f"{_with(node.ctes)}SELECT {'DISTINCT ' * node.distinct}{_all(node.items)}"
    if node.source is not None:
        text += f" FROM {write_sql(node.source)}"
    if node.where is not None:
        text += f" WHERE {write_sql(node.where)}"
    text += _groups(node)
    if node.having is not None:
        text += f" HAVING {write_sql(node.having)}"
    if node.qualify is not None:
        text += f" QUALIFY {write_sql(node.qualify)}"
    return text + _ends(node)


def _set_operation(node: SetOperation) -> str:
    word = f" {node.symbol}{' ALL' * node.every} "
    return _with(node.ctes) + word.join(f"({write_sql(q)})" for q in node.queries) + _ends(node)


_WRITERS: Final[dict[type[Node], Callable[[Any], str]]] = {
    Constant: _constant,
    Column: _column,
    Order: _order,
    Call: _call,
    Operation: _operation,
    Case: _case,
    Cast: _cast,
    Window: _window,
    Nested: _nested,
    Table: _table,
    Derived: _derived,
    Values: _values,
    Join: _join,
    Item: _item,
    Cte: _cte,
    Select: _select,
    SetOperation: _set_operation,
}
