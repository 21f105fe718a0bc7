"""Privacy-conscious design: the released error, and the ridge penalty that minimises it.

A release whose every coordinate gets noise of ``C`` times its own variance over subsets has the
error ``Bias² + (1 + C) Variance + floor``. ``C``, the *noise ratio*, grows as the budget shrinks,
so a private release wants more regularisation than a public one. Everything broadcasts over
dimensions and budgets. Gradient descent is in :mod:`pacprivacy.theory.descent`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import BudgetError
from pacprivacy.theory.ranges import Array, above_zero, not_negative

__all__ = [
    "noise_ratio",
    "released_error",
    "ridge_error",
    "ridge_error_ratio",
    "ridge_penalty",
]


def noise_ratio(mi_nats: npt.ArrayLike, *, n_dimensions: int = 1, n_steps: int = 1) -> Array:
    """Noise variance over output variance when a budget is split evenly.

    Parameters
    ----------
    mi_nats : float or array > 0, public
        Total budget on the mutual information; infinity for a release without noise.
    n_dimensions, n_steps : int >= 1, public
        The budget is split evenly over so many dimensions and steps.

    Returns
    -------
    array
        ``C = d T / 2B``.

    Examples
    --------
    >>> float(noise_ratio(1 / 4, n_dimensions=11))
    22.0
    """
    budget = above_zero("mi_nats", mi_nats, advice="Use about 0.02 for a success below 60 %.")
    if n_dimensions < 1 or n_steps < 1:
        raise BudgetError(
            f"n_dimensions and n_steps must be at least 1; got {n_dimensions} and {n_steps}. "
            "Count the released numbers."
        )
    return np.asarray(n_dimensions * n_steps / (2.0 * budget))


def released_error(
    bias: npt.ArrayLike,
    variance: npt.ArrayLike,
    *,
    ratio: npt.ArrayLike,
    floor: npt.ArrayLike = 0.0,
) -> Array:
    """Squared error of a release: the bias, variance and privacy decomposition.

    Parameters
    ----------
    bias : float or array, curator-only
        Mean of the mechanism over subsets minus the truth.
    variance : float or array >= 0, curator-only
        Variance of the mechanism over subsets.
    ratio : float or array >= 0, public
        Noise variance over ``variance``; see :func:`noise_ratio`.
    floor : float or array >= 0
        Error that nothing removes, such as the noise of the target.

    Returns
    -------
    array
        ``bias² + (1 + C) variance + floor``.

    Guarantee
    ---------
    Claim D-1. Exact for every law of the subsets, if the noise is independent of the subset and
    has mean zero and variance ``C * variance``.

    Examples
    --------
    >>> float(released_error(0.1, 0.02, ratio=8.0))
    0.19
    """
    spread = not_negative("variance", variance)
    return np.asarray(
        np.square(np.asarray(bias, dtype=np.float64))
        + (1.0 + not_negative("ratio", ratio)) * spread
        + not_negative("floor", floor)
    )


def ridge_penalty(
    signal: npt.ArrayLike, noise_var: npt.ArrayLike, *, ratio: npt.ArrayLike = 0.0
) -> Array:
    """Ridge penalty of one orthogonal coordinate that is best for the released coefficient.

    Parameters
    ----------
    signal : float or array, curator-only
        True coefficient ``w``; where it is zero the penalty is infinite.
    noise_var : float or array >= 0, curator-only
        Variance ``σ²`` of the target around the regression.
    ratio : float or array >= 0, public
        Noise ratio ``C``; 0 gives the post-hoc penalty ``λ∞``.

    Returns
    -------
    array
        ``(1 + C) σ² / w²``.

    Guarantee
    ---------
    Claim D-2. The minimiser of :func:`ridge_error`.

    Examples
    --------
    >>> ridge_penalty([0.5, 0.1], 0.5, ratio=[[0.0], [8.0]]).round(6)
    array([[  2.,  50.],
           [ 18., 450.]])
    """
    power = np.square(np.asarray(signal, dtype=np.float64))
    spread = (1.0 + not_negative("ratio", ratio)) * not_negative("noise_var", noise_var)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        penalty = np.asarray(spread / power)
    return np.where(power == 0.0, np.inf, penalty)


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
    shrink, w = np.asarray(penalty, dtype=np.float64), np.asarray(signal, dtype=np.float64)
    mass = above_zero("gram", gram, advice="Drop coordinates that are always zero.")
    spread = (1.0 + not_negative("ratio", ratio)) * not_negative("noise_var", noise_var)
    return np.asarray((np.square(shrink * w) + spread * mass) / np.square(mass + shrink))


def ridge_error_ratio(quality: npt.ArrayLike, *, ratio: npt.ArrayLike) -> Array:
    """Predicted error of the conscious over the post-hoc penalty, one coordinate.

    Parameters
    ----------
    quality : float or array >= 0
        ``Q = μ w² / σ²``: signal to noise of the fit without privacy.
    ratio : float or array >= 0, public
        Noise ratio ``C``.

    Returns
    -------
    array in (0, 1]
        ``(C+1)(Q+1)² / ((Q+C+1)(QC+Q+1))``.

    Examples
    --------
    >>> float(ridge_error_ratio(8.0, ratio=noise_ratio(2**-4)).round(3))
    0.587
    """
    q, c = not_negative("quality", quality), not_negative("ratio", ratio)
    return np.asarray((c + 1.0) * np.square(q + 1.0) / ((q + c + 1.0) * (q * c + q + 1.0)))
