"""Error bounds of private descent beside the measured error, for a loss that is not quadratic.

One step size for all coordinates, as the bounds ask for (claim D-3). Fresh secrets, closed-form
variances, a normal variable in place of a subset's mean. A simulation on public data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._random import public_generator
from pacprivacy.design.descent import descent_step, subset_gradient_variance
from pacprivacy.design.ridge import noise_ratio
from papers.charts import Line, Panel, Style, draw_panels
from papers.design.data import load_binary
from papers.design.descent import N_STEPS
from papers.design.formulas import contraction_bound, descent_bound
from papers.design.tables import DESIGN_BUDGETS, MODES, Mode
from papers.page import Page, as_budget, as_number, write_csv
from papers.run import Job, Settings

LOOKS: Final = {
    "bound": ("bound J, largest variance met", Style(colour="#D55E00", marker="s", line="--")),
    "sharp": ("sharp bound, variances met", Style(colour="#0072B2", marker="D", line="-.")),
    "error": ("measured", Style(colour="#009E73", marker="o")),
    "predicted": (
        "J, variance at the start: no bound",
        Style(colour="#CC79A7", marker="v", line=":", hollow=True),
    ),
}
N_TRIALS: Final = 200  # at most: the error of one training is already near the mean


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    """Squared distance of the last weights from the optimum: measured, and bounded.

    Attributes
    ----------
    step : float
        The step size.
    error, standard_error : float
        Mean over trainings, and its standard error.
    sharp : float
        Bound from the variances that the steps really had.
    bound : float
        ``J`` with the largest variance that any training met.
    predicted : float
        ``J`` with the variance at the start, which the step size was chosen by.
    """

    dataset: str
    mode: Mode
    mi_nats: float
    step: float
    error: float
    standard_error: float
    sharp: float
    bound: float
    predicted: float
    n_trials: int


def bound_rows(
    *,
    dataset: str = "mnist_0v7",
    mi_budgets: tuple[float, ...] = DESIGN_BUDGETS,
    n_trials: int = 64,
    seed: int = 0,
) -> list[BoundRow]:
    """Return measured errors and bounds, post-hoc and conscious, for every budget."""
    return [
        _row(dataset, mi_nats, mode, n_trials, seed) for mi_nats in mi_budgets for mode in MODES
    ]


def _row(dataset: str, mi_nats: float, mode: Mode, n_trials: int, seed: int) -> BoundRow:
    split = load_binary(dataset)
    objective, (n, d) = split.objective, split.X.shape
    best = objective.minimise(split.X, split.y)
    share = float(subset_gradient_variance(1.0, n))
    ratio = float(noise_ratio(mi_nats, n_dimensions=d, n_steps=N_STEPS))
    start_var = share * float(objective.gradient_spread(split.X, split.y, np.zeros(d)).sum())
    start_error, column = float(best @ best), split.y[:, None]
    step = float(
        descent_step(
            exact=True,
            start_error=start_error,
            gradient_var=start_var,
            convexity=objective.penalty,
            n_steps=N_STEPS,
            ratio=ratio if mode == "conscious" else 0.0,
            largest=1.0 / objective.smoothness(split.X),
        )
    )
    rng = public_generator(seed, f"bound {mode}", int(1 / mi_nats))
    weights, released, worst = np.zeros((d, n_trials)), np.empty(N_STEPS), 0.0
    for t in range(N_STEPS):
        total = (1.0 + ratio) * share * objective.gradient_spread(split.X, column, weights)
        gradient = objective.gradient(split.X, column, weights)
        noise = np.sqrt(total) * rng.standard_normal(total.shape)
        weights = weights - step * (gradient + noise)
        released[t] = total.sum(axis=0).mean()
        worst = max(worst, float(total.sum(axis=0).max()) / (1.0 + ratio))
    errors = np.square(weights - best[:, None]).sum(axis=0)

    def bound(gradient_var: float) -> float:
        return float(
            descent_bound(
                step,
                start_error=start_error,
                gradient_var=gradient_var,
                convexity=objective.penalty,
                n_steps=N_STEPS,
                ratio=ratio,
            )
        )

    sharp = contraction_bound(
        step, start_error=start_error, released_var=released, convexity=objective.penalty
    )
    return BoundRow(
        dataset=split.name,
        mode=mode,
        mi_nats=mi_nats,
        step=step,
        error=float(errors.mean()),
        standard_error=float(errors.std() / np.sqrt(n_trials)),
        sharp=float(sharp),
        bound=bound(worst),
        predicted=bound(start_var),
        n_trials=n_trials,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The section on error bounds."""

    name: str = "bound"
    title: str = "Error bounds of descent"
    covers: str = "Theorem 4, beside the measured error of a loss that is not quadratic"
    notes: tuple[str, ...] = (
        "Logistic loss, MNIST 0 or 7, fresh secrets, one step size for all coordinates as the "
        "theorem asks. Error is the squared distance of the last weights from the optimum.",
        "J needs one variance that holds at every step. The start's, which the step size is chosen "
        "by, is not a bound on later ones; the largest that any training met is.",
        "*Sharp* contracts the squared error by the square of the factor and takes each step's own "
        "variance.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one job for each budget."""
        n_trials = min(settings.n_trials, N_TRIALS)
        return tuple(
            Job(
                name=f"bounds, {mi_nats:g} nats",
                function=bound_rows,
                options={"mi_budgets": (mi_nats,), "n_trials": n_trials, "seed": settings.seed},
                kind=BoundRow,
            )
            for mi_nats in settings.mi_budgets
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plots, and put both on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        ordered = sorted(rows, key=lambda row: (row.mode, -row.mi_nats))
        modes = list(dict.fromkeys(row.mode for row in ordered))
        picture = draw_panels(
            stem.with_suffix(".png"),
            [_panel([row for row in ordered if row.mode == mode]) for mode in modes],
            title="Squared distance of the last weights from the optimum",
            xlabel="budget, nats",
            ticks=[(mi, as_budget(mi)) for mi in sorted({row.mi_nats for row in rows})],
        )
        page.image(picture, "measured error and its bounds against the budget")
        page.table(
            [
                "design",
                "budget, nats",
                "step size",
                "measured",
                "sharp bound",
                "J, largest variance met",
                "J, variance at the start",
            ],
            [_cells(row) for row in ordered],
        )


def _panel(rows: Sequence[BoundRow]) -> Panel:
    lines = tuple(Line.of(label, style, rows, field) for field, (label, style) in LOOKS.items())
    return Panel(title=f"{rows[0].mode} step", ylabel="squared error", lines=lines, log_y=True)


def _cells(row: BoundRow) -> list[str]:
    return [
        row.mode,
        as_budget(row.mi_nats),
        as_number(row.step, 4),
        f"{as_number(row.error)} ± {row.standard_error:.1g}",
        as_number(row.sharp),
        as_number(row.bound),
        as_number(row.predicted),
    ]


SECTION: Final = Bound()
