"""The text of the report of a fixed certificate, as a reader sees it.

``PAC_UPDATE_GOLDEN=1 pytest tests/golden/test_report_page.py`` writes the files anew; read the
difference before it is committed.
"""

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pacprivacy.release import Certificate
from pacprivacy.reporting import (
    CuratorFigures,
    CurvePoint,
    ReportData,
    UtilityCurve,
    build_report,
    render_page,
)

DATA = Path(__file__).parent / "data"
BLOCKS = frozenset(["p", "h1", "h2", "li", "tr", "figure", "section", "header", "footer", "div"])
BLOCKS |= {"span", "pre", "text"}


class Reader(HTMLParser):
    """What is read on a page, one line for each block; pictures give their texts only."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._hidden = 0
        self._words: list[str] = []
        self.lines: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("style", "script", "title"):
            self._hidden += 1
        if tag in BLOCKS:
            self._end_line()
        if tag == "section":
            self.lines += ["", f"[{dict(attrs)['id']}]"]

    def handle_endtag(self, tag: str) -> None:
        if tag in ("style", "script", "title"):
            self._hidden -= 1
        if tag in BLOCKS:
            self._end_line()

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._words += data.split()

    def _end_line(self) -> None:
        if self._words:
            self.lines.append(" ".join(self._words))
        self._words = []


def fixed_report(*, curator: bool) -> ReportData:
    certificate = Certificate.read(DATA / "report_certificate.json")
    stops = ((0.55, 0.0324), (0.60, 0.0121), (0.75, 0.0016))
    points = tuple(
        CurvePoint(success=success, total_variance=variance, noise_rms=(variance / 4) ** 0.5)
        for success, variance in stops
    )
    figures = CuratorFigures(
        noise_std=(0.0775, 0.0625, 0.05, 0.03125),
        n_directions=4,
        unit_success_edges=(0.5, 0.55, 0.6),
        unit_success_counts=(90, 60),
        typical_errors=(0.11, 0.08, 0.06),
        sampling_error=0.055,
    )
    data = build_report(certificate, curator=True)
    curve = UtilityCurve(points=points, start=1)
    return ReportData(
        certificate=certificate,
        any_inference=data.any_inference,
        curve=curve,
        session=data.session,
        curator=figures if curator else None,
    )


@pytest.mark.parametrize("version", ["public", "curator"])
def test_text_of_the_page(version: str) -> None:
    lines = Reader(render_page(fixed_report(curator=version == "curator"))).lines
    text = "\n".join(lines).strip() + "\n"
    path = DATA / f"report_{version}.txt"
    if os.environ.get("PAC_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        "the page has changed; see the top of this file"
    )
