"""Logistic regression: the batched fit, and the estimator with both methods."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import pacprivacy as pac
from pacprivacy.design import LogisticFit, Objective
from pacprivacy.design.objective import objective_constant
from pacprivacy.design.ridge import fit_standard_transform
from pacprivacy.errors import MechanismError
from pacprivacy.estimators import PrivateLogisticRegression
from pacprivacy.mechanism import coerce_data
from pacprivacy.sample import Balanced, Poisson

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
@pytest.mark.parametrize("strategy", [Balanced(n_subsets=10), Poisson(n_subsets=10)])
def test_subsets_side_by_side_equal_one_after_another(
    n_classes: int, strategy: Balanced | Poisson, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pacprivacy.design import objective

    data = coerce_data(blobs(n_classes))
    fixed = LogisticFit(n_steps=30).prepare(data)
    pool = strategy.draw(150, rng=0)
    batch = fixed.batch(data, pool)
    rng = np.random.default_rng(0)
    loop = [fixed.evaluate(data.take(pool.rows(k)), rng).ravel() for k in range(10)]
    np.testing.assert_allclose(batch, loop, rtol=1e-8, atol=1e-12)
    assert batch.std(axis=0).min() > 0
    monkeypatch.setattr(objective, "_CELLS_AT_ONCE", 450)  # three subsets at a time
    np.testing.assert_allclose(fixed.batch(data, pool), batch, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_enough_steps_reach_the_optimum(n_classes: int) -> None:
    X, y = blobs(n_classes)
    data = coerce_data((X, y))
    fixed = LogisticFit(penalty=0.2, n_steps=400).prepare(data)
    found = fixed.evaluate(data.parts, np.random.default_rng(0))
    rows = objective_constant(fit_standard_transform(X).apply(X))
    if n_classes == 2:
        targets = np.where(y == "b", 1.0, -1.0)
    else:
        targets = np.where(y[:, None] == ["a", "b", "c"], 1.0, -1.0)
    columns = targets.reshape(len(rows), -1).T
    best = np.stack([Objective(penalty=0.2).minimise(rows, one) for one in columns], axis=1)
    best = best.reshape(rows.shape[1], *targets.shape[1:])
    np.testing.assert_allclose(found, best, atol=1e-8)
    value = fixed.finish(found)
    scores = (X @ value["coef"].T + value["intercept"]).reshape(targets.shape)
    np.testing.assert_allclose(scores, rows @ best, atol=1e-6)


def test_optimum_is_that_of_scikit_learn() -> None:
    X, y = blobs(2)
    fixed = LogisticFit(penalty=0.2, n_steps=400).prepare(coerce_data((X, y)))
    found = fixed.evaluate((X, y), np.random.default_rng(0))
    rows = objective_constant(fit_standard_transform(X).apply(X))
    model = LogisticRegression(C=1 / (0.2 * len(X)), fit_intercept=False, tol=1e-10).fit(rows, y)
    np.testing.assert_allclose(found, model.coef_[0], atol=1e-5)


def test_a_dominant_record_does_not_make_the_steps_diverge() -> None:
    X, y = blobs(2)
    X[0] *= 1000.0  # half of the subsets hold nearly all of the universe's variance
    data = coerce_data((X, y))
    fixed = LogisticFit(penalty=0.01, n_steps=50).prepare(data)
    values = fixed.batch(data, Balanced(n_subsets=32).draw(150, rng=1))
    assert np.abs(values).max() < 20


def test_fits_are_refused_in_words() -> None:
    X, y = blobs(2)
    with pytest.raises(MechanismError, match="penalty must be a positive"):
        LogisticFit(penalty=0.0)
    with pytest.raises(MechanismError, match="n_steps must be a whole number"):
        LogisticFit(n_steps=0)
    with pytest.raises(MechanismError, match="frame must be fixed"):
        LogisticFit().evaluate((X, y), np.random.default_rng(0))
    data = coerce_data((X[:8], np.array(["a"] * 7 + ["b"])))
    with pytest.raises(MechanismError, match="every class in every subset"):
        LogisticFit().prepare(data).batch(data, Balanced(n_subsets=8).draw(8, rng=0))


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
