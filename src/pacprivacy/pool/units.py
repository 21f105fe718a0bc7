"""From labels to numbers: the units that privacy is promised to, and their strata."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import PoolError
from pacprivacy.pool.pool import MIN_UNITS

Codes = npt.NDArray[np.int32]


def resolve_units(n_records: int, units: npt.ArrayLike | None) -> tuple[int, Codes | None]:
    """Return the number of units and the unit number of each record."""
    try:
        n_records = operator.index(n_records)
    except TypeError:
        raise PoolError(
            f"n_records must be an integer; got {type(n_records).__name__}. "
            "Pass the number of rows, len(data)."
        ) from None
    if not 0 <= n_records < 2**31:
        raise PoolError(
            f"n_records must be between {MIN_UNITS} and 2**31 - 1; got {n_records}. "
            "Pass the number of rows, len(data)."
        )
    if units is None:
        codes, n_units = None, n_records
    else:
        codes, n_units = encode_labels(units, n_records, name="units")
    if n_units < MIN_UNITS:
        what = "records" if units is None else "distinct units"
        raise PoolError(
            f"the number of {what} must be at least {MIN_UNITS}; got {n_units}. With fewer "
            "there is nobody to hide among: collect more, or use a smaller unit."
        )
    return n_units, codes


def resolve_strata(
    strata: npt.ArrayLike | None, n_records: int, row_units: Codes | None, *, wanted_by: str
) -> Codes:
    """Return the stratum number of each unit."""
    if strata is None:
        raise PoolError(
            f"strata must be given for {wanted_by}; got None. "
            "Pass one label per record, or switch the option off."
        )
    codes, n_strata = encode_labels(strata, n_records, name="strata")
    if row_units is not None:
        by_unit = np.zeros(int(row_units.max()) + 1, dtype=np.int32)
        by_unit[row_units] = codes
        if not np.array_equal(by_unit[row_units], codes):
            raise PoolError(
                "strata must be constant within a unit; got a unit with two labels. "
                "Give each unit one label, for example that of most of its rows."
            )
        codes = by_unit
    if np.bincount(codes, minlength=n_strata).min() < 2:
        raise PoolError(
            f"strata must have at least two units of every label for {wanted_by}; got a label "
            "with one. That unit could not be hidden: merge rare labels, or switch the option off."
        )
    return codes


def encode_labels(labels: npt.ArrayLike, n_records: int, *, name: str) -> tuple[Codes, int]:
    """Replace labels by numbers from zero in order of first appearance; refuse missing ones.

    The order of first appearance is the same whatever container the labels came in, so a
    pool does not change when the data move from one library to another.
    """
    if np.ma.is_masked(labels):
        raise _missing(name)
    values = np.asarray(labels)
    if values.ndim != 1:
        raise PoolError(
            f"{name} must be one-dimensional; got shape {values.shape}. Pass one label per record."
        )
    if len(values) != n_records:
        raise PoolError(
            f"{name} must have one entry per record; got {len(values)} entries for {n_records} "
            "records. Pass one label per row, in the order of the rows."
        )
    if values.dtype.kind not in "biufcmMSU":
        return _encode_objects(values.astype(object), name)
    if bool((values != values).any()):  # NaN and NaT differ from themselves
        raise _missing(name)
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse], len(first)


def _encode_objects(values: npt.NDArray[Any], name: str) -> tuple[Codes, int]:
    numbers: dict[Any, int] = {}
    codes = np.empty(len(values), dtype=np.int32)
    for i, label in enumerate(values):
        if _is_missing(label):
            raise _missing(name)
        try:
            codes[i] = numbers.setdefault(label, len(numbers))
        except TypeError:
            raise PoolError(
                f"{name} must have hashable labels; got {type(label).__name__}. "
                "Use strings or integers."
            ) from None
    return codes, len(numbers)


def _is_missing(label: object) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError):  # pandas.NA refuses to be a truth value
        return True


def _missing(name: str) -> PoolError:
    return PoolError(
        f"{name} must have no missing labels; got at least one. "
        "Drop those rows, or give each of them a label of its own."
    )
