"""Steps of growing precision about one candidate: noise of one shape at falling levels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pacprivacy import noise
from pacprivacy._checks import Vector, as_outputs
from pacprivacy.adversary import DEFAULT_GAMMA, Balances
from pacprivacy.budget import AnyBudget, Spent
from pacprivacy.release import (
    NAMED,
    Certificate,
    ErrorBars,
    PoolCertificate,
    Release,
    certificate_epsilon,
    error_bar_notes,
)
from pacprivacy.session.dry_run import dry_run_information
from pacprivacy.session.secret import Plan, Purse, Refinement, check_levels
from pacprivacy.theory import membership_success, posterior_success

if TYPE_CHECKING:
    from collections.abc import Callable

    from pacprivacy.session.account import AccountShare
    from pacprivacy.session.pool_secret import Calibration, Evaluated, PoolPlan, PoolSecret
    from pacprivacy.session.secret_holder import Odometer

INFORMATION_LEVELS: Final = 12
MEMBERSHIP_LEVELS: Final = 4
_RATIO: Final = {"information": 2.0**-0.5, "membership": 0.5}


def refinement_shares(share: Spent, levels: int | None) -> tuple[float, ...]:
    """Return the part of a share that may be spent up to each level, growing to 1.

    Information adds up exactly, so its levels are many and close. Increments of membership
    lose with every step, so there they are few and far apart.
    """
    kind = "information" if share.success_increment is None else "membership"
    count = check_levels(levels, INFORMATION_LEVELS if kind == "information" else MEMBERSHIP_LEVELS)
    return tuple(_RATIO[kind] ** (count - 1 - k) for k in range(count))


class FallingNoise:
    """Noise of one fixed shape at falling levels, and what was odometer so far; curator-only.

    ``share`` is what all steps together may spend; the shape is found by the rule at the whole
    share.

    Guarantee
    ---------
    Claim S-3. Every plan of :meth:`plan` meets its own limits under the belief it is given, so
    Claims S-1 and H-1 hold for the transcript whatever rule ends it. The estimate is a function of
    the observations.
    """

    def __init__(self, outputs: object, share: Spent, *, rule: noise.AnyRule | None = None) -> None:
        self._values, self._share, self._rule = as_outputs(outputs), share, rule
        self._base: noise.NoisePlan | None = None
        self._spread = noise.spread_of(
            self._values, np.full(len(self._values), 1 / len(self._values))
        )
        self._weighted: Vector = np.zeros(self._values.shape[1])
        self._precision = 0.0
        self.n_observations = 0

    @property
    def total_variance(self) -> float:
        if self._base is None or self._precision == 0.0:
            return 0.0
        return self._base.total_variance / self._precision

    @property
    def ceiling_nats(self) -> float:
        """Information that no transcript exceeds, chosen before anything is released."""
        if self._share.mi_nats is not None:
            return self._share.mi_nats
        most = float(np.log(len(self._values)))
        return most if self._base is None else min(most, 1.25 * self._base.mi_upper)

    def begin(self, rests_on: Calibration) -> None:
        """Find the shape of the noise, at the whole share; nothing is drawn."""
        self._first(dry_run_information(self._share), rests_on, DEFAULT_GAMMA)

    def _first(self, budget: AnyBudget, rests_on: Calibration, gamma: float) -> noise.NoisePlan:
        plan = noise.calibrate(
            self._values,
            budget,
            rule=self._rule,
            pool=rests_on.pool,
            log_belief=rests_on.log_belief,
            heat=rests_on.heat,
            gamma=gamma,
            rng=rests_on.seed,
        )
        self._base = None if plan.is_noiseless else plan
        return plan

    def plan(
        self, limit: AnyBudget, rests_on: Calibration, *, gamma: float = DEFAULT_GAMMA
    ) -> noise.NoisePlan:
        if self._base is None:
            return self._first(limit, rests_on, gamma)
        rule = noise.as_rule(self._rule)
        problem = rule.pose(
            self._values,
            limit,
            pool=rests_on.pool,
            log_belief=rests_on.log_belief,
            heat=rests_on.heat,
            gamma=gamma,
            rng=rests_on.seed,
            measured=self._spread,
        )
        free = problem.noiseless_plan(self._base.rule)
        if free is not None:  # little is left to be learned
            return free
        return noise.prove_rescaled(self._base, problem, simulated=rule.is_simulated)

    def add(self, plan: noise.NoisePlan, observation: noise.Observation) -> Vector:
        self.n_observations += 1
        value = plan.value_of(observation)
        if plan.is_noiseless or self._base is None:
            return value
        weight = float(np.sqrt(plan.total_variance / self._base.total_variance)) ** -2
        self._weighted = self._weighted + weight * value
        self._precision += weight
        return np.asarray(self._weighted / self._precision, dtype=np.float64)


_TINY: Final = 1e-12


class PoolRefinement(Refinement):
    """Steps about one candidate; each is calibrated to the belief that the steps before leave.

    Guarantee
    ---------
    Claim S-3. A step pays what remains of cap and ceiling up to its level.
    """

    def __init__(
        self, secret: PoolSecret, evaluated: Evaluated, purse: Purse, levels: int | None
    ) -> None:
        share = evaluated.share
        self._secret, self._evaluated, self._share = secret, evaluated, share
        self._fractions = refinement_shares(share.limits, levels)
        self._noise = FallingNoise(evaluated.outputs, share.limits, rule=evaluated.rule)
        self._noise.begin(secret.calibration(share, purse.spent.n_releases))
        self._start = purse.spent
        self._level, self._done, self._now = 0, 0.0, share.balances
        self.outputs, self.n_looks = evaluated.outputs, len(self._fractions)
        self._last: PoolPlan | None = None

    def next_plan(self, purse: Callable[[], Purse]) -> Plan | None:
        """Return the plan of the next step; None where nothing is left to spend."""
        before, share = purse(), self._share
        gone = (before.spent.mi_nats or 0.0) - (self._start.mi_nats or 0.0)
        now = self._secret.balances or self._now  # a metric may have made a release of its own
        for fraction in self._fractions[self._level :]:
            self._level += 1
            ceiling = self._noise.ceiling_nats
            nats = ceiling * (1.0 if share.limits.mi_nats is None else fraction) - gone
            part = _part(share, (self._done, fraction), nats, now)
            if part is not None:
                self._done = fraction
                evaluated = replace(self._evaluated, share=part)
                return self._secret.certify(evaluated, before, self._next_noise)
        return None

    def _next_noise(self, _: Evaluated, limit: AnyBudget, rests_on: Calibration) -> noise.NoisePlan:
        return self._noise.plan(limit, rests_on, gamma=DEFAULT_GAMMA / 2)

    def add(self, plan: Plan, observed: Any) -> Any:
        """Return the mean of all observations, the last among them."""
        last: Any = plan  # its own
        self._last, self._now = last, last.balances
        return self.outputs.restore(self._noise.add(last.noise, observed))

    def promise(
        self, steps: list[Release], odometer: Odometer
    ) -> tuple[Certificate, ErrorBars | None]:
        """Write down the cap as the promise, and the rest as facts about this run."""
        last = steps[-1].certificate
        assert isinstance(last, PoolCertificate)  # of a pool
        nats = self._noise.ceiling_nats
        bound = membership_success(nats, last.prior)
        limit = float((last.composition or {}).get("session_success_bound", 1.0))
        longer = odometer.spent.n_releases > len(steps)  # a part of a longer session
        bound = limit if longer else min(bound, limit)
        certificate = replace(
            last,
            budget=str(self._evaluated.budget),
            rule=f"{last.rule}, refined over {len(steps)} observations",
            log_det_nats=nats,
            information=None,
            mi_upper_nats=nats,
            any_inference={p: posterior_success(nats, float(p)) for p in last.any_inference},
            membership=None,
            membership_mean=None,
            membership_bound=bound,
            epsilon_equivalent=certificate_epsilon(bound),
            side_knowledge=(),
            noise=replace(last.noise, total_variance=self._noise.total_variance).rounded(),
            confidence=1 - len(steps) * DEFAULT_GAMMA if last.confidence < 1 else 1.0,
            composition={
                **(last.composition or {}),
                "session_success_bound": bound,
                "learned_nats": odometer.learned_nats,
                "best_guess_now": odometer.best_guess_now,
            },
        )
        bars = self._error_bars()
        return _described(certificate, bars, steps[-1]), bars

    def _error_bars(self) -> ErrorBars | None:
        assert self._last is not None  # a step was made
        bars, variance = self._last.error_bars, self._last.noise.total_variance
        if bars is None or not variance > 0:
            return bars
        bars = bars.with_noise((self._noise.total_variance / variance) ** 0.5)
        return bars.compared(self._last.outputs)


def _part(
    share: AccountShare, fractions: tuple[float, float], nats: float, now: Balances | None
) -> AccountShare | None:
    """Return what the next step may spend, given what the steps before it have left."""
    done, fraction = fractions
    if nats <= _TINY:
        return None
    if share.balances is None or share.allowed is None or now is None:
        return replace(share, limits=replace(share.limits, mi_nats=nats))
    paid = share.balances.per_unit - now.per_unit
    allowed = np.minimum(fraction * share.allowed - paid, now.per_unit)
    if (allowed <= _TINY * share.allowed).any():
        return None
    part = min(1.0, (fraction - done) * share.part / (1 - done * share.part))
    lost = now.increment_left - now.after(allowed, part).increment_left
    limits = Spent(mi_nats=nats, success_increment=max(lost, 0.0))
    return replace(share, limits=limits, balances=now, allowed=allowed, part=part)


def _described(certificate: Certificate, bars: ErrorBars | None, last: Release) -> Certificate:
    """Return the certificate with the error bars of the mean in place of those of the last step."""
    if bars is None or last.error_bars is None:
        return certificate
    of_step = error_bar_notes(last.error_bars)
    published = (text for text in certificate.published if not text.startswith(NAMED))
    notes = (note for note in certificate.notes if note not in of_step)
    return replace(
        certificate,
        published=(*published, bars.sentence),
        notes=(*notes, *error_bar_notes(bars)),
    )
