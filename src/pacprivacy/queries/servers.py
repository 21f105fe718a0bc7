"""Tables on a server that keeps its rows: sums per unit are computed there, in its own SQL.

PostgreSQL and Spark. One line for every cell and unit comes here. Which units are used is
never known to the server.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from pacprivacy.errors import DataError, QueryError
from pacprivacy.queries.dialects import POSTGRES, SPARK, Dialect, Path, ServerRelation
from pacprivacy.queries.engines import (
    BASE,
    KEPT,
    UNIT,
    UNITS,
    WHOLE,
    Engines,
    Row,
    Types,
    UnitPaths,
    engine_unquoted,
)
from pacprivacy.queries.grammar import checked_sql, open_engine
from pacprivacy.queries.tree import Select, quote

BLOCK: Final = 2**22  # bytes of an answer that are read at once
ANSWER: Final = "pac_answer"
PREFIXES: Final = ("postgresql://", "postgres://")
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
# What fails is an error, names and texts are what they look like, and no digit is dropped.
SPARK_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
}


# --- servers -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTable:
    """A table of a server: where it is, in the server's words, and the types of its columns."""

    place: str
    columns: Mapping[str, str]


class Server:
    """Store of rows that computes sums of them for the process that opened it.

    Columns of types that DuckDB has not are left out.
    """

    dialect: Dialect
    process: int
    libraries: Mapping[str, str] = {}  # frames that tables were given as

    def __init__(self, declared: frozenset[str]) -> None:
        self._tables: dict[str, ServerTable] = {}
        kind_of = self.dialect.column_type
        for name, table in self._listed(declared).items():
            known = {c: kind for c, kind in table.columns.items() if kind_of(kind)}
            if known:
                self._tables[name] = ServerTable(place=table.place, columns=known)

    def _listed(self, declared: frozenset[str]) -> dict[str, ServerTable]:
        """Return the tables by name, and the views that are ``declared`` private."""
        raise NotImplementedError

    def __reduce__(self) -> Any:
        raise DataError("tables on a server must stay in their process. Make them where needed.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def open(self) -> Any:
        return open_engine()

    def types(self, store: Any) -> Types:
        kind_of = self.dialect.column_type
        return {
            name: {column: kind_of(kind) for column, kind in table.columns.items()}
            for name, table in self._tables.items()
        }

    def relation(self, name: str) -> str:
        """Return the rows of a table, of types that mean the same in DuckDB."""
        table = self._tables[name]
        return f"(SELECT {self.dialect.columns(table.columns)} FROM {table.place})"

    def engines(self, store: Any, types: Types, paths: UnitPaths) -> Engines:
        assert isinstance(self, Postgres | Spark)
        return ServerEngines(store, types, paths, self)

    def check_process(self) -> None:
        """Refuse a fork, which shares the connection of its parent."""
        if os.getpid() != self.process:
            raise DataError(
                "tables on a server must be used by the process that opened them; got another. "
                "Make them there."
            )

    def stopped(self, error: Exception) -> QueryError:
        """Return an error without the words of the server, which may show values."""
        return QueryError(
            f"the query must have a value for every row; {self.dialect.name} stopped with an error "
            f"of the kind {type(error).__name__!r}. Its words may show values, so they are left "
            "out: look for a cast, a division or a sum that fails on some rows."
        )


class Postgres(Server):
    """One connection to a server, which reads one state of its tables and changes nothing."""

    dialect = POSTGRES

    def __init__(self, url: str, declared: frozenset[str]) -> None:
        self.process, self._lock = os.getpid(), threading.Lock()
        self.thread = 0  # whose statement runs
        psycopg = _psycopg()
        try:
            self.connection = psycopg.connect(url, options=_options(url))
            self.connection.read_only = True
            self.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self.connection.execute("SELECT 1")  # begins the transaction that all statements see
            self._end = weakref.finalize(self, _close, self.connection, self.process)
        except psycopg.Error as error:
            raise DataError(
                "tables must be on a server that answers; PostgreSQL did not "
                f"({type(error).__name__}). Check host, name, user and password."
            ) from None
        super().__init__(declared)

    def _listed(self, declared: frozenset[str]) -> dict[str, ServerTable]:
        tables: dict[str, ServerTable] = {}
        lines = [row for row in self.rows(CATALOG) if row[4] in "rp" or row[0] in declared]
        for (name, schema), columns in itertools.groupby(lines, lambda row: row[:2]):
            place = f"{quote(schema)}.{quote(name)}"
            kinds = {column: kind for _, _, column, kind, _ in columns}
            tables[name] = ServerTable(place=place, columns=kinds)
        return tables

    def digest(self, relation: str) -> list[Row]:
        """Return a digest of the rows of a relation that ignores their order."""
        number = "('x' || substr(md5(CAST(t AS TEXT)), 1, 15))::bit(60)::bigint"
        query = f"SELECT count(*), bit_xor(h), sum(h) FROM (SELECT {number} AS h FROM "
        return self.rows(f"{query}{relation} t) q")

    def interrupt(self, thread: int) -> None:
        """Stop the statement that runs for a thread; others wait for one connection."""
        if self.thread == thread:
            self.connection.cancel()

    def close(self) -> None:
        self._end()

    def execute(self, text: str, names: Sequence[str]) -> Iterator[Any]:
        """Yield the answer to a statement in Arrow batches."""
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
        with self._running() as cursor:
            return list(cursor.execute(text).fetchall())

    @contextmanager
    def _running(self) -> Iterator[Any]:
        self.check_process()
        psycopg = _psycopg()
        with self._lock:
            self.thread = threading.get_ident()
            try:
                with self.connection.transaction(), self.connection.cursor() as cursor:
                    yield cursor
            except psycopg.Error as error:
                raise self.stopped(error) from None
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
    given = _psycopg().conninfo.conninfo_to_dict(url).get("options", "")
    return f"{given} {SETTINGS}".strip()


class _Stream(io.RawIOBase):
    def __init__(self, copy: Any) -> None:
        self._parts, self._rest = iter(copy), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or bytes(next(self._parts, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


_NUMBERS: Final = itertools.count()  # of sessions: what ours call a user's tables


class Spark(Server):
    """A session of Spark with settings of our own, over the tables of a user's session."""

    dialect = SPARK

    def __init__(self, session: Any, declared: frozenset[str]) -> None:
        from pyspark.sql import SparkSession

        self.process = os.getpid()
        if not isinstance(session, SparkSession):
            raise DataError(
                f"tables must be in a SparkSession; got a {type(session).__name__} of "
                f"{type(session).__module__}. Start one with SparkSession.builder; Spark Connect "
                "is not supported."
            )
        self._users, self.session = session, session.newSession()
        for name, value in SPARK_SETTINGS.items():
            self.session.conf.set(name, value)
        self._mark, self._views = f"pac_{next(_NUMBERS)}", list[str]()
        super().__init__(declared)

    def _listed(self, declared: frozenset[str]) -> dict[str, ServerTable]:
        """Return tables and views by name; not views of private rows that are not ``declared``.

        Each is a view that our session can read, which means what it means to the user's session.
        """
        tables: dict[str, ServerTable] = {}
        with self._running():
            listed = [table.name for table in self._users.catalog.listTables()]
            frames = {name: self._users.table(_ticked(name)) for name in listed}
            private = [leaf for name in declared & set(listed) for leaf in _leaves(frames[name])]
            for name, frame in frames.items():
                if name not in declared and any(
                    leaf.sameResult(other) for leaf in _leaves(frame) for other in private
                ):
                    continue
                if not frame._jdf.queryExecution().analyzed().deterministic():
                    raise DataError(
                        f"table {name!r} must have the same rows whenever it is read; got a view "
                        "with random numbers. Write it to a table."
                    )
                view = f"{self._mark}_{len(self._views)}"
                frame.createGlobalTempView(view)
                self._views.append(view)
                tables[name] = ServerTable(place=f"global_temp.{view}", columns=dict(frame.dtypes))
        return tables

    def execute(self, text: str, names: Sequence[str]) -> Iterator[Any]:
        with self._running():
            answer = self.session.sql(text).toArrow()
        yield from answer.rename_columns(list(names)).to_batches()

    def rows(self, text: str) -> list[Row]:
        with self._running():
            return [tuple(row) for row in self.session.sql(text).collect()]

    def digest(self, relation: str) -> list[Row]:
        number = "CAST(conv(substr(md5(to_json(struct(t.*))), 1, 15), 16, 10) AS DECIMAL(38, 0))"
        query = f"SELECT count(*), bit_xor(CAST(h AS BIGINT)), sum(h) FROM (SELECT {number} AS h"
        return self.rows(f"{query} FROM {relation} t) q")

    def interrupt(self, thread: int) -> None:
        self.session.sparkContext.cancelJobGroup(f"{self._mark} {thread}")

    def close(self) -> None:
        """Drop our names for the tables; the user's session goes on."""
        while self._views:
            self.session.catalog.dropGlobalTempView(self._views.pop())

    @contextmanager
    def _running(self) -> Iterator[None]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.logger import PySparkLogger

        self.check_process()
        context, thread = self.session.sparkContext, threading.get_ident()
        group = {
            "spark.jobGroup.id": f"{self._mark} {thread}",
            "spark.job.interruptOnCancel": "true",
        }
        before = {name: context.getLocalProperty(name) for name in group}
        # It logs its errors, which quote values, before anybody can catch them.
        logger = PySparkLogger.getLogger("SQLQueryContextLogger")
        silence = _Silence(thread)
        logger.addFilter(silence)
        try:
            for name, value in group.items():
                context.setLocalProperty(name, value)
            yield
        except (PySparkException, Py4JError) as error:
            raise self.stopped(error) from None
        finally:
            logger.removeFilter(silence)
            for name, value in before.items():
                context.setLocalProperty(name, value)


class _Silence(logging.Filter):
    """Drops the log messages of one thread."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread


def _ticked(name: str) -> str:
    return SPARK.quoting.name(name)


def _leaves(frame: Any) -> list[Any]:
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return [leaves.apply(place) for place in range(leaves.size())]


class ServerEngines(Engines):
    """A server that has the rows, and engines of our own that have units and sums."""

    def __init__(
        self, store: Any, types: Types, paths: UnitPaths, server: Postgres | Spark
    ) -> None:
        super().__init__(store, types, paths)
        if paths.whole_floats:
            raise DataError(
                "keys must be of one type on both sides on a server; got floats for whole "
                "numbers. Make both whole numbers."
            )
        self._server, self._dialect = server, server.dialect
        self._quote = server.dialect.quoting.name
        table, column = paths.unit
        kind, key = types[table][column], self._quote(column)
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
        return self._server.rows(text)

    def relation(self, name: str) -> str:
        return self._server.relation(name)

    def key(self, name: str) -> str:
        return f"t.{self._quote(self.paths.paths[name][0])}"

    def pairs(self, name: str) -> str:
        _, other = self.paths.paths[name]
        if other is None:
            key = self._quote(self.paths.unit[1])
            rows = self.relation(self.paths.unit[0])
            return f"(SELECT DISTINCT {key} AS key, {key} AS code FROM {rows} q)"
        return (
            f"(SELECT DISTINCT t.{self._quote(other[1])} AS key, {self._unit(other[0])[0]} AS code "
            f"FROM {self._unit(other[0])[1]})"
        )

    def _unit(self, name: str) -> tuple[str, str]:
        """Return the unit of a row ``t`` of a private table, and the FROM clause that has it."""
        rows = f"{self.relation(name)} t"
        if self.paths.paths[name][1] is None:
            return self.key(name), rows
        return "c.code", f"{rows} JOIN {self.pairs(name)} c ON {self.key(name)} = c.key"

    def contents(self, name: str) -> list[Row]:
        return self._server.digest(self.relation(name))

    def load(self, query: Select) -> None:
        """Leave the rows where they are."""

    def interrupt(self, thread: int) -> None:
        self._server.interrupt(thread)

    def close(self) -> None:
        self._server.close()

    def ask(self, connection: Any, query: Select) -> list[Row]:
        if any(item.name in ("u", "pac_u") for item in query.items):
            raise QueryError(
                f"tables in {self._dialect.name} must be queried for sums over units; got a "
                "request for rows. Use pac.sql with coins."
            )
        self._fill(connection, ANSWER, query, {})
        return list(connection.execute(f"SELECT * FROM {ANSWER}").fetchall())

    def keep(self, connection: Any, query: Select) -> None:
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
        text = self._dialect.write(query, self._relations(), kinds)
        numbered = f"SELECT {', '.join(shown)} FROM pac_batch b{joined}"
        self._insert(connection, table, text, list(kinds), numbered)

    def _relations(self) -> dict[Path, ServerRelation]:
        relations: dict[Path, ServerRelation] = {}
        for name in self._server.names:
            kinds = self._types[name]
            texts = frozenset(column for column, kind in kinds.items() if kind == "VARCHAR")
            plain = ServerRelation(text=self.relation(name), text_columns=texts)
            relations[name,] = relations[BASE, name] = plain
            if name in self.paths.paths:
                unit, rows = self._unit(name)
                text = f"(SELECT t.*, {unit} AS {self._quote(UNIT)} FROM {rows})"
                relations[WHOLE, name] = replace(plain, text=text)
        return relations

    def _insert(
        self, connection: Any, table: str, text: str, names: Sequence[str], values: str
    ) -> None:
        import pyarrow

        with engine_unquoted(connection):
            for batch in self._server.execute(text, names):
                connection.register("pac_batch", pyarrow.Table.from_batches([batch]))
                connection.execute(f"INSERT INTO {table} {values}")
                connection.unregister("pac_batch")

    def check_candidates(self) -> None:
        raise QueryError(
            f"tables in {self._dialect.name} must be queried for sums over units, with coins; got "
            "what needs a pool of candidates. Use sample=pac.Coins() and a membership budget, or "
            "copy the tables into a file of DuckDB."
        )


def open_server(source: Any, declared: frozenset[str]) -> Postgres | Spark | None:
    """Return the server that a source names, if it is one; private tables are ``declared``."""
    if isinstance(source, str) and source.startswith(PREFIXES):
        return Postgres(source, declared)
    if type(source).__module__.startswith("pyspark.sql."):
        return Spark(source, declared)
    return None
