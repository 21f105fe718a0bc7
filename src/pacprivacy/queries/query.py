"""What a query asks: its group keys, its cells, and what is done to them after the noise.

A query is taken apart once. Its *core* gives the cells of one world: group keys, and numbers that
are made of aggregates. What only arranges released cells (HAVING, ORDER BY, LIMIT, expressions of
keys) is done after the noise, on what was released.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pacprivacy.errors import QueryError
from pacprivacy.queries.tables import BLOCK, MEMBERS, RESERVED, UNIT, WHOLE, Tables, quote

Node = Any  # an expression of sqlglot, which is optional
DIALECT: Final = "duckdb"
SHARE: Final = "pac_share"  # stands for the share of the units that is in a world
CELLS: Final = "pac_cells"
NARROW: Final = 1e-5  # spreads below this share of the mean have few digits, whoever computes them
ROUNDED: Final = "its spread, which is small beside its mean, would be rounded in another way"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One number of every cell.

    Parameters
    ----------
    name : str
        As the query calls it.
    sql : str
        Its expression, of aggregates.
    counts : bool
        Whether it is a count, which is rounded after the noise.
    scaled : bool
        Whether it is an estimate for all units, of the share that is in a world.
    """

    name: str
    sql: str
    counts: bool
    scaled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query taken apart.

    Parameters
    ----------
    text : str
        As it was written.
    keys : tuple of str
        Expressions of the group keys; ``k0``, ``k1`` and so on in the core.
    columns : tuple of Column
        Numbers of a cell; ``c0``, ``c1`` and so on.
    sets : tuple of tuples of int
        Keys of every grouping set (ROLLUP, CUBE); empty where all keys are grouped by at once.
        Another key, the last one, then says which keys a cell is a subtotal over (GROUPING).
    body : str
        FROM and WHERE of the core, with what comes before it (WITH).
    none : str
        The same without any row.
    with_ : str
        Common table expressions.
    shown : tuple of pairs
        Expression over the released cells, and name, of every output.
    tail : str
        What is done to the released cells: WHERE, ORDER BY, LIMIT.
    key_names : tuple of str
        What the keys are called.
    """

    text: str
    keys: tuple[str, ...]
    key_names: tuple[str, ...]
    sets: tuple[tuple[int, ...], ...]
    columns: tuple[Column, ...]
    body: str
    none: str
    with_: str
    shown: tuple[tuple[str, str], ...]
    tail: str

    @property
    def n_keys(self) -> int:
        """Number of keys of a cell."""
        return len(self.keys) + bool(self.sets)

    @property
    def core(self) -> str:
        """The query of one world, whose share of the units is the parameter ``$pac_share``."""
        cells = [f"{column.sql} AS c{i}" for i, column in enumerate(self.columns)]
        shown = ", ".join((*self._keys(self.keys), *cells))
        return f"{self.with_}SELECT {shown} {self.body}{self._grouped(self.keys)}"

    def per_unit(self, keys: list[str], unit: str, sums: list[str], body: str) -> str:
        """Return the query of sums over the rows of every unit; keys as they are called there."""
        shown = ", ".join((*self._keys(keys), f"{unit} AS u", *sums))
        return f"SELECT {shown} {body}{self._grouped(keys, unit)}"

    def _keys(self, keys: Sequence[str]) -> list[str]:
        said = [f"GROUPING({', '.join(keys)})"] if self.sets else []
        return [f"{key} AS k{i}" for i, key in enumerate((*keys, *said))]

    def _grouped(self, keys: Sequence[str], *more: str) -> str:
        if self.sets:
            sets = [f"({', '.join((*(keys[i] for i in chosen), *more))})" for chosen in self.sets]
            return f" GROUP BY GROUPING SETS ({', '.join(sets)})"
        return f" GROUP BY {', '.join((*keys, *more))}" if keys or more else ""

    def is_subtotal(self, cell: Sequence[Any], key: int) -> bool:
        """Whether a cell is about all values of a key."""
        return bool(self.sets) and bool(cell[-1] >> (len(self.keys) - 1 - key) & 1)

    @property
    def nothing(self) -> str:
        """The cells of a group without rows: zero for counts and sums, NULL for most others."""
        cells = [f"{column.sql} AS c{i}" for i, column in enumerate(self.columns)]
        return f"{self.with_}SELECT {', '.join(cells)} {self.none}"


def refuse(text: str, node: Node | str, reason: str, advice: str) -> QueryError:
    """Return the error of a query that cannot be answered, with the fragment underlined."""
    fragment = node if isinstance(node, str) else node.sql(dialect=DIALECT)
    words = re.findall(r"\w+|[^\w\s]", fragment)
    found = re.search(r"\s*".join(map(re.escape, words)), text, re.IGNORECASE) if words else None
    shown = fragment if found is None else found.group()
    shown = " ".join(shown.split())
    return QueryError(f"{reason}; got «{shown[:80]}». {advice}")


def parse(text: str, tables: Tables) -> Query:
    """Take a query apart; refuse what cannot be answered with noise, and say why."""
    tree = _read(text)
    _check_sources(text, tree, tables)
    _check_functions(text, tree, tables)
    return _take_apart(text, tree, tables)


def _read(text: str) -> Node:
    try:
        import sqlglot
        from sqlglot import errors
    except ImportError as error:
        raise QueryError(
            "sql needs duckdb, sqlglot and pyarrow, which are not installed. "
            "Run: pip install 'pacprivacy[sql]'"
        ) from error
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect=DIALECT) if tree is not None]
    except errors.SqlglotError as error:
        first = (getattr(error, "errors", None) or [{}])[0]
        near = first.get("highlight") or ""
        raise refuse(text, near, "the query must be SQL that can be read", "Mend it.") from None
    if len(trees) != 1:
        raise QueryError(f"the query must be one statement; got {len(trees)}. Ask one at a time.")
    for node in trees[0].walk():
        node.comments = None
    return trees[0]


def _check_sources(text: str, tree: Node, tables: Tables) -> None:
    """Refuse everything but a SELECT over the tables that were declared."""
    from sqlglot import exp

    if not isinstance(tree, exp.Select):
        what = "a set operation" if isinstance(tree, exp.SetOperation) else type(tree).__name__
        raise refuse(
            text,
            tree if len(text) < 80 else text[:60],
            f"the query must be a SELECT of aggregates, not {what}",
            "Put the rest in a subquery: SELECT key, sum(x) FROM (...) GROUP BY key.",
        )
    own = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    known = {name.lower() for name in tables.names}
    private = {name.lower() for name in tables.private}
    found = False
    for table in tree.find_all(exp.Table):
        name = table.name.lower()
        said = {part for part, value in table.args.items() if value} - {"this", "alias", "joins"}
        if not isinstance(table.this, exp.Identifier) or said:
            raise refuse(
                text, table, "tables must be those that were declared", "Name one of them."
            )
        if name not in own and name not in known:
            raise refuse(
                text,
                table,
                "tables must be those that were declared",
                f"There are {', '.join(tables.names)}.",
            )
        found |= name in private and name not in own
    if own & known:
        clash = sorted(own & known)[0]
        raise QueryError(f"WITH must not reuse the name of a table; got «{clash}». Rename it.")
    for node in tree.find_all(exp.Into, exp.Command, exp.DML, exp.DDL):
        raise refuse(text, node, "the query must not write", "Only SELECT is answered.")
    for node in tree.find_all(exp.Identifier):
        if node.name.lower().startswith(RESERVED):
            raise refuse(text, node, "names must not begin with pac_", "Rename it.")
    if not found:
        raise QueryError(
            "the query must read a private table; it reads public ones only, so that its answer "
            "is public and needs no noise. Run it as it is."
        )


@lru_cache(maxsize=1)
def _unstable() -> frozenset[str]:
    """Return the functions of the engine whose value changes from run to run."""
    import duckdb

    rows = duckdb.connect(":memory:").execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability IS NOT NULL "
        "AND stability != 'CONSISTENT'"
    )
    named = {str(row[0]).lower() for row in rows.fetchall()}
    return frozenset(named | {"current_date", "current_time", "current_timestamp", "localtime"})


@lru_cache(maxsize=1)
def _aggregates() -> frozenset[str]:
    """Return the aggregates of the engine; the parser does not know them all."""
    import duckdb

    rows = duckdb.connect(":memory:").execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    )
    return frozenset(str(row[0]).lower() for row in rows.fetchall())


ORDERED: Final = re.compile(
    "first|last|any_value|arbitrary|list|array_agg|list_?agg|string_agg|group_concat|lttb|"
    "arg_?(min|max)(_nulls?(_last)?)?|(min|max)_by|approx_.*|reservoir_.*"
)
PICKS: Final = ("RowNumber", "Lag", "Lead", "FirstValue", "LastValue", "NthValue", "Ntile")


def _check_functions(text: str, tree: Node, tables: Tables) -> None:
    from sqlglot import exp

    ordered = exp.First | exp.Last | exp.AnyValue | exp.ArrayAgg | exp.GroupConcat
    for node in tree.find_all(exp.Func):
        written = node.sql(dialect=DIALECT)
        name = re.split(r"\W", written, maxsplit=1)[0].lower()
        now = name == "age" and len(node.expressions or list(node.args.values())) == 1
        if now or name in _unstable() or re.match("current_|session_|version$|getenv$", name):
            raise refuse(
                text,
                node,
                "functions must give the same value in every run",
                "Write the constant that you mean.",
            )
        if ORDERED.fullmatch(name) or isinstance(node, ordered):
            raise refuse(
                text,
                node,
                "aggregates must not depend on the order of rows, and must give numbers",
                "Use min, max or median.",
            )
    for node in tree.find_all(
        exp.TableSample, exp.Placeholder, exp.Parameter, exp.Pivot, exp.Columns
    ):
        raise refuse(text, node, "the query must say everything itself", "Write it out.")
    _check_picks(text, tree)


def _check_picks(text: str, tree: Node) -> None:
    """Refuse what picks rows by the order in which they happen to be stored."""
    from sqlglot import exp

    picks: list[Node] = [join for join in tree.find_all(exp.Join) if join.method == "POSITIONAL"]
    named = [w for s in tree.find_all(exp.Select) for w in s.args.get("windows") or ()]
    loose = any(not window.args.get("order") for window in named)
    for window in tree.find_all(exp.Window):
        inner = window.this.this if isinstance(window.this, exp.IgnoreNulls) else window.this
        ordered = window.args.get("order") or (window.alias and not loose)
        if type(inner).__name__ in PICKS and not ordered:
            picks.append(window)
    for select in tree.find_all(exp.Query):
        distinct = select.args.get("distinct")
        cut = select.args.get("limit") or select.args.get("offset")
        if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
            cut = distinct
        if cut is not None and select is not tree and not select.args.get("order"):
            picks.append(cut)
    for node in picks:
        raise refuse(
            text, node, "rows must not be picked by where they are stored", "Say ORDER BY."
        )


# --- keys, cells, and what comes after -----------------------------------------------------------


def _aggregates_of(node: Node) -> bool:
    """Whether a node itself is an aggregate over rows."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _aggregates()
    return isinstance(node, exp.AggFunc | exp.WithinGroup) and not isinstance(node, exp.Grouping)


