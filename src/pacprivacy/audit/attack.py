"""What every attack has: training on releases of the attacker's own, then guesses on fresh ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from pacprivacy.audit.target import Releases, Target
from pacprivacy.release import Certificate
from pacprivacy.theory.posterior import posterior_success

__all__ = ["Attack", "Guess", "Promise", "Trained"]

Hits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The two numbers of a certificate that attacks are held against; public.

    Examples
    --------
    >>> promise = Promise(mi_nats=1 / 4, membership=0.6)
    >>> promise.bound(Guess(prior=0.5, is_membership=True))
    0.6
    """

    mi_nats: float
    membership: float

    @classmethod
    def of(cls, certificate: Certificate) -> Self:
        """Read them off a certificate."""
        return cls(mi_nats=certificate.mi_upper_nats, membership=certificate.membership_bound)

    def bound(self, guess: Guess) -> float:
        """Return the most that the certificate allows for a guess.

        Any guess is held by the mutual information and its prior; that of one unit's membership
        also by the exact figure, so the smaller of the two.
        """
        any_inference = posterior_success(self.mi_nats, guess.prior)
        return min(any_inference, self.membership) if guess.is_membership else any_inference


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """One question that a trained attack answers on every release.

    ``prior`` is the best success of an answer given without the release, or an upper bound of
    it: a bound that is too large can only hide a violation.

    Examples
    --------
    >>> Guess(prior=0.5, is_membership=True, unit=3)
    Guess(prior=0.5, is_membership=True, unit=3)
    """

    prior: float
    is_membership: bool
    unit: int | None = None


class Trained(Protocol):
    """An attack that has chosen everything and now only looks at releases.

    Examples
    --------
    >>> from pacprivacy.audit.bayes import TrainedBayes
    >>> sorted(name for name in vars(Trained) if hasattr(TrainedBayes, name) and name[0] != "_")
    ['guesses', 'hits', 'notes']
    """

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The questions that it answers."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about the questions."""
        ...

    def hits(self, releases: Releases) -> Hits:
        """Return whether each guess was right on each release, shape (N, n_guesses)."""
        ...


class Attack(Protocol):
    """An attack by name; a frozen record of its settings.

    Examples
    --------
    >>> from pacprivacy.audit import ATTACKS
    >>> ATTACKS["naming"].question
    'the subset that was used'
    """

    @property
    def name(self) -> str:
        """Name in tables and on the command line."""
        ...

    @property
    def question(self) -> str:
        """What it guesses, in words."""
        ...

    @property
    def fresh_secrets(self) -> bool:
        """Whether it can be held against a certificate about a fresh, independent secret."""
        ...

    def train(self, target: Target, shadow: Releases) -> Trained:
        """Choose whom to attack and how, on releases that are used for nothing else."""
        ...


def member_guesses(target: Target, units: npt.NDArray[np.int64]) -> tuple[Guess, ...]:
    """Return the question "is this unit in?" for each chosen unit."""
    return tuple(
        Guess(prior=target.membership_prior(int(i)), is_membership=True, unit=int(i)) for i in units
    )
