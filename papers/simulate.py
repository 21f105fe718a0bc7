"""Simulated releases, many at a time: seeded secrets and seeded noise, which protect nobody."""

from __future__ import annotations

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import SimulatedSource
from pacprivacy.budget import Information, Membership
from pacprivacy.noise import NoisePlan
from pacprivacy.noise.lattice import sample_discrete_gaussian
from pacprivacy.noise.plan import Observation
from pacprivacy.theory import posterior_success


def budget_of(rule: str, mi_nats: float) -> Information | Membership:
    """Return what a rule is held to: ``risk`` to the success that the information implies.

    Examples
    --------
    >>> budget_of("exact", 0.25)
    Information(mi_nats=0.25)
    >>> round(budget_of("risk", 1 / 64).success, 3)
    0.588
    """
    if rule.startswith("risk"):
        return Membership(posterior_success(mi_nats))
    return Information(mi_nats)


def simulate_pool(plan: NoisePlan, n_releases: int, rng: np.random.Generator) -> Matrix:
    """Draw releases of a plan, shape (n_releases, d): uniform secrets, the plan's own law."""
    secrets = rng.integers(plan.n_subsets, size=n_releases)
    units = np.broadcast_to(plan.units_per_std, (n_releases, plan.n_directions))
    noise = sample_discrete_gaussian(units, SimulatedSource(rng))
    groups = None if plan.revealed is None else plan.revealed.groups
    return np.array(
        [
            plan.value_of(
                Observation(
                    integers=plan.points[k] + noise[i],
                    group=None if groups is None else int(groups[k]),
                )
            )
            for i, k in enumerate(secrets)
        ]
    )


def simulate_fresh(
    outputs: Matrix, noise_var: Vector, n_noises: int, rng: np.random.Generator
) -> Matrix:
    """Add float Gaussian noise to every output, ``n_noises`` times, as published code does.

    Releases of one output stand together: shape (m * n_noises, d).
    """
    repeated = np.repeat(outputs, n_noises, axis=0)
    noise: Matrix = np.sqrt(noise_var) * rng.standard_normal(repeated.shape)
    released: Matrix = repeated + noise
    return released
