"""The attacker's posterior over candidates, written from its definition.

Nothing here comes from the code that calibrates noise or proves certificates: the noise is
either the law that releases are simulated from or learned from releases, distances are computed
one by one, and Bayes' rule is applied to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.audit.target import Integers, Releases, Target

__all__ = ["NoiseModel", "learn_noise", "posteriors", "unit_probabilities"]

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

    def distances(self, seen: Matrix, centres: Matrix) -> Matrix:
        """Return squared distances in units of the noise, shape (N, m)."""
        from scipy.spatial.distance import cdist  # slow to import, not always needed

        if not self.whiten.shape[1]:
            return np.zeros((len(seen), len(centres)))
        white = (seen - self.shift) @ self.whiten
        found: Matrix = cdist(white, centres @ self.whiten, "sqeuclidean")
        return found


def learn_noise(target: Target, shadow: Releases) -> NoiseModel:
    """Return the noise law of a simulation, or learn it from releases with known indices.

    A direction without noise gets the smallest standard deviation that floats resolve, so it is
    read as an exact observation.
    """
    if target.noise_std is not None:
        q = len(target.noise_std)
        return NoiseModel(shift=np.zeros(q), whiten=np.diag(1.0 / target.noise_std))
    residuals = shadow.seen - target.centres[shadow.indices]
    shift = residuals.mean(axis=0)
    residuals = residuals - shift
    spread = np.ptp(target.centres, axis=0)
    smallest = (SMALLEST_STD * max(float(spread.max(initial=0.0)), 1e-300)) ** 2
    n, q = residuals.shape
    if n < RELEASES_PER_DIRECTION * q:
        variances = np.square(residuals).mean(axis=0)
        axes = np.eye(q)
    else:
        variances, axes = np.linalg.eigh(residuals.T @ residuals / n)
    variances = np.maximum(variances, SMALLEST_SHARE * variances.max(initial=0.0) + smallest)
    return NoiseModel(shift=shift, whiten=axes / np.sqrt(variances))


def posteriors(
    target: Target, model: NoiseModel, releases: Releases, *, width: int = UNIT_BLOCK
) -> Iterator[tuple[slice, Matrix]]:
    """Yield the posterior over the known candidates for blocks of releases; rows sum to one.

    ``width`` is how many numbers the caller keeps per release: blocks are smaller when it is
    large.
    """
    centres, log_p = target.centres[target.known], target.log_p[target.known]
    block = max(1, BLOCK_CELLS // max(len(centres), width))
    for start in range(0, len(releases), block):
        chosen = slice(start, min(start + block, len(releases)))
        part = releases.part(chosen)
        logs = log_p - 0.5 * model.distances(part.seen, centres)
        if target.groups is not None and part.groups is not None:
            logs[part.groups[:, None] != target.groups[target.known][None, :]] = -np.inf
        yield chosen, normalise(logs)


def normalise(logs: Matrix) -> Matrix:
    """Turn log weights into probabilities, row by row."""
    top = logs.max(axis=1, keepdims=True)
    weights: Matrix = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    empty = total[:, 0] == 0.0  # nothing is consistent: back to a blind guess
    weights[empty], total[empty] = 1.0, weights.shape[1]
    weights /= total
    return weights


def unit_probabilities(target: Target, posterior: Matrix, units: Integers | slice) -> Matrix:
    """Return the probability that each chosen unit is in, given each release."""
    members = target.members(units)[target.known].astype(np.float64)
    inside: Matrix = posterior @ members
    return inside


def worst_units(success_per_unit: Vector, n_attacked: int) -> Integers:
    """Return the units with the highest success in training, the worst first."""
    order = np.argsort(-success_per_unit, kind="stable")
    return order[: min(n_attacked, len(order))].astype(np.int64)


def unit_blocks(n_units: int) -> Iterator[slice]:
    """Yield slices that cover all units, so that arrays stay small."""
    for start in range(0, n_units, UNIT_BLOCK):
        yield slice(start, min(start + UNIT_BLOCK, n_units))
