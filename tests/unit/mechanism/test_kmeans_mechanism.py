"""k-means: canonical order, starts, agreement with scikit-learn, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import KMeans, coerce_data, flatten
from pacprivacy.mechanism.kmeans import (
    draw_kmeans_start,
    match_kmeans_rows,
    order_kmeans_by_label,
    run_lloyd,
)
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 1.0], [0.0, 4.0, 2.0]])
CODES = np.repeat([0, 1, 2], 40)
X = CENTRES[CODES] + RNG.normal(scale=0.7, size=(120, 3)) + 1000.0
NAMES = np.array(["ash", "birch", "cedar"])[CODES]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def prepare(*parts: Any, **options: Any) -> KMeans:
    data = coerce_data(parts if len(parts) > 1 else parts[0])
    return KMeans(**options).prepare(data)


# --- what is computed ------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"n_init": 6}, {"warm_start": False, "n_init": 5}])
def test_finds_what_scikit_learn_finds(options: dict[str, Any]) -> None:
    subset = X[::2]
    centres = prepare(X, n_clusters=3, **options).evaluate((subset,), rng())
    expected = sklearn.cluster.KMeans(3, n_init=10, random_state=0, tol=0.0).fit(subset)
    np.testing.assert_allclose(
        centres, match_kmeans_rows(expected.cluster_centers_, centres), rtol=0, atol=1e-9
    )


def test_the_value_is_the_centres_and_nothing_else() -> None:
    vector, structure = flatten(prepare(X, n_clusters=3).evaluate((X[::2],), rng()))
    assert vector.shape == (9,)
    assert structure.describe() == "array[3, 3]"


def test_centres_are_means_of_their_nearest_rows() -> None:
    mechanism = prepare(X, n_clusters=4)
    centres = mechanism.evaluate((X[1::2],), rng())
    nearest = mechanism.predict(centres, X[1::2])
    for cluster in range(4):
        np.testing.assert_allclose(centres[cluster], X[1::2][nearest == cluster].mean(axis=0))


def test_warm_start_keeps_the_local_optimum_and_restarts_may_leave_it() -> None:
    points = np.array([[0.0], [0.1], [10.0], [10.1], [10.3], [10.4], [30.0], [30.1]])
    bad = np.array([[0.05], [0.1], [17.0]])
    stuck = run_lloyd(points - 12.0, bad - 12.0, max_iter=100)
    free = [run_lloyd(points - 12.0, draw_kmeans_start(points, 3, rng()) - 12.0, max_iter=100)]
    assert free[0].inertia < stuck.inertia / 10
    mechanism = prepare(points, n_clusters=3)
    assert mechanism.reference is not None
    object.__setattr__(mechanism, "reference", bad)
    warm = mechanism.evaluate((points,), rng())
    object.__setattr__(mechanism, "n_init", 6)
    restarted = mechanism.evaluate((points,), rng())
    assert abs(warm[2, 0] - 30.05) > 1
    np.testing.assert_allclose(np.sort(restarted[:, 0]), [0.05, 10.2, 30.05])


def test_an_emptied_cluster_starts_again_at_the_farthest_row() -> None:
    points = np.array([[-1.0], [-0.9], [0.0], [0.1], [5.0]])
    start = np.array([[0.0], [100.0], [-100.0]])
    fit = run_lloyd(points, start, max_iter=100)
    assert sorted(np.bincount(fit.labels, minlength=3).tolist()) == [1, 2, 2]
    np.testing.assert_allclose(np.sort(fit.centres[:, 0]), [-0.95, 0.05, 5.0])


def test_random_starts_are_rows_far_from_each_other() -> None:
    start = draw_kmeans_start(X - X.mean(axis=0), 3, rng())
    assert {tuple(row) for row in start} <= {tuple(row) for row in X - X.mean(axis=0)}
    gaps = np.linalg.norm(start[:, None] - start[None], axis=2)[np.triu_indices(3, 1)]
    assert gaps.min() > 2.0


# --- order -----------------------------------------------------------------------------------


def test_order_of_rows_does_not_matter() -> None:
    mechanism = prepare(X, n_clusters=3)
    shuffled = np.random.default_rng(1).permutation(X[::2])
    first = mechanism.evaluate((X[::2],), rng())
    np.testing.assert_allclose(mechanism.evaluate((shuffled,), rng()), first, rtol=1e-12)


def test_every_subset_has_the_order_of_the_universe() -> None:
    pool = Balanced(n_subsets=32).draw(120, rng=0)
    options = {"warm_start": False, "n_init": 3}
    values = run_mechanism(KMeans(n_clusters=3, **options), X, pool, rng=0).values
    assert values.std(axis=0).max() < 0.5  # the centres are 4 apart: one swap would show


def test_without_a_canonical_order_the_spread_is_that_of_the_swaps() -> None:
    def plain(data: Any, rng: np.random.Generator) -> Any:
        seed = int(rng.integers(2**31))
        return sklearn.cluster.KMeans(3, n_init=1, random_state=seed).fit(data).cluster_centers_

    pool = Balanced(n_subsets=32).draw(120, rng=0)
    assert run_mechanism(plain, X, pool, rng=0).values.std(axis=0).max() > 1.0


def test_labels_decide_the_order_whatever_their_names() -> None:
    for permutation in ([0, 1, 2], [2, 0, 1], [1, 0, 2]):
        y = np.array(permutation)[CODES]
        mechanism = prepare(X, y, order="labels")
        centres = mechanism.evaluate((X[::2], y[::2]), rng())
        expected = (CENTRES + 1000.0)[np.argsort(permutation)]
        np.testing.assert_allclose(centres, expected, atol=0.5)
        assert (mechanism.predict(centres, X) == y).mean() > 0.95


def test_permuting_the_labels_permutes_the_rows_exactly() -> None:
    plain = prepare(X, CODES, order="labels").evaluate((X[::2], CODES[::2]), rng())
    turned = np.array([2, 0, 1])[CODES]
    other = prepare(X, turned, order="labels").evaluate((X[::2], turned[::2]), rng())
    np.testing.assert_allclose(other[[2, 0, 1]], plain, rtol=1e-12)


def test_string_labels_come_back() -> None:
    mechanism = prepare(X, NAMES, order="labels")
    centres = mechanism.evaluate((X[::2], NAMES[::2]), rng())
    assert mechanism.classes == ("ash", "birch", "cedar")
    assert (mechanism.predict(centres, X) == NAMES).mean() > 0.95


def test_declared_classes_are_the_order_of_the_rows() -> None:
    mechanism = prepare(X, NAMES, order="labels", classes=("cedar", "ash", "birch"))
    centres = mechanism.evaluate((X[::2], NAMES[::2]), rng())
    np.testing.assert_allclose(centres, CENTRES[[2, 0, 1]] + 1000.0, atol=0.5)


def test_shared_majority_is_settled_by_total_agreement() -> None:
    rows = np.array([[0.0], [1.0], [2.0]])
    # Rows 0 and 1 have the same majority label; row 1 gives it up more cheaply.
    counts = np.array([[9, 1, 0], [8, 7, 0], [0, 0, 5]])
    ordered = order_kmeans_by_label(rows, counts, np.array([[1.0], [0.0], [2.0]]))
    np.testing.assert_array_equal(ordered, rows)


def test_equal_agreement_is_settled_by_the_reference() -> None:
    rows = np.array([[0.0], [1.0]])
    counts = np.array([[3, 3], [3, 3]])
    for reference in (np.array([[0.1], [0.8]]), np.array([[0.8], [0.1]])):
        ordered = order_kmeans_by_label(rows, counts, reference)
        np.testing.assert_array_equal(ordered, np.round(reference))
        np.testing.assert_array_equal(order_kmeans_by_label(rows[::-1], counts, reference), ordered)


def test_frames_are_read() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    mechanism = prepare(frame, pd.Series(NAMES), order="labels")
    from_frame = mechanism.evaluate((frame.iloc[::2], pd.Series(NAMES[::2])), rng())
    np.testing.assert_array_equal(from_frame, mechanism.evaluate((X[::2], NAMES[::2]), rng()))


# --- what is public --------------------------------------------------------------------------


def test_the_reference_is_named_and_cannot_be_written_to() -> None:
    mechanism = prepare(X, NAMES, order="labels")
    assert any("reference centres" in text for text in mechanism.public)
    assert any("class labels" in text for text in mechanism.published)
    assert mechanism.reference is not None
    assert not mechanism.reference.flags.writeable
    assert "reference" not in repr(mechanism).replace("'reference'", "")


def test_preparing_twice_changes_nothing() -> None:
    data = coerce_data((X, NAMES))
    once = KMeans(order="labels").prepare(data)
    twice = once.prepare(data)
    assert once == twice
    np.testing.assert_array_equal(once.reference, twice.reference)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "n_clusters must be given"),
        ({"n_clusters": 0}, "n_clusters must be a whole number of at least 1; got 0"),
        ({"n_clusters": 2.5}, "n_clusters must be a whole number"),
        ({"n_clusters": True}, "n_clusters must be a whole number"),
        ({"n_clusters": 2, "order": "size"}, "order must be 'reference' or 'labels'"),
        ({"n_clusters": 2, "n_init": 0}, "n_init must be a whole number of at least 1"),
        ({"n_clusters": 2, "max_iter": 0}, "max_iter must be"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        KMeans(**options)


def test_more_clusters_than_rows() -> None:
    with pytest.raises(MechanismError, match="got 6 for a subset of 5"):
        prepare(X[:5], n_clusters=6)
    with pytest.raises(MechanismError, match="got 6 for a subset of 4"):
        prepare(X, n_clusters=6).evaluate((X[:4],), rng())


def test_more_clusters_than_distinct_rows() -> None:
    points = np.repeat([[0.0], [1.0], [2.0]], 4, axis=0)
    with pytest.raises(MechanismError, match="stays empty"):
        prepare(points, n_clusters=4)
    with pytest.raises(MechanismError, match="stays empty"):
        prepare(points, n_clusters=3).evaluate((points[:6],), rng())


def test_constant_features() -> None:
    flat = np.column_stack([X, np.ones(120)])
    with pytest.raises(MechanismError, match=r"1 constant \(column 3, counted from 0\)"):
        prepare(flat, n_clusters=2)


def test_string_features() -> None:
    with pytest.raises(MechanismError, match="must be given numbers"):
        prepare(NAMES, n_clusters=2)


def test_labels_and_clusters_must_fit() -> None:
    with pytest.raises(MechanismError, match=r"n_clusters must be the number of classes \(3\)"):
        prepare(X, CODES, order="labels", n_clusters=2)
    with pytest.raises(MechanismError, match="features and labels; got 1 part"):
        prepare(X, order="labels")
    with pytest.raises(MechanismError, match="one part; got 2"):
        prepare(X, CODES, n_clusters=2)
    with pytest.raises(MechanismError, match="fractional numbers"):
        prepare(X, CODES + 0.5, order="labels")
    with pytest.raises(MechanismError, match="at least two classes; got 1"):
        prepare(X, np.zeros(120), order="labels")


def test_a_class_missing_from_a_subset() -> None:
    mechanism = prepare(X, CODES, order="labels")
    with pytest.raises(MechanismError, match=r"without 1 of them.*Balanced\(stratify=True\)"):
        mechanism.evaluate((X[:60], CODES[:60]), rng())


def test_unprepared() -> None:
    with pytest.raises(MechanismError, match=r"Call prepare\(data\)"):
        KMeans(n_clusters=2).evaluate((X,), rng())
    with pytest.raises(MechanismError, match="classes must be known"):
        KMeans(order="labels").predict(CENTRES, X)
