"""The privacy curve of the Gaussian mechanism, and how to read a success rate on it.

A Gaussian mechanism has one parameter ``μ``: sensitivity over the noise's standard deviation. All
else follows from it: the ``δ`` at every ``ε``, and the success of the best membership guess,
``Φ(μ/2)``. One ``(ε, δ)`` of the curve says much less: a mechanism that is only known by that point
may allow a success of ``(e^ε + δ)/(1 + e^ε)``.
"""

from __future__ import annotations

import math
from functools import lru_cache

from pacprivacy._checks import check_positive
from pacprivacy.errors import BudgetError


def gaussian_delta(epsilon: float, parameter: float) -> float:
    """Return the least ``δ`` of the Gaussian mechanism at ``ε``.

    Parameters
    ----------
    epsilon : float >= 0, public
        The ``ε`` of differential privacy.
    parameter : float > 0, public
        ``μ``: sensitivity over the noise's standard deviation. Several Gaussian mechanisms
        together are one with ``μ² = Σ μ_i²``.

    Returns
    -------
    float
        ``Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)`` (Balle and Wang 2018); exact for every ``ε``.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    from scipy.special import log_ndtr  # slow to import, not always needed

    first = float(log_ndtr(parameter / 2 - epsilon / parameter))
    second = epsilon + float(log_ndtr(-parameter / 2 - epsilon / parameter))
    # The difference of the logarithms keeps digits where both terms are tiny.
    return -math.exp(first) * math.expm1(min(0.0, second - first))


def gaussian_parameter(epsilon: float, delta: float) -> float:
    """Return the largest ``μ`` that ``(ε, δ)`` allows, rounded down.

    Examples
    --------
    >>> round(1 / gaussian_parameter(1.0, 1e-5), 4)  # noise for sensitivity 1
    3.7306
    """
    check_positive("epsilon", epsilon, advice="Use about 1.")
    _check_delta(delta)
    return _largest_parameter(float(epsilon), float(delta))


def gaussian_epsilon(parameter: float, delta: float) -> float:
    """Return the least ``ε`` of a Gaussian mechanism at ``δ``, rounded up.

    Parameters
    ----------
    parameter : float >= 0, public
        ``μ``; infinite without noise.
    delta : float in (0, 1), public
        The ``δ`` to find ``ε`` for.
    """
    if not parameter >= 0.0:
        raise BudgetError(f"parameter must be >= 0; got {parameter}. Use sensitivity / noise.")
    _check_delta(delta)
    if math.isinf(parameter):
        return math.inf
    if parameter == 0.0 or gaussian_delta(0.0, parameter) <= delta:
        return 0.0
    return _least_epsilon(float(parameter), float(delta))


def gaussian_success(parameter: float) -> float:
    """Return the success of the best membership guess at prior 1/2 against Gaussian noise."""
    if not parameter >= 0.0:
        raise BudgetError(f"parameter must be >= 0; got {parameter}. Use sensitivity / noise.")
    return 1.0 - 0.5 * math.erfc(parameter / math.sqrt(8.0))


def gaussian_equivalent(success: float) -> float:
    """Return the ``μ`` of the Gaussian mechanism with the same membership success.

    It matches the success of guessing one record at prior 1/2 and nothing else: it is not a
    claim of differential privacy.

    Parameters
    ----------
    success : float in [0, 1], public
        Success rate of the best membership guess, prior 1/2.

    Returns
    -------
    float
        ``2 Φ⁻¹(q)``, rounded down; 0 for what a blind guess reaches, infinite for certainty.
    """
    from scipy.special import ndtri  # slow to import, not always needed

    if not 0.0 <= success <= 1.0:
        raise BudgetError(
            f"success must be between 0 and 1; got {success}. Pass a fraction, not a percentage."
        )
    if success <= 0.5:
        return 0.0
    if success == 1.0:
        return math.inf
    found = 2.0 * float(ndtri(success))
    step = 2.0**-52
    while gaussian_success(found) > success:  # towards more noise, never less
        found *= 1.0 - step
        step *= 2.0
    return found


@lru_cache(maxsize=4096)
def _largest_parameter(epsilon: float, delta: float) -> float:
    from scipy.optimize import brentq  # slow to import, not always needed

    def excess(log_parameter: float) -> float:
        return gaussian_delta(epsilon, math.exp(log_parameter)) - delta

    low, high = 0.0, 1.0
    while excess(low) > 0:
        low -= 1.0
    while excess(high) < 0:
        high += 1.0
    root = float(brentq(excess, low, high, xtol=1e-12))
    step = 1e-12
    while excess(root) > 0:  # towards more noise, never less
        root -= step
        step *= 2
    return math.exp(root)


@lru_cache(maxsize=4096)
def _least_epsilon(parameter: float, delta: float) -> float:
    from scipy.optimize import brentq  # slow to import, not always needed

    def excess(epsilon: float) -> float:
        return gaussian_delta(epsilon, parameter) - delta

    high = 1.0
    while excess(high) > 0:
        high *= 2.0
    root = float(brentq(excess, 0.0, high, xtol=1e-14, rtol=1e-13))
    step = 1e-14 + 1e-13 * root
    while excess(root) > 0:  # a promise that is too large is kept, one too small is not
        root += step
        step *= 2
    return root


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise BudgetError(f"delta must be between 0 and 1; got {delta}. Use below 1/n.")
