"""Predictions of a released forest: post-processing, which costs no privacy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.columns import read_columns

__all__ = ["forest_scores"]

Matrix: TypeAlias = npt.NDArray[np.float64]


def forest_scores(value: Mapping[str, Any], X: Any) -> Matrix:
    """Return the mean leaf score of every class over the trees, shape (n_rows, n_classes).

    Parameters
    ----------
    value : dict
        A released forest; nothing else is looked at.
    X : array or frame of shape (n_rows, n_columns)
    """
    if "features" not in value or "classes" not in value:
        raise MechanismError(
            "value must be a released forest with features and classes; got one without. "
            "Pass what finish returns, in the units of X."
        )
    rows = read_columns((X,), "Forest")
    features = np.asarray(value["features"], dtype=np.int64)
    if features.max() >= rows.shape[1]:
        raise MechanismError(
            f"X must have at least {int(features.max()) + 1} columns; got {rows.shape[1]}. "
            "Pass the columns that the forest was fitted on."
        )
    thresholds, leaves = np.asarray(value["thresholds"]), np.asarray(value["leaves"])
    total = np.zeros((len(rows), leaves.shape[2]))
    for tree, columns in enumerate(features):
        node = np.zeros(len(rows), dtype=np.int64)
        for column in columns:
            node = 2 * node + 2 - (rows[:, column] < thresholds[tree, node])
        total += leaves[tree, node - thresholds.shape[1]]
    mean: Matrix = total / len(features)
    return mean
