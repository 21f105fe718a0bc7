"""Complete what is known about a plan, and write it down as a certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy import _version, adversary
from pacprivacy._checks import Vector
from pacprivacy._random import public_generator
from pacprivacy._rounding import at_most
from pacprivacy.adversary import information_draws, membership_draws
from pacprivacy.budget import AnyBudget, Spent
from pacprivacy.noise import NoisePlan, Proof, noise_limit
from pacprivacy.pool import Pool
from pacprivacy.release.bundle import Bundle, SessionPart, Stated
from pacprivacy.release.certificate import Certificate, NoiseSummary
from pacprivacy.release.text import open_parts
from pacprivacy.simulation import Outputs
from pacprivacy.theory import Estimate, membership_success

SIDE_COST = 2 * 10**10
DIVERGENCE_COST = 4 * 10**6  # posterior entries
TRADE_OFF_COST = 1 << 24  # posterior entries
DIVERGENCE_GAMMA = adversary.DEFAULT_GAMMA / 8  # and that of the trade-off
TOLD = (1, 2, 4)
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was proved about a noise law, computed again from the curator's bundle."""

    log_det_nats: float
    information: Estimate | None
    membership: adversary.MembershipRisk | None
    charges: Vector | None = None

    @property
    def mi_upper(self) -> float:
        """The best proved upper bound on the mutual information, in nats."""
        upper = math.inf if self.information is None else self.information.upper
        return min(self.log_det_nats, upper)


