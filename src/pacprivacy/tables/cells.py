"""Meaning of the cells of a file: numbers with a point or a comma, dates, gaps, and texts.

A reader returns the distinct entries of every column, and which of them each row has. What they
mean is decided from the distinct entries alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Array
from pacprivacy.errors import DataError
from pacprivacy.mechanism import (
    ISO,
    ComparedColumn,
    are_dates_clear,
    date_name,
    entry_day,
    find_date_formats,
    is_identity_column,
    read_dates,
)

Vector = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]
Labels = Array
MISSING: Final = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "<na>", "-", "."})
_COMMA: Final = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")
_PARTED: Final = re.compile(r"[+-]?\d{1,3}(,\d{3})*(\.\d+)?")
_POINT: Final = re.compile(rf"{_PARTED.pattern}|[\d.]+")
_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}([.,]\d{3})+")
BELOW_LIMIT: Final = re.compile(r"<\s*(\d+(?:[.,]\d+)?)")
ColumnKind = Literal["number", "date", "category", "text", "id"]
LessThan = Literal["limit", "half", "zero", "gap"]  # what <5 is read as
Coded = tuple[Sequence[str], Codes]  # distinct entries, and which of them each row has


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """The contents of one column; ``guessed`` names the keys that are not declared."""

    type: ColumnKind | None = None
    date_format: str | None = None
    range: tuple[float, float] | None = None
    levels: tuple[str, ...] | None = None
    missing: tuple[str, ...] = ()
    less_than: LessThan | None = None
    guessed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Declared format of a file; omitted parts are detected.

    Without ``find_dates`` only columns with a declared format hold dates. ``missing`` are entries
    that stand for gaps in all columns; ``columns`` are those of a schema; declared ``levels`` are
    never gaps, such as a level "none".

    With ``by_entry``, as where presence is hidden, each entry is read by its own bytes: in UTF-8,
    separated by commas, with a decimal point, where nothing else is declared. Columns with a
    format of dates are dates, those in ``numbers`` (None: all) that are not in ``texts`` numbers,
    and others texts; an entry of another kind is a gap. Columns of ``ids`` must have a declared
    encoding if they have more than ASCII: a guess could name units anew.
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    date_formats: Mapping[str, str] = field(default_factory=dict)
    find_dates: bool = True
    sheet: str | None = None
    header_row: int | None = None
    missing: tuple[str, ...] = ()
    columns: Mapping[str, ColumnSchema] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_entry: bool = False
    numbers: frozenset[str] | None = frozenset()
    texts: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()

    def declares_number(self, name: str) -> bool:
        """Whether a column is declared to hold numbers; columns of dates are not asked for."""
        kind = self.rules_of(name).type
        if name in self.texts or name in self.levels or kind not in (None, "number"):
            return False
        return kind == "number" or self.numbers is None or name in self.numbers

    def rules_of(self, name: str) -> ColumnSchema:
        schema = self.columns.get(name, ColumnSchema())
        return replace(schema, missing=(*self.missing, *schema.missing))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableColumn:
    """One column, curator-only.

    ``numbers`` has NaN for gaps, and days since 1970 for dates; None is text. ``coded`` holds the
    distinct entries as written, in the order of the file, and which of them each row has, -1 for a
    gap. A column of dates in several formats, without numbers, needs a declared one. ``unclear``
    is text only because 1,234 may be 1.234 or 1234. With ``by_entry`` no refusal depends on an
    entry.
    """

    numbers: Vector | None
    coded: tuple[Labels, Codes] | None = None
    date_formats: tuple[str, ...] = ()
    unclear: bool = False
    by_entry: bool = False

    @property
    def is_date(self) -> bool:
        return self.numbers is not None and bool(self.date_formats)

    @property
    def is_unclear_date(self) -> bool:
        return self.numbers is None and bool(self.date_formats)

    @property
    def levels(self) -> Labels | None:
        return None if self.coded is None else self.coded[0]

    @property
    def codes(self) -> Codes | None:
        return None if self.coded is None else self.coded[1]

    @property
    def gaps(self) -> npt.NDArray[np.bool_]:
        if self.numbers is not None:
            return np.isnan(self.numbers)
        assert self.codes is not None
        return self.codes < 0

    @property
    def labels(self) -> Labels:
        """The entries as written; None for missing ones."""
        if self.levels is None or self.codes is None:
            assert self.numbers is not None
            whole = np.isfinite(self.numbers).all() and (self.numbers % 1 == 0).all()
            return self.numbers.astype(np.int64) if whole else self.numbers
        entries = np.array([*self.levels.tolist(), None], dtype=object)
        return entries[self.codes]

    @property
    def entries(self) -> Labels:
        """The entries as levels: texts, numbers, or dates such as 2024-05-31."""
        if self.numbers is None:
            return self.labels
        if not self.is_date:
            return self.numbers
        distinct, places = np.unique(self.numbers, return_inverse=True)
        names = [None if day != day else date_name(day) for day in distinct.tolist()]
        return np.array([*names, None], dtype=object)[places]

    def compared(self) -> ComparedColumn:
        if self.numbers is None:
            return ComparedColumn(kind="text", entries=self.labels, by_entry=self.by_entry)
        kind: Any = "date" if self.is_date else "number"
        return ComparedColumn(
            kind=kind,
            entries=self.numbers,
            date_format=(*self.date_formats, ISO)[0],
            by_entry=self.by_entry,
        )

    @property
    def is_id(self) -> bool:
        """Whether the column is text and almost every row has a different entry."""
        if self.numbers is not None or self.levels is None:
            return False
        return is_identity_column(len(self.levels), int(np.count_nonzero(~self.gaps)))


def understand_cells(cells: Mapping[str, Coded], reading: Reading) -> dict[str, TableColumn]:
    """Return the columns; a comma is decimal if declared or unambiguous."""
    formats = reading.date_formats
    decimal = reading.decimal or ("." if reading.by_entry else None)
    cells = {
        name: _by_rules(entries, reading.rules_of(name), decimal) for name, entries in cells.items()
    }
    if reading.by_entry:
        return {name: _read_each(entries, name, reading) for name, entries in cells.items()}
    columns = {
        name: _read_cells(
            entries,
            _Marks(decimal or ".", decimal is not None, reading.levels.get(name, ())),
            formats.get(name),
        )
        for name, entries in cells.items()
    }
    if not reading.find_dates:
        for name, column in columns.items():
            if column.date_formats and name not in formats:
                columns[name] = replace(column, numbers=None, date_formats=())
    if reading.decimal is not None:
        return columns
    by_comma = {
        name: _read_cells(cells[name], _Marks(","), None)
        for name, column in columns.items()
        if column.numbers is None and _COMMA.fullmatch(_first(cells[name][0]))
    }
    certain = {
        name: column
        for name, column in by_comma.items()
        if column.numbers is not None and not column.is_date and not _all_thousands(cells[name][0])
    }
    unclear = {name for name, column in by_comma.items() if column.numbers is not None}
    if certain:  # then a lone point may part thousands elsewhere
        unclear |= {
            name
            for name, column in columns.items()
            if column.numbers is not None and not column.is_date and _all_thousands(cells[name][0])
        }
    for name in unclear - certain.keys():
        columns[name] = replace(columns[name], numbers=None, unclear=True)
    return columns | certain


def _by_rules(cells: Coded, rules: ColumnSchema, decimal: str | None) -> Coded:
    """Return the cells with codes of gaps and detection limits replaced."""
    if not rules.missing and rules.less_than is None:
        return cells
    distinct, codes = cells
    mark = decimal or ("," if any("," in text for text in distinct) else ".")
    declared = decimal is not None
    return [_replaced(text.strip(), rules, mark, declared=declared) for text in distinct], codes


def _replaced(text: str, rules: ColumnSchema, mark: str, *, declared: bool) -> str:
    if text in rules.missing:
        return ""
    limit = BELOW_LIMIT.fullmatch(text)
    if limit is None or rules.less_than is None:
        return text
    number = limit[1]
    size = _number(number, mark) if declared else float(number.replace(",", "."))
    if size != size:  # <1,5 where a point is the decimal mark
        return text
    half = f"{size / 2:.12g}"
    texts = {"limit": number, "zero": "0", "gap": "", "half": half.replace(".", mark)}
    return texts[rules.less_than]


def apply_column_rules(
    columns: Mapping[str, TableColumn], reading: Reading
) -> dict[str, TableColumn]:
    """Replace codes of gaps among numbers, and check the types of columns."""
    return {name: _ruled(name, column, reading) for name, column in columns.items()}


def _ruled(name: str, column: TableColumn, reading: Reading) -> TableColumn:
    rules = reading.rules_of(name)
    if rules.missing and column.numbers is not None and column.coded is None:
        codes = [float(text) for text in rules.missing if _parse([text], _by_point) is not None]
        numbers = np.where(np.isin(column.numbers, codes), np.nan, column.numbers)
        column = replace(column, numbers=numbers)
    wrong = {
        "number": column.numbers is None or column.is_date,
        "date": not column.is_date,
    }
    if wrong.get(rules.type or "", False):
        raise DataError(
            f"column {name!r} must hold {rules.type}s, as its schema says; got other entries. "
            "Correct its type, date_format, missing or less_than in the schema, or say "
            'decimal = ",".'
        )
    return column


def _first(distinct: Sequence[str]) -> str:
    stripped = (text.strip() for text in distinct)
    return next((text for text in stripped if text.lower() not in MISSING), "")


def _all_thousands(distinct: Sequence[str]) -> bool:
    """Whether there are marks, and all of them may separate thousands."""
    texts = [text.strip() for text in distinct if "," in text or "." in text]
    marked = [text for text in texts if text.lower() not in MISSING]
    return bool(marked) and all(_THOUSANDS.fullmatch(text) for text in marked)


@dataclass(frozen=True, slots=True)
class _Marks:
    """The decimal mark of a column, whether it was declared, and the levels that are no gaps."""

    decimal: str
    declared: bool = False
    levels: tuple[str, ...] = ()

    def is_gap(self, text: str) -> bool:
        return text.lower() in MISSING and text not in self.levels

    def numbers(self, texts: list[str]) -> Any:
        if self.declared:
            return _each_number(texts, self.decimal)
        return (_by_comma if self.decimal == "," else _by_point)(texts)


def _read_each(cells: Coded, name: str, reading: Reading) -> TableColumn:
    """Return the column of a declared kind; other entries are gaps."""
    distinct, codes = cells
    date_format, mark = reading.date_formats.get(name), reading.decimal or "."
    read: Callable[[str], float] | None = None
    if date_format is not None:
        read = partial(entry_day, date_format=date_format)
    elif reading.declares_number(name):
        read = partial(_number, mark=mark)
    marks = _Marks(mark, declared=True, levels=reading.levels.get(name, ()))
    filled = [text for text in map(str.strip, distinct) if not marks.is_gap(text)]
    values = None if read is None else np.array([read(text) for text in filled], dtype=np.float64)
    formats = () if date_format is None else (date_format,)
    column = _spread((distinct, codes), filled, values, formats)
    return replace(column, by_entry=True)


def _read_cells(cells: Coded, marks: _Marks, date_format: str | None) -> TableColumn:
    """Return the column with these entries: numbers if all are, else dates, else text."""
    filled = [text for text in map(str.strip, cells[0]) if not marks.is_gap(text)]
    values: Vector | None = None
    formats: tuple[str, ...] = () if date_format is None else (date_format,)
    if date_format is None:
        values = _parse(filled, marks.numbers)
        formats = find_date_formats(filled) if values is None else ()
    if date_format is not None or are_dates_clear(formats):
        values = _parse(filled, lambda texts: read_dates(texts, formats[0]))
    return _spread(cells, filled, values, formats)


def _spread(
    cells: Coded, filled: list[str], values: Vector | None, formats: tuple[str, ...]
) -> TableColumn:
    """Return the column of the cells, given the entries that are no gaps and their values."""
    # Entries that differ by blanks around them only are one.
    place = {text: number for number, text in enumerate(dict.fromkeys(filled))}
    gap = len(place)
    places = [place.get(text.strip(), gap) for text in cells[0]]
    new_codes = np.array([*places, gap], np.int32)[cells[1]]
    spread = None
    if values is not None:
        by_level = dict(zip(filled, values.tolist(), strict=True))
        spread = np.array([*(by_level[text] for text in place), np.nan])[new_codes]
    levels = np.array([*place, None], dtype=object)[:-1]
    written = levels, np.where(new_codes == gap, -1, new_codes).astype(np.int32)
    return TableColumn(numbers=spread, coded=written, date_formats=formats)


def _parse(filled: list[str], read: Callable[[list[str]], Any]) -> Vector | None:
    try:
        return np.asarray(read(filled), dtype=np.float64)
    except ValueError:
        return None


def _number(text: str, mark: str) -> float:
    if mark == ",":
        return _by_comma([text])[0] if _COMMA.fullmatch(text) else np.nan
    try:
        return float(text)
    except ValueError:
        return float(text.replace(",", "")) if _PARTED.fullmatch(text) else np.nan


def _each_number(texts: list[str], mark: str) -> Vector:
    numbers = np.array([_number(text, mark) for text in texts], dtype=np.float64)
    if np.isnan(numbers).any():
        raise ValueError
    return numbers


def _by_point(texts: list[str]) -> Any:
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError:  # 1,234,567.5
        if not all(_POINT.fullmatch(text) for text in texts):
            raise
        if not any("." in text or text.count(",") > 1 for text in texts if "," in text):
            raise  # 1,234 alone says nothing
        return np.array([text.replace(",", "") for text in texts], dtype=np.float64)


def _by_comma(texts: list[str]) -> list[float]:
    if not all(_COMMA.fullmatch(text) for text in texts):
        raise ValueError
    return [float(text.replace(".", "").replace(",", ".")) for text in texts]
