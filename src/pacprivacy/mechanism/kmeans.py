"""k-means: to convergence on every subset of a pool, by noisy steps where units have coins.

On subsets the clusters have an order that is the same for all. Without it the same fit comes out in
another one on another subset, and noise is spent on hiding that difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Array, Matrix, Vector, check_count, fixed_mechanism, freeze
from pacprivacy._random import public_generator
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
from pacprivacy.mechanism.descent import (
    FEATURE_BITS,
    DescentFeatures,
    StepMechanism,
    StepPath,
    StepProblem,
)
from pacprivacy.mechanism.mechanism import Mechanism

Codes = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]

_REFERENCE_SEED: Final = 0
_REFERENCE_RESTARTS: Final = 10
# These, and the defaults of Lloyd, were chosen by looking at Rice and Dry Bean.
N_STARTS: Final = 16  # public random starts that are rehearsed
COUNTED: Final = 0.35  # what a row adds to its cluster's count, over the root of the columns
CLEAR_SD: Final = 4.0  # deviations of its noise that a count must have for a centre to move

_GAIN: Final = 1e-9  # relative; the same optimum found twice differs by rounding only


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
        ``"reference"``: data is ``X``; the centres are matched to those of all records so
        that the sum of squared distances is least. ``"labels"``: data is ``(X, y)``; row ``c`` is
        the cluster in which class ``c`` has the majority. Where two clusters share a majority the
        permutation with most agreement is taken, then the one nearest to the reference.
    warm_start : bool, public
        Start from the centres of all records. The fit is then stable and quick.
    n_init, max_iter : int, public
        Number of starts, all random (k-means++) but the warm one, and most iterations of each. The
        fit with the least inertia is taken.
    classes : tuple, public, optional
        With ``order="labels"``, in the order of the rows; by default the sorted labels.
    reference : array of shape (n_clusters, p), optional
        Centres of all records. Set by :meth:`prepare`.
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


# --- Lloyd's steps with coins --------------------------------------------------------------------
#
# Each step is a sum over rows, of distances to centres and of counts.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterProblem(StepProblem):
    """Scaled rows, which add their distance to the nearest centre and a count to its sums."""

    points: Matrix = field(repr=False)
    n_clusters: int

    @property
    def arrays(self) -> tuple[Matrix, ...]:
        return (self.points,)

    @property
    def shape(self) -> tuple[int, int]:
        return self.points.shape[1] + 1, self.n_clusters

    def ordered(self, order: npt.NDArray[np.int64]) -> Self:
        return replace(self, points=self.points[order])

    def step(self, weights: Matrix) -> tuple[Matrix, Matrix]:
        centres = weights[:-1]
        near = self._apart(centres).argmin(axis=1)
        rows = np.empty((len(self.points), len(weights)))
        rows[:, :-1] = self.points - centres.T[near]
        rows[:, -1] = count_weight(len(centres))
        np.rint(np.ldexp(rows, FEATURE_BITS), out=rows)
        return rows, (near[:, None] == np.arange(self.n_clusters)).astype(np.float64)

    def mean_loss(self, weights: Matrix) -> float:
        return float(self._apart(weights[:-1]).min(axis=1).mean())

    def _apart(self, centres: Matrix) -> Matrix:
        return np.asarray(np.square(centres).sum(axis=0) - 2.0 * self.points @ centres)


def count_weight(n_columns: int) -> float:
    """Return the weight of a row in the count of its cluster."""
    return float(COUNTED * np.sqrt(n_columns))


@dataclass(slots=True, kw_only=True, eq=False)
class LloydPath(StepPath):
    """Centres that move to noisy means."""

    reach: Matrix

    def following(self, mean: Matrix, noise_std: float) -> Matrix:
        least = max(CLEAR_SD * noise_std, 1e-12)
        counted = mean[-1] > least
        shares = np.where(counted, mean[-1], 1.0) / count_weight(len(mean) - 1)
        moved = self.weights[:-1] + np.where(counted, mean[:-1] / shares, 0.0)
        return np.vstack([np.clip(moved, -self.reach, self.reach), self.weights[-1:]])


@dataclass(frozen=True, kw_only=True, eq=False)
class Lloyd(StepMechanism):
    """Cluster centres by Lloyd's steps from a public random start.

    With coins every step is a noisy sum; each unit pays for its contribution. Several starts are
    rehearsed on all records, and the best is taken.

    Parameters
    ----------
    n_clusters, n_steps : int, public
        Number of clusters and of steps.
    clip : float, public
        Columns are clipped to so many deviations.
    radius : float, public
        Contributions of rows to a step are shortened to this, unless the unit paid less before; in
        root mean square distances of rows from their centre.
    start : array of shape (n_clusters, n_features), public, optional
        Centres to start from, such as those of a public table, in place of random ones.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 2)) + np.repeat([[0], [9], [18]], 1000, axis=0)
    >>> release = pac.privatize(Lloyd(n_clusters=3), X, "membership<=0.6", sample=pac.Coins())
    >>> np.sort(release.value[:, 0]).round().astype(int).tolist()
    [0, 9, 18]
    """

    n_clusters: int = 8
    n_steps: int = 16
    clip: float = 5.0
    radius: float = 0.9
    start: Any = None
    features: DescentFeatures | None = field(default=None, repr=False)
    spread: Matrix | None = field(default=None, repr=False)  # of random starts
    reach: Vector | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_count("n_clusters", self.n_clusters, 1, advice="Use 8.")
        check_count("n_steps", self.n_steps, 1, advice="Use 16.")
        if not 0.1 <= self.clip <= 1e6:
            raise MechanismError(f"clip must be from 0.1 to 1e6; got {self.clip!r}. Use 5.")
        if not 1e-3 <= self.radius <= 1e6:
            raise MechanismError(f"radius must be from 0.001 to 1e6; got {self.radius!r}. Use 0.9.")

    @property
    def name(self) -> str:
        return f"k-means, {self.n_clusters} clusters, {self.n_steps} Lloyd steps"

    @property
    def public(self) -> tuple[str, ...]:
        start = "random starts" if self.start is None else "the centres at the start"
        return (f"number of steps, {start}; columns clipped at {self.clip:g} deviations",)

    @property
    def published(self) -> tuple[str, ...]:
        best = (
            ()
            if self.start is not None
            else (f"spread of {N_STARTS} random starts, and which is best: from all records",)
        )
        return ("centres and scales of the columns: from all records, coarse", *best)

    @property
    def trials(self) -> tuple[float, ...]:
        return (0.0,) if self.start is not None else tuple(map(float, range(N_STARTS)))

    @property
    def radii(self) -> tuple[float, ...]:
        spread = fixed_mechanism(self.spread, "spread")
        return (self.radius * float(np.sqrt(np.square(spread).sum())),)

    def prepare(self, data: Data) -> Self:
        X = read_data_columns(data.parts, "k-means")
        check_data_varying(X, "k-means")
        self._check_start(X.shape[1])
        scaling = DescentFeatures.of(X, clip=self.clip, directions=False)
        if not np.diag(scaling.matrix).all():
            raise MechanismError(
                "k-means must be given features that vary by more than rounding; got one that does "
                "not. Subtract a constant."
            )
        scales = 1.0 / np.diag(scaling.matrix)
        common = float(scales.max())  # distances stay those of the columns as they are
        features = replace(scaling, matrix=np.eye(len(scales)) / common)
        points = features.moved(X)
        values, vectors = np.linalg.eigh(points.T @ points / len(points))
        spread = vectors * np.sqrt(np.maximum(values, 0.0))
        return replace(self, features=features, spread=spread, reach=self.clip * scales / common)

    def _check_start(self, n_features: int) -> None:
        if self.start is None:
            return
        start, shape = np.asarray(self.start), (self.n_clusters, n_features)
        if start.shape != shape or start.dtype.kind not in "iuf" or not np.isfinite(start).all():
            raise MechanismError(
                f"start must have shape {shape} and be finite numbers; got dtype {start.dtype} of "
                f"shape {start.shape}. Pass one centre for each cluster."
            )

    def problem(self, parts: Parts) -> ClusterProblem:
        features = fixed_mechanism(self.features, "features")
        X = read_data_columns(parts, "k-means")
        return ClusterProblem(points=features.moved(X), n_clusters=self.n_clusters)

    def path(self, shape: tuple[int, int], trial: float) -> LloydPath:
        weights, reach = np.zeros(shape), fixed_mechanism(self.reach, "reach")[:, None]
        if self.start is not None:
            features = fixed_mechanism(self.features, "features")
            weights[:-1] = features.moved(np.asarray(self.start, dtype=np.float64)).T
        else:
            generator = public_generator(int(trial), "lloyd-start")
            spread = fixed_mechanism(self.spread, "spread")
            weights[:-1] = spread @ generator.normal(size=(shape[0] - 1, shape[1]))
        return LloydPath(settings=self, weights=weights, reach=reach)

    def finish(self, value: Any) -> Any:
        features = fixed_mechanism(self.features, "features")
        centres = np.asarray(value, dtype=np.float64).reshape(-1, self.n_clusters)[:-1]
        return centres.T / np.diag(features.matrix) + features.centre
