"""A folder of tables whose files are read by schemas, for queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy.errors import DataError
from pacprivacy.tables.cells import TableColumn
from pacprivacy.tables.schema import Schema
from pacprivacy.tables.table import read_table

SUFFIXES: Final = (".csv", ".parquet", ".xlsx", ".sav", ".dta", ".sas7bdat")
_TEXTS: Final = ("text", "category")
_MILLISECONDS_A_DAY: Final = 86_400_000
_EXACT: Final = 2.0**53  # below it floats tell whole numbers apart


def read_folder(
    folder: Path, schemas: Path, ids: Mapping[str, Collection[str]] | None = None
) -> dict[str, Any]:
    """Return the tables of a folder as Arrow tables, read by the schemas of another.

    ``schemas`` holds a file ``NAME.toml`` for each table NAME that has one; it is one file if
    ``folder`` is. ``ids`` are columns by table that say whose row it is. These, the unit of a
    schema, and columns of type ``id``, ``text`` and ``category`` keep their entries as texts, as
    they are written: what others are called never changes the name of a unit.

    Guarantee
    ---------
    Claim C-16. The name of a unit is a function of its own entry, the schema and ``ids``.
    """
    ids = ids or {}
    if folder.is_file() and schemas.is_file():
        name = folder.name.partition(".")[0]
        return {name: _arrow(folder, Schema.read(schemas), ids.get(name, ()))}
    if not (folder.is_dir() and schemas.is_dir()):
        raise DataError(
            f"--schema must be a folder of NAME.toml for a folder of tables, or a file for a file; "
            f"got {schemas} for {folder}. Put people.toml there for people.csv."
        )
    files = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES}
    described = {path.stem: Schema.read(path) for path in sorted(schemas.glob("*.toml"))}
    unknown = sorted(set(described) - set(files))
    if unknown or not files:
        got = f"{unknown[0]}.toml" if unknown else "no tables"
        raise DataError(
            f"each schema must be that of a table in {folder}; got {got}. Name it after the "
            "table's file."
        )
    return {
        name: _arrow(path, described.get(name, Schema()), ids.get(name, ()))
        for name, path in files.items()
    }


def declared_levels(schemas: Path) -> dict[str, tuple[str, ...]]:
    """Return the levels that a schema or a folder of them declares, by column.

    Not those of a column of which two schemas declare different ones.
    """
    files = [schemas] if schemas.is_file() else sorted(schemas.glob("*.toml"))
    pairs = {pair for path in files for pair in Schema.read(path).levels.items()}
    names = [name for name, _ in pairs]
    return {name: levels for name, levels in pairs if names.count(name) == 1}


def _arrow(path: Path, schema: Schema, ids: Collection[str]) -> Any:
    import pyarrow as pa  # slow to import, and needed for queries only

    names = {name for name, column in schema.columns.items() if column.type == "id"}
    names |= set(ids) if schema.unit is None else {schema.unit, *ids}
    table = read_table(path, replace(schema.reading, ids=frozenset(names)))
    texts = names | {name for name, column in schema.columns.items() if column.type in _TEXTS}
    return pa.table({name: _plain(table.columns[name], name in texts) for name in table.names})


def _plain(column: TableColumn, as_text: bool) -> Any:
    """Return numbers, dates or texts as Arrow keeps them, with nulls for gaps."""
    import pyarrow as pa

    gaps = column.gaps
    if column.numbers is None or (as_text and column.coded is not None):
        return pa.array(column.labels.tolist(), type=pa.string())
    if column.is_date:
        moments = np.rint(np.nan_to_num(column.numbers) * _MILLISECONDS_A_DAY).astype(np.int64)
        return pa.array(moments, mask=gaps).cast(pa.timestamp("ms"))
    there = np.where(gaps, 0.0, column.numbers)
    whole = bool((np.abs(there) < _EXACT).all() and (there % 1 == 0).all())
    if as_text and whole:  # of a file that has no texts of numbers
        labels = [None if gap else str(int(x)) for gap, x in zip(gaps, there, strict=True)]
        return pa.array(labels, type=pa.string())
    numbers = there.astype(np.int64) if whole else column.numbers
    return pa.array(numbers, mask=gaps)
