"""Outputs far taller than the pool, and very many units: little of their size is made beside."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import exact_information
from pacprivacy.budget import Information, Membership
from pacprivacy.noise import calibrate, spread_of
from pacprivacy.sample import Balanced

DIMENSION, M = 200_000, 64


@pytest.fixture(scope="module")
def outputs() -> npt.NDArray[np.float64]:
    values = np.random.default_rng(0).normal(size=(M, DIMENSION))
    values.setflags(write=False)
    return values


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory taken at once by some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_share(outputs: npt.NDArray[np.float64], work: Callable[[], object]) -> float:
    """Most memory taken at once by some work, as a share of the outputs."""
    return peak_bytes(work) / outputs.nbytes


@pytest.mark.claim("N-4")
def test_waterfill_takes_a_fraction_of_the_outputs_memory(
    outputs: npt.NDArray[np.float64],
) -> None:
    plan = calibrate(outputs, Information(0.25), rule="waterfill")
    assert plan.n_directions == M - 1
    assert plan.log_det_nats <= 0.25
    used = peak_share(outputs, lambda: calibrate(outputs, Information(0.25), rule="waterfill"))
    assert used < 0.2  # the centre and a direction have one row each: 1/64 of it


def test_releasing_and_judging_take_no_more(outputs: npt.NDArray[np.float64]) -> None:
    plan = calibrate(outputs, Information(0.25), rule="waterfill")

    def release() -> None:
        value = plan.value_of(plan.observe(3, SimulatedSource(0)))
        assert value.shape == (DIMENSION,)
        exact_information(plan.view(outputs), n_draws=1000, rng=0)

    assert peak_share(outputs, release) < 0.2


def test_the_directions_of_tall_outputs_are_orthonormal() -> None:
    rng = np.random.default_rng(1)
    values = 3.0 + rng.normal(size=(8, 500)) * rng.uniform(0.1, 10, size=500)
    weights = rng.dirichlet(np.ones(8))
    spread = spread_of(values, weights)
    assert spread.basis is None
    directions = np.array([spread.expand(row) for row in np.eye(spread.rank)])
    np.testing.assert_allclose(directions @ directions.T, np.eye(spread.rank), atol=1e-9)
    np.testing.assert_allclose(spread.center, weights @ values)
    placed = spread.center + spread.coordinates @ directions
    np.testing.assert_allclose(placed, values, atol=1e-9)
    variances = weights @ np.square(spread.coordinates)
    np.testing.assert_allclose(variances, spread.eigenvalues, rtol=1e-9)
    assert (np.diff(spread.eigenvalues) <= 0).all()


def test_a_concentrated_belief_keeps_its_small_spread() -> None:
    """The likeliest output is the origin, so that far and unlikely ones cost no digits."""
    rng = np.random.default_rng(2)
    values = 1e6 * rng.normal(size=(8, 100))
    values[1] = values[0] + rng.normal(size=100)
    weights = np.array([0.5, 0.5, 0, 0, 0, 0, 0, 0])
    spread = spread_of(values, weights)
    assert spread.rank == 1
    apart = np.linalg.norm(values[1] - values[0])
    assert spread.eigenvalues[0] == pytest.approx((apart / 2) ** 2, rel=1e-9)
    short = spread_of(values[:, :20], weights)
    assert short.basis is not None
    assert short.rank == 1


def test_few_numbers_are_kept_of_each_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that all units share are kept once; bounds are found in place, in blocks."""
    for name in ("view_and_belief.MASK_CELLS", "advantage.BOUNDED_UNITS"):
        monkeypatch.setattr(f"pacprivacy.adversary.{name}", 1 << 13)  # smaller, as the units are
    monkeypatch.setattr("pacprivacy.adversary.advantage.GATHERED_DRAWS", 256)
    monkeypatch.setattr("pacprivacy.adversary.advantage.CACHED_CELLS", 1 << 12)
    monkeypatch.setattr("pacprivacy.noise.shapes.BLOCK", 1 << 12)
    monkeypatch.setattr("pacprivacy.noise.proof.POSTERIOR_COST", 10**6)
    pools = [Balanced(n_subsets=16).draw(n, rng=0) for n in (1_000, 5_000, 35_000)]
    values = np.random.default_rng(0).normal(size=(16, 3))
    _, few, many = (  # the first imports what is needed
        peak_bytes(lambda: calibrate(values, Membership(0.6), pool=pool, rng=0))  # noqa: B023
        for pool in pools
    )
    assert many - few <= 30 * 8 * 30_000
