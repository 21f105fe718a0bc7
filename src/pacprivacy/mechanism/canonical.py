"""One representative of outputs that mean the same: order of clusters, orientation of bases.

Without this the same fit comes out in another order or with other signs on another subset, and
noise is spent on hiding a difference that nobody cares about.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix


def match_rows(rows: Matrix, reference: Matrix) -> Matrix:
    """Permute rows so that the sum of squared distances to the reference is least.

    The Hungarian method; the result does not depend on the order of ``rows`` unless two
    permutations are exactly as good.
    """
    matched: Matrix = rows[_assign(_squared_distances(reference, rows))]
    return matched


def order_by_label(rows: Matrix, counts: npt.NDArray[np.int64], reference: Matrix) -> Matrix:
    """Permute rows so that most members carry the label of their row's new place.

    Where every row has a majority label of its own this is the order by majority label. Where
    two rows share one, or labels tie, the total agreement decides, and among permutations of
    equal agreement the distance to the reference.
    """
    distances = _squared_distances(reference, rows)
    # Counts are whole numbers: what k distances add up to must stay below one.
    tie_break = distances / (2.0 * len(rows) * max(float(distances.max()), np.finfo(float).tiny))
    ordered: Matrix = rows[_assign(tie_break - counts.T)]
    return ordered


def align_basis(components: Matrix, basis: Matrix) -> Matrix:
    """Rotate orthonormal rows within their span, as near to a basis as they get (Procrustes).

    The result depends on the span alone: signs, order and rotations of ``components`` are gone.
    """
    left, _, right = np.linalg.svd(basis @ np.swapaxes(components, -1, -2))
    aligned: Matrix = left @ right @ components
    return aligned


def orthonormalise(rows: Matrix) -> Matrix:
    """Return the orthonormal rows nearest to the given ones (the polar factor)."""
    left, _, right = np.linalg.svd(rows, full_matrices=False)
    nearest: Matrix = left @ right
    return nearest


def _assign(costs: Matrix) -> npt.NDArray[np.int64]:
    """Return for every row the column that makes the total cost least."""
    from scipy.optimize import linear_sum_assignment  # slow to import, not always needed

    columns: npt.NDArray[np.int64] = linear_sum_assignment(costs)[1]
    return columns


def _squared_distances(first: Matrix, second: Matrix) -> Matrix:
    difference = first[:, None, :] - second[None, :, :]
    squared: Matrix = np.einsum("ijk,ijk->ij", difference, difference)
    return squared
