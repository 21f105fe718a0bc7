"""The attacker's posterior over candidates, written from its definition.

Nothing here comes from the code that calibrates noise or proves certificates: the noise is
either the law that releases are simulated from or learned from releases, distances are computed
one by one, and Bayes' rule is applied to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.audit.attack import Guess, Hits, member_guesses
from pacprivacy.audit.target import Integers, Releases, Target

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


TRAINING_PRODUCTS = 10**11  # multiplications spent on choosing whom to attack


@dataclass(frozen=True, slots=True, kw_only=True)
class Bayes:
    """Guess one unit's membership by the posterior over all candidates.

    The ``n_attacked`` units that are easiest in training are attacked; with more than one the
    interval is widened for the choice among them.
    """

    n_attacked: int = 1
    name: str = "bayes"
    question: str = "one unit: in or out"
    fresh_secrets: bool = True

    def train(self, target: Target, shadow: Releases) -> TrainedBayes:
        """Learn the noise and find the units that are easiest to guess."""
        model = learn_noise(target, shadow)
        cost = len(target.known) * target.pool.n_units
        enough = shadow.part(slice(0, max(200, TRAINING_PRODUCTS // cost)))
        certainty = np.zeros(target.pool.n_units)
        for _, posterior in posteriors(target, model, enough):
            for units in unit_blocks(target.pool.n_units):
                inside = unit_probabilities(target, posterior, units)
                certainty[units] += np.maximum(inside, 1.0 - inside).sum(axis=0)
        worst = worst_units(certainty, self.n_attacked)
        return TrainedBayes(target=target, model=model, units=worst)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBayes:
    """The posterior attack on chosen units; curator-only."""

    target: Target
    model: NoiseModel
    units: Integers
    notes: tuple[str, ...] = ()

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """One question for each chosen unit."""
        return member_guesses(self.target, self.units)

    def hits(self, releases: Releases) -> Hits:
        """Say *in* where the posterior probability is at least one half."""
        right = np.empty((len(releases), len(self.units)), dtype=np.bool_)
        members = self.target.members(self.units)
        for chosen, posterior in posteriors(self.target, self.model, releases):
            inside = unit_probabilities(self.target, posterior, self.units)
            right[chosen] = (inside >= 0.5) == members[releases.indices[chosen]]
        return right


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Name the subset that was used: the candidate of highest posterior probability."""

    name: str = "naming"
    question: str = "the subset that was used"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> TrainedNaming:
        """Learn the noise; nothing else is to be chosen."""
        return TrainedNaming(target=target, model=learn_noise(target, shadow))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedNaming:
    """The posterior attack on the index; curator-only."""

    target: Target
    model: NoiseModel
    notes: tuple[str, ...] = ()

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The only question."""
        return (Guess(prior=float(np.exp(self.target.log_p.max())), is_membership=False),)

    def hits(self, releases: Releases) -> Hits:
        """Name the likeliest candidate."""
        right = np.empty((len(releases), 1), dtype=np.bool_)
        for chosen, posterior in posteriors(self.target, self.model, releases):
            named = self.target.known[posterior.argmax(axis=1)]
            right[chosen, 0] = named == releases.indices[chosen]
        return right


Score = Literal["gaussian", "empirical"]
MAX_GROUPS = 64
SMALLEST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodRatio:
    """Shadow releases with and without each unit; the easiest ``n_attacked`` are attacked.

    ``score="gaussian"`` compares Gaussian densities of the score; ``"empirical"`` cuts where the
    empirical distribution functions differ most.
    """

    score: Score = "gaussian"
    n_attacked: int = 1
    name: str = "likelihood_ratio"
    question: str = "one unit: in or out"
    fresh_secrets: bool = True

    def train(self, target: Target, shadow: Releases) -> TrainedLikelihoodRatio:
        """Learn directions on one half of the shadow releases and laws of scores on the other."""
        half = len(shadow) // 2
        first, second = shadow.part(slice(0, half)), shadow.part(slice(half, None))
        lens = _Lens.learn(target, first)
        seen, seen_later = lens.look(first), lens.look(second)
        fit = fit_gaussian if self.score == "gaussian" else fit_empirical
        found = []
        for units in unit_blocks(target.pool.n_units):
            members = target.members(units)
            directions = mean_shifts(seen, members[first.indices])
            laws = fit(seen_later @ directions.T, members[second.indices])
            found.append((directions, laws))
        directions = np.concatenate([d for d, _ in found])
        laws = np.concatenate([law for _, law in found], axis=1)
        worst = worst_units(laws[0], self.n_attacked)
        return TrainedLikelihoodRatio(
            target=target,
            lens=lens,
            units=worst,
            directions=directions[worst],
            laws=laws[:, worst],
            score=self.score,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedLikelihoodRatio:
    """Directions and laws of scores of the chosen units; curator-only."""

    target: Target
    lens: _Lens
    units: Integers
    directions: Matrix
    laws: Matrix
    score: Score
    notes: tuple[str, ...] = ()

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """One question for each chosen unit."""
        return member_guesses(self.target, self.units)

    def hits(self, releases: Releases) -> Hits:
        """Say *in* where the score is likelier with the unit than without."""
        scores = self.lens.look(releases) @ self.directions.T
        says_in = gaussian_guess if self.score == "gaussian" else empirical_guess
        truth = self.target.members(self.units)[releases.indices]
        right: Hits = says_in(scores, self.laws) == truth
        return right


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lens:
    """Standard coordinates of what is seen: whitened by the spread of all shadow releases."""

    center: Vector
    whiten: Matrix
    groups: Integers

    @classmethod
    def learn(cls, target: Target, shadow: Releases) -> _Lens:
        groups = np.empty(0, dtype=np.int64)
        if shadow.groups is not None:
            groups = np.unique(shadow.groups)[:MAX_GROUPS].astype(np.int64)
        features = _features(shadow, groups)
        center = features.mean(axis=0)
        centred = features - center
        n, q = centred.shape
        if n < RELEASES_PER_DIRECTION * q:
            variances, axes = np.square(centred).mean(axis=0), np.eye(q)
        else:
            variances, axes = np.linalg.eigh(centred.T @ centred / n)
        moving = variances > SMALLEST * variances.max(initial=0.0)
        whiten = axes[:, moving] / np.sqrt(variances[moving])
        return cls(center=center, whiten=whiten, groups=groups)

    def look(self, releases: Releases) -> Matrix:
        white: Matrix = (_features(releases, self.groups) - self.center) @ self.whiten
        return white


def _features(releases: Releases, groups: Integers) -> Matrix:
    if releases.groups is None or not len(groups):
        return releases.seen
    revealed = releases.groups[:, None] == groups[None, :]
    return np.concatenate([releases.seen, revealed.astype(np.float64)], axis=1)


def mean_shifts(seen: Matrix, members: npt.NDArray[np.bool_]) -> Matrix:
    """Return how the mean of whitened releases moves with each unit, shape (n_units, q)."""
    inside = members.astype(np.float64)
    n_in = inside.sum(axis=0)
    n_out = len(seen) - n_in
    sums_in = inside.T @ seen
    sums_out = seen.sum(axis=0) - sums_in
    shifts: Matrix = (
        sums_in / np.maximum(n_in, 1)[:, None] - sums_out / np.maximum(n_out, 1)[:, None]
    )
    shifts[(n_in == 0) | (n_out == 0)] = 0.0
    return shifts


def fit_gaussian(scores: Matrix, members: npt.NDArray[np.bool_]) -> Matrix:
    """Fit a Gaussian to the scores with and without each unit."""
    inside = members.astype(np.float64)
    n_in = np.maximum(inside.sum(axis=0), 1.0)
    n_out = np.maximum(len(scores) - n_in, 1.0)
    total, total_sq = scores.sum(axis=0), np.square(scores).sum(axis=0)
    sum_in, sum_sq_in = (inside * scores).sum(axis=0), (inside * np.square(scores)).sum(axis=0)
    mean_in, mean_out = sum_in / n_in, (total - sum_in) / n_out
    var_in = sum_sq_in / n_in - mean_in**2
    var_out = (total_sq - sum_sq_in) / n_out - mean_out**2
    smallest = SMALLEST * np.maximum(total_sq / len(scores), 1e-300)
    laws = np.array(
        [
            np.zeros_like(mean_in),
            np.log(n_in / n_out),
            mean_in,
            np.sqrt(np.maximum(var_in, smallest)),
            mean_out,
            np.sqrt(np.maximum(var_out, smallest)),
        ]
    )
    laws[0] = (gaussian_guess(scores, laws) == members).mean(axis=0)
    return laws


def gaussian_guess(scores: Matrix, laws: Matrix) -> npt.NDArray[np.bool_]:
    """Say *in* where the Gaussian log likelihood ratio and the prior odds add up to 0 or more."""
    _, log_odds, mean_in, std_in, mean_out, std_out = laws
    ratio = 0.5 * np.square((scores - mean_out) / std_out) + np.log(std_out)
    ratio -= 0.5 * np.square((scores - mean_in) / std_in) + np.log(std_in)
    says_in: npt.NDArray[np.bool_] = ratio + log_odds >= 0
    return says_in


def fit_empirical(scores: Matrix, members: npt.NDArray[np.bool_]) -> Matrix:
    """Find the cut at which the empirical distribution functions are furthest apart."""
    order = np.argsort(scores, axis=0, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=0)
    inside = np.take_along_axis(members, order, axis=0)
    edge = np.zeros((1, scores.shape[1]))
    out_below = np.concatenate([edge, np.cumsum(~inside, axis=0)])
    in_below = np.concatenate([edge, np.cumsum(inside, axis=0)])
    right = out_below + in_below[-1] - in_below
    best = right.argmax(axis=0)
    bounds = np.concatenate([edge - np.inf, 0.5 * (ranked[1:] + ranked[:-1]), edge + np.inf])
    columns = np.arange(scores.shape[1])
    return np.array([right[best, columns] / len(scores), bounds[best, columns]])


def empirical_guess(scores: Matrix, laws: Matrix) -> npt.NDArray[np.bool_]:
    """Say *in* above the cut."""
    says_in: npt.NDArray[np.bool_] = scores >= laws[1]
    return says_in
