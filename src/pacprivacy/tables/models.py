"""What ``pac release`` can compute from a table: name, options, mechanism and data.

A new model is one entry in :data:`MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import DataError
from pacprivacy.mechanism import (
    PCA,
    Columns,
    Covariance,
    Forest,
    Histogram,
    KMeans,
    LinearSVM,
    Mean,
    Mechanism,
    Named,
    check_classes,
    choose_pool,
    describe_centres,
    describe_columns,
    describe_components,
    describe_counts,
    describe_matrix,
    describe_plain,
    describe_planes,
)
from pacprivacy.pool import PoolStrategy
from pacprivacy.tables.files import Table, numeric_matrix, read_table, unit_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What the user asked for, besides budget and pool."""

    target: str | None = None
    columns: tuple[str, ...] | None = None
    unit: str | None = None
    bins: int | None = None
    range: tuple[float, float] | None = None
    clusters: int | None = None
    components: int | None = None
    C: float | None = None
    trees: int | None = None
    depth: int | None = None
    mi_nats: float | None = None


Built = tuple[Any, Any]
Builder = Callable[[Table, ModelOptions], Built]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the command line.

    Parameters
    ----------
    summary : str
        One line for the help.
    build : callable
        From the table and the options to (mechanism, data), ``data`` as in
        :func:`pacprivacy.privatize`.
    takes : frozenset of str
        Options of its own; given to another model they are refused.
    needs : tuple of str
        Options that it cannot do without.
    classifies : bool
        Whether the target is a class, so that every subset should have some of each.
    """

    summary: str
    build: Builder
    takes: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    classifies: bool = False


def _described_columns(table: Table, options: ModelOptions) -> tuple[str, ...]:
    """Return the columns to describe: the target, those named, or all but the unit's."""
    if options.target is not None and options.columns is not None:
        raise DataError(
            "--target and --columns must not be given together for this model; got both. "
            "--target describes that one column alone."
        )
    if options.target is not None:
        return (options.target,)
    if options.columns is not None:
        return options.columns
    names = tuple(name for name in table.names if name != options.unit)
    if not names:
        raise DataError("the file must have a column besides the unit; got none. Add columns.")
    return names


def _scaled(inner: Mechanism, describe: Any, table: Table, options: ModelOptions) -> Built:
    names = _described_columns(table, options)
    columns, X = Columns.scaled(names, numeric_matrix(table, names))
    return Named(inner=inner, columns=columns, describe=describe), X


def _mean(table: Table, options: ModelOptions) -> Built:
    return _scaled(Mean(), describe_columns, table, options)


def _covariance(table: Table, options: ModelOptions) -> Built:
    return _scaled(Covariance(), describe_matrix, table, options)


def _histogram(table: Table, options: ModelOptions) -> Built:
    names = _described_columns(table, options)
    inner = Histogram(bins=10 if options.bins is None else options.bins, range=options.range)
    columns = Columns.plain(names)
    return Named(inner=inner, columns=columns, describe=describe_counts), numeric_matrix(
        table, names
    )


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
        n_estimators=3 if options.trees is None else options.trees,
        max_depth=3 if options.depth is None else options.depth,
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


MODELS: Final[dict[str, Model]] = {
    "mean": Model(summary="mean of every column", build=_mean),
    "covariance": Model(summary="covariance matrix of the columns", build=_covariance),
    "histogram": Model(
        summary="counts per bin of every column",
        build=_histogram,
        takes=frozenset({"bins", "range"}),
    ),
    "kmeans": Model(
        summary="cluster centres",
        build=build_kmeans,
        takes=frozenset({"clusters"}),
        needs=("clusters",),
    ),
    "pca": Model(
        summary="leading directions",
        build=build_pca,
        takes=frozenset({"components"}),
        needs=("components",),
    ),
    "svm": Model(
        summary="linear classifier",
        build=build_svm,
        takes=frozenset({"C"}),
        needs=("target",),
        classifies=True,
    ),
    "forest": Model(
        summary="forest of decision trees",
        build=build_forest,
        takes=frozenset({"trees", "depth"}),
        needs=("target",),
        classifies=True,
    ),
    "ridge": Model(summary="linear regression", build=build_ridge, needs=("target",)),
}

OWN_OPTIONS: Final = ("bins", "range", "clusters", "components", "C", "trees", "depth")
MEANINGS: Final = {
    "clusters": "Say how many clusters, for example --clusters 3.",
    "components": "Say how many directions to keep, for example --components 2.",
    "target": "Name the column to predict.",
}


def find_model(name: str, options: ModelOptions) -> Model:
    """Return the model of that name; refuse unknown ones and options that do not fit it."""
    model = MODELS.get(name)
    if model is None:
        raise DataError(f"--model must be one of {', '.join(MODELS)}; got {name!r}. Choose one.")
    for option in OWN_OPTIONS:
        if getattr(options, option) is not None and option not in model.takes:
            owners = ", ".join(n for n, m in MODELS.items() if option in m.takes)
            raise DataError(
                f"--{option} must be left out for --model {name}; got a value. "
                f"It belongs to --model {owners}."
            )
    for option in model.needs:
        if getattr(options, option) is None:
            raise DataError(
                f"--{option} must be given for --model {name}; got nothing. {MEANINGS[option]}"
            )
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A mechanism, its data, and who belongs together; curator-only but for the mechanism."""

    mechanism: Mechanism
    universe: Any = field(repr=False)
    units: Any = field(repr=False)
    pool: PoolStrategy | None


def read_study(data: Path, model: str, options: ModelOptions) -> Study:
    """Read the file and build the model on it.

    A classifier gets a pool in which every subset has half of every class.
    """
    chosen = find_model(model, options)
    kept = [name for name in (options.unit, options.target if chosen.classifies else None) if name]
    table = read_table(data, labels=kept)
    mechanism, universe = chosen.build(table, options)
    units = None if options.unit is None else unit_labels(table, options.unit)
    pool = None
    if chosen.classifies:
        check_classes(universe[1])
        pool = choose_pool(universe[1], units)
    return Study(mechanism=mechanism, universe=universe, units=units, pool=pool)
