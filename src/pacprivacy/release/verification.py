"""Write a certificate again from the curator's bundle, with every figure computed anew."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from pacprivacy._certificates import Verified, verify
from pacprivacy._checks import Vector, distances_between_rows
from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy._system import single_threaded
from pacprivacy.adversary import (
    Balances,
    MembershipRisk,
    noiseless_heat_paid,
    noiseless_membership,
)
from pacprivacy.budget import budget_limits
from pacprivacy.errors import CertificateError
from pacprivacy.noise import Proof, iid_log_det, log_det_of_points
from pacprivacy.release import answer_bundle, bundle as bundles
from pacprivacy.release.answer_bundle import AnswerBundle, certify_answer_bundle
from pacprivacy.release.bundle import (
    Bundle,
    BundleSession,
    CuratorBundle,
    read_bundle_archive,
)
from pacprivacy.release.pool_certificate import (
    CertificateFigures,
    PoolCertificate,
    certificate_charge,
    certified_charges,
    write_certificate,
)
from pacprivacy.theory import Estimate, information_slack_bound

RELATIVE = 1e-6  # other processors round sums differently
DISTANCE = 1e-4  # shifts within a group below a millionth of the spread are not released at all
RULED_OUT = 1e-9
UNIT_MASS = 1e-9


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
    heat = bundle.heat
    if bundle.is_noiseless:
        return CertificateFigures(
            log_det_nats=bound,
            information=Estimate(value=bound, lower=bound, upper=bound, confidence=1.0, n_draws=0),
            membership=noiseless_membership(bundle.pool, bundle.log_p, bundle.groups),
            charges=noiseless_heat_paid(bundle.pool, bundle.log_p, bundle.groups, heat),
        )
    view, charges = bundle.view, None
    if heat is not None:
        charges = _proof_of(bundle, "charges").charges(view, bundle.pool, heat)
    return CertificateFigures(
        log_det_nats=bound,
        information=_proof_of(bundle, "information").information(view),
        membership=_membership_again(bundle),
        charges=charges,
    )


def _membership_again(bundle: Bundle) -> MembershipRisk:
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
    raise CertificateError(
        f"proofs must hold the draws behind {claim}; the bundle names none. "
        "Do not rely on this certificate."
    )


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
        raise CertificateError(
            "points must lie as far apart as the outputs; they do not. "
            "The bundle does not belong to this release."
        )


def _check_belief(bundle: Bundle) -> None:
    """Refuse knowledge from before the first release: the secret is drawn uniformly."""
    part, total = bundle.session, float(np.exp(bundle.log_p).sum())
    if not abs(total - 1) <= UNIT_MASS:  # a bound of less than the whole would be too small
        raise CertificateError(
            f"log_p must be probabilities that add up to 1; they add up to {total:.6g}. "
            "The bundle does not belong to this release."
        )
    first = part is None or part.fresh or part.before.n_releases == 0
    if first and np.ptp(bundle.log_p) != 0:
        raise CertificateError(
            "log_p must be uniform before the first release about a secret; it is not. "
            "The bundle does not belong to this release."
        )


def _check_worst_unit(bundle: Bundle, risk: MembershipRisk | None) -> None:
    """Refuse a trade-off of a unit that is better placed than another by more than rounding."""
    if bundle.worst_unit is None or risk is None:
        return
    lower = risk.lower_per_unit
    if lower[bundle.worst_unit] < lower.max() - RELATIVE:
        raise CertificateError(
            "worst_unit must be the worst-placed unit; another is worse placed. "
            "Do not rely on this certificate."
        )


def _check_confidence(certificate: PoolCertificate, bundle: Bundle) -> None:
    """Refuse proofs that may fail more often than the certificate says."""
    if bundle.kind != "exact":
        return
    failure = sum(proof.gamma for proof in bundle.proofs)
    failure += sum(1 - item.estimate.confidence for item in certificate.divergences)
    failure += max((1 - item.confidence for item in certificate.trade_off), default=0.0)
    if certificate.confidence > 1 - failure + 1e-15:
        raise CertificateError(
            f"gamma must cover the proofs, which fail with probability {failure:.2g}; the bundle "
            f"says {1 - certificate.confidence:.2g}. Do not rely on this certificate."
        )


def _check_budget(certificate: PoolCertificate, bundle: Bundle) -> None:
    """Refuse a budget that the proved bounds do not meet."""
    limits = budget_limits(bundle.budget, bundle.pool.n_subsets)
    _within("information", certificate.mi_upper_nats, limits.mi_nats, bundle)
    _within("membership success", certificate.membership_bound, limits.success_level, bundle)


def _check_session(bundle: Bundle, part: BundleSession, proved: CertificateFigures) -> None:
    """Refuse a release that cost more than its share, or sums beyond the session's total."""
    budget, nats = budget_limits(bundle.budget, bundle.pool.n_subsets), max(0.0, proved.mi_upper)
    for limits in (budget, part.share):
        _within("information", nats, limits.mi_nats, bundle)
    charges = certified_charges(proved, bundle)
    after = part.before + certificate_charge(proved, part, charges)
    _within("information of the session", after.mi_nats or 0.0, part.total.mi_nats, bundle)
    _check_balances(bundle, part, charges)
    total = part.total.above()
    spent = after.success_increment or 0.0
    _within("loss of the smallest balance", spent, total.success_increment, bundle)


