"""What certificates of both promises share: digest, file, HTML, and what a check of them found."""

import hashlib
import html
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._rounding import at_most
from pacprivacy.errors import CertificateError
from pacprivacy.theory import read_as_dp

DP_SCHEMA: Final = "dp-1"  # by which a file of differential privacy tells itself from PAC's
SHOWN_CHARACTERS: Final = 600


def digest_of(plain: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a certificate, given as plain JSON types.

    It is taken of the JSON with sorted keys and no spaces, so that anyone who has the certificate
    can compute it, however the file was laid out.
    """
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_certificate(path: str | Path) -> Any:
    """Return the certificate in a release file, or in a file of its own, as plain JSON types."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not valid JSON"
        raise CertificateError(
            f"{path} must be a readable JSON file; {reason}. Pass a release.json."
        ) from None
    return content.get("certificate", content) if isinstance(content, dict) else content


def plain_value(value: Any) -> Any:
    """Turn a released value into JSON types: lists, numbers, text, dictionaries."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    if hasattr(value, "steps") and hasattr(value, "get_params"):
        return {"estimator": "Pipeline", "steps": {n: plain_value(step) for n, step in value.steps}}
    if hasattr(value, "get_params"):
        fitted = {k: plain_value(v) for k, v in vars(value).items() if k.endswith("_")}
        return {"estimator": type(value).__name__, "attributes": fitted}
    return np.asarray(value).tolist()


def readings_text(success: float) -> str:
    """Return a membership success as pure and as Gaussian differential privacy, in words."""
    found = read_as_dp(success)
    if math.isinf(found.pure_epsilon):
        return "the success of no finite epsilon"
    pure, mu, epsilon = (
        at_most(value, significant=3)
        for value in (found.pure_epsilon, found.gaussian_mu, found.gaussian_epsilon)
    )
    return (
        f"the success of pure DP with epsilon {pure}, or of Gaussian DP with mu {mu} (epsilon "
        f"{epsilon} at delta {found.delta:g})"
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
    """What was recomputed and agrees, and what the bundle cannot show; public.

    Parameters
    ----------
    digest : str
        SHA-256 of the certificate, as in the ledger.
    recomputed : tuple of str
        Fields of the certificate that follow from the bundle's figures.
    not_checkable : dict of str
        Fields that were only compared with the bundle's record, each with the reason.
    """

    digest: str
    recomputed: tuple[str, ...]
    not_checkable: dict[str, str] = field(repr=False)


@singledispatch
def verify(certificate: Any, bundle: Any = None) -> Verified:
    """Check that a certificate of either kind follows from what stands behind it.

    Parameters
    ----------
    certificate : Certificate or DPCertificate
        What is claimed.
    bundle : Bundle, AnswerBundle or path
        The curator's ``curator.npz``. A certificate of differential privacy has none: it is
        checked against the events that it carries.

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
