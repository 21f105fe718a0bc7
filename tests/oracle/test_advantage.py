"""The parts of a membership proof against adaptive quadrature, enumeration and exact tails."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, multinomial, norm

from pacprivacy.adversary import (
    FALSE_POSITIVES,
    exact_information,
    make_view,
    membership_risk,
    membership_trade_off,
)
from pacprivacy.adversary.advantage import (
    CURVATURE,
    FINALISTS,
    GRID_STEPS,
    MAX_LOOKS,
    RATES,
    AdvantageSums,
    _on_a_line,
    advantage_bounds,
    advantage_deviation,
    line_advantage,
)
from pacprivacy.adversary.view_and_belief import View, ViewTilts, draw_views, view_posterior
from pacprivacy.sample import Balanced, Poisson, Pool
from pacprivacy.theory import information_slack_bound, success_at

POOLS = {
    "halves": Balanced(n_subsets=12).draw(10, rng=1),
    "folds": Balanced(n_subsets=15, folds=5).draw(10, rng=1),
    "poisson": Poisson(rate=0.8, n_subsets=12).draw(10, rng=4),
}
EVERY_POOL = pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS.keys())


def line_view(pool: Pool, spread: float, *, believed: bool = False, seed: int = 0) -> View:
    rng = np.random.default_rng(seed)
    log_p = np.log(rng.dirichlet(np.ones(pool.n_subsets))) if believed else None
    return make_view(spread * rng.normal(size=(pool.n_subsets, 1)), log_p)


def _draw_view(view: View, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    return view_posterior(view, draw_views(view, n_draws, rng))


def by_quadrature(view: View, pool: Pool) -> np.ndarray:
    """Return E|a| of every unit on a line: normal tails between the zeros of the density."""
    masks = ViewTilts(pool).masks(slice(0, pool.n_units), np.float64, whole=True)
    points, weights = view.points[:, 0], np.exp(view.log_prior)
    grid = np.unique(np.concatenate([np.arange(x - 9, x + 9, 0.01) for x in points]))

    def scaled(z: np.ndarray, terms: np.ndarray) -> np.ndarray:
        logs = -0.5 * np.square(z[:, None] - points)  # only the sign matters
        found = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-1e300)) @ terms
        return np.where(found == 0, 1e-300, found)

    found = []
    for terms in (masks * weights[:, None]).T:
        density = scaled(grid, terms)
        turns = np.flatnonzero(density[1:] * density[:-1] < 0)
        low, high, sign = grid[turns], grid[turns + 1], np.sign(density[turns])
        for _ in range(40):
            middle = 0.5 * (low + high)
            same = np.sign(scaled(middle, terms)) == sign
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        ends = np.concatenate([[-np.inf], low, [np.inf]])
        found.append(np.abs(np.diff(norm.cdf(ends[:, None] - points) @ terms)).sum())
    return np.array(found)


@pytest.mark.claim("A-5")
@EVERY_POOL
@pytest.mark.parametrize("spread", [0.3, 4.0, 60.0])
@pytest.mark.parametrize("believed", [False, True])
def test_a_grid_is_as_near_as_claimed(pool: Pool, spread: float, believed: bool) -> None:
    view = line_view(pool, spread, believed=believed)
    tilts, units = ViewTilts(pool), np.arange(pool.n_units)
    before = tilts.before(view.log_prior, units)
    found = _on_a_line(view, tilts)
    truth = by_quadrature(view, pool)
    assert (found.lower <= truth + 1e-9).all()
    assert (truth <= found.upper + 1e-9).all()
    worst = int(np.argmax(truth - np.abs(before)))
    finest = GRID_STEPS[-1] ** 2 / 4 * CURVATURE * tilts.weight(before, units)[worst]
    assert found.upper[worst] - truth[worst] <= 2 * finest + 1e-9
    if not believed:
        assert tilts.weight(before, units) == pytest.approx(np.ones(pool.n_units))


@pytest.mark.claim("A-2", "A-5")
@pytest.mark.parametrize("seed", range(12))
def test_no_bound_is_below_the_truth_where_candidates_are_odd(seed: int) -> None:
    """Equal and nearly equal outputs, outliers, folds of one unit, hardly any noise."""
    rng = np.random.default_rng(seed)
    folds = (2, 3, 10, 4)[seed % 4]
    pool = Balanced(n_subsets=2 * folds, folds=folds).draw(max(folds, 5), rng=seed)
    y = rng.normal(size=pool.n_subsets)
    if seed % 3 == 0:
        y = np.round(y)
    elif seed % 3 == 1:
        y[1::2] = y[::2] + 1e-9 * rng.normal(size=folds)
    else:
        y[0] = 60.0
    line = make_view(10.0 ** rng.uniform(-2, 2.5) * y[:, None])
    truth, tilts = by_quadrature(line, pool), ViewTilts(pool)
    found = _on_a_line(line, tilts)
    assert (found.lower - 1e-9 <= truth).all()
    assert (truth <= found.upper + 1e-13).all()
    assert found.upper.max() - truth.max() < 1e-3
    view = turned(line, 1.1)
    drawn = advantage_bounds(view, pool, n_draws=2048, gamma=1e-6, rng=rng)
    assert (truth <= drawn.upper).all()


@pytest.mark.claim("A-5")
def test_the_error_of_a_grid_is_not_far_below_its_bound() -> None:
    # a kink at a node is no error, one in the middle of a cell is h²/4 times half the slope
    step = 0.2
    grid = np.arange(-60, 61) * step
    errors = []
    for shift in np.linspace(0, step, 21):
        density = np.abs(norm.pdf(grid + shift - 0.5) - norm.pdf(grid + shift + 0.5))
        errors.append(abs(density.sum() * step - 2 * (2 * norm.cdf(0.5) - 1)))
    bound = step**2 / 4 * CURVATURE * 2
    assert bound / 20 < max(errors) <= bound


@pytest.mark.claim("A-2")
@EVERY_POOL
@pytest.mark.parametrize("believed", [False, True])
def test_draws_cover_the_truth(pool: Pool, believed: bool) -> None:
    line = line_view(pool, 0.8, believed=believed, seed=3)
    view, truth = turned(line, 0.6), by_quadrature(line, pool)
    settings: Any = {"n_draws": 1 << 14, "gamma": 1e-6, "rng": np.random.default_rng(0)}
    found = advantage_bounds(view, pool, **settings)
    assert (found.lower <= truth).all()
    assert (truth <= found.upper).all()
    assert found.mean[1] <= truth.mean() <= found.mean[2]
    too_much = advantage_bounds(view, pool, allowed=0.9 * truth, **settings)
    assert (too_much.lower <= truth).all()
    assert (truth <= too_much.upper).all()  # who is not looked at again keeps a wide bound
    assert (too_much.upper > 0.9 * truth).any()


@pytest.mark.claim("A-2", "T-5")
@pytest.mark.parametrize("share", [0.5, 0.2, 0.95])
def test_a_look_holds_for_every_trinomial(share: float) -> None:
    """Certain of *in*, certain of *out*, or as wise as before: all that draws can show, weighed."""
    n, gamma, ends = 120, 0.01, (0.5 / share, -0.5 / (1 - share))  # half of it would not do
    told = np.array([(i, j) for i in range(n + 1) for j in range(n + 1 - i)])
    sums = AdvantageSums(np.arange(len(told)), np.zeros(len(told)), np.full(len(told), share))
    for row, law in enumerate((np.abs, np.positive, np.square, lambda a: a * np.abs(a))):
        sums.sums[row] = told @ law(np.array(ends))
    sums.n_draws = n
    counts = np.column_stack([told, n - told.sum(axis=1)])
    for center in (0.01, 0.3):
        guess = np.full(len(told), center)
        lower, upper = sums.lower(guess, gamma), sums.upper(guess, gamma)
        for truth in (0.015, 0.1, 0.3, 0.8):
            chances = [truth * share, truth * (1 - share), 1 - truth]
            chance = multinomial.pmf(counts, n, chances)
            assert chance[upper < truth].sum() <= gamma
            assert chance[lower > truth].sum() <= gamma
            assert chance @ (upper < 1) > 0.5 or truth > 0.5  # it says something


@pytest.mark.claim("A-2")
@pytest.mark.parametrize("n_units", [40, 520, 700])  # of 520 nearly all are champions
def test_all_looks_at_one_unit_pay_no_more_than_gamma(
    n_units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any one unit has half of it for upper bounds; all lower bounds and the mean have the rest."""
    pool = Balanced(n_subsets=24).draw(n_units, rng=1)
    points = np.random.default_rng(0).normal(size=(24, 3))
    points[0] = 40.0
    above, below, mean, looks = np.zeros(n_units), np.zeros(n_units), [], []
    sharp = np.full(n_units, np.nan)
    upper, lower, of_mean = AdvantageSums.upper, AdvantageSums.lower, AdvantageSums.mean

    def pay(spent: np.ndarray, bound: Any) -> Any:
        def paid(self: AdvantageSums, center: Any, gamma: float) -> Any:
            spent[self.units] += gamma
            looks.append((len(self), self.n_draws))
            assert (center != self.sums[0] / self.n_draws).all()  # it was fixed before
            levels[:] = gamma, self.n_draws, len(RATES)
            result = bound(self, center, gamma)
            levels[:] = math.inf, 0, 0  # what is planned pays nothing
            if bound is upper and len(looks) == 1:
                sharp[self.units] = result
            elif bound is upper:  # a lucky look at finalists
                result = np.where(np.isnan(sharp[self.units]), result, 0.0)
            return result

        return paid

    def pay_for_the_mean(self: AdvantageSums, center: Any, gamma: float) -> Any:
        assert len(self) == n_units
        mean.append(gamma)
        levels[:] = gamma / 2, self.n_draws, len(RATES)
        result = of_mean(self, center, gamma)
        levels[:] = math.inf, 0, 0
        return result

    def posterior(view: View, draws: Any, *settings: Any) -> Any:
        first = draws.indices[:32].tobytes()
        assert first not in drawn  # nothing is planned on draws that prove something
        drawn.add(first)
        return view_posterior(view, draws, *settings)

    def deviation(squares: Any, width: Any, level: float) -> Any:
        assert math.exp(-level * levels[1]) * levels[2] <= levels[0] * (1 + 1e-9)
        return advantage_deviation(squares, width, level)

    levels, drawn = [math.inf, 0, 0], set()
    monkeypatch.setattr("pacprivacy.adversary.advantage.view_posterior", posterior)
    monkeypatch.setattr(AdvantageSums, "upper", pay(above, upper))
    monkeypatch.setattr(AdvantageSums, "lower", pay(below, lower))
    monkeypatch.setattr(AdvantageSums, "mean", pay_for_the_mean)
    monkeypatch.setattr("pacprivacy.adversary.advantage.advantage_deviation", deviation)
    settings: Any = {"n_draws": 1 << 15, "gamma": 1e-3, "rng": np.random.default_rng(0)}
    bounds = advantage_bounds(make_view(points), pool, **settings)
    finalists = below > 0
    assert 0 < finalists.sum() <= FINALISTS
    assert 0 < above[~finalists].max(initial=1e-9) <= 1e-3 / 2 * (1 + 1e-9)
    # finalists are listed once more, for the mean: their own bounds stay as they were
    assert above[finalists].max() <= 1e-3 * (1 / 2 + 1 / (2 * MAX_LOOKS)) * (1 + 1e-9)
    assert bounds.upper[finalists] == pytest.approx(sharp[finalists], abs=1e-9)
    assert below.sum() <= 1e-3 / 4 * (1 + 1e-9)
    assert 0 < sum(mean) <= 1e-3 / 4 * (1 + 1e-9)
    assert sum(n_draws < 1 << 15 for _, n_draws in looks) >= (1 if n_units > 64 else 0)


