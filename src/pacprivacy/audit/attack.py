"""What attacks have in common: their form, and the posterior of who knows the candidates.

Nothing here comes from the code that calibrates noise or proves certificates: the noise is
either the law that releases are simulated from or learned from releases, distances are computed
one by one, and Bayes' rule is applied to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.audit.target import Integers, Releases, Target

Hits: TypeAlias = npt.NDArray[np.bool_]
Blocks: TypeAlias = Iterator[tuple[slice, Matrix]]

BLOCK_CELLS = 1 << 21
UNIT_BLOCK = 2048
RELEASES_PER_DIRECTION = 10  # below this a full covariance is noise itself
SMALLEST_SHARE = 1e-15
SMALLEST_STD = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """One question that a trained attack answers on every release.

    ``prior`` is the best success of an answer given without the release, or an upper bound of
    it: a bound that is too large can only hide a violation.
    """

    prior: float
    is_membership: bool
    unit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """An attack that has chosen everything and now only looks at releases; curator-only.

    ``hits(releases)`` says whether each guess was right on each release, shape (N, n_guesses).
    """

    guesses: tuple[Guess, ...]
    hits: Callable[[Releases], Hits]
    notes: tuple[str, ...] = ()


class Attack(Protocol):
    """An attack by name; a frozen record of its settings."""

    @property
    def name(self) -> str:
        """Name in tables and on the command line."""

    @property
    def question(self) -> str:
        """What it guesses, in words."""

    @property
    def fresh_secrets(self) -> bool:
        """Whether it can be held against a certificate about a fresh, independent secret."""

    def train(self, target: Target, shadow: Releases) -> Trained:
        """Choose whom to attack and how, on releases that are used for nothing else."""


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


def learn_noise_model(target: Target, shadow: Releases) -> NoiseModel:
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
    variances, axes = noise_axes(residuals)
    variances = np.maximum(variances, SMALLEST_SHARE * variances.max(initial=0.0) + smallest)
    return NoiseModel(shift=shift, whiten=axes / np.sqrt(variances))


def noise_axes(centred: Matrix) -> tuple[Vector, Matrix]:
    """Return variances and the axes they are along: principal ones where there are enough draws."""
    n, q = centred.shape
    if n < RELEASES_PER_DIRECTION * q:
        return np.square(centred).mean(axis=0), np.eye(q)
    variances, axes = np.linalg.eigh(centred.T @ centred / n)
    return variances, axes


def distance_blocks(
    target: Target, model: NoiseModel, releases: Releases, *, width: int = UNIT_BLOCK
) -> Blocks:
    """Yield squared distances to the known candidates; infinite where a group rules one out.

    ``width`` is how many numbers the caller keeps per release: blocks are smaller when it is
    large.
    """
    centres = target.centres[target.known]
    block = max(1, BLOCK_CELLS // max(len(centres), width))
    for start in range(0, len(releases), block):
        chosen = slice(start, min(start + block, len(releases)))
        part = releases.part(chosen)
        distances = model.distances(part.seen, centres)
        if target.groups is not None and part.groups is not None:
            distances[part.groups[:, None] != target.groups[target.known][None, :]] = np.inf
        yield chosen, distances


def posteriors(
    target: Target, model: NoiseModel, releases: Releases, *, width: int = UNIT_BLOCK
) -> Blocks:
    """Yield the posterior over the known candidates for blocks of releases; rows sum to one."""
    log_p = target.log_p[target.known]
    for chosen, distances in distance_blocks(target, model, releases, width=width):
        yield chosen, normalise(log_p - 0.5 * distances)


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


def unit_blocks(n_units: int) -> Iterator[slice]:
    """Yield slices that cover all units, so that arrays stay small."""
    for start in range(0, n_units, UNIT_BLOCK):
        yield slice(start, min(start + UNIT_BLOCK, n_units))


def ask_members(
    target: Target, units: Integers, hits: Callable[[Releases], Hits], notes: tuple[str, ...] = ()
) -> Trained:
    """Return the attack that asks of each chosen unit whether it is in."""
    guesses = tuple(
        Guess(prior=target.membership_prior(int(i)), is_membership=True, unit=int(i)) for i in units
    )
    return Trained(guesses=guesses, hits=hits, notes=notes)


def ask_once(
    prior: float,
    see: Callable[[Releases], Blocks],
    is_right: Callable[[Matrix, Integers], Hits],
    notes: tuple[str, ...] = (),
) -> Trained:
    """Return the attack with one question, answered from blocks of posteriors or distances.

    ``is_right(block, indices)`` judges the answers for the candidates that were really used.
    """

    def hits(releases: Releases) -> Hits:
        parts = [is_right(block, releases.indices[chosen]) for chosen, block in see(releases)]
        return np.concatenate(parts)[:, None]

    return Trained(
        guesses=(Guess(prior=min(1.0, prior), is_membership=False),), hits=hits, notes=notes
    )
