"""Stopping where the output looks good: the level reached is no bound, the charges are."""

from __future__ import annotations

import numpy as np
import pytest

VARIANCES = (2.0, 0.3)
GRID = np.linspace(-16.0, 16.0, 4001)
STEP = GRID[1] - GRID[0]


def density(z: np.ndarray, variance: float) -> np.ndarray:
    """Density of z given the candidates -1 and +1, one row each."""
    centres = np.array([-1.0, 1.0])[:, None]
    return np.asarray(
        np.exp(-((z - centres) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    )


def information(belief: np.ndarray, variance: float) -> float:
    """Exact information of one observation under a belief, by quadrature."""
    joint = belief[:, None] * density(GRID, variance)
    marginal = joint.sum(axis=0)
    terms = np.where(joint > 0, joint * np.log(np.maximum(joint, 1e-300) / marginal), 0.0)
    entropy = -float((belief * np.log(np.maximum(belief, 1e-300))).sum())
    return entropy + float(terms.sum()) * STEP


def log_det(belief: np.ndarray, variance: float) -> float:
    """What the library charges with a covariance rule: the Gaussian bound under the belief."""
    return 0.5 * float(np.log1p(4 * belief[0] * belief[1] / variance))


def transcript() -> tuple[float, float, float]:
    """Information of the transcript, mean information of the level reached, expected charge."""
    half = np.array([0.5, 0.5])
    first, second = VARIANCES
    fresh = 1 / (1 / second - 1 / first)  # the observation that takes variance 2 to 0.3
    start = information(half, first)
    level = information(half, second)
    marginal = half @ density(GRID, first)
    going_on = np.abs(GRID) < 1
    total, charged = start, log_det(half, first)
    for z, mass in zip(GRID[going_on], marginal[going_on] * STEP, strict=True):
        belief = half * density(np.array([z]), first)[:, 0]
        total += mass * information(belief / belief.sum(), fresh)
        charged += mass * log_det(belief / belief.sum(), fresh)
    stopped = float(marginal[~going_on].sum() * STEP)
    return total, stopped * start + (1 - stopped) * level, charged


@pytest.mark.claim("S-3")
def test_the_level_where_one_stopped_is_not_a_bound() -> None:
    learned, mean_level, charged = transcript()
    assert learned == pytest.approx(0.430, abs=2e-3)
    assert mean_level == pytest.approx(0.372, abs=2e-3)
    assert mean_level < learned
    assert learned < charged < 1.15 * learned
