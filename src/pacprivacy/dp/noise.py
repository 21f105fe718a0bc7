"""Noise for numbers of known sensitivity: whole steps of a grid, sampled exactly.

Numbers are rounded to a power-of-two grid, which is fixed by the promise alone; the noise is a
discrete Laplace or discrete Gaussian number of steps. What rounding adds to the sensitivity is
paid for. A float is formed only after the noise is in.
"""

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._checks import Integers, Vector, as_told, check_positive, freeze
from pacprivacy._random import BitSource, SimulatedSource, SystemSource, coerce_seed
from pacprivacy.dp.certificate import check_neighbours
from pacprivacy.dp.records import LARGEST, SMALLEST
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.noise import MAX_UNITS_PER_STD, sample_discrete_gaussian, sample_discrete_laplace
from pacprivacy.theory import gaussian_parameter

Law = Literal["laplace", "gaussian"]

UNITS_PER_SCALE: Final = 1 << 29  # least number of grid steps in one noise scale
HAIR: Final = 2.0**-24  # part of δ that is left for rounding, by those who compose
FARTHEST: Final = 2.0**61  # grid steps; beyond it numbers are clipped, so that int64 holds them
TWELFTH: Final = Fraction(1, 1 << 33)  # of a step more: s² - 1/12 is the variance that counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Perturbed:
    """Numbers with noise, to be published if their sensitivity was as declared."""

    values: Vector
    noise_scale: float
    noise_std: float
    grid_step: float

    def __post_init__(self) -> None:
        freeze(self.values)


def add_laplace(values: Any, *, sensitivity: float, epsilon: float, source: BitSource) -> Perturbed:
    """Add discrete Laplace noise; ``sensitivity`` is a sum of absolute changes (claim DP-1)."""
    epsilon = check_positive("epsilon", epsilon, advice="Use about 1.")
    return _perturb(values, sensitivity, epsilon, "laplace", source)


def add_gaussian(
    values: Any, *, sensitivity: float, parameter: float, source: BitSource
) -> Perturbed:
    """Add discrete Gaussian noise; ``parameter`` is sensitivity over deviation (claim DP-2)."""
    parameter = check_positive("parameter", parameter, advice="Use 1 / noise multiplier.")
    return _perturb(values, sensitivity, parameter, "gaussian", source)


def add_noise(
    values: Any, *, sensitivity: float, epsilon: float, delta: float, source: BitSource
) -> Perturbed:
    """Add the least Gaussian noise that ``(ε, δ)`` allows, or Laplace noise for ``delta=0``."""
    if delta == 0.0:
        return add_laplace(values, sensitivity=sensitivity, epsilon=epsilon, source=source)
    parameter = dp_noise_parameter(epsilon, delta, np.size(values))
    return add_gaussian(values, sensitivity=sensitivity, parameter=parameter, source=source)


def dp_noise_distance(n_numbers: int, *, law: Law = "gaussian") -> float:
    """Return the total variation distance of discrete from continuous noise (claims L-3, DP-5)."""
    units = float(UNITS_PER_SCALE)
    return n_numbers / (32.0 * units**4 if law == "gaussian" else 8.0 * units**2)


def dp_noise_price(epsilon: float, distance: float) -> float:
    """Return the cost in ``δ`` of a distance in total variation from continuous noise."""
    return (1.0 + math.exp(min(epsilon, 700.0))) * distance


def dp_noise_slack(epsilon: float, n_numbers: int) -> float:
    """Return the price of so many numbers with discrete Gaussian noise."""
    return dp_noise_price(epsilon, dp_noise_distance(n_numbers))


def dp_noise_parameter(epsilon: float, delta: float, n_numbers: int) -> float:
    """Return the largest ``μ`` that ``(ε, δ)`` allows for discrete noise (claim DP-2)."""
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    left = delta * (1.0 - HAIR) - dp_noise_slack(epsilon, n_numbers)
    if left > 0.5 * delta:
        return gaussian_parameter(epsilon, left)
    log = math.log(1.0 / delta)
    # μ²/2 + 2 sqrt(μ²/2 ln(1/δ)) = ε, rounded down.
    return math.sqrt(2.0) * epsilon / (math.sqrt(log + epsilon) + math.sqrt(log)) * (1 - 1e-12)


