"""Tables on a server that keeps its rows: sums per unit are computed there, in its own SQL.

A statement is written from our tree, of what a list says means the same there as in DuckDB; what is
on no list is refused with the server's name. What comes here is one line for every cell and unit.
Which units are used is never known to the server.
"""

from __future__ import annotations

import io
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pacprivacy.errors import DataError, QueryError
from pacprivacy.queries.engines import (
    BASE,
    KEPT,
    UNIT,
    UNITS,
    WHOLE,
    Engines,
    Fetch,
    Row,
    Types,
    UnitPaths,
    engine_unquoted,
    open_engine,
)
from pacprivacy.queries.grammar import checked_sql
from pacprivacy.queries.tree import (
    Call,
    Case,
    Cast,
    Column,
    Constant,
    Derived,
    Item,
    Join,
    Nested,
    Node,
    Operation,
    Select,
    Table,
    call,
    children,
    quote,
    with_children,
    write_sql,
)

BLOCK: Final = 2**22  # bytes of an answer that are read at once
ANSWER: Final = "pac_answer"
PREFIXES: Final = ("postgresql://", "postgres://")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# What means the same in DuckDB and PostgreSQL.
OPERATIONS: Final = frozenset(
    {
        *_words("+ - * / % = <> < > <= >= AND OR NOT IN BETWEEN COALESCE GROUPING LIKE"),
        *("NOT LIKE", "IS NULL", "IS NOT NULL", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"),
    }
)
FUNCTIONS: Final = frozenset(
    _words(
        "abs ceil ceiling floor sign sqrt exp ln power greatest least nullif length "
        "sum count count_star avg stddev_pop bool_or bool_and"
    )
)
DATE_PARTS: Final = frozenset(_words("year quarter month day hour minute"))
CASTS: Final = {
    **{name: name for name in _words("SMALLINT INTEGER BIGINT DATE TIMESTAMP BOOLEAN VARCHAR")},
    "DOUBLE": "DOUBLE PRECISION",
    "DECIMAL": "DECIMAL(18, 3)",
}
DAY: Final = r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?)?"
JOINS: Final = frozenset(_words("INNER CROSS LEFT RIGHT FULL"))
NODES: Final = (Constant, Column, Case, Derived, Item, Join, Nested, Operation, Call, Cast)
COLUMN_TYPES: Final = {
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
}
CATALOG: Final = """
    SELECT c.relname, n.nspname, a.attname, format_type(a.atttypid, a.atttypmod), c.relkind
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE n.nspname = ANY (current_schemas(false)) AND pg_table_is_visible(c.oid)
    AND c.relkind IN ('r', 'p', 'v', 'm') AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum
"""
# One reading of numbers and days, one order of rows, one view of the tables.
SETTINGS: Final = (
    "-c TimeZone=UTC -c DateStyle=ISO -c extra_float_digits=1 -c standard_conforming_strings=on "
    "-c client_encoding=UTF8 -c synchronize_seqscans=off -c max_parallel_workers_per_gather=0 "
    "-c idle_in_transaction_session_timeout=0"
)


def is_server(source: Any) -> bool:
    """Whether tables are on a server."""
    return isinstance(source, str) and source.startswith(PREFIXES)


# --- statements ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation(Node):
    """A table of the server under a name; its text is ours."""

    text: str
    alias: str

    def _sql(self) -> str:
        return f"{self.text} AS {quote(self.alias)}"


