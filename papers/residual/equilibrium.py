"""Least noise for a true information budget, with the story of how it was found.

The defender moves first and chooses the noise; the attacker answers with the best decoder, which
on a pool is the posterior. The equilibrium is the noise of least cost whose *true* information is
within the budget, found by the fixed point of the attacker's error matrix.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector, as_outputs, check_log_belief, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary import DEFAULT_GAMMA, exact_information
from pacprivacy.budget import Information
from pacprivacy.errors import BudgetError
from pacprivacy.noise import (
    AnyRule,
    Exact,
    NoisePlan,
    Protect,
    calibrate,
    distinct_plan_outputs,
    exact_shapes,
    spread_of,
    weigh,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One iterate: which step, and the cost of its noise at the budget."""

    step: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Equilibrium:
    """The least noise found, certified, beside what the Gaussian bound needs; curator-only.

    ``steps`` are all iterates of the search; ``free_nats`` is the budget from which on no noise is
    needed. Costs are total variances, or ``tr(W Σ_B)`` with a cost of its own.
    """

    plan: NoisePlan
    waterfill: NoisePlan
    steps: tuple[Step, ...]
    free_nats: float
    cost: float
    waterfill_cost: float

    @property
    def saving(self) -> float:
        """How many times less the noise costs than that of the Gaussian bound."""
        return self.waterfill_cost / self.cost if self.cost > 0 else np.inf


def free_budget(outputs: object, log_belief: Vector | None = None) -> float:
    """Return the budget, in nats, from which on outputs may leave without noise.

    It is the entropy of the distinct outputs: for votes or labels often far below ``ln m``.
    """
    values = as_outputs(outputs)
    return distinct_plan_outputs(values, check_log_belief(log_belief, len(values)))[1]


def find_equilibrium(
    outputs: object,
    mi_nats: float,
    *,
    rule: Exact | Protect | None = None,
    log_belief: Vector | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Equilibrium:
    """Find the least noise whose true information is within a budget, and record the search.

    :func:`pacprivacy.noise.calibrate` does the same without the record, and says what the
    parameters are. A rule states a cost of noise of its own.

    Guarantee
    ---------
    Claim RP-8. The plan meets the budget with probability ``1 - gamma`` over simulated draws, and
    costs no more than what the log-determinant bound can certify.
    """
    values = as_outputs(outputs)
    log_p = check_log_belief(log_belief, len(values))
    budget, seed = Information(mi_nats), coerce_seed(rng)
    plan = calibrate(values, budget, rule=rule or "exact", log_belief=log_p, gamma=gamma, rng=seed)
    gaussian = calibrate(values, budget, rule="waterfill", log_belief=log_p)
    steps: list[Step] = []
    costs = plan.total_variance, gaussian.total_variance
    if not plan.is_noiseless:
        searched = spread = spread_of(values, np.exp(log_p))
        if rule is not None:
            weighting = weigh(spread, np.exp(log_p), rule.cost_along(spread))
            searched, costs = (
                weighting.spread,
                (weighting.cost_of(plan), weighting.cost_of(gaussian)),
            )
        generator = public_generator(seed, "shapes")  # the stream that calibrate searched with
        exact_shapes(
            searched,
            log_p,
            mi_nats=mi_nats,
            rng=generator,
            watch=lambda step, cost: steps.append(Step(step=step, cost=cost)),
        )
    return Equilibrium(
        plan=plan,
        waterfill=gaussian,
        steps=tuple(steps),
        free_nats=free_budget(values, log_p),
        cost=costs[0],
        waterfill_cost=costs[1],
    )


def anisotropy(plan: NoisePlan) -> float:
    """Return how uneven the noise of a plan is: 1 if all directions have the same.

    The ratio of the arithmetic to the geometric mean of the variances along the directions that
    carry noise. Even noise of the same determinant would be larger in total by this factor.
    """
    variances = np.square(plan.noise_std)
    if len(variances) == 0:
        return 1.0
    return float(variances.mean() / np.exp(np.log(variances).mean()))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCurve:
    """What a rule does at each budget: true information, total noise, :func:`anisotropy`.

    Curator-only.
    """

    rule: str
    budgets: Vector
    true_mi: Vector
    noise: Vector
    uneven: Vector

    def __post_init__(self) -> None:
        for array in (self.budgets, self.true_mi, self.noise, self.uneven):
            freeze(array)

    @property
    def privacy_slope(self) -> Vector:
        """Nats of true information per nat of budget, between consecutive budgets.

        A rule that spends what it is given has slope 1. The log-determinant rules fall below it
        where outputs are not Gaussian: part of every further nat buys nothing.
        """
        slope: Vector = np.diff(self.true_mi) / np.diff(self.budgets)
        return slope

    @property
    def is_coherent(self) -> bool:
        """Whether the order by true information is that by budget, and opposite to that by noise.

        Rules are then comparable at equal true information: see :meth:`noise_at`.
        """
        return bool((np.diff(self.true_mi) > 0).all() and (np.diff(self.noise) < 0).all())

    def noise_at(self, true_mi: float) -> float:
        """Return the noise at a true information, by a straight line between logarithms."""
        low, high = self.true_mi[[0, -1]]
        if not self.is_coherent or not low <= true_mi <= high:
            raise BudgetError(
                f"true_mi must be between {low:.4g} and {high:.4g}, on a coherent curve; got "
                f"{true_mi}. Widen the budgets."
            )
        logs = np.interp(math.log(true_mi), np.log(self.true_mi), np.log(self.noise))
        return float(np.exp(logs))


def budget_curve(
    outputs: object,
    budgets: Sequence[float],
    *,
    rule: AnyRule = "exact",
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> BudgetCurve:
    """Calibrate at each budget and measure what the noise really tells.

    ``budgets`` are nats in rising order; ``n_draws`` simulated releases are behind each true
    information.
    """
    grid = np.asarray(budgets, dtype=np.float64)
    if grid.ndim != 1 or len(grid) < 2 or not (np.diff(grid) > 0).all():
        raise BudgetError(
            f"budgets must be at least two increasing numbers; got {len(grid)}. Sort them."
        )
    values, seed = as_outputs(outputs), coerce_seed(rng)
    log_p = check_log_belief(log_belief, len(values))
    plans = [calibrate(values, Information(b), rule=rule, log_belief=log_p, rng=seed) for b in grid]
    true_mi = [
        plan.mi_upper
        if plan.is_noiseless
        else exact_information(plan.view(values, log_p), n_draws=n_draws, rng=seed).value
        for plan in plans
    ]
    return BudgetCurve(
        rule=plans[0].rule,
        budgets=grid,
        true_mi=np.array(true_mi),
        noise=np.array([plan.total_variance for plan in plans]),
        uneven=np.array([anisotropy(plan) for plan in plans]),
    )
