"""Check a certificate: write it again from the curator's bundle, and compare every field."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Final

from pacprivacy._certificates import Verified, verify
from pacprivacy.errors import CertificateError
from pacprivacy.release.bundle import RELATIVE, CuratorBundle, load_bundle
from pacprivacy.release.certificate import Certificate

ABSOLUTE: Final = 1e-12
LONGEST: Final = 80  # characters of a value in a message
WITH: Final = {"pool": "from a pool", "average": "on average over coins"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What follows from a bundle: its certificate, written again with every figure computed anew.

    ``on_trust`` are the fields that no figure of the bundle proves, each with the reason.
    """

    certificate: Certificate
    on_trust: Mapping[str, str]


@singledispatch
def evidence_of(bundle: object) -> Evidence:
    """Check a bundle, and write its certificate again; each kind of bundle registers how."""
    raise CertificateError(
        f"bundle must be that of a release; got a {type(bundle).__name__}. Pass the curator.npz "
        "that was written beside the release."
    )


@verify.register
def _verify_release(
    certificate: Certificate, bundle: CuratorBundle | str | Path | None = None
) -> Verified:
    """Check that a certificate follows from the curator's bundle; claim R-1."""
    if bundle is None:
        raise CertificateError(
            "bundle must be given with a PAC certificate; got None. Pass the curator's curator.npz."
        )
    if "target" in (certificate.composition or {}):
        raise CertificateError(
            "certificate must be that of one observation; got the sum of a release that was "
            "refined until a target. Verify its steps, each in a folder of its own."
        )
    evidence = evidence_of(load_bundle(bundle) if isinstance(bundle, str | Path) else bundle)
    again = evidence.certificate
    if type(again) is not type(certificate):
        kinds = (WITH.get(each.sampling, "with coins") for each in (certificate, again))
        raise CertificateError(
            "bundle must be that of a release {}; got that of one {}. Pass the curator.npz that "
            "was written beside the release.".format(*kinds)
        )
    compare_verified(certificate, replace(again, schema_version=certificate.schema_version))
    names = [item.name for item in fields(again)]
    on_trust = {
        name: reason
        for name, reason in evidence.on_trust.items()
        if getattr(again, name) not in (None, ())
    }
    sentences = f"{len(again.not_promised)} of what is not promised, and every other field"
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(name for name in names if name not in on_trust),
        not_checkable=on_trust,
        figures={**again.proved_figures(), "Sentences": sentences},
    )


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
    elif isinstance(rebuilt, tuple | list) and isinstance(claimed, tuple | list):
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
