"""The Gaussianity gap: how much the log-determinant bound charges too much for a release.

Exactly, from the posterior; or from below, with a critic of releases or from one-dimensional
projections. Along a direction the release is a Gaussian mixture whose quantiles are known, so its
Wasserstein distance to the Gaussian of equal moments is an integral and not a distance between
samples (which would be biased upwards).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from scipy.special import ndtr, ndtri

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary import DEFAULT_GAMMA, View, exact_information, information_draws
from pacprivacy.errors import BudgetError
from pacprivacy.noise import NoisePlan
from pacprivacy.residual.critics import (
    BoundedCritic,
    ReleaseSampler,
    fit_linear_critic,
    noisy_view,
    principal_axes,
)
from pacprivacy.theory import empirical_bernstein

N_CUTS: Final = 48
TAIL: Final = 3.0  # standard deviations of the noise beyond the outermost candidate
SMALLEST_MASS: Final = 1e-9  # cells of less mass are left out: the sum only falls
BLOCK: Final = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A Gaussianity gap, or a lower bound of one, in nats.

    ``lower`` is at most the true gap with probability at least ``confidence``; ``value`` is the
    estimate without its deviation term. ``method`` names the estimator.
    """

    method: str
    value: float
    lower: float
    confidence: float
    n_draws: int
    upper: float | None = None


def _log_determinant(view: View) -> float:
    """Return bound (2) of a view of continuous noise, without the lattice's slack."""
    centered = np.sqrt(np.exp(view.log_prior))[:, None] * view.points
    eigenvalues = np.linalg.svd(centered, compute_uv=False) ** 2
    return 0.5 * float(np.log1p(eigenvalues).sum())


def exact_gap(
    outputs: object,
    plan: NoisePlan,
    *,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Gap:
    """Return the gap of a plan on a pool: the log-determinant bound less the true information.

    Guarantee
    ---------
    Claim RP-4. The true gap is between ``lower`` and ``upper`` with probability ``1 - gamma``.
    """
    view = noisy_view(outputs, plan, log_belief)
    draws = n_draws or information_draws(view.n_subsets)
    generator = public_generator(coerce_seed(rng), "gap")
    found = exact_information(view, n_draws=draws, gamma=gamma, rng=generator)
    log_det = _log_determinant(view)
    return Gap(
        method="exact",
        value=max(0.0, log_det - found.value),
        lower=max(0.0, log_det - found.upper),
        upper=max(0.0, log_det - found.lower),
        confidence=found.confidence,
        n_draws=found.n_draws,
    )


def corrected_budget(mi_nats: float, gap: Gap) -> float:
    """Return what a release really costs that was charged ``mi_nats`` by the Gaussian bound.

    ``mi_nats - gap.lower``, never below 0, for the gap of *the same* noise.

    Guarantee
    ---------
    Claim RP-4. At least the true information, with the confidence of the gap.
    """
    if not mi_nats >= 0:
        raise BudgetError(f"mi_nats must be >= 0; got {mi_nats}. Pass the bound that was charged.")
    return max(0.0, mi_nats - gap.lower)


def sliced_gap(
    outputs: object,
    plan: NoisePlan,
    *,
    log_belief: Vector | None = None,
    n_directions: int = 1024,
    whiten: bool = True,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Gap:
    """Bound the gap from below by the sliced Wasserstein distance: ``d SW_2² / (2 λ_max)``.

    ``lower`` is the larger of the average over random directions less its Monte-Carlo error and the
    sum over the release's principal axes, which has none; ``value`` is the same without the error.
    Whitening leaves the gap as it is and, where the spread is uneven, makes the bound tighter;
    without, it is the papers' form.

    Guarantee
    ---------
    Claim RP-6. ``lower`` is at most the true gap with probability at least ``1 - gamma``.
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
        centered, spread, axes = principal_axes(view)
        scale = np.sqrt(1 + spread) if whiten else np.ones(len(spread))
        return cls(
            points=centered @ axes / scale,
            noise=1 / scale**2,
            variances=(1 + spread) / scale**2,
            weights=np.exp(view.log_prior),
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


def variational_gap(
    outputs: object,
    plan: NoisePlan,
    *,
    log_belief: Vector | None = None,
    critic: BoundedCritic | None = None,
    n_draws: int = 1_000_000,
    n_train: int = 40_000,
    n_features: int = 192,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Gap:
    """Bound the gap from below by ``E_P f - ln E_Q e^f`` with a critic ``f`` fitted beforehand.

    The critic is any function of standardised releases with known bounds, fixed before the held-out
    draws are made; by default one that is linear in quadratic and random features.

    Guarantee
    ---------
    Claim RP-7. ``lower`` is at most the true gap with probability at least ``1 - gamma``,
    whatever the critic is.
    """
    if n_draws < 2:
        raise BudgetError(f"n_draws must be at least 2; got {n_draws}. Use a million.")
    seed = coerce_seed(rng)
    sampler = ReleaseSampler.of(outputs, plan, log_belief)
    if critic is None:
        training = public_generator(seed, "critic")
        critic = fit_linear_critic(
            sampler.released(n_train, training),
            sampler.gaussian(n_train, training),
            n_features=n_features,
            rng=training,
        )
    held_out = public_generator(seed, "held-out")
    ours = _Moments()
    for n in _blocks(n_draws):
        ours.add(critic(sampler.released(n, held_out)))
    theirs = _Moments()
    for n in _blocks(n_draws):
        theirs.add(np.exp(critic(sampler.gaussian(n, held_out)) - critic.high))
    return _bound(ours, theirs, critic, gamma)


def _blocks(n_draws: int) -> Iterator[int]:
    return (min(BLOCK, n_draws - start) for start in range(0, n_draws, BLOCK))


def _bound(ours: _Moments, theirs: _Moments, critic: BoundedCritic, gamma: float) -> Gap:
    """Take off both deviations: the mean from below, the mean of the exponential from above."""
    width = max(critic.high - critic.low, 1e-300)
    low = ours.mean - empirical_bernstein(ours.variance, ours.n, width=width, gamma=gamma / 2)
    mass = theirs.mean + empirical_bernstein(
        theirs.variance, theirs.n, width=max(-math.expm1(-width), 1e-300), gamma=gamma / 2
    )
    return Gap(
        method="Donsker-Varadhan",
        value=max(0.0, ours.mean - critic.high - math.log(theirs.mean)),
        lower=max(0.0, low - critic.high - math.log(mass)),
        confidence=1 - gamma,
        n_draws=ours.n,
    )


class _Moments:
    """Mean and variance of numbers that come in blocks."""

    def __init__(self) -> None:
        self.n, self._sum, self._squares, self._shift = 0, 0.0, 0.0, 0.0

    def add(self, values: Vector) -> None:
        if self.n == 0:
            self._shift = float(values.mean())
        shifted = values - self._shift  # differences keep digits in the squares
        self.n += len(values)
        self._sum += float(shifted.sum())
        self._squares += float(shifted @ shifted)

    @property
    def mean(self) -> float:
        return self._shift + self._sum / self.n

    @property
    def variance(self) -> float:
        return max(0.0, (self._squares - self._sum**2 / self.n) / (self.n - 1))
