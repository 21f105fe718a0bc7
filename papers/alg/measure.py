"""Measure one task under the paper's protocol and under ours, on simulated releases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.mechanism import Forest
from pacprivacy.noise import calibrate
from pacprivacy.noise.plan import isotropic_max, proportional
from pacprivacy.sample import Balanced, Half, Pool, PoolStrategy
from pacprivacy.simulation import Outputs, run_mechanism
from pacprivacy.theory import posterior_success
from papers.alg.protocol import Metric, Model, Split, Task, load_split
from papers.published import Published
from papers.run import Settings
from papers.simulate import budget_of, simulate_fresh, simulate_pool

Rule = Literal[
    "diagonal",
    "isotropic_max",
    "bare diagonal",
    "bare isotropic_max",
    "pool diagonal",
    "exact",
    "risk",
    "risk folds",
]

_PAPER_FORMULAS: Final[dict[Rule, Callable[..., Vector]]] = {
    "diagonal": proportional,
    "isotropic_max": isotropic_max,
    "bare diagonal": proportional,
    "bare isotropic_max": isotropic_max,
}
_PUBLISHED_NOISE: Final = {"diagonal": "aniso", "isotropic_max": "iso"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What simulated releases of one model under one noise rule and budget are worth.

    Rules: ``diagonal`` and ``isotropic_max`` follow the paper's protocol: variances estimated on
    independent halves, releases of fresh halves. ``bare`` ones are as printed for forests, and
    unsound: leaf labels leave without noise. ``pool diagonal`` is the paper's formula on our pool,
    ``exact`` and ``risk`` are our rules on that pool; ``risk folds`` is ``risk`` on a pool whose
    subsets leave out a fold instead of a half.

    ``success`` bounds the guess of one record's membership: what the budget implies, or for
    ``risk`` what was asked for and proved. ``mi_upper_nats`` bounds the information; the paper's
    protocol proves nothing, and the budget stands there. ``no_noise`` is the same model without
    noise on the same subsets. The noise was calibrated on ``n_subsets``.
    """

    task: str
    dataset: str
    model: str
    metric: Metric
    rule: Rule
    mi_nats: float
    success: float
    mi_upper_nats: float
    utility: float
    standard_error: float
    no_noise: float
    noise_variance: float
    n_subsets: int
    n_releases: int
    published: float | None = None


def measure_task(task: Task, settings: Settings) -> list[Row]:
    """Return the rows of one task: the paper's protocol, then ours."""
    split = load_split(task.dataset, task.transformer)
    return [*measure_paper(task, split, settings), *measure_ours(task, split, settings)]


