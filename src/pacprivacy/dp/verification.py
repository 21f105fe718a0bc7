"""Recompute what a certificate of differential privacy promises, from the events it carries.

Such a release leaves no bundle: its proof is the mechanism's, and rests on what the certificate
assumes. What can be recomputed is how the loss follows from the events; the rest is named.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from pacprivacy._certificates import Verified, verify
from pacprivacy.dp.accounting import account, advantage
from pacprivacy.dp.certificate import NOT_PROMISED, ONE_RELEASE, DPCertificate
from pacprivacy.dp.events import GaussianEvent, LaplaceEvent, events_of
from pacprivacy.errors import BudgetError, CertificateError

ROUNDED: Final = 1e-3  # what the step of privacy-loss distributions may add, relative

NOT_CHECKABLE_DP: Final[Mapping[str, str]] = {
    "events": "that the mechanism did what they say; the promise was computed from them",
    "kind": "whether the loss was fixed beforehand",
    "neighbours": "the relation that the sensitivities behind the events are about",
    "mechanism": "which mechanism was run",
    "assumptions": "clipping, bounds and sensitivities",
    "accounting": "the figures of the accountant at the time",
    "noise": "the scales of the noise",
    "notes": "the notes of the mechanism",
    "not_promised": "whether more should be named; that the usual sentences are there was checked",
    "simulation": "that the noise came from the operating system",
    "software": "which version wrote the certificate",
}
_EX_POST: Final = {
    "epsilon": "the loss of what was released; that it is not above the worst was checked"
}
_ADVANTAGE: Final = {"advantage": "the loss distribution, of which the events say only the promise"}


@verify.register
def verify_dp(certificate: DPCertificate, bundle: None = None) -> Verified:
    """Check that a promise of differential privacy follows from the events beside it.

    Refused are certificates whose events cost more than is promised, that have none, or that
    leave out a sentence of what is not promised.

    Guarantee
    ---------
    Claim R-6. Returns only if the events are ``(epsilon, delta)``-private by one of the
    accountants, and give an attacker no larger advantage than is stated where they tell it, each
    up to a thousandth.
    """
    if bundle is not None:
        raise CertificateError(
            "bundle must be left out with a certificate of differential privacy; got one. "
            "What is checked are the events that the certificate carries."
        )
    if not certificate.events:
        raise CertificateError(
            "certificate must carry its events to be verified; got none, so that nothing can be "
            "recomputed. Release again with this version."
        )
    missing = [said for said in NOT_PROMISED if said not in certificate.not_promised]
    if [said for said in missing if said != ONE_RELEASE]:  # the sum of a search says it otherwise
        raise CertificateError(
            "certificate field not_promised must hold what no such release promises; a sentence "
            "is missing. Do not rely on this certificate."
        )
    _check_epsilon(certificate)
    unproved = {
        **NOT_CHECKABLE_DP,
        **({} if certificate.kind == "dp" else _EX_POST),
        **({} if _check_advantage(certificate) else _ADVANTAGE),
    }
    unproved = {k: why for k, why in unproved.items() if getattr(certificate, k) not in (None, ())}
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(f.name for f in fields(certificate) if f.name not in unproved),
        not_checkable=unproved,
    )


def _check_epsilon(certificate: DPCertificate) -> None:
    try:
        worst = account(certificate, delta=certificate.delta).best[1]
    except BudgetError as error:
        raise CertificateError(f"events must fit the promise of the certificate; {error}") from None
    promised = certificate.epsilon
    if certificate.kind == "dp" and worst > promised * (1 + ROUNDED):
        raise _refusal("epsilon", promised, worst)
    if certificate.kind != "dp" and promised > worst * (1 + ROUNDED):
        raise _refusal("epsilon", promised, worst)


def _check_advantage(certificate: DPCertificate) -> bool:
    """Refuse an advantage below that of the events; say whether they tell it."""
    if certificate.advantage is None:
        return True
    events = events_of(certificate)
    if not all(isinstance(event, GaussianEvent | LaplaceEvent) for event in events):
        return False
    found = advantage(events, neighbours=certificate.neighbours)
    if found > certificate.advantage * (1 + ROUNDED):
        raise _refusal("advantage", certificate.advantage, found)
    return True


def _refusal(name: str, claimed: float, found: float) -> CertificateError:
    return CertificateError(
        f"certificate field {name} must follow from its events; it says {claimed:.6g}, the events "
        f"give {found:.6g}. Do not rely on this certificate."
    )
