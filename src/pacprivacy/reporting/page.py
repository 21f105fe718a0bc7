"""The report as one HTML file that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from pacprivacy._rounding import at_most, failure_text, percent_at_most
from pacprivacy._system import write_atomically
from pacprivacy.audit import AuditResult
from pacprivacy.errors import AuditError, CertificateError, DataError
from pacprivacy.release import (
    TOLD_OUT,
    Bundle,
    Certificate,
    Release,
    ends_text,
    load_bundle,
    plus_minus,
    trade_off_rows,
)
from pacprivacy.reporting import charts
from pacprivacy.reporting.contents import ReportData, UtilityCurve, build_report, check_belongs
from pacprivacy.reporting.style import new_figure, number_text, page_svg, styled

BUNDLE_NAME: Final = "curator.npz"
KINDS: Final = {
    "exact": "proved",
    "confidence": "proved with stated confidence",
    "empirical": "by simulation, not proved",
}


def report(
    release: Release | str | Path,
    output: str | Path | None = None,
    *,
    bundle: str | Path | None = None,
    curator: bool = False,
    audit: Sequence[AuditResult] | str | Path = (),
    session: Sequence[Release | str | Path] = (),
    curve: bool = True,
) -> Path:
    """Write a page that says what a release promises, for readers of all kinds.

    One HTML file that works offline, on phones and on paper. The public page holds what the
    certificate says and noise against budget: a function of all records and the pool, not of the
    secret.

    Parameters
    ----------
    release : Release or path
        A release, or its ``release.json``.
    output : path, optional
        The page; by default ``report.html`` (for the curator ``curator.html``) beside the file, or
        in the current folder.
    bundle : path, optional
        The curator's file; by default ``curator.npz`` beside the release, if it is there.
    curator : bool
        Whether to add the risk per unit and the noise per direction; not for publication.
    audit : sequence of AuditResult or path
        What attacks achieved, or the file that ``pac audit --json`` printed.
    session : sequence of Release or path
        Other releases of the same session.
    curve : bool
        Whether to draw noise against budget, which takes a few seconds.

    Returns
    -------
    Path
        The page.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> release = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16)
    >>> folder = tempfile.mkdtemp()
    >>> pac.report(release, f"{folder}/report.html", curve=False).name
    'report.html'
    """
    folder = Path() if isinstance(release, Release) else Path(release).parent
    target = Path(output or folder / ("curator.html" if curator else "report.html"))
    if target.is_dir() or not target.parent.is_dir():
        wrong = "a folder" if target.is_dir() else "a file in a folder that is not there"
        raise DataError(
            f"output must be a file in an existing folder; got {str(target)[:60]!r}, {wrong}. "
            "Name it report.html."
        )
    certificate = _certificate_of(release)
    values = (release if isinstance(release, Release) else Release.load(release)).rows()
    found = _bundle_of(release, bundle, needed=curator)
    if found is not None:
        check_belongs(certificate, found)
    data = build_report(
        certificate,
        values=values,
        bundle=found,
        curve=curve,
        curator=curator,
        session=[_certificate_of(other) for other in session],
        audit=_read_audit(audit) if isinstance(audit, str | Path) else audit,
    )
    page = render_page(data).encode()
    write_atomically(target, page, mode=0o600 if curator else 0o644, error=DataError)
    return target


def _certificate_of(release: Release | str | Path) -> Certificate:
    return release.certificate if isinstance(release, Release) else Certificate.read(release)


def _bundle_of(
    release: Release | str | Path, bundle: str | Path | None, *, needed: bool
) -> Bundle | None:
    if bundle is None and isinstance(release, Release):
        return release.bundle if needed else release.proof
    path = Path(bundle or Path(str(release)).parent / BUNDLE_NAME)
    if not path.is_file():
        if bundle is None and not needed:
            return None
        raise CertificateError(
            f"bundle must be a file; got {path}, which is not there. "
            f"Name the curator.npz of the release, or ask for the public page."
        )
    found = load_bundle(path)
    if isinstance(found, Bundle):
        return found
    if needed:  # a predictor's: it holds no outputs to draw
        raise CertificateError(
            "bundle must be of a release for the curator's page; got that of a predictor, which "
            "holds no outputs. Ask for the public page."
        )
    return None


def _read_audit(path: str | Path) -> tuple[AuditResult, ...]:
    """Read what ``pac audit --json`` printed."""
    try:
        content = msgspec.json.decode(Path(path).read_bytes())
        return msgspec.convert(content["results"], tuple[AuditResult, ...])
    except OSError as error:
        reason = error.strerror or "not readable"
    except (ValueError, KeyError, TypeError):
        reason = "not what 'pac audit --json' prints"
    raise AuditError(
        f"audit must be a readable audit file; got {path}: {reason}. "
        "Make one with: pac audit RELEASE --json > audit.json"
    )


@styled
def render_page(data: ReportData) -> str:
    """Return the report as HTML: the curator's version if ``data.curator`` is there, else public.

    The page loads nothing; it is for screens and for paper, light and dark.
    """
    from jinja2 import Environment, StrictUndefined  # slow to import, not always needed
    from markupsafe import Markup

    css, js = _read("report.css"), _read("report.js")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "at_most": at_most,
        "failure": failure_text,
        "number": number_text,
        "plus_minus": plus_minus,
        "ends": ends_text,
        "percent": percent_at_most,
        "shape": Markup,  # pictures, whose texts are escaped already
    }
    cert = data.certificate
    return environment.from_string(_read("report.html")).render(
        css=Markup(css),
        js=Markup(js),
        policy=f"default-src 'none'; style-src '{_source(css)}'; script-src '{_source(js)}'",
        data=data,
        cert=cert,
        kind=KINDS[cert.kind],
        units="records" if cert.unit == "record" else "groups of rows",
        promised=_promised(data),
        trade_off=trade_off_rows(cert.to_public_dict()),
        told_out=TOLD_OUT,
        readings=cert.dp_readings,
        infinity=math.inf,
        draws=[e.n_draws for e in (cert.membership, cert.information) if e and e.n_draws],
        **_pictures(data),
        **_utility(data),
    )


def _read(name: str) -> str:
    return resources.files("pacprivacy.reporting").joinpath("templates", name).read_text("utf-8")


def _source(content: str) -> str:
    """Return the hash by which a browser knows our own script and style, and runs no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _promised(data: ReportData) -> float:
    """Return the bound that the sentence names: of the session where there is one."""
    cert = data.certificate
    return float((cert.composition or {}).get("session_success_bound", cert.membership_bound))


