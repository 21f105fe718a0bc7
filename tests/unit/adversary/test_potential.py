"""The heat potential against quadrature and enumeration: charges are enough, and no more."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pacprivacy.adversary import (
    Balances,
    Heat,
    ViewTilts,
    balance_advantage,
    first_balance,
    heat_by_information,
    heat_charges,
    heat_potential,
    heat_slope,
    make_view,
    noiseless_heat_charges,
)
from pacprivacy.adversary.advantage import RATES
from pacprivacy.adversary.heat import N_BOUNDS, _Tests
from pacprivacy.sample import Balanced, Half, Pool

Array = npt.NDArray[np.float64]
NODES = np.linspace(-9, 9, 6001)
NORMAL = np.exp(-0.5 * NODES**2)
NORMAL /= NORMAL.sum()
UNITS = 12


def heat(n: int = 1, *, before: float = 0.0, balance: float = 0.05, share: float = 0.1) -> Heat:
    full = np.full(n, balance)
    return Heat(before=np.full(n, before), balance=full, allowed=share * full)


@pytest.mark.parametrize(("a", "v"), [(0.0, 0.04), (0.3, 0.04), (-0.7, 0.1), (0.2, 1e-4)])
def test_the_potential_is_a_mean_of_sizes(a: float, v: float) -> None:
    expected = NORMAL @ np.abs(a + math.sqrt(v) * NODES)
    assert heat_potential(a, v) == pytest.approx(expected, abs=1e-6)
    slope = (heat_potential(a + 1e-6, v) - heat_potential(a - 1e-6, v)) / 2e-6
    assert heat_slope(a, v) == pytest.approx(slope, abs=1e-6)


def test_the_potential_ends_as_the_size() -> None:
    np.testing.assert_array_equal(heat_potential([-0.5, 0.0, 0.2], 0.0), [0.5, 0.0, 0.2])
    assert heat_potential(0.0, first_balance(0.176)) == pytest.approx(0.176, rel=1e-12)
    assert balance_advantage(first_balance(0.3)) == pytest.approx(0.3, rel=1e-12)


@pytest.mark.claim("H-1")
@pytest.mark.parametrize("before", [0.0, 0.15, -0.4])
def test_a_normal_move_costs_its_variance(before: float) -> None:
    """The heat equation: with normal moves the potential is kept exactly."""
    square = 0.002
    tilts = (before + math.sqrt(square) * NODES)[:, None]
    after = NORMAL @ heat_potential(tilts, np.array([0.05 - square]))
    assert after[0] == pytest.approx(heat_potential(before, 0.05), rel=1e-9)


@pytest.mark.claim("H-1")
@pytest.mark.parametrize("before", [0.0, 0.1, -0.3])
@pytest.mark.parametrize("square", [1e-6, 1e-3, 0.01])
def test_a_quick_charge_holds_for_every_move_of_its_size(before: float, square: float) -> None:
    terms = heat(before=before)
    charge = terms.quick(np.array([square]))
    if not np.isfinite(charge[0]):
        return
    goal = heat_potential(before, 0.05)
    for odds in (0.5, 0.1, 0.01):  # two values, ever more lopsided
        high = math.sqrt(square * (1 - odds) / odds)
        low = -math.sqrt(square * odds / (1 - odds))
        for sign in (1, -1):
            after = before + sign * np.array([high, low])
            mean = np.array([odds, 1 - odds]) @ heat_potential(after, 0.05 - charge)
            assert mean <= goal + 1e-12
    assert charge[0] >= square
    if before == 0.0:
        assert charge[0] <= square * 1.1  # and is hardly more than it must be


@pytest.fixture(scope="module", params=["balanced", "half"])
def pool(request: pytest.FixtureRequest) -> Pool:
    strategy = Balanced(n_subsets=32) if request.param == "balanced" else Half(n_subsets=32)
    return strategy.draw(UNITS, rng=3)


def drawn(pool: Pool, points: Array, log_p: Array, n: int) -> Array:
    """Tilts after ``n`` simulated releases, by another route than the library's."""
    rng, m = np.random.default_rng(5), pool.n_subsets
    index = rng.choice(m, size=n, p=np.exp(log_p))
    z = points[index] + rng.standard_normal((n, points.shape[1]))
    log_post = log_p - 0.5 * np.square(z[:, None] - points).sum(axis=2)
    post = np.exp(log_post - log_post.max(axis=1, keepdims=True))
    post /= post.sum(axis=1, keepdims=True)
    f = pool.masks().mean(axis=0)
    return np.asarray((post @ pool.masks() - f) / (2 * f * (1 - f)))


