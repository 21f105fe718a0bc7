"""Refining a release until it is good enough: what is spent, promised, said and refused."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource, public_generator
from pacprivacy._rounding import two_digits
from pacprivacy.budget import AnyBudget, Information, Membership, Spent
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    CertificateError,
    MechanismError,
    SecretError,
)
from pacprivacy.noise import PlanProblem, calibrate, proof as noise_proof, prove_rescaled
from pacprivacy.session import GradualRelease
from pacprivacy.session.pool_secret import Calibration
from pacprivacy.session.refinement import FallingNoise, refinement_shares

pytestmark = pytest.mark.usefixtures("few_draws")
DATA = np.random.default_rng(0).normal(size=(60, 3))


def closeness(value: Any, known: Any) -> float:
    return -float(np.abs(np.asarray(value) - known).max())


def mean(x: Any) -> Any:
    return x.mean(axis=0)


def refined(
    budget: AnyBudget, at_least: float, *, data: Any = DATA, **settings: Any
) -> GradualRelease:
    target = pac.Accuracy(at_least=at_least, on=(np.zeros(3),), metric=closeness)
    options = {"n_subsets": 32, "rng": 1, "simulate": True, "rule": "waterfill"} | settings
    release = pac.privatize(mean, data, budget, target=target, **options)
    assert isinstance(release, GradualRelease)
    return release


@cache
def unreached() -> GradualRelease:
    return refined(Information(0.25), 1.0)


@pytest.mark.claim("S-3")
def test_an_easy_target_spends_little_and_promises_the_cap() -> None:
    release = refined(Information(4.0), -5.0)
    assert release.reached
    assert len(release.steps) == 1
    assert release.spent.mi_nats < 0.1
    assert release.certificate.mi_upper_nats == 4.0
    assert release.certificate.membership_bound == pytest.approx(1.0)
    facts = release.certificate.composition or {}
    assert facts["target_reached"] == "yes"
    last = release.steps[-1].certificate.composition or {}
    assert facts["learned_nats"] == last["learned_nats"] > 0


@pytest.mark.claim("S-3")
def test_an_unreachable_target_is_said_and_the_cap_holds() -> None:
    release = unreached()
    assert not release.reached
    assert len(release.looks) == 12
    assert release.spent.mi_nats <= 0.25
    assert release.spent.mi_nats > 0.2495
    assert any("NOT reached" in note for note in release.certificate.notes)
    assert max(look.score for look in release.looks) < 1.0


def test_the_value_is_the_precision_weighted_mean_of_the_steps() -> None:
    release = refined(Information(0.5), 1.0, levels=3)
    values = np.array([step.value for step in release.steps])
    laws = [step.bundle.grid_step * step.bundle.units_per_std for step in release.steps]
    weights = np.array([1 / np.square(law).sum() for law in laws])
    np.testing.assert_allclose(release.value, weights @ values / weights.sum(), rtol=1e-9)
    left = release.certificate.noise.total_variance
    assert left == two_digits(1 / weights.sum())


def test_refining_costs_no_more_noise_than_one_release_of_the_cap() -> None:
    # Outputs near a Gaussian: information adds up, so the last level is nearly the one-shot level.
    release = unreached()
    once = pac.privatize(
        mean, DATA, Information(0.25), n_subsets=32, rng=1, simulate=True, rule="waterfill"
    )
    ratio = release.certificate.noise.total_variance / once.certificate.noise.total_variance
    assert 0.7 < ratio < 1.3


@pytest.mark.claim("S-3")
@pytest.mark.parametrize("budget", [Membership(0.7), Membership(0.7) & Information(0.3)])
def test_membership_caps_hold(budget: AnyBudget) -> None:
    release = refined(budget, 1.0, data=DATA[:30], n_subsets=16, rule=None)
    assert release.certificate.membership_bound <= 0.7
    assert release.spent.success_increment <= 0.2
    assert release.spent.mi_nats <= release.certificate.mi_upper_nats
    assert len(release.steps) <= 4


def test_an_output_that_is_free_is_released_at_once() -> None:
    release = pac.privatize(
        lambda x: np.ones(2),
        DATA,
        Information(0.1),
        n_subsets=16,
        target=pac.Accuracy(at_least=2.0, on=(1.0,), metric=closeness),
    )
    assert isinstance(release, GradualRelease)
    assert len(release.steps) == 1
    np.testing.assert_array_equal(release.value, np.ones(2))


def test_estimators_are_refined_by_their_own_score() -> None:
    from sklearn.linear_model import LogisticRegression

    y = (DATA[:, 0] > 0).astype(int)
    release = pac.privatize(
        lambda X, y: LogisticRegression().fit(X, y),
        (DATA[:40], y[:40]),
        Information(8.0),
        n_subsets=32,
        rule="waterfill",
        rng=0,
        simulate=True,
        target=pac.Accuracy(at_least=0.8, on=(DATA[40:], y[40:])),
    )
    assert isinstance(release, GradualRelease)
    assert release.reached
    assert release.value.score(DATA[40:], y[40:]) == release.looks[-1].score


def test_steps_verify_and_the_sum_says_that_it_does_not(tmp_path: Path) -> None:
    release = refined(Information(0.5), 1.0, levels=2)
    for step in release.steps:
        pac.verify(step.certificate, step.bundle)
    with pytest.raises(CertificateError, match="Verify its steps"):
        pac.verify(release.certificate, release.bundle)
    path = release.save(tmp_path / "out")
    assert pac.Certificate.read(path) == release.certificate
    assert json.loads(path.read_text())["certificate"]["composition"]["target_reached"] == "no"
    assert (tmp_path / "out" / "step-02" / "curator.npz").exists()


def test_a_session_keeps_what_was_not_needed() -> None:
    target = pac.Accuracy(at_least=-5.0, on=(np.zeros(3),), metric=closeness)
    with pac.Session(DATA, budget=Information(1.0), n_subsets=32, rng=0) as session:
        first = session.refine(mean, Information(0.5), target, rule="waterfill")
        second = session.release(mean, Information(0.9), rule="waterfill")
    assert first.reached
    assert second.certificate.mi_upper_nats <= 0.9
    assert session.odometer().spent.mi_nats <= 1.0


@pytest.mark.claim("N-5")
@pytest.mark.claim("S-3")
def test_every_proof_of_a_refinement_has_draws_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Draws that have chosen the shape of the noise must not prove anything about it."""
    used: list[tuple[object, ...]] = []

    def recorded(seed: int, stream: str, *indices: int) -> np.random.Generator:
        if stream.startswith("verify"):
            used.append((seed, stream, *indices))
        return public_generator(seed, stream, *indices)

    monkeypatch.setattr(noise_proof, "public_generator", recorded)
    release = refined(Membership(0.7), 1.0, data=DATA[:30], n_subsets=16, rule=None, levels=2)
    assert len(release.steps) == 2
    assert len(used) >= 3  # for the shape, and for each step
    assert len(set(used)) == len(used)


