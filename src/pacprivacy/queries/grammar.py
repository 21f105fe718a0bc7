"""What SQL may say: the text of a query, read by the engine's own parser into our tree.

DuckDB parses the text and hands out its tree, so that nothing can mean one thing to us and another
to the engine. From that tree we take the listed parts and refuse the rest: kinds of nodes,
their parts, functions, types. Nothing is run, and no table is there.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from pacprivacy.errors import QueryError
from pacprivacy.queries import tree as sql

MAX_TEXT: Final = 100_000  # characters of a query


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCALARS: Final = _words(
    """
    abs ceil ceiling floor round trunc sign sqrt cbrt exp ln log log2 log10 pow power greatest least
    mod fmod sin cos tan asin acos atan atan2 degrees radians pi isnan isinf isfinite
    if nullif ifnull
    lower upper length len trim ltrim rtrim substr substring left right replace concat concat_ws
    starts_with ends_with prefix suffix contains strpos instr reverse split_part strip_accents
    regexp_matches regexp_full_match regexp_replace regexp_extract ascii chr
    year month day hour minute second quarter week weekofyear yearweek isoyear dayofweek weekday
    isodow dayofmonth dayofyear decade century millisecond microsecond dayname monthname last_day
    date_part datepart date_trunc datetrunc date_diff datediff date_sub datesub date_add make_date
    time_bucket strftime strptime try_strptime epoch epoch_ms age
    to_years to_months to_weeks to_days to_hours to_minutes to_seconds to_milliseconds
    to_microseconds to_quarters to_decades
    """
)
AGGREGATES: Final = _words(
    """
    count count_star count_if sum sumkahan kahan_sum fsum avg favg min max median
    quantile quantile_cont quantile_disc mode mad
    stddev stddev_samp stddev_pop variance var_samp var_pop covar_pop covar_samp corr
    regr_slope regr_intercept regr_r2 regr_avgx regr_avgy skewness kurtosis kurtosis_pop sem
    bool_and bool_or product geomean geometric_mean
    """
)
RANKS: Final = _words("rank dense_rank rank_dense percent_rank cume_dist")
PICKS: Final = _words("row_number lag lead first_value last_value nth_value ntile")
TYPES: Final = _words(
    """
    TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT FLOAT
    DOUBLE REAL DECIMAL NUMERIC BOOLEAN VARCHAR TEXT DATE TIME TIMESTAMP TIMESTAMP_S TIMESTAMP_MS
    TIMESTAMP_NS INTERVAL UUID
    """
) | {"TIMESTAMP WITH TIME ZONE"}

ARITHMETIC: Final = {symbol: symbol for symbol in _words("+ - * / // % ^ ||")} | {
    "**": "^",
    "~~": "LIKE",
    "!~~": "NOT LIKE",
    "~~*": "ILIKE",
    "!~~*": "NOT ILIKE",
}
COMPARISONS: Final = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}
OPERATORS: Final = {
    "OPERATOR_IS_NULL": "IS NULL",
    "OPERATOR_IS_NOT_NULL": "IS NOT NULL",
    "OPERATOR_NOT": "NOT",
    "OPERATOR_COALESCE": "COALESCE",
    "COMPARE_IN": "IN",
    "GROUPING_FUNCTION": "GROUPING",
    "CONJUNCTION_AND": "AND",
    "CONJUNCTION_OR": "OR",
}
WITHIN_GROUP: Final = {"quantile_cont": 1, "quantile_disc": 1, "mode": 0}  # arguments beside it
ARITIES: Final = {
    "age": (2,),
    "count_star": (0,),
    "min": (1,),
    "max": (1,),
    "mode": (1,),
    "ifnull": (2,),
    "nullif": (2,),
}
ALIASES: Final = {"position": "strpos", "countif": "count_if", "mean": "avg"}

# Why what is not on the lists is not: words for the refusal, nothing else.
REASONS: Final = (
    (
        r"random|now|today|current_.*|get_current_.*|local.*|session_.*|transaction_.*|uuid\w*|"
        r"gen_random_uuid|setseed|ago|pg_sleep|sleep\w*|assert_true|error|getenv|getvariable|"
        r"nextval|currval|version|txid_.*",
        "functions must give the same value in every run, and must not stop a run",
        "Write the constant that you mean.",
    ),
    (
        r"enum_.*|(pg_)?typeof|can_cast_implicitly|.*type.*",
        "functions must not read the values that a type may have: a fact of all rows",
        "Write the values that you mean.",
    ),
    (
        r"first|last|any_value|arbitrary|list|array_agg|list_?agg|string_agg|group_concat|lttb|"
        r"arg_?(min|max)(_nulls?(_last)?)?|(min|max)_by|approx_.*|reservoir_.*|histogram.*",
        "aggregates must not depend on the order of rows, and must give numbers",
        "Use min, max or median.",
    ),
)

# By process and thread. A fork leaves those of its parent alone: to close one there is to wait for
# threads that it does not have.
_EMPTY: Final[dict[tuple[int, int], Any]] = {}


def open_engine(**options: Any) -> Any:
    """Return an engine whose numbers do not depend on threads, zones, or names of the program."""
    import duckdb

    # One thread: sums of floats come out the same, to the last bit, in every run.
    config = {"threads": 1, "preserve_insertion_order": True, "python_enable_replacements": False}
    connection = duckdb.connect(":memory:", config={**config, **options})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


def close_engine(connection: Any, files: Sequence[str] = ()) -> None:
    """Let an engine read these files and no others, whatever it is asked, from here on."""
    listed = ", ".join(map(sql.quote_text, files))
    connection.execute(
        f"SET allowed_paths = [{listed}]; SET enable_external_access = false; "
        "SET lock_configuration = true"
    )


def empty_engine(*, anew: bool = False) -> Any:
    """Return this thread's engine without tables; ``anew`` if the last one may be broken."""
    owner = os.getpid(), threading.get_ident()
    if anew or owner not in _EMPTY:
        _EMPTY[owner] = open_engine()
        close_engine(_EMPTY[owner])
    return _EMPTY[owner]


