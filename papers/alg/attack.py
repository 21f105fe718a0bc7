"""The attack of [ALG] on Iris: what it achieves, beside what a budget allows.

Figure 11 is LiRA as section 8.1 has it: a confidence for each released model and record, the share
of models *without* the record that are at least as confident, and the threshold on that share that
is best in hindsight. With 250 trials the best of 21 thresholds is ahead of a coin by chance alone;
:func:`lira_rows` follows that protocol many times over and returns the mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.mechanism import KMeans
from pacprivacy.noise.plan import proportional
from pacprivacy.sample import Half
from pacprivacy.simulation import run_mechanism
from pacprivacy.theory import posterior_success
from papers.agreement import Cell, Comparison
from papers.alg.models import TASKS
from papers.alg.protocol import Task, load_split
from papers.charts import BUDGET_LABEL, INK, Line, Panel, Style, budget_ticks, draw_panels
from papers.page import Page, as_budget, write_csv
from papers.run import Job, Settings

LIRA_TASKS: Final = ("iris_kmeans", "iris_svm", "iris_svm_printed")
LIRA_BUDGETS: Final = tuple(2.0**power for power in range(-6, 3))
LIRA_TRIALS: Final = 250
LIRA_REPEATS: Final = 40
LIRA_ERROR: Final = 100 * 0.5 * (0.5 / LIRA_TRIALS) ** 0.5  # of one run of 250 trials, percent
THRESHOLDS: Final = np.linspace(0.0, 1.0, 21)
# Section 8.1 and the caption: percent above one half, over all budgets where none is named.
PRINTED_LIRA: Final = (
    ("iris_kmeans", None, 9.7),
    ("iris_kmeans", 0.0, 2.7),
    ("iris_kmeans", 1 / 64, 1.7),
    ("iris_svm", None, 3.0),
)
Mask = npt.NDArray[np.bool_]
STYLES: Final = (
    Style(colour="#D55E00", marker="s"),
    Style(colour="#0072B2", marker="D", line="-."),
    Style(colour="#009E73", marker="o"),
)
PROMISED: Final = Style(colour=INK, marker="none", line=":")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiraRow:
    """LiRA on one model and budget: its mean advantage over 250 trials, beside the bound.

    ``mi_nats`` is infinite where models are released without noise. ``by_chance`` is the advantage
    that the same protocol finds where the releases tell nothing.
    """

    task: str
    mi_nats: float
    advantage: float
    by_chance: float
    bound: float
    n_halves: int
    n_repeats: int


def kmeans_confidence(centres: Matrix, X: Matrix) -> Matrix:
    """Return φ = 1 - d for releases of shape (N, k p), as one number for each row of X.

    d is the distance to the nearest centre over the sum of the distances to all of them. With
    ``functools.partial(kmeans_confidence, X=X)`` it serves ``audit.LikelihoodRatio(confidence=)``.
    """
    points = centres.reshape(len(centres), -1, X.shape[1])
    distances = np.linalg.norm(points[:, None] - X[:, None], axis=3)
    shares: Matrix = 1.0 - distances.min(axis=2) / distances.sum(axis=2)
    return shares


def svm_confidence(weights: Matrix, X: Matrix) -> Matrix:
    """Return φ = max over classes of 1/(1 + exp(-d)), d the signed distance to the hyperplane.

    ``weights`` holds the coefficients of all classes and then their intercepts, one release a row.
    """
    n_classes = weights.shape[1] // (X.shape[1] + 1)
    normals = weights[:, : n_classes * X.shape[1]].reshape(len(weights), n_classes, -1)
    scores = np.einsum("nkp,xp->nxk", normals, X) + weights[:, None, -n_classes:]
    largest: Matrix = expit(scores / np.linalg.norm(normals, axis=2)[:, None]).max(axis=2)
    return largest


def lira_rows(task: Task, settings: Settings) -> Iterator[LiraRow]:
    """Follow the paper: without noise, and with the noise of Algorithm 1 at every budget."""
    split = load_split(task.dataset, task.transformer)
    rng = public_generator(settings.seed, f"{task.name} lira")
    halves = Half(n_subsets=settings.n_halves, every_class=True)
    pool = halves.draw(len(split.y_train), rng=rng, strata=split.y_train)
    values = run_mechanism(
        task.paper, task.data(split), pool, rng=settings.seed, n_jobs=1, progress=False
    ).values
    members = pool.masks()
    confidence = kmeans_confidence if isinstance(task.paper, KMeans) else svm_confidence
    nothing = _lira(rng.standard_normal(members.shape), members, rng)
    for mi_nats in (np.inf, *LIRA_BUDGETS):
        noise_var = proportional(values.var(axis=0), mi_nats=mi_nats) if mi_nats < np.inf else 0.0
        noisy = values + np.sqrt(noise_var) * rng.standard_normal(values.shape)
        yield LiraRow(
            task=task.name,
            mi_nats=mi_nats,
            advantage=_lira(confidence(noisy, split.X_train), members, rng),
            by_chance=nothing,
            bound=(posterior_success(mi_nats) if mi_nats < np.inf else 1.0) - 0.5,
            n_halves=settings.n_halves,
            n_repeats=LIRA_REPEATS,
        )


def _lira(scores: Matrix, members: Mask, rng: np.random.Generator) -> float:
    """Return the mean advantage of the best threshold over :data:`LIRA_TRIALS` trials.

    A trial picks a record, a model with it and one without; half of the models without it are the
    reference of the record.
    """
    ranks_in, ranks_out = [], []
    for unit in range(scores.shape[1]):
        outside = np.flatnonzero(~members[:, unit])
        reference, others = np.array_split(outside, 2)
        known = np.sort(scores[reference, unit])
        ranks_in.append(_share_above(known, scores[members[:, unit], unit]))
        ranks_out.append(_share_above(known, scores[others, unit]))
    advantages = []
    for _ in range(LIRA_REPEATS):
        units = rng.integers(scores.shape[1], size=LIRA_TRIALS)
        with_it = np.array([rng.choice(ranks_in[unit]) for unit in units])
        without = np.array([rng.choice(ranks_out[unit]) for unit in units])
        right = (with_it[:, None] < THRESHOLDS).mean(axis=0)
        wrong = (without[:, None] < THRESHOLDS).mean(axis=0)
        advantages.append(0.5 * float((right - wrong).max()))
    return float(np.mean(advantages))


def _share_above(known: Vector, scores: Vector) -> Vector:
    """Return which share of the sorted ``known`` is at least as large as each score."""
    share: Vector = 1.0 - np.searchsorted(known, scores, side="left") / len(known)
    return share


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """The section on the attack."""

    name: str = "attack"
    title: str = "Attack"
    covers: str = "Figure 11 and section 8.1, Iris"
    notes: tuple[str, ...] = (
        "*LiRA as published*: φ = 1 - d for k-means, the logistic function of the distance for an "
        "SVM; no noise, and the paper's noise at every budget. The threshold is the best "
        "of 21 afterwards, over 250 trials, which is ahead of a coin by chance: see that column.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        return tuple(
            Job(
                name=f"{TASKS[name].title}, LiRA",
                function=lira_rows,
                arguments=(TASKS[name], settings),
            )
            for name in (LIRA_TASKS[:1] if quick else LIRA_TASKS)
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.task for row in rows))
        known = [row for row in rows if row.mi_nats < np.inf]
        lines = [
            Line.of(
                TASKS[name].title, style, [row for row in known if row.task == name], "advantage"
            )
            for name, style in zip(names, STYLES, strict=False)
        ]
        first = [row for row in known if row.task == names[0]]
        lines.append(Line.of("promised at most", PROMISED, first, "bound"))
        picture = draw_panels(
            stem.with_suffix(".png"),
            [Panel(title="", ylabel="ahead of a coin, %", lines=tuple(lines), percent=True)],
            title="LiRA as published",
            xlabel=BUDGET_LABEL,
            ticks=budget_ticks(LIRA_BUDGETS),
        )
        page.image(picture, "advantage of LiRA against the budget, beside what is promised")
        _write_table(page, rows)

    def compare(self, rows: Sequence[Any]) -> tuple[Comparison, ...]:
        cells = []
        for task, mi_nats, printed in PRINTED_LIRA:
            of_task = [row for row in rows if row.task == task]
            if mi_nats is None:
                chosen, what = [row for row in of_task if row.mi_nats == np.inf], "no noise"
            elif mi_nats == 0.0:
                chosen, what = [row for row in of_task if row.mi_nats < np.inf], "mean over budgets"
            else:
                chosen, what = (
                    [row for row in of_task if row.mi_nats == mi_nats],
                    as_budget(mi_nats),
                )
            if chosen:
                ours = 100 * float(np.mean([row.advantage for row in chosen]))
                name = f"{TASKS[task].title}, {what}, percent"
                cells.append(Cell(name=name, printed=printed, ours=ours, spread=LIRA_ERROR))
        if not cells:
            return ()
        return (
            Comparison(
                section=self.name,
                item="Figure 11, text",
                trials=f"{rows[0].n_halves} halves, {LIRA_REPEATS} times 250 trials",
                cells=tuple(cells),
                reason="one run of 250 trials is printed, and which records it drew is not known",
            ),
        )


def _write_table(page: Page, rows: Sequence[LiraRow]) -> None:
    budgets = list(dict.fromkeys(row.mi_nats for row in rows))
    names = list(dict.fromkeys(row.task for row in rows))
    cells = {(row.task, row.mi_nats): row for row in rows}
    page.table(
        ["budget, nats", "advantage at most", "by chance", *[TASKS[name].title for name in names]],
        [
            [
                "no noise" if mi == np.inf else as_budget(mi),
                f"{100 * cells[names[0], mi].bound:.1f} %",
                f"{100 * cells[names[0], mi].by_chance:.1f} %",
                *[f"{100 * cells[name, mi].advantage:.1f} %" for name in names],
            ]
            for mi in budgets
        ],
    )


SECTION: Final = Attack()