def test_a_release_that_was_refused_leaves_its_draws_behind() -> None:
    """What is asked next may depend on why, so it is proved on other draws."""
    with pac.Session(DATA, budget=Information(1.0), n_subsets=32, rng=0) as session:
        seeds = [session._secret._proof_seed(session.spent.n_releases) for _ in range(3)]
        session.release(mean, Information(0.1), rule="waterfill")
        seeds += [session._secret._proof_seed(session.spent.n_releases) for _ in range(3)]
    assert len(set(seeds)) == 6


def test_shares_grow_to_one() -> None:
    shares = refinement_shares(Spent(mi_nats=1.0), None)
    assert len(shares) == 12
    assert shares[-1] == 1.0
    assert all(a < b for a, b in pairwise(shares))


@pytest.mark.claim("N-8")
@pytest.mark.parametrize("rule", ["diagonal", "waterfill", "exact"])
def test_rescaled_plans_meet_another_budget_under_another_belief(rule: str) -> None:
    outputs = np.random.default_rng(2).normal(size=(24, 3))
    plan = calibrate(outputs, Information(1.0), rule=rule, rng=0)
    weights = np.random.default_rng(3).dirichlet(np.ones(24))
    problem = PlanProblem(
        values=outputs,
        log_p=np.log(weights),
        gamma=1e-9,
        seed=4,
        mi_nats=0.125,
    )
    other = prove_rescaled(plan, problem, simulated=rule == "exact")
    assert other.mi_upper <= 0.125
    assert other.mi_upper > 0.12
    # The same bound by hand, from what will really be sampled.
    points = other.points / other.units_per_std
    centred = points - weights @ points
    by_hand = 0.5 * np.linalg.slogdet(np.eye(3) + (centred.T * weights) @ centred)[1]
    if rule == "exact":
        assert by_hand < 0.14
    else:
        assert by_hand == pytest.approx(other.mi_upper, rel=1e-6)
    np.testing.assert_allclose(
        other.noise_std / plan.noise_std, (other.noise_std / plan.noise_std)[0], rtol=1e-5
    )


