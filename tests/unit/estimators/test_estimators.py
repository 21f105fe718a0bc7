"""Fitted scikit-learn estimators: what leaves, what is dropped, what must not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import (
    BayesianRidge,
    ElasticNet,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    Perceptron,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC, LinearSVR

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import declare_estimator_released, flatten

X, LABELS = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[LABELS]

CLASSIFIERS = [
    LogisticRegression(max_iter=1000),
    RidgeClassifier(),
    SGDClassifier(random_state=0),
    Perceptron(random_state=0),
    LinearSVC(random_state=0),
    LinearDiscriminantAnalysis(),
    GaussianNB(),
]
REGRESSORS = [
    LinearRegression(),
    Ridge(),
    Lasso(alpha=0.01),
    LassoCV(alphas=3),
    ElasticNet(alpha=0.01),
    BayesianRidge(),
    HuberRegressor(max_iter=1000),
    SGDRegressor(random_state=0),
    LinearSVR(random_state=0, max_iter=100_000),
    Ridge(fit_intercept=False),
]
TRANSFORMERS = [
    StandardScaler(),
    StandardScaler(with_std=False),
    MinMaxScaler(),
    RobustScaler(),
    MaxAbsScaler(),
    PCA(n_components=2),
    PCA(n_components=2, whiten=True),
    TruncatedSVD(n_components=2, random_state=0),
]
CLUSTERINGS = [
    KMeans(n_clusters=3, n_init=2, random_state=0),
    MiniBatchKMeans(n_clusters=3, n_init=2, random_state=0),
]


def round_trip(fitted: Any) -> Any:
    vector, structure = flatten(fitted)
    return structure.restore(vector)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("binary", [False, True])
def test_classifiers_predict_as_before(model: Any, binary: bool) -> None:
    keep = np.isin(LABELS, [0, 1] if binary else [0, 1, 2])
    fitted = model.fit(X[keep], NAMES[keep])
    restored = round_trip(fitted)
    assert (restored.predict(X) == fitted.predict(X)).all()
    if hasattr(fitted, "predict_proba"):
        np.testing.assert_array_equal(restored.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda m: type(m).__name__)
def test_regressors_predict_as_before(model: Any) -> None:
    fitted = model.fit(X[:, :3], X[:, 3])
    np.testing.assert_array_equal(round_trip(fitted).predict(X[:, :3]), fitted.predict(X[:, :3]))


@pytest.mark.parametrize("model", TRANSFORMERS, ids=lambda m: type(m).__name__)
def test_transformers_transform_as_before(model: Any) -> None:
    fitted = model.fit(X)
    restored = round_trip(fitted)
    wanted = fitted.transform(X)
    # Not bit for bit: the order of sums may follow from how an array lies in memory.
    np.testing.assert_allclose(restored.transform(X), wanted, rtol=1e-11, atol=1e-13)
    back = fitted.inverse_transform(wanted)
    np.testing.assert_allclose(restored.inverse_transform(wanted), back, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("model", CLUSTERINGS, ids=lambda m: type(m).__name__)
def test_clusterings_predict_as_before(model: Any) -> None:
    fitted = model.fit(X)
    restored = round_trip(fitted)
    np.testing.assert_array_equal(restored.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(restored.transform(X), fitted.transform(X))


def test_pipelines_are_restored_step_by_step() -> None:
    fitted = make_pipeline(
        FunctionTransformer(),
        Normalizer(),
        StandardScaler(),
        "passthrough",
        PCA(3),
        LogisticRegression(),
    ).fit(X, NAMES)
    vector, structure = flatten({"model": fitted, "n": 3})
    restored = structure.restore(vector)["model"]
    assert isinstance(restored, Pipeline)
    assert (restored.predict(X) == fitted.predict(X)).all()
    assert vector.size == (4 + 4) + (4 + 12 + 3) + (9 + 3) + 1
    assert not hasattr(restored.named_steps["standardscaler"], "var_")


@pytest.mark.claim("M-1")
@pytest.mark.parametrize(
    ("model", "dropped"),
    [
        (KMeans(3, n_init=1, random_state=5), ["labels_", "inertia_", "n_iter_"]),
        (LogisticRegression(max_iter=1000), ["n_iter_"]),
        (StandardScaler(), ["var_", "n_samples_seen_"]),
        (GaussianNB(), ["class_count_", "epsilon_"]),
        (PCA(2), ["n_samples_", "singular_values_", "noise_variance_"]),
    ],
    ids=lambda m: type(m).__name__,
)
def test_nothing_else_that_was_fitted_comes_back(model: Any, dropped: list[str]) -> None:
    fitted = model.fit(X, LABELS)
    fitted.smuggled_ = X
    fitted.unrelated = X
    restored = round_trip(fitted)
    allowed = {"n_features_in_", "classes_", "_n_threads"} | set(restored.get_params())
    released = {name for name in vars(restored) if name not in allowed}
    numbers = sum(np.size(getattr(restored, name)) for name in released)
    assert numbers == flatten(fitted)[0].size
    for name in [*dropped, "smuggled_", "unrelated"]:
        assert hasattr(fitted, name)
        assert not hasattr(restored, name)


@pytest.mark.claim("M-1")
def test_the_seed_of_a_subset_does_not_leave() -> None:
    first = KMeans(3, n_init=1, random_state=11).fit(X)
    second = KMeans(3, n_init=1, random_state=12).fit(X[:100])
    assert flatten(first)[1] == flatten(second)[1]
    assert round_trip(first).random_state is None
    nested = make_pipeline(PCA(2, random_state=13), KMeans(3, n_init=1, random_state=14)).fit(X)
    assert round_trip(nested).named_steps["pca"].random_state is None
    assert round_trip(nested).named_steps["kmeans"].random_state is None


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (Ridge(alpha=1.0).fit(X, LABELS), Ridge(alpha=2.0).fit(X, LABELS), "value.get_params()"),
        (
            GaussianNB().fit(X[:100], NAMES[:100]),
            GaussianNB().fit(X[50:], NAMES[50:]),
            "value.classes_",
        ),
        (Ridge().fit(X, LABELS), Lasso().fit(X, LABELS), "value.get_params()"),
        (Ridge().fit(X, LABELS), Ridge().fit(X[:, :2], LABELS), "value.coef_"),
        (
            make_pipeline(StandardScaler(), Ridge(alpha=1.0)).fit(X, LABELS),
            make_pipeline(StandardScaler(), Ridge(alpha=2.0)).fit(X, LABELS),
            "value.get_params()",
        ),
        (
            KMeans(2, init=X[:2], n_init=1).fit(X),
            KMeans(2, init=X[1:3], n_init=1).fit(X),
            "value.get_params()",
        ),
    ],
)
def test_what_is_not_measured_must_not_change(first: Any, second: Any, place: str) -> None:
    assert flatten(first)[1].difference(flatten(second)[1]) == place


def test_noise_leaves_a_usable_model() -> None:
    fitted = GaussianNB().fit(X, NAMES)
    vector, structure = flatten(fitted)
    noisy = structure.restore(vector - 0.5)
    assert (noisy.var_ > 0).all()
    assert (noisy.class_prior_ > 0).all()
    assert np.isfinite(noisy.predict_proba(X)).all()


class Centroid(BaseEstimator):
    """An estimator that nobody knows."""

    def fit(self, X: np.ndarray, y: Any = None) -> Centroid:
        self.centre_ = X.mean(axis=0)
        self.rows_ = np.arange(len(X))
        return self


def test_attributes_of_own_estimators_are_declared() -> None:
    fitted = Centroid().fit(X)
    with pytest.raises(MechanismError, match=r"got Centroid. Return the float arrays"):
        flatten(fitted)
    declare_estimator_released(fitted, ["centre_"])
    restored = round_trip(fitted)
    assert type(restored) is Centroid
    np.testing.assert_array_equal(restored.centre_, X.mean(axis=0))
    assert not hasattr(restored, "rows_")
    declare_estimator_released(fitted, ["centre_", "rows_"])
    with pytest.raises(MechanismError, match=r"value.rows_ must hold floats; got int64"):
        flatten(fitted)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (SVC().fit(X, LABELS), "released attributes are known; got SVC"),
        (KNeighborsClassifier().fit(X, LABELS), "got KNeighborsClassifier"),
        (Ridge(), "value must be fitted; got a Ridge without coef_"),
        (make_pipeline(StandardScaler(), Ridge()), r"value.standardscaler must be fitted"),
        (LogisticRegression().fit(X[:100], NAMES[:100]).sparsify(), "must hold floats"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_estimators_that_cannot_be_released(value: Any, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        flatten(value)
