"""The attacks of [ALG] on Iris: what they achieve, beside what the certificate promises.

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
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.audit import audit
from pacprivacy.mechanism import KMeans
from pacprivacy.noise.covariance import proportional
from pacprivacy.privatizing import privatize
from pacprivacy.sample import Balanced, Half
from pacprivacy.simulation import run_mechanism
from pacprivacy.theory import posterior_success
from papers.agreement import Cell, Comparison
from papers.alg.models import TASKS
from papers.alg.protocol import DATASETS, Task, load_split
from papers.charts import BUDGET_LABEL, INK, Line, Panel, Style, budget_ticks, draw_panels
from papers.page import Page, as_budget, as_percent, write_csv
from papers.run import Job, Settings
from papers.simulate import budget_of

__all__ = [
    "SECTION",
    "AttackRow",
    "LiraRow",
    "kmeans_confidence",
    "lira_rows",
    "measure_attacks",
    "svm_confidence",
]

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
ATTACKED: Final = ("iris_kmeans", "iris_svm", "iris_svm_regularised")
BUDGETS: Final = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
RULES: Final = {"diagonal": "paper's formula", "risk": "`risk`"}
ATTACKS: Final = {
    "likelihood_ratio": "likelihood-ratio attack",
    "bayes": "best possible attack",
}
STYLES: Final = {
    ("diagonal", "likelihood_ratio"): Style(colour="#E69F00", marker="^", line="--"),
    ("diagonal", "bayes"): Style(colour="#D55E00", marker="s"),
    ("risk", "likelihood_ratio"): Style(colour="#0072B2", marker="D", line="-."),
    ("risk", "bayes"): Style(colour="#009E73", marker="o"),
}
PROMISED: Final = Style(colour=INK, marker="none", line=":")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackRow:
    """One attack on simulated releases: its success, 99 % interval, and the promise."""

    task: str
    dataset: str
    model: str
    rule: str
    mi_nats: float
    attack: str
    success: float
    lower: float
    upper: float
    promised: float
    verdict: str
    n_trials: int
    n_subsets: int


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


def measure_attacks(
    task: Task, budgets: Sequence[float], n_trials: int, settings: Settings
) -> Iterator[AttackRow]:
    """Attack releases under the paper's formula and under ``risk``, on the same pool.

    The noise of the formula is certified here on a finite pool, for which its variances are
    exact; the promise is about the worst-placed record.
    """
    split = load_split(task.dataset, task.transformer)
    rng = public_generator(settings.seed, f"{task.name} attack pool")
    strategy = Balanced(n_subsets=settings.n_subsets, stratify=True)
    pool = strategy.draw(len(split.y_train), rng=rng, strata=split.y_train)
    for rule in RULES:
        for mi_nats in budgets:
            stream = public_generator(settings.seed, f"{task.name} attack", round(1e9 * mi_nats))
            seed = coerce_seed(stream)
            release = privatize(
                task.ours,
                task.data(split),
                budget_of(rule, mi_nats),
                sample=pool,
                rule=rule,
                rng=seed,
                simulate=True,
                progress=False,
            )
            for found in audit(release, attacks=list(ATTACKS), n_trials=n_trials, rng=seed):
                yield AttackRow(
                    task=task.name,
                    dataset=task.dataset,
                    model=task.model,
                    rule=rule,
                    mi_nats=mi_nats,
                    attack=found.attack,
                    success=found.success.value,
                    lower=found.success.lower,
                    upper=found.success.upper,
                    promised=min(posterior_success(mi_nats), found.bound),
                    verdict=found.verdict,
                    n_trials=found.n_trials,
                    n_subsets=settings.n_subsets,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacks:
    """The section on attacks."""

    name: str = "attack"
    title: str = "Attacks"
    covers: str = "Figure 11 and section 8.1, Iris"
    notes: tuple[str, ...] = (
        "*LiRA as published*: φ = 1 - d for k-means, the logistic function of the distance for an "
        "SVM; no noise, and the paper's noise at every budget. The threshold is the best "
        "of 21 afterwards, over 250 trials, which is ahead of a coin by chance: see that column.",
        "Attacks guess the membership of one record, the worst-placed one they find in training, "
        "from simulated releases with other secrets; both know the pool, the model and the noise.",
        "Points are rates over a finite number of releases: the table has their intervals, and "
        "only an interval that lies above the promise as a whole speaks against it. Staying below "
        "proves nothing; the certificate does.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one piece of work per model."""
        budgets = tuple(mi for mi in BUDGETS if mi in settings.mi_budgets)
        trials = 2000 if quick else 10_000
        return tuple(
            Job(
                name=f"{TASKS[name].title}, attacks",
                function=measure_attacks,
                arguments=(TASKS[name], budgets, trials, settings),
            )
            for name in (ATTACKED[:1] if quick else ATTACKED)
            if budgets
        ) + tuple(
            Job(
                name=f"{TASKS[name].title}, LiRA",
                function=lira_rows,
                arguments=(TASKS[name], settings),
            )
            for name in (LIRA_TASKS[:1] if quick else LIRA_TASKS)
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV files and the plot, and put them on the page."""
        published = [row for row in rows if isinstance(row, LiraRow)]
        rows = [row for row in rows if isinstance(row, AttackRow)]
        if published:
            write_csv(stem.with_name(f"{stem.name}_lira").with_suffix(".csv"), published)
            _write_lira(page, published)
        if not rows:
            return
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.task for row in rows))
        picture = draw_panels(
            stem.with_suffix(".png"),
            [_panel([row for row in rows if row.task == name]) for name in names],
            title="Attacks on one record's membership",
            xlabel=BUDGET_LABEL,
            ticks=budget_ticks(sorted({row.mi_nats for row in rows})),
        )
        page.image(picture, "success of attacks against the budget, beside what is promised")
        page.table(
            ["model", "noise", "budget, nats", "attack", "success", "99 % interval", "promised"],
            [_cells(row) for row in rows],
        )

    def compare(self, rows: Sequence[Any]) -> tuple[Comparison, ...]:
        """Return what the text and the caption say of Figure 11."""
        found = [row for row in rows if isinstance(row, LiraRow)]
        cells = []
        for task, mi_nats, printed in PRINTED_LIRA:
            own = [row for row in found if row.task == task]
            if mi_nats is None:
                chosen, what = [row for row in own if row.mi_nats == np.inf], "no noise"
            elif mi_nats == 0.0:
                chosen, what = [row for row in own if row.mi_nats < np.inf], "mean over budgets"
            else:
                chosen, what = [row for row in own if row.mi_nats == mi_nats], as_budget(mi_nats)
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
                trials=f"{found[0].n_halves} halves, {LIRA_REPEATS} times 250 trials",
                cells=tuple(cells),
                reason="one run of 250 trials is printed, and which records it drew is not known",
            ),
        )


def _write_lira(page: Page, rows: Sequence[LiraRow]) -> None:
    budgets = list(dict.fromkeys(row.mi_nats for row in rows))
    names = list(dict.fromkeys(row.task for row in rows))
    cells = {(row.task, row.mi_nats): row for row in rows}
    page.heading("LiRA as published", level=3)
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


def _panel(rows: Sequence[AttackRow]) -> Panel:
    lines = [
        Line.of(
            f"{ATTACKS[attack]}, {RULES[rule].strip('`')}",
            style,
            [row for row in rows if (row.rule, row.attack) == (rule, attack)],
            "success",
        )
        for (rule, attack), style in STYLES.items()
    ]
    budgets = tuple(sorted({row.mi_nats for row in rows}))
    bound = tuple(posterior_success(mi) for mi in budgets)
    lines.append(Line(label="promised at most", style=PROMISED, x=budgets, y=bound))
    title = f"{DATASETS[rows[0].dataset]}, {rows[0].model}"
    return Panel(title=title, ylabel="success, %", lines=tuple(lines), percent=True)


def _cells(row: AttackRow) -> list[str]:
    return [
        f"{DATASETS[row.dataset]}, {row.model}",
        RULES[row.rule],
        as_budget(row.mi_nats),
        ATTACKS[row.attack],
        f"{100 * row.success:.1f} %",
        f"{100 * row.lower:.1f} to {100 * row.upper:.1f}",
        as_percent(row.promised) + ("" if row.verdict == "holds" else " VIOLATED"),
    ]


SECTION: Final = Attacks()
