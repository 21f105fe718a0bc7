"""What a session has spent in the worst case, and what has really been learned."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from pacprivacy.accounting.shown import odometer_html
from pacprivacy.adversary import Belief
from pacprivacy.budget import Limits
from pacprivacy.pool import Pool
from pacprivacy.release import Certificate
from pacprivacy.theory.posterior import posterior_success

__all__ = [
    "Odometer",
    "Spent",
    "joint_confidence",
    "read_odometer",
    "session_facts",
    "with_belief",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    """What has been spent in the worst case, and what has really been learned so far; public.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> with pac.Session(data, budget=pac.Information(1), n_subsets=16) as session:
    ...     _ = session.release(np.mean, pac.Information(1 / 4), rule="waterfill")
    >>> seen = session.odometer()
    >>> seen.n_releases, seen.spent_nats <= 1 / 4
    (1, True)
    """

    n_releases: int
    spent_nats: float
    total_nats: float | None
    spent_success: float
    total_success: float | None
    learned_nats: float
    best_guess_now: float
    ever_used_prior: float | None

    def _repr_html_(self) -> str:
        return odometer_html(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Sums over a session's releases; information and membership never meet."""

    n_releases: int = 0
    nats: float = 0.0
    success: float = 0.0

    def charged(self, charge: Limits) -> Self:
        """Return the sums with one more charge."""
        return replace(
            self,
            nats=self.nats + (charge.mi_nats or 0.0),
            success=self.success + (charge.success or 0.0),
        )

    def left_of(self, total: Limits, prior: float | None) -> Limits:
        """Return what is left of a total; of success an increment, once the prior is known."""
        room = None
        if prior is not None and total.success is not None:
            room = total.success - prior - self.success
        nats = None if total.mi_nats is None else total.mi_nats - self.nats
        return Limits(mi_nats=nats, success=room)

    def released(self) -> Self:
        """Return the sums with one more release."""
        return replace(self, n_releases=self.n_releases + 1)


def read_odometer(
    spent: Spent, total: Limits, belief: Belief | None, pool: Pool | None, *, fresh: bool
) -> Odometer:
    """Return what was spent in the worst case and what was really learned."""
    n = spent.n_releases
    learned, guess = 0.0, 0.5
    if belief is not None and pool is not None:
        learned, guess = belief.learned_nats, float(belief.success_per_unit(pool).max())
    return Odometer(
        n_releases=n,
        spent_nats=spent.nats,
        total_nats=total.mi_nats,
        spent_success=spent.success,
        total_success=total.success,
        learned_nats=learned,
        best_guess_now=guess,
        ever_used_prior=1 - 2.0**-n if fresh and n else None,
    )


def with_belief(certificate: Certificate, belief: Belief, pool: Pool) -> Certificate:
    """Add to a certificate what its readers can have learned by now.

    The belief is a function of the pool, the outputs and the values that left, all of which the
    attacker has: saying it tells nothing more (claim S-1 is about everything released).
    """
    facts = {
        **(certificate.composition or {}),
        "learned_nats": belief.learned_nats,
        "best_guess_now": float(belief.success_per_unit(pool).max()),
    }
    return replace(certificate, composition=facts)


def session_facts(
    total: Limits, spent: Spent, charge: Limits, *, prior: float, fresh: bool
) -> dict[str, Any]:
    """Return what the certificate of the next release says about its session."""
    after = spent.charged(charge).released()
    facts: dict[str, Any] = {
        "release_number": after.n_releases,
        "secrets": "fresh for every release" if fresh else "one for all releases",
        "spent_nats_so_far": after.nats,
        "total_nats": total.mi_nats,
    }
    if total.success is not None and charge.success is not None:
        facts["membership_increment"] = charge.success
        facts["spent_increments_so_far"] = after.success
        facts["total_success"] = total.success
    facts["session_success_bound"] = _success_bound(total, prior)
    if fresh:
        facts["prior_of_ever_used"] = 1 - 2.0**-after.n_releases
    return facts


def _success_bound(total: Limits, prior: float) -> float:
    """Return what the total budget promises about one unit's membership."""
    bounds = [1.0]
    if total.success is not None:
        bounds.append(total.success)
    if total.mi_nats is not None:
        bounds.append(posterior_success(total.mi_nats, prior))
    return min(bounds)


def joint_confidence(n_releases: int, gamma: float) -> str:
    """Say how sure the proofs of several releases are together: failures add up.

    Examples
    --------
    >>> joint_confidence(3, 1e-9)
    'releases 1 to 3 of the session: their proofs hold together at confidence 1 - 3 x 1e-09'
    """
    return (
        f"releases 1 to {n_releases} of the session: their proofs hold together at confidence "
        f"1 - {n_releases} x {gamma:.1g}"
    )
