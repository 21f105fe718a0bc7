"""Nothing that was fitted without noise, and no record, stays on a private estimator."""

from __future__ import annotations

import copy
import io
import pickle
import struct
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pacprivacy as pac
from pacprivacy.estimators import (
    PrivateEstimator,
    PrivateForestClassifier,
    PrivateKMeans,
    PrivateLinearSVC,
    PrivatePCA,
)
from pacprivacy.release import Bundle

Matrix = npt.NDArray[np.float64]

FAST: dict[str, Any] = {"budget": pac.Information(1.0), "rule": "waterfill", "n_subsets": 16}
MODELS = [
    PrivateEstimator(LogisticRegression(), **FAST),
    PrivateEstimator(make_pipeline(StandardScaler(), Ridge()), **FAST),
    PrivateEstimator(KMeans(2, n_init=1), **FAST),
    PrivateEstimator(PCA(1), **FAST),
    PrivateEstimator(GaussianNB(), **FAST),
    PrivateKMeans(2, **FAST),
    PrivatePCA(1, **FAST),
    PrivateLinearSVC(**FAST),
    PrivateForestClassifier(2, max_depth=2, **FAST),
]


def draw(seed: int) -> tuple[Matrix, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], 20)
    return rng.normal(size=(40, 3)) + 3.0 * y[:, None], y


X, Y = draw(0)


def name_of(model: Any) -> str:
    inner = getattr(model, "estimator", model)
    return f"{type(model).__name__}-{type(inner).__name__}"


def reach(root: Any) -> Iterator[Any]:
    """Everything that can be reached from an object, but not through the curator's bundle."""
    seen: set[int] = set()
    queue = [root]
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type | Bundle):
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, dict):
            queue.extend([*item.keys(), *item.values()])
        elif isinstance(item, list | tuple | set):
            queue.extend(item)
        elif is_dataclass(item):
            queue.extend(getattr(item, f.name, None) for f in fields(item))
        if hasattr(item, "__dict__"):
            queue.extend(vars(item).values())


def numbers_on(model: Any) -> set[float]:
    found: set[float] = set()
    for item in reach(model):
        if isinstance(item, np.ndarray) and item.dtype.kind in "fiub":
            found.update(np.asarray(item, dtype=np.float64).ravel().tolist())
        elif isinstance(item, float | np.floating):
            found.add(float(item))
    return found


def numbers_in(payload: bytes, candidates: set[float]) -> set[float]:
    """Those candidates whose eight bytes occur, in either order (pickle writes both)."""
    return {
        value
        for value in candidates
        if struct.pack("<d", value) in payload or struct.pack(">d", value) in payload
    }


def secrets_of(model: Any) -> set[float]:
    """Entries of records and of un-noised outputs, as far as the outputs differ at all.

    Noise and spread are published with two digits, and so short a number may also be an output.
    """
    outputs = model.release_.bundle.outputs
    varying = outputs[:, np.ptp(outputs, axis=0) > 0]
    found = set(varying.ravel().tolist()) | set(X.ravel().tolist())
    return {value for value in found if float(f"{value:.2g}") != value}


def leaks(model: Any, innocent: Any) -> set[float]:
    """Numbers of the data or of un-noised fits on an object, less those that any fit shows."""
    return (secrets_of(model) & numbers_on(model)) - numbers_on(innocent)


def pickle_leaks(payload: bytes, model: Any, innocent: Any) -> set[float]:
    return numbers_in(payload, secrets_of(model)) - numbers_on(innocent)


