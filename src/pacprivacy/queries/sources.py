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
)
from pacprivacy.queries.spark_tables import SparkTables, is_spark_frame
from pacprivacy.queries.tree import folded, quote, quote_text

SUFFIXES: Final = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}
VIEW_HEAD: Final = r"(?s)^CREATE .*?\sAS\s(?=SELECT|WITH|FROM|VALUES|\()"


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
    """Return how a connection calls its tables, and its views; refuse two of a name.

    A view that is declared private is taken as a table, with the rows that it has now. Any other
    is written into the queries that name it, as far as its SQL is answered.
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
