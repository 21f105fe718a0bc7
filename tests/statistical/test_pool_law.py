"""The subsets follow the distributions that they are named after.

The right law is accepted and plausible wrong ones are rejected, with the same statistic at the
same level. Seeds are fixed; LEVEL is the false alarm of one comparison under a fresh seed.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from pacprivacy.sample import Balanced, Half, Poisson
from pacprivacy.sample.pool import draw_pool_bits

LEVEL = 1e-8


def uniformity(patterns, support):
    """Chi-square p-value for patterns that should be uniform over a list of supports."""
    position = {tuple(s): i for i, s in enumerate(support)}
    observed = np.bincount([position[tuple(p)] for p in patterns], minlength=len(support))
    return stats.chisquare(observed).pvalue


def subsets_of_size(n, size):
    return [tuple(int(i in chosen) for i in range(n)) for chosen in combinations(range(n), size)]


def frequencies(hits, trials, probabilities):
    """Smallest two-sided binomial p-value, corrected for how many were looked at."""
    hits, probabilities = np.broadcast_arrays(hits, probabilities)
    below = stats.binom.cdf(hits, trials, probabilities)
    above = stats.binom.sf(hits - 1, trials, probabilities)
    return min(1.0, 2 * hits.size * float(np.minimum(below, above).min()))


def pair_counts(masks):
    both = masks.astype(np.int64).T @ masks
    return both[np.triu_indices(len(both), 1)]


@cache
def halves(n, seed):
    return Half(n_subsets=8192).draw(n, rng=seed)


@cache
def halves_with_every_class():
    return Half(n_subsets=8192, every_class=True).draw(6, rng=4, strata=[0, 0, 1, 1, 1, 1])


class TestFixedSize:
    @pytest.mark.parametrize(("n", "size"), [(6, 3), (5, 2), (7, 1), (9, 7)])
    def test_uniform(self, n, size):
        rng = np.random.default_rng(1)
        drawn = [np.unpackbits(draw_pool_bits(rng, n, size), count=n) for _ in range(6000)]
        assert uniformity(drawn, subsets_of_size(n, size)) > LEVEL

    def test_repairing_the_size_from_the_front_would_be_seen(self):
        rng = np.random.default_rng(1)
        drawn = rng.integers(0, 2, size=(6000, 6))
        for row in drawn:
            surplus = row.sum() - 3
            row[np.flatnonzero(row == (surplus > 0))[: abs(surplus)]] ^= 1
        assert uniformity(drawn, subsets_of_size(6, 3)) < LEVEL

    def test_across_bytes(self):
        rng = np.random.default_rng(2)
        masks = np.array(
            [np.unpackbits(draw_pool_bits(rng, 20, 10), count=20) for _ in range(6000)]
        )
        assert frequencies(masks.sum(axis=0), 6000, 0.5) > LEVEL
        assert frequencies(pair_counts(masks), 6000, 10 * 9 / (20 * 19)) > LEVEL


@pytest.mark.claim("P-2")
class TestHalf:
    @property
    def masks(self):
        return halves(8, 3).masks()

    def test_inclusion_is_one_half(self):
        hits = self.masks.sum(axis=0)
        assert frequencies(hits, 8192, 0.5) > LEVEL
        for wrong in (0.45, 0.55):
            assert frequencies(hits, 8192, wrong) < LEVEL

    def test_pairs_are_hypergeometric(self):
        hits = pair_counts(self.masks)
        right = 4 * 3 / (8 * 7)
        assert frequencies(hits, 8192, right) > LEVEL
        for wrong in (0.25, 0.5 * 2 / 7):  # independent units; too much repulsion
            assert frequencies(hits, 8192, wrong) < LEVEL

    def test_subsets_are_independent(self):
        overlap = (self.masks[0::2] & self.masks[1::2]).sum(axis=1)
        law = stats.hypergeom(8, 4, 4).pmf(np.arange(5)) * 4096
        observed = np.bincount(overlap, minlength=5)
        assert stats.chisquare(observed, law).pvalue > LEVEL
        pairs = Balanced(n_subsets=8192).draw(8, rng=3).masks()
        never = np.bincount((pairs[:4096] & pairs[4096:]).sum(axis=1), minlength=5)
        assert stats.chisquare(never, law).pvalue < LEVEL

    def test_odd_numbers_of_units_lean_out(self):
        pool = Half(n_subsets=8192).draw(5, rng=3)
        assert pool.prior == 0.6
        assert frequencies(pool.masks().sum(axis=0), 8192, 0.4) > LEVEL
        assert frequencies(pool.masks().sum(axis=0), 8192, 0.5) < LEVEL

    def test_known_pools_have_the_published_worst_prior(self):
        assert Half(n_subsets=256).draw(10_000, rng=0).worst_prior == pytest.approx(0.63, abs=0.03)
        assert Half(n_subsets=1024).draw(10_000, rng=0).worst_prior == pytest.approx(
            0.56, abs=0.015
        )


@pytest.mark.claim("P-2")
class TestEveryClass:
    allowed = tuple(s for s in subsets_of_size(6, 3) if any(s[:2]) and any(s[2:]))

    def test_uniform_over_the_subsets_that_have_every_class(self):
        assert len(self.allowed) == 16
        assert uniformity(halves_with_every_class().masks().astype(int), self.allowed) > LEVEL

    def test_topping_up_a_missing_class_would_be_seen(self):
        masks = Half(n_subsets=8192).draw(6, rng=4).masks().astype(int)
        for k in np.flatnonzero(~masks[:, :2].any(axis=1)):
            masks[k, np.flatnonzero(masks[k])[0]] = 0
            masks[k, 0] = 1
        assert uniformity(masks, self.allowed) < LEVEL

    def test_the_stated_prior_is_above_the_true_one(self):
        inside = np.mean(self.allowed, axis=0)
        true = np.maximum(inside, 1 - inside).max()
        assert frequencies(halves_with_every_class().masks().sum(axis=0), 8192, inside) > LEVEL
        assert frequencies(halves_with_every_class().masks().sum(axis=0), 8192, 0.5) < LEVEL
        assert true == 0.625
        assert true <= halves_with_every_class().prior < 1.0


@pytest.mark.claim("P-2")
class TestPoisson:
    @pytest.mark.parametrize("rate", [0.2, 0.5, 0.7])
    def test_sizes_are_binomial(self, rate):
        pool = Poisson(n_subsets=4096, rate=rate).draw(20, rng=5)
        total = int(pool.sizes().sum())
        # 20 units: the condition of not being empty moves the mean by less than 1.2 %.
        right = rate / (1 - (1 - rate) ** 20)
        assert frequencies(total, 4096 * 20, right) > LEVEL
        for wrong in (rate * 2 / 3, min(0.99, rate * 3 / 2)):
            assert frequencies(total, 4096 * 20, wrong) < LEVEL

    def test_units_are_independent(self):
        masks = Poisson(n_subsets=8192).draw(16, rng=6).masks()
        assert frequencies(masks.sum(axis=0), 8192, 0.5) > LEVEL
        assert frequencies(pair_counts(masks), 8192, 0.25) > LEVEL
        variance = masks.sum(axis=1).var() * 8192 / 4.0
        assert LEVEL < stats.chi2(8191).cdf(variance) < 1 - LEVEL
        halves = Half(n_subsets=8192).draw(16, rng=6).masks()
        assert frequencies(pair_counts(halves), 8192, 0.25) < LEVEL

    def test_the_prior_counts_the_redrawn_empty_subsets(self):
        pool = Poisson(n_subsets=8192, rate=0.5).draw(4, rng=7)
        assert pool.prior == pytest.approx(8 / 15, rel=1e-15)
        hits = pool.masks().sum(axis=0)
        assert frequencies(hits, 8192, pool.prior) > LEVEL
        assert frequencies(hits, 8192, 0.5) < LEVEL

    def test_subsets_of_four_units_are_uniform_but_for_the_empty_one(self):
        masks = Poisson(n_subsets=8192, rate=0.5).draw(4, rng=8).masks().astype(int)
        support = [s for size in range(1, 5) for s in subsets_of_size(4, size)]
        assert uniformity(masks, support) > LEVEL


@pytest.mark.claim("P-1")
class TestBalanced:
    def test_halves_are_uniform(self):
        masks = Balanced(n_subsets=8192).draw(6, rng=9).masks().astype(int)
        assert uniformity(masks[:4096], subsets_of_size(6, 3)) > LEVEL

    def test_halves_are_independent_of_each_other(self):
        masks = Balanced(n_subsets=8192).draw(8, rng=9).masks()[:4096]
        overlap = np.bincount((masks[0::2] & masks[1::2]).sum(axis=1), minlength=5)
        law = stats.hypergeom(8, 4, 4).pmf(np.arange(5)) * 2048
        assert stats.chisquare(overlap, law).pvalue > LEVEL

    def test_units_choose_their_subsets_uniformly(self):
        masks = Balanced(n_subsets=6, independent=True).draw(10_000, rng=10).masks().astype(int)
        assert uniformity(masks.T, subsets_of_size(6, 3)) > LEVEL

    def test_units_choose_independently(self):
        masks = Balanced(n_subsets=8, independent=True).draw(10_000, rng=11).masks()
        overlap = np.bincount((masks[:, 0::2] & masks[:, 1::2]).sum(axis=0), minlength=5)
        law = stats.hypergeom(8, 4, 4).pmf(np.arange(5)) * 5000
        assert stats.chisquare(overlap, law).pvalue > LEVEL

    def test_strata_are_halved_uniformly(self):
        strata = np.array([0, 0, 0, 1, 1, 1, 2, 2])
        pool = Balanced(n_subsets=16384, stratify=True).draw(8, rng=12, strata=strata)
        halves = pool.masks()[:8192].astype(int)
        odd = [subsets_of_size(3, size) for size in (1, 2)]
        support = [
            (*first, *second, *even)
            for large in (0, 1)
            for first in odd[large]
            for second in odd[1 - large]
            for even in subsets_of_size(2, 1)
        ]
        assert len(support) == 36
        assert uniformity(halves, support) > LEVEL
        assert frequencies(halves.sum(axis=0), 8192, 0.5) > LEVEL
