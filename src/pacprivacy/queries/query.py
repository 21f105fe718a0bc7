"""What a query asks: its group keys, its cells, and what is done to them after the noise.

A query is taken apart once. Its *core* gives the cells of one world: group keys, and numbers that
are made of aggregates. What only arranges released cells (HAVING, ORDER BY, LIMIT, expressions of
keys) is done after the noise, on what was released.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pacprivacy.errors import QueryError
from pacprivacy.queries.tables import RESERVED, Tables, quote

Node = Any  # an expression of sqlglot, which is optional
DIALECT: Final = "duckdb"
SHARE: Final = "pac_share"  # stands for the share of the units that is in a world
CELLS: Final = "pac_cells"
MOST_SUBTOTALS: Final = 10  # keys of a CUBE, which has 2^10 grouping sets then


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


def refuse_query(text: str, node: Node | str, reason: str, advice: str) -> QueryError:
    """Return the error of a query that cannot be answered, with the fragment underlined."""
    fragment = node if isinstance(node, str) else node.sql(dialect=DIALECT)
    words = re.findall(r"\w+|[^\w\s]", fragment)
    found = re.search(r"\s*".join(map(re.escape, words)), text, re.IGNORECASE) if words else None
    shown = fragment if found is None else found.group()
    shown = " ".join(shown.split())
    return QueryError(f"{reason}; got «{shown[:80]}». {advice}")


def parse_query(text: str, tables: Tables) -> Query:
    """Take a query apart; refuse what cannot be answered with noise, and say why."""
    return _take_apart(text, read_query(text, tables), tables)


def read_query(text: str, tables: Tables) -> Node:
    """Read a SELECT over declared tables whose value is the same in every run."""
    tree = read_query_sql(text)
    _check_sources(text, tree, tables)
    _check_functions(text, tree, tables)
    return tree


def read_query_sql(text: str) -> Node:
    """Return the tree of one statement, without its comments."""
    try:
        import sqlglot
        from sqlglot import errors
    except ImportError as error:
        raise QueryError(
            "sql needs duckdb, sqlglot and pyarrow, which are not installed. "
            "Run: pip install 'pacprivacy[sql]'"
        ) from error
    if re.search("[\0\ud800-\udfff]", text):  # names end at the one, the engine at the others
        raise QueryError("the query must be text; got a zero or half a character. Mend it.")
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect=DIALECT) if tree is not None]
    except errors.SqlglotError as error:
        first = (getattr(error, "errors", None) or [{}])[0]
        near = first.get("highlight") or ""
        raise refuse_query(
            text, near, "the query must be SQL that can be read", "Mend it."
        ) from None
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
        raise refuse_query(
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
            raise refuse_query(
                text, table, "tables must be those that were declared", "Name one of them."
            )
        if name not in own and name not in known:
            raise refuse_query(
                text,
                table,
                "tables must be those that were declared",
                f"There are {', '.join(tables.names)}.",
            )
        found |= name in private and name not in own
    for name in sorted(own):
        if tables.understands(f"SELECT 1 FROM {quote(name)}"):  # one of ours, or of the engine's
            raise QueryError(f"WITH must not reuse the name of a table; got «{name}». Rename it.")
    for node in tree.find_all(exp.Into, exp.Command, exp.DML, exp.DDL, exp.Summarize, exp.Describe):
        raise refuse_query(text, node, "the query must only read", "Only SELECT is answered.")
    for node in tree.find_all(exp.Identifier):
        if node.name.lower().startswith(RESERVED):
            raise refuse_query(text, node, "names must not begin with pac_", "Rename it.")
    if not found:
        raise QueryError(
            "the query must read a private table; it reads only tables that neither unit nor via "
            "names, which are public. If one has rows about people, name it in via (--via "
            "TABLE=COLUMN); if not, its answer is public and needs no noise: run it as it is."
        )


@lru_cache(maxsize=1)
def _unstable() -> frozenset[str]:
    """Return the functions of the engine whose value changes from run to run, with macros."""
    import duckdb

    rows = (
        duckdb.connect(":memory:")
        .execute(
            "SELECT DISTINCT lower(function_name), lower(macro_definition), stability "
            "FROM duckdb_functions() WHERE stability IS NULL OR stability != 'CONSISTENT'"
        )
        .fetchall()
    )
    named = {"current_date", "current_time", "current_timestamp", "localtime"}
    named |= {name for name, _, stability in rows if stability is not None}
    macros = {name for name, body, _ in rows if named & set(re.findall(r"\w+", body or ""))}
    return frozenset(named | macros)


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
PARTS: Final = ("with", "expressions", "from", "laterals", "joins", "where", "group")
ARRANGED: Final = ("having", "order", "limit", "offset")  # what is done to released cells
PICKS: Final = ("RowNumber", "Lag", "Lead", "FirstValue", "LastValue", "NthValue", "Ntile")


def _check_functions(text: str, tree: Node, tables: Tables) -> None:
    from sqlglot import exp

    ordered = exp.First | exp.Last | exp.AnyValue | exp.ArrayAgg | exp.GroupConcat
    for node in tree.find_all(exp.Func):
        if isinstance(node, exp.Connector):  # AND and OR: writing all of a long chain takes long
            continue
        written = node.sql(dialect=DIALECT)
        name = re.split(r"\W", written, maxsplit=1)[0].lower()
        now = name == "age" and len(node.expressions or list(node.args.values())) == 1
        if now or name in _unstable() or re.match("current_|session_|local|version$|getenv$", name):
            raise refuse_query(
                text,
                node,
                "functions must give the same value in every run",
                "Write the constant that you mean.",
            )
        if re.match("enum_|(pg_)?typeof$", name):
            raise refuse_query(
                text,
                node,
                "functions must not read the values that a type may have: a fact of all rows",
                "Write the values that you mean.",
            )
        if ORDERED.fullmatch(name) or isinstance(node, ordered):
            raise refuse_query(
                text,
                node,
                "aggregates must not depend on the order of rows, and must give numbers",
                "Use min, max or median.",
            )
    for node in tree.find_all(
        exp.TableSample, exp.Placeholder, exp.Parameter, exp.Pivot, exp.Columns
    ):
        raise refuse_query(text, node, "the query must say everything itself", "Write it out.")
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
        raise refuse_query(
            text, node, "rows must not be picked by where they are stored", "Say ORDER BY."
        )


# --- keys, cells, and what comes after -----------------------------------------------------------


def is_query_aggregate(node: Node) -> bool:
    """Whether a node itself is an aggregate over rows."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _aggregates()
    return isinstance(node, exp.AggFunc | exp.WithinGroup) and not isinstance(node, exp.Grouping)


