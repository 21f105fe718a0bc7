"""Sections of [CS208]: accuracy against ε, for groups of methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from papers.charts import INK, Line, Panel, Style, draw_panels
from papers.cs208.curves import CurveRow, measure_curve
from papers.cs208.data import STUDIES
from papers.page import Page, as_number, write_csv
from papers.run import Job, Settings

__all__ = ["AGGREGATE", "BATCHES", "DESCENT", "PERTURBATION", "CurveSection"]

EPSILONS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
QUICK_EPSILONS: Final = (0.1, 1.0, 4.0)
RELATIONS: Final = {"add_remove": "add or remove", "replace": "replace"}
STYLES: Final = (
    Style(colour="#0072B2", marker="o"),
    Style(colour="#D55E00", marker="s", line="--"),
    Style(colour="#009E73", marker="D", line="-."),
    Style(colour="#CC79A7", marker="^", line=":"),
)
BASELINE: Final = Style(colour=INK, line=":")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSection:
    """Some methods on both data sets: a plot, and a table for each data set."""

    name: str
    title: str
    covers: str
    notes: tuple[str, ...]
    methods: tuple[str, ...]

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one piece of work for each data set and method."""
        epsilons = QUICK_EPSILONS if quick else EPSILONS
        return tuple(
            Job(
                name=f"{STUDIES[study]}, {method}",
                function=measure_curve,
                arguments=(study, method, epsilons, settings.n_trials, settings.seed),
                kind=CurveRow,
            )
            for study in STUDIES
            for method in self.methods
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plot, and put both on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.study for row in rows))
        epsilons = sorted({row.epsilon for row in rows})
        picture = draw_panels(
            stem.with_suffix(".png"),
            [self._panel([row for row in rows if row.study == name]) for name in names],
            title=f"{self.title}: accuracy on test rows",
            xlabel="ε, at δ = 1e-5",
            ticks=[(epsilon, f"{epsilon:g}") for epsilon in epsilons],
        )
        page.image(picture, f"{self.title}: accuracy against ε")
        for name in names:
            self._write_study(page, [row for row in rows if row.study == name])

    def _panel(self, rows: Sequence[CurveRow]) -> Panel:
        lines = [
            Line(
                label=method,
                style=STYLES[place],
                x=tuple(row.epsilon for row in rows if row.method == method),
                y=tuple(row.accuracy for row in rows if row.method == method),
            )
            for place, method in enumerate(self.methods)
        ]
        level = Line(label="no privacy", style=BASELINE, x=(), y=(rows[0].no_noise,))
        return Panel(title=STUDIES[rows[0].study], ylabel="accuracy", lines=(*lines, level))

    def _write_study(self, page: Page, rows: Sequence[CurveRow]) -> None:
        cells = {(row.method, row.epsilon): row for row in rows}
        page.heading(STUDIES[rows[0].study], level=3)
        page.text(
            f"Accuracy, mean ± standard error of {rows[0].n_runs} simulated runs. Without privacy: "
            f"{as_number(rows[0].no_noise)}."
        )
        relations = {row.method: RELATIONS[row.neighbours] for row in rows}
        page.table(
            ["ε", *(f"{method} ({relations[method]})" for method in self.methods)],
            [
                [f"{epsilon:g}", *(_measured(cells[method, epsilon]) for method in self.methods)]
                for epsilon in sorted({row.epsilon for row in rows})
            ],
        )
        if all(row.noise_multiplier is not None for row in rows):
            page.text("Noise of a sum of gradients, over the clipping norm:")
            page.table(
                ["ε", *self.methods],
                [
                    [f"{epsilon:g}", *(_noise(cells[method, epsilon]) for method in self.methods)]
                    for epsilon in sorted({row.epsilon for row in rows})
                ],
            )


def _measured(row: CurveRow) -> str:
    return f"{row.accuracy:.4f} ± {row.standard_error:.1g}"


def _noise(row: CurveRow) -> str:
    return as_number(row.noise_multiplier)


DESCENT: Final = CurveSection(
    name="descent",
    title="Private descent",
    covers="the course's DP-GD and DP-SGD, with clipping, noise and averaging as in math.md",
    notes=(
        "DP-GD looks at all records in each of 120 steps; DP-SGD at a Poisson batch of a twentieth "
        "of them in each of 300. Step length 16 for rows of norm 1, clipping norm 0.5.",
        "Clipping is v · min(1, C/|v|); the slides print max, which bounds nothing.",
        "On Adult the average iterate trails the last one: it contains the first steps from zero.",
    ),
    methods=("DP-GD", "DP-SGD", "DP-SGD, average", "DP-SGD, hinge"),
)
BATCHES: Final = CurveSection(
    name="batches",
    title="Three kinds of batches",
    covers="sampling with and without replacement, and Poisson sampling",
    notes=(
        "The same steps with batches of the same (expected) size. The columns are about different "
        "neighbours: Poisson batches protect against adding or removing a record, the others "
        "against replacing one, which moves a sum twice as far.",
    ),
    methods=("Poisson", "fixed size", "with replacement"),
)
PERTURBATION: Final = CurveSection(
    name="perturbation",
    title="Perturbed outputs and objectives",
    covers="output perturbation and objective perturbation of regularised logistic regression",
    notes=(
        "Logistic regression with penalty 20 |w|²/2 on the sum of losses, rows of norm 1 and a "
        "constant. DP-SGD is repeated for comparison.",
    ),
    methods=("output", "objective", "DP-SGD"),
)
AGGREGATE: Final = CurveSection(
    name="aggregate",
    title="Blocks of records: aggregates and votes",
    covers="subsample and aggregate, and PATE",
    notes=(
        "Subsample and aggregate: logistic regressions on 200 blocks; the mean of weights that "
        "are scaled down to norm 10, or medians from a grid. Medians are chosen for each of 109 "
        "or 197 weights with a share of ε each, which teaches little below ε = 4.",
        "PATE: 250 teachers answer 300 public questions (rows of the test split, not used for "
        "the accuracy); a student learns from the answers. ε is for any votes.",
    ),
    methods=("S&A, mean", "S&A, median", "PATE", "DP-SGD"),
)
