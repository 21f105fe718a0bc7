"""The likelihood-ratio membership attack: what releases look like with and without one unit.

It knows nothing of the noise or of the candidates' outputs. From shadow releases with known
membership it learns, for every unit, the direction in which the release moves when the unit is
in, and compares the laws of the score along that direction: as two Gaussians, or by their
empirical distribution functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.audit.attack import Guess, Hits, member_guesses
from pacprivacy.audit.posterior import RELEASES_PER_DIRECTION, unit_blocks, worst_units
from pacprivacy.audit.target import Integers, Releases, Target

__all__ = ["LikelihoodRatio"]

Score = Literal["gaussian", "empirical"]
MAX_GROUPS = 64
SMALLEST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodRatio:
    """Shadow releases with and without each unit; the easiest ``n_attacked`` are attacked.

    ``score="gaussian"`` compares Gaussian densities of the score; ``"empirical"`` cuts where the
    empirical distribution functions differ most.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=60)
    >>> release = pac.privatize(np.mean, ages, pac.Membership(0.7), n_subsets=16, rng=0)
    >>> from pacprivacy.audit import audit
    >>> [found] = audit(release, attacks=[LikelihoodRatio()], n_trials=500, rng=0)
    >>> found.attack, found.verdict
    ('likelihood_ratio', 'holds')
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
    """Fit a Gaussian to the scores with and without each unit.

    Returns
    -------
    array of shape (6, n_units)
        Success in training, log prior odds, and mean and standard deviation with and without.
    """
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
    """Find the cut at which the empirical distribution functions are furthest apart.

    Returns
    -------
    array of shape (2, n_units)
        Success in training, and the score from which the guess is *in*.
    """
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
