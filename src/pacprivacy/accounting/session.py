"""One secret, many releases, each chosen after seeing the ones before.

The attacker's belief over the pool is tracked exactly, and every release is calibrated against
that belief. Information adds up; membership composes by increments (math §6).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import (
    BitSource,
    SimulatedSource,
    SystemSource,
    coerce_seed,
    public_generator,
)
from pacprivacy.adversary import Belief
from pacprivacy.adversary.information import DEFAULT_GAMMA
from pacprivacy.budget import AnyBudget, Information, Limits, Membership, limits_of
from pacprivacy.errors import BudgetError, BudgetExceededError, SecretError
from pacprivacy.mechanism import as_mechanism, coerce_data
from pacprivacy.noise import NoisePlan, Rule, calibrate
from pacprivacy.noise.rules import rule_name
from pacprivacy.pool import Pool, PoolStrategy
from pacprivacy.release import Context, Release, Secret, publish
from pacprivacy.simulation import Outputs, draw_candidates, run_mechanism
from pacprivacy.theory.posterior import posterior_success

__all__ = ["Odometer", "Session"]

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    """What has been spent in the worst case, and what has really been learned so far; public."""

    n_releases: int
    spent_nats: float
    total_nats: float | None
    spent_success: float
    total_success: float | None
    learned_nats: float
    best_guess_now: float
    ever_used_prior: float | None


class Session:
    """Adaptive releases about one secret subset, under one total budget.

    Parameters
    ----------
    data : array, frame, or tuple of those
        The universe of records.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        Total over all releases.
    pool, n_subsets, units, n_jobs, rng, progress, simulate
        As in :func:`pacprivacy.privatize`.
    secrets : {"same", "fresh"}
        One secret throughout (default), or an independent one for every release. With fresh
        secrets only information can be totalled, and the question "was this unit *ever* used"
        has a high prior; the certificate prints it.

    Guarantee
    ---------
    Claim S-1. ``MI(secret; all releases) <= Σ charges <= total``, also when a mechanism is chosen
    after seeing earlier releases.
    Claim S-2. For every unit, the attacker's expected success after the last release is at most
    its prior plus the sum of the increments charged, at most the total.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> x = np.random.default_rng(0).normal(size=(64, 2))
    >>> with pac.Session(x, budget=pac.Information(0.5), n_subsets=32, rng=0) as session:
    ...     first = session.release(lambda d: d.mean(axis=0), pac.Information(0.25))
    ...     second = session.release(lambda d: d.std(axis=0), pac.Information(0.25))
    >>> session.odometer().spent_nats <= 0.5
    True
    """

    def __init__(
        self,
        data: Any,
        *,
        budget: AnyBudget,
        pool: Pool | PoolStrategy | None = None,
        n_subsets: int | None = None,
        units: Any = None,
        secrets: Literal["same", "fresh"] = "same",
        n_jobs: int | None = None,
        rng: np.random.Generator | int | None = None,
        progress: bool | None = None,
        simulate: bool = False,
    ) -> None:
        self._total = limits_of(budget)
        if secrets not in ("same", "fresh"):
            raise BudgetError(f"secrets must be 'same' or 'fresh'; got {secrets!r}. Use 'same'.")
        if secrets == "fresh" and self._total.success is not None:
            raise BudgetError(
                "budget must be Information when secrets are fresh: increments of membership "
                "add up for one secret only. Use secrets='same'."
            )
        self._data = coerce_data(data)
        self._pool_request = (pool, n_subsets, units)
        self._fresh, self._n_jobs, self._progress = secrets == "fresh", n_jobs, progress
        self._seed, self._seeded = coerce_seed(rng), rng is not None
        self._simulate = simulate
        self._source: BitSource = SystemSource()
        if simulate:
            self._source = SimulatedSource(public_generator(self._seed, "simulation"))
        self._pool: Pool | None = None
        self._belief: Belief | None = None
        self._secret: Secret | None = None
        self._releases: list[Release] = []
        self._spent_nats = self._spent_success = 0.0
        self._closed = False
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"Session({len(self._releases)} releases, {self._spent_nats:.4g} nats spent)"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> object:
        raise SecretError(
            "a session must stay in its process; got a request to pickle or copy it. "
            "Save its releases instead."
        )

    def close(self) -> None:
        """Forget the secret; no further release is possible."""
        self._secret, self._closed = None, True

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases made so far."""
        return tuple(self._releases)

    def release(
        self,
        mechanism: Any,
        budget: AnyBudget,
        *,
        rule: Rule | None = None,
        checkpoint: str | Path | None = None,
    ) -> Release:
        """Release one more function of the secret subset.

        Parameters
        ----------
        mechanism : callable or Mechanism
            As in :func:`pacprivacy.privatize`.
        budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
            Share of the total for this release. ``Membership(q)`` stands for an increment of
            ``q`` minus the prior.

        Raises
        ------
        BudgetExceededError
            If the share is not left; nothing is evaluated, drawn or spent.
        """
        with self._lock:
            if self._closed:
                raise SecretError("session must be open; it is closed. Start a new session.")
            asked = limits_of(budget)
            if rule is not None:
                rule_name(rule)
            self._check_left("information", asked.mi_nats, self._left_nats)
            prepared = as_mechanism(mechanism)
            candidates, notes = self._candidates(prepared, checkpoint)
            share = self._share(asked, candidates)
            outputs = run_mechanism(
                prepared,
                self._data,
                candidates,
                n_jobs=self._n_jobs,
                checkpoint=checkpoint,
                rng=self._stream() if self._seeded else None,
                progress=self._progress,
            )
            return self._publish(outputs, budget, share, rule, notes)

    def odometer(self) -> Odometer:
        """Return what was spent in the worst case and what was really learned."""
        n = len(self._releases)
        learned, guess = 0.0, 0.5
        if self._belief is not None and self._pool is not None:
            learned = self._belief.learned_nats
            guess = float(self._belief.success_per_unit(self._pool).max())
        return Odometer(
            n_releases=n,
            spent_nats=self._spent_nats,
            total_nats=self._total.mi_nats,
            spent_success=self._spent_success,
            total_success=self._total.success,
            learned_nats=learned,
            best_guess_now=guess,
            ever_used_prior=1 - 2.0**-n if self._fresh and n else None,
        )

    def _stream(self) -> int:
        return int(public_generator(self._seed, "session", len(self._releases)).integers(2**62))

    def _candidates(
        self, mechanism: Any, checkpoint: str | Path | None
    ) -> tuple[Pool, tuple[str, ...]]:
        """Return the session's pool; it is drawn for the first release and kept."""
        if self._pool is not None:
            return self._pool, ()
        pool, n_subsets, units = self._pool_request
        self._pool, notes = draw_candidates(
            mechanism,
            self._data,
            pool,
            n_subsets=n_subsets,
            units=units,
            checkpoint=checkpoint,
            rng=self._seed if self._seeded else None,
        )
        self._belief = Belief.uniform(self._pool.n_subsets)
        return self._pool, notes

    def _share(self, asked: Limits, pool: Pool) -> Limits:
        """Return the limits of one release: what was asked, never more than what is left.

        ``success`` of the result is an increment, not a level.
        """
        prior = pool.worst_prior
        room = None if self._total.success is None else self._total.success - prior
        left_success = _left(room, self._spent_success)
        increment = None if asked.success is None else asked.success - prior
        self._check_left("membership increment", increment, left_success)
        if increment is not None and increment <= 0:
            raise BudgetError(
                f"success must be above {prior:.4g}, the best guess that this pool allows before "
                f"any release; got {asked.success:.4g}. Use a Balanced pool or a larger success."
            )
        return Limits(
            mi_nats=_smaller(asked.mi_nats, self._left_nats),
            success=_smaller(increment, left_success),
        )

    @property
    def _left_nats(self) -> float | None:
        return _left(self._total.mi_nats, self._spent_nats)

    def _check_left(self, name: str, wanted: float | None, left: float | None) -> None:
        """Refuse a share that is not left."""
        if left is not None and left <= ROUNDING:
            raise BudgetExceededError(
                f"the session's {name} budget is used up. Nothing was drawn or spent."
            )
        if wanted is not None and left is not None and wanted > left * (1 + ROUNDING):
            raise BudgetExceededError(
                f"{name} must be at most what is left, {left:.6g}; got {wanted:.6g}. Nothing was "
                f"drawn or spent. Ask for less or end the session."
            )

    def _publish(
        self,
        outputs: Outputs,
        budget: AnyBudget,
        share: Limits,
        rule: Rule | None,
        notes: tuple[str, ...],
    ) -> Release:
        assert self._pool is not None  # drawn in release()
        assert self._belief is not None  # set with the pool
        belief = Belief.uniform(self._pool.n_subsets) if self._fresh else self._belief
        before = belief.success_per_unit(self._pool)
        seed = self._stream()
        plan = calibrate(
            outputs,
            _as_budget(share),
            rule=rule,
            pool=self._pool,
            log_belief=belief.log_p,
            caps=None if share.success is None else np.minimum(1.0, before + share.success),
            gamma=DEFAULT_GAMMA / 2,
            rng=seed,
        )
        charge = _charge(plan, share, before)
        context = Context(
            outputs=outputs,
            pool=self._pool,
            budget=budget,
            log_p=belief.log_p,
            gamma=DEFAULT_GAMMA,
            seed=seed,
            simulation=self._simulate,
            notes=notes,
            composition=self._composition(charge),
        )
        if self._secret is None or self._fresh:
            self._secret = Secret(self._pool.n_subsets, self._source)
        self._spent_nats += charge.mi_nats or 0.0  # spent before anything leaves
        self._spent_success += charge.success or 0.0
        release, observation = publish(plan, context, self._secret, self._source)
        self._belief = belief.updated(plan.log_likelihood(observation))
        self._releases.append(release)
        return release

    def _success_bound(self) -> float:
        """Return what the total budget promises about one unit's membership."""
        assert self._pool is not None  # drawn with the first release
        bounds = [1.0]
        if self._total.success is not None:
            bounds.append(self._total.success)
        if self._total.mi_nats is not None:
            bounds.append(posterior_success(self._total.mi_nats, self._pool.worst_prior))
        return min(bounds)

    def _composition(self, charge: Limits) -> dict[str, Any]:
        spent = self._spent_nats + (charge.mi_nats or 0.0)
        facts: dict[str, Any] = {
            "release_number": len(self._releases) + 1,
            "secrets": "fresh for every release" if self._fresh else "one for all releases",
            "spent_nats_so_far": spent,
            "total_nats": self._total.mi_nats,
        }
        if self._total.success is not None and charge.success is not None:
            facts["membership_increment"] = charge.success
            facts["spent_increments_so_far"] = self._spent_success + charge.success
            facts["total_success"] = self._total.success
        facts["session_success_bound"] = self._success_bound()
        if self._fresh:
            facts["prior_of_ever_used"] = 1 - 2.0 ** -(len(self._releases) + 1)
        return facts


def _left(total: float | None, spent: float) -> float | None:
    return None if total is None else total - spent


def _smaller(first: float | None, second: float | None) -> float | None:
    given = [value for value in (first, second) if value is not None]
    return min(given, default=None)


def _as_budget(share: Limits) -> AnyBudget:
    """Return the information part of a share; increments travel as caps."""
    if share.mi_nats is not None:
        return Information(share.mi_nats)
    assert share.success is not None  # a share limits something
    return Membership(min(0.5 + share.success, 1 - 1e-12))


def _charge(plan: NoisePlan, share: Limits, before: Vector) -> Limits:
    """Return what a plan costs: its proved bounds, never more than its share."""
    nats = max(0.0, plan.mi_upper)
    success = None
    if share.success is not None:
        if plan.membership is None:
            success = share.success
        else:
            success = max(0.0, float((plan.membership.upper_per_unit - before).max()))
    return Limits(mi_nats=nats, success=success)
