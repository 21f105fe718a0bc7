"""The picture of the README: accuracy against guaranteed success, halves and folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from joblib import Parallel, delayed

from pacprivacy.errors import DataError
from papers.alg import models
from papers.alg.measure import Row, measure_ours
from papers.alg.protocol import DATASETS, Task, load_split
from papers.charts import INK, new_figure, soften
from papers.page import make_folder, write_csv
from papers.run import FULL, Job, Settings

TASKS: Final = ("dry_bean_svm", "rice_svm")
BUDGETS: Final = (1 / 256, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)
PICTURE: Final = replace(FULL, mi_budgets=BUDGETS, n_subsets=1000, n_folds=10, n_releases=1000)
TITLE: Final = "Accuracy at the same guaranteed membership success"
LOOKS: Final = {
    "risk folds": ("ours, all but a tenth", "#CC79A7", "v"),
    "risk": ("ours, halves", "#0072B2", "o"),
    "pool diagonal": ("paper's rule, halves", "#D55E00", "s"),
}


def reproduce(
    folder: Path,
    *,
    quick: bool,
    only: Sequence[str],
    n_jobs: int,
    report: Callable[[object], None],
) -> Path:
    """Draw the picture; ``pac reproduce`` calls this."""
    if quick or only:
        raise DataError("picture must be run without --quick and --only. Leave them out.")
    return draw_picture(folder, n_jobs=n_jobs)


def draw_picture(folder: Path, *, n_jobs: int = -1, settings: Settings = PICTURE) -> Path:
    """Measure and draw ``accuracy.png``, with its figures in ``accuracy.csv``.

    Parameters
    ----------
    folder : Path
        Where both files go.
    n_jobs : int
        Worker processes; results do not depend on it.
    settings : Settings
        How much work to do, and where slow outputs are kept.
    """
    make_folder(folder)
    tasks = [replace(models.TASKS[name], max_subsets=settings.n_subsets) for name in TASKS]
    jobs = [
        Job(name=task.title, function=measure_picture, arguments=(task, settings)) for task in tasks
    ]
    found = Parallel(n_jobs=n_jobs)(delayed(job.run)() for job in jobs)
    write_csv(folder / "accuracy.csv", [row for rows in found for row in rows])
    return draw_rows(folder / "accuracy.png", found)


def draw_rows(path: Path, panels: Sequence[Sequence[Row]]) -> Path:
    """Draw measured rows, one panel for each list."""
    figure = new_figure(9.6, 4.6)
    grid = figure.subplots(1, len(panels))
    for axes, rows in zip(grid, panels, strict=True):
        _draw(axes, rows)
    first = panels[0][0]
    figure.suptitle(TITLE, x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    figure.supxlabel(
        "guaranteed at most, %: the success of anyone who guesses whether a given record was used\n"
        f"Means of {first.n_releases} simulated releases, {first.n_subsets} candidates. The "
        "paper's rule bounds every other inference as well; ours bounds this one.",
        fontsize=9,
        color=INK,
    )
    grid[0].legend(loc="center right", frameon=False, fontsize=9.5, labelcolor=INK)
    figure.savefig(path)
    return path


def measure_picture(task: Task, settings: Settings) -> list[Row]:
    """Return the rows of one panel: the paper's rule and ``risk`` on halves, ``risk`` on folds."""
    split = load_split(task.dataset, task.transformer)
    return list(measure_ours(task, split, settings, rules=("pool diagonal", "risk", "risk folds")))


def _draw(axes: Any, rows: Sequence[Row]) -> None:
    for rule, (label, colour, marker) in LOOKS.items():
        chosen = [row for row in rows if row.rule == rule]
        axes.errorbar(
            [100 * row.success for row in chosen],
            [100 * row.utility for row in chosen],
            yerr=[100 * row.standard_error for row in chosen],
            color=colour,
            marker=marker,
            linewidth=2.0,
            markersize=6,
            label=label,
        )
    level = 100 * max(row.no_noise for row in rows)
    axes.axhline(level, color=INK, linestyle=":", linewidth=1.6, label="no noise")
    points = sorted({100 * row.success for row in rows})
    axes.set_xticks(points, [f"{point:.1f}" for point in points])
    axes.set_ylabel("accuracy on test rows, %", fontsize=9.5, color=INK)
    title = f"{DATASETS[rows[0].dataset]}, {rows[0].model}"
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    soften(axes)
