"""A lower bound of the Gaussianity gap from one-dimensional projections.

Along a direction the release is a Gaussian mixture in one dimension, whose quantiles are known, so
its Wasserstein distance to the Gaussian of the same mean and variance is an integral and not a
distance between samples (which would be biased upwards).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from scipy.special import ndtr, ndtri

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.information import DEFAULT_GAMMA
from pacprivacy.adversary.view import Observable, View
from pacprivacy.errors import BudgetError
from pacprivacy.residual.gap import Gap, noisy_view
from pacprivacy.theory.concentration import empirical_bernstein

__all__ = ["sliced_gap"]

N_CUTS: Final = 48
TAIL: Final = 3.0  # standard deviations of the noise beyond the outermost candidate
FLAT: Final = 1e-12
SMALLEST_MASS: Final = 1e-9  # cells of less mass are left out: the sum only falls


def sliced_gap(
    outputs: object,
    plan: Observable,
    *,
    log_belief: Vector | None = None,
    n_directions: int = 1024,
    whiten: bool = True,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Gap:
    """Bound the gap from below by the sliced Wasserstein distance: ``d SW_2² / (2 λ_max)``.

    Parameters
    ----------
    outputs, plan, log_belief
        As in :func:`exact_gap`.
    n_directions : int >= 2
        Random directions that are averaged.
    whiten : bool
        Turn the release's covariance into the identity first. The gap does not change, and where
        the spread is uneven the bound is tighter; without, it is the papers' form.
    gamma : float
        Probability, over the directions, that ``lower`` is above the truth.

    Returns
    -------
    Gap
        ``lower`` is the larger of the average over the directions less its Monte-Carlo error and
        the sum over the release's principal axes, which has none; ``value`` the same without the
        error.

    Guarantee
    ---------
    Claim RP-6. ``lower`` is at most the true gap with probability at least ``1 - gamma``.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> from pacprivacy.residual import exact_gap
    >>> outputs = np.repeat([[-1.0], [1.0]], 16, axis=0)
    >>> plan = calibrate(outputs, pac.Information(0.6), rule="waterfill")
    >>> sliced, exact = sliced_gap(outputs, plan, rng=0), exact_gap(outputs, plan, rng=0)
    >>> 0 < sliced.lower <= exact.upper
    True
    """
    if n_directions < 2:
        raise BudgetError(f"n_directions must be at least 2; got {n_directions}. Use 1024.")
    mixture = _Mixture.of(noisy_view(outputs, plan, log_belief), whiten=whiten)
    dimension, scale = mixture.points.shape[1], 2 * float(mixture.variances.max())
    on_axes = sum(mixture.square(axis) for axis in np.eye(dimension)) / scale
    generator = public_generator(coerce_seed(rng), "slices")
    directions = generator.standard_normal((n_directions, dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    squares = np.array([mixture.square(one) for one in directions])
    mean, spread = float(squares.mean()), float(squares.var(ddof=1))
    # A law and the Gaussian of equal moments share their noise; what is left is within 2v.
    width = max(2 * float((mixture.variances - mixture.noise).max()), 1e-300)
    half = empirical_bernstein(spread, n_directions, width=width, gamma=gamma)
    return Gap(
        method="sliced Wasserstein",
        value=max(on_axes, dimension * mean / scale),
        lower=max(0.0, on_axes, dimension * (mean - half) / scale),
        confidence=1 - gamma,
        n_draws=n_directions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixture:
    """The law of a release along its principal axes: points, and noise per axis."""

    points: Matrix
    noise: Vector
    variances: Vector
    weights: Vector

    @classmethod
    def of(cls, view: View, *, whiten: bool) -> Self:
        weights = np.exp(view.log_prior)
        centred = view.points - weights @ view.points
        spread, axes = np.linalg.eigh((centred.T * weights) @ centred)
        moving = spread > FLAT * max(float(spread.max(initial=0.0)), 1e-300)
        if not moving.any():
            moving[:1] = True
        spread, points = np.maximum(spread[moving], 0.0), centred @ axes[:, moving]
        scale = np.sqrt(1 + spread) if whiten else np.ones(len(spread))
        return cls(
            points=points / scale,
            noise=1 / scale**2,
            variances=(1 + spread) / scale**2,
            weights=weights,
        )

    def square(self, direction: Vector) -> float:
        """Bound the squared distance along a unit direction from below."""
        std = math.sqrt(float(self.noise @ np.square(direction)))
        return std**2 * _wasserstein_square(self.points @ direction / std, self.weights)


def _wasserstein_square(positions: Vector, weights: Vector) -> float:
    """Bound ``W_2²`` of a mixture of unit Gaussians from the Gaussian of equal moments, below.

    Cut the line anywhere. The optimal coupling sends the mass between two cuts to the cell of the
    Gaussian between the same levels, and by Jensen the mean square of that move is at least the
    square of the mean move.
    """
    mean = float(weights @ positions)
    std = math.sqrt(1 + float(weights @ np.square(positions - mean)))
    cuts = _cuts(positions)
    offsets = cuts[:, None] - positions
    below = ndtr(offsets)
    density = np.exp(-np.square(offsets) / 2) / math.sqrt(2 * math.pi)
    levels = below @ weights
    own = below @ (weights * positions) - density @ weights  # E[Z; Z <= cut]
    normal_cuts = ndtri(levels)
    normal_density = np.exp(-np.square(normal_cuts) / 2) / math.sqrt(2 * math.pi)
    gaussian = mean * levels - std * normal_density
    moves = np.diff(own - gaussian, prepend=0.0, append=0.0)
    mass = np.diff(levels, prepend=0.0, append=1.0)
    kept = mass > SMALLEST_MASS
    return float(np.sum(np.square(moves[kept]) / mass[kept]))


def _cuts(positions: Vector) -> Vector:
    """Return cuts where the mixture has its mass: an even grid, and quantiles of the candidates."""
    low, high = float(positions.min()) - TAIL, float(positions.max()) + TAIL
    even = np.linspace(low, high, N_CUTS)
    shares = (np.arange(N_CUTS) + 0.5) / N_CUTS
    dense = np.quantile(positions, shares) + ndtri(np.roll(shares, N_CUTS // 3))
    return np.sort(np.concatenate([even, dense]))