@pytest.mark.claim("A-2")
def test_the_worst_unit_fails_as_rarely_as_the_claim_and_a_selected_one_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hundred units that are alike: their maximum holds, the luckiest of them does not."""
    monkeypatch.setattr("pacprivacy.adversary.advantage.RATES", (0.5,))  # several share gamma
    n_units, n, truth, gamma = 200, 40, 0.3, 0.05
    rng, center = np.random.default_rng(0), np.full(n_units, 0.3)
    wrong = lucky = means = 0
    for _ in range(2000):
        sums = AdvantageSums(np.arange(n_units), np.zeros(n_units), np.full(n_units, 0.5))
        sums.sums[0] = sums.sums[2] = rng.binomial(n, truth, size=n_units)
        sums.n_draws = n
        upper = sums.upper(center, gamma)
        wrong += upper.max() < truth
        lucky += upper.min() < truth
        low, high = sums.mean(center, gamma)
        means += not low <= truth <= high
    assert wrong <= 2000 * gamma
    assert lucky > 2000 * 4 * gamma  # a unit that is selected on the same draws needs the union
    assert means <= 2000 * gamma


@pytest.mark.claim("A-2")
def test_the_mean_over_units_needs_one_width_for_all() -> None:
    """Draws in common: with a width for each unit the mean fails more often than it says."""
    n, gamma, truth = 60, 0.05, 0.04
    counts = np.arange(n + 1)
    chance, failed = binom.pmf(counts, n, truth), 0.0
    for count, probability in zip(counts, chance, strict=True):
        sums = AdvantageSums(np.arange(5), np.zeros(5), np.full(5, 0.5))
        sums.sums[0] = sums.sums[2] = count
        sums.n_draws = n
        low, high = sums.mean(np.linspace(0.02, 0.4, 5), gamma)
        failed += probability * (not low <= truth <= high)
    assert failed <= gamma


@pytest.mark.claim("R-1")
def test_a_machine_that_rounds_otherwise_looks_at_the_same_units(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three candidates differ from all others: there are four kinds of units, alike within each."""
    pool = Balanced(n_subsets=24).draw(700, rng=1)
    points, rng, add = np.zeros((24, 3)), np.random.default_rng(0), AdvantageSums.add
    points[:3] = 9 * np.eye(3)

    def rounded(self: AdvantageSums, tilts: ViewTilts, folded: Any) -> None:
        add(self, tilts, folded)
        self.sums *= 1 + 1e-9 * rng.normal(size=self.sums.shape)

    monkeypatch.setattr(AdvantageSums, "add", rounded)
    lows = []
    for _ in range(2):
        settings: Any = {"n_draws": 4096, "gamma": 1e-3, "rng": np.random.default_rng(1)}
        lows.append(advantage_bounds(make_view(points), pool, **settings).lower)
    assert lows[0][lows[1].argmax()] > lows[0].max() - 1e-6
    assert lows[1][lows[0].argmax()] > lows[1].max() - 1e-6
    assert np.median(lows[0]) < lows[0].max() - 1e-3  # few are looked at on all draws


