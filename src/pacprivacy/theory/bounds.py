"""Bounds: divergences and entropies, the log-determinant, the lattice, and deviations of means.

What is estimated from draws comes with an interval and its confidence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, overload

import numpy as np

from pacprivacy._checks import ArrayLike, Count, Finite, Share, Vector
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
    of the noise; along other axes than eigenvectors by Hadamard's inequality. An axis that never
    moves costs nothing; one that moves without noise costs infinity.

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
    """Return how far the information of two releases can be apart when their laws are this close.

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
    """Bound how far a sample mean can be below the true mean.

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
