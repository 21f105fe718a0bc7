"""Forests, clusters and components as private estimators, with scikit-learn's parameter names."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import (
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.metrics.pairwise import euclidean_distances

from pacprivacy._checks import Array, Integers, Matrix
from pacprivacy._sklearn import read_new
from pacprivacy.estimators.predictor import project_to_simplex
from pacprivacy.estimators.private_estimator import PrivateBase
from pacprivacy.mechanism import (
    PCA,
    Forest,
    KMeans,
    Lloyd,
    MatrixLike,
    Mechanism,
    UnitLabels,
    Value,
)
from pacprivacy.sample import Coins
from pacprivacy.statistics import MOST_COLUMNS, PrincipalComponents


@dataclass(eq=False, repr=False)
class PrivateForestClassifier(ClassifierMixin, PrivateBase):  # type: ignore[misc]
    """Forest of complete trees, thresholds and leaf scores released with certified noise.

    Parameters
    ----------
    n_estimators, max_depth, ranges, universe_facts
        As in :class:`pacprivacy.mechanism.Forest`, which has more settings.

    Attributes
    ----------
    thresholds_, leaves_ : arrays
        Released thresholds, breadth first, and scores of the leaves, from left to right.
    features_ : array of shape (n_estimators, max_depth)
        The column that each tree tests on each level.
    classes_ : array of shape (n_classes,)
        Labels that occur in the table.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0], [9]], 100, axis=0)
    >>> y = np.repeat(["no", "yes"], 100)
    >>> forest = PrivateForestClassifier(3, budget=pac.Information(0.5), max_depth=1, n_subsets=32)
    >>> forest.fit(X, y).score(X, y) > 0.9
    True
    """

    n_estimators: int = 3
    _: KW_ONLY
    max_depth: int = 3
    ranges: Any = None
    universe_facts: bool = False

    def predict_proba(self, X: MatrixLike) -> Matrix:
        """Return the mean leaf scores, moved to the nearest probabilities."""
        rows = read_new(self, X)
        names = ("thresholds", "leaves", "features", "classes")
        value = {name: getattr(self, f"{name}_") for name in names}
        return project_to_simplex(self._mechanism(None).scores(value, rows))

    def predict(self, X: MatrixLike) -> Array:
        """Return the class with the highest score."""
        chosen = self.predict_proba(X).argmax(axis=1)
        named: Array = self.classes_[chosen]
        return named

    def _mechanism(self, seed: int | None) -> Forest:
        return Forest(
            n_estimators=self.n_estimators,
            max_depth=self.max_depth,
            ranges=self.ranges,
            universe_facts=self.universe_facts,
        )


class _Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateBase):  # type: ignore[misc]
    """A private estimator with a ``transform``."""


@dataclass(eq=False, repr=False)
class PrivateKMeans(ClusterMixin, _Transformer):  # type: ignore[misc]
    """Cluster centres, released with certified noise.

    From 200 units on every unit has a coin, and centres follow from Lloyd's steps with noise
    (:class:`pacprivacy.mechanism.Lloyd`), unless a setting of a pool is given, or the budget limits
    more than membership.

    Parameters
    ----------
    n_clusters : int
        From a pool each fit starts at the centres of all records.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
        Released centres. There are no ``labels_`` of the records.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0], [9]], 100, axis=0)
    >>> model = PrivateKMeans(2, budget=pac.Information(0.5), n_subsets=32).fit(X)
    >>> model.predict([[0, 0], [9, 9]])
    array([0, 1])
    """

    n_clusters: int = 8

    def fit_predict(
        self, X: MatrixLike, y: MatrixLike = None, *, units: UnitLabels = None
    ) -> Integers:
        """Fit, then name the nearest released centre of the same records."""
        return self.fit(X, units=units).predict(X)

    def predict(self, X: MatrixLike) -> Integers:
        """Return the number of the nearest released centre."""
        nearest: Integers = self.transform(X).argmin(axis=1)
        return nearest

    def transform(self, X: MatrixLike) -> Matrix:
        """Return the distances to the released centres."""
        distances: Matrix = euclidean_distances(read_new(self, X), self.cluster_centers_)
        return distances

    def score(self, X: MatrixLike, y: MatrixLike = None) -> float:
        """Return minus the sum of squared distances to the nearest released centre."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _with_coins(self, mechanism: Mechanism, data: Any) -> Lloyd:
        return Lloyd(n_clusters=self.n_clusters)

    def _mechanism(self, seed: int | None) -> KMeans:
        return KMeans(n_clusters=self.n_clusters)

    def _attributes(self, value: Value) -> dict[str, Any]:
        return {"cluster_centers_": value}


@dataclass(eq=False, repr=False)
class PrivatePCA(_Transformer):
    """The leading principal components and the mean, released with certified noise.

    From 200 units on every unit has a coin, and components follow from noisy second moments, unless
    there are more than 30 columns, a setting of a pool is given, or the budget limits more than
    membership.

    Parameters
    ----------
    n_components : int
        Number of components.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Orthonormal rows. With coins the largest variance comes first; from a pool they span the
        released space, in the orientation of all records.
    explained_variance_, explained_variance_ratio_ : arrays of shape (n_components,)
        Released variances along the components, and their shares of the total; with coins.
    mean_, n_components_ : array of shape (n_features,) and int
        Released mean, and dimension of the span.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 3)) * [9, 1, 1]
    >>> PrivatePCA(1, budget=pac.Information(0.5), n_subsets=32).fit_transform(X).shape
    (200, 1)
    """

    n_components: int = 2

    def transform(self, X: MatrixLike) -> Matrix:
        """Return coordinates in the released span."""
        coordinates: Matrix = (read_new(self, X) - self.mean_) @ self.components_.T
        return coordinates

    def inverse_transform(self, X: MatrixLike) -> Matrix:
        """Return points of the original space, given coordinates in the released span."""
        restored: Matrix = np.asarray(X, dtype=np.float64) @ self.components_ + self.mean_
        return restored

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _mechanism(self, seed: int | None) -> PCA:
        return PCA(n_components=self.n_components)

    def _with_coins(self, mechanism: Mechanism, data: Any) -> PrincipalComponents:
        return PrincipalComponents(n_components=self.n_components)

    def _takes_coins(self, data: Any, units: UnitLabels) -> bool:
        few = data.shape[1] <= MOST_COLUMNS
        return isinstance(self.sample, Coins) or (few and super()._takes_coins(data, units))

    def _attributes(self, value: Value) -> dict[str, Any]:
        return super()._attributes(value) | {"n_components_": len(value["components"])}
