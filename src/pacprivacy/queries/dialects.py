"""Statements for servers that keep their rows: our tree in the words of another engine.

A dialect lists what means the same there as in DuckDB; what is on no list is refused with the
engine's name. What differs, such as division, quantiles or sums of floats, is written in its way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pacprivacy.errors import QueryError
from pacprivacy.queries import tree as sql
from pacprivacy.queries.tree import call, children, number, operation, walk, write_sql

Path = tuple[str, ...]  # of a table
Relations = Mapping[Path, "ServerRelation"]
WHOLE_FLOAT: Final = 2.0**52  # floats from here on are whole numbers


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OPERATIONS: Final = frozenset(
    {
        *_words("+ - * / % = <> < > <= >= AND OR NOT IN BETWEEN COALESCE GROUPING LIKE"),
        *("NOT LIKE", "IS NULL", "IS NOT NULL", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"),
    }
)
CONDITIONS: Final = OPERATIONS - set(_words("+ - * / % COALESCE GROUPING"))
FUNCTIONS: Final = frozenset(
    _words(
        "abs ceil ceiling floor sign greatest least nullif length "
        "sum count count_star avg stddev_pop bool_or bool_and"
    )
)
DATE_PARTS: Final = frozenset(_words("year quarter month day hour minute"))
WHOLE_TYPES: Final = _words("SMALLINT INTEGER BIGINT")
DAY: Final = r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?)?"
CHOICES: Final = frozenset(_words("greatest least nullif"))
JOINS: Final = frozenset(_words("INNER CROSS LEFT RIGHT FULL"))
NODES: Final = (
    sql.Constant,
    sql.Column,
    sql.Case,
    sql.Derived,
    sql.Item,
    sql.Join,
    sql.Nested,
    sql.Operation,
    sql.Call,
    sql.Cast,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRelation:
    """A table in the words of a server, and which of its columns are texts."""

    text: str
    text_columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation(sql.Node):
    """A table of the server under a name; its text is ours."""

    text: str
    alias: str

    def _sql(self, quoting: sql.Quoting) -> str:
        return self.text + quoting.named(self.alias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile(sql.Node):
    """A quantile in the words of the standard."""

    value: sql.Node
    share: sql.Node
    where: sql.Node | None = None

    def _sql(self, quoting: sql.Quoting) -> str:
        share, value = write_sql(self.share, quoting), write_sql(self.value, quoting)
        text = f"percentile_cont({share}) WITHIN GROUP (ORDER BY {value})"
        return f"{text} FILTER (WHERE {write_sql(self.where, quoting)})" if self.where else text


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedSum(sql.Node):
    """A sum of floats that are added from the smallest on, however they are spread over workers."""

    value: sql.Node
    where: sql.Node | None = None

    def _sql(self, quoting: sql.Quoting) -> str:
        listed = f"collect_list(CAST({write_sql(self.value, quoting)} AS DOUBLE))"
        if self.where is not None:
            listed += f" FILTER (WHERE {write_sql(self.where, quoting)})"
        add = "(total, each) -> coalesce(total, 0D) + each"
        return f"aggregate(array_sort({listed}), CAST(NULL AS DOUBLE), {add})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Expressions with the same meaning in DuckDB and in another engine, and their text there.

    ``casts`` and ``column_types`` are types, DuckDB's and the engine's, as the engine and DuckDB
    call them. With ``spreads_rows`` the rows of a unit come in any order.
    """

    name: str
    quoting: sql.Quoting
    functions: frozenset[str]
    casts: Mapping[str, str]
    column_types: Mapping[str, str]
    spreads_rows: bool = False
    cuts_digits: bool = False  # casts to whole numbers do not round
    byte_order: str = ""  # of texts, where it is not the default

    def column_type(self, kind: str) -> str:
        """Return a type of the engine as DuckDB calls it; empty where there is none."""
        size = re.fullmatch(r"(?:numeric|decimal)\((\d+),(\d+)\)", kind)
        if size and int(size[2]) <= int(size[1]) <= 38:
            return f"DECIMAL({size[1]},{size[2]})"
        return self.column_types.get(re.sub(r"\(.*\)", "", kind), "")

    def columns(self, kinds: Mapping[str, str]) -> str:
        """Write the columns of a table: floats as doubles, texts in the order of their bytes."""
        columns = []
        for column, kind in kinds.items():
            plain, name = self.column_type(kind), self.quoting.name(column)
            written = name
            if plain in ("VARCHAR", "DOUBLE"):
                written = f"CAST({name} AS {self.casts[plain]})"
            if plain == "VARCHAR":
                written += self.byte_order
            columns.append(f"{written} AS {name}")
        return ", ".join(columns)

    def write(self, query: sql.Select, relations: Relations, kinds: Mapping[str, str]) -> str:
        """Write a query of ours; ``kinds`` are the types of its outputs, in DuckDB's words.

        Guarantee
        ---------
        Claim Q-6. Every node, function, operator and type is on a list above, and means the same
        in both engines.
        """
        texts = frozenset(
            (part.alias, name)
            for part in walk(query)
            if isinstance(part, sql.Table) and part.path in relations
            for name in relations[part.path].text_columns
        )
        sources = frozenset(part.alias for part in walk(query) if isinstance(part, sql.Table))
        tree = _Translation(self, relations, texts, sources).of(query)
        if self.spreads_rows and isinstance(tree, sql.Select):
            items = [
                replace(item, value=_ordered(item.value)) if kinds[item.name] == "DOUBLE" else item
                for item in tree.items
            ]
            tree = replace(tree, items=tuple(items))
        return write_sql(tree, self.quoting)


