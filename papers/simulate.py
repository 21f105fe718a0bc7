"""Simulated releases, many at a time: seeded secrets and seeded noise, which protect nobody."""

from __future__ import annotations

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.budget import Information, Membership
from pacprivacy.design.tuning import simulate_tuned_releases
from pacprivacy.theory import posterior_success

simulate_pool = simulate_tuned_releases  # the papers tune nothing with it


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
