"""Unsound uses of coins, planted: what attackers then reach is above what was promised.

The numbers are those of the list of unsound uses in the claims. Each test shows the harm by
enumeration or integration, and that the library's own way stays below its promise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from coin_truth import (
    gauss,
    informed,
    lattice_outputs,
    normal,
    samples,
    total_variation,
    uninformed,
)
from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import influence_advantage, influence_parameter
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import SumPlan, plan_sums
from pacprivacy.noise.unit_lattice import UnitLattice, round_up_two_digits, steps_per_std
from pacprivacy.statistics import Mean, Sums, TableCount, UnitSums

pytestmark = pytest.mark.claim("C-3")

SUCCESS = 0.588
PROMISED = 2 * SUCCESS - 1
MU = influence_parameter(SUCCESS)


def truth(plan: SumPlan, sums: UnitSums) -> float:
    """What whoever knows all others reaches on a plan's own releases."""
    return float(gauss(informed(lattice_outputs(plan, sums, sums.n_units)).max(initial=0.0)))


def test_2_a_noisy_sum_over_the_exact_number_of_units() -> None:
    # The unit adds 0 to the sum, so it is charged nothing; but it is counted.
    values = np.array([[1.0], [-1.0], [0.0]])
    bare = plan_sums(UnitSums.of_rows(values), success=SUCCESS, keep=0.9, clip=None)
    promised = influence_advantage(float(bare.charges[2]))
    std = float(bare.lattice.noise_std[0, 0] * abs(bare.lattice.back[0, 0, 0]))
    reached = total_variation(normal(0.0, std / 2), normal(0.0, std / 3))
    assert promised < 1e-5 < 0.18 < reached
    # Released as a statistic the count is a sum with noise of its own, and the unit pays for it.
    data = coerce_data(np.array([1.0, -1.0, 0.0, 0.5, -0.5]))
    sums = Mean().contributions(data)
    plan = plan_sums(sums, success=SUCCESS, keep=0.9, slopes=Mean().output_slopes(sums), clip=None)
    assert plan.charges.min() > 0.01
    assert truth(plan, sums) <= PROMISED


def test_4_noise_scaled_by_the_units_that_are_used() -> None:
    x = np.array([3.0, 1.0, 1.0, 1.0])
    inside = samples(4)
    largest = np.where(inside, np.abs(x), 0.0).max(axis=1)
    std = np.where(largest > 0, largest, 1.0) / MU
    reached = 2 * uninformed(inside @ x, 0.9, std=std).max()
    assert reached > PROMISED + 0.1
    # A plan has no argument that could be the sample, and is the same whoever is used.
    sums = UnitSums.of_rows(x[:, None])
    plan = plan_sums(sums, success=SUCCESS, keep=0.9, clip=None)
    scales = {
        plan.release(sums, mask, SimulatedSource(0)).noise_std.tobytes()  # type: ignore[union-attr]
        for mask in inside
    }
    assert len(scales) == 1
    assert truth(plan, sums) <= PROMISED


def test_7_two_statistics_calibrated_apart() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.choice([-1.0, 1.0], (2, 6, 1))
    plans, moves = [], []
    for values in (first, second):
        sums = UnitSums.of_rows(values)
        plans.append(plan_sums(sums, success=SUCCESS, keep=0.9, clip=None))
        moves.append(informed(lattice_outputs(plans[-1], sums, 6)).max())
    assert gauss(math.hypot(*moves)) > PROMISED + 0.04
    both = UnitSums.of_rows(np.hstack([first, second]))
    assert truth(plan_sums(both, success=SUCCESS, keep=0.9, clip=None), both) <= PROMISED


def test_8_five_rows_as_five_units() -> None:
    rows = np.ones((15, 1))
    people = np.repeat(np.arange(3), 5)
    wrong = plan_sums(UnitSums.of_rows(rows), success=SUCCESS, keep=0.9, clip=None)
    move = 5 * informed(lattice_outputs(wrong, UnitSums.of_rows(rows), 15)[: 2**4]).max()
    assert gauss(move) > 0.7
    sums = UnitSums.of_rows(rows, units=people, n_units=3)
    assert truth(plan_sums(sums, success=SUCCESS, keep=0.9, clip=None), sums) <= PROMISED


