"""The at-least-k-members attack: name many units, be right about at least k of them.

The success of a blind attempt is what the comparison hangs on, and it must be that of someone
who knows the pool. Two ways to have it soundly:

- :class:`Overlap` guesses one of the candidates themselves. The list of guesses is finite, so
  the best blind success is known exactly.
- :class:`FreeOverlap` may guess any set of half the units. The best blind success over all such
  sets is out of reach, so an upper bound of it is used, from the variance of the overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.audit.attack import Guess, Hits
from pacprivacy.audit.posterior import (
    NoiseModel,
    learn_noise,
    posteriors,
    unit_blocks,
    unit_probabilities,
)
from pacprivacy.audit.target import Releases, Target
from pacprivacy.errors import AuditError

__all__ = ["FreeOverlap", "Overlap"]

MAX_GUESSES = 1024
MAX_DECOMPOSITION = 4096
MAX_CELLS = 1 << 26
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Guess a candidate that shares at least ``n_right`` units with the secret subset.

    By default the smallest number that a blind guess reaches with probability at most
    ``blind_rate``.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=60)
    >>> release = pac.privatize(np.mean, ages, pac.Membership(0.7), n_subsets=16, rng=0)
    >>> from pacprivacy.audit import audit
    >>> [found] = audit(release, attacks=[Overlap()], n_trials=500, rng=0)
    >>> found.attack, found.verdict
    ('overlap', 'holds')
    """

    n_right: int | None = None
    blind_rate: float = 0.05
    name: str = "overlap"
    question: str = "a candidate with k units in common"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> TrainedOverlap:
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
        return TrainedOverlap(
            target=target,
            model=learn_noise(target, shadow),
            enough=enough,
            prior=float((weights @ enough).max()),
            notes=(
                f"k = {n_right} of about {int(target.pool.sizes().mean())} members; guesses are "
                f"{n_guesses} of the {m} candidates, blind success is the best of these",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedOverlap:
    """Which guesses would be right for which candidate; curator-only."""

    target: Target
    model: NoiseModel
    enough: npt.NDArray[np.bool_]
    prior: float
    notes: tuple[str, ...]

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The only question."""
        return (Guess(prior=min(1.0, self.prior), is_membership=False),)

    def hits(self, releases: Releases) -> Hits:
        """Make the guess that is right with the highest posterior probability."""
        score = self.enough.astype(np.float64)
        right = np.empty((len(releases), 1), dtype=np.bool_)
        for chosen, posterior in posteriors(self.target, self.model, releases):
            guess = (posterior @ score).argmax(axis=1)
            right[chosen, 0] = self.enough[releases.indices[chosen], guess]
        return right


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeOverlap:
    """Guess the half of the units that is likeliest to be in; right if k of them are.

    By default k is the smallest number for which the bound on blind success is at most
    ``blind_rate``.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=60)
    >>> release = pac.privatize(np.mean, ages, pac.Membership(0.7), n_subsets=16, rng=0)
    >>> from pacprivacy.audit import audit
    >>> [found] = audit(release, attacks=[FreeOverlap()], n_trials=500, rng=0)
    >>> found.attack, found.verdict
    ('free_overlap', 'holds')
    """

    n_right: int | None = None
    blind_rate: float = 0.25
    name: str = "free_overlap"
    question: str = "half of the units, k of them in"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> TrainedFreeOverlap:
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
        return TrainedFreeOverlap(
            target=target,
            model=learn_noise(target, shadow),
            n_named=n_named,
            n_right=n_right,
            prior=float(priors[n_right - 1]),
            notes=(
                f"k = {n_right} of {n_named} units named; blind success is an upper bound over "
                "all sets of that size",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedFreeOverlap:
    """The attack on half of the units; curator-only."""

    target: Target
    model: NoiseModel
    n_named: int
    n_right: int
    prior: float
    notes: tuple[str, ...]

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The only question."""
        return (Guess(prior=self.prior, is_membership=False),)

    def hits(self, releases: Releases) -> Hits:
        """Name the units of highest posterior probability: this maximises the expected overlap."""
        n_units = self.target.pool.n_units
        right = np.empty((len(releases), 1), dtype=np.bool_)
        for chosen, posterior in posteriors(self.target, self.model, releases, width=n_units):
            inside = np.empty((len(posterior), n_units))
            for units in unit_blocks(n_units):
                inside[:, units] = unit_probabilities(self.target, posterior, units)
            named = np.argpartition(-inside, self.n_named - 1, axis=1)[:, : self.n_named]
            found = [
                int(self.target.pool.mask(int(k))[units].sum())
                for k, units in zip(releases.indices[chosen], named, strict=True)
            ]
            right[chosen, 0] = np.array(found) >= self.n_right
        return right


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

    Returns
    -------
    array of shape (n_named,)
        Bounds for ``k = 1 .. n_named``.

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
    paired = target.pool.complement_pairs and bool(np.ptp(target.log_p) == 0.0)
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


def _largest_variance(centred: Matrix, weights: Vector, n_named: int) -> float:
    """Bound the variance of the overlap over all sets of ``n_named`` units."""
    scaled = np.sqrt(weights)[:, None] * centred
    n_units = centred.shape[1]
    small = scaled @ scaled.T if len(scaled) < n_units else scaled.T @ scaled
    largest = float(np.linalg.eigvalsh(small)[-1])
    length = float(n_named)
    if np.abs(scaled.sum(axis=1)).max() <= ROUNDING:  # all subsets have one size
        length = n_named * (1 - n_named / n_units)
    return max(0.0, largest) * length * (1 + ROUNDING) + ROUNDING
