"""What ``fit`` is given: features and targets checked as scikit-learn checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted, validate_data

from pacprivacy.errors import DataError
from pacprivacy.mechanism.data import MINIMUM_ROWS

__all__ = ["read_features", "read_new", "read_supervised"]

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
