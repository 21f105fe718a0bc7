"""Records as differentially private mechanisms read, clip and sum them; none is refused.

That a record is odd is a fact about this record: an error or a warning would tell it without any
noise. So an entry that is not a finite number, or a label that was not declared, makes its record
an empty one, which has no influence. Refusals are public: axes, columns, types, and, where
records are replaced, how many there are. Sums are exact in whole numbers, whatever the order.
"""

import math
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._checks import Array, Integers, Mask, Matrix, Vector, as_floats, check_positive
from pacprivacy.errors import BudgetError, DataError

EMPTY_RECORDS: Final = (
    "A record with an entry that is not a finite number, or with a label that was not declared, "
    "counts as an empty one; whether there are any is not said."
)
_NUMBERS_OR_OBJECTS: Final = "biufO"


def record_array(part: object) -> Array:
    """Return an array whose type does not depend on single records.

    A list has no public type: one text among numbers would turn all into texts. So it becomes an
    array of objects.
    """
    if hasattr(part, "dtype") or hasattr(part, "dtypes"):
        return np.asarray(part)
    return np.array(part, dtype=object)


def read_records(X: object, name: str = "X") -> Matrix:
    """Return features as float64; other entries are NaN (claim DP-17)."""
    rows = _as_numbers(name, X)
    if rows.ndim != 2 or rows.shape[1] == 0:
        axes = "no columns" if rows.ndim == 2 else f"{rows.ndim} axes"
        raise DataError(
            f"{name} must have two axes, one row for each record and at least one column; got "
            f"{axes}. Reshape it."
        )
    return rows


def read_record_numbers(y: object, n_records: int, name: str = "y") -> Vector:
    return _check_one_per_record(_as_numbers(name, y), n_records)


def read_regression_records(X: object, y: object) -> tuple[Matrix, Vector]:
    """Return features and target, with zeros for records that are not finite."""
    rows = read_records(X)
    target = read_record_numbers(y, len(rows))
    good = np.isfinite(rows).all(axis=1) & np.isfinite(target)
    return np.where(good[:, None], rows, 0.0), np.where(good, target, 0.0)


def finite_records(rows: Matrix) -> Matrix:
    return np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)


def encode_record_labels(y: object, classes: tuple[object, ...], n_records: int) -> Integers:
    """Return each label's place among the declared classes, and -1 for any other label."""
    labels = _check_one_per_record(record_array(y), n_records)
    _check_type(labels, classes)
    places = np.full(n_records, -1, dtype=np.int64)
    for place, label in enumerate(classes):
        places[_equal(labels, label)] = place
    return places


def encode_record_signs(y: object, classes: tuple[object, ...], n_records: int) -> Vector:
    """Return -1 for the first of two classes, 1 for the second, and 0 for any other label."""
    places = encode_record_labels(y, classes, n_records)
    return np.where(places < 0, 0.0, 2.0 * places - 1.0)


def _check_type(labels: Array, classes: tuple[object, ...]) -> None:
    """Refuse classes that an array of this type cannot hold, such as texts among numbers."""
    types = {"U": str, "S": bytes}.get(labels.dtype.kind)
    if labels.dtype.kind in "biuf":
        types = (int, float, np.number, np.bool_)  # type: ignore[assignment]
    if types is not None and not all(isinstance(label, types) for label in classes):
        raise DataError(
            f"classes must be of the type of y, {labels.dtype.name}; got {classes!r}. Declare the "
            "labels as they are in y."
        )


def _equal(labels: Array, label: object) -> Mask:
    if labels.dtype.kind != "O":
        # Other kinds are comparable as a whole, or not at all, which numpy says by one False.
        return np.broadcast_to(np.asarray(labels == label, dtype=np.bool_), labels.shape)
    return np.array([_is_same(entry, label) for entry in labels.tolist()], dtype=np.bool_)


def _is_same(entry: object, label: object) -> bool:
    try:
        return bool(entry == label)
    except Exception:  # an object of its own kind; it is not the label
        return False


def _check_one_per_record(target: Array, n_records: int) -> Array:
    if target.shape != (n_records,):
        raise DataError(
            f"y must have one entry for each row of X; got {target.ndim} axes, or another number "
            "of entries. Pass a vector."
        )
    return target