def _has_aggregate(node: Node) -> bool:
    """Whether an expression has an aggregate, those of subqueries apart."""
    from sqlglot import exp

    return any(map(is_query_aggregate, node.walk(prune=lambda part: isinstance(part, exp.Query))))


def _item(text: str, place: Node, items: Sequence[Any]) -> Any:
    """Return the output that a number in GROUP BY or ORDER BY stands for."""
    if not (place.name.isdigit() and 1 <= int(place.name) <= len(items)):
        raise refuse_query(text, place, f"positions must be 1 to {len(items)}", "Name the output.")
    return items[int(place.name) - 1]


def _groups(text: str, tree: Node, tables: Tables) -> tuple[list[Node], list[tuple[int, ...]]]:
    """Return the expressions that a query groups by, and those of each grouping set."""
    from sqlglot import exp

    items = tree.expressions
    group = tree.args.get("group")
    if group is None:
        return [], []
    if group.args.get("all"):
        return [item.unalias() for item in items if not _has_aggregate(item)], []
    named = {item.alias.lower(): item.unalias() for item in items if item.alias}

    def meant(key: Node) -> Node:
        """Write out a position or an alias; a column of that name goes before an alias."""
        if isinstance(key, exp.Literal) and not key.is_string:
            return _item(text, key, items).unalias()
        if isinstance(key, exp.Column) and not key.table and key.name.lower() in named:
            column = f"{_with(tree)}SELECT {key.sql(dialect=DIALECT)} {query_body(tree)}"
            return key if tables.understands(column) else named[key.name.lower()]
        return key

    def sets_of(part: Node) -> list[list[Node]]:
        inner = part.expressions
        if isinstance(part, exp.GroupingSets):
            return [found for one in inner for found in sets_of(one)]
        if isinstance(part, exp.Rollup | exp.Cube):
            if len(inner) > MOST_SUBTOTALS:
                reason = f"ROLLUP and CUBE must be of at most {MOST_SUBTOTALS} keys"
                raise refuse_query(text, part, reason, "Name the sets that you want.")
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
    some = list(map(sets_of, group.expressions))
    if math.prod(map(len, some)) > 2**MOST_SUBTOTALS:
        reason = f"there must be at most {2**MOST_SUBTOTALS} grouping sets"
        raise refuse_query(text, group, reason, "Name the sets that you want.")
    for chosen in itertools.product(*some):
        parts = {key.sql(dialect=DIALECT): key for key in itertools.chain(*chosen)}
        keys |= {sql: key for sql, key in parts.items() if sql not in keys}
        sets.append(tuple(sorted(list(keys).index(sql) for sql in parts)))
    if group.args.get("rollup") or group.args.get("cube") or len(set(sets)) < len(sets):
        raise refuse_query(text, group, "every grouping set must be there once", "Leave one out.")
    return list(keys.values()), ([] if sets == [tuple(range(len(keys)))] else sets)


