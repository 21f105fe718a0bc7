"""Least noise for a true information budget, with the story of how it was found.

The defender moves first and chooses the noise; the attacker answers with the best decoder, which
on a pool is the posterior. The equilibrium is the noise of least cost whose *true* information is
within the budget, found by the fixed point of the attacker's error matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector, as_outputs, check_log_belief
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.information import DEFAULT_GAMMA
from pacprivacy.budget import Information
from pacprivacy.noise import Exact, NoisePlan, Protect, calibrate
from pacprivacy.noise.calibrate import distinct_outputs
from pacprivacy.noise.exact import exact_shapes
from pacprivacy.noise.spread import spread_of
from pacprivacy.noise.weighting import noise_covariance, weigh

__all__ = ["Equilibrium", "Step", "anisotropy", "free_budget", "stackelberg"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One iterate: from which start, which step, and the cost of its noise at the budget.

    Examples
    --------
    >>> Step(start="waterfill", step=0, cost=0.4)
    Step(start='waterfill', step=0, cost=0.4)
    """

    start: str
    step: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Equilibrium:
    """The least noise found, beside what the Gaussian bound needs; curator-only.

    Attributes
    ----------
    plan : NoisePlan
        Certified; ready to sample from.
    waterfill : NoisePlan
        Least noise that the log-determinant bound can certify, for comparison.
    steps : tuple of Step
        Every iterate of the search, for a convergence plot.
    free_nats : float
        Budget from which on no noise is needed at all.
    cost, waterfill_cost : float
        Cost of both noises: their total variance, or ``tr(W Σ_B)`` with a cost of its own.

    Examples
    --------
    >>> outputs = np.eye(3)[np.arange(60) % 3]
    >>> found = stackelberg(outputs, 0.9, rng=0)
    >>> found.saving > 1.2, round(found.free_nats, 4)
    (True, 1.0986)
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

    Examples
    --------
    >>> round(free_budget(np.eye(4)[[0, 0, 0, 0, 1, 1, 2, 3]]), 4)
    1.213
    """
    values = as_outputs(outputs)
    return distinct_outputs(values, check_log_belief(log_belief, len(values)))[1]


def stackelberg(
    outputs: object,
    mi_nats: float,
    *,
    rule: Exact | Protect | None = None,
    log_belief: Vector | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Equilibrium:
    """Find the least noise whose true information is within a budget, and record the search.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate subset.
    mi_nats : float > 0
        Budget on the true information.
    rule : Exact or Protect, optional
        A cost of noise of its own.
    log_belief, gamma, rng
        As in :func:`pacprivacy.noise.calibrate`, which does the same without the record.

    Guarantee
    ---------
    Claim RP-8. The plan meets the budget with probability ``1 - gamma`` over simulated draws, and
    costs no more than what the log-determinant bound can certify.

    Examples
    --------
    >>> outputs = np.eye(2)[np.arange(40) % 2]
    >>> found = stackelberg(outputs, 0.6, rng=0)
    >>> bool(found.plan.mi_upper <= 0.6), found.steps[0].start
    (True, 'waterfill')
    """
    values = as_outputs(outputs)
    log_p = check_log_belief(log_belief, len(values))
    budget, seed = Information(mi_nats), coerce_seed(rng)
    plan = calibrate(values, budget, rule=rule or "exact", log_belief=log_p, gamma=gamma, rng=seed)
    gaussian = calibrate(values, budget, rule="waterfill", log_belief=log_p)
    steps: list[Step] = []
    if not plan.is_noiseless:
        spread = spread_of(values, np.exp(log_p))
        searched = spread if rule is None else weigh(spread, np.exp(log_p), rule).spread
        generator = public_generator(seed, "shapes")  # the stream that calibrate searched with
        exact_shapes(
            searched,
            log_p,
            mi_nats=mi_nats,
            rng=generator,
            watch=lambda start, step, cost: steps.append(Step(start=start, step=step, cost=cost)),
        )
    return Equilibrium(
        plan=plan,
        waterfill=gaussian,
        steps=tuple(steps),
        free_nats=free_budget(values, log_p),
        cost=_cost(plan, rule),
        waterfill_cost=_cost(gaussian, rule),
    )


def _cost(plan: NoisePlan, rule: Exact | Protect | None) -> float:
    if rule is None:
        return plan.total_variance
    covariance = noise_covariance(plan)
    return float(np.sum(covariance * rule.cost_matrix(len(covariance))))


def anisotropy(plan: NoisePlan) -> float:
    """Return how uneven the noise of a plan is: 1 if all directions have the same.

    The ratio of the arithmetic to the geometric mean of the variances along the directions that
    carry noise. Even noise of the same determinant would be larger in total by this factor.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> outputs = np.random.default_rng(0).normal(size=(32, 2)) * [1.0, 0.1]
    >>> even = calibrate(outputs, pac.Information(0.1), rule="isotropic")
    >>> uneven = calibrate(outputs, pac.Information(0.1), rule="waterfill")
    >>> round(anisotropy(even), 3), anisotropy(uneven) > 1.5
    (1.0, True)
    """
    variances = np.square(plan.noise_std)
    if len(variances) == 0:
        return 1.0
    return float(variances.mean() / np.exp(np.log(variances).mean()))
