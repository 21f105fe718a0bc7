"""The picture of the README: accuracy against guaranteed success, the paper's rule and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from threadpoolctl import threadpool_limits

from pacprivacy.experiments import alg_kmeans, alg_svm
from pacprivacy.experiments.alg_protocol import DATASETS, Task, load_split
from pacprivacy.experiments.charts import INK, new_figure, soften
from pacprivacy.experiments.measure import FULL, Settings, measure_ours
from pacprivacy.experiments.page import make_folder, write_csv
from pacprivacy.experiments.rows import Row

__all__ = ["PICTURE", "draw_picture", "measure_picture"]

TASKS: Final = ("dry_bean_svm_regularised", "rice_kmeans")
BUDGETS: Final = (1 / 256, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)
PICTURE: Final = replace(FULL, mi_budgets=BUDGETS, n_releases=2000)
PAPER: Final = "#D55E00"
OURS: Final = "#0072B2"


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
    from joblib import Parallel, delayed

    make_folder(folder)
    tasks = [
        task
        for name in TASKS
        for task in (*alg_kmeans.FIGURE.tasks, *alg_svm.FIGURE.tasks)
        if task.name == name
    ]
    found = Parallel(n_jobs=n_jobs)(delayed(measure_picture)(task, settings) for task in tasks)
    write_csv(folder / "accuracy.csv", [row for rows in found for row in rows])
    figure = new_figure(9.6, 4.3)
    for axes, rows in zip(figure.subplots(1, len(found)), found, strict=True):
        _draw(axes, rows)
    subsets, releases = found[0][0].n_subsets, found[0][0].n_releases
    figure.suptitle(
        "The same promise, less noise", x=0.012, ha="left", fontsize=13, fontweight="bold"
    )
    figure.supxlabel(
        "guaranteed: nobody guesses whether a given record was used with more than this success\n"
        f"(mean of {releases} simulated releases; {subsets} candidate halves; shown: one standard "
        "error, mostly smaller than a marker)",
        fontsize=9,
        color=INK,
    )
    path = folder / "accuracy.png"
    figure.savefig(path)
    return path


def measure_picture(task: Task, settings: Settings) -> list[Row]:
    """Return the rows of one panel: the paper's rule and ``risk`` on the same pool."""
    split = load_split(task.dataset, task.transformer)
    with threadpool_limits(limits=1):
        return list(measure_ours(task, split, settings, rules=("pool diagonal", "risk")))


def _draw(axes: Any, rows: Sequence[Row]) -> None:
    level = 100 * rows[0].no_noise
    axes.axhline(level, color=INK, linestyle=":", linewidth=1.4)
    for rule, colour, marker in (("pool diagonal", PAPER, "s"), ("risk", OURS, "o")):
        chosen = [row for row in rows if row.rule == rule]
        axes.errorbar(
            [100 * row.success for row in chosen],
            [100 * row.utility for row in chosen],
            yerr=[100 * row.standard_error for row in chosen],
            color=colour,
            marker=marker,
            linewidth=2.0,
            markersize=6,
        )
    paper = [row for row in rows if row.rule == "pool diagonal"]
    ours = [row for row in rows if row.rule == "risk"]
    low = min(100 * row.utility for row in rows)
    span = level - low
    axes.set_ylim(low - 0.06 * span, level + 0.16 * span)
    _label(axes, "no noise, half the data", (84.0, level + 0.03 * span), INK, ha="right")
    middle = ours[len(ours) // 2]
    where = (100 * middle.success, 100 * middle.utility - 0.10 * span)
    _label(axes, "ours: risk", where, OURS, ha="center")
    middle = paper[len(paper) // 2]
    where = (100 * middle.success + 1.0, 100 * middle.utility - 0.12 * span)
    _label(axes, "paper's rule", where, PAPER, ha="left")
    axes.set_xticks([100 * row.success for row in ours], [_tick(row) for row in ours])
    axes.set_ylabel("accuracy on test rows, %", fontsize=9.5, color=INK)
    first = rows[0]
    axes.set_title(f"{DATASETS[first.dataset]}, {first.model}", loc="left", fontsize=11, color=INK)
    soften(axes)


def _tick(row: Row) -> str:
    return f"{100 * row.success:.1f}"


def _label(axes: Any, text: str, where: tuple[float, float], colour: str, *, ha: str) -> None:
    axes.text(*where, text, color=colour, fontsize=10, fontweight="bold", ha=ha, va="center")
