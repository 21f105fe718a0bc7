"""Sessions with coins: an adaptive analyst stays below the cap, and reaches it.

What one unit's coin shows in a release is one number: how far the unit moves it, in deviations of
the noise. So a hundred thousand sessions are played at once, each a clock of its own under the
library's rules. The planted bugs have the numbers of the list of unsound uses in the claims.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import pacprivacy as pac
from coin_truth import gauss
from pacprivacy.adversary import (
    SESSION_SLACK,
    Clocks,
    cap_success,
    session_cap,
    session_risk,
)
from pacprivacy.errors import BudgetExceededError
from pacprivacy.noise import plan_sums
from pacprivacy.statistics import UnitSums

pytestmark = pytest.mark.claim("C-8")

SUCCESS = 0.6
N_RUNS = 100_000
MEAN = functools.partial(np.mean, axis=0)


class Games:
    """Many sessions about one coin each, half of them of a used unit."""

    def __init__(self, seed: int, n_runs: int = N_RUNS) -> None:
        self.rng = np.random.default_rng(seed)
        self.used = np.arange(n_runs) % 2 == 0
        self.clocks = Clocks.begin(SUCCESS, n_runs)
        self.evidence = np.zeros(n_runs)  # log likelihood ratio: all that an attacker needs

    def release(self, influence: np.ndarray) -> None:
        """Charge every clock, and let every coin be seen through standard noise."""
        self.clocks = self.clocks.after(influence, 0.0)
        seen = self.used * influence + self.rng.normal(size=len(influence))
        self.evidence += influence * seen - influence**2 / 2

    @property
    def advantage(self) -> float:
        """What the best guess reaches."""
        guess = self.evidence > 0
        return float(guess[self.used].mean() - guess[~self.used].mean())

    @property
    def expected_success(self) -> tuple[float, float]:
        """How often the best guess is right given what was seen, and three standard errors."""
        right = 1 / (1 + np.exp(-np.abs(self.evidence)))
        return float(right.mean()), float(3 * right.std() / math.sqrt(len(right)))

    @property
    def three_errors(self) -> float:
        return 3 * math.sqrt(2 * 0.25 / (len(self.used) / 2))


def test_an_adaptive_analyst_ends_just_below_the_cap() -> None:
    """Queries chosen from answers and aimed at the unit, noise from answers, units dropped."""
    games, n_releases = Games(0), 25
    for done in range(n_releases):
        ahead = n_releases - done
        doubt = np.exp(-np.abs(games.evidence))
        planned = games.clocks.allowances(1 / ahead, ahead, done)
        at_once = games.clocks.allowances(0.3, None, done)
        allowed = np.where(doubt > 0.8, at_once, planned) * np.clip(doubt, 0.2, 1.0)
        dropped = (games.evidence > 0.5) & (done % 3 == 1)  # who is dropped follows from answers
        if ahead == 1:
            allowed = games.clocks.left
        games.release(np.sqrt(np.where(dropped & (ahead > 1), 0.0, allowed)) * (1 - 2.0**-40))
    ends = np.array([cap_success(spent) for spent in np.quantile(games.clocks.spent, (0, 1))])
    assert (ends <= SUCCESS).all()
    assert (ends > SUCCESS - 0.005).all()
    assert games.clocks.busiest <= games.clocks.cap
    assert abs(0.5 + games.advantage / 2 - SUCCESS) < 0.005  # three standard errors are .0047
    reached, three_errors = games.expected_success
    assert three_errors < 0.001
    assert SUCCESS - 0.005 < reached <= SUCCESS + three_errors


def test_an_analyst_who_stops_when_it_suits_him_stays_below_the_cap() -> None:
    games = Games(1)
    for done in range(40):
        going = np.abs(games.evidence) < 0.4
        step = np.sqrt(games.clocks.allowances(1 / (40 - done), 40 - done, done))
        games.release(np.where(going, step, 0.0) * (1 - 2.0**-40))
    assert games.advantage <= 2 * SUCCESS - 1 + games.three_errors
    # The whole curve: among those left out, false alarms; among those used, hits.
    for level in (-0.3, 0.0, 0.3, 0.6):
        alarms, hits = (
            float((games.evidence[mask] > level).mean()) for mask in (~games.used, games.used)
        )
        bound = ndtr(_quantile(alarms) + math.sqrt(games.clocks.cap))
        assert hits <= bound + games.three_errors


def _quantile(rate: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(rate))


def test_the_figures_of_a_session_are_those_of_its_cap() -> None:
    risk = session_risk(session_cap(SUCCESS), 0.9)
    assert SUCCESS - 1e-6 < risk.success <= SUCCESS
    assert dict(risk.groups)[5] <= float(ndtr(2.5 * math.sqrt(session_cap(SUCCESS)))) + 1e-6
    assert risk.success_at_keep <= 0.9 + 0.1 * (2 * SUCCESS - 1)
    for q in np.linspace(0.5001, 0.9999, 400):
        cap = session_cap(float(q))
        assert cap_success(cap) <= q
        assert gauss(math.sqrt(cap)) / 2 + 0.5 > q - 2 * SESSION_SLACK


def test_no_clock_passes_the_cap_whatever_is_asked() -> None:
    rng = np.random.default_rng(2)
    clocks = Clocks.begin(0.55, 200)
    for done in range(300):
        share, ahead = [(0.5, None), (0.05, None), (1 / 7, 7), (1.0, None)][rng.integers(4)]
        allowed = clocks.allowances(share, ahead, done) * rng.uniform(size=200)
        clocks = clocks.after(np.sqrt(allowed) * (1 - 2.0**-40), 1e-12)
        assert (clocks.spent <= clocks.cap).all()
    with pytest.raises(BudgetExceededError, match="some have less left"):
        clocks.after(np.sqrt(clocks.left + 1e-9), 0.0)
    with pytest.raises(BudgetExceededError, match="fewer numbers in all"):
        clocks.after(np.zeros(200), SESSION_SLACK)
    with pytest.raises(BudgetExceededError):
        clocks.after(np.full(200, np.nan), 0.0)


# --- planted bugs --------------------------------------------------------------------------


def test_5_noise_set_by_the_used_units_in_a_session() -> None:
    """The largest unit triples the noise where it is used; ten answers show how they scatter."""
    parameter, n_releases = math.sqrt(session_cap(0.5625)), 10
    promised = float(gauss(parameter))
    rng, n = np.random.default_rng(5), 40_000
    used = np.arange(n) % 2 == 0
    std = {True: 3.0, False: 1.0}
    unit = 3.0  # what it adds; the others add 1 each and are known
    scale = math.sqrt(n_releases) / parameter
    noise = np.where(used, std[True], std[False])[:, None] * scale
    answers = unit * used[:, None] + noise * rng.normal(size=(n, n_releases))
    evidence = sum(
        sign * (-np.log(std[b]) - ((answers - unit * b) / (std[b] * scale)) ** 2 / 2)
        for b, sign in ((True, 1), (False, -1))
    ).sum(axis=1)
    reached = (evidence[used] > 0).mean() - (evidence[~used] > 0).mean()
    assert promised < 0.126 < 0.6 < reached
    # The right way: noise and clocks of all units, used or not.
    games = Games(5)
    for ahead in range(n_releases, 0, -1):
        games.release(np.sqrt(games.clocks.left / ahead) * (1 - 2.0**-40))
    assert games.advantage <= 2 * SUCCESS - 1 + games.three_errors


def test_5_plans_and_clocks_of_a_session_do_not_depend_on_the_coins() -> None:
    x = np.random.default_rng(0).normal(size=400)
    traces = []
    for seed in (1, 2):
        with pac.Session(
            x, budget="membership<=0.6", sample=pac.Coins(), simulate=True, rng=seed
        ) as session:
            made = [session.release(np.mean, share=0.3) for _ in range(3)]
            kept = session._secret._held._kept
            traces.append((kept.tobytes(), session._secret.balances.spent.tobytes(), made))
    (coins, clocks, first), (other_coins, other_clocks, second) = traces
    assert coins != other_coins
    assert clocks == other_clocks
    for one, two in zip(first, second, strict=True):
        assert one.value != two.value
        assert one.certificate == two.certificate


def test_13_the_advantage_of_what_was_spent_when_one_stopped() -> None:
    games = Games(13, 1_000_000)
    cap, n_steps = games.clocks.cap, 16
    for _ in range(n_steps):
        going = np.abs(games.evidence) < 0.15
        games.release(np.where(going, math.sqrt(cap / n_steps), 0.0) * (1 - 2.0**-40))
    of_what_was_spent = float(gauss(np.sqrt(games.clocks.spent)).mean())
    assert games.advantage > of_what_was_spent + games.three_errors
    assert games.advantage <= 2 * SUCCESS - 1 + games.three_errors


def test_14_an_averaged_bound_used_again() -> None:
    """A mean over the unit and one of many groups: answers tell in which group few were used."""
    rng, size, n_groups, keep, noise_std = np.random.default_rng(14), 20, 2000, 0.5, 0.6
    points = np.zeros((size + 1, 1))
    points[0] = 1.0  # the unit; all others are 0
    counts = rng.binomial(size, keep, size=(200, n_groups))
    promised = float(gauss(1 / (counts + 1) / noise_std).mean())
    noisy = counts + rng.normal(size=counts.shape)  # noisy counts, in which the unit has no part
    chosen = np.take_along_axis(counts, noisy.argmin(axis=1)[:, None], axis=1)
    reached = float(gauss(1 / (chosen + 1) / noise_std).mean())
    assert promised < 0.07
    assert reached > 2 * promised
    # A session has sums only: what the unit pays is the same whoever else is used.
    sums = UnitSums.of_rows(np.hstack([points, np.ones((size + 1, 1))]))
    plan = plan_sums(sums, success=SUCCESS, keep=keep, clip=None)
    (block,) = (integers for _, integers in plan.integer_blocks(sums))
    moves = block / plan.lattice.units_per_std
    assert (np.linalg.norm(moves, axis=1) <= plan.charges).all()
    assert gauss(plan.charges.max()) <= 2 * SUCCESS - 1


# --- the session itself ---------------------------------------------------------------------


def statistics() -> list[Any]:
    return [MEAN, functools.partial(np.sum, axis=0), functools.partial(np.std, axis=0)]


@pytest.mark.filterwarnings("ignore::pacprivacy.errors.NoisyWarning")
def test_three_hundred_queries_in_one_session() -> None:
    """Every unit's clock is what its integers moved all releases, and none passes the cap."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(12_000, 1)) * (1 + rng.exponential(size=(12_000, 1)))
    paid = np.zeros(len(x))
    with pac.Session(x, budget="membership<=0.6", sample=pac.Coins(), rng=0) as session:
        value = np.zeros(1)
        for left in range(300, 0, -1):
            mechanism = statistics()[int(np.abs(value).sum() * 1e3) % 3]  # chosen from answers
            release = session.release(mechanism, share=f"1 of {left}")
            value = np.asarray(release.value)
            bundle = release.bundle
            scales = bundle.units_per_std[0]
            paid += np.square(bundle.integers / scales).sum(axis=1)
        clocks = session._secret.balances
        seen = session.odometer()
    assert (paid <= clocks.spent).all()
    assert (clocks.spent <= session_cap(0.6)).all()
    assert clocks.busiest > 0.9 * clocks.cap  # and hardly anything of the cap is lost
    assert seen.spent.n_releases == 300
    assert seen.spent.mu_squared == pytest.approx(clocks.busiest, rel=1e-12)
    assert seen.success_bound is not None
    assert SUCCESS - 1e-6 < seen.success_bound <= SUCCESS
