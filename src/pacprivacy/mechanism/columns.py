"""Named columns of whatever holds rows: numbers with gaps, categories, and conditions on them.

Everything here looks at one row at a time. What must be known of all rows, such as the levels of a
category, is handed in: it is declared, or fixed once on the universe, and so the same for every
candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import narwhals as nw
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, shorten
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import is_data_table, read_data_table

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]
Texts = npt.NDArray[Any]

GAP_LEVEL: Final = "(missing)"
SHOWN_COLUMNS: Final = 4
_FEW: Final = 10  # levels that nobody takes for names
DAY: Final = np.timedelta64(1, "D")


class Columns:
    """The named columns of a frame, of a structured array, or of a plain one (``x1``, ``x2``)."""

    def __init__(self, parts: tuple[Any, ...], *, wanted_by: str) -> None:
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
            if array.dtype.names is not None:
                self._columns = {name: array[name] for name in array.dtype.names}
            elif array.ndim == 1:
                self._columns = {"x": array}
            else:
                flat = array.reshape(len(array), -1)
                self._columns = {f"x{j + 1}": flat[:, j] for j in range(flat.shape[1])}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(self._columns)

    def is_date(self, name: str) -> bool:
        """Whether a column holds dates, which become days since 1970."""
        found = self._columns.get(name)
        if isinstance(found, nw.Series):
            if found.dtype in (nw.Date, nw.Datetime):
                return True
            found = found.head(50).to_numpy()
        few = np.asarray(found).reshape(-1)[:50]
        return few.dtype.kind == "M" or any(hasattr(x, "toordinal") for x in few)

    def column(self, name: str) -> Vector | Texts:
        """Return numbers with NaN for gaps (dates in days since 1970), or texts with None."""
        if name not in self._columns:
            raise MechanismError(
                f"column {name!r} must be in the table; got {shorten(self.names)}. "
                "Names are case-sensitive."
            )
        column = self._columns[name]
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
        if array.dtype.kind == "O" and any(hasattr(item, "toordinal") for item in array[:50]):
            return self._dates(array)
        return _texts(array)

    @staticmethod
    def _dates(array: Texts) -> Vector:
        gaps = np.array([item is None or item != item for item in array])
        plain = np.array([None if gap else item for item, gap in zip(array, gaps, strict=True)])
        return np.asarray((plain.astype("datetime64[s]") - np.datetime64(0, "s")) / DAY)


def _texts(array: npt.NDArray[Any]) -> Texts:
    """Return text as an object array of strings, None where one is missing or empty."""
    if array.dtype.kind in "US":
        distinct, codes = np.unique(array, return_inverse=True)
        written = [text.decode() if isinstance(text, bytes) else str(text) for text in distinct]
        return np.array([text or None for text in written] + [None], dtype=object)[codes]
    found = np.empty(len(array), dtype=object)
    found[:] = [
        item if type(item) is str else (None if item is None or not _is_there(item) else str(item))
        for item in array.tolist()
    ]
    return found


def _is_there(item: Any) -> bool:
    """Whether an entry is there: NaN differs from itself, and pandas.NA cannot say."""
    try:
        return bool(item == item)
    except TypeError:
        return False


def is_text_column(column: Vector | Texts) -> bool:
    """Whether a column holds categories rather than numbers."""
    return column.dtype.kind == "O"


def column_levels(column: Vector | Texts) -> tuple[str, ...]:
    """Return the sorted levels that occur; whole numbers are written as such."""
    if is_text_column(column):
        return tuple(sorted({text for text in column.tolist() if text is not None}))
    return tuple(
        column_level_name(number) for number in np.unique(column[~np.isnan(column)]).tolist()
    )


def code_column_levels(
    column: Vector | Texts, levels: Sequence[str], *, gap_level: bool = False
) -> Codes:
    """Return which level each row has; -1 where it has none of them.

    With ``gap_level`` the rows that have none get the number after the last one.
    """
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
    """Return how a number is written as a level: whole ones as such."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def is_identity_column(n_levels: int, n_entries: int) -> bool:
    """Whether text says who somebody is: entries of their own, for all or for most of many."""
    return n_levels == n_entries or (n_levels > _FEW and n_levels >= n_entries / 2)


# --- conditions -------------------------------------------------------------------------------


# --- gaps ----------------------------------------------------------------------------------------


def list_columns(names: Sequence[str]) -> str:
    """Return the names of few columns, or the number of many."""
    return ", ".join(names) if len(names) <= SHOWN_COLUMNS else f"{len(names)} columns"


def fill_column_means(X: Matrix, weights: Vector | None = None) -> Matrix:
    """Return the columns with gaps filled by the mean of the *same* rows; never of others."""
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