def refuse(text: str, at: tuple[int, int] | str, reason: str, advice: str) -> QueryError:
    """Return the error of a query that is not answered, with the part of it that is meant."""
    part = at if isinstance(at, str) else fragment(text, at)
    shown = " ".join(part.split())
    got = f"; got «{shown[:80]}»" if shown else ""
    return QueryError(f"{reason}{got}. {advice}")


def is_seen(character: str) -> bool:
    return character.isprintable() or character in "\n\r\t"


def reason_against(name: str) -> tuple[str, str]:
    """Return why a function is not answered, and what to write; empty if nothing more is known."""
    for pattern, reason, advice in REASONS:
        if re.fullmatch(pattern, name):
            return reason, advice
    return "", ""


def fragment(text: str, at: tuple[int, int]) -> str:
    """Return the part of a text that stands at a place, which the engine counts in bytes."""
    start, length = at
    whole = text.encode()
    return whole[start : start + length].decode(errors="replace") if length else ""


def read_sql(text: str) -> sql.Query:
    """Return the tree of one SELECT; a QueryError names the part that is not allowed.

    Guarantee
    ---------
    Claim Q-2. Holds no node, function or type that is not listed here.
    """
    if len(text) > MAX_TEXT:
        raise QueryError(
            f"the query must have at most {MAX_TEXT:,} characters; got {len(text):,}. Shorten it."
        )
    for character in text:
        if not is_seen(character):
            raise QueryError(
                "the query must be of characters that can be seen; got one that cannot "
                f"(U+{ord(character):04X}). Remove this character."
            )
    parsed = _parse(text)
    if parsed["error"]:
        raise _unread(text, parsed)
    statements = parsed["statements"]
    if len(statements) != 1:
        raise QueryError(
            f"the query must be one statement; got {len(statements)}. Ask one at a time."
        )
    return _Reader(text).query(statements[0]["node"])


@lru_cache(maxsize=256)
def checked_sql(node: sql.Query) -> str:
    """Write a query, and make sure that the engine reads the same tree from the text."""
    text = sql.write_sql(node)
    if read_sql(text) != node:
        raise QueryError(
            "the query must mean the same when it is written anew; it does not. Please report it, "
            "and write it in another way."
        )
    return text


def _parse(text: str) -> dict[str, Any]:
    import duckdb

    try:
        (row,) = empty_engine().execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    except duckdb.Error:
        empty_engine(anew=True)
        raise QueryError(
            "the query must be SQL that can be read; its depth or its numbers cannot. Write it "
            "flat."
        ) from None
    parsed: dict[str, Any] = json.loads(row[0])
    return parsed


