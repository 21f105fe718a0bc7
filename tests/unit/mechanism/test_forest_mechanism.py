"""The forest: against a plain loop over nodes, thresholds and rows; totality; refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import RandomForestClassifier

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Forest, coerce_data, flatten
from pacprivacy.mechanism.forest import bin_forest_columns, forest_grids
from pacprivacy.sample import Balanced, Poisson
from pacprivacy.simulation import run_mechanism

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(80, 4)), 2) * [1.0, 10.0, 1e-3, 1e6]
Y = np.digitize(X[:, 0] + X[:, 1] / 10 + RNG.normal(size=80), [-1.0, 1.0])
DATA = coerce_data((X, Y))
NAMED = np.array(["low", "mid", "top"])[Y]


def fit(forest: Forest, X: Any = X, y: Any = Y) -> dict[str, Any]:
    return forest.evaluate((X, y), np.random.default_rng(0))


# --- the plain loop -------------------------------------------------------------------------


def plain_entropy(labels: list[int]) -> float:
    shares = [labels.count(label) / len(labels) for label in set(labels)]
    return -sum(share * math.log(share) for share in shares)


def plain_choice(column: list[float], labels: list[int], node: dict[str, Any]) -> int:
    forest, grid, reference = node["forest"], node["grid"], node["reference"]
    left_over = []
    for threshold in grid:
        sides: tuple[list[int], list[int]] = ([], [])
        for value, label in zip(column, labels, strict=True):
            sides[value >= threshold].append(label)
        nats = sum(len(side) * plain_entropy(side) for side in sides if side)
        size = node["n_rows"] if forest.weigh_nodes else len(labels)
        left_over.append(nats / size if labels else 0.0)
    keys = []
    for g, own in enumerate(left_over):
        near = range(max(0, g - 1), g + 2)
        others = [left_over[k] for k in near if k != g and k < len(grid)]
        weight = forest.neighbour_weight if others else 0.0
        mean = sum(others) / len(others) if others else 0.0
        score = (1 - forest.pull) * ((1 - weight) * own + weight * mean)
        score += forest.pull * abs(g - reference) / (len(grid) - 1)
        keys.append((round(score, 11), abs(g - reference), g))
    return min(keys)[2]


def plain_forest(forest: Forest, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Grow every node by itself, in Python, from rows and not from counts."""
    layout = forest.layout
    assert layout is not None
    codes = [layout.classes.tolist().index(label) for label in y.tolist()]
    n_classes = len(layout.classes)
    thresholds, leaves = [], []
    for tree, features in enumerate(layout.features.tolist()):
        level, chosen = [list(range(len(y)))], []
        for feature in features:
            fractions = [g / (forest.n_thresholds - 1) for g in range(forest.n_thresholds)]
            grid = [float(layout.low[feature] + f * layout.width[feature]) for f in fractions]
            below = []
            for rows in level:
                column = [float(X[i, feature]) for i in rows]
                node = {"forest": forest, "grid": grid, "n_rows": len(y)}
                node["reference"] = int(layout.reference[tree, len(chosen)])
                g = plain_choice(column, [codes[i] for i in rows], node)
                chosen.append(g)
                below.append([i for i in rows if X[i, feature] < grid[g]])
                below.append([i for i in rows if X[i, feature] >= grid[g]])
            level = below
        thresholds.append([g / (forest.n_thresholds - 1) for g in chosen])
        leaves.append([plain_scores([codes[i] for i in rows], forest, n_classes) for rows in level])
    return {"thresholds": np.array(thresholds), "leaves": np.array(leaves)}


def plain_scores(labels: list[int], forest: Forest, n_classes: int) -> list[float]:
    total = len(labels) + forest.smoothing
    if total == 0:
        return [1 / n_classes] * n_classes
    return [(labels.count(c) + forest.smoothing / n_classes) / total for c in range(n_classes)]


