"""The text of the report of a fixed certificate, as a reader sees it.

``PAC_UPDATE_GOLDEN=1 pytest tests/golden/test_report_page.py`` writes the files anew; read the
difference before it is committed.
"""

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pacprivacy._values import Row
from pacprivacy.release import Certificate
from pacprivacy.reporting import (
    About,
    ReportData,
    render_page,
)

DATA = Path(__file__).parent / "data"
BLOCKS = frozenset(["p", "h1", "h2", "li", "tr", "figure", "section", "header", "footer", "div"])
BLOCKS |= {"span", "pre", "text", "summary", "dd"}


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


def fixed_report() -> ReportData:
    certificate = Certificate.read(DATA / "report_certificate.json")
    values = (
        Row("age", 44.2, 0.5, 43.2, 45.2, 0.3, 0.4),
        Row("income", 31_400, 650.0, 30_126, 32_674, 250.0, 600.0),
    )
    about = About(title="Ages and incomes", by="A. Curator", dataset="people.csv", date="May 2026")
    return ReportData(certificate, about=about, values=values)


@pytest.mark.parametrize("version", ["public", "officer"])
def test_text_of_the_page(version: str) -> None:
    lines = Reader(render_page(fixed_report(), officer=version == "officer")).lines
    text = "\n".join(lines).strip() + "\n"
    path = DATA / f"report_{version}.txt"
    if os.environ.get("PAC_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        "the page has changed; see the top of this file"
    )
