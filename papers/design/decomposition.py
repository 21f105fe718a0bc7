"""Figures 1 and 2 of [DESIGN] as live plots: bias, variance and privacy of a real ridge.

All fits of white wine at many penalties; the parts of the error of the released coefficients by
the decomposition, beside the error of simulated releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._random import public_generator
from pacprivacy.design import RidgePenalty
from pacprivacy.design.ridge import noise_ratio, ridge_penalty_per_coordinate
from papers.charts import Line, Panel, Style, draw_panels
from papers.design.data import NAMES, load_regression
from papers.design.formulas import released_error
from papers.design.ridge import PoissonSums, fit_poisson
from papers.page import Page, as_budget, as_number, write_csv
from papers.run import Job, Settings

DATASET: Final = "wine_white"
MULTIPLES: Final = tuple(2.0**power for power in range(-2, 15))
TICKS: Final = [(4.0**power, f"{4.0**power:g}") for power in range(-1, 8, 2)]
PARTS: Final = {
    "bias": ("bias²", Style(colour="#0072B2", marker="", line="--")),
    "variance": ("variance over subsets", Style(colour="#E69F00", marker="", line="-.")),
    "noise": ("noise for privacy", Style(colour="#D55E00", marker="", line=":")),
    "total": ("sum of the three", Style(colour="#009E73", marker="")),
}
MEASURED: Final = Style(colour="#333333", marker="o", line="none", hollow=True)
CHOSEN: Final = Style(colour="#333333", marker="*", line="none")
SHADES: Final = ("#9ECAE1", "#6BAED6", "#4292C6", "#2171B5", "#08306B")  # less budget, darker


@dataclass(frozen=True, slots=True, kw_only=True)
class DecompositionRow:
    """Squared error of released ridge coefficients at one penalty, all coordinates together.

    ``multiple`` is the penalty over the one that is best without privacy, ``chosen`` the multiple
    of the formula: ``1 + d/2B``. ``total`` is the sum of bias squared, variance and noise,
    ``measured`` the error of simulated releases.
    """

    dataset: str
    mi_nats: float
    multiple: float
    bias: float
    variance: float
    noise: float
    total: float
    measured: float
    standard_error: float
    chosen: float


def decomposition_rows(
    mi_budgets: tuple[float, ...], *, n_subsets: int = 1024, n_releases: int = 1000, seed: int = 0
) -> list[DecompositionRow]:
    """Return every budget and penalty."""
    split = load_regression(DATASET)
    rng = public_generator(seed, "decomposition")
    sums = fit_poisson(split.Z, split.target, n_subsets=n_subsets, rng=rng)
    truth = split.Z.T @ split.target / np.square(split.Z).sum(axis=0)
    plain = ridge_penalty_per_coordinate(RidgePenalty(), split.Z, split.target)
    return [
        _row(sums, truth, multiple * plain, (mi_nats, multiple), n_releases, rng)
        for mi_nats in mi_budgets
        for multiple in MULTIPLES
    ]


def _row(
    sums: PoissonSums,
    truth: Any,
    penalty: Any,
    place: tuple[float, float],
    n_releases: int,
    rng: np.random.Generator,
) -> DecompositionRow:
    mi_nats, multiple = place
    fits = sums.fits(penalty)
    d = fits.shape[1]
    ratio = float(noise_ratio(mi_nats, n_dimensions=d))
    bias, variance = fits.mean(axis=0) - truth, fits.var(axis=0)
    secrets = rng.integers(len(fits), size=(n_releases, d))
    noise = np.sqrt(ratio * variance) * rng.standard_normal((n_releases, d))
    errors = np.square(fits[secrets, np.arange(d)] + noise - truth).sum(axis=1)
    return DecompositionRow(
        dataset=DATASET,
        mi_nats=mi_nats,
        multiple=multiple,
        bias=float(np.square(bias).sum()),
        variance=float(variance.sum()),
        noise=float(ratio * variance.sum()),
        total=float(released_error(bias, variance, ratio=ratio).sum()),
        measured=float(errors.mean()),
        standard_error=float(errors.std() / np.sqrt(n_releases)),
        chosen=1.0 + ratio,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """The section on bias, variance and privacy."""

    name: str = "decomposition"
    title: str = "Bias, variance and privacy"
    covers: str = "Figures 1 and 2, as measurements on a real mechanism"
    notes: tuple[str, ...] = (
        "Ridge coefficients of white wine in independent components; error is the squared "
        "distance of a released coefficient vector from the fit on all training rows.",
        "Without privacy the least error is at a penalty of 1 on this axis. Noise is d/2B times "
        "the variance, so that a smaller budget wants a larger penalty: the stars are what the "
        "formula chooses, 1 + d/2B.",
        "Circles are errors of simulated releases; the lines come from means and variances over "
        "subsets alone.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        return (
            Job(
                name="decomposition",
                function=decomposition_rows,
                arguments=(settings.mi_budgets,),
                options={"n_releases": settings.n_releases, "seed": settings.seed},
                kind=DecompositionRow,
            ),
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        budgets = sorted({row.mi_nats for row in rows}, reverse=True)
        shown = [budgets[0], budgets[len(budgets) // 2]] if len(budgets) > 1 else budgets
        panels = [_parts([row for row in rows if row.mi_nats == mi]) for mi in shown]
        picture = draw_panels(
            stem.with_suffix(".png"),
            [*panels, _totals(rows, budgets)],
            title=f"{NAMES[DATASET]}, ridge: error of the released coefficients",
            xlabel="penalty, as a multiple of the best one without privacy",
            ticks=TICKS,
        )
        page.image(picture, "parts of the error against the penalty")
        page.table(
            ["budget, nats", "chosen by formula", "error there", "best on the grid", "error there"],
            [_best([row for row in rows if row.mi_nats == mi]) for mi in budgets],
        )


def _parts(rows: Sequence[DecompositionRow]) -> Panel:
    lines = [
        Line.of(label, style, rows, part, x="multiple") for part, (label, style) in PARTS.items()
    ]
    lines.append(Line.of("simulated releases", MEASURED, rows, "measured", x="multiple"))
    title = f"parts at {as_budget(rows[0].mi_nats)} nats"
    return Panel(title=title, ylabel="squared error", lines=tuple(lines), log_y=True)


def _totals(rows: Sequence[DecompositionRow], budgets: Sequence[float]) -> Panel:
    lines = []
    for mi, colour in zip(budgets, SHADES[-len(budgets) :], strict=False):
        of_budget = [row for row in rows if row.mi_nats == mi]
        style = Style(colour=colour, marker="")
        lines.append(Line.of(f"sum, {as_budget(mi)} nats", style, of_budget, "total", x="multiple"))
        there = (_at_chosen(of_budget),)
        lines.append(
            Line(label="chosen by formula", style=CHOSEN, x=(of_budget[0].chosen,), y=there)
        )
    return Panel(title="sums", ylabel="squared error", lines=tuple(lines), log_y=True)


def _at_chosen(rows: Sequence[DecompositionRow]) -> float:
    """Return the error at the chosen penalty, between two points of the grid."""
    x, y = [row.multiple for row in rows], [row.total for row in rows]
    return float(np.exp(np.interp(np.log(rows[0].chosen), np.log(x), np.log(y))))


def _best(rows: Sequence[DecompositionRow]) -> list[str]:
    best = min(rows, key=lambda row: row.total)
    return [
        as_budget(rows[0].mi_nats),
        f"{rows[0].chosen:.4g}",
        as_number(_at_chosen(rows), 4),
        f"{best.multiple:g}",
        as_number(best.total, 4),
    ]


SECTION: Final = Decomposition()