def _check_balances(bundle: Bundle, part: BundleSession, charges: Vector | None) -> None:
    """Refuse balances that a session cannot have, and charges that are not allowed (H-1)."""
    budget, level = budget_limits(bundle.budget, bundle.pool.n_subsets), part.total.success_level
    if charges is None or part.balances is None or part.allowed is None:
        if level is not None or budget.success_level is not None:
            raise CertificateError(
                "balances must be given where membership is limited; the bundle holds none. "
                "Do not rely on this certificate."
            )
        return
    balances, allowed = part.balances, part.allowed
    full = Balances.begin(balances.advantage, len(allowed)).per_unit
    if level is not None:
        _within("advantage", balances.advantage, 2 * level - 1, bundle)
    if budget.success_level is not None:
        most = Balances.begin(2 * budget.success_level - 1, 1).worst
        _within("largest charge that is allowed", float(allowed.max()), most, bundle)
    first = part.before.n_releases == 0
    _within("largest balance", float((balances.per_unit / full).max()), 1.0, bundle)
    _within("reserve", balances.reserve, 1.0, bundle)
    _within("part of the reserve", part.part, 1.0, bundle)
    _within("charge that is allowed", float((allowed - balances.per_unit).max()), 0.0, bundle)
    _within("charge of a unit", float((charges - allowed * (1 + RELATIVE)).max()), 0.0, bundle)
    if first and not np.array_equal(balances.per_unit, full):
        raise CertificateError(
            "balances must be full before the first release of a session; they are not. "
            "The bundle does not belong to this release."
        )


def _within(what: str, proved: float, limit: float | None, bundle: Bundle) -> None:
    if limit is not None and proved > limit * (1 + RELATIVE) + 1e-12:
        raise CertificateError(
            f"budget must be met by what the bundle proves; it asks for {bundle.budget}, "
            f"which leaves {limit:.6g}, and the {what} is {proved:.6g}. "
            "Do not rely on this certificate."
        )


ABSOLUTE = 1e-12
LONGEST = 80  # characters of a value in a message