def measure_paper(task: Task, split: Split, settings: Settings) -> Iterator[Row]:
    """Follow the paper: estimated variances, float noise, every release on a fresh half.

    Nothing is proved about these releases; the bounds of the rows are what the budget would
    imply if the estimated variances were the true ones.
    """
    n_halves = min(settings.n_halves, task.max_halves)
    n_noises = max(1, min(settings.n_noises, task.max_releases // n_halves))
    halves = Half(n_subsets=n_halves, every_class=True)
    run = _Runner(task, split, settings)
    estimate = run.outputs(task.paper, halves, "estimate")[0].values
    fresh = run.outputs(task.paper, halves, "release")[0]
    for rule, formula in _PAPER_FORMULAS.items():
        values, n_bare = fresh.values, 0
        if rule.startswith("bare"):
            if not isinstance(task.paper, Forest):
                continue
            values, n_bare = _bare_labels(task.paper, fresh.values)
        spread = estimate.var(axis=0)
        spread[:n_bare] = 0.0
        no_noise = _scores(task, split, fresh, values).mean()
        for mi_nats in settings.mi_budgets:
            noise_var = formula(spread, mi_nats=mi_nats)
            noise_var[:n_bare] = 0.0
            rng = public_generator(settings.seed, f"{task.name} {rule}", _index(mi_nats))
            released = simulate_fresh(values, noise_var, n_noises, rng)
            # Noise draws on one half share that half: means over a half are independent.
            scores = _scores(task, split, fresh, released).reshape(n_halves, n_noises)
            yield _row(
                task,
                rule=rule,
                mi_nats=mi_nats,
                mi_upper_nats=mi_nats,
                scores=scores.mean(axis=1),
                no_noise=float(no_noise),
                noise_variance=float(noise_var.sum()),
                n_subsets=n_halves,
                n_releases=scores.size,
                published=_published(task, rule, mi_nats),
            )


def _bare_labels(forest: Forest, values: Matrix) -> tuple[Matrix, int]:
    """Let every leaf vote for one class, as published; return how many entries the leaves are."""
    n_classes, n_leaves = len(forest.classes or ()), forest.n_estimators * 2**forest.max_depth
    n_bare = n_leaves * n_classes
    scores = values[:, :n_bare].reshape(len(values), n_leaves, n_classes)
    votes = np.arange(n_classes) == scores.argmax(axis=2)[..., None]
    return np.hstack([votes.reshape(len(values), n_bare), values[:, n_bare:]]), n_bare


def run_paper_halves(
    task: Task, halves: Half, settings: Settings, *, stream: str = "estimate"
) -> Outputs:
    """Return the published model on halves: those that its variances are estimated from."""
    split = load_split(task.dataset, task.transformer)
    alone = replace(settings, checkpoints=None)  # the file may be in use by the task's own job
    return _Runner(task, split, alone).outputs(task.paper, halves, stream)[0]


def measure_ours(
    task: Task,
    split: Split,
    settings: Settings,
    *,
    rules: tuple[Rule, ...] = ("pool diagonal", "exact", "risk", "risk folds"),
) -> Iterator[Row]:
    """Release from balanced, stratified pools, certified; ``risk`` at the same success."""
    run, n_releases = _Runner(task, split, settings), min(settings.n_releases, task.max_releases)
    for folds, stream in ((2, "pool"), (settings.n_folds, f"pool-{settings.n_folds}-folds")):
        here = [rule for rule in rules if rule.endswith(" folds") == (folds > 2)]
        if not here:
            continue
        n_subsets = min(settings.n_subsets, task.max_subsets) // folds * folds
        strategy = Balanced(n_subsets=n_subsets, stratify=True, folds=folds)
        outputs, pool = run.outputs(task.ours, strategy, stream)
        no_noise = _scores(task, split, outputs, outputs.values).mean()
        for rule, mi_nats in itertools.product(here, settings.mi_budgets):
            used = rule.removeprefix("pool ").removesuffix(" folds")
            if used == "risk" and posterior_success(mi_nats) >= 1.0:
                continue  # every guess is allowed: there is nothing to calibrate to
            budget = budget_of(used, mi_nats)
            plan = calibrate(outputs.values, budget, rule=used, pool=pool, rng=settings.seed)
            rng = public_generator(settings.seed, f"{task.name} {rule}", _index(mi_nats))
            values = simulate_pool(plan, n_releases, rng)
            yield _row(
                task,
                rule=rule,
                mi_nats=mi_nats,
                mi_upper_nats=plan.mi_upper,
                scores=_scores(task, split, outputs, values),
                no_noise=float(no_noise),
                noise_variance=plan.total_variance,
                n_subsets=n_subsets,
                n_releases=n_releases,
            )


class _Runner:
    """Draws pools and runs models on them, each from its own named stream."""

    def __init__(self, task: Task, split: Split, settings: Settings) -> None:
        self._task, self._split, self._settings = task, split, settings

    def outputs(self, model: Model, strategy: PoolStrategy, stream: str) -> tuple[Outputs, Pool]:
        """Return the model's outputs on a pool, from the checkpoint as far as there is one."""
        task, split, seed = self._task, self._split, self._settings.seed
        rng = public_generator(seed, f"{task.name} {stream}")
        pool = strategy.draw(len(split.y_train), rng=rng, strata=split.y_train)
        checkpoint = None
        if self._settings.checkpoints is not None:
            self._settings.checkpoints.mkdir(parents=True, exist_ok=True)
            name = f"{task.name}-{stream}-{pool.n_subsets}-{seed}.pac-checkpoint"
            checkpoint = self._settings.checkpoints / name
        outputs = run_mechanism(
            model, task.data(split), pool, rng=seed, n_jobs=1, progress=False, checkpoint=checkpoint
        )
        return outputs, pool


def _scores(task: Task, split: Split, outputs: Outputs, values: Matrix) -> Matrix:
    return np.array([task.score(outputs.restore(vector), split) for vector in values])


def _index(mi_nats: float) -> int:
    """Name the stream of a budget by its value: it does not depend on which others are run."""
    return round(1e9 * mi_nats)


def _published(task: Task, rule: str, mi_nats: float) -> float | None:
    key = task.published
    if key is None:
        return None
    keys = {**key.keys, "noise": _PUBLISHED_NOISE[rule], "mi": mi_nats}
    return Published(key.table).value(key.column, **keys)


def _row(
    task: Task,
    *,
    rule: Rule,
    mi_nats: float,
    mi_upper_nats: float,
    scores: Matrix,
    no_noise: float,
    noise_variance: float,
    n_subsets: int,
    n_releases: int,
    published: float | None = None,
) -> Row:
    return Row(
        task=task.name,
        dataset=task.dataset,
        model=task.model,
        metric=task.metric,
        rule=rule,
        mi_nats=mi_nats,
        success=posterior_success(mi_nats),
        mi_upper_nats=mi_upper_nats,
        utility=float(scores.mean()),
        standard_error=float(scores.std(ddof=1) / np.sqrt(len(scores))),
        no_noise=no_noise,
        noise_variance=noise_variance,
        n_subsets=n_subsets,
        n_releases=n_releases,
        published=published,
    )
