"""Accuracy-first PAC, many times: what it spends, and how well the released model does.

A universe, a public part that decides when to stop, and a separate test part. Secrets and noise
are seeded: nothing that is computed here protects anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import SimulatedSource, public_generator
from pacprivacy.adversary import Belief
from pacprivacy.budget import Information, Spent
from pacprivacy.mechanism import KMeans, LinearSVM
from pacprivacy.noise import calibrate
from pacprivacy.sample import Balanced, Pool
from pacprivacy.session import Accuracy
from pacprivacy.session.pool_secret import Calibration
from pacprivacy.session.refinement import FallingNoise, refinement_shares
from pacprivacy.simulation import Outputs, run_mechanism
from papers.datasets import Dataset, load_dry_bean, load_rice
from papers.page import Page, as_percent, write_csv
from papers.run import Job, Settings
from papers.simulate import simulate_pool

__all__ = ["SECTION", "TASKS", "WANTED", "TargetRow", "measure_target"]

TOLERANCE: Final = 0.01
WANTED: Final = 0.99
RULE: Final = "waterfill"
LEVELS: Final = 16
GRID: Final = tuple(2.0**k for k in range(-10, 6))
RUNS_PER_RELEASE: Final = 10
CONFIDENCES: Final = (0.99, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A model on a data set, and what is asked of it."""

    load: Callable[[], Dataset]
    mechanism: Callable[[Any], Any]
    at_least: float
    cap_nats: float
    universe: float = 0.4


