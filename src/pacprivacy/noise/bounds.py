"""The log-determinant bound of a plan, on the lattice points that are really used."""

from __future__ import annotations

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.noise.plan import Integers, NoisePlan
from pacprivacy.theory.information import entropy, information_slack

__all__ = ["log_det_of_plan", "log_det_of_points"]


def log_det_of_points(points: Matrix, weights: Vector, groups: Integers | None) -> float:
    """Bound the information of whitened points by that of a Gaussian of equal covariance.

    With a revealed group ``G``: ``MI <= H(G) + 1/2 ln det(I + E[Cov(W | G)])``, by concavity of
    the log-determinant.
    """
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
    """Return bound (2) for the integer noise of a plan, lattice slack included.

    Guarantee
    ---------
    Claim N-4. At least the mutual information between the secret and the release, for every
    law of the outputs.
    """
    points = plan.points / plan.units_per_std
    groups = None if plan.revealed is None else plan.revealed.groups
    bound = log_det_of_points(points, weights, groups)
    return bound * (1 + 1e-12) + information_slack(plan.total_variation_slack, plan.n_subsets)
