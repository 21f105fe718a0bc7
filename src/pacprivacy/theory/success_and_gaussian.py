"""Budget, success rate, Gaussian curve, differential privacy: how to read one as another."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final, Literal, TypeAlias, overload

import numpy as np

from pacprivacy._checks import Mask, Vector, check_positive
from pacprivacy.errors import BudgetError
from pacprivacy.theory.bounds import bernoulli_kl, falling_root

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
    """Return the largest success rate that an information budget leaves to any adversary.

    The largest ``q >= prior`` with ``kl(q, prior) <= mi_nats``, rounded up; ``prior`` is the best
    success without the release, for someone who knows the pool.

    Guarantee
    ---------
    Claim T-1. If ``mi_nats`` bounds the information and ``prior`` the blind success, every
    adversary, for every success criterion, succeeds with probability at most the result. Slack:
    2^-42 of the budget and one unit in the last place.
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
    goal = budget.ravel() * (1.0 + _MARGIN)
    # Positive doubles are ordered like their bit patterns, so halving these finds the smallest
    # double that is large enough, for every prior, in at most 63 steps.
    priors = start.ravel()
    low, high = priors.view(np.int64), np.ones_like(priors).view(np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        enough = bernoulli_kl(middle.view(np.float64), priors) >= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    success = np.where(goal == 0.0, priors, high.view(np.float64)).reshape(start.shape)
    return float(success) if success.ndim == 0 else success


def mi_for_success(success: float, prior: float = 0.5) -> float:
    """Return the information budget that keeps every adversary at or below a success rate.

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


_ROOM: Final = 1e-14  # nats: far above what rounding does to the curve below
_SURE: Final = 800.0  # log odds that doubles cannot tell from certainty


@overload
def membership_success(
    mi_nats: float, share: float = 0.5, inside: float | None = None
) -> float: ...
@overload
def membership_success(
    mi_nats: Vector | float, share: Vector, inside: Vector | None = None
) -> Vector: ...
def membership_success(
    mi_nats: Vector | float, share: Vector | float = 0.5, inside: Vector | float | None = None
) -> Vector | float:
    """Return the largest balanced success on one unit's membership that a budget leaves.

    Parameters
    ----------
    mi_nats : float or array >= 0, public
        Bound on the mutual information between the secret and everything released.
    share : float or array in (0, 1)
        Share of the candidates that the unit is in.
    inside : float or array in [0, 1], optional
        The attacker's belief that it is in before this release; by default ``share``.

    Guarantee
    ---------
    Claim T-6. An attacker who sees the release and a unit that was used or not with equal odds
    guesses which with at most this success, ``1/2 + E|a|/2`` rounded up, where ``a = (Q - share) /
    (2 share (1 - share))``. For ``share = 1/2`` it is :func:`posterior_success`.
    """
    f, q = _unit_terms(share, inside)
    success = np.asarray(posterior_success(np.asarray(mi_nats), np.maximum(q, 1 - q)))
    if (f != 0.5).any():
        goal, f, q = np.broadcast_arrays(np.asarray(mi_nats) * (1 + 1e-9) + _ROOM, f, q)
        shape, columns = f.shape, np.stack([goal.ravel(), f.ravel(), q.ravel()])
        (goal, f, q), again = np.unique(columns, axis=1, return_inverse=True)
        highest = _SURE / np.minimum(f, 1 - f)
        _, apart = _bisect(lambda d: _dearest(d, f, q)[1] >= goal, highest)
        size, nats = _dearest(apart, f, q)
        size = np.where(nats >= goal, size + 1e-12, 1.0)
        size = np.minimum(size, q * (1 - f) + (1 - q) * f)  # what certainty gives
        uneven = 0.5 + size / (4 * f * (1 - f)) * (1 + 2.0**-50)
        uneven = np.where(q == f, np.minimum(uneven, 1.0), uneven)
        even = (f == 0.5)[again].reshape(shape)
        success = np.where(even, success, uneven[again].reshape(shape))
    return float(success) if success.ndim == 0 else success


def success_at(advantage: float, prior: float) -> float:
    """Return the success that an advantage allows at a prior, rounded up.

    Guarantee
    ---------
    Claim T-6. ``max(p, 1-p) + min(p, 1-p) advantage`` at most, for every attacker.
    """
    likely = max(prior, 1 - prior)
    up = 1.0 if prior == 0.5 else 1 + 2.0**-51  # at one half nothing is rounded
    return min(1.0, (likely + (1 - likely) * advantage) * up)


def mi_for_membership(
    success: Vector | float, share: Vector | float = 0.5, inside: Vector | float | None = None
) -> float:
    """Return the information budget that keeps every unit's balanced success below its limit.

    Guarantee
    ---------
    Claim T-6. Ensures ``membership_success(result, share, inside) <= success``.
    """
    f, q = _unit_terms(share, inside)
    caps, f, q = np.broadcast_arrays(np.asarray(success, dtype=np.float64), f, q)
    size = (caps - 0.5) * 4 * f * (1 - f) - 1e-12
    if not (caps >= 0.5 - 1e-12 + np.abs(q - f) / (4 * f * (1 - f))).all():
        raise BudgetError(
            f"success must be at least what is known before the release; got {success}. "
            "Nobody can be kept below what a blind guess achieves."
        )
    even = f == 0.5
    budgets = [math.inf]
    if even.any():
        prior = np.minimum(np.maximum(q, 1 - q), caps)
        pairs = np.unique(np.stack([prior[even], caps[even]]), axis=1)
        budgets += [mi_for_success(float(cap), float(prior)) for prior, cap in pairs.T]
    if not even.all():
        size, f, q = size[~even], f[~even], q[~even]
        apart, _ = _bisect(lambda d: _dearest(d, f, q)[0] > size, _SURE / np.minimum(f, 1 - f))
        nats = np.maximum(_dearest(apart, f, q)[1] - 2 * _ROOM, 0.0) * (1 - 2e-9)
        budgets.append(float(nats.min()))
    return min(budgets)


def _unit_terms(share: Vector | float, inside: Vector | float | None) -> tuple[Vector, Vector]:
    f = np.asarray(share, dtype=np.float64)
    if not ((f > 0) & (f < 1)).all():
        raise BudgetError(f"share must be above 0 and below 1; got {share}. Use 1/2.")
    return f, f if inside is None else np.asarray(inside, dtype=np.float64)


def _dearest(apart: Vector, f: Vector, q: Vector) -> tuple[Vector, Vector]:
    """Return ``E|Q - f|`` and the nats of the cheapest channel, with two beliefs (claim T-6)."""
    apart = np.maximum(apart, 1e-300)
    odds = np.log(-np.expm1(-f * apart)) - np.log(-np.expm1(-(1 - f) * apart))
    with np.errstate(over="ignore"):
        low, high = (1 / (1 + np.exp(-odds - shift * apart)) for shift in (f - 1, f))
    weight = (q - low) / np.maximum(high - low, 1e-300)
    informative = (weight > 0) & (weight < 1)
    weight = np.where(informative, weight, 0.0)
    low, high = np.where(informative, low, q), np.where(informative, high, q)
    size = weight * np.abs(high - f) + (1 - weight) * np.abs(f - low)
    nats = weight * bernoulli_kl(high, q) + (1 - weight) * bernoulli_kl(low, q)
    return size, nats


def _bisect(is_high: Callable[[Vector], Mask], highest: Vector) -> tuple[Vector, Vector]:
    """Return the point between 0 and ``highest`` where a rising condition turns true."""
    low, high = np.zeros_like(highest), highest
    for _ in range(70):
        middle = 0.5 * (low + high)
        above = is_high(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return low, high


def epsilon_equivalent(success: float, delta: float = 0.0) -> float:
    """Return the ε at which ``(ε, δ)`` alone allows the same membership success.

    ``max(0, ln((1-δ)/(1-q) - 1))``; infinite for certain success. It matches the success of
    guessing one record at prior 1/2, which the worst mechanism with that ``(ε, δ)`` reaches and a
    Gaussian one does not by far: it is not a claim of differential privacy. See :func:`read_as_dp`.
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
    """Return the success that (ε, δ)-DP allows: at most ``1 - (1-δ)/(1+e^ε)``."""
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


def _require_prior(values: Vector, shown: object) -> None:
    if not np.all((values > 0) & (values <= 1)):
        raise BudgetError(
            f"prior must be above 0 and at most 1; got {shown}. "
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


def divergence_success(name: DivergenceName, divergence: float, prior: float = 0.5) -> float:
    """Return the largest success rate that a bound on a divergence leaves to any adversary.

    The largest ``q >= prior`` whose divergence from ``prior`` (one of :data:`DIVERGENCES`) is
    within that of (secret, release) from independence, rounded up.

    Guarantee
    ---------
    Claim RP-1. Every adversary, for every success criterion, stays at or below it.
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
        success = prior + divergence
    elif name == "chi-square":
        success = prior + math.sqrt(divergence * prior * (1 - prior))
    elif name == "squared Hellinger":
        turn = 2 * math.asin(math.sqrt(min(divergence / 2, 1.0)))  # arccos(1 - divergence)
        success = math.sin(min(_angle(prior) + turn, math.pi / 2)) ** 2
    else:
        raise BudgetError(f"name must be one of {', '.join(DIVERGENCES)}; got {name!r}. Use 'kl'.")
    return min(1.0, max(prior, success * _ROUND_UP_DIVERGENCE))


def _angle(rate: float) -> float:
    """Return the angle with the given squared sine."""
    return math.atan2(math.sqrt(rate), math.sqrt(1 - rate))


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
