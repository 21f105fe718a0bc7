"""What fits under differential privacy have cost, and the total of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from pacprivacy._rounding import at_most
from pacprivacy.dp import DPCertificate, Event, Neighbours, account, events_of
from pacprivacy.errors import CertificateError

SCHEMA_VERSION: Final = 1
DISCRETIZATION: Final = 1e-3  # of privacy losses; rounded to the safe side


@dataclass(frozen=True, slots=True, kw_only=True)
class DPFitCost:
    """What one or more fits cost together; every field is public.

    Parameters
    ----------
    events : tuple of Event
        What an accountant is told.
    promised, delta : float
        Sums of the ``ε`` and of the ``δ`` that the fits promised.
    n_releases : int
        Number of releases.
    neighbours : {"add_remove", "replace"}
        Relation that they are about.
    simulation : bool
        Whether one of them was seeded.

    Examples
    --------
    >>> from pacprivacy.dp import PureEvent
    >>> fit = DPFitCost(
    ...     events=(PureEvent(epsilon=0.5),), promised=0.5, delta=0.0, neighbours="replace"
    ... )
    >>> (fit + fit).epsilon, (fit + fit).n_releases
    (1.0, 2)
    """

    events: tuple[Event, ...]
    promised: float
    delta: float
    neighbours: Neighbours
    n_releases: int = 1
    simulation: bool = False

    def __add__(self, other: DPFitCost) -> DPFitCost:
        if self.neighbours != other.neighbours:
            raise CertificateError(
                "fits must be about one relation to be added up; got 'add_remove' and 'replace'. "
                "Search over one of them at a time."
            )
        return DPFitCost(
            events=(*self.events, *other.events),
            promised=self.promised + other.promised,
            delta=self.delta + other.delta,
            neighbours=self.neighbours,
            n_releases=self.n_releases + other.n_releases,
            simulation=self.simulation or other.simulation,
        )

    @classmethod
    def of(cls, certificate: DPCertificate) -> DPFitCost:
        """Read the cost of one release off its certificate."""
        return cls(
            events=tuple(events_of(certificate)),
            promised=certificate.epsilon,
            delta=certificate.delta,
            neighbours=certificate.neighbours,
            simulation=certificate.simulation,
        )

    @property
    def epsilon(self) -> float:
        """The least ``ε`` at :attr:`delta` that ``dp.account`` finds."""
        return self.best_at(self.delta)[1]

    def best_at(self, delta: float) -> tuple[str, float]:
        """Return the method and the least ``ε`` at another ``δ``."""
        found = _best(tuple(sorted(self.events, key=repr)), self.neighbours, delta)
        by_promise = ("sum of the promises", self.promised)
        return by_promise if delta >= self.delta and by_promise[1] <= found[1] else found


@dataclass(frozen=True, slots=True, kw_only=True)
class DPSearchCost:
    """What a whole search has cost under differential privacy; every field is public.

    Parameters
    ----------
    candidates : tuple of (str, DPFitCost)
        Each candidate's parameters, and the cost of its fits on all folds.
    refit : DPFitCost, optional
        The fit of the best candidate on all records.
    total : DPFitCost
        All of them.
    delta : float
        The ``δ`` that :attr:`epsilon` is at.
    covers_choice : bool
        Whether the choice of the best candidate looked at released models and public data only.
    certificate : DPCertificate
        Of all fits together; it says what it does not cover.

    Examples
    --------
    >>> from pacprivacy.dp import PureEvent
    >>> fit = DPFitCost(
    ...     events=(PureEvent(epsilon=0.5),), promised=0.5, delta=0.0, neighbours="replace"
    ... )
    >>> cost = DPSearchCost(candidates=(("C=1", fit + fit),), refit=fit, total=fit + fit + fit,
    ...     delta=0.0, covers_choice=False)
    >>> cost.epsilon
    1.5
    """

    candidates: tuple[tuple[str, DPFitCost], ...]
    refit: DPFitCost | None
    total: DPFitCost
    delta: float
    covers_choice: bool
    certificate: DPCertificate | None = field(default=None, repr=False)

    @property
    def epsilon(self) -> float:
        """The ``ε`` of all fits together."""
        return self.total.best_at(self.delta)[1]

    @property
    def covers(self) -> str:
        """What the total is about, as one sentence."""
        what = "all fitted models of the search together"
        if self.covers_choice:
            return f"Covers {what}, and the choice among them, made on public data."
        return f"Covers {what}; not the scores, nor the choice made by them."

    def __str__(self) -> str:
        rows = [*self.candidates, *([("refit", self.refit)] if self.refit else [])]
        lines = [
            f"ε {_up(cost.epsilon):>8}  δ {cost.delta:>8.3g}  {cost.n_releases:>4} fits  {name}"
            for name, cost in rows
        ]
        total = self.total.n_releases
        lines.append(f"ε {_up(self.epsilon):>8}  δ {self.delta:>8.3g}  {total:>4} fits  total")
        return "\n".join([*lines, self.covers])

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""

        def plain(cost: DPFitCost) -> dict[str, Any]:
            return {"epsilon": cost.epsilon, "delta": cost.delta, "n_releases": cost.n_releases}

        return {
            "schema_version": SCHEMA_VERSION,
            "candidates": [{"params": name, **plain(cost)} for name, cost in self.candidates],
            "refit": self.refit and plain(self.refit),
            "total": {**plain(self.total), "epsilon": self.epsilon, "delta": self.delta},
            "covers": self.covers,
            "certificate": self.certificate and self.certificate.to_public_dict(),
        }


def _up(epsilon: float) -> str:
    return at_most(epsilon, significant=4) if math.isfinite(epsilon) else "infinite"


@lru_cache(maxsize=256)
def _best(events: tuple[Event, ...], neighbours: Neighbours, delta: float) -> tuple[str, float]:
    return account(events, delta=delta, neighbours=neighbours, discretization=DISCRETIZATION).best
