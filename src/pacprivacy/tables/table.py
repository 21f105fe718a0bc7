"""Tables from files: CSV, packed or not, Parquet, Excel, standard input.

pyarrow splits large texts into cells where it is installed, the standard library all others;
:mod:`pacprivacy.tables.cells` decides what a cell means.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import LARGEST_OUTPUT, Array, listed, quoted, suggestion
from pacprivacy._system import check_unpacked, read_at_most, read_regular
from pacprivacy.errors import DataError
from pacprivacy.mechanism import (
    ISO,
    SECONDS_A_DAY,
    identity_names,
    is_repeated_identity,
)
from pacprivacy.sample import named_pool_units
from pacprivacy.tables.cells import (
    Coded,
    Labels,
    Reading,
    TableColumn,
    apply_column_rules,
    understand_cells,
)

DELIMITERS: Final = ",;\t|"
QUICK_BYTES: Final = 1 << 20  # from here on pyarrow is worth its import
STDIN: Final = Path("-")
_PARQUET, _GZIP, _ZIP = b"PAR1", b"\x1f\x8b", b"PK\x03\x04"
_SNIFFED_LINES: Final = 20
STATISTICAL: Final = {
    ".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por", ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat", ".xpt": "read_xport",
}  # fmt: skip
_WHOLE: Final = re.compile(r"^(\d+)\.0+$")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The columns of a file; curator-only but for ``names``, which are in the order of the file.

    ``digest`` is SHA-256 of the file; ``notes`` list the guesses.
    """

    columns: Mapping[str, TableColumn] = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    n_rows: int
    digest: bytes = field(default=b"", repr=False)
    notes: tuple[str, ...] = ()


def read_table(path: Path, reading: Reading | None = None) -> Table:
    """Read a file of CSV, Parquet, Excel, SPSS, Stata or SAS; ``-`` is standard input."""
    try:
        content = read_at_most(sys.stdin.buffer) if path == STDIN else read_regular(path)
        digest = hashlib.sha256(content).digest()
        if content.startswith(_GZIP):
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as archive:
                content = read_at_most(cast(BinaryIO, archive))
        if content.startswith(_ZIP):
            with suppress(BadZipFile), ZipFile(io.BytesIO(content)) as parts:
                check_unpacked(parts)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "a damaged archive"
        raise DataError(
            f"{path} must be a readable CSV, Parquet or Excel file; got: {reason}. Check the path."
        ) from None
    notes: tuple[str, ...] = ()
    reading = reading or Reading()
    if content.startswith(_PARQUET):
        names, columns = _read_parquet(content, path, reading)
    elif content.startswith(_ZIP):
        names, columns = _read_excel(content, path, reading)
    elif path.suffix.lower() in STATISTICAL:
        names, columns = _read_statistical(path, reading)
    else:
        names, columns, notes = _read_csv(content, path, reading)
    unknown = [name for name in reading.columns if name not in names]
    if unknown:
        raise DataError(
            f"columns of the schema must be in {path}; got {listed(unknown)}. "
            + suggestion(unknown[0], names, otherwise="Take them out of the schema.")
        )
    columns = apply_column_rules(columns, reading)
    if reading.by_entry:
        columns = {name: _by_entry(column) for name, column in columns.items()}
    for name, date_format in reading.date_formats.items():
        if name not in columns or not columns[name].is_date:
            got = "which has no dates like that" if name in columns else "which is not there"
            otherwise = "Correct it, or leave it out."
            others = [] if name in columns else names
            raise DataError(
                f"--date-format must be that of a column in the file; got {date_format!r} for "
                f"{name!r}, {got}. {suggestion(name, others, otherwise=otherwise)}"
            )
    plain = [column.numbers for column in columns.values() if column.numbers is not None]
    n_rows = len(plain[0] if plain else next(iter(columns.values())).gaps)
    if n_rows == 0:
        raise DataError(f"{path} must have records; got column names only. Export it again.")
    return Table(columns=columns, names=names, n_rows=n_rows, digest=digest, notes=notes)


