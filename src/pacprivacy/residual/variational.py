"""The Donsker–Varadhan lower bound of the gap, on held-out draws, with its deviation term."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.draws import draw_releases
from pacprivacy.adversary.information import DEFAULT_GAMMA
from pacprivacy.adversary.view import Observable, View
from pacprivacy.errors import BudgetError
from pacprivacy.residual.critic import BoundedCritic, fit_critic
from pacprivacy.residual.gap import Gap, noisy_view
from pacprivacy.theory.concentration import empirical_bernstein

__all__ = ["ReleaseSampler", "variational_gap"]

BLOCK: Final = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSampler:
    """Draws of a release and of the Gaussian of equal moments, standardised; curator-only.

    Standardised means that the Gaussian is the standard normal in ``q`` coordinates.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> outputs = np.repeat([[-1.0], [1.0]], 16, axis=0)
    >>> plan = calibrate(outputs, pac.Information(0.6), rule="waterfill")
    >>> sampler = ReleaseSampler.of(outputs, plan)
    >>> drawn = sampler.released(1000, np.random.default_rng(0))
    >>> drawn.shape, bool(abs(drawn.std() - 1) < 0.1)
    ((1000, 1), True)
    """

    view: View
    axes: Matrix
    scale: Vector

    @classmethod
    def of(cls, outputs: object, plan: Observable, log_belief: Vector | None = None) -> Self:
        """Return the sampler of a plan in which everything is released with noise."""
        view = noisy_view(outputs, plan, log_belief)
        weights = np.exp(view.log_prior)
        centred = view.points - weights @ view.points
        spread, axes = np.linalg.eigh((centred.T * weights) @ centred)
        moving = spread > 1e-12 * max(float(spread.max(initial=0.0)), 1e-300)
        if not moving.any():
            moving[:1] = True
        order = np.flatnonzero(moving)[::-1]
        return cls(
            view=View(points=centred, log_prior=view.log_prior),
            axes=np.ascontiguousarray(axes[:, order]),
            scale=np.sqrt(1 + np.maximum(spread[order], 0.0)),
        )

    @property
    def n_directions(self) -> int:
        """Number of directions in which the release moves."""
        return len(self.scale)

    def released(self, n_draws: int, rng: np.random.Generator) -> Matrix:
        """Draw releases."""
        draws = draw_releases(self.view, n_draws, rng)
        z = self.view.points[draws.indices] + draws.noise
        standard: Matrix = (z @ self.axes) / self.scale
        return standard

    def gaussian(self, n_draws: int, rng: np.random.Generator) -> Matrix:
        """Draw from the Gaussian of equal moments."""
        return rng.standard_normal((n_draws, self.n_directions))


def variational_gap(
    outputs: object,
    plan: Observable,
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

    Parameters
    ----------
    outputs, plan, log_belief
        As in :func:`exact_gap`.
    critic : BoundedCritic, optional
        Any function of standardised releases with known bounds, fixed before the held-out draws
        are made; by default one that is linear in quadratic and random features.
    n_draws : int
        Held-out draws from each of the two laws.
    n_train, n_features : int
        For fitting the default critic.
    gamma : float
        Probability, over the held-out draws, that ``lower`` is above the truth.

    Guarantee
    ---------
    Claim RP-7. ``lower`` is at most the true gap with probability at least ``1 - gamma``,
    whatever the critic is.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> from pacprivacy.residual import exact_gap
    >>> outputs = np.repeat([[-1.0], [1.0]], 16, axis=0)
    >>> plan = calibrate(outputs, pac.Information(0.6), rule="waterfill")
    >>> found = variational_gap(
    ...     outputs, plan, n_draws=50_000, n_train=5000, n_features=32, gamma=1e-3, rng=0
    ... )
    >>> 0 < found.lower < exact_gap(outputs, plan, rng=0).upper
    True
    """
    if n_draws < 2:
        raise BudgetError(f"n_draws must be at least 2; got {n_draws}. Use a million.")
    seed = coerce_seed(rng)
    sampler = ReleaseSampler.of(outputs, plan, log_belief)
    if critic is None:
        training = public_generator(seed, "critic")
        critic = fit_critic(
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
