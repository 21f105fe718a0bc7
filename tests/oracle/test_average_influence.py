"""Coins, on average: what attackers reach on all samples, against what is certified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coin_truth import average_advantage, gauss, informed, probabilities, samples, uninformed
from pacprivacy.adversary import LARGE_MOVE, QuantileWindow
from pacprivacy.errors import BudgetError
from pacprivacy.noise import AveragePlan, plan_average
from pacprivacy.statistics import OrderStatistics, RankedSet, quantile_places

KEEPS = (0.1, 0.3, 0.5, 0.8, 0.95, 0.99)
ROUNDING = 1e-12  # of sums of probabilities


def order_statistic(x: np.ndarray, kept: np.ndarray, q: float) -> float:
    """The definition, by sorting."""
    used = np.sort(x[kept])
    return float(used[int(quantile_places(q, np.array([len(used)]))[0]) - 1])


def lattice_values(plan: AveragePlan, n: int) -> np.ndarray:
    """What a plan releases before noise, in deviations of its noise, for every sample."""
    lattice = plan.lattice
    values = np.array([plan.value.value(mask) for mask in samples(n)])
    directions = values if lattice.into is None else values @ lattice.into
    return np.rint(directions / lattice.grid) / lattice.units_per_std


def check_plan(plan: AveragePlan, n: int, success: float) -> None:
    """Whoever knows all others, or nobody, reaches at most what is certified."""
    outputs = lattice_values(plan, n)
    truth = average_advantage(outputs, plan.keep)
    assert truth.max() <= plan.risk.advantage + ROUNDING
    assert plan.risk.advantage <= 2 * success - 1
    others = probabilities(n - 1, plan.keep)
    for far, chance in plan.risk.moves:
        assert ((informed(outputs) > far) @ others).max() <= chance + ROUNDING
    assert plan.risk.large_moves <= (2 * success - 1) / 4
    line = outputs[:, 0]
    if outputs.shape[1] == 1 and np.ptp(line) < 200:
        assert 2 * uninformed(line, plan.keep).max() <= plan.risk.advantage + ROUNDING


def draw_records(rng: np.random.Generator, n: int) -> np.ndarray:
    kind = rng.integers(4)
    if kind == 0:
        return rng.normal(size=n)
    if kind == 1:
        return rng.integers(0, 3, n).astype(float)
    if kind == 2:
        return np.exp(2 * rng.normal(size=n))
    return np.where(rng.random(n) < 0.5, 0.0, 1.0) + 1e-3 * rng.normal(size=n)


@pytest.mark.claim("C-10")
def test_the_law_of_a_quantile_is_that_of_all_samples() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        n, keep = int(rng.integers(1, 9)), float(rng.choice(KEEPS))
        q = float(rng.choice([0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 1.0]))
        x, std = np.sort(draw_records(rng, n)), 10 ** rng.uniform(-1, 1)
        outputs = np.array([order_statistic(x, m, q) if m.any() else 1e9 for m in samples(n)])
        truth = average_advantage(outputs[:, None] / std, keep)
        window = QuantileWindow.of(x, probability=q, keep=keep)
        bound = window.expect(lambda distance, std=std: gauss(distance / std))
        assert (bound >= truth * (1 - ROUNDING)).all()
        np.testing.assert_allclose(bound, truth, atol=1e-9)


@pytest.mark.claim("C-10")
def test_units_outside_the_window_share_a_bound_and_what_is_cut_off_is_added() -> None:
    x = np.sort(np.random.default_rng(2).normal(size=9))
    for keep in (0.5, 0.9):
        outputs = np.array([order_statistic(x, m, 0.5) if m.any() else 0.0 for m in samples(9)])
        truth = average_advantage(outputs[:, None] / 0.3, keep)
        narrow = QuantileWindow(values=x[3:6], first=4, n_rows=9, probability=0.5, keep=keep)
        bound = narrow.expect(lambda distance: gauss(distance / 0.3))
        assert len(bound) == 3 + 2
        assert narrow.missed > 1e-3
        assert (bound[:3] >= truth[3:6]).all()
        assert bound[3] >= truth[:3].max()
        assert bound[4] >= truth[6:].max()


@pytest.mark.claim("C-10")
def test_two_modes_need_no_noise_on_average_and_are_held_by_large_moves() -> None:
    x = np.repeat([0.0, 1000.0], 500)
    for keep, average in ((0.95, 0.058), (0.99, 0.128)):
        window = QuantileWindow.of(x, probability=0.5, keep=keep)
        jump = float(window.expect(lambda distance: (distance > 0).astype(float)).max())
        assert abs(jump - average) < 0.001
        value = OrderStatistics(
            sets=(RankedSet.of(x, np.arange(1000), cell=0, scale=1.0),),
            probabilities=(0.5,),
            n_units=1000,
        )
        # an advantage of twice the jump would need no noise, but a quarter of it is less than that
        plan = plan_average(value, success=0.5 + jump, keep=keep, seed=0)
        assert plan.lattice.noise_std[0] > 1000.0 / LARGE_MOVE
        assert plan.risk.large_moves <= jump / 2
        free = plan_average(value, success=0.5 + 2.01 * jump, keep=keep, seed=0)
        assert free.lattice.noise_std[0] < 1.0


def draw_value(rng: np.random.Generator, n: int) -> OrderStatistics:
    """Medians and quantiles of columns, of groups, or of both."""
    n_columns, n_groups = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2]))
    groups = np.arange(n) % n_groups
    sets = tuple(
        RankedSet.of(column[groups == g], np.flatnonzero(groups == g), cell=g, scale=1.0)
        for column in (draw_records(rng, n) for _ in range(n_columns))
        for g in range(n_groups)
    )
    q = [(0.5,), (0.25, 0.75), (0.4,)][rng.integers(3)]
    return OrderStatistics(sets=sets, probabilities=q, n_units=n)


@pytest.mark.claim("C-10")
@pytest.mark.claim("C-11")
def test_no_attacker_beats_the_certificate_of_quantiles_in_100_universes() -> None:
    rng = np.random.default_rng(3)
    proved = 0
    for _ in range(100):
        n = int(rng.integers(6, 10))
        value, keep = draw_value(rng, n), float(rng.choice([0.5, 0.8, 0.9]))
        success = float(rng.uniform(0.6, 0.9))
        try:
            plan = plan_average(value, success=success, keep=keep, seed=0)
        except BudgetError:
            continue
        proved += 1
        check_plan(plan, n, success)
    assert proved > 60


@pytest.mark.claim("C-11")
def test_halved_noise_is_caught() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=9)
    value: Any = OrderStatistics(
        sets=(RankedSet.of(x, np.arange(9), cell=0, scale=1.0),), probabilities=(0.5,), n_units=9
    )
    plan = plan_average(value, success=0.7, keep=0.8, seed=0)
    outputs = lattice_values(plan, 9)
    assert average_advantage(outputs, 0.8).max() > 0.9 * plan.risk.advantage
    assert average_advantage(2 * outputs, 0.8).max() > plan.risk.advantage
