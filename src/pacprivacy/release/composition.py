"""A release's place in a session: what its certificate says about the releases around it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.adversary import (
    Balances,
    Belief,
    Heat,
    MembershipRisk,
    Tilts,
    charges_by_information,
)
from pacprivacy.budget import Spent
from pacprivacy.noise import NoisePlan, Observation
from pacprivacy.pool import Pool
from pacprivacy.theory import Estimate, membership_success


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was proved about a noise law, computed again from the curator's bundle."""

    log_det_nats: float
    information: Estimate | None
    membership: MembershipRisk | None
    charges: Vector | None = None

    @property
    def mi_upper(self) -> float:
        """The best proved upper bound on the mutual information, in nats."""
        upper = math.inf if self.information is None else self.information.upper
        return min(self.log_det_nats, upper)


Proved: TypeAlias = NoisePlan | Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPart:
    """Where a release stands in its session; public but for the arrays and the observation.

    ``share`` is what this release may spend; of success what the smallest balance may lose. Where
    membership is limited, ``balances`` are what the units had left before, ``allowed`` the most
    that each may pay, and ``part`` how much of the reserve is taken. With ``fresh``, every
    release has a secret of its own. What readers learned follows from ``observation``, the integers
    that left, once they have.
    """

    total: Spent
    before: Spent
    share: Spent
    fresh: bool
    balances: Balances | None = None
    allowed: Vector | None = None
    part: float = 1.0
    observation: Observation | None = None

    def heat(self, pool: Pool, log_p: Vector) -> Heat | None:
        """Return what the release is held to, unit by unit; None where nothing limits it."""
        if self.balances is None or self.allowed is None:
            return None
        before = Tilts(pool).before(log_p, np.arange(pool.n_units))
        return self.balances.heat(before, self.allowed, self.part)


def paid(proved: Proved, heat: Heat, pool: Pool) -> Vector:
    """Return what every unit pays: the better of its two proofs (claim H-1)."""
    nats = max(0.0, proved.mi_upper)
    charges = charges_by_information(heat, pool.counts() / pool.n_subsets, nats)
    return charges if proved.charges is None else np.minimum(charges, proved.charges)


def charge_of(proved: Proved, part: SessionPart | None, charges: Vector | None) -> Spent:
    """Return what a release costs: its proved nats, and what the smallest balance loses."""
    spent = Spent(n_releases=1, mi_nats=max(0.0, proved.mi_upper))
    if part is None or part.balances is None or charges is None:
        return spent
    left = part.balances.after(charges, part.part)
    lost = part.balances.increment_left - left.increment_left
    return replace(spent, success_increment=max(0.0, lost))


def session_facts(part: SessionPart, charge: Spent, *, prior: float) -> dict[str, Any]:
    """Return what the certificate of a release says about its session."""
    total, after = part.total, part.before + charge
    facts: dict[str, Any] = {
        "release_number": after.n_releases,
        "secrets": "fresh for every release" if part.fresh else "one for all releases",
        "spent_nats_so_far": after.mi_nats,
        "total_nats": total.mi_nats,
    }
    if part.balances is not None and charge.success_increment is not None:
        facts["membership_increment"] = charge.success_increment
        facts["spent_increments_so_far"] = after.success_increment
    if total.success_level is not None:
        facts["total_success"] = total.success_level
    facts["session_success_bound"] = success_bound(total, prior)
    if part.fresh:
        facts["prior_of_ever_used"] = 1 - 2.0**-after.n_releases
    return facts


def success_bound(total: Spent, prior: float) -> float:
    """Return what the total budget promises about one unit's membership."""
    bounds = [1.0]
    if total.success_level is not None:
        bounds.append(total.success_level)
    if total.mi_nats is not None:
        bounds.append(membership_success(total.mi_nats, prior))
    return min(bounds)


def learned_facts(belief: Belief, pool: Pool) -> dict[str, float]:
    """Return what readers of all releases so far can have learned.

    The belief is a function of the pool, the outputs and the values that left, all of which the
    attacker has: saying it tells nothing more (claim S-1 is about everything released).
    """
    return {
        "learned_nats": belief.learned_nats,
        "best_guess_now": float(belief.success_per_unit(pool).max()),
    }
