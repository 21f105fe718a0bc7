"""What a rule of noise does at each budget: true information, total noise, unevenness ([RPAC])."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector, as_outputs, check_log_belief, freeze
from pacprivacy._random import coerce_seed
from pacprivacy.adversary import exact_information
from pacprivacy.budget import Information
from pacprivacy.errors import BudgetError
from pacprivacy.noise import (
    AnyRule,
    NoisePlan,
    calibrate,
    distinct_plan_outputs,
)


def free_budget(outputs: object, log_belief: Vector | None = None) -> float:
    """Return the budget, in nats, from which on outputs may leave without noise.

    It is the entropy of the distinct outputs: for votes or labels often far below ``ln m``.
    """
    values = as_outputs(outputs)
    return distinct_plan_outputs(values, check_log_belief(log_belief, len(values)))[1]


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
