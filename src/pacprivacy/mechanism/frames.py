"""Named columns of whatever holds rows: numbers with gaps, categories, and conditions on them.

Everything here looks at one row at a time. What must be known of all rows, such as the levels of a
category, is handed in: it is declared, or fixed once on the universe, and so the same for every
candidate.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import narwhals as nw
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import is_table, read_table

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]
Texts = npt.NDArray[Any]

GAP_LEVEL: Final = "(missing)"
_NAMED: Final = 6
_FEW: Final = 10  # levels that nobody takes for names
_DAY: Final = np.timedelta64(1, "D")


class Frame:
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
        if is_table(part):
            table = read_table(part)
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
            days = (array - np.datetime64(0, "D").astype(array.dtype)) / _DAY
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
        return np.asarray((plain.astype("datetime64[s]") - np.datetime64(0, "s")) / _DAY)


def _texts(array: npt.NDArray[Any]) -> Texts:
    """Return text as an object array of strings, None where one is missing or empty."""
    if array.dtype.kind in "US":
        distinct, codes = np.unique(array, return_inverse=True)
        written = [text.decode() if isinstance(text, bytes) else str(text) for text in distinct]
        return np.array([text or None for text in written] + [None], dtype=object)[codes]
    found = np.empty(len(array), dtype=object)
    found[:] = [
        None if item is None or not _is_there(item) else str(item) for item in array.tolist()
    ]
    return found


def _is_there(item: Any) -> bool:
    """Whether an entry is there: NaN differs from itself, and pandas.NA cannot say."""
    try:
        return bool(item == item)
    except TypeError:
        return False


def is_text(column: Vector | Texts) -> bool:
    """Whether a column holds categories rather than numbers."""
    return column.dtype.kind == "O"


def find_levels(column: Vector | Texts) -> tuple[str, ...]:
    """Return the sorted levels that occur; whole numbers are written as such."""
    if is_text(column):
        return tuple(sorted({text for text in column.tolist() if text is not None}))
    return tuple(_number_name(number) for number in np.unique(column[~np.isnan(column)]).tolist())


def code_levels(column: Vector | Texts, levels: Sequence[str], *, gap_level: bool = False) -> Codes:
    """Return which level each row has; -1 where it has none of them.

    With ``gap_level`` the rows that have none get the number after the last one.
    """
    gap = len(levels) if gap_level else -1
    place = {level: number for number, level in enumerate(levels)}
    if is_text(column):
        codes = (place.get(text, gap) for text in column.tolist())
        return np.fromiter(codes, np.int64, len(column))
    distinct, inverse = np.unique(column, return_inverse=True)
    numbers = [gap if value != value else place.get(_number_name(value), gap) for value in distinct]
    return np.array([*numbers, gap], dtype=np.int64)[inverse]


def _number_name(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def is_identity(n_levels: int, n_entries: int) -> bool:
    """Whether text says who somebody is: entries of their own, for all or for most of many."""
    return n_levels == n_entries or (n_levels > _FEW and n_levels >= n_entries / 2)


def shorten(names: Sequence[Any], limit: int = _NAMED) -> str:
    """Return names for a message; of many only the first."""
    shown = ", ".join(repr(name)[:60] for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


# --- conditions -------------------------------------------------------------------------------

_COMPARE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


class Condition:
    """A condition on single rows, such as ``age >= 18 and region in ('north', 'south')``.

    Names are columns; those that are no identifiers go in backticks. Texts are in quotes, dates
    are texts such as ``'2024-05-31'``. A row with a gap in a column that is named is not taken.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._quoted: list[str] = []

        def take_out(match: re.Match[str]) -> str:
            self._quoted.append(match[1])
            return f"_quoted_{len(self._quoted) - 1}"

        try:
            plain = re.sub(r"`([^`]+)`", take_out, text)
            plain = re.sub(r"(?<![<>=!])=(?!=)", "==", plain.strip())
            self._tree = ast.parse(plain, mode="eval").body
        except (SyntaxError, ValueError):
            raise self._wrong() from None
        self._check(self._tree)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are named."""
        names = (self._name(node) for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        return tuple(dict.fromkeys(names))

    def rows(self, columns: Mapping[str, Vector | Texts]) -> Mask:
        """Return which rows meet the condition."""
        met: Mask = np.asarray(self._evaluate(self._tree, columns), dtype=np.bool_)
        for name in self.columns:
            column = columns[name]
            there = column != None if is_text(column) else ~np.isnan(column)  # noqa: E711
            met = met & np.asarray(there, dtype=np.bool_)
        return met

    def _wrong(self) -> MechanismError:
        return MechanismError(
            f"where must be a condition on columns; got {self.text[:80]!r}. Write it as "
            "\"age >= 18 and region in ('north', 'south')\"; odd names go in `backticks`."
        )

    def _name(self, node: ast.Name) -> str:
        number = node.id.removeprefix("_quoted_")
        return self._quoted[int(number)] if number != node.id else node.id

    def _check(self, node: ast.expr) -> None:
        """Refuse everything but comparisons of columns with constants, and, or, not."""
        match node:
            case ast.BoolOp(values=values):
                for value in values:
                    self._check(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._check(operand)
            case ast.Compare(left=left, ops=ops, comparators=others):
                for side in (left, *others):
                    if not isinstance(side, ast.Name):
                        _constant(side, self._wrong)
                known = all(
                    type(op) in _COMPARE or isinstance(op, ast.In | ast.NotIn) for op in ops
                )
                if not known or not any(isinstance(s, ast.Name) for s in (left, *others)):
                    raise self._wrong()
            case _:
                raise self._wrong()

    def _evaluate(self, node: ast.expr, columns: Mapping[str, Any]) -> Any:
        match node:
            case ast.BoolOp(op=op, values=values):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return join.reduce([self._evaluate(value, columns) for value in values])
            case ast.UnaryOp(operand=operand):
                return ~self._evaluate(operand, columns)
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                found = [
                    self._compare(op, a, b, columns)
                    for op, a, b in zip(ops, sides, sides[1:], strict=False)
                ]
                return np.logical_and.reduce(found)
        raise self._wrong()

    def _compare(
        self, op: ast.cmpop, left: ast.expr, right: ast.expr, columns: Mapping[str, Any]
    ) -> Any:
        a, b = (
            columns[self._name(side)]
            if isinstance(side, ast.Name)
            else _constant(side, self._wrong)
            for side in (left, right)
        )
        text = any(isinstance(side, np.ndarray) and is_text(side) for side in (a, b))
        a, b = (self._fit(side, text) for side in (a, b))
        if isinstance(op, ast.In | ast.NotIn):
            met = np.isin(a, list(b))
            return met if isinstance(op, ast.In) else ~met
        if text and not isinstance(op, ast.Eq | ast.NotEq):
            a, b = (_blank_gaps(side) for side in (a, b))
        with np.errstate(invalid="ignore"):
            return np.asarray(_COMPARE[type(op)](a, b), dtype=np.bool_)

    def _fit(self, side: Any, text: bool) -> Any:
        """Make a constant fit the column beside it: text, number, or date as a number."""
        if isinstance(side, np.ndarray):
            return side
        if isinstance(side, tuple):
            return tuple(self._fit(item, text) for item in side)
        if text:
            return side if isinstance(side, str) else _number_name(side)
        if not isinstance(side, str):
            return float(side)
        try:
            return float((np.datetime64(side, "ms") - np.datetime64(0, "ms")) / _DAY)
        except ValueError:
            raise MechanismError(
                f"where must compare numbers with numbers and dates; got {side[:40]!r} beside a "
                "column of numbers. Write a date as '2024-05-31'."
            ) from None


def _blank_gaps(side: Any) -> Any:
    return np.where(side == None, "", side) if isinstance(side, np.ndarray) else side  # noqa: E711


def _constant(node: ast.expr, wrong: Callable[[], MechanismError]) -> Any:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise wrong() from None
    items = value if isinstance(value, tuple | list) else (value,)
    if not items or not all(isinstance(item, int | float | str) for item in items):
        raise wrong()
    return tuple(items) if isinstance(value, tuple | list) else value


# --- gaps ----------------------------------------------------------------------------------------


def fill_means(X: Matrix, weights: Vector | None = None) -> Matrix:
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
