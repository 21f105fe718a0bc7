"""A folder of tables whose files are read by schemas, for queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy.errors import DataError
from pacprivacy.tables.cells import Reading, TableColumn
from pacprivacy.tables.schema import Schema
from pacprivacy.tables.table import read_table

SUFFIXES: Final = (".csv", ".parquet", ".xlsx", ".sav", ".dta", ".sas7bdat")
_MILLISECONDS_A_DAY: Final = 86_400_000
_EXACT: Final = 2.0**53  # below it floats tell whole numbers apart


def read_folder(folder: Path, schemas: Path | None) -> dict[str, Any]:
    """Return the tables of a folder as Arrow tables, read by the schemas of another.

    ``schemas`` holds a file ``NAME.toml`` for each table NAME that has one. Of one file it is one
    file, or None. A column of type ``category`` keeps its entries as texts.
    """
    if folder.is_file() and (schemas is None or schemas.is_file()):
        schema = None if schemas is None else Schema.read(schemas)
        return {folder.name.partition(".")[0]: _arrow(folder, schema)}
    if schemas is None or not (folder.is_dir() and schemas.is_dir()):
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
    return {name: _arrow(path, described.get(name)) for name, path in files.items()}


def declared_levels(schemas: Path) -> dict[str, tuple[str, ...]]:
    """Return the levels that a schema or a folder of them declares, by column.

    Not those of a column of which two schemas declare different ones.
    """
    files = [schemas] if schemas.is_file() else sorted(schemas.glob("*.toml"))
    pairs = {pair for path in files for pair in Schema.read(path).levels.items()}
    names = [name for name, _ in pairs]
    return {name: levels for name, levels in pairs if names.count(name) == 1}


def _arrow(path: Path, schema: Schema | None) -> Any:
    import pyarrow as pa  # slow to import, and needed for queries only

    table = read_table(path, Reading() if schema is None else schema.reading)
    texts = () if schema is None else schema.categories
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
    numbers = there.astype(np.int64) if whole else column.numbers
    return pa.array(numbers, mask=gaps)
