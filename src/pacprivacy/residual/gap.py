"""The Gaussianity gap: excess of the log-determinant bound over the information of a release.

Exactly, from the posterior; or from below, with a critic of releases or from one-dimensional
projections. Along a direction the release is a Gaussian mixture whose quantiles are known, so its
Wasserstein distance to the Gaussian of equal moments is an integral and not a distance between
samples (which would be biased upwards).

A critic is a bounded function that tells a release from the Gaussian of equal moments; any that was
fixed beforehand gives a lower bound. Here it is linear in random features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

from pacprivacy import adversary
from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.errors import BudgetError
from pacprivacy.noise import NoisePlan
from pacprivacy.theory import Estimate, empirical_bernstein

FLAT: Final = 1e-12
BANDWIDTHS: Final = (0.7, 1.4, 2.8, 5.6)
RIDGE: Final = 1e-6
LOWEST: Final = -8.0
CEILINGS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
MAX_STEPS: Final = 120
WIDTH_COST: Final = 7 * 22 / 3 / 1e6  # of the range, in an interval of a million draws
MOST_QUADRATIC: Final = 24  # above so many directions, squares without products
N_CUTS: Final = 48
TAIL: Final = 3.0  # standard deviations of the noise beyond the outermost candidate
SMALLEST_MASS: Final = 1e-9  # cells of less mass are left out: the sum only falls
BLOCK: Final = 1 << 15


def noisy_view(outputs: object, plan: NoisePlan, log_belief: Vector | None) -> adversary.View:
    """Return the view of a plan in which everything is released with noise."""
    view = plan.view(outputs, log_belief)
    if view.groups is not None:
        raise BudgetError(
            "plan must add noise in every direction that moves: where a part of the output is "
            "released without noise there is no Gaussian of equal covariance. Use another rule."
        )
    return view


def principal_axes(view: adversary.View) -> tuple[Matrix, Vector, Matrix]:
    """Return centred points, and the variances and axes along which they move, in rising order."""
    weights = np.exp(view.log_prior)
    centered = view.points - weights @ view.points
    spread, axes = np.linalg.eigh((centered.T * weights) @ centered)
    moving = spread > FLAT * max(float(spread.max(initial=0.0)), 1e-300)
    if not moving.any():
        moving[:1] = True
    return centered, np.maximum(spread[moving], 0.0), axes[:, moving]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSampler:
    """Draws of a release and of the Gaussian of equal moments, standardised; curator-only.

    Standardised means that the Gaussian is the standard normal in ``q`` coordinates.
    """

    view: adversary.View
    axes: Matrix
    scale: Vector

    @classmethod
    def of(cls, outputs: object, plan: NoisePlan, log_belief: Vector | None = None) -> Self:
        """Return the sampler of a plan in which everything is released with noise."""
        view = noisy_view(outputs, plan, log_belief)
        centered, spread, axes = principal_axes(view)
        return cls(
            view=adversary.View(points=centered, log_prior=view.log_prior),
            axes=np.ascontiguousarray(axes[:, ::-1]),
            scale=np.sqrt(1 + spread[::-1]),
        )

    @property
    def n_directions(self) -> int:
        """Number of directions in which the release moves."""
        return len(self.scale)

    def released(self, n_draws: int, rng: np.random.Generator) -> Matrix:
        """Draw releases."""
        draws = adversary.draw_views(self.view, n_draws, rng)
        z = self.view.points[draws.indices] + draws.noise
        standard: Matrix = (z @ self.axes) / self.scale
        return standard

    def gaussian(self, n_draws: int, rng: np.random.Generator) -> Matrix:
        """Draw from the Gaussian of equal moments."""
        return rng.standard_normal((n_draws, self.n_directions))


class BoundedCritic(Protocol):
    """A function of the release with known bounds; a network may be one."""

    @property
    def low(self) -> float:
        """A number that no value is below."""

    @property
    def high(self) -> float:
        """A number that no value is above."""

    def __call__(self, releases: Matrix) -> Vector:
        """Return one number per release; releases are standardised, shape (N, q)."""


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


def fit_linear_critic(
    released: Matrix, gaussian: Matrix, *, n_features: int, rng: np.random.Generator
) -> LinearCritic:
    """Maximise the bound over coefficients on training draws; then choose the clipping range."""
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
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_STEPS})
    theta = optimum.x / scale
    offset = -log_mean_exp(blank.features(gaussian) @ theta)
    critic = replace(blank, coefficients=theta, offset=offset)
    return replace(critic, high=best_critic_ceiling(critic(released), critic(gaussian)))


def log_mean_exp(scores: Vector) -> float:
    """Return ``ln E e^f`` of a sample of scores."""
    top = float(scores.max())
    return top + math.log(float(np.exp(scores - top).mean()))


def best_critic_ceiling(released: Vector, gaussian: Vector) -> float:
    """Return the clipping point with the largest training bound, net of the cost of its width."""

    def worth(ceiling: float) -> float:
        kept = float(np.minimum(released, ceiling).mean())
        mass = float(np.exp(np.minimum(gaussian, ceiling)).mean())
        return kept - math.log(mass) - WIDTH_COST * math.exp(ceiling)

    return max(CEILINGS, key=worth)


def _log_determinant(view: adversary.View) -> float:
    """Return bound (2) of a view of continuous noise, without the lattice's slack."""
    centered = np.sqrt(np.exp(view.log_prior))[:, None] * view.points
    eigenvalues = np.linalg.svd(centered, compute_uv=False) ** 2
    return 0.5 * float(np.log1p(eigenvalues).sum())