def _take_apart(text: str, tree: Node, tables: Tables) -> Query:
    from sqlglot import exp

    for part, said in tree.args.items():
        if said and part.rstrip("_") not in PARTS + ARRANGED:
            word = part.upper().rstrip("S")
            raise refuse_query(
                text,
                word,
                f"the outer query must not use {word}",
                "Put it in a subquery, or group by the columns.",
            )
    keys, sets = _groups(text, tree, tables)
    sqls, kinds = [key.sql(dialect=DIALECT) for key in keys], {type(key) for key in keys}
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
        cells: set[int] = set()  # columns of ours: tables may have some of the same names

        def ours(sql: str) -> Node:
            found = read_query_sql(f"SELECT {sql}").expressions[0]
            cells.update(map(id, found.find_all(exp.Column)))
            return found

        def swap(part: Node) -> Node:
            if type(part) in kinds and (sql := part.sql(dialect=DIALECT)) in sqls:
                return ours(f"k{sqls.index(sql)}")
            if isinstance(part, exp.Grouping):
                return ours(_grouping(part, sqls))
            if isinstance(part, exp.Filter) or (is_query_aggregate(part) and not _filtered(part)):
                return ours(column_of(part, part.sql(dialect=DIALECT).lower()))
            if isinstance(part, exp.Column) and not part.table and part.name.lower() in named:
                return ours(named[part.name.lower()])
            return part

        swapped = node.copy().transform(swap)
        for left in swapped.find_all(exp.Column):
            if id(left) not in cells:
                raise refuse_query(
                    text,
                    left,
                    "every output must be an aggregate or a group key",
                    "Group by it, or aggregate it: rows of a private table are never shown.",
                )
        if swapped.find(exp.Select):
            raise refuse_query(
                text,
                swapped.find(exp.Select),
                "what is done to released cells must not read tables",
                "Put it in a subquery of FROM.",
            )
        return swapped

    for item in tree.expressions:
        bare = item.unalias()
        if isinstance(bare, exp.Star) or (isinstance(bare, exp.Column) and bare.is_star):
            raise refuse_query(
                text,
                item,
                "every output must be an aggregate or a group key",
                "Name what you want: rows of a private table are never shown.",
            )
        name = item.alias or bare.sql(dialect=DIALECT).lower()
        if isinstance(bare, exp.Column) and not item.alias:
            name = bare.name
        if _has_aggregate(bare) or bare.find(exp.Query):
            if bare.find(exp.Window):
                raise refuse_query(
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
    if not (keys and columns) and not any(_has_aggregate(item) for item in tree.expressions):
        raise refuse_query(
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
        body=query_body(tree),
        none=query_body(_without_rows(tree)),
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


def _grouping(node: Node, keys: list[str]) -> str:
    """Write GROUPING of some keys in terms of that of all of them, which is the last key."""
    bits = []
    for place, asked in enumerate(reversed(node.expressions)):
        bit = len(keys) - 1 - keys.index(asked.sql(dialect=DIALECT))
        bits.append(f"((k{len(keys)} // {1 << bit} % 2) * {1 << place})")
    return f"({' + '.join(bits)})"


def _filtered(node: Node) -> bool:
    from sqlglot import exp

    return isinstance(node.parent, exp.Filter)


def query_body(tree: Node) -> str:
    """Return FROM, joins and WHERE of a query."""
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
    return read_query_sql(f"SELECT list_min(list_transform({often}, lambda e: e.key))").expressions[
        0
    ]
