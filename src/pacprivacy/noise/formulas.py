"""Noise from a covariance by formula: the papers' rules, and the best one for their bound.

A formula maps variances to noise *variances*, one per direction; a direction along which the
output never moves gets none. Rules apply formulas and prove them by the log-determinant bound.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.errors import BudgetError
from pacprivacy.noise.lattice import Integers
from pacprivacy.noise.plan import NoisePlan, PlanProblem
from pacprivacy.theory import entropy, information_slack_bound, water_filled_noise

ADVICE = "Use about 0.02 to keep any membership guess below 60 %."
ROUND_UP = 1 + 1e-12

Formula: TypeAlias = Callable[..., Vector]
Planner: TypeAlias = Callable[[float], NoisePlan]


def isotropic(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the same noise in every direction: ``tr Σ / 2β`` (claim N-1, by ``ln(1+x) <= x``)."""
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    return np.full(len(variances), ROUND_UP * float(variances.sum()) / (2 * beta))


def isotropic_max(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the papers' baseline: the largest ``proportional`` variance everywhere (claim N-1)."""
    return np.full(len(variances), float(proportional(variances, mi_nats=mi_nats).max(initial=0.0)))


def proportional(variances: Vector, *, mi_nats: float) -> Vector:
    """Return noise in proportion to each direction's standard deviation ``s_i`` (claim N-2).

    ``s_i Σ_j s_j / 2β``: the least total noise with ``Σ_i s_i² / 2 e_i <= β``. Along the coordinate
    axes this is the papers' rule.
    """
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    std = np.sqrt(variances)
    noise_var: Vector = ROUND_UP * std * std.sum() / (2 * beta)
    return noise_var


def waterfill(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the least noise that the log-determinant bound can certify.

    Parameters
    ----------
    variances : array of shape (r,), curator-only
        Variance of the output along each principal axis of the pool, >= 0.
    mi_nats : float > 0, public
        Budget on the mutual information between the secret index and the release.

    Returns
    -------
    array of shape (r,), curator-only
        Noise variance (not standard deviation) along each axis; 0 where the output never moves.

    Guarantee
    ---------
    Claim N-3. Assumes ``variances`` are exact for the pool (divisor m). Ensures
    ``log_det_bound(variances, result) <= mi_nats``; the root is approached from the side of more
    noise.
    """
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    noise_var = np.zeros(len(variances))
    moving = variances > 0
    if not moving.any():
        return noise_var
    top = float(variances.max())
    scaled = np.maximum(variances[moving] / top, 1e-300)  # a quotient must not become zero
    noise_var[moving] = top * water_filled_noise(scaled, beta)
    return noise_var


def log_det_of_points(points: Matrix, weights: Vector, groups: Integers | None) -> float:
    """Bound the information of whitened points: ``H(G) + 1/2 ln det(I + E[Cov(W | G)])``."""
    group_nats = 0.0
    if groups is None:
        centred = points - weights @ points
    else:
        mass = np.bincount(groups, weights)
        alive = mass > 0
        group_nats = float(entropy(np.log(mass[alive])))
        sums = np.zeros((len(mass), points.shape[1]))
        np.add.at(sums, groups, weights[:, None] * points)
        centred = points - (sums / np.where(alive, mass, 1.0)[:, None])[groups]
    weighted = np.sqrt(weights)[:, None] * centred
    small = weighted.T @ weighted if weighted.shape[1] <= len(weighted) else weighted @ weighted.T
    eigenvalues = np.maximum(np.linalg.eigvalsh(small), 0.0) if small.size else np.zeros(0)
    return group_nats + 0.5 * float(np.log1p(eigenvalues).sum())


def log_det_of_plan(plan: NoisePlan, weights: Vector) -> float:
    """Return bound (2) for the integer noise of a plan, lattice slack included (claim N-4)."""
    points = plan.points / plan.units_per_std
    bound = log_det_of_points(points, weights, plan.groups)
    return bound * (1 + 1e-12) + information_slack_bound(plan.total_variation_slack, plan.n_subsets)


def plan_by_formula(plan_for: Planner, problem: PlanProblem) -> NoisePlan:
    """Return the plan of a formula whose bound, slack included, implies every limit (claim N-4)."""
    weights, mi_nats = np.exp(problem.log_p), problem.gaussian_nats
    budget = mi_nats * (1 - 1e-9)
    for attempt in range(20):
        plan = plan_for(budget)
        plan = replace(plan, log_det_nats=log_det_of_plan(plan, weights))
        if plan.log_det_nats <= mi_nats:
            return plan
        # the lattice moves in steps, so ever larger cuts
        budget *= min(1.0, mi_nats / plan.log_det_nats) * (1 - 1e-9 * 2**attempt)
    raise BudgetError(
        f"budget must leave the release something to say: mi_nats must be large enough for the "
        f"lattice of {plan.n_directions} directions; got {mi_nats:.3g}. Use at least "
        f"Membership(0.51) or Information(1e-4); with less the noise drowns everything."
    )
