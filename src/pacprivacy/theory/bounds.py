"""Bounds: divergences and entropies, the log-determinant, the lattice, deviations, success rates.

Estimates from draws come with an interval and its confidence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, overload

import numpy as np

from pacprivacy._checks import ArrayLike, Count, Finite, Mask, Share, Vector
from pacprivacy.errors import BudgetError

# Sums of a few correctly rounded terms are within a few units of 2^-52 of the truth; bounds
# are enlarged by this much so that the printed figure is never below the real one.
_ROUND_UP: Final = 1.0 + 2.0**-48
_SERIES_RADIUS: Final = 0.1
_SERIES: Final = tuple(1.0 / (k * (k - 1)) for k in range(18, 1, -1))  # the next is below 2^-67
_LARGE_RATIO: Final = 1e6
_ROUND_UP_NOISE: Final = 1.0 + 1e-12
_MAX_NEWTON_STEPS: Final = 60


@overload
def bernoulli_kl(q: float, p: float) -> float: ...
@overload
def bernoulli_kl(q: Vector, p: Vector | float) -> Vector: ...
@overload
def bernoulli_kl(q: Vector | float, p: Vector) -> Vector: ...
def bernoulli_kl(q: Vector | float, p: Vector | float) -> Vector | float:
    """Return the divergence ``q ln(q/p) + (1-q) ln((1-q)/(1-p))`` of two success rates, in nats.

    Infinite if ``p`` rules out what ``q`` allows; arrays broadcast. A sum of two terms >= 0, so
    nothing cancels when ``q`` is close to ``p``; the relative error is below 1e-13.
    """
    q_array, p_array = np.broadcast_arrays(
        np.asarray(q, dtype=np.float64), np.asarray(p, dtype=np.float64)
    )
    for name, rate in (("q", q_array), ("p", p_array)):
        if not np.all((rate >= 0) & (rate <= 1)):
            raise BudgetError(
                f"{name} must be between 0 and 1; got {q if name == 'q' else p}. "
                "Pass success rates as fractions, not percentages."
            )
    shift = q_array - p_array
    result = _excess(q_array, p_array, shift) + _excess(1.0 - q_array, 1.0 - p_array, -shift)
    return float(result) if result.ndim == 0 else result


def _excess(q: Vector, p: Vector, shift: Vector) -> Vector:
    """Return ``q ln(q/p) - shift`` >= 0 for ``q = p + shift``, without cancellation."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        u = shift / p
        result = q * np.log(q / p) - shift
        near, large = np.abs(u) < _SERIES_RADIUS, u > _LARGE_RATIO
        if near.any():
            # p * ((1+u) ln(1+u) - u) = p * (u^2/2 - u^3/6 + u^4/12 - ...)
            v = np.where(near, u, 0.0)
            series, minus = np.zeros_like(v), -v
            for term in _SERIES:
                series *= minus
                series += term
            result = np.where(near, p * v * v * series, result)
        if large.any():
            result = np.where(large, q * (np.log(q) - np.log(p)) - shift, result)
        result = np.where((q == 0.0) & (p > 0.0), p, result)
        result = np.where(p == 0.0, np.where(q == 0.0, 0.0, np.inf), result)
    return np.asarray(result, dtype=np.float64)


def binary_entropy(p: float) -> float:
    """Return the entropy of a coin with success rate ``p``, in nats."""
    if not 0.0 <= p <= 1.0:
        raise BudgetError(f"p must be between 0 and 1; got {p}. Pass a probability.")
    if p in (0.0, 1.0):
        return 0.0
    return -p * math.log(p) - (1.0 - p) * math.log1p(-p)


def entropy(log_p: ArrayLike) -> Vector:
    """Return the entropy, in nats, of laws in log-probabilities along the last axis."""
    logs = np.asarray(log_p, dtype=np.float64)
    # A probability of zero contributes nothing; its logarithm must not meet the product.
    finite = np.where(np.isneginf(logs), 0.0, logs)
    total = -np.sum(np.exp(logs) * finite, axis=-1)
    return np.asarray(np.maximum(total, 0.0), dtype=np.float64)