NOT_CHECKABLE: Final[Mapping[str, str]] = {
    "budget": "what was asked; that the proved bounds meet it was checked",
    "rule": "how the noise was chosen; the noise itself was checked",
    "mechanism": "which function was run; its outputs are taken from the bundle",
    "output": "what the released numbers are called; how many there are was checked",
    "scheme": "how the subsets were drawn; those that were drawn, and their priors, were checked",
    "public": "what the mechanism says it treats as public",
    "published": "what the mechanism says it shows of the universe; the rest was checked",
    "notes": "the notes of the mechanism, the rule and the pool",
    "composition": (
        "the session's total, what its earlier releases spent, the belief they left and the "
        "integers that left now; that the sums stay below the total was checked"
    ),
    "simulation": "that secret and noise came from the operating system",
    "software": "which version wrote the certificate",
}
NOT_CHECKABLE_IID: Final[Mapping[str, str]] = {
    **NOT_CHECKABLE,
    "scheme": "how the subsets were drawn",
    "prior": "the blind guess before any subset is drawn, which follows from how they are",
}
NOT_CHECKABLE_ANSWERS: Final[Mapping[str, str]] = {
    "budget": "what was asked; that the total follows from it was checked",
    "mechanism": "which models answer",
    "output": "what an answer looks like",
    "dimension": "the number of classes",
    "noise": "the number of classes, which the limits on the noise follow from",
    "notes": "the notes of the pool",
    **{
        name: NOT_CHECKABLE[name]
        for name in ("scheme", "public", "published", "simulation", "software")
    },
}


@verify.register
def _verify_release(
    certificate: PoolCertificate, bundle: Bundle | AnswerBundle | str | Path | None = None
) -> Verified:
    """Check that a certificate follows from the curator's bundle; claim R-1."""
    if bundle is None:
        raise CertificateError(
            "bundle must be given with a PAC certificate; got None. Pass the curator's curator.npz."
        )
    _refuse_sums(certificate)
    loaded = load_verified_bundle(bundle) if isinstance(bundle, str | Path) else bundle
    if not isinstance(loaded, Bundle | AnswerBundle):
        raise CertificateError(
            "bundle must be that of a release from a pool; got that of one with coins. Pass the "
            "curator.npz that was written beside the release."
        )
    if isinstance(loaded, AnswerBundle):
        again, table = certify_answer_bundle(loaded), NOT_CHECKABLE_ANSWERS
    else:
        table = NOT_CHECKABLE if loaded.iid_rule is None else NOT_CHECKABLE_IID
        again = rebuild_verified(loaded)
    compare_verified(certificate, replace(again, schema_version=certificate.schema_version))
    unproved = {name: why for name, why in table.items() if _is_said(again, name)}
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(f.name for f in fields(PoolCertificate) if f.name not in unproved),
        not_checkable=unproved,
        figures=_figures(certificate, loaded),
    )


def _figures(certificate: PoolCertificate, bundle: Bundle | AnswerBundle) -> dict[str, str]:
    """Say what was recomputed, with the figures that agree."""
    proofs = bundle.proofs if isinstance(bundle, Bundle) else ()
    draws = {proof.claim: proof.n_draws for proof in proofs}
    items = {
        "promise": certificate.promise,
        "pool": f"{certificate.n_subsets} subsets of {certificate.n_units} units, prior of the "
        f"worst-placed one {100 * certificate.prior:.4g} %",
        "advantage": f"at most {at_most(certificate.advantage, decimals=4)}; success at that prior "
        f"at most {percent_at_most(certificate.success_at(certificate.prior))} %",
        "noise": f"total variance {certificate.noise.total_variance:.6g} over "
        f"{certificate.noise.n_directions} of {certificate.dimension} directions",
        "log-determinant bound": f"{at_most(certificate.log_det_nats, decimals=6)} nats",
    }
    if certificate.information is not None and "information" in draws:
        items["mutual information"] = (
            f"at most {at_most(certificate.information.upper, decimals=6)} nats "
            f"({draws['information']} draws)"
        )
    membership = certificate.membership
    if membership is not None:
        how = f"{draws['membership']} draws" if "membership" in draws else "closed form"
        items["membership success"] = f"at most {percent_at_most(membership.upper)} % ({how})"
    if certificate.trade_off:
        items["trade-off"] = ", ".join(
            f"{100 * item.false_positives:.3g} % -> {percent_at_most(item.true_positives)} %"
            for item in certificate.trade_off
        )
    items["any inference"] = ", ".join(
        f"prior {100 * float(prior):.4g} % -> {percent_at_most(rate)} %"
        for prior, rate in certificate.any_inference.items()
    )
    if isinstance(bundle, Bundle) and bundle.session is not None:
        items["session"] = (
            "this release's charge, the sums, the bound over the session and what was learned, "
            "given the recorded total and earlier spends"
        )
    items["sentences"] = (
        f"{len(certificate.not_promised)} of what is not promised, and every other field"
    )
    return items


