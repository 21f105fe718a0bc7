"""The certificate of a pool: written once from a bundle and its proofs, for ``verify`` too.

That of a responder is written before the first answer, about all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, NotRequired, Self, TypeAlias, TypedDict, Unpack

import msgspec
import numpy as np

from pacprivacy import adversary
from pacprivacy._checks import Amount, Share, Vector
from pacprivacy._random import public_generator
from pacprivacy._rounding import at_most
from pacprivacy.adversary import (
    InformationDivergence,
    SideKnowledge,
    TradeOff,
    VoteBalances,
    information_draws,
    membership_draws,
)
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetError, CertificateError
from pacprivacy.noise import UNITS, Claim, Kind, NoisePlan, Proof
from pacprivacy.release.bundle import AnswerBundle, Bundle, BundleSession, Context, Record
from pacprivacy.release.certificate import (
    Certificate,
    CertificateNoise,
    Positive,
    Text,
    certificate_epsilon,
    on_trust,
    refuse_field,
)
from pacprivacy.release.certificate_text import (
    Rows,
    not_promised_text,
    open_parts_text,
    pool_rows,
    promise_text,
)
from pacprivacy.sample import Pool
from pacprivacy.theory import Estimate, membership_success, posterior_success

SIDE_COST = 2 * 10**10
DIVERGENCE_COST = 4 * 10**6  # posterior entries
TRADE_OFF_COST = 1 << 24  # posterior entries
DIVERGENCE_GAMMA = adversary.DEFAULT_GAMMA / 8  # and that of the trade-off
SIDE_KNOWLEDGE_SIZES = (1, 2, 4)
ROUNDING = 1e-12

Prior: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^([01]|1\.0+|0\.\d+|\d(\.\d+)?e-\d+)$")]


class StatedFields(TypedDict):
    """Stated fields of a certificate; the others follow from the pool."""

    kind: Kind
    budget: str
    rule: str
    mechanism: str
    output: str
    dimension: int
    log_det_nats: float
    confidence: float
    notes: tuple[str, ...]
    simulation: bool
    composition: Record | None
    software: str
    information: NotRequired[Estimate | None]
    membership: NotRequired[Estimate | None]
    membership_mean: NotRequired[Estimate | None]
    side_knowledge: NotRequired[tuple[SideKnowledge, ...]]
    divergences: NotRequired[tuple[InformationDivergence, ...]]
    trade_off: NotRequired[tuple[TradeOff, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCertificate(Certificate):
    """Bounds on every attacker who knows the pool; every field is public.

    ``mi_upper_nats`` is the best proved bound on the mutual information between the secret index
    and everything released; ``any_inference`` turns it into the success of *any* guess with a
    prior; ``prior`` is how sure the pool alone makes a guess. ``trade_off`` bounds true positives
    by false ones; ``divergences`` are other distances of (secret, release) from independence.
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ("divergences", "trade_off")
    SHORT: ClassVar[tuple[str, ...]] = ("Kind", "Asked", "Membership", "Mechanism", "Noise", "Pool")
    PROVED: ClassVar[tuple[str, ...]] = (
        *("Membership", "Advantage", "False alarms", "Any inference", "Information"),
        *("Other distances", "Side knowledge"),
    )

    sampling: Literal["pool"] = "pool"
    n_units: Positive
    rule: Text = field(metadata=on_trust("how the noise was chosen; the noise itself was checked"))
    scheme: Text = field(
        metadata=on_trust(
            "how the subsets were drawn; those that were drawn, and their priors, were checked"
        )
    )
    n_subsets: Positive
    prior: Share
    log_det_nats: Amount
    information: Estimate | None = None
    mi_upper_nats: Amount
    any_inference: dict[Prior, Share]
    membership: Estimate | None = None
    membership_mean: Estimate | None = None
    side_knowledge: tuple[SideKnowledge, ...] = ()
    divergences: tuple[InformationDivergence, ...] = ()
    trade_off: tuple[TradeOff, ...] = ()

    @classmethod
    def about(
        cls,
        pool: Pool,
        *,
        mi_upper: float,
        bound: float,
        noise: CertificateNoise,
        exact_facts: Sequence[str],
        public: Sequence[str] = (),
        published: Sequence[str] = (),
        **fields: Unpack[StatedFields],
    ) -> Self:
        """Write a certificate: consequences of the pool and two proved bounds, and stated fields.

        ``exact_facts`` leave without noise, ``published`` is what the mechanism adds to them;
        ``public`` what it treats as known.
        """
        exact = fields["kind"] == "exact"
        return cls(
            scheme=pool.scheme,
            unit=pool.unit,
            n_subsets=pool.n_subsets,
            n_units=pool.n_units,
            prior=pool.worst_prior if exact else pool.prior,
            mi_upper_nats=mi_upper,
            any_inference={p: posterior_success(mi_upper, float(p)) for p in ("0.5", "0.01")},
            membership_bound=bound,
            epsilon_equivalent=certificate_epsilon(bound),
            noise=noise.rounded(),
            published=(
                *exact_facts,
                f"number of candidates ({pool.n_subsets}, {pool.scheme}) and of units "
                f"({pool.n_units})",
                *published,
            ),
            public=(
                "the universe of records, the mechanism and the noise law",
                f"number of subsets ({pool.n_subsets}) and how they are drawn ({pool.scheme})",
                *public,
            ),
            not_promised=not_promised_text(
                pool, mi_upper=mi_upper, exact_facts=exact_facts, knows_pool=exact
            ),
            **fields,
        )

    @property
    def promise(self) -> str:
        return promise_text(self)

    @property
    def used_prior(self) -> float:
        return self.prior

    def rows(self) -> Rows:
        return pool_rows(self)

    def to_public_dict(self) -> Record:
        plain = super(PoolCertificate, self).to_public_dict()
        plain["side_knowledge"] = [item.to_public_dict() for item in self.side_knowledge]
        return plain

    def check(self) -> None:
        """Refuse a worst unit without a mean."""
        if self.membership is not None and self.membership_mean is None:
            raise refuse_field("membership_mean", "it is not there")