def least_charges(tilts: Array, terms: Heat) -> Array:
    """The least charges of math (7) for tilts that are equally likely, by bisection."""
    slope = heat_slope(terms.before, terms.balance)
    goal = heat_potential(terms.before, terms.balance) + terms.extra
    control = slope * (tilts.mean(axis=0) - terms.before)
    low, high = np.zeros(len(goal)), np.array(terms.balance)
    for _ in range(40):
        middle = 0.5 * (low + high)
        fits = heat_potential(tilts, terms.balance - middle).mean(axis=0) - control <= goal
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return high


@pytest.mark.claim("H-1", "H-2")
@pytest.mark.parametrize("rank", [1, 2])
def test_charges_of_a_release_are_enough_and_not_far_too_much(pool: Pool, rank: int) -> None:
    rng = np.random.default_rng(rank)
    points = pool.masks() @ rng.normal(size=(UNITS, rank)) * 0.12
    log_p = np.log(rng.dirichlet(np.full(32, 30.0)))
    view = make_view(points, log_p)
    f = pool.masks().mean(axis=0)
    before = (np.exp(log_p) @ pool.masks() - f) / (2 * f * (1 - f))
    terms = Balances.begin(0.3, UNITS).heat(before, np.full(UNITS, 0.05), 0.2)
    charges = heat_charges(
        view, pool, terms, n_draws=100_000, gamma=1e-6, rng=np.random.default_rng(0)
    )
    tilts = drawn(pool, view.points, log_p, 100_000)
    square = np.square(tilts - before).mean(axis=0)
    assert (charges + terms.extra_square >= square * 0.97).all()
    over = heat_potential(tilts, np.maximum(terms.balance - charges, 0.0))
    over -= heat_slope(before, terms.balance) * (tilts - before)
    noise = 4 * over.std(axis=0) / math.sqrt(len(tilts))
    mean = over.mean(axis=0) - heat_potential(before, terms.balance)
    assert (mean <= terms.extra + noise).all()
    exact = least_charges(tilts, terms)
    tight = charges <= 1.35 * np.maximum(exact, square) + 2e-3
    assert tight.mean() > 0.7


@pytest.mark.claim("H-1")
def test_the_lattice_is_paid_for_where_a_charge_is_tested() -> None:
    """It is more than the reserve gives: then no test of a charge may pass."""
    full, n = np.full(1, 0.05), 4096
    terms = Heat(before=np.zeros(1), balance=full, allowed=0.9 * full, extra=1e-3, extra_square=1.0)
    moved = np.random.default_rng(0).choice([-0.02, 0.02], size=(n, 1))

    def paid(slack: float) -> float:
        tests = _Tests(terms, np.array([0.5]), np.array([4e-4]), level=1e-3)
        tests.add(moved)
        return float(tests.charges(n, slack)[0])

    assert paid(0.0) < 5e-4
    assert paid(1e-3) > 2e-3


