"""k-means to strict convergence, with its clusters in an order that is the same for every subset.

Without such an order the same fit comes out in another one on another subset, and noise is spent on
hiding a difference that nobody cares about.
"""

from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Array, Matrix, check_count, freeze
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import (
    CLASS_LABELS,
    Classes,
    Data,
    MatrixLike,
    Parts,
    check_data_varying,
    code_data_labels,
    find_data_classes,
    read_data_columns,
    read_labelled_data,
)
from pacprivacy.mechanism.mechanism import Mechanism, fixed_mechanism

Codes = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]

_REFERENCE_SEED: Final = 0
_REFERENCE_RESTARTS: Final = 10
_GAIN: Final = 1e-9  # relative; the same optimum found twice differs by rounding only
_START_ROWS: Final = 10_000  # of the universe, to which the centres are fitted that steps start at
_SCORES_AT_ONCE: Final = 1 << 21  # of rows, subsets and clusters
_TIE: Final = 1e-10  # of the largest squared length of a start: nearer by less is as near


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Clusters of the rows of one subset, and their squared distances in sum; curator-only."""

    centres: Matrix
    labels: Codes
    inertia: float


def run_lloyd(X: Matrix, start: Matrix, *, max_iter: int) -> Partition:
    """Move centres to the means of their nearest rows until they settle; restart empty clusters."""
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


def draw_kmeans_start(X: Matrix, k: int, rng: np.random.Generator) -> Matrix:
    """Draw ``k`` rows far from each other (greedy k-means++, Arthur and Vassilvitskii 2007)."""
    squares = np.einsum("ij,ij->i", X, X)
    rows = [int(rng.integers(len(X)))]
    farness = _distances(X, squares, X[rows])[0]
    n_trials = 2 + int(np.log(k))
    for _ in range(1, k):
        cumulated = np.cumsum(farness)
        draws = rng.random(n_trials) * cumulated[-1]
        candidates = np.minimum(np.searchsorted(cumulated, draws, side="right"), len(X) - 1)
        distances = np.minimum(farness, _distances(X, squares, X[candidates]))
        best = int(distances.sum(axis=1).argmin())
        rows.append(int(candidates[best]))
        farness = distances[best]
    return X[rows]


def _distances(X: Matrix, squares: Matrix, points: Matrix) -> Matrix:
    lengths = np.einsum("ij,ij->i", points, points)
    squared: Matrix = squares + lengths[:, None] - 2.0 * (points @ X.T)
    return np.maximum(squared, 0.0)


def _nearest(columns: Matrix, centres: Matrix) -> Codes:
    lengths = np.einsum("ij,ij->i", centres, centres)
    scores = lengths[:, None] - 2.0 * (centres @ columns)
    nearest: Codes = scores.argmin(axis=0).astype(np.int64, copy=False)
    return nearest


def _refill(X: Matrix, centres: Matrix, labels: Codes) -> Codes:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KMeans(Mechanism):
    """Cluster centres, one row each, in an order that is the same for every subset.

    Only the centres are released: no labels of rows, no inertia, no number of iterations.

    Parameters
    ----------
    n_clusters : int, public, optional
        Number of clusters; with ``order="labels"`` that of the classes.
    order : "reference" or "labels", public
        ``"reference"``: data is ``X``; the centres are matched to those of the whole universe so
        that the sum of squared distances is least. ``"labels"``: data is ``(X, y)``; row ``c`` is
        the cluster in which class ``c`` has the majority. Where two clusters share a majority the
        permutation with most agreement is taken, then the one nearest to the reference.
    warm_start : bool, public
        Start from the centres of the universe. The fit is then stable and quick.
    n_init, max_iter : int, public
        Number of starts, all random (k-means++) but the warm one, and most iterations of each. The
        fit with the least inertia is taken.
    classes : tuple, public, optional
        With ``order="labels"``, in the order of the rows; by default the sorted labels.
    reference : array of shape (n_clusters, p), optional
        Centres on the whole universe. Set by :meth:`prepare`.
    """

    name = "KMeans"
    n_clusters: int | None = None
    order: Literal["reference", "labels"] = "reference"
    warm_start: bool = True
    n_init: int = 1
    max_iter: int = 300
    classes: Classes | None = None
    reference: Matrix | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.order not in ("reference", "labels"):
            raise MechanismError(
                f"order must be 'reference' or 'labels'; got {self.order!r}. "
                "Use 'reference' when there are no labels."
            )
        if self.n_clusters is None and self.order == "reference":
            raise MechanismError(
                "n_clusters must be given unless order='labels'; got None. Say how many clusters."
            )
        if self.n_clusters is not None:
            check_count("n_clusters", self.n_clusters, 1, advice="Say how many clusters.")
        check_count("max_iter", self.max_iter, 1, advice="Use about 300.")
        check_count("n_init", self.n_init, 1, advice="Use 10 for random starts.")

    @property
    def public(self) -> tuple[str, ...]:
        use = "order and start" if self.warm_start else "order"
        return (f"k-means reference centres ({use}): fitted on the whole universe",)

    @property
    def published(self) -> tuple[str, ...]:
        return () if self.order == "reference" else CLASS_LABELS

    def prepare(self, data: Data) -> Self:
        X, y = self._read(data.parts)
        check_data_varying(X, self.name)
        classes = None if y is None else find_data_classes(y, self.name, self.classes)
        k = self._count_clusters(classes)
        _check_rows(len(X), k)
        fit = self._fit(X - X.mean(axis=0), None, k, np.random.default_rng(_REFERENCE_SEED))
        if y is None or classes is None:
            centres = fit.centres[np.lexsort(fit.centres.T[::-1])]
        else:
            counts = _count_labels(fit.labels, code_data_labels(y, classes, self.name), k)
            centres = order_kmeans_by_label(fit.centres, counts, fit.centres)
        reference = centres + X.mean(axis=0)
        freeze(reference)
        return replace(self, n_clusters=k, classes=classes, reference=reference)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Matrix:
        reference = fixed_mechanism(self.reference, "reference")
        X, y = self._read(parts)
        _check_rows(len(X), len(reference))
        shift = reference.mean(axis=0)
        local = reference - shift
        fit = self._fit(X - shift, local, len(reference), rng)
        if y is None or self.classes is None:
            centres = match_kmeans_rows(fit.centres, local)
        else:
            codes = code_data_labels(y, self.classes, self.name)
            counts = _count_labels(fit.labels, codes, len(reference))
            centres = order_kmeans_by_label(fit.centres, counts, local)
        ordered: Matrix = centres + shift
        return ordered

    def predict(self, value: npt.ArrayLike, X: MatrixLike) -> Array:
        """Return the cluster, or the class, of the nearest *released* centre for every row."""
        centres = np.asarray(value, dtype=np.float64)
        rows = read_data_columns((X,), self.name)
        nearest: Codes = _squared_distances(rows, centres).argmin(axis=1)
        if self.order == "reference":
            return nearest
        if self.classes is None:
            raise MechanismError(
                "classes must be known to name a cluster; got None. "
                "Call prepare(data) first or pass classes=."
            )
        named: Array = np.asarray(self.classes)[nearest]
        return named

    def _fit(
        self, X: Matrix, reference: Matrix | None, k: int, rng: np.random.Generator
    ) -> Partition:
        best = None
        n_restarts = self.n_init - self.warm_start
        if reference is None:
            n_restarts = max(n_restarts, _REFERENCE_RESTARTS)
        elif self.warm_start:
            best = run_lloyd(X, reference, max_iter=self.max_iter)
        for _ in range(n_restarts):
            fitted = run_lloyd(X, draw_kmeans_start(X, k, rng), max_iter=self.max_iter)
            if best is None or fitted.inertia < best.inertia * (1.0 - _GAIN):
                best = fitted
        assert best is not None  # __post_init__ demands a start
        return best

    def _read(self, parts: Parts) -> tuple[Matrix, Array | None]:
        if self.order == "labels":
            return read_labelled_data(parts, self.name)
        return read_data_columns(parts, self.name), None

    def _count_clusters(self, classes: Classes | None) -> int:
        if classes is None:
            assert self.n_clusters is not None  # __post_init__
            return self.n_clusters
        if self.n_clusters not in (None, len(classes)):
            raise MechanismError(
                f"n_clusters must be the number of classes ({len(classes)}) when order='labels'; "
                f"got {self.n_clusters}. Leave it out, or use order='reference'."
            )
        return len(classes)


def match_kmeans_rows(rows: Matrix, reference: Matrix) -> Matrix:
    """Permute rows to the least sum of squared distances to the reference (Hungarian method)."""
    matched: Matrix = rows[_assign(_squared_distances(reference, rows))]
    return matched


def order_kmeans_by_label(rows: Matrix, counts: Codes, reference: Matrix) -> Matrix:
    """Permute rows so that most members carry their row's label; ties: nearest to the reference."""
    distances = _squared_distances(reference, rows)
    # Counts are whole numbers: what k distances add up to must stay below one.
    tie_break = distances / (2.0 * len(rows) * max(float(distances.max()), np.finfo(float).tiny))
    ordered: Matrix = rows[_assign(tie_break - counts.T)]
    return ordered


def _assign(costs: Matrix) -> Codes:
    """Return for every row the column that makes the total cost least."""
    from scipy.optimize import linear_sum_assignment  # slow to import, not always needed

    columns: Codes = linear_sum_assignment(costs)[1]
    return columns


def _squared_distances(first: Matrix, second: Matrix) -> Matrix:
    difference = first[:, None, :] - second[None, :, :]
    squared: Matrix = np.einsum("ijk,ijk->ij", difference, difference)
    return squared


def _count_labels(clusters: Codes, codes: Codes, k: int) -> Codes:
    pairs = np.bincount(clusters * k + codes, minlength=k * k)
    return pairs.reshape(k, k).astype(np.int64, copy=False)


def _check_rows(n_rows: int, k: int) -> None:
    if n_rows < k:
        raise MechanismError(
            f"n_clusters must be at most the number of rows of every subset; got {k} for a subset "
            f"of {n_rows}. Use fewer clusters or more records."
        )
