"""Split the budget of one release evenly over its coordinates, as the papers do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from pacprivacy import _version
from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import (
    BitSource,
    SimulatedSource,
    SystemSource,
    coerce_seed,
    public_generator,
)
from pacprivacy.adversary import Belief
from pacprivacy.budget import AnyBudget, Information
from pacprivacy.design.objective import (
    MeanGradient,
    Objective,
    Shares,
    StepRule,
    read_targets,
    split_budget,
)
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import (
    AnyRule,
    AxisFrame,
    NoisePlan,
    axis_variances,
    calibrate,
    log_det_of_plan,
    make_plan,
    weighted_mean,
)
from pacprivacy.pool import Pool, PoolStrategy
from pacprivacy.release import Certificate, NoiseSummary, Release, Secret, open_parts
from pacprivacy.session import Session
from pacprivacy.simulation import draw_candidates
from pacprivacy.theory import posterior_success
from pacprivacy.theory.design import noise_ratio

_MOST_TRIES: Final = 20


def uniform_plan(values: Matrix, log_p: Vector, *, mi_nats: float) -> NoisePlan:
    """Give every coordinate that moves the same share: noise of ``d/2b`` times its variance.

    Guarantee
    ---------
    Claim D-6. The log-determinant bound of the integer noise, lattice slack included, is at most
    ``mi_nats``.
    """
    weights = np.exp(log_p)
    center = weighted_mean(values, weights)
    variances = axis_variances(values, center, weights)
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


def summarise_noise(plan: NoisePlan) -> NoiseSummary:
    """Return the noise of one step in a few public numbers."""
    std = plan.noise_std
    moves = len(std) > 0
    return NoiseSummary(
        total_variance=plan.total_variance,
        smallest_std=float(std.min()) if moves else 0.0,
        largest_std=float(std.max()) if moves else 0.0,
        n_directions=plan.n_directions,
        smallest_grid_step=float(plan.grid_step.min()) if moves else 0.0,
        smallest_units_per_std=int(plan.units_per_std.min()) if moves else 0,
    )


def merge_noise(steps: Sequence[NoiseSummary]) -> NoiseSummary:
    """Return the noise of all steps: the sum of variances, the extremes of the rest."""
    noisy = [step for step in steps if step.n_directions] or list(steps)
    return NoiseSummary(
        total_variance=sum(step.total_variance for step in steps),
        smallest_std=min(step.smallest_std for step in noisy),
        largest_std=max(step.largest_std for step in noisy),
        n_directions=max(step.n_directions for step in noisy),
        smallest_grid_step=min(step.smallest_grid_step for step in noisy),
        smallest_units_per_std=min(step.smallest_units_per_std for step in noisy),
    )


def descent_certificate(
    *,
    budgets: Vector,
    noise: Sequence[NoiseSummary],
    pool: Pool,
    budget: Information,
    names: tuple[str, str, str],
    shape: tuple[int, ...],
    public: tuple[str, ...],
    notes: tuple[str, ...],
    simulation: bool,
) -> Certificate:
    """Write down what the budgets of all steps add up to.

    ``names`` are the rule, the mechanism and the output in words.

    Guarantee
    ---------
    Claim D-7. The sum of the budgets bounds the information of everything released.
    """
    total = math.fsum(budgets.tolist())
    success = posterior_success(total, pool.worst_prior)
    rule, mechanism, output = names
    together = merge_noise(noise)
    return Certificate.about(
        pool,
        mi_upper=total,
        bound=success,
        exact_facts=open_parts(together.n_directions, math.prod(shape)),
        public=public,
        kind="exact",
        budget=str(budget),
        rule=rule,
        mechanism=mechanism,
        output=output,
        dimension=math.prod(shape),
        log_det_nats=total,
        noise=together,
        confidence=1.0,
        notes=notes,
        simulation=simulation,
        composition={
            "release_number": len(budgets),
            "secrets": "one for all releases",
            "spent_nats_so_far": total,
            "total_nats": budget.mi_nats,
            "session_success_bound": success,
        },
        software=_version.__version__,
    )


Split: TypeAlias = Literal["waterfill", "uniform"]
Gradients: TypeAlias = Callable[[Matrix], Matrix]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentRun:
    """What a descent released.

    Parameters
    ----------
    weights : array of shape (d,) or (d, k), public
        The last iterate.
    path : array of shape (T + 1, ...), public
        All iterates, the start included.
    budgets : array of shape (T,), public
        Budget of each step, fixed before the first.
    charges : array of shape (T,), public
        What each release really needed, given the ones before: an odometer. It depends on the
        releases, so its sum is not the bound; the budgets are.
    belief : Belief
        The attacker's belief over the pool at the end; public for whoever knows the pool.
    noise : tuple of NoiseSummary, public
        The noise of each step.
    certificate : Certificate or None, public
        What is promised about the whole descent.
    """

    weights: Matrix
    path: Matrix
    budgets: Vector
    charges: Vector
    belief: Belief = field(repr=False)
    noise: tuple[NoiseSummary, ...] = field(repr=False)
    certificate: Certificate | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for array in (self.weights, self.path, self.budgets, self.charges):
            freeze(array)

    @property
    def mi_nats(self) -> float:
        """Proved bound on the information of everything released, in nats."""
        return math.fsum(self.budgets.tolist())


def follow_secret(
    gradients: Gradients,
    steps: Matrix,
    budgets: Vector,
    *,
    n_subsets: int,
    source: BitSource,
    split: Split = "waterfill",
) -> DescentRun:
    """Descend along the noisy gradients of one secret candidate, drawn from ``source``.

    Guarantee
    ---------
    Claim D-7. ``MI(secret; all releases) <= Σ budgets``.
    """
    weights = np.zeros(steps.shape)
    path, charges, noise = [weights], [], []
    belief, secret = Belief.uniform(n_subsets), None
    for mi_nats in budgets:
        values = gradients(weights)
        plan = _plan(values, belief, float(mi_nats), split)
        if secret is None:  # drawn only after every candidate was evaluated
            secret = Secret(n_subsets, source)
        observation = secret.observe(plan, source)
        belief = belief.updated(plan.log_likelihood(observation))
        weights = weights - steps * plan.value_of(observation).reshape(steps.shape)
        path.append(weights)
        charges.append(max(0.0, plan.mi_upper))
        noise.append(summarise_noise(plan))
    return DescentRun(
        weights=weights.copy(),
        path=np.stack(path),
        budgets=np.array(budgets, dtype=np.float64),
        charges=np.array(charges),
        belief=belief,
        noise=tuple(noise),
    )


def _plan(values: Matrix, belief: Belief, mi_nats: float, split: Split) -> NoisePlan:
    if split == "uniform":
        return uniform_plan(values, belief.log_p, mi_nats=mi_nats)
    return calibrate(values, Information(mi_nats), rule="waterfill", log_belief=belief.log_p)


def descend_in_session(
    session: Session,
    objective: Objective,
    steps: Matrix,
    budgets: list[AnyBudget],
    *,
    rule: AnyRule | None = None,
) -> tuple[Matrix, tuple[Release, ...]]:
    """Descend by ordinary releases of a session: every step is certified and recorded.

    The reference for :func:`descend`, which gives the same weights for the same secret and noise
    without a full certificate at each step. Membership budgets work here too.

    Parameters
    ----------
    session : Session
        Over the data ``(X, y)``; each step is one of its releases.
    objective : Objective, public
        Loss and penalty.
    steps : array of the shape of the weights, public
        Step sizes.
    budgets : list of budgets, public
        One for each step.
    rule : str or rule object, optional
        Noise rule of every step; by default the session's.

    Returns
    -------
    weights, releases
        The last iterate, and the releases.
    """
    weights = np.zeros(np.shape(steps))
    releases = []
    for budget in budgets:
        here = MeanGradient(objective=objective, weights=weights)
        release = session.release(here, budget, rule=rule)
        releases.append(release)
        weights = weights - steps * np.asarray(release.value)
    return weights, tuple(releases)


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