def _lower_bound(
    value: float, lower: float, view: adversary.View, *, confidence: float, n_draws: int
) -> Estimate:
    """Return a bound from below, beside the trivial one from above: information is at least 0."""
    most = _log_determinant(view)
    lower = min(max(0.0, lower), most)
    value = min(max(lower, value), most)
    return Estimate(value=value, lower=lower, upper=most, confidence=confidence, n_draws=n_draws)


def exact_gap(
    outputs: object,
    plan: NoisePlan,
    *,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = adversary.DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
    """Return the gap of a plan on a pool: the log-determinant bound less the true information.

    Guarantee
    ---------
    Claim RP-4. The true gap is between ``lower`` and ``upper`` with probability ``1 - gamma``.
    """
    view = noisy_view(outputs, plan, log_belief)
    draws = n_draws or adversary.information_draws(view.n_subsets)
    generator = public_generator(coerce_seed(rng), "gap")
    information = adversary.exact_information(view, n_draws=draws, gamma=gamma, rng=generator)
    log_det = _log_determinant(view)
    return Estimate(
        value=max(0.0, log_det - information.value),
        lower=max(0.0, log_det - information.upper),
        upper=max(0.0, log_det - information.lower),
        confidence=information.confidence,
        n_draws=information.n_draws,
    )


def corrected_budget(mi_nats: float, gap: Estimate) -> float:
    """Return the exact cost of a release that the Gaussian bound charged ``mi_nats``.

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
    gamma: float = adversary.DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
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
    view = noisy_view(outputs, plan, log_belief)
    mixture = _Mixture.of(view, whiten=whiten)
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
    return _lower_bound(
        max(on_axes, dimension * mean / scale),
        max(0.0, on_axes, dimension * (mean - half) / scale),
        view,
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
    def of(cls, view: adversary.View, *, whiten: bool) -> Self:
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
    below_cut = below @ (weights * positions) - density @ weights  # E[Z; Z <= cut]
    normal_cuts = ndtri(levels)
    normal_density = np.exp(-np.square(normal_cuts) / 2) / math.sqrt(2 * math.pi)
    gaussian = mean * levels - std * normal_density
    moves = np.diff(below_cut - gaussian, prepend=0.0, append=0.0)
    mass = np.diff(levels, prepend=0.0, append=1.0)
    kept = mass > SMALLEST_MASS
    return float(np.sum(np.square(moves[kept]) / mass[kept]))


def _cuts(positions: Vector) -> Vector:
    """Return cuts over the mass of the mixture: an even grid, and quantiles of the candidates."""
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
    gamma: float = adversary.DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
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
    ours = np.concatenate([critic(sampler.released(n, held_out)) for n in _blocks(n_draws)])
    theirs = np.concatenate([critic(sampler.gaussian(n, held_out)) for n in _blocks(n_draws)])
    value, lower = _bound(ours, np.exp(theirs - critic.high), critic, gamma)
    return _lower_bound(value, lower, sampler.view, confidence=1 - gamma, n_draws=n_draws)


def _blocks(n_draws: int) -> Iterator[int]:
    return (min(BLOCK, n_draws - start) for start in range(0, n_draws, BLOCK))


def _bound(
    ours: Vector, theirs: Vector, critic: BoundedCritic, gamma: float
) -> tuple[float, float]:
    """Return the bound, before and after both deviations."""
    width = max(critic.high - critic.low, 1e-300)
    mean, mass = float(ours.mean()), float(theirs.mean())
    low = mean - empirical_bernstein(
        float(ours.var(ddof=1)), len(ours), width=width, gamma=gamma / 2
    )
    most = mass + empirical_bernstein(
        float(theirs.var(ddof=1)),
        len(theirs),
        width=max(-math.expm1(-width), 1e-300),
        gamma=gamma / 2,
    )
    return mean - critic.high - math.log(mass), low - critic.high - math.log(most)