def _is_aggregate(node: Node) -> bool:
    """Whether an expression has an aggregate, those of subqueries apart."""
    from sqlglot import exp

    return any(map(_aggregates_of, node.walk(prune=lambda part: isinstance(part, exp.Query))))


def _item(text: str, place: Node, items: Sequence[Any]) -> Any:
    """Return the output that a number in GROUP BY or ORDER BY stands for."""
    if not (place.name.isdigit() and 1 <= int(place.name) <= len(items)):
        raise refuse(text, place, f"positions must be 1 to {len(items)}", "Name the output.")
    return items[int(place.name) - 1]


def _groups(text: str, tree: Node, tables: Tables) -> tuple[list[Node], list[tuple[int, ...]]]:
    """Return the expressions that a query groups by, and those of each grouping set."""
    from sqlglot import exp

    items = tree.expressions
    group = tree.args.get("group")
    if group is None:
        return [], []
    if group.args.get("all"):
        return [item.unalias() for item in items if not _is_aggregate(item)], []
    named = {item.alias.lower(): item.unalias() for item in items if item.alias}

    def meant(key: Node) -> Node:
        """Write out a position or an alias; a column of that name goes before an alias."""
        if isinstance(key, exp.Literal) and not key.is_string:
            return _item(text, key, items).unalias()
        if isinstance(key, exp.Column) and not key.table and key.name.lower() in named:
            column = f"{_with(tree)}SELECT {key.sql(dialect=DIALECT)} {_body(tree)}"
            return key if tables.understands(column) else named[key.name.lower()]
        return key

    def sets_of(part: Node) -> list[list[Node]]:
        inner = part.expressions
        if isinstance(part, exp.GroupingSets):
            return [found for one in inner for found in sets_of(one)]
        if isinstance(part, exp.Rollup | exp.Cube):
            parts = [sets_of(one)[0] for one in inner]
            sizes = range(len(parts), -1, -1)
            chosen = (
                [parts[:n] for n in sizes]
                if isinstance(part, exp.Rollup)
                else [list(some) for n in sizes for some in itertools.combinations(parts, n)]
            )
            return [list(itertools.chain(*some)) for some in chosen]
        if isinstance(part, exp.Tuple | exp.Paren):
            return (
                [[found for one in inner or [part.this] for found in sets_of(one)[0]]]
                if (inner or part.this)
                else [[]]
            )
        return [[meant(part)]]

    keys: dict[str, Node] = {}
    sets: list[tuple[int, ...]] = []
    for chosen in itertools.product(*map(sets_of, group.expressions)):
        parts = {key.sql(dialect=DIALECT): key for key in itertools.chain(*chosen)}
        keys |= {sql: key for sql, key in parts.items() if sql not in keys}
        sets.append(tuple(sorted(list(keys).index(sql) for sql in parts)))
    if group.args.get("rollup") or group.args.get("cube") or len(set(sets)) < len(sets):
        raise refuse(text, group, "every grouping set must be there once", "Leave one out.")
    return list(keys.values()), ([] if sets == [tuple(range(len(keys)))] else sets)


