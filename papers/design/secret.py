"""Figure 7 of [DESIGN] turned round: one secret throughout against fresh ones, and the attacker.

Many trainings on one balanced pool, each with a secret of its own; the attacker knows the pool
and everything released, and computes the exact posterior. A simulation on public data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import SimulatedSource, public_generator, uniform_below
from pacprivacy.design.descent import descend_secretly, split_descent_budget
from pacprivacy.design.ridge import noise_ratio
from pacprivacy.errors import BudgetError
from pacprivacy.noise import (
    AxisFrame,
    NoisePlan,
    axis_spread_variances,
    log_det_of_plan,
    make_plan,
    weighted_spread_mean,
)
from pacprivacy.sample import Balanced, Pool
from pacprivacy.theory import posterior_success
from papers.charts import Line, Panel, Style, draw_panels
from papers.design.data import NAMES, BinarySplit, load_binary
from papers.design.descent import (
    N_STEPS,
    choose_steps,
    fresh_accuracies,
)
from papers.page import Page, as_budget, as_number, as_percent, write_csv
from papers.run import Job, Settings

_STREAM: Final = "same secret"
_MOST_TRIES: Final = 20
N_TRIALS: Final = 200  # in a full run; benchmarks/noise/same_secret.py has a thousand
N_TRIALS_QUICK: Final = 8
PRINTED_SUBSETS: Final = 1024  # of Figure 7, which has 100 trainings; a thousand gradients a step
N_TRIALS_PRINTED: Final = 10
PRINTED_DATASETS: Final = ("mnist_0v7", "mnist_7v9", "credit")
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
class SecretRow:
    """Trainings with one secret at one budget, and what attackers made of them.

    ``fresh_accuracy`` is with fresh secrets at the same total. ``named`` is how often the most
    probable subset was the secret one; ``membership`` how often membership of a record was guessed
    right, mean over records; ``worst_membership`` the attacker's mean posterior success on the
    record where it is highest. ``learned_nats`` is the mean of what was really learned.
    """

    mi_nats: float
    accuracy: float
    standard_error: float
    fresh_accuracy: float
    fresh_standard_error: float
    named: float
    named_bound: float
    membership: float
    worst_membership: float
    membership_bound: float
    learned_nats: float
    n_trials: int
    n_subsets: int
    dataset: str = "mnist_0v7"


class GradientsOfPool:
    """All candidates' gradients by one product with their masks, in single precision."""

    def __init__(self, split: BinarySplit, pool: Pool) -> None:
        self._split = split
        self._features = split.X.astype(np.float32)
        self._masks = pool.masks().astype(np.float32)
        self._sizes = self._masks.sum(axis=1, dtype=np.float64)[:, None]

    def __call__(self, weights: Matrix) -> Matrix:
        """Return the gradients at some weights, shape (m, d)."""
        objective = self._split.objective
        slopes = objective.slopes(self._split.X @ weights, self._split.y).astype(np.float32)
        sums = self._masks @ (self._features * slopes[:, None])
        gradients: Matrix = sums / self._sizes + objective.penalty * weights
        return gradients


def uniform_plan(values: Matrix, log_p: Vector, mi_nats: float) -> NoisePlan:
    """Give every coordinate that moves the same share, as printed: noise of ``d/2b`` its variance.

    By Hadamard its log-determinant bound is at most ``mi_nats``; the lattice's slack is included.
    """
    weights = np.exp(log_p)
    center = weighted_spread_mean(values, weights)
    variances = axis_spread_variances(values, center, weights)
    axes = np.flatnonzero(variances > 0).astype(np.int64)
    budget = mi_nats * (1 - 1e-9)
    for _ in range(_MOST_TRIES):
        ratio = noise_ratio(budget, n_dimensions=max(1, len(axes)))
        plan = make_plan(
            rule="uniform",
            frame=AxisFrame(axes=axes, center=center),
            center=center,
            noise_std=np.sqrt(ratio * variances[axes]),
            values=values,
        )
        plan = replace(plan, log_det_nats=log_det_of_plan(plan, weights))
        if plan.log_det_nats <= mi_nats:
            return plan
        # The lattice's slack hardly depends on the budget: leave room for what was too much.
        budget -= max(1.1 * (plan.log_det_nats - mi_nats), 1e-6 * budget)
        if budget <= 0:
            break
    raise BudgetError(
        f"mi_nats must be large enough for the lattice of {len(axes)} directions; got {mi_nats}. "
        "Use a larger budget, or fewer steps."
    )