def log_det_bound(eigenvalues: ArrayLike, noise_var: ArrayLike) -> float:
    """Return an upper bound on the information of a release with Gaussian noise.

    ``1/2 Σ ln(1 + λ_i / b_i)`` in nats, for variances of the output and of the noise along the axes
    of the noise; along other axes than eigenvectors by Hadamard's inequality. A constant axis costs
    nothing; a variable axis without noise costs infinity.

    Guarantee
    ---------
    Claim T-2. Assumes the covariance is exact for the law of the secret (divisor m, or weighted by
    the belief) and Gaussian noise that is independent of it. Ensures that the mutual information is
    at most the result; slack: the Gaussianity gap.
    """
    spread, noise = np.broadcast_arrays(
        np.asarray(eigenvalues, dtype=np.float64), np.asarray(noise_var, dtype=np.float64)
    )
    for name, values in (("eigenvalues", spread), ("noise_var", noise)):
        if not np.all(values >= 0):
            raise BudgetError(
                f"{name} must be variances >= 0; got an array of shape {values.shape} with "
                "negative or missing entries. Clip rounding errors of a decomposition at 0."
            )
    moving = spread > 0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = spread[moving] / noise[moving]
    if np.any(np.isnan(ratio)):  # an infinite spread under infinite noise
        return math.inf
    return 0.5 * math.fsum(np.log1p(ratio).tolist())


def lattice_total_variation_bound(n_directions: int, units_per_std: ArrayLike) -> float:
    """Return the distance of the discrete Gaussian release from a rounded continuous one.

    ``Σ_i 1/(16 s_i²)``, rounded up, for standard deviations of ``s_i >= 1`` grid steps.

    Guarantee
    ---------
    Claim L-2. For every candidate j, ``a_j + N_Z(0, s²)`` and ``round(a_j + N(0, s²))`` are within
    this total variation, so no attack on the release succeeds more often than the best attack on
    the continuous one by more than the result. Slack: a factor of about three.
    """
    units = np.asarray(units_per_std, dtype=np.float64)
    if n_directions < 0:
        raise BudgetError(
            f"n_directions must be >= 0; got {n_directions}. Pass the number of noisy coordinates."
        )
    if units.ndim > 0 and units.shape != (n_directions,):
        raise BudgetError(
            f"units_per_std must be one number or have shape ({n_directions},); "
            f"got shape {units.shape}. Give one value per noisy direction."
        )
    if not np.all(units >= 1.0):
        raise BudgetError(
            "units_per_std must be >= 1; got a coarser grid. "
            "Use at least 1024 grid steps per standard deviation."
        )
    total = math.fsum((1.0 / (16.0 * np.broadcast_to(units, (n_directions,)) ** 2)).tolist())
    return total * _ROUND_UP