def _utility(data: ReportData) -> dict[str, Any]:
    curve, curator = data.curve, data.curator
    if curve is None:
        return {}
    errors = () if curator is None else curator.typical_errors
    floor = None if curator is None else curator.sampling_error
    picture, places = _utility_picture(curve, errors, floor)
    stops = []
    for number, (point, (x, y)) in enumerate(zip(curve.points, places, strict=True)):
        texts = {
            "bound-text": f"≤ {at_most(point.success, significant=3, percent=True)} %",
            "noise-text": number_text(point.noise_rms),
            "variance-text": number_text(point.total_variance),
        }
        if errors:
            texts["error-text"] = number_text(errors[number])
        stops.append({"texts": texts, "x": round(x, 2), "y": round(y, 2)})
    return {
        "stops": stops,
        "now": stops[curve.start]["texts"],
        "utility_chart": picture,
        "errors": bool(errors),
    }


def _picture(title: str, height: float, draw: Callable[..., None], *what: Any) -> str:
    figure = new_figure(height)
    draw(figure.subplots(), *what)
    return page_svg(figure, title)


def _utility_picture(
    curve: UtilityCurve, errors: Sequence[float], floor: float | None
) -> tuple[str, list[tuple[float, float]]]:
    """Draw noise against the bound; return where the stops of the slider are, too."""
    figure = new_figure(3.6)
    axes = figure.subplots()
    charts.draw_utility(axes, curve, errors, floor)
    figure.draw_without_rendering()  # settles where things are
    top = 72 * figure.get_figheight()
    values = [(point.success, max(point.noise_rms, axes.get_ylim()[0])) for point in curve.points]
    places = [(x, top - y) for x, y in axes.transData.transform(values).tolist()]
    x, y = places[curve.start]
    _, low, _, high = axes.get_window_extent().extents
    marks = (
        f'<line id="guide" x1="{x:.2f}" x2="{x:.2f}" y1="{top - high:.2f}" y2="{top - low:.2f}"/>'
        f'<circle id="marker" cx="{x:.2f}" cy="{y:.2f}" r="7"/>'
    )
    return page_svg(figure, "Noise against the bound", marks), places


def _pictures(data: ReportData) -> dict[str, str | None]:
    cert, curator = data.certificate, data.curator
    said = f"one {cert.unit} in or out: {percent_at_most(cert.membership_bound)} %"
    dot = (0.5, cert.membership_bound)
    bars, label = _noise_bars(data)
    found: dict[str, str | None] = dict.fromkeys(
        ("noise_chart", "session_chart", "audit_chart", "unit_chart")
    )
    room = "Room between a blind guess and the promise"
    found["odds"] = _picture(room, 0.95, charts.draw_odds, 0.5, _promised(data))
    found["prior_chart"] = _picture(
        "Success against prior", 4.0, charts.draw_priors, data.any_inference, dot, said
    )
    if bars:
        found["noise_chart"] = _picture("Noise per direction", 3.2, charts.draw_noise, bars, label)
    if (session := data.session) is not None:
        title = "What the session has spent"
        found["session_chart"] = _picture(title, 3.2, charts.draw_session, session)
    if data.audit:
        title, height = "Attacks against the promise", 0.8 + 0.7 * len(data.audit)
        found["audit_chart"] = _picture(title, height, charts.draw_audit, data.audit)
    if curator is not None and curator.unit_success_counts:
        risks = (curator.unit_success_edges, curator.unit_success_counts, cert.membership_bound)
        found["unit_chart"] = _picture("Risk per unit", 3.2, charts.draw_units, *risks)
    return found


def _noise_bars(data: ReportData) -> tuple[list[tuple[str, float]], str]:
    noise, curator = data.certificate.noise, data.curator
    if noise.n_directions == 0:
        return [], ""
    if curator is not None and curator.noise_std:
        shown = len(curator.noise_std)
        label = "direction, largest noise first"
        if shown < curator.n_directions:
            label += f" ({shown} of {curator.n_directions}, evenly picked)"
        return [(str(i + 1), std) for i, std in enumerate(curator.noise_std)], label
    typical = (noise.total_variance / noise.n_directions) ** 0.5
    bars = [
        ("smallest", noise.smallest_std),
        ("typical", typical),
        ("largest", noise.largest_std),
    ]
    return bars, f"over {noise.n_directions} direction{'s' * (noise.n_directions != 1)}"