TAU = 0.01


def on_the_lattice(view: View) -> tuple[View, View]:
    """Return a view of Gaussian noise, and one of noise that is so far from it."""
    return replace(view, slack=0.0), replace(view, slack=TAU)


@pytest.mark.claim("A-2", "A-5", "L-2")
@EVERY_POOL
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_lattice_adds_to_every_bound_on_a_unit(pool: Pool, rank: int) -> None:
    line = line_view(pool, 0.5, believed=True, seed=2)
    spread = np.random.default_rng(1).normal(size=(pool.n_subsets, rank))
    plain, rounded = on_the_lattice(make_view(0.4 * spread, line.log_prior))
    settings: Any = {"n_draws": 4096, "gamma": 0.01}
    before, after = (
        advantage_bounds(view, pool, rng=np.random.default_rng(0), **settings)
        for view in (plain, rounded)
    )
    masks = ViewTilts(pool).masks(slice(0, pool.n_units), np.float64, whole=True)
    moved = 2 * TAU * (np.exp(line.log_prior) @ np.abs(masks))
    truth = before.lower if rank == 1 else before.upper  # grids differ; draws are the same
    assert (after.upper >= truth + moved - 1e-9).all()


@pytest.mark.claim("A-1", "A-7", "L-2")
def test_a_lattice_adds_to_every_other_bound() -> None:
    pool = POOLS["folds"]
    plain, rounded = on_the_lattice(line_view(pool, 0.5))

    def found(view: View) -> tuple[float, ...]:
        few: Any = {"n_draws": 4096, "gamma": 0.01}
        rows = membership_trade_off(view, pool, unit=0, rng=np.random.default_rng(0), **few)
        nats = exact_information(view, rng=0, **few)
        return nats.upper, *(row.true_positives for row in rows)

    nats, *rows = (b - a for a, b in zip(found(plain), found(rounded), strict=True))
    assert nats >= information_slack_bound(TAU, pool.n_subsets) - 1e-9
    assert all(row >= TAU - 1e-9 for row in rows)  # and for the false positives, with the cut
    assert rows[0] > 2 * TAU