def _by_entry(column: TableColumn) -> TableColumn:
    """Return a column of which no refusal depends on an entry, not even on an infinite one."""
    numbers = column.numbers
    if numbers is not None:
        numbers = np.clip(numbers, -LARGEST_OUTPUT, LARGEST_OUTPUT)
    return replace(column, numbers=numbers, by_entry=True)


# --- CSV ------------------------------------------------------------------------------------


Names = tuple[str, ...]


def _read_csv(
    content: bytes, path: Path, reading: Reading
) -> tuple[Names, dict[str, TableColumn], tuple[str, ...]]:
    text, notes = _decode(content, path, reading)
    mark = reading.delimiter or ("," if reading.by_entry else _sniff_delimiter(text))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    try:
        header = next(islice(reader, (reading.header_row or 1) - 1, None), [])
        names = _check_names(header, path)
        if reading.by_entry and reading.delimiter is None and len(names) == 1:
            _check_alone(names[0], path)
        cells = None
        if len(text) >= QUICK_BYTES and text.count('"') % 2 == 0:
            cells = _split_quickly(text, mark, len(names), reader.line_num)
        if cells is None:
            cells = _split(reader, len(names), path)
    except csv.Error as error:
        raise DataError(
            f"{path} must be a well-formed CSV file; got: {error} (line {reader.line_num}). "
            "Export it again."
        ) from None
    columns = understand_cells(dict(zip(names, cells, strict=True)), reading)
    if notes and not reading.by_entry:
        _check_encoding(columns, reading, path)
    return names, columns, notes


def _check_encoding(columns: Mapping[str, TableColumn], reading: Reading, path: Path) -> None:
    """Refuse ids that a guessed encoding spells."""
    for name in reading.ids & columns.keys():
        levels = columns[name].levels
        if levels is not None and not all(str(level).isascii() for level in levels.tolist()):
            raise DataError(
                f"{path} must be UTF-8, or its encoding be named, where ids in {name!r} must last; "
                "got another: a guess would give a new name, and a new coin, to everybody with an "
                'accent. Say --encoding cp1252, in a schema encoding = "cp1252", or export the '
                "file as UTF-8, as before."
            )


def _check_alone(name: str, path: Path) -> None:
    """Refuse a header that another separator would split, where a comma is the declared one."""
    other = next((mark for mark in DELIMITERS if mark in name), None)
    if other is not None:
        raise DataError(
            f"{path} must be separated by commas where presence is hidden, unless another "
            f"separator is declared; got {other!r} in its header. Say --delimiter "
            f"{'tab' if other == chr(9) else quoted([other])}."
        )


def _decode(content: bytes, path: Path, reading: Reading) -> tuple[str, tuple[str, ...]]:
    encoding = reading.encoding
    wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        if reading.by_entry:
            name = encoding or ("utf-16" if wide else "utf-8-sig")
            text = content.decode(name, errors="replace").removeprefix("\ufeff")
            note = "bytes that are none of the declared encoding (UTF-8 if none) were replaced"
            return text, (note,) * ("\ufffd" in text)
        if encoding is not None or wide:
            return content.decode(encoding or "utf-16").removeprefix("\ufeff"), ()
        if b"\x00" not in content[:4096]:
            try:
                return content.decode("utf-8-sig"), ()
            except UnicodeDecodeError:
                return content.decode("cp1252"), (
                    "the file is not UTF-8 and was read as Windows-1252; --encoding says otherwise",
                )
    except (UnicodeDecodeError, LookupError):
        pass
    raise DataError(
        f"{path} must be a text file, Parquet or Excel; got bytes that are none of them"
        f"{'' if encoding is None else f' in {encoding}'}. Save it as CSV in UTF-8, or name its "
        "--encoding."
    )