def _unread(text: str, parsed: Mapping[str, Any]) -> QueryError:
    if parsed.get("error_type") == "parser":
        place = re.match(r"\[(\d+),(\d+)\]", str(parsed.get("location", "")))
        if place is None:
            words = str(parsed.get("error_message", "")).rstrip(".")
            raise QueryError(
                f"the query must be SQL that can be read; it cannot: {words}. Mend it, or write "
                "it with fewer brackets, keys or queries inside each other."
            )
        near = fragment(text, (int(place[1]), int(place[2]))) or text[-20:]
        return refuse(text, near, "the query must be SQL; it cannot be read from here", "Mend it.")
    if "arameter" in str(parsed.get("error_message")):
        mark = re.search(r"[$?]\w*", text)
        reason, advice = "the query must say everything itself", "Write the value that you mean."
        return refuse(text, mark[0] if mark else "", reason, advice)
    return refuse(
        text,
        text[:60],
        "the query must be a SELECT of aggregates",
        "Only SELECT is answered, and it only reads.",
    )


_Parsed = dict[str, Any]  # a node of the engine's tree, as JSON
_Ended = TypeVar("_Ended", sql.Select, sql.SetOperation)


class _Reader:
    """From the engine's tree to ours, one method a kind of node."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _refuse(self, part: Any, reason: str, advice: str) -> QueryError:
        place = part if isinstance(part, str) else _place(part)
        return refuse(self.text, place, reason, advice)

    def _parts(self, node: _Parsed, allowed: str, what: str) -> None:
        """Refuse a node with a part that is not listed, unless it is empty."""
        known = set(allowed.split()) | {"type", "class", "query_location", "query_location_length"}
        for name, value in node.items():
            if name not in known and value not in (None, "", [], {}, False):
                word = name.upper().replace("_", " ")
                raise self._refuse(node, f"{what} must not use {word}", "Leave it out.")

    # queries

    def query(self, node: _Parsed) -> sql.Query:
        kind = node["type"]
        if kind == "SELECT_NODE":
            return self._select(node)
        if kind == "SET_OPERATION_NODE":
            return self._set_operation(node)
        if kind == "RECURSIVE_CTE_NODE":
            raise self._refuse(node, "WITH must not be recursive", "Write out the steps.")
        raise self._refuse(node, "the query must be a SELECT", "Write it as one.")

    def _select(self, node: _Parsed) -> sql.Select:
        self._parts(
            node,
            "modifiers cte_map select_list from_table where_clause group_expressions group_sets "
            "aggregate_handling having",
            "SELECT",
        )
        groups = tuple(map(self._value, node["group_expressions"]))
        sets = tuple(tuple(chosen) for chosen in node["group_sets"])
        handling = node["aggregate_handling"]
        if handling not in ("STANDARD_HANDLING", "FORCE_AGGREGATES"):
            raise self._refuse(node, "GROUP BY must be plain", "Name the keys.")
        query = sql.Select(
            items=tuple(map(self._item, node["select_list"])),
            source=self._source(node["from_table"]),
            where=self._maybe(node["where_clause"]),
            groups=groups,
            sets=() if groups and sets == (tuple(range(len(groups))),) else sets,
            all_keys=handling == "FORCE_AGGREGATES",
            having=self._maybe(node["having"]),
            distinct=any(m["type"] == "DISTINCT_MODIFIER" for m in node["modifiers"]),
            ctes=self._ctes(node["cte_map"]),
        )
        return self._ended(query, node["modifiers"])

    def _set_operation(self, node: _Parsed) -> sql.SetOperation:
        self._parts(node, "modifiers cte_map setop_type setop_all children", "a set operation")
        if node["setop_type"] not in ("UNION", "EXCEPT", "INTERSECT"):
            raise self._refuse(node, "UNION must be by position", "List the columns in order.")
        if any(m["type"] == "DISTINCT_MODIFIER" for m in node["modifiers"]):
            raise self._refuse(node, "DISTINCT must stand in a SELECT", "Write it there.")
        query = sql.SetOperation(
            symbol=node["setop_type"],
            every=bool(node.get("setop_all")),
            queries=tuple(map(self.query, node["children"])),
            ctes=self._ctes(node["cte_map"]),
        )
        return self._ended(query, node["modifiers"])

    def _ctes(self, node: _Parsed) -> tuple[sql.Cte, ...]:
        ctes = []
        for entry in node["map"]:
            value = entry["value"]
            query = self.query(value["query_node"])
            self._parts(value, "materialized query_node", "WITH")
            ctes.append(sql.Cte(name=self._name(entry["key"]), query=query))
        return tuple(ctes)

    def _ended(self, query: _Ended, modifiers: list[_Parsed]) -> _Ended:
        for node in modifiers:
            kind = node["type"]
            if kind == "DISTINCT_MODIFIER":
                if node.get("distinct_on_targets"):
                    reason = "rows must not be picked by where they are stored"
                    raise self._refuse("DISTINCT ON", reason, "Use min or max.")
            elif kind == "ORDER_MODIFIER":
                query = replace(query, order=tuple(map(self._order, node["orders"])))
            elif kind == "LIMIT_MODIFIER" and node["limit_type"] == "ROW_COUNT":
                limit, offset = self._maybe(node.get("limit")), self._maybe(node.get("offset"))
                query = replace(query, limit=limit, offset=offset)
            else:
                raise self._refuse(kind, "LIMIT must be a number of rows", "Write one.")
        return query

    def _order(self, node: _Parsed) -> sql.Order:
        directions = {"ORDER_DEFAULT": False, "ASCENDING": False, "DESCENDING": True}
        nulls = {"ORDER_DEFAULT": "", "NULLS FIRST": "NULLS FIRST", "NULLS LAST": "NULLS LAST"}
        return sql.Order(
            value=self._value(node["expression"]),
            descending=directions[node["type"]],
            nulls=nulls[node["null_order"]],
        )

    def _item(self, node: _Parsed) -> sql.Item:
        name = self._name(node["alias"]) if node["alias"] else ""
        return sql.Item(value=self._value(node), name=name, at=_place(node))

    # sources

    def _source(self, node: _Parsed) -> sql.Source | None:
        kind = node["type"]
        if kind == "EMPTY":
            return None
        if kind == "JOIN":
            return self._join(node)
        alias = self._name(node["alias"]) if node["alias"] else ""
        if kind == "BASE_TABLE":
            self._parts(
                node,
                "alias schema_name table_name catalog_name qualified_name",
                "a table",
            )
            parts = (node["catalog_name"], node["schema_name"], node["table_name"])
            path = tuple(self._name(part) for part in parts if part)
            return sql.Table(path=path, alias=alias, at=_place(node))
        if kind == "SUBQUERY":
            self._parts(node, "alias subquery", "a subquery")
            query = self.query(node["subquery"]["node"])
            return sql.Derived(query=query, alias=alias, at=_place(node))
        raise self._refuse(node, "sources must be declared tables or subqueries", "Name one.")

    def _join(self, node: _Parsed) -> sql.Join:
        self._parts(
            node,
            "alias left right condition join_type ref_type using_columns is_implicit "
            "nearest_count nearest_order_type",
            "a join",
        )
        kind, how = str(node["join_type"]), str(node["ref_type"])
        if how == "POSITIONAL":
            reason = "rows must not be joined by where they are stored"
            raise self._refuse(node, reason, "Join by a key.")
        if kind not in _SIDES or how not in ("REGULAR", "CROSS"):
            name = kind if how in ("REGULAR", "CROSS") else how
            raise self._refuse(node, f"a join must not be {name}", "Say ON, or USING.")
        left, right = self._source(node["left"]), self._source(node["right"])
        if left is None or right is None:
            raise self._refuse(node, "a join must have two sources", "Name them.")
        return sql.Join(
            left=left,
            right=right,
            kind="CROSS" if how == "CROSS" else kind,
            condition=self._maybe(node["condition"]),
            using=tuple(map(self._name, node["using_columns"])),
            at=_place(node),
        )

    # expressions

    def _maybe(self, node: _Parsed | None) -> sql.Node | None:
        return None if node is None else self._value(node)

    def _value(self, node: _Parsed) -> sql.Node:
        kind = self._KINDS.get(node["class"])
        if kind is None:
            raise self._refuse(
                node,
                f"expressions must not use {str(node['class']).lower().replace('_', ' ')}s",
                "Write it with columns, constants, functions and CASE.",
            )
        what, parts, read = kind
        self._parts(node, parts, what)
        return replace(read(self, node), at=_place(node))

    def _name(self, name: str) -> str:
        if not name or not name.isprintable():
            raise QueryError("names must be of characters that can be seen. Rename them.")
        return name

    def _column(self, node: _Parsed) -> sql.Column:
        names = tuple(map(self._name, node["column_names"]))
        if len(names) > 2:
            raise self._refuse(node, "columns must be named as table.column", "Name one.")
        source = names[0] if len(names) == 2 else ""
        return sql.Column(name=names[-1], source=source)

    def _constant(self, node: _Parsed) -> sql.Constant:
        kind, text = node["literal"]["kind"], str(node["literal"].get("text", ""))
        forms = {
            "INTEGER": r"-?\d+",
            "NUMERIC": r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?",
            "BOOLEAN": "true|false",
            "NULL_LITERAL": "",
            "STRING": r"(?s).*",
        }
        if kind not in forms or not re.fullmatch(forms[kind], text):
            raise self._refuse(node, "constants must be plain numbers or texts", "Write one.")
        return sql.Constant(kind=kind, text=text)

    def _star(self, node: _Parsed) -> sql.Star:
        return sql.Star(source=node.get("relation_name", ""))

    def _comparison(self, node: _Parsed) -> sql.Operation:
        if node["type"] not in COMPARISONS:
            raise self._refuse(node, "comparisons must be plain", "Use =, <, > and the like.")
        operands = (self._value(node["left"]), self._value(node["right"]))
        return sql.Operation(symbol=COMPARISONS[node["type"]], operands=operands)

    def _operator(self, node: _Parsed) -> sql.Operation:
        if node["type"] not in OPERATORS:
            raise self._refuse(node, "lists and structures are not answered", "Use plain columns.")
        operands = tuple(map(self._value, node["children"]))
        return sql.Operation(symbol=OPERATORS[node["type"]], operands=operands)

    def _between(self, node: _Parsed) -> sql.Operation:
        operands = tuple(self._value(node[part]) for part in ("input", "lower", "upper"))
        return sql.Operation(symbol="BETWEEN", operands=operands)

    def _case(self, node: _Parsed) -> sql.Case:
        branches = tuple(
            (self._value(check["when_expr"]), self._value(check["then_expr"]))
            for check in node["case_checks"]
        )
        otherwise = self._value(node["else_expr"])
        return sql.Case(branches=branches, otherwise=otherwise)

    def _cast(self, node: _Parsed) -> sql.Cast:
        kind = node["type_expr"]
        name = str(kind["type_name"]).upper()
        sizes = [child.get("literal", {}) for child in kind["children"]]
        if kind["schema"] or kind["catalog"] or name not in TYPES:
            raise self._refuse(node, "types must be numbers, texts, days or times", "Use one.")
        if sizes:
            if not all(size.get("kind") == "INTEGER" for size in sizes):
                raise self._refuse(node, "types must be numbers, texts, days or times", "Use one.")
            name += f"({', '.join(size['text'] for size in sizes)})"
        operand = self._value(node["child"])
        return sql.Cast(operand=operand, type=name, safe=bool(node["try_cast"]))

    def _function(self, node: _Parsed) -> sql.Node:
        name = str(node["function_name"]).lower()
        if node["schema"] or node["catalog"]:
            raise self._refuse(node, "functions must be named without a schema", "Leave it out.")
        if node["is_operator"] and name in ARITHMETIC:
            operands = tuple(map(self._value, self._arguments(node)))
            return sql.Operation(symbol=ARITHMETIC[name], operands=operands)
        name = ALIASES.get(name, name)
        plain = not (node["filter"] or node["distinct"] or node["order_bys"]["orders"])
        if name in AGGREGATES or (name in SCALARS and plain and not node["is_operator"]):
            return self._aggregate(node, name)
        raise self._not_listed(node, name)

    def _aggregate(self, node: _Parsed, name: str) -> sql.Call:
        orders = tuple(map(self._order, node["order_bys"]["orders"]))
        arguments = tuple(map(self._value, self._arguments(node)))
        if len(orders) == 1 and len(arguments) == WITHIN_GROUP.get(name):
            # WITHIN GROUP (ORDER BY x): the value is what is ordered
            if orders[0].descending or orders[0].nulls:
                raise self._refuse(node, "WITHIN GROUP must be ascending", "Leave it out.")
            arguments, orders = (orders[0].value, *arguments), ()
        if name == "mode" and arguments:  # of the commonest the smallest, whatever is stored first
            smallest = (sql.Order(value=arguments[0]),)
            orders = () if orders in ((), smallest) else orders
        n_arguments = ARITIES.get(name, (len(arguments),))
        if len(arguments) not in n_arguments:
            counts = " or ".join(map(str, n_arguments))
            raise self._refuse(node, f"{name} must have {counts} arguments", "Mend it.")
        if orders:
            reason = "aggregates must not depend on the order of rows"
            raise self._refuse(node, reason, "Leave out its ORDER BY.")
        return sql.Call(
            name=name,
            arguments=arguments,
            distinct=bool(node["distinct"]),
            where=self._maybe(node["filter"]),
            order=smallest if name == "mode" else (),
        )

    def _arguments(self, node: _Parsed) -> list[_Parsed]:
        if any(argument["name"] for argument in node["arguments"]):
            raise self._refuse(node, "arguments must have no names", "Give them in order.")
        return [argument["expression"] for argument in node["arguments"]]

    def _not_listed(self, node: _Parsed, name: str) -> QueryError:
        reason, advice = reason_against(name)
        listed = "The reference of SQL lists them."
        return self._refuse(
            node, reason or "functions must be among those that are answered", advice or listed
        )

    def _nested(self, node: _Parsed) -> sql.Nested:
        kind = node["subquery_type"]
        query = self.query(node["subquery"]["node"])
        if kind in ("SCALAR", "EXISTS"):
            return sql.Nested(kind=kind, query=query)
        symbol = COMPARISONS.get(node["comparison_type"])
        if kind != "ANY" or symbol is None:
            raise self._refuse(node, "subqueries must be values, EXISTS or IN", "Write one.")
        operand = self._value(node["child"])
        return sql.Nested(kind=kind, query=query, operand=operand, symbol=symbol)

    def _window(self, node: _Parsed) -> sql.Window:
        name = ALIASES.get(str(node["function_name"]).lower(), str(node["function_name"]).lower())
        listed = name in AGGREGATES | RANKS | PICKS
        if not listed or node["schema"] or node["catalog"]:
            raise self._not_listed(node, name)
        if node["exclude_clause"] != "NO_OTHER":
            raise self._refuse(node, "windows must not use EXCLUDE", "Leave it out.")
        orders = tuple(map(self._order, node["orders"]))
        if name in PICKS and not orders:
            reason = "rows must not be picked by where they are stored"
            raise self._refuse(node, reason, "Say ORDER BY.")
        call = sql.Call(
            name=name,
            arguments=tuple(map(self._value, self._arguments(node))),
            distinct=bool(node.get("distinct")),
            where=self._maybe(node.get("filter_expr")),
        )
        bounds = (self._maybe(node.get("start_expr")), self._maybe(node.get("end_expr")))
        return sql.Window(
            call=call,
            partition=tuple(map(self._value, node["partitions"])),
            order=orders,
            frame=(node["start"], node["end"]),
            bounds=bounds,
        )

    _KINDS: Final[dict[str, tuple[str, str, Callable[[_Reader, _Parsed], sql.Node]]]] = {
        "COLUMN_REF": ("a column", "alias column_names", _column),
        "CONSTANT": ("a constant", "alias literal", _constant),
        "STAR": ("*", "alias relation_name", _star),
        "COMPARISON": ("a comparison", "alias left right", _comparison),
        "CONJUNCTION": ("an operator", "alias children", _operator),
        "OPERATOR": ("an operator", "alias children", _operator),
        "BETWEEN": ("BETWEEN", "alias input lower upper", _between),
        "CASE": ("CASE", "alias case_checks else_expr", _case),
        "CAST": ("a cast", "alias child try_cast type_expr", _cast),
        "FUNCTION": (
            "a function",
            "alias function_name schema filter order_bys distinct is_operator catalog arguments "
            "qualified_name",
            _function,
        ),
        "SUBQUERY": (
            "a subquery",
            "alias subquery_type subquery child comparison_type",
            _nested,
        ),
        "WINDOW": (
            "a window",
            "alias function_name schema catalog partitions orders start end start_expr end_expr "
            "filter_expr exclude_clause has_ignore_nulls distinct arguments qualified_name",
            _window,
        ),
    }


_SIDES: Final = ("INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI")


def _place(node: Mapping[str, Any]) -> tuple[int, int]:
    start, length = node.get("query_location", 0), node.get("query_location_length", 0)
    return (int(start), int(length)) if length else (0, 0)