def turned(view: View, angle: float) -> View:
    """Return the same candidates on a slanted line of the plane: nothing changes for anybody."""
    points = view.points @ np.array([[math.cos(angle), math.sin(angle)]])
    return make_view(points, view.log_prior)


@pytest.mark.claim("A-2")
@pytest.mark.parametrize("folds", [2, 5])
def test_nobody_is_left_out_among_many_units(folds: int) -> None:
    pool = Balanced(n_subsets=60, folds=folds).draw(1500, rng=1)
    line = line_view(pool, 0.25)
    tilts, units = ViewTilts(pool), np.arange(1500)
    truth, view = line_advantage(line, tilts, units, 0.02)[0], turned(line, 0.6)
    settings: Any = {"n_draws": 1 << 13, "gamma": 1e-6, "rng": np.random.default_rng(0)}
    for allowed in (None, np.full(1500, 1.3 * truth.max()), np.full(1500, 0.1 * truth.max())):
        found = advantage_bounds(view, pool, allowed=allowed, **settings)
        assert (truth <= found.upper + 2e-4).all()
        assert (found.lower <= truth + 2e-4).all()
        if allowed is None:
            assert found.value.mean() == pytest.approx(truth.mean(), rel=0.1)


@pytest.mark.claim("A-2")
def test_forgetting_the_share_is_seen() -> None:
    pool = POOLS["folds"]
    view = line_view(pool, 0.8)
    found = advantage_bounds(view, pool, n_draws=64, gamma=0.01, rng=np.random.default_rng(0))
    tilts = ViewTilts(pool)
    truth = by_quadrature(view, pool)
    halved = truth * 0.5 / tilts.scale * 4  # E|Q - f| / (1/2) instead of / 2f(1-f)
    assert (np.abs(found.value - truth) < 1e-3).all()
    assert (np.abs(found.value - halved) > 1e-2).all()
    # at the pool's own prior the best guess is hardly better than always saying in
    risk = membership_risk(view, pool, rng=0)
    assert 0.5 + truth.max() / 2 == pytest.approx(risk.upper, abs=1e-3)


