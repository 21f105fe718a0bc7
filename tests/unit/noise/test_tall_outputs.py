"""Outputs far taller than the pool, and very many units."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from pacprivacy.budget import Membership
from pacprivacy.noise import calibrate, shapes, spread_of
from pacprivacy.sample import Balanced


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory taken at once by some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_directions_of_tall_outputs_are_orthonormal() -> None:
    rng = np.random.default_rng(1)
    values = 3.0 + rng.normal(size=(8, 500)) * rng.uniform(0.1, 10, size=500)
    weights = rng.dirichlet(np.ones(8))
    spread = spread_of(values, weights)
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
    assert short.rank == 1


def test_few_numbers_are_kept_of_each_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that all units share are kept once; bounds are found in place, in blocks."""
    monkeypatch.setattr("pacprivacy.adversary.view_and_belief.MASK_CELLS", 1 << 13)
    monkeypatch.setattr("pacprivacy.adversary.advantage.POSTERIOR_CELLS", 1 << 12)
    monkeypatch.setattr("pacprivacy.noise.proof.POSTERIOR_COST", 10**6)
    pools = [Balanced(n_subsets=16).draw(n, rng=0) for n in (1_000, 5_000, 35_000)]
    values = np.random.default_rng(0).normal(size=(16, 3))
    _, few, many = (  # the first imports what is needed
        peak_bytes(lambda: calibrate(values, Membership(0.6), pool=pool, rng=0))  # noqa: B023
        for pool in pools
    )
    assert many - few <= 30 * 8 * 30_000


def test_nobody_who_moves_anything_is_no_trouble() -> None:
    pool = Balanced(n_subsets=16).draw(1000, rng=0)
    outputs = np.vstack([np.eye(8), np.eye(8)])  # of a subset and of its complement alike
    log_p = np.full(16, -np.log(16))
    spread = spread_of(outputs, np.exp(log_p))
    caps, rng = np.full(1000, 0.6), np.random.default_rng(0)
    for shape in shapes.risk_shapes(spread, pool, log_p, caps, rng=rng):
        assert np.isfinite(shape.noise_var).all()
        assert (shape.noise_var > 0).all()
