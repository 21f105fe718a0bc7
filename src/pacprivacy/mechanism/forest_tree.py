"""Complete trees grown level by level, many at once, from counts of binned rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy.mechanism.forest_split import (
    SplitRule,
    choose_thresholds,
    entropy_terms,
    split_entropies,
)

__all__ = ["GrownTrees", "TreeRows", "bin_column", "grow_trees"]

Matrix = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRows:
    """The rows that trees are grown on, one entry for each row of each tree; curator-only.

    Parameters
    ----------
    cells : int array of shape (depth, n_entries)
        For every level, the row's bin of that level's feature times the number of classes, plus
        the row's class.
    trees : int array of shape (n_entries,)
        Which tree the entry belongs to.
    n_trees, n_classes : int
    """

    cells: npt.NDArray[np.integer]
    trees: Integers
    n_trees: int
    n_classes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownTrees:
    """Trees in breadth-first order; curator-only.

    Parameters
    ----------
    points : int array of shape (n_trees, 2**depth - 1)
        Grid points; node ``i`` has the children ``2 i + 1`` (below) and ``2 i + 2``.
    counts : int array of shape (n_trees, 2**depth, n_classes)
        Rows of each class in each leaf, from left to right.
    """

    points: Integers
    counts: Integers


def bin_column(values: Matrix, grid: Matrix) -> npt.NDArray[np.integer]:
    """Return the number of grid points that are not above each value.

    A row is below grid point ``g``, and goes left there, exactly if its bin is at most ``g``.
    """
    return np.searchsorted(grid, values, side="right")


def grow_trees(rows: TreeRows, reference: Integers, rule: SplitRule) -> GrownTrees:
    """Grow all trees, one level at a time.

    Parameters
    ----------
    rows : TreeRows, curator-only
    reference : int array of shape (n_trees, 2**depth - 1), public
        Grid point that every node is pulled to, and takes when it is empty.
    rule : SplitRule, public
    """
    depth, n_entries = rows.cells.shape
    n_bins, n_classes = rule.n_thresholds + 1, rows.n_classes
    terms = entropy_terms(n_entries)
    points = np.empty((rows.n_trees, 2**depth - 1), dtype=np.int64)
    nodes = rows.trees
    for level, cells in enumerate(rows.cells):
        n_nodes = rows.n_trees * 2**level
        wide = np.bincount(
            nodes * (n_bins * n_classes) + cells, minlength=n_nodes * n_bins * n_classes
        )
        entropies = split_entropies(wide.reshape(n_nodes, n_bins, n_classes), terms)
        inside = slice(2**level - 1, 2 ** (level + 1) - 1)
        choice = choose_thresholds(entropies, reference[:, inside].ravel(), rule)
        points[:, inside] = choice.reshape(rows.n_trees, -1)
        nodes = 2 * nodes + (cells >= (n_classes * (choice + 1))[nodes])
    labels = rows.cells[0] % n_classes
    counts = np.bincount(nodes * n_classes + labels, minlength=rows.n_trees * 2**depth * n_classes)
    return GrownTrees(points=points, counts=counts.reshape(rows.n_trees, 2**depth, n_classes))
