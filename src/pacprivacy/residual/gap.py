"""The Gaussianity gap: what the log-determinant bound charges beyond the true information.

``gap = D_KL(P_Z || N(μ_Z, Σ_Z)) = (log-determinant bound) - MI``. On a pool it is known up to the
interval of the information; the other estimators are lower bounds that do not need the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.information import (
    DEFAULT_GAMMA,
    default_draws,
    information_of_view,
)
from pacprivacy.adversary.view import Observable, View, view_of
from pacprivacy.errors import BudgetError
from pacprivacy.theory.concentration import Estimate

__all__ = ["Gap", "corrected_budget", "exact_gap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A Gaussianity gap, or a lower bound of one, in nats.

    ``lower`` is at most the true gap with probability at least ``confidence``; ``value`` is the
    estimate without its deviation term. ``method`` names the estimator.

    Examples
    --------
    >>> Gap(method="exact", value=0.12, lower=0.10, confidence=0.99, n_draws=1000).lower
    0.1
    """

    method: str
    value: float
    lower: float
    confidence: float
    n_draws: int
    upper: float | None = None


def noisy_view(outputs: object, plan: Observable, log_belief: Vector | None) -> View:
    """Return the view of a plan in which everything is released with noise."""
    view = view_of(outputs, plan, log_belief)
    if view.groups is not None:
        raise BudgetError(
            "plan must add noise in every direction that moves: where a part of the output is "
            "released without noise there is no Gaussian of equal covariance. Use another rule."
        )
    return view


def log_determinant(view: View) -> float:
    """Return bound (2) of a view of continuous noise, without the lattice's slack."""
    centred = np.sqrt(np.exp(view.log_prior))[:, None] * view.points
    eigenvalues = np.linalg.svd(centred, compute_uv=False) ** 2
    return 0.5 * float(np.log1p(eigenvalues).sum())


def exact_gap(
    outputs: object,
    plan: Observable,
    *,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Gap:
    """Return the gap of a plan on a pool: the log-determinant bound less the true information.

    Parameters
    ----------
    outputs, plan, log_belief, n_draws, gamma, rng
        As in :func:`pacprivacy.adversary.exact_information`.

    Guarantee
    ---------
    Claim RP-4. The true gap is between ``lower`` and ``upper`` with probability ``1 - gamma``.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> outputs = np.repeat([[-1.0], [1.0]], 16, axis=0)
    >>> plan = calibrate(outputs, pac.Information(0.6), rule="waterfill")
    >>> gap = exact_gap(outputs, plan, n_draws=20_000, rng=0)
    >>> 0 < gap.lower <= gap.value <= gap.upper
    True
    """
    view = noisy_view(outputs, plan, log_belief)
    draws = n_draws or default_draws(view.n_subsets)
    generator = public_generator(coerce_seed(rng), "gap")
    found = information_of_view(view, n_draws=draws, gamma=gamma, rng=generator)
    return gap_between(log_determinant(view), found)


def gap_between(log_det_nats: float, information: Estimate) -> Gap:
    """Return the gap between a log-determinant bound and an interval of the information."""
    return Gap(
        method="exact",
        value=max(0.0, log_det_nats - information.value),
        lower=max(0.0, log_det_nats - information.upper),
        upper=max(0.0, log_det_nats - information.lower),
        confidence=information.confidence,
        n_draws=information.n_draws,
    )


def corrected_budget(mi_nats: float, gap: Gap) -> float:
    """Return what a release really costs that was charged ``mi_nats`` by the Gaussian bound.

    ``mi_nats - gap.lower``, never below 0; what is saved is ``gap.lower``.

    Parameters
    ----------
    mi_nats : float
        The log-determinant bound that was charged.
    gap : Gap
        A lower bound of the gap of *the same* noise.

    Guarantee
    ---------
    Claim RP-4. At least the true information, with the confidence of the gap.

    Examples
    --------
    >>> gap = Gap(method="exact", value=0.12, lower=0.125, confidence=0.99, n_draws=1000)
    >>> corrected_budget(0.5, gap)
    0.375
    """
    if not mi_nats >= 0:
        raise BudgetError(f"mi_nats must be >= 0; got {mi_nats}. Pass the bound that was charged.")
    return max(0.0, mi_nats - gap.lower)
