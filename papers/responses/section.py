"""The section on private answers of the page of [DESIGN], with its table of bounds.

Besides the published tables: 10^5 questions in a row at 2^-20 nats each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from papers.charts import Line, Panel, Style, draw_panels
from papers.page import Page, as_number, as_percent, write_csv
from papers.responses.models import N_SUBSETS, load_answers
from papers.responses.transcripts import (
    BOUND_POWERS,
    BOUND_QUESTIONS,
    BoundCell,
    ResponseRow,
    bound_cells,
    measure_responses,
)
from papers.run import Job, Settings

__all__ = ["LONG_POWER", "LONG_RUN", "SECTION", "Responses"]

POWERS: Final = {"one_hot": tuple(range(2, 33, 2)), "score": tuple(range(4, 33, 4))}
LONG_RUN: Final = 100_000
LONG_POWER: Final = 20
N_TRANSCRIPTS: Final = {"one_hot": 40, "score": 4}
N_TRANSCRIPTS_LONG: Final = 20
QUICK_SUBSETS: Final = 16
STYLES: Final = {
    "one_hot": Style(colour="#0072B2", marker="o"),
    "score": Style(colour="#D55E00", marker="s", line="--"),
}
PUBLISHED_STYLES: Final = {
    "one_hot": Style(colour="#56B4E9", marker="o", line=":", hollow=True),
    "score": Style(colour="#E69F00", marker="s", line=":", hollow=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses:
    """The section on private answers."""

    name: str = "responses"
    title: str = "Private answers, one secret"
    covers: str = "[RESP]: accuracy and bound tables on Adult and Bank"
    notes: tuple[str, ...] = (
        "128 models (16 in a quick run), each on a random half of the training rows (every row in "
        "half of them); "
        "histogram gradient boosting, depth 4, rate 0.1, 200 trees, where the paper tunes "
        "XGBoost on every subset. The test rows are the questions.",
        "Bank here is bank-full (45211 rows), published: bank-additional-full (41188 rows).",
        "Spent: the sum of what was proved for each answer; a question on which all models agree "
        "is free. Counted in full: every question charged, as published.",
        "Best attacker: mean over units and transcripts of the exact posterior's success.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one job for each data set: its models are trained once."""
        return tuple(
            Job(
                name=f"answers, {name}",
                function=_measure,
                arguments=(name, quick),
                kind=ResponseRow,
            )
            for name in (("adult",) if quick else ("adult", "bank"))
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plot, and put both on the page with the table of bounds."""
        write_csv(stem.with_suffix(".csv"), rows)
        page.image(_draw(rows, stem.with_suffix(".png")), "accuracy against budget per question")
        page.table(
            [
                "data, output, questions",
                "b",
                "accuracy",
                "published",
                "gap",
                "published gap",
                "spent, nats",
                "success at most",
                "counted in full",
                "best attacker",
            ],
            [_cells(row) for row in rows],
        )
        cells = bound_cells()
        page.table(
            ["b", *[f"T = {count}" for count in BOUND_QUESTIONS], "largest difference"],
            [_bound_cells(cells, power) for power in BOUND_POWERS],
        )


def _measure(dataset: str, quick: bool) -> list[ResponseRow]:
    answers = load_answers(dataset, n_subsets=QUICK_SUBSETS if quick else N_SUBSETS)
    rows = []
    for output, powers in POWERS.items():
        rows += measure_responses(
            dataset,
            output,
            (4, 20) if quick else powers,
            n_transcripts=2 if quick else N_TRANSCRIPTS[output],
            answers=answers,
        )
    if dataset == "adult":
        rows += measure_responses(
            dataset,
            "one_hot",
            (LONG_POWER,),
            n_transcripts=2 if quick else N_TRANSCRIPTS_LONG,
            n_queries=LONG_RUN,
            seed=1,
            answers=answers,
        )
    return rows


def _cells(row: ResponseRow) -> list[str]:
    return [
        f"{row.dataset}, {row.output}, {row.n_queries}",
        f"2^-{row.neg_log2_b}",
        f"{row.accuracy:.4f} ± {row.standard_error:.4f}",
        as_number(row.published, 4),
        f"{100 * row.gap:.2f}",
        "not available" if row.published_gap is None else f"{100 * row.published_gap:.2f}",
        as_number(row.spent_nats, 3),
        as_percent(row.success),
        as_percent(row.counted_success),
        as_percent(row.attacker),
    ]


def _bound_cells(cells: Sequence[BoundCell], power: int) -> list[str]:
    chosen = [cell for cell in cells if cell.neg_log2_b == power]
    known = [abs(cell.success - cell.published) for cell in chosen if cell.published is not None]
    return [
        f"2^-{power}",
        *[f"{100 * cell.success:.4f} %" for cell in chosen],
        f"{max(known):.1e}" if known else "not available",
    ]


def _draw(rows: Sequence[ResponseRow], path: Path) -> Path:
    panels = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        own = [row for row in rows if row.dataset == dataset and row.n_queries < LONG_RUN]
        lines = [
            Line(label="non-private", style=Style(colour="#333333"), x=(), y=(own[0].nonprivate,))
        ]
        for output in dict.fromkeys(row.output for row in own):
            chosen = [row for row in own if row.output == output]
            budgets = tuple(2.0**-row.neg_log2_b for row in chosen)
            lines.append(
                Line(
                    label=f"{output}, ours",
                    style=STYLES[output],
                    x=budgets,
                    y=tuple(row.accuracy for row in chosen),
                )
            )
            known = [row for row in chosen if row.published is not None]
            if known:
                lines.append(
                    Line(
                        label=f"{output}, published",
                        style=PUBLISHED_STYLES[output],
                        x=tuple(2.0**-row.neg_log2_b for row in known),
                        y=tuple(float(row.published or 0.0) for row in known),
                    )
                )
        panels.append(Panel(title=dataset.capitalize(), ylabel="accuracy", lines=tuple(lines)))
    largest = max(row.neg_log2_b for row in rows)
    ticks = [(2.0**-power, f"2^-{power}") for power in BOUND_POWERS if power <= largest]
    return draw_panels(
        path,
        panels,
        title="Accuracy of private answers",
        xlabel="budget of one question, nats",
        ticks=ticks,
    )


SECTION: Final = Responses()
