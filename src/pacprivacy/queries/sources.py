"""Where tables are: frames, files, databases; and what their names and views are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pacprivacy.errors import DataError, QueryError
from pacprivacy.queries.engines import (
    BASE,
    close_engine,
    engine_unquoted,
    open_engine,
    run_quietly,
    type_family,
)
from pacprivacy.queries.grammar import TYPES
from pacprivacy.queries.spark_tables import SparkTables, is_spark_frame
from pacprivacy.queries.tree import Column, Select, Table, folded, quote, quote_text, walk

RESERVED: Final = "pac_"
SUFFIXES: Final = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}


Path_ = tuple[str, tuple[str, str] | None]  # own column; column of another private table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablesSource:
    """Where tables are, by name, so that another thread or process can open them again."""

    relations: Mapping[str, str]
    frames: Mapping[str, Any]
    libraries: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    copied: frozenset[str] = frozenset()  # relations that are read once
    attached: str | None = None
    views: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    spark: SparkTables | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tables."""
        return (*self.relations, *self.frames)

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


class TablesSchema:
    """What is known of tables without reading a row: names, types, keys, and who is private."""

    unit: str
    _paths: dict[str, Path_]
    _source: TablesSource
    _types: Mapping[str, Mapping[str, str]]
    _whole_floats: set[str]

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
        return split_column(self.unit, "unit")

    def is_key(self, table: str, column: str) -> bool:
        """Whether a column of a table holds the unit's key, so that it tells units apart."""
        key, other = self._paths.get(table, ("", None))
        return other is None and folded(key) == folded(column) and key != ""

    def find_table(self, name: str) -> str | None:
        """Return a table's name as it was given, whatever its case; None if there is none."""
        return next((known for known in self.names if folded(known) == folded(name)), None)

    def find_view(self, name: str) -> tuple[str, tuple[str, ...]] | None:
        """Return the SELECT of a view and the names of its columns; None if there is none."""
        return self._source.views.get(folded(name))

    def table_columns(self, table: str) -> Mapping[str, str]:
        """Return the types of a table's columns; text in the place of lists of levels."""
        return self._types[table]

    def is_allowed_type(self, kind: str) -> bool:
        """Whether columns of a type may be read by a query."""
        return re.sub(r"\(.*\)", "", kind) in TYPES

    def library(self, table: str) -> str:
        """Return whose frame a table was given as; pandas' for a table in a file."""
        return self._source.libraries.get(table, "pandas")

    def _described(self, query: Select) -> str:
        """Name the columns that a query reads, with their types."""
        tables = {part.alias: part.path[-1] for part in walk(query) if isinstance(part, Table)}
        shown: dict[str, None] = {}
        for part in walk(query):
            if isinstance(part, Column) and part.source in tables:
                kind = self._types[tables[part.source]].get(part.name, "")
                shown[f"{part.name} {kind}"] = None
        return ", ".join(list(shown)[:12]) or "none"

    def _check_names(self) -> None:
        for name, (key, other) in self._paths.items():
            for table, column in ((name, key), *([other] if other else [])):
                if table not in self.names:
                    raise DataError(
                        f"tables must hold {table!r}; got {', '.join(self.names)}. "
                        "Check the names in unit and via."
                    )
                if other is not None and other[0] not in self._paths:
                    raise DataError(
                        f"via must lead through private tables; got {other[0]!r} for {name!r}, "
                        "which is not in via. Say how it reaches the unit."
                    )
                columns = self._types[table]
                if column not in columns:
                    raise DataError(
                        f"table {table!r} must have a column {column!r}; got "
                        f"{', '.join(list(columns)[:12])}. Check the names in unit and via."
                    )
        for name in self.names:
            if any(n.lower().startswith(RESERVED) for n in (name, *self._types[name])):
                raise DataError(
                    f"names must not begin with {RESERVED}; got one in table {name!r}. Rename it."
                )

    def _check_keys(self) -> None:
        """Refuse keys of two types: what is equal would be the engine's to say, row by row."""
        table, column = self.key
        self._whole_floats = set()
        for name, (key, other) in self._paths.items():
            target = (table, column) if other is None else other
            kinds = [type_family(self._types[t][c]) for t, c in ((name, key), target)]
            if kinds == ["DOUBLE", "whole numbers"]:  # what pandas makes of whole ones with gaps
                self._whole_floats.add(name)
            elif kinds[0] != kinds[1]:
                raise DataError(
                    f"keys must be of one type on both sides; got {kinds[0]} in {key!r} of "
                    f"{name!r} and {kinds[1]} in {target[1]!r} of {target[0]!r}. Make both text, "
                    "or both whole numbers."
                )

    def _key(self, name: str) -> str:
        """Return the key of a row of a private table, as SQL."""
        key = f"t.{quote(self._paths[name][0])}"
        return f"TRY_CAST({key} AS BIGINT)" if name in self._whole_floats else key