def _take_apart(text: str, tree: Node, tables: Tables) -> Query:
    from sqlglot import exp

    for part, reason in (("distinct", "DISTINCT"), ("qualify", "QUALIFY"), ("windows", "WINDOW")):
        if tree.args.get(part):
            raise refuse(
                text,
                reason,
                f"the outer query must not use {reason}",
                "Put it in a subquery, or group by the columns.",
            )
    keys, sets = _groups(text, tree, tables)
    sqls = [key.sql(dialect=DIALECT) for key in keys]
    columns: list[Column] = []
    shown: list[tuple[str, str]] = []
    named: dict[str, str] = {}

    def column_of(node: Node, name: str) -> str:
        total = _with_totals(node)
        sql = total.sql(dialect=DIALECT)
        for i, known in enumerate(columns):
            if known.sql == sql:
                return f"c{i}"
        scaled = total.find(exp.Placeholder) is not None
        columns.append(Column(name=name, sql=sql, counts=_counts(node), scaled=scaled))
        return f"c{len(columns) - 1}"

    def over_cells(node: Node) -> Node:
        """Write an expression in terms of released cells."""

        def swap(part: Node) -> Node:
            sql = part.sql(dialect=DIALECT)
            if sql in sqls:
                return exp.column(f"k{sqls.index(sql)}")
            if isinstance(part, exp.Grouping):
                return _grouping(part, sqls)
            if isinstance(part, exp.Filter) or (_aggregates_of(part) and not _filtered(part)):
                return exp.column(column_of(part, sql.lower()))
            if isinstance(part, exp.Column) and not part.table and part.name.lower() in named:
                return _read(f"SELECT {named[part.name.lower()]}").expressions[0]
            return part

        swapped = node.copy().transform(swap)
        for left in swapped.find_all(exp.Column):
            if not re.fullmatch(r"[kc]\d+", left.name):
                raise refuse(
                    text,
                    left,
                    "every output must be an aggregate or a group key",
                    "Group by it, or aggregate it: rows of a private table are never shown.",
                )
        if swapped.find(exp.Select):
            raise refuse(
                text,
                swapped.find(exp.Select),
                "what is done to released cells must not read tables",
                "Put it in a subquery of FROM.",
            )
        return swapped

    for item in tree.expressions:
        bare = item.unalias()
        if isinstance(bare, exp.Star) or (isinstance(bare, exp.Column) and bare.is_star):
            raise refuse(
                text,
                item,
                "every output must be an aggregate or a group key",
                "Name what you want: rows of a private table are never shown.",
            )
        name = item.alias or bare.sql(dialect=DIALECT).lower()
        if isinstance(bare, exp.Column) and not item.alias:
            name = bare.name
        if _is_aggregate(bare) or bare.find(exp.Query):
            if bare.find(exp.Window):
                raise refuse(
                    text, bare, "the outer query must not use windows", "Put it in a subquery."
                )
            where = column_of(bare, name)
            if not bare.find(exp.Query):
                over_cells(bare)  # refuses columns beside the aggregates that are no keys
                del columns[int(where[1:]) + 1 :]
        else:
            where = over_cells(bare).sql(dialect=DIALECT)
        named[name.lower()] = where if re.fullmatch(r"[kc]\d+", where) else f"({where})"
        shown.append((where, name))
    if not (keys and columns) and not any(_is_aggregate(item) for item in tree.expressions):
        raise refuse(
            text,
            tree.expressions[0],
            "the query must have an aggregate",
            "Add one, such as count(*): rows of a private table are never shown.",
        )
    tail = ""
    if having := tree.args.get("having"):
        tail += f" WHERE {over_cells(having.this).sql(dialect=DIALECT)}"
    if order := tree.args.get("order"):
        ordered = [_ordered(text, part, over_cells, shown) for part in order.expressions]
        tail += f" ORDER BY {', '.join(ordered)}"
    for part in ("limit", "offset"):
        if found := tree.args.get(part):
            tail += " " + over_cells(found).sql(dialect=DIALECT)
    key_names = tuple(
        next((n for n, w in named.items() if w == f"k{i}"), sql) for i, sql in enumerate(sqls)
    )
    return Query(
        text=text,
        keys=tuple(sqls),
        key_names=key_names,
        sets=tuple(sets),
        columns=tuple(columns),
        body=_body(tree),
        none=_body(_without_rows(tree)),
        with_=_with(tree),
        shown=tuple(shown),
        tail=tail,
    )


