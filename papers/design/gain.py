"""What the formulas of [DESIGN] predict: gains of conscious design.

The predicted ratio of ridge errors stands beside the ratio measured on coordinates of white wine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import public_generator
from pacprivacy.design import RidgePenalty
from pacprivacy.design.descent import descent_step
from pacprivacy.design.ridge import noise_ratio, ridge_penalty_per_coordinate
from papers.agreement import Cell, Comparison
from papers.charts import Line, Panel, Style, draw_panels
from papers.design.data import RegressionSplit, load_regression
from papers.design.descent import N_STEPS
from papers.design.formulas import descent_bound, released_error, ridge_error_ratio
from papers.design.ridge import PoissonSums, fit_poisson
from papers.page import Page, as_budget, as_number, write_csv
from papers.run import Job, Settings

Kind = Literal["ridge", "Figure 3", "Figure 4"]

QUALITIES: Final = tuple(2.0**power for power in range(-7, 11))  # Q of Figure 3
VARIANCES: Final = tuple(2.0**power for power in range(-4, 5))  # of the gradient, Figure 4
AXIS_BUDGETS: Final = tuple(4.0**-power for power in range(1, 6))

BUDGETS: Final = tuple(2.0**-power for power in range(13))
START_ERRORS: Final = (1.0, 10.0)
AXIS_STYLES: Final = (
    Style(colour="#D55E00", marker="s"),
    Style(colour="#E69F00", marker="^", line="--"),
    Style(colour="#009E73", marker="o"),
    Style(colour="#56B4E9", marker="v", line="-."),
    Style(colour="#0072B2", marker="D"),
)
STYLES: Final = (
    Style(colour="#D55E00", marker=""),
    Style(colour="#0072B2", marker=""),
    Style(colour="#009E73", marker=""),
)
REASONS: Final = {
    "Figure 3": "by its own formula the gain vanishes with Q (errata)",
    "Figure 4": "which variances the figure shows is not printed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRow:
    """One predicted figure, and the measured one where there is one.

    The error, or its bound, of conscious over post-hoc design. ``place`` is Q in Figure 3 and the
    variance of the gradient in Figure 4; zero where the budget is the axis.
    """

    kind: Kind
    case: str
    mi_nats: float
    predicted: float
    measured: float | None
    place: float = 0.0


def gain_rows(*, n_subsets: int = 4096, seed: int = 0) -> list[GainRow]:
    """Return all curves."""
    return [*_ridge(n_subsets, seed), *axis_rows()]


def axis_rows() -> list[GainRow]:
    """Return Figure 3 over Q, one dimension, and Figure 4 over the gradient's variance."""
    figure_3 = [
        GainRow(
            kind="Figure 3",
            case="one coordinate",
            mi_nats=mi_nats,
            predicted=float(ridge_error_ratio(quality, ratio=noise_ratio(mi_nats))),
            measured=None,
            place=quality,
        )
        for mi_nats in AXIS_BUDGETS
        for quality in QUALITIES
    ]
    figure_4 = [
        GainRow(
            kind="Figure 4",
            case=f"e0² = {start_error:g}",
            mi_nats=mi_nats,
            predicted=_bound_ratio(start_error, gradient_var, mi_nats),
            measured=None,
            place=gradient_var,
        )
        for start_error in START_ERRORS
        for mi_nats in AXIS_BUDGETS
        for gradient_var in VARIANCES
    ]
    return [*figure_3, *figure_4]


def _bound_ratio(start_error: float, gradient_var: float, mi_nats: float) -> float:
    """Return the bound with the conscious step over that with the post-hoc one; μ = L = 1."""
    problem: dict[str, Any] = {
        "start_error": start_error,
        "gradient_var": gradient_var,
        "convexity": 1.0,
        "n_steps": N_STEPS,
    }
    ratio = noise_ratio(mi_nats, n_steps=N_STEPS)
    conscious, post_hoc = (
        descent_bound(descent_step(**problem, ratio=aim, largest=1.0), **problem, ratio=ratio)
        for aim in (ratio, 0.0)
    )
    return float(conscious / post_hoc)


