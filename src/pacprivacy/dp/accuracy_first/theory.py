"""Formulas of accuracy-first learning: radii, sensitivities, losses, and what theorems demand.

Everything is for records with ``|x| <= 1`` (sum of absolute entries for the covariance method,
Euclidean for logistic regression), targets in [-1, 1] or labels -1 and 1, neighbours that differ
in one record, and risks with penalty ``λ|θ|²/2``.
"""

from __future__ import annotations

import math
from typing import Final

LARGEST_PULL: Final = 0.27846455  # max of m/(1 + e^m): Lambert's W at 1/e, rounded up


def ridge_radius(penalty: float) -> float:
    """Return a length that no ridge solution exceeds: ``1/(2 sqrt(λ))``."""
    return 0.5 / math.sqrt(penalty)


def logistic_radius(penalty: float) -> float:
    """Return a length that no regularised logistic solution exceeds: ``sqrt(W(1/e)/λ)``."""
    return math.sqrt(LARGEST_PULL / penalty)


def ridge_sensitivity(radius: float, n_records: int) -> float:
    """Return how far one record moves the excess risk of a model in the ball: ``(1+R)²/n``."""
    return (1.0 + radius) ** 2 / n_records


def logistic_sensitivity(radius: float, n_records: int) -> float:
    """Return how far one record moves the excess risk of a model in the ball: ``2M/n``.

    The loss ranges over ``ln((1 + e^M)/(1 + e^-M)) = M``.
    """
    return 2.0 * radius / n_records


def output_sensitivity(n_records: int, n_features: int, penalty: float) -> float:
    """Return how far one record moves the logistic optimum: ``2 sqrt(p)/(n λ)``, absolute sum."""
    return 2.0 * math.sqrt(n_features) / (n_records * penalty)


def doubling_loss(
    step: int, *, first: float, sensitivity: float, n_steps: int, alpha: float, gamma: float
) -> float:
    """Return the ex-post loss of the doubling method that stops at ``step`` (1, 2, ...).

    ``2 k Δ ln(T/γ)/α`` for ``k`` noisy tests, ``(2^k - 1) ε_1`` for ``k`` independent releases.
    """
    tests = 2.0 * step * sensitivity * math.log(n_steps / gamma) / alpha
    return tests + (2.0**step - 1.0) * first


def covariance_epsilon(
    alpha: float, *, n_records: int, n_features: int, radius: float, gamma: float | None = None
) -> float:
    """Return the ``ε`` at which perturbed sums have excess risk ``alpha``, by theorem.

    On average without ``gamma``; with it, with probability ``1 - gamma``.

    Guarantee
    ---------
    Claim AF-8.
    """
    products = 2.0 * radius * math.sqrt(n_features)
    moments = radius**2 * 0.5 * math.sqrt(n_features * (n_features + 3))
    average = 4.0 * math.sqrt(2.0) * (products + moments) / (n_records * alpha)
    return average if gamma is None else average / math.sqrt(gamma)


def printed_covariance_epsilon(
    alpha: float, *, n_records: int, n_features: int, penalty: float
) -> float:
    """Return the same as the paper prints it: ``4 sqrt(2) (2 sqrt(p) R + p R²)/(n α)``.

    Its ball has ``R = 1/sqrt(λ)``, and pairs of features are perturbed as if they came once.
    """
    radius = 1.0 / math.sqrt(penalty)
    size = 2.0 * math.sqrt(n_features) * radius + n_features * radius**2
    return 4.0 * math.sqrt(2.0) * size / (n_records * alpha)


def output_epsilon(alpha: float, *, n_records: int, n_features: int, penalty: float) -> float:
    """Return the ``ε`` that the paper's theorem demands of output perturbation, on average.

    ``2 sqrt(2) p/(n λ α)``: the loss moves at most as far as the model.
    """
    return 2.0 * math.sqrt(2.0) * n_features / (n_records * penalty * alpha)


def smooth_output_epsilon(
    alpha: float, *, n_records: int, n_features: int, penalty: float, gamma: float | None = None
) -> float:
    """Return a smaller sufficient ``ε``: near its minimum a smooth risk grows quadratically.

    On average without ``gamma``; with it, with probability ``1 - gamma``.

    Guarantee
    ---------
    Claim AF-8.
    """
    wanted = alpha if gamma is None else alpha * gamma
    curvature = math.sqrt(0.25 + penalty)
    return 2.0 * n_features * curvature / (n_records * penalty * math.sqrt(wanted))
