"""What a notebook shows of a certificate and of a release: short, escaped, public."""

from __future__ import annotations

import html
from typing import Any, Final

from pacprivacy._rounding import at_most

__all__ = ["certificate_html", "release_html", "rows_html"]

SHOWN_CHARACTERS: Final = 600


def certificate_html(promise: str, cert: dict[str, Any]) -> str:
    """Return the promise and a few figures of a certificate as HTML."""
    noise = cert["noise"]
    rows = [
        ("Kind", cert["kind"]),
        ("Asked", cert["budget"]),
        ("Information", f"at most {at_most(cert['mi_upper_nats'], decimals=6)} nats"),
        ("Mechanism", f"{cert['mechanism']} -> {cert['output']}"),
        ("Noise", f"{cert['rule']}, total variance {noise['total_variance']:.4g}"),
        ("Pool", f"{cert['n_subsets']} subsets of {cert['n_units']} units ({cert['scheme']})"),
    ]
    return rows_html(promise, rows, simulation=cert["simulation"])


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


def release_html(value: str, certificate: str) -> str:
    """Return the start of a released value, and its certificate, as HTML."""
    shown = value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + " ..."
    return f"<div><pre>{html.escape(shown)}</pre>{certificate}</div>"
