"""What comes out of learning: a law of noise that nobody has proved anything about yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import public_generator
from pacprivacy.errors import BudgetError
from pacprivacy.noise.shape import Shape
from pacprivacy.noise.spread import Spread
from pacprivacy.residual.learned.families import Family, Gaussian, Params, draw_noise

__all__ = ["History", "LearnedNoise"]

MOMENT_DRAWS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Loss curves, one entry per step: noise, the follower's claimed information, penalty."""

    noise: Vector
    claimed_nats: Vector
    penalty: Vector

    def __post_init__(self) -> None:
        for array in (self.noise, self.claimed_nats, self.penalty):
            freeze(array)

    def __len__(self) -> int:
        return len(self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedNoise:
    """A learned law of noise, *not certified*: its information is what a decoder claims.

    A decoder that guesses badly makes a leaky release look private, so ``claimed_nats`` is a
    lower bound of the truth and never a promise. :func:`check_learned` computes the true
    information; :func:`plan_from` turns the shape of a Gaussian into a certified plan.

    Attributes
    ----------
    family : Gaussian, Mixture or Flow, public
        The kind of law.
    follower : str, public
        Who guessed: ``mlp``, ``transformer`` or ``exact``.
    mi_nats : float, public
        The budget that was aimed at.
    claimed_nats, claimed_error : float, public
        Prior entropy less the follower's cross-entropy, on fresh draws, and its standard error.
    params : dict of arrays, curator-only
        Parameters of the law, along the principal directions of the outputs.
    spread, log_p : curator-only
        The outputs and the attacker's belief before the release.
    history : History, curator-only
        Loss curves.
    stopped_early : bool
        Whether nothing moved any more before the last step.
    seed : int
        Of everything random in the training.

    Examples
    --------
    >>> import numpy as np
    >>> from pacprivacy.residual.learned import Training, learn_noise
    >>> outputs = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> brief = Training(n_steps=20, chunk=20, batch=64, n_check=4096)
    >>> learn_noise(outputs, 0.5, follower="exact", training=brief, rng=0)
    LearnedNoise(family='gaussian_diagonal', follower='exact', mi_nats=0.5, ..., not certified)
    """

    family: Family
    follower: str
    mi_nats: float
    claimed_nats: float
    claimed_error: float
    params: Params
    spread: Spread
    log_p: Vector
    history: History
    stopped_early: bool
    seed: int

    def __post_init__(self) -> None:
        for array in self.params.values():
            freeze(array)

    def __repr__(self) -> str:
        return (
            f"LearnedNoise(family={self.family.name!r}, follower={self.follower!r}, "
            f"mi_nats={self.mi_nats:g}, claimed_nats={self.claimed_nats:.4g}, "
            f"total_variance={self.total_variance:.4g}, not certified)"
        )

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise (from simulated draws for a flow)."""
        rng = public_generator(self.seed, "learned noise moments")
        noise = np.zeros((1, self.spread.rank))
        if self.family.name == "flow":
            noise = draw_noise(self.family, self.params, MOMENT_DRAWS, rng)
        second = self.family.second_moments(self.params, noise, np.ones(len(noise)), np)
        return float(second.sum())

    def draw(self, n_draws: int, rng: np.random.Generator) -> Matrix:
        """Draw float noise along the principal directions, for experiments; releases nothing."""
        return draw_noise(self.family, self.params, n_draws, rng)

    def covariance(self) -> Matrix:
        """Return the covariance of a Gaussian in the output's coordinates, shape (d, d).

        With :class:`pacprivacy.noise.Shaped` it becomes a rule whose noise is proved anew.
        """
        shape = self.covariance_shape()
        columns = [
            self.spread.expand(np.sqrt(variance) * direction)
            for variance, direction in zip(shape.noise_var, shape.rotation.T, strict=True)
        ]
        factor = np.stack(columns)
        return np.asarray(factor.T @ factor, dtype=np.float64)

    def covariance_shape(self) -> Shape:
        """Return the directions and variances of a Gaussian; refuse other laws."""
        if not isinstance(self.family, Gaussian):
            raise BudgetError(
                f"family must be Gaussian to become a certified plan; got {self.family.name!r}. "
                f"Learn with family='gaussian_full'."
            )
        factor = self.family.factor(self.params, np)
        directions, std, _ = np.linalg.svd(factor)
        return Shape(rotation=directions, noise_var=np.square(std))
