"""``pac verify``: recompute a certificate from the curator's bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from pacprivacy.cli.console import AsJson, Quiet, Verb, show, show_json
from pacprivacy.errors import CertificateError
from pacprivacy.release import Bundle, Certificate
from pacprivacy.release import verify as verify_certificate

__all__ = ["verify"]

BUNDLE_NAME: Final = "curator.npz"


def _verify(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="The release.json to check.")],
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", metavar="FILE", help="The curator's bundle; curator.npz beside the release."
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Recompute a certificate from the curator's bundle.

    Fails with exit code 2 on the first figure that does not follow. Only the curator can do this:
    the bundle holds the outputs on all subsets. It does not hold the secret or the noise, so the
    released value is not checked.
    """
    certificate = Certificate.read(release)
    path = release.parent / BUNDLE_NAME if bundle is None else bundle
    if not path.is_file():
        raise CertificateError(
            f"bundle must be a file; got {path}, which is not there. "
            f"Name it with --bundle, or ask the curator to run this."
        )
    found = Bundle.load(path)
    verify_certificate(certificate, found)
    items = _recomputed(certificate, found)
    if as_json:
        show_json({"verified": True, "release": str(release), "recomputed": items})
    elif not quiet:
        show(f"{release}: the certificate follows from {path}.", style="green")
        show("Recomputed and equal:")
        show("\n".join(f"  {name:<22}{value}" for name, value in items.items()))


def _recomputed(certificate: Certificate, bundle: Bundle) -> dict[str, str]:
    """Say what was recomputed, with the figures that agree."""
    draws = {proof.claim: proof.n_draws for proof in bundle.proofs}
    items = {
        "pool": f"{certificate.scheme}, {certificate.n_subsets} subsets of "
        f"{certificate.n_units} units, worst prior {100 * certificate.prior:.4g} %",
        "noise": f"total variance {certificate.noise.total_variance:.6g} over "
        f"{certificate.noise.n_directions} of {certificate.dimension} directions",
        "log-determinant bound": f"{certificate.log_det_nats:.6g} nats",
    }
    if certificate.information is not None and "information" in draws:
        items["mutual information"] = (
            f"at most {certificate.information.upper:.6g} nats ({draws['information']} draws)"
        )
    found = certificate.membership
    if found is not None:
        how = f"{draws['membership']} draws" if "membership" in draws else "closed form"
        items["membership success"] = f"at most {100 * found.upper:.4f} % ({how})"
    items["any inference"] = ", ".join(
        f"prior {100 * float(prior):.4g} % -> {100 * rate:.4g} %"
        for prior, rate in certificate.any_inference.items()
    )
    return items


verify = Verb(
    function=_verify,
    example="""\
  pac verify out/release.json
  pac verify release.json --bundle safe/curator.npz""",
)