def _as_numbers(name: str, part: object) -> Vector:
    """Return numbers, and NaN for other entries; refuse by the type of a whole array or column."""
    array = record_array(part)
    kinds = {array.dtype.kind} | {_kind(column) for column in _column_types(part)}
    if not kinds <= set(_NUMBERS_OR_OBJECTS):
        raise DataError(
            f"{name} must hold numbers; got a column of another type. Encode these columns, or "
            "drop them."
        )
    if array.dtype.kind != "O":
        return np.asarray(array, dtype=np.float64)
    numbers = [_as_number(entry) for entry in array.ravel().tolist()]
    return np.array(numbers, dtype=np.float64).reshape(array.shape)


def _column_types(part: object) -> list[object]:
    types = getattr(part, "dtypes", ())
    return list(getattr(types, "values", types)) if np.ndim(types) == 1 else [types]


def _kind(column: Any) -> str:
    """Return the kind of a column's type, as numpy abbreviates it; "U" for text and the like."""
    if isinstance(column, np.dtype):
        return column.kind
    numeric = getattr(column, "is_numeric", getattr(column, "_is_numeric", False))
    counts = bool(numeric() if callable(numeric) else numeric) or str(column) == "Boolean"
    return "f" if counts else "U"


def _as_number(entry: Any) -> float:
    try:
        return float(entry)
    except Exception:  # not a number; whose it is must not show
        return float("nan")


ROW_BITS: Final = 20  # features in whole multiples of a millionth of their bound
UNITS_PER_BOUND: Final = 28  # bits of a clipped entry of a sum that is released as it is
SUM_BITS: Final = 40  # gradients in whole multiples of 2^-40 of the clipping norm
CHUNK_ROWS: Final = 1 << 12  # 2^12 numbers of 2^40 are summed exactly in float64 ...
INT64_ROWS: Final = 1 << 22  # ... 2^22 of them in int64, and any number in two halves of it
BLOCK_CELLS: Final = 1 << 16  # entries that are processed at a time: half a megabyte
LARGEST_SUM: Final = 1 << 53  # whole numbers that float64 holds: 2^24 rows of the largest
SMALLEST, LARGEST = 1e-100, 1e100  # norms whose squares float64 holds
SLACK: Final = 1 - 1e-9  # room for the rounding of norms and of the factors themselves
_TINY: Final = 1e-300
_HALF: Final = 32  # bits


def clip(vectors: Matrix, clip_norm: float, *, order: int = 2) -> Matrix:
    """Shrink every row to a norm of at most ``clip_norm``: ``v · min(1, C/|v|)``."""
    check_positive("clip_norm", clip_norm, advice="Use a norm that gradients rarely exceed.")
    rows = as_floats("vectors", vectors)
    with np.errstate(all="ignore"):  # rows that are not finite become NaN, and are left out
        # Divided by their largest entry first, so that no square overflows or vanishes.
        largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), _TINY)
        shape = rows / largest
        lengths = np.maximum(np.linalg.norm(shape, ord=order, axis=1, keepdims=True), 1.0)
        kept = largest <= clip_norm / lengths
        return np.asarray(np.where(kept, rows, shape * (clip_norm / lengths)))