def _ridge(n_subsets: int, seed: int) -> list[GainRow]:
    split = load_regression("wine_white")
    n, d = split.Z.shape
    gram = np.square(split.Z).sum(axis=0)
    truth = split.Z.T @ split.target / gram
    residuals = split.target - split.Z @ truth
    noise_var = float(residuals @ residuals) / (n - d - 1)
    quality = 0.5 * gram * np.square(truth) / noise_var
    order = np.argsort(quality)
    sums = fit_poisson(
        split.Z, split.target, n_subsets=n_subsets, rng=public_generator(seed, "gain")
    )
    rows = []
    for j in (order[-1], order[d // 2], order[1]):
        for mi_nats in BUDGETS:
            errors = [_errors(sums, split, truth, (mi_nats, aim)) for aim in (mi_nats, None)]
            ratio = noise_ratio(mi_nats, n_dimensions=d)
            rows.append(
                GainRow(
                    kind="ridge",
                    case=f"ridge, Q = {quality[j]:.0f}",
                    mi_nats=mi_nats,
                    predicted=float(ridge_error_ratio(quality[j], ratio=ratio)),
                    measured=float(errors[0][j] / errors[1][j]),
                )
            )
    return rows


def _errors(
    sums: PoissonSums, split: RegressionSplit, truth: Vector, budgets: tuple[float, float | None]
) -> Vector:
    """Return every coefficient's error at a budget, with the penalty for another one."""
    mi_nats, aim = budgets
    fits = sums.fits(ridge_penalty_per_coordinate(RidgePenalty(mi_nats=aim), split.Z, split.target))
    ratio = noise_ratio(mi_nats, n_dimensions=fits.shape[1])
    return released_error(fits.mean(axis=0) - truth, fits.var(axis=0), ratio=ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The section on predicted gains."""

    name: str = "gain"
    title: str = "Predicted gains"
    covers: str = "Figures 3 and 4; no points are printed"
    notes: tuple[str, ...] = (
        "Ridge: error of one released coefficient, conscious over post-hoc penalty. Q is the "
        "coordinate's signal to noise, on white wine: the strongest, a middle and a weak one. "
        "Lines by formula, circles from fits on Poisson subsets. The formula is about fresh data; "
        "given the universe a half varies about half as much, so that up to half of the "
        "predicted gain is lost.",
        "Figure 4: the bound on the error of the last weights with the conscious over the post-hoc "
        "step size; 50 steps, convexity and smoothness 1.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        return (
            Job(name="gains", function=gain_rows, options={"seed": settings.seed}, kind=GainRow),
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        _write_axes(page, rows, stem)
        rows = [row for row in rows if not row.place]
        ticks = [(mi, as_budget(mi)) for mi in BUDGETS[::3]]
        picture = draw_panels(
            stem.with_suffix(".png"),
            [_panel(rows)],
            title="What conscious design is predicted to win",
            xlabel="budget, nats",
            ticks=ticks,
        )
        page.image(picture, "predicted and measured ratios against the budget")
        cases = list(dict.fromkeys(row.case for row in rows))
        cells = {(row.case, row.mi_nats): row for row in rows}
        page.table(
            ["budget, nats", *cases],
            [[as_budget(mi), *[_cell(cells[case, mi]) for case in cases]] for mi in BUDGETS[::2]],
        )

    def compare(self, rows: Sequence[GainRow]) -> tuple[Comparison, ...]:
        gains = {(row.kind, row.case, row.mi_nats, row.place): 1 / row.predicted for row in rows}
        figure_3 = [
            Cell(
                name=f"1/16, Q = {quality:g}",
                printed=1 / 0.6,
                ours=gains["Figure 3", "one coordinate", 1 / 16, quality],
                relation=">=",
            )
            for quality in (8.0, 1.0, 1 / 64)
        ]
        figure_3.append(
            Cell(
                name="1/1024, Q = 10",
                printed=40,
                ours=1 / float(ridge_error_ratio(10.0, ratio=noise_ratio(1 / 1024))),
                relation=">=",
            )
        )
        figure_4 = [
            Cell(
                name=f"1/64, e0² = 1, variance {place:g}",
                printed=100,
                ours=gains["Figure 4", "e0² = 1", 1 / 64, place],
                relation=">=",
            )
            for place in VARIANCES
            if place >= 1
        ]
        least = min(gain for key, gain in gains.items() if key[0] == "Figure 4")
        figure_4.append(Cell(name="anywhere", printed=2.7, ours=least, relation=">="))
        return tuple(
            Comparison(
                section=self.name,
                item=f"{figure}, text",
                trials="formula",
                cells=tuple(cells),
                reason=REASONS[figure],
            )
            for figure, cells in (("Figure 3", figure_3), ("Figure 4", figure_4))
        )


def _write_axes(page: Page, rows: Sequence[GainRow], stem: Path) -> None:
    """Draw Figures 3 and 4 over their own axes."""
    for kind, xlabel, places in (
        ("Figure 3", "Q, signal to noise of the coordinate", QUALITIES),
        ("Figure 4", "variance of the gradient", VARIANCES),
    ):
        of_kind = [row for row in rows if row.kind == kind]
        panels = [
            Panel(
                title=f"{kind}, {case}",
                ylabel="conscious / post-hoc",
                lines=tuple(
                    Line.of(
                        f"{as_budget(mi)} nats",
                        style,
                        [row for row in of_kind if (row.case, row.mi_nats) == (case, mi)],
                        "predicted",
                        x="place",
                    )
                    for mi, style in zip(AXIS_BUDGETS, AXIS_STYLES, strict=True)
                ),
                log_y=True,
            )
            for case in dict.fromkeys(row.case for row in of_kind)
        ]
        path = stem.with_name(f"{stem.name}_{kind.lower().replace(' ', '_')}")
        drawn = draw_panels(
            path.with_suffix(".png"),
            panels,
            title=f"{kind}: error, or its bound, of conscious over post-hoc design",
            xlabel=xlabel,
            ticks=[(place, as_budget(place)) for place in places[::2]],
        )
        page.image(drawn, f"{kind} over its own axis")


def _panel(rows: Sequence[GainRow]) -> Panel:
    lines = []
    for style, case in zip(STYLES, dict.fromkeys(row.case for row in rows), strict=True):
        chosen = [row for row in rows if row.case == case]
        lines.append(Line.of(case, style, chosen, "predicted"))
        circle = Style(colour=style.colour, line="none", hollow=True)
        lines.append(Line.of(f"{case}, measured", circle, chosen, "measured"))
    return Panel(
        title="Ridge, white wine",
        ylabel="error, conscious / post-hoc",
        lines=tuple(lines),
        log_y=True,
    )


def _cell(row: GainRow) -> str:
    text = as_number(row.predicted)
    return text if row.measured is None else f"{text} (measured {as_number(row.measured)})"


SECTION: Final = Gain()
