"""The models that ``pac release`` knows: name, options, how to build the mechanism and its data.

A new model is one entry in :data:`MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pacprivacy.cli.columns import numeric_matrix
from pacprivacy.cli.described import (
    Describe,
    Described,
    column_scales,
    describe_columns,
    describe_counts,
    describe_matrix,
)
from pacprivacy.cli.learned import (
    build_forest,
    build_kmeans,
    build_pca,
    build_ridge,
    build_svm,
)
from pacprivacy.cli.tables import Table
from pacprivacy.errors import DataError
from pacprivacy.mechanism import BatchMechanism, Covariance, Histogram, Mean

__all__ = ["MODELS", "Model", "ModelOptions", "find_model"]


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


Builder = Callable[[Table, ModelOptions], tuple[Any, Any]]


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


def _mean(table: Table, options: ModelOptions) -> tuple[Any, Any]:
    return _scaled(Mean(), describe_columns, table, options)


def _covariance(table: Table, options: ModelOptions) -> tuple[Any, Any]:
    return _scaled(Covariance(), describe_matrix, table, options)


def _scaled(
    inner: BatchMechanism, describe: Describe, table: Table, options: ModelOptions
) -> tuple[Any, Any]:
    names = _described_columns(table, options)
    X = numeric_matrix(table, names)
    scales = column_scales(X)
    return Described(inner=inner, names=names, describe=describe, scales=scales), X / scales


def _histogram(table: Table, options: ModelOptions) -> tuple[Any, Any]:
    names = _described_columns(table, options)
    X = numeric_matrix(table, names)
    inner = Histogram(bins=10 if options.bins is None else options.bins, range=options.range)
    ones = np.ones(len(names))
    return Described(inner=inner, names=names, describe=describe_counts, scales=ones), X


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