def _sniff_delimiter(text: str) -> str:
    """Return the mark that cuts the first lines into equally many fields, and into most."""
    start = text[: 1 << 16].splitlines(keepends=True)[:_SNIFFED_LINES]

    def score(mark: str) -> tuple[bool, int]:
        try:
            widths = [len(row) for row in csv.reader(start, delimiter=mark) if row]
        except csv.Error:
            return False, 0
        return len(set(widths)) == 1, widths[0] if widths else 0

    return max(DELIMITERS, key=lambda mark: (score(mark)[1] > 1, *score(mark)))


def _check_names(header: Sequence[Any], path: Path) -> tuple[str, ...]:
    names = tuple("" if name is None else str(name).strip() for name in header)
    if any(names):  # as that of an index that pandas has written
        names = tuple(name or f"column {place}" for place, name in enumerate(names, 1))
    else:
        raise DataError(
            f"{path} must start with a line of column names; got an empty line or file. "
            "Export it again with a header."
        )
    if all(_is_number(name) for name in names):
        raise DataError(
            f"{path} must start with a line of column names; got numbers only. Add a header line."
        )
    doubled = sorted(name for name, times in Counter(names).items() if times > 1)
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


def _split(reader: Any, n_columns: int, path: Path) -> list[Coded]:
    rows = []
    for row in reader:
        if row and len(row) != n_columns:
            raise DataError(
                f"{path} must have {n_columns} fields in every line, as in its first; got "
                f"{len(row)} in line {reader.line_num}. Quote fields that hold the separator."
            )
        if row:
            rows.append(row)
    return [_index(cells) for cells in zip(*rows, strict=True)] or [_index([])] * n_columns


def _split_quickly(text: str, mark: str, n_columns: int, n_header: int) -> list[Coded] | None:
    """Split the cells with pyarrow; return None if it is missing or reports an error."""
    try:
        import pyarrow as pa
        from pyarrow import csv as fast
    except ImportError:
        return None
    names = [str(number) for number in range(n_columns)]
    try:
        content = fast.read_csv(
            pa.BufferReader(text.encode()),
            read_options=fast.ReadOptions(column_names=names, skip_rows=n_header),
            parse_options=fast.ParseOptions(delimiter=mark, newlines_in_values=True),
            convert_options=fast.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowException:  # the error of the other reader names the line
        return None
    coded = (column.combine_chunks().dictionary_encode() for column in content.columns)
    return [(each.dictionary.to_pylist(), _plain_array(each.indices, np.int32)) for each in coded]


def _plain_array(column: Any, dtype: Any) -> Array:
    """Return an Arrow array without gaps as one of NumPy; pyarrow's own way imports pandas."""
    if not len(column):
        return np.empty(0, dtype)
    stop = column.offset + len(column)
    return np.frombuffer(column.buffers()[1], dtype, stop)[column.offset :].copy()


def _days_of(moment: date) -> float:
    if isinstance(moment, datetime):
        return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() / SECONDS_A_DAY
    return float((moment - date(1970, 1, 1)).days)


# --- Parquet and Excel --------------------------------------------------------------------------


def _read_parquet(
    content: bytes, path: Path, reading: Reading
) -> tuple[Names, dict[str, TableColumn]]:
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(
            f"{path} is a Parquet file, which must be read with pyarrow; it is not installed. "
            "Run in a checkout: pip install '.[data]'"
        ) from None
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        names = _check_names(file.schema_arrow.names, path)
        table = file.read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} must be a readable Parquet file; got a damaged one ({type(error).__name__}). "
            "Export it again."
        ) from None

    def as_floats(column: Any) -> Array:
        floats = column.cast(pa.float64(), safe=False).combine_chunks()
        return _plain_array(pc.fill_null(floats, float("nan")), np.float64)

    columns: dict[str, TableColumn] = {}
    texts: dict[str, Coded] = {}
    of = pa.types
    numeric = of.is_integer, of.is_floating, of.is_decimal, of.is_boolean, of.is_null
    for name, column in zip(names, table.columns, strict=True):
        kind = column.type
        if of.is_dictionary(kind):
            kind = kind.value_type
            column = column.cast(kind)
        if of.is_boolean(kind):
            column = column.cast(pa.int8())
        if of.is_date(kind) or of.is_timestamp(kind):
            if of.is_timestamp(kind) and kind.tz is not None:  # as it is written there
                column = pc.local_timestamp(column)
            moments = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
            days = as_floats(moments) / (1000 * SECONDS_A_DAY)
            columns[name] = TableColumn(numbers=days, date_formats=(ISO,))
        elif any(is_kind(kind) for is_kind in numeric):
            columns[name] = TableColumn(numbers=as_floats(column))
        else:
            texts[name] = _index([str(item) for item in column.to_pylist()])
    columns |= understand_cells(texts, reading)
    return names, {name: columns[name] for name in names}


