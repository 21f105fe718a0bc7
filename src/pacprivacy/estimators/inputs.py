"""What ``fit`` is given: features and targets checked as scikit-learn checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pacprivacy.errors import DataError
from pacprivacy.mechanism.data import MINIMUM_ROWS
from pacprivacy.pool import Balanced, PoolStrategy
from pacprivacy.pool.units import encode_labels

__all__ = ["check_classes", "choose_pool", "read_features", "read_new", "read_supervised"]

Numbers = npt.NDArray[Any]
Labels = npt.NDArray[Any]


def read_features(estimator: Any, X: Any) -> Numbers:
    """Check the features of ``fit``, and note their number and names on the estimator."""
    features: Numbers = _validate(estimator, X=X)
    return features


def read_supervised(
    estimator: Any, X: Any, y: Any, *, numeric: bool = False, wide: bool = False
) -> tuple[Numbers, Labels]:
    """Check features and target of ``fit``.

    Parameters
    ----------
    estimator : estimator
        On which number and names of the features are noted.
    X, y : array or frame
        Features and target.
    numeric : bool
        Whether the target must be numbers.
    wide : bool
        Whether the target may have several columns.
    """
    features, target = _validate(estimator, X=X, y=y, y_numeric=numeric, multi_output=wide)
    return features, _plain_labels(target)


def read_new(estimator: Any, X: Any, *, dtype: Any = np.float64) -> Numbers:
    """Check features that a fitted estimator is applied to; refuse one that is not fitted."""
    check_is_fitted(estimator)
    features: Numbers = _validate(estimator, X=X, reset=False, dtype=dtype)
    return features


def check_classes(y: Labels) -> None:
    """Refuse targets of a classifier with one class, or with a class of one record.

    Raises
    ------
    DataError
        Before anything is computed.
    """
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


def _validate(estimator: Any, **data: Any) -> Any:
    """Run scikit-learn's checks, without those of its messages that quote records."""
    least = MINIMUM_ROWS if data.get("reset", True) else 1
    problem = ""
    try:
        checked = validate_data(estimator, ensure_min_samples=least, order="C", **data)
        features = checked[0] if isinstance(checked, tuple) else checked
        if features.dtype.kind in "biuf":
            return checked
    except ValueError as error:
        problem = str(error)
        if not any(quoting in problem for quoting in ("array=", "convert string", "bytes/str")):
            raise
    if "array=" in problem:
        raise DataError(
            "X must have two axes, records and features; got another number of axes. Reshape your "
            "data, with X.reshape(-1, 1) if there is one feature."
        )
    raise DataError(
        "X must hold numbers; got strings. Encode these columns, or drop them: an encoder fitted "
        "on all records is public, one inside the estimator is part of what is measured."
    )


def _plain_labels(y: Labels) -> Labels:
    """Give labels that came in an object array their own type."""
    if y.dtype.kind != "O" or all(isinstance(label, str) for label in y.flat):
        return y
    plain = np.array(y.tolist())
    return plain if plain.dtype.kind in "biuf" else y
