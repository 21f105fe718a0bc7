"""Several tables that belong together: where their rows are, and which unit each row is about.

A pool is drawn over the units of one declared key. Every *private* table reaches that key, by a
column of its own or through another private table; every other table is public by declaration. A
world is what one candidate sees: the private tables with the rows of its units, the public ones
whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import weakref
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import DataError, MechanismError, QueryError
from pacprivacy.queries.spark_tables import SparkTables, is_spark_frame

RESERVED: Final = "pac_"
UNIT: Final = "pac_unit"  # the column that private tables carry besides their own
UNITS: Final = "pac_units"
WORLD: Final = "pac_world"
BLOCK: Final = "pac_block"  # some worlds, with their shares of the units
MEMBERS: Final = "pac_members"  # the units of those worlds
BASE: Final = "pac_base"  # schema of the tables as they were given
WHOLE: Final = "pac_whole"  # schema of the private tables with the unit of each row
UNKNOWN: Final = ""  # in the place of the name of a table: a view that cannot be read
SUFFIXES: Final = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}

Path_ = tuple[str, tuple[str, str] | None]  # own column; column of another private table


_BROKEN: weakref.WeakSet[Any] = weakref.WeakSet()  # connections whose engine has stopped


def quote(name: str) -> str:
    """Write a name so that SQL reads it as one."""
    return '"' + name.replace('"', '""') + '"'


def ask_tables(
    connection: Any,
    query: str,
    values: Mapping[str, Any] | None = None,
    *,
    fetch: Literal["fetchall", "fetchnumpy"] = "fetchall",
) -> Any:
    """Run a query over private rows; its errors say what went wrong, and show no value."""
    with engine_unquoted(connection):
        return getattr(connection.execute(query, values), fetch)()


@contextmanager
def engine_unquoted(connection: Any) -> Iterator[None]:
    """Raise errors of the engine without its words, which may show values."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            _BROKEN.add(connection)  # a defect of the engine, which answers nothing from here on
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Exception"))
        raise QueryError(
            "the query must have a value on every subset of the units; the engine stopped with "
            f"an error of the kind {kind.lower()!r}. Its words may show values, so they are left "
            "out: look for a cast, a division or a sum that fails on some rows; use TRY_CAST."
        ) from None


