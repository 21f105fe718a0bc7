"""Reference laws of [RPAC], and what an attacker lacks of them."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from pacprivacy._checks import ArrayLike, Matrix, Vector, check_log_belief
from pacprivacy.errors import BudgetError, PoolError
from pacprivacy.theory import DIVERGENCES, DivergenceName, bernoulli_kl

RIDGE = 1e-9


def reference_law(
    features: ArrayLike,
    kind: Literal["uniform", "truncated uniform", "gaussian", "sigmoid"],
    *,
    low: float = -math.inf,
    high: float = math.inf,
    log_belief: Vector | None = None,
) -> Vector:
    """Return ``ln R`` over the candidates for ``R(k) ∝ r(x_k)``.

    Parameters
    ----------
    features : array of shape (m,) or (m, q)
        ``x_k``: what the reference looks at, such as the candidates' outputs.
    kind : str
        ``uniform``: all alike. ``truncated uniform``: alike where every feature is within
        ``[low, high]``, none elsewhere. ``gaussian``: the normal density with the features' own
        mean and covariance. ``sigmoid``: the density that the sigmoid, applied to standardised
        features, pulls back from the uniform law (a product of logistic densities).
    low, high : float
        For ``truncated uniform``.
    log_belief : array of shape (m,), optional
        Law under which moments are matched; uniform by default.

    Returns
    -------
    array of shape (m,)
        Normalised; ``-inf`` where the reference rules a candidate out.
    """
    x = np.asarray(features, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x.reshape(len(x), -1)
    weights = np.exp(check_log_belief(log_belief, len(x)))
    if kind == "uniform":
        log_r = np.zeros(len(x))
    elif kind == "truncated uniform":
        inside = ((x >= low) & (x <= high)).all(axis=1)
        if not inside.any():
            raise PoolError(
                f"low and high must leave at least one candidate; got {low} and {high}. "
                f"Widen the range."
            )
        log_r = np.where(inside, 0.0, -math.inf)
    elif kind == "gaussian":
        log_r = _gaussian_log_density(x, weights)
    elif kind == "sigmoid":
        log_r = _logistic_log_density(x, weights)
    else:
        raise PoolError(
            f"kind must be 'uniform', 'truncated uniform', 'gaussian' or 'sigmoid'; got {kind!r}. "
            f"Use 'uniform'."
        )
    return check_log_belief(log_r, len(x))


def _gaussian_log_density(x: Matrix, weights: Vector) -> Vector:
    """Return the normal log density up to a constant, along the directions that move."""
    centered = x - weights @ x
    values, vectors = np.linalg.eigh((centered.T * weights) @ centered)
    moving = values > RIDGE * max(float(values[-1]), 1e-300)
    scores = centered @ vectors[:, moving] / np.sqrt(values[moving])
    log_density: Vector = -0.5 * np.square(scores).sum(axis=1)
    return log_density


def _logistic_log_density(x: Matrix, weights: Vector) -> Vector:
    centered = x - weights @ x
    std = np.sqrt(weights @ np.square(centered))
    scores = np.abs(centered[:, std > 0] / std[std > 0])
    # ln σ(s) + ln σ(-s), symmetric and without overflow
    log_density: Vector = -(scores + 2 * np.log1p(np.exp(-scores))).sum(axis=1)
    return log_density


def posterior_disadvantage(
    success: float, prior: float, *, intrinsic: float = 0.0, divergence: DivergenceName = "kl"
) -> float:
    """Return what an attacker with this success still lacks: intrinsic privacy less advantage.

    The advantage is the divergence of the attacker's success from the blind one. No attacker's
    exceeds that of (secret, release) from independence, so with ``divergence="kl"`` the result
    is at least the residual privacy.
    """
    return intrinsic - bernoulli_divergence(divergence, success, prior)


def bernoulli_divergence(name: DivergenceName, q: float, p: float) -> float:
    """Divergence of a coin with success rate ``q`` from one with success rate ``p``.

    ``Σ x ln(x/y)``, ``1/2 Σ |x - y|``, ``Σ (x - y)²/y`` or ``1 - Σ sqrt(xy)``, by name.
    """
    if name == "kl":
        return bernoulli_kl(float(q), float(p))
    if not (0 <= q <= 1 and 0 <= p <= 1):
        raise BudgetError(
            f"q and p must be between 0 and 1; got {q} and {p}. Pass fractions, not percentages."
        )
    if name == "total variation":
        return abs(q - p)
    if name == "chi-square":
        if p in (0.0, 1.0):
            return 0.0 if q == p else math.inf
        return (q - p) ** 2 / (p * (1 - p))
    if name == "squared Hellinger":
        # 1 - cos of the angle between the two unit vectors, in the form that does not cancel
        angle = math.asin(math.sqrt(q)) - math.asin(math.sqrt(p))
        return 2 * math.sin(angle / 2) ** 2
    raise BudgetError(f"name must be one of {', '.join(DIVERGENCES)}; got {name!r}. Use 'kl'.")
