"""Where tables are, and the engines that hold them: with all rows, without any, for queries.

The *store* has files and rows, and runs our statements only. The *bare* engine has the
tables without a row: it says whether a query can be bound, and its types. The *asked* engine runs
queries: it has the columns that they read and the units of their rows, and nothing else: no file,
no other table, no setting that can be changed. Tables come from frames, files and databases.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from pacprivacy.errors import DataError, QueryError
from pacprivacy.queries.grammar import checked_sql, close_engine, open_engine
from pacprivacy.queries.tree import Select, columns_read, folded, quote, quote_text

UNIT: Final = "pac_unit"  # the column that private tables carry besides their own
CANDIDATE: Final = "pac_candidate"  # the units of the candidate that is asked
SHARE: Final = "pac_share"  # the share of the units that a candidate holds
BASE: Final = "pac_base"  # schema of the tables as they were given
WHOLE: Final = "pac_whole"  # schema of the private tables with the unit of each row
SUFFIXES: Final = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}
INTEGERS: Final = frozenset(
    f"{sign}{size}"
    for sign in ("", "U")
    for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)
UNITS: Final = "pac_units"  # the key of every unit, and its number
KEPT: Final = "pac_kept"  # the answer to the query that was run last
RESERVED: Final = "pac_"
Path_: TypeAlias = tuple[str, tuple[str, str] | None]  # own column; that of another private table
Row: TypeAlias = tuple[Any, ...]  # of a table, or the keys of a cell
Columns: TypeAlias = Mapping[str, Any]  # arrays by name
Types: TypeAlias = Mapping[str, Mapping[str, str]]  # of the columns of every table

_BROKEN: weakref.WeakSet[Any] = weakref.WeakSet()  # connections whose engine has stopped


def run_quietly(connection: Any, query: str, *, arrays: bool = False) -> Any:
    """Run a query over private rows; its errors name the problem, and show no value."""
    with engine_unquoted(connection):
        result = connection.execute(query)
        return result.fetchnumpy() if arrays else result.fetchall()


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
    return connection in _BROKEN


def kind_of_error(error: Exception) -> str:
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
    """Return columns as a table that the engine reads without copying; masked entries are NULL."""
    import pyarrow

    masked = {name: c for name, c in columns.items() if isinstance(c, np.ma.MaskedArray)}
    filled = {
        name: pyarrow.array(np.ma.getdata(c), mask=np.ma.getmaskarray(c))
        for name, c in masked.items()
    }
    return pyarrow.table({**columns, **filled})


# --- where tables are ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablesSource:
    """Where tables are, by name, so that another thread or process can open them again."""

    relations: Mapping[str, str]
    frames: Mapping[str, Any]
    libraries: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    copied: frozenset[str] = frozenset()  # relations that are read once
    attached: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.relations, *self.frames)

    def types(self, store: Any) -> Types:
        types: dict[str, dict[str, str]] = {}
        for name in self.names:
            rows = run_quietly(store, f"DESCRIBE {BASE}.{quote(name)}")
            types[name] = {str(row[0]): plain_type(str(row[1])) for row in rows}
        return types

    def engines(self, store: Any, types: Types, paths: UnitPaths) -> Engines:
        """Return the engines of this process, which know the unit of every private row."""
        store.execute(f"CREATE SCHEMA {WHOLE}")
        for kind, name, query in paths.definitions(self.names):
            run_quietly(store, f"CREATE {kind} {name} AS {query}")
        return Engines(store, types, paths)

    def open(self) -> Any:
        """Return a new engine with a view of every table in the base schema."""
        connection = open_engine(arrow_lossless_conversion=True)
        connection.execute(f"CREATE SCHEMA {BASE}")
        if self.attached is not None:
            connection.execute(f"ATTACH {quote_text(self.attached)} AS pac_source (READ_ONLY)")
        for name, frame in self.frames.items():
            connection.register("pac_frame", frame)
            connection.execute(f"CREATE TABLE {BASE}.{quote(name)} AS SELECT * FROM pac_frame")
            connection.unregister("pac_frame")
        for name, relation in self.relations.items():
            kind = "TABLE" if name in self.copied else "VIEW"
            try:
                run_quietly(connection, f"CREATE {kind} {BASE}.{quote(name)} AS FROM {relation}")
            except QueryError:
                raise DataError(
                    f"table {name!r} must be one that can be read; it cannot: a file that is "
                    "damaged or not in UTF-8, or a view that fails. Mend it, or take it away."
                ) from None
        close_engine(connection, [file for file in self.files if file.lower().endswith("parquet")])
        return connection


def read_tables_source(source: Any, declared: frozenset[str]) -> TablesSource:
    """Return where tables are; ``declared`` are the names of the private ones."""
    try:
        import duckdb
        import pyarrow
    except ImportError as error:
        raise DataError(
            "tables need duckdb and pyarrow, which are not installed. "
            "Install pacprivacy with its extra sql."
        ) from error
    if isinstance(source, Mapping):
        _check_different([str(name) for name in source], "in capitals and small letters")
        frames = {str(name): _as_arrow(frame, name) for name, frame in source.items()}
        made_by = {str(n): type(frame).__module__.partition(".")[0] for n, frame in source.items()}
        return TablesSource(relations={}, frames=frames, libraries=made_by)
    if isinstance(source, duckdb.DuckDBPyConnection):
        relations, _ = _listed(source, declared)
        tables: dict[str, Any] = {}
        for name, relation in relations.items():
            with engine_unquoted(source):
                table = source.sql(f"SELECT * FROM {relation}").to_arrow_table()
            assert isinstance(table, pyarrow.Table)
            tables[name] = table
        return TablesSource(relations={}, frames=tables)
    if not isinstance(source, str | Path):
        raise DataError(
            f"tables must be a DuckDB file or connection, a folder, or frames by name; got "
            f"{type(source).__name__}. For example pac.Tables('shop.duckdb', unit='customer.id')."
        )
    return _read_path(Path(source), declared)


def _read_path(path: Path, declared: frozenset[str]) -> TablesSource:
    if not (path.is_file() or path.is_dir()):
        raise DataError(f"tables must be a file or folder that is there; got {str(path)!r}.")
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
        if not files:
            raise DataError(
                f"the folder of tables must hold .parquet or .csv files; got none in {path.name!r}."
            )
        _check_different([p.stem for p in files], "with several endings")
        relations = {p.stem: f"{SUFFIXES[p.suffix.lower()]}({quote_text(str(p))})" for p in files}
        texts = frozenset(p.stem for p in files if p.suffix.lower() != ".parquet")
        return TablesSource(
            relations=relations, frames={}, files=tuple(map(str, files)), copied=texts
        )
    import duckdb

    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            relations, views = _listed(connection, declared, "pac_source")
    except duckdb.Error as error:
        raise DataError(
            f"{path.name!r} must be a DuckDB file that nobody is writing to; it cannot be opened."
        ) from error
    return TablesSource(relations=relations, frames={}, attached=str(path), copied=views)


def _listed(
    connection: Any, declared: frozenset[str], catalog: str | None = None
) -> tuple[dict[str, str], frozenset[str]]:
    """Return the names of tables and ``declared`` views in a connection, and the set of views.

    Any other view is left out: it may show rows of all units.
    """
    rows = connection.execute(
        "SELECT table_name, table_catalog, table_schema, table_type LIKE '%VIEW%' "
        "FROM information_schema.tables ORDER BY ALL"
    ).fetchall()
    _check_different([str(row[0]) for row in rows], "in several schemas")
    listed = [row for row in rows if not row[3] or row[0] in declared]
    relations = {
        name: ".".join(map(quote, (catalog or owner, schema, name)))
        for name, owner, schema, _ in listed
    }
    return relations, frozenset(name for name, *_, is_view in listed if is_view)


def _check_different(names: Sequence[str], how: str) -> None:
    lowered = list(map(folded, names))
    for name in lowered:
        if lowered.count(name) > 1:
            raise DataError(
                f"tables must have different names; got {name!r} {how}. Give the one that you mean "
                "as a frame, or rename it."
            )


def _as_arrow(frame: Any, name: str) -> Any:
    import narwhals.stable.v2 as nw
    import pyarrow

    if isinstance(frame, pyarrow.Table):
        return frame
    try:
        table = nw.from_native(frame, eager_only=True).to_arrow()
        return table.drop_columns([n for n in table.column_names if n.startswith("__index_level_")])
    except (TypeError, ValueError) as error:
        if hasattr(frame, "columns"):  # words of Arrow may quote an entry
            raise DataError(
                f"table {name!r} must have distinct column names, and entries of one kind in each "
                f"column; got {type(error).__name__}. Rename columns, or make mixed ones text."
            ) from None
        raise DataError(
            f"table {name!r} must be a frame of pandas, polars or pyarrow; got "
            f"{type(frame).__name__}."
        ) from error


# --- units ---


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPaths:
    """Paths from the rows of every private table to the key of their unit.

    ``whole_floats`` are tables whose keys are whole numbers in columns of floats.
    """

    unit: tuple[str, str]
    paths: Mapping[str, Path_]
    whole_floats: Set[str] = frozenset()

    def key(self, name: str) -> str:
        """Return the key of a row ``t`` of a private table."""
        key = f"t.{quote(self.paths[name][0])}"
        return f"TRY_CAST({key} AS BIGINT)" if name in self.whole_floats else key

    def definitions(self, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Yield kind, name and query of what gives units numbers, and private rows their unit."""
        table, column = self.unit
        yield (
            "TABLE",
            UNITS,
            f"SELECT key, (row_number() OVER (ORDER BY key) - 1)::INTEGER AS code "
            f"FROM (SELECT DISTINCT {quote(column)} AS key FROM {BASE}.{quote(table)}) "
            f"WHERE key IS NOT NULL",
        )
        for name in names:
            base = f"{BASE}.{quote(name)} t"
            if name in self.paths:
                how = yield from self._codes(name)
                body = f"SELECT t.*, c.code AS {UNIT} FROM {base} JOIN {how}"
                yield "VIEW", f"{WHOLE}.{quote(name)}", body
            else:
                yield "VIEW", quote(name), f"SELECT * FROM {base}"

    def _codes(self, name: str) -> Generator[tuple[str, str, str], None, str]:
        """Return the relation that a private table joins to find its unit, and how."""
        _, other = self.paths[name]
        if other is None:
            return f"{UNITS} c ON {self.key(name)} = c.key"
        table, column = other
        keys = f"{WHOLE}.{quote(f'{RESERVED}{name}')}"
        how = yield from self._codes(table)
        query = f"SELECT DISTINCT t.{quote(column)} AS key, c.code FROM {BASE}.{quote(table)} t"
        yield "TABLE IF NOT EXISTS", keys, f"{query} JOIN {how}"
        return f"{keys} c ON {self.key(name)} = c.key"

    def check_circles(self) -> None:
        for name in self.paths:
            passed, step = [name], self.paths[name][1]
            while step is not None:
                if step[0] in passed:
                    raise DataError(
                        f"via must lead to {'.'.join(self.unit)}; got a circle at {step[0]!r}. "
                        "Mend via."
                    )
                passed.append(step[0])
                step = self.paths[step[0]][1]


