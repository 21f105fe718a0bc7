"""One suite for every mechanism: deterministic, harmless to the data, one structure."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pacprivacy import mechanism
from pacprivacy._random import public_generator
from pacprivacy.mechanism import (
    PCA,
    Covariance,
    Forest,
    Histogram,
    LinearSVM,
    Mean,
    Mechanism,
    as_mechanism,
    coerce_data,
    flatten,
)
from pacprivacy.pool import Balanced
from pacprivacy.simulation import run_mechanism

X = np.random.default_rng(0).normal(size=(60, 4))
Y = X @ [1.0, 2.0, 3.0, 4.0]
POOL = Balanced(n_subsets=8).draw(60, rng=0)


def seeded_kmeans(X: np.ndarray, rng: np.random.Generator) -> Any:
    return KMeans(2, n_init=1, random_state=int(rng.integers(2**31))).fit(X)


def ridge(X: np.ndarray, y: np.ndarray) -> Any:
    return make_pipeline(StandardScaler(), Ridge()).fit(X, y)


CASES = {
    "mean": (Mean(), X),
    "covariance": (Covariance(), X),
    "histogram": (Histogram(bins=4, universe_facts=True), X),
    "declared histogram": (Histogram(bins=[-1, 0, 1], density=True), X[:, 0]),
    "kmeans by reference": (mechanism.KMeans(n_clusters=2), X),
    "kmeans in steps": (mechanism.KMeansSteps(n_clusters=2, n_steps=3), X),
    "kmeans by label": (mechanism.KMeans(order="labels", n_init=3), (X, Y > 0)),
    "linear svm": (LinearSVM(), (X, np.where(Y > 0, "high", "low"))),
    "hinge svm": (LinearSVM(loss="hinge", C=0.1), (X, np.digitize(Y, [-2, 2]))),
    "forest": (Forest(), (X, np.where(Y > 0, "high", "low"))),
    "deep forest": (Forest(max_depth=5, reference="universe"), (X, np.digitize(Y, [-2, 2]))),
    "pca": (PCA(n_components=2), X),
    "pca about a public mean": (PCA(n_components=2, center="universe"), X),
    "function": (lambda X: X.std(axis=0), X),
    "seeded estimator": (seeded_kmeans, X),
    "pipeline": (ridge, (X, Y)),
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> tuple[Mechanism, Any]:
    mechanism, data = CASES[request.param]
    record = coerce_data(data)
    return as_mechanism(mechanism).prepare(record), record


def evaluate(case: tuple[Mechanism, Any], k: int) -> Any:
    mechanism, data = case
    return mechanism.evaluate(data.take(POOL.rows(k)), public_generator(0, "mechanism", k))


def test_satisfies_the_protocol(case: tuple[Mechanism, Any]) -> None:
    mechanism, data = case
    assert isinstance(mechanism, Mechanism)
    assert as_mechanism(mechanism) is mechanism
    assert mechanism.name
    assert all(isinstance(note, str) for note in mechanism.public)
    assert isinstance(mechanism.prepare(data), Mechanism)


def test_same_bytes_twice_and_the_data_untouched(case: tuple[Mechanism, Any]) -> None:
    before = case[1].digest()
    first, _ = flatten(evaluate(case, 0))
    second, _ = flatten(evaluate(case, 0))
    assert first.tobytes() == second.tobytes()
    assert case[1].digest() == before


def test_one_structure_for_all_subsets(case: tuple[Mechanism, Any]) -> None:
    structures = [flatten(evaluate(case, k))[1] for k in range(POOL.n_subsets)]
    assert all(structure == structures[0] for structure in structures)


@pytest.mark.claim("M-1")
def test_released_value_depends_on_the_vector_alone(case: tuple[Mechanism, Any]) -> None:
    mechanism, _ = case
    results = [flatten(evaluate(case, k)) for k in range(POOL.n_subsets)]
    _, structure = results[0]
    vector, own = results[5]
    # Restored with the structure of subset 0 or of subset 5: the same bytes.
    texts = [pickle.dumps(mechanism.finish(s.restore(vector))) for s in (structure, own)]
    assert texts[0] == texts[1]


def test_travels_to_workers(case: tuple[Mechanism, Any]) -> None:
    copied = pickle.loads(cloudpickle.dumps(case[0]))
    first, _ = flatten(evaluate(case, 0))
    second, _ = flatten(evaluate((copied, case[1]), 0))
    assert first.tobytes() == second.tobytes()


def test_runs_over_the_pool(case: tuple[Mechanism, Any]) -> None:
    mechanism, data = case
    outputs = run_mechanism(mechanism, data, POOL, rng=0)
    vector, structure = flatten(evaluate(case, 3))
    share = POOL.share if getattr(mechanism, "totals", None) else 1.0  # estimates for everybody
    assert outputs.structure == structure
    assert outputs.public[: len(mechanism.public)] == mechanism.public
    np.testing.assert_allclose(outputs.values[3] * share, vector, rtol=1e-10, atol=1e-14)
    outputs.restore(outputs.values[3])
