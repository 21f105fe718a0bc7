"""What the models are given: features with class labels, and settings that are counts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism.data import is_table, read_columns, read_table, table_columns
from pacprivacy.pool import Balanced, PoolStrategy, encode_labels

Codes = npt.NDArray[np.int64]
Labels = npt.NDArray[Any]
Classes = tuple[Any, ...]

_NAMED: Final = 5  # columns that an error names before it only counts them


def read_labelled(parts: tuple[Any, ...], name: str) -> tuple[Matrix, Labels]:
    """Return the features as a float64 matrix and the labels as a vector.

    Raises
    ------
    MechanismError
        If there are not two parts, or the second is not one label for each row.
    """
    if len(parts) != 2:
        raise MechanismError(
            f"{name} must be given features and labels; got {len(parts)} part"
            f"{'' if len(parts) == 1 else 's'}. Pass the tuple (X, y)."
        )
    X = read_columns(parts[:1], name)
    y = _read_labels(parts[1], name)
    if len(y) != len(X):
        raise MechanismError(
            f"{name} must be given one label for each of {len(X)} rows; got {len(y)}. "
            "Pass (X, y) with as many labels as rows."
        )
    return X, y


def find_classes(y: Labels, name: str, declared: Classes | None = None) -> Classes:
    """Return the sorted classes among the labels, or check those that were declared.

    Parameters
    ----------
    y : array of shape (n_rows,), curator-only
        Labels of the whole universe.
    name : str
        Of the mechanism, for messages.
    declared : tuple, optional
        Classes that the curator has stated; each must occur and no other may.
    """
    found = np.unique(y)
    if found.dtype.kind == "f" and not (found == np.floor(found)).all():
        raise MechanismError(
            f"{name} must be given class labels; got fractional numbers. "
            "Bin a continuous target first, or use a regression."
        )
    classes: Classes = tuple(found.tolist())
    if declared is not None:
        if len(set(declared)) != len(declared) or set(declared) != set(classes):
            raise MechanismError(
                f"classes must be the {len(classes)} distinct labels of the universe; got "
                f"{len(declared)} that differ from them. Leave classes=None to take them from it."
            )
        classes = tuple(declared)
    if len(classes) < 2:
        raise MechanismError(
            f"{name} must be given at least two classes; got {len(classes)}. "
            "Pass labels that differ between records."
        )
    return classes


def code_labels(y: Labels, classes: Classes, name: str, *, every_class: bool = True) -> Codes:
    """Return the position of every label in the list of classes.

    Raises
    ------
    MechanismError
        If a label is not in the list, or a class has no row where every one must.
    """
    order = np.argsort(np.asarray(classes), kind="stable")
    ordered = np.asarray(classes)[order]
    place = np.minimum(np.searchsorted(ordered, y), len(classes) - 1)
    if not (ordered[place] == y).all():
        raise MechanismError(
            f"{name} must be given labels of the universe only; got another one. "
            "Call prepare(data) with the whole universe first."
        )
    codes: Codes = order[place].astype(np.int64)
    counts = np.bincount(codes, minlength=len(classes))
    if every_class and not counts.all():
        raise MechanismError(
            f"{name} must see every one of the {len(classes)} classes in every subset; got a "
            f"subset without {np.count_nonzero(counts == 0)} of them. Draw the pool with "
            "Balanced(stratify=True) or Half(every_class=True), or merge rare classes."
        )
    return codes


def check_varying(X: Matrix, name: str) -> None:
    """Refuse columns that are constant over the whole universe."""
    flat = np.flatnonzero(X.min(axis=0) == X.max(axis=0))
    if flat.size:
        listed = ", ".join(str(column) for column in flat[:_NAMED])
        more = ", ..." if flat.size > _NAMED else ""
        raise MechanismError(
            f"{name} must be given features that vary; got {flat.size} constant "
            f"({'column' if flat.size == 1 else 'columns'} {listed}{more}, counted from 0). "
            "Drop them: they say nothing."
        )


def check_count(name: str, value: Any, least: int, *, advice: str) -> None:
    """Refuse a setting that is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise MechanismError(
            f"{name} must be a whole number of at least {least}; got {value!r}. {advice}"
        )


def _read_labels(part: Any, name: str) -> Labels:
    if is_table(part):
        columns = table_columns(read_table(part))
        if len(columns) != 1:
            raise MechanismError(
                f"{name} must be given one column of labels; got {len(columns)}. Choose one."
            )
        y: Labels = columns[0][1].to_numpy()
    else:
        y = np.asarray(part)
        y = y.reshape(-1) if y.shape[1:] == (1,) else y
    if y.ndim != 1 or y.dtype.kind not in "biufUSOT":
        raise MechanismError(
            f"{name} must be given one label for each row, a number or a string; got shape "
            f"{y.shape} and dtype {y.dtype}. Pass a vector of classes."
        )
    return y


def check_classes(y: Labels) -> None:
    """Refuse targets of a classifier with one class, or with a class of one record.

    Raises
    ------
    DataError
        Before anything is computed.
    """
    from sklearn.utils.multiclass import check_classification_targets

    check_classification_targets(y)
    counts = np.unique(y, return_counts=True)[1]
    if len(counts) < 2:
        raise DataError(
            f"y must hold at least two classes; got {len(counts)} class. "
            "Pass labels that differ between records."
        )
    if counts.min() < 2:
        raise DataError(
            "y must hold at least two records of every class; got a class with one. That record "
            "could not be hidden: merge rare classes, or drop them."
        )


def choose_pool(y: Labels, units: Any) -> PoolStrategy:
    """Return a pool in which no class goes missing: halves of every class, where possible.

    Records of one unit are in or out together. If their labels differ, classes cannot be halved
    and plain halves are taken; a subset without some class is then refused when it is met.
    """
    if units is None:
        return Balanced(stratify=True)
    codes, n_units = encode_labels(units, len(y), name="units")
    labels, _ = encode_labels(y, len(y), name="y")
    pairs = np.unique(np.stack([codes, labels]), axis=1).shape[1]
    return Balanced(stratify=pairs == n_units)
