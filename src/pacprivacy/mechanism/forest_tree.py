"""Complete trees grown level by level, many at once, from counts of binned rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy.mechanism.forest_split import (
    SplitRule,
    SplitSearch,
    entropy_terms,
    split_entropies,
)

__all__ = ["GrownTrees", "TreeRows", "bin_columns", "fence_grids", "grow_trees"]

Matrix: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeRows:
    """The rows that trees are grown on, one entry for each row of each tree; curator-only.

    Parameters
    ----------
    cells : int array of shape (depth, n_entries)
        For every level, the entry's bin of that level's feature times the number of classes,
        plus the entry's class.
    trees : int array of shape (n_entries,)
        The tree that each entry belongs to.
    sizes : int array of shape (n_trees,)
        Entries of every tree.
    n_classes : int
    """

    cells: Integers
    trees: Integers
    sizes: Integers
    n_classes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GrownTrees:
    """Complete trees; curator-only.

    Parameters
    ----------
    points : int array of shape (n_trees, 2**depth - 1)
        Grid point of each node, breadth first: node ``i`` has the children ``2 i + 1``, for
        rows below its threshold, and ``2 i + 2``.
    counts : int array of shape (n_trees, 2**depth, n_classes)
        Rows of each class in each leaf, from left to right.
    """

    points: Integers
    counts: Integers

    def leaf_scores(self, smoothing: float) -> Matrix:
        """Return class shares in each leaf after adding ``smoothing`` rows, equally divided."""
        n_classes = self.counts.shape[2]
        rows = self.counts.sum(axis=2, keepdims=True) + smoothing
        shares = (self.counts + smoothing / n_classes) / np.where(rows > 0, rows, 1.0)
        scores: Matrix = np.where(rows > 0, shares, 1.0 / n_classes)
        return scores


def fence_grids(low: Matrix, width: Matrix, n_thresholds: int) -> Matrix:
    """Return the points of every column's grid between minus and plus infinity.

    Returns
    -------
    array of shape (n_columns, n_thresholds + 2), public
        Each line increases and is equally spaced, up to rounding, from ``low`` on.
    """
    fences = np.full((len(low), n_thresholds + 2), np.inf)
    fences[:, 0] = -np.inf
    fractions = np.arange(n_thresholds) / (n_thresholds - 1)
    fences[:, 1:-1] = low[:, None] + fractions * width[:, None]
    return fences


def bin_columns(X: Matrix, fences: Matrix) -> Integers:
    """Return, for every value, how many points of its column's grid are not above it.

    A value is below grid point ``g``, and goes left there, exactly if its bin is at most ``g``.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns), curator-only
    fences : array of shape (n_columns, n_thresholds + 2), public
        From :func:`fence_grids`.

    Returns
    -------
    int array of shape (n_columns, n_rows), curator-only
    """
    n_columns, n_fences = fences.shape
    columns = np.ascontiguousarray(X.T)
    low, high, last = fences[:, 1:2], fences[:, -2:-1], n_fences - 3
    with np.errstate(over="ignore"):
        places = columns - low
        places *= last / (high - low)
    np.clip(places, -1.0, last, out=places)
    places += 1.0
    bins: Integers = places.astype(np.int64)
    # Arithmetic may be a step off, and more where the grid is as fine as floats are: check every
    # value against the fences of its bin, and search for the few that are not between them.
    at = bins + np.arange(n_columns)[:, None] * n_fences
    flat = fences.ravel()
    outside = (columns < flat.take(at)) | (columns >= flat[1:].take(at))
    for column in np.flatnonzero(outside.any(axis=1)):
        strays = columns[column, outside[column]]
        bins[column, outside[column]] = np.searchsorted(fences[column, 1:-1], strays, side="right")
    return bins


def grow_trees(rows: TreeRows, reference: Integers, rule: SplitRule) -> GrownTrees:
    """Grow all trees at once: a level looks at every entry once, whatever the number of points.

    Parameters
    ----------
    rows : TreeRows, curator-only
        Of one forest, or of several one after the other.
    reference : int array of shape (n_trees of a forest, 2**depth - 1), public
        The point that every node is pulled to, and takes when it is empty.
    rule : SplitRule, public
    """
    n_trees, n_classes, depth = len(rows.sizes), rows.n_classes, len(rows.cells)
    n_cells = (rule.n_thresholds + 1) * n_classes
    terms = entropy_terms(int(rows.sizes.max(initial=0)))
    search = SplitSearch(rule, reference)
    points = np.empty((n_trees, 2**depth - 1), dtype=np.int64)
    first = rows.trees * n_cells  # the first cell of the node that each entry is in
    for level, cells in enumerate(rows.cells):
        n_nodes = n_trees * 2**level
        at = first + cells
        counts = np.bincount(at, minlength=n_nodes * n_cells).reshape(n_nodes, -1, n_classes)
        below = counts.transpose(2, 0, 1).cumsum(axis=2)
        n_rows = rows.sizes.repeat(2**level) if rule.weigh_nodes else below[..., -1].sum(axis=0)
        nats = split_entropies(below, terms) / np.maximum(n_rows, 1)[:, None]
        inside = slice(2**level - 1, 2 ** (level + 1) - 1)
        each = (-1, len(reference), 2**level, rule.n_thresholds)
        chosen = search.choose(nats.reshape(each), inside).ravel()
        points[:, inside] = chosen.reshape(n_trees, -1)
        if level < depth - 1:
            first = _children(chosen, n_cells, n_classes).take(at)
    left = below[:, np.arange(n_nodes), chosen]
    leaves = np.stack([left, below[..., -1] - left], axis=2)
    return GrownTrees(
        points=points, counts=leaves.reshape(n_classes, n_trees, -1).transpose(1, 2, 0)
    )


def _children(chosen: Integers, n_cells: int, n_classes: int) -> Integers:
    """Return, for every cell of every node, the first cell of the child that its rows go to."""
    goes_right = np.arange(n_cells) >= n_classes * (chosen[:, None] + 1)
    left = 2 * n_cells * np.arange(len(chosen))
    children: Integers = left[:, None] + n_cells * goes_right
    return children.ravel()
