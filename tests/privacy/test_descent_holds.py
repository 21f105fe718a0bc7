"""Whoever knows everything but one unit's coin, against a descent: below the cap, and near it.

The attacker knows all gradients: weights are functions of what was released. What is left is a test
of two simple hypotheses, the log likelihood ratio of all steps together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import influence_parameter, influence_success
from pacprivacy.mechanism import Descent, JaxDescent, Lloyd, StepMechanism, coerce_data
from pacprivacy.noise import DescentPlan, descent_plan, plan_descent
from pacprivacy.noise.descent_plan import DescentClock, DescentUnits

pytestmark = pytest.mark.claim("C-14")

SUCCESS, N_UNITS, N_RUNS = 0.75, 24, 400
SLACK = 4.5 * np.sqrt(0.25 / N_RUNS)  # false alarm below 1e-5 a test


def make_plan(canary: float = 6.0, rows_each: int = 1, **settings: object) -> DescentPlan:
    rng = np.random.default_rng(5)
    n_rows = N_UNITS * rows_each
    X = rng.normal(size=(n_rows, 2))
    y = (X[:, 0] + rng.normal(size=n_rows) > 0).astype(int)
    X[:rows_each], y[:rows_each] = (canary, -canary), 0  # large gradients at every step
    options: dict[str, Any] = {"n_steps": 4, "rate": 0.5, "radius": 1.0, **settings}
    return plan_of(Descent(clip=None, directions=False, **options), (X, y), rows_each)


def plan_of(steps: StepMechanism, parts: tuple[np.ndarray, ...], rows_each: int) -> DescentPlan:
    data = coerce_data(parts)
    fit: Any = steps.prepare(data)
    codes = np.repeat(np.arange(N_UNITS), rows_each) if rows_each > 1 else None
    return plan_descent(
        fit, fit.problem(data.parts), codes, n_units=N_UNITS, success=SUCCESS, keep=0.5, seed=0
    )


def log_ratio(plan: DescentPlan, integers: np.ndarray, others: np.ndarray, unit: int) -> float:
    """Return the log likelihood of the unit used over left out, given all other coins."""
    clocks, path, ratio = plan.clocks(), plan.settings.path(plan.shape, plan.rate), 0.0
    for place, noise in enumerate(plan.noise):
        number = place % len(plan.batches)
        batch, left = plan.batches[number], len(plan.noise) - place
        rows, slopes = batch.problem.step(path.weights)
        whole = clocks[number].pay(rows, slopes, noise, 1.0 / -(-left // len(plan.batches)))
        owners = batch.members[batch.units.of_rows(np.arange(batch.units.n_units))]
        added = rows.T @ (whole * (owners == unit)[:, None])
        moved = integers[place] - rows.T @ (whole * others[owners][:, None])
        ratio += float(((moved - added / 2) * added).sum()) / noise.units_per_std**2
        gradient, used = np.ldexp(integers[place].astype(float), -noise.bits), plan.keep
        used *= batch.problem.n_rows
        path.move(gradient / used, noise.std / used)
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


@pytest.mark.parametrize(
    "settings",
    [
        {"canary": 1e6},
        {"n_batches": 2},
        {"n_batches": 3, "canary": 100.0},
        {"rows_each": 3, "n_batches": 2},
        {"loss": "softmax", "radius": 0.25},
    ],
    ids=str,
)
def test_canaries_batches_and_units_of_several_rows_stay_below_the_cap(settings: Any) -> None:
    plan = make_plan(**settings)
    spent = plan.release(np.ones(N_UNITS, bool), SimulatedSource(0)).spent
    assert (spent <= plan.parameter**2).all()
    reached = attack(plan, 0)
    assert 0.6 < reached <= SUCCESS + SLACK


@pytest.mark.parametrize("steps", ["means", "jax"])
def test_units_of_two_rows_stay_below_the_cap_of_other_steps(steps: str) -> None:
    X = np.random.default_rng(5).normal(size=(2 * N_UNITS, 2)).astype(np.float32)
    X[:N_UNITS] += 6
    fit: StepMechanism = Lloyd(n_clusters=2, n_steps=4)
    if steps == "jax":
        pytest.importorskip("jax")

        def loss(weights: Any, row: Any) -> Any:
            return ((row - weights) ** 2).sum()

        fit = JaxDescent(loss=loss, start=np.zeros(2, np.float32), n_steps=4, n_batches=2)
    plan = plan_of(fit, (X,), 2)
    spent = plan.release(np.ones(N_UNITS, bool), SimulatedSource(0)).spent
    assert (spent <= plan.parameter**2).all()
    assert (spent > 0).all()
    assert 0.6 < attack(plan, int(spent.argmax())) <= SUCCESS + SLACK


def test_a_clock_that_forgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # Planted: every step is paid as if it were the first and the last.
    pay = DescentClock.pay

    def forget(self: DescentClock, *step: Any) -> np.ndarray:
        self.spent = np.zeros(self.units.n_units)
        return pay(self, *step[:3], 1.0)

    monkeypatch.setattr(DescentClock, "pay", forget)
    assert attack(make_plan(rate=0.01), 0) > SUCCESS + SLACK


def test_halved_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, sample = make_plan(), descent_plan.sample_discrete_gaussian
    monkeypatch.setattr(
        descent_plan, "sample_discrete_gaussian", lambda units, source: sample(units // 2, source)
    )
    spent = plan.release(np.ones(N_UNITS, bool), SimulatedSource(0)).spent
    assert attack(plan, int(spent.argmax())) > SUCCESS + SLACK


def test_the_mean_gradient_in_place_of_the_own_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    norms = DescentUnits.norms

    def mean_norms(self: DescentUnits, *added: np.ndarray) -> np.ndarray:
        own = norms(self, *added)
        return np.full_like(own, own.mean())

    monkeypatch.setattr(DescentUnits, "norms", mean_norms)
    assert attack(make_plan(), 0) > SUCCESS + SLACK


def test_noise_by_the_clocks_of_used_units_is_caught() -> None:
    # Planted: only used units have clocks, and what these may pay sets the noise.
    plan, allowed, noise = make_plan(), np.linspace(0.2, 0.9, N_UNITS), {}
    for used in (True, False):
        members = np.arange(N_UNITS) if used else np.arange(1, N_UNITS)
        noise[used] = plan_descent(
            plan.settings, plan.batches[0].problem.ordered(members), None, n_units=len(members),
            success=SUCCESS, keep=0.5, seed=0, allowed=allowed[members],
        ).noise  # fmt: skip
    assert noise[True] != noise[False]  # the noise alone tells the coin for certain
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
    (clock,), problem = plan.clocks(), plan.batches[0].problem
    path = plan.settings.path(plan.shape, plan.rate)
    truth = np.zeros(N_UNITS)
    for place, noise in enumerate(plan.noise):
        rows, slopes = problem.step(path.weights)
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