# --- engines of a process ---


class Engines:
    """The engines of a process; curator-only."""

    def __init__(self, store: Any, types: Types, paths: UnitPaths) -> None:
        self.store, self._types, self.paths = store, types, paths
        self.bare, self.asked = open_engine(), open_engine()
        self._loaded: dict[tuple[str, ...], set[str]] = {}
        for engine in (self.bare, self.asked):
            engine.execute(f"CREATE SCHEMA {WHOLE}")
            close_engine(engine)
        for name, columns in types.items():
            self.bare.execute(f"CREATE TABLE {quote(name)} ({_typed(columns)})")
            if name in paths.paths:
                whole = {**columns, UNIT: "INTEGER"}
                self.bare.execute(f"CREATE TABLE {WHOLE}.{quote(name)} ({_typed(whole)})")

    def rows(self, text: str) -> list[Row]:
        return list(run_quietly(self.store.cursor(), text))

    def relation(self, name: str) -> str:
        return f"{BASE}.{quote(name)}"

    def key(self, name: str) -> str:
        return self.paths.key(name)

    def pairs(self, name: str) -> str:
        """Return the keys that the rows of a private table may have, with the unit of each."""
        through = self.paths.paths[name][1] is not None
        return f"{WHOLE}.{quote(f'{RESERVED}{name}')}" if through else UNITS

    def contents(self, name: str) -> list[Row]:
        """Return a digest of the rows of a table that ignores their order."""
        text = "md5_number(CAST(t AS VARCHAR))"
        return self.rows(
            f"SELECT count(*), bit_xor({text}), sum(({text} % 4294967291)::HUGEINT) "
            f"FROM {self.relation(name)} t"
        )

    def ask(self, connection: Any, query: Select) -> list[Row]:
        """Return the answer to a query of a person over all units."""
        return list(run_quietly(connection, checked_sql(query)))

    def keep(self, connection: Any, query: Select) -> None:
        """Run sums per unit, and keep the answer as a table of the connection."""
        run_quietly(connection, f"CREATE OR REPLACE TEMP TABLE {KEPT} AS {checked_sql(query)}")

    def check_candidates(self) -> None:
        """Refuse candidates where their rows cannot be cut out."""

    def interrupt(self, thread: int) -> None:
        """Stop the statements of a thread that run outside this process."""

    def close(self) -> None:
        """End connections outside this process."""

    def load(self, query: Select) -> None:
        """Bring the columns that a query reads into the engine that is asked."""
        needed: dict[tuple[str, ...], set[str]] = {}
        for table, columns in columns_read(query).items():
            if len(table.path) == 2 or table.path[0] in self._types:
                needed.setdefault(table.path, set()).update(columns)
        for path, names in needed.items():
            held = self._loaded.get(path)
            if held is None or not names <= held:
                self._load(path, names | (held or set()))

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
    def __init__(self, process: int, engines: Engines) -> None:
        self.process, self.engines = process, engines
        self.store, self.asked, self.bare = (
            engine.cursor() for engine in (engines.store, engines.asked, engines.bare)
        )
        self.query: Select | None = None


def plain_type(kind: str) -> str:
    """Return a type without a list of levels, which would be a fact of all rows."""
    return "VARCHAR" if kind.startswith("ENUM") else kind


def type_family(kind: str) -> str:
    """Return the name of a type without its size."""
    name = re.sub(r"\(.*\)", "", plain_type(kind))
    return "whole numbers" if name in INTEGERS else name


def _typed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
