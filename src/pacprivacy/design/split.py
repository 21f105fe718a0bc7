"""Split the budget of one release evenly over its coordinates, as the papers do."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import BudgetError
from pacprivacy.noise.bounds import log_det_of_plan
from pacprivacy.noise.covariance import axis_variances
from pacprivacy.noise.frames import AxisFrame
from pacprivacy.noise.plan import NoisePlan, make_plan
from pacprivacy.noise.spread import weighted_mean
from pacprivacy.theory.design import noise_ratio

__all__ = ["uniform_plan"]

_MOST_TRIES: Final = 20


def uniform_plan(values: Matrix, log_p: Vector, *, mi_nats: float) -> NoisePlan:
    """Give every coordinate that moves the same share: noise of ``d/2b`` times its variance.

    Parameters
    ----------
    values : array of shape (m, d), curator-only
        The output on every candidate.
    log_p : array of shape (m,)
        The attacker's normalised log belief; variances are weighted by it.
    mi_nats : float > 0, public
        Budget ``b`` of this release.

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