def _ordered(
    text: str, part: Node, over_cells: Callable[[Node], Node], shown: list[tuple[str, str]]
) -> str:
    from sqlglot import exp

    inner = part.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        place = _item(text, inner, shown)[0]
    else:
        place = over_cells(inner).sql(dialect=DIALECT)
    nulls = {True: " NULLS FIRST", False: " NULLS LAST"}.get(part.args.get("nulls_first"), "")
    return f"{place}{' DESC' if part.args.get('desc') else ''}{nulls}"


def _grouping(node: Node, keys: list[str]) -> Node:
    """Write GROUPING of some keys in terms of that of all of them, which is the last key."""
    bits = []
    for place, asked in enumerate(reversed(node.expressions)):
        bit = len(keys) - 1 - keys.index(asked.sql(dialect=DIALECT))
        bits.append(f"((k{len(keys)} // {1 << bit} % 2) * {1 << place})")
    return _read(f"SELECT ({' + '.join(bits)})").expressions[0]


def _filtered(node: Node) -> bool:
    from sqlglot import exp

    return isinstance(node.parent, exp.Filter)


def _body(tree: Node) -> str:
    parts = [tree.args.get("from_") or tree.args.get("from"), *(tree.args.get("joins") or ())]
    parts += [tree.args.get("laterals") or [], tree.args.get("where")]
    texts: list[str] = []
    for part in parts:
        for one in part if isinstance(part, list) else [part]:
            if one is not None:
                texts.append(one.sql(dialect=DIALECT).lstrip(", "))
                if texts[-1:] and not re.match(r"(?i)from|.*join|where|,", texts[-1]):
                    texts[-1] = ", " + texts[-1]
    return " ".join(texts)


