"""The papers' predictions for privacy-conscious design: released errors and bounds on descent."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]


def released_error(
    bias: npt.ArrayLike,
    variance: npt.ArrayLike,
    *,
    ratio: npt.ArrayLike,
    floor: npt.ArrayLike = 0.0,
) -> Array:
    """Squared error of a release: the bias, variance and privacy decomposition.

    Guarantee
    ---------
    Claim D-1. Exact for every law of the subsets, if the noise is independent of the subset and
    has mean zero and variance ``C * variance``.
    """
    spread = np.asarray(variance)
    return np.asarray(
        np.square(np.asarray(bias)) + (1.0 + np.asarray(ratio)) * spread + np.asarray(floor)
    )


def ridge_error(
    penalty: npt.ArrayLike,
    signal: npt.ArrayLike,
    noise_var: npt.ArrayLike,
    *,
    gram: npt.ArrayLike,
    ratio: npt.ArrayLike = 0.0,
) -> Array:
    """Return the expected squared error of one released ridge coefficient.

    ``(λ² w² + (1+C) σ² μ) / (μ + λ)²``, with ``gram`` the expected sum of squares ``μ`` of the
    coordinate over the subset.
    """
    shrink, w = np.asarray(penalty), np.asarray(signal)
    mass = np.asarray(gram)
    spread = (1.0 + np.asarray(ratio)) * np.asarray(noise_var)
    return np.asarray((np.square(shrink * w) + spread * mass) / np.square(mass + shrink))


def ridge_error_ratio(quality: npt.ArrayLike, *, ratio: npt.ArrayLike) -> Array:
    """Predicted error of the conscious over the post-hoc penalty, one coordinate."""
    q, c = np.asarray(quality), np.asarray(ratio)
    return np.asarray((c + 1.0) * np.square(q + 1.0) / ((q + c + 1.0) * (q * c + q + 1.0)))


def descent_bound(
    step: npt.ArrayLike,
    *,
    start_error: npt.ArrayLike,
    gradient_var: npt.ArrayLike,
    convexity: npt.ArrayLike,
    n_steps: int,
    ratio: npt.ArrayLike = 0.0,
) -> Array:
    """Bound ``J`` on the squared error of the last iterate of noisy gradient descent.

    Guarantee
    ---------
    Claim D-3. For every ``μ``-strongly convex, ``L``-smooth objective (quadratic or not),
    ``0 < η <= 1/L`` and gradients that are unbiased over subsets, the expected squared distance
    of the last iterate from the optimum is at most the result.
    """
    eta, mu = np.asarray(step), np.asarray(convexity)
    spread = (1.0 + np.asarray(ratio)) * np.asarray(gradient_var, dtype=np.float64)
    with np.errstate(divide="ignore"):
        log_left = n_steps * np.log1p(-eta * mu)
    return np.asarray(
        np.exp(log_left) * np.asarray(start_error) - eta / mu * spread * np.expm1(log_left)
    )


def contraction_bound(
    step: npt.ArrayLike,
    *,
    start_error: npt.ArrayLike,
    released_var: npt.ArrayLike,
    convexity: npt.ArrayLike,
) -> Array:
    """Bound on the squared error of the last iterate, from what each step really released.

    Sharper than :func:`descent_bound`: a gradient step contracts the *squared* error by
    ``(1-ημ)²``, and every step brings its own variance.

    Guarantee
    ---------
    Claim D-3. Same conditions as :func:`descent_bound`.
    """
    eta, mu = np.asarray(step), np.asarray(convexity)
    error = np.asarray(start_error)
    for variance in np.asarray(released_var):
        error = np.square(1.0 - eta * mu) * error + np.square(eta) * variance
    return np.asarray(error)
