"""One suite for every way of drawing a pool."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import pytest

from pacprivacy.errors import PoolError
from pacprivacy.sample import DEFAULT_SUBSETS, Balanced, Half, Poisson, Pool
from pacprivacy.sample.pool import pool_padding

N = 61
STRATA = np.repeat(["a", "b", "c"], [30, 21, 10])
SEED = 918273645

STRATEGIES = [
    pytest.param(Balanced(n_subsets=16), id="balanced"),
    pytest.param(Balanced(n_subsets=16, independent=True), id="balanced-independent"),
    pytest.param(Balanced(n_subsets=16, stratify=True), id="balanced-stratified"),
    pytest.param(Balanced(n_subsets=16, folds=4), id="folds"),
    pytest.param(Balanced(n_subsets=16, folds=4, stratify=True), id="folds-stratified"),
    pytest.param(Half(n_subsets=16), id="half"),
    pytest.param(Half(n_subsets=16, every_class=True), id="half-every-class"),
    pytest.param(Poisson(n_subsets=16), id="poisson"),
    pytest.param(Poisson(n_subsets=16, rate=0.2), id="poisson-0.2"),
]
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def draw(strategy, rng=SEED, **options):
    return strategy.draw(N, rng=rng, **{"strata": STRATA, **options})


@every_strategy
class TestEveryStrategy:
    def test_draws_a_well_formed_pool(self, strategy):
        pool = draw(strategy)
        assert isinstance(pool, Pool)
        assert pool.bits.shape == (16, 8)
        assert pool.bits.dtype == np.uint8
        assert not pool.bits[:2].flags.writeable
        assert not np.any(pool.bits[:, -1] & pool_padding(N))
        assert (pool.n_subsets, pool.n_units, pool.n_rows) == (16, N, N)
        assert pool.row_units is None
        assert pool.sizes().min() >= 1
        assert pool.sizes().max() < N
        assert 0.5 <= pool.prior < 1.0
        assert pool.worst_prior == pool.priors().max() >= 0.5

    def test_a_seed_fixes_the_pool(self, strategy):
        first, second = draw(strategy), draw(strategy)
        assert first.digest() == second.digest()
        assert first.seed == SEED
        assert draw(strategy, rng=SEED + 1).digest() != first.digest()

    def test_the_recorded_seed_draws_the_pool_again(self, strategy):
        fresh = draw(strategy, rng=None)
        assert draw(strategy, rng=fresh.seed).digest() == fresh.digest()
        assert draw(strategy, rng=None).seed != fresh.seed

    def test_a_generator_is_read_once(self, strategy):
        first, second = np.random.default_rng(7), np.random.default_rng(7)
        assert draw(strategy, rng=first).digest() == draw(strategy, rng=second).digest()
        assert draw(strategy, rng=first).digest() != draw(strategy, rng=7).digest()

    def test_global_random_state_is_left_alone(self, strategy):
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        draw(strategy)
        assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002

    def test_every_row_of_a_unit_is_in_or_out_together(self, strategy):
        units = np.array([f"person {i // 3}" for i in range(N)])
        strata = np.repeat(["a", "b"], [30, 31])
        pool = draw(strategy, units=units, strata=strata)
        assert pool.n_units == 21
        assert pool.n_rows == N
        for k in range(pool.n_subsets):
            chosen = pool.row_mask(k)
            assert not set(units[chosen]) & set(units[~chosen])
            assert np.array_equal(pool.rows(k), np.flatnonzero(chosen))
            assert len(set(units[chosen])) == pool.sizes()[k]

    def test_units_of_one_row_each_change_nothing(self, strategy):
        grouped = draw(strategy, units=np.arange(N)[::-1])
        assert np.array_equal(grouped.masks(), draw(strategy).masks())

    def test_what_is_shown_is_public(self, strategy):
        pool = draw(strategy, units=np.arange(N) // 2, strata=np.zeros(N))
        shown = repr(pool) + json.dumps(pool.to_public_dict())
        assert str(SEED) not in shown
        assert "bits" not in shown
        assert "array" not in shown
        public = pool.to_public_dict()
        assert set(public) == {
            "schema_version", "scheme", "n_subsets", "n_units", "unit", "prior", "notes"
        }  # fmt: skip
        assert public["unit"] == "one group of rows"
        assert public["prior"] == pool.prior

    def test_storage_round_trip(self, strategy):
        pool = draw(strategy)
        arrays, metadata = pool.to_arrays()
        again = Pool.from_arrays(arrays, json.loads(json.dumps(metadata)))
        for field in dataclasses.fields(Pool):
            assert np.array_equal(getattr(again, field.name), getattr(pool, field.name))

    def test_workers_can_receive_it(self, strategy):
        assert pickle.loads(pickle.dumps(strategy)) == strategy
        pool = draw(strategy)
        assert pickle.loads(pickle.dumps(pool)).digest() == pool.digest()

    def test_strategies_and_pools_are_frozen(self, strategy):
        with pytest.raises(dataclasses.FrozenInstanceError):
            strategy.n_subsets = 4
        with pytest.raises(dataclasses.FrozenInstanceError):
            draw(strategy).prior = 0.5

    def test_the_number_of_subsets_can_be_left_open(self, strategy):
        assert strategy.with_subsets(4).draw(N, rng=0, strata=STRATA).n_subsets == 4
        assert dataclasses.replace(strategy, n_subsets=4) == strategy.with_subsets(4)
        assert type(strategy)().n_subsets is None
        left_open = dataclasses.replace(strategy, n_subsets=None)
        assert left_open.draw(N, rng=0, strata=STRATA).n_subsets == DEFAULT_SUBSETS

    def test_the_smallest_pool_there_is(self, strategy):
        least = getattr(strategy, "folds", 2)
        pool = strategy.with_subsets(least).draw(4, rng=0, strata=["a", "a", "b", "b"])
        assert pool.masks().shape == (least, 4)

    @pytest.mark.parametrize(
        ("n_records", "options", "message"),
        [
            (3, {}, "number of records must be at least 4; got 3"),
            (N, {"units": np.zeros(N)}, "number of distinct units must be at least 4; got 1"),
            (N, {"units": np.zeros(N - 1)}, f"got {N - 1} entries for {N} records"),
            (N, {"units": np.full(N, np.nan)}, "units must have no missing labels"),
        ],
    )
    def test_unusable_units_are_refused(self, strategy, n_records, options, message):
        with pytest.raises(PoolError, match=message):
            strategy.draw(n_records, rng=0, **options)

    def test_error_messages_show_no_labels(self, strategy):
        units = np.array(["Ada Lovelace"] * N, dtype=object)
        for bad in (units, units[:-1], np.where(np.arange(N) == 3, None, units)):
            with pytest.raises(PoolError) as caught:
                strategy.draw(N, rng=0, units=bad)
            assert "Lovelace" not in str(caught.value)


@pytest.mark.claim("P-1")
@pytest.mark.parametrize("strategy", [p for p in STRATEGIES if p.id.startswith("balanced")])
def test_whoever_knows_a_balanced_pool_guesses_with_a_fair_coin(strategy):
    pool = draw(strategy)
    assert np.array_equal(pool.masks().sum(axis=0), np.full(N, 8))
    assert np.array_equal(pool.counts(), np.full(N, 8))
    assert np.array_equal(pool.priors(), np.full(N, 0.5))
    assert pool.prior == pool.worst_prior == 0.5
    assert not pool.independent


@pytest.mark.claim("P-3")
@pytest.mark.parametrize("strategy", [p for p in STRATEGIES if p.id.startswith("folds")])
def test_whoever_knows_a_pool_of_folds_knows_their_share_and_no_more(strategy):
    pool, left_out = draw(strategy), 16 // strategy.folds
    assert pool.folds == strategy.folds
    assert np.array_equal(pool.masks().sum(axis=0), np.full(N, 16 - left_out))
    assert np.array_equal(pool.counts(), np.full(N, 16 - left_out))
    assert np.array_equal(pool.priors(), np.full(N, 1 - 1 / strategy.folds))
    assert pool.prior == pool.worst_prior == 1 - 1 / strategy.folds
    assert not pool.independent


@pytest.mark.claim("P-2")
@pytest.mark.parametrize(
    "strategy", [p for p in STRATEGIES if p.id.startswith(("half", "poisson"))]
)
def test_whoever_knows_another_pool_guesses_better(strategy):
    pool = draw(strategy)
    inside = pool.masks().mean(axis=0)
    assert np.array_equal(pool.priors(), np.maximum(inside, 1 - inside))
    assert pool.worst_prior > pool.prior
    assert pool.independent
    assert pool.folds == 1


@pytest.mark.parametrize(
    "strategy", [Balanced(n_subsets=16), Balanced(n_subsets=16, stratify=True)]
)
def test_balanced_subsets_come_in_complements(strategy):
    pool = draw(strategy)
    assert pool.folds == 2
    assert np.array_equal(pool.masks()[8:], ~pool.masks()[:8])
