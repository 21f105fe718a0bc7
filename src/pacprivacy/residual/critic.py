"""A bounded critic for the Donsker–Varadhan bound: linear in quadratic and random features."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from scipy.optimize import minimize

from pacprivacy._checks import Matrix, Vector

__all__ = ["CEILINGS", "LOWEST", "WIDTH_COST", "BoundedCritic", "LinearCritic", "fit_critic"]

BANDWIDTHS: Final = (0.7, 1.4, 2.8, 5.6)
RIDGE: Final = 1e-6
LOWEST: Final = -8.0
CEILINGS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
MAX_STEPS: Final = 120
WIDTH_COST: Final = 7 * 22 / 3 / 1e6  # of the range, in an interval of a million draws
MOST_QUADRATIC: Final = 24  # above so many directions, squares without products


class BoundedCritic(Protocol):
    """A function of the release with known bounds; a network may be one."""

    @property
    def low(self) -> float:
        """A number that no value is below."""
        ...

    @property
    def high(self) -> float:
        """A number that no value is above."""
        ...

    def __call__(self, releases: Matrix) -> Vector:
        """Return one number per release; releases are standardised, shape (N, q)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCritic:
    """``clip(θ·φ(u), low, high)`` with squares, products and cosines ``φ``."""

    frequencies: Matrix
    phases: Vector
    coefficients: Vector
    offset: float
    low: float
    high: float

    def features(self, releases: Matrix) -> Matrix:
        """Return squares, products and cosines of standardised releases."""
        n_directions = releases.shape[1]
        if n_directions <= MOST_QUADRATIC:
            rows, cols = np.triu_indices(n_directions)
            second = releases[:, rows] * releases[:, cols]
        else:
            second = np.square(releases)
        waves = np.cos(releases @ self.frequencies.T + self.phases)
        return np.concatenate([releases, second, waves], axis=1)

    def __call__(self, releases: Matrix) -> Vector:
        """Return the critic's value on each standardised release."""
        value = self.features(releases) @ self.coefficients + self.offset
        clipped: Vector = np.clip(value, self.low, self.high)
        return clipped


def fit_critic(
    released: Matrix, gaussian: Matrix, *, n_features: int, rng: np.random.Generator
) -> LinearCritic:
    """Maximise the bound over coefficients on training draws; then choose where to clip.

    Parameters
    ----------
    released, gaussian : arrays of shape (N, q)
        Draws of the release and of the Gaussian of equal moments, both standardised.
    n_features : int
        Number of random cosines; half of them along single directions.
    """
    n_directions = released.shape[1]
    frequencies = rng.standard_normal((n_features, n_directions))
    frequencies *= np.resize(BANDWIDTHS, n_features)[:, None]
    for row in range(n_features // 2):
        alone = np.zeros(n_directions)
        axis = row % n_directions
        alone[axis] = np.linalg.norm(frequencies[row])
        frequencies[row] = alone
    blank = LinearCritic(
        frequencies=frequencies,
        phases=rng.uniform(0, 2 * np.pi, n_features),
        coefficients=np.zeros(0),
        offset=0.0,
        low=LOWEST,
        high=CEILINGS[-1],
    )
    ours, theirs = blank.features(released), blank.features(gaussian)
    scale = theirs.std(axis=0) + 1e-9
    mean = ours.mean(axis=0) / scale
    theirs = theirs / scale

    def loss(theta: Vector) -> tuple[float, Vector]:
        scores = theirs @ theta
        top = float(scores.max())
        weights = np.exp(scores - top)
        total = float(weights.sum())
        value = top + np.log(total / len(weights)) - float(mean @ theta)
        slope = theirs.T @ (weights / total) - mean + 2 * RIDGE * theta
        return value + RIDGE * float(theta @ theta), slope

    start = np.zeros(theirs.shape[1])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_STEPS})
    theta = found.x / scale
    scores = blank.features(gaussian) @ theta
    top = float(scores.max())
    offset = -(top + float(np.log(np.exp(scores - top).mean())))
    critic = replace(blank, coefficients=theta, offset=offset)
    return _with_best_ceiling(critic, released, gaussian)


def _with_best_ceiling(critic: LinearCritic, released: Matrix, gaussian: Matrix) -> LinearCritic:
    """Clip where the training bound, less what the width costs, is largest."""
    ours, theirs = critic(released), critic(gaussian)

    def worth(ceiling: float) -> float:
        kept = float(np.minimum(ours, ceiling).mean())
        mass = float(np.exp(np.minimum(theirs, ceiling)).mean())
        return kept - math.log(mass) - WIDTH_COST * math.exp(ceiling)

    return replace(critic, high=max(CEILINGS, key=worth))