def postgres_tree(node: Node, relations: Mapping[tuple[str, ...], str]) -> Node:
    """Return a query as PostgreSQL means it; refuse what it has no words for.

    Guarantee
    ---------
    Claim Q-6. Every node, function, operator and type of the result is on a list above, and means
    the same in both engines.
    """

    def refuse(part: Node) -> QueryError:
        shown = type(part).__name__.lower() if isinstance(part, Select) else write_sql(part)
        return QueryError(
            f"tables in PostgreSQL must be queried with what both engines mean alike; got "
            f"«{shown[:80]}». Write it with sums, comparisons, CASE and date_part, or as a view."
        )

    def written(part: Node) -> Node:
        if isinstance(part, Table):
            if part.path not in relations:
                raise refuse(part)
            return Relation(text=relations[part.path], alias=part.alias)
        if isinstance(part, Call) and part.name == "date_part":
            return date_part(part, part.arguments)
        if isinstance(part, Call) and part.name in DATE_PARTS:
            return date_part(part, (Constant(kind="STRING", text=part.name), *part.arguments))
        if isinstance(part, Cast) and isinstance(part.operand, Constant):
            return cast(part)
        if (
            isinstance(part, Constant)
            and part.kind == "STRING"
            and not re.fullmatch(DAY, part.text)
        ):
            return Cast(operand=part, type="VARCHAR")  # beside a day, 'today' would be one
        new = with_children(part, [written(child) for child in children(part)])
        if isinstance(new, Call):
            return function(new)
        if isinstance(new, Cast):
            return cast(new)
        if isinstance(new, Operation):
            return operator(new)
        if isinstance(new, Constant) and new.kind == "NUMERIC" and "e" in new.text.lower():
            return cast(Cast(operand=new, type="DOUBLE"))
        if isinstance(new, Join) and new.kind not in JOINS:
            raise refuse(part)
        if isinstance(new, Select):
            plain = (new.order, new.limit, new.offset, new.ctes, new.qualify)
            if not new.all_keys and plain == ((), None, None, (), None):
                return new
        elif isinstance(new, NODES):
            return new
        raise refuse(part)

    def date_part(part: Call, arguments: Sequence[Node]) -> Node:
        name = arguments[0]
        if not isinstance(name, Constant) or name.text.lower() not in DATE_PARTS:
            raise refuse(part)
        unit = replace(name, text=name.text.lower())
        return Cast(operand=call("date_part", unit, written(arguments[1])), type="BIGINT")

    def function(part: Call) -> Node:
        if part.name == "quantile_cont" and isinstance(part.arguments[1], Constant | Cast):
            return Percentile(value=part.arguments[0], share=part.arguments[1], where=part.where)
        if part.name not in FUNCTIONS or part.order:
            raise refuse(part)
        return part

    def cast(part: Cast) -> Node:
        kind, _, size = part.type.partition("(")
        text = part.operand.text if isinstance(part.operand, Constant) else None
        if kind not in CASTS or part.safe or (kind == "VARCHAR" and text is None):
            raise refuse(part)
        if text is not None and kind in ("DATE", "TIMESTAMP") and not re.fullmatch(DAY, text):
            raise refuse(part)  # 'now' is a day there
        return replace(part, type=f"{kind}({size}" if size else CASTS[kind])

    def operator(part: Operation) -> Node:
        if part.symbol not in OPERATIONS:
            raise refuse(part)
        if part.symbol == "/":  # of whole numbers it would be a whole number
            first = Cast(operand=part.operands[0], type=CASTS["DOUBLE"])
            return replace(part, operands=(first, *part.operands[1:]))
        if "LIKE" in part.symbol:  # where a backslash is a sign of its own
            pattern = part.operands[1].operand if isinstance(part.operands[1], Cast) else None
            if not isinstance(pattern, Constant):
                raise refuse(part)
            plain = replace(pattern, text=pattern.text.replace("\\", "\\\\"))
            return replace(part, operands=(part.operands[0], plain))
        return part

    return written(node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile(Node):
    """A quantile in the words of the standard."""

    value: Node
    share: Node
    where: Node | None = None

    def _sql(self) -> str:
        text = f"percentile_cont({write_sql(self.share)}) WITHIN GROUP (ORDER BY "
        text += f"{write_sql(self.value)})"
        return f"{text} FILTER (WHERE {write_sql(self.where)})" if self.where else text


# --- the server ----------------------------------------------------------------------------------


class Postgres:
    """One connection to a server, which reads one state of its tables and changes nothing."""

    def __init__(self, url: str) -> None:
        self.url, self.process, self._lock = url, os.getpid(), threading.Lock()
        self.thread = 0  # whose statement runs
        psycopg = _psycopg()
        try:
            self.connection = psycopg.connect(url, options=_options(url))
            self.connection.read_only = True
            self.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self.connection.execute("SELECT 1")  # begins the transaction that all statements see
            self.close = weakref.finalize(self, _close, self.connection, self.process)
        except psycopg.Error as error:
            raise DataError(
                "tables must be on a server that answers; PostgreSQL did not "
                f"({type(error).__name__}). Check host, name, user and password."
            ) from None

    def execute(self, text: str, names: Sequence[str]) -> Iterator[Any]:
        """Yield the answer to a statement in Arrow batches, every column as text."""
        import pyarrow
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types={name: pyarrow.string() for name in names},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        reading = csv.ReadOptions(column_names=list(names), use_threads=False, block_size=BLOCK)
        parsing = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
        with self._running() as cursor, cursor.copy(f"COPY ({text}) TO STDOUT (FORMAT csv)") as out:
            lines = io.BufferedReader(_Stream(out), BLOCK)
            if lines.peek(1):
                yield from csv.open_csv(lines, reading, parsing, convert)

    def rows(self, text: str) -> list[Row]:
        """Return the answer to a statement of ours."""
        with self._running() as cursor:
            return list(cursor.execute(text).fetchall())

    @contextmanager
    def _running(self) -> Iterator[Any]:
        if os.getpid() != self.process:
            raise DataError(
                "tables on a server must be used by the process that opened them; got another. "
                "Make them there."
            )
        psycopg = _psycopg()
        with self._lock:
            self.thread = threading.get_ident()
            try:
                with self.connection.transaction(), self.connection.cursor() as cursor:
                    yield cursor
            except psycopg.Error as error:
                raise QueryError(
                    "the query must have a value for every row; PostgreSQL stopped with an error "
                    f"of the kind {type(error).__name__!r}. Its words may show values, so they are "
                    "left out: look for a cast, a division or a sum that fails on some rows."
                ) from None
            finally:
                self.thread = 0


def _close(connection: Any, process: int) -> None:
    if os.getpid() == process:  # a fork must not end what is its parent's
        connection.close()


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise DataError(
            "tables in PostgreSQL need psycopg, which is not installed. Install pacprivacy with "
            "its extra postgres."
        ) from error
    return psycopg


def _options(url: str) -> str:
    """Return our settings after those of the address, which may name a schema."""
    given = _psycopg().conninfo.conninfo_to_dict(url).get("options", "")
    return f"{given} {SETTINGS}".strip()


class _Stream(io.RawIOBase):
    """What a server sends, as a file."""

    def __init__(self, copy: Any) -> None:
        self._parts, self._rest = iter(copy), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or bytes(next(self._parts, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


# --- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerSource:
    """Tables of a server; private ones may be views."""

    url: str
    places: Mapping[str, str]  # schema and name, quoted
    columns: Mapping[str, Mapping[str, str]]  # types in the server's words
    server: Postgres = field(repr=False)
    libraries: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, url: Any, declared: frozenset[str]) -> ServerSource:
        """Read which tables there are; a view is one if it is declared private."""
        server = Postgres(url)
        places: dict[str, str] = {}
        columns: dict[str, dict[str, str]] = {}
        for table, schema, column, kind, form in server.rows(CATALOG):
            if form in ("v", "m") and table not in declared:
                continue
            places[table] = f"{quote(schema)}.{quote(table)}"
            if _column_type(kind):
                columns.setdefault(table, {})[column] = kind
        return cls(url=url, places=places, columns=columns, server=server)

    def __reduce__(self) -> Any:
        raise DataError("tables on a server must stay in their process. Make them where needed.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tables."""
        return tuple(self.columns)

    def open(self) -> Any:
        """Return an engine of our own, for the units and for sums."""
        return open_engine()

    def types(self, store: Any) -> Types:
        """Return the types of the columns of every table, as DuckDB has them."""
        return {
            name: {column: _column_type(kind) for column, kind in kinds.items()}
            for name, kinds in self.columns.items()
        }

    def engines(self, store: Any, types: Types, paths: UnitPaths) -> ServerEngines:
        """Return the engines of this process, which know the unit of every private row."""
        return ServerEngines(store, types, paths, self)

    def relation(self, name: str) -> str:
        """Return the rows of a table: texts in the order of their bytes, as in DuckDB."""
        columns = []
        for column, kind in self.columns[name].items():
            plain = _column_type(kind)
            written = quote(column)
            if plain in ("VARCHAR", "DOUBLE"):
                written = f"CAST({written} AS {CASTS.get(plain, plain)})"
            if plain == "VARCHAR":
                written += ' COLLATE "C"'
            columns.append(f"{written} AS {quote(column)}")
        return f"(SELECT {', '.join(columns)} FROM {self.places[name]})"


def _column_type(kind: str) -> str:
    """Return a type of PostgreSQL as DuckDB calls it; empty where there is none."""
    size = re.fullmatch(r"numeric\((\d+),(\d+)\)", kind)
    if size and int(size[2]) <= int(size[1]) <= 38:
        return f"DECIMAL({size[1]},{size[2]})"
    return COLUMN_TYPES.get(re.sub(r"\(.*\)", "", kind), "")


class ServerEngines(Engines):
    """A server that has the rows, and engines of our own that have units and sums."""

    def __init__(self, store: Any, types: Types, paths: UnitPaths, source: ServerSource) -> None:
        super().__init__(store, types, paths)
        if paths.whole_floats:
            raise DataError(
                "keys must be of one type on both sides in PostgreSQL; got floats for whole "
                "numbers. Make both whole numbers."
            )
        self._source, self._server = source, source.server
        table, column = paths.unit
        kind, key = types[table][column], quote(column)
        store.execute(f"CREATE TABLE {UNITS} (key {kind}, code INTEGER)")
        query = f"SELECT DISTINCT {key} FROM {self.relation(table)} t WHERE {key} IS NOT NULL"
        numbered = f"SELECT CAST(key AS {kind}), 0 FROM pac_batch"
        self._insert(store, UNITS, query, ["key"], numbered)
        store.execute(
            f"CREATE OR REPLACE TABLE {UNITS} AS "
            f"SELECT key, (row_number() OVER (ORDER BY key) - 1)::INTEGER AS code FROM {UNITS}"
        )
        self.asked = store  # nothing else is in it

    def rows(self, text: str) -> list[Row]:
        """Return the answer to a text of ours."""
        return self._server.rows(text)

    def relation(self, name: str) -> str:
        """Return the rows of a table."""
        return self._source.relation(name)

    def pairs(self, name: str) -> str:
        """Return the keys that the rows of a private table may have, with the unit of each."""
        _, other = self.paths.paths[name]
        if other is None:
            key = quote(self.paths.unit[1])
            rows = self.relation(self.paths.unit[0])
            return f"(SELECT DISTINCT {key} AS key, {key} AS code FROM {rows} q)"
        return (
            f"(SELECT DISTINCT t.{quote(other[1])} AS key, {self._unit(other[0])[0]} AS code "
            f"FROM {self._unit(other[0])[1]})"
        )

    def _unit(self, name: str) -> tuple[str, str]:
        """Return the unit of a row ``t`` of a private table, and the FROM clause that has it."""
        rows = f"{self.relation(name)} t"
        if self.paths.paths[name][1] is None:
            return self.paths.key(name), rows
        return "c.code", f"{rows} JOIN {self.pairs(name)} c ON {self.paths.key(name)} = c.key"

    def contents(self, name: str) -> list[Row]:
        """Return what tells the rows of a table from others, whatever their order."""
        number = "('x' || substr(md5(CAST(t AS TEXT)), 1, 15))::bit(60)::bigint"
        query = f"SELECT count(*), bit_xor(h), sum(h) FROM (SELECT {number} AS h FROM "
        return self.rows(f"{query}{self.relation(name)} t) q")

    def load(self, query: Select) -> None:
        """Leave the rows where they are."""

    def interrupt(self, thread: int) -> None:
        """Stop the statement that runs on the server, if it is of this thread."""
        if self._server.thread == thread:  # others wait for one connection
            self._server.connection.cancel()

    def close(self) -> None:
        """End the transaction and the connection."""
        self._server.close()

    def ask(self, connection: Any, query: Select, fetch: Fetch) -> Any:
        """Return the answer to a query of a person over all units."""
        if fetch != "fetchall" or any(item.name in ("u", "pac_u") for item in query.items):
            raise QueryError(
                "tables in PostgreSQL must be queried for sums over units; got a request for rows. "
                "Use pac.sql with coins."
            )
        self._fill(connection, ANSWER, query, {})
        return connection.execute(f"SELECT * FROM {ANSWER}").fetchall()

    def keep(self, connection: Any, query: Select) -> None:
        """Run sums per unit, and keep the answer as a table of the connection."""
        self._fill(connection, KEPT, query, {"u": "c.code"})

    def _fill(self, connection: Any, table: str, query: Select, values: Mapping[str, str]) -> None:
        """Fill a table with the answer to a query; the unit's key becomes its number."""
        described = self.bare.cursor().execute(f"DESCRIBE {checked_sql(query)}").fetchall()
        kinds = {str(row[0]): str(row[1]) for row in described}
        shown = [
            f"{values.get(name, f'CAST(b.{quote(name)} AS {kind})')} AS {quote(name)}"
            for name, kind in kinds.items()
        ]
        unit_table, column = self.paths.unit
        key = self._types[unit_table][column]
        joined = f" JOIN {UNITS} c ON CAST(b.u AS {key}) = c.key" if values else ""
        columns = ", ".join(f"{quote(name)} {kind}" for name, kind in kinds.items())
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({columns})")
        text = write_sql(postgres_tree(query, self._relations()))
        numbered = f"SELECT {', '.join(shown)} FROM pac_batch b{joined}"
        self._insert(connection, table, text, list(kinds), numbered)

    def _relations(self) -> dict[tuple[str, ...], str]:
        relations: dict[tuple[str, ...], str] = {}
        for name in self._source.names:
            relations[name,] = relations[BASE, name] = self.relation(name)
            if name in self.paths.paths:
                unit, rows = self._unit(name)
                relations[WHOLE, name] = f"(SELECT t.*, {unit} AS {quote(UNIT)} FROM {rows})"
        return relations

    def _insert(
        self, connection: Any, table: str, text: str, names: Sequence[str], values: str
    ) -> None:
        """Insert what a statement gives, batch by batch."""
        import pyarrow

        with engine_unquoted(connection):
            for batch in self._server.execute(text, names):
                connection.register("pac_batch", pyarrow.Table.from_batches([batch]))
                connection.execute(f"INSERT INTO {table} {values}")
                connection.unregister("pac_batch")

    def check_candidates(self) -> None:
        """Refuse candidates, whose rows would have to come here."""
        raise QueryError(
            "tables in PostgreSQL must be queried for sums over units, with coins; got what needs "
            "a pool of candidates. Use sample=pac.Coins() and a membership budget, or copy the "
            "tables into a file of DuckDB."
        )