Certificate.KINDS["pool"] = PoolCertificate


def as_pool_certificate(certificate: Certificate) -> PoolCertificate:
    """Return a certificate of a pool; refuse others."""
    if not isinstance(certificate, PoolCertificate):
        raise CertificateError(
            f"certificate must be that of a pool; got one with {certificate.sampling!r}, for "
            "which there is no such attack or picture. Check it with pac verify."
        )
    return certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFigures:
    """Proved bounds of a noise law, computed again from the curator's bundle."""

    log_det_nats: float
    information: Estimate | None
    membership: adversary.MembershipRisk | None
    charges: Vector | None = None

    @property
    def mi_upper(self) -> float:
        """The best proved upper bound on the mutual information, in nats."""
        upper = math.inf if self.information is None else self.information.upper
        return min(self.log_det_nats, upper)


Proved: TypeAlias = NoisePlan | CertificateFigures


def certified_plan(plan: NoisePlan, context: Context) -> NoisePlan:
    """Return the plan with exact information and membership risk, where still missing."""
    pool, seed = context.pool, context.seed
    if plan.kind != "exact":
        return plan
    heat = None if context.session is None else context.session.heat(pool, context.log_p)
    view = plan.view(context.outputs, context.log_p)
    if plan.is_noiseless:
        charges = None if heat is None else adversary.noiseless_heat_charges(view, pool, heat)
        return replace(plan, membership=adversary.noiseless_membership(view, pool), charges=charges)
    gamma = context.gamma / (4 if heat is None else 8)
    if plan.information is None:
        draws = information_draws(pool.n_subsets) // 2  # it limits nothing here
        plan = _proof("information", seed, draws, gamma).on_plan(plan, view)
    if plan.membership is None:
        draws = membership_draws(pool.n_subsets)
        plan = _proof("membership", seed, draws, gamma).on_plan(plan, view, pool)
    if heat is not None and plan.charges is None:
        draws = max(membership_draws(pool.n_subsets), adversary.heat_draws(heat, gamma))
        plan = _proof("charges", seed, draws, gamma).on_plan(plan, view, pool, heat)
    return plan


def _proof(claim: Claim, seed: int, n_draws: int, gamma: float) -> Proof:
    return Proof(
        claim=claim, stream=f"assess-{claim}", seed=seed, attempt=0, n_draws=n_draws, gamma=gamma
    )