def test_estimates_of_a_refinement_close_in_on_the_output() -> None:
    outputs = np.linspace(-1, 1, 16)[:, None]
    steps = FallingNoise(outputs, Spent(mi_nats=20.0), rule="waterfill")
    source = SimulatedSource(np.random.default_rng(0))
    log_p = np.full(16, -np.log(16))
    errors = []
    for nats in (0.1, 1.0, 20.0):
        plan = steps.plan(Information(nats), Calibration(seed=0, log_belief=log_p))
        errors.append(abs(float(steps.add(plan, plan.observe(3, source))[0] - outputs[3, 0])))
    assert errors[-1] < 1e-6


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"at_least": float("nan")}, "at_least must be a finite number"),
        ({"confidence": 1.0}, "confidence must be between"),
    ],
)
def test_bad_targets_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(BudgetError, match=match):
        pac.Accuracy(**({"at_least": 0.9, "on": ()} | settings))


def test_bad_requests_are_refused_before_anything_is_spent() -> None:
    target = pac.Accuracy(at_least=0.0, on=(0.0,), metric=closeness)
    with pytest.raises(BudgetError, match="levels must come with a target"):
        pac.privatize(np.mean, DATA[:, 0], Information(1), levels=3)
    with pytest.raises(BudgetError, match="levels must be a positive"):
        pac.privatize(np.mean, DATA[:, 0], Information(1), n_subsets=16, target=target, levels=-1)
    with pytest.raises(BudgetError, match="target must be an Accuracy"):
        pac.privatize(np.mean, DATA[:, 0], Information(1), n_subsets=16, target=0.9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "confidence", "match"),
    [
        (lambda value, known: float("nan"), None, "finite numbers"),
        (lambda value, known: np.array([2.0, 0.5]), 0.9, "one number in \\[0, 1\\]"),
        (None, None, "metric must be given"),
    ],
)
def test_bad_metrics_are_refused(metric: Any, confidence: float | None, match: str) -> None:
    target = pac.Accuracy(at_least=0.5, on=(0.0,), metric=metric, confidence=confidence)
    with pytest.raises(MechanismError, match=match):
        pac.privatize(
            np.mean, DATA[:, 0], Information(1), n_subsets=16, target=target, rule="waterfill"
        )


def test_confidence_asks_for_a_margin() -> None:
    rows = np.r_[np.ones(950), np.zeros(50)]
    plain = pac.Accuracy(at_least=0.93, on=(), metric=lambda value: rows)
    careful = pac.Accuracy(at_least=0.93, on=(), metric=lambda value: rows, confidence=0.99)
    assert plain.look(None, n_looks=12).enough
    look = careful.look(None, n_looks=12)
    assert look.score == pytest.approx(0.95)
    assert not look.enough
    assert look.cautious > 0.89


@pytest.mark.claim("S-3", "H-1")
def test_a_release_that_the_metric_makes_stays_paid() -> None:
    """The next step goes on from what every unit has left then, not from after the last step."""
    left: list[Any] = []
    with pac.Session(
        DATA[:12, 0], budget=Membership(0.7), n_subsets=16, rng=0, simulate=True
    ) as session:

        def metric(value: Any, known: Any) -> float:
            left.append(session.balances)
            if len(left) == 1:
                session.release(np.median, share=0.3)
                left.append(session.balances)
            return 0.0

        target = pac.Accuracy(at_least=1.0, on=(0.0,), metric=metric)
        steps = session.refine(np.mean, Membership(0.69), target, levels=2).steps
        assert len(steps) == 2
        for before, step in zip((None, left[1]), steps, strict=True):
            assert before in (None, step.bundle.session.balances)
        charged = 0.5 * 0.4 - session.balances.increment_left  # type: ignore[union-attr]
        assert session.spent.success_increment == pytest.approx(charged, rel=1e-9)


def test_a_charge_that_some_unit_cannot_pay_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pac.Session(DATA, budget=Membership(0.6), n_subsets=16, rng=0, simulate=True) as session:
        monkeypatch.setattr(
            "pacprivacy.release.certified_charges", lambda *_: np.full(len(DATA), 0.07)
        )
        with pytest.raises(BudgetExceededError, match="paid for by every unit"):
            session.release(mean, share=0.5)
        assert session.spent.n_releases == 0


def test_a_plan_from_before_another_release_is_refused() -> None:
    """Even if it is called the latest one: a rule may have made the other release."""
    with pac.Session(DATA, budget=Membership(0.6), n_subsets=16, rng=0, simulate=True) as session:
        plan = session.plan(mean, share=0.2)
        session.release(mean, share=0.2)
        session._planned = plan
        with pytest.raises(SecretError, match="the belief has moved on"):
            session.publish(plan)