def _without_rows(tree: Node) -> Node:
    from sqlglot import exp

    empty = tree.copy()
    empty.set("where", exp.Where(this=exp.false()))
    return empty


def _with(tree: Node) -> str:
    found = tree.args.get("with_") or tree.args.get("with")
    return "" if found is None else found.sql(dialect=DIALECT) + " "


def _counts(node: Node) -> bool:
    """Whether an expression is a count, or counts added up."""
    from sqlglot import exp

    while isinstance(node, exp.Paren | exp.Filter | exp.Cast):
        node = node.this
    if isinstance(node, exp.Add | exp.Sub):
        return _counts(node.left) and _counts(node.right)
    return isinstance(node, exp.Count | exp.CountIf)


def _with_totals(node: Node) -> Node:
    """Write counts and sums as estimates for all units, zero where there are no rows."""
    from sqlglot import exp

    def swap(part: Node) -> Node:
        bare = part.this if isinstance(part, exp.Filter) else part
        if isinstance(bare, exp.Mode) and not _filtered(part):
            return _mode(part, bare)
        if not isinstance(bare, exp.Sum | exp.Count | exp.CountIf) or _filtered(part):
            return part
        inner = part.copy()
        value = exp.Coalesce(this=inner, expressions=[exp.Literal.number(0)])
        share = exp.Placeholder(this=SHARE)
        return exp.Paren(this=exp.Div(this=value, expression=share, typed=False))

    def walk(part: Node) -> Node:
        changed = swap(part)
        if changed is not part:
            return changed
        if isinstance(part, exp.Query) and not isinstance(part, exp.Subquery):
            # What a subquery shows is a total; what it reads are rows as they are.
            part.set("expressions", [walk(v) for v in part.expressions])
            return part
        for name, value in list(part.args.items()):
            if isinstance(value, list):
                part.set(name, [walk(v) if isinstance(v, exp.Expression) else v for v in value])
            elif isinstance(value, exp.Expression):
                part.set(name, walk(value))
        return part

    return walk(node.copy())


def _mode(node: Node, mode: Node) -> Node:
    """Write a mode so that it does not depend on the order of rows: the smallest of the commonest.

    A histogram has every value once, with how often it is there.
    """
    where = (
        f" FILTER (WHERE {node.expression.this.sql(dialect=DIALECT)})" if node is not mode else ""
    )
    seen = f"histogram({mode.this.sql(dialect=DIALECT)}){where}"
    often = f"list_filter(map_entries({seen}), lambda e: e.value = list_max(map_values({seen})))"
    return _read(f"SELECT list_min(list_transform({often}, lambda e: e.key))").expressions[0]


