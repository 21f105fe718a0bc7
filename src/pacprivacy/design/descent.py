"""Private gradient descent about one secret subset, with one certificate for all of it.

At every step all candidates' gradients at the current iterate are computed, noise is calibrated
against the attacker's belief, the secret candidate's gradient is released, and the belief is
updated. The iterates are functions of what was released, so all of them may be published.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import (
    BitSource,
    SimulatedSource,
    SystemSource,
    coerce_seed,
    public_generator,
)
from pacprivacy.budget import Information
from pacprivacy.design.certificate import descent_certificate
from pacprivacy.design.follow import DescentRun, Split, follow_secret
from pacprivacy.design.gradient import MeanGradient, read_targets
from pacprivacy.design.objective import Objective
from pacprivacy.design.steps import Shares, StepRule, split_budget
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import coerce_data
from pacprivacy.pool import Pool, PoolStrategy
from pacprivacy.simulation import draw_candidates

__all__ = ["Descent", "descend"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Descent:
    """How to descend; every field is public.

    Parameters
    ----------
    objective : Objective
        Loss and penalty.
    n_steps : int
        Number of steps ``T``.
    step : StepRule, float or array
        Step sizes; by default chosen for the noise to come (``conscious``), one for each
        coordinate.
    shares : "uniform", "late" or array of shape (T,)
        How the budget is spread over the steps.
    split : "waterfill" or "uniform"
        How the budget of a step is spread over directions: least total noise, or evenly over the
        coordinates as in the paper.

    Examples
    --------
    >>> Descent(n_steps=4).budgets(0.5, np.array([[0.5]]))
    array([0.125, 0.125, 0.125, 0.125])
    """

    objective: Objective = field(default_factory=Objective)
    n_steps: int = 50
    step: Literal["conscious", "post-hoc"] | StepRule | float | Matrix = "conscious"
    shares: Shares = "uniform"
    split: Split = "waterfill"

    def __post_init__(self) -> None:
        if self.split not in ("waterfill", "uniform"):
            raise BudgetError(
                f"split must be 'waterfill' or 'uniform'; got {self.split!r}. Use 'waterfill'."
            )
        if isinstance(self.step, str) and self.step not in ("conscious", "post-hoc"):
            raise BudgetError(
                f"step must be 'conscious', 'post-hoc', a StepRule or numbers; got "
                f"{self.step!r}. Use 'conscious'."
            )

    def rule(self, mi_nats: float) -> StepRule | None:
        """Return the rule of the step sizes, None where they are given as numbers."""
        if isinstance(self.step, StepRule):
            return self.step
        if isinstance(self.step, str):
            return StepRule(mi_nats=mi_nats if self.step == "conscious" else None)
        return None

    def steps(self, X: Matrix, targets: Matrix, mi_nats: float) -> Matrix:
        """Return step sizes of the shape of the weights."""
        rule = self.rule(mi_nats)
        if rule is not None:
            return rule.choose(self.objective, X, targets, n_steps=self.n_steps)
        given = np.asarray(self.step, dtype=np.float64)
        if not (np.isfinite(given).all() and (given > 0).all()):
            raise BudgetError("step must be positive finite numbers. Use 'conscious'.")
        return np.broadcast_to(given, (X.shape[1], *targets.shape[1:])).copy()

    def budgets(self, mi_nats: float, steps: Matrix) -> Vector:
        """Return the budget of each step."""
        return split_budget(
            mi_nats,
            self.n_steps,
            shares=self.shares,
            step=float(steps.mean()),
            l2=self.objective.l2,
        )

    def describe(self, mi_nats: float) -> tuple[str, ...]:
        """Return what came from the universe, for the certificate."""
        rule = self.rule(mi_nats)
        return ("step sizes: given",) if rule is None else (rule.describe(),)


def descend(
    data: Any,
    budget: Information,
    descent: Descent | None = None,
    *,
    pool: Pool | PoolStrategy | None = None,
    n_subsets: int | None = None,
    units: Any = None,
    rng: np.random.Generator | int | None = None,
    simulate: bool = False,
    public: tuple[str, ...] = (),
) -> DescentRun:
    """Train by private gradient descent: one secret subset throughout, one certificate.

    Parameters
    ----------
    data : tuple (X, y)
        The universe: features, and targets of shape (n,) or (n, k); -1 and 1 for the logistic
        loss. Centre the features: there is no intercept.
    budget : Information
        Total over all steps.
    descent : Descent, optional
        Loss, number of steps, step sizes, split of the budget.
    pool, n_subsets, units, rng, simulate
        As in :func:`pacprivacy.privatize`.
    public : tuple of str
        What else was computed from the whole universe, such as a scaler; for the certificate.

    Returns
    -------
    DescentRun
        Weights that may be published, with their certificate.

    Guarantee
    ---------
    Claim D-7.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where(X[:, 0] > 0, 1.0, -1.0)
    >>> run = descend((X, y), Information(0.5), n_subsets=32, rng=0)
    >>> run.mi_nats <= 0.5
    True
    """
    if not isinstance(budget, Information):
        raise BudgetError(
            f"budget must be Information for a descent without a session; got "
            f"{type(budget).__name__}. Use descend_in_session for other budgets."
        )
    plan = Descent() if descent is None else descent
    universe = coerce_data(data)
    X, targets = read_targets(universe.parts, "gradient descent")
    plan.objective.check_targets(targets)
    steps = plan.steps(X, targets, budget.mi_nats)
    template = MeanGradient(objective=plan.objective, weights=np.zeros(steps.shape))
    candidates, notes = draw_candidates(
        template, universe, pool, n_subsets=n_subsets, units=units, rng=rng
    )
    source: BitSource = SystemSource()
    if simulate:
        source = SimulatedSource(public_generator(coerce_seed(rng), "simulation"))

    def gradients(weights: Matrix) -> Matrix:
        here = MeanGradient(objective=plan.objective, weights=weights)
        return here.batch(universe, candidates)

    run = follow_secret(
        gradients,
        steps,
        plan.budgets(budget.mi_nats, steps),
        n_subsets=candidates.n_subsets,
        source=source,
        split=plan.split,
    )
    certificate = descent_certificate(
        budgets=run.budgets,
        noise=run.noise,
        pool=candidates,
        budget=budget,
        names=(
            f"{plan.split} at each of {plan.n_steps} steps",
            f"gradient descent on the {plan.objective.loss} loss",
            "the weights after every step",
        ),
        shape=steps.shape,
        public=(*public, *plan.describe(budget.mi_nats)),
        notes=(*notes, *candidates.notes),
        simulation=simulate,
    )
    return replace(run, certificate=certificate)
