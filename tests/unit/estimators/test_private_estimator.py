"""Private estimators: the scikit-learn interface, what is refused, and what a search costs."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import pacprivacy as pac
import pacprivacy.release.certificate
from pacprivacy._random import SimulatedSource, SystemSource
from pacprivacy.errors import (
    BudgetError,
    CertificateError,
    DataError,
    MechanismError,
    PoolError,
)
from pacprivacy.estimators import (
    PrivateEstimator,
    PrivateForestClassifier,
    PrivateKMeans,
    PrivateLinearSVC,
    PrivatePCA,
    search_cost,
)
from pacprivacy.noise import Empirical
from pacprivacy.theory import posterior_success

RNG = np.random.default_rng(0)
LABELS = np.repeat([0, 1, 2], 30)
X = RNG.normal(size=(90, 3)) + 6 * np.eye(3)[LABELS]
NAMES = np.array(["ash", "birch", "cedar"])[LABELS]
TARGET = X @ np.array([1.0, -2.0, 0.5])
COLUMNS = ["width", "height", "depth"]

FAST: dict[str, Any] = {"budget": pac.Information(1.0), "rule": "waterfill", "n_subsets": 8}
SEEDED: dict[str, Any] = FAST | {"random_state": 3, "simulate": True}
MODELS = [PrivateKMeans(3, **SEEDED), PrivatePCA(2, **SEEDED)]
CLASSIFIERS = [
    PrivateEstimator(LogisticRegression(), **SEEDED),
    PrivateLinearSVC(**SEEDED),
    PrivateForestClassifier(**SEEDED),
]


def kind(model: Any) -> str:
    return type(model).__name__


@pytest.fixture(autouse=True)
def _short_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prove loosely: these tests do not look at how tight a certificate is."""
    module = sys.modules["pacprivacy.release.pool_certificate"]
    monkeypatch.setattr(module, "information_draws", lambda *_: 64)
    monkeypatch.setattr(module, "membership_draws", lambda *_: 64)
    monkeypatch.setattr(module, "SIDE_KNOWLEDGE_SIZES", ())


# --- interface ------------------------------------------------------------------------------


def test_budget_and_settings_are_parameters() -> None:
    model = PrivateEstimator(Ridge(), budget=pac.Membership(0.7), n_subsets=32)
    copied = clone(model)
    assert copied.budget == pac.Membership(0.7)
    assert copied.estimator is not model.estimator
    copied.set_params(budget=pac.Information(2) & pac.Membership(0.9), estimator__alpha=7.0)
    assert copied.get_params()["estimator__alpha"] == 7.0
    assert model.estimator.alpha == 1.0
    assert "Membership(success=0.7)" in repr(model)
    assert PrivateEstimator(Ridge()).budget == pac.Membership(0.6)


def test_methods_are_those_of_the_estimator() -> None:
    ridge = PrivateEstimator(Ridge())
    assert is_regressor(ridge)
    assert not is_classifier(ridge)
    assert hasattr(ridge, "predict")
    for name in ("predict_proba", "transform", "fit_transform", "fit_predict", "classes_"):
        assert not hasattr(ridge, name)
    scaler = PrivateEstimator(StandardScaler())
    assert hasattr(scaler, "transform")
    assert hasattr(scaler, "get_feature_names_out")
    assert not hasattr(scaler, "predict")
    assert is_classifier(PrivateEstimator(LogisticRegression()))
    assert hasattr(PrivateEstimator(LogisticRegression()), "predict_proba")
    assert hasattr(PrivateEstimator(KMeans()), "fit_predict")


@pytest.mark.parametrize("model", [*MODELS, *CLASSIFIERS], ids=kind)
def test_unfitted_is_said(model: Any) -> None:
    method = model.predict if hasattr(model, "predict") else model.transform
    with pytest.raises(NotFittedError):
        method(X)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=kind)
def test_string_labels_come_back(model: Any) -> None:
    fitted = clone(model).fit(X, NAMES)
    assert fitted.classes_.tolist() == ["ash", "birch", "cedar"]
    assert set(fitted.predict(X)) <= set(NAMES)
    assert fitted.score(X, NAMES) > 0.6
    assert "balanced-stratified" in str(fitted.certificate_)
    assert fitted.certificate_.mi_upper_nats <= 1.0


