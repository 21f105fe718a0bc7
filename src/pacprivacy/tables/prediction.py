"""A released model on new rows: post-processing of what was released, which costs no privacy.

What is predicted tells about the *new* rows, which nobody has promised to protect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy

from pacprivacy._checks import Array, Matrix, listed
from pacprivacy.errors import DataError, PacPrivacyError
from pacprivacy.mechanism import (
    GAP_LEVEL,
    AppliedModel,
    Forest,
    LinearSVM,
    Value,
    code_column_levels,
)
from pacprivacy.release import Release
from pacprivacy.tables.table import Table, check_table_columns, check_table_finite

Predicted = dict[str, Array]
MOST: Final = 700.0  # exponents beyond are infinite


def predict(release: Release, table: Table) -> tuple[Predicted, npt.NDArray[np.bool_]]:
    """Return the predictions of a released model for the rows of a table, and which rows have one.

    Guarantee
    ---------
    Claim M-1. A function of the released value and of the new rows alone.
    """
    model = release.model
    if model is None:
        raise DataError(
            f"release must be of a model that predicts ({', '.join(sorted(APPLIES))}); got "
            f"{release.certificate.mechanism!r}. Release one with 'pac release --model ols'."
        )
    try:
        X = _design(model, table)
        known: npt.NDArray[np.bool_] = np.logical_not(np.isnan(X).any(axis=1))
        predictions = APPLIES[model["kind"]](model, release.value, X[known])
    except PacPrivacyError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise DataError(
            "release must hold the value of its model; got another. Use the file as it was written."
        ) from None
    predicted: Predicted = {}
    for name, column in predictions.items():
        predicted[name] = np.full(len(X), None, dtype=object)
        predicted[name][known] = column.tolist()
    return predicted, known


def _design(model: AppliedModel, table: Table) -> Matrix:
    """Return the terms of the model for every row, NaN where something is missing."""
    numbers, levels = model["terms"], model["levels"]
    used = list(dict.fromkeys(column for _, column, _ in numbers))
    check_table_columns(table, used)
    text = [name for name in used if name not in levels and table.columns[name].numbers is None]
    if text:
        raise DataError(
            f"columns must hold numbers, as when the model was fitted; got text in {listed(text)}. "
            "Correct the file, or say --decimal."
        )
    coded = {name: _codes(table, name, levels[name]) for name in used if name in levels}
    X = np.empty((table.n_rows, len(numbers)))
    for j, (_, name, level) in enumerate(numbers):
        if level is None:
            X[:, j] = table.columns[name].numbers
        else:
            codes, place = coded[name], levels[name].index(level)
            X[:, j] = np.where(codes < 0, np.nan, codes == place)
    check_table_finite(X, [label for label, _, _ in numbers])
    return X


def _codes(table: Table, name: str, levels: Sequence[str]) -> npt.NDArray[np.int64]:
    gap_level, column = levels[-1] == GAP_LEVEL, table.columns[name]
    codes = code_column_levels(
        column.labels, levels[:-1] if gap_level else levels, gap_level=gap_level
    )
    new = (codes < 0) & ~column.gaps
    if new.any():
        raise DataError(
            f"column {name!r} must hold levels that the model knows, {listed(levels)}; got another "
            f"in record {int(np.flatnonzero(new)[0]) + 1}. Leave those records out, or empty."
        )
    return codes


def _line(model: AppliedModel, value: Value, X: Matrix) -> Any:
    if "coef" in value:
        return value["intercept"] + X @ np.asarray(value["coef"])
    return value["intercept"] + X @ np.array([value[label] for label, _, _ in model["terms"]])


def _named(model: AppliedModel, predicted: Any) -> Predicted:
    return {f"predicted_{model['target']}": predicted}


def _odds(model: AppliedModel, value: Value, X: Matrix) -> Predicted:
    probability, classes = scipy.special.expit(_line(model, value, X)), np.array(model["classes"])
    likely = classes[(probability >= 0.5).astype(np.int64)]
    return {**_named(model, likely), f"probability_{classes[1]}": probability}


def _cluster(model: AppliedModel, value: Value, X: Matrix) -> Predicted:
    scales = np.asarray(model["scales"])
    apart = (X / scales)[:, None, :] - (np.asarray(value["centres"]) / scales)[None]
    return {"cluster": np.square(apart).sum(axis=2).argmin(axis=1)}


def _scores(model: AppliedModel, value: Value, X: Matrix) -> Predicted:
    scaled = (X - np.asarray(value["mean"])) / np.asarray(value["scales"])
    scores = scaled @ np.asarray(value["components"]).T
    return {f"component_{j + 1}": scores[:, j] for j in range(scores.shape[1])}


APPLIES: Final = {
    "ols": lambda m, v, X: _named(m, _line(m, v, X)),
    "ridge": lambda m, v, X: _named(m, _line(m, v, X)),
    "poisson": lambda m, v, X: _named(m, np.exp(np.minimum(_line(m, v, X), MOST))),
    "logistic": _odds,
    "svm": lambda m, v, X: _named(m, LinearSVM().predict(v, X)),
    "forest": lambda m, v, X: _named(m, Forest().predict(v, X)),
    "kmeans": _cluster,
    "pca": _scores,
}