def _ordered(node: sql.Node) -> sql.Node:
    if isinstance(node, sql.Call) and node.name == "sum":
        return OrderedSum(value=node.arguments[0], where=node.where)
    return sql.with_children(node, [_ordered(part) for part in children(node)])


class _Translation:
    """A query as a dialect means it, node by node."""

    def __init__(
        self,
        dialect: Dialect,
        relations: Relations,
        texts: frozenset[tuple[str, str]],
        sources: frozenset[str],
    ) -> None:
        self.dialect, self.relations = dialect, relations
        self.texts, self.sources = texts, sources  # columns of texts; aliases of tables

    def refuse(self, part: sql.Node) -> QueryError:
        shown = type(part).__name__.lower() if isinstance(part, sql.Select) else write_sql(part)
        return QueryError(
            f"tables in {self.dialect.name} must be queried with what both engines mean alike; got "
            f"«{shown[:80]}». Write it with sums, comparisons, CASE and date_part, or as a view."
        )

    def of(self, part: sql.Node) -> sql.Node:
        if isinstance(part, sql.Table):
            if part.path not in self.relations:
                raise self.refuse(part)
            return Relation(text=self.relations[part.path].text, alias=part.alias)
        if isinstance(part, sql.Call) and part.name == "date_part":
            return self.date_part(part, part.arguments)
        if isinstance(part, sql.Call) and part.name in DATE_PARTS:
            name = sql.Constant(kind="STRING", text=part.name)
            return self.date_part(part, (name, *part.arguments))
        if isinstance(part, sql.Cast) and isinstance(part.operand, sql.Constant):
            return self.cast(part)
        if isinstance(part, sql.Constant):
            return self.constant(part)
        self.check_texts(part)
        self.check_days(part)
        new = sql.with_children(part, [self.of(child) for child in children(part)])
        if isinstance(new, sql.Call):
            return self.write_function(new)
        if isinstance(new, sql.Cast):
            return self.cast(new)
        if isinstance(new, sql.Operation):
            return self.operator(new)
        self.check(new)
        return new

    def check(self, part: sql.Node) -> None:
        listed = isinstance(part, NODES)
        if isinstance(part, sql.Select):
            plain = (part.order, part.limit, part.offset, part.ctes)
            listed = not part.all_keys and plain == ((), None, None, ())
        if isinstance(part, sql.Join):
            listed = part.kind in JOINS
        if isinstance(part, sql.Nested):
            listed = part.symbol in ("", "=")
        if not listed:
            raise self.refuse(part)

    def check_texts(self, part: sql.Node) -> None:
        """Refuse comparisons of texts with other values: engines differ in which they convert."""
        compares = isinstance(part, sql.Operation) and part.symbol != "GROUPING"
        if not compares and not (isinstance(part, sql.Call) and part.name == "nullif"):
            return
        if len({self.is_text(each) for each in children(part)} - {None}) > 1:
            raise self.refuse(part)

    def check_days(self, part: sql.Node) -> None:
        """Refuse texts that are read as days: "today" is one in some engines, and changes."""
        if not (isinstance(part, sql.Cast) and part.type.startswith(("DATE", "TIMESTAMP"))):
            return
        if any(self.may_be_text(value) for value in walk(part.operand)):
            raise self.refuse(part)

    def may_be_text(self, part: sql.Node) -> bool:
        """Whether a column may hold texts."""
        if not isinstance(part, sql.Column):
            return False
        return part.source not in self.sources or (part.source, part.name) in self.texts

    def is_text(self, part: sql.Node) -> bool | None:
        """Whether a value is a text; None where it may be either, as NULL or a written day."""
        if isinstance(part, sql.Constant):
            day = part.kind == "STRING" and re.fullmatch(DAY, part.text)
            return None if day or part.kind == "NULL_LITERAL" else part.kind == "STRING"
        if isinstance(part, sql.Column):
            known = any(part.source == source for source, _ in self.texts)
            return (part.source, part.name) in self.texts if known else None
        if isinstance(part, sql.Cast):
            return part.type == "VARCHAR"
        same = isinstance(part, sql.Case) or (isinstance(part, sql.Call) and part.name in CHOICES)
        if same or (isinstance(part, sql.Operation) and part.symbol == "COALESCE"):
            kinds = map(self.is_text, reversed(list(children(part))))
            return next((kind for kind in kinds if kind is not None), None)
        return False if isinstance(part, sql.Call | sql.Operation) else None

    def constant(self, part: sql.Constant) -> sql.Node:
        if part.kind == "STRING" and not re.fullmatch(DAY, part.text):
            text = self.dialect.casts["VARCHAR"]  # beside a day, 'today' would be one
            return sql.Cast(operand=part, type=text)
        if part.kind == "NUMERIC" and "e" in part.text.lower():
            return self.cast(sql.Cast(operand=part, type="DOUBLE"))
        return part

    def date_part(self, part: sql.Call, arguments: Sequence[sql.Node]) -> sql.Node:
        name = arguments[0]
        if not isinstance(name, sql.Constant) or name.text.lower() not in DATE_PARTS:
            raise self.refuse(part)
        unit = replace(name, text=name.text.lower())
        return sql.Cast(operand=call("date_part", unit, self.of(arguments[1])), type="BIGINT")

    def write_function(self, part: sql.Call) -> sql.Node:
        if part.name == "quantile_cont" and isinstance(part.arguments[1], sql.Constant | sql.Cast):
            return Percentile(value=part.arguments[0], share=part.arguments[1], where=part.where)
        if part.name not in self.dialect.functions or part.order or part.distinct:
            raise self.refuse(part)
        if part.name in ("floor", "ceil", "ceiling") and self.dialect.cuts_digits:
            # There it is a whole number of 64 bits, of whatever size the float was.
            value = sql.Cast(operand=part.arguments[0], type="DOUBLE")
            small = operation("<", call("abs", value), self.cast(_double(WHOLE_FLOAT)))
            rounded = sql.Cast(operand=call(part.name, value), type="DOUBLE")
            return sql.Case(branches=((small, rounded),), otherwise=value)
        return part

    def cast(self, part: sql.Cast) -> sql.Node:
        kind, _, size = part.type.partition("(")
        text = part.operand.text if isinstance(part.operand, sql.Constant) else None
        casts = self.dialect.casts
        if kind not in casts or part.safe or (kind == "VARCHAR" and text is None):
            raise self.refuse(part)
        if text is not None and kind in ("DATE", "TIMESTAMP") and not re.fullmatch(DAY, text):
            raise self.refuse(part)  # 'now' is a day there
        if self.dialect.cuts_digits and not _is_exact(kind, part.operand):
            raise self.refuse(part)
        return replace(part, type=f"{kind}({size}" if size else casts[kind])

    def operator(self, part: sql.Operation) -> sql.Node:
        if part.symbol not in OPERATIONS:
            raise self.refuse(part)
        if part.symbol == "/":  # of whole numbers it would be a whole number
            first = sql.Cast(operand=part.operands[0], type=self.dialect.casts["DOUBLE"])
            return replace(part, operands=(first, *part.operands[1:]))
        if "LIKE" in part.symbol:  # where a backslash is a sign of its own
            pattern = part.operands[1].operand if isinstance(part.operands[1], sql.Cast) else None
            if not isinstance(pattern, sql.Constant):
                raise self.refuse(part)
            plain = replace(pattern, text=pattern.text.replace("\\", "\\\\"))
            return replace(part, operands=(part.operands[0], plain))
        if part.symbol == "GROUPING" and len(part.operands) > 1:
            bits = reversed(part.operands)  # an engine may know it of one key alone
            digits = [
                operation("*", operation("GROUPING", key), number(1 << place))
                for place, key in enumerate(bits)
            ]
            return operation("+", *digits)
        return part