class Tables:
    """Tables with keys, some private: data for :func:`pacprivacy.sql` and for any function.

    Parameters
    ----------
    source : path, connection, or mapping of names to frames
        A DuckDB file, a folder of Parquet or CSV files (one table each), a DuckDB connection, or
        frames of pandas, polars, pyarrow or Spark by name. Frames of Spark stay where they are.
    unit : str
        ``"table.column"``: who is protected, one value of this column each.
    via : mapping, optional
        How every other private table reaches the unit: ``{"orders": "customer_id"}`` by a column
        that holds the unit's key, ``{"lines": ("order_id", "orders.id")}`` through the rows of
        another private table. A table that is not named is public; a view that is not named and
        reads a private table, a macro or a file is left out.

    Raises
    ------
    DataError
        If a table or column is not there, if rows have no unit or reach two; with their number.

    Guarantee
    ---------
    Claim Q-1. A world holds a private row if and only if the row's unit is in the candidate.

    Examples
    --------
    >>> import pandas as pd
    >>> import pacprivacy as pac
    >>> people = pd.DataFrame({"id": range(8), "region": list("nnnnssss")})
    >>> visits = pd.DataFrame({"person": [0, 0, 1, 5, 7], "cost": [3.0, 4.0, 5.0, 1.0, 2.0]})
    >>> clinic = pac.Tables({"people": people, "visits": visits}, unit="people.id",
    ...                     via={"visits": "person"})
    >>> clinic
    Tables(unit='people.id', n_units=8, private=['people', 'visits'], public=[])
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | Any,
        *,
        unit: str,
        via: Mapping[str, str | tuple[str, str]] | None = None,
    ) -> None:
        self._source = _read_source(source)
        self._open()
        table, column = _split_column(unit, "unit")
        self._paths: dict[str, Path_] = {table: (column, None)}
        for name, path in dict(via or {}).items():
            own, other = (path, None) if isinstance(path, str) else path
            self._paths[name] = (own, None if other is None else _split_column(other, "via"))
        self._source = self._source.public(set(self._paths))
        self.unit = unit
        self._check_names()
        if self.spark is not None:
            for kind, name, query in self._definitions():
                self.spark.create(kind, name, query)
        (n,) = self.rows(f"SELECT count(*) FROM {UNITS}")[0]
        self.n_units = int(n)
        self._check_rows()

    def __repr__(self) -> str:
        public = sorted(set(self.names) - set(self.private))
        return (
            f"Tables(unit={self.unit!r}, n_units={self.n_units}, private={list(self.private)}, "
            f"public={public})"
        )

    def __len__(self) -> int:
        return self.n_units

    def __getstate__(self) -> dict[str, Any]:
        here = ("_local", "_lock", "_engines")
        return {name: value for name, value in vars(self).items() if name not in here}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def _open(self) -> None:
        self._local, self._lock = threading.local(), threading.Lock()
        self._engines: dict[int, Any] = {}  # by process: a fork must not use its parent's

    @property
    def spark(self) -> SparkTables | None:
        """Where the rows are, if they are in Spark: the engine then has tables without rows."""
        return self._source.spark

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tables."""
        return self._source.names

    @property
    def private(self) -> tuple[str, ...]:
        """Names of the private tables."""
        return tuple(self._paths)

    @property
    def key(self) -> tuple[str, str]:
        """Table and column of the unit's key."""
        return _split_column(self.unit, "unit")

    def is_key(self, table: str, column: str) -> bool:
        """Whether a column of a table holds the unit's key, so that it tells units apart."""
        own, other = self._paths.get(self._known(table), ("", None))
        return other is None and own.lower() == column.lower() and own != ""

    def _known(self, table: str) -> str:
        """Return a table's name as it was given; SQL does not tell cases apart."""
        return next((name for name in self.names if name.lower() == table.lower()), table)

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, as it was given."""
        asked = f"DESCRIBE {BASE}.{quote(table)}"
        return [str(row[0]) for row in ask_tables(self.connect(), asked)]

    def library(self, table: str) -> str:
        """Return whose frame a table was given as; pandas' for a table in a file."""
        return self._source.libraries.get(table, "pandas")

    def take(self, rows: npt.NDArray[np.int64]) -> TablesWorld:
        """Return the tables as a candidate of these units sees them."""
        return TablesWorld(tables=self, units=np.asarray(rows, dtype=np.int64))

    def digest(self) -> str:
        """Return a hash of names, keys and contents, whatever the order of rows; curator-only."""
        state = hashlib.blake2b(f"{self.unit} {sorted(self._paths.items())}".encode())
        for name in sorted(self.names):
            if self.spark is not None:
                state.update(f"{name} {self.spark.digest(name)}".encode())
                continue
            text = "md5_number(CAST(t AS VARCHAR))"
            found = self.rows(
                f"SELECT count(*), bit_xor({text}), sum(({text} % 4294967291)::HUGEINT) "
                f"FROM {BASE}.{quote(name)} t"
            )
            state.update(f"{name} {self.columns(name)} {found}".encode())
        return state.hexdigest()

    def connect(self) -> Any:
        """Return this thread's connection, in which every table is a view that carries its unit.

        Threads share one engine, and have worlds of their own.
        """
        here, process = self._local, os.getpid()
        if getattr(here, "process", None) != process or here.connection in _BROKEN:
            with self._lock:
                if getattr(here, "engine", None) is self._engines.get(process):
                    self._engines.pop(process, None)
                if process not in self._engines:
                    engine = self._source.open()
                    self._create(engine)
                    self._engines[process] = engine
                here.engine = self._engines[process]
                here.connection = here.engine.cursor()
            here.connection.execute(
                f"CREATE TEMP TABLE {WORLD} (code INTEGER); "
                f"CREATE TEMP TABLE {BLOCK} (world INTEGER, pac_share DOUBLE); "
                f"CREATE TEMP TABLE {MEMBERS} (code INTEGER, world INTEGER)"
            )
            here.process, here.latest, here.query = process, None, None
        return here.connection

    def remember(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return what was computed for a key; the latest is kept, in this process alone."""
        self.connect()
        if self._local.latest is None or self._local.latest[0] != key:
            self._local.latest = (key, compute())
        return self._local.latest[1]

    def kept(self, query: str) -> str:
        """Run a query of ours once, and return the name of the table that holds its answer.

        Asking for parts of it anew would let the engine choose another order of joins each time.
        """
        if self.spark is not None:
            return self.spark.kept(query)
        connection = self.connect()
        if self._local.query != query:
            self._local.query = None
            ask_tables(connection, f"CREATE OR REPLACE TEMP TABLE pac_kept AS {query}")
            self._local.query = query
        return "pac_kept"

    def forget(self) -> None:
        """Drop what :meth:`remember` and :meth:`kept` keep."""
        self._local.latest = self._local.query = None
        if self.spark is not None:
            self.spark.forget()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the answer to a query of ours over all units; curator-only."""
        if self.spark is not None:
            return self.spark.rows(query)
        return list(ask_tables(self.connect(), query))

    def understands(self, query: str) -> bool:
        """Whether the engine can read a query over the tables; nothing is run."""
        with self.take(np.arange(0)) as connection:
            try:
                with engine_unquoted(
                    connection
                ):  # planned, not only parsed: lateral joins may fail
                    connection.execute(f"EXPLAIN {query}")
            except QueryError:
                return False
            return True

    @contextmanager
    def several(self, worlds: Sequence[npt.NDArray[np.int64]]) -> Iterator[Any]:
        """Yield a connection in which the block holds these worlds, numbered from 0."""
        connection = self.connect()
        sizes = np.array([len(units) for units in worlds])
        numbers = np.arange(len(worlds), dtype=np.int32)
        parts: dict[str, dict[str, Any]] = {
            BLOCK: {"world": numbers, "pac_share": sizes / self.n_units},
            MEMBERS: {
                "code": np.concatenate([*worlds, np.empty(0)]).astype(np.int32),
                "world": np.repeat(numbers, sizes),
            },
        }
        for name, columns in parts.items():
            connection.register("pac_part", arrow_of_tables(columns))
            connection.execute(f"DELETE FROM {name}; INSERT INTO {name} SELECT * FROM pac_part")
            connection.unregister("pac_part")
        yield connection

    def _create(self, connection: Any) -> None:
        connection.execute(f"CREATE SCHEMA {WHOLE}")
        for kind, name, query in self._definitions():
            ask_tables(connection, f"CREATE {kind} {name} AS {query}")

    def _definitions(self) -> Iterator[tuple[str, str, str]]:
        """Give units numbers in the order of their keys, and every private row its unit.

        Yields kind, name and query of what is to be made of the base tables.
        """
        table, column = self.key
        yield (
            "TABLE",
            UNITS,
            f"SELECT key, (row_number() OVER (ORDER BY key) - 1)::INTEGER AS code "
            f"FROM (SELECT DISTINCT {quote(column)} AS key FROM {BASE}.{quote(table)}) "
            f"WHERE key IS NOT NULL",
        )
        for name in self._source.names:
            base = f"{BASE}.{quote(name)} t"
            if name in self._paths:
                how = yield from self._codes(name)
                body = f"SELECT t.*, c.code AS {UNIT} FROM {base} JOIN {how}"
                yield "VIEW", f"{WHOLE}.{quote(name)}", body
            else:
                yield "VIEW", quote(name), f"SELECT * FROM {base}"

    def _codes(
        self, name: str, seen: tuple[str, ...] = ()
    ) -> Generator[tuple[str, str, str], None, str]:
        """Return the relation that a private table joins to find its unit, and how."""
        own, other = self._paths[name]
        if other is None:
            return f"{UNITS} c ON t.{quote(own)} = c.key"
        table, column = other
        if table in (*seen, name):
            raise DataError(f"via must lead to {self.unit}; got a circle at {table!r}. Mend via.")
        keys = f"{WHOLE}.{quote(f'{RESERVED}{name}')}"
        how = yield from self._codes(table, (*seen, name))
        query = f"SELECT DISTINCT t.{quote(column)} AS key, c.code FROM {BASE}.{quote(table)} t"
        yield "TABLE IF NOT EXISTS", keys, f"{query} JOIN {how}"
        return f"{keys} c ON t.{quote(own)} = c.key"

    def _check_names(self) -> None:
        columns = self._source.columns()
        for name, (own, other) in self._paths.items():
            for table, column in ((name, own), *([other] if other else [])):
                if table not in self._source.names:
                    raise DataError(
                        f"tables must hold {table!r}; got {', '.join(self._source.names)}. "
                        "Check the names in unit and via."
                    )
                if other is not None and other[0] not in self._paths:
                    raise DataError(
                        f"via must lead through private tables; got {other[0]!r} for {name!r}, "
                        "which is not in via. Say how it reaches the unit."
                    )
                found = columns[table]
                if column not in found:
                    raise DataError(
                        f"table {table!r} must have a column {column!r}; got "
                        f"{', '.join(found[:12])}. Check the names in unit and via."
                    )
        for name in self._source.names:
            if any(n.lower().startswith(RESERVED) for n in (name, *columns[name])):
                raise DataError(
                    f"names must not begin with {RESERVED}; got one in table {name!r}. Rename it."
                )

    def _check_rows(self) -> None:
        for name, (own, other) in self._paths.items():
            if other is not None:
                table, column = other
                (double,) = self.rows(
                    f"SELECT count(*) FROM (SELECT {quote(column)} FROM {WHOLE}.{quote(table)} "
                    f"GROUP BY 1 HAVING count(DISTINCT {UNIT}) > 1)"
                )[0]
                if double:
                    raise DataError(
                        f"every row of {name!r} must reach one unit; got {double} values of "
                        f"{table}.{column} that belong to several. Use a key that does not."
                    )
            # Every row that has a unit has one; those that have none are not in the join.
            try:
                (lost,) = self.rows(
                    f"SELECT (SELECT count(*) FROM {BASE}.{quote(name)}) "
                    f"- (SELECT count(*) FROM {WHOLE}.{quote(name)})"
                )[0]
            except QueryError as error:
                if "'conversion'" not in str(error):
                    raise
                raise DataError(
                    f"keys must be of one kind on both sides; got others in {own!r} of {name!r} "
                    "than in the column that it leads to. Make both text, or both numbers."
                ) from None
            if lost:
                raise DataError(
                    f"every row of {name!r} must belong to a unit of {self.unit}; got {lost} rows "
                    f"whose {own!r} is missing or leads to none. Drop them or mend the key."
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablesWorld(Mapping[str, Any]):
    """What one candidate sees: frames by name, or answers to queries; curator-only.

    Parameters
    ----------
    tables : Tables
        The universe.
    units : integer array
        Numbers of the units that are in.
    """

    tables: Tables
    units: npt.NDArray[np.int64]

    def __getitem__(self, name: str) -> Any:
        if name not in self.tables.names:
            raise KeyError(name)
        with self as connection, engine_unquoted(connection):
            rows = connection.sql(f"SELECT * FROM {quote(name)}")
            return frame_of_tables(rows, self.tables.library(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables.names)

    def __len__(self) -> int:
        return len(self.tables.names)

    @property
    def share(self) -> float:
        """Share of all units that is in."""
        return len(self.units) / self.tables.n_units

    def ask(self, query: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return the answer to a query, which reads the tables as they are here."""
        if self.tables.spark is not None:
            return self.tables.spark.ask_world(query, values, self.units, self.tables.private)
        with self as connection:
            return list(ask_tables(connection, query, values))

    def __enter__(self) -> Any:
        """Return a connection in which the private tables hold the rows of these units."""
        if self.tables.spark is not None and len(self.units):
            raise MechanismError(
                "tables of Spark frames must be asked by pac.sql, whose sums are made there; got "
                "a function of rows. Give Tables the frames of pandas: frame.toPandas()."
            )
        cursor = self.tables.connect()
        cursor.execute(f"DELETE FROM {WORLD}")
        cursor.register("pac_codes", arrow_of_tables({"code": self.units.astype(np.int32)}))
        cursor.execute(f"INSERT INTO {WORLD} SELECT code FROM pac_codes")
        cursor.unregister("pac_codes")
        for name in self.tables.private:
            body = (
                f"SELECT * EXCLUDE ({UNIT}) FROM {WHOLE}.{quote(name)} "
                f"WHERE {UNIT} IN (SELECT code FROM {WORLD})"
            )
            cursor.execute(f"CREATE OR REPLACE TEMP VIEW {quote(name)} AS {body}")
        return cursor

    def __exit__(self, *error: object) -> None:
        cursor = self.tables.connect()
        for name in self.tables.private:
            cursor.execute(f"DROP VIEW IF EXISTS temp.{quote(name)}")


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


def _text(value: str) -> str:
    """Write a string so that SQL reads it as one."""
    return "'" + value.replace("'", "''") + "'"


def _split_column(text: str, name: str) -> tuple[str, str]:
    table, dot, column = text.partition(".")
    if not (table and dot and column):
        raise DataError(f"{name} must name a column as 'table.column'; got {text!r}.")
    return table, column


# --- where the tables are ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Source:
    """Where tables are, by name, so that another thread or process can open them again."""

    relations: Mapping[str, str]
    frames: Mapping[str, Any]
    libraries: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    attached: str | None = None
    views: Mapping[str, frozenset[str]] = field(default_factory=dict)  # what each of them reads
    spark: SparkTables | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.relations, *self.frames)

    def public(self, private: set[str]) -> _Source:
        """Leave out views that read private rows and are not private: they would show them all."""
        own = {name.lower() for name in private}
        hidden: set[str] = set()
        for _ in self.views:  # through views of views
            known = own | hidden | {UNKNOWN}
            hidden |= {n.lower() for n, reads in self.views.items() if reads & known} - own
        relations, frames = (
            {name: found for name, found in some.items() if name.lower() not in hidden}
            for some in (self.relations, self.frames)
        )
        return replace(self, relations=relations, frames=frames)

    def open(self) -> Any:
        """Return a new connection with a view of every table in the base schema."""
        import duckdb

        # One thread: sums of floats come out the same, to the last bit, in every run.
        settings: Any = {"threads": 1, "preserve_insertion_order": True}
        # A name that is no table is an error, and never a variable of the program.
        settings["python_enable_replacements"] = False
        connection = duckdb.connect(":memory:", config=settings)
        connection.execute(f"CREATE SCHEMA {BASE}")
        if self.attached is not None:
            connection.execute(f"ATTACH {_text(self.attached)} AS pac_source (READ_ONLY)")
        for name, frame in self.frames.items():
            connection.register("pac_frame", frame)
            connection.execute(f"CREATE TABLE {BASE}.{quote(name)} AS SELECT * FROM pac_frame")
            connection.unregister("pac_frame")
        for name, relation in self.relations.items():
            # A view is read once: names in it would mean the tables of a world.
            kind = "TABLE" if name in self.views else "VIEW"
            try:
                ask_tables(connection, f"CREATE {kind} {BASE}.{quote(name)} AS FROM {relation}")
            except QueryError:
                raise DataError(
                    f"table {name!r} must be one that can be read; it cannot: a file that is "
                    "damaged or not in UTF-8, or a view that fails. Mend it, or take it away."
                ) from None
        # From here on the engine reads these files and no others, whatever it is asked.
        files = ", ".join(_text(path) for path in self.files)
        connection.execute(f"SET allowed_paths = [{files}]; SET enable_external_access = false")
        return connection

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of every table."""
        engine = self.open()
        asked = {name: f"DESCRIBE {BASE}.{quote(name)}" for name in self.names}
        return {name: [str(row[0]) for row in ask_tables(engine, q)] for name, q in asked.items()}


def _read_source(source: Any) -> _Source:
    try:
        import duckdb
        import pyarrow
    except ImportError as error:
        raise DataError(
            "tables need duckdb, sqlglot and pyarrow, which are not installed. "
            "Run: pip install 'pacprivacy[sql]'"
        ) from error
    if isinstance(source, Mapping):
        _check_different([str(name) for name in source], "in capitals and small letters")
    if isinstance(source, Mapping) and any(map(is_spark_frame, source.values())):
        given = {
            str(name): frame if is_spark_frame(frame) else _as_arrow(frame, name)
            for name, frame in source.items()
        }
        spark = SparkTables(given, BASE)
        return _Source(relations={}, frames=spark.empty, spark=spark)
    if isinstance(source, Mapping):
        frames = {str(name): _as_arrow(frame, name) for name, frame in source.items()}
        made_by = {str(n): type(frame).__module__.partition(".")[0] for n, frame in source.items()}
        return _Source(relations={}, frames=frames, libraries=made_by)
    if isinstance(source, duckdb.DuckDBPyConnection):
        found: dict[str, Any] = {}
        relations, views = _listed(source)
        for name, relation in relations.items():
            with engine_unquoted(source):
                table = source.sql(f"SELECT * FROM {relation}").to_arrow_table()
            assert isinstance(table, pyarrow.Table)
            found[name] = table
        return _Source(relations={}, frames=found, views=views)
    if not isinstance(source, str | Path):
        raise DataError(
            f"tables must be a DuckDB file or connection, a folder, or frames by name; got "
            f"{type(source).__name__}. For example pac.Tables('shop.duckdb', unit='customer.id')."
        )
    return _read_path(Path(source))


def _read_path(path: Path) -> _Source:
    if not (path.is_file() or path.is_dir()):
        raise DataError(f"tables must be a file or folder that is there; got {str(path)!r}.")
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
        if not files:
            raise DataError(
                f"the folder of tables must hold .parquet or .csv files; got none in {path.name!r}."
            )
        _check_different([p.stem for p in files], "with several endings")
        relations = {p.stem: f"{SUFFIXES[p.suffix.lower()]}({_text(str(p))})" for p in files}
        return _Source(relations=relations, frames={}, files=tuple(map(str, files)))
    import duckdb

    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            relations, views = _listed(connection, "pac_source")
    except duckdb.Error as error:
        raise DataError(
            f"{path.name!r} must be a DuckDB file that nobody is writing to; it cannot be opened."
        ) from error
    return _Source(relations=relations, frames={}, attached=str(path), views=views)


def _listed(
    connection: Any, catalog: str | None = None
) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """Return how a connection calls its tables, and what its views read; refuse two of a name."""
    rows = connection.execute(
        "SELECT table_name, table_catalog, table_schema FROM information_schema.tables ORDER BY ALL"
    ).fetchall()
    _check_different([str(row[0]) for row in rows], "in several schemas")
    views = connection.execute("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal")
    defined = {str(name): str(sql) for name, sql in views.fetchall()}
    macros = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE NOT internal"
    )
    known, hidden = (
        {str(row[0]).lower() for row in rows},
        [str(row[0]) for row in macros.fetchall()],
    )
    return (
        {str(t): ".".join(map(quote, (catalog or str(c), str(s), str(t)))) for t, c, s in rows},
        {name: _read_by(name, sql, known, hidden) for name, sql in defined.items()},
    )


def _check_different(names: Sequence[str], how: str) -> None:
    """Refuse two tables of one name: SQL does not tell cases apart."""
    lowered = [name.lower() for name in names]
    for name in lowered:
        if lowered.count(name) > 1:
            raise DataError(
                f"tables must have different names; got {name!r} {how}. Give the one that you mean "
                "as a frame, or rename it."
            )


def _read_by(view: str, sql: str, known: set[str], macros: Sequence[str]) -> frozenset[str]:
    """Return the tables that a view names, in lower case.

    What a macro reads, a file or a table of the engine's own is unknown.
    """
    import sqlglot
    from sqlglot import errors, exp

    if any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) for name in macros):
        return frozenset({UNKNOWN})
    try:
        tree = sqlglot.parse_one(sql, dialect="duckdb")
    except errors.SqlglotError:
        return frozenset({UNKNOWN})
    own = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    read = {
        table.name.lower()
        if isinstance(table.this, exp.Identifier) and table.name.lower() in known | own
        else UNKNOWN
        for table in tree.find_all(exp.Table)
    }
    return frozenset(read - {view.lower()})


def _as_arrow(frame: Any, name: str) -> Any:
    import narwhals.stable.v2 as nw
    import pyarrow

    if isinstance(frame, pyarrow.Table):
        return frame
    try:
        return nw.from_native(frame, eager_only=True).to_arrow()
    except (TypeError, ValueError) as error:
        if hasattr(frame, "columns"):  # words of Arrow may quote an entry
            raise DataError(
                f"table {name!r} must have distinct column names, and entries of one kind in each "
                f"column; got {type(error).__name__}. Rename columns, or make mixed ones text."
            ) from None
        raise DataError(
            f"table {name!r} must be a frame of pandas, polars, pyarrow or Spark; got "
            f"{type(frame).__name__}."
        ) from error