@pytest.fixture(scope="module", params=MODELS, ids=name_of)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A fitted estimator, and one of the same kind fitted on other records."""
    return clone(request.param).fit(X, Y), clone(request.param).fit(*draw(1))


@pytest.mark.claim("E-1")
def test_no_record_and_no_unnoised_number_is_on_the_object(pair: tuple[Any, Any]) -> None:
    model, innocent = pair
    assert model.certificate_.noise.n_directions > 0
    assert not leaks(model, innocent)


@pytest.mark.claim("E-1")
def test_no_record_and_no_unnoised_number_is_in_a_pickle(pair: tuple[Any, Any]) -> None:
    model, innocent = pair
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    for payload in (pickle.dumps(model), pickle.dumps(model, protocol=2), buffer.getvalue()):
        assert not pickle_leaks(payload, model, innocent)
        assert b"Bundle" not in payload
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert not hasattr(other, "release_")
        assert other.certificate_ == model.certificate_


@pytest.mark.claim("E-1")
def test_attributes_are_those_that_are_documented(pair: tuple[Any, Any]) -> None:
    model = pair[0]
    parameters = set(model.get_params(deep=False))
    released = {"estimator_"}
    if not isinstance(model, PrivateEstimator):
        released = set(model._attributes(model.release_.value))
    shown = set(vars(model)) - parameters
    assert shown == {"certificate_", "release_", "n_features_in_"} | released


def test_the_object_shows_the_released_value(pair: tuple[Any, Any]) -> None:
    model = pair[0]
    if isinstance(model, PrivateEstimator):
        assert model.estimator_ is model.release_.value
    else:
        for name, value in model._attributes(model.release_.value).items():
            np.testing.assert_array_equal(getattr(model, name), value)
    text = repr(model) + str(model.certificate_) + str(model.release_)
    assert not [value for value in X.ravel().tolist() if repr(value) in text]


def plant_records(model: Any) -> None:
    model.training_ = X


def plant_one_record(model: Any) -> None:
    model.notes_ = {"first": [X[7].copy()]}


def plant_unnoised_fit(model: Any) -> None:
    inner = model.estimator_
    inner.coef_ = model.release_.bundle.outputs[3, : inner.coef_.size].reshape(inner.coef_.shape)


def plant_unnoised_intercept(model: Any) -> None:
    model.estimator_.intercept_ = float(model.release_.bundle.outputs[0, -1])


def plant_bundle(model: Any) -> None:
    model.outputs_ = model.release_.bundle.outputs


@pytest.mark.parametrize(
    "plant",
    [
        plant_records,
        plant_one_record,
        plant_unnoised_fit,
        plant_unnoised_intercept,
        plant_bundle,
    ],
)
def test_planted_leaks_are_found(plant: Any) -> None:
    target = X.sum(axis=1)
    model = PrivateEstimator(Ridge(), **FAST).fit(X, target)
    other = draw(1)[0]
    innocent = clone(model).fit(other, other.sum(axis=1))
    assert not leaks(model, innocent)
    assert not pickle_leaks(pickle.dumps(model), model, innocent)
    plant(model)
    assert leaks(model, innocent)
    assert pickle_leaks(pickle.dumps(model), model, innocent)


def test_a_pickle_with_the_bundle_would_be_found() -> None:
    model = PrivateKMeans(2, **FAST).fit(X)
    innocent = PrivateKMeans(2, **FAST).fit(draw(1)[0])
    assert pickle_leaks(pickle.dumps(vars(model)), model, innocent)


@pytest.mark.claim("E-1")
def test_a_parameter_that_was_fitted_elsewhere_does_not_travel() -> None:
    fitted = LogisticRegression().fit(X, Y)
    model = PrivateEstimator(fitted, **FAST).fit(X, Y)
    innocent = PrivateEstimator(LogisticRegression(), **FAST).fit(*draw(1))
    payload = pickle.dumps(model)
    assert not numbers_in(payload, set(fitted.coef_.ravel().tolist()))
    assert not pickle_leaks(payload, model, innocent)
    assert not hasattr(pickle.loads(payload).estimator, "coef_")
    assert pickle.loads(payload).estimator.get_params() == fitted.get_params()
    assert hasattr(fitted, "coef_")  # the caller's own object is left alone


@pytest.mark.claim("E-1")
def test_a_drawn_pool_stays_with_the_curator() -> None:
    pool = pac.Balanced(n_subsets=16).draw(40, rng=0)
    model = PrivateKMeans(2, budget=pac.Information(1.0), rule="waterfill", sample=pool)
    assert pickle.loads(pickle.dumps(model)).sample is not None  # unfitted: on its way to a worker
    model.fit(X)
    assert pickle.loads(pickle.dumps(model)).sample is None
    assert model.sample is pool
    assert pool.bits.tobytes() not in pickle.dumps(model)


def test_the_certificate_holds_the_budget() -> None:
    model = PrivateEstimator(Ridge(), budget=pac.Membership(0.75), n_subsets=16).fit(
        X, X.sum(axis=1)
    )
    assert model.certificate_.membership_bound <= 0.75
    assert model.certificate_.kind == "exact"
    assert not model.certificate_.simulation
    pac.verify(model.certificate_, model.release_.bundle)  # raises unless it follows


def test_a_simulation_is_flagged_on_everything_that_travels() -> None:
    model = PrivateKMeans(2, **FAST, simulate=True, random_state=0).fit(X)
    other = pickle.loads(pickle.dumps(model))
    assert other.certificate_.simulation
    assert "protects nobody" in str(other.certificate_)
