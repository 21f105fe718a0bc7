"""What the noise of [ALG] rests on: variance by components, and its estimate by halves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from pacprivacy.noise.covariance import proportional
from pacprivacy.sample import Half
from papers.alg.measure import run_paper_halves
from papers.alg.models import TASKS
from papers.alg.protocol import DATASETS, Task, load_split
from papers.charts import Line, Panel, Style, draw_panels
from papers.page import Page, write_csv
from papers.run import Job, Settings

__all__ = ["SECTION", "SpreadRow", "explained_shares", "noise_by_halves"]

COUNTS: Final = (1, 2, 4, 6, 8, 14, 32, 64)  # of components; 1, 6, 8 and 14 are those of `pca`
EXPLAINED: Final = ("iris", "rice", "dry_bean", "cifar10_subset")
ESTIMATED: Final = ("iris_kmeans", "rice_kmeans", "iris_svm", "rice_svm")
HALVES: Final = (10, 20, 50, 100, 200, 400, 1000, 2000, 4000)
STYLES: Final = (
    Style(colour="#D55E00", marker="s"),
    Style(colour="#0072B2", marker="D", line="-."),
    Style(colour="#009E73", marker="o"),
    Style(colour="#CC79A7", marker="^", line="--"),
)
Kind = Literal["explained", "noise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRow:
    """One point: ``share`` of the variance by ``count`` components, or of the noise by halves."""

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


def noise_by_halves(task: Task, settings: Settings) -> Iterator[SpreadRow]:
    """Return the paper's noise from its first halves, over that from all of them."""
    n_halves = min(settings.n_halves, task.max_halves)
    halves = Half(n_subsets=n_halves, every_class=True)
    values = run_paper_halves(task, halves, settings).values
    whole = float(proportional(values.var(axis=0), mi_nats=1.0).sum())
    for count in (count for count in HALVES if count <= n_halves):
        part = float(proportional(values[:count].var(axis=0), mi_nats=1.0).sum())
        yield SpreadRow(kind="noise", name=task.title, count=count, share=part / whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The section on variances and their estimates."""

    name: str = "spread"
    title: str = "Components, and how many halves an estimate takes"
    covers: str = "Figures 5 and 10, as far as the pictures of the public code tell"
    notes: tuple[str, ...] = (
        "Neither the points nor the captions of the two figures are at hand. Among the pictures "
        "that the public code draws these two are the ones that no other group shows.",
        "*Explained*: variance of the train rows along the first components, no privacy involved. "
        "*Noise*: total variance of the paper's anisotropic noise, from its first halves over that "
        "from all; the budget cancels. An estimate that is still below 100 % is too little noise; "
        "our pools are enumerated and estimate nothing.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one piece of work for each data set and for each model."""
        explained, estimated = (EXPLAINED[:1], ESTIMATED[:1]) if quick else (EXPLAINED, ESTIMATED)
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
                    name=f"{TASKS[name].title}, halves",
                    function=noise_by_halves,
                    arguments=(TASKS[name], settings),
                )
                for name in estimated
            ),
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plots, and put them on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        for kind, picture, xlabel, text in (
            ("explained", stem, "components", "share of the variance that components explain"),
            (
                "noise",
                stem.with_name(f"{stem.name}_halves"),
                "halves",
                "noise estimated from the first halves, over that from all",
            ),
        ):
            shown = [row for row in rows if row.kind == kind]
            counts = sorted({row.count for row in shown})
            names = list(dict.fromkeys(row.name for row in shown))
            lines = tuple(
                Line.of(name, style, [r for r in shown if r.name == name], "share", x="count")
                for name, style in zip(names, STYLES, strict=False)
            )
            panel = Panel(title="", ylabel="share, %", lines=lines, percent=True)
            drawn = draw_panels(
                picture.with_suffix(".png"),
                [panel],
                title=text.capitalize(),
                xlabel=xlabel,
                ticks=[(count, str(count)) for count in counts],
            )
            page.image(drawn, text)
            shares = {(row.name, row.count): f"{100 * row.share:.1f} %" for row in shown}
            page.table(
                [xlabel, *names],
                [[str(n), *[shares.get((name, n), "") for name in names]] for n in counts],
            )


SECTION: Final = Spread()