def test_a_regressor_is_wrapped() -> None:
    fitted = PrivateEstimator(Ridge(), **SEEDED).fit(X, TARGET)
    assert fitted.score(X, TARGET) > 0.5
    np.testing.assert_array_equal(fitted.predict(X), fitted.estimator_.predict(X))
    assert fitted.certificate_.scheme == "balanced"
    assert fitted.certificate_.mechanism == "Ridge"


def test_a_transformer_is_wrapped() -> None:
    model = PrivateEstimator(PCA(2), **SEEDED)
    scores = model.fit_transform(X, y=NAMES)  # y is not needed, and ignored
    np.testing.assert_array_equal(scores, model.transform(X))
    assert model.inverse_transform(scores).shape == X.shape
    assert model.get_feature_names_out().tolist() == ["pca0", "pca1"]
    frame = model.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == ["pca0", "pca1"]


def test_a_clustering_is_wrapped() -> None:
    model = PrivateEstimator(KMeans(3, n_init=2), **SEEDED)
    np.testing.assert_array_equal(model.fit_predict(X), model.predict(X))
    assert not hasattr(model.estimator_, "labels_")


def test_a_pipeline_is_measured_as_a_whole() -> None:
    model = PrivateEstimator(make_pipeline(StandardScaler(), RidgeClassifier()), **SEEDED)
    fitted = model.fit(X, NAMES)
    assert fitted.certificate_.mechanism == "Pipeline(StandardScaler, RidgeClassifier)"
    assert fitted.certificate_.dimension == 2 * 3 + 3 * 3 + 3
    assert fitted.score(X, NAMES) > 0.5


@pytest.mark.parametrize("outer", [PrivateLinearSVC(**SEEDED), PrivateForestClassifier(**SEEDED)])
def test_private_steps_work_in_a_pipeline(outer: Any) -> None:
    model = make_pipeline(PrivatePCA(2, **SEEDED), outer).fit(X, NAMES)
    assert model.score(X, NAMES) > 0.4
    assert model[-1].certificate_ is not model[0].certificate_


# --- the named estimators -------------------------------------------------------------------


def test_kmeans_has_the_attributes_of_scikit_learn() -> None:
    model = PrivateKMeans(3, **SEEDED).fit(X)
    assert model.cluster_centers_.shape == (3, 3)
    distances = np.linalg.norm(X[:, None] - model.cluster_centers_, axis=2)
    np.testing.assert_allclose(model.transform(X), distances)
    np.testing.assert_array_equal(model.predict(X), distances.argmin(axis=1))
    assert model.score(X) == pytest.approx(-(distances.min(axis=1) ** 2).sum())
    assert model.get_feature_names_out().tolist() == [f"privatekmeans{i}" for i in range(3)]
    assert not hasattr(model, "labels_")
    assert model.fit_predict(X).shape == (90,)


def test_pca_projects_and_restores() -> None:
    model = PrivatePCA(2, **SEEDED).fit(X)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-12)
    assert model.mean_.shape == (3,)
    assert model.n_components_ == 2
    scores = model.transform(X)
    np.testing.assert_allclose(model.transform(model.inverse_transform(scores)), scores)
    plain = PCA(2).fit(X)
    lost = np.linalg.norm(X - model.inverse_transform(scores))
    assert lost < 2 * np.linalg.norm(X - plain.inverse_transform(plain.transform(X)))


def test_svc_predicts_by_its_hyperplanes() -> None:
    model = PrivateLinearSVC(C=0.1, **SEEDED).fit(X, NAMES)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), scores)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(axis=1)])
    two = PrivateLinearSVC(C=0.1, **SEEDED).fit(X[:60], NAMES[:60])
    assert two.coef_.shape == (1, 3)
    assert two.decision_function(X).shape == (90,)
    assert set(two.predict(X)) <= {"ash", "birch"}


def test_forest_gives_probabilities_in_the_order_of_its_scores() -> None:
    model = PrivateForestClassifier(2, max_depth=2, **SEEDED).fit(X, NAMES)
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert chances.min() >= 0.0
    np.testing.assert_array_equal(model.predict(X), model.classes_[chances.argmax(axis=1)])
    value = model.release_.value
    expected = model._mechanism(None).predict(value, X)
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model.thresholds_.shape == (2, 3)
    assert model.features_.shape == (2, 2)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.2, 0.8], [0.2, 0.8]),
        ([-0.5, -0.7], [0.6, 0.4]),
        ([2.0, 0.1, 0.2], [1.0, 0.0, 0.0]),
        ([0.5, 0.5, 0.5], [1 / 3] * 3),
    ],
)
def test_scores_move_to_the_nearest_probabilities(
    scores: list[float], expected: list[float]
) -> None:
    from pacprivacy.estimators.predictor import project_to_simplex

    np.testing.assert_allclose(project_to_simplex(np.array([scores]))[0], expected, atol=1e-12)


