"""What is public about a forest before any subset is seen: features, ranges, classes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import freeze
from pacprivacy._random import public_generator
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.forest_tree import bin_columns, fence_grids
from pacprivacy.mechanism.inputs import check_varying

__all__ = ["Layout", "Table", "as_table", "check_features", "choose_features", "find_ranges"]

Matrix: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Labels: TypeAlias = npt.NDArray[Any]
Table: TypeAlias = tuple[tuple[Any, ...], ...]

_NARROWEST: Final = 1e-290  # so that a thousand divided by it is a float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Everything about a forest that does not depend on the subset; public.

    Parameters
    ----------
    features : int array of shape (n_trees, depth)
        The column that each tree tests on each level.
    low, width : arrays of shape (n_columns,)
        Lower end and length of every column's range.
    classes : array of shape (n_classes,)
        The labels, in the order of the scores.
    reference : int array of shape (n_trees, 2**depth - 1)
        The grid point that every node is pulled to.
    n_thresholds : int
        Points of every grid.
    columns, places, fences : arrays
        The columns that are tested, the position among them of the one that each level (line) of
        each tree tests, and their grids; they follow from the rest.
    """

    features: Integers
    low: Matrix
    width: Matrix
    classes: Labels
    reference: Integers
    n_thresholds: int
    columns: Integers = field(init=False)
    places: Integers = field(init=False)
    fences: Matrix = field(init=False)

    def __post_init__(self) -> None:
        columns, places = np.unique(self.features.T, return_inverse=True)
        fences = fence_grids(self.low[columns], self.width[columns], self.n_thresholds)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "places", places.reshape(self.features.T.shape))
        object.__setattr__(self, "fences", fences)
        for each in fields(self):
            if each.name != "n_thresholds":
                freeze(getattr(self, each.name))

    def thresholds(self, fractions: Matrix) -> Matrix:
        """Return thresholds in the units of the features, given fractions of their ranges."""
        tested = np.repeat(self.features, 2 ** np.arange(self.features.shape[1]), axis=1)
        return self.low[tested] + fractions * self.width[tested]

    def cells(self, X: Matrix, y: Labels) -> Integers:
        """Return bin and class of every row in one number, shape (depth, n_trees, n_rows)."""
        if X.shape[1] != len(self.low):
            raise MechanismError(
                f"X must have {len(self.low)} columns; got {X.shape[1]}. "
                "Pass the columns that the forest was prepared with."
            )
        bins = bin_columns(X[:, self.columns], self.fences)
        return (bins * len(self.classes) + self.encode(y)).take(self.places, axis=0)

    def encode(self, y: Labels) -> Integers:
        """Return the class number of every row."""
        order = np.argsort(self.classes, kind="stable")
        place = np.searchsorted(self.classes, y, sorter=order)
        codes: Integers = order[np.minimum(place, len(order) - 1)].astype(np.int64, copy=False)
        if not (self.classes[codes] == y).all():
            raise MechanismError(
                f"y must hold the {len(self.classes)} classes fixed for the forest; got a row of "
                "another one. Call prepare(data) with the whole universe first."
            )
        return codes


def find_ranges(X: Matrix, declared: Table | None) -> tuple[Matrix, Matrix]:
    """Return the lower end and the length of every column's range."""
    check_varying(X, "Forest")
    pairs = np.stack([X.min(axis=0), X.max(axis=0)], axis=1)
    if declared is not None:
        pairs = np.asarray(declared, dtype=np.float64)
        if pairs.shape != (X.shape[1], 2) or not (pairs[:, 0] < pairs[:, 1]).all():
            raise MechanismError(
                f"ranges must hold a pair low < high for each of {X.shape[1]} columns; got shape "
                f"{pairs.shape}. Use None to take the ranges of the universe."
            )
    with np.errstate(over="ignore", invalid="ignore"):
        width = pairs[:, 1] - pairs[:, 0]
    if not (np.isfinite(width) & (width > _NARROWEST)).all():
        raise MechanismError(
            f"ranges must be finite and wider than {_NARROWEST}; got a column where they are not. "
            "Rescale it."
        )
    return pairs[:, 0].copy(), width


def choose_features(n_columns: int, shape: tuple[int, int], seed: int) -> Integers:
    """Return the column that each tree tests on each level, shape (n_trees, depth).

    Every tree takes the columns in a random order of its own, and starts again with another one
    when it has more levels than there are columns.
    """
    n_trees, depth = shape
    features = np.empty(shape, dtype=np.int64)
    for tree in range(n_trees):
        rng = public_generator(seed, "forest", tree)
        rounds = [rng.permutation(n_columns) for _ in range(-(-depth // n_columns))]
        features[tree] = np.concatenate(rounds)[:depth]
    return features


def check_features(declared: Table, n_columns: int, shape: tuple[int, int]) -> Integers:
    """Return declared column numbers as an array, and check them."""
    features: npt.NDArray[Any] = np.asarray(declared)
    if features.shape != shape or features.dtype.kind not in "iu":
        raise MechanismError(
            f"features must hold column numbers of shape (n_trees, depth) = {shape}; got shape "
            f"{features.shape} and dtype {features.dtype}. Use None for an order by the seed."
        )
    if features.min() < 0 or features.max() >= n_columns:
        raise MechanismError(
            f"features must be column numbers from 0 to {n_columns - 1}; got some outside. "
            "Count columns from 0."
        )
    return features.astype(np.int64)


def as_table(value: Any, name: str) -> Table | None:
    """Return nested tuples of numbers, which do not change and can be compared."""
    if value is None:
        return None
    try:
        lines = np.asarray(value).tolist()
        return tuple(tuple(line) for line in lines)
    except (TypeError, ValueError) as error:
        raise MechanismError(
            f"{name} must be a table of numbers; got {type(value).__name__}. Pass a list of lists."
        ) from error
