"""Tables of [DESIGN]: published, the paper's rule, ours at the same information and success."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pacprivacy.theory import posterior_success
from papers.agreement import Cell, Comparison
from papers.charts import BUDGET_LABEL, INK, Line, Panel, Style, budget_ticks, draw_panels
from papers.design.data import NAMES
from papers.design.pool import PoolRow, PoolRule
from papers.design.printed import BUDGETS, Mode
from papers.page import Page, as_budget, as_number, as_percent, write_csv

DESIGN_BUDGETS: Final = BUDGETS  # 1/4 .. 1/1024 nats
ROUNDING: Final = 0.005
PRINTED_TRAININGS: Final = 500
RELEASED: Final = {"mean squared error": "releases", "accuracy": "trainings"}
MODES: Final[dict[Mode, tuple[str, str, Style, Style]]] = {
    "post-hoc": (
        "post-hoc, paper's rule",
        "post-hoc, published",
        Style(colour="#E69F00", marker="^", line="--"),
        Style(colour="#E69F00", marker="^", line="none", hollow=True),
    ),
    "conscious": (
        "conscious, paper's rule",
        "conscious, published",
        Style(colour="#D55E00", marker="s"),
        Style(colour=INK, marker="o", line="none", hollow=True),
    ),
}
RULE_STYLES: Final[dict[PoolRule, tuple[str, Style]]] = {
    "exact": ("exact, same information", Style(colour="#0072B2", marker="D", line="-.")),
    "risk": ("risk, same guaranteed success", Style(colour="#009E73", marker="o")),
}
ORACLE: Final = "oracle"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignRow:
    """What simulated releases of one design at one budget are worth.

    ``setting`` says how the signal (ridge) or the distance to go (descent) is known. ``mode`` is
    ``post-hoc`` for parameters that are best without privacy, ``conscious`` for the best with it.
    The budget is split evenly over dimensions and steps. ``largest`` is what the steps of a descent
    are capped at: ``1/L`` or, as in the public code, ``L``.
    """

    dataset: str
    setting: str
    mode: Mode
    mi_nats: float
    metric: Literal["mean squared error", "accuracy"]
    utility: float
    standard_error: float
    n_releases: int
    published: float | None
    largest: str = ""

    def agrees(self, *, within: float, relative: float = 0.0) -> bool | None:
        """Whether utility and published figure are this close; None where there is none."""
        if self.published is None:
            return None
        return abs(self.utility - self.published) <= max(within, relative * abs(self.published))


def compare_tables(
    section: str, tables: dict[str, str], rows: Sequence[DesignRow], reasons: dict[str, str]
) -> tuple[Comparison, ...]:
    """Return the cells with printed figures, one comparison for each data set.

    The spread is half a unit of the last printed digit; for descent, where one training is far
    from the next, also two standard errors of a mean of as many trainings as the paper has.
    """
    comparisons = []
    for dataset, item in tables.items():
        cells = [
            Cell(
                name=f"{row.setting}, {as_budget(row.mi_nats)}, {row.mode}",
                printed=row.published,
                ours=row.utility,
                spread=ROUNDING + _twice_the_papers_error(row),
            )
            for row in rows
            if row.dataset == dataset and row.published is not None
        ]
        if cells:
            first = next(row for row in rows if row.dataset == dataset)
            comparisons.append(
                Comparison(
                    section=section,
                    item=item,
                    trials=f"{first.n_releases} {RELEASED[first.metric]} a cell",
                    cells=tuple(cells),
                    reason=reasons.get(dataset, ""),
                )
            )
    return tuple(comparisons)


def _twice_the_papers_error(row: DesignRow) -> float:
    """Return two standard errors of the printed mean; of ridge, whose runs differ less, none."""
    if row.metric != "accuracy":
        return 0.0
    return 2 * row.standard_error * math.sqrt(row.n_releases / PRINTED_TRAININGS)


def draw_tables(
    path: Path, title: str, paper: Sequence[DesignRow], ours: Sequence[PoolRow]
) -> Path:
    """Draw one panel for each data set."""
    datasets = list(dict.fromkeys(row.dataset for row in paper))
    return draw_panels(
        path,
        [_panel(name, paper, ours) for name in datasets],
        title=f"{title}: {paper[0].metric} of simulated releases",
        xlabel=BUDGET_LABEL,
        ticks=budget_ticks(sorted({row.mi_nats for row in paper})),
    )


def _panel(dataset: str, paper: Sequence[DesignRow], ours: Sequence[PoolRow]) -> Panel:
    lines = []
    of_dataset = [row for row in paper if row.dataset == dataset and row.setting == ORACLE]
    for mode, (label, published, style, hollow) in MODES.items():
        cells = [row for row in of_dataset if row.mode == mode]
        lines.append(Line.of(label, style, cells, "utility"))
        lines.append(Line.of(published, hollow, cells, "published"))
    released = [row for row in ours if row.dataset == dataset]
    for rule, (label, style) in RULE_STYLES.items():
        chosen = [row for row in released if row.rule == rule]
        lines.append(Line.of(label, style, chosen, "utility"))
    level = tuple(row.no_noise for row in released if row.rule == "risk")[:1]
    lines.append(
        Line(label="no noise, half the data", style=Style(colour=INK, line=":"), x=(), y=level)
    )
    return Panel(
        title=NAMES[dataset],
        ylabel=of_dataset[0].metric,
        lines=tuple(line for line in lines if line.y),
        log_y=of_dataset[0].metric == "mean squared error",
    )


def write_table(
    page: Page, dataset: str, paper: Sequence[DesignRow], ours: Sequence[PoolRow]
) -> None:
    """Put the tables of one data set on the page."""
    of_dataset = [row for row in paper if row.dataset == dataset]
    released = {(row.rule, row.mi_nats): row for row in ours if row.dataset == dataset}
    budgets = sorted({row.mi_nats for row in of_dataset}, reverse=True)
    rules = [rule for rule in RULE_STYLES if (rule, budgets[0]) in released]
    page.heading(NAMES[dataset], level=3)
    page.text(
        f"{of_dataset[0].metric.capitalize()} (mean ± standard error), design parameters from the "
        f"fit on all training rows. {_without_noise(released, budgets[0])}"
    )
    page.table(
        [
            "budget, nats",
            "success <=",
            "published post-hoc",
            "paper's rule, post-hoc",
            "published conscious",
            "paper's rule, conscious",
            *[_heading(rule) for rule in rules],
            "`risk` information <=",
        ],
        [_main_cells(of_dataset, released, rules, mi) for mi in budgets],
    )
    settings = [name for name in dict.fromkeys(row.setting for row in of_dataset) if name != ORACLE]
    if settings:
        page.text("Design parameters from a constant: post-hoc → conscious, published in brackets.")
        page.table(
            ["budget, nats", *settings],
            [
                [as_budget(mi), *[_pair(of_dataset, name, mi) for name in settings]]
                for mi in budgets
            ],
        )


def _heading(rule: PoolRule) -> str:
    return {
        "exact": "`exact`, same MI",
        "risk": "`risk`, same success",
    }[rule]


def _without_noise(released: dict[tuple[PoolRule, float], PoolRow], mi: float) -> str:
    row = released.get(("risk", mi))
    if row is None:
        return ""
    return f"Without noise, on half the data: {as_number(row.no_noise)}."


def _main_cells(
    of_dataset: Sequence[DesignRow],
    released: dict[tuple[PoolRule, float], PoolRow],
    rules: Sequence[PoolRule],
    mi: float,
) -> list[str]:
    cells = [as_budget(mi), as_percent(posterior_success(mi))]
    for mode in MODES:
        row = _find(of_dataset, ORACLE, mode, mi)
        cells += [as_number(row.published, 2), _measured(row)]
    cells += [_measured(released[rule, mi]) for rule in rules]
    risk = released.get(("risk", mi))
    return [*cells, "not run" if risk is None else f"{risk.mi_upper_nats:.3g} nats"]


def _pair(of_dataset: Sequence[DesignRow], setting: str, mi: float) -> str:
    post_hoc, conscious = (_find(of_dataset, setting, mode, mi) for mode in MODES)
    text = f"{as_number(post_hoc.utility)} → {as_number(conscious.utility)}"
    if post_hoc.published is None or conscious.published is None:
        return text
    return f"{text} ({post_hoc.published:.2f} → {conscious.published:.2f})"


def _find(of_dataset: Sequence[DesignRow], setting: str, mode: Mode, mi: float) -> DesignRow:
    return next(
        row for row in of_dataset if (row.setting, row.mode, row.mi_nats) == (setting, mode, mi)
    )


def _measured(row: DesignRow | PoolRow) -> str:
    return f"{as_number(row.utility)} ± {row.standard_error:.1g}"


def write_rows(stem: Path, rows: Sequence[Any]) -> None:
    """Write the rows of each kind into a file of its own: ``stem``.csv for the first kind."""
    for number, kind in enumerate(dict.fromkeys(type(row) for row in rows)):
        tail = "" if number == 0 else f"_{kind.__name__.removesuffix('Row').lower()}"
        chosen = [row for row in rows if type(row) is kind]
        write_csv(stem.with_name(f"{stem.name}{tail}.csv"), chosen)
