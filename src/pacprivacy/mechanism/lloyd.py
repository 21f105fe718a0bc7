"""k-means from given or random starts, to strict convergence and without warnings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError

__all__ = ["Partition", "draw_start", "run_lloyd"]

Matrix = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Clusters of the rows of one subset; curator-only.

    Parameters
    ----------
    centres : array of shape (k, p)
        Mean of the rows of every cluster.
    labels : int array of shape (n,)
        Cluster of every row.
    inertia : float
        Sum of squared distances of the rows to their centres.
    """

    centres: Matrix
    labels: Labels
    inertia: float


def run_lloyd(X: Matrix, start: Matrix, *, max_iter: int) -> Partition:
    """Move centres to the means of their nearest rows until no row changes its cluster.

    A cluster that loses all its rows restarts at the row farthest from its own centre.

    Parameters
    ----------
    X : array of shape (n, p), curator-only
        Rows, with columns of mean about zero: distances are expanded.
    start : array of shape (k, p)
        Where the centres start.
    max_iter : int
        Stop after so many moves, converged or not.

    Raises
    ------
    MechanismError
        If a cluster stays empty.
    """
    k = len(start)
    columns = np.ascontiguousarray(X.T)  # numpy reduces long axes twice as fast as short ones
    centres, labels = start, _nearest(columns, start)
    for _ in range(max_iter):
        labels = _refill(X, centres, labels)
        members = (labels == np.arange(k)[:, None]).astype(np.float64)
        centres = (members @ X) / members.sum(axis=1)[:, None]
        moved = _nearest(columns, centres)
        if np.array_equal(moved, labels):
            break
        labels = moved
    if not np.bincount(labels, minlength=k).all():
        raise MechanismError(
            f"n_clusters must leave every cluster a row in every subset; got {k} and a cluster "
            "that stays empty. Use fewer clusters: some rows are equal or nearly so."
        )
    residual = X - centres[labels]
    return Partition(
        centres=centres, labels=labels, inertia=float(np.einsum("ij,ij->", residual, residual))
    )


def draw_start(X: Matrix, k: int, rng: np.random.Generator) -> Matrix:
    """Draw ``k`` rows far from each other to start from (greedy k-means++).

    Each row is the best of a few, drawn in proportion to the squared distance from those that
    were drawn before (Arthur and Vassilvitskii 2007).
    """
    squares = np.einsum("ij,ij->i", X, X)
    rows = [int(rng.integers(len(X)))]
    farness = _distances(X, squares, X[rows])[0]
    n_trials = 2 + int(np.log(k))
    for _ in range(1, k):
        cumulated = np.cumsum(farness)
        draws = rng.random(n_trials) * cumulated[-1]
        candidates = np.minimum(np.searchsorted(cumulated, draws, side="right"), len(X) - 1)
        left = np.minimum(farness, _distances(X, squares, X[candidates]))
        best = int(left.sum(axis=1).argmin())
        rows.append(int(candidates[best]))
        farness = left[best]
    return X[rows]


def _distances(X: Matrix, squares: Matrix, points: Matrix) -> Matrix:
    lengths = np.einsum("ij,ij->i", points, points)
    squared: Matrix = squares + lengths[:, None] - 2.0 * (points @ X.T)
    return np.maximum(squared, 0.0)


def _nearest(columns: Matrix, centres: Matrix) -> Labels:
    lengths = np.einsum("ij,ij->i", centres, centres)
    scores = lengths[:, None] - 2.0 * (centres @ columns)
    nearest: Labels = scores.argmin(axis=0).astype(np.int64, copy=False)
    return nearest


def _refill(X: Matrix, centres: Matrix, labels: Labels) -> Labels:
    sizes = np.bincount(labels, minlength=len(centres))
    if sizes.all():
        return labels
    labels = labels.copy()
    residual = X - centres[labels]
    farness = np.einsum("ij,ij->i", residual, residual)
    for cluster in np.flatnonzero(sizes == 0):
        # A row alone in its cluster must stay: taking it would only move the gap.
        row = int(np.where(sizes[labels] > 1, farness, -1.0).argmax())
        sizes[labels[row]] -= 1
        sizes[cluster] += 1
        labels[row] = cluster
    return labels
