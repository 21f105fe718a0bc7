"""Coins, on average: what attackers reach on all samples, against what is certified."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from coin_truth import average_advantage, gauss, informed, probabilities, samples, uninformed
from pacprivacy.adversary import LARGE_MOVE, InfluenceWager, QuantileWindow
from pacprivacy.adversary.betting import BETS, GAMMA, Wager
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.mechanism import Mechanism, coerce_data
from pacprivacy.noise import AveragePlan, plan_average
from pacprivacy.statistics import (
    CoinUnits,
    LeastSquaresValue,
    Mean,
    OrderStatistics,
    RankedSet,
    UnitQuantiles,
    check_influence,
    quantile_places,
)
from pacprivacy.statistics.influence import InfluencedStatistic

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
        std = float(plan.lattice.noise_std[0])
        assert std > 1000.0 / LARGE_MOVE
        assert plan.risk.large_moves <= jump / 2
        halved = window.expect(lambda distance, std=std: (2 * distance / std > LARGE_MOVE) * 1.0)
        assert halved.max() > plan.risk.large_moves
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


# --- several rows of a unit ---


def draw_unit_quantiles(
    rng: np.random.Generator, n: int, keep: float, q: tuple[float, ...]
) -> tuple[UnitQuantiles, list[tuple[np.ndarray, np.ndarray]]]:
    """Quantiles of units with none to four rows, of one or two columns or groups."""
    records = []
    for _ in range(int(rng.integers(1, 3))):
        units = np.repeat(np.arange(n), rng.integers(0, 5, n))
        units = units if len(units) else np.arange(n)
        records.append((draw_records(rng, len(units)), units))
    sets = tuple(RankedSet.of(x, u, cell=c, scale=1.0) for c, (x, u) in enumerate(records))
    return UnitQuantiles.of(sets, q, n, keep), records


@pytest.mark.claim("C-15")
def test_the_influence_on_quantiles_of_units_is_the_difference_of_two() -> None:
    rng = np.random.default_rng(21)
    for q in ((0.5,), (0.25, 0.9), (0.0, 1.0)) * 2:
        value, records = draw_unit_quantiles(rng, 6, 0.8, q)
        for mask in samples(6):
            plain = [
                np.quantile(x[mask[u]] if mask[u].any() else x, q) for x, u in records
            ]  # the window of so few holds all
            np.testing.assert_allclose(value.value(mask), np.concatenate(plain), atol=1e-12)
            moved = value.influence(mask, np.arange(6))
            for unit in range(6):
                used = np.arange(6) == unit
                difference = value.value(mask | used) - value.value(mask & ~used)
                np.testing.assert_allclose(moved[unit], difference, atol=1e-12)


@pytest.mark.claim("C-15")
def test_units_with_the_same_records_are_looked_at_once() -> None:
    rng = np.random.default_rng(22)
    units = np.repeat(np.arange(4000), 2)
    x = rng.normal(size=8000)
    value = UnitQuantiles.of((RankedSet.of(x, units, cell=0, scale=1.0),), (0.3, 0.8), 4000, 0.95)
    np.testing.assert_allclose(value.on_all, np.quantile(x, (0.3, 0.8)))
    np.testing.assert_allclose(value.value(np.ones(4000, dtype=bool)), value.on_all)
    assert len(value.tested_units) < 2500
    (moved,) = value.sets
    lines = np.empty((4000, 2))
    lines[:, 0], lines[:, 1] = np.inf, -np.inf
    np.minimum.at(lines[:, 0], moved.units, moved.values)
    np.maximum.at(lines[:, 1], moved.units, moved.values)
    assert len(np.unique(lines, axis=0)) == len(np.unique(lines[value.tested_units], axis=0))
    kept = rng.random(4000) < 0.95
    used = x[kept[units]]
    np.testing.assert_allclose(value.value(kept), np.quantile(used, (0.3, 0.8)), atol=1e-12)


@pytest.mark.claim("C-11")
@pytest.mark.claim("C-15")
def test_no_attacker_beats_the_certificate_of_quantiles_of_units() -> None:
    rng = np.random.default_rng(23)
    proved = caught = 0
    for case in range(5):
        keep = float(rng.choice([0.6, 0.8]))
        value, _ = draw_unit_quantiles(rng, 8, keep, ((0.5,), (0.25, 0.75))[case % 2])
        try:
            plan = plan_average(value, success=0.75, keep=keep, seed=0)
        except BudgetError:
            continue
        proved += 1
        check_plan(plan, 8, 0.75)
        halved = 2 * lattice_values(plan, 8)
        large = ((informed(halved) > LARGE_MOVE) @ probabilities(7, keep)).max()
        beaten = average_advantage(halved, keep).max() > plan.risk.advantage
        caught += beaten or large > plan.risk.large_moves
    assert proved >= 3
    assert caught >= 0.6 * proved


# --- by draws ----------------------------------------------------------------------------------


def wealth(numbers: np.ndarray, cap: float) -> float:
    """The mean wealth of all bets that the mean of these numbers is below a cap."""
    return float(np.mean([np.prod(1 + bet * (cap - numbers) / (1 - cap)) for bet in BETS]))


@pytest.mark.claim("C-12")
@pytest.mark.parametrize(
    ("number", "n_draws", "cap"),
    [(0.17, 2000, 0.17 + 0.0098), (0.17, 20_000, 0.17 + 0.0010), (0.0, 2000, 0.0118)],
)
def test_betting_is_as_tight_as_it_was_measured(number: float, n_draws: int, cap: float) -> None:
    for shift, proved in ((-5e-5, False), (5e-5, True)):
        wager = Wager(1, cap + shift, 1e-9)
        for _ in range(n_draws):
            wager.add(np.array([number]), np.array([0]))
        assert wager.done[0] == proved


@pytest.mark.claim("C-12")
def test_whoever_stops_when_it_suits_is_wrong_as_rarely() -> None:
    rng = np.random.default_rng(5)
    cap, gamma, runs = 0.2, 0.02, 2000
    wager = Wager(runs, cap, gamma)
    for _ in range(400):  # the mean is the cap: every unit that is done is a wrong claim
        wager.add((rng.random(runs) < cap).astype(float), np.arange(runs))
    wrong = wager.done.mean()
    assert wrong <= gamma + 4 * np.sqrt(gamma / runs)
    assert wrong > gamma / 20  # it can fail


@pytest.mark.claim("C-12")
def test_a_wager_is_done_when_the_bound_is_below_the_cap() -> None:
    rng = np.random.default_rng(6)
    wager = InfluenceWager(3, 0.2, 0.05)
    seen: list[np.ndarray] = []
    while not wager.done.all():
        distances = rng.uniform(0.0, [0.3, 0.6, 0.2])
        seen.append(distances)
        wager.add(distances, np.arange(3))
        assert len(seen) < 2500
    gains = gauss(np.array(seen))
    assert min(wealth(each, 0.2) for each in gains.T) > 1 / GAMMA
    assert wealth(np.zeros(len(seen)), 0.05) > 1 / GAMMA
    assert (
        min(wealth(gains.max(axis=1)[:-1], 0.2), wealth(np.zeros(len(seen) - 1), 0.05)) < 1 / GAMMA
    )


def least_squares(
    rng: np.random.Generator, n: int, keep: float, penalty: float, rows: int = 1
) -> LeastSquaresValue:
    x = rng.normal(size=rows * n)
    Z, units = np.column_stack([np.ones(rows * n), x]), (np.repeat(np.arange(n), rows), n)
    y = x + 0.3 * rng.normal(size=rows * n)
    return LeastSquaresValue.fit(Z, y, keep=keep, units=units, penalty=np.full(2, penalty))


@pytest.mark.claim("C-13")
def test_the_influence_on_least_squares_is_the_difference_of_two_fits() -> None:
    rng = np.random.default_rng(7)
    for penalty in (0.0, 2.0):
        value = least_squares(rng, 8, 0.7, penalty)
        Z, y = value.rows.Z[:, 0], value.rows.y[:, 0]
        for mask in samples(8):
            if mask.sum() < 4:
                continue
            fit = np.linalg.solve(
                Z[mask].T @ Z[mask] + 0.7 * penalty * np.eye(2), Z[mask].T @ y[mask]
            )
            np.testing.assert_allclose(value.outputs_of(value.value(mask)), fit, atol=1e-9)
            moved = value.influence(mask, np.arange(8))
            for unit in range(8):
                used = np.arange(8) == unit
                difference = value.value(mask | used) - value.value(mask & ~used)
                if np.isfinite(moved[unit]).all():
                    np.testing.assert_allclose(moved[unit], difference, atol=1e-9)


@pytest.mark.claim("C-13")
def test_the_influence_of_units_with_several_rows_is_the_difference_of_two_fits() -> None:
    rng = np.random.default_rng(17)
    units = np.repeat(np.arange(8), [1, 2, 5, 1, 3, 2, 1, 0])
    Z = np.column_stack([np.ones(15), rng.normal(size=15)])
    y = Z @ [1.0, 2.0] + rng.normal(size=15)
    value = LeastSquaresValue.fit(Z, y, keep=0.7, units=(units, 8), penalty=np.array([0.0, 2.0]))
    assert value.X.shape == (8, 2, 2)
    for mask in samples(8):
        rows = mask[units]
        if rows.sum() < 5:
            continue
        fit = np.linalg.solve(Z[rows].T @ Z[rows] + np.diag([0.0, 1.4]), Z[rows].T @ y[rows])
        np.testing.assert_allclose(value.outputs_of(value.value(mask)), fit, atol=1e-9)
        moved = value.influence(mask, np.arange(8))
        for unit in np.flatnonzero(np.isfinite(moved).all(axis=1)):
            used = np.arange(8) == unit
            difference = value.value(mask | used) - value.value(mask & ~used)
            np.testing.assert_allclose(moved[unit], difference, atol=1e-9)
    assert np.isfinite(value.influence(np.ones(8, dtype=bool), np.arange(8))[[0, 1, 4]]).all()


@pytest.mark.claim("C-13")
@pytest.mark.parametrize("rows", [1, 3])
def test_the_closed_form_of_least_squares_bounds_every_draw(rows: int) -> None:
    rng = np.random.default_rng(8)
    n = 4000
    Z = np.column_stack([np.ones(rows * n), rng.normal(size=(rows * n, 2))])
    y = Z @ [1.0, 2.0, 3.0] + rng.standard_t(4, rows * n)
    units = (np.repeat(np.arange(n), rows), n)
    value = LeastSquaresValue.fit(Z, y, keep=0.95, units=units)
    whiten = rng.normal(size=(3, 3))
    far, off_event = value.bound_distances(whiten, 0.95)
    assert off_event < 1e-6
    assert np.isfinite(far).all()
    for _ in range(50):
        moved = value.influence(rng.random(n) < 0.95, np.arange(n)) @ whiten
        assert (np.linalg.norm(moved, axis=1) <= far).all()
    scores = np.einsum("ukd,uk->ud", value.X, value.residuals)
    nominal = np.linalg.norm(scores @ whiten, axis=1)
    assert np.median(far / nominal) < 3  # of use


@pytest.mark.claim("C-11")
@pytest.mark.claim("C-13")
def test_no_attacker_beats_the_certificate_of_least_squares_and_ridge() -> None:
    rng = np.random.default_rng(9)
    proved = 0
    for case, penalty in enumerate((0.0, 1.0, 5.0, 20.0) * 3):
        keep, success = float(rng.choice([0.8, 0.9])), 0.7 if penalty else 0.6
        value = least_squares(rng, 10, keep, penalty, rows=1 + case // 8)
        clip = None if case % 2 else 1.0
        try:
            plan = plan_average(value, success=success, keep=keep, seed=0, clip=clip)
        except BudgetError:
            continue
        proved += 1
        check_plan(plan, 10, success)
        halved = 2 * lattice_values(plan, 10)
        assert average_advantage(halved, keep).max() > plan.risk.advantage
    assert proved >= 10


class TrimmedMean(Mechanism):
    """The mean without the smallest and the largest; its influence by its definition."""

    name = "trimmed mean"

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor  # 1 is right

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> float:
        ordered = np.sort(parts[0])
        return float(ordered[1:-1].mean()) if len(ordered) > 2 else 0.0

    def influence(self, data: Any, units: np.ndarray, inside: np.ndarray) -> np.ndarray:
        x, rng = data.parts[0], np.random.default_rng(0)
        moved = np.empty((len(inside), 1))
        for unit in range(len(inside)):
            own = units == unit
            with_unit = self.evaluate((x[inside[units] | own],), rng)
            moved[unit] = with_unit - self.evaluate((x[inside[units] & ~own],), rng)
        return moved * self.factor


@pytest.mark.claim("C-11")
@pytest.mark.claim("C-12")
def test_no_attacker_beats_the_certificate_of_a_trimmed_mean() -> None:
    rng = np.random.default_rng(10)
    for keep in (0.6, 0.9):
        data = coerce_data(rng.normal(size=8))
        coins = CoinUnits(n_units=8, unit="record", keep=keep, clip=None, seed=1)
        value = InfluencedStatistic(mechanism=TrimmedMean()).on_samples(data, None, coins)
        plan = plan_average(value, success=0.7, keep=keep, seed=1)
        check_plan(plan, 8, 0.7)
        outputs = lattice_values(plan, 8)
        assert average_advantage(outputs, keep).max() > 0.6 * plan.risk.advantage
        assert average_advantage(2 * outputs, keep).max() > plan.risk.advantage  # of half the noise


def test_wrong_influence_is_refused() -> None:
    x = np.random.default_rng(11).normal(size=30)
    assert check_influence(TrimmedMean(), x).n_compared >= 50
    with pytest.raises(MechanismError, match="influence must be the value with a unit"):
        check_influence(TrimmedMean(0.5), x)
    with pytest.raises(MechanismError, match="must state its influence"):
        check_influence(np.ptp, x)


def test_contributions_are_compared_with_leaving_rows_out() -> None:
    table = pd.DataFrame({"x": np.random.default_rng(12).normal(size=60), "g": list("abc") * 20})
    for statistic in (pac.stats.mean("x", by="g"), pac.stats.variance("x"), pac.stats.count()):
        assert check_influence(statistic, table).largest_difference < 1e-9
    units = np.arange(60) // 2
    assert check_influence(pac.stats.sum("x"), table, units=units).n_compared == 20

    class Shifted(Mean):
        """What a unit adds depends on all others."""

        def contributions(self, data: Any, units: Any = None) -> Any:
            sums = super().contributions(data, units)
            return dataclasses.replace(sums, values=sums.values * len(sums.values))

    class Wrong(Shifted):
        def value(self, sums: Any, keep: float = 1.0) -> Any:
            return sums.values[0, 1:] / keep

    with pytest.raises(MechanismError, match="contributions must add up"):
        check_influence(Wrong(), table["x"].to_numpy())
