"""The engines behind tables: one with the rows, one without any, and one that queries are run in.

The *store* has files and rows, and runs only what is written by us. The *bare* engine has the
tables without a row: it says whether a query can be bound, and its types. The *asked* engine runs
queries: it has the columns that they read and the units of their rows, and nothing else: no file,
no other table, no setting that can be changed.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, Literal, TypeAlias

from pacprivacy.errors import QueryError
from pacprivacy.queries.tree import Column, Select, Table, quote, quote_text, walk

UNIT: Final = "pac_unit"  # the column that private tables carry besides their own
WORLD: Final = "pac_world"
BLOCK: Final = "pac_block"  # some candidates, with their shares of the units
MEMBERS: Final = "pac_members"  # the units of those candidates
SHARE: Final = "pac_share"  # the share of the units that a candidate holds
BASE: Final = "pac_base"  # schema of the tables as they were given
WHOLE: Final = "pac_whole"  # schema of the private tables with the unit of each row
INTEGERS: Final = frozenset(
    f"{sign}{size}"
    for sign in ("", "U")
    for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)
BOOKKEEPING: Final = (
    f"CREATE TEMP TABLE {WORLD} (code INTEGER); "
    f"CREATE TEMP TABLE {BLOCK} (world INTEGER, {SHARE} DOUBLE); "
    f"CREATE TEMP TABLE {MEMBERS} (code INTEGER, world INTEGER)"
)
Fetch = Literal["fetchall", "fetchnumpy", "to_arrow_table"]
Row: TypeAlias = tuple[Any, ...]  # of a table, or the keys of a cell
Columns: TypeAlias = Mapping[str, Any]  # arrays by name

_BROKEN: weakref.WeakSet[Any] = weakref.WeakSet()  # connections whose engine has stopped


def run_quietly(
    connection: Any, query: str, values: Sequence[Any] = (), *, fetch: Fetch = "fetchall"
) -> Any:
    """Run a query over private rows; its errors say what went wrong, and show no value."""
    with engine_unquoted(connection):
        if fetch == "to_arrow_table":
            return connection.sql(query).to_arrow_table()
        return getattr(connection.execute(query, list(values)), fetch)()


@contextmanager
def engine_unquoted(connection: Any) -> Iterator[None]:
    """Raise errors of the engine without its words, which may show values."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            _BROKEN.add(connection)  # a defect of the engine, which answers nothing from here on
        raise QueryError(
            "the query must have a value on every subset of the units; the engine stopped with "
            f"an error of the kind {kind_of_error(error)!r}. Its words may show values, so they "
            "are left out: look for a cast, a division or a sum that fails on some rows; use "
            "TRY_CAST."
        ) from None


def is_broken(connection: Any) -> bool:
    """Whether an engine has stopped with a defect of its own, and answers nothing from here on."""
    return connection in _BROKEN


def kind_of_error(error: Exception) -> str:
    """Return the kind of an error of the engine, in words."""
    words = type(error).__name__.removesuffix("Exception")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", words).lower()


def frame_of_tables(result: Any, library: str = "pandas") -> Any:
    """Return a result as a frame of a library; as an Arrow table where pandas is not installed."""
    if library == "polars":
        return result.pl()
    if library == "pyarrow" or find_spec("pandas") is None:
        return result.to_arrow_table()
    return result.df()


def arrow_of_tables(columns: Mapping[str, Any]) -> Any:
    """Return columns as a table that the engine reads without copying."""
    import pyarrow

    return pyarrow.table(dict(columns))


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
    listed = ", ".join(map(quote_text, files))
    connection.execute(
        f"SET allowed_paths = [{listed}]; SET enable_external_access = false; "
        "SET lock_configuration = true"
    )


class Engines:
    """The engines of a process; curator-only."""

    def __init__(
        self, store: Any, types: Mapping[str, Mapping[str, str]], private: Sequence[str]
    ) -> None:
        self.store, self._types = store, types
        self.bare, self.asked = open_engine(), open_engine()
        self._loaded: dict[tuple[str, ...], set[str]] = {}
        for engine in (self.bare, self.asked):
            engine.execute(f"CREATE SCHEMA {WHOLE}")
            close_engine(engine)
        for name, columns in types.items():
            self.bare.execute(f"CREATE TABLE {quote(name)} ({_typed(columns)})")
            if name in private:
                whole = {**columns, UNIT: "INTEGER"}
                self.bare.execute(f"CREATE TABLE {WHOLE}.{quote(name)} ({_typed(whole)})")

    def load(self, query: Select) -> None:
        """Bring the columns that a query reads into the engine that is asked."""
        paths = {
            part.alias: part.path
            for part in walk(query)
            if isinstance(part, Table) and (len(part.path) == 2 or part.path[0] in self._types)
        }
        needed: dict[tuple[str, ...], set[str]] = {path: set() for path in paths.values()}
        for part in walk(query):
            if isinstance(part, Column) and part.source in paths:
                needed[paths[part.source]].add(part.name)
        for path, columns in needed.items():
            held = self._loaded.get(path)
            if held is None or not columns <= held:
                self._load(path, columns | (held or set()))

    def _load(self, path: tuple[str, ...], columns: set[str]) -> None:
        name, private = path[-1], len(path) == 2
        kinds = self._types[name]
        chosen = [c for c in kinds if c in columns] or [next(iter(kinds))]
        values = [f"CAST({quote(c)} AS {plain_type(kinds[c])}) AS {quote(c)}" for c in chosen]
        values += [UNIT] * private
        source = f"{WHOLE if private else BASE}.{quote(name)}"
        reader, writer = self.store.cursor(), self.asked.cursor()
        table = ".".join(map(quote, path))
        with engine_unquoted(self.store):
            batches = reader.sql(f"SELECT {', '.join(values)} FROM {source}").to_arrow_reader()
            writer.register("pac_batches", batches)
            writer.execute("BEGIN")
            writer.execute(f"DROP TABLE IF EXISTS {table}")
            writer.execute(f"CREATE TABLE {table} AS SELECT * FROM pac_batches")
            writer.execute("COMMIT")
            writer.unregister("pac_batches")
        self._loaded[path] = {*chosen, UNIT}


class Connections:
    """What one thread asks with; curator-only."""

    def __init__(self, process: int, engines: Engines) -> None:
        self.process, self.engines = process, engines
        self.store, self.asked, self.bare = (
            engine.cursor() for engine in (engines.store, engines.asked, engines.bare)
        )
        for connection in (self.store, self.asked, self.bare):
            connection.execute(BOOKKEEPING)
        self.latest: tuple[Hashable, Any] | None = None
        self.query: Select | None = None


def fill_table(connection: Any, table: str, columns: Mapping[str, Any]) -> None:
    """Let a table of ours hold these rows and no others."""
    connection.register("pac_part", arrow_of_tables(columns))
    connection.execute(f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM pac_part")
    connection.unregister("pac_part")


def plain_type(kind: str) -> str:
    """Return a type without a list of levels, which would be a fact of all rows."""
    return "VARCHAR" if kind.startswith("ENUM") else kind


def type_family(kind: str) -> str:
    """Return what a type is called when its size does not matter."""
    name = re.sub(r"\(.*\)", "", plain_type(kind))
    return "whole numbers" if name in INTEGERS else name


def _typed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())


def types_of(connection: Any, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the types of the columns of every table."""
    types: dict[str, dict[str, str]] = {}
    for name in names:
        rows = run_quietly(connection, f"DESCRIBE {BASE}.{quote(name)}")
        types[name] = {str(row[0]): plain_type(str(row[1])) for row in rows}
    return types