def write_certificate(bundle: Bundle, proved: Proved) -> PoolCertificate:
    """Write the proved bounds: a function of the bundle and the figures, for ``verify`` too."""
    pool, kind, stated = bundle.pool, bundle.kind, bundle.stated
    exact = kind == "exact"
    mi_upper = max(0.0, proved.mi_upper)
    upper = 1.0 if proved.membership is None else proved.membership.upper
    bound = min(upper, _implied_success(mi_upper, bundle), _bound_by_balances(bundle))
    return PoolCertificate.about(
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
        side_knowledge=_side_knowledge(bundle.view, pool, seed=bundle.seed) if exact else (),
        divergences=_divergences(bundle.view, seed=bundle.seed) if exact else (),
        trade_off=_trade_off(bundle, proved) if exact else (),
        noise=CertificateNoise.of(bundle.grid_step, bundle.units_per_std),
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


def _implied_success(mi_nats: float, bundle: Bundle) -> float:
    """Return the balanced success on the worst-placed unit that the information allows."""
    pool, log_p = bundle.pool, bundle.log_p
    if bundle.kind != "exact":
        return membership_success(mi_nats, pool.prior)
    if np.ptp(log_p) == 0:  # claim T-6: the share furthest from one half
        return membership_success(mi_nats, pool.worst_prior)
    share, inside = adversary.unit_beliefs_of_view(pool, log_p, slice(None))
    return min(1.0, float(membership_success(mi_nats, share, inside).max()) + ROUNDING)


def _trade_off(bundle: Bundle, proved: Proved) -> tuple[adversary.TradeOff, ...]:
    risk, view = proved.membership, bundle.view
    if bundle.session is not None or risk is None or view.points.shape[1] == 0:
        return ()
    draws = int(np.clip(TRADE_OFF_COST // view.n_subsets, 4096, 65536))
    return adversary.membership_trade_off(
        view,
        bundle.pool,
        unit=risk.worst_unit if bundle.worst_unit is None else bundle.worst_unit,
        n_draws=draws,
        gamma=DIVERGENCE_GAMMA,
        rng=public_generator(bundle.seed, "trade-off"),
    )


def _confidence(bundle: Bundle) -> float:
    if bundle.iid_rule is not None:
        return bundle.iid_rule.confidence
    return 1 - bundle.gamma if bundle.proofs else 1.0


def _session_notes(bundle: Bundle) -> tuple[str, ...]:
    """Say how sure the proofs of several releases are together: failures add up (claim H-1)."""
    if bundle.session is None:
        return ()
    count, charged = bundle.session.before.n_releases + 1, bundle.session.balances is not None
    whom = f" about any one {bundle.pool.unit}" if charged else ""
    return (
        f"releases 1 to {count} of the session: their proofs{whom} hold together at confidence "
        f"1 - {count} x {at_most(bundle.gamma, significant=1)}",
    )


def _side_knowledge(
    view: adversary.View, pool: Pool, *, seed: int
) -> tuple[adversary.SideKnowledge, ...]:
    rows: list[adversary.SideKnowledge] = []
    directions: tuple[adversary.Direction | None, ...] = (
        ("out", "in") if pool.folds > 2 else (None,)
    )
    for direction in directions:
        share_left = {None: 0.5, "out": 1 / pool.folds, "in": 1 - 1 / pool.folds}[direction]
        for n_told in SIDE_KNOWLEDGE_SIZES:
            n_consistent = pool.n_subsets * share_left**n_told
            if n_told >= pool.n_units or n_consistent < 1:
                break
            draws = int(np.clip(SIDE_COST // (8 * int(n_consistent) * pool.n_units), 128, 1024))
            rng = public_generator(seed, "side-knowledge", n_told)
            rows.append(
                adversary.side_knowledge(
                    view, pool, n_told=n_told, direction=direction, n_draws=draws, rng=rng
                )
            )
    return tuple(rows)


def _divergences(view: adversary.View, *, seed: int) -> tuple[adversary.InformationDivergence, ...]:
    if view.points.shape[1] == 0:
        return adversary.noiseless_information_divergences(view)
    draws = int(np.clip(DIVERGENCE_COST // view.n_subsets, 512, 16384))
    rng = public_generator(seed, "divergences")
    return adversary.information_divergences(view, n_draws=draws, gamma=DIVERGENCE_GAMMA, rng=rng)


def _exact_facts(bundle: Bundle) -> tuple[str, ...]:
    unanimous = bundle.groups is not None and not np.ptp(bundle.groups)
    directions = len(bundle.units_per_std)
    return open_parts_text(directions, int(bundle.outputs.shape[1]), unanimous=unanimous)


def certified_charges(proved: Proved, bundle: Bundle) -> Vector | None:
    """Return the charge of every unit, the better of its two proofs (claim H-1), if any."""
    if (heat := bundle.heat) is None:
        return None
    pool, nats = bundle.pool, max(0.0, proved.mi_upper)
    charges = adversary.heat_by_information(heat, pool.counts() / pool.n_subsets, nats)
    return charges if proved.charges is None else np.minimum(charges, proved.charges)


def certificate_charge(proved: Proved, part: BundleSession | None, charges: Vector | None) -> Spent:
    """Return the cost of a release: its proved nats, and the loss of the smallest balance."""
    spent = Spent(n_releases=1, mi_nats=max(0.0, proved.mi_upper))
    if part is None or part.balances is None or charges is None:
        return spent
    after = part.balances.after(charges, part.part)
    lost = part.balances.increment_left - after.increment_left
    return replace(spent, success_increment=max(0.0, lost))


def _composition(bundle: Bundle, proved: Proved) -> Record | None:
    part, pool = bundle.session, bundle.pool
    if part is None:
        return None
    charge = certificate_charge(proved, part, certified_charges(proved, bundle))
    facts = _session_facts(part, charge, prior=pool.worst_prior)
    if part.observation is not None:
        facts |= certificate_learned_facts(bundle.belief_after(part.observation), pool)
    return facts


def _session_facts(part: BundleSession, charge: Spent, *, prior: float) -> Record:
    total, after = part.total, part.before + charge
    facts: Record = {
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
    facts["session_success_bound"] = certificate_success_bound(total, prior)
    if part.fresh:
        facts["prior_of_ever_used"] = 1 - 2.0**-after.n_releases
    return facts


def certificate_success_bound(total: Spent, prior: float) -> float:
    """Return the promise of the total budget about one unit's membership."""
    bounds = [1.0]
    if total.success_level is not None:
        bounds.append(total.success_level)
    if total.mi_nats is not None:
        bounds.append(membership_success(total.mi_nats, prior))
    return min(bounds)


def certificate_learned_facts(belief: adversary.Belief, pool: Pool) -> dict[str, float]:
    """Return the information of readers of all releases so far: they can compute it (S-1)."""
    return {
        "learned_nats": belief.learned_nats,
        "best_guess_now": float(belief.success_per_unit(pool).max()),
    }


# --- of all answers of a responder ---------------------------------------------------------------


_NOTES = (
    "Every answer is calibrated to the belief that all earlier answers leave; the noise figures "
    "are upper limits for one answer.",
    "A question on which all candidates agree is answered without noise and costs nothing.",
)
_EXACT_FACTS = (
    "the answers on which all candidates agree",
    "which questions those are",
    "the noise level of the other answers",
)


def certify_answer_bundle(bundle: AnswerBundle) -> PoolCertificate:
    """Write the certificate of all answers, past and future.

    Claim F-2: ``mi_upper_nats`` bounds the information of all answers, since a question beyond it
    is refused. Claims H-3, H-4: so is the success on any unit where membership is charged.
    """
    pool, advantage = bundle.pool, bundle.advantage
    total = min(bundle.total_nats, math.log(pool.n_subsets))
    bound = membership_success(total, pool.worst_prior)
    if advantage is not None:
        bound = min(bound, 0.5 + 0.5 * advantage)
        units = VoteBalances(pool, advantage, bundle.query_nats, two_votes=bundle.two_votes)
        if not units.fits(1, bundle.query_nats):
            raise BudgetError(
                f"query_budget must leave room for one answer at least within {bundle.budget}, "
                f"whatever it is; got {bundle.query_budget}. Use pac.Information(2**-20)."
            )
    return PoolCertificate.about(
        pool,
        mi_upper=total,
        bound=bound,
        exact_facts=_EXACT_FACTS,
        public=("the questions", *bundle.public),
        published=bundle.published,
        kind="exact",
        budget=f"{bundle.budget} in total, {bundle.query_budget} per answer",
        rule="waterfill for every answer",
        mechanism=bundle.mechanism,
        output=bundle.output,
        dimension=bundle.n_classes,
        log_det_nats=total,
        noise=_largest_noise(bundle),
        confidence=1.0,
        notes=(*_NOTES, *pool.notes),
        simulation=bundle.simulation,
        composition={
            "secrets": "one for all answers",
            "nats_per_answer": bundle.query_nats,
            "total_nats": total,
            "session_success_bound": bound,
        },
        software=bundle.software,
    )


def _largest_noise(bundle: AnswerBundle) -> CertificateNoise:
    # Points of a simplex have total variance 1 - 1/c at most, in c - 1 directions; waterfill needs
    # no more than proportional noise, (Σ sqrt λ)² / 2β <= (c - 1) (1 - 1/c) / 2β.
    rank = bundle.n_classes - 1
    most = rank * (1 - 1 / bundle.n_classes) / (2 * bundle.query_nats)
    return CertificateNoise(
        total_variance=most,
        smallest_std=0.0,
        largest_std=math.sqrt(most),
        n_directions=rank,
        smallest_grid_step=0.0,
        smallest_units_per_std=UNITS,
    )