# --- the first plan: sums per unit ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """A core as sums over units.

    Parameters
    ----------
    query : str
        Group keys ``k0...``, unit ``u``, sums ``s0...`` over the unit's rows, and ``pac_two``:
        whether some row belongs to two units.
    n_sums : int
        Number of sums.
    cells : tuple of str
        The columns of the core as expressions of the sums over a world, and of ``pac_share``.
    """

    query: str
    n_sums: int
    cells: tuple[str, ...]


def _uses_rows(tree: Node) -> bool:
    """Whether a table's name stands where a column does: a row as a value."""
    from sqlglot import exp

    for column in tree.find_all(exp.Column):
        tables = column.parent_select.find_all(exp.Table) if not column.table else ()
        here = (table for table in tables if table.parent_select is column.parent_select)
        if any(table.alias_or_name.lower() == column.name.lower() for table in here):
            return True
    return False


def as_sums(query: Query, tables: Tables) -> Sums | str:
    """Write a query's core as sums over units; or return why it cannot be."""
    core = _read(query.core)
    if _uses_rows(core):
        return "it uses rows as values"
    tree = _inlined(core, tables)
    if tree.args.get("with_") or tree.args.get("with"):
        return "it has common table expressions that cannot be written into it"
    unit = _unit_of_rows(tree, tables)
    if not isinstance(unit, tuple):
        return unit
    sums: list[str] = []

    def number(sql: str) -> str:
        if sql not in sums:
            sums.append(sql)
        return f"s{sums.index(sql)}"

    cells: list[str] = []
    try:
        for item in tree.expressions[query.n_keys :]:
            cells.append(_of_sums(item.unalias().copy(), number, tree, tables).sql(dialect=DIALECT))
    except _NoSumError as error:
        return str(error)
    keys = [item.unalias().sql(dialect=DIALECT) for item in tree.expressions[: len(query.keys)]]
    shown = [f"{sql} AS s{i}" for i, sql in enumerate(sums)]
    shown.append(f"bool_or({unit[1]}) AS pac_two")
    text = query.per_unit(keys, unit[0], shown, _over_all(tree, tables))
    return Sums(query=text, n_sums=len(sums), cells=tuple(cells))


def _inlined(tree: Node, tables: Tables) -> Node:
    """Write subqueries and common table expressions that only pick columns into the query."""
    from sqlglot import errors, optimizer

    schema: dict[str, object] = {
        name: dict.fromkeys(tables.columns(name), "unknown") for name in tables.names
    }
    try:
        named = optimizer.qualify.qualify(
            tree.copy(),
            schema=schema,
            dialect=DIALECT,
            quote_identifiers=False,
            validate_qualify_columns=False,
        )
        return optimizer.merge_subqueries.merge_subqueries(named)
    except errors.SqlglotError:
        return tree


def _over_all(tree: Node, tables: Tables) -> str:
    """Return FROM and WHERE over the private tables of all units, which carry the unit."""
    from sqlglot import exp

    tree, private = tree.copy(), _lower(list(tables.private))
    for table in tree.find_all(exp.Table):
        if table.name.lower() in private:
            alias = table.alias_or_name
            table.set("db", exp.to_identifier(WHOLE))
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
    return _body(tree)


class _NoSumError(Exception):
    """An aggregate is no function of sums over units."""


def _unit_of_rows(tree: Node, tables: Tables) -> tuple[str, str] | str:
    """Return the unit of a joined row, and when it has two; or why there is none."""
    from sqlglot import exp

    private = {name.lower() for name in tables.private}
    sources = [(tree.args.get("from_") or tree.args.get("from")).this]
    nullable: list[str] = []
    certain: list[str] = []
    for join in (None, *(tree.args.get("joins") or ())):
        source = sources[0] if join is None else join.this
        if (join is not None and join.method) or source.args.get("joins"):
            return "it has a join of another kind"
        if not isinstance(source, exp.Table):
            if any(t.name.lower() in private for t in source.find_all(exp.Table)):
                return "it reads private tables in a subquery"
            continue
        side = "" if join is None else (join.side or "").upper()
        kind = "" if join is None else (join.kind or "").upper()
        if kind not in ("", "INNER", "CROSS", "OUTER") or side not in ("", "LEFT"):
            return f"it has a join of the kind {side} {kind}".rstrip()
        if side == "LEFT" and not certain:
            return "it keeps rows of a public table that match none of a private one"
        if source.name.lower() in private and not source.db:
            (nullable if side == "LEFT" else certain).append(f"{source.alias_or_name}.{UNIT}")
    if not certain:
        return "no private table stands first"
    for select in tree.find_all(exp.Select):
        if select is not tree and any(
            t.name.lower() in private for t in select.find_all(exp.Table)
        ):
            return "it reads private tables in a subquery"
    first = certain[0]
    other = [f"{name} != {first}" for name in certain[1:]]
    other += [f"({name} IS NOT NULL AND {name} != {first})" for name in nullable]
    return first, " OR ".join(other) or "false"


