"""Three-sided tests of the sampler: the right law passes, two thirds and three halves fail.

One statistic per scale serves all three sides. An accepting side fails by chance with
probability 1e-8; the seeds are fixed, so it either always does or never.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from pacprivacy._random import SimulatedSource
from pacprivacy.noise.lattice import sample_discrete_gaussian

Draws = npt.NDArray[np.int64]

FALSE_ALARM = 1e-8
CAUGHT = 1e-30


def draw(s: int, size: int, seed: int) -> Draws:
    return sample_discrete_gaussian(np.full(size, s), SimulatedSource(seed))


def pmf(values: npt.NDArray[np.int64], s: float) -> npt.NDArray[np.float64]:
    """Exact masses: the sum over 40 standard deviations misses less than 1e-300."""
    support = np.arange(-int(40 * s) - 1, int(40 * s) + 2)
    return np.exp(-0.5 * (values / s) ** 2) / np.exp(-0.5 * (support / s) ** 2).sum()


def chi_square(draws: Draws, s: float) -> float:
    """p-value of the draws under N_Z(0, s²), each value one cell, two cells for the tails."""
    reach = int(3.5 * s)
    values = np.arange(-reach, reach + 1)
    inside = pmf(values, s)
    tail = (1.0 - inside.sum()) / 2
    expected = draws.size * np.concatenate([[tail], inside, [tail]])
    cells = np.clip(draws, -reach - 1, reach + 1) + reach + 1
    observed = np.bincount(cells, minlength=expected.size)
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), expected.size - 1))


def kolmogorov(draws: Draws, s: float) -> float:
    """p-value for a large s, where the exact CDF is that of the normal at y + 1/2.

    The two differ by less than 1/(16 s²), claim L-2: 1e-13 at s = 2^20.
    """
    levels = stats.norm.cdf((np.sort(draws) + 0.5) / s)
    ranks = np.arange(draws.size)
    distance = max((levels - ranks / draws.size).max(), ((ranks + 1) / draws.size - levels).max())
    return float(stats.kstwobign.sf(distance * np.sqrt(draws.size)))


def from_pmf(s: float, size: int, seed: int) -> Draws:
    """Draws of a scale that is not an integer, by inversion of the exact masses."""
    values = np.arange(-int(12 * s) - 1, int(12 * s) + 2)
    masses = pmf(values, s)
    return np.random.default_rng(seed).choice(values, size=size, p=masses / masses.sum())


@pytest.mark.claim("L-1")
@pytest.mark.parametrize(
    ("s", "p_value", "draw_wrong"),
    [(1, chi_square, from_pmf), (30, chi_square, draw), (2**20, kolmogorov, draw)],
    ids=["1", "30", "2^20"],
)
def test_right_noise_passes_and_wrong_noise_fails(
    s: int,
    p_value: Callable[[Draws, float], float],
    draw_wrong: Callable[[float, int, int], Draws],
) -> None:
    size = 200_000
    less, more = (2 / 3, 3 / 2) if s == 1 else (2 * s // 3, 3 * s // 2)
    assert p_value(draw(s, size, 1), s) > FALSE_ALARM
    assert p_value(draw_wrong(less, size, 2), s) < CAUGHT
    assert p_value(draw_wrong(more, size, 3), s) < CAUGHT


@pytest.mark.claim("L-1")
def test_rounded_and_doubly_zero_noise_fail_at_the_smallest_scale() -> None:
    """What a sloppy sampler would do: round a continuous draw, or give zero both signs."""
    generator = np.random.default_rng(10)
    rounded = np.rint(generator.normal(size=200_000)).astype(np.int64)
    assert chi_square(rounded, 1) < CAUGHT
    masses = pmf(np.arange(-12, 13), 1)
    masses[12] *= 2
    doubled = generator.choice(np.arange(-12, 13), size=200_000, p=masses / masses.sum())
    assert chi_square(doubled, 1) < CAUGHT


@pytest.mark.claim("L-1")
@pytest.mark.parametrize("s", [2**20, 2**31])
def test_low_bits_are_uniform(s: int) -> None:
    """Modulo 64 the law is uniform to exp(-2π²(s/64)²); a grid in the noise would show here."""
    draws = draw(s, 100_000, s + 1)

    def p_value(values: Draws) -> float:
        observed = np.bincount(np.mod(values, 64), minlength=64)
        expected = values.size / 64
        return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), 63))

    assert p_value(draws) > FALSE_ALARM
    assert p_value(np.abs(draws)) > FALSE_ALARM
    assert p_value(draws // 2 * 2) < CAUGHT


@pytest.mark.claim("L-1")
def test_largest_scale_and_mixed_scales_keep_their_law() -> None:
    units = np.tile([30, 2**31, 1], 60_000)
    draws = sample_discrete_gaussian(units, SimulatedSource(13)).reshape(-1, 3)
    assert chi_square(draws[:, 0], 30) > FALSE_ALARM
    assert kolmogorov(draws[:, 1], 2**31) > FALSE_ALARM
    assert chi_square(draws[:, 2], 1) > FALSE_ALARM
    assert chi_square(draws[:, 0], 27) < CAUGHT


@pytest.mark.claim("L-1")
def test_neighbours_and_signs_are_independent() -> None:
    draws = draw(2**20, 200_000, 14) / 2**20
    pairs = draws.reshape(-1, 2)
    limit = stats.norm.isf(FALSE_ALARM / 2) / np.sqrt(len(pairs))
    assert abs(np.mean(pairs[:, 0] * pairs[:, 1])) < limit
    # Sign against magnitude, and magnitude against magnitude (variance of y² is 2).
    assert abs(np.mean(np.sign(draws) * draws**2)) < np.sqrt(3) * limit
    assert abs(np.mean((pairs[:, 0] ** 2 - 1) * (pairs[:, 1] ** 2 - 1))) < 2 * limit
