"""Parts common to all certificates: digest, file, signature, HTML, results of a check."""

import hashlib
import html
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from typing import Any, Final

from pacprivacy._rounding import at_most
from pacprivacy._system import read_regular
from pacprivacy.errors import CertificateError
from pacprivacy.theory import read_as_dp

DP_SCHEMA: Final = "dp-1"  # by which a file of differential privacy tells itself from PAC's
SHOWN_CHARACTERS: Final = 600
MAX_RELEASE_BYTES: Final = 64 << 20  # two million numbers; reading takes 30 times the memory
MAX_KEY_BYTES: Final = 1 << 16


def digest_of(plain: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a certificate, given as plain JSON types.

    It is taken of the JSON with sorted keys and no spaces, so that anyone who has the certificate
    can compute it, however the file was laid out.
    """
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


MARKS: Final = ("digest", "signature")
_UNSEALED: Final = {"schema_version", "value", "error_bars", "certificate"}  # before digests
_SIGNED: Final = b"pacprivacy release "


def write_release(
    path: Path, content: Mapping[str, Any], *, sign: str | Path | None = None
) -> None:
    """Write a release file: everything in it under one digest, signed by the key in ``sign``."""
    sealed = dict(content)
    if sign is not None:
        key = read_key(sign, private=True)
        sealed["signature"] = {
            "algorithm": "ed25519",
            "public_key": key.public_key().public_bytes_raw().hex(),
            "value": key.sign(_SIGNED + digest_of(content).encode()).hex(),
        }
    sealed["digest"] = digest_of(sealed)
    path.write_text(_text(sealed), encoding="utf-8", newline="\n")


def _text(content: Mapping[str, Any]) -> str:
    """Return the layout of a content, with sorted keys."""
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"


def release_file(path: str | Path) -> Path:
    """Return the public file of a release, given the file or its folder."""
    return Path(path) / "release.json" if Path(path).is_dir() else Path(path)


def read_release(path: str | Path, *, public_key: str | Path | None = None) -> Any:
    """Return a release file, or a certificate in a file of its own, as plain JSON types.

    Guarantee
    ---------
    Claim R-10. A file with a digest is refused if a byte of it has changed and, given a public
    key, if its owner has not signed it. Files of version 0.1 have no digest.
    """
    try:
        text = read_regular(release_file(path), most_bytes=MAX_RELEASE_BYTES).decode("utf-8")
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()  # half a character is none
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not valid JSON"
        raise CertificateError(
            f"{path} must be a readable JSON file; {reason}. Pass a release.json."
        ) from None
    plain = content if isinstance(content, dict) else {}
    if "digest" in plain or ("certificate" in plain and not plain.keys() <= _UNSEALED):
        body = {name: item for name, item in plain.items() if name != "digest"}
        same = False
        with suppress(ValueError, RecursionError):  # NaN is no JSON
            same = plain.get("digest") == digest_of(body) and text == _text(plain)
        if not same:
            raise CertificateError(
                f"{path} must be as it was written; its digest is of another content: something "
                "in it was changed. Get the file again from its publisher."
            )
    if public_key is not None:
        _check_signature(plain, public_key, path)
    return content


def read_key(path: str | Path, *, private: bool) -> Any:
    """Return an ed25519 key from a PEM file, as OpenSSL and ``cryptography`` write it."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise CertificateError(
            "signatures must be made and checked with cryptography; it is not installed. "
            "Run in a checkout: pip install '.[sign]'"
        ) from None
    kind = ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey
    key: Any = None
    with suppress(OSError, ValueError, TypeError, UnsupportedAlgorithm):
        content = read_regular(path, most_bytes=MAX_KEY_BYTES)
        if private:
            key = serialization.load_pem_private_key(content, password=None)
        else:
            key = serialization.load_pem_public_key(content)
    if not isinstance(key, kind):
        end = "" if private else f" -in key.pem -pubout -out {Path(path).name[:40]}"
        make = (
            f"genpkey -algorithm ed25519 -out {Path(path).name[:40]}" if private else f"pkey{end}"
        )
        raise CertificateError(
            f"{path} must be a PEM file with an ed25519 {'private' if private else 'public'} key "
            f"without a password; got something else. Make one: openssl {make}"
        )
    return key