def split_column(text: str, name: str) -> tuple[str, str]:
    """Return table and column of ``table.column``."""
    table, dot, column = text.partition(".")
    if not (table and dot and column):
        raise DataError(f"{name} must name a column as 'table.column'; got {text!r}.")
    return table, column


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
    if isinstance(source, Mapping) and any(map(is_spark_frame, source.values())):
        frames = {
            str(name): frame if is_spark_frame(frame) else _as_arrow(frame, name)
            for name, frame in source.items()
        }
        spark = SparkTables(frames, BASE)
        return TablesSource(relations={}, frames=spark.empty, spark=spark)
    if isinstance(source, Mapping):
        frames = {str(name): _as_arrow(frame, name) for name, frame in source.items()}
        made_by = {str(n): type(frame).__module__.partition(".")[0] for n, frame in source.items()}
        return TablesSource(relations={}, frames=frames, libraries=made_by)
    if isinstance(source, duckdb.DuckDBPyConnection):
        relations, views = _listed(source, declared)
        tables: dict[str, Any] = {}
        for name, relation in relations.items():
            with engine_unquoted(source):
                table = source.sql(f"SELECT * FROM {relation}").to_arrow_table()
            assert isinstance(table, pyarrow.Table)
            tables[name] = table
        return TablesSource(relations={}, frames=tables, views=views)
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
    named = frozenset(name for name in relations if folded(name) in views)
    views = {name: view for name, view in views.items() if name not in map(folded, named)}
    return TablesSource(
        relations=relations, frames={}, attached=str(path), views=views, copied=named
    )


_Views = dict[str, tuple[str, tuple[str, ...]]]


def _listed(
    connection: Any, declared: frozenset[str], catalog: str | None = None
) -> tuple[dict[str, str], _Views]:
    """Return how a connection calls its tables and its views; refuse two of a name.

    A view that is declared private is a table; any other is written into the queries that name it.
    """
    rows = connection.execute(
        "SELECT table_name, table_catalog, table_schema, table_type "
        "FROM information_schema.tables ORDER BY ALL"
    ).fetchall()
    _check_different([str(row[0]) for row in rows], "in several schemas")
    texts = connection.execute("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal")
    definitions = {str(name): str(sql) for name, sql in texts.fetchall()}
    columns = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal "
        "ORDER BY table_name, column_index"
    ).fetchall()
    relations: dict[str, str] = {}
    views: _Views = {}
    for name, owner, schema, kind in rows:
        name = str(name)
        if "VIEW" in str(kind):
            text = re.sub(
                r"(?s)^CREATE .*?\sAS\s(?=SELECT|WITH|FROM|VALUES|\()", "", definitions[name]
            )
            names = tuple(str(column) for table, column in columns if str(table) == name)
            views[folded(name)] = (text.rstrip("; \n"), names)
        if "VIEW" not in str(kind) or name in declared:
            path = (catalog or str(owner), str(schema), name)
            relations[name] = ".".join(map(quote, path))
    return relations, views


def _check_different(names: Sequence[str], how: str) -> None:
    """Refuse two tables of one name: SQL does not tell cases apart."""
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
            f"table {name!r} must be a frame of pandas, polars, pyarrow or Spark; got "
            f"{type(frame).__name__}."
        ) from error