def test_9_noise_cut_off() -> None:
    std = 1 / MU
    mass = math.erf(1 / math.sqrt(2))

    def cut(mean: float):  # type: ignore[no-untyped-def]
        plain = normal(mean, std)
        return lambda x: np.where(np.abs(x - mean) <= std, plain(x) / mass, 0.0)

    assert total_variation(cut(0.0), cut(1.0)) > PROMISED + 0.05
    # The library's noise has all of its tails: of 40,000 draws the share beyond one deviation.
    sums = UnitSums.of_rows(np.eye(200)[np.arange(400) % 200])
    plan = plan_sums(sums, success=SUCCESS, keep=0.9, clip=None)
    none = np.zeros(plan.lattice.grid.shape, dtype=np.int64)
    source = SimulatedSource(0)
    draws = np.concatenate([plan.lattice.release(none, source).ravel() for _ in range(200)])
    scaled = np.abs(draws.reshape(200, -1) / plan.lattice.units_per_std.ravel())
    assert abs(float((scaled > 1).mean()) - 0.3173) < 0.01
    assert float((scaled > 3).mean()) > 0.001


def test_10_rounding_the_total() -> None:
    # A unit far smaller than a grid step tips many coordinates of a total over a rounding edge.
    d, steps = 200, 1 << 20
    unit = np.full(d, 0.3 / steps)  # in deviations of the noise
    others = np.full(d, 0.4 / steps)
    promised = gauss(np.linalg.norm(unit))
    rounded = np.rint((others + unit) * steps) - np.rint(others * steps)
    assert gauss(np.linalg.norm(rounded / steps)) > 2 * promised
    # Each unit by itself: what it changes is the same whoever else is used, and is charged.
    rng = np.random.default_rng(10)
    values = np.vstack([rng.normal(size=(6, 20)), np.full((2, 20), 1e-7)])
    sums = UnitSums.of_rows(values)
    plan = plan_sums(sums, success=SUCCESS, keep=0.9, clip=None)
    moves = informed(lattice_outputs(plan, sums, 8))
    np.testing.assert_allclose(moves, np.repeat(moves[:, :1], moves.shape[1], axis=1), rtol=1e-9)
    assert (moves.max(axis=1) <= plan.charges).all()


def test_11_a_correlated_gaussian_on_a_coarse_grid() -> None:
    # Its least deviation is .4 steps: the law on whole numbers is not that of the formula.
    turn = np.array([[math.cos(0.1), -math.sin(0.1)], [math.sin(0.1), math.cos(0.1)]])
    covariance = turn @ np.diag([2.0**2, 0.4**2]) @ turn.T
    inverse = np.linalg.inv(covariance)
    axis = np.arange(-20, 21)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    worst = 0.0
    for shift in ([1, 0], [0, 1], [1, 1], [2, 1], [3, 2]):
        move = np.array(shift)
        logs = [-0.5 * np.einsum("ij,jk,ik->i", p, inverse, p) for p in (points, points - move)]
        laws = [np.exp(log) / np.exp(log).sum() for log in logs]
        reached = 0.5 * np.abs(laws[0] - laws[1]).sum()
        worst = max(worst, reached - float(gauss(math.sqrt(move @ inverse @ move))))
    assert worst > 0.05
    # The library has independent noise along its directions, of a million steps at least.
    sums = UnitSums.of_rows(np.random.default_rng(0).normal(size=(50, 2)) @ turn * [9, 0.01])
    plan = plan_sums(sums, success=SUCCESS, keep=0.9)
    assert plan.lattice.units_per_std.min() >= 1 << 20
    assert plan.lattice.total_variation < 1e-12


def test_12_the_spread_of_the_coins_as_noise() -> None:
    keep, x = 0.95, np.array([1.0, 10.2])
    variance = 1 / MU**2 - keep * (1 - keep) * x[1] ** 2
    assert 2 * uninformed(samples(2) @ x / math.sqrt(variance), keep)[0] > PROMISED + 0.5
    # The library takes no credit for it: the noise is that of the formula at every keep.
    sums = UnitSums.of_rows(np.ones((8, 1)))
    plans = [plan_sums(sums, success=SUCCESS, keep=keep, clip=None) for keep in (0.5, 0.95)]
    assert plans[0].sum_noise_std == plans[1].sum_noise_std
    assert plans[0].sum_noise_std[0, 0] >= round_up_two_digits(np.array(1 / MU))