def _index(cells: Sequence[str]) -> Coded:
    index = {text: number for number, text in enumerate(dict.fromkeys(cells))}
    return list(index), np.fromiter(map(index.__getitem__, cells), np.int32, len(cells))


def _sheet(content: bytes, reading: Reading) -> list[Sequence[Any]]:
    """Return the rows of a sheet from its header on, without empty rows; None is an empty cell."""
    from python_calamine import CalamineWorkbook

    book = CalamineWorkbook.from_filelike(io.BytesIO(content))
    name = book.sheet_names[0] if reading.sheet is None else reading.sheet
    if name not in book.sheet_names:
        raise DataError(
            f"--sheet must be one of {listed(book.sheet_names)}; got {name!r}. "
            + suggestion(name, book.sheet_names, otherwise="Choose one.")
        )
    cells = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
    rows = ([_plain_cell(cell) for cell in row] for row in cells)
    header = next(islice(rows, (reading.header_row or 1) - 1, None), [])
    return [header, *(row for row in rows if any(cell is not None for cell in row))]


def _plain_cell(cell: Any) -> Any:
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return None if cell == "" else cell


def _read_excel(
    content: bytes, path: Path, reading: Reading
) -> tuple[Names, dict[str, TableColumn]]:
    try:
        header, *body = _sheet(content, reading)
    except ImportError:
        raise DataError(
            f"{path} is an Excel file, which python-calamine must read; it is not installed. "
            "Run in a checkout: pip install '.[excel]'"
        ) from None
    except DataError:
        raise
    except Exception as error:  # the reader has exceptions of its own
        raise DataError(
            f"{path} must be a readable Excel file (.xlsx); got {type(error).__name__}. "
            "Save it again, or export it as CSV."
        ) from None
    names = _check_names(header, path)
    by_column: list[tuple[Any, ...]] = (
        list(zip(*body, strict=True)) if body else [() for _ in names]
    )
    return names, _understand_objects(names, by_column, reading)


def _read_statistical(path: Path, reading: Reading) -> tuple[Names, dict[str, TableColumn]]:
    try:
        import pyreadstat
    except ImportError:
        raise DataError(
            f"{path} is a file of a statistics package, which pyreadstat must read; it is not "
            "installed. Run in a checkout: pip install '.[stat]'"
        ) from None
    read = getattr(pyreadstat, STATISTICAL[path.suffix.lower()])
    try:
        content, about = read(str(path), output_format="dict")
    except Exception as error:  # the reader has exceptions of its own
        raise DataError(
            f"{path} must be a readable file of a statistics package; got "
            f"{type(error).__name__}. Export it as CSV."
        ) from None
    names = _check_names(list(content), path)
    labels = about.variable_value_labels
    cells = [
        [_labelled(cell, labels.get(name, {})) for cell in column]
        for name, column in content.items()
    ]
    return names, _understand_objects(names, cells, reading)