VARIANTS = {
    "default": Forest(),
    "plain entropy": Forest(neighbour_weight=0.0, pull=0.0),
    "published rule": Forest(
        n_thresholds=101, neighbour_weight=0.49, pull=0.35, weigh_nodes=False, reference="low"
    ),
    "neighbours alone": Forest(n_thresholds=9, neighbour_weight=0.9),
    "two points": Forest(n_thresholds=2, neighbour_weight=1.0),
    "half pulled": Forest(pull=0.5, smoothing=0.0),
    "deep": Forest(n_estimators=2, max_depth=6, smoothing=0.0, weigh_nodes=False),
    "declared": Forest(
        n_estimators=2,
        max_depth=2,
        ranges=((-1.0, 1.0), (-9.0, 9.0), (-1e-3, 2e-3), (0.0, 1e6)),
        classes=(2, 0, 1),
    ),
}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("n_rows", [80, 37, 3, 1])
def test_equals_a_plain_loop_over_nodes_and_thresholds(variant: str, n_rows: int) -> None:
    forest = VARIANTS[variant].prepare(DATA)
    rows = np.random.default_rng(n_rows).permutation(80)[:n_rows]
    value, plain = fit(forest, X[rows], Y[rows]), plain_forest(forest, X[rows], Y[rows])
    np.testing.assert_array_equal(value["thresholds"], plain["thresholds"])
    np.testing.assert_array_equal(value["leaves"], plain["leaves"])


def test_the_stabilisers_change_the_choice() -> None:
    plain = fit(VARIANTS["plain entropy"].prepare(DATA))["thresholds"]
    for other in (Forest(pull=0.0), Forest(neighbour_weight=0.0, pull=0.3), Forest()):
        assert (fit(other.prepare(DATA))["thresholds"] != plain).any()


def test_pull_brings_the_subsets_together() -> None:
    pool = Balanced(n_subsets=32).draw(80, rng=0)
    spread = []
    for pull in (0.0, 0.1, 0.5, 1.0):
        forest = Forest(pull=pull).prepare(DATA)
        values = [fit(forest, *DATA.take(pool.rows(k)))["thresholds"] for k in range(32)]
        spread.append(float(np.ptp(values, axis=0).sum()))
    assert spread == sorted(spread, reverse=True)
    assert spread[0] > 1.0
    assert spread[-1] == 0.0


# --- binning and routing --------------------------------------------------------------------


@given(
    low=st.floats(-1e12, 1e12),
    width=st.floats(1e-6, 1e12),
    n_thresholds=st.integers(2, 300),
    seed=st.integers(0, 2**32 - 1),
)
def test_bins_count_the_points_that_are_not_above(
    low: float, width: float, n_thresholds: int, seed: int
) -> None:
    # Grids finer than the floats around `low` are among these.
    high = low + width
    if not high > low:
        return
    grids = forest_grids(np.array([low]), np.array([high - low]), n_thresholds)
    grid = grids[0]
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.uniform(low - width, high + width, 40), grid, [low, high]])
    near = np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)])
    bins = bin_forest_columns(near[:, None], grids)[0]
    assert bins.tolist() == [int((grid <= value).sum()) for value in near]


def test_released_thresholds_send_the_rows_where_they_were_counted() -> None:
    forest = Forest(smoothing=0.0, max_depth=4).prepare(DATA)
    value = fit(forest)
    released = forest.finish(value)
    scores = forest.scores(released, X)
    # A row of a leaf has that leaf's shares in every tree: sum of them is the mean of shares.
    expected = np.zeros((80, 3))
    for tree in range(3):
        node = np.zeros(80, dtype=int)
        for feature in released["features"][tree]:
            node = 2 * node + 1 + (X[:, feature] >= released["thresholds"][tree, node])
        for leaf in np.unique(node):
            counts = np.bincount(Y[node == leaf], minlength=3)
            np.testing.assert_allclose(value["leaves"][tree, leaf - 15], counts / counts.sum())
            expected[node == leaf] += counts / counts.sum() / 3
    np.testing.assert_allclose(scores, expected)


