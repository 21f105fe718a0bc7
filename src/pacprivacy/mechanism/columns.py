"""Named columns of whatever holds rows: numbers with gaps, categories, and dates.

Everything here reads one row at a time. What must be known of all rows, such as the levels of a
category or the format of dates, is an argument: it is declared, or fixed once with all records, and
so the same for every candidate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import repeat
from typing import Any, Final, Literal

import narwhals as nw
import numpy as np
import numpy.typing as npt
from narwhals.exceptions import NarwhalsError

from pacprivacy._checks import Array, Matrix, Vector, shorten
from pacprivacy.errors import MechanismError

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]
Texts = Array

GAP_LEVEL: Final = "(missing)"
SHOWN_COLUMNS: Final = 4
_NUMBER: Final = re.compile(
    r"[+-]?(\d+([.,]\d*)?|[.,]\d+|\d{1,3}([., '\u2019]\d{3})+([.,]\d+)?)([eE][+-]?\d+)?"
)
_QUANTITY: Final = re.compile(r"[€$£]\s*\d.*|.*\d\s*[%€$£]")
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}
Kind = Literal["number", "boolean", "date", "text"]
ISO: Final = "ISO"
SECONDS_A_DAY: Final = 86400
DAY: Final = np.timedelta64(1, "D")
_ISO_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)(Z|[+-]\d\d:?\d\d)?"
)
_WRITTEN: Final = re.compile(
    r"(?:(?P<year>\d{4}[-/.]\d{1,2}[-/.]\d{1,2})"
    r"|(?P<figures>\d{1,2}([-/.])\d{1,2}\3(?:\d{4}|\d\d))"
    r"|(?P<name>\d{1,2}[-/. ]?[A-Za-z]{3,9}[-/. ]?(?:\d{4}|\d\d))"
    r"|(?P<first>[A-Za-z]{3,9} \d{1,2},? \d{4}))"
    r"(?P<time>[ T:]\d{1,2}:\d\d(?::\d\d(?:\.\d{1,6})?)?(?: ?[AaPp][Mm])?)?"
)


def is_data_table(part: Any) -> bool:
    """Whether a part is an in-memory data frame or series that narwhals can read."""
    if isinstance(part, np.ndarray):  # quick, for the most frequent case
        return False
    try:
        frame = nw.from_native(part, eager_only=True, allow_series=True, pass_through=True)
    except NarwhalsError:  # a table, but one with repeated names; reading it will say so
        return True
    return isinstance(frame, nw.DataFrame | nw.Series)


def is_one_column(part: Any) -> bool:
    """Whether a part is an array of numbers, not of rows, or a series."""
    if isinstance(part, np.ndarray):
        return part.ndim == 1
    return is_data_table(part) and isinstance(read_data_table(part), nw.Series)


def read_data_table(part: Any) -> Any:
    """Return a native frame or series as narwhals sees it."""
    return nw.from_native(part, eager_only=True, allow_series=True)


def data_table_columns(table: Any) -> list[tuple[str, nw.Series[Any]]]:
    """Return the columns of a frame, or a series as its only column, with their names."""
    if isinstance(table, nw.Series):
        return [(str(table.name or ""), table)]
    return [(str(column.name), column) for column in table.iter_columns()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComparedColumn:
    """A column in a condition, as numbers or texts; ``date_format`` besides ISO; curator-only.

    With ``by_entry`` every entry is compared by itself, so no refusal depends on it.
    """

    kind: Kind
    entries: Vector | Texts = field(repr=False)
    date_format: str = ISO
    by_entry: bool = False


class Columns:
    """The named columns of a frame, of a structured array, or of a plain one (``x1``, ``x2``).

    ``date_formats`` are those of texts that are dates; they become numbers, as other dates do.
    ``kinds`` are those of the columns of all records, for rows that might not show it. With
    ``declared``, the kinds that were declared, every entry is read by itself: a kind follows from
    the type of a column and from its declaration, and an entry of another kind is a gap.
    """

    def __init__(
        self,
        parts: tuple[Any, ...],
        *,
        wanted_by: str,
        date_formats: Mapping[str, str] | None = None,
        kinds: Mapping[str, Kind] | None = None,
        declared: Mapping[str, Kind] | None = None,
    ) -> None:
        self.date_formats, self._kinds = date_formats or {}, kinds or {}
        self._declared = declared
        if len(parts) != 1:
            raise MechanismError(
                f"{wanted_by} must be given one table; got {len(parts)} parts. "
                "Pass a frame with all columns, the target too."
            )
        part = parts[0]
        self.n_rows = len(part)
        self._columns: Mapping[str, Any]
        if is_data_table(part):
            table = read_data_table(part)
            if isinstance(table, nw.Series):
                table = table.alias(table.name or "x").to_frame()
            self._columns = {str(column.name): column for column in table.iter_columns()}
        else:
            array = np.asarray(part)
            if array.ndim == 0:
                raise MechanismError(
                    f"{wanted_by} must be given a frame or an array; got {type(part).__name__}. "
                    "Join the tables before and name the person in units=, or use pac.sql."
                )
            if array.dtype.names is not None:
                self._columns = {name: array[name] for name in array.dtype.names}
            elif array.ndim == 1:
                self._columns = {"x": array}
            else:
                flat = array.reshape(len(array), -1)
                self._columns = {f"x{j + 1}": flat[:, j] for j in range(flat.shape[1])}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def kind(self, name: str) -> Kind:
        """Return the kind of a column; dates become days since 1970, booleans 0 and 1."""
        column = self._find(name)
        if name in self.date_formats or name in self._kinds:
            return self._kinds.get(name, "date")
        if isinstance(column, nw.Series):
            if column.dtype.is_numeric() or column.dtype == nw.Boolean:
                return "boolean" if column.dtype == nw.Boolean else "number"
            if column.dtype in (nw.Date, nw.Datetime):
                return "date"
            mixed = _is_of_objects(column)
            column = column.to_numpy()
        else:
            mixed = np.asarray(column).dtype.kind == "O"
        array = np.asarray(column)
        if self._declared is not None and array.dtype.kind == "O":
            return self._declared.get(name, "text") if mixed else "text"
        first = _first_entry(array) if array.dtype.kind == "O" else None
        if array.dtype.kind == "m" or isinstance(first, np.timedelta64 | timedelta):
            raise MechanismError(
                f"column {name!r} must hold numbers, dates or text; got durations. Turn them into "
                "numbers of days or seconds first."
            )
        if isinstance(first, bool | np.bool_):
            entries = (item for item in array.tolist() if _is_there(item))
            return "boolean" if all(isinstance(x, bool | np.bool_) for x in entries) else "text"
        if array.dtype.kind == "M" or hasattr(first, "toordinal"):
            return "date"
        if array.dtype.kind == "b":
            return "boolean"
        return "number" if array.dtype.kind in "iuf" else "text"

    def is_categorical(self, name: str) -> bool:
        """Whether the type of a column says that it is a category."""
        column = self._find(name)
        return isinstance(column, nw.Series) and column.dtype in (nw.Categorical, nw.Enum)

    def compared(self, name: str) -> ComparedColumn:
        kind, entries = self.kind(name), self.column(name)
        levels = self._declared is not None and self._declared.get(name) == "text"
        if levels and kind in ("number", "boolean"):  # levels are compared as such
            kind, entries = "text", _level_names(entries)
        return ComparedColumn(
            kind=kind,
            entries=entries,
            date_format=self.date_formats.get(name, ISO),
            by_entry=self._declared is not None,
        )

    def find_date_formats(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        texts = {name: self.column(name) for name in names if self.kind(name) == "text"}
        formats = {name: find_date_formats(column_levels(texts[name])) for name in texts}
        return {name: possible for name, possible in formats.items() if possible}

    def _find(self, name: str) -> Any:
        if name not in self._columns:
            raise MechanismError(
                f"column {name!r} must be in the table; got {shorten(self.names)}. "
                "Names are case-sensitive; a column of units is named in units= alone."
            )
        return self._columns[name]

    def column(self, name: str) -> Vector | Texts:
        """Return numbers with NaN for gaps (dates in days since 1970), or texts with None."""
        column = self._find(name)
        if isinstance(column, nw.Series):
            kind = column.dtype
            if kind.is_numeric() or kind == nw.Boolean:
                column = column.cast(nw.Float64)
            elif kind == nw.Datetime and getattr(kind, "time_zone", None) is not None:
                column = column.dt.replace_time_zone(None)
            column = column.to_numpy()
        array = np.asarray(column)
        if array.dtype.kind == "M":
            days = (array - np.datetime64(0, "D").astype(array.dtype)) / DAY
            return np.asarray(days, dtype=np.float64)
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
        if self._declared is not None:
            return _read_by_entry(array, self.kind(name), self.date_formats.get(name, ISO))
        if name in self.date_formats:
            return self._written_dates(name, _texts(array))
        held = self.kind(name)
        if held == "date":
            return self._dates(name, array)
        if held == "boolean":
            return np.array([float(x) if _is_there(x) else np.nan for x in array.tolist()])
        return _texts(array)

    def category(self, name: str) -> Vector | Texts:
        """Return a column as levels: dates become texts such as 2024-05-31."""
        column = self.column(name)
        if self.kind(name) != "date":
            return column
        distinct, places = np.unique(column, return_inverse=True)
        names = [None if day != day else date_name(day) for day in distinct.tolist()]
        return np.array([*names, None], dtype=object)[places]

    def _written_dates(self, name: str, texts: Texts) -> Vector:
        distinct = list(column_levels(texts))
        try:
            days = read_dates(distinct, self.date_formats[name])
        except ValueError:
            raise MechanismError(
                f"column {name!r} must hold dates as {self.date_formats[name]}, as was declared; "
                "got other entries. Correct the format, or the entries."
            ) from None
        return np.array([*days, np.nan])[code_column_levels(texts, distinct)]

    @staticmethod
    def _dates(name: str, array: Texts) -> Vector:
        plain = np.empty(len(array), dtype=object)
        plain[:] = [
            None
            if not _is_there(item)
            else item.replace(tzinfo=None)
            if getattr(item, "tzinfo", None) is not None
            else item
            for item in array.tolist()
        ]
        try:
            moments = plain.astype("datetime64[ms]")
        except (TypeError, ValueError):
            raise MechanismError(
                f"column {name!r} must hold dates in every row, or none; got other entries beside "
                "dates. Turn them into dates or gaps (None)."
            ) from None
        return np.asarray((moments - np.datetime64(0, "ms")) / DAY)


def is_number_text(levels: Sequence[str]) -> bool:
    """Whether texts hold numbers, such as 7 beside <5 and neg, or 5 % and 12 %."""
    return any(_NUMBER.fullmatch(text) for text in levels) or (
        bool(levels) and all(_QUANTITY.fullmatch(text) for text in levels)
    )


def _first_entry(array: Array) -> Any:
    return next((item for item in array.reshape(-1) if _is_there(item)), None)


def _texts(array: Array) -> Texts:
    if array.dtype.kind in "US":
        distinct, codes = np.unique(array, return_inverse=True)
        written = [
            text.decode(errors="backslashreplace") if isinstance(text, bytes) else str(text)
            for text in distinct
        ]
        return np.array([text or None for text in written] + [None], dtype=object)[codes]
    texts = np.empty(len(array), dtype=object)
    texts[:] = [
        (item or None) if type(item) is str else (str(item) if _is_there(item) else None)
        for item in array.tolist()
    ]
    return texts


def _is_there(item: Any) -> bool:
    """Whether an entry is there: NaN differs from itself, and pandas.NA cannot say."""
    try:
        return item is not None and bool(item == item)
    except (TypeError, ValueError, ArithmeticError):  # an array in a cell, a signalling NaN
        return False


# --- entries that are read one by one ----------------------------------------------------------


def _is_of_objects(column: nw.Series[Any]) -> bool:
    held = getattr(column.to_native(), "dtype", None)
    return column.dtype == nw.Object or str(held) == "object"


def _read_by_entry(array: Array, kind: Kind, date_format: str) -> Vector | Texts:
    """Return each entry as its own content says; one of another kind is a gap."""
    items = _texts(array).tolist() if array.dtype.kind in "US" else array.tolist()
    if kind == "text":
        texts = np.empty(len(items), dtype=object)
        texts[:] = [_entry_text(item) for item in items]
        return texts
    if kind == "date":
        written = {item for item in items if isinstance(item, str)}
        days = {text: entry_day(text, date_format) for text in written}
        read = [days[item] if isinstance(item, str) else _entry_day(item) for item in items]
        return np.array(read, dtype=np.float64)
    return np.array([_entry_number(item) for item in items], dtype=np.float64)


def _entry_text(item: Any) -> str | None:
    if type(item) is str:
        return item or None
    if not _is_there(item):
        return None
    if hasattr(item, "toordinal"):
        return date_name(_moment_day(item))
    try:
        return str(item) or None
    except ValueError:  # a whole number of thousands of digits
        return None


def _entry_number(item: Any) -> float:
    if hasattr(item, "toordinal"):
        return _entry_day(item)
    try:
        return float(item) if _is_there(item) else math.nan
    except OverflowError:
        return math.inf if item > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def _entry_day(item: Any) -> float:
    there = hasattr(item, "toordinal") and _is_there(item)
    return _moment_day(item) if there else math.nan


def entry_day(text: str, date_format: str) -> float:
    """Return the day since 1970 of one text, its zone left out; NaN if it is no such date.

    Examples
    --------
    >>> entry_day("1970-01-03T12:00Z", "ISO"), entry_day("soon", "ISO")
    (2.5, nan)
    """
    try:
        return float(read_dates([text], date_format)[0])
    except ValueError:
        return math.nan


def _moment_day(moment: date) -> float:
    """Return the day since 1970 of a date or an instant, as it is written in its zone."""
    if not isinstance(moment, datetime):
        return float(moment.toordinal() - date(1970, 1, 1).toordinal())
    plain = datetime(*moment.timetuple()[:6], moment.microsecond)
    return (plain - datetime(1970, 1, 1)).total_seconds() / SECONDS_A_DAY


def _level_names(numbers: Vector) -> Texts:
    texts = np.empty(len(numbers), dtype=object)
    texts[:] = [None if x != x else column_level_name(x) for x in numbers.tolist()]
    return texts


def is_text_column(column: Vector | Texts) -> bool:
    """Whether a column holds categories rather than numbers."""
    return column.dtype.kind == "O"


def column_levels(column: Vector | Texts) -> tuple[str, ...]:
    """Return the sorted levels that occur; integers are written without a point."""
    if is_text_column(column):
        return tuple(sorted({text for text in column.tolist() if text is not None}))
    return tuple(
        column_level_name(number) for number in np.unique(column[~np.isnan(column)]).tolist()
    )


def code_column_levels(
    column: Vector | Texts, levels: Sequence[str], *, gap_level: bool = False
) -> Codes:
    """Return the level of each row, -1 for none; with ``gap_level`` the number after the last."""
    gap = len(levels) if gap_level else -1
    place = {level: number for number, level in enumerate(levels)}
    if is_text_column(column):
        return np.fromiter(map(place.get, column.tolist(), repeat(gap)), np.int64, len(column))
    distinct, inverse = np.unique(column, return_inverse=True)
    numbers = [
        gap if value != value else place.get(column_level_name(value), gap) for value in distinct
    ]
    return np.array([*numbers, gap], dtype=np.int64)[inverse]


def column_level_name(number: float) -> str:
    """Return a number written as a level; integers have no point."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def plain_level(text: str) -> str:
    """Return a level in the form used for comparison: 01, 1.0 and True are 1.

    Examples
    --------
    >>> [plain_level(text) for text in ("01", "1.0", "true", "2.50", "north", "nan")]
    ['1', '1', '1', '2.5', 'north', 'nan']
    """
    if text.lower() in _TRUTHS:
        return str(int(_TRUTHS[text.lower()]))
    try:
        number = float(text)
    except ValueError:
        return text
    return column_level_name(number) if math.isfinite(number) else text


