"""The pool record, the packing of bits and the encoding of units."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from pacprivacy.errors import PoolError
from pacprivacy.sample import Balanced, Half, Poisson, Pool, strategy_fold_choices
from pacprivacy.sample.pool import (
    draw_pool_bits,
    encode_pool_labels,
    pool_complement,
    pool_padding,
    popcount,
    resolve_pool_strata,
    resolve_pool_units,
)


def hand_made(masks, **changes):
    masks = np.asarray(masks, dtype=bool)
    fields = {
        "bits": np.packbits(masks, axis=1),
        "n_units": masks.shape[1],
        "scheme": "by hand",
        "prior": 0.5,
        "independent": False,
        "folds": 1,
    }
    return Pool(**{**fields, **changes})


MASKS = [
    [1, 1, 0, 0, 1, 0, 0, 1, 1, 0],
    [1, 0, 1, 0, 1, 0, 1, 0, 1, 0],
    [0, 0, 0, 0, 1, 1, 1, 1, 1, 0],
    [1, 1, 1, 0, 1, 0, 0, 0, 0, 0],
]


class TestRecord:
    def test_views_agree_with_the_masks_it_was_made_of(self):
        pool = hand_made(MASKS)
        masks = np.array(MASKS, dtype=bool)
        assert (pool.n_subsets, pool.n_units, pool.n_rows) == (4, 10, 10)
        assert np.array_equal(pool.masks(), masks)
        assert pool.masks().dtype == bool
        assert np.array_equal(pool.sizes(), [5, 5, 5, 4])
        assert np.array_equal(pool.counts(), [3, 2, 2, 0, 4, 1, 2, 2, 3, 0])
        for k in range(4):
            assert np.array_equal(pool.mask(k), masks[k])
            assert np.array_equal(pool.rows(k), np.flatnonzero(masks[k]))
            assert pool.rows(k).dtype == np.int64

    @pytest.mark.claim("P-2")
    def test_priors_are_those_of_whoever_knows_the_pool(self):
        pool = hand_made(MASKS)
        expected = [0.75, 0.5, 0.5, 1.0, 1.0, 0.75, 0.5, 0.5, 0.75, 1.0]
        assert np.array_equal(pool.priors(), expected)
        assert pool.worst_prior == 1.0

    @pytest.mark.claim("P-2")
    def test_priors_under_a_belief(self):
        pool = hand_made(MASKS)
        belief = np.array([0.1, 0.2, 0.7, 0.0])
        with np.errstate(divide="ignore"):
            log_belief = np.log(belief) + 3.0  # known up to a constant only
        inside = belief @ np.array(MASKS, dtype=float)
        got = pool.priors(log_belief)
        assert np.allclose(got, np.maximum(inside, 1 - inside), rtol=0, atol=1e-15)
        assert got.max() <= 1.0

    def test_a_uniform_belief_gives_the_priors_without_one(self):
        pool = Half(n_subsets=64).draw(300, rng=0)
        assert np.allclose(pool.priors(np.zeros(64)), pool.priors(), rtol=0, atol=1e-14)

    @pytest.mark.parametrize(
        "log_belief", [np.zeros(3), np.full(4, -np.inf), [0, 0, 0, np.nan], [0, 0, 0, np.inf]]
    )
    def test_a_malformed_belief_is_refused(self, log_belief):
        with pytest.raises(PoolError, match=r"one log probability per subset \(4\)"):
            hand_made(MASKS).priors(log_belief)

    def test_many_chunks_count_like_one(self):
        pool = Half(n_subsets=16).draw(300_001, rng=0)  # three chunks of at most 2**21 cells
        masks = pool.masks()
        assert np.array_equal(pool.counts(), masks.sum(axis=0))
        assert pool.worst_prior == pool.priors().max()
        belief = np.exp(np.arange(16.0)) / np.exp(np.arange(16.0)).sum()
        inside = belief @ masks
        found = pool.priors(np.arange(16.0))
        assert np.allclose(found, np.maximum(inside, 1 - inside), rtol=0, atol=1e-15)

    @pytest.mark.parametrize("span", [(0, 10), (0, 0), (3, 9), (8, 10), (7, 8), (9, 10)])
    def test_slices_are_those_of_the_masks(self, span):
        inside = hand_made(MASKS).inside(slice(*span))
        assert np.array_equal(inside, np.array(MASKS)[:, slice(*span)])

    @pytest.mark.parametrize("k", [-1, 4])
    def test_a_subset_number_out_of_range_is_refused(self, k):
        with pytest.raises(PoolError, match="k must be a subset number from 0 to 3"):
            hand_made(MASKS).mask(k)

    def test_rows_expand_units(self):
        row_units = np.array([0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9])
        pool = hand_made(MASKS, row_units=row_units)
        assert pool.n_rows == 12
        assert np.array_equal(pool.rows(0), [0, 1, 2, 5, 8, 9])
        assert np.array_equal(pool.row_mask(1), np.array(MASKS[1], dtype=bool)[row_units])

    def test_digest_depends_on_every_subset_and_on_the_rows(self):
        digests = {hand_made(MASKS).digest()}
        for k in range(4):
            changed = np.array(MASKS)
            changed[k, 9] ^= 1
            digests.add(hand_made(changed).digest())
        digests.add(hand_made(MASKS, row_units=np.arange(10)).digest())
        digests.add(hand_made(MASKS, row_units=np.arange(10)[::-1]).digest())
        digests.add(hand_made(np.pad(MASKS, [(0, 0), (0, 1)])).digest())
        assert len(digests) == 8

    def test_digest_does_not_depend_on_the_width_of_the_integers(self):
        wide = hand_made(MASKS, row_units=np.arange(10, dtype=np.int64))
        narrow = hand_made(MASKS, row_units=np.arange(10, dtype=np.int16))
        assert wide.digest() == narrow.digest()

    def test_arrays_are_read_only(self):
        pool = hand_made(MASKS, row_units=np.arange(10))
        with pytest.raises(ValueError, match="read-only"):
            pool.bits[0, 0] = 1
        with pytest.raises(ValueError, match="read-only"):
            pool.row_units[0] = 1

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"bits": np.zeros((4, 3), np.uint8)}, r"bits must be uint8 of shape \(n_subsets, 2\)"),
            ({"bits": np.zeros((4, 2))}, "got float64"),
            ({"bits": np.zeros((1, 2), np.uint8)}, "at least two subsets"),
            ({"bits": np.full((4, 2), 255, np.uint8)}, "zero beyond the last unit"),
            ({"folds": 2}, "folds must be 2 only when"),
            ({"folds": 3}, "a multiple of the number of folds"),
            ({"n_units": 3, "bits": np.zeros((4, 1), np.uint8)}, "n_units must be at least 4"),
            ({"prior": 0.4}, "prior must be between"),
            ({"prior": float("nan")}, "prior must be between"),
            ({"row_units": np.arange(9)}, "row_units must number every unit"),
            ({"row_units": np.arange(1, 11)}, "row_units must number every unit"),
            ({"row_units": np.arange(-1, 9)}, "row_units must number every unit"),
            ({"row_units": np.zeros(12, int)}, "row_units must number every unit"),
            ({"row_units": np.arange(10.0)}, "row_units must number every unit"),
        ],
    )
    def test_parts_that_do_not_fit_are_refused(self, changes, message):
        with pytest.raises(PoolError, match=message):
            hand_made(MASKS, **changes)


class TestStorage:
    def test_round_trip_through_npz_and_json(self, tmp_path):
        pool = Half(n_subsets=8).draw(60, rng=2**100 + 1, units=np.arange(60) // 3)
        arrays, metadata = pool.to_arrays()
        np.savez(tmp_path / "pool.npz", **arrays)
        with np.load(tmp_path / "pool.npz", allow_pickle=False) as stored:
            again = Pool.from_arrays(dict(stored), json.loads(json.dumps(metadata)))
        assert again.seed == 2**100 + 1
        assert again.to_public_dict() == pool.to_public_dict()
        assert again.digest() == pool.digest()
        assert (again.independent, again.folds) == (True, 1)

    def test_an_altered_pool_is_refused(self):
        arrays, metadata = Half(n_subsets=8).draw(64, rng=0).to_arrays()
        bits = arrays["bits"].copy()
        bits[3, 2] ^= 1
        with pytest.raises(PoolError, match="digest must match"):
            Pool.from_arrays({"bits": bits}, metadata)

    def test_another_schema_is_refused(self):
        arrays, metadata = Half(n_subsets=8).draw(64, rng=0).to_arrays()
        with pytest.raises(PoolError, match="schema_version must be 2; got 1"):
            Pool.from_arrays(arrays, {**metadata, "schema_version": 1})


class TestFolds:
    @pytest.mark.claim("P-1")
    @pytest.mark.parametrize(
        ("settings", "n_records", "more", "digest"),
        [  # drawn by version 0.2, before there were folds
            ({}, 37, {}, "e5297b28a78b8ec6"),
            ({"stratify": True}, 37, {"strata": np.arange(37) % 3}, "2de2abc53b6b9020"),
            ({}, 60, {"units": np.arange(60) // 4}, "4df8eab5d8443214"),
        ],
    )
    def test_two_folds_are_the_halves_of_old(self, settings, n_records, more, digest):
        pool = Balanced(n_subsets=16, folds=2, **settings).draw(n_records, rng=5, **more)
        assert pool.digest().startswith(digest)
        assert pool.folds == 2

    @pytest.mark.claim("P-3")
    def test_a_candidate_is_all_but_one_fold_of_its_partition(self):
        pool = Balanced(n_subsets=12, folds=3).draw(10, rng=0)
        assert pool.scheme == "balanced(3 folds)"
        for part in range(4):
            folds = [set(range(10)) - set(pool.rows(part + 4 * j).tolist()) for j in range(3)]
            assert sorted(len(fold) for fold in folds) == [3, 3, 4]
            assert set.union(*folds) == set(range(10))
        assert len({pool.bits[k].tobytes() for k in range(12)}) > 9

    @pytest.mark.claim("P-3")
    @pytest.mark.parametrize("planted", ["same fold twice", "a unit too many", "a unit too few"])
    def test_folds_that_are_none_are_refused(self, planted):
        masks = Balanced(n_subsets=12, folds=3).draw(10, rng=0).masks().copy()
        if planted == "same fold twice":
            masks[4] = masks[0]
        elif planted == "a unit too many":
            masks[0, np.flatnonzero(masks[0])[0]] = False
        else:
            masks[0, np.flatnonzero(~masks[0])[0]] = True
        with pytest.raises(PoolError, match="folds must be 3 only when"):
            hand_made(masks, folds=3, prior=2 / 3)

    def test_the_number_of_subsets_follows_the_folds(self):
        assert Balanced(folds=10).draw(40, rng=0).n_subsets == 260
        with pytest.raises(PoolError, match="a multiple of folds=10"):
            Balanced(n_subsets=64, folds=10)

    @pytest.mark.parametrize("folds", [1, 0, 2.5, True, "many"])
    def test_a_number_of_folds_that_cannot_be_is_refused(self, folds):
        with pytest.raises(PoolError, match="folds must be an integer of at least 2"):
            Balanced(folds=folds)

    def test_folds_need_units_and_no_independence(self):
        with pytest.raises(PoolError, match="and 2 when independent=True"):
            Balanced(folds=3, independent=True)
        with pytest.raises(PoolError, match="at most the number of units, 6; got 7"):
            Balanced(n_subsets=14, folds=7).draw(6)
        with pytest.raises(PoolError, match="got 'auto', which needs a mechanism"):
            Balanced(folds="auto").draw(6)

    @pytest.mark.parametrize(
        ("n_subsets", "n_units", "choices"),
        [
            (2000, 5000, [2, 5, 10, 20]),
            (2000, 12, [2, 5, 10]),
            (1024, 5000, [2, 4, 8]),
            (600, 5000, [2, 3, 6]),
            (400, 5000, [2, 4]),
            (256, 5000, [2]),
            (16, 5000, [2]),
        ],
    )
    def test_folds_worth_comparing_leave_everybody_out_often(self, n_subsets, n_units, choices):
        assert strategy_fold_choices(n_subsets, n_units, None) == choices


class TestBits:
    @pytest.mark.parametrize("n_units", [1, 7, 8, 9, 64])
    def test_helpers_leave_the_padding_alone(self, n_units):
        mask = np.random.default_rng(0).random(n_units) < 0.5
        packed = np.packbits(mask)
        assert popcount(packed) == mask.sum()
        assert np.array_equal(pool_complement(packed, n_units), np.packbits(~mask))
        full = np.packbits(np.ones(n_units, bool))
        assert full[-1] ^ pool_padding(n_units) == 0xFF

    @pytest.mark.parametrize("n_units", [1, 5, 8, 1000])
    def test_fixed_size_holds_at_both_ends(self, n_units):
        rng = np.random.default_rng(0)
        for size in {0, 1, n_units // 2, n_units}:
            packed = draw_pool_bits(rng, n_units, size)
            assert popcount(packed) == size
            assert packed[-1] & pool_padding(n_units) == 0


class TestUnits:
    @pytest.mark.parametrize(
        "labels",
        [
            ["b", "a", "b", "c", "d"],
            np.array(["b", "a", "b", "c", "d"]),
            np.array(["b", "a", "b", "c", "d"], dtype=object),
            np.array([2.5, 1.5, 2.5, 7.0, 0.0]),
            np.array([9, 3, 9, 4, 0], dtype=np.uint8),
            np.array(["2020-01-02", "2019-01-01", "2020-01-02", "1999", "1998"], "datetime64[D]"),
            ["x", 1, "x", b"y", 2.5],
            pd.Series(["b", "a", "b", "c", "d"]),
            pd.Series(["b", "a", "b", "c", "d"], dtype="category"),
            pd.Series([9, 3, 9, 4, 0], dtype="Int64"),
            pl.Series(["b", "a", "b", "c", "d"]),
            pl.Series([9, 3, 9, 4, 0]),
        ],
    )
    def test_labels_are_numbered_by_first_appearance(self, labels):
        if isinstance(labels, list):
            labels = np.array(labels, dtype=object)
        codes, n_labels = encode_pool_labels(labels, 5, name="units")
        assert codes.tolist() == [0, 1, 0, 2, 3]
        assert n_labels == 4

    @pytest.mark.parametrize(
        "labels",
        [
            [1.0, 2.0, np.nan],
            ["a", None, "b"],
            np.array(["2020-01-01", "NaT", "2020-01-02"], "datetime64[D]"),
            np.ma.masked_array([1, 2, 3], mask=[0, 1, 0]),
            pd.Series([1, None, 3], dtype="Int64"),
            pd.Series(["a", None, "b"]),
            pd.Series(["a", None, "b"], dtype="category"),
            pl.Series([1, None, 3]),
            pl.Series(["a", None, "b"]),
        ],
    )
    def test_missing_labels_are_refused(self, labels):
        with pytest.raises(PoolError, match="units must have no missing labels"):
            encode_pool_labels(labels, 3, name="units")

    def test_length_and_shape_are_checked(self):
        with pytest.raises(PoolError) as caught:
            resolve_pool_units(150, np.zeros(149))
        assert str(caught.value).startswith(
            "units must have one entry per record; got 149 entries for 150 records. "
        )
        with pytest.raises(PoolError, match=r"one-dimensional; got shape \(150, 1\)"):
            resolve_pool_units(150, np.zeros((150, 1)))

    def test_unhashable_labels_are_refused(self):
        labels = np.empty(2, dtype=object)
        labels[:] = [{"a": 1}, {"b": 2}]
        with pytest.raises(PoolError, match="hashable labels; got dict"):
            encode_pool_labels(labels, 2, name="units")

    @pytest.mark.parametrize("n_records", [3, 0, -1, 2**31, 10.0, None])
    def test_impossible_numbers_of_records_are_refused(self, n_records):
        with pytest.raises(PoolError, match="records must be"):
            resolve_pool_units(n_records, None)

    def test_few_units_among_many_records_are_refused(self):
        with pytest.raises(PoolError, match="distinct units must be at least 4; got 3"):
            resolve_pool_units(150, np.arange(150) % 3)

    def test_strata_are_carried_from_rows_to_units(self):
        row_units = np.array([0, 1, 0, 2, 3], dtype=np.int32)
        codes = resolve_pool_strata(list("xyxxy"), 5, row_units, wanted_by="stratify=True")
        assert codes.tolist() == [0, 1, 0, 1]

    @pytest.mark.parametrize(
        ("strata", "message"),
        [
            (None, "strata must be given for stratify=True"),
            (list("xyx"), "strata must have one entry per record; got 3"),
            (list("xyyxy"), "strata must be constant within a unit"),
            (list("xyxyy"), "strata must have at least two units of every label"),
        ],
    )
    def test_unusable_strata_are_refused(self, strata, message):
        row_units = np.array([0, 1, 0, 2, 3], dtype=np.int32)
        with pytest.raises(PoolError, match=message):
            resolve_pool_strata(strata, 5, row_units, wanted_by="stratify=True")


class TestStrategies:
    @pytest.mark.parametrize("m", [0, 1, 7, -2, 4.0, True, "8"])
    def test_balanced_needs_an_even_number_of_subsets(self, m):
        with pytest.raises(PoolError, match="n_subsets must be an even integer"):
            Balanced(n_subsets=m)

    @pytest.mark.parametrize("strategy", [Half, Poisson])
    def test_others_need_two_subsets(self, strategy):
        assert strategy(n_subsets=3).draw(20, rng=0).n_subsets == 3
        with pytest.raises(PoolError, match="n_subsets must be an integer of at least 2; got 1"):
            strategy(n_subsets=1)

    @pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, float("nan"), None, "0.5"])
    def test_rate_must_be_a_probability(self, rate):
        with pytest.raises(PoolError, match="rate must be strictly between 0 and 1"):
            Poisson(rate=rate)

    def test_independent_and_stratify_exclude_each_other(self):
        with pytest.raises(PoolError, match="stratify must be False when independent=True"):
            Balanced(independent=True, stratify=True)

    def test_every_class_gives_up_after_a_public_number_of_tries(self):
        strata = np.repeat(np.arange(100), 2)
        with pytest.raises(PoolError, match="within 1000 tries per subset"):
            Half(n_subsets=2, every_class=True).draw(200, rng=0, strata=strata)

    def test_poisson_gives_up_on_a_hopeless_rate(self):
        with pytest.raises(PoolError, match="non-empty subset within 1000 tries"):
            Poisson(n_subsets=2, rate=1e-12).draw(4, rng=0)

    def test_every_class_is_present_and_said(self):
        strata = np.repeat([0, 1, 2], [30, 3, 2])
        pool = Half(n_subsets=64, every_class=True).draw(35, rng=0, strata=strata)
        present = np.array([[pool.mask(k)[strata == c].any() for c in range(3)] for k in range(64)])
        assert present.all()
        assert pool.scheme == "half-every-class"
        assert "redrawn" in pool.notes[0]

    def test_poisson_says_that_empty_subsets_are_redrawn(self):
        pool = Poisson(n_subsets=64, rate=0.05).draw(5, rng=0)
        assert pool.sizes().min() >= 1
        assert "empty" in pool.notes[0]
        assert pool.scheme == "poisson(0.05)"

    @pytest.mark.parametrize("sizes", [(20, 20), (21, 20), (21, 21, 3), (3, 3, 3, 3, 5), (2, 9)])
    def test_stratified_halves_take_half_of_every_stratum(self, sizes):
        strata = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
        n = len(strata)
        pool = Balanced(n_subsets=32, stratify=True).draw(n, rng=0, strata=strata)
        masks = pool.masks()
        for label, size in enumerate(sizes):
            taken = masks[:, strata == label].sum(axis=1)
            assert set(taken.tolist()) <= {size // 2, (size + 1) // 2}
        assert set(pool.sizes()[:16].tolist()) == {n // 2}
        assert set(pool.sizes()[16:].tolist()) == {(n + 1) // 2}

    def test_a_subset_does_not_change_with_the_number_of_subsets(self):
        for strategy in (Half(), Poisson(rate=0.3)):
            small = strategy.with_subsets(4).draw(100, rng=5)
            large = strategy.with_subsets(9).draw(100, rng=5)
            assert np.array_equal(small.bits, large.bits[:4])
        small, large = (Balanced(n_subsets=m).draw(100, rng=5) for m in (4, 10))
        assert np.array_equal(small.bits[:2], large.bits[:2])

    def test_a_block_of_columns_does_not_change_with_the_number_of_units(self):
        strategy = Balanced(n_subsets=4, independent=True)
        small, large = (strategy.draw(n, rng=5).masks() for n in (9000, 12288))
        assert np.array_equal(small[:, :8192], large[:, :8192])


_PEAK = """
import os, resource, sys
from pacprivacy.sample import {name}
scale = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
if os.path.exists("/proc/self/statm"):  # what is in use now, where the system tells
    before = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
