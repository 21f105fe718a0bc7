"""Whoever knows everything but one unit's coin, against a descent: below the cap, and near it.

The attacker knows all gradients: weights are functions of what was released. What is left is a test
of two simple hypotheses, the log likelihood ratio of all steps together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import influence_parameter, influence_success
from pacprivacy.mechanism import Descent, coerce_data
from pacprivacy.noise import DescentPlan, descent_plan, plan_descent
from pacprivacy.noise.descent_plan import DescentClock, DescentUnits

pytestmark = pytest.mark.claim("C-14")

SUCCESS, N_UNITS, N_RUNS = 0.75, 24, 600
SLACK = 4.5 * np.sqrt(0.25 / N_RUNS)  # false alarm below 1e-5 a test


def make_plan(outlier: float = 6.0, **settings: object) -> DescentPlan:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N_UNITS, 2))
    y = (X[:, 0] + rng.normal(size=N_UNITS) > 0).astype(int)
    X[0], y[0] = (outlier, -outlier), 0  # whose gradients are large at every step
    fit = Descent(n_steps=4, rate=0.5, clip=None, directions=False, **settings)  # type: ignore[arg-type]
    data = coerce_data((X, y))
    fit = fit.prepare(data)
    problem = fit.problem(data.parts)
    return plan_descent(fit, problem, None, n_units=N_UNITS, success=SUCCESS, keep=0.5, seed=0)


def log_ratio(plan: DescentPlan, integers: np.ndarray, others: np.ndarray, unit: int) -> float:
    """Log likelihood of the unit used over left out, given all other coins."""
    clock = DescentClock(units=plan.units, allowed=plan.allowed)
    path = plan.settings.path(plan.problem.shape, plan.rate)
    ratio = 0.0
    for place, noise in enumerate(plan.noise):
        rows, slopes = plan.problem.step(path.weights)
        whole = clock.pay(rows, slopes, noise, 1.0 / (len(plan.noise) - place))
        added = rows[unit][:, None] * whole[unit]
        rest = rows.T @ (whole * others[:, None])
        moved = integers[place] - rest
        ratio += float(((moved - added / 2) * added).sum()) / noise.units_per_std**2
        gradient = np.ldexp(integers[place].astype(float), -noise.bits)
        path.move(gradient / (plan.keep * N_UNITS), 0.0)
    return ratio


def attack(plan: DescentPlan, unit: int, release: Callable[..., np.ndarray] | None = None) -> float:
    """Share of coins of one unit that the best attacker guesses."""
    rng, right = np.random.default_rng(9), 0
    others = rng.random(N_UNITS) < 0.5
    source = SimulatedSource(3)
    for run in range(N_RUNS):
        kept = others.copy()
        kept[unit] = run % 2 == 0
        integers = plan.release(kept, source).integers if release is None else release(kept, source)
        known = others.astype(float)
        known[unit] = 0.0
        right += int((log_ratio(plan, integers, known, unit) > 0) == kept[unit])
    return right / N_RUNS


def test_the_best_attacker_stays_below_the_cap_and_comes_near() -> None:
    plan = make_plan()
    spent = plan.release(np.ones(N_UNITS, bool), SimulatedSource(0)).spent
    unit = int(spent.argmax())
    reached = attack(plan, unit)
    assert reached <= SUCCESS + SLACK
    own = influence_success(float(np.sqrt(spent[unit])))  # on this path, which hardly varies
    assert SUCCESS >= own > 0.65
    assert abs(reached - own) < SLACK


def test_halved_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, sample = make_plan(), descent_plan.sample_discrete_gaussian
    monkeypatch.setattr(
        descent_plan, "sample_discrete_gaussian", lambda units, source: sample(units // 2, source)
    )
    spent = plan.release(np.ones(N_UNITS, bool), SimulatedSource(0)).spent
    assert attack(plan, int(spent.argmax())) > SUCCESS + SLACK


def test_the_mean_gradient_in_place_of_the_own_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    norms = DescentUnits.norms

    def mean_norms(self: DescentUnits, rows: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        own = norms(self, rows, slopes)
        return np.full_like(own, own.mean())

    monkeypatch.setattr(DescentUnits, "norms", mean_norms)
    assert attack(make_plan(), 0) > SUCCESS + SLACK


def test_noise_by_the_clocks_of_used_units_is_caught() -> None:
    # Planted: who is used sets the noise, here the tenth largest of the used gradients.
    plans = {}
    for used in (True, False):
        members = np.ones(N_UNITS, bool)
        members[0] = used
        small = make_plan()
        allowed = np.sqrt(small.allowed)[members]
        problem = type(small.problem)(
            rows=small.problem.rows[members],
            targets=small.problem.targets[members],
            loss=small.problem.loss,
        )
        plans[used] = plan_descent(
            small.settings, problem, None, n_units=int(members.sum()), success=SUCCESS, keep=0.5,
            seed=0, allowed=allowed,
        ).noise  # fmt: skip
    assert plans[True] != plans[False]  # the noise alone tells the coin for certain
    assert make_plan().noise == make_plan().noise  # ours has no argument that could be the coins


def test_a_unit_pays_whether_it_is_used_or_not() -> None:
    plan = make_plan()
    for seed in range(5):
        kept = np.random.default_rng(seed).random(N_UNITS) < 0.5
        transcript = plan.release(kept, SimulatedSource(seed))
        replayed = plan.replay(transcript.integers)  # knows nobody's coin
        np.testing.assert_array_equal(replayed.spent, transcript.spent)
        np.testing.assert_array_equal(replayed.weights, transcript.weights)
        assert (transcript.spent[~kept] > 0).all()
        assert (transcript.spent <= plan.parameter**2).all()


def test_clocks_are_the_squares_of_what_each_unit_really_adds() -> None:
    plan = make_plan()
    transcript = plan.release(np.ones(N_UNITS, bool), SimulatedSource(1))
    clock = DescentClock(units=plan.units, allowed=plan.allowed)
    path = plan.settings.path(plan.problem.shape, plan.rate)
    truth = np.zeros(N_UNITS)
    for place, noise in enumerate(plan.noise):
        rows, slopes = plan.problem.step(path.weights)
        whole = clock.pay(rows, slopes, noise, 1 / (len(plan.noise) - place))
        added = rows[:, :, None] * whole[:, None, :]
        assert np.array_equal(added, np.rint(added))
        truth += np.square(added / noise.units_per_std).sum(axis=(1, 2))
        gradient = np.ldexp(transcript.integers[place].astype(float), -noise.bits)
        path.move(gradient / (plan.keep * N_UNITS), 0.0)
    assert (transcript.spent >= truth).all()
    np.testing.assert_allclose(transcript.spent, truth, rtol=1e-9)


def test_the_cap_is_that_of_the_budget() -> None:
    plan = make_plan()
    assert plan.parameter <= influence_parameter(SUCCESS)
    assert plan.parameter == pytest.approx(influence_parameter(SUCCESS), rel=1e-9)
