"""The law of noise reduction: every level of the right law and scale, coordinates independent.

Three-sided: the right scale passes, two thirds and three halves of it fail. Accepting sides fail
by chance with probability 1e-8; seeds are fixed.
"""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from pacprivacy._random import SimulatedSource
from pacprivacy.dp import noise_reduction
from pacprivacy.dp.noise_reduction import (
    NoisyLevels,
    enclose_level_keep_rate,
)
from pacprivacy.errors import BudgetError
from pacprivacy.noise.lattice import lattice_bernoulli_enclosed, sample_discrete_laplace

Draws = npt.NDArray[np.float64]

FALSE_ALARM, CAUGHT = 1e-8, 1e-30
N_DRAWS = 40_000
EPSILONS = (0.1, 0.12, 0.3, 1.0, 1.05, 5.0)


def all_levels(seed: int, n_draws: int = N_DRAWS) -> list[Draws]:
    levels = NoisyLevels(
        np.zeros(n_draws),
        sensitivity=1e9,  # so that rounding many numbers adds nothing to the scale
        epsilons=EPSILONS,
        source=SimulatedSource(seed),
    )
    return [levels.refine() / 1e9 for _ in EPSILONS]


@pytest.fixture(scope="module")
def levels() -> list[Draws]:
    return all_levels(1)


def scale_pvalues(draws: Draws, scale: float) -> tuple[float, float, float]:
    """p-values of the whole law, of the second moment, and of the tail beyond five scales."""
    law = float(stats.kstest(draws, stats.laplace(scale=scale).cdf).pvalue)
    # Of (x/b)², the mean is 2 and the variance 4! - 2² = 20.
    moment = (np.square(draws / scale).mean() - 2) / np.sqrt(20 / draws.size)
    beyond = int((np.abs(draws) > 5 * scale).sum())
    tail = float(stats.binomtest(beyond, draws.size, float(np.exp(-5))).pvalue)
    return law, float(2 * stats.norm.sf(abs(moment))), tail


@pytest.mark.claim("AF-1")
@pytest.mark.parametrize("level", range(len(EPSILONS)))
def test_every_level_is_laplace_of_the_right_scale(levels: list[Draws], level: int) -> None:
    scale = (1 + N_DRAWS / 2**24) / EPSILONS[level]  # one step of rounding for each number
    assert min(scale_pvalues(levels[level], scale)) > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        assert max(scale_pvalues(levels[level], wrong * scale)) < CAUGHT


@pytest.mark.claim("L-1")
def test_the_largest_scale_of_the_sampler() -> None:
    draws = sample_discrete_laplace(np.full(N_DRAWS, 2**50), SimulatedSource(3)) / 2**50
    assert min(scale_pvalues(draws, 1.0)) > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        assert max(scale_pvalues(draws, wrong)) < CAUGHT
    with pytest.raises(BudgetError, match=r"from 1 to 2\*\*50"):
        sample_discrete_laplace(np.array([2**50 + 1]), SimulatedSource(3))


@pytest.mark.claim("AF-1")
@pytest.mark.parametrize(("coarse", "fine"), [(3, 2), (50, 1), (7, 7), (200, 198)])
def test_the_coin_makes_one_discrete_laplace_from_another(coarse: int, fine: int) -> None:
    low, high = enclose_level_keep_rate(coarse, fine, 80)
    keep = low / 2**80
    assert high - low <= 4
    reach = 45 * coarse
    support = np.arange(-reach, reach + 1)

    def masses(scale: int) -> Draws:
        weights = np.exp(-np.abs(support) / scale)
        return weights * np.tanh(0.5 / scale)  # (1-p)/(1+p)

    added = (1 - keep) * masses(coarse)
    added[reach] += keep
    middle = slice(reach, 3 * reach + 1)
    assert np.abs(np.convolve(masses(fine), added)[middle] - masses(coarse)).max() < 1e-14


@pytest.mark.claim("AF-1")
def test_a_coin_is_decided_where_the_first_word_does_not() -> None:
    class Stuck(SimulatedSource):
        """First words that equal the threshold's; then bits that decide."""

        def words(self, size: int) -> npt.NDArray[np.uint64]:
            values = self.queue.pop(0)
            assert len(values) == size
            return np.array(values, dtype=np.uint64)

    first, _ = enclose_level_keep_rate(3, 2, 64)
    second = enclose_level_keep_rate(3, 2, 128)[0] & (2**64 - 1)
    source = Stuck(0)
    source.queue = [[first, first, first - 1, first + 2], [second - 1], [second + 2]]
    coins = lattice_bernoulli_enclosed(lambda bits: enclose_level_keep_rate(3, 2, bits), 4, source)
    assert coins.tolist() == [True, False, True, False]


def dependence(first: Draws, second: Draws) -> float:
    """p-value of independence of two samples, by counts in the cells of their quartiles."""
    cells = [
        np.digitize(np.abs(x), np.quantile(np.abs(x), [0.25, 0.5, 0.75])) for x in (first, second)
    ]
    return float(stats.chi2_contingency(np.histogram2d(*cells, bins=4)[0]).pvalue)


@pytest.mark.claim("AF-1")
def test_coordinates_are_independent_at_every_level(
    levels: list[Draws], monkeypatch: pytest.MonkeyPatch
) -> None:
    half = N_DRAWS // 2
    for draws in levels:
        assert dependence(draws[:half], draws[half:]) > FALSE_ALARM
        assert dependence(draws[::2], draws[1::2]) > FALSE_ALARM
    tossed = noise_reduction._toss

    def one_coin(
        coarse: int, fine: int, size: int, source: SimulatedSource
    ) -> npt.NDArray[np.bool_]:
        return np.repeat(tossed(coarse, fine, size // 2, source), 2)

    monkeypatch.setattr(noise_reduction, "_toss", one_coin)
    planted = all_levels(2)
    assert min(dependence(draws[::2], draws[1::2]) for draws in planted) < CAUGHT
    # The marginals do not show it.
    scale = (1 + N_DRAWS / 2**24) / EPSILONS[2]
    assert scale_pvalues(planted[2][::2], scale)[0] > FALSE_ALARM
