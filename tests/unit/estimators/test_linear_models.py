"""Linear models by descent with coins: which method, what is learned, what is kept."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pacprivacy as pac
from pacprivacy.errors import BudgetError, DataError, MechanismError

RNG = np.random.default_rng(0)
N = 1500
X = RNG.normal(size=(N, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 0.0]
Z = (X - [0.0, 50.0, 0.0]) / [1.0, 10.0, 0.1]
THREE = np.array(["ash", "birch", "cedar"])[
    (Z @ [[2, 0, -2], [0, 2, 0], [0, 0, 0]] + RNG.gumbel(size=(N, 3))).argmax(axis=1)
]
TWO = np.where(Z @ [2.0, -1.0, 0.0] + RNG.logistic(size=N) > 0, "yes", "no")
SEEDED: dict[str, Any] = {"random_state": 0, "simulate": True}


@pytest.mark.parametrize("kind", [pac.PrivateLogisticRegression, pac.PrivateLinearSVC])
def test_classifiers_descend_and_learn(kind: Any) -> None:
    for y in (TWO, THREE):
        public = LogisticRegression().fit(Z, y).score(Z, y)
        model = kind(**SEEDED).fit(X, y)
        assert model.method_ == "descent"
        assert model.certificate_.sampling == "coins"
        assert model.score(X, y) > public - 0.02
        assert model.coef_.shape == ((1 if len(model.classes_) == 2 else 3), 3)
        kept = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(kept.predict(X[:50]), model.predict(X[:50]))
        np.testing.assert_array_equal(clone(model).fit(X, y).coef_, model.coef_)


def test_probabilities_are_those_of_the_softmax() -> None:
    model = pac.PrivateLogisticRegression(**SEEDED).fit(X, THREE)
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(X)).all()
    hits = np.mean(np.log(chances[np.arange(N), np.searchsorted(model.classes_, THREE)]))
    assert hits > -0.75


def test_far_rows_are_clipped_as_in_the_fit() -> None:
    model = pac.PrivateLogisticRegression(**SEEDED).fit(X, TWO)
    far = X[:1] + np.array([[1e9, 0.0, 0.0]])
    assert abs(model.decision_function(far)[0]) < 50
    free = pac.PrivateLogisticRegression(clip=None, **SEEDED).fit(X, TWO)
    assert np.isinf(free.upper_).all()
    assert abs(free.decision_function(far)[0]) > 1e6


def test_regressors_learn() -> None:
    counts = RNG.poisson(np.exp(0.5 * Z[:, 0] + 3.0))
    poisson = pac.PrivatePoissonRegressor(**SEEDED).fit(X, counts)
    assert poisson.coef_[0] == pytest.approx(0.5, abs=0.1)
    assert poisson.predict(X).min() > 0
    target = 1000 + 40 * Z[:, 1] + 10 * RNG.normal(size=N)
    high = pac.PrivateQuantileRegressor(0.9, **SEEDED).fit(X, target)
    assert np.mean(target <= high.predict(X)) == pytest.approx(0.9, abs=0.05)
    assert high.coef_[1] * 10 == pytest.approx(40, rel=0.2)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({}, "descent"),
        ({"method": "pool", "n_subsets": 16}, "pool"),
        ({"n_subsets": 16}, "pool"),
        ({"sample": pac.Balanced(), "n_subsets": 16}, "pool"),
        ({"budget": pac.Information(1.0), "n_subsets": 16}, "pool"),
        ({"sample": pac.Coins(keep=0.9)}, "descent"),
    ],
)
def test_the_method_follows_from_what_is_asked(settings: Any, method: str) -> None:
    model = pac.PrivateLogisticRegression(**SEEDED, **settings).fit(X[:400], TWO[:400])
    assert model.method_ == method
    assert (model.certificate_.sampling == "coins") == (method == "descent")


def test_small_tables_take_a_pool() -> None:
    model = pac.PrivateQuantileRegressor(**SEEDED, n_subsets=16).fit(X[:60], Z[:60, 0])
    assert model.method_ == "pool"
    few = np.repeat(np.arange(30), 50)
    by_units = pac.PrivateLogisticRegression(**SEEDED).fit(X, TWO, units=few)
    assert by_units.method_ == "pool"


def test_people_with_several_rows_and_pipelines() -> None:
    people = np.repeat(np.arange(500), 3)
    model = pac.PrivateLogisticRegression(**SEEDED).fit(X, TWO, units=people)
    assert model.certificate_.n_units == 500
    assert (model.release_.bundle.spent <= model.release_.bundle.parameter**2).all()
    piped = make_pipeline(StandardScaler(), pac.PrivateLinearSVC(**SEEDED)).fit(X, TWO)
    assert piped.score(X, TWO) > LogisticRegression().fit(Z, TWO).score(Z, TWO) - 0.02


@pytest.mark.parametrize(
    ("model", "y", "error", "match"),
    [
        (pac.PrivateLogisticRegression(method="newton"), TWO, MechanismError, "method must be"),
        (pac.PrivateLinearSVC(-1.0), TWO, (BudgetError, MechanismError, ValueError), "C must be"),
        (pac.PrivatePoissonRegressor(), -Z[:, 0], MechanismError, "must be counts"),
        (pac.PrivateLogisticRegression(), np.full(N, "no"), DataError, "two classes"),
        (
            pac.PrivateLogisticRegression(budget=pac.Information(1.0), method="descent"),
            TWO,
            BudgetError,
            "membership alone",
        ),
    ],
)
def test_wrong_settings_are_refused(model: Any, y: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        model.fit(X, y)
    assert not hasattr(model, "certificate_")


def test_gaps_are_refused_before_anything_is_spent() -> None:
    gaps = X.copy()
    gaps[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        pac.PrivateLogisticRegression().fit(gaps, TWO)


def test_ridge_has_coins_unless_a_pool_is_wanted() -> None:
    y = Z @ [1.0, -2.0, 0.0] + RNG.normal(size=N)
    for alpha in ("conscious", 1.0):
        model = pac.PrivateRidge(alpha, **SEEDED).fit(Z, y, units=np.arange(N) // 2)
        assert model.certificate_.sampling == "average"
        assert model.certificate_.n_units == N // 2
        np.testing.assert_allclose(model.coef_, [1.0, -2.0, 0.0], atol=0.3)
    few = pac.PrivateRidge("post-hoc", **SEEDED).fit(Z[:60], y[:60])
    assert few.certificate_.sampling == "pool"
    pooled = pac.PrivateRidge(n_subsets=16, **SEEDED).fit(Z, y)
    assert pooled.certificate_.sampling == "pool"


def test_least_squares_with_coins_search_no_independent_components() -> None:
    y = Z @ [1.0, -2.0, 0.0] + RNG.normal(size=N)
    for model in (pac.PrivateLinearRegression(**SEEDED), pac.PrivateRidge(1.0, **SEEDED)):
        assert "whitened" in " ".join(model.fit(Z, y).certificate_.public)
    pooled = pac.PrivateLinearRegression(n_subsets=16, **SEEDED).fit(Z, y)
    assert "FastICA" in " ".join(pooled.certificate_.public)


MODELS = [
    (pac.PrivateLinearRegression, {}, 3.0 * Z[:, 0]),
    (pac.PrivateRidge, {"alpha": 1.0}, 3.0 * Z[:, 0]),
    (pac.PrivateLogisticRegression, {"alpha": 1e-3}, TWO),
    (pac.PrivateLinearSVC, {"C": 0.1}, TWO),
    (pac.PrivateQuantileRegressor, {"alpha": 1e-3}, 3.0 * Z[:, 0]),
    (pac.PrivatePoissonRegressor, {"alpha": 1e-3}, np.arange(N) % 4),
]


@pytest.mark.parametrize(
    ("kind", "penalty", "y"), MODELS, ids=lambda each: getattr(each, "__name__", "")
)
def test_six_models_take_penalties_units_and_pipelines(kind: Any, penalty: Any, y: Any) -> None:
    model = kind(**penalty, **SEEDED)
    fitted = make_pipeline(StandardScaler(), clone(model)).fit(X, y)[-1]
    assert fitted.method_ in ("influence", "descent")
    assert fitted.certificate_.published
    of_units = model.fit(X, y, units=np.arange(N) // 3)
    assert of_units.certificate_.n_units == N // 3


@pytest.mark.parametrize("kind", [pac.PrivateLogisticRegression, pac.PrivateLinearRegression])
def test_coefficients_have_intervals(kind: Any) -> None:
    options = {"errors": True} if kind is pac.PrivateLogisticRegression else {}
    y = TWO if options else Z @ [2.0, -1.0, 0.0] + RNG.normal(size=N)
    model = kind(**options, budget="membership<=0.75", **SEEDED).fit(X, y)
    frame = model.release_.to_frame()
    slopes = frame[frame["name"].str.startswith("coef")]
    assert (slopes["lower"] < slopes["value"]).all()
    width = (slopes["upper"] - slopes["lower"]).to_numpy() * [1.0, 10.0, 0.1]
    assert (width < 1.0).all()


def test_clusters_have_coins_and_tiny_tables_a_pool() -> None:
    points = RNG.normal(size=(900, 2)) + np.repeat([[0], [9], [18]], 300, axis=0)
    model = pac.PrivateKMeans(3, budget="membership<=0.6", **SEEDED).fit(points)
    assert model.certificate_.sampling == "coins"
    np.testing.assert_allclose(np.sort(model.cluster_centers_[:, 0]), [0, 9, 18], atol=0.5)
    few = pac.PrivateKMeans(3, budget="membership<=0.6", **SEEDED).fit(points[::6])
    assert few.certificate_.sampling == "pool"