READERS: Final[dict[str, Callable[..., CuratorBundle]]] = {
    bundles.KIND: Bundle.from_archive,
    answer_bundle.KIND: AnswerBundle.from_archive,
}


def load_verified_bundle(path: str | Path) -> CuratorBundle:
    """Read the curator's file of a release or of a predictor; refuse damaged ones."""
    return read_bundle_archive(path, READERS)


def _refuse_sums(certificate: PoolCertificate) -> None:
    facts = certificate.composition or {}
    if "target" in facts:
        raise CertificateError(
            "certificate must be that of one observation; got the sum of a release that was "
            "refined until a target. Verify its steps, each in a folder of its own."
        )


def _is_said(certificate: PoolCertificate, name: str) -> bool:
    """Whether a field says anything, so that there is something to name."""
    return getattr(certificate, name) not in (None, ())


def compare_verified(claimed: object, rebuilt: object, name: str = "") -> None:
    """Refuse a certificate that differs from the one written again, naming the first field."""
    if isinstance(rebuilt, float):
        _compare_numbers(name, claimed, rebuilt)
    elif type(claimed) is not type(rebuilt):
        raise _mismatch(name, claimed, rebuilt)
    elif is_dataclass(rebuilt):
        for item in fields(rebuilt):
            inner = f"{name}.{item.name}".lstrip(".")
            compare_verified(getattr(claimed, item.name), getattr(rebuilt, item.name), inner)
    elif isinstance(rebuilt, dict) and isinstance(claimed, dict):
        if set(claimed) != set(rebuilt):
            raise _mismatch(name, sorted(claimed), sorted(rebuilt))
        for key, value in rebuilt.items():
            compare_verified(claimed[key], value, f"{name}.{key}")
    elif isinstance(rebuilt, tuple) and isinstance(claimed, tuple):
        if len(claimed) != len(rebuilt):
            raise _mismatch(name, f"{len(claimed)} items", f"{len(rebuilt)} items")
        for ours, theirs in zip(claimed, rebuilt, strict=True):
            compare_verified(ours, theirs, name)
    elif claimed != rebuilt:
        raise _mismatch(name, claimed, rebuilt)


def _compare_numbers(name: str, claimed: object, rebuilt: float) -> None:
    if isinstance(claimed, bool) or not isinstance(claimed, int | float):
        raise _mismatch(name, claimed, rebuilt)
    # A confidence is so close to one that only its last bits tell it from certainty.
    if name.split(".")[-1] == "confidence":
        same = claimed == rebuilt
    else:
        # Noise has the scale of the outputs, which may be tiny; the rest are nats and rates.
        least = 0.0 if name.startswith("noise.") else ABSOLUTE
        same = math.isclose(claimed, rebuilt, rel_tol=RELATIVE, abs_tol=least)
    if not same:
        raise _mismatch(name, claimed, rebuilt)


def _mismatch(name: str, claimed: object, rebuilt: object) -> CertificateError:
    says, gives = (textwrap.shorten(repr(value), LONGEST) for value in (claimed, rebuilt))
    return CertificateError(
        f"certificate field {name} must follow from the bundle; it says {says}, the bundle "
        f"gives {gives}. Do not rely on this certificate."
    )
