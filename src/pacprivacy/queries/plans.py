"""Two ways to ask a query of all worlds at once: sums over the units, and a column of worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pacprivacy.errors import QueryError
from pacprivacy.queries.query import (
    DIALECT,
    SHARE,
    Node,
    Query,
    is_query_aggregate,
    query_body,
    read_query,
    read_query_sql,
    refuse_query,
)
from pacprivacy.queries.tables import BLOCK, MEMBERS, UNIT, WHOLE, Tables, quote

NARROW: Final = 1e-5  # spreads below this share of the mean have few digits, whoever computes them
ROUNDED: Final = "its spread, which is small beside its mean, would be rounded in another way"

# --- sums per unit -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsPlan:
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
    crossings : tuple of str
        Queries of whether a left join finds rows of another unit: without that unit it would find
        none, and keep a row that is not there otherwise.
    """

    query: str
    n_sums: int
    cells: tuple[str, ...]
    crossings: tuple[str, ...]


def _uses_rows(tree: Node) -> bool:
    """Whether a table's name stands where a column does: a row as a value."""
    from sqlglot import exp

    here = {(id(t.parent_select), t.alias_or_name.lower()) for t in tree.find_all(exp.Table)}
    plain = (column for column in tree.find_all(exp.Column) if not column.table)
    return any((id(column.parent_select), column.name.lower()) in here for column in plain)


def sums_plan(query: Query, tables: Tables) -> SumsPlan | str:
    """Write a query's core as sums over units; or return why it cannot be."""
    core = read_query_sql(query.core)
    if _uses_rows(core):
        return "it uses rows as values"
    tree = _inlined(core, tables)
    if tree.args.get("with_") or tree.args.get("with"):
        return "it has common table expressions that cannot be written into it"
    unit = _unit_of_rows(tree, tables)
    if isinstance(unit, str):
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
    return SumsPlan(query=text, n_sums=len(sums), cells=tuple(cells), crossings=unit[2])


def joined_rows_plan(
    source: str, tables: Tables, columns: str = "*"
) -> tuple[str, tuple[str, ...]] | None:
    """Return a query for the rows of a FROM clause over all units, with the unit of each.

    It is in ``pac_u``; ``pac_two`` says whether a row has another one besides. The crossings are
    those of :class:`SumsPlan`. None where a row has no unit of its own, as that of a subquery.
    """
    if tables.spark is not None:
        raise QueryError(
            "a statistic of tables must have their rows here; got frames of Spark. Use pac.sql."
        )
    text = f"SELECT {columns} FROM {source}"
    tree = read_query(text, tables)
    read = {"expressions", "from", "from_", "joins", "laterals", "where", "kind"}
    for name, node in tree.args.items():
        if node and name not in read:
            raise refuse_query(
                text,
                node if hasattr(node, "sql") else name,
                "a table must be what stands after FROM: names, joins and WHERE",
                "Put the rest in a subquery: (SELECT ...).",
            )
    unit = _unit_of_rows(tree, tables)
    if isinstance(unit, str):
        return None
    first, two, crossings = unit
    body = _over_all(tree, tables)
    return f"SELECT {columns}, {first} AS pac_u, {two} AS pac_two {body}", crossings


def _inlined(tree: Node, tables: Tables) -> Node:
    """Write subqueries and common table expressions that only pick columns into the query."""
    from sqlglot import errors, exp, optimizer

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
        outer = (join.this for join in named.find_all(exp.Join) if join.side)
        own = {cte.alias_or_name for cte in named.find_all(exp.CTE)}
        if any(not isinstance(source, exp.Table) or source.name in own for source in outer):
            return named  # what it computes is missing where nothing matches
        return optimizer.merge_subqueries.merge_subqueries(named)
    except errors.SqlglotError:
        return tree


def _over_all(tree: Node, tables: Tables) -> str:
    """Return FROM and WHERE over the private tables of all units, which carry the unit."""
    from sqlglot import exp

    tree, private = tree.copy(), _lower(list(tables.private))
    for table in tree.find_all(exp.Table):
        if table.name.lower() in private:
            alias = exp.to_identifier(table.alias_or_name, quoted=True)
            table.set("db", exp.to_identifier(WHOLE))
            table.set("alias", exp.TableAlias(this=alias))
    return query_body(tree)


class _NoSumError(Exception):
    """An aggregate is no function of sums over units."""


def _unit_of_rows(tree: Node, tables: Tables) -> tuple[str, str, tuple[str, ...]] | str:
    """Return the unit of a joined row, when it has two, and crossings; or why there is none."""
    from sqlglot import exp

    private = {name.lower() for name in tables.private}
    sources = [(tree.args.get("from_") or tree.args.get("from")).this]
    nullable: dict[str, int] = {}
    certain: list[str] = []
    joins = tree.args.get("joins") or []
    for n, join in enumerate((None, *joins)):
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
            unit = f"{quote(source.alias_or_name)}.{UNIT}"
            if side == "LEFT":
                nullable[unit] = n
            else:
                certain.append(unit)
    if not certain:
        return "no private table stands first"
    for select in tree.find_all(exp.Select):
        if select is not tree and any(
            t.name.lower() in private for t in select.find_all(exp.Table)
        ):
            return "it reads private tables in a subquery"
    first = certain[0]
    other = [f"{name} != {first}" for name in certain[1:]]
    crossings = []
    for name, n in nullable.items():
        up_to = tree.copy()
        up_to.set("joins", [join.copy() for join in joins[:n]])
        up_to.set("where", None)
        crossings.append(f"SELECT bool_or({name} != {first}) {_over_all(up_to, tables)}")
    return first, " OR ".join(other) or "false", tuple(crossings)


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
    if is_query_aggregate(bare):
        text = _aggregate(bare, where, number, tree, tables)
        return read_query_sql(f"SELECT {text}").expressions[0]
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
    if tables.spark is not None:  # a mean of all rows must not stand in the plans that it shows
        return [f"(SELECT avg({x}) {_over_all(tree, tables)})" for x in asked]
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


# --- a column that says the world ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldsPlan:
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


def worlds_plan(query: Query, tables: Tables) -> WorldsPlan | str:
    """Write a core for several worlds at once; or return why that is not done.

    The core stands in a lateral subquery, once for every row of the table of worlds, and each
    private table in it is cut to the members of that row's world. So the engine itself puts the
    world into every join, group and set operation, at any depth.
    """
    from sqlglot import exp

    tree, private = read_query_sql(query.core), _lower(list(tables.private))
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
        members = read_query_sql(
            f"SELECT t.* EXCLUDE ({UNIT}) FROM {WHOLE}.{quote(table.name)} t JOIN {MEMBERS} m "
            f"ON t.{UNIT} = m.code WHERE m.world = {BLOCK}.world"
        )
        alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
        table.replace(exp.Subquery(this=members, alias=alias))
    for share in list(tree.find_all(exp.Placeholder)):
        share.replace(exp.column(SHARE, BLOCK))
    text = f"SELECT {BLOCK}.world, q.* FROM {BLOCK}, LATERAL ({tree.sql(dialect=DIALECT)}) q"
    return WorldsPlan(query=text, tables=tuple(read))


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
