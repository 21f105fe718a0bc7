"""One suite for every mechanism: deterministic, harmless to the data, one structure."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from types import MappingProxyType
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
    Forest,
    LinearSVM,
    Mechanism,
    as_mechanism,
    coerce_data,
    flatten,
    titled_mechanism,
)
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Covariance, Histogram, Mean

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
    "declared histogram": (Histogram(bins=[-1, 0, 1]), X[:, 0]),
    "kmeans by reference": (mechanism.KMeans(n_clusters=2), X),
    "kmeans by label": (mechanism.KMeans(order="labels", n_init=3), (X, Y > 0)),
    "linear svm": (LinearSVM(), (X, np.where(Y > 0, "high", "low"))),
    "svm of three classes": (LinearSVM(C=0.1), (X, np.digitize(Y, [-2, 2]))),
    "forest": (Forest(), (X, np.where(Y > 0, "high", "low"))),
    "deep forest": (Forest(max_depth=5), (X, np.digitize(Y, [-2, 2]))),
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


def test_is_a_mechanism(case: tuple[Mechanism, Any]) -> None:
    mechanism, data = case
    assert isinstance(mechanism, Mechanism)
    assert as_mechanism(mechanism) is mechanism
    assert mechanism.name
    assert all(isinstance(note, str) for note in mechanism.public)
    assert isinstance(mechanism.prepare(data), Mechanism)


class Talkative(Mechanism):
    """A mechanism that replaces every default."""

    name = "Talkative"
    public = ("declared",)
    published = ("labels",)
    model = MappingProxyType({"kind": "pca"})
    totals = "count"
    own_units = True
    prefer = "threads"
    agreement = 0.5
    by_subset = True

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        return parts[0].sum()

    def batch(self, data: Any, pool: Any) -> Any:
        return np.zeros((pool.n_subsets, 1))

    def influence(self, data: Any, units: Any, inside: Any) -> Any:
        return data.parts[0][:, None]

    def finish(self, value: Any) -> Any:
        return {"sum": value}


PARTS = [name for name in vars(Mechanism) if not name.startswith("_")]
OWN = (  # about the wrapper itself
    *("inner", "inner_records", "prepare", "reading_by_entry", "evaluate", "coin_obstacle"),
)
HANDED_ON = [name for name in PARTS if name not in OWN]


@pytest.mark.parametrize("part", HANDED_ON)
def test_a_wrapper_hands_on_what_it_does_not_change(part: str) -> None:
    inner = Talkative()
    wrapped = titled_mechanism(inner, "a title")
    plain = as_mechanism(lambda data: 0.0)
    if part == "name":
        assert wrapped.name == "a title (Talkative)"
        return
    handed, default = getattr(wrapped, part), getattr(plain, part)
    if part == "finish":
        assert (handed(3), default(3)) == ({"sum": 3}, 3)
        return
    assert handed == getattr(inner, part)
    assert handed != default or part == "by_subset"  # a plain function is evaluated one by one


def test_no_part_of_a_mechanism_is_looked_up_by_name() -> None:
    source = Path(mechanism.__file__).parents[1]
    calls = [
        (path.name, ast.unparse(node))
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr")
    ]
    assert len(calls) > 20
    by_name = re.compile(rf"attr\([\w.]*mechanism\b|'({'|'.join(set(PARTS) - {'name'})})'")
    assert [call for call in calls if by_name.search(call[1])] == [
        ("mechanism.py", "hasattr(obj, 'evaluate')")  # two, of what a user passed: no mechanism
    ] * 2


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
    share = POOL.share if mechanism.totals else 1.0  # estimates for everybody
    assert outputs.structure == structure
    assert outputs.public[: len(mechanism.public)] == mechanism.public
    np.testing.assert_allclose(outputs.values[3] * share, vector, rtol=1e-10, atol=1e-14)
    outputs.restore(outputs.values[3])
