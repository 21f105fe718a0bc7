"""Gather what a report shows, from a release's files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from pacprivacy._random import public_generator
from pacprivacy.adversary import membership_draws, membership_risk
from pacprivacy.audit import AuditResult
from pacprivacy.budget import Membership
from pacprivacy.cli.console import AsJson, Quiet, Verb, show, show_json, show_status
from pacprivacy.errors import AuditError, CertificateError, PacPrivacyError
from pacprivacy.noise import propose_variance
from pacprivacy.release import (
    AnswerBundle,
    Bundle,
    Certificate,
    load_bundle,
    noise_summary,
    noiseless_membership,
)
from pacprivacy.report import (
    CuratorFigures,
    CurvePoint,
    ReportData,
    SessionFigures,
    SessionStep,
    UtilityCurve,
    render_page,
)
from pacprivacy.theory import Estimate, posterior_success

N_PRIORS: Final = 100
STOPS: Final = (0.52, 0.55, 0.60, 0.65, 0.70, 0.80, 0.90)
ROOM: Final = 0.01  # a stop so near to the blind guess would need noise without end
SHOWN_DIRECTIONS: Final = 64
RISK_BINS: Final = 24
RISK_DRAWS: Final = 4096


def build_report(
    certificate: Certificate,
    *,
    bundle: Bundle | None = None,
    curve: bool = True,
    curator: bool = False,
    session: Sequence[Certificate] = (),
    audit: Sequence[AuditResult] = (),
) -> ReportData:
    """Return the data of a report."""
    drawn = None
    if bundle is not None and curve and bundle.iid_rule is None:
        drawn = _utility_curve(certificate, bundle)
    figures = None
    if curator and bundle is not None:
        figures = _curator_figures(certificate, bundle, drawn)
    found = ReportData(
        certificate=certificate,
        any_inference=_any_inference(certificate.mi_upper_nats),
        curve=drawn,
        session=_session_figures([certificate, *session]),
        audit=tuple(audit),
        curator=figures,
    )
    return found if curator else found.to_public()


def _any_inference(mi_nats: float) -> tuple[tuple[float, float], ...]:
    """Return the bound on an arbitrary guess over a grid of priors."""
    near_zero = np.geomspace(1e-4, 0.005, 16)[:-1]  # where the curve is steep
    priors = np.concatenate([near_zero, np.linspace(0.005, 0.995, N_PRIORS)])
    success = posterior_success(mi_nats, priors)
    return tuple(zip(priors.tolist(), success.tolist(), strict=True))


def check_belongs(certificate: Certificate, bundle: Bundle) -> None:
    """Refuse a bundle of another release; ``pac verify`` checks much more."""
    noise = noise_summary(bundle.grid_step, bundle.units_per_std)
    ours = (certificate.n_subsets, certificate.n_units, certificate.dimension, certificate.noise)
    shape = (bundle.pool.n_subsets, bundle.pool.n_units, bundle.outputs.shape[1], noise)
    if ours != shape:
        raise CertificateError(
            "bundle must be of this release; its pool or its noise is another. "
            "Pass the curator.npz that was written beside the release."
        )


def read_audit(path: Path) -> tuple[AuditResult, ...]:
    """Read what ``pac audit --json`` printed."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return tuple(_audit_result(item) for item in content["results"])
    except OSError as error:
        reason = error.strerror or "not readable"
    except (ValueError, KeyError, TypeError):
        reason = "not what 'pac audit --json' prints"
    raise AuditError(
        f"--audit must be a readable audit file; got {path}: {reason}. "
        "Make one with: pac audit RELEASE --json > audit.json"
    )