def _check_signature(plain: Mapping[str, Any], public_key: str | Path, path: str | Path) -> None:
    key, signature = read_key(public_key, private=False), plain.get("signature")
    if signature is None:
        raise CertificateError(
            f"{path} must be signed to be checked with a key; it is not. Ask for a signed release, "
            "or leave out --public-key."
        )
    body = {name: item for name, item in plain.items() if name not in MARKS}
    try:
        key.verify(bytes.fromhex(signature["value"]), _SIGNED + digest_of(body).encode())
    except Exception:  # InvalidSignature, or no signature at all
        raise CertificateError(
            f"{path} must be signed by the owner of {public_key}; its signature is not of that "
            "key. Do not trust the file."
        ) from None


def read_certificate(path: str | Path) -> Any:
    """Return the certificate in a release file, or in a file of its own, as plain JSON types."""
    content = read_release(path)
    return content.get("certificate", content) if isinstance(content, dict) else content


def readings_text(success: float) -> str:
    """Return a membership success as pure and as Gaussian differential privacy, in words."""
    readings = read_as_dp(success)
    if math.isinf(readings.pure_epsilon):
        return "the success of no finite epsilon"
    pure, mu, epsilon = (
        at_most(value, significant=3)
        for value in (readings.pure_epsilon, readings.gaussian_mu, readings.gaussian_epsilon)
    )
    return (
        f"the success of pure DP with epsilon {pure}, or of Gaussian DP with mu {mu} (epsilon "
        f"{epsilon} at delta {readings.delta:g})"
    )


def rows_html(promise: str, rows: list[tuple[str, str]], *, simulation: bool) -> str:
    """Return a promise above a table of two columns as HTML."""
    warning = ""
    if simulation:
        warning = "<p><b>SIMULATION: seeded randomness; this release protects nobody.</b></p>"
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th>'
        f'<td style="text-align:left">{html.escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return f"<div>{warning}<p><b>{html.escape(promise)}</b></p><table>{cells}</table></div>"


def release_html(value: str, certificate: str, table: str | None = None) -> str:
    """Return the start of a released value (or a table of it), and its certificate, as HTML."""
    shown = value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + " ..."
    return f"<div>{table or f'<pre>{html.escape(shown)}</pre>'}{certificate}</div>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Fields that were recomputed and agree, and fields that the bundle cannot show; public.

    Parameters
    ----------
    digest : str
        SHA-256 of the certificate, as in the ledger.
    recomputed : tuple of str
        Fields of the certificate that follow from the bundle's figures.
    not_checkable : dict of str
        Fields that were only compared with the bundle's record, each with the reason.
    figures : dict of str
        Readable list of the recomputed figures.
    """

    digest: str
    recomputed: tuple[str, ...]
    not_checkable: dict[str, str] = field(repr=False)
    figures: dict[str, str] = field(default_factory=dict, repr=False)


@singledispatch
def verify(certificate: Any, bundle: Any = None) -> Verified:
    """Check that a certificate of either kind follows from its evidence.

    Parameters
    ----------
    certificate : Certificate or DPCertificate
        Certificate to check.
    bundle : Bundle, AnswerBundle or path
        The curator's ``curator.npz``. A certificate of differential privacy has none: it is
        checked against the events that it carries.

    Returns
    -------
    Verified
        Recomputed fields, and fields that cannot be recomputed.

    Raises
    ------
    CertificateError
        Naming the first field that does not follow.

    Guarantee
    ---------
    Claim R-1. Returns only if every field of the certificate equals what the bundle gives with
    the recorded draws, and the proved bounds meet the recorded budget. Fields that rest on the
    bundle's record alone are named in the result. Claim R-6 for differential privacy.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> release = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16)
    >>> len(pac.verify(release.certificate, release.bundle).digest)
    64
    """
    raise CertificateError(
        f"certificate must be a Certificate or a DPCertificate; got a {type(certificate).__name__}."
        " Pass the certificate of a release."
    )
