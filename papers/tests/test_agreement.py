"""Printed figures beside ours: verdicts, files, and what the docs say about the stored ones."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pacprivacy.errors import DataError
from papers import agreement
from papers.agreement import Cell, Comparison, count, fill_blocks, read_stored, stored_papers
from papers.page import Page

ITEM = Comparison(
    section="mean",
    item="Table 2",
    trials="1000 releases",
    cells=(Cell(name="a", printed=0.04, ours=0.041), Cell(name="b", printed=2.0, ours=2.2)),
    reason="fewer halves",
)


@pytest.mark.parametrize(
    ("printed", "ours", "relation", "spread", "agrees"),
    [
        (1.0, 1.05, "=", 0.0, True),
        (1.0, 1.051, "=", 0.0, False),
        (1.0, 0.949, "=", 0.0, False),
        (1.0, 0.7, "=", 0.3, True),
        (0.9, 0.99, ">=", 0.0, True),
        (0.9, 0.85, ">=", 0.0, False),
        (0.2, 0.1, "<=", 0.0, True),
        (0.2, 0.22, "<=", 0.0, False),
    ],
)
def test_a_cell_agrees_within_the_spread_or_five_percent(
    printed: float, ours: float, relation: Any, spread: float, agrees: bool
) -> None:
    cell = Cell(name="x", printed=printed, ours=ours, relation=relation, spread=spread)
    assert cell.agrees == agrees


def test_files_are_read_as_written_and_replace_their_group_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "STORED", tmp_path)
    other = replace(ITEM, section="pca", item="Figure 6")
    agreement.store("alg", [ITEM, other])
    assert read_stored("alg") == [ITEM, other]
    agreement.store("alg", [replace(ITEM, item="Table 2, again")])
    assert [each.item for each in read_stored("alg")] == ["Figure 6", "Table 2, again"]
    assert count(read_stored("alg")) == (2, 4)


def test_what_is_no_comparison_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "alg.json"
    broken.write_text('[{"item": 1}]', encoding="utf-8")
    with pytest.raises(DataError, match="must hold comparisons"):
        agreement.read_comparisons(broken)
    with pytest.raises(DataError, match="at least one"):
        replace(ITEM, cells=())
    with pytest.raises(DataError, match="finite"):
        replace(ITEM, cells=(Cell(name="a", printed=1.0, ours=float("nan")),))


def test_page_has_a_line_for_every_cell(tmp_path: Path) -> None:
    page = Page("x")
    agreement.add_to_page(page, [ITEM])
    text = page.save(tmp_path / "x.md").read_text(encoding="utf-8")
    assert "| a | 0.04 | 0.041 | +0.001 | agrees |" in text
    assert "| b | 2 | 2.2 | +0.2 | differs |" in text
    assert "1 of 2 cells (50 %)" in text
    assert "fewer halves" in text


def test_page_explains_misses_only(tmp_path: Path) -> None:
    for cells, explained in ((ITEM.cells, True), (ITEM.cells[:1], False)):
        page = Page("test")
        agreement.add_to_page(page, [replace(ITEM, cells=cells)])
        text = page.save(tmp_path / "page.md").read_text(encoding="utf-8")
        assert ("Why some differ: fewer halves" in text) == explained


def test_one_command_prints_all_that_is_stored(tmp_path: Path) -> None:
    lines: list[object] = []
    options: dict[str, Any] = {"quick": False, "n_jobs": 1, "report": lines.append}
    page = agreement.reproduce(tmp_path, only=(), **options)
    text = page.read_text(encoding="utf-8")
    assert len(lines) == len(stored_papers()) > 0
    for paper in stored_papers():
        assert all(f"### {each.item} ({each.trials})" in text for each in read_stored(paper))
    with pytest.raises(DataError, match="'nothing'"):
        agreement.reproduce(tmp_path, only=("nothing",), **options)


# --- what is stored, and what the docs say ---------------------------------------------------


def blocks() -> dict[str, Sequence[Path]]:
    found: dict[str, list[Path]] = {}
    for path in agreement.DOCS.glob("*.md"):
        for paper in re.findall("<!-- agreement ([a-z0-9-]+) -->", path.read_text("utf-8")):
            found.setdefault(paper, []).append(path)
    return dict(found)


@pytest.mark.parametrize("paper", stored_papers())
def test_every_stored_miss_has_a_reason(paper: str) -> None:
    for each in read_stored(paper):
        assert each.n_agree == len(each.cells) or each.reason, each.item


@pytest.mark.parametrize("paper", stored_papers())
def test_docs_show_what_is_stored(paper: str) -> None:
    paths = blocks().get(paper, ())
    assert paths, f"no page under docs/papers has the agreement of {paper}"
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert fill_blocks(text) == text, f"run python -m papers.agreement: {path.name} is old"
