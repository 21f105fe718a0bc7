"""k-means and principal components as private estimators."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances

from pacprivacy.budget import AnyBudget, Membership
from pacprivacy.estimators.base import PrivateModel, read_new
from pacprivacy.mechanism import PCA, KMeans, Mechanism

Matrix = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_DEFAULT: Final = Membership(0.6)


@dataclass(eq=False, repr=False)
class PrivateKMeans(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    PrivateModel,
):
    """Cluster centres, released with certified noise.

    Parameters
    ----------
    n_clusters : int
        Number of clusters.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
    n_restarts : int
        Random starts besides the one from the centres of all records.
    max_iter : int
        Most iterations from one start.
    pool, n_subsets, rule, n_jobs, checkpoint, random_state, progress, simulate, target, levels
        As in :class:`~pacprivacy.estimators.base.PrivateBase`.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
        Released centres. There are no ``labels_`` of the records: ``predict`` gives those of
        whatever it is asked.
    certificate_, release_, n_features_in_, feature_names_in_
        As in :class:`~pacprivacy.PrivateEstimator`.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0], [9]], 100, axis=0)
    >>> model = PrivateKMeans(2, pac.Information(0.5), n_subsets=32).fit(X)
    >>> model.predict([[0, 0], [9, 9]])
    array([0, 1])
    """

    n_clusters: int = 8
    budget: AnyBudget = _DEFAULT
    _: KW_ONLY
    n_restarts: int = 0
    max_iter: int = 300

    def fit_predict(self, X: Any, y: Any = None, *, units: Any = None) -> Integers:
        """Fit, then name the nearest released centre of the same records."""
        return self.fit(X, units=units).predict(X)

    def predict(self, X: Any) -> Integers:
        """Return the number of the nearest released centre."""
        nearest: Integers = self.transform(X).argmin(axis=1)
        return nearest

    def transform(self, X: Any) -> Matrix:
        """Return the distances to the released centres."""
        rows = read_new(self, X)
        distances: Matrix = euclidean_distances(rows, self.cluster_centers_)
        return distances

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the sum of squared distances to the nearest released centre."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _mechanism(self) -> Mechanism:
        return KMeans(
            n_clusters=self.n_clusters, n_restarts=self.n_restarts, max_iter=self.max_iter
        )

    def _attributes(self, value: Any) -> dict[str, Any]:
        return {"cluster_centers_": value}


@dataclass(eq=False, repr=False)
class PrivatePCA(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    PrivateModel,
):
    """The span of the leading principal components and its mean, released with certified noise.

    Parameters
    ----------
    n_components : int
        Dimension of the span.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
    centre : {"subset", "universe"}
        Whether the mean is that of the secret subset and gets noise, or that of all records,
        which is public in this model and named in the certificate.
    pool, n_subsets, rule, n_jobs, checkpoint, random_state, progress, simulate, target, levels
        As in :class:`~pacprivacy.estimators.base.PrivateBase`.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Orthonormal rows; they span the released space, in the orientation of all records.
    mean_ : array of shape (n_features,)
        Released mean.
    n_components_ : int
        Dimension of the span.
    certificate_, release_, n_features_in_, feature_names_in_
        As in :class:`~pacprivacy.PrivateEstimator`.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 3)) * [9, 1, 1]
    >>> PrivatePCA(1, pac.Information(0.5), n_subsets=32).fit_transform(X).shape
    (200, 1)
    """

    n_components: int = 2
    budget: AnyBudget = _DEFAULT
    _: KW_ONLY
    centre: Literal["subset", "universe"] = "subset"

    def transform(self, X: Any) -> Matrix:
        """Return coordinates in the released span."""
        rows = read_new(self, X)
        coordinates: Matrix = (rows - self.mean_) @ self.components_.T
        return coordinates

    def inverse_transform(self, X: Any) -> Matrix:
        """Return points of the original space, given coordinates in the released span."""
        restored: Matrix = np.asarray(X, dtype=np.float64) @ self.components_ + self.mean_
        return restored

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _mechanism(self) -> Mechanism:
        return PCA(n_components=self.n_components, centre=self.centre)

    def _attributes(self, value: Any) -> dict[str, Any]:
        found = {f"{name}_": array for name, array in value.items()}
        return found | {"n_components_": len(value["components"])}
