"""Tables from files: CSV with the standard library, Parquet with pyarrow if it is there."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import DataError

Vector = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]

CHUNK_ROWS: Final = 1 << 16
DELIMITERS: Final = ",;\t|"
MISSING: Final = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "<na>"})
PARQUET_MAGIC: Final = b"PAR1"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The columns of a file; curator-only but for the names.

    Parameters
    ----------
    names : tuple of str
        All columns, in the order of the file.
    n_rows : int
        Number of records.
    numbers : mapping of str to array
        The columns that hold numbers only; NaN where one is missing.
    labels : mapping of str to array
        The columns that were asked for as they are written.
    missing : mapping of str to str
        Columns with a missing entry, and where the first one is.
    """

    names: tuple[str, ...]
    n_rows: int
    numbers: Mapping[str, Vector] = field(repr=False)
    labels: Mapping[str, Labels] = field(repr=False)
    missing: Mapping[str, str] = field(repr=False)


def read_table(path: Path, *, labels: Collection[str] = ()) -> Table:
    """Read a CSV or Parquet file.

    Parameters
    ----------
    path : Path
        A file with column names. CSV may be separated by comma, semicolon, tab or bar.
    labels : collection of str
        Columns to keep as they are written too, such as the identity of a person.

    Raises
    ------
    DataError
        If the file cannot be read, has no records, or its rows have unequal lengths.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4)
        table = _read_parquet(path, labels) if start == PARQUET_MAGIC else _read_csv(path, labels)
    except OSError as error:
        raise DataError(
            f"{path} must be a readable CSV or Parquet file; got: {error.strerror or error}. "
            "Check the path."
        ) from None
    if table.n_rows == 0:
        raise DataError(f"{path} must have records; got column names only. Export it again.")
    return table


# --- CSV ------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Column:
    """What was read of one column so far."""

    name: str
    keep_labels: bool
    is_text: bool = False
    first_gap: str | None = None
    numbers: list[Vector] = field(default_factory=list)
    labels: list[Labels] = field(default_factory=list)

    def add(self, cells: list[str], lines: list[int]) -> None:
        """Take the next cells; their lines are needed for messages."""
        stripped = [cell.strip() for cell in cells]
        if self.keep_labels:
            self.labels.append(np.array(stripped, dtype=object))
        gaps = [i for i, cell in enumerate(stripped) if cell.lower() in MISSING]
        if gaps and self.first_gap is None:
            self.first_gap = f"line {lines[gaps[0]]}"
        if self.is_text:
            return
        for i in gaps:
            stripped[i] = "nan"
        try:
            self.numbers.append(np.array(stripped, dtype=np.float64))
        except ValueError:
            self.is_text = True


def _read_csv(path: Path, labels: Collection[str]) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=_delimiter(first), strict=True)
            names = _check_names(next(reader, []), path)
            columns = [_Column(name=name, keep_labels=name in labels) for name in names]
            n_rows = 0
            for rows, lines in _chunks(reader, len(names), path):
                n_rows += len(rows)
                for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
                    column.add(list(cells), lines)
    except UnicodeDecodeError:
        raise DataError(
            f"{path} must be a text file in UTF-8, or Parquet; got other bytes. "
            "Save it as CSV in UTF-8."
        ) from None
    except csv.Error as error:
        raise DataError(
            f"{path} must be a well-formed CSV file; got: {error} (line {reader.line_num}). "
            "Export it again."
        ) from None
    return Table(
        names=names,
        n_rows=n_rows,
        numbers={c.name: np.concatenate(c.numbers) for c in columns if c.numbers and not c.is_text},
        labels={c.name: np.concatenate(c.labels) for c in columns if c.labels},
        missing={c.name: c.first_gap for c in columns if c.first_gap is not None},
    )


def _delimiter(first_line: str) -> str:
    """Return the separator that the line of names uses most; a comma if none."""
    return max(DELIMITERS, key=first_line.count)


def _check_names(header: list[str], path: Path) -> tuple[str, ...]:
    names = tuple(name.strip() for name in header)
    if not any(names):
        raise DataError(
            f"{path} must start with a line of column names; got an empty line or file. "
            "Export it again with a header."
        )
    if all(_is_number(name) for name in names):
        raise DataError(
            f"{path} must start with a line of column names; got numbers only. Add a header line."
        )
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise DataError(
            f"{path} must have distinct column names; got {doubled[0]!r} more than once. "
            "Rename the columns."
        )
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _chunks(reader: Any, n_columns: int, path: Path) -> Iterator[tuple[list[list[str]], list[int]]]:
    """Yield blocks of rows with their line numbers; refuse rows of another length."""
    rows: list[list[str]] = []
    lines: list[int] = []
    for row in reader:
        if not row:
            continue
        if len(row) != n_columns:
            raise DataError(
                f"{path} must have {n_columns} fields in every line, as in its first; got "
                f"{len(row)} in line {reader.line_num}. Quote fields that hold the separator."
            )
        rows.append(row)
        lines.append(reader.line_num)
        if len(rows) == CHUNK_ROWS:
            yield rows, lines
            rows, lines = [], []
    if rows:
        yield rows, lines


# --- Parquet --------------------------------------------------------------------------------


def _read_parquet(path: Path, labels: Collection[str]) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(
            f"{path} is a Parquet file, which must be read with pyarrow; it is not installed. "
            "Run: pip install 'pacprivacy[data]'"
        ) from None
    try:
        content = pq.ParquetFile(path).read()
    except pa.ArrowException as error:
        raise DataError(
            f"{path} must be a readable Parquet file; got {type(error).__name__}. Export it again."
        ) from None
    names = _check_names(list(content.column_names), path)
    numbers: dict[str, Vector] = {}
    kept: dict[str, Labels] = {}
    missing: dict[str, str] = {}
    for name, column in zip(names, content.columns, strict=True):
        if column.null_count:
            nulls = column.is_null().to_numpy()
            missing[name] = f"record {int(np.flatnonzero(nulls)[0]) + 1}"
        if name in labels:
            kept[name] = np.array(column.to_pylist(), dtype=object)
        kind = column.type
        if pa.types.is_boolean(kind):
            column = column.cast(pa.int8())
        elif not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        ):
            continue
        numbers[name] = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)
    return Table(
        names=names, n_rows=content.num_rows, numbers=numbers, labels=kept, missing=missing
    )


NAMED = 6  # columns that a message names before it only counts them


def numeric_matrix(table: Table, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the named columns as a matrix; refuse text, missing and infinite entries."""
    _check_known(table, names)
    text = [name for name in names if name not in table.numbers]
    if text:
        rest = [name for name in names if name in table.numbers]
        usable = rest or [name for name in table.names if name in table.numbers]
        advice = f"Choose others: --columns {_quoted(usable)}." if usable else "Encode them first."
        raise DataError(
            f"columns must hold numbers; got text in {_listed(text)}. {advice} "
            "(Codes for categories must be made before the release.)"
        )
    for name in names:
        if name in table.missing:
            raise DataError(_missing_text(table, name))
        if not np.isfinite(table.numbers[name]).all():
            row = int(np.flatnonzero(~np.isfinite(table.numbers[name]))[0]) + 1
            raise DataError(
                f"column {name!r} must be finite everywhere; got NaN or infinity in record {row}. "
                "Drop those records or fill them before the release."
            )
    return np.column_stack([table.numbers[name] for name in names])


def unit_labels(table: Table, name: str) -> Labels:
    """Return the labels that say which rows belong to one unit."""
    _check_known(table, [name])
    if name in table.missing:
        raise DataError(_missing_text(table, name))
    return table.labels[name]


def _check_known(table: Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.names:
            raise DataError(
                f"column {name!r} must be in the file; got a file with {_listed(table.names)}. "
                "Names are case-sensitive."
            )


def _missing_text(table: Table, name: str) -> str:
    return (
        f"column {name!r} must have no missing values; got one in {table.missing[name]}. "
        "Drop those records or fill them before the release: how to fill is part of the function."
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:NAMED])
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _quoted(names: Sequence[str]) -> str:
    joined = ",".join(names)
    return f'"{joined}"' if any(not name.isidentifier() for name in names) else joined