Proved: TypeAlias = NoisePlan | Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a certificate says besides the plan."""

    outputs: Outputs
    pool: Pool
    budget: AnyBudget
    log_p: Vector
    gamma: float
    seed: int
    simulation: bool
    notes: tuple[str, ...] = ()
    session: SessionPart | None = None


def assess(plan: NoisePlan, context: Context) -> NoisePlan:
    """Return the plan with exact information and membership risk, where still missing."""
    pool, seed = context.pool, context.seed
    if plan.kind != "exact":
        return plan
    heat = None if context.session is None else context.session.heat(pool, context.log_p)
    if plan.is_noiseless:
        told = noiseless_membership(pool, context.log_p, plan.groups)
        return replace(
            plan, membership=told, charges=noiseless_paid(pool, context.log_p, plan.groups, heat)
        )
    view = plan.view(context.outputs, context.log_p)
    gamma = context.gamma / (4 if heat is None else 8)
    if plan.information is None:
        draws = information_draws(pool.n_subsets) // 2  # it limits nothing here
        plan = plan.proved(_proof("information", seed, draws, gamma), view)
    if plan.membership is None:
        draws = membership_draws(pool.n_subsets)
        plan = plan.proved(_proof("membership", seed, draws, gamma), view, pool)
    if heat is not None and plan.charges is None:
        draws = max(membership_draws(pool.n_subsets), adversary.heat_draws(heat, gamma))
        plan = plan.proved(_proof("charges", seed, draws, gamma), view, pool, heat)
    return plan


def _proof(claim: Any, seed: int, n_draws: int, gamma: float) -> Proof:
    return Proof(
        claim=claim, stream=f"assess-{claim}", seed=seed, attempt=0, n_draws=n_draws, gamma=gamma
    )


def noiseless_paid(
    pool: Pool, log_p: Vector, groups: npt.NDArray[np.int64] | None, heat: adversary.Heat | None
) -> Vector | None:
    """Return what every unit pays for a release without noise; None where nothing limits it."""
    blind = np.zeros((pool.n_subsets, 1))
    view = adversary.make_view(blind, log_p, groups=groups)
    return None if heat is None else adversary.noiseless_heat_charges(view, pool, heat)


def noiseless_membership(
    pool: Pool, log_p: Vector, groups: npt.NDArray[np.int64] | None
) -> adversary.MembershipRisk:
    """Return membership success of a release without noise: exact, no draws."""
    blind = np.zeros((pool.n_subsets, 1))
    per_unit = adversary.noiseless_membership_risk(
        adversary.make_view(blind, log_p, groups=groups), pool
    )

    def closed(value: float) -> Estimate:
        return Estimate(value=value, lower=value, upper=value, confidence=1.0, n_draws=0)

    return adversary.MembershipRisk(
        worst=closed(float(per_unit.max())),
        mean=closed(float(per_unit.mean())),
        per_unit=per_unit,
        upper_per_unit=per_unit.copy(),
    )


def bundle_of(plan: NoisePlan, context: Context) -> Bundle:
    """Collect everything that a certificate says or rests on, for the curator."""
    outputs = context.outputs
    return Bundle(
        outputs=outputs.values,
        pool=context.pool,
        log_p=context.log_p,
        points=plan.points,
        units_per_std=plan.units_per_std,
        grid_step=plan.grid_step,
        groups=plan.groups,
        proofs=plan.proofs,
        seed=context.seed,
        gamma=context.gamma,
        simulation=context.simulation,
        budget=context.budget,
        stated=Stated(
            rule=plan.rule,
            mechanism=outputs.mechanism_name,
            output=outputs.structure.describe(),
            public=tuple(outputs.public),
            published=tuple(outputs.published),
            notes=(*plan.notes, *context.notes),
            software=_version.__version__,
        ),
        iid_rule=plan.iid_rule,
        session=context.session,
    )


def write_certificate(bundle: Bundle, proved: Proved) -> Certificate:
    """Write down what was proved: a function of the bundle and of the proved figures alone.

    ``verify`` calls it too, with figures that it has computed again, so that whatever a reader
    sees is compared with what the bundle gives.
    """
    pool, kind, stated = bundle.pool, bundle.kind, bundle.stated
    exact = kind == "exact"
    mi_upper = max(0.0, proved.mi_upper)
    upper = 1.0 if proved.membership is None else proved.membership.upper
    bound = min(upper, implied_success(mi_upper, bundle), _bound_by_balances(bundle))
    return Certificate.about(
        pool,
        mi_upper=mi_upper,
        bound=bound,
        exact_facts=_exact_facts(bundle),
        public=stated.public,
        published=stated.published,
        kind=kind,
        budget=str(bundle.budget),
        rule=stated.rule if bundle.iid_rule is None else bundle.iid_rule.name,
        mechanism=stated.mechanism,
        output=stated.output,
        dimension=int(bundle.outputs.shape[1]),
        log_det_nats=max(0.0, proved.log_det_nats),
        information=proved.information,
        membership=None if proved.membership is None else proved.membership.worst,
        membership_mean=None if proved.membership is None else proved.membership.mean,
        side_knowledge=side_knowledge_of(bundle.view, pool, seed=bundle.seed) if exact else (),
        divergences=divergences_of(bundle.view, seed=bundle.seed) if exact else (),
        trade_off=trade_off_of(bundle, proved) if exact else (),
        noise=noise_summary(bundle.grid_step, bundle.units_per_std),
        confidence=_confidence(bundle),
        notes=(*stated.notes, *_session_notes(bundle), *pool.notes),
        simulation=bundle.simulation,
        composition=_composition(bundle, proved),
        software=stated.software,
    )


def _bound_by_balances(bundle: Bundle) -> float:
    """Return the success after this release that the balances before it allow (claim H-1)."""
    heat = bundle.heat
    if heat is None:
        return 1.0
    return min(
        1.0,
        0.5 + 0.5 * (float(adversary.heat_potential(heat.before, heat.balance).max()) + heat.extra),
    )


def implied_success(mi_nats: float, bundle: Bundle) -> float:
    """Return the balanced success on the worst-placed unit that the information allows."""
    pool, log_p = bundle.pool, bundle.log_p
    if bundle.kind != "exact":
        return membership_success(mi_nats, pool.prior)
    if np.ptp(log_p) == 0:  # claim T-6: the share furthest from one half
        return membership_success(mi_nats, pool.worst_prior)
    share, inside = adversary.unit_beliefs(pool, log_p, np.arange(pool.n_units))
    return min(1.0, float(membership_success(mi_nats, share, inside).max()) + ROUNDING)


def trade_off_of(bundle: Bundle, proved: Proved) -> tuple[adversary.TradeOff, ...]:
    """Return true positives against false ones, for the worst-placed unit of a single release."""
    risk, view = proved.membership, bundle.view
    if bundle.session is not None or risk is None or view.points.shape[1] == 0:
        return ()
    draws = int(np.clip(TRADE_OFF_COST // view.n_subsets, 4096, 65536))
    return adversary.membership_trade_off(
        view,
        bundle.pool,
        unit=int(np.argmax(np.round(risk.upper_per_unit, 6))),  # the same on every machine
        n_draws=draws,
        gamma=DIVERGENCE_GAMMA,
        rng=public_generator(bundle.seed, "trade-off"),
    )


def times_least(bundle: Bundle) -> float | None:
    """Return how many times the least variance of any noise a release has, at most; curator-only.

    None where nothing is known: membership is not limited, or other releases came before.
    """
    if bundle.iid_rule is not None or bundle.session is not None:
        return None
    variance = noise_summary(bundle.grid_step, bundle.units_per_std).total_variance
    found = noise_limit(bundle.outputs, bundle.budget, pool=bundle.pool, enough=variance)
    return found.times_least(variance)


def noise_summary(grid_step: Vector, units_per_std: npt.NDArray[np.int64]) -> NoiseSummary:
    """Return the noise in a few public numbers."""
    std = grid_step * units_per_std
    return NoiseSummary(
        total_variance=float(np.square(std).sum()),
        smallest_std=float(std.min()) if len(std) else 0.0,
        largest_std=float(std.max(initial=0.0)),
        n_directions=len(std),
        smallest_grid_step=float(grid_step.min()) if len(std) else 0.0,
        smallest_units_per_std=int(units_per_std.min()) if len(std) else 0,
    )


def _confidence(bundle: Bundle) -> float:
    if bundle.iid_rule is not None:
        return bundle.iid_rule.confidence
    return 1 - bundle.gamma if bundle.proofs else 1.0


def _session_notes(bundle: Bundle) -> tuple[str, ...]:
    """Say how sure the proofs of several releases are together: failures add up."""
    if bundle.session is None:
        return ()
    count = bundle.session.before.n_releases + 1
    return (
        f"releases 1 to {count} of the session: their proofs hold together at confidence "
        f"1 - {count} x {at_most(bundle.gamma, significant=1)}",
    )


def side_knowledge_of(
    view: adversary.View, pool: Pool, *, seed: int
) -> tuple[adversary.SideKnowledge, ...]:
    """Return the success of attackers who are told 1, 2 and 4 memberships.

    Where a unit is in most candidates, being told that others are out or in are not the same.
    """
    found: list[adversary.SideKnowledge] = []
    directions: tuple[adversary.Direction | None, ...] = (
        ("out", "in") if pool.folds > 2 else (None,)
    )
    for direction in directions:
        left = {None: 0.5, "out": 1 / pool.folds, "in": 1 - 1 / pool.folds}[direction]
        for told in TOLD:
            kept = pool.n_subsets * left**told
            if told >= pool.n_units or kept < 1:
                break
            draws = int(np.clip(SIDE_COST // (8 * int(kept) * pool.n_units), 128, 1024))
            rng = public_generator(seed, "side-knowledge", told)
            found.append(
                adversary.side_knowledge(
                    view, pool, n_told=told, direction=direction, n_draws=draws, rng=rng
                )
            )
    return tuple(found)


def divergences_of(view: adversary.View, *, seed: int) -> tuple[adversary.Divergence, ...]:
    """Return total variation, chi-square and squared Hellinger, for a share of the confidence."""
    if view.points.shape[1] == 0:
        return adversary.noiseless_divergences(view)
    draws = int(np.clip(DIVERGENCE_COST // view.n_subsets, 512, 16384))
    rng = public_generator(seed, "divergences")
    return adversary.divergences(view, n_draws=draws, gamma=DIVERGENCE_GAMMA, rng=rng)


def _exact_facts(bundle: Bundle) -> tuple[str, ...]:
    """Return what of the release is computed from all candidates, or leaves as it is."""
    unanimous = bundle.groups is not None and not np.ptp(bundle.groups)
    directions = len(bundle.units_per_std)
    return open_parts(directions, int(bundle.outputs.shape[1]), unanimous=unanimous)


# --- a release's place in its session ------------------------------------------------------------


def paid(proved: Proved, bundle: Bundle) -> Vector | None:
    """Return what every unit pays, the better of its two proofs (claim H-1); None if nothing."""
    if (heat := bundle.heat) is None:
        return None
    pool, nats = bundle.pool, max(0.0, proved.mi_upper)
    charges = adversary.heat_by_information(heat, pool.counts() / pool.n_subsets, nats)
    return charges if proved.charges is None else np.minimum(charges, proved.charges)


def charge_of(proved: Proved, part: SessionPart | None, charges: Vector | None) -> Spent:
    """Return what a release costs: its proved nats, and what the smallest balance loses."""
    spent = Spent(n_releases=1, mi_nats=max(0.0, proved.mi_upper))
    if part is None or part.balances is None or charges is None:
        return spent
    left = part.balances.after(charges, part.part)
    lost = part.balances.increment_left - left.increment_left
    return replace(spent, success_increment=max(0.0, lost))


def _composition(bundle: Bundle, proved: Proved) -> dict[str, Any] | None:
    """Return what the certificate says about its session: sums, the total, what was learned."""
    part, pool = bundle.session, bundle.pool
    if part is None:
        return None
    charge = charge_of(proved, part, paid(proved, bundle))
    facts = _session_facts(part, charge, prior=pool.worst_prior)
    if part.observation is not None:
        facts |= learned_facts(bundle.belief_after(part.observation), pool)
    return facts


def _session_facts(part: SessionPart, charge: Spent, *, prior: float) -> dict[str, Any]:
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


def learned_facts(belief: adversary.Belief, pool: Pool) -> dict[str, float]:
    """Return what readers of all releases so far can have learned.

    The belief is a function of the pool, the outputs and the values that left, all of which the
    attacker has: saying it tells nothing more (claim S-1 is about everything released).
    """
    return {
        "learned_nats": belief.learned_nats,
        "best_guess_now": float(belief.success_per_unit(pool).max()),
    }
