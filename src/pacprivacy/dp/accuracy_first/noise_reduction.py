"""One value, released with less and less noise, at the price of the last release alone.

The noise of a level is the noise of the next one plus, for some coordinates, a fresh draw. So
whoever has seen the less noisy release learns nothing from the noisier ones before it.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Integers, Mask, Vector, check_positive
from pacprivacy._random import BitSource, ProcessBound
from pacprivacy.dp import PureEvent
from pacprivacy.dp.certificate import DPCertificate, DPRelease, Neighbours
from pacprivacy.dp.events import carried
from pacprivacy.dp.noise import read_source
from pacprivacy.errors import BudgetError, BudgetExceededError, DataError
from pacprivacy.noise import MAX_UNITS_PER_SCALE, bernoulli_enclosed, sample_discrete_laplace

LEAST_UNITS: Final = 1 << 24  # grid steps in the smallest noise scale
FARTHEST: Final = 2.0**61  # grid steps; beyond it numbers are clipped, so that int64 holds them


def geometric_levels(low: float, high: float, n_levels: int = 1000) -> Vector:
    """Return ``n_levels`` levels in geometric progression, both ends included."""
    low = check_positive("low", low, advice="Use 1/n.")
    high = check_positive("high", high, advice="Use four times what the theory demands.")
    if not low < high or n_levels < 2:
        raise BudgetError(
            f"levels must go from a smaller to a larger epsilon in at least two steps; got {low:g} "
            f"to {high:g} in {n_levels}. Use 1/n, four times the theory's epsilon, and 1000."
        )
    return np.asarray(np.geomspace(low, high, n_levels), dtype=np.float64)


def doubling_levels(low: float, high: float) -> Vector:
    """Return ``low, 2 low, 4 low, ...`` up to the first that is not below ``high``."""
    low = check_positive("low", low, advice="Use 1/n.")
    high = check_positive("high", high, advice="Use four times what the theory demands.")
    n_doublings = max(0, math.ceil(math.log2(high / low) - 1e-12))
    return np.asarray(low * 2.0 ** np.arange(n_doublings + 1), dtype=np.float64)


def as_levels(epsilons: Sequence[float] | Vector | Any) -> Vector:
    """Return levels as an array; refuse anything but positive, strictly increasing numbers."""
    levels = np.array(epsilons, dtype=np.float64)
    ordered = levels.ndim == 1 and levels.size > 0 and bool((np.diff(levels) > 0).all())
    if not (ordered and levels[0] > 0 and math.isfinite(levels[-1])):
        raise BudgetError(
            "epsilons must be positive, finite and strictly increasing: from the noisiest level "
            f"to the least noisy; got an array of shape {levels.shape}. Use geometric_levels."
        )
    return levels


def lattice_units(
    epsilons: Vector, *, sensitivity: float, n_numbers: int
) -> tuple[float, list[int]]:
    """Return a grid step and, for every level, its noise scale in whole steps, rounded up."""
    reach = check_positive(
        "sensitivity", sensitivity, advice="Bound what one record contributes, by clipping."
    )
    _, exponent = np.frexp(reach / float(epsilons[-1]) / LEAST_UNITS)
    grid_step = float(np.ldexp(1.0, int(exponent) - 1))
    steps = Fraction(reach) / Fraction(grid_step) + n_numbers
    units = [math.ceil(steps / Fraction(float(epsilon))) for epsilon in epsilons]
    if units[0] > MAX_UNITS_PER_SCALE:
        raise BudgetError(
            "epsilons must span a factor of at most 2**25; got "
            f"{epsilons[0]:g} to {epsilons[-1]:g}. Start at a larger epsilon."
        )
    return grid_step, units


class NoisyLevels(ProcessBound):
    """A vector at every level of noise: drawn from the least noisy level up, read the other way.

    ``sensitivity`` is the sum of absolute changes that one record can make; ``epsilons`` are the
    levels, the noisiest first.

    Guarantee
    ---------
    Claims AF-1 and AF-2. The noise at level ``t`` is discrete Laplace, independent between
    coordinates, of a scale that makes it ``epsilons[t]``-private, exactly; reading levels
    ``0..t`` costs ``epsilons[t]`` and nothing more.
    Claim R-4. A fork reads no level: what was read is known to one process.
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
        self._step, self._units = lattice_units(
            self.epsilons, sensitivity=sensitivity, n_numbers=numbers.size
        )
        with np.errstate(over="ignore"):
            scaled = np.rint(np.clip(numbers / self._step, -FARTHEST, FARTHEST))
        self._level = -1
        self._added: list[tuple[Integers, Integers]] = []
        self._current = self._draw(scaled.astype(np.int64), source)

    def __len__(self) -> int:
        """Return the number of levels."""
        return len(self._units)

    @property
    def level(self) -> int:
        """The level read last; -1 before the first."""
        return self._level

    @property
    def noise_scale(self) -> float:
        """Scale of the noise at the level read last."""
        return self._step * self._units[max(self._level, 0)]

    def refine(self) -> Vector:
        """Return the next, less noisy level."""
        self.check_process()
        if self._level + 1 >= len(self):
            raise BudgetExceededError(
                f"level must be below {len(self)}; all levels were read. Use more levels, or a "
                "larger last epsilon."
            )
        self._level += 1
        if self._level > 0:
            places, draws = self._added.pop()
            self._current[places] -= draws
        return np.asarray(self._current * self._step, dtype=np.float64)

    def _draw(self, scaled: Integers, source: BitSource) -> Integers:
        """Return the noisiest level; remember what each level adds to the next one."""
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

    ``sensitivity`` is how far one record can move all numbers together, as a sum of absolute
    changes; it must not be read off the data. ``epsilons`` are the levels, the noisiest first.

    Guarantee
    ---------
    Claim AF-2. All releases together, when stopped after level ``t`` for whatever reason, have
    ex-post privacy loss ``epsilons[t]``. The reason to stop must itself be private; see
    :class:`InteractiveAboveThreshold`.

    Examples
    --------
    >>> gradual = NoiseReduction(
    ...     [10.0, 20.0], sensitivity=2.0, epsilons=[0.1, 1.0, 4.0], neighbours="replace"
    ... )
    >>> first, second = gradual.refine(), gradual.refine()
    >>> second.value.shape, second.certificate.epsilon, second.certificate.kind
    ((2,), 1.0, 'dp-ex-post')
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
        numbers = np.asarray(values, dtype=np.float64)
        source = read_source(simulate)
        self._shape = numbers.shape
        self._simulation = source.is_simulation
        self._neighbours: Neighbours = neighbours
        self._sensitivity = float(sensitivity)
        self._levels = NoisyLevels(
            numbers.ravel(), sensitivity=sensitivity, epsilons=epsilons, source=source
        )
        self._certificate(float(self._levels.epsilons[0]))  # refuse a wrong relation early

    @property
    def epsilons(self) -> Vector:
        """Levels, the noisiest first."""
        return self._levels.epsilons

    def refine(self) -> DPRelease:
        """Return the next, less noisy release."""
        value = self._levels.refine().reshape(self._shape)
        epsilon = float(self._levels.epsilons[self._levels.level])
        return DPRelease(
            value=value if self._shape else float(value), certificate=self._certificate(epsilon)
        )

    def _certificate(self, epsilon: float) -> DPCertificate:
        reached = max(self._levels.level, 0) + 1
        return DPCertificate(
            kind="dp-ex-post",
            epsilon=epsilon,
            delta=0.0,
            neighbours=self._neighbours,
            mechanism="noise reduction: discrete Laplace noise, one coin for each coordinate",
            assumptions=(
                f"One record moves the numbers by at most {self._sensitivity:g} in the sum of "
                "absolute changes.",
                "Whether to go on was decided from what had been released, or privately.",
            ),
            accounting={"level": f"{reached} of {len(self._levels)}", "epsilon of level": epsilon},
            noise={"scale": self._levels.noise_scale},
            events=carried(PureEvent(epsilon=float(self._levels.epsilons[-1]))),
            notes=(f"Levels 1 to {reached} were released; together they cost level {reached}.",),
            simulation=self._simulation,
        )


def enclose_keep_rate(coarse: int, fine: int, bits: int) -> tuple[int, int]:
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
    return bernoulli_enclosed(lambda bits: enclose_keep_rate(coarse, fine, bits), size, source)
