"""Floating point gives nothing away: what leaves is a function of integers on one lattice."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from pacprivacy._random import SimulatedSource
from pacprivacy.budget import Information, Membership
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.noise.lattice import sample_discrete_gaussian
from pacprivacy.noise.plan import Observation
from pacprivacy.sample import Balanced

Array = npt.NDArray[np.float64]
N_RELEASES = 20_000


def plans() -> list[NoisePlan]:
    rng = np.random.default_rng(0)
    pool = Balanced(n_subsets=8).draw(6, rng=0)
    short, tall = rng.normal(size=(8, 3)), rng.normal(size=(8, 100))
    found = [
        calibrate(values, Information(0.7), rule=rule, rng=1)
        for values in (short, tall)
        for rule in ("diagonal", "isotropic", "spectral", "waterfill")
    ]
    found.append(calibrate(short, Membership(0.7), pool=pool, rng=1))
    found.append(calibrate(np.round(short), Information(1.5), rule="exact", rng=1))
    return found


@pytest.mark.claim("R-2", "L-1")
@pytest.mark.parametrize("plan", plans(), ids=lambda plan: f"{plan.rule}-{plan.n_directions}")
def test_any_two_candidates_reach_the_same_outputs(plan: NoisePlan) -> None:
    """Whatever leaves for one secret can leave for every other one of its group.

    The output is a function of the integers, and every vector of integers is reached from every
    candidate: the noise that leads there is again a vector of integers, which all have positive
    probability.
    """
    source = SimulatedSource(2)
    groups = np.zeros(plan.n_subsets) if plan.revealed is None else plan.revealed.groups
    assert plan.points.dtype == np.int64
    for first in range(plan.n_subsets):
        seen = plan.observe(first, source)
        assert seen.integers.dtype == np.int64
        value = plan.value_of(seen)
        for second in np.flatnonzero(groups == groups[first]):
            needed = seen.integers - plan.points[second]
            assert np.isfinite(plan.log_likelihood(seen)[second])  # positive probability
            again = Observation(integers=plan.points[second] + needed, group=seen.group)
            assert np.array_equal(plan.value_of(again), value)


@pytest.mark.claim("L-1")
def test_reachable_integers_coincide_in_fact() -> None:
    """With few grid steps the reachable set can be seen: all integers near both candidates."""
    units = np.full(N_RELEASES, 4, dtype=np.int64)
    reached = [
        set((point + sample_discrete_gaussian(units, SimulatedSource(seed))).tolist())
        for seed, point in ((3, 0), (4, 3))
    ]
    near = set(range(-6, 10))
    assert near <= reached[0]
    assert near <= reached[1]


# --- the published attack -------------------------------------------------------------------


def is_coarse(value: float) -> bool:
    """Whether a number is a multiple of 2^-53: what the sum of a float noise and 1.0 always is."""
    return (value * 2.0**53).is_integer()


def parity(value: float) -> bool:
    """The last bit of the significand."""
    mantissa, _ = math.frexp(value)
    return int(mantissa * 2.0**53) % 2 == 0


def is_short(value: float) -> bool:
    """Whether the last ten bits of the significand are zero."""
    mantissa, _ = math.frexp(value)
    return int(mantissa * 2.0**53) % 1024 == 0


def naive(secret: int, n: int, seed: int, std: float) -> Array:
    return np.array([0.0, 1.0])[secret] + std * np.random.default_rng(seed).normal(size=n)


def lattice_releases(plan: NoisePlan, secret: int, n: int, seed: int) -> Array:
    noise = sample_discrete_gaussian(np.tile(plan.units_per_std, (n, 1)), SimulatedSource(seed))
    return np.array(
        [
            plan.value_of(Observation(integers=plan.points[secret] + row, group=None))[0]
            for row in noise
        ]
    )


def gap(test: Callable[[float], bool], releases: list[Array]) -> float:
    """Difference of a test's rate between the two candidates, in standard errors."""
    rates = [np.mean([test(float(value)) for value in values]) for values in releases]
    pooled = float(np.mean(rates))
    error = math.sqrt(max(pooled * (1 - pooled), 1e-12) * 2 / len(releases[0]))
    return abs(float(rates[0] - rates[1])) / error


def candidates(offset: float) -> Array:
    return offset + np.array([[0.0], [1.0]])


@pytest.mark.claim("L-1")
@pytest.mark.parametrize("offset", [0.0, 0.1])
@pytest.mark.parametrize("rule", ["diagonal", "waterfill"])
@pytest.mark.parametrize("test", [is_coarse, parity, is_short])
def test_bits_of_the_release_tell_nothing(
    offset: float, rule: str, test: Callable[[float], bool]
) -> None:
    """Twenty thousand releases of either candidate; five standard errors are not reached."""
    plan = calibrate(candidates(offset), Information(0.02), rule=rule)
    releases = [lattice_releases(plan, k, N_RELEASES // 2, seed=5 + k) for k in range(2)]
    assert gap(test, releases) < 5


def test_the_published_attack_breaks_float_noise() -> None:
    """One release that is not a multiple of 2^-53 proves that the secret is the first."""
    plan = calibrate(candidates(0.0), Information(0.02), rule="waterfill")
    std = float(plan.noise_std[0])
    releases = [naive(k, N_RELEASES // 2, seed=5 + k, std=std) for k in range(2)]
    assert gap(is_coarse, releases) > 20
    assert all(is_coarse(float(value)) for value in releases[1])
    assert not all(is_coarse(float(value)) for value in releases[0][:1000])


@pytest.mark.claim("L-1")
def test_the_bulk_releases_are_those_of_the_plan() -> None:
    plan = calibrate(candidates(0.1), Information(0.02), rule="waterfill")
    source = SimulatedSource(6)
    one = plan.value_of(plan.observe(1, source))[0]
    bulk = lattice_releases(plan, 1, 1, seed=6)[0]
    assert one == bulk
