"""Noise of every rule on the same outputs: what it claims, what it really gives away."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import public_generator
from pacprivacy.adversary.information import information_of_view
from pacprivacy.adversary.view import View, make_view
from pacprivacy.budget import Information
from pacprivacy.noise import Rule, calibrate
from pacprivacy.noise.probe import Probe, smallest_scale
from pacprivacy.noise.weighting import noise_covariance
from pacprivacy.residual.learned import LearnedNoise
from pacprivacy.theory.concentration import Estimate

__all__ = ["Law", "law_of_learned", "law_of_rule", "simulate_noise", "true_information"]

GAMMA = 1e-6
FLAT = 1e-13  # eigenvalues of a covariance below this share of the largest are rounding error


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Gaussian noise in the output's coordinates, and the information its rule claims."""

    method: str
    covariance: Matrix
    claimed_nats: float | None

    def __post_init__(self) -> None:
        freeze(self.covariance)

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise."""
        return float(np.trace(self.covariance))

    def scaled(self, noise_scale: float) -> Law:
        """Return the law of ``noise_scale`` times the noise."""
        return replace(self, covariance=self.covariance * noise_scale**2)

    def view(self, values: Matrix) -> View:
        """Return what the attacker compares under this noise."""
        variances, directions = _decompose(self.covariance)
        return make_view((values - values.mean(axis=0)) @ directions / np.sqrt(variances))

    def at_true_information(self, values: Matrix, mi_nats: float, seed: int) -> Law:
        """Return the law scaled until the exact adversary learns ``mi_nats``."""
        probe = Probe(self.view(values), public_generator(seed, "residual scale"))
        scale = smallest_scale(lambda c: probe.information(c)[0] - mi_nats)
        return replace(self.scaled(scale), claimed_nats=mi_nats)


def law_of_rule(method: str, values: Matrix, rule: Rule, mi_nats: float, seed: int) -> Law:
    """Return the noise of one of the library's rules at an information budget."""
    plan = calibrate(values, Information(mi_nats), rule=rule, rng=seed)
    return Law(method=method, covariance=noise_covariance(plan), claimed_nats=plan.mi_upper)


def law_of_learned(method: str, learned: LearnedNoise) -> Law:
    """Return learned Gaussian noise in the output's coordinates, with the decoder's claim."""
    return Law(
        method=method, covariance=learned.covariance(), claimed_nats=float(learned.claimed_nats)
    )


def true_information(law: Law, values: Matrix, *, n_draws: int, seed: int) -> Estimate:
    """Return what the optimal adversary learns, on fresh draws."""
    rng = public_generator(seed, "residual truth")
    return information_of_view(law.view(values), n_draws=n_draws, gamma=GAMMA, rng=rng)


def simulate_noise(law: Law, n_draws: int, rng: np.random.Generator) -> Matrix:
    """Draw float noise, shape (n_draws, d); it protects nobody."""
    variances, directions = _decompose(law.covariance)
    normals = rng.standard_normal((n_draws, len(variances)))
    noise: Matrix = (normals * np.sqrt(variances)) @ directions.T
    return noise


def _decompose(covariance: Matrix) -> tuple[Vector, Matrix]:
    variances, directions = np.linalg.eigh(covariance)
    keep = variances > FLAT * variances.max()
    return variances[keep], directions[:, keep]
