"""``pac audit``: attack simulated releases and hold their success against the certificate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pacprivacy._random import coerce_seed
from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.audit import (
    COIN_ATTACKS,
    DEFAULT_ATTACKS,
    AuditResult,
    audit as run_audit,
    audit_text,
)
from pacprivacy.cli.console import Screen, Verb, option, show
from pacprivacy.cli.options import BundleFile, find_bundle_option
from pacprivacy.release import Certificate, PoolCertificate, load_bundle

VIOLATED: Final = 4
SCHEMA_VERSION: Final = 1


def _audit(
    *,
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="The release.json to audit.")],
    bundle: BundleFile = None,
    attack: list[str] | None = option(
        "NAME",
        f"One of {', '.join(DEFAULT_ATTACKS)}; with coins one of {', '.join(COIN_ATTACKS)}; "
        "may repeat.",
        choices=(*DEFAULT_ATTACKS, *COIN_ATTACKS),
    ),
    trials: int = option("N", "Fresh releases to count success on.", default=2000),
    seed: int | None = option("N", "Seed of the simulated releases.", least=0),
    screen: Screen,
) -> None:
    """Attack simulated releases; exit with 4 if an attack beats the promise.

    Only the curator can do this: the bundle holds what the release was made of. The releases are
    simulated from its noise law with other secrets; the real secret is not in it. Attacks that
    stay below the promise prove nothing: the certificate's proof does.
    """
    certificate = Certificate.read(release)
    path = find_bundle_option(release, bundle)
    used_seed = coerce_seed(seed)
    results = run_audit(
        load_bundle(path), certificate, attacks=attack, n_trials=trials, rng=used_seed
    )
    content = _as_json(results, release, certificate, used_seed)
    screen.show(lambda: _show(results, release, certificate), content)
    if _violated(results):
        raise typer.Exit(VIOLATED)


def _violated(results: Sequence[AuditResult]) -> bool:
    return any(result.verdict == "VIOLATED" for result in results)


def _as_json(
    results: Sequence[AuditResult], release: Path, certificate: Certificate, seed: int
) -> dict[str, Any]:
    promised = {"kind": certificate.kind, "membership_bound": certificate.membership_bound}
    if isinstance(certificate, PoolCertificate):
        promised["mi_upper_nats"] = certificate.mi_upper_nats
    return {
        "schema_version": SCHEMA_VERSION,
        "release": str(release),
        "verdict": "VIOLATED" if _violated(results) else "holds",
        "promised": promised,
        "seed": str(seed),
        "results": [result.to_public_dict() for result in results],
    }


def _whose(certificate: Certificate) -> str:
    if not certificate.is_in_session:
        return "Promised"
    whole = percent_at_most(certificate.promised_success)
    return (
        f"Promised: membership success at most {whole} % over the whole session.\n"
        f"Proved of this release, given the earlier ones (for the curator)"
    )


def _show(results: Sequence[AuditResult], release: Path, certificate: Certificate) -> None:
    nats = ""
    if isinstance(certificate, PoolCertificate):
        nats = f", at most {at_most(certificate.mi_upper_nats, decimals=6)} nats"
    show(
        f"{release}: {certificate.mechanism}, {results[0].n_trials} simulated releases.\n"
        f"{_whose(certificate)}: membership of one unit at most "
        f"{percent_at_most(certificate.membership_bound)} %{nats} ({certificate.kind}).\n"
    )
    show(audit_text(results))
    for result in results:
        for note in result.notes:
            show(f"  {result.attack}: {note}", style="dim")
    if _violated(results):
        show("\nVIOLATED: an attack beats the promise. Do not publish.", style="bold red")
    else:
        show("\nEvery promise holds against these attacks.", style="green")


audit = Verb(
    function=_audit,
    example="""\
  pac audit out/release.json
  pac audit out/release.json --attack bayes --attack naming --trials 10000
  pac audit out/release.json --json > audit.json""",
)
