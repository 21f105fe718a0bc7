"""Discrete noise of known sensitivity: the right law, from both samplers, and exact sums."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from pacprivacy._random import SimulatedSource
from pacprivacy.dp.noise import (
    add_gaussian,
    add_laplace,
    dp_noise_parameter,
    dp_noise_slack,
    dp_noise_source,
)
from pacprivacy.dp.records import sum_clipped
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.noise.lattice import sample_discrete_laplace

LAWS = [("laplace", stats.laplace), ("gaussian", stats.norm)]


def draw(law: str, size: int, *, seed: int | None = 1) -> tuple[object, float]:
    source = dp_noise_source(seed)
    values = np.full(size, 7.0)
    if law == "laplace":
        noisy = add_laplace(values, sensitivity=float(size), epsilon=0.5, source=source)
        return noisy.values - 7.0, 2.0 * size
    noisy = add_gaussian(values, sensitivity=3.0, parameter=0.5, source=source)
    return noisy.values - 7.0, 6.0


@pytest.mark.claim("DP-1")
@pytest.mark.claim("DP-2")
@pytest.mark.parametrize(("law", "family"), LAWS)
def test_noise_has_its_law_and_no_other_scale(law: str, family: object) -> None:
    noise, scale = draw(law, 4000, seed=1)
    for factor, accept in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        p = stats.kstest(noise, family(scale=scale * factor).cdf).pvalue  # type: ignore[operator]
        assert (p > 1e-7) == accept


@pytest.mark.claim("L-1")
def test_small_discrete_laplace_numbers_have_their_probabilities() -> None:
    scale, n = 2, 200_000
    drawn = sample_discrete_laplace(np.full(n, scale), SimulatedSource(3))
    support = np.arange(-8, 9)
    law = np.exp(-np.abs(support) / scale) * math.tanh(1 / (2 * scale))
    counts = np.array([(drawn == y).sum() for y in support] + [(np.abs(drawn) > 8).sum()])
    expected = n * np.append(law, 1 - law.sum())
    assert stats.chisquare(counts, expected).pvalue > 1e-6
    assert stats.chisquare(counts, n * np.append(np.roll(law, 1), 1 - law.sum())).pvalue < 1e-6


@pytest.mark.claim("DP-1")
def test_laplace_pays_for_rounding_exactly() -> None:
    noisy = add_laplace(np.zeros(1000), sensitivity=1.0, epsilon=0.3, source=dp_noise_source(0))
    steps = 1.0 / noisy.grid_step + 1000  # what a neighbour can move after rounding
    units = noisy.noise_scale / noisy.grid_step
    assert steps / units <= 0.3 < steps / (units - 1)
    assert np.array_equal(np.rint(noisy.values / noisy.grid_step), noisy.values / noisy.grid_step)


@pytest.mark.claim("DP-2")
def test_gaussian_pays_for_rounding_and_for_the_grid() -> None:
    noisy = add_gaussian(np.zeros(900), sensitivity=1.0, parameter=0.3, source=dp_noise_source(0))
    steps = 1.0 / noisy.grid_step + 30
    units = noisy.noise_std / noisy.grid_step
    assert steps / units <= 0.3 < steps / (units - 1)
    one = add_gaussian(0.0, sensitivity=1.0, parameter=0.5, source=dp_noise_source(0))
    whole = Fraction(one.noise_std) / Fraction(one.grid_step)
    needed = (1 / Fraction(one.grid_step) + 1) / Fraction(1, 2)  # a whole number of steps
    assert whole**2 - Fraction(1, 12) >= needed**2  # the variance of its continuous twin
    assert dp_noise_parameter(1.0, 1e-6, 10**30) < dp_noise_parameter(1.0, 1e-6, 1)
    large = dp_noise_parameter(100.0, 1e-9, 1)  # by zCDP: μ²/2 + 2 sqrt(μ²/2 ln(1/δ))
    rho = large**2 / 2
    assert rho + 2 * math.sqrt(rho * math.log(1e9)) == pytest.approx(100.0, rel=1e-9)
    assert dp_noise_slack(1.0, 32) == pytest.approx((1 + math.e) * 2.0**-116, rel=1e-12)


@pytest.mark.claim("L-3")
@pytest.mark.parametrize("scale", [1, 3, 10, 40])
def test_discrete_gaussians_are_rounded_continuous_ones_of_a_twelfth_less(scale: int) -> None:
    # In 40 digits, since the distance is far below what float64 can tell.
    from mpmath import mp, mpf

    with mp.workdps(40):
        masses = [mp.exp(-(mpf(k) ** 2) / (2 * scale**2)) for k in range(16 * scale)]
        total = 2 * mp.fsum(masses) - 1
        distances = []
        for variance in (scale**2 - mpf(1) / 12, mpf(scale) ** 2):
            std = mp.sqrt(variance)
            ends = [mp.erf((k + mpf(1) / 2) / std / mp.sqrt(2)) for k in range(-1, 16 * scale)]
            rounded = [(b - a) / 2 for a, b in itertools.pairwise(ends)]
            apart = [abs(p - m / total) for p, m in zip(rounded, masses, strict=True)]
            distances.append(float(2 * mp.fsum(apart) - apart[0]) / 2)
    near, same_variance = distances
    assert near <= 1 / (32 * scale**4)  # claim L-3 is for 2^10 steps and more
    assert near == pytest.approx(0.0005 / scale**4, rel=0.2)
    assert same_variance > 0.016 / scale**2  # what L-2 allows for: 1/16


def test_numbers_far_outside_are_clipped_not_refused() -> None:
    noisy = add_laplace([1e300, -1e300], sensitivity=1.0, epsilon=1.0, source=dp_noise_source(0))
    assert np.allclose(noisy.values, [2.0**32, -(2.0**32)], rtol=1e-6)


@pytest.mark.claim("DP-3")
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_one_row_moves_the_sum_by_at_most_the_bound(norm: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 7)) * 10.0 ** rng.integers(-9, 9, size=(300, 1))
    total = sum_clipped(rows, clip_norm=0.3, norm=norm)  # type: ignore[arg-type]
    for i in range(len(rows)):
        without = sum_clipped(np.delete(rows, i, axis=0), clip_norm=0.3, norm=norm)  # type: ignore[arg-type]
        change = np.abs(total - without)
        moved = math.fsum(change) if norm == "l1" else math.sqrt(math.fsum(change**2))
        assert moved <= 0.3
        own = np.linalg.norm(rows[i], 1 if norm == "l1" else 2)
        assert moved == pytest.approx(min(own, 0.3), abs=2e-8)
    assert np.array_equal(total, sum_clipped(rows[::-1], clip_norm=0.3, norm=norm))  # type: ignore[arg-type]


@pytest.mark.claim("DP-3")
def test_sums_of_many_rows_are_exact_and_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pacprivacy.dp.records.CHUNK_ROWS", 7)
    rows = np.random.default_rng(1).normal(size=(100, 2))
    chunked = sum_clipped(rows, clip_norm=2.0)
    monkeypatch.setattr("pacprivacy.dp.records.CHUNK_ROWS", 1 << 12)
    assert np.array_equal(chunked, sum_clipped(rows, clip_norm=2.0))
    monkeypatch.setattr("pacprivacy.dp.records.LARGEST_SUM", 1 << 30)  # instead of 2^53
    assert sum_clipped(np.full((100, 1), 1.0), clip_norm=1.0)[0] == 4.0
    assert sum_clipped(np.full((100, 1), -1.0), clip_norm=1.0)[0] == -4.0


@pytest.mark.claim("DP-17")
def test_rows_that_are_not_finite_count_as_zero() -> None:
    rows = np.array([[1.0, 2.0], [math.nan, 3.0], [math.inf, 0.0]])
    assert np.array_equal(sum_clipped(rows, clip_norm=9.0), sum_clipped(rows[:1], clip_norm=9.0))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, True, "much"])
def test_bad_promises_are_refused(bad: object) -> None:
    with pytest.raises(BudgetError, match="epsilon must be a positive finite number"):
        add_laplace(1.0, sensitivity=1.0, epsilon=bad, source=dp_noise_source(0))  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="sensitivity must be a positive finite number"):
        add_gaussian(1.0, sensitivity=bad, parameter=1.0, source=dp_noise_source(0))  # type: ignore[arg-type]


def test_bad_input_is_refused() -> None:
    source = dp_noise_source(0)
    for delta in (0.0, 1.0, -0.1, math.nan, True):
        with pytest.raises(BudgetError, match="delta must be between 0 and 1"):
            dp_noise_parameter(1.0, delta, 1)
    with pytest.raises(DataError, match="values must be finite"):
        add_laplace([math.nan], sensitivity=1.0, epsilon=1.0, source=source)
    with pytest.raises(BudgetError, match="Rescale"):
        add_laplace(1.0, sensitivity=1e250, epsilon=1.0, source=source)
    with pytest.raises(BudgetError, match="larger epsilon"):
        add_laplace(np.zeros(10_000), sensitivity=1.0, epsilon=1e-6, source=source)
    with pytest.raises(DataError, match="rows must have two axes"):
        sum_clipped(np.array([1.0]), clip_norm=1.0)
    with pytest.raises(BudgetError, match="clip_norm must be within"):
        sum_clipped(np.ones((1, 1)), clip_norm=1e-150)
