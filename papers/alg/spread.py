"""What the noise of [ALG] rests on: variance by components, and its estimate by halves.

Figure 10 and section 7: halves are drawn until no element of the variance changed by more than
1e-6 over the last ten. :func:`run_until_stable` is that rule: it *chooses* how many halves there
are. It certifies nothing; our pools are fixed before the first fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from pacprivacy.sample import Half
from papers.agreement import Cell, Comparison
from papers.alg.measure import run_paper_halves
from papers.alg.models import TASKS
from papers.alg.protocol import DATASETS, Task, load_split
from papers.charts import Line, Panel, Style, draw_panels
from papers.page import Page, write_csv
from papers.run import Job, Settings

COUNTS: Final = tuple(range(1, 21))  # of components, as in Figure 5
EXPLAINED: Final = ("rice", "dry_bean", "cifar10_subset")
STABLE: Final = (  # Figure 10, Iris
    "iris_kmeans",
    "iris_svm",
    "iris_svm_regularised",
    "iris_svm_printed",
    "iris_forest",
)
PRECISION: Final = 1e-6
STEP: Final = 10  # halves between two looks
MOST_TICKS: Final = 24
BLOCK: Final = 100  # halves that are fitted together
STYLES: Final = (
    Style(colour="#D55E00", marker="s"),
    Style(colour="#0072B2", marker="D", line="-."),
    Style(colour="#009E73", marker="o"),
    Style(colour="#CC79A7", marker="^", line="--"),
)
Kind = Literal["explained", "change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRow:
    """One point: ``share`` of the variance that ``count`` components explain.

    For ``change``, by how much the first variance changed over the last ten of ``count`` halves;
    the last such row is where the rule stopped, or gave up.
    """

    kind: Kind
    name: str
    count: int
    share: float


def explained_shares(dataset: str) -> Iterator[SpreadRow]:
    """Return which share of the train rows' variance the first components explain."""
    rows = load_split(dataset, "min-max").X_train
    variances = np.linalg.eigvalsh(np.cov(rows, rowvar=False))[::-1]
    for count in (count for count in COUNTS if count <= len(variances)):
        yield SpreadRow(
            kind="explained",
            name=DATASETS[dataset],
            count=count,
            share=float(variances[:count].sum() / variances.sum()),
        )


def run_until_stable(
    task: Task, settings: Settings, *, precision: float = PRECISION
) -> Iterator[SpreadRow]:
    """Draw halves until no variance changed by more than ``precision`` over the last ten.

    Gives up at ``settings.n_halves``, or at the most that the task allows.
    """
    most = min(settings.n_halves, task.max_halves)
    values = np.empty((0, 0))
    before = None
    for count in range(STEP, most + 1, STEP):
        if count > len(values):
            halves = Half(n_subsets=min(BLOCK, most - len(values)), every_class=True)
            more = run_paper_halves(task, halves, settings, stream=f"stable {len(values)}").values
            values = np.vstack([values, more]) if values.size else more
        variances = values[:count].var(axis=0)
        if before is not None:
            changes = np.abs(variances - before)
            yield SpreadRow(kind="change", name=task.title, count=count, share=float(changes[0]))
            if changes.max() <= precision:
                return
        before = variances


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The section on variances and their estimates."""

    name: str = "spread"
    title: str = "Components, and how many halves an estimate takes"
    covers: str = "Figures 5 and 10; no points are printed"
    notes: tuple[str, ...] = (
        "*Change*: by how much the first variance changes over ten more halves of Iris, until no "
        "variance changes by more than 1e-6: the paper's rule for their number. A rule that "
        "looks until it is content stops early by luck; it is run here as published.",
        "*Explained*: variance of the train rows along the first components, no privacy involved.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        explained, stable = (EXPLAINED[:1], STABLE[1:3]) if quick else (EXPLAINED, STABLE)
        return (
            *(
                Job(
                    name=f"{DATASETS[name]}, components",
                    function=explained_shares,
                    arguments=(name,),
                )
                for name in explained
            ),
            *(
                Job(
                    name=f"{TASKS[name].title}, until stable",
                    function=run_until_stable,
                    arguments=(TASKS[name], settings),
                )
                for name in stable
            ),
        )

    def compare(self, rows: Sequence[SpreadRow]) -> tuple[Comparison, ...]:
        shares = {(row.name, row.count): row.share for row in rows if row.kind == "explained"}
        stops = {row.name: row.count for row in rows if row.kind == "change"}
        cifar, free, strong = (
            DATASETS["cifar10_subset"],
            TASKS["iris_svm"].title,
            TASKS["iris_svm_regularised"].title,
        )
        items = []
        if (cifar, 20) in shares:
            cell = Cell(name=f"{cifar}, 20 of 3072", printed=0.7, ours=shares[cifar, 20])
            items.append(("Figure 5, text", "12 000 pictures", cell, "a subset of the pictures"))
        if {free, strong} <= stops.keys():
            cell = Cell(
                name="halves without over halves with regularisation",
                printed=10,
                ours=stops[free] / stops[strong],
                relation=">=",
            )
            why = "both numbers of halves are where luck stops the rule"
            items.append(("Figure 10, text", f"at most {stops[free]} halves", cell, why))
        return tuple(
            Comparison(section=self.name, item=item, trials=trials, cells=(cell,), reason=why)
            for item, trials, cell, why in items
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        for kind, picture, xlabel, text in (
            ("explained", stem, "components", "share of the variance that components explain"),
            (
                "change",
                stem.with_name(f"{stem.name}_change"),
                "halves",
                "change of the first variance over the last ten halves",
            ),
        ):
            shown = [row for row in rows if row.kind == kind]
            counts = sorted({row.count for row in shown})
            names = list(dict.fromkeys(row.name for row in shown))
            lines = tuple(
                Line.of(name, style, [r for r in shown if r.name == name], "share", x="count")
                for name, style in zip(names, STYLES, strict=False)
            )
            is_change = kind == "change"
            panel = Panel(
                title="",
                ylabel="change" if is_change else "share, %",
                lines=lines,
                percent=not is_change,
                log_y=is_change,
            )
            if is_change or len(counts) > MOST_TICKS:
                counts = [n for n in (10, 20, 50, 100, 200, 400, 1000, 2000, 4000) if n in counts]
            drawn = draw_panels(
                picture.with_suffix(".png"),
                [panel],
                title=text.capitalize(),
                xlabel=xlabel,
                ticks=[(count, str(count)) for count in counts],
            )
            page.image(drawn, text)
            if is_change:
                page.table(
                    ["model", "halves when the rule stopped, or gave up"],
                    [[name, str(max(r.count for r in shown if r.name == name))] for name in names],
                )
                continue
            shares = {(row.name, row.count): f"{100 * row.share:.1f} %" for row in shown}
            page.table(
                [xlabel, *names],
                [[str(n), *[shares.get((name, n), "") for name in names]] for n in counts],
            )


SECTION: Final = Spread()