def secret_row(
    *,
    dataset: str = "mnist_0v7",
    mi_nats: float = 1 / 4,
    n_trials: int = 1000,
    n_subsets: int = 128,
    seed: int = 0,
) -> SecretRow:
    """Train ``n_trials`` times with one secret each; attack every training."""
    data = load_binary(dataset)
    pool = Balanced(n_subsets=n_subsets).draw(len(data.y), rng=seed)
    masks, gradients = pool.masks(), GradientsOfPool(data, pool)
    steps = choose_steps(data, "oracle", mi_nats=mi_nats, mode="conscious")
    budgets = split_descent_budget(mi_nats, N_STEPS)
    accuracies, learned = np.empty(n_trials), np.empty(n_trials)
    named, guessed = np.empty(n_trials, dtype=np.bool_), np.empty(n_trials)
    success: Vector = np.zeros(pool.n_units)
    for trial in range(n_trials):
        run = descend_secretly(
            gradients,
            steps,
            budgets,
            n_subsets=n_subsets,
            source=_source(seed, trial),
            plan_step=uniform_plan,
        )
        secret = uniform_below(_source(seed, trial), n_subsets)  # the first thing that was drawn
        belief = np.exp(run.belief.log_p)
        inside = belief @ masks
        accuracies[trial] = data.accuracies(run.weights[None])[0]
        named[trial] = int(belief.argmax()) == secret
        guessed[trial] = np.mean((inside > 0.5) == masks[secret])
        learned[trial] = run.belief.learned_nats
        success += np.maximum(inside, 1.0 - inside) / n_trials
    rng = public_generator(seed, "fresh secrets")
    fresh = fresh_accuracies(data, steps, mi_nats, n_trials=n_trials, rng=rng)
    return SecretRow(
        mi_nats=mi_nats,
        accuracy=float(accuracies.mean()),
        standard_error=float(accuracies.std() / np.sqrt(n_trials)),
        fresh_accuracy=float(fresh.mean()),
        fresh_standard_error=float(fresh.std() / np.sqrt(n_trials)),
        named=float(named.mean()),
        named_bound=posterior_success(mi_nats, 1.0 / n_subsets),
        membership=float(guessed.mean()),
        worst_membership=float(success.max()),
        membership_bound=posterior_success(mi_nats, 0.5),
        learned_nats=float(learned.mean()),
        n_trials=n_trials,
        n_subsets=n_subsets,
        dataset=dataset,
    )


def _source(seed: int, trial: int) -> SimulatedSource:
    return SimulatedSource(public_generator(seed, _STREAM, trial))


@dataclass(frozen=True, slots=True, kw_only=True)
class SameSecret:
    """The section on one secret throughout."""

    name: str = "secret"
    title: str = "One secret throughout the descent"
    covers: str = "Figure 7: the same secret against fresh ones, 50 steps"
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
        n_trials = min(settings.n_trials, N_TRIALS_QUICK if quick else N_TRIALS)
        return tuple(
            Job(
                name=f"one secret, {mi_nats:g} nats",
                function=secret_row,
                options={"mi_nats": mi_nats, "n_trials": n_trials, "seed": settings.seed},
                kind=SecretRow,
            )
            for mi_nats in settings.mi_budgets
        ) + tuple(
            Job(
                name=f"one secret of {PRINTED_SUBSETS}, {NAMES[dataset]}, {mi_nats:g} nats",
                function=secret_row,
                options={
                    "dataset": dataset,
                    "mi_nats": mi_nats,
                    "n_trials": min(settings.n_trials, N_TRIALS_PRINTED),
                    "n_subsets": PRINTED_SUBSETS,
                    "seed": settings.seed,
                },
                kind=SecretRow,
            )
            for dataset in (() if quick else PRINTED_DATASETS)
            for mi_nats in settings.mi_budgets
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        on_small_pools = [row for row in rows if row.n_subsets < PRINTED_SUBSETS]
        ordered = sorted(on_small_pools, key=lambda row: float(row.mi_nats))
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
        many = [row for row in rows if row.n_subsets >= PRINTED_SUBSETS]
        if many:
            page.text(f"As in Figure 7, one secret of {PRINTED_SUBSETS}, {many[0].n_trials} times:")
            page.table(
                ["data", "budget, nats", "one secret", "fresh secrets"],
                [[NAMES[row.dataset], *_cells(row)[:3]] for row in many],
            )


def _panel(
    title: str, ylabel: str, rows: Sequence[SecretRow], fields: dict[str, tuple[str, Style]]
) -> Panel:
    lines = tuple(Line.of(label, style, rows, field) for field, (label, style) in fields.items())
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