@pytest.mark.claim("H-1", "L-2")
@pytest.mark.parametrize("rank", [1, 2])
def test_the_lattice_is_in_every_charge_and_every_test_is_paid_for(
    pool: Pool, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, levels = 1e-3 * np.random.default_rng(0).normal(size=(32, rank)), []

    def tests(heat: Heat, share: Array, pilot: Array, level: float) -> _Tests:
        levels.append((level, len(pilot)))
        return _Tests(heat, share, pilot, level)

    monkeypatch.setattr("pacprivacy.adversary.heat._Tests", tests)
    monkeypatch.setattr("pacprivacy.adversary.heat.MOST_TESTED", 1)
    allowed = np.where(np.arange(UNITS) < 6, 1e-6, 0.9)  # half of them are tested one by one
    terms = Heat(before=np.zeros(UNITS), balance=np.ones(UNITS), allowed=allowed)
    view = replace(make_view(points), slack=0.01)
    settings: Any = {"n_draws": 4096, "gamma": 1e-3, "rng": np.random.default_rng(0)}
    charges = heat_charges(view, pool, terms, **settings)
    moved = 0.01 * ViewTilts(pool).scale ** 2
    assert (charges < 2 * moved)[6:].all()
    if rank == 1:  # the lattice moves the potential too, so that only a quick charge will do
        assert (charges >= terms.quick(moved)).all()
        assert (terms.quick(moved) > 1.005 * moved).all()
    else:
        drawn = math.log(N_BOUNDS / 1e-3) / (2 * 4096)  # and draws may be lucky
        assert (charges >= moved + drawn).all()
    for level, n_tested in levels:
        assert 6 <= n_tested < UNITS
        assert math.exp(-level * 4096) * len(RATES) * N_BOUNDS <= 1e-3 * (1 + 1e-9)


@pytest.mark.claim("H-1")
def test_a_release_without_noise_is_charged_by_sums(pool: Pool) -> None:
    groups = (pool.masks()[:, 0] | pool.masks()[:, 1]).astype(np.int64)
    view = make_view(np.zeros((32, 1)), None, groups=groups)
    f = pool.masks().mean(axis=0)
    post = np.stack([np.where(groups == g, 1.0, 0.0) / (groups == g).sum() for g in (0, 1)])
    mass = np.array([(groups == g).mean() for g in (0, 1)])
    tilts = (post @ pool.masks() - f) / (2 * f * (1 - f))
    terms = Balances.begin(0.9, UNITS).heat(np.zeros(UNITS), np.full(UNITS, 1.0), 1e-6)
    charges = noiseless_heat_charges(view, pool, terms)
    finite = np.isfinite(charges)
    left = np.maximum(terms.balance - charges, 0.0)[finite]
    assert (mass @ heat_potential(tilts[:, finite], left) <= terms.balance[0] ** 0.5).all()
    assert (charges >= mass @ np.square(tilts) - 1e-6).all()
    assert finite[2:].all()
    assert charges[2:].max() < charges[:2].min()


@pytest.mark.claim("H-1")
@pytest.mark.parametrize("shift", [0.05, 0.3, 1.0])
def test_information_implies_a_charge(shift: float) -> None:
    """A noisy reading of the membership itself: its information bounds the move that it makes."""
    q = 1 / (1 + np.exp(-shift * (NODES + 0.5 * shift)))  # given that the unit is in
    nats = NORMAL @ (math.log(2) + q * np.log(q) + (1 - q) * np.log1p(-q))
    square = NORMAL @ np.square(2 * q - 1)
    charge = heat_by_information(heat(balance=0.9, share=1.0), np.array([0.5]), nats)
    assert charge[0] >= square


def test_shares_of_the_reserve_add_up() -> None:
    balances, extra, square = Balances.begin(0.2, 3), 0.0, 0.0
    for part in (0.25, 1 / 3, 0.5, 1.0):
        terms = balances.heat(np.zeros(3), part * balances.per_unit, part)
        extra, square = extra + terms.extra, square + terms.extra_square
        balances = balances.after(terms.allowed, part)
    assert balances.worst == pytest.approx(0.0, abs=1e-12)
    start = Balances.begin(0.2, 3)
    assert heat_potential(0.0, start.worst) + extra == pytest.approx(0.2, rel=1e-9)
    assert start.worst + square == pytest.approx(first_balance(0.2), rel=1e-9)