def _of_sums(node: Node, number: Callable[[str], str], tree: Node, tables: Tables) -> Node:
    """Write an expression of aggregates as one of sums over units."""
    from sqlglot import exp

    where = ""
    bare = node
    if isinstance(node, exp.Filter):
        where, bare = f" FILTER ({node.expression.sql(dialect=DIALECT)})", node.this
    if isinstance(bare, exp.Placeholder):
        return exp.column(SHARE)
    if isinstance(bare, exp.Column | exp.Grouping):
        raise _NoSumError("a number is made of aggregates and of group keys")
    if _aggregates_of(bare):
        text = _aggregate(bare, where, number, tree, tables)
        return _read(f"SELECT {text}").expressions[0]
    for name, value in list(node.args.items()):
        if isinstance(value, list):
            swapped = [
                _of_sums(v, number, tree, tables) if isinstance(v, exp.Expression) else v
                for v in value
            ]
            node.set(name, swapped)
        elif isinstance(value, exp.Expression):
            node.set(name, _of_sums(value, number, tree, tables))
    return node


def _aggregate(
    node: Node, where: str, number: Callable[[str], str], tree: Node, tables: Tables
) -> str:
    from sqlglot import exp

    def total(sql: str) -> str:
        return number(f"coalesce(sum({sql}){where}, 0)")

    arguments = [a.sql(dialect=DIALECT) for a in _arguments(node)]
    if isinstance(node, exp.Count):
        inner = node.this
        if isinstance(inner, exp.Distinct):
            asked = inner.expressions
            if len(asked) == 1 and _is_unit(asked[0], tree, tables):
                return number(f"(count({asked[0].sql(dialect=DIALECT)}){where} > 0)::INTEGER")
            raise _NoSumError("it counts distinct values")
        return number(f"count({arguments[0]}){where}")
    if node.find(exp.Distinct, exp.Order):
        raise _NoSumError(f"{node.sql(dialect=DIALECT)} is no sum over units")
    if isinstance(node, exp.CountIf):
        return total(f"({arguments[0]})::INTEGER")
    if isinstance(node, exp.Sum):
        return total(arguments[0])
    if isinstance(node, exp.Avg):
        return f"({total(arguments[0])} / nullif({number(f'count({arguments[0]}){where}')}, 0))"
    moments = _MOMENTS.get(type(node).__name__)
    if moments is None:
        raise _NoSumError(f"{node.sql(dialect=DIALECT)} is no function of sums over units")
    names: dict[str, str] = {}
    # About the mean of all rows: squares of large numbers would lose the digits that matter.
    middle = _middles(arguments, tree, tables)
    if len(arguments) == 1:
        x = f"(({arguments[0]})::DOUBLE - {middle[0]})"
        names = {
            "n": number(f"count({arguments[0]}){where}"),
            "x": total(x),
            "xx": total(f"{x}*{x}"),
        }
    else:
        both = " AND ".join(f"({a}) IS NOT NULL" for a in arguments)
        y, x = (
            f"CASE WHEN {both} THEN ({a})::DOUBLE - {c} END"
            for a, c in zip(arguments, middle, strict=True)
        )
        names = {"n": number(f"count(CASE WHEN {both} THEN 1 END){where}")}
        names |= {"x": total(x), "y": total(y), "xy": total(f"({x})*({y})")}
        names |= {"xx": total(f"({x})*({x})"), "yy": total(f"({y})*({y})")}
    return moments.format(**names)


def _middles(arguments: list[str], tree: Node, tables: Tables) -> list[str]:
    asked = [f"({argument})::DOUBLE" for argument in arguments]
    shown = ", ".join([f"avg({x})" for x in asked] + [f"stddev_pop({x})" for x in asked])
    text = f"SELECT {shown} {_over_all(tree, tables)}"
    if not tables.understands(text):  # names that could not be moved out of a subquery
        raise _NoSumError("it cannot be written as sums")
    (found,) = tables.rows(text)
    means = [value or 0.0 for value in found[: len(asked)]]
    for mean, spread in zip(means, found[len(asked) :], strict=True):
        if (spread or 0.0) < NARROW * abs(mean):
            raise _NoSumError(ROUNDED)
    return [f"({mean!r}::DOUBLE)" for mean in means]