def code_plain_levels(
    column: Vector | Texts, levels: Sequence[str], *, gap_level: bool = False
) -> Codes:
    """Return the level of each row as :func:`code_column_levels` does, by its own entry alone.

    Whether a column is of numbers or of texts may follow from one entry of it. The levels of other
    rows must not.
    """
    known = [plain_level(level) for level in levels]
    if is_text_column(column):
        plain = {text: plain_level(text) for text in column_levels(column)}
        column = np.array([plain.get(text) for text in column.tolist()], dtype=object)
    return code_column_levels(column, known, gap_level=gap_level)


def declared_column_levels(name: str, levels: Sequence[str], kind: Kind) -> tuple[str, ...]:
    """Return declared levels in the form of the column; refuse levels that cannot occur."""
    read: dict[Kind, Callable[[str], str]] = {
        "date": lambda level: date_name(float(read_dates([level], ISO)[0])),
        "number": lambda level: column_level_name(float(level)),
        "boolean": lambda level: str(int(_TRUTHS[level.lower()])),
    }
    try:
        return tuple(read[kind](level) if kind in read else level for level in levels)
    except (ValueError, KeyError):
        such = {
            "date": "dates such as 2024-05-31",
            "number": "numbers",
            "boolean": "True and False",
        }
        raise MechanismError(
            f"levels of {name!r} must be {such[kind]}, as the column holds; got other levels. "
            "Correct them, or leave them out."
        ) from None


