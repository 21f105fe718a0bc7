"""Private gradient descent with a fresh secret for every step and every coordinate.

The papers' model. The variance of a fresh Poisson subset's mean gradient is known in closed form,
so no pool is needed; but the question "was this record *ever* used" has the prior ``1 - 2^-(dT)``,
which is certainty. One secret throughout (:mod:`pacprivacy.design.descent`) is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pacprivacy import noise
from pacprivacy._checks import Integers, Matrix, Vector, freeze
from pacprivacy._random import (
    BitSource,
    SimulatedSource,
    SystemSource,
    coerce_seed,
    public_generator as generator_of,
)
from pacprivacy.budget import Information
from pacprivacy.design.descent import (
    Descent,
    split_descent_budget,
    subset_gradient_variance,
)
from pacprivacy.design.objective import read_objective_targets
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import coerce_data
from pacprivacy.theory import information_slack_bound, lattice_total_variation_bound

UNITS_PER_STD: Final = 1 << 29  # so fine that rounding to the grid costs a billionth


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreshRun:
    """What a descent with fresh secrets released; every field is public.

    Parameters
    ----------
    weights : array of shape (d,)
        The last iterate.
    path : array of shape (T + 1, d)
        All iterates, the start included.
    mi_nats : float
        Proved bound on the information about *all* secrets together.
    simulation : bool
        Whether secrets and noise were seeded, so that nobody is protected.
    """

    weights: Vector
    path: Matrix
    mi_nats: float
    simulation: bool

    def __post_init__(self) -> None:
        freeze(self.weights)
        freeze(self.path)

    @property
    def n_secrets(self) -> int:
        """Number of independent secret subsets, one for each step and coordinate."""
        return (len(self.path) - 1) * self.weights.size

    @property
    def ever_used_prior(self) -> float:
        """Chance that a record was in at least one of the subsets, before any release."""
        return 1.0 - 2.0**-self.n_secrets

    def __str__(self) -> str:
        text = (
            f"Gradient descent with {self.n_secrets} fresh secrets, one for each step and "
            f"coordinate; at most {self.mi_nats:.6g} nats about all of them together. A record "
            f"was used in at least one with probability 1 - 2^-{self.n_secrets} before any "
            f"release: this model does not hide whether a record was ever used."
        )
        return f"SIMULATION, protects nobody. {text}" if self.simulation else text


def fresh_noise(variances: Vector, *, mi_nats: float, n_records: int) -> tuple[Vector, Integers]:
    """Return the grid steps and the integer noise for fresh secrets, one for each coordinate.

    Guarantee
    ---------
    Claim D-8. ``round(y/g) + N_Z(0, s²)`` tells at most ``mi_nats`` about the secret, rounding
    and lattice included.
    """
    slack = information_slack_bound(lattice_total_variation_bound(1, UNITS_PER_STD), 1 << n_records)
    left = mi_nats - slack
    if not left > 0.5 * mi_nats:
        raise BudgetError(
            f"mi_nats must be above {2 * slack:.3g} for a secret subset of {n_records} records; "
            f"got {mi_nats:.3g}. Use a larger budget, or fewer steps."
        )
    std = np.sqrt(variances)
    _, exponent = np.frexp(std / np.sqrt(2.0 * left) / UNITS_PER_STD)
    grid_step = np.ldexp(1.0, exponent - 1)  # at least UNITS_PER_STD steps, less than twice that
    # Rounding moves the output by at most half a step, so its deviation by no more than that.
    noise_std = (std + 0.5 * grid_step) / np.sqrt(2.0 * left) * (1.0 + 1e-12)
    return grid_step, np.ceil(noise_std / grid_step).astype(np.int64)


def descend_fresh(
    data: Any,
    budget: Information,
    descent: Descent | None = None,
    *,
    rng: np.random.Generator | int | None = None,
    simulate: bool = False,
) -> FreshRun:
    """Train by gradient descent with a fresh Poisson(1/2) subset for every step and coordinate.

    Parameters
    ----------
    data : tuple (X, y)
        The universe: centred features, and one target; -1 and 1 for the logistic loss.
    budget : Information
        Total about all secrets together, split evenly over the coordinates of a step.
    descent : Descent, optional
        Loss, number of steps, step sizes, shares of the steps; its ``split`` is not used.
    rng, simulate
        ``simulate`` takes secrets and noise from the seed ``rng``; such a run protects nobody.

    Guarantee
    ---------
    Claim D-8. The information about all secrets together is at most the budget, also though a
    later iterate depends on earlier releases.
    """
    if not isinstance(budget, Information):
        raise BudgetError(
            f"budget must be Information for fresh secrets; got {type(budget).__name__}. "
            "Membership of one secret is promised with one secret only: use descend."
        )
    plan = Descent() if descent is None else descent
    X, targets = read_objective_targets(coerce_data(data).parts, "gradient descent")
    plan.objective.check_targets(targets)
    if targets.ndim != 1:
        raise BudgetError(f"targets must be one column; got {targets.shape[1]}. Use descend.")
    source: BitSource = SystemSource()
    if simulate:
        source = SimulatedSource(generator_of(coerce_seed(rng), "simulation"))
    steps = plan.steps(X, targets, budget.mi_nats)
    weights = np.zeros(X.shape[1])
    path = [weights]
    for mi_nats in split_descent_budget(budget.mi_nats, plan.n_steps):
        slopes = plan.objective.slopes(X @ weights, targets)
        pull = _release_means(X * slopes[:, None], float(mi_nats) / len(weights), source)
        weights = weights - steps * (pull + plan.objective.penalty * weights)
        path.append(weights)
    return FreshRun(
        weights=weights.copy(),
        path=np.stack(path),
        mi_nats=budget.mi_nats,
        simulation=simulate,
    )


def _release_means(gradients: Matrix, mi_nats: float, source: BitSource) -> Vector:
    """Release each column's mean over a secret subset of its own."""
    n = len(gradients)
    center = gradients.mean(axis=0)
    variances = subset_gradient_variance(gradients.var(axis=0, ddof=1), n)
    released: Vector = center.copy()
    moving = np.flatnonzero(variances > 0)
    grid_step, units = fresh_noise(variances[moving], mi_nats=mi_nats, n_records=n)
    means = subset_means(gradients[:, moving], source) - center[moving]
    drawn = noise.sample_discrete_gaussian(units, source)
    released[moving] += grid_step * (np.rint(means / grid_step).astype(np.int64) + drawn)
    return released


def subset_means(columns: Matrix, source: BitSource) -> Vector:
    """Return each column's mean over a fresh Poisson(1/2) subset; an empty one is redrawn."""
    n, q = columns.shape
    n_words = -(-n * q // 64)
    while True:
        bits = np.unpackbits(source.words(n_words).view(np.uint8), count=n * q).reshape(n, q)
        sizes = bits.sum(axis=0, dtype=np.int64)
        if sizes.all():  # a column without records has probability 2^-n; all are redrawn then
            return np.asarray(np.where(bits.view(np.bool_), columns, 0.0).sum(axis=0) / sizes)