@pytest.mark.parametrize("model", [*MODELS[:1], *CLASSIFIERS], ids=kind)
def test_score_releases_nothing(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = clone(model).fit(X, NAMES)
    before = fitted.certificate_

    def refuse(self: Any, size: int) -> Any:
        raise AssertionError("something was drawn")

    for source in (SystemSource, SimulatedSource):
        monkeypatch.setattr(source, "words", refuse)
    with pytest.raises(AssertionError, match="something was drawn"):
        clone(model).fit(X, NAMES)  # the trap is set
    assert fitted.score(X, NAMES) == fitted.score(X, NAMES)
    assert fitted.certificate_ is before


def test_docstrings_show_shared_parameters_after_their_own() -> None:
    class Mine(PrivateKMeans):
        """Say it.

        Parameters
        ----------
        own : int
            Of this class.
        """

    for kind_of in (PrivateKMeans, PrivateEstimator, Mine):
        text = inspect.cleandoc(kind_of.__doc__)
        parameters = text.partition("Parameters\n")[2].partition("Attributes\n")
        assert "budget : Information" in parameters[0]
        assert "certificate_ : Certificate" in parameters[2]
    assert Mine.__doc__.index("own : int") < Mine.__doc__.index("budget : ")


# --- containers -----------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*MODELS, *CLASSIFIERS], ids=kind)
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_give_the_same_result_and_keep_names(model: Any, library: Any) -> None:
    frame = library(dict(zip(COLUMNS, X.T, strict=True)))
    series = pd.Series(NAMES) if library is pd.DataFrame else pl.Series(NAMES)
    plain, named = clone(model).fit(X, NAMES), clone(model).fit(frame, series)
    assert named.feature_names_in_.tolist() == COLUMNS
    assert not hasattr(plain, "feature_names_in_")
    method = "predict" if hasattr(model, "predict") else "transform"
    np.testing.assert_array_equal(getattr(plain, method)(X), getattr(named, method)(frame))
    with pytest.raises(ValueError, match="feature names"):
        getattr(named, method)(frame[COLUMNS[::-1]])


def test_names_reach_the_released_estimator() -> None:
    frame = pd.DataFrame(X, columns=COLUMNS)
    model = PrivateEstimator(StandardScaler(), **SEEDED).fit(frame)
    assert model.estimator_.feature_names_in_.tolist() == COLUMNS
    assert model.get_feature_names_out().tolist() == COLUMNS


# --- randomness -----------------------------------------------------------------------------


def test_a_seed_never_fixes_the_secret_or_the_noise() -> None:
    model = PrivateEstimator(Ridge(), **FAST, random_state=0)
    first, second = (clone(model).fit(X, TARGET).estimator_.coef_ for _ in range(2))
    assert not np.array_equal(first, second)
    assert not model.fit(X, TARGET).certificate_.simulation


def test_simulation_repeats_and_is_flagged() -> None:
    model = PrivateEstimator(Ridge(), **SEEDED)
    first, second = (clone(model).fit(X, TARGET) for _ in range(2))
    np.testing.assert_array_equal(first.estimator_.coef_, second.estimator_.coef_)
    assert first.certificate_.simulation
    assert "SIMULATION" in str(first.certificate_)


def test_random_state_may_be_any_of_scikit_learns() -> None:
    for state in (np.random.default_rng(1), np.random.RandomState(1), np.int64(1)):
        PrivatePCA(1, **FAST, random_state=state).fit(X)


def test_an_unseeded_solver_is_run_with_one_public_seed() -> None:
    model = PrivateEstimator(SGDClassifier(), **SEEDED).fit(X, NAMES)
    assert model.estimator_.random_state is None
    assert model.certificate_.mechanism == "SGDClassifier"


def test_workers_do_not_change_the_result() -> None:
    one, two = (
        PrivateEstimator(Ridge(), **SEEDED, n_jobs=n).fit(X, TARGET).estimator_.coef_
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    model = PrivateEstimator(Ridge(), **FAST, checkpoint=tmp_path / "fit.ckpt")
    pools = [model.fit(X, TARGET).release_.bundle.pool.digest() for _ in range(2)]
    assert pools[0] == pools[1]


def test_units_stay_together() -> None:
    units = np.repeat(np.arange(45), 2)
    for model in (PrivateEstimator(LogisticRegression(), **SEEDED), PrivateLinearSVC(**SEEDED)):
        fitted = model.fit(X, NAMES, units=units)
        assert fitted.certificate_.n_units == 45
        assert fitted.certificate_.scheme == "balanced-stratified"
    mixed = np.tile(np.arange(30), 3)  # every unit has all three labels: halves cannot be strict
    fitted = PrivateLinearSVC(**SEEDED).fit(X, NAMES, units=mixed)
    assert (fitted.certificate_.n_units, fitted.certificate_.scheme) == (30, "balanced")


# --- declared attributes --------------------------------------------------------------------


class Offset(BaseEstimator):
    """A model that the library has never seen."""

    def fit(self, X: Any, y: Any = None) -> Offset:
        self.shift_ = X.mean(axis=0)
        self.n_rows_ = len(X)
        return self

    def transform(self, X: Any) -> Any:
        return X - self.shift_

    def fuss(self) -> int:
        return self.n_rows_


def test_an_unseen_estimator_is_refused_until_it_is_declared() -> None:
    with pytest.raises(MechanismError, match="released attributes are known; got Offset"):
        PrivateEstimator(Offset(), **FAST).fit(X)
    with pytest.raises(MechanismError, match="got KNeighborsClassifier"):
        PrivateEstimator(KNeighborsClassifier(), **FAST).fit(X, NAMES)
    model = PrivateEstimator(Offset(), **FAST, released=["shift_"]).fit(X)
    assert vars(model.estimator_).keys() == {"shift_"}
    np.testing.assert_allclose(model.transform(X), X - model.estimator_.shift_)


def test_declared_names_win_and_reach_the_last_step() -> None:
    model = PrivateEstimator(Ridge(), **FAST, released=("coef_",)).fit(X, TARGET)
    assert model.certificate_.dimension == 3
    piped = make_pipeline(StandardScaler(), Offset())
    fitted = PrivateEstimator(piped, **FAST, released=("shift_",)).fit(X)
    assert fitted.certificate_.dimension == 3 * 3


@pytest.mark.parametrize(
    ("estimator", "released", "message"),
    [
        (Ridge(), "coef_", "must be a sequence of attribute names"),
        (Ridge(), ["wings_"], "does not have"),
        (Ridge(), [], "at least one number"),
        (SVC(kernel="linear"), ["coef_", "intercept_"], "computes from others"),
        (KMeans(2, n_init=1), ["labels_"], "must hold floats"),
        (Ridge, None, "instance of a scikit-learn estimator; got Ridge"),
        (3, None, "instance of a scikit-learn estimator; got int"),
    ],
)
def test_unusable_declarations_are_refused(estimator: Any, released: Any, message: str) -> None:
    model = PrivateEstimator(estimator, **FAST, released=released)
    with pytest.raises(MechanismError, match=message):
        model.fit(X, LABELS)
    assert not hasattr(model, "certificate_")


def test_a_method_that_needs_more_than_was_released_says_so() -> None:
    model = PrivateEstimator(LinearDiscriminantAnalysis(), **FAST).fit(X, NAMES)
    assert model.score(X, NAMES) > 0.4
    with pytest.raises(MechanismError, match="transform must need no more than the released"):
        model.transform(X)
    ridge = PrivateEstimator(Ridge(), **FAST, released=["coef_"]).fit(X, TARGET)
    with pytest.raises(MechanismError, match="needs intercept_"):
        ridge.predict(X)


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", CLASSIFIERS, ids=kind)
def test_labels_that_cannot_be_hidden_are_refused(model: Any) -> None:
    rare = np.where(np.arange(90) == 7, "yew", NAMES)
    with pytest.raises(DataError, match="at least two records of every class"):
        model.fit(X, rare)
    with pytest.raises(DataError, match="at least two classes"):
        model.fit(X, np.repeat("ash", 90))
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(X, TARGET)
    assert not hasattr(model, "certificate_")


@pytest.mark.parametrize("model", CLASSIFIERS[:2], ids=kind)
def test_a_class_missing_from_a_subset_is_refused(model: Any) -> None:
    rare = np.where(np.arange(90) < 2, "yew", NAMES)
    careless = clone(model).set_params(sample=pac.Half())
    with pytest.raises(MechanismError, match=r"subset \d+.*every one of the 4 classes"):
        careless.fit(X, rare)
    assert not hasattr(careless, "certificate_")
    clone(model).fit(X, rare)  # the default pool has every class in every subset


def test_strings_are_refused_without_quoting_them() -> None:
    secret = np.array([["Rosebud", "1"], ["2", "3"]] * 20)
    tables = [secret, pd.DataFrame(secret), pl.DataFrame(secret), secret.astype(object)]
    for model in (PrivateEstimator(KMeans(2), **FAST), PrivateKMeans(2, **FAST)):
        for table in tables:
            with pytest.raises(DataError, match="X must hold numbers") as caught:
                model.fit(table)
            assert "Rosebud" not in str(caught.value)
            assert caught.value.__cause__ is None
            assert caught.value.__context__ is None


def test_a_vector_is_refused_without_quoting_it() -> None:
    for model in (PrivateEstimator(StandardScaler(), **FAST), PrivatePCA(1, **FAST)):
        with pytest.raises(DataError, match="X must have two axes") as caught:
            model.fit(np.full(40, 31.41592))
        assert "31.4" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (PrivateKMeans(46, **FAST), "n_clusters must be at most the number of rows"),
        (PrivateKMeans(0, **FAST), "n_clusters must be a whole number"),
        (PrivatePCA(4, **FAST), "n_components must be at most the rank"),
        (PrivateLinearSVC(-1.0, **FAST), "C must be a positive"),
        (PrivateForestClassifier(0, **FAST), "n_estimators must be a whole number"),
        (PrivateEstimator(KMeans(46), **FAST), "n_samples=45"),
    ],
)
def test_unusable_settings_are_refused(model: Any, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        model.fit(X, NAMES)
    assert not hasattr(model, "release_")


@pytest.mark.parametrize("model", [*MODELS[:1], *CLASSIFIERS[1:]], ids=kind)
def test_constant_features_are_refused(model: Any) -> None:
    with pytest.raises(MechanismError, match=r"1 constant \(column 1"):
        clone(model).fit(np.column_stack([X[:, 0], np.ones(90)]), NAMES)


def test_more_components_than_rank_are_refused() -> None:
    flat = np.column_stack([X[:, 0], 2 * X[:, 0], X[:, 1]])
    with pytest.raises(MechanismError, match="got 3 for rank 2"):
        PrivatePCA(3, **FAST).fit(flat)


def test_budgets_and_pools_that_cannot_work_are_refused() -> None:
    with pytest.raises(BudgetError, match="budget must be Information"):
        PrivateKMeans(2, budget=0.6, n_subsets=16).fit(X)  # type: ignore[arg-type]
    with pytest.raises(PoolError, match="n_subsets must be an even integer"):
        PrivateKMeans(2, n_subsets=7).fit(X)
    with pytest.raises(ValueError, match="minimum of 4"):
        PrivateKMeans(2, **FAST).fit(X[:3])


@pytest.mark.claim("E-1")
def test_a_failed_fit_leaves_nothing_of_the_one_before() -> None:
    model = PrivateKMeans(2, **FAST).fit(X)
    with pytest.raises(MechanismError):
        model.set_params(n_clusters=99).fit(X)
    assert not hasattr(model, "cluster_centers_")
    assert not hasattr(model, "certificate_")


# --- searches -------------------------------------------------------------------------------

GRID = {"estimator__alpha": [0.1, 1.0, 10.0]}


@pytest.mark.claim("E-2")
@pytest.mark.filterwarnings("ignore:every fit of a search")
def test_every_fit_counts_at_what_its_budget_allows() -> None:
    search = GridSearchCV(PrivateEstimator(Ridge(), **FAST), GRID, cv=2).fit(X, TARGET)
    cost = search_cost(search)
    assert cost.n_releases == 7
    assert cost.mi_nats == pytest.approx(7 * 1.0)
    assert cost.success_level == posterior_success(1.0, 0.5)
    assert 0 < cost.gamma < 1e-7
    best = search.best_estimator_.certificate_
    assert best.mi_upper_nats <= 1.0
    assert best.membership_bound <= cost.success_level
    search.estimator.set_params(budget=pac.Membership(0.9))  # limits no information
    assert search_cost(search).mi_nats == pytest.approx(7 * math.log(8))
    search.estimator.set_params(n_subsets=None, sample=pac.Half())
    assert search_cost(search).mi_nats == pytest.approx(7 * math.log(2000))
    search.estimator.set_params(budget=pac.Information(0.1))
    assert search_cost(search).success_level == 1.0  # the pool's prior is not known
    search.estimator.set_params(rule=Empirical())
    with pytest.raises(CertificateError, match="a rule for a finite pool"):
        search_cost(search)


@pytest.mark.claim("E-2")
@pytest.mark.filterwarnings("ignore:every fit of a search")
def test_the_last_fit_counts_as_the_costliest_candidate() -> None:
    grid = {"budget": [pac.Information(0.25), pac.Information(1.0)]}
    search = GridSearchCV(PrivateEstimator(Ridge(), **FAST), grid, cv=2).fit(X, TARGET)
    assert search_cost(search).mi_nats == pytest.approx(2 * 0.25 + 2 * 1.0 + 1.0)


@pytest.mark.filterwarnings("ignore:every fit of a search")
def test_every_private_step_is_counted() -> None:
    model = make_pipeline(PrivatePCA(2, **FAST), PrivateEstimator(Ridge(), **FAST))
    grid = {"privateestimator__estimator__alpha": [0.1, 1.0]}
    search = GridSearchCV(model, grid, cv=2).fit(X, TARGET)
    assert search_cost(search).n_releases == 2 * (2 * 2 + 1)


@pytest.mark.claim("E-2")
@pytest.mark.filterwarnings("ignore:every fit of a search")
def test_fits_hidden_inside_others_are_refused() -> None:
    inner = PrivateEstimator(LogisticRegression(), **FAST)
    model = CalibratedClassifierCV(inner, cv=2)
    search = GridSearchCV(model, {"method": ["sigmoid"]}, cv=2).fit(X, NAMES)
    with pytest.raises(CertificateError, match="number of releases is not known"):
        search_cost(search)


class FailsWhenFitted(LinearRegression):
    """A step after a private one: it has seen what was released when it fails."""

    def __init__(self, *, fail: bool = False) -> None:
        super().__init__()
        self.fail = fail

    def fit(self, X: Any, y: Any) -> Any:
        if self.fail:
            raise RuntimeError(f"bad components {X[0]}")
        return super().fit(X, y)


@pytest.mark.claim("E-2")
@pytest.mark.filterwarnings("ignore:every fit of a search")
def test_fits_that_raised_are_counted_at_what_they_may_have_released() -> None:
    model = make_pipeline(PrivatePCA(1, **FAST), FailsWhenFitted())
    search = GridSearchCV(model, {"failswhenfitted__fail": [False, True]}, cv=2)
    with pytest.warns(FitFailedWarning), pytest.warns(UserWarning, match="non-finite"):
        search.fit(X, TARGET)
    cost = search_cost(search)
    assert (cost.n_releases, cost.mi_nats) == (5, pytest.approx(5 * 1.0))


def test_a_search_over_nothing_private_is_refused() -> None:
    search = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2).fit(X, TARGET)
    with pytest.raises(CertificateError, match="private estimator"):
        search_cost(search)