@pytest.mark.claim("A-2")
@EVERY_POOL
def test_a_prior_other_than_one_half_allows_what_is_said(pool: Pool) -> None:
    view = line_view(pool, 1.5)
    truth = by_quadrature(view, pool)
    grid = np.linspace(view.points.min() - 9, view.points.max() + 9, 20001)
    inside = pool.masks().astype(float)
    like = norm.pdf(grid[:, None] - view.points[:, 0])
    pin, pout = like @ inside / inside.sum(axis=0), like @ (1 - inside) / (1 - inside).sum(axis=0)
    for prior in (0.02, 0.3, 0.5, 0.8, 0.97):
        best = np.maximum(prior * pin, (1 - prior) * pout).sum(axis=0) * (grid[1] - grid[0])
        bounds = np.array([success_at(float(t), prior) for t in truth])
        assert (best <= bounds + 1e-6).all()
        if prior == 0.5:
            assert best == pytest.approx(bounds, abs=1e-5)


@pytest.mark.claim("A-7")
@EVERY_POOL
def test_true_positives_stay_below_their_bound(pool: Pool) -> None:
    view = line_view(pool, 0.8)
    grid = np.linspace(view.points.min() - 9, view.points.max() + 9, 40001)
    like = norm.pdf(grid[:, None] - view.points[:, 0]) * (grid[1] - grid[0])
    advantage = by_quadrature(view, pool)
    rng = np.random.default_rng(0)
    for unit in (0, 4, 9):
        inside = pool.masks()[:, unit].astype(float)
        pin, pout = (like @ side / side.sum() for side in (inside, 1 - inside))
        order = np.argsort(-pin / pout)
        false, true = np.cumsum(pout[order]), np.cumsum(pin[order])
        found = membership_trade_off(view, pool, unit=unit, n_draws=1 << 15, gamma=1e-3, rng=rng)
        for item in found:
            best = float(np.interp(item.false_positives, false, true))
            assert best <= item.true_positives <= best * 1.15 + 0.006
            assert best <= item.false_positives + advantage[unit] + 1e-6
        assert [item.false_positives for item in found] == list(FALSE_POSITIVES)
        assert {item.confidence for item in found} == {1 - 1e-3}  # one may fail as often as all


