"""Sessions: budgets hold before anything happens, the belief is the attacker's, nothing is kept."""

import copy
import importlib
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SystemSource
from pacprivacy.adversary import Balances, Belief
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    DataError,
    MechanismError,
    PacPrivacyError,
    SecretError,
)
from pacprivacy.mechanism import Mechanism
from pacprivacy.noise import calibrate
from pacprivacy.release import verify
from pacprivacy.sample import Half

ASSESS = importlib.import_module("pacprivacy.release.pool_certificate")
CERTIFY = importlib.import_module("pacprivacy.noise.proof")
PUBLISH = importlib.import_module("pacprivacy.session.pool_secret")
DATA = np.random.default_rng(0).normal(size=(24, 2))


def mean(x: Any) -> Any:
    return x.mean(axis=0)


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 4096)
        patch.setattr(ASSESS, "membership_draws", lambda m: 4096)
        patch.setattr(ASSESS, "SIDE_KNOWLEDGE_SIZES", (1,))
        patch.setattr(CERTIFY, "POSTERIOR_COST", 10**6)
        yield


def open_session(budget: Any, **options: Any) -> pac.Session:
    return pac.Session(DATA, budget=budget, **{"n_subsets": 16, "rng": 0, **options})


class Watch:
    """Counts what a refused release must not do."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.evaluated = self.drawn = 0
        words = SystemSource.words

        def watched(source: SystemSource, size: int) -> Any:
            self.drawn += 1
            return words(source, size)

        patch.setattr(SystemSource, "words", watched)

    def mean(self, x: Any) -> Any:
        self.evaluated += 1
        return mean(x)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


# --- the budget comes first -----------------------------------------------------------------


@pytest.mark.claim("S-1")
@pytest.mark.parametrize(
    ("total", "asked"),
    [
        (pac.Information(0.5), pac.Information(0.6)),
        (pac.Membership(0.6), pac.Membership(0.65)),
        (pac.Information(0.5) & pac.Membership(0.6), pac.Information(0.1) & pac.Membership(0.7)),
        (pac.EpsilonEquivalent(0.5), pac.EpsilonEquivalent(1.0)),
    ],
)
def test_too_much_is_refused_before_anything_is_drawn_or_evaluated(
    watch: Watch, total: Any, asked: Any
) -> None:
    session = open_session(total)
    with pytest.raises(BudgetExceededError, match="must be at most what is left") as error:
        session.release(watch.mean, asked)
    assert "\n" not in str(error.value)
    assert (watch.evaluated, watch.drawn) == (0, 0)
    odometer = session.odometer()
    assert (
        odometer.spent.n_releases,
        odometer.spent.mi_nats,
        odometer.spent.success_increment,
    ) == (0, 0.0, 0.0)
    assert session.releases == ()


@pytest.mark.claim("S-1")
def test_information_adds_up_and_then_ends(watch: Watch) -> None:
    session = open_session(pac.Information(0.5))
    for k in range(2):
        release = session.release(watch.mean, pac.Information(0.25), rule="waterfill")
        assert session.odometer().spent.mi_nats <= 0.25 * (k + 1)
        facts = release.certificate.composition
        assert facts is not None
        assert facts["release_number"] == k + 1
        assert facts["spent_nats_so_far"] == pytest.approx(session.odometer().spent.mi_nats)
        assert facts["total_nats"] == 0.5
    before = (watch.evaluated, watch.drawn)
    with pytest.raises(BudgetExceededError):
        session.release(watch.mean, pac.Information(0.25))
    assert (watch.evaluated, watch.drawn) == before
    assert session.odometer().spent.n_releases == 2


@pytest.mark.claim("H-1")
def test_membership_is_charged_to_balances() -> None:
    """Four releases of half the increment fit, not two: charges grow with its square."""
    session = open_session(pac.Membership(0.6))
    for k in range(4):
        session.release(lambda x: x[:, 0].mean(), pac.Membership(0.55))
        left = 0.1 * math.sqrt(1 - (k + 1) / 4)
        assert session.odometer().spent.success_increment == pytest.approx(0.1 - left, abs=1e-6)
    with pytest.raises(BudgetExceededError, match="membership budget is used up"):
        session.release(mean, pac.Membership(0.55))
    assert session.odometer().spent.mi_nats > 0  # counted although only membership is limited


@pytest.mark.claim("H-1")
def test_a_share_is_of_what_is_left() -> None:
    session = open_session(pac.Information(1) & pac.Membership(0.6))
    first = session.release(mean, share=0.5)
    assert first.bundle.session.share.mi_nats == 0.5
    assert session.balances.worst >= 0.5 * Balances.begin(0.2, 1).worst * (1 - 1e-9)
    assert session.balances.reserve == 0.5
    session.release(lambda x: x[:, 0].mean())  # all that is left
    assert session.balances.reserve == 0.0
    with pytest.raises(BudgetExceededError):
        session.release(mean, share=0.5)


@pytest.mark.claim("H-1")
@pytest.mark.parametrize(
    ("budget", "about"), [(pac.Membership(0.7), " about any one record"), (pac.Information(1), "")]
)
def test_charges_are_proved_for_each_unit_and_not_for_all_at_once(budget: Any, about: str) -> None:
    with open_session(budget) as session:
        notes = session.release(mean, share=0.5).certificate.notes
    assert any(f"their proofs{about} hold together" in note for note in notes)


@pytest.mark.parametrize("share", [0.0, 1.1, float("nan"), "1 of 0", "2 of 10", "1/10", "1 of ten"])
def test_a_share_is_a_share(share: float | str) -> None:
    with pytest.raises(BudgetError, match="share must be above 0"):
        open_session(pac.Membership(0.6)).release(mean, share=share)


@pytest.mark.claim("H-1")
def test_a_plan_lets_units_spend_what_they_saved() -> None:
    """The last of three planned releases takes all; who was not asked about has more of it."""
    full, session = Balances.begin(0.2, 1).worst, open_session(pac.Membership(0.6))
    releases = [session.release(lambda x: x[:, 0].mean(), share=f"1 of {n}") for n in (3, 2, 1)]
    for k, release in enumerate(releases):
        part = release.bundle.session
        before, even = part.balances.per_unit, part.balances.per_unit / (3 - k)
        ahead = before - full * (2 - k) / 3
        assert part.part == 1 / (3 - k)
        np.testing.assert_allclose(part.allowed, np.sqrt(even * np.maximum(even, ahead)))
        assert (before - part.allowed >= full * (2 - k) / 3 * (1 - 1e-6)).all()  # not behind
    worst = [release.bundle.session.balances.worst for release in releases]
    np.testing.assert_allclose(worst, [full, full * 2 / 3, full / 3], rtol=0.02)
    assert releases[1].bundle.session.allowed.max() > 1.05 * full / 3
    with pytest.raises(BudgetExceededError):
        session.release(mean, share="1 of 1")


def test_a_release_has_a_budget_or_a_share() -> None:
    with pytest.raises(BudgetError, match="must not both be given"):
        open_session(pac.Membership(0.6)).release(mean, pac.Membership(0.55), share=0.5)


@pytest.mark.claim("H-1")
def test_balances_are_lost_when_the_value_is_and_not_before(watch: Watch) -> None:
    session = open_session(pac.Membership(0.6))
    session.plan(watch.mean, share=0.5)
    full = Balances.begin(0.2, 1).worst
    assert session.balances.worst == pytest.approx(full)  # planning costs nothing
    release = session.release(watch.mean, share=0.5)
    part = release.bundle.session
    assert (session.balances.per_unit <= part.balances.per_unit).all()
    assert (part.balances.per_unit - session.balances.per_unit <= part.allowed * (1 + 1e-9)).all()


@pytest.mark.claim("H-1")
@pytest.mark.parametrize("rule", ["exact", "waterfill", None])
def test_a_total_on_membership_binds_releases_that_ask_for_information(rule: str | None) -> None:
    """The total limits every release, whatever the release names and whichever rule it takes."""
    data = DATA.copy()
    data[0] *= 100  # one record that an information budget of two nats would give away
    session = pac.Session(
        data, budget=pac.Information(3) & pac.Membership(0.55), n_subsets=16, rng=0
    )
    release = session.release(mean, pac.Information(2.0), rule=rule)
    assert release.certificate.membership_bound <= 0.55
    assert session.odometer().spent.success_increment <= 0.05 + 1e-9


def test_an_information_release_charges_membership_at_most_what_it_implies() -> None:
    session = open_session(pac.Information(1) & pac.Membership(0.9))
    full = Balances.begin(0.8, 1).worst
    session.release(mean, pac.Information(0.02), rule="waterfill")
    assert 0 < full - session.balances.worst <= 2 * 0.02 * 1.1  # E (2 Q - 1)² <= 2 nats
    session.release(mean, pac.Membership(0.6))


def test_a_failed_mechanism_costs_nothing(watch: Watch) -> None:
    session = open_session(pac.Information(0.5))

    def broken(x: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(MechanismError, match="failed on subset 0"):
        session.release(broken, pac.Information(0.25))
    assert watch.drawn == 0
    assert session.odometer().spent.mi_nats == 0.0
    session.release(mean, pac.Information(0.5), rule="waterfill")


@pytest.mark.claim("S-1")
@pytest.mark.parametrize("budget", [pac.Information(0.2), pac.Membership(0.6)])
def test_a_mechanism_that_releases_does_not_spend_twice(budget: Any) -> None:
    """What was left before it ran is not left any more."""
    session = open_session(budget)

    def greedy(x: Any) -> Any:
        if not session.releases:
            session.release(mean, budget, rule="waterfill")
        return mean(x)

    with pytest.raises(BudgetExceededError):
        session.release(greedy, budget, rule="waterfill")
    assert len(session.releases) == 1


def test_an_impossible_rule_costs_nothing(watch: Watch) -> None:
    session = open_session(pac.Information(0.5))
    with pytest.raises(BudgetError, match="rule must be one of"):
        session.release(watch.mean, pac.Information(0.25), rule="fancy")
    assert (watch.evaluated, watch.drawn) == (0, 0)


@pytest.mark.parametrize("pool", [Half(n_subsets=16), pac.Balanced(folds=4)])
def test_balances_are_about_equal_odds_whatever_the_prior_of_the_pool(pool: Any) -> None:
    session = open_session(pac.Membership(0.9), sample=pool)
    release = session.release(mean, pac.Membership(0.6))
    assert release.certificate.prior > 0.6
    full = Balances.begin(0.8, 1).worst
    np.testing.assert_allclose(release.proof.session.balances.per_unit, full)


class FailsAfterwards(Mechanism):
    """Post-processing that has seen the value and fails."""

    name = "fails afterwards"

    def evaluate(self, parts: Any, rng: Any) -> Any:
        return mean(parts[0])

    def finish(self, value: Any) -> Any:
        raise RuntimeError(f"bad value {value}")


@pytest.mark.claim("S-1")
def test_the_belief_knows_of_a_value_that_only_an_error_has_shown() -> None:
    session = open_session(pac.Information(1), simulate=True)
    with pytest.raises(RuntimeError, match="bad value"):
        session.release(FailsAfterwards(), pac.Information(0.25), rule="waterfill")
    again = open_session(pac.Information(1), simulate=True)
    again.release(mean, pac.Information(0.25), rule="waterfill")
    assert session.odometer() == again.odometer()
    assert session.odometer().learned_nats > 0
    later = [s.release(mean, pac.Information(0.25), rule="waterfill") for s in (session, again)]
    assert later[0].value.tobytes() == later[1].value.tobytes()
    assert session.releases == (later[0],)


@pytest.mark.claim("S-1")
def test_a_failure_between_the_noise_and_the_belief_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = open_session(pac.Information(1))
    with monkeypatch.context() as patch:
        patch.setattr(Belief, "updated", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.release(mean, pac.Information(0.25), rule="waterfill")
    assert session.odometer().spent.mi_nats > 0
    with pytest.raises(SecretError, match="it is closed"):
        session.release(mean, pac.Information(0.25))


# --- the belief -----------------------------------------------------------------------------


@pytest.mark.claim("S-1")
def test_the_belief_is_bayes_rule_on_what_was_released() -> None:
    session = open_session(pac.Information(4), simulate=True)
    log_p = np.zeros(16)
    for k in range(3):
        release = session.release(
            lambda x, k=k: x.mean(axis=0) ** (k + 1), pac.Information(1), rule="diagonal"
        )
        bundle = release.bundle
        np.testing.assert_allclose(bundle.log_p, log_p - np.log(np.exp(log_p).sum()), atol=1e-9)
        # recover the integers from the released value: the axes are the coordinates
        weights = np.exp(bundle.log_p)
        center = weights @ bundle.outputs
        integers = (release.value - center) / bundle.grid_step
        steps = (integers - bundle.points) / bundle.units_per_std
        log_p = bundle.log_p - 0.5 * np.square(steps).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    learned = math.log(16) + float((p * np.log(np.maximum(p, 1e-300))).sum())
    assert session.odometer().learned_nats == pytest.approx(learned, abs=1e-4)
    pool = session.releases[0].bundle.pool
    inside = p @ pool.masks()
    guess = float(np.maximum(inside, 1 - inside).max())
    assert session.odometer().best_guess_now == pytest.approx(guess, abs=1e-4)


@pytest.mark.claim("S-1")
def test_later_releases_are_calibrated_to_the_belief() -> None:
    """Once most candidates are ruled out, the same budget hides fewer of them with less noise."""
    session = open_session(pac.Information(5), simulate=True)
    session.release(mean, pac.Information(2.5), rule="waterfill")
    second = session.release(mean, pac.Information(0.5), rule="waterfill")
    blind = calibrate(second.bundle.outputs, pac.Information(0.5), rule="waterfill")
    assert second.certificate.noise.total_variance < 0.9 * blind.total_variance
    verify(second.certificate, second.bundle)


def test_a_session_goes_on_after_a_release_without_noise() -> None:
    """Half of the candidates are ruled out for certain; the others are hidden as before."""
    session = open_session(pac.Information(9), simulate=True)
    first = session.release(lambda x: float(x[:, 0].sum() > 0), pac.Information(1))
    assert first.certificate.noise.total_variance == 0.0
    assert session.odometer().learned_nats > 0
    for _ in range(2):
        later = session.release(mean, pac.Information(1), rule="waterfill")
        assert np.isneginf(later.bundle.log_p).any()
        verify(later.certificate, later.bundle)
    everything = session.release(mean, pac.Information(4))
    assert everything.certificate.noise.total_variance == 0.0
    again = session.release(lambda x: x.std(axis=0), pac.Information(0.1))
    assert again.certificate.mi_upper_nats == 0.0  # nothing is left to hide


def test_the_odometer_starts_at_nothing() -> None:
    odometer = open_session(pac.Information(1) & pac.Membership(0.7)).odometer()
    assert odometer.spent.n_releases == 0
    assert (odometer.learned_nats, odometer.best_guess_now) == (0.0, 0.5)
    assert (odometer.total.mi_nats, odometer.total.success_level) == (1.0, 0.7)


# --- the end --------------------------------------------------------------------------------


def test_a_closed_session_has_forgotten_its_secret() -> None:
    with open_session(pac.Information(1)) as session:
        session.release(mean, pac.Information(0.25), rule="waterfill")
    assert session._secret.secret is None
    with pytest.raises(SecretError, match="it is closed"):
        session.release(mean, pac.Information(0.25))
    assert session.odometer().spent.n_releases == 1
    assert len(session.releases) == 1


def test_an_exception_inside_closes_the_session() -> None:
    with pytest.raises(ZeroDivisionError), open_session(pac.Information(1)) as session:
        _ = 1 / 0
    with pytest.raises(SecretError):
        session.release(mean, pac.Information(0.25))


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_session_cannot_leave_its_process(copied: Any) -> None:
    session = open_session(pac.Information(1))
    session.release(mean, pac.Information(0.25), rule="waterfill")
    with pytest.raises(SecretError, match="must stay in"):
        copied(session)
    with pytest.raises(SecretError, match="must stay in"):
        copied(session._secret.secret)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"budget": 0.5}, BudgetError),
        ({"n_subsets": 7}, PacPrivacyError),
        ({"units": np.arange(5)}, PacPrivacyError),
    ],
)
def test_bad_arguments_are_refused_in_one_line(bad: dict[str, Any], error: type) -> None:
    options = {"n_subsets": 16, "rng": 0, "budget": pac.Information(1), **bad}

    def use() -> None:
        pac.Session(DATA, **options).release(mean, pac.Information(0.25))

    with pytest.raises(error) as found:
        use()
    assert "\n" not in str(found.value)


def test_bad_data_is_refused_at_once() -> None:
    with pytest.raises(DataError):
        pac.Session(np.array([[1.0], [np.nan], [0.0], [2.0]]), budget=pac.Information(1))


@pytest.mark.claim("S-1")
def test_a_session_closed_by_its_mechanism_draws_no_second_secret() -> None:
    data = np.random.default_rng(0).normal(size=40)
    session = pac.Session(data, budget=pac.Information(1), n_subsets=16, rng=0)
    session.release(np.mean, pac.Information(0.25), rule="waterfill")
    spent = session.odometer().spent.mi_nats

    def closing(rows: np.ndarray) -> float:
        session.close()
        return float(rows.mean())

    with pytest.raises(SecretError, match="it is closed"):
        session.release(closing, pac.Information(0.25), rule="waterfill")
    assert session.odometer().spent.mi_nats == spent


# --- the same budgets as privatize ----------------------------------------------------------


@pytest.mark.claim("S-1")
@pytest.mark.parametrize("n_subsets", [16, None])
def test_residual_entropy_is_a_total_and_a_share(n_subsets: int | None) -> None:
    total, share = pac.ResidualEntropy(share=0.8), pac.ResidualEntropy(share=0.9)
    options = {"sample": pac.Balanced(n_subsets=16)} if n_subsets is None else {}
    session = pac.Session(DATA, budget=total, n_subsets=n_subsets, rng=0, **options)
    with session:
        first = session.release(mean, share, rule="waterfill")
        pac.verify(first.certificate, first.bundle)
        session.release(mean, share, rule="waterfill")
        with pytest.raises(BudgetExceededError):
            session.release(mean, share, rule="waterfill")
    assert session.odometer().total.mi_nats == total.on(16).mi_nats
    assert first.certificate.mi_upper_nats <= share.on(16).mi_nats


def test_an_epsilon_equivalent_is_a_total_and_a_share() -> None:
    with pac.Session(DATA, budget=pac.EpsilonEquivalent(1.0), n_subsets=16, rng=0) as session:
        session.release(mean, pac.EpsilonEquivalent(0.2), rule="waterfill")
    assert session.odometer().total.success_level == pac.EpsilonEquivalent(1.0).membership_success


# --- plans ----------------------------------------------------------------------------------


@pytest.mark.claim("R-2")
def test_a_plan_is_the_release_before_anything_is_drawn(watch: Watch) -> None:
    asked = {"rule": "waterfill", "n_subsets": 16, "rng": 0}
    plan = pac.plan(mean, DATA, pac.Membership(0.6), **asked)
    assert watch.drawn == 0
    assert "nothing was released or spent" in str(plan)
    release = pac.privatize(mean, DATA, pac.Membership(0.6), **asked)
    assert plan.certificate == release.certificate
    assert plan.charge.mi_nats == release.certificate.mi_upper_nats


def test_a_session_plans_without_spending(watch: Watch) -> None:
    with pac.Session(DATA, budget=pac.Information(0.5), n_subsets=16, rng=0) as session:
        first = session.plan(mean, pac.Information(0.4), rule="waterfill")
        second = session.plan(mean, pac.Information(0.4), rule="waterfill")
        assert (watch.drawn, session.spent.mi_nats, session.spent.n_releases) == (0, 0.0, 0)
        assert first.charge == second.charge
        release = session.release(mean, pac.Information(0.4), rule="waterfill")
        assert session.spent.mi_nats == first.charge.mi_nats
    assert release.certificate.mi_upper_nats == first.certificate.mi_upper_nats
    with pytest.raises(SecretError, match="session must be open"):
        session.plan(mean, pac.Information(0.1))


@pytest.mark.claim("S-1")
def test_a_plan_is_published_once_and_not_after_another_release(watch: Watch) -> None:
    """Its noise was calibrated to a belief that has moved on."""
    with pac.Session(DATA, budget=pac.Information(1), n_subsets=16, rng=0) as session:
        old = session.plan(mean, pac.Information(0.1), rule="waterfill")
        session.release(mean, pac.Information(0.1), rule="waterfill")
        drawn, spent = watch.drawn, session.spent
        for stale in (old, pac.plan(mean, DATA, pac.Information(0.1), n_subsets=16, rng=0)):
            with pytest.raises(SecretError, match="plan must be the session's latest"):
                session.publish(stale)
        assert (watch.drawn, session.spent) == (drawn, spent)
        new = session.plan(mean, pac.Information(0.1), rule="waterfill")
        release, _ = session.publish(new)
        pac.verify(release.certificate, release.bundle)
        with pytest.raises(SecretError, match="plan must be the session's latest"):
            session.publish(new)
