"""The report as one HTML file that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from importlib import resources
from typing import Any, Final

from pacprivacy._rounding import at_most, failure_text, percent_at_most
from pacprivacy.report import charts
from pacprivacy.report.records import ReportData
from pacprivacy.report.svg import number_text

KINDS: Final = {
    "exact": "proved",
    "confidence": "proved with stated confidence",
    "empirical": "by simulation, not proved",
}


def render_page(data: ReportData) -> str:
    """Return the report as HTML: the curator's version if ``data.curator`` is there, else public.

    Parameters
    ----------
    data : ReportData
        Everything that is shown; nothing is computed here.

    Returns
    -------
    str
        A page that loads nothing, for screens and for paper, light and dark.
    """
    from jinja2 import Environment, StrictUndefined  # slow to import, not always needed
    from markupsafe import Markup

    css, js = _read("report.css"), _read("report.js")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shown = {name: _safe(value, Markup) for name, value in _pictures(data).items()}
    return environment.from_string(_read("report.html")).render(
        css=Markup(css),
        js=Markup(js),
        policy=f"default-src 'none'; style-src '{_source(css)}'; script-src '{_source(js)}'",
        **shown,
        **_facts(data),
        **_utility(data),
        **_session(data),
    )


def _safe(picture: str | None, markup: Any) -> Any:
    """Mark a picture, whose texts are escaped already, as HTML."""
    return None if picture is None else markup(picture)


def _read(name: str) -> str:
    return resources.files("pacprivacy.report").joinpath("templates", name).read_text("utf-8")


def _source(content: str) -> str:
    """Return the hash by which a browser knows our own script and style, and runs no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _facts(data: ReportData) -> dict[str, Any]:
    cert = data.certificate
    units = "records" if cert.unit == "record" else "groups of rows"
    return {
        "cert": cert,
        "curator": data.curator is not None,
        "kind": KINDS[cert.kind],
        "units": units,
        "blind_thousand": round(1000 * cert.prior),
        "bound_thousand": percent_at_most(10 * _promised(data), 0),
        "tiles": _tiles(data),
        "guesses": [
            (f"{100 * float(prior):.4g} %", f"{percent_at_most(success)} %")
            for prior, success in cert.any_inference.items()
        ],
        "noise_text": _noise_text(data),
        "side": [
            (
                f"{item.n_told} {cert.unit if item.n_told == 1 else units}",
                *(f"{100 * rate:.1f} %" for rate in (item.mean_without_release, item.mean_success)),
                *(
                    "not recorded" if added is None else f"+{percent_at_most(added, 1)}"
                    for added in (item.mean_increment, item.largest_increment)
                ),
            )
            for item in cert.side_knowledge
        ],
        "side_sets": max((item.n_sets for item in cert.side_knowledge), default=0),
        "confidence": _confidence(data),
        "provenance": _provenance(data),
        "certificate_json": cert.to_json(),
        "audit": [
            {
                "attack": result.attack.replace("_", " "),
                "question": result.question,
                "found": f"{100 * result.success.value:.1f} %",
                "bound": f"{percent_at_most(result.bound)} %",
                "verdict": result.verdict,
                "broken": result.verdict == "VIOLATED",
            }
            for result in data.audit
        ],
        "trials": min((result.n_trials for result in data.audit), default=0),
    }


def _promised(data: ReportData) -> float:
    """Return the bound that the sentence names: of the session where there is one."""
    cert = data.certificate
    return float((cert.composition or {}).get("session_success_bound", cert.membership_bound))


def _tiles(data: ReportData) -> list[tuple[str, str]]:
    cert = data.certificate
    bound = f"{percent_at_most(cert.membership_bound)} %"
    when = " after this release" if cert.composition else ""
    tiles = [(bound, f"most that any guess about one {cert.unit} succeeds{when}")]
    if cert.membership_mean is not None:
        mean = f"{percent_at_most(cert.membership_mean.upper)} %"
        tiles.append((mean, "the same, on average over all of them"))
    nats = f"{at_most(cert.mi_upper_nats, significant=4)} nats"
    tiles.append((nats, "all that the release tells about the secret, at most"))
    readings = cert.dp_readings
    if math.isfinite(readings.pure_epsilon):
        epsilon = f"ε ≈ {at_most(readings.pure_epsilon, significant=3)}"
        what = "of pure differential privacy would allow the same success; not a claim of it"
        tiles.append((epsilon, what))
        gaussian = at_most(readings.gaussian_epsilon, significant=3)
        what = (
            f"of a Gaussian mechanism would: ε ≈ {gaussian} at δ = {readings.delta:g}; not a claim "
            "of differential privacy"
        )
        tiles.append((f"μ ≈ {at_most(readings.gaussian_mu, significant=3)}", what))
    return tiles