def _labelled(cell: Any, labels: Mapping[Any, str]) -> Any:
    if cell is None or cell != cell or cell == "":
        return None
    plain = cell.item() if isinstance(cell, np.generic) else cell
    return labels.get(plain, plain)


def _understand_objects(
    names: Names, by_column: Sequence[Sequence[Any]], reading: Reading
) -> dict[str, TableColumn]:
    columns: dict[str, TableColumn] = {}
    texts: dict[str, Coded] = {}
    for name, cells in zip(names, by_column, strict=True):
        if reading.by_entry:
            texts[name] = _index([_cell_text(cell, name, reading) for cell in cells])
            continue
        filled = [cell for cell in cells if cell is not None]
        if filled and all(isinstance(cell, int | float) for cell in filled):
            columns[name] = TableColumn(numbers=np.array(cells, dtype=np.float64))
        elif filled and all(isinstance(cell, date) for cell in filled):
            days = [np.nan if cell is None else _days_of(cell) for cell in cells]
            columns[name] = TableColumn(numbers=np.array(days), date_formats=(ISO,))
        else:
            texts[name] = _index(["" if cell is None else str(cell) for cell in cells])
    columns |= understand_cells(texts, reading)
    return {name: columns[name] for name in names}


def _cell_text(cell: Any, name: str, reading: Reading) -> str:
    """Return a cell as a CSV file would have it, by the declared format and decimal mark."""
    if isinstance(cell, date) and reading.date_formats.get(name, ISO) != ISO:
        return cell.strftime(reading.date_formats[name])
    if isinstance(cell, int | float):
        plain = str(int(cell)) if isinstance(cell, bool) else str(cell)
        return plain.replace(".", reading.decimal or ".")
    return "" if cell is None else str(cell)


# --- checks and labels --------------------------------------------------------------------------


def check_table_finite(X: npt.NDArray[np.float64], names: Sequence[str]) -> None:
    wrong = [names[j] for j in np.flatnonzero(np.isinf(X).any(axis=0)).tolist()]
    if wrong:
        raise DataError(
            f"columns must be finite everywhere; got infinity in {listed(wrong)}. "
            "Leave those records out, for example with --where."
        )


def table_unit_labels(table: Table, name: str) -> Labels:
    """Return the label of every row's unit."""
    check_table_columns(table, [name])
    column = table.columns[name]
    if column.gaps.any():
        first = int(np.flatnonzero(column.gaps)[0]) + 1
        raise DataError(
            f"column {name!r} must have no missing values; got one in record {first}. "
            "Give each of those records a label of its own, or leave them out of the file."
        )
    labels = column.labels
    if column.levels is not None and column.codes is not None:
        # 7 and 7.0 are one person, whose rows come from two exports; one unit is the safe side.
        plain = [_WHOLE.sub(r"\1", str(text)) for text in column.levels.tolist()]
        if len(set(plain)) < len(plain):
            labels = np.array(plain, dtype=object)[column.codes]
    return named_pool_units(labels, name)


def table_identities(table: Table) -> tuple[str, ...]:
    """Return the columns that identify people and repeat."""

    def repeats(name: str) -> bool:
        column = table.columns[name]
        if column.is_date:
            return False
        if column.numbers is not None:
            return is_repeated_identity(name, column.numbers[~column.gaps], None)
        assert column.codes is not None
        return is_repeated_identity(name, column.codes[column.codes >= 0], column.levels)

    return tuple(filter(repeats, identity_names(list(table.columns))))


def check_table_columns(table: Table, names: Sequence[str]) -> None:
    """Refuse all names that are not in the file in one message."""
    unknown = [name for name in names if name not in table.columns]
    if unknown:
        raise DataError(
            f"column{'s' * (len(unknown) > 1)} {listed(unknown)} must be in the file; got a file "
            f"with {listed(table.names)}. "
            + suggestion(unknown[0], table.names, otherwise="Names are case-sensitive.")
        )
