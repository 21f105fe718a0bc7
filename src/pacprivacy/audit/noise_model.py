"""The attacker's own model of the noise, learned from simulated releases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pacprivacy._checks import (
    Integers,
    Matrix,
    Vector,
    freeze,
)
from pacprivacy.audit.target import Releases, Target

Blocks: TypeAlias = Iterator[tuple[slice, Matrix]]
BLOCK_CELLS = 1 << 21
UNIT_BLOCK = 2048
RELEASES_PER_DIRECTION = 10  # below this a full covariance is noise itself
SMALLEST_SHARE = 1e-15
SMALLEST_STD = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseModel:
    """What the attacker takes the noise to be: Gaussian, white after ``whiten``; curator-only."""

    shift: Vector
    whiten: Matrix

    def __post_init__(self) -> None:
        freeze(self.shift)
        freeze(self.whiten)

    def distances(self, seen: Matrix, centers: Matrix) -> Matrix:
        """Return squared distances in units of the noise, shape (N, m)."""
        from scipy.spatial.distance import cdist  # slow to import, not always needed

        if not self.whiten.shape[1]:
            return np.zeros((len(seen), len(centers)))
        white = (seen - self.shift) @ self.whiten
        found: Matrix = cdist(white, centers @ self.whiten, "sqeuclidean")
        return found


def learn_noise_model(target: Target, shadow: Releases) -> NoiseModel:
    """Return the noise law of a simulation, or learn it from releases with known indices.

    A direction without noise gets the smallest standard deviation that floats resolve, so it is
    read as an exact observation.
    """
    if target.noise_std is not None:
        q = len(target.noise_std)
        return NoiseModel(shift=np.zeros(q), whiten=np.diag(1.0 / target.noise_std))
    residuals = shadow.seen - target.centers[shadow.indices]
    shift = residuals.mean(axis=0)
    residuals = residuals - shift
    spread = np.ptp(target.centers, axis=0)
    smallest = (SMALLEST_STD * max(float(spread.max(initial=0.0)), 1e-300)) ** 2
    variances, axes = noise_model_axes(residuals)
    variances = np.maximum(variances, SMALLEST_SHARE * variances.max(initial=0.0) + smallest)
    return NoiseModel(shift=shift, whiten=axes / np.sqrt(variances))


def noise_model_axes(centered: Matrix) -> tuple[Vector, Matrix]:
    """Return variances and the axes they are along: principal ones where there are enough draws."""
    n, q = centered.shape
    if n < RELEASES_PER_DIRECTION * q:
        return np.square(centered).mean(axis=0), np.eye(q)
    variances, axes = np.linalg.eigh(centered.T @ centered / n)
    return variances, axes


def noise_model_blocks(
    target: Target, model: NoiseModel, releases: Releases, *, width: int = UNIT_BLOCK
) -> Blocks:
    """Yield squared distances to the known candidates; infinite where a group rules one out.

    ``width`` is how many numbers the caller keeps per release: blocks are smaller when it is
    large.
    """
    centers = target.centers[target.known]
    block = max(1, BLOCK_CELLS // max(len(centers), width))
    for start in range(0, len(releases), block):
        chosen = slice(start, min(start + block, len(releases)))
        part = releases.part(chosen)
        distances = model.distances(part.seen, centers)
        if target.groups is not None and part.groups is not None:
            distances[part.groups[:, None] != target.groups[target.known][None, :]] = np.inf
        yield chosen, distances


def noise_model_posteriors(
    target: Target, model: NoiseModel, releases: Releases, *, width: int = UNIT_BLOCK
) -> Blocks:
    """Yield the posterior over the known candidates for blocks of releases; rows sum to one."""
    log_p = target.log_p[target.known]
    for chosen, distances in noise_model_blocks(target, model, releases, width=width):
        yield chosen, noise_model_weights(log_p - 0.5 * distances)


def noise_model_weights(logs: Matrix) -> Matrix:
    """Turn log weights into probabilities, row by row."""
    top = logs.max(axis=1, keepdims=True)
    weights: Matrix = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    empty = total[:, 0] == 0.0  # nothing is consistent: back to a blind guess
    weights[empty], total[empty] = 1.0, weights.shape[1]
    weights /= total
    return weights


def noise_model_units(target: Target, posterior: Matrix, units: Integers | slice) -> Matrix:
    """Return the probability that each chosen unit is in, given each release."""
    members = target.members(units)[target.known].astype(np.float64)
    inside: Matrix = posterior @ members
    return inside


def noise_model_unit_blocks(n_units: int) -> Iterator[slice]:
    """Yield slices that cover all units, so that arrays stay small."""
    for start in range(0, n_units, UNIT_BLOCK):
        yield slice(start, min(start + UNIT_BLOCK, n_units))
