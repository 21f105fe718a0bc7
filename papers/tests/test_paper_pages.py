"""The pages about the five documents: every item has a status and a name that exists."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "papers"
HEADINGS = re.compile(r"^\| item \| (?:ours|here) \| status \|$", re.MULTILINE)
PACKAGES = {
    "pac": "pacprivacy",
    **{
        name: f"pacprivacy.{name}"
        for name in ("adversary", "audit", "design", "dp", "noise", "residual", "stats", "theory")
    },
}


@dataclass(frozen=True)
class Item:
    """One row of a page."""

    name: str
    ours: str
    status: str


def items_of(page: Path) -> Iterator[Item]:
    text = page.read_text(encoding="utf-8")
    heading = HEADINGS.search(text)
    assert heading
    for row in text[heading.end() :].splitlines()[2:]:
        if not row.startswith("|"):
            return
        name, ours, status = (cell.strip() for cell in row.strip()[1:-1].split("|"))
        yield Item(name=name, ours=ours, status=status)


def pages_with_items() -> list[Path]:
    return [page for page in sorted(PAGES.glob("*.md")) if HEADINGS.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", pages_with_items(), ids=lambda page: page.name)
def test_every_item_works_or_has_a_reason(page: Path) -> None:
    items = list(items_of(page))
    assert len(items) >= 10
    for item in items:
        assert re.fullmatch(r"works\b.*|not, because .{20,}", item.status), item
        assert item.ours or not item.status.startswith("works"), item
    assert len({item.name for item in items}) == len(items)


@pytest.mark.parametrize("page", pages_with_items(), ids=lambda page: page.name)
def test_every_name_of_ours_exists(page: Path) -> None:
    for item in items_of(page):
        for package, path in re.findall(r"`([a-z]+)\.([\w.]+)", item.ours):
            if package not in PACKAGES:
                continue
            thing = importlib.import_module(PACKAGES[package])
            parts = path.split(".")
            if parts[0] == "estimators":
                thing = importlib.import_module(f"{PACKAGES[package]}.estimators")
                parts = parts[1:]
            for part in parts:
                assert hasattr(thing, part), (item, part)
                thing = getattr(thing, part)


def test_the_index_counts_the_items_of_its_pages() -> None:
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    for page in pages_with_items():
        items = list(items_of(page))
        working = sum(item.status.startswith("works") for item in items)
        expected = (
            f"[{page.name}]({page.name}) | {len(items)} | {working} | {len(items) - working} |"
        )
        assert expected in text, expected