@pytest.mark.filterwarnings("ignore:every fit of a search")
def test_a_search_without_refit_counts_its_candidates() -> None:
    search = GridSearchCV(PrivateEstimator(Ridge(), **FAST), GRID, cv=2, refit=False)
    assert search_cost(search.fit(X, TARGET)).n_releases == 6


# --- what travels, and the root -------------------------------------------------------------


@pytest.mark.parametrize("travel", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
@pytest.mark.parametrize("model", [*MODELS, *CLASSIFIERS], ids=kind)
def test_copies_predict_alike(model: Any, travel: Any) -> None:
    fitted = clone(model).fit(X, NAMES)
    other = travel(fitted)
    method = "predict" if hasattr(model, "predict") else "transform"
    np.testing.assert_array_equal(getattr(other, method)(X), getattr(fitted, method)(X))
    assert other.certificate_ == fitted.certificate_


def test_the_root_offers_the_estimators_without_importing_scikit_learn() -> None:
    script = (
        "import sys, pacprivacy as pac\n"
        "assert 'sklearn' not in sys.modules\n"
        "assert 'PrivateEstimator' in dir(pac)\n"
        "assert pac.PrivatePCA.__name__ == 'PrivatePCA'\n"
        "assert 'sklearn' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="PrivateSecret"):
        _ = pac.PrivateSecret
    assert "budget" in inspect.signature(pac.PrivateEstimator).parameters