TASKS: Final = {
    "rice k-means": Task(
        load=load_rice,
        mechanism=lambda classes: KMeans(order="labels", classes=classes),
        at_least=0.85,
        cap_nats=1.0,
    ),
    "dry bean svm": Task(
        load=load_dry_bean,
        mechanism=lambda classes: LinearSVM(C=0.001, classes=classes),
        at_least=0.75,
        cap_nats=4.0,
        universe=0.6,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """Accuracy-first runs of one task, beside fixed budgets."""

    task: str
    at_least: float
    cap_nats: float
    confidence: float | None
    n_runs: int
    reached: float
    within_a_point: float
    mean_accuracy: float
    mean_spent: float
    largest_spent: float
    mean_looks: float
    fixed_nats: float | None
    fixed_within: float | None
    accuracy_without_noise: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Setting:
    """Outputs of the pool, and how a vector does on the public and on the test part."""

    pool: Pool
    outputs: Outputs
    validate: Callable[[Vector], Vector]
    test: Callable[[Vector], Vector]


@cache
def _setting(name: str, n_subsets: int, seed: int) -> _Setting:
    task = TASKS[name]
    data = task.load()
    order = public_generator(seed, "split", 0).permutation(len(data.X))
    cuts = [int(task.universe * len(order)), int((1 + task.universe) / 2 * len(order))]
    mine, public, test = np.split(order, cuts)
    centre, width = data.X[public].mean(axis=0), data.X[public].std(axis=0)
    X, classes = (data.X - centre) / width, tuple(np.unique(data.y).tolist())
    pool = Balanced(n_subsets=n_subsets).draw(len(mine), rng=seed)
    outputs = run_mechanism(task.mechanism(classes), (X[mine], data.y[mine]), pool, rng=seed)

    def rows(part: Any) -> Callable[[Vector], Vector]:
        return lambda vector: _hits(outputs.restore(vector), X[part], data.y[part], classes)

    return _Setting(pool=pool, outputs=outputs, validate=rows(public), test=rows(test))


def _hits(value: Any, X: Matrix, y: Vector, classes: tuple[Any, ...]) -> Vector:
    """Return for every row whether its class is found: nearest centre, or largest score."""
    labels = np.asarray(classes)
    if isinstance(value, dict):
        scores = X @ np.asarray(value["coef"]).T + np.asarray(value["intercept"])
        found = labels[scores.argmax(axis=1)] if len(classes) > 2 else labels[scores[:, 0] > 0]
    else:
        squares = np.square(np.asarray(value)).sum(axis=1)
        found = labels[(squares - 2 * X @ np.asarray(value).T).argmin(axis=1)]
    hits: Vector = (found == y).astype(np.float64)
    return hits


def measure_target(
    name: str,
    *,
    n_runs: int = 1000,
    n_subsets: int = 128,
    confidence: float | None = 0.99,
    seed: int = 0,
) -> TargetRow:
    """Run accuracy-first releases of one task, and find the fixed budget that does as well.

    Parameters
    ----------
    name : str
        Key of ``TASKS``.
    n_runs, n_subsets
        Simulated runs, and candidates of the pool.
    confidence : float, optional
        As in :class:`pacprivacy.Accuracy`.
    seed : int
        Seed of everything.
    """
    task, setting = TASKS[name], _setting(name, n_subsets, seed)
    target = Accuracy(at_least=task.at_least, on=(), metric=setting.validate, confidence=confidence)
    runs = [_run(setting, task, target, seed, number) for number in range(n_runs)]
    spent, looks, accuracy, reached = (np.array(column) for column in zip(*runs, strict=True))
    fixed, share = _fixed_budget(setting, task, n_runs, seed)
    clean = np.mean([setting.test(row).mean() for row in setting.outputs.values[:16]])
    return TargetRow(
        task=name,
        at_least=task.at_least,
        cap_nats=task.cap_nats,
        confidence=confidence,
        n_runs=n_runs,
        reached=float(reached.mean()),
        within_a_point=float((accuracy >= task.at_least - TOLERANCE).mean()),
        mean_accuracy=float(accuracy.mean()),
        mean_spent=float(spent.mean()),
        largest_spent=float(spent.max()),
        mean_looks=float(looks.mean()),
        fixed_nats=fixed,
        fixed_within=share,
        accuracy_without_noise=float(clean),
    )


def _run(
    setting: _Setting, task: Task, target: Accuracy, seed: int, number: int
) -> tuple[float, int, float, bool]:
    """Return the spend, the looks, the test accuracy and whether the target was reached."""
    rng = public_generator(seed, "runs", number)
    source, values = SimulatedSource(rng), setting.outputs.values
    secret, belief = int(rng.integers(len(values))), Belief.uniform(len(values))
    share = Spent(mi_nats=task.cap_nats)
    steps, fractions = FallingNoise(values, share, rule=RULE), refinement_shares(share, LEVELS)
    steps.begin(Calibration(seed=seed, pool=setting.pool, log_belief=belief.log_p))
    spent, looks, enough, estimate = 0.0, 0, False, values[0]
    while looks < len(fractions) and not enough:
        room = fractions[looks] * task.cap_nats - spent
        plan = steps.plan(Information(room), Calibration(seed=seed, log_belief=belief.log_p))
        observation = plan.observe(secret, source)
        belief = belief.updated(plan.log_likelihood(observation))
        estimate, spent, looks = steps.add(plan, observation), spent + plan.mi_upper, looks + 1
        enough = target.look(estimate, n_looks=len(fractions)).enough
    return spent, looks, float(setting.test(estimate).mean()), enough


def _fixed_budget(
    setting: _Setting, task: Task, n_runs: int, seed: int
) -> tuple[float | None, float | None]:
    """Return the smallest budget of a factor-two grid that does as well, and how well."""
    for nats in GRID:
        plan = calibrate(setting.outputs, Information(nats), rule=RULE)
        released = simulate_pool(plan, n_runs, public_generator(seed, "fixed"))
        accuracy = np.array([setting.test(row).mean() for row in released])
        share = float((accuracy >= task.at_least - TOLERANCE).mean())
        if share >= WANTED:
            return nats, share
    return None, None


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
                function=measure_target,
                arguments=(name,),
                options={"confidence": confidence, "n_runs": n_runs},
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


SECTION: Final = Targets()
