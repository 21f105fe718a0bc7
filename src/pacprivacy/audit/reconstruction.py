"""Nearest-output reconstruction: take the candidate whose output is closest to the release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacprivacy.audit.attack import Guess, Hits
from pacprivacy.audit.posterior import BLOCK_CELLS
from pacprivacy.audit.target import Integers, Releases, Target

__all__ = ["Reconstruction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """Rebuild the subset from the release, without a model of the noise.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=60)
    >>> release = pac.privatize(np.mean, ages, pac.Membership(0.7), n_subsets=16, rng=0)
    >>> from pacprivacy.audit import audit
    >>> [found] = audit(release, attacks=[Reconstruction()], n_trials=500, rng=0)
    >>> found.attack, found.verdict
    ('reconstruction', 'holds')
    """

    name: str = "reconstruction"
    question: str = "the subset that was used"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> TrainedReconstruction:
        """Nothing is learned; the share of units that it gets right is measured here."""
        nearest = nearest_candidates(target, shadow)
        packed = target.pool.bits
        differ = np.unpackbits(packed[nearest] ^ packed[shadow.indices], axis=1)
        right = 1.0 - float(differ.sum(axis=1).mean()) / target.pool.n_units
        note = f"in training it places {100 * right:.1f} % of all units rightly"
        return TrainedReconstruction(target=target, notes=(note,))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedReconstruction:
    """The nearest-output attack; curator-only."""

    target: Target
    notes: tuple[str, ...] = ()

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The only question."""
        return (Guess(prior=float(np.exp(self.target.log_p.max())), is_membership=False),)

    def hits(self, releases: Releases) -> Hits:
        """Name the candidate with the nearest output."""
        right: Hits = nearest_candidates(self.target, releases) == releases.indices
        return right[:, None]


def nearest_candidates(target: Target, releases: Releases) -> Integers:
    """Return the candidate whose output is nearest to each release, among those not ruled out."""
    from scipy.spatial.distance import cdist  # slow to import, not always needed

    possible = target.log_p > -np.inf
    block = max(1, BLOCK_CELLS // len(target.centres))
    named = np.empty(len(releases), dtype=np.int64)
    for start in range(0, len(releases), block):
        chosen = slice(start, min(start + block, len(releases)))
        part = releases.part(chosen)
        distances = np.zeros((len(part), len(target.centres)))
        if part.seen.shape[1]:
            distances = cdist(part.seen, target.centres)
        distances[:, ~possible] = np.inf
        if target.groups is not None and part.groups is not None:
            distances[part.groups[:, None] != target.groups[None, :]] = np.inf
        named[chosen] = distances.argmin(axis=1)
    return named