@pytest.mark.claim("A-7")
def test_a_trade_off_pays_for_its_cuts_and_their_range_on_fresh_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, drawn, paid = POOLS["folds"], [], []

    def posterior(view: View, draws: Any) -> Any:
        drawn.append(len(draws))
        return view_posterior(view, draws)

    def deviation(squares: Any, width: Any, level: float) -> Any:
        paid.append((width, level))
        return advantage_deviation(squares, width, level)

    monkeypatch.setattr("pacprivacy.adversary.exact.view_posterior", posterior)
    monkeypatch.setattr("pacprivacy.adversary.exact.advantage_deviation", deviation)
    view = line_view(pool, 1e-12)  # nothing is learned: the excess is 0 on the pilot
    settings: Any = {"n_draws": 4096, "gamma": 1e-3, "rng": np.random.default_rng(0)}
    rows = membership_trade_off(view, pool, unit=0, **settings)
    assert sum(drawn) == 4096
    assert {row.n_draws for row in rows} == {3072}
    ((width, level),) = paid
    assert (width >= 1 / 0.8 - 1e-9).all()  # largest ratio of belief and share
    assert math.exp(-level * 3072) * len(rows) * len(RATES) <= 1e-3 * (1 + 1e-9)


@pytest.mark.claim("T-5")
@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("center", [0.1, 0.5])
def test_a_mean_by_its_squares_holds_for_every_binomial(rate: float, center: float) -> None:
    n, gamma = 200, 0.01
    counts = np.arange(n + 1)
    mean = counts / n
    squares = mean * (1 - center) ** 2 + (1 - mean) * center**2
    level = math.log(len(RATES) / gamma) / n
    chances = binom.pmf(counts, n, rate)
    above = mean + advantage_deviation(squares, np.full(n + 1, 1 - center), level)
    below = mean - advantage_deviation(squares, np.full(n + 1, center), level)
    assert chances[above < rate].sum() <= gamma
    assert chances[below > rate].sum() <= gamma
    if abs(rate - center) < 0.25:  # a guess that is near: a third of what it adds would not do
        assert chances[mean + 0.35 * (above - mean) < rate].sum() > gamma


@pytest.mark.claim("T-5")
def test_the_inequality_behind_it() -> None:
    y = np.linspace(-1, 40, 4101)
    for rate in (*RATES, 0.99):
        psi = -math.log1p(-rate) - rate
        assert (np.exp(rate * y - psi * y**2) <= 1 + rate * y + 1e-12).all()
    # simulated: draws that are not symmetric, a centre that is not their mean
    rng = np.random.default_rng(0)
    x = rng.beta(0.4, 3.0, size=(4000, 400))
    level = math.log(len(RATES) / 0.05) / 400
    squares = np.square(x - 0.2).mean(axis=1)
    bound = x.mean(axis=1) + advantage_deviation(squares, np.full(4000, 0.8), level)
    assert (bound < 0.4 / 3.4).mean() <= 0.05
