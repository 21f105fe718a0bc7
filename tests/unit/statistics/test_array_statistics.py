"""Mean, covariance and histogram: against numpy, and batch against one subset at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from pacprivacy import _checks
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, coerce_data, flatten, subset_sizes
from pacprivacy.sample import Balanced, Poisson, Pool
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Covariance, Histogram, Mean

RNG = np.random.default_rng(0)
X = RNG.normal([100.0, -3.0, 0.0], [1.0, 20.0, 1e-3], size=(101, 3))
SEED = np.random.default_rng(0)


def evaluated(mechanism: Any, data: Data, pool: Pool) -> np.ndarray:
    rows = [data.take(pool.rows(k)) for k in range(pool.n_subsets)]
    return np.stack([flatten(mechanism.evaluate(parts, SEED))[0] for parts in rows])


@pytest.mark.parametrize(
    "mechanism",
    [
        Mean(),
        Covariance(),
        Covariance(ddof=0),
        Histogram(bins=5, universe_facts=True),
        Histogram(bins=7, ranges=(-50.0, 150.0)),
        Histogram(bins=[-100, -3, 0, 0.001, 99, 103]),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "data",
    [X, X[:, 1], pd.DataFrame(X, columns=list("abc")), pl.DataFrame(X), pl.Series(X[:, 0])],
    ids=["matrix", "vector", "pandas", "polars", "series"],
)
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("folds", [2, 6])
def test_batch_agrees_with_evaluate(
    mechanism: Any, data: Any, grouped: bool, folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pacprivacy.mechanism.data._CHUNK_NUMBERS", 600)  # several chunks
    units = RNG.permutation(np.arange(101) // 3) if grouped else None
    pool = Balanced(n_subsets=12, folds=folds).draw(101, rng=1, units=units)
    record = coerce_data(data)
    prepared = mechanism.prepare(record)
    batch = prepared.batch(record, pool)
    single = evaluated(prepared, record, pool)
    # Relative to the largest entry of the column: a mean near zero has no relative accuracy.
    scale = np.abs(single).max(axis=0)
    assert (np.abs(batch - single) <= 1e-10 * scale).all()


def test_an_outlier_in_some_candidates_is_no_disagreement() -> None:
    far = np.append(RNG.gamma(3.0, 50.0, 99), 9e15)
    pool = Balanced(n_subsets=8).draw(100, rng=0)
    for data in (far, far[::-1]):  # in the first candidate, and not in it
        values = run_mechanism(Mean(), data, pool).values[:, 0]
        exact = [data[pool.rows(k)].mean() for k in range(8)]
        assert np.abs(values - exact).max() < 1e-12 * max(exact)


def test_batch_handles_subsets_of_unequal_size() -> None:
    pool = Poisson(rate=0.5, n_subsets=16).draw(101, rng=2)
    record = coerce_data(X)
    assert len(set(pool.sizes().tolist())) > 1
    for mechanism in (Mean(), Covariance()):
        np.testing.assert_allclose(
            mechanism.batch(record, pool), evaluated(mechanism, record, pool), rtol=1e-9
        )


def test_counts_of_all_but_a_fold_are_whole_and_add_up() -> None:
    pool = Balanced(n_subsets=30, folds=5).draw(101, rng=0, units=np.arange(101) // 3)
    record = coerce_data(X[:, 1])
    histogram = Histogram(bins=6, ranges=(-80.0, 80.0)).prepare(record)
    counts = histogram.batch(record, pool).reshape(5, 6, 6)
    everybody = histogram.evaluate(record.parts, SEED)
    # Everybody is missing from one of the five candidates of a partition.
    assert np.array_equal(counts.sum(axis=0), np.tile(4 * everybody, (6, 1)))
    sizes = subset_sizes(pool)
    assert np.array_equal(sizes, [len(pool.rows(k)) for k in range(30)])
    assert len(set(sizes.tolist())) > 1  # the last unit has two rows


def test_mean_of_images_has_the_shape_of_one() -> None:
    images = RNG.normal(size=(20, 2, 3))
    record = coerce_data(images)
    pool = Balanced(n_subsets=4).draw(20, rng=0)
    assert Mean().evaluate((images,), SEED).shape == (2, 3)
    np.testing.assert_allclose(
        Mean().batch(record, pool), evaluated(Mean(), record, pool), rtol=1e-10
    )


def test_covariance_is_that_of_numpy() -> None:
    triangle = Covariance().evaluate((X,), SEED)
    np.testing.assert_allclose(Covariance().finish(triangle), np.cov(X.T), rtol=1e-12)
    np.testing.assert_allclose(
        Covariance(ddof=0).finish(Covariance(ddof=0).evaluate((X,), SEED)),
        np.cov(X.T, ddof=0),
        rtol=1e-12,
    )
    assert Covariance().finish(Covariance().evaluate((X[:, 0],), SEED)).shape == (1, 1)


def test_histogram_is_that_of_numpy() -> None:
    record = coerce_data(X)
    mechanism = Histogram(bins=8, ranges=[(98, 102), (-40, 40), (0, 1)])
    counts = mechanism.prepare(record).evaluate((X,), SEED)
    for column, limits in enumerate([(98, 102), (-40, 40), (0, 1)]):
        wanted, _ = np.histogram(X[:, column], bins=8, range=limits)
        np.testing.assert_allclose(counts[column], wanted, rtol=1e-12)


def test_histogram_edges_are_those_of_the_universe_and_are_named() -> None:
    record = coerce_data(X)
    prepared = Histogram(bins=3, universe_facts=True).prepare(record)
    assert prepared.edges is not None
    np.testing.assert_allclose(
        [(edges[0], edges[-1]) for edges in prepared.edges],
        np.stack([X.min(axis=0), X.max(axis=0)], axis=1),
    )
    assert prepared.evaluate((X,), SEED).sum() == X.size
    assert "all records" in prepared.published[0]
    assert not prepared.public
    assert not Histogram(ranges=(0, 1)).published
    assert "declared" in Histogram(bins=3, ranges=(0, 1)).public[0]
    assert "declared" in Histogram(bins=[0, 1, 2]).public[0]
    assert Mean().public == ()


def test_histogram_of_a_constant_column_has_a_width() -> None:
    record = coerce_data(np.ones(6))
    assert Histogram(bins=2, universe_facts=True).prepare(record).evaluate(
        (np.ones(6),), SEED
    ).tolist() == [0, 6]


def test_a_released_histogram_carries_its_edges() -> None:
    one = Histogram(bins=2, ranges=(0, 4)).prepare(coerce_data(np.arange(8.0)))
    released = one.finish(np.zeros(2))
    assert released["edges"].tolist() == [0, 2, 4]
    assert released["counts"].tolist() == [0, 0]
    two = Histogram(bins=2, universe_facts=True).prepare(coerce_data(X))
    assert two.finish(np.zeros((X.shape[1], 2)))["edges"].shape == (X.shape[1], 3)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: Mean().evaluate((X, X), SEED), "Mean must be given one part; got 2. Pass X alone"),
        (lambda: Mean().evaluate((pd.DataFrame({"a": list("xyz")}),), SEED), "given numbers"),
        (lambda: Covariance().evaluate((np.zeros((4, 2, 2)),), SEED), "got 3 axes"),
        (lambda: Covariance().evaluate((X[:1],), SEED), "must see rows enough in every subset"),
        (lambda: Histogram(), "ranges must be given with a number of bins"),
        (lambda: Histogram(bins=0), "bins must be at least 1; got 0"),
        (lambda: Histogram(bins=[1.0]), "at least two finite edges"),
        (lambda: Histogram(bins=[2.0, 1.0]), "bins must increase"),
        (lambda: Histogram(bins=[1, 2], ranges=(0, 1)), "ranges must be None when bins"),
        (lambda: Histogram(ranges=(1, 0)).prepare(coerce_data(X)), "low < high"),
        (lambda: Histogram(ranges=[(0, 1)] * 2).prepare(coerce_data(X)), "each of 3 columns"),
        (lambda: Histogram(ranges=(0, 1)).evaluate((X,), SEED), r"Call prepare\(data\)"),
    ],
)
def test_misuse_is_explained(action: Any, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        action()


@pytest.mark.parametrize("folds", [2, 4])
def test_rows_that_are_wider_than_a_slab(folds: int) -> None:
    X = np.random.default_rng(0).normal(size=(40, 9001))
    pool = Balanced(n_subsets=8, folds=folds).draw(40, rng=0)
    values = Mean().batch(coerce_data(X), pool)
    np.testing.assert_allclose(values, [X[pool.rows(k)].mean(axis=0) for k in range(8)], atol=1e-13)


def test_spreads_of_columns_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(9, 50)) ** 3
    monkeypatch.setattr(_checks, "_CHUNK_NUMBERS", 70)
    deviation, extent, size = _checks.column_spreads(values)
    assert (deviation == values.std(axis=0)).all()
    assert (extent == np.ptp(values, axis=0)).all()
    assert (size == np.abs(values).max(axis=0)).all()
