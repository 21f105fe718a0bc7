"""Figure 7 of [DESIGN] turned round: one secret throughout against fresh ones, and the attacker.

Many trainings on one balanced pool, each with a secret of its own; the attacker knows the pool
and everything released, and computes the exact posterior. A simulation on public data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import SimulatedSource, public_generator, uniform_below
from pacprivacy.design.descent import Split, follow_secret
from pacprivacy.design.objective import split_budget
from pacprivacy.experiments.design_data import BinarySplit, load_binary
from pacprivacy.experiments.design_descent import (
    N_STEPS,
    choose_steps,
    fresh_accuracies,
)
from pacprivacy.pool import Balanced, Pool
from pacprivacy.theory.posterior import posterior_success

__all__ = ["GradientsOfPool", "SecretRow", "secret_row"]

_STREAM: Final = "same secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRow:
    """Trainings with one secret at one budget, and what attackers made of them.

    Attributes
    ----------
    mi_nats : float
        Total budget of a training.
    accuracy, standard_error : float
        Mean test accuracy, and its standard error.
    fresh_accuracy, fresh_standard_error : float
        The same with fresh secrets at the same total.
    named, named_bound : float
        How often the most probable subset was the secret one, and the bound on that.
    membership, membership_bound : float
        How often membership of a record was guessed right, mean over records, and the bound.
    worst_membership : float
        The attacker's mean posterior success on the record where it is highest.
    learned_nats : float
        Mean of what was really learned.
    n_trials, n_subsets : int
        Trainings, and candidates.
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
    split: Split


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
        gradients: Matrix = sums / self._sizes + objective.l2 * weights
        return gradients


def secret_row(
    *,
    dataset: str = "mnist_0v7",
    mi_nats: float = 1 / 4,
    n_trials: int = 1000,
    n_subsets: int = 128,
    split: Split = "uniform",
    seed: int = 0,
) -> SecretRow:
    """Train ``n_trials`` times with one secret each; attack every training."""
    data = load_binary(dataset)
    pool = Balanced(n_subsets=n_subsets).draw(len(data.y), rng=seed)
    masks, gradients = pool.masks(), GradientsOfPool(data, pool)
    steps = choose_steps(data, "oracle", mi_nats=mi_nats, mode="conscious")
    budgets = split_budget(mi_nats, N_STEPS)
    accuracies, learned = np.empty(n_trials), np.empty(n_trials)
    named, guessed = np.empty(n_trials, dtype=np.bool_), np.empty(n_trials)
    success: Vector = np.zeros(pool.n_units)
    for trial in range(n_trials):
        run = follow_secret(
            gradients,
            steps,
            budgets,
            n_subsets=n_subsets,
            source=_source(seed, trial),
            split=split,
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
        split=split,
    )


def _source(seed: int, trial: int) -> SimulatedSource:
    return SimulatedSource(public_generator(seed, _STREAM, trial))
