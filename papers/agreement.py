"""Printed figures beside ours: a table on every page, stored here, and held to the docs.

A section of a paper that has printed figures to compare with has a method ``compare(rows)`` that
returns :class:`Comparison` records. ``pac reproduce`` puts them on its page and writes them to
``<paper>_agreement.json``; ``python -m papers.agreement FILE...`` keeps such files under
``papers/stored`` (figure group by figure group) and writes the summaries into ``docs/papers``
between the lines ``<!-- agreement PAPER -->`` and ``<!-- /agreement -->``.
``pac reproduce agreement`` prints everything that is stored.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable

from pacprivacy.errors import DataError
from papers.page import Page, make_folder

STORED: Final = Path(__file__).parent / "stored"
DOCS: Final = Path(__file__).parents[1] / "docs" / "papers"
RELATIVE_TOLERANCE: Final = 0.05
_BLOCK: Final = re.compile(
    r"(<!-- agreement ([a-z0-9-]+) -->\n).*?(<!-- /agreement -->)", re.DOTALL
)
ALL_PAPERS: Final = "all"

Relation = Literal["=", "<=", ">="]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One printed figure and ours.

    ``relation`` is ``<=`` or ``>=`` where only a limit is printed ("above 90 %"). ``spread`` is how
    much the paper itself leaves open: half a unit of its last digit, the standard errors of its
    releases, or what it calls *about*.
    """

    name: str
    printed: float
    ours: float
    relation: Relation = "="
    spread: float = 0.0

    @property
    def difference(self) -> float:
        """Ours minus printed; zero where a printed limit is kept."""
        gap = self.ours - self.printed
        if self.relation == "<=":
            return max(0.0, gap)
        return min(0.0, gap) if self.relation == ">=" else gap

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the paper's own spread or 5 %."""
        tolerance = max(self.spread, RELATIVE_TOLERANCE * abs(self.printed))
        return abs(self.difference) <= tolerance * (1 + 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The cells of one printed table or figure, at least one.

    ``section`` is the figure group that measured ours, ``item`` where it is printed, ``trials`` how
    much work ours rests on. ``reason`` says why some cells differ: a stored comparison with a miss
    must have one.
    """

    section: str
    item: str
    trials: str
    cells: tuple[Cell, ...]
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.cells:
            raise DataError(f"cells of {self.item} must be at least one; got none.")
        wrong = [c.name for c in self.cells if not (math.isfinite(c.ours + c.printed))]
        if wrong:
            raise DataError(f"cells of {self.item} must be finite; got {wrong[0]}.")

    @property
    def n_agree(self) -> int:
        """How many cells agree."""
        return sum(cell.agrees for cell in self.cells)


@runtime_checkable
class Compares(Protocol):
    """A section that has printed figures to compare with."""

    def compare(self, rows: Sequence[Any]) -> Sequence[Comparison]:
        """Return ours beside the printed figures; rows are those of the section's own jobs."""
        ...


def count(comparisons: Iterable[Comparison]) -> tuple[int, int]:
    """Return the number of cells that agree, and of all cells."""
    pairs = [(each.n_agree, len(each.cells)) for each in comparisons]
    return sum(agree for agree, _ in pairs), sum(cells for _, cells in pairs)


# --- stored comparisons --------------------------------------------------------------------------


def stored_papers() -> list[str]:
    """Return the names of the papers that have stored comparisons."""
    return sorted(path.stem for path in STORED.glob("*.json"))


def read_stored(paper: str) -> list[Comparison]:
    """Return what is stored for a paper: nothing if it was never stored."""
    path = STORED / f"{paper}.json"
    return read_comparisons(path) if path.is_file() else []


def read_comparisons(path: Path) -> list[Comparison]:
    """Read comparisons that :func:`write_comparisons` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [
            Comparison(**{**each, "cells": tuple(Cell(**cell) for cell in each["cells"])})
            for each in content
        ]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path} must hold comparisons; got {type(error).__name__}. "
            "Make it again with pac reproduce."
        ) from error


def write_comparisons(path: Path, comparisons: Sequence[Comparison]) -> Path:
    """Write comparisons as JSON, one cell to a line."""
    parts = []
    for each in comparisons:
        head = asdict(each)
        cells = ",\n".join(f"   {json.dumps(_short(cell))}" for cell in head.pop("cells"))
        fields = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
        parts.append(f' {{\n{fields},\n  "cells": [\n{cells}\n  ]\n }}')
    path.write_text("[\n" + ",\n".join(parts) + "\n]\n", encoding="utf-8")
    return path


def store(paper: str, comparisons: Sequence[Comparison]) -> Path:
    """Keep comparisons of a paper; they replace those of the same figure groups."""
    sections = {each.section for each in comparisons}
    kept = [each for each in read_stored(paper) if each.section not in sections]
    make_folder(STORED)
    return write_comparisons(STORED / f"{paper}.json", [*kept, *comparisons])


def _short(cell: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{v:.6g}") if isinstance(v, float) else v for name, v in cell.items()}


# --- tables --------------------------------------------------------------------------------------


def add_to_page(page: Page, comparisons: Sequence[Comparison]) -> None:
    """Put every cell of some comparisons on a page: printed, ours, difference, verdict."""
    agree, cells = count(comparisons)
    page.text(
        f"{agree} of {cells} cells ({100 * agree / cells:.0f} %) are within the paper's own spread "
        f"or {100 * RELATIVE_TOLERANCE:.0f} % of what is printed."
    )
    for each in comparisons:
        page.heading(f"{each.item} ({each.trials})", level=3)
        page.table(
            ["cell", "printed", "ours", "difference", "verdict"],
            [_cells(cell) for cell in each.cells],
        )
        if each.reason and each.n_agree < len(each.cells):
            page.text(f"Why some differ: {each.reason}")


def _cells(cell: Cell) -> list[str]:
    sign = "" if cell.relation == "=" else f"{cell.relation} "
    return [
        cell.name,
        f"{sign}{cell.printed:.4g}",
        f"{cell.ours:.4g}",
        f"{cell.difference:+.2g}" if cell.difference else "0",
        "agrees" if cell.agrees else "differs",
    ]


def summarise(comparisons: Sequence[Comparison]) -> str:
    """Return one table row for each printed table or figure, and a last row for all of them."""
    lines = [
        "| printed | ours | cells | agree | misses: why |",
        "|---|---|--:|--:|---|",
    ]
    lines += [
        f"| {each.item} | {each.trials} | {len(each.cells)} | {each.n_agree} "
        f"| {each.reason if each.n_agree < len(each.cells) else ''} |"
        for each in comparisons
    ]
    agree, cells = count(comparisons)
    lines.append(f"| all | | {cells} | {agree} ({100 * agree / cells:.0f} %) | |")
    return "\n".join(lines)


def _totals() -> str:
    """Return one row for each paper."""
    lines = ["| document | cells | agree |", "|---|--:|--:|"]
    rows = [(paper, *count(read_stored(paper))) for paper in stored_papers()]
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    lines += [f"| {name} | {n} | {agree} ({100 * agree / n:.0f} %) |" for name, agree, n in rows]
    return "\n".join(lines)


def fill_blocks(text: str) -> str:
    """Return a documentation page with its blocks of agreement made anew from what is stored."""

    def block(match: re.Match[str]) -> str:
        paper = match[2]
        table = _totals() if paper == ALL_PAPERS else summarise(read_stored(paper))
        return f"{match[1]}{table}\n{match[3]}"

    return _BLOCK.sub(block, text)


def reproduce(
    folder: Path,
    *,
    quick: bool,
    only: Sequence[str],
    n_jobs: int,
    report: Callable[[object], None],
) -> Path:
    """Print what is stored and write every cell to a page; ``pac reproduce`` calls this."""
    page = Page("Printed figures beside ours, as stored")
    for paper in only or stored_papers():
        comparisons = read_stored(paper)
        if not comparisons:
            raise DataError(
                f"only must name papers among {', '.join(stored_papers())}; got {paper!r}. "
                "Leave it out for all of them."
            )
        page.heading(paper)
        add_to_page(page, comparisons)
        report(f"{paper}\n{summarise(comparisons)}\n")
    return page.save(make_folder(folder) / "agreement.md")


def main(files: Sequence[str]) -> None:
    """Keep the comparisons of files ``<paper>_agreement.json``, and bring the docs up to date."""
    for path in map(Path, files):
        store(path.stem.removesuffix("_agreement"), read_comparisons(path))
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(fill_blocks(text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
