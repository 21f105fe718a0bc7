"""Refining with coins: what units pay, what the certificate promises, what attackers reach."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from coin_truth import gauss
from pacprivacy.adversary import session_cap
from pacprivacy.sample import Roster
from pacprivacy.session import GradualRelease
from pacprivacy.session.coin_secret import CoinSecret

pytestmark = pytest.mark.claim("C-23")

MEAN = functools.partial(np.mean, axis=0)
X = np.random.default_rng(0).normal(size=(6000, 2)) ** 3
BUDGET, TOTAL = 0.57, 0.6
NEVER = pac.Accuracy(at_least=1.0, on=0.0, metric=lambda value, known: 0.0)
N_RUNS = 200_000


def begin(**options: Any) -> pac.Session:
    settings: dict[str, Any] = {"budget": f"membership<={TOTAL}", "sample": pac.Coins()} | options
    return pac.Session(X, **settings)


def influences(release: GradualRelease) -> np.ndarray:
    """How far each unit moves each step, in deviations of its noise; steps × units."""
    moves = []
    for step in release.steps:
        bundle: Any = step.bundle
        assert len(bundle.integers) == len(X)
        moves.append(np.linalg.norm(bundle.integers / bundle.units_per_std[0], axis=1))
    return np.array(moves)


def overspent(release: GradualRelease, session: pac.Session) -> bool:
    """Whether some unit moved the steps by more than the budget, or than its clock says."""
    clocks: Any = session.balances
    paid = np.square(influences(release)).sum(axis=0)
    return bool((paid > session_cap(BUDGET)).any() or (paid > clocks.spent).any())


def test_every_unit_pays_for_every_step_and_none_more_than_the_budget() -> None:
    with begin() as session:
        release = session.refine(MEAN, f"membership<={BUDGET}", NEVER)
        assert not release.reached
        assert len(release.steps) == len(release.looks) == 12
        assert not overspent(release, session)
        clocks: Any = session.balances
        paid = np.square(influences(release)).sum(axis=0)
        np.testing.assert_allclose(clocks.spent, paid, rtol=1e-3, atol=1e-9)
        assert clocks.busiest > 0.85 * session_cap(BUDGET)
        grids = [step.bundle.grid.tobytes() for step in release.steps]  # type: ignore[attr-defined]
        assert len(set(grids)) > 6  # halved where noise is halved
        session.release(MEAN, share=1.0)  # the rest is there for others


@pytest.mark.parametrize("bug", ["members", "mean"])
def test_clocks_that_charge_members_or_the_mean_are_caught(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Roster.spread

    def spread(self: Roster, charges: np.ndarray) -> np.ndarray:
        secret: Any = session._secret
        if bug == "mean":
            return real(self, np.full(len(charges), math.sqrt(np.square(charges).mean())))
        if secret._held is None:
            secret.draw(session._source)
        return real(self, np.where(secret._held._kept, charges, 0.0))

    with begin() as session:
        monkeypatch.setattr(Roster, "spread", spread)
        release = session.refine(MEAN, f"membership<={BUDGET}", NEVER, levels=4)
        assert overspent(release, session)


def attacked(steps: np.ndarray, *, stop: float) -> tuple[float, float]:
    """Advantage of whoever knows all but one coin and stops when convinced; three errors."""
    rng, used = np.random.default_rng(4), np.arange(N_RUNS) % 2 == 0
    evidence = np.zeros(N_RUNS)
    for influence in steps:
        r = np.where(np.abs(evidence) < stop, influence, 0.0)
        evidence += r * (used * r + rng.normal(size=N_RUNS)) - r**2 / 2
    guess = evidence > 0
    error = 3 * math.sqrt(1.0 / N_RUNS)
    return float(guess[used].mean() - guess[~used].mean()), error


def test_the_informed_attacker_stays_below_the_cap_wherever_he_stops() -> None:
    with begin() as session:
        release = session.refine(MEAN, f"membership<={BUDGET}", NEVER)
    moves = influences(release)
    worst = moves[:, np.square(moves).sum(axis=0).argmax()]
    promised = 2 * BUDGET - 1
    for stop in (math.inf, 0.5, 0.15):
        reached, error = attacked(worst, stop=stop)
        assert reached <= promised + error
    assert attacked(worst, stop=math.inf)[0] > 0.9 * promised
    # What was spent bounds nothing, and noise of the sum at every step is a planted bug.
    sums = np.sqrt(np.cumsum(np.square(worst)))
    reached, error = attacked(sums, stop=math.inf)
    assert reached > promised + error


def test_the_certificate_promises_the_cap_wherever_one_stops() -> None:
    easy = pac.Accuracy(at_least=0.0, on=0.0, metric=lambda value, known: 0.0)
    with begin() as session:
        release = session.refine(MEAN, f"membership<={BUDGET}", easy)
        certificate: Any = release.certificate
        assert release.reached
        assert len(release.steps) == 1
        assert BUDGET - 1e-4 < certificate.membership_bound <= BUDGET
        assert certificate.composition["session_success_bound"] <= TOTAL
        seen = session.odometer()
        assert seen.spent.mu_squared is not None
        spent = float(gauss(math.sqrt(seen.spent.mu_squared)))
        assert spent < 0.3 * (2 * BUDGET - 1)  # no bound, and not what is promised
        assert "of what was spent" not in certificate.promise
        for step in release.steps:
            assert step.certificate.membership_bound < certificate.membership_bound


def test_the_value_is_the_mean_of_the_steps_and_as_precise_as_one_release() -> None:
    with begin() as session:
        release = session.refine(MEAN, f"membership<={BUDGET}", NEVER)
    with begin() as session:
        whole = session.plan(MEAN, f"membership<={BUDGET}")
    ratio = release.certificate.noise.total_variance / whole.certificate.noise.total_variance
    assert 0.8 < ratio < 1.25
    variances = [step.certificate.noise.total_variance for step in release.steps]
    assert variances == sorted(variances, reverse=True) or variances[0] > 5 * variances[-1]
    assert np.abs(np.asarray(release.value) - X.mean(axis=0)).max() < 0.6


def test_plans_of_steps_do_not_depend_on_the_coins() -> None:
    traces = []
    for seed in (1, 2):
        with begin(simulate=True, rng=seed) as session:
            release = session.refine(MEAN, f"membership<={BUDGET}", NEVER, levels=3)
            secret: Any = session._secret
            assert isinstance(secret, CoinSecret)
            traces.append(
                (
                    secret._held._kept.tobytes(),  # type: ignore[union-attr]
                    secret.balances.spent.tobytes(),  # type: ignore[union-attr]
                    str(session.odometer()),
                    [step.certificate for step in release.steps],
                )
            )
    assert traces[0][0] != traces[1][0]
    assert traces[0][1:] == traces[1][1:]
