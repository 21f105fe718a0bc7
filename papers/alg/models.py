"""A figure group of models: four columns per budget, a plot, and the noise behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from papers.alg.measure import run_task
from papers.alg.protocol import DATASETS, Task
from papers.alg.rows import Row, Rule
from papers.charts import INK, Line, Panel, Style, draw_panels
from papers.page import Page, as_budget, as_number, as_percent, write_csv
from papers.run import Job, Settings

__all__ = ["BUDGET_LABEL", "Figure", "budget_ticks"]

BUDGET_LABEL: Final = "budget in nats; below it the guaranteed membership success"
NO_LIMIT: Final = "no limit"

STYLES: Final[dict[Rule, tuple[str, Style]]] = {
    "diagonal": ("paper's rule", Style(colour="#D55E00", marker="s")),
    "isotropic_max": ("paper's isotropic rule", Style(colour="#E69F00", marker="^", line="--")),
    "exact": ("exact, same information", Style(colour="#0072B2", marker="D", line="-.")),
    "risk": ("risk, same guaranteed success", Style(colour="#009E73", marker="o")),
}
PUBLISHED: Final = Style(colour=INK, marker="o", line="none", hollow=True)
BASELINE: Final = Style(colour=INK, line=":")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure group of a paper.

    Attributes
    ----------
    name : str
        Short name: of ``--only`` and of the files.
    title, covers : str
        Heading, and which tables and figures of the paper it stands for.
    tasks : tuple of Task
        The panels of the full run.
    quick : tuple of str
        Names of the tasks of the quick run.
    notes : tuple of str
        What a reader must know about the protocol.
    """

    name: str
    title: str
    covers: str
    tasks: tuple[Task, ...]
    quick: tuple[str, ...]
    notes: tuple[str, ...]

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one piece of work per task."""
        return tuple(
            Job(name=task.title, function=run_task, arguments=(task, settings))
            for task in self.tasks
            if not quick or task.name in self.quick
        )

    def write(self, page: Page, rows: Sequence[Row], stem: Path) -> None:
        """Write the CSV file and the plot, and put plot and tables on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.task for row in rows))
        panels = [_panel([row for row in rows if row.task == name]) for name in names]
        picture = draw_panels(
            stem.with_suffix(".png"),
            panels,
            title=f"{self.title}: {rows[0].metric} of simulated releases",
            xlabel=BUDGET_LABEL,
            ticks=budget_ticks(sorted({row.mi_nats for row in rows})),
        )
        page.image(picture, f"{self.title}: {rows[0].metric} against the budget")
        for name in names:
            _write_task(page, [row for row in rows if row.task == name])


def budget_ticks(budgets: Sequence[float]) -> list[tuple[float, str]]:
    """Name budgets on an axis; every other one where there are many."""
    from pacprivacy.theory.posterior import posterior_success

    chosen = budgets[:: 2 if len(budgets) > 6 else 1]
    return [(mi, f"{as_budget(mi)}\n{100 * posterior_success(mi):.1f} %") for mi in chosen]


def _panel(rows: Sequence[Row]) -> Panel:
    first = rows[0]
    lines = [
        Line(
            label=label,
            style=style,
            x=tuple(row.mi_nats for row in rows if row.rule == rule),
            y=tuple(row.utility for row in rows if row.rule == rule),
        )
        for rule, (label, style) in STYLES.items()
    ]
    known = [row for row in rows if row.published is not None]
    if known:
        x = tuple(row.mi_nats for row in known)
        y = tuple(row.published for row in known if row.published is not None)
        lines.append(Line(label="published", style=PUBLISHED, x=x, y=y))
    level = (rows[-1].no_noise,)
    lines.append(Line(label="no noise, half the data", style=BASELINE, x=(), y=level))
    return Panel(
        title=f"{DATASETS[first.dataset]}, {first.model}",
        ylabel=first.metric,
        lines=tuple(line for line in lines if line.y),
        log_y=first.metric == "restoration error",
    )


def _write_task(page: Page, rows: Sequence[Row]) -> None:
    first = rows[0]
    cells = {(row.rule, row.mi_nats): row for row in rows}
    budgets = sorted({row.mi_nats for row in rows})
    page.heading(f"{DATASETS[first.dataset]}, {first.model}", level=3)
    page.text(
        f"{first.metric.capitalize()} (mean ± standard error over simulated releases). Without "
        f"noise, on half the data: {as_number(cells['diagonal', budgets[0]].no_noise)} on the "
        f"paper's halves, {as_number(cells['exact', budgets[0]].no_noise)} on our pool."
    )
    page.table(
        [
            "budget, nats",
            "success <=",
            "published",
            "paper's rule",
            "published, isotropic",
            "paper's isotropic rule",
            "`exact`, same MI",
            "`risk`, same success",
        ],
        [_utility_cells(cells, mi) for mi in budgets],
    )
    page.text("Total noise variance, and the information that `risk` gives away at most:")
    page.table(
        [
            "budget, nats",
            "paper's rule",
            "paper's isotropic rule",
            "paper's formula, our pool",
            "`exact`",
            "`risk`",
            "`risk` information <=",
        ],
        [_noise_cells(cells, mi) for mi in budgets],
    )


def _utility_cells(cells: dict[tuple[Rule, float], Row], mi: float) -> list[str]:
    diagonal, isotropic = cells["diagonal", mi], cells["isotropic_max", mi]
    return [
        as_budget(mi),
        as_percent(diagonal.success),
        as_number(diagonal.published),
        _measured(diagonal),
        as_number(isotropic.published),
        _measured(isotropic),
        _measured(cells["exact", mi]),
        _measured(cells["risk", mi]) if ("risk", mi) in cells else NO_LIMIT,
    ]


def _measured(row: Row) -> str:
    return f"{as_number(row.utility)} ± {row.standard_error:.1g}"


def _noise_cells(cells: dict[tuple[Rule, float], Row], mi: float) -> list[str]:
    rules: tuple[Rule, ...] = ("diagonal", "isotropic_max", "pool diagonal", "exact", "risk")
    found = [cells.get((rule, mi)) for rule in rules]
    noise = [NO_LIMIT if row is None else f"{row.noise_variance:.3g}" for row in found]
    risk = found[-1]
    return [as_budget(mi), *noise, NO_LIMIT if risk is None else f"{risk.mi_upper_nats:.3g} nats"]
