"""The section on one secret throughout a descent: Figure 7 of [DESIGN], with the attackers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from papers.charts import Line, Panel, Style, draw_panels
from papers.design.secret import SecretRow, secret_row
from papers.page import Page, as_budget, as_number, as_percent, write_csv
from papers.run import Job, Settings

__all__ = ["SECTION", "SameSecret"]

N_TRIALS: Final = 200  # in a full run; benchmarks/noise/same_secret.py has a thousand
N_TRIALS_QUICK: Final = 8
LEAST_SPAN: Final = 0.04  # twice the difference in accuracy that would matter
ACCURACIES: Final = {
    "accuracy": ("one secret throughout", Style(colour="#009E73", marker="o")),
    "fresh_accuracy": ("fresh secrets", Style(colour="#D55E00", marker="s", line="--")),
}
SUCCESSES: Final = {
    "membership_bound": ("membership, bound", Style(colour="#0072B2", marker="", line=":")),
    "worst_membership": ("worst record", Style(colour="#0072B2", marker="v", line="-.")),
    "membership": ("membership, measured", Style(colour="#0072B2", marker="D")),
    "named_bound": ("naming the subset, bound", Style(colour="#CC79A7", marker="", line=":")),
    "named": ("naming the subset, measured", Style(colour="#CC79A7", marker="^")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SameSecret:
    """The section on one secret throughout."""

    name: str = "secret"
    title: str = "One secret throughout the descent"
    covers: str = "Figure 7: the same secret against fresh ones, MNIST 0 or 7, 50 steps"
    notes: tuple[str, ...] = (
        "One secret half of 128 for all steps and coordinates, noise calibrated to what the "
        "attacker believes by then; against a fresh secret for every step and coordinate at the "
        "same total. Conscious steps in both.",
        "The attackers know the pool and all releases and compute the exact posterior: they name "
        "the most probable subset, or guess each record's membership. No other attack does better.",
        "*Worst record* is the mean posterior success on the record where it is highest, taken "
        "after the fact over few trainings, so that it is a little too high.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one job for each budget."""
        n_trials = min(settings.n_trials, N_TRIALS_QUICK if quick else N_TRIALS)
        return tuple(
            Job(
                name=f"one secret, {mi_nats:g} nats",
                function=_rows,
                arguments=(mi_nats, n_trials, settings.seed),
                kind=SecretRow,
            )
            for mi_nats in settings.mi_budgets
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plots, and put both on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        ordered = sorted(rows, key=lambda row: float(row.mi_nats))
        picture = draw_panels(
            stem.with_suffix(".png"),
            [
                _panel("Accuracy", "accuracy on test rows", ordered, ACCURACIES),
                _panel("Attackers", "success rate", ordered, SUCCESSES),
            ],
            title=self.title,
            xlabel="budget of the whole training, nats",
            ticks=[(row.mi_nats, as_budget(row.mi_nats)) for row in ordered],
        )
        page.image(picture, "accuracy with one secret and with fresh ones, and attackers")
        page.table(
            [
                "budget, nats",
                "one secret",
                "fresh secrets",
                "membership",
                "worst record",
                "bound",
                "naming the subset",
                "bound",
                "trainings",
            ],
            [_cells(row) for row in reversed(ordered)],
        )


def _rows(mi_nats: float, n_trials: int, seed: int) -> list[SecretRow]:
    return [secret_row(mi_nats=mi_nats, n_trials=n_trials, seed=seed)]


def _panel(
    title: str, ylabel: str, rows: Sequence[SecretRow], fields: dict[str, tuple[str, Style]]
) -> Panel:
    x = tuple(row.mi_nats for row in rows)
    lines = tuple(
        Line(label=label, style=style, x=x, y=tuple(getattr(row, field) for row in rows))
        for field, (label, style) in fields.items()
    )
    return Panel(title=title, ylabel=ylabel, lines=lines, least_span=LEAST_SPAN)


def _cells(row: SecretRow) -> list[str]:
    return [
        as_budget(row.mi_nats),
        f"{as_number(row.accuracy, 4)} ± {row.standard_error:.1g}",
        f"{as_number(row.fresh_accuracy, 4)} ± {row.fresh_standard_error:.1g}",
        as_percent(row.membership),
        as_percent(row.worst_membership),
        as_percent(row.membership_bound),
        as_percent(row.named),
        as_percent(row.named_bound),
        str(row.n_trials),
    ]


SECTION: Final = SameSecret()
