"""k-means by Lloyd's steps: each is a sum over rows, of distances to centres and of counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_count
from pacprivacy._random import public_generator
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import Data, Parts, check_data_varying, read_data_columns
from pacprivacy.mechanism.descent import (
    FEATURE_BITS,
    DescentFeatures,
    StepMechanism,
    StepPath,
    StepProblem,
)
from pacprivacy.mechanism.mechanism import fixed_mechanism

# These, and the defaults of Lloyd, were chosen by looking at Rice and Dry Bean.
N_STARTS: Final = 16  # public random starts that are rehearsed
COUNTED: Final = 0.35  # what a row adds to its cluster's count, over the root of the columns
CLEAR_SD: Final = 4.0  # deviations of its noise that a count must have for a centre to move


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
    """Centres that move to noisy means, averaged over the last half of the steps."""

    weights: Matrix
    total: Matrix
    n_steps: int
    reach: Matrix
    n_moves: int = 0
    n_averaged: int = 0

    def move(self, mean: Matrix, noise_std: float) -> None:
        least = max(CLEAR_SD * noise_std, 1e-12)
        counted = mean[-1] > least
        shares = np.where(counted, mean[-1], 1.0) / count_weight(len(mean) - 1)
        moved = self.weights[:-1] + np.where(counted, mean[:-1] / shares, 0.0)
        self.weights = np.vstack([np.clip(moved, -self.reach, self.reach), self.weights[-1:]])
        self.n_moves += 1
        if self.n_moves > self.n_steps / 2:
            self.total = self.total + self.weights
            self.n_averaged += 1

    @property
    def result(self) -> Matrix:
        return self.total / max(1, self.n_averaged)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lloyd(StepMechanism):
    """Cluster centres by Lloyd's steps from a public random start.

    With coins every step is a noisy sum, and each unit pays for what it adds. Several starts are
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
        return LloydPath(weights=weights, total=np.zeros(shape), n_steps=self.n_steps, reach=reach)

    def finish(self, value: Any) -> Any:
        features = fixed_mechanism(self.features, "features")
        centres = np.asarray(value, dtype=np.float64).reshape(-1, self.n_clusters)[:-1]
        return centres.T / np.diag(features.matrix) + features.centre