def _audit_result(item: dict[str, Any]) -> AuditResult:
    fields = {name: value for name, value in item.items() if name not in ("verdict", "unit")}
    names = ("value", "lower", "upper", "confidence", "n_draws")
    fields["success"] = Estimate(**{name: item["success"][name] for name in names})
    fields["notes"] = tuple(str(note) for note in item["notes"])
    for name in ("attack", "question"):
        fields[name] = str(fields[name])
    for name in ("prior", "bound"):
        fields[name] = float(fields[name])
    fields["n_trials"] = int(fields["n_trials"])
    return AuditResult(**fields)


def _utility_curve(certificate: Certificate, bundle: Bundle) -> UtilityCurve | None:
    """Propose noise for a grid of bounds; about a fresh secret, before any release."""
    least = bundle.pool.worst_prior + ROOM
    bounds = [stop for stop in STOPS if stop >= least]
    points = []
    for success in bounds:
        # A fixed seed: the bundle's is not for readers, not even through the last digits.
        variance = propose_variance(bundle.outputs, Membership(success), pool=bundle.pool, rng=0)
        rms = float(np.sqrt(variance / bundle.outputs.shape[1]))
        points.append(CurvePoint(success=success, total_variance=variance, noise_rms=rms))
    if len(points) < 2 or not points[0].noise_rms > 0:
        return None
    distance = [abs(point.success - certificate.membership_bound) for point in points]
    return UtilityCurve(points=tuple(points), start=int(np.argmin(distance)))


def _curator_figures(
    certificate: Certificate, bundle: Bundle, curve: UtilityCurve | None
) -> CuratorFigures:
    std = np.sort(bundle.grid_step * bundle.units_per_std)[::-1]
    picked = np.linspace(0, len(std) - 1, min(len(std), SHOWN_DIRECTIONS)).round().astype(int)
    weights = np.exp(bundle.log_p)
    centred = bundle.outputs - weights @ bundle.outputs
    sampling = float((weights @ np.square(centred)).mean())
    edges, counts = _unit_histogram(certificate, bundle)
    return CuratorFigures(
        noise_std=tuple(std[picked].tolist()),
        n_directions=len(std),
        unit_success_edges=edges,
        unit_success_counts=counts,
        typical_errors=()
        if curve is None
        else tuple(float(np.sqrt(sampling + p.noise_rms**2)) for p in curve.points),
        sampling_error=float(np.sqrt(sampling)),
    )


