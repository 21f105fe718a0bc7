"""What a noise plan must satisfy: the problem that a rule solves."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pacprivacy._checks import SMALLEST_RANGE, Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.adversary import (
    Belief,
    Candidates,
    Heat,
    make_view,
    noiseless_heat_charges,
    noiseless_membership_risk,
    unit_beliefs,
)
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.noise.lattice import Integers
from pacprivacy.noise.plan import NoisePlan, Revealed
from pacprivacy.noise.spread_frames import AxisFrame, Spread, spread_of
from pacprivacy.theory import Estimate, entropy, mi_for_membership

SAMPLED_COORDINATES = 64
NOISELESS = "the output meets the budget as it is; no noise was added"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One release to be calibrated; curator-only.

    ``caps`` and ``priors`` are the success per unit that is allowed, and possible before the
    release; None where membership is not limited so. ``heat`` are the balances that a release in
    a session is charged to. ``measured`` is the spread, where it is known.
    """

    values: Matrix
    log_p: Vector
    gamma: float
    seed: int
    mi_nats: float | None = None
    pool: Candidates | None = None
    caps: Vector | None = None
    priors: Vector | None = None
    heat: Heat | None = None
    measured: Spread | None = None

    def rng(self, stream: str, *indices: int) -> np.random.Generator:
        """Return the generator of a named stream of simulated draws."""
        return public_generator(self.seed, stream, *indices)

    @cached_property
    def spread(self) -> Spread:
        """How the outputs move over the pool, under the belief."""
        return self.measured or spread_of(self.values, np.exp(self.log_p))

    @property
    def claims(self) -> int:
        """Number of Monte-Carlo claims that share the failure probability."""
        return (self.mi_nats is not None) + (self.per_unit is not None)

    @property
    def per_unit(self) -> Vector | Heat | None:
        """What limits each unit's membership: caps on success, or balances; None for nothing."""
        return self.caps if self.heat is None else self.heat

    @cached_property
    def gaussian_nats(self) -> float:
        """The information budget that implies every limit (claim T-6)."""
        budgets = [] if self.mi_nats is None else [self.mi_nats]
        if self.caps is not None and self.pool is not None:
            limited = np.flatnonzero(np.isfinite(self.caps))
            share, inside = unit_beliefs(self.pool, self.log_p, limited)
            terms = np.stack([self.caps[limited], share, inside])
            alike = bool(len(limited)) and not np.ptp(terms, axis=1).any()
            terms = terms[:, :1] if alike else np.unique(terms, axis=1)
            budgets += [mi_for_membership(*terms)] if len(limited) else []
        if self.heat is not None and self.pool is not None:
            budgets.append(self.heat.implied_nats(self.pool.counts() / self.pool.n_subsets))
        return min(budgets)

    def is_met(self, plan: NoisePlan) -> bool:
        """Whether every limit is proved for the plan."""
        if self.mi_nats is not None and plan.mi_upper > self.mi_nats:
            return False
        if self.heat is not None:
            return plan.charges is not None and bool((plan.charges <= self.heat.allowed).all())
        if self.caps is None:
            return True
        return plan.membership is not None and bool(
            (plan.membership.upper_per_unit <= self.caps).all()
        )

    def noiseless_plan(self, rule: str) -> NoisePlan | None:
        """Return the plan that releases the output itself; None where the limits forbid it.

        Outputs that differ by less than can be squared are refused: no noise can be found.
        """
        values = self.values
        groups, nats = distinct_outputs(values, self.log_p)
        if not self._allows(groups, nats):
            if float((values.max(axis=0) - values.min(axis=0)).max()) < SMALLEST_RANGE:
                raise MechanismError(
                    f"outputs must differ by at least {SMALLEST_RANGE:g} somewhere, so that the "
                    f"difference can be squared; they differ by less. Rescale them inside the "
                    f"mechanism."
                )
            return None
        _, first = np.unique(groups, return_index=True)
        return NoisePlan(
            rule=rule,
            kind="exact",
            frame=AxisFrame(axes=np.zeros(0, dtype=np.int64), center=values[0]),
            center=values[0].copy(),
            grid_step=np.zeros(0),
            units_per_std=np.zeros(0, dtype=np.int64),
            points=np.zeros((len(values), 0), dtype=np.int64),
            revealed=Revealed(groups=groups, bases=values[first]),
            outputs=values,
            log_det_nats=nats,
            information=Estimate(value=nats, lower=nats, upper=nats, confidence=1.0, n_draws=0),
            notes=(NOISELESS,),
        )

    def _allows(self, groups: Integers, nats: float) -> bool:
        if self.mi_nats is not None and nats > self.mi_nats:
            return False
        if self.pool is None or self.per_unit is None:
            return True
        view = make_view(np.zeros((len(groups), 1)), self.log_p, groups=groups)
        if self.heat is not None:
            paid = noiseless_heat_charges(view, self.pool, self.heat)
            return bool((paid <= self.heat.allowed).all())
        assert self.caps is not None  # one of the two limits membership
        if int(groups.max()) + 1 == len(groups) and not np.ptp(self.log_p):
            return not np.isfinite(self.caps).any()  # the output names the subset
        return bool((noiseless_membership_risk(view, self.pool) <= self.caps).all())


def distinct_outputs(values: Matrix, log_p: Vector) -> tuple[Integers, float]:
    """Group candidates whose outputs agree bit for bit; return the groups and their entropy."""
    # A few coordinates tell most outputs apart; only those that agree there are read in full.
    step = -(-values.shape[1] // SAMPLED_COORDINATES)
    heads = [(row[::step] + 0.0).tobytes() for row in values]  # +0.0 turns -0.0 to 0.0
    repeated = {head for head, count in Counter(heads).items() if count > 1}
    seen: dict[bytes, int] = {}
    groups = np.empty(len(values), dtype=np.int64)
    for k, head in enumerate(heads):
        key = _digest(values[k] + 0.0) if head in repeated else head
        groups[k] = seen.setdefault(key, len(seen))
    mass = np.bincount(groups, np.exp(log_p))
    return groups, float(entropy(np.log(mass[mass > 0]))) if len(seen) > 1 else 0.0


def _digest(row: Vector) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=32, key=b"whole row").digest()


def problem_caps(
    limits: Spent, caps: Vector | None, pool: Candidates | None, log_p: Vector
) -> tuple[Vector | None, Vector | None]:
    """Return success caps and priors per unit, or None where membership is not limited.

    A cap of one limits nothing (the unit may already be known) and comes back as infinity.
    """
    if caps is None and limits.success_level is None:
        return None, None
    if pool is None:
        raise BudgetError(
            "pool must be given when membership is limited; got None. "
            "Pass the pool the outputs were computed on."
        )
    priors = Belief(log_p=log_p).success_per_unit(pool)
    if caps is None:
        assert limits.success_level is not None  # one of the two is given
        caps = np.full(pool.n_units, limits.success_level)
    if np.shape(caps) != (pool.n_units,):
        raise BudgetError(
            f"caps must hold one success per unit ({pool.n_units}); got shape {np.shape(caps)}. "
            f"Pass None to use the budget's one number."
        )
    caps = np.where(caps >= 1, np.inf, caps)
    if (caps <= priors).any():
        worst = float(priors.max())
        raise BudgetError(
            f"success must be above {worst:.4g}, the best guess that this pool allows on its "
            f"worst-placed unit before any release; got {float(caps.min()):.4g}. "
            f"Use a Balanced pool (prior exactly 1/2), more subsets, or a larger success."
        )
    return caps, priors
