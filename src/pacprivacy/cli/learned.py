"""Builders of the models that are fitted: k-means, PCA, SVM, forest, ridge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pacprivacy.cli.columns import numeric_matrix, unit_labels
from pacprivacy.cli.named import (
    Columns,
    Named,
    describe_centres,
    describe_components,
    describe_plain,
    describe_planes,
)
from pacprivacy.cli.tables import Table
from pacprivacy.errors import DataError
from pacprivacy.mechanism import PCA, Forest, KMeans, LinearSVM

if TYPE_CHECKING:
    from pacprivacy.cli.models import ModelOptions

__all__ = ["build_forest", "build_kmeans", "build_pca", "build_ridge", "build_svm"]

Built = tuple[Any, Any]


def build_kmeans(table: Table, options: ModelOptions) -> Built:
    """Return k-means on standardised columns."""
    columns, X = Columns.standardised(*_features(table, options))
    inner = KMeans(n_clusters=options.clusters)
    return Named(inner=inner, columns=columns, describe=describe_centres), X


def build_pca(table: Table, options: ModelOptions) -> Built:
    """Return the leading directions of standardised columns."""
    columns, X = Columns.standardised(*_features(table, options))
    assert options.components is not None  # find_model asks for it
    inner = PCA(n_components=options.components)
    return Named(inner=inner, columns=columns, describe=describe_components), X


def build_svm(table: Table, options: ModelOptions) -> Built:
    """Return a linear SVM on standardised columns."""
    columns, X = Columns.standardised(*_features(table, options))
    inner = LinearSVM(C=1.0 if options.C is None else options.C)
    data = (X, class_labels(table, options))
    return Named(inner=inner, columns=columns, describe=describe_planes), data


def build_forest(table: Table, options: ModelOptions) -> Built:
    """Return a forest on the columns as they are."""
    names, X = _features(table, options)
    inner = Forest(
        n_trees=3 if options.trees is None else options.trees,
        depth=3 if options.depth is None else options.depth,
    )
    data = (X, class_labels(table, options))
    return Named(inner=inner, columns=Columns.plain(names), describe=describe_plain), data


def build_ridge(table: Table, options: ModelOptions) -> Built:
    """Return ridge regression, with a penalty that knows of an information budget."""
    # Brings in what only this model needs.
    from pacprivacy.design import OrthogonalRidge, Penalty

    names, X = _features(table, options)
    assert options.target is not None  # find_model asks for it
    y = numeric_matrix(table, [options.target])[:, 0]
    inner = OrthogonalRidge(penalty=Penalty(mi_nats=options.mi_nats))
    return Named(inner=inner, columns=Columns.plain(names), describe=describe_plain), (X, y)


def class_labels(table: Table, options: ModelOptions) -> npt.NDArray[Any]:
    """Return the classes to predict: whole numbers, or text as it is written."""
    name = options.target
    assert name is not None  # find_model asks for it
    labels = unit_labels(table, name)
    numbers = table.numbers.get(name)
    if numbers is None:
        return np.array([str(label) for label in labels])
    whole = numbers.astype(np.int64) if np.isfinite(numbers).all() else None
    if whole is None or (whole != numbers).any():
        raise DataError(
            f"column {name!r} must hold classes: text or whole numbers; got other numbers. "
            "Use --model ridge to predict a quantity."
        )
    return whole


def _features(table: Table, options: ModelOptions) -> tuple[tuple[str, ...], Any]:
    """Return the columns to learn from: those named, or all but the target's and the unit's."""
    apart = (options.target, options.unit)
    names = options.columns
    if names is None:
        names = tuple(name for name in table.names if name not in apart)
    elif options.target in names:
        raise DataError(
            f"--columns must leave out the target; got {options.target!r} in both. Drop it there."
        )
    if not names:
        raise DataError("the file must have a column to learn from; got none. Add columns.")
    return names, numeric_matrix(table, names)