def test_thresholds_are_measured_in_fractions_and_released_in_units() -> None:
    forest = Forest(universe_facts=True).prepare(DATA)
    value = fit(forest)
    assert 0.0 <= value["thresholds"].min() <= value["thresholds"].max() <= 1.0
    released = forest.finish(value)
    columns = np.repeat(released["features"], [1, 2, 4], axis=1)
    assert (released["thresholds"] >= X.min(axis=0)[columns]).all()
    assert (released["thresholds"] <= X.max(axis=0)[columns] * (1 + 1e-12)).all()
    wider = forest.finish({**value, "thresholds": value["thresholds"] + 1.0})
    np.testing.assert_allclose(
        wider["thresholds"] - released["thresholds"], np.ptp(X, axis=0)[columns]
    )


def test_ranges_that_nobody_declared_are_coarse_and_hold_nearly_all_rows() -> None:
    rng = np.random.default_rng(0)
    wild = np.column_stack([rng.normal(1e6, 3.0, 400), rng.lognormal(size=400), np.arange(400) % 2])
    wild[7, 1] = 1e9  # one record must not set the range
    forest = Forest().prepare(coerce_data((wild, np.arange(400) % 3)))
    assert forest.layout is not None
    low, width = forest.layout.low, forest.layout.width
    assert ((wild < low) | (wild > low + width)).mean(axis=0).max() <= 0.025
    central = np.ptp(np.quantile(wild, (0.01, 0.99), axis=0), axis=0)
    assert (width <= 1.6 * central).all()
    steps = 2.0 ** np.ceil(np.log2(central)) / 8
    assert (np.mod(low, steps) == 0).all()
    assert (np.mod(width, steps) == 0).all()


# --- what is measured -----------------------------------------------------------------------


@pytest.mark.claim("M-3")
def test_every_leaf_score_is_a_coordinate_of_the_measured_vector() -> None:
    forest = Forest(n_estimators=2, max_depth=2).prepare(DATA)
    value = fit(forest)
    vector, structure = flatten(value)
    assert vector.size == 2 * (3 + 4 * 3)
    moved = {key: array.copy() for key, array in value.items()}
    for key, array in value.items():
        for place in np.ndindex(array.shape):
            moved[key][place] += 1.0
            other, same = flatten(moved)
            assert np.count_nonzero(other != vector) == 1, (key, place)
            assert same == structure
            moved[key][place] = array[place]


@pytest.mark.claim("M-3")
def test_the_structure_tells_nothing_and_the_rest_of_the_release_is_public() -> None:
    pool = Balanced(n_subsets=16).draw(80, rng=1)
    forest = Forest(n_estimators=2, max_depth=2).prepare(DATA)
    values = [fit(forest, *DATA.take(pool.rows(k))) for k in range(16)]
    structures = [flatten(value)[1] for value in values]
    assert all(structure == structures[0] for structure in structures)
    zero = {key: np.zeros_like(array) for key, array in values[0].items()}
    for key in ("features", "classes"):
        public = forest.finish(zero)[key]
        assert all(np.array_equal(forest.finish(value)[key], public) for value in values)


@pytest.mark.claim("M-3")
def test_no_subset_fails() -> None:
    forest = Forest(max_depth=5, smoothing=0.0).prepare(DATA)
    for rows in (np.flatnonzero(Y == 1), np.array([], dtype=np.int64), np.array([4])):
        value = fit(forest, X[rows], Y[rows])
        assert np.isfinite(value["leaves"]).all()
        np.testing.assert_allclose(value["leaves"].sum(axis=2), 1.0)
    empty = fit(forest, X[:0], Y[:0])
    np.testing.assert_array_equal(empty["leaves"], 1 / 3)
    np.testing.assert_array_equal(empty["thresholds"], 15 / 31)


def test_a_pure_or_empty_node_takes_the_reference() -> None:
    forest = Forest(reference="low", pull=0.2).prepare(DATA)
    assert forest.layout is not None
    one_class = fit(forest, X[Y == 1], Y[Y == 1])
    np.testing.assert_array_equal(one_class["thresholds"], forest.layout.reference / 31)


