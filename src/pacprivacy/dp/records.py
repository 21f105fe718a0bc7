"""Records as differentially private mechanisms read and clip them: one by one, none is refused.

That a record is odd is a fact about this record: an error or a warning would tell it without any
noise. So an entry that is not a finite number, or a label that was not declared, makes its record
an empty one, which has no influence. What is refused is public: the number of axes and of columns,
the type of a column, and, where records are replaced, how many there are.
"""

from typing import Any, Final

import numpy as np

from pacprivacy._checks import Array, Integers, Mask, Matrix, Vector
from pacprivacy.errors import DataError

EMPTY_RECORDS: Final = (
    "A record with an entry that is not a finite number, or with a label that was not declared, "
    "counts as an empty one; whether there are any is not said."
)
_NUMBERS_OR_OBJECTS: Final = "biufO"


def record_array(part: Any) -> Array:
    """Return an array whose type does not depend on what is in single records.

    An array or a frame has a type, which is public. A list has none: NumPy would find one in its
    entries, and a single text among numbers would turn all of them into texts. So a list becomes
    an array of objects.
    """
    if hasattr(part, "dtype") or hasattr(part, "dtypes"):
        return np.asarray(part)
    return np.array(part, dtype=object)


def read_records(X: Any, name: str = "X") -> Matrix:
    """Return features as float64; what is not a number is NaN.

    Raises
    ------
    DataError
        If there are not two axes, or no columns, or a column has the type of texts or dates.

    Guarantee
    ---------
    Claim DP-17. A row is read without a look at the others; the error does not depend on them.
    """
    rows = _as_numbers(name, X)
    if rows.ndim != 2 or rows.shape[1] == 0:
        found = "no columns" if rows.ndim == 2 else f"{rows.ndim} axes"
        raise DataError(
            f"{name} must have two axes, one row for each record and at least one column; got "
            f"{found}. Reshape it."
        )
    return rows


def read_record_numbers(y: Any, n_records: int) -> Vector:
    """Return a numerical target, one number for each record; what is not a number is NaN."""
    return _one_each(_as_numbers("y", y), n_records)


def read_regression_records(X: Any, y: Any) -> tuple[Matrix, Vector]:
    """Return features and target, with zeros for records that are not finite."""
    rows = read_records(X)
    target = read_record_numbers(y, len(rows))
    good = np.isfinite(rows).all(axis=1) & np.isfinite(target)
    return np.where(good[:, None], rows, 0.0), np.where(good, target, 0.0)


def finite_records(rows: Matrix) -> Matrix:
    """Return rows, with zeros for those that are not finite."""
    return np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)


def encode_record_labels(y: Any, classes: tuple[Any, ...], n_records: int) -> Integers:
    """Return each label's place among the declared classes, and -1 for any other label.

    Raises
    ------
    DataError
        If ``y`` is not a vector, or an array of a type that no class has; whatever is in it.
    """
    labels = _one_each(record_array(y), n_records)
    _check_type(labels, classes)
    places = np.full(n_records, -1, dtype=np.int64)
    for place, label in enumerate(classes):
        places[_equal(labels, label)] = place
    return places


def _check_type(labels: Array, classes: tuple[Any, ...]) -> None:
    """Refuse classes that an array of this type cannot hold, such as texts among numbers."""
    wanted = {"U": str, "S": bytes}.get(labels.dtype.kind)
    if labels.dtype.kind in "biuf":
        wanted = (int, float, np.number, np.bool_)  # type: ignore[assignment]
    if wanted is not None and not all(isinstance(label, wanted) for label in classes):
        raise DataError(
            f"classes must be of the type of y, {labels.dtype.name}; got {classes!r}. Declare the "
            "labels as they are in y."
        )


def _equal(labels: Array, label: Any) -> Mask:
    """Compare label by label, also where some cannot be compared at all."""
    if labels.dtype.kind != "O":
        # Other kinds are comparable as a whole, or not at all, which numpy says by one False.
        return np.broadcast_to(np.asarray(labels == label, dtype=np.bool_), labels.shape)
    return np.array([_is_same(own, label) for own in labels.tolist()], dtype=np.bool_)


def _is_same(own: Any, label: Any) -> bool:
    try:
        return bool(own == label)
    except Exception:  # an object of its own kind; it is not the label
        return False


def _one_each(target: Array, n_records: int) -> Array:
    if target.shape != (n_records,):
        raise DataError(
            f"y must have one entry for each row of X; got {target.ndim} axes, or another number "
            "of entries. Pass a vector."
        )
    return target


def _as_numbers(name: str, part: Any) -> Vector:
    """Return numbers, and NaN for what is none; refuse by the type of a whole array or column."""
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


def _column_types(part: Any) -> list[Any]:
    """Return the types of a frame's columns; nothing for an array."""
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
