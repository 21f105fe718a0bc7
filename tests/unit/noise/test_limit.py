"""The least variance of any noise, against closed forms and laws tried by brute force."""

from __future__ import annotations

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.noise import calibrate, limit as limits, noise_limit

pytestmark = [pytest.mark.claim("N-9"), pytest.mark.usefixtures("few_draws")]
NODES = 20_001


class TwoSubsets:
    """One unit, in the first of two subsets."""

    n_subsets, n_units, folds = 2, 1, 1

    def counts(self):
        return np.array([1], dtype=np.int32)

    def inside(self, units, subset=None, *, n_subsets=None):
        return np.array([[1], [0]], dtype=np.uint8)[:n_subsets, units]


def densities(std):
    """Return densities of several laws with this standard deviation."""
    wide, rate, half = np.sqrt(12) * std, np.sqrt(2) / std, np.sqrt(6) * std
    return {
        "normal": lambda z: np.exp(-0.5 * (z / std) ** 2) / (std * np.sqrt(2 * np.pi)),
        "uniform": lambda z: (np.abs(z) <= wide / 2) / wide,
        "laplace": lambda z: 0.5 * rate * np.exp(-rate * np.abs(z)),
        "triangle": lambda z: np.maximum(0, 1 - np.abs(z) / half) / half,
    }


def worst_advantage(values, masks, density, std):
    """Return the largest total variation between the outputs with and without a unit."""
    z, step = np.linspace(values.min() - 12 * std, values.max() + 12 * std, NODES, retstep=True)
    laws = density(z[:, None] - values)
    apart = laws @ (masks / masks.sum(axis=0) - ~masks / (~masks).sum(axis=0))
    return float(np.abs(apart).sum(axis=0).max() * step / 2)


def line(n, m, cap):
    """Return a pool, means of one column, and enough noise for a cap with what is least."""
    pool = pac.Balanced(n_subsets=m).draw(n, rng=0)
    data = np.random.default_rng(0).normal(size=n)
    values = np.array([[data[mask].mean()] for mask in pool.masks()])
    enough = calibrate(values, pac.Membership(cap), pool=pool, rng=0).total_variance
    return pool, values, enough


@pytest.mark.parametrize("places", [2, 5, 10, 20])
def test_a_shift_needs_the_variance_of_evenly_spaced_places(places):
    """With advantage 1/k a shift is hidden best by k places one shift apart: (k² - 1)/12."""
    budget, values = pac.Membership(0.5 + 0.5 / places), np.array([[3.0], [4.0]])
    known = (places**2 - 1) / 12
    found = noise_limit(values, budget, pool=TwoSubsets(), enough=places**2 / (2 * np.pi))
    assert 0.99 * known <= found.least_variance <= known * (1 + 1e-9)


def test_waves_come_within_a_fifth_of_the_best_for_a_shift():
    contrast = limits._Contrast(
        limits.ViewTilts(TwoSubsets()), np.log([0.5, 0.5]), np.array([0.05])
    )
    found = contrast.least_along(np.array([0.0, 1.0]), np.array([0]), np.array([1.0]))
    assert 0.8 * 399 / 12 <= found <= 399 / 12


@pytest.mark.parametrize(("n", "m", "cap"), [(6, 8, 0.6), (12, 24, 0.55), (30, 64, 0.7)])
def test_less_than_the_least_breaks_the_cap_whatever_the_law(n, m, cap):
    pool, values, enough = line(n, m, cap)
    found = noise_limit(values, pac.Membership(cap), pool=pool, enough=enough)
    assert 0.25 * enough < found.least_variance < enough
    std = np.sqrt(0.999 * found.least_variance)
    for density in densities(std).values():
        assert worst_advantage(values[:, 0], pool.masks(), density, std) > 2 * cap - 1


def test_a_law_with_little_more_than_the_least_keeps_the_cap():
    pool, values, enough = line(30, 64, 0.6)
    found = noise_limit(values, pac.Membership(0.6), pool=pool, enough=enough)
    std = np.sqrt(1.3 * found.least_variance)
    laws = densities(std).values()
    assert min(worst_advantage(values[:, 0], pool.masks(), law, std) for law in laws) <= 0.2


def test_any_proposal_of_the_program_gives_a_bound(monkeypatch):
    """The program only proposes: tests that are wrong weaken the bound, and never break it."""
    pool, values, enough = line(12, 24, 0.6)
    good = noise_limit(values, pac.Membership(0.6), pool=pool, enough=enough).least_variance
    program, rng = limits._program, np.random.default_rng(0)

    def spoiled(*arguments):
        multipliers, tests = program(*arguments)
        most = multipliers[:, None]
        return multipliers, np.clip(tests + 0.1 * most * rng.normal(size=tests.shape), -most, most)

    monkeypatch.setattr(limits, "_program", spoiled)
    worse = noise_limit(values, pac.Membership(0.6), pool=pool, enough=enough).least_variance
    assert worse < good


def test_several_numbers_are_bounded_whatever_the_axes():
    pool = pac.Balanced(n_subsets=200, folds=10).draw(100, rng=0)
    data = np.random.default_rng(0).normal(size=(100, 3))
    values = np.array([data[mask].mean(axis=0) for mask in pool.masks()])
    enough = calibrate(values, pac.Membership(0.6), pool=pool, rng=0).total_variance
    found = noise_limit(values, pac.Membership(0.6), pool=pool, enough=enough)
    assert 0.1 * enough < found.least_variance < enough
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    again = noise_limit(values @ turn, pac.Membership(0.6), pool=pool, enough=enough)
    assert again.least_variance == pytest.approx(found.least_variance, rel=1e-3)


def test_towards_units_directions_that_overlap_are_not_counted_twice():
    """Many units in one direction bound it once."""
    pool = pac.Balanced(n_subsets=32, folds=4).draw(16, rng=0)
    data = np.ones((16, 1)) * [1.0, 0.0]
    data[::2, 0] = -1.0
    data[:, 1] = 1e-3 * np.random.default_rng(0).normal(size=16)
    values = np.array([data[mask].mean(axis=0) for mask in pool.masks()])
    enough = calibrate(values, pac.Membership(0.6), pool=pool, rng=0).total_variance
    assert (
        noise_limit(values, pac.Membership(0.6), pool=pool, enough=enough).least_variance < enough
    )


def test_nothing_is_known_without_a_limit_on_membership():
    pool, values, _ = line(12, 24, 0.6)
    found = noise_limit(values, pac.Information(0.1), pool=pool, enough=1.0)
    assert found.least_variance == 0.0
    assert found.times_least(1.0) is None


def test_a_plan_says_how_far_it_is_from_the_least():
    ages = np.random.default_rng(0).normal(40, 10, size=100)
    found = pac.plan(np.mean, ages, pac.Membership(0.6), n_subsets=64, rng=0)
    assert found.times_least is not None
    assert 1.0 < found.times_least < 3.0
    assert "times the least variance" in str(found)
    told = pac.plan(np.mean, ages, pac.Information(0.1), n_subsets=64, rng=0)
    assert told.times_least is None
    assert "least variance" not in str(told)