def test_15_a_group_of_one_unit_whose_key_shows() -> None:
    table = np.array([("a", 1.0)] * 30 + [("b", 2.0)], dtype=[("g", "U1"), ("x", "f8")])
    shown = {tuple(np.unique(table["g"][mask])) for mask in (np.arange(31) < 30, np.ones(31, bool))}
    assert len(shown) == 2  # keys of the sample tell the unit's coin for certain
    data = coerce_data(table)
    count = TableCount(by=("g",)).prepare(data)
    sums = count.contributions(data)
    plan = plan_sums(sums, success=SUCCESS, keep=0.9, slopes=count.output_slopes(sums))
    shapes = set()
    for mask in (np.arange(31) < 30, np.ones(31, bool), np.zeros(31, bool)):
        released = plan.release(sums, mask, SimulatedSource(1))
        shapes.add((released.values.shape, tuple(count.finish(count.value(released, 0.9)))))
    assert len(shapes) == 1
    assert (plan.sum_noise_std > 0).all()
    assert plan.charges.max() <= plan.parameter
    # A group that nobody is in has the noise of the others: its emptiness does not show, either.
    levels = {"g": ("a", "b", "c")}
    empty = TableCount(by=("g",), levels=levels).prepare(data)
    sums = empty.contributions(data)
    plan = plan_sums(sums, success=SUCCESS, keep=0.9, slopes=empty.output_slopes(sums))
    assert plan.sum_noise_std[2, 0] > 0.1 * plan.sum_noise_std.max()


def test_16_a_direction_that_has_no_noise_is_not_released() -> None:
    rng = np.random.default_rng(16)
    x = rng.normal(size=(9, 1))
    tiny = 1e-9 * rng.normal(size=(9, 1))
    sums = UnitSums.of_rows(np.hstack([x, x + tiny]))
    plan = plan_sums(sums, success=SUCCESS, keep=0.9, clip=None)
    lattice = plan.lattice
    assert lattice.n_directions == 1
    released = np.array(
        [lattice.restore(lattice.add(sums, plan.factors, mask))[0] for mask in samples(9)]
    )
    # Planted: the second sum as it is. Beside the first it tells the exact total of `tiny`.
    leaked = samples(9) @ tiny
    assert np.unique(leaked).size > 100
    off = released[:, 1] - released[:, 0] * (lattice.back[0, 0, 1] / lattice.back[0, 0, 0])
    assert np.abs(off).max() < 1e-15 * np.abs(released).max() * 4
    assert truth(plan, sums) <= PROMISED


# --- the lattice refuses what it cannot add exactly -------------------------------------------


def test_grids_are_fine_enough_for_the_number_of_units() -> None:
    assert steps_per_std(10) == steps_per_std(2**20) == 2**20
    assert steps_per_std(2**20 + 1) == 2**21
    assert steps_per_std(10**7) == 2 ** (10 + 12)
    for n in (10, 2**20, 2**20 + 1, 10**7, 10**9):
        assert steps_per_std(n) >= 1024 * math.sqrt(n)


def test_totals_that_integers_cannot_hold_are_refused() -> None:
    sums = UnitSums.of_rows(np.full((3, 1), 1e9))
    one = np.ones((1, 1, 1))
    lattice = UnitLattice.choose(one, one, np.ones((1, 1)), 3)
    with pytest.raises(BudgetError, match=r"below 2\*\*52 grid steps"):
        lattice.add(UnitSums.of_rows(np.full((3, 1), 1e12)), np.ones(3), np.ones(3, bool))
    assert int(lattice.add(sums, np.ones(3), np.ones(3, bool))[0, 0]) == round(3e9 / 2**-20)
    assert isinstance(
        plan_sums(sums, success=SUCCESS, keep=0.9, clip=None).clipped_sums(sums), Sums
    )