def test_what_the_universe_fixed_is_named() -> None:
    exact = Forest(universe_facts=True).published
    assert any("minimum and maximum of every feature" in text for text in exact)
    assert any("class labels" in text for text in Forest().published)
    assert not any("reference" in text or "minimum" in text for text in Forest().published)
    declared = Forest(ranges=((0, 1),), classes=(0, 1))
    assert not declared.published
    assert not any("universe" in text for text in declared.public)


# --- the same result, whatever the order and the route ---------------------------------------


def test_does_not_depend_on_the_order_of_the_rows() -> None:
    forest = Forest(max_depth=4).prepare(DATA)
    order = np.random.default_rng(3).permutation(80)
    assert (
        flatten(fit(forest))[0].tobytes() == flatten(fit(forest, X[order], Y[order]))[0].tobytes()
    )


def test_does_not_depend_on_the_units_of_a_feature() -> None:
    # Powers of two scale without rounding, so every bin is the same.
    scale = np.array([4.0, 0.5, 1024.0, 2.0**-20])
    forest = Forest(max_depth=4).prepare(DATA)
    other = Forest(max_depth=4).prepare(coerce_data((X * scale, Y)))
    assert flatten(fit(forest))[0].tobytes() == flatten(fit(other, X * scale))[0].tobytes()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("strategy", [Balanced(n_subsets=12), Poisson(n_subsets=12, rate=0.1)])
def test_all_subsets_at_once_equal_one_by_one(variant: str, strategy: Any) -> None:
    pool = strategy.draw(80, rng=2)
    outputs = run_mechanism(VARIANTS[variant], (X, Y), pool)
    forest = VARIANTS[variant].prepare(DATA)
    for k in range(12):
        alone = flatten(fit(forest, *DATA.take(pool.rows(k))))[0]
        assert outputs.values[k].tobytes() == alone.tobytes()


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Balanced(n_subsets=24).draw(80, rng=2)
    whole = run_mechanism(Forest(), (X, Y), pool).values
    monkeypatch.setattr("pacprivacy.mechanism.forest._CHUNK", 1)
    assert run_mechanism(Forest(), (X, Y), pool).values.tobytes() == whole.tobytes()


def test_the_seed_fixes_the_features() -> None:
    def features(**settings: Any) -> np.ndarray:
        layout = Forest(n_estimators=6, **settings).prepare(DATA).layout
        assert layout is not None
        return layout.features

    np.testing.assert_array_equal(features(seed=1), features(seed=1))
    assert (features(seed=1) != features(seed=2)).any()
    assert all(len(set(line)) == 3 for line in features(seed=1).tolist())
    deep = features(max_depth=8)
    assert all(set(line[:4]) == set(line[4:]) == {0, 1, 2, 3} for line in deep.tolist())


# --- containers and labels ------------------------------------------------------------------


def test_frames_and_string_labels() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    forest = Forest().prepare(coerce_data((frame, pd.Series(NAMED))))
    value = fit(forest, frame, pd.Series(NAMED))
    plain = fit(Forest().prepare(DATA))
    assert flatten(value)[0].tobytes() == flatten(plain)[0].tobytes()
    predicted = forest.predict(forest.finish(value), frame)
    assert set(predicted) <= {"low", "mid", "top"}
    assert (predicted == NAMED).mean() > 0.5


def test_predict_needs_nothing_but_the_released_value() -> None:
    forest = Forest().prepare(DATA)
    released = forest.finish(fit(forest))
    np.testing.assert_array_equal(Forest().predict(released, X), forest.predict(released, X))


def test_declared_classes_only_reorder_the_scores() -> None:
    value = fit(Forest().prepare(DATA))
    other = fit(Forest(classes=(2, 0, 1)).prepare(DATA))
    np.testing.assert_array_equal(value["thresholds"], other["thresholds"])
    np.testing.assert_array_equal(value["leaves"][..., [2, 0, 1]], other["leaves"])


# --- accuracy -------------------------------------------------------------------------------