# A difference at the level of rounding is zero: its root would not be small.
_XX: Final = "(CASE WHEN {xx} - {x}*{x}/{n} > 1e-13*{xx} THEN {xx} - {x}*{x}/{n} ELSE 0 END)"
_YY: Final = "(CASE WHEN {yy} - {y}*{y}/{n} > 1e-13*{yy} THEN {yy} - {y}*{y}/{n} ELSE 0 END)"
_XY: Final = "({xy} - {x}*{y}/{n})"
_MOMENTS: Final = {
    "Variance": f"CASE WHEN {{n}} > 1 THEN {_XX}/({{n}} - 1) END",
    "VariancePop": f"CASE WHEN {{n}} > 0 THEN {_XX}/{{n}} END",
    "Stddev": f"CASE WHEN {{n}} > 1 THEN sqrt({_XX}/({{n}} - 1)) END",
    "StddevSamp": f"CASE WHEN {{n}} > 1 THEN sqrt({_XX}/({{n}} - 1)) END",
    "StddevPop": f"CASE WHEN {{n}} > 0 THEN sqrt({_XX}/{{n}}) END",
    "CovarPop": f"CASE WHEN {{n}} > 0 THEN {_XY}/{{n}} END",
    "CovarSamp": f"CASE WHEN {{n}} > 1 THEN {_XY}/({{n}} - 1) END",
    "Corr": f"CASE WHEN {{n}} > 1 THEN {_XY}/nullif(sqrt({_XX})*sqrt({_YY}), 0) END",
    "RegrSlope": f"CASE WHEN {{n}} > 1 THEN {_XY}/nullif({_XX}, 0) END",
}


# --- the second plan: a column that says the world -----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """A core for several worlds in one query, whose first column is the world.

    Parameters
    ----------
    query : str
        Reads ``pac_block``, the worlds with their shares, and ``pac_members``, their units.
    tables : tuple of str
        Private tables as often as they are read.
    """

    query: str
    tables: tuple[str, ...]


def as_worlds(query: Query, tables: Tables) -> Worlds | str:
    """Write a core for several worlds at once; or return why that is not done.

    The core stands in a lateral subquery, once for every row of the table of worlds, and each
    private table in it is cut to the members of that row's world. So the engine itself puts the
    world into every join, group and set operation, at any depth.
    """
    from sqlglot import exp

    tree, private = _read(query.core), _lower(list(tables.private))
    for node in tree.find_all(exp.Window, exp.Limit, exp.Offset, exp.Fetch, exp.Distinct):
        if not isinstance(node, exp.Distinct) or node.args.get("on"):
            return "it picks or numbers rows"
    recursive = any(found.recursive for found in tree.find_all(exp.With))
    if recursive or any(j.method not in ("", "NATURAL") for j in tree.find_all(exp.Join)):
        return "it is recursive or has a join of another kind"
    read: list[str] = []
    for table in list(tree.find_all(exp.Table)):
        if table.name.lower() not in private:
            continue
        if table.args.get("joins"):
            return "it has joins in brackets"
        read.append(table.name)
        members = _read(
            f"SELECT t.* EXCLUDE ({UNIT}) FROM {WHOLE}.{quote(table.name)} t JOIN {MEMBERS} m "
            f"ON t.{UNIT} = m.code WHERE m.world = {BLOCK}.world"
        )
        alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
        table.replace(exp.Subquery(this=members, alias=alias))
    for share in list(tree.find_all(exp.Placeholder)):
        share.replace(exp.column(SHARE, BLOCK))
    text = f"SELECT {BLOCK}.world, q.* FROM {BLOCK}, LATERAL ({tree.sql(dialect=DIALECT)}) q"
    return Worlds(query=text, tables=tuple(read))


def _arguments(node: Node) -> list[Node]:
    from sqlglot import exp

    return [value for value in node.args.values() if isinstance(value, exp.Expression)]


def _is_unit(node: Node, tree: Node, tables: Tables) -> bool:
    """Whether a column holds the unit's key, in the table of units or in one that points to it."""
    from sqlglot import exp

    if not isinstance(node, exp.Column):
        return False
    sources = {t.alias_or_name.lower(): t.name for t in tree.find_all(exp.Table)}
    if node.table:
        holders = [sources[node.table.lower()]] if node.table.lower() in sources else []
    else:
        holders = [t for t in sources.values() if node.name.lower() in _lower(tables.columns(t))]
    return len(holders) == 1 and tables.is_key(holders[0], node.name)


def _lower(names: list[str]) -> set[str]:
    return {name.lower() for name in names}
