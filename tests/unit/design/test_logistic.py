"""Logistic regression: the batched fit, and the estimator with both methods."""

from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.design import LogisticFit
from pacprivacy.design.ridge import fit_standard_transform
from pacprivacy.errors import MechanismError
from pacprivacy.estimators import PrivateLogisticRegression
from pacprivacy.mechanism import coerce_data
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism

SETTINGS: dict[str, Any] = {
    "budget": pac.Information(0.5),
    "rule": "waterfill",
    "n_subsets": 16,
    "random_state": 0,
    "simulate": True,
}


def blobs(n_classes: int, n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    centres = generator.normal(size=(n_classes, 3)) * 3
    X = (centres[codes] + generator.normal(size=(n, 3))) * [1.0, 10.0, 0.1] + 4.0
    return X, np.array(["a", "b", "c", "d"])[codes]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_fit_is_the_optimum_on_standardised_features(n_classes: int) -> None:
    X, y = blobs(n_classes)
    fixed = LogisticFit(penalty=0.2).prepare(coerce_data((X, y)))
    used = np.arange(75)
    found = fixed.evaluate((X[used], y[used]), np.random.default_rng(0))
    rows = np.hstack([fit_standard_transform(X).apply(X)[used], np.ones((len(used), 1))])
    scores = rows @ found.T
    if n_classes == 2:
        scores = np.hstack([np.zeros_like(scores), scores])
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    truth = (y[used, None] == ["a", "b", "c"][:n_classes]).astype(float)
    slopes = (chances - truth)[:, -len(found) :]
    np.testing.assert_allclose(slopes.T @ rows / len(rows) + 0.2 * found, 0.0, atol=1e-7)
    value = fixed.finish(found)
    released = X[used] @ value["coef"].T + value["intercept"]
    np.testing.assert_allclose(released, rows @ found.T, atol=1e-9)


def test_fits_are_refused_in_words() -> None:
    X, y = blobs(2)
    with pytest.raises(MechanismError, match="penalty must be a positive"):
        LogisticFit(penalty=0.0)
    with pytest.raises(MechanismError, match="classes must be fixed"):
        LogisticFit().evaluate((X, y), np.random.default_rng(0))
    data = coerce_data((X[:8], np.array(["a"] * 7 + ["b"])))
    with pytest.raises(MechanismError, match="class"):
        run_mechanism(LogisticFit(), data, Balanced(n_subsets=8).draw(8, rng=0))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_estimator_fits_and_predicts(n_classes: int) -> None:
    X, y = blobs(n_classes, n=600)
    model = PrivateLogisticRegression(**SETTINGS).fit(X, y)
    assert model.score(X, y) > 0.7
    assert list(model.classes_) == ["a", "b", "c"][:n_classes]
    n_rows = 1 if n_classes == 2 else n_classes
    assert model.coef_.shape == (n_rows, 3)
    assert model.intercept_.shape == (n_rows,)
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(X)).mean() > 0.99
    assert model.certificate_.mi_upper_nats <= 0.5
    public = " ".join(model.certificate_.public)
    assert "means and standard deviations" in public
    assert "class labels" in model.certificate_.published[-1]


def test_estimator_with_groups_of_rows() -> None:
    X, y = blobs(2, n=160)
    units = np.repeat(np.arange(80), 2)
    model = PrivateLogisticRegression(**SETTINGS).fit(X, y, units=units)
    assert model.certificate_.n_units == 80