def check_epsilon_delta(epsilon: float, delta: float) -> tuple[float, float]:
    epsilon = check_positive("epsilon", epsilon, advice="Use about 1.")
    if isinstance(delta, bool) or not 0.0 < delta < 1.0:
        raise BudgetError(f"delta must be between 0 and 1; got {delta!r}. Use below 1/n.")
    return epsilon, float(delta)


def check_gamma(gamma: float) -> None:
    if isinstance(gamma, bool) or not 0.0 < gamma < 1.0:
        raise BudgetError(f"gamma must be between 0 and 1; got {gamma!r}. Use 0.05.")


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    try:
        good = operator.index(value) >= least and not isinstance(value, bool)
    except TypeError:
        good = False
    if not good:
        raise BudgetError(
            f"{name} must be a whole number of at least {least}; got {as_told(value)}."
        )


def check_public_number(n_public: int | None, neighbours: str) -> None:
    """Refuse a missing number of records where the true one is secret."""
    check_neighbours(neighbours)
    if n_public is None and neighbours == "add_remove":
        raise BudgetError(
            "n_public must be given where records may be added or removed: their true number is "
            "not public; got None. Pass a public estimate, or use neighbours='replace'."
        )


def check_dp_noise_promise(epsilon: float, delta: float, neighbours: str) -> tuple[float, float]:
    check_neighbours(neighbours)
    if delta == 0.0:
        return check_positive("epsilon", epsilon, advice="Use about 1."), 0.0
    return check_epsilon_delta(epsilon, delta)


def dp_noise_source(simulate: np.random.Generator | int | None = None) -> BitSource:
    """Return the operating system's words, or seeded ones for a simulation."""
    if simulate is None:
        return SystemSource()
    return SimulatedSource(np.random.default_rng(coerce_seed(simulate)))


def grid_step(sensitivity: float, privacy: float, n_units: int = UNITS_PER_SCALE) -> float:
    """Return the power of two of which at least ``n_units`` make one noise scale."""
    reach = check_positive(
        "sensitivity", sensitivity, advice="Bound the contribution of one record by clipping."
    )
    scale = reach / privacy
    if not (SMALLEST < reach < LARGEST and SMALLEST < scale < LARGEST):
        raise BudgetError(
            f"sensitivity must be within {SMALLEST:g} and {LARGEST:g}, also divided by the "
            f"promise; got {sensitivity!r}. Rescale the numbers."
        )
    return math.ldexp(1.0, math.frexp(scale / n_units)[1] - 1)


def to_grid(numbers: Vector, step: float) -> Integers:
    """Return numbers in whole steps; those that int64 does not hold with noise are clipped."""
    with np.errstate(over="ignore"):
        scaled = np.clip(numbers / step, -FARTHEST, FARTHEST)
    return np.rint(scaled).astype(np.int64)


def _perturb(
    values: Any, sensitivity: float, privacy: float, law: Law, source: BitSource
) -> Perturbed:
    step = grid_step(sensitivity, privacy)
    # Rounding moves each of q numbers by up to one step between neighbours, √q in Euclidean length.
    rounding, more = np.size(values), Fraction(0)
    if law == "gaussian":
        rounding, more = math.isqrt(rounding) + (math.isqrt(rounding) ** 2 < rounding), TWELFTH
    steps = Fraction(float(sensitivity)) / Fraction(step) + rounding
    units = math.ceil(steps / Fraction(privacy) + more)
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise DataError(
            f"values must be finite; got NaN or infinity in an array of shape {numbers.shape}. "
            "Clip before summing."
        )
    if units > MAX_UNITS_PER_STD:
        raise BudgetError(
            "epsilon must pay for the rounding of so many numbers. Use a larger epsilon, or "
            "release fewer numbers at once."
        )
    draw = sample_discrete_laplace if law == "laplace" else sample_discrete_gaussian
    drawn = draw(np.full(numbers.shape, units, dtype=np.int64), source)
    scale = step * units
    return Perturbed(
        values=np.asarray((to_grid(numbers, step) + drawn) * step, dtype=np.float64),
        noise_scale=scale,
        noise_std=math.sqrt(2.0) * scale if law == "laplace" else scale,
        grid_step=step,
    )
