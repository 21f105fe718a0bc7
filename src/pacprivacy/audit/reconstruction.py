"""Attacks on the subset that was used: all of it, or at least k of its members."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy.audit.target import (
    Guess,
    NoiseModel,
    Releases,
    Target,
    Trained,
    ask_once,
    distance_blocks,
    learn_noise_model,
    posteriors,
    unit_blocks,
    unit_probabilities,
)
from pacprivacy.errors import AuditError

MAX_GUESSES = 1024
MAX_DECOMPOSITION = 4096
MAX_CELLS = 1 << 26
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Name the subset that was used: the candidate of highest posterior probability."""

    name: str = "naming"
    question: str = "the subset that was used"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> Trained:
        """Learn the noise; nothing else is to be chosen."""
        return ask_once(
            float(np.exp(target.log_p.max())),
            partial(posteriors, target, learn_noise_model(target, shadow)),
            lambda posterior, indices: target.known[posterior.argmax(axis=1)] == indices,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """Rebuild the subset from the release, without a model of the noise."""

    name: str = "reconstruction"
    question: str = "the subset that was used"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> Trained:
        """Nothing is learned; the share of units that it gets right is measured here."""
        nearest = nearest_candidates(target, shadow)
        packed = target.pool.bits
        differ = np.unpackbits(packed[nearest] ^ packed[shadow.indices], axis=1)
        right = 1.0 - float(differ.sum(axis=1).mean()) / target.pool.n_units
        note = f"in training it places {100 * right:.1f} % of all units rightly"

        def hits(releases: Releases) -> Mask:
            right: Mask = nearest_candidates(target, releases) == releases.indices
            return right[:, None]

        prior = float(np.exp(target.log_p.max()))
        return Trained(guesses=(Guess(prior=prior),), hits=hits, notes=(note,))


def nearest_candidates(target: Target, releases: Releases) -> Integers:
    """Return the candidate whose output is nearest to each release, among those not ruled out."""
    q = target.centers.shape[1]
    as_is = NoiseModel(shift=np.zeros(q), whiten=np.eye(q))
    named = np.empty(len(releases), dtype=np.int64)
    for chosen, distances in distance_blocks(target, as_is, releases):
        distances[:, np.isneginf(target.log_p)] = np.inf
        named[chosen] = distances.argmin(axis=1)
    return named


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Guess a candidate that shares at least ``n_right`` units with the secret subset.

    By default the smallest number that a blind guess reaches with probability at most
    ``blind_rate``.
    """

    n_right: int | None = None
    blind_rate: float = 0.05
    name: str = "overlap"
    question: str = "a candidate with k units in common"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> Trained:
        """Count shared units and choose k; the posterior does the rest."""
        m = target.pool.n_subsets
        n_guesses = min(m, MAX_GUESSES)
        listed = np.linspace(0, m - 1, n_guesses).astype(np.int64)
        shared = np.zeros((m, n_guesses), dtype=np.float32)
        for units in unit_blocks(target.pool.n_units):
            inside = target.members(units).astype(np.float32)
            shared += inside @ inside[listed].T
        weights = np.exp(target.log_p)
        n_right = self.n_right
        if n_right is None:
            n_right = _smallest_count(shared, weights, self.blind_rate)
        elif not 1 <= n_right <= int(shared.max()):
            raise AuditError(
                f"n_right must be between 1 and {int(shared.max())}, the largest subset; got "
                f"{n_right}. Leave it out for a number that is hard to reach blindly."
            )
        enough = shared >= n_right
        score = enough.astype(np.float64)
        return ask_once(
            float((weights @ enough).max()),
            partial(posteriors, target, learn_noise_model(target, shadow)),
            lambda posterior, indices: enough[indices, (posterior @ score).argmax(axis=1)],
            notes=(
                f"k = {n_right} of about {int(target.pool.sizes().mean())} members; guesses are "
                f"{n_guesses} of the {m} candidates, blind success is the best of these",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeOverlap:
    """Guess the half of the units that is likeliest to be in; right if k of them are.

    By default k is the smallest number for which the bound on blind success is at most
    ``blind_rate``.
    """

    n_right: int | None = None
    blind_rate: float = 0.25
    name: str = "free_overlap"
    question: str = "half of the units, k of them in"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> Trained:
        """Bound blind success and choose k; the posterior does the rest."""
        n_named = target.pool.n_units // 2
        priors = np.minimum(1.0, blind_bounds(target, n_named))
        n_right = self.n_right
        if n_right is None:
            n_right = 1 + int(np.argmax(priors <= max(self.blind_rate, float(priors.min()))))
        elif not 1 <= n_right <= n_named:
            raise AuditError(
                f"n_right must be between 1 and {n_named}, half of the units; got {n_right}. "
                f"Leave it out for a number that is hard to reach blindly."
            )
        n_units = target.pool.n_units

        def enough_are_in(posterior: Matrix, indices: Integers) -> Mask:
            """Name the likeliest units: this maximises the expected overlap."""
            inside = np.empty((len(posterior), n_units))
            for block in unit_blocks(n_units):
                inside[:, block] = unit_probabilities(target, posterior, block)
            named = np.argpartition(-inside, n_named - 1, axis=1)[:, :n_named]
            shared = [
                int(target.pool.mask(int(k))[units].sum())
                for k, units in zip(indices, named, strict=True)
            ]
            return np.array(shared) >= n_right

        return ask_once(
            float(priors[n_right - 1]),
            partial(posteriors, target, learn_noise_model(target, shadow), width=n_units),
            enough_are_in,
            notes=(
                f"k = {n_right} of {n_named} units named; blind success is an upper bound over "
                "all sets of that size",
            ),
        )


def _smallest_count(shared: npt.NDArray[np.float32], weights: Vector, blind_rate: float) -> int:
    """Return the smallest number of shared units that is rare for every guess of the list."""
    low, high = 1, int(shared.max())
    lowest = float((weights @ (shared >= high)).max())
    while low < high:
        middle = (low + high) // 2
        if float((weights @ (shared >= middle)).max()) <= max(blind_rate, lowest):
            high = middle
        else:
            low = middle + 1
    return high


def blind_bounds(target: Target, n_named: int) -> Vector:
    """Bound the best blind chance that ``n_named`` units hold at least k members, for each k.

    The overlap of a fixed set with the secret subset has mean at most ``M`` (the likeliest units)
    and variance at most ``V = λ |a|²``, ``λ`` the largest eigenvalue of the covariance of
    memberships over the pool and ``a`` the part of the set's indicator that can vary. Cantelli's
    inequality gives ``V / (V + (k - M)²)``; where subsets come in complement pairs the overlap is
    symmetric about half of ``n_named``, and Chebyshev's gives ``V / 2(k - M)²``.

    Guarantee
    ---------
    Claim U-2. Assumes that the index follows ``target.log_p``. No set of ``n_named`` units chosen
    without a release holds k members with a higher probability.
    """
    counts = np.arange(1, n_named + 1, dtype=np.float64)
    weights = np.exp(target.log_p)
    m, n_units = target.pool.n_subsets, target.pool.n_units
    inside = np.concatenate([weights @ target.members(units) for units in unit_blocks(n_units)])
    mean = float(np.sort(inside)[::-1][:n_named].sum()) * (1 + ROUNDING)
    paired = target.pool.folds == 2 and bool(np.ptp(target.log_p) == 0.0)
    bounds = np.ones(n_named)
    if min(m, n_units) <= MAX_DECOMPOSITION and m * n_units <= MAX_CELLS:
        members = target.members(slice(0, n_units))
        variance = _largest_variance(members - inside, weights, n_named)
        beyond = np.maximum(counts - mean, 0.0)
        bounds = variance / (variance + beyond**2)
        if paired:
            bounds = np.minimum(bounds, variance / (2 * np.maximum(beyond, 1e-9) ** 2))
    if paired:
        bounds[counts > mean] = np.minimum(bounds[counts > mean], 0.5)
    return bounds


def _largest_variance(centered: Matrix, weights: Vector, n_named: int) -> float:
    """Bound the variance of the overlap over all sets of ``n_named`` units."""
    scaled = np.sqrt(weights)[:, None] * centered
    n_units = centered.shape[1]
    small = scaled @ scaled.T if len(scaled) < n_units else scaled.T @ scaled
    largest = float(np.linalg.eigvalsh(small)[-1])
    length = float(n_named)
    if np.abs(scaled.sum(axis=1)).max() <= ROUNDING:  # all subsets have one size
        length = n_named * (1 - n_named / n_units)
    return max(0.0, largest) * length * (1 + ROUNDING) + ROUNDING