# --- dates -------------------------------------------------------------------------------------
#
# A format is that of datetime.strptime, or ISO for 2024-05-31 with or without a time. It is found
# once, with all records, or declared. Where 03/04/2024 may be two days, or 24 two years, it is not
# chosen but asked for.


def find_date_formats(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the formats in which all texts are dates; several, or two-digit years, are unclear."""
    if not texts:
        return ()
    if all(_ISO_DATE.fullmatch(text) for text in texts):
        return (ISO,) if _is_read(texts, ISO) else ()
    readings: dict[bytes, str] = {}
    for date_format in _candidates(texts[0]):
        if _is_read(texts, date_format):
            readings.setdefault(read_dates(texts, date_format).tobytes(), date_format)
    return tuple(readings.values())


def are_dates_clear(formats: Sequence[str]) -> bool:
    """Whether texts are dates that can be read in one way."""
    return len(formats) == 1 and "%y" not in formats[0]


def read_dates(texts: Sequence[str], date_format: str) -> Vector:
    """Return days since 1970; raise ValueError for a text in another format."""
    if date_format != ISO:
        moments = [datetime.strptime(text, date_format).replace(tzinfo=None) for text in texts]
        epoch = datetime(1970, 1, 1)
        return np.array([(m - epoch).total_seconds() / SECONDS_A_DAY for m in moments])
    parts = [_ISO_DATE.fullmatch(text) for text in texts]
    plain = [part[1] for part in parts if part is not None]
    if len(plain) < len(parts) or len({part[2] for part in parts if part is not None}) > 1:
        raise ValueError("texts must be dates such as 2024-05-31, in one time zone")
    return np.array(plain, dtype="datetime64[ms]").astype(np.int64) / (1000 * SECONDS_A_DAY)


def date_name(days: float) -> str:
    """Return a day since 1970 as 2024-05-31, with its time if it has one."""
    moment = np.datetime64(round(days * SECONDS_A_DAY * 1000), "ms")
    return str(moment).removesuffix(".000").removesuffix(":00").removesuffix("T00:00")


def _is_read(texts: Sequence[str], date_format: str) -> bool:
    try:
        read_dates(texts, date_format)
    except ValueError:
        return False
    return True


def _candidates(text: str) -> list[str]:
    shape = _WRITTEN.fullmatch(text)
    if shape is None:
        return []
    figures = ("%d{0}%m{0}%y", "%m{0}%d{0}%y")
    if shape["year"] is not None:
        formats = [re.sub(r"\d+", "{}", shape["year"]).format("%Y", "%m", "%d")]
    elif shape["figures"] is not None:
        mark = re.sub(r"\d", "", shape["figures"])[0]
        formats = [order.format(mark) for order in figures[: 1 if mark == "." else 2]]
    elif shape["name"] is not None:
        named = re.sub(r"\d+$", "%y", re.sub(r"^\d+", "%d", shape["name"]))
        formats = [re.sub(r"(?<!%)[A-Za-z]{3,}", month, named) for month in ("%b", "%B")]
    else:
        named = re.sub(r"\d{4}$", "%y", re.sub(r"\d{1,2}(?=,? )", "%d", shape["first"]))
        formats = [re.sub(r"(?<!%)[A-Za-z]{3,}", month, named) for month in ("%b", "%B")]
    day = shape["year"] or shape["figures"] or shape["name"] or shape["first"]
    if re.search(r"\d{4}$", day):
        formats = [date_format.replace("%y", "%Y") for date_format in formats]
    return [date_format + _time_format(shape["time"] or "") for date_format in formats]


def _time_format(time: str) -> str:
    if not time:
        return ""
    half = re.search(r" ?[AaPp][Mm]$", time)
    written = ["%I" if half else "%H", "%M", *["%S"] * (time.count(":", 1) > 1)]
    fraction = ".%f" if "." in time else ""
    return time[0] + ":".join(written) + fraction + (half[0][:-2] + "%p" if half else "")


# --- gaps ----------------------------------------------------------------------------------------


def list_columns(names: Sequence[str]) -> str:
    """Return the names of few columns, or the number of many."""
    return ", ".join(names) if len(names) <= SHOWN_COLUMNS else f"{len(names)} columns"


def fill_column_means(X: Matrix, weights: Vector | None = None) -> Matrix:
    """Return the columns with gaps filled by the mean of the *same* rows."""
    gaps = np.isnan(X)
    if not gaps.any():
        return X
    there = (~gaps).astype(np.float64) * (1.0 if weights is None else weights[:, None])
    total = there.sum(axis=0)
    if not total.all():
        raise MechanismError(
            f"a column must have a value in every candidate to fill its gaps by the mean; got "
            f"{np.count_nonzero(total == 0)} without any. Leave those columns out."
        )
    sums = (np.where(gaps, 0.0, X) * there).sum(axis=0)
    return np.where(gaps, sums / total, X)