def held_out(features: Any, labels: Any, n_train: int) -> tuple[float, float]:
    """Mean accuracy of ours and of scikit-learn's forest, on rows that were not fitted.

    Over four seeds: with three trees of three levels the features that are tested matter.
    """
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:n_train], order[n_train:]
    X, y = features[train], labels[train]
    ours, theirs = [], []
    for seed in range(4):
        forest = Forest(seed=seed).prepare(coerce_data((X, y)))
        predicted = forest.predict(forest.finish(fit(forest, X, y)), features[test])
        ours.append((predicted == labels[test]).mean())
        model = RandomForestClassifier(n_estimators=3, max_depth=3, random_state=seed).fit(X, y)
        theirs.append(model.score(features[test], labels[test]))
    return float(np.mean(ours)), float(np.mean(theirs))


@pytest.mark.parametrize(("load", "n_train"), [(load_iris, 100), (load_breast_cancer, 400)])
def test_accuracy_is_that_of_a_forest(load: Any, n_train: int) -> None:
    ours, theirs = held_out(*load(return_X_y=True), n_train)
    assert ours > 0.9
    assert ours > theirs - 0.05


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_depth": 0}, "max_depth must be a whole number of at least 1; got 0"),
        ({"max_depth": 13}, "max_depth must be at most 12; got 13"),
        ({"n_estimators": 0}, "n_estimators must be a whole number of at least 1"),
        ({"n_thresholds": 1}, "n_thresholds must be a whole number of at least 2"),
        ({"n_thresholds": 10**6}, "n_thresholds must be at most 4096"),
        ({"neighbour_weight": 1.5}, "neighbour_weight must be between 0 and 1; got 1.5"),
        ({"pull": -0.1}, "pull must be between 0 and 1; got -0.1"),
        ({"pull": math.nan}, "pull must be between 0 and 1; got nan"),
        ({"smoothing": -1.0}, "smoothing must be a number of rows"),
        ({"smoothing": math.inf}, "smoothing must be a number of rows"),
        ({"reference": "best"}, "reference must be 'low' or 'middle'; got 'best'"),
        ({"ranges": [[0, 1], [2]]}, "ranges must be a table of numbers; got list"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        Forest(**settings)


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        ({}, X, "two parts|features and labels"),
        ({}, (X, Y / 3.0), "class labels; got fractional numbers"),
        ({}, (X, np.zeros(80)), "at least two classes; got 1"),
        ({}, (X.astype(str), Y), "must be given numbers"),
        (
            {},
            (np.where([True, False, True, True], X, 5.0), Y),
            "features that vary; got 1 constant",
        ),
        ({"classes": (0, 1)}, (X, Y), "classes must be the 3 distinct labels"),
        ({"classes": (0, 1, 2, 3)}, (X, Y), "classes must be the 3 distinct labels"),
        ({"ranges": ((0, 1),)}, (X, Y), "for each of 4 columns"),
        ({"ranges": ((0, 1), (0, 1), (1, 1), (0, 1))}, (X, Y), "pair low < high"),
        ({"ranges": ((-1e308, 1e308),) * 4}, (X, Y), "ranges must be finite"),
        ({}, (X * 1e-300, Y), "wider than 1e-290"),
    ],
)
def test_data_is_checked(settings: dict[str, Any], data: Any, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        Forest(**settings).prepare(coerce_data(data))


def test_use_out_of_order_is_refused() -> None:
    with pytest.raises(MechanismError, match=r"Call prepare\(data\)"):
        fit(Forest())
    forest = Forest().prepare(DATA)
    with pytest.raises(MechanismError, match="X must have 4 columns; got 3"):
        fit(forest, X[:, :3])
    with pytest.raises(MechanismError, match="labels of all records only"):
        fit(forest, X, Y + 1)
    with pytest.raises(MechanismError, match="Pass what finish returns"):
        forest.predict(fit(forest), X)
    with pytest.raises(MechanismError, match="X must have at least"):
        forest.predict(forest.finish(fit(forest)), X[:, :1])


def test_errors_and_repr_show_no_data() -> None:
    forest = Forest(n_estimators=2).prepare(DATA)
    assert "layout" not in repr(forest)
    odd = np.where(np.arange(80) == 7, 123456789, Y)
    with pytest.raises(MechanismError) as caught:
        fit(forest, X, odd)
    assert "123456789" not in str(caught.value)
