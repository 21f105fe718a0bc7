"""Laws of pools that hold for every size and every seed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pacprivacy.sample import Balanced, Half, Poisson, Pool
from pacprivacy.sample.pool import draw_pool_bits, encode_pool_labels, pool_padding, popcount

# The same examples on every run; no deadline, since machines are shared.
fixed = settings(derandomize=True, deadline=None)

SEEDS = st.integers(0, 2**128 - 1)
SIZES = st.integers(7, 80)
EVEN = st.integers(1, 12).map(lambda pairs: 2 * pairs)

BALANCED = st.builds(Balanced, n_subsets=EVEN, independent=st.booleans())
FOLDS = st.tuples(st.integers(3, 7), st.integers(1, 5)).map(
    lambda drawn: Balanced(n_subsets=drawn[0] * drawn[1], folds=drawn[0])
)
ANY = st.one_of(
    BALANCED,
    FOLDS,
    st.builds(Half, n_subsets=st.integers(2, 24)),
    st.builds(Poisson, n_subsets=st.integers(2, 24), rate=st.floats(0.05, 0.95)),
)


@pytest.mark.claim("P-1")
@fixed
@given(strategy=BALANCED, n=SIZES, seed=SEEDS)
def test_every_unit_is_in_exactly_half_of_a_balanced_pool(strategy, n, seed):
    pool = strategy.draw(n, rng=seed)
    assert (pool.masks().sum(axis=0) == pool.n_subsets // 2).all()
    assert (pool.priors() == 0.5).all()


@pytest.mark.claim("P-1")
@fixed
@given(labels=st.lists(st.integers(0, 3), min_size=2, max_size=30), m=EVEN, seed=SEEDS)
def test_stratified_halves_split_every_stratum_evenly(labels, m, seed):
    strata = np.array(labels * 2 + labels[:1])  # at least two of every label, one stratum odd
    pool = Balanced(n_subsets=m, stratify=True).draw(len(strata), rng=seed, strata=strata)
    masks = pool.masks()
    assert (masks.sum(axis=0) == m // 2).all()
    for label in set(labels):
        both = 2 * masks[:, strata == label].sum(axis=1)
        assert (np.abs(both - (strata == label).sum()) <= 1).all()
    assert (masks[: m // 2].sum(axis=1) == len(strata) // 2).all()


@pytest.mark.claim("P-3")
@fixed
@given(strategy=FOLDS, n=st.integers(7, 80), seed=SEEDS, groups=st.integers(1, 4))
def test_folds_are_disjoint_cover_everybody_and_differ_by_one_unit(strategy, n, seed, groups):
    labels = np.random.default_rng(0).permutation(np.arange(n * groups) % n)
    pool = strategy.draw(n * groups, rng=seed, units=labels)
    k, parts = strategy.folds, strategy.n_subsets // strategy.folds
    outside = ~pool.masks().reshape(k, parts, n)
    assert (outside.sum(axis=0) == 1).all()
    sizes = outside.sum(axis=2)
    assert set(sizes.ravel()) <= {n // k, -(-n // k)}
    for number in range(pool.n_subsets):  # rows of one unit are in or out together
        inside = set(labels[pool.rows(number)].tolist())
        assert len(inside) * groups == len(pool.rows(number))


@pytest.mark.claim("P-3")
@fixed
@given(strategy=FOLDS, rest=st.lists(st.integers(0, 3), max_size=40), seed=SEEDS)
def test_every_class_is_spread_evenly_and_missing_from_no_subset(strategy, rest, seed):
    strata = np.array([0, 0, 1, 1, 2, 2, 2, 3, 3, 3, *rest])  # some have fewer units than folds
    pool = replace(strategy, stratify=True).draw(len(strata), rng=seed, strata=strata)
    outside = ~pool.masks()
    assert (outside.sum(axis=0) == pool.n_subsets // strategy.folds).all()
    for members in (strata == label for label in range(4)):
        total = int(members.sum())
        left_out = outside[:, members].sum(axis=1)
        assert set(left_out) <= {total // strategy.folds, -(-total // strategy.folds)}
        assert (left_out < total).all()
    assert np.ptp(outside.sum(axis=1)) <= 1


@fixed
@given(m=EVEN, n=SIZES, seed=SEEDS)
def test_halves_and_their_complements(m, n, seed):
    pool = Balanced(n_subsets=m).draw(n, rng=seed)
    assert pool.folds == 2
    assert np.array_equal(pool.masks()[m // 2 :], ~pool.masks()[: m // 2])
    assert np.array_equal(pool.sizes(), [n // 2] * (m // 2) + [n - n // 2] * (m // 2))


@fixed
@given(m=st.integers(2, 24), n=SIZES, seed=SEEDS)
def test_halves_have_the_size_of_a_half(m, n, seed):
    assert (Half(n_subsets=m).draw(n, rng=seed).sizes() == n // 2).all()


@pytest.mark.claim("P-2")
@fixed
@given(strategy=ANY, n=SIZES, seed=SEEDS, data=st.data())
def test_priors_are_what_the_masks_say(strategy, n, seed, data):
    pool = strategy.draw(n, rng=seed)
    masks, m = pool.masks(), pool.n_subsets
    inside = masks.sum(axis=0)
    assert np.array_equal(pool.counts(), inside)
    assert np.array_equal(pool.sizes(), masks.sum(axis=1))
    assert np.array_equal(pool.priors(), np.maximum(inside, m - inside) / m)
    assert pool.worst_prior == pool.priors().max()
    logs = np.array(data.draw(st.lists(st.floats(-50, 50), min_size=m, max_size=m)))
    belief = np.exp(logs - logs.max())
    inside = belief @ masks / belief.sum()
    # Sums of at most 24 products in double precision, in another order.
    assert np.allclose(pool.priors(logs), np.maximum(inside, 1 - inside), rtol=0, atol=1e-14)


@pytest.mark.claim("P-2")
@fixed
@given(strategy=ANY, n=SIZES, seed=SEEDS, k=st.integers(0, 23))
def test_a_certain_belief_leaves_nothing_to_guess(strategy, n, seed, k):
    pool = strategy.draw(n, rng=seed)
    logs = np.full(pool.n_subsets, -np.inf)
    logs[k % pool.n_subsets] = 0.0
    assert (pool.priors(logs) == 1.0).all()


@fixed
@given(strategy=ANY, n=SIZES, seed=SEEDS, data=st.data())
def test_slices_are_those_of_the_masks(strategy, n, seed, data):
    pool = strategy.draw(n, rng=seed)
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    assert np.array_equal(pool.inside(slice(start, stop)), pool.masks()[:, start:stop])


@fixed
@given(strategy=ANY, seed=SEEDS, labels=st.lists(st.integers(0, 9), min_size=4, max_size=60))
def test_storage_and_rows(strategy, seed, labels):
    labels = [0, 1, 2, 3, *labels]
    pool = strategy.draw(len(labels), rng=seed, units=labels)
    arrays, metadata = pool.to_arrays()
    again = Pool.from_arrays(arrays, json.loads(json.dumps(metadata)))
    assert again.digest() == pool.digest()
    assert again.seed == pool.seed == seed
    for k in range(pool.n_subsets):
        inside = {labels[row] for row in pool.rows(k)}
        assert pool.rows(k).tolist() == [i for i, label in enumerate(labels) if label in inside]
        assert len(inside) == pool.sizes()[k]


@fixed
@given(n=st.integers(1, 200), seed=st.integers(0, 2**32), data=st.data())
def test_fixed_size_subsets_have_that_size(n, seed, data):
    size = data.draw(st.integers(0, n))
    packed = draw_pool_bits(np.random.default_rng(seed), n, size)
    assert popcount(packed) == size
    assert packed[-1] & pool_padding(n) == 0


@fixed
@given(labels=st.lists(st.text(max_size=3), min_size=1, max_size=40))
def test_encoding_numbers_labels_in_order_and_loses_none(labels):
    codes, n_labels = encode_pool_labels(np.array(labels, dtype=object), len(labels), name="units")
    assert n_labels == len(set(labels))
    assert [list(dict.fromkeys(labels))[code] for code in codes] == labels
