"""Recompute a certificate from the curator's bundle, and say what cannot be recomputed.

The certificate is a function of the bundle and of the figures that were proved. Here the figures
are computed again, the certificate is written again, and the two are compared field by field:
whatever field a certificate may get one day, it is compared. What the bundle can only repeat (a
name, a note, what earlier releases spent) is compared with its record and named in the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from pacprivacy.errors import CertificateError
from pacprivacy.release import answers
from pacprivacy.release import bundle as bundles
from pacprivacy.release.answers import AnswerBundle, certify_answers
from pacprivacy.release.archive import read_archive, refuse_archive
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import Certificate
from pacprivacy.release.rebuild import RELATIVE, rebuild

__all__ = ["NOT_CHECKABLE", "NOT_CHECKABLE_ANSWERS", "Verified", "load_bundle", "verify"]

ABSOLUTE = 1e-12
LONGEST = 80  # characters of a value in a message

NOT_CHECKABLE: Final[Mapping[str, str]] = {
    "budget": "what was asked; that the proved bounds meet it was checked",
    "rule": "how the noise was chosen; the noise itself was checked",
    "mechanism": "which function was run; its outputs are taken from the bundle",
    "output": "what the released numbers are called; how many there are was checked",
    "scheme": "how the subsets were drawn; those that were drawn, and their priors, were checked",
    "public": "what the mechanism says it treats as public",
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
    "scheme": NOT_CHECKABLE["scheme"],
    "dimension": "the number of classes",
    "noise": "the number of classes, which the limits on the noise follow from",
    "public": "what the mechanism says it treats as public",
    "notes": "the notes of the pool",
    "simulation": "that secret and noise came from the operating system",
    "software": "which version wrote the certificate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was recomputed and agrees, and what the bundle cannot show; public.

    Parameters
    ----------
    digest : str
        SHA-256 of the certificate, as in the ledger.
    recomputed : tuple of str
        Fields of the certificate that follow from the bundle's figures.
    not_checkable : dict of str
        Fields that were only compared with the bundle's record, each with the reason.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> release = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16)
    >>> found = pac.verify(release.certificate, release.bundle)
    >>> "membership_bound" in found.recomputed, "mechanism" in found.not_checkable
    (True, True)
    """

    digest: str
    recomputed: tuple[str, ...]
    not_checkable: dict[str, str] = field(repr=False)


def verify(certificate: Certificate, bundle: Bundle | AnswerBundle | str | Path) -> Verified:
    """Check that a certificate follows from the curator's bundle.

    Parameters
    ----------
    certificate : Certificate
        What is claimed.
    bundle : Bundle, AnswerBundle or path
        The curator's ``curator.npz``.

    Returns
    -------
    Verified
        What was recomputed, and what cannot be.

    Raises
    ------
    CertificateError
        Naming the first field that does not follow.

    Guarantee
    ---------
    Claim R-1. Returns only if every field of the certificate equals what the bundle gives with
    the recorded draws, and the proved bounds meet the recorded budget. Fields that rest on the
    bundle's record alone are named in the result.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> release = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16)
    >>> len(pac.verify(release.certificate, release.bundle).digest)
    64
    """
    _refuse_sums(certificate)
    found = load_bundle(bundle) if isinstance(bundle, str | Path) else bundle
    if isinstance(found, AnswerBundle):
        again, table = certify_answers(found), NOT_CHECKABLE_ANSWERS
    else:
        table = NOT_CHECKABLE if found.iid_rule is None else NOT_CHECKABLE_IID
        again = rebuild(found)
    compare(certificate, again)
    unproved = {name: why for name, why in table.items() if _is_said(again, name)}
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(f.name for f in fields(Certificate) if f.name not in unproved),
        not_checkable=unproved,
    )


def load_bundle(path: str | Path) -> Bundle | AnswerBundle:
    """Read the curator's file of a release or of a predictor; refuse damaged ones.

    Examples
    --------
    >>> load_bundle("nowhere/curator.npz")
    Traceback (most recent call last):
        ...
    pacprivacy.errors.CertificateError: nowhere/curator.npz must be a readable curator bundle; ...
    """
    kind, arrays, record = read_archive(path)
    try:
        if kind == answers.KIND:
            return AnswerBundle.from_archive(arrays, record)
        if kind == bundles.KIND:
            return Bundle.from_archive(arrays, record)
    except Exception:  # fields from anywhere break constructors in many ways
        raise refuse_archive(path) from None
    raise refuse_archive(path)


def _refuse_sums(certificate: Certificate) -> None:
    facts = certificate.composition or {}
    if "target" in facts:
        raise CertificateError(
            "certificate must be that of one observation; got the sum of a release that was "
            "refined until a target. Verify its steps, each in a folder of its own."
        )
    if "search" in facts:
        raise CertificateError(
            "certificate must be that of one release; got the sum over a search. Verify the "
            "certificate of each fit against its own bundle."
        )


def _is_said(certificate: Certificate, name: str) -> bool:
    """Whether a field says anything, so that there is something to name."""
    return getattr(certificate, name) not in (None, ())


def compare(certificate: Certificate, again: Certificate) -> None:
    """Refuse a certificate that differs from the one written again, naming the first field."""
    _compare("", certificate, again)


def _compare(name: str, claimed: Any, found: Any) -> None:
    if isinstance(found, float):
        _compare_numbers(name, claimed, found)
    elif type(claimed) is not type(found):
        raise _mismatch(name, claimed, found)
    elif is_dataclass(found):
        for item in fields(found):
            inner = f"{name}.{item.name}".lstrip(".")
            _compare(inner, getattr(claimed, item.name), getattr(found, item.name))
    elif isinstance(found, dict):
        if set(claimed) != set(found):
            raise _mismatch(name, sorted(claimed), sorted(found))
        for key, value in found.items():
            _compare(f"{name}.{key}", claimed[key], value)
    elif isinstance(found, tuple):
        if len(claimed) != len(found):
            raise _mismatch(name, f"{len(claimed)} items", f"{len(found)} items")
        for ours, theirs in zip(claimed, found, strict=True):
            _compare(name, ours, theirs)
    elif claimed != found:
        raise _mismatch(name, claimed, found)


def _compare_numbers(name: str, claimed: Any, found: float) -> None:
    # A confidence is so close to one that only its last bits tell it from certainty.
    exactly = name.split(".")[-1] == "confidence"
    same = isinstance(claimed, int | float) and not isinstance(claimed, bool)
    if exactly:
        same = same and claimed == found
    else:
        # Noise has the scale of the outputs, which may be tiny; the rest are nats and rates.
        least = 0.0 if name.startswith("noise.") else ABSOLUTE
        same = same and math.isclose(claimed, found, rel_tol=RELATIVE, abs_tol=least)
    if not same:
        raise _mismatch(name, claimed, found)


def _mismatch(name: str, claimed: Any, found: Any) -> CertificateError:
    says, gives = (_shown(value) for value in (claimed, found))
    return CertificateError(
        f"certificate field {name} must follow from the bundle; it says {says}, the bundle "
        f"gives {gives}. Do not rely on this certificate."
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
