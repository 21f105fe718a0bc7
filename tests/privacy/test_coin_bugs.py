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
from pacprivacy.adversary import (
    influence_advantage,
    influence_parameter,
)
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


def test_3_a_clip_radius_from_the_sample() -> None:
    # The second largest of the used units is the radius: without one of two equals it is 0.
    x = np.array([1.0, 1.0, 0.0, 0.0])
    used = np.where(samples(4), x, 0.0)
    radius = np.sort(used, axis=1)[:, -2:-1]
    clipped = np.minimum(used, radius).sum(axis=1)
    assert 2 * uninformed(clipped * MU, 0.9).max() > PROMISED + 0.1
    assert gauss(informed(clipped[:, None] * MU).max()) > PROMISED + 0.15
    # A plan has its factors before a coin is drawn; clipping at any radius keeps the promise.
    rng = np.random.default_rng(3)
    values = rng.standard_t(2, size=(10, 2))
    sums = UnitSums.of_rows(values)
    for clip in (0.3, 1.0, "auto"):
        plan = plan_sums(sums, success=SUCCESS, keep=0.9, clip=clip)  # type: ignore[arg-type]
        assert (plan.factors < 1).any() or clip == "auto"
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


def test_5_only_used_units_pay_in_a_session() -> None:
    # A query about one unit is answered as long as no unit that pays is over its limit.
    sums = UnitSums.of_rows(np.eye(6)[:, :1])
    plan = plan_sums(sums, success=0.53, keep=0.9, clip=None)
    limit = influence_parameter(SUCCESS) ** 2

    def n_answers(paying: np.ndarray) -> int:
        spent, answers = np.zeros(6), 0
        while answers < 100 and (spent + paying * plan.charges**2 <= limit).all():
            spent, answers = spent + paying * plan.charges**2, answers + 1
        return answers

    without = np.arange(6) > 0
    # Planted: how many answers there are tells the coin for certain, and their mean nearly does.
    assert n_answers(np.ones(6, bool)) < 20 < n_answers(without) == 100
    assert gauss(math.sqrt(100) * plan.charges[0]) > PROMISED + 0.3
    # Everybody pays: the same number of answers whoever is used, and the squares keep the limit.
    allowed = n_answers(np.ones(6, bool))
    assert gauss(math.sqrt(allowed) * plan.charges[0]) <= PROMISED
    assert allowed > 0.9 * limit / plan.charges[0] ** 2 - 1


def test_6_halves_of_a_fixed_size() -> None:
    # Whoever is used takes the place of another: the sum moves by two where one is charged.
    x = np.array([1.0, -1.0, -1.0, -1.0, -1.0, -1.0])
    inside = samples(6)
    halves = inside[inside.sum(axis=1) == 3]
    released = halves @ x * MU
    used, left_out = (set(released[halves[:, 0] == side].tolist()) for side in (True, False))
    assert len(used) == len(left_out) == 1
    assert gauss(abs(used.pop() - left_out.pop())) > PROMISED + 0.15
    sums = UnitSums.of_rows(x[:, None])
    plan = plan_sums(sums, success=SUCCESS, keep=0.5, clip=None)
    outputs = lattice_outputs(plan, sums, 6)
    assert 2 * uninformed(outputs[:, 0], 0.5).max() <= truth(plan, sums) <= PROMISED


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


def test_13_what_was_spent_when_an_analyst_stopped() -> None:
    # The log ratio of a unit's two cases is a walk of steps N(± c/2, c). An analyst who stops as
    # soon as it is far from 0 spends where it still pays.
    rng = np.random.default_rng(13)
    n_paths, n_steps = 200_000, 40
    step = MU**2 / n_steps
    used = rng.random(n_paths) < 0.5
    ratio, spent = np.zeros(n_paths), np.zeros(n_paths)
    for _ in range(n_steps):
        goes_on = np.abs(ratio) < 0.25
        drift = np.where(used, step / 2, -step / 2)
        ratio += goes_on * (drift + math.sqrt(step) * rng.normal(size=n_paths))
        spent += goes_on * step
    reached = np.abs(np.tanh(ratio / 2))  # of the best guess, given the whole transcript
    right = np.where(used, ratio > 0, ratio < 0)
    deviation = 1.0 / math.sqrt(n_paths)
    assert abs(2 * right.mean() - 1 - reached.mean()) < 5 * deviation
    # Planted: the advantage of what was spent, on average. The limit itself holds.
    promised = float(np.mean(gauss(np.sqrt(spent))))
    assert reached.mean() > promised + 10 * reached.std() * deviation
    assert reached.mean() <= PROMISED


def test_14_an_averaged_bound_used_again() -> None:
    # First noisy counts of many groups; then the mean over the group that looks smallest, and the
    # unit. The bound for a mean is an average over samples, of which the analyst now knows one.
    rng = np.random.default_rng(14)
    n_groups, size, keep, std = 2000, 12, 0.5, 5.0
    points = np.zeros((size + 1, 1))
    points[0] = 1.0
    promised = np.mean(gauss(1.0 / (rng.binomial(size, keep, 100_000) + 1) / std))
    reached = []
    for _ in range(50):
        counts = rng.binomial(size, keep, n_groups)
        chosen = counts[np.argmin(counts + 0.5 * rng.normal(size=n_groups))]
        reached.append(float(gauss(1.0 / (chosen + 1) / std)))
    assert np.mean(reached) > 3 * promised
    # Sums and counts with noise cost a unit the same whatever the others do.
    sums = Mean().contributions(coerce_data(points[:, 0]))
    slopes = Mean().output_slopes(sums)
    plan = plan_sums(sums, success=SUCCESS, keep=keep, slopes=slopes, clip=None)
    moves = informed(lattice_outputs(plan, sums, size + 1))
    assert np.ptp(moves, axis=1).max() < 1e-9
    assert gauss(moves.max()) <= PROMISED


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
    assert isinstance(plan_sums(sums, success=SUCCESS, keep=0.9, clip=None).clipped, Sums)