def _double(value: float) -> sql.Cast:
    return sql.Cast(operand=sql.Constant(kind="STRING", text=repr(value)), type="DOUBLE")


def _is_exact(kind: str, operand: sql.Node) -> bool:
    """Whether a cast to a type neither rounds nor cuts off digits, whatever the numbers are."""
    if isinstance(operand, sql.Constant):
        return kind not in WHOLE_TYPES or operand.text.lower() in ("true", "false")
    condition = isinstance(operand, sql.Operation) and operand.symbol in CONDITIONS
    return condition or not (kind == "DECIMAL" or kind in WHOLE_TYPES)


def _back_ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _spark_text(value: str) -> str:
    """Write a text for Spark, where a backslash, a dollar or a quote may be more than a sign."""
    return "'" + "".join(map(_code, value)) + "'"


def _code(sign: str) -> str:
    if sign.isascii() and (sign.isalnum() or sign in " -:._%"):
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 2**16 else f"\\U{ord(sign):08x}"


POSTGRES: Final = Dialect(
    name="PostgreSQL",
    quoting=sql.DUCKDB_QUOTING,
    functions=FUNCTIONS | set(_words("sqrt exp ln power")),
    casts={
        **{name: name for name in _words("SMALLINT INTEGER BIGINT DATE TIMESTAMP BOOLEAN VARCHAR")},
        "DOUBLE": "DOUBLE PRECISION",
        "DECIMAL": "DECIMAL(18, 3)",
    },
    column_types={
        "smallint": "SMALLINT",
        "integer": "INTEGER",
        "bigint": "BIGINT",
        "real": "DOUBLE",
        "double precision": "DOUBLE",
        "numeric": "DOUBLE",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp without time zone": "TIMESTAMP",
        "uuid": "UUID",
        "text": "VARCHAR",
        "character varying": "VARCHAR",
        "character": "VARCHAR",
    },
    byte_order=' COLLATE "C"',
)
SPARK: Final = Dialect(
    name="Spark",
    quoting=sql.Quoting(name=_back_ticked, text=_spark_text),
    functions=FUNCTIONS,
    casts={
        **{name: name for name in _words("SMALLINT INTEGER BIGINT DOUBLE DATE TIMESTAMP BOOLEAN")},
        "VARCHAR": "STRING",
        "DECIMAL": "DECIMAL(18, 3)",
    },
    column_types={
        "tinyint": "TINYINT",
        "smallint": "SMALLINT",
        "int": "INTEGER",
        "bigint": "BIGINT",
        "float": "DOUBLE",
        "double": "DOUBLE",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp": "TIMESTAMP",
        "timestamp_ntz": "TIMESTAMP",
        "string": "VARCHAR",
    },
    spreads_rows=True,
    cuts_digits=True,
)
