"""How much Gaussian noise differential privacy needs: the exact (analytic) condition."""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import special
from scipy.optimize import brentq

from pacprivacy._checks import check_positive
from pacprivacy.errors import BudgetError

__all__ = ["gaussian_delta", "gaussian_parameter"]


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
    first = special.log_ndtr(parameter / 2 - epsilon / parameter)
    second = epsilon + special.log_ndtr(-parameter / 2 - epsilon / parameter)
    # The difference of the logarithms keeps digits where both terms are tiny.
    return float(-math.exp(first) * math.expm1(min(0.0, second - first)))


def gaussian_parameter(epsilon: float, delta: float) -> float:
    """Return the largest ``μ`` that ``(ε, δ)`` allows, rounded down.

    Raises
    ------
    BudgetError
        If an argument is out of range.

    Examples
    --------
    >>> round(1 / gaussian_parameter(1.0, 1e-5), 4)  # noise for sensitivity 1
    3.7306
    """
    check_positive("epsilon", epsilon, advice="Use about 1.")
    if not 0.0 < delta < 1.0:
        raise BudgetError(f"delta must be between 0 and 1; got {delta}. Use below 1/n.")
    return _largest_parameter(float(epsilon), float(delta))


@lru_cache(maxsize=4096)
def _largest_parameter(epsilon: float, delta: float) -> float:
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
