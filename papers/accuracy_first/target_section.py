"""The PAC counterpart of [AF] on the page of accuracy first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from papers.accuracy_first.targets import TASKS, TargetRow, measure_target
from papers.page import Page, as_percent, write_csv
from papers.run import Job, Settings

__all__ = ["TARGETS", "Targets"]

RUNS_PER_RELEASE: Final = 10
CONFIDENCES: Final = (0.99, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Releases that are refined until they are good enough, beside fixed budgets."""

    name: str = "pac"
    title: str = "The PAC counterpart"
    covers: str = "nothing of [AF]: ours, since ex-post loss exists for DP only"
    notes: tuple[str, ...] = (
        "Observations of growing precision about one secret half, until the released model is "
        "accurate enough on public rows; then judged on other rows. Noise by `waterfill`.",
        "The certificate promises the cap. *Spent* is what was charged when it stopped.",
        "*Fixed budget*: the least of a factor-two grid with 99 % of releases within a point.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one job per model and demand."""
        names = tuple(TASKS)[:1] if quick else tuple(TASKS)
        n_runs = RUNS_PER_RELEASE * settings.n_releases
        return tuple(
            Job(
                name=f"{name}, {confidence}",
                function=_measure,
                arguments=(name, confidence, n_runs),
            )
            for name in names
            for confidence in CONFIDENCES
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and put the table on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        page.table(
            [
                "model",
                "asked",
                "confidence",
                "runs",
                "reached",
                "within a point",
                "mean accuracy",
                "mean spent, nats",
                "most spent",
                "cap",
                "fixed budget",
            ],
            [_cells(row) for row in rows],
        )


def _measure(name: str, confidence: float | None, n_runs: int) -> list[TargetRow]:
    return [measure_target(name, n_runs=n_runs, confidence=confidence)]


def _cells(row: TargetRow) -> list[str]:
    return [
        row.task,
        as_percent(row.at_least),
        "of these rows only" if row.confidence is None else f"{row.confidence:g}",
        str(row.n_runs),
        as_percent(row.reached),
        as_percent(row.within_a_point),
        as_percent(row.mean_accuracy),
        f"{row.mean_spent:.4f}",
        f"{row.largest_spent:.4f}",
        f"{row.cap_nats:g}",
        "none" if row.fixed_nats is None else f"{row.fixed_nats:g}",
    ]


TARGETS: Final = Targets()
