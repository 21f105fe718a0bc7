"""Noise that shrinks by levels, of which only the last is paid for, and the test when to stop.

The noise of a level is the noise of the next one plus fresh Laplace noise for some of the
coordinates: the noisier releases add nothing to the last one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import scipy

from pacprivacy._checks import Integers, Mask, Vector, check_positive
from pacprivacy._random import BitSource, ProcessBound, SystemSource
from pacprivacy.dp.certificate import DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.events import PureEvent, publish_event
from pacprivacy.dp.noise import FARTHEST, check_gamma, dp_noise_source, grid_step, to_grid
from pacprivacy.errors import BudgetError, BudgetExceededError, DataError
from pacprivacy.noise import (
    MAX_UNITS_PER_SCALE,
    lattice_bernoulli_enclosed,
    sample_discrete_laplace,
)

LEAST_UNITS: Final = 1 << 24  # grid steps in the smallest noise scale


def geometric_levels(low: float, high: float, n_levels: int = 1000) -> Vector:
    """Return ``n_levels`` levels in geometric progression, both ends included."""
    low, high = _check_ends(low, high)
    if not low < high or n_levels < 2:
        raise BudgetError(
            f"levels must go from a smaller to a larger epsilon in at least two steps; got {low:g} "
            f"to {high:g} in {n_levels}. Use 1/n, four times the theory's epsilon, and 1000."
        )
    return np.asarray(np.geomspace(low, high, n_levels), dtype=np.float64)


def doubling_levels(low: float, high: float) -> Vector:
    """Return ``low, 2 low, 4 low, ...`` up to the first that is not below ``high``."""
    low, high = _check_ends(low, high)
    n_doublings = max(0, math.ceil(math.log2(high / low) - 1e-12))
    return np.asarray(low * 2.0 ** np.arange(n_doublings + 1), dtype=np.float64)


def _check_ends(low: float, high: float) -> tuple[float, float]:
    low = check_positive("low", low, advice="Use 1/n.")
    return low, check_positive("high", high, advice="Use four times what the theory demands.")


def as_levels(epsilons: Any) -> Vector:
    levels = np.array(epsilons, dtype=np.float64)
    ordered = levels.ndim == 1 and levels.size > 0 and bool((np.diff(levels) > 0).all())
    if not (ordered and levels[0] > 0 and math.isfinite(levels[-1])):
        raise BudgetError(
            "epsilons must be positive, finite and strictly increasing: from the noisiest level "
            f"to the least noisy; got an array of shape {levels.shape}. Use geometric_levels."
        )
    return levels


def level_lattice_units(
    epsilons: Vector, *, sensitivity: float, n_numbers: int
) -> tuple[float, list[int]]:
    """Return a grid step and, for every level, its noise scale in whole steps, rounded up."""
    step = grid_step(sensitivity, float(epsilons[-1]), LEAST_UNITS)
    # Rounding moves each number by up to one step between neighbours.
    steps = Fraction(float(sensitivity)) / Fraction(step) + n_numbers
    units = [math.ceil(steps / Fraction(float(epsilon))) for epsilon in epsilons]
    if units[0] > MAX_UNITS_PER_SCALE:
        raise BudgetError(
            "epsilons must span a factor of at most 2**25; got "
            f"{epsilons[0]:g} to {epsilons[-1]:g}. Start at a larger epsilon."
        )
    return step, units


class NoisyLevels(ProcessBound):
    """A vector at every level of noise: drawn from the least noisy level up, read the other way.

    ``sensitivity`` is a sum of absolute changes. Reading levels ``0..t`` costs ``epsilons[t]``,
    exactly (claims AF-1 and AF-2); a fork reads none (claim R-4).
    """

    KIND = "a value with its levels of noise"

    def __init__(
        self,
        values: Any,
        *,
        sensitivity: float,
        epsilons: Sequence[float] | Vector,
        source: BitSource,
    ) -> None:
        numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise DataError(
                f"values must be a finite vector; got an array of shape {numbers.shape}. "
                "Flatten it, and clip before summing."
            )
        self.epsilons = as_levels(epsilons)
        self._step, self._units = level_lattice_units(
            self.epsilons, sensitivity=sensitivity, n_numbers=numbers.size
        )
        self.level = -1  # the level read last
        self._added: list[tuple[Integers, Integers]] = []
        self._current = self._draw(to_grid(numbers, self._step), source)

    def __len__(self) -> int:
        return len(self._units)

    def noise_scale(self, level: int) -> float:
        return self._step * self._units[level]

    def refine(self) -> Vector:
        """Return the next, less noisy level."""
        self.check_process()
        if self.level + 1 >= len(self):
            raise BudgetExceededError(
                f"level must be below {len(self)}; all levels were read. Use more levels, or a "
                "larger last epsilon."
            )
        self.level += 1
        if self.level > 0:
            places, draws = self._added.pop()
            self._current[places] -= draws
        return np.asarray(self._current * self._step, dtype=np.float64)

    def _draw(self, scaled: Integers, source: BitSource) -> Integers:
        """Return the noisiest level; remember the steps between levels."""
        finest = np.full(scaled.size, self._units[-1], dtype=np.int64)
        current = scaled + sample_discrete_laplace(finest, source)
        coarser, finer = self._units[-2::-1], self._units[:0:-1]
        places = [
            np.flatnonzero(~_toss(coarse, fine, scaled.size, source))
            for coarse, fine in zip(coarser, finer, strict=True)
        ]
        # One call for the draws of all levels: the sampler works on long arrays.
        sizes = [len(chosen) for chosen in places]
        scales = np.repeat(np.array(coarser, dtype=np.int64), sizes)
        draws = np.split(sample_discrete_laplace(scales, source), np.cumsum(sizes)[:-1])
        for chosen, added in zip(places, draws, strict=False):  # one empty part if one level
            current[chosen] += added
            self._added.append((chosen, added))
        return current


class NoiseReduction:
    """Release one value again and again, each time with less noise; only the last one counts.

    ``sensitivity`` is the largest change of all numbers by one record, as a sum of absolute
    changes; ``epsilons`` are the levels, the noisiest first.

    Guarantee
    ---------
    Claim AF-2. All releases together, when stopped after level ``t`` for whatever reason, have
    ex-post privacy loss ``epsilons[t]``. The reason to stop must itself be private; see
    :class:`InteractiveAboveThreshold`.
    """

    def __init__(
        self,
        values: Any,
        *,
        sensitivity: float,
        epsilons: Sequence[float] | Vector,
        neighbours: Neighbours,
        simulate: np.random.Generator | int | None = None,
    ) -> None:
        check_neighbours(neighbours)
        numbers = np.asarray(values, dtype=np.float64)
        source = dp_noise_source(simulate)
        self._levels = NoisyLevels(
            numbers.ravel(), sensitivity=sensitivity, epsilons=epsilons, source=source
        )
        self.epsilons = self._levels.epsilons
        self._shape, self._simulation = numbers.shape, source.is_simulation
        self._neighbours: Neighbours = neighbours
        self._sensitivity = float(sensitivity)

    def refine(self) -> DPRelease:
        """Return the next, less noisy release."""
        value = self._levels.refine().reshape(self._shape)
        level = self._levels.level
        epsilon, reached = float(self.epsilons[level]), level + 1
        return publish_event(
            value if self._shape else float(value),
            (epsilon, 0.0, self._neighbours),
            PureEvent(epsilon=float(self.epsilons[-1])),
            simulation=self._simulation,
            kind="dp-ex-post",
            mechanism="noise reduction: discrete Laplace noise, one coin for each coordinate",
            assumptions=(
                f"One record moves the numbers by at most {self._sensitivity:g} in the sum of "
                "absolute changes.",
                "Whether to go on was decided from what had been released, or privately.",
            ),
            accounting={"level": f"{reached} of {len(self._levels)}", "epsilon of level": epsilon},
            noise={"scale": self._levels.noise_scale(level)},
            notes=(f"Levels 1 to {reached} were released; together they cost level {reached}.",),
        )


def enclose_level_keep_rate(coarse: int, fine: int, bits: int) -> tuple[int, int]:
    """Return integers around ``2^bits w``, ``w`` the rate at which a coordinate is kept.

    ``w = (sinh(1/2s) / sinh(1/2s'))²`` for the scales ``s >= s'`` of the noisier and of the less
    noisy level: about ``(s'/s)²``.
    """
    work = bits + 32
    top_low, top_high = _enclose_relative_sinh(coarse, work)
    bottom_low, bottom_high = _enclose_relative_sinh(fine, work)
    lower = (fine * top_low) ** 2 << bits
    upper = (fine * top_high) ** 2 << bits
    return lower // (coarse * bottom_high) ** 2, -(-upper // (coarse * bottom_low) ** 2)


def _enclose_relative_sinh(scale: int, bits: int) -> tuple[int, int]:
    """Return integers around ``2^bits sinh(x)/x`` at ``x = 1/(2 scale)``: a short series."""
    low = high = term_low = term_high = 1 << bits
    n = 0
    while term_high > 1:
        n += 2
        divisor = 4 * scale * scale * n * (n + 1)
        term_low, term_high = term_low // divisor, -(-term_high // divisor)
        low, high = low + term_low, high + term_high
    return low, high + 1  # the terms left out are together below the last one


def _toss(coarse: int, fine: int, size: int, source: BitSource) -> Mask:
    return lattice_bernoulli_enclosed(
        lambda bits: enclose_level_keep_rate(coarse, fine, bits), size, source
    )


Calibration = Literal["tight", "theorem"]

THRESHOLD_UNITS: Final = 1 << 30  # grid steps in the sensitivity and in the threshold's noise scale
FIRST_DRAWS: Final = 4
# Queries are computed in float64: sums of n terms are off by less than 1e-9 of what one term can
# move them. The sensitivity is taken larger by a millionth.
FLOAT_MARGIN: Final = 1 + 1e-6


class InteractiveAboveThreshold(ProcessBound):
    """Answer "is this query above the threshold?" until the first yes.

    Queries may be chosen from earlier answers and other releases, whose cost is added.
    ``sensitivity`` is the largest change of a query by one record.

    Guarantee
    ---------
    Claims AF-3, AF-4 and R-4. All answers up to and with the first yes are
    ``epsilon``-differentially private, for as many queries as there are; exact, since all are whole
    numbers.
    """

    KIND = "a threshold with its noise"

    def __init__(
        self,
        *,
        threshold: float,
        sensitivity: float,
        epsilon: float,
        source: BitSource | None = None,
    ) -> None:
        reach = check_positive(
            "sensitivity", sensitivity, advice="Bound the contribution of one record by clipping."
        )
        self.epsilon = check_positive("epsilon", epsilon, advice="Use about 1.")
        reach *= FLOAT_MARGIN
        self._step = grid_step(reach, max(1.0, self.epsilon / 2.0), THRESHOLD_UNITS)
        # Rounding to whole steps adds one to how far a query can move.
        steps = Fraction(reach) / Fraction(self._step) + 1
        self._units = math.ceil(4 * steps / Fraction(self.epsilon))
        if self._units > MAX_UNITS_PER_SCALE:
            raise BudgetError(f"epsilon must be at least 1e-5; got {epsilon!r}. Use about 1.")
        self._source = SystemSource() if source is None else source
        scales = [self._units] * FIRST_DRAWS + [math.ceil(2 * steps / Fraction(self.epsilon))]
        self._drawn = self._draw(scales)
        self._n_drawn = FIRST_DRAWS
        self._noisy_threshold = self._whole(threshold) + self._drawn.pop()
        self._over = False

    @property
    def is_over(self) -> bool:
        return self._over

    @property
    def noise_scales(self) -> tuple[float, float]:
        """Scales of the noise on the threshold and on each query: ``2Δ/ε`` and ``4Δ/ε``."""
        return 0.5 * self._step * self._units, self._step * self._units

    def ask(self, query: float) -> bool:
        """Return whether the query, with its noise, is above the noisy threshold."""
        self.check_process()
        if self._over:
            raise BudgetExceededError(
                "ask must stop at the first yes; it was given. Make a new one with its own budget."
            )
        if not self._drawn:  # as many as so far: few calls, and what is not used never leaves
            self._drawn = self._draw([self._units] * self._n_drawn)
            self._n_drawn *= 2
        noisy = self._whole(query) + self._drawn.pop()
        self._over = noisy >= self._noisy_threshold
        return self._over

    def _draw(self, units: list[int]) -> list[int]:
        draws = sample_discrete_laplace(np.array(units, dtype=np.int64), self._source)
        return [int(draw) for draw in draws]

    def _whole(self, number: float) -> int:
        if not math.isfinite(number):
            raise DataError("a query must be a finite number. Clip it to the loss's range.")
        return round(min(max(number / self._step, -FARTHEST), FARTHEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdPlan:
    """Settings of a test of "excess risk is at most α" with a wrong yes at most with probability γ.

    ``threshold`` is of the negative excess risk, ``epsilon`` the cost of the test, however many
    levels are tried, and ``gamma`` the probability of a wrong yes.
    """

    threshold: float
    epsilon: float
    gamma: float


def plan_threshold(
    alpha: float,
    *,
    gamma: float,
    n_levels: int,
    sensitivity: float,
    calibration: Calibration = "tight",
) -> ThresholdPlan:
    """Return threshold ``-α/2`` and the least ε that keeps wrong answers rare.

    ``calibration="theorem"`` is ``ε = 16 Δ ln(2T/γ)/α``: neither side errs by more than ``α/2``.
    ``"tight"`` bounds a wrong yes only, and computes its probability.

    Guarantee
    ---------
    Claim AF-5. With probability ``1 - gamma`` the candidate that is accepted, if one is, has an
    excess risk of at most ``alpha``.
    """
    alpha = check_positive("alpha", alpha, advice="Use the excess risk that you can bear.")
    reach = check_positive("sensitivity", sensitivity, advice="Bound the loss of one record.")
    check_gamma(gamma)
    if calibration == "theorem":
        units = 8.0 * math.log(2.0 * n_levels / gamma)
    elif calibration == "tight":
        units = 2.0 * _reach_of_noise(n_levels, gamma)
    else:
        raise BudgetError(
            f"calibration must be 'tight' or 'theorem'; got {calibration!r}. Leave it out."
        )
    epsilon = units * reach / (0.5 * alpha)
    return ThresholdPlan(threshold=-0.5 * alpha, epsilon=epsilon, gamma=gamma)


def threshold_wrong_yes(margin: float, n_levels: int) -> float:
    """``P[max_t ν_t - ρ > margin]`` for ``n_levels`` of ``ν ~ Lap(2)`` and ``ρ ~ Lap(1)``."""

    def integrand(shift: float) -> float:
        # Over the threshold's noise ρ = -shift; the tail of one query beyond margin - shift.
        left = margin - shift
        below = math.log1p(-0.5 * math.exp(-left / 2)) if left >= 0 else left / 2 - math.log(2)
        return -math.expm1(n_levels * below) * 0.5 * math.exp(-abs(shift))

    kinks = sorted({-60.0, 0.0, margin, 60.0 + margin})
    pieces = [
        scipy.integrate.quad(integrand, a, b, epsabs=1e-12, epsrel=1e-10, limit=200)[0]
        for a, b in pairwise(kinks)
    ]
    return float(sum(pieces))


def _reach_of_noise(n_levels: int, gamma: float) -> float:
    """Return the margin, in units of the threshold's noise, with a wrong yes of at most gamma."""
    high = 1.0
    while threshold_wrong_yes(high, n_levels) > gamma:
        high *= 2.0
    if high == 1.0:
        return high
    root = scipy.optimize.brentq(
        lambda x: threshold_wrong_yes(x, n_levels) - gamma, 0.5 * high, high, xtol=1e-9
    )
    # Covers quadrature, the margin for floats, and the grid: less than a part in 2^28.
    return float(root) * (1 + 2e-6)
