"""Reference laws on a pool: what it means to know nothing about the secret."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_log_belief
from pacprivacy.errors import PoolError

__all__ = ["reference_law"]

RIDGE = 1e-9


def reference_law(
    features: npt.ArrayLike,
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

    Examples
    --------
    >>> np.exp(reference_law([0.0, 1.0, 2.0, 9.0], "truncated uniform", high=2.0)).round(3)
    array([0.333, 0.333, 0.333, 0.   ])
    >>> np.exp(reference_law([-1.0, 0.0, 0.0, 1.0], "gaussian")).round(3)
    array([0.134, 0.366, 0.366, 0.134])
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
    centred = x - weights @ x
    values, vectors = np.linalg.eigh((centred.T * weights) @ centred)
    moving = values > RIDGE * max(float(values[-1]), 1e-300)
    scores = centred @ vectors[:, moving] / np.sqrt(values[moving])
    log_density: Vector = -0.5 * np.square(scores).sum(axis=1)
    return log_density


def _logistic_log_density(x: Matrix, weights: Vector) -> Vector:
    centred = x - weights @ x
    std = np.sqrt(weights @ np.square(centred))
    moving = std > 0
    scores = centred[:, moving] / std[moving]
    # ln σ(s) + ln σ(-s), symmetric and without overflow
    log_density: Vector = -(np.abs(scores) + 2 * np.log1p(np.exp(-np.abs(scores)))).sum(axis=1)
    return log_density
