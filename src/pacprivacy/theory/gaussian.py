"""The Gaussian mechanism's curve, and a success rate read as differential privacy."""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final

from pacprivacy._checks import check_positive
from pacprivacy.errors import BudgetError
from pacprivacy.theory.bounds import epsilon_equivalent, falling_root

READ_AT_DELTA: Final = 1e-5  # where the ε of a Gaussian mechanism is read off its curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """A membership success at prior 1/2 in the vocabulary of differential privacy.

    Randomised response reaches the success with ``pure_epsilon``; ``gaussian_mu`` is the ``μ`` of
    the Gaussian mechanism with this success, ``gaussian_epsilon`` its ``ε`` at ``delta``.
    """

    pure_epsilon: float
    gaussian_mu: float
    gaussian_epsilon: float
    delta: float


def read_as_dp(success: float, delta: float = READ_AT_DELTA) -> Readings:
    """Return the differential privacy with the same membership success.

    Two readings, since one ``(ε, δ)`` says little: pure differential privacy, and the Gaussian
    mechanism, whose ``ε`` is several times larger. Neither is a claim of differential privacy.
    """
    parameter = gaussian_equivalent(success)
    return Readings(
        pure_epsilon=epsilon_equivalent(success),
        gaussian_mu=parameter,
        gaussian_epsilon=gaussian_epsilon(parameter, delta),
        delta=float(delta),
    )


def gaussian_delta(epsilon: float, parameter: float) -> float:
    """Return the least ``δ`` of the Gaussian mechanism at ``ε``, exactly.

    ``Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)`` (Balle and Wang 2018); the parameter ``μ`` is the
    sensitivity over the noise's standard deviation. Several mechanisms together have ``μ² = Σ
    μ_i²``.
    """
    from scipy.special import log_ndtr  # slow to import, not always needed

    first = float(log_ndtr(parameter / 2 - epsilon / parameter))
    second = epsilon + float(log_ndtr(-parameter / 2 - epsilon / parameter))
    # The difference of the logarithms keeps digits where both terms are tiny.
    return -math.exp(first) * math.expm1(min(0.0, second - first))


def gaussian_parameter(epsilon: float, delta: float) -> float:
    """Return the largest ``μ`` that ``(ε, δ)`` allows, rounded down."""
    check_positive("epsilon", epsilon, advice="Use about 1.")
    _check_delta(delta)
    return _largest_parameter(float(epsilon), float(delta))


def gaussian_epsilon(parameter: float, delta: float) -> float:
    """Return the least ``ε`` at ``δ`` of the Gaussian mechanism of parameter ``μ``, rounded up."""
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
    """Return the ``μ`` of the Gaussian mechanism with this success, rounded down; no DP claim."""
    if not 0.0 <= success <= 1.0:
        raise BudgetError(
            f"success must be between 0 and 1; got {success}. Pass a fraction, not a percentage."
        )
    if success <= 0.5:
        return 0.0
    if success == 1.0:
        return math.inf
    parameter = 2.0 * NormalDist().inv_cdf(success)  # much faster to import than scipy's
    step = 2.0**-52
    while gaussian_success(parameter) > success:  # towards more noise, never less
        parameter *= 1.0 - step
        step *= 2.0
    return parameter


@lru_cache(maxsize=4096)
def _largest_parameter(epsilon: float, delta: float) -> float:
    def excess(log_noise: float) -> float:
        return gaussian_delta(epsilon, math.exp(-log_noise)) - delta

    low, high = -1.0, 0.0
    while excess(high) > 0:
        high += 1.0
    while excess(low) < 0:
        low -= 1.0
    return math.exp(-falling_root(excess, low, high))  # towards more noise, never less


@lru_cache(maxsize=4096)
def _least_epsilon(parameter: float, delta: float) -> float:
    def excess(epsilon: float) -> float:
        return gaussian_delta(epsilon, parameter) - delta

    high = 1.0
    while excess(high) > 0:
        high *= 2.0
    return falling_root(excess, 0.0, high)  # a promise that is too large is kept


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise BudgetError(f"delta must be between 0 and 1; got {delta}. Use below 1/n.")
