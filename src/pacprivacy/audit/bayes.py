"""The optimal attack, run as an attack: Bayes' rule on releases that it has not seen before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacprivacy.audit.attack import Guess, Hits, member_guesses
from pacprivacy.audit.posterior import (
    NoiseModel,
    learn_noise,
    posteriors,
    unit_blocks,
    unit_probabilities,
    worst_units,
)
from pacprivacy.audit.target import Integers, Releases, Target

__all__ = ["Bayes", "Naming"]

TRAINING_PRODUCTS = 10**11  # multiplications spent on choosing whom to attack


@dataclass(frozen=True, slots=True, kw_only=True)
class Bayes:
    """Guess one unit's membership by the posterior over all candidates.

    The ``n_attacked`` units that are easiest in training are attacked; with more than one the
    interval is widened for the choice among them.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=60)
    >>> release = pac.privatize(np.mean, ages, pac.Membership(0.7), n_subsets=16, rng=0)
    >>> from pacprivacy.audit import audit
    >>> [found] = audit(release, attacks=[Bayes()], n_trials=500, rng=0)
    >>> found.attack, found.verdict
    ('bayes', 'holds')
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
    """Name the subset that was used: the candidate of highest posterior probability.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=60)
    >>> release = pac.privatize(np.mean, ages, pac.Membership(0.7), n_subsets=16, rng=0)
    >>> from pacprivacy.audit import audit
    >>> [found] = audit(release, attacks=[Naming()], n_trials=500, rng=0)
    >>> found.attack, found.verdict
    ('naming', 'holds')
    """

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