def _noise_text(data: ReportData) -> str:
    noise, dimension = data.certificate.noise, data.certificate.dimension
    return (
        f"Gaussian noise on a grid of integers was added along {noise.n_directions} of {dimension} "
        f"direction{'s' * (dimension != 1)}, with total variance "
        f"{number_text(noise.total_variance)}. Directions in which the answer hardly depends on "
        f"who is in get little noise."
    )


def _confidence(data: ReportData) -> str:
    cert = data.certificate
    if cert.kind == "empirical":
        return "No failure probability can be stated: this is not a proof."
    if cert.confidence == 1.0:
        return "The figures follow in closed form; nothing was left to chance."
    return (
        f"The figures come from simulated draws; the chance that they mislead is at most "
        f"{failure_text(cert.confidence)}, for the whole certificate."
    )


def _provenance(data: ReportData) -> list[tuple[str, str]]:
    cert = data.certificate
    draws = [e.n_draws for e in (cert.membership, cert.information) if e is not None and e.n_draws]
    return [
        ("Asked", cert.budget),
        ("Mechanism", f"{cert.mechanism} → {cert.output}"),
        ("Noise rule", cert.rule),
        ("Candidates", f"{cert.n_subsets:,} subsets, {cert.scheme}"),
        ("Simulated draws", ", ".join(f"{n:,}" for n in draws) or "none needed"),
        ("Software", f"pacprivacy {cert.software}, certificate schema {cert.schema_version}"),
        ("SHA-256 of the certificate, as in the ledger", cert.digest),
    ]


def _utility(data: ReportData) -> dict[str, Any]:
    curve, curator = data.curve, data.curator
    if curve is None:
        return {"curve": None}
    errors = () if curator is None else curator.typical_errors
    floor = None if curator is None else curator.sampling_error
    picture, places = charts.utility_chart(curve, errors, floor)
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
    readings = [
        ("noise-text", "expected error of one released number from noise (root mean square)"),
        ("variance-text", "total variance of the noise"),
    ]
    if errors:
        readings.insert(1, ("error-text", "expected error with the sampling of the subset"))
    from markupsafe import Markup  # render_page has made sure that it is there

    return {
        "curve": curve,
        "stops": stops,
        "stops_json": json.dumps(stops, ensure_ascii=False),
        "utility_chart": Markup(picture),
        "readings": readings,
        "errors": bool(errors),
    }


def _session(data: ReportData) -> dict[str, Any]:
    session = data.session
    if session is None:
        return {"session": None}
    return {
        "session": session,
        "session_bound": percent_at_most(session.success_bound),
        "steps": [
            (
                step.number,
                step.mechanism,
                at_most(step.spent_nats, significant=4),
                ""
                if step.spent_success is None
                else f"{percent_at_most(step.spent_success)} points",
                "" if step.learned_nats is None else at_most(step.learned_nats, significant=4),
                "" if step.best_guess is None else f"{percent_at_most(step.best_guess)} %",
            )
            for step in session.steps
        ],
        "session_learned": all(step.learned_nats is not None for step in session.steps),
    }


def _pictures(data: ReportData) -> dict[str, str | None]:
    cert, curator = data.certificate, data.curator
    bars, label = _noise_bars(data)
    units = None
    if curator is not None and curator.unit_success_counts:
        units = charts.unit_chart(
            curator.unit_success_edges, curator.unit_success_counts, cert.membership_bound
        )
    return {
        "odds": charts.odds_chart(cert.prior, _promised(data)),
        "prior_chart": charts.prior_chart(data),
        "noise_chart": charts.noise_chart(bars, label_x=label) if bars else None,
        "session_chart": None if data.session is None else charts.session_chart(data.session),
        "audit_chart": charts.audit_chart(data.audit) if data.audit else None,
        "unit_chart": units,
    }


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