def information_slack_bound(total_variation: float, n_subsets: int) -> float:
    """Return the largest difference in information of two releases with laws this close.

    ``τ ln m + (1+τ) h(τ/(1+τ))`` nats, rounded up, never above ``ln m``.

    Guarantee
    ---------
    Claim L-2, Winter's continuity bound. For laws within total variation ``τ`` for each of ``m``
    candidates, such as a release on the lattice and the continuous one.
    """
    if n_subsets < 1:
        raise BudgetError(f"n_subsets must be >= 1; got {n_subsets}. Pass the pool's size.")
    if not total_variation >= 0.0:
        raise BudgetError(
            f"total_variation must be >= 0; got {total_variation}. "
            "Take it from lattice_total_variation_bound."
        )
    most, tau = math.log(n_subsets), total_variation
    if tau == 0.0:
        return 0.0
    # (1+τ) h(τ/(1+τ)) = (1+τ) ln(1+τ) - τ ln τ, increasing in τ
    slack = tau * most + (1.0 + tau) * math.log1p(tau) - tau * math.log(tau)
    return min(slack, most) * _ROUND_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with an interval that holds the truth with probability >= ``confidence``."""

    value: Finite
    lower: Finite
    upper: Finite
    confidence: Share
    n_draws: Count

    def __post_init__(self) -> None:
        if not self.lower <= self.value <= self.upper:
            raise BudgetError(
                f"value must be between lower {self.lower} and upper {self.upper}; "
                f"got {self.value}. Clip the value into the range first."
            )
        if not 0.0 < self.confidence <= 1.0:
            raise BudgetError(
                f"confidence must be above 0 and at most 1; got {self.confidence}. Pass 1 - gamma."
            )

    @classmethod
    def exact(cls, value: float, upper: float | None = None) -> "Estimate":
        """Return a number that is known, up to rounding below ``upper``."""
        highest = value if upper is None else upper
        return cls(value=value, lower=value, upper=highest, confidence=1.0, n_draws=0)

    def to_public_dict(self) -> dict[str, float | int]:
        return {
            "schema_version": 1,
            "value": self.value,
            "lower": self.lower,
            "upper": self.upper,
            "confidence": self.confidence,
            "n_draws": self.n_draws,
        }

    def __str__(self) -> str:
        if self.confidence == 1.0:
            interval = "exact" if self.lower == self.upper else "always"
        else:
            interval = f"confidence 1 - {1.0 - self.confidence:.1g}, {self.n_draws} draws"
        return f"{self.value:.6g} (between {self.lower:.6g} and {self.upper:.6g}; {interval})"


@overload
def empirical_bernstein(variance: float, n_draws: int, *, width: float, gamma: float) -> float: ...
@overload
def empirical_bernstein(
    variance: Vector, n_draws: int, *, width: float, gamma: float
) -> Vector: ...
def empirical_bernstein(
    variance: Vector | float, n_draws: int, *, width: float, gamma: float
) -> Vector | float:
    """Bound the distance of a sample mean below the true mean.

    ``sqrt(2 V ln(2/γ)/N) + 7 w ln(2/γ) / (3(N-1))`` for draws in an interval of width ``w``; the
    variance has divisor ``N - 1``, and ``gamma`` is for one side and one mean.

    Guarantee
    ---------
    Claim T-3 (Maurer and Pontil 2009, Theorem 4). For independent identically distributed draws the
    true mean exceeds the sample mean by more than the result with probability at most ``gamma``; by
    symmetry the same holds below.
    """
    _require_gamma(gamma)
    spread = np.asarray(variance, dtype=np.float64)
    if not np.all(spread >= 0):
        raise BudgetError(
            f"variance must be >= 0; got {variance}. Use the sample variance, divisor N - 1."
        )
    if n_draws < 2:
        raise BudgetError(f"n_draws must be at least 2; got {n_draws}. Draw more.")
    if not 0.0 < width < math.inf:
        raise BudgetError(
            f"width must be a positive finite number; got {width}. "
            "The bound needs draws in a known interval."
        )
    log_term = math.log(2.0 / gamma)
    half = np.sqrt(2.0 * spread * log_term / n_draws) + 7.0 * width * log_term / (
        3.0 * (n_draws - 1)
    )
    half = half * _ROUND_UP
    return float(half) if half.ndim == 0 else np.asarray(half)


def bernstein_estimate(
    mean: float, variance: float, n_draws: int, *, low: float, high: float, gamma: float
) -> Estimate:
    """Return the two-sided interval of a mean of draws between ``low`` and ``high``.

    Guarantee
    ---------
    Claim T-3. The true mean is inside with probability at least ``1 - gamma``.
    """
    _require_gamma(gamma)
    if not low < high:
        raise BudgetError(f"low must be below high; got {low} and {high}. Give the draws' range.")
    # A mean of numbers in the range may leave it by rounding only.
    slip = 1e-9 * max(1.0, abs(low), abs(high))
    if not low - slip <= mean <= high + slip:
        raise BudgetError(
            f"mean must be between low {low} and high {high}; got {mean}. Give the draws' range."
        )
    half = empirical_bernstein(float(variance), n_draws, width=high - low, gamma=gamma / 2.0)
    value = min(max(float(mean), low), high)
    return Estimate(
        value=value,
        lower=max(low, value - half),
        upper=min(high, value + half),
        confidence=_confidence(gamma),
        n_draws=n_draws,
    )


def std_upper_bound(
    std_hat: ArrayLike, width: ArrayLike, *, n_subsets: int, n_dimensions: int, gamma: float
) -> Vector:
    """Bound standard deviations for the whole family of subsets, not only for the sample.

    ``σ̂_i + R_i sqrt(2 ln(d/γ)/(m-1))`` for sample deviations (divisor ``m - 1``) and the widths
    ``R`` of a box that contains every output.

    Guarantee
    ---------
    Claim T-4 (Maurer and Pontil 2009, Theorem 10). For independent identically distributed subsets
    all bounds hold together with probability at least ``1 - gamma``.
    """
    _require_gamma(gamma)
    spread, box = np.asarray(std_hat, dtype=np.float64), np.asarray(width, dtype=np.float64)
    if n_subsets < 2 or n_dimensions < 1:
        raise BudgetError(
            f"n_subsets must be at least 2 and n_dimensions at least 1; got {n_subsets} and "
            f"{n_dimensions}. Draw a larger pool."
        )
    if not (np.all(spread >= 0) and np.all((box >= 0) & np.isfinite(box))):
        raise BudgetError(
            "std_hat and width must be >= 0 and width finite; got arrays of shape "
            f"{spread.shape} and {box.shape}. Declare a box or clip the outputs into one."
        )
    stretch = math.sqrt(2.0 * math.log(n_dimensions / gamma) / (n_subsets - 1))
    return np.asarray((spread + box * stretch) * _ROUND_UP, dtype=np.float64)


def clopper_pearson(successes: int, trials: int, *, gamma: float) -> Estimate:
    """Return the exact interval of a success rate: inverted binomial tails, ``gamma / 2`` each."""
    from scipy.special import betainccinv, betaincinv  # slow to import, not always needed

    _require_gamma(gamma)
    if trials < 1 or not 0 <= successes <= trials:
        raise BudgetError(
            f"successes must be between 0 and trials, and trials positive; got {successes} of "
            f"{trials}. Count again."
        )
    misses = trials - successes
    lower = betaincinv(successes, misses + 1, gamma / 2.0) if successes else 0.0
    upper = betainccinv(successes + 1, misses, gamma / 2.0) if misses else 1.0
    return Estimate(
        value=successes / trials,
        lower=float(lower),
        upper=float(upper),
        confidence=_confidence(gamma),
        n_draws=trials,
    )


def _confidence(gamma: float) -> float:
    # A tiny gamma must not be rounded to certainty.
    return min(1.0 - gamma, math.nextafter(1.0, 0.0))


def _require_gamma(gamma: float) -> None:
    if not 0.0 < gamma < 1.0:
        raise BudgetError(
            f"gamma must be above 0 and below 1; got {gamma}. Use 1e-9 unless you have a reason."
        )


def water_filled_noise(variances: Vector, mi_nats: float) -> Vector:
    """Return the noise of least sum within ``log_det_bound``, for positive variances.

    Newton's method finds the water level, from the side of more noise.
    """
    if len(variances) == 1:
        single: Vector = variances * _ROUND_UP_NOISE / math.expm1(2.0 * mi_nats)
        return single
    level = float(np.sqrt(variances).sum()) ** 2 / (2.0 * mi_nats**2)
    for _ in range(_MAX_NEWTON_STEPS):
        bound, slope = _bound_at_level(variances, level)
        move = math.log(bound / mi_nats) * bound / slope
        level *= math.exp(max(-30.0, min(30.0, move)))
        if abs(move) < 1e-12:
            break
    step = 1e-12
    while _bound_at_level(variances, level)[0] > mi_nats:
        level *= 1 + step
        step *= 2
    x = variances / level
    noise_var: Vector = variances / (x + np.sqrt(x * (x + 2.0))) * _ROUND_UP_NOISE
    return noise_var


def _bound_at_level(variances: Vector, level: float) -> tuple[float, float]:
    """Return the bound, and minus its derivative in the logarithm of the level."""
    x = variances / level
    root = np.sqrt(x * (x + 2.0))
    return 0.5 * float(np.log1p(x + root).sum()), 0.5 * float((x / root).sum())


def falling_root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return a point where a falling function is zero or barely below (regula falsi, Illinois)."""
    above, below, last = excess(low), excess(high), 0
    while above > 0 > below and high - low > 1e-13 * max(1.0, abs(high)):
        middle = high - below * (high - low) / (below - above)
        if not low < middle < high:
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
        value = excess(middle)
        if value > 0:
            low, above, below = middle, value, below / 2 if last > 0 else below
        else:
            high, below, above = middle, value, above / 2 if last < 0 else above
        last = 1 if value > 0 else -1
    return high


# --- success rates ------------------------------------------------------------------------------

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
