"""Confidence statements with explicit constants, and the record that carries them."""

import math
from dataclasses import dataclass
from typing import Final, overload

import numpy as np

from pacprivacy._checks import ArrayLike, Count, Finite, Share, Vector
from pacprivacy.errors import BudgetError

# Covers the rounding of a dozen floating-point operations, each within 2^-53.
_ROUND_UP: Final = 1.0 + 2.0**-48


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its interval: the truth is inside with probability >= ``confidence``.

    A closed form has confidence 1 and no draws.
    """

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

    def to_public_dict(self) -> dict[str, float | int]:
        """Return every field: an estimate has no curator-only part of its own."""
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
    variance has divisor ``N - 1``. ``gamma`` is for one side and one mean: divide it for a union
    bound.

    Guarantee
    ---------
    Claim T-3 (Maurer and Pontil 2009, Theorem 4). Assumes independent identically
    distributed draws in an interval of this width. Ensures that the true mean exceeds the
    sample mean by more than the result with probability at most ``gamma``; by symmetry the
    same holds below.
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
    """Two-sided empirical Bernstein interval of a mean of draws between ``low`` and ``high``.

    The variance has divisor ``n_draws - 1``; half of ``gamma`` is for each side.

    Guarantee
    ---------
    Claim T-3. Ensures that the true mean is inside with probability at least ``1 - gamma``.
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
    ``R`` of a known box that contains every output; ``gamma`` is for all dimensions together.

    Guarantee
    ---------
    Claim T-4 (Maurer and Pontil 2009, Theorem 10, and a union over dimensions). Assumes
    independent identically distributed subsets and outputs inside the box. Ensures that every
    true standard deviation is at most the result with probability at least ``1 - gamma``.
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
    """Exact two-sided interval of a success rate: inverted binomial tails, ``gamma / 2`` each."""
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
