"""Budget, success rate, Gaussian curve, differential privacy: how to read one as another."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias, overload

import numpy as np

from pacprivacy._checks import Vector, check_positive
from pacprivacy.errors import BudgetError
from pacprivacy.theory.information import bernoulli_kl

READ_AT_DELTA: Final = 1e-5  # where the ε of a Gaussian mechanism is read off its curve

# bernoulli_kl is within 1e-13 of the truth. A budget is read as this much larger when a
# success rate is printed and as twice this much smaller when a success rate is the target, so
# both roundings are safe and the round trip never lands above the target.
_MARGIN: Final = 2.0**-42


@overload
def posterior_success(mi_nats: float, prior: float = 0.5) -> float: ...
@overload
def posterior_success(mi_nats: Vector, prior: Vector | float = 0.5) -> Vector: ...
@overload
def posterior_success(mi_nats: Vector | float, prior: Vector) -> Vector: ...
def posterior_success(mi_nats: Vector | float, prior: Vector | float = 0.5) -> Vector | float:
    """Largest success rate that an information budget leaves to any adversary.

    The largest ``q >= prior`` with ``kl(q, prior) <= mi_nats``, rounded up; ``prior`` is the best
    success without the release, for someone who knows the pool.

    Guarantee
    ---------
    Claim T-1. Assumes ``mi_nats`` bounds the information and ``prior`` the blind success.
    Ensures that every adversary, for every success criterion, succeeds with probability at
    most the result. Slack: 2^-42 of the budget and one unit in the last place.
    """
    budget, start = np.broadcast_arrays(
        np.asarray(mi_nats, dtype=np.float64), np.asarray(prior, dtype=np.float64)
    )
    if not np.all(budget >= 0):
        raise BudgetError(
            f"mi_nats must be >= 0; got {mi_nats}. "
            "Use about 0.02 to keep any membership guess below 60 %."
        )
    _require_prior(start, prior)
    # Positive doubles are ordered like their bit patterns, so bisecting the patterns finds the
    # smallest double that is large enough, for every prior, in at most 63 steps.
    priors = start.ravel()
    low, high = priors.view(np.int64), np.ones_like(priors).view(np.int64)
    goal = budget.ravel() * (1.0 + _MARGIN)
    while np.any(high - low > 1):
        middle = low + (high - low) // 2
        enough = bernoulli_kl(middle.view(np.float64), priors) >= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    result = np.where(goal == 0.0, priors, high.view(np.float64)).reshape(start.shape)
    return float(result) if result.ndim == 0 else result


def mi_for_success(success: float, prior: float = 0.5) -> float:
    """Information budget that keeps every adversary at or below a success rate.

    Guarantee
    ---------
    Claim T-1. Ensures ``posterior_success(result, prior) <= success``.
    """
    _require_prior(np.asarray(prior, dtype=np.float64), prior)
    if not prior <= success <= 1.0:
        raise BudgetError(
            f"success must be between the prior {prior} and 1; got {success}. "
            "Nobody can be kept below what a blind guess achieves."
        )
    return bernoulli_kl(float(success), float(prior)) * (1.0 - 2.0 * _MARGIN)


def epsilon_equivalent(success: float, delta: float = 0.0) -> float:
    """Return the ε at which ``(ε, δ)`` alone allows the same membership success.

    ``max(0, ln((1-δ)/(1-q) - 1))``; infinite for certain success. It matches the success of
    guessing one record at prior 1/2 and nothing else: it is not a claim of differential privacy.
    The worst mechanism with that ``(ε, δ)`` reaches the success (randomised response, for δ = 0);
    another one stays below it, a Gaussian mechanism by far. To compare with a mechanism, use its
    own loss distribution; :func:`read_as_dp` has both readings.
    """
    if not 0.0 <= success <= 1.0:
        raise BudgetError(
            f"success must be between 0 and 1; got {success}. Pass a fraction, not a percentage."
        )
    _require_delta(delta)
    if success == 1.0:
        return math.inf
    odds = (success - delta) / (1.0 - success)
    return math.log(odds) if odds > 1.0 else 0.0


def success_for_epsilon(epsilon: float, delta: float = 0.0) -> float:
    """Membership success that (ε, δ)-differential privacy allows: at most ``1 - (1-δ)/(1+e^ε)``."""
    if not epsilon >= 0.0:
        raise BudgetError(
            f"epsilon must be >= 0; got {epsilon}. Use about 0.4 for a success below 60 %."
        )
    _require_delta(delta)
    # Written with e^-ε so that a large ε does not overflow.
    shrink = math.exp(-epsilon)
    return (1.0 + delta * shrink) / (1.0 + shrink)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """A membership success at prior 1/2 in the vocabulary of differential privacy.

    ``pure_epsilon`` allows this success and randomised response reaches it; ``gaussian_mu`` is the
    ``μ`` of the Gaussian mechanism with this success, ``gaussian_epsilon`` its ``ε`` at ``delta``.
    """

    pure_epsilon: float
    gaussian_mu: float
    gaussian_epsilon: float
    delta: float


def read_as_dp(success: float, delta: float = READ_AT_DELTA) -> Readings:
    """Return what differential privacy would have to be to allow the same membership success.

    Two readings, because one ``(ε, δ)`` says little about a mechanism: pure differential privacy,
    which randomised response exhausts, and the Gaussian mechanism, whose ``ε`` at a small ``δ`` is
    several times larger at the same success. Neither is a claim of differential privacy.
    """
    parameter = gaussian_equivalent(success)
    return Readings(
        pure_epsilon=epsilon_equivalent(success),
        gaussian_mu=parameter,
        gaussian_epsilon=gaussian_epsilon(parameter, delta),
        delta=float(delta),
    )


def _require_prior(values: Vector, given: object) -> None:
    if not np.all((values > 0) & (values <= 1)):
        raise BudgetError(
            f"prior must be above 0 and at most 1; got {given}. "
            "Use 1/2 for the membership of one record in a balanced pool."
        )


def _require_delta(delta: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise BudgetError(
            f"delta must be at least 0 and below 1; got {delta}. "
            "Use 0 for pure differential privacy."
        )


DivergenceName: TypeAlias = Literal["kl", "total variation", "chi-square", "squared Hellinger"]
DIVERGENCES: Final[tuple[DivergenceName, ...]] = (
    "kl",
    "total variation",
    "chi-square",
    "squared Hellinger",
)

_ROUND_UP_DIVERGENCE: Final = 1.0 + 2.0**-44


def bernoulli_divergence(name: DivergenceName, q: float, p: float) -> float:
    """Divergence of a coin with success rate ``q`` from one with success rate ``p``.

    ``Σ x ln(x/y)``, ``1/2 Σ |x - y|``, ``Σ (x - y)²/y`` or ``1 - Σ sqrt(xy)``, by name.
    """
    if name == "kl":
        return bernoulli_kl(float(q), float(p))
    _require_rates(q, p)
    if name == "total variation":
        return abs(q - p)
    if name == "chi-square":
        if p in (0.0, 1.0):
            return 0.0 if q == p else math.inf
        return (q - p) ** 2 / (p * (1 - p))
    if name == "squared Hellinger":
        # 1 - cos of the angle between the two unit vectors, in the form that does not cancel
        angle = _angle(q) - _angle(p)
        return 2 * math.sin(angle / 2) ** 2
    raise _unknown(name)


def divergence_success(name: DivergenceName, divergence: float, prior: float = 0.5) -> float:
    """Largest success rate that a bound on a divergence leaves to any adversary.

    The largest ``q >= prior`` whose divergence from ``prior`` (one of :data:`DIVERGENCES`) is
    within that of (secret, release) from independence, rounded up.

    Guarantee
    ---------
    Claim RP-1. Every adversary, for every success criterion, succeeds with probability at most
    the result.
    """
    if name == "kl":
        return posterior_success(float(divergence), float(prior))
    if not divergence >= 0:
        raise BudgetError(
            f"divergence must be >= 0; got {divergence}. Use the upper end of an estimate."
        )
    if not 0 < prior <= 1:
        raise BudgetError(f"prior must be above 0 and at most 1; got {prior}. Use 1/2.")
    if divergence == 0:
        return float(prior)
    if name == "total variation":
        found = prior + divergence
    elif name == "chi-square":
        found = prior + math.sqrt(divergence * prior * (1 - prior))
    elif name == "squared Hellinger":
        turn = 2 * math.asin(math.sqrt(min(divergence / 2, 1.0)))  # arccos(1 - divergence)
        found = math.sin(min(_angle(prior) + turn, math.pi / 2)) ** 2
    else:
        raise _unknown(name)
    return min(1.0, max(prior, found * _ROUND_UP_DIVERGENCE))


def _angle(rate: float) -> float:
    """Return the angle whose squared sine is a rate."""
    return math.atan2(math.sqrt(rate), math.sqrt(1 - rate))


def _require_rates(q: float, p: float) -> None:
    if not (0 <= q <= 1 and 0 <= p <= 1):
        raise BudgetError(
            f"q and p must be between 0 and 1; got {q} and {p}. Pass fractions, not percentages."
        )


def _unknown(name: str) -> BudgetError:
    known = ", ".join(DIVERGENCES)
    return BudgetError(f"name must be one of {known}; got {name!r}. Use 'kl'.")


def gaussian_delta(epsilon: float, parameter: float) -> float:
    """Return the least ``δ`` of the Gaussian mechanism at ``ε``, exactly.

    ``Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)`` (Balle and Wang 2018); the parameter ``μ`` is the
    sensitivity over the noise's standard deviation. Several mechanisms together are one with ``μ² =
    Σ μ_i²``.

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
    """Return the ``μ`` of the Gaussian mechanism with the same membership success.

    ``2 Φ⁻¹(q)``, rounded down; 0 for what a blind guess reaches, infinite for certainty. It matches
    the success of guessing one record at prior 1/2 and nothing else: it is not a claim of
    differential privacy.
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