pool = {strategy}.draw(1_000_000, rng=0)
pool.worst_prior
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
print(before, after, pool.bits.nbytes)
"""
# A process starts with the peak of the one that started it: a small one in between keeps the
# test runner's own peak from hiding what is measured.
_IN_BETWEEN = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


@pytest.mark.parametrize(
    "strategy",
    [
        "Balanced(n_subsets=64)",
        "Balanced(n_subsets=64, independent=True)",
        "Half(n_subsets=64)",
        "Poisson(n_subsets=64)",
    ],
)
def test_drawing_needs_little_more_than_the_packed_bits(strategy):
    pytest.importorskip("resource")
    code = _PEAK.format(name=strategy.partition("(")[0], strategy=strategy)
    command = [sys.executable, "-c", _IN_BETWEEN, sys.executable, "-c", code]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    before, after, bits = map(int, run.stdout.split())
    assert bits == 8_000_000
    assert before < 150e6  # the interpreter and the package; a test runner's peak is larger
    # 400 MB for 320 MB of bits, in proportion, plus 9 MB of fixed blocks. One permutation of
    # the units in 64-bit integers would be 8 MB more, unpacked masks 64 MB.
    assert after - before <= 1.25 * bits + 9e6


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("person", "person"),
        ("Patient_ID", "patient"),
        ("visits.patient_id", "patient"),
        ("customerId", "customer"),
        ("people.id", "person"),
        ("big_countries.key", "big country"),
        ("valid", "valid"),
        ("id", "group of rows"),
        ("<b>", "group of rows"),
        ("x" * 50, "group of rows"),
        (None, "group of rows"),
    ],
)
def test_a_unit_is_called_as_its_column(column: str | None, unit: str) -> None:
    labels = pd.Series(np.arange(40) // 2, name=column)
    pool = Balanced(n_subsets=8).draw(40, rng=0, units=labels)
    assert pool.unit == unit
    arrays, metadata = pool.to_arrays()
    assert Pool.from_arrays(arrays, json.loads(json.dumps(metadata))).unit == unit
    assert Balanced(n_subsets=8).draw(40, rng=0).unit == "record"


def test_units_in_runs_are_those_that_are_picked_one_by_one() -> None:
    n = 3000
    pool = Balanced(n_subsets=16, folds=4).draw(n, rng=3)
    every = np.vstack([pool.mask(k) for k in range(16)]).astype(np.uint8)
    missing = [0, 5, 6, 700, 1999, n - 1]
    for units in (
        np.delete(np.arange(n), missing),
        np.arange(100, 300),
        np.arange(n)[::-1],
        np.arange(0, n, 2),
        np.r_[1000:2000, 0:1000],
        np.r_[0:500, 0:500],
        np.arange(3),
    ):
        assert np.array_equal(pool.inside(units), every[:, units])
        assert np.array_equal(pool.inside(units, n_subsets=12), every[:12, units])


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint32])
def test_units_of_any_integer_type_are_found(kind: type[np.integer[Any]]) -> None:
    pool = Balanced(n_subsets=8).draw(256, rng=0)
    every = pool.masks().view(np.uint8)
    for listed in (np.r_[200:256, 0:200], np.r_[255, 0:255], np.arange(256)[::-1], [], [7]):
        units = np.array(listed, dtype=kind)
        assert np.array_equal(pool.inside(units), every[:, np.array(listed, dtype=int)])
    codes = np.r_[0:256, 255:-1:-1].astype(kind)
    grouped = replace(pool, row_units=codes)
    for start, stop in ((0, 300), (250, 262), (256, 512), (10, 20)):
        assert np.array_equal(grouped.rows_inside(start, stop), every[:, codes[start:stop]])
