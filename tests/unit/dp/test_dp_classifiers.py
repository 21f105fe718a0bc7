"""DPSGDClassifier and DPLogisticRegression."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from pacprivacy._random import SystemSource
from pacprivacy.dp import (
    DPCertificate,
    DPLogisticRegression,
    DPSGDClassifier,
    Logistic,
    PoissonBatch,
    Steps,
    dp_sgd,
)
from pacprivacy.errors import BudgetError, DataError, MechanismError


def blobs(n: int = 3000, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    y = generator.integers(n_classes, size=n)
    centres = np.array([[0.0, 4.0], [4.0, 0.0], [4.0, 4.0]])
    return generator.normal(size=(n, 2)) + centres[y], np.array(["a", "b", "c"])[y]


COMMON: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "x_bound": 8.0, "classes": ("a", "b")}
SEEDED: dict[str, Any] = {**COMMON, "n_public": 3000, "simulate": True, "random_state": 1}


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling": "poisson"},
        {"sampling": "fixed"},
        {"sampling": "replacement", "n_steps": 50, "batch_size": 64},
        {"sampling": "full", "n_steps": 50},
        {"loss": "hinge"},
        {"fit_intercept": False},
    ],
    ids=str,
)
def test_every_way_of_descent_learns(settings: dict[str, Any]) -> None:
    X, y = blobs()
    model = DPSGDClassifier(**(SEEDED | {"n_steps": 60} | settings)).fit(X, y)
    assert model.score(X, y) > 0.95
    relation = "replace" if settings.get("sampling") in ("fixed", "replacement") else "add_remove"
    assert model.certificate_.neighbours == relation
    assert (model.certificate_.epsilon, model.certificate_.delta) == (2.0, 1e-6)
    assert model.certificate_.simulation
    assert model.coef_.shape == (1, 2)


@pytest.mark.parametrize("method", ["auto", "descent", "objective", "output"])
def test_every_method_of_logistic_regression_learns(method: Any) -> None:
    X, y = blobs()
    model = DPLogisticRegression(**SEEDED, method=method).fit(X, y)
    assert model.score(X, y) > 0.95
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X))
    assert isinstance(model.certificate_, DPCertificate)


@pytest.mark.parametrize("kind", [DPSGDClassifier, DPLogisticRegression])
def test_three_classes(kind: Any) -> None:
    X, y = blobs(4000, 3)
    model = kind(**(SEEDED | {"classes": ("c", "a", "b"), "n_steps": 60})).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.coef_.shape == (3, 2)
    assert model.predict_proba(X).shape == (4000, 3)
    assert list(model.classes_) == ["a", "b", "c"]


@pytest.mark.claim("G-3")
def test_estimator_is_the_function_on_scaled_rows() -> None:
    X, y = blobs(500)
    model = DPSGDClassifier(**(SEEDED | {"n_steps": 10, "n_public": 500})).fit(X, y)
    scaled = X / 8.0
    scaled /= np.maximum(1.0, np.linalg.norm(scaled, axis=1, keepdims=True))
    release = dp_sgd(
        np.column_stack([scaled, np.ones(500)]),
        y,
        loss=Logistic(classes=("a", "b")),
        epsilon=2.0,
        delta=1e-6,
        x_bound=np.sqrt(2.0),
        batch=PoissonBatch(size=256, n_public=500),
        steps=Steps(n_steps=10, clip_norm=0.5, momentum=0.9, squares=0.99),
        simulate=1,
    )
    np.testing.assert_array_equal(model.coef_[0] * 8.0, release.value[:2])
    np.testing.assert_array_equal(model.intercept_, release.value[2:])
    np.testing.assert_array_equal(model.release_.value, release.value)


def test_noise_is_of_the_operating_system_unless_simulated() -> None:
    X, y = blobs(400)
    model = DPSGDClassifier(**COMMON, n_public=400, n_steps=5, random_state=1)
    first, second = clone(model).fit(X, y), clone(model).fit(X, y)
    assert not np.array_equal(first.coef_, second.coef_)
    assert not first.certificate_.simulation
    again = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(again.predict(X), first.predict(X))


def test_works_in_a_pipeline_and_in_cross_validation() -> None:
    X, y = blobs(900)
    model = DPSGDClassifier(**(SEEDED | {"n_steps": 20, "n_public": 900}))
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows - 2.0), model)
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.9


def test_hinge_has_no_probabilities() -> None:
    assert not hasattr(DPSGDClassifier(loss="hinge"), "predict_proba")
    assert hasattr(DPSGDClassifier(), "predict_proba")


def test_bad_input_is_refused_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def spend(self: object, size: int) -> None:
        raise AssertionError("something was drawn")

    monkeypatch.setattr(SystemSource, "words", spend)
    X, y = blobs(60)
    good = {**COMMON, "n_public": 60, "batch_size": 20}
    for kind, bad, error, match in (
        (DPSGDClassifier, {"epsilon": 0.0}, BudgetError, "epsilon must be"),
        (DPSGDClassifier, {"delta": 1.5}, BudgetError, "delta must be between 0 and 1"),
        (DPSGDClassifier, {"x_bound": None}, BudgetError, "x_bound must be a positive"),
        (DPSGDClassifier, {"x_bound": -1.0}, BudgetError, "x_bound must be a positive"),
        (DPSGDClassifier, {"classes": None}, BudgetError, "classes must be declared"),
        (DPSGDClassifier, {"classes": "guess"}, BudgetError, "classes must be a sequence"),
        (DPSGDClassifier, {"classes": (0, 1)}, DataError, "classes must be of the type of y"),
        (DPSGDClassifier, {"classes": ("a", "a", "b")}, DataError, "different labels"),
        (DPSGDClassifier, {"classes": ("a",)}, DataError, "two or more"),
        (DPSGDClassifier, {"n_public": None}, BudgetError, "n_public must be given"),
        (DPSGDClassifier, {"loss": "square"}, MechanismError, "loss must be"),
        (DPSGDClassifier, {"sampling": "lucky"}, MechanismError, "sampling must be"),
        (DPSGDClassifier, {"clip_norm": 0.0}, BudgetError, "clip_norm must be"),
    ):
        with pytest.raises(error, match=match):
            kind(**(good | bad)).fit(X, y)
    del good["batch_size"]
    for bad, error, match in (
        ({"method": "magic"}, MechanismError, "method must be"),
        ({"method": "objective", "C": 1e9}, BudgetError, "penalty must be above"),
        ({"method": "objective", "C": -1.0}, BudgetError, "C must be a positive"),
        ({"method": "objective", "epsilon": -1.0}, BudgetError, "epsilon"),
        ({"method": "output", "classes": ("a", "b", "c")}, MechanismError, "more than two"),
        ({"method": "descent", "n_public": None}, BudgetError, "n_public must be given"),
    ):
        with pytest.raises(error, match=match):
            DPLogisticRegression(**(good | bad)).fit(X, y)