def shrink_rows(rows: Matrix, bound: float, *, order: int = 2) -> Matrix:
    """Return rows within a bound exactly, as float64 numbers are; odd ones are zero."""
    # The computed norm is off by a factor within 1 ± (d + 2) 2^-53; few roundings follow it.
    room = max(1.0 - SLACK, (rows.shape[1] + 16) * 2.0**-52)
    shrunk: Matrix = np.empty(rows.shape)
    n_rows = max(1, BLOCK_CELLS // rows.shape[1])
    for start in range(0, len(rows), n_rows):
        block = slice(start, start + n_rows)
        shrunk[block] = finite_records(clip(rows[block], bound, order=order)) * (1.0 - room)
    return shrunk


class ExactTotal:
    """A sum of whole numbers of size at most ``2^40`` for each record, exact for any number."""

    __slots__ = ("_high", "_low", "_n_recent", "_recent")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._recent, self._high, self._low = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self._n_recent = 0

    def add(self, whole: Array, n_records: int) -> None:
        """Add a sum over at most ``2^12`` records."""
        if self._n_recent + n_records > INT64_ROWS:
            self._settle()
        self._n_recent += n_records
        self._recent += whole.astype(np.int64, copy=False)

    def add_rows(self, rows: Array, bound: float, unit: float, *, order: int = 2) -> None:
        """Add rows, clipped to a bound, in whole multiples of a unit (claims DP-3 and G-1)."""
        n_rows = max(1, min(CHUNK_ROWS, BLOCK_CELLS // rows.shape[1]))
        for start in range(0, len(rows), n_rows):
            block = np.asarray(rows[start : start + n_rows], dtype=np.float64)
            whole = np.trunc(shrink_rows(block, bound, order=order) / unit)
            self.add(whole.sum(axis=0), len(block))

    def held(self, most: int = 1 << 62) -> Integers:
        """Return the sum, held within a power of two: that moves no two sums apart."""
        self._settle()
        limit = 1 << (62 - _HALF)
        high = np.clip(self._high, -limit, limit - 1)
        low = np.where(self._high > high, (1 << _HALF) - 1, self._low)
        total = (high << _HALF) + np.where(self._high < high, 0, low)
        return np.asarray(np.clip(total, -most, most))

    def rounded(self) -> Vector:
        self._settle()
        return self._high.astype(np.float64) * 2.0**_HALF + self._low

    def _settle(self) -> None:
        """Move recent sums to the two halves; the lower one is not negative."""
        self._low += self._recent & ((1 << _HALF) - 1)
        self._high += (self._recent >> _HALF) + (self._low >> _HALF)
        self._low &= (1 << _HALF) - 1
        self._recent[...] = 0
        self._n_recent = 0


def sum_clipped(rows: Matrix, *, clip_norm: float, norm: Literal["l1", "l2"] = "l2") -> Vector:
    """Return the sum of rows scaled down to ``min(1, clip_norm/|row|)`` of themselves, exactly.

    Guarantee
    ---------
    Claim DP-3. The sensitivity holds for the float64 numbers returned, not only for real ones.
    """
    limit = check_positive("clip_norm", clip_norm, advice="Use a norm that rows rarely exceed.")
    entries = read_records(rows, "rows")
    if not SMALLEST < limit < LARGEST:
        raise BudgetError(
            f"clip_norm must be within {SMALLEST:g} and {LARGEST:g}; got {clip_norm!r}. "
            "Rescale the rows."
        )
    # A power of two: products with whole numbers up to 2^53 are exact.
    unit = math.ldexp(1.0, math.frexp(limit)[1] - 1 - UNITS_PER_BOUND)
    total = ExactTotal((entries.shape[1],))
    total.add_rows(entries, limit, unit, order=1 if norm == "l1" else 2)
    return np.asarray(total.held(LARGEST_SUM) * unit, dtype=np.float64)


class WholeRows:
    """Features clipped to a bound, in whole millionths of it: sums and scores are exact."""

    __slots__ = ("norms", "unit", "whole")

    def __init__(self, X: object, x_bound: float) -> None:
        bound = check_positive("x_bound", x_bound, advice="Use a norm that rows rarely exceed.")
        self.unit = bound / (1 << ROW_BITS)
        self.whole = np.trunc(shrink_rows(read_records(X), bound) / self.unit)
        self.norms: Vector = self.unit * np.sqrt(np.einsum("ij,ij->i", self.whole, self.whole))


def regression_sums(X: object, y: object, x_bound: float, y_bound: float) -> tuple[Matrix, Vector]:
    """Return ``XᵀX`` and ``Xᵀy`` of clipped records, without rounding until the last conversion."""
    check_positive("y_bound", y_bound, advice="Use a value that targets rarely exceed.")
    features, target = read_regression_records(X, y)
    whole = WholeRows(features, x_bound).whole
    target = np.trunc(np.clip(target / y_bound, -1.0, 1.0) * (1 << ROW_BITS))
    d = whole.shape[1]
    gram, products = ExactTotal((d, d)), ExactTotal((d,))
    for start in range(0, len(whole), CHUNK_ROWS):
        rows = whole[start : start + CHUNK_ROWS]
        gram.add(rows.T @ rows, len(rows))
        products.add(rows.T @ target[start : start + CHUNK_ROWS], len(rows))
    unit = 2.0**-ROW_BITS
    return (
        gram.rounded() * (x_bound * unit) ** 2,
        products.rounded() * (x_bound * y_bound * unit**2),
    )
