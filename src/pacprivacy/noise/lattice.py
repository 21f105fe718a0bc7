"""Discrete Gaussian noise on the integers, sampled exactly.

Floating point only ever *rules out*: every random choice compares a uniform real number, known
to as many bits as the comparison needs, with an exact real number. Where the first bits and a
float with a proven error interval do not decide (about once in 2^38 choices), integers do.

The rejection scheme is that of Canonne, Kamath and Steinke (2020): a discrete Laplace proposal
of the same integer scale ``s``, kept with probability ``exp(-(|y| - s)² / 2s²)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector
from pacprivacy._random import BitSource
from pacprivacy.errors import BudgetError

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MAX_UNITS_PER_STD: Final = 2**31
MAX_UNITS_PER_SCALE: Final = 2**50  # for Laplace noise: quotients of integers below 2^53

# Error interval of the float64 value of exp(-γ). γ is a quotient of integers below 2^53, or
# half the square of one: at most three roundings, so it is off by at most 4γ·2^-53. For
# γ <= 64 that moves exp(-γ) by a factor within 1 ± 2^-45; the exponential itself adds at most
# a few units of 2^-53. The interval allows 2^-40, thirty times as much, for libraries whose
# exponential is poor. For γ > 64 both values are below 2^-80: the absolute term covers them.
_RELATIVE_SLACK = 2.0**-40
_ABSOLUTE_SLACK = 2.0**-60

_WORD_BITS: Final = 64
_BLOCK: Final = 2**16  # elements at a time: the working arrays stay in cache


def sample_discrete_gaussian(units_per_std: Integers, source: BitSource) -> Integers:
    """Draw ``y`` with probability proportional to ``exp(-y² / 2s²)``, for scales ``s <= 2^31``.

    Guarantee
    ---------
    Claim L-1. Assumes independent uniform words and an ``exp`` in float64 with a relative error
    below 2^-41. The law is exact, without slack; the number of attempts is independent of the value
    kept.
    """
    scales = _check_units("units_per_std", units_per_std, MAX_UNITS_PER_STD).ravel()
    result = np.zeros_like(scales)
    for start in range(0, scales.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = _sample_block(scales[block], source)
    return result.reshape(np.shape(units_per_std))


def sample_discrete_laplace(units_per_scale: Integers, source: BitSource) -> Integers:
    """Draw ``y`` with probability proportional to ``exp(-|y|/s)``, ``s <= 2^50``, exactly (L-1)."""
    scales = _check_units("units_per_scale", units_per_scale, MAX_UNITS_PER_SCALE).ravel()
    result = np.zeros_like(scales)
    for start in range(0, scales.size, _BLOCK):
        pending = np.arange(start, min(start + _BLOCK, scales.size))
        while pending.size:
            chosen, values = _propose_laplace(scales[pending], source)
            result[pending[chosen]] = values
            pending = np.delete(pending, chosen)
    return result.reshape(np.shape(units_per_scale))


def _check_units(name: str, units_per_std: Integers, most: int) -> Integers:
    units = np.asarray(units_per_std)
    if units.dtype.kind not in "iu" or (units.size and (units.min() < 1 or units.max() > most)):
        raise BudgetError(
            f"{name} must be integers from 1 to 2**{most.bit_length() - 1}; got an array of shape "
            f"{units.shape} and dtype {units.dtype} with other entries. "
            "Choose a power-of-two grid step near 1/1024 of the standard deviation."
        )
    return units.astype(np.int64)


def _sample_block(scales: Integers, source: BitSource) -> Integers:
    result = np.zeros_like(scales)
    pending = np.arange(scales.size)
    while pending.size:
        chosen, values = _propose_laplace(scales[pending], source)
        picked = pending[chosen]
        accepted = _keep_gaussian(values, scales[picked], source)
        result[picked[accepted]] = values[accepted]
        done = np.zeros(pending.size, dtype=np.bool_)
        done[chosen[accepted]] = True
        pending = pending[~done]
    return result


def _propose_laplace(scales: Integers, source: BitSource) -> tuple[Integers, Integers]:
    """Attempt one discrete Laplace draw per scale; return successes and draws."""
    digits = uniform_lattice_integers(scales, source)
    accepted = lattice_bernoulli_exp(
        digits / scales, lambda i: Fraction(int(digits[i]), int(scales[i])), source
    )
    chosen = accepted.nonzero()[0]
    magnitude = digits[chosen] + scales[chosen] * _geometric(chosen.size, source)
    n_words = -(-chosen.size // _WORD_BITS)
    bits = np.unpackbits(source.words(n_words).view(np.uint8))[: chosen.size]
    negative = bits.astype(np.bool_)
    # Zero has two signs; one of them is dropped so that it is not drawn twice as often.
    single = ~(negative & (magnitude == 0))
    signed = np.where(negative, -magnitude, magnitude)
    return chosen[single], signed[single]


def _keep_gaussian(values: Integers, scales: Integers, source: BitSource) -> Mask:
    excess = np.abs(values) - scales
    return lattice_bernoulli_exp(
        0.5 * (excess / scales) ** 2,
        lambda i: Fraction(int(excess[i]) ** 2, 2 * int(scales[i]) ** 2),
        source,
    )


def uniform_lattice_integers(bounds: Integers, source: BitSource) -> Integers:
    """Draw one integer uniformly from ``0 .. bound-1`` per bound, by rejection."""
    limits = bounds.astype(np.uint64)
    surplus = (np.uint64(2**64 - 1) - limits + np.uint64(1)) % limits  # 2^64 mod bound
    words = source.words(limits.size).copy()
    while (again := (words < surplus).nonzero()[0]).size:
        words[again] = source.words(again.size)
    return (words % limits).astype(np.int64)


def lattice_bernoulli_exp(
    gamma: Floats, exact: Callable[[int], Fraction], source: BitSource
) -> Mask:
    """Toss one coin of success rate ``exp(-γ_i)`` per element, exactly.

    ``gamma`` is γ >= 0 after at most three roundings; ``exact(i)`` its rational value, which is
    computed only where the floats do not decide.
    """
    words = source.words(gamma.size)
    rate = np.exp(-gamma)
    # The uniform real lies in [below, below + 2^-53]; both ends are exact in float64.
    below = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    heads = below + 2.0**-53 <= rate * (1.0 - _RELATIVE_SLACK) - _ABSOLUTE_SLACK
    tails = below >= rate * (1.0 + _RELATIVE_SLACK) + _ABSOLUTE_SLACK
    for i in (~(heads | tails)).nonzero()[0]:
        heads[i] = _LazyUniform(int(words[i]), source).is_below_exp(exact(int(i)))
    return np.asarray(heads)


def lattice_bernoulli_enclosed(
    enclose: Callable[[int], tuple[int, int]], size: int, source: BitSource
) -> Mask:
    """Toss ``size`` coins of one success rate, exactly.

    ``enclose(bits)`` returns integers with ``lower <= 2^bits rate <= upper`` whose distance stays
    bounded; a coin that 64 bits do not decide asks for more.
    """
    words = source.words(size)
    lower, upper = enclose(_WORD_BITS)
    none = np.zeros(size, dtype=np.bool_)
    # The uniform real lies in [word, word + 1] / 2^64.
    heads = words <= np.uint64(lower - 1) if lower > 0 else none.copy()
    tails = words >= np.uint64(upper) if upper < 2**64 else none
    for i in (~(heads | tails)).nonzero()[0]:
        heads[i] = _LazyUniform(int(words[i]), source).is_below(enclose)
    return np.asarray(heads)


def _geometric(size: int, source: BitSource) -> Integers:
    """Count, for each uniform real u, the k >= 1 with ``u < exp(-k)``: P[V >= k] = exp(-k)."""
    thresholds = _exp_thresholds()
    words = source.words(size)
    above = np.searchsorted(thresholds, words, side="right")
    counts = (thresholds.size - above).astype(np.int64)
    # A word equal to a threshold holds exp(-k) strictly inside its cell: ask for more bits.
    for i in np.flatnonzero(np.searchsorted(thresholds, words, side="left") != above):
        uniform = _LazyUniform(int(words[i]), source)
        while uniform.is_below_exp(Fraction(int(counts[i]) + 1)):
            counts[i] += 1
    return counts


@cache
def _exp_thresholds() -> Words:
    """Return ``floor(2^64 exp(-k))`` in ascending order, down to the first that is 0."""
    floors: list[int] = []
    while not floors or floors[0] > 0:
        lower, upper = (end >> 64 for end in _enclose_exp(Fraction(len(floors) + 1), 128))
        assert lower == upper, "128 bits separate exp(-k) from the multiples of 2^-64"
        floors.insert(0, lower)
    return np.array(floors, dtype=np.uint64)


class _LazyUniform:
    """A uniform real number in [0, 1) whose bits are drawn on demand."""

    __slots__ = ("_bits", "_source", "_value")

    def __init__(self, word: int, source: BitSource) -> None:
        self._value, self._bits, self._source = word, _WORD_BITS, source

    def is_below_exp(self, gamma: Fraction) -> bool:
        """Decide whether the number is below ``exp(-gamma)``; ends with probability 1."""
        if gamma == 0:
            return True
        return self.is_below(lambda bits: _enclose_exp(gamma, bits))

    def is_below(self, enclose: Callable[[int], tuple[int, int]]) -> bool:
        """Decide whether the number is below the one enclosed by ``enclose``."""
        guard = 32
        while True:
            lower, upper = enclose(self._bits + guard)
            if (self._value + 1) << guard <= lower:
                return True
            if self._value << guard >= upper:
                return False
            self._value = (self._value << _WORD_BITS) | int(self._source.words(1)[0])
            self._bits += _WORD_BITS


def _enclose_exp(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Return close integers with ``lower <= 2^bits exp(-gamma) <= upper``, rounded outwards."""
    halvings = int(gamma).bit_length() + 1
    # Every squaring doubles the relative error; 32 more bits leave the ends within a unit.
    work = bits + halvings + 32
    one = 1 << work
    scaled = gamma * one / (1 << halvings)
    x_low, x_high = math.floor(scaled), math.ceil(scaled)
    lower = upper = term_low = term_high = one
    n = 0
    while term_high > 1:
        n += 1
        term_low = term_low * x_low // (n * one)
        term_high = -(-term_high * x_high // (n * one))
        if n % 2:
            lower, upper = lower - term_high, upper - term_low
        else:
            lower, upper = lower + term_low, upper + term_high
    # The terms decrease, so what is left out is smaller than the last one: one unit.
    lower, upper = max(lower - 1, 0), upper + 1
    for _ in range(halvings):
        lower, upper = lower * lower >> work, -(-upper * upper >> work)
    return lower >> (work - bits), -(-upper >> (work - bits))


UNITS_PER_STD = 1 << 20  # the grid is at most a millionth of the noise


def lattice_grid(noise_std: Vector, steps: int = UNITS_PER_STD) -> tuple[Vector, Integers]:
    """Choose a power-of-two grid step per direction; round the noise up to multiples of it."""
    if not (np.isfinite(noise_std).all() and (noise_std > 1e-280).all()):
        raise BudgetError(
            "noise_std must be positive, finite and not below 1e-280 in every direction; got "
            "others. Rescale the outputs."
        )
    _, exponent = np.frexp(noise_std / steps)
    grid_step = np.ldexp(1.0, exponent - 1)
    units = np.ceil(noise_std / grid_step).astype(np.int64)
    return grid_step, units
