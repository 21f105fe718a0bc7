"""Compute the figures of a release from a pool again, from the curator's bundle."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from pacprivacy._checks import Vector, distances_between_rows
from pacprivacy._system import single_threaded
from pacprivacy.adversary import (
    Balances,
    MembershipRisk,
    noiseless_heat_charges,
    noiseless_membership,
)
from pacprivacy.budget import budget_limits
from pacprivacy.errors import CertificateError
from pacprivacy.noise import Proof, iid_log_det, log_det_of_points
from pacprivacy.release.bundle import RELATIVE, AnswerBundle, Bundle, BundleSession
from pacprivacy.release.certificate import Evidence, evidence_of, fields_on_trust
from pacprivacy.release.pool_certificate import (
    CertificateFigures,
    PoolCertificate,
    certificate_charge,
    certified_charges,
    certify_answer_bundle,
    write_certificate,
)
from pacprivacy.theory import Estimate, information_slack_bound

DISTANCE: Final = 1e-4  # shifts within a group below a millionth of the spread are not released
RULED_OUT: Final = 1e-9
UNIT_MASS: Final = 1e-9
ON_TRUST_IID: Final = {
    "scheme": "how the subsets were drawn",
    "prior": "the blind guess before any subset is drawn, which follows from how they are",
}
ON_TRUST_ANSWERS: Final = {
    "budget": "what was asked; that the total follows from it was checked",
    "mechanism": "which models answer",
    "output": "what an answer looks like",
    "dimension": "the number of classes",
    "noise": "the number of classes, which the limits on the noise follow from",
    "notes": "the notes of the pool",
}
ANSWERS_CHECKED: Final = ("rule", "composition")


def foreign(reason: str) -> CertificateError:
    """Return the error of a bundle that is of another release."""
    return CertificateError(f"{reason}. The bundle does not belong to this release.")


def doubtful(reason: str) -> CertificateError:
    """Return the error of a bundle that contradicts its certificate."""
    return CertificateError(f"{reason}. Do not rely on this certificate.")


def rebuild_verified(bundle: Bundle) -> PoolCertificate:
    """Write the certificate again from figures computed again, with the threads of the release."""
    _check_points(bundle)
    _check_belief(bundle)
    with single_threaded():
        proved = prove_verified_again(bundle)
        _check_worst_unit(bundle, proved.membership)
        certificate = write_certificate(bundle, proved)
    _check_confidence(certificate, bundle)
    if bundle.session is None:
        _check_budget(certificate, bundle)
    else:
        _check_session(bundle, bundle.session, proved)
    return certificate


# --- what the figures are --------------------------------------------------------------------


def prove_verified_again(bundle: Bundle) -> CertificateFigures:
    """Compute the proved figures again, with the recorded draws."""
    if bundle.iid_rule is not None:
        variances = bundle.iid_rule.variances(bundle.iid_rule.clipped(bundle.outputs))
        law = bundle.grid_step, bundle.units_per_std
        bound = iid_log_det(*law, variances[variances > 0], bundle.pool.n_units)
        return CertificateFigures(log_det_nats=bound, information=None, membership=None)
    weights = np.exp(bundle.log_p)
    bound = log_det_of_points(bundle.whitened, weights, bundle.groups)
    bound = bound * (1 + 1e-12) + information_slack_bound(
        bundle.total_variation_slack, len(weights)
    )
    heat, view = bundle.heat, bundle.view
    if bundle.is_noiseless:
        return CertificateFigures(
            log_det_nats=bound,
            information=Estimate.exact(bound),
            membership=noiseless_membership(view, bundle.pool),
            charges=None if heat is None else noiseless_heat_charges(view, bundle.pool, heat),
        )
    charges = None
    if heat is not None:
        charges = _proof_of(bundle, "charges").charges(view, bundle.pool, heat)
    return CertificateFigures(
        log_det_nats=bound,
        information=_proof_of(bundle, "information").information(view),
        membership=_recompute_membership(bundle),
        charges=charges,
    )


def _recompute_membership(bundle: Bundle) -> MembershipRisk:
    """Bound the risk as it was bounded: a search for noise looks less closely below its caps."""
    proof, caps = _proof_of(bundle, "membership"), None
    level = budget_limits(bundle.budget, bundle.pool.n_subsets).success_level
    if proof.stream == "verify-membership" and level is not None:
        caps = np.broadcast_to(level if level < 1 else np.inf, bundle.pool.n_units)
    return proof.membership(bundle.view, bundle.pool, caps)


def _proof_of(bundle: Bundle, claim: str) -> Proof:
    for proof in bundle.proofs:
        if proof.claim == claim:
            return proof
    raise doubtful(f"proofs must hold the draws behind {claim}; the bundle names none")


# --- what must hold between them -------------------------------------------------------------


def _check_points(bundle: Bundle) -> None:
    """Refuse lattice points that do not place the outputs where they are.

    All pairs are compared. Two candidates of one group must be as far apart on the lattice as their
    outputs are; those of different groups no further. Candidates that are all but ruled out do not
    count, since no noise was chosen for them.
    """
    outputs, points = bundle.outputs, bundle.points
    if bundle.iid_rule is not None:
        outputs = bundle.iid_rule.clipped(outputs)
    groups = np.zeros(len(points), dtype=np.int64) if bundle.groups is None else bundle.groups
    alive = np.flatnonzero(bundle.log_p >= bundle.log_p.max() + math.log(RULED_OUT))
    outputs, points, groups = outputs[alive], points[alive], groups[alive]
    lattice = (points - points[0]) * bundle.grid_step
    largest = max(float(apart.max()) for _, apart in distances_between_rows(outputs))
    room = DISTANCE * largest + float(bundle.grid_step.sum())
    pairs = zip(distances_between_rows(outputs), distances_between_rows(lattice), strict=True)
    for (rows, apart), (_, steps) in pairs:
        together = groups[rows, None] == groups
        if not ((steps > apart + room) | (together & (apart > steps + room))).any():
            continue
        raise foreign("points must lie as far apart as the outputs; they do not")


def _check_belief(bundle: Bundle) -> None:
    """Refuse knowledge from before the first release: the secret is drawn uniformly."""
    part, total = bundle.session, float(np.exp(bundle.log_p).sum())
    if not abs(total - 1) <= UNIT_MASS:  # a bound of less than the whole would be too small
        raise foreign(f"log_p must be probabilities that add up to 1; they add up to {total:.6g}")
    first = part is None or part.fresh or part.before.n_releases == 0
    if first and np.ptp(bundle.log_p) != 0:
        raise foreign("log_p must be uniform before the first release about a secret; it is not")


def _check_worst_unit(bundle: Bundle, risk: MembershipRisk | None) -> None:
    """Refuse a trade-off of a unit that is better placed than another by more than rounding."""
    if bundle.worst_unit is None or risk is None:
        return
    lower = risk.lower_per_unit
    if lower[bundle.worst_unit] < lower.max() - RELATIVE:
        raise doubtful("worst_unit must be the worst-placed unit; another is worse placed")


def _check_confidence(certificate: PoolCertificate, bundle: Bundle) -> None:
    if bundle.kind != "exact":
        return
    failure = sum(proof.gamma for proof in bundle.proofs)
    failure += sum(1 - item.estimate.confidence for item in certificate.divergences)
    failure += max((1 - item.confidence for item in certificate.trade_off), default=0.0)
    if certificate.confidence > 1 - failure + 1e-15:
        raise doubtful(
            f"gamma must cover the proofs, which fail with probability {failure:.2g}; the bundle "
            f"says {1 - certificate.confidence:.2g}"
        )


def _check_budget(certificate: PoolCertificate, bundle: Bundle) -> None:
    limits = budget_limits(bundle.budget, bundle.pool.n_subsets)
    _check_at_most("information", certificate.mi_upper_nats, limits.mi_nats, bundle)
    _check_at_most("membership success", certificate.membership_bound, limits.success_level, bundle)


def _check_session(bundle: Bundle, part: BundleSession, proved: CertificateFigures) -> None:
    """Refuse a release that cost more than its share, or sums beyond the session's total."""
    budget, nats = budget_limits(bundle.budget, bundle.pool.n_subsets), max(0.0, proved.mi_upper)
    for limits in (budget, part.share):
        _check_at_most("information", nats, limits.mi_nats, bundle)
    charges = certified_charges(proved, bundle)
    after = part.before + certificate_charge(proved, part, charges)
    _check_at_most("information of the session", after.mi_nats or 0.0, part.total.mi_nats, bundle)
    _check_balances(bundle, part, charges)
    total = part.total.above()
    spent = after.success_increment or 0.0
    _check_at_most("loss of the smallest balance", spent, total.success_increment, bundle)