def _unit_histogram(
    certificate: Certificate, bundle: Bundle
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Count units by the success of the best attacker on them; for pools that are known."""
    if bundle.iid_rule is not None:
        return (), ()
    if len(bundle.units_per_std) == 0:
        per_unit = noiseless_membership(bundle.pool, bundle.log_p, bundle.groups).per_unit
    else:
        draws = min(RISK_DRAWS, membership_draws(bundle.pool.n_subsets, bundle.pool.n_units))
        per_unit = membership_risk(
            bundle.view,
            bundle.pool,
            n_draws=draws,
            gamma=1e-3,
            rng=public_generator(bundle.seed, "report-units"),
        ).per_unit
    low = min(0.5, float(per_unit.min()))
    high = max(certificate.membership_bound, float(per_unit.max()), low + 1e-3)
    counts, edges = np.histogram(per_unit, bins=RISK_BINS, range=(low, high))
    return tuple(edges.tolist()), tuple(counts.tolist())


def _session_figures(certificates: Sequence[Certificate]) -> SessionFigures | None:
    """Return what a session spent, from the certificates of its releases."""
    facts = [(c.composition or {}, c.mechanism) for c in certificates]
    known = {f["release_number"]: (f, name) for f, name in facts if "release_number" in f}
    if not known:
        return None
    steps = tuple(
        SessionStep(
            number=int(number),
            mechanism=name,
            spent_nats=float(f["spent_nats_so_far"]),
            spent_success=f.get("spent_increments_so_far"),
            learned_nats=f.get("learned_nats"),
            best_guess=f.get("best_guess_now"),
        )
        for number, (f, name) in sorted(known.items())
    )
    last = known[max(known)][0]
    return SessionFigures(
        steps=steps,
        total_nats=last.get("total_nats"),
        total_success=last.get("total_success"),
        success_bound=float(last.get("session_success_bound", 1.0)),
    )


BUNDLE_NAME: Final = "curator.npz"


def _report(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="The release.json to explain.")
    ],
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", metavar="FILE", help="The curator's bundle; curator.npz beside the release."
        ),
    ] = None,
    curator: Annotated[
        bool,
        typer.Option(
            "--curator", help="The curator's version, with risk per unit; do not publish."
        ),
    ] = False,
    audit: Annotated[
        Path | None,
        typer.Option("--audit", metavar="FILE", help="What 'pac audit --json' printed, to show."),
    ] = None,
    session: Annotated[
        list[Path] | None,
        typer.Option(
            "--session", metavar="FILE", help="Another release of the same session; may repeat."
        ),
    ] = None,
    no_curve: Annotated[
        bool, typer.Option("--no-curve", help="Leave out noise against budget: faster.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page; report.html beside the release."
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a page that says what a release promises, for readers of all kinds.

    One HTML file that works offline and prints well. The public version holds what the
    certificate says and, if the bundle is at hand, noise against budget: a function of all records
    and the pool, not of the secret. The curator's version adds the risk per unit and the noise
    per direction.
    """
    certificate = Certificate.read(release)
    others = [Certificate.read(path) for path in session or []]
    results = () if audit is None else read_audit(audit)
    found = _find_bundle(release, bundle, needed=curator)
    if found is not None:
        check_belongs(certificate, found)
    target = output or release.parent / ("curator.html" if curator else "report.html")
    with show_status("gathering the figures", quiet=quiet), _blame_file(release):
        data = build_report(
            certificate,
            bundle=found,
            curve=not no_curve,
            curator=curator,
            session=others,
            audit=results,
        )
        page = render_page(data)
    write_page(page, target, private=curator)
    if as_json:
        version = "curator" if curator else "public"
        show_json({"report": str(target), "version": version, "bytes": len(page.encode())})
    elif not quiet:
        who = "curator only" if curator else "may be published"
        show(f"Wrote {target} ({who}, {len(page.encode()) / 1024:.0f} kB)")
        if data.curve is None and not no_curve and found is None:
            show("No bundle beside the release, so the page has no noise against budget.")


@contextmanager
def _blame_file(release: Path) -> Iterator[None]:
    """Refuse a certificate whose figures are of the wrong kind, whatever trips over them."""
    try:
        yield
    except PacPrivacyError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise CertificateError(
            f"{release} must hold a certificate as it was written; its figures make no sense, or "
            f"those of another file given do not. Use the files as they were written."
        ) from None


def write_page(page: str, target: Path, *, private: bool) -> None:
    """Write the page; the curator's so that only its owner can read it."""
    try:
        if private:
            target.unlink(missing_ok=True)
            handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(page)
        else:
            target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CertificateError(
            f"--output must be a file that can be written; got {target} ({error.strerror}). "
            "Choose another."
        ) from None


def _find_bundle(release: Path, bundle: Path | None, *, needed: bool) -> Bundle | None:
    path = release.parent / BUNDLE_NAME if bundle is None else bundle
    if not path.is_file():
        if bundle is None and not needed:
            return None
        raise CertificateError(
            f"bundle must be a file; got {path}, which is not there. "
            f"Name it with --bundle, or leave out --curator."
        )
    found = load_bundle(path)
    if isinstance(found, AnswerBundle):  # of a predictor: it holds no outputs to draw
        if not needed:
            return None
        raise CertificateError(
            "bundle must be of a release for --curator; got that of a predictor, which holds no "
            "outputs. Leave out --curator."
        )
    return found


report = Verb(
    function=_report,
    example="""\
  pac report out/release.json
  pac report out/release.json --curator --audit audit.json -o curator.html""",
)
