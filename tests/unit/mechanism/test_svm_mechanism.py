"""Linear SVM: agreement with scikit-learn, prediction from released values, refusals."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import LinearSVM, coerce_data, flatten
from pacprivacy.sample import Balanced, Half
from pacprivacy.simulation import run_mechanism

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 1.0], [0.0, 3.0, -1.0]])
CODES = np.tile([0, 1, 2], 40)
X = CENTRES[CODES] + RNG.normal(size=(120, 3))
NAMES = np.array(["ash", "birch", "cedar"])[CODES]
TWO = np.array(["no", "yes"])[(CODES > 0).astype(int)]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def prepare(X: Any, y: Any, **options: Any) -> LinearSVM:
    return LinearSVM(**options).prepare(coerce_data((X, y)))


# --- what is computed ------------------------------------------------------------------------


@pytest.mark.parametrize("y", [NAMES, TWO])
def test_agrees_with_scikit_learn(y: Any) -> None:
    mechanism = prepare(X, y, C=0.3)
    value = mechanism.evaluate((X[::2], y[::2]), rng())
    model = LinearSVC(C=0.3, dual=False, tol=1e-9, max_iter=10**6).fit(X[::2], y[::2])
    np.testing.assert_allclose(value["coef"], model.coef_, rtol=0, atol=1e-4)
    np.testing.assert_allclose(value["intercept"], model.intercept_, rtol=0, atol=1e-4)
    released = mechanism.finish(value)
    np.testing.assert_array_equal(mechanism.predict(released, X), model.predict(X))


def test_coefficients_and_intercepts_are_all_measured() -> None:
    vector, structure = flatten(prepare(X, NAMES).evaluate((X, NAMES), rng()))
    assert vector.shape == (3 * 3 + 3,)
    assert structure.describe() == "dict('coef': array[3, 3], 'intercept': array[3])"
    vector, structure = flatten(prepare(X, TWO).evaluate((X, TWO), rng()))
    assert structure.describe() == "dict('coef': array[1, 3], 'intercept': array[1])"


def test_the_generator_does_not_matter() -> None:
    mechanism = prepare(X, NAMES)
    first = flatten(mechanism.evaluate((X, NAMES), rng()))[0]
    second = flatten(mechanism.evaluate((X, NAMES), np.random.default_rng(8)))[0]
    assert first.tobytes() == second.tobytes()


def test_a_small_c_stabilises() -> None:
    pool = Balanced(n_subsets=16, stratify=True).draw(120, rng=0, strata=CODES)
    spread = {
        C: run_mechanism(LinearSVM(C=C), (X, NAMES), pool, rng=0).values.std(axis=0).sum()
        for C in (1.0, 1e-4)
    }
    assert spread[1e-4] < spread[1.0] / 10


def test_permuting_the_labels_permutes_the_rows() -> None:
    turned = np.array([2, 0, 1])[CODES]
    plain = prepare(X, CODES).evaluate((X, CODES), rng())
    other = prepare(X, turned).evaluate((X, turned), rng())
    np.testing.assert_allclose(other["coef"][[2, 0, 1]], plain["coef"], atol=1e-9)
    np.testing.assert_allclose(other["intercept"][[2, 0, 1]], plain["intercept"], atol=1e-9)


# --- prediction ------------------------------------------------------------------------------


def test_predicts_the_original_labels() -> None:
    for y in (NAMES, TWO, CODES, CODES > 0, CODES.astype(float)):
        mechanism = prepare(X, y)
        value = mechanism.finish(mechanism.evaluate((X, y), rng()))
        predicted = mechanism.predict(value, X)
        assert predicted.dtype.kind == y.dtype.kind
        assert (predicted == y).mean() > 0.8
        # The released value is enough: the classes are in it.
        np.testing.assert_array_equal(LinearSVM().predict(value, X), predicted)


def test_prediction_uses_the_value_alone() -> None:
    mechanism = prepare(X, TWO)
    value = {"coef": np.array([[1.0, 0.0, 0.0]]), "intercept": np.array([-1.0])}
    points = np.array([[0.0, 9.0, 9.0], [2.0, -9.0, -9.0]])
    assert mechanism.predict(value, points).tolist() == ["no", "yes"]
    assert mechanism.finish(value)["classes"].tolist() == ["no", "yes"]


def test_declared_classes_are_the_order_of_the_rows() -> None:
    mechanism = prepare(X, NAMES, classes=("cedar", "ash", "birch"))
    value = mechanism.evaluate((X, NAMES), rng())
    plain = prepare(X, NAMES).evaluate((X, NAMES), rng())
    np.testing.assert_allclose(value["coef"][[1, 2, 0]], plain["coef"], atol=1e-9)
    assert (mechanism.predict(value, X) == NAMES).mean() > 0.8


def test_frames_are_read() -> None:
    frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    mechanism = prepare(frame, pl.Series("y", NAMES.tolist()))
    value = mechanism.evaluate((frame, pl.Series("y", NAMES.tolist())), rng())
    np.testing.assert_array_equal(
        value["coef"], prepare(X, NAMES).evaluate((X, NAMES), rng())["coef"]
    )
    assert mechanism.predict(value, frame).shape == (120,)


def test_the_classes_are_named_as_published() -> None:
    assert "class labels" in LinearSVM().published[0]


# --- warnings --------------------------------------------------------------------------------


def test_one_warning_for_all_subsets() -> None:
    pool = Balanced(n_subsets=16, stratify=True).draw(120, rng=0, strata=CODES)
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        run_mechanism(LinearSVM(max_iter=1), (X, NAMES), pool, rng=0)
    caught = [entry for entry in log if issubclass(entry.category, ConvergenceWarning)]
    assert len(caught) == 1
    assert "such warnings while running the subsets" in str(caught[0].message)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C must be a positive finite number; got 0.0"),
        ({"C": "strong"}, "C must be a positive finite number"),
        ({"tol": -1.0}, "tol must be a positive finite number"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1"),
        ({"max_iter": 1.5}, "max_iter must be a whole number"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        LinearSVM(**options)


def test_a_class_missing_from_a_subset() -> None:
    rare = np.where(np.arange(120) < 2, "rare", "common")
    pool = Balanced(n_subsets=16).draw(120, rng=0)
    message = r"failed on subset \d+: .*without 1 of them.*stratify=True.*every_class=True"
    with pytest.raises(MechanismError, match=message):
        run_mechanism(LinearSVM(), (X, rare), pool, rng=0)
    pool = Half(n_subsets=16, every_class=True).draw(120, rng=0, strata=rare)
    assert run_mechanism(LinearSVM(), (X, rare), pool, rng=0).values.shape == (16, 4)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (X, np.zeros(120), "at least two classes; got 1"),
        (X, np.linspace(0.0, 1.0, 120), "fractional numbers"),
        (X, np.column_stack([CODES, CODES]), r"one label for each row.*shape \(120, 2\)"),
        (NAMES[:, None], CODES, "must be given numbers"),
        (np.ones((120, 2)), CODES, r"2 constant \(columns 0, 1, counted from 0\)"),
    ],
)
def test_bad_data(features: Any, labels: Any, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        prepare(features, labels)


def test_features_without_labels() -> None:
    with pytest.raises(MechanismError, match=r"got 1 part. Pass the tuple \(X, y\)"):
        LinearSVM().prepare(coerce_data(X))


def test_declared_classes_must_be_those_of_the_universe() -> None:
    for classes in (("ash", "birch"), ("ash", "birch", "oak"), ("ash", "ash", "birch", "cedar")):
        with pytest.raises(MechanismError, match="classes must be the 3 distinct labels"):
            prepare(X, NAMES, classes=classes)


def test_labels_of_another_universe() -> None:
    with pytest.raises(MechanismError, match="got another one"):
        prepare(X, CODES).evaluate((X, CODES + 1), rng())


def test_unprepared() -> None:
    with pytest.raises(MechanismError, match=r"Call prepare\(data\)"):
        LinearSVM().evaluate((X, CODES), rng())
    with pytest.raises(MechanismError, match=r"Call prepare\(data\)"):
        LinearSVM().predict({"coef": np.ones((1, 3)), "intercept": np.zeros(1)}, X)