def _check_balances(bundle: Bundle, part: BundleSession, charges: Vector | None) -> None:
    """Refuse balances that a session cannot have, and charges that are not allowed (H-1)."""
    budget, level = budget_limits(bundle.budget, bundle.pool.n_subsets), part.total.success_level
    if charges is None or part.balances is None or part.allowed is None:
        if level is not None or budget.success_level is not None:
            raise doubtful(
                "balances must be given where membership is limited; the bundle holds none"
            )
        return
    balances, allowed = part.balances, part.allowed
    full = Balances.begin(balances.advantage, len(allowed)).per_unit
    if level is not None:
        _check_at_most("advantage", balances.advantage, 2 * level - 1, bundle)
    if budget.success_level is not None:
        most = Balances.begin(2 * budget.success_level - 1, 1).worst
        _check_at_most("largest charge that is allowed", float(allowed.max()), most, bundle)
    first = part.before.n_releases == 0
    _check_at_most("largest balance", float((balances.per_unit / full).max()), 1.0, bundle)
    _check_at_most("reserve", balances.reserve, 1.0, bundle)
    _check_at_most("part of the reserve", part.part, 1.0, bundle)
    _check_at_most(
        "charge that is allowed", float((allowed - balances.per_unit).max()), 0.0, bundle
    )
    _check_at_most(
        "charge of a unit", float((charges - allowed * (1 + RELATIVE)).max()), 0.0, bundle
    )
    if first and not np.array_equal(balances.per_unit, full):
        raise foreign("balances must be full before the first release of a session; they are not")


def _check_at_most(what: str, proved: float, limit: float | None, bundle: Bundle) -> None:
    if limit is not None and proved > limit * (1 + RELATIVE) + 1e-12:
        raise doubtful(
            f"budget must be met by what the bundle proves; it asks for {bundle.budget}, which "
            f"leaves {limit:.6g}, and the {what} is {proved:.6g}"
        )


@evidence_of.register
def _of_pool(bundle: Bundle) -> Evidence:
    iid = {} if bundle.iid_rule is None else ON_TRUST_IID
    reasons = fields_on_trust(PoolCertificate) | iid
    return Evidence(certificate=rebuild_verified(bundle), on_trust=reasons)


@evidence_of.register
def _answer_evidence(bundle: AnswerBundle) -> Evidence:
    reasons = fields_on_trust(PoolCertificate) | ON_TRUST_ANSWERS
    reasons = {name: why for name, why in reasons.items() if name not in ANSWERS_CHECKED}
    return Evidence(certificate=certify_answer_bundle(bundle), on_trust=reasons)
