"""What fits have released, and the sum over a search."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.release import Certificate
from pacprivacy.theory import posterior_success

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCost:
    """What one or more fits have released; every field is public.

    Parameters
    ----------
    n_releases : int
        Number of releases, each with a secret of its own.
    mi_nats : float
        Bound on the information about all these secrets together.
    membership : float
        Bound on the success of guessing one record's membership in one of the subsets.
    doubt : float
        Bound on the probability that one of the proofs is wrong.

    Examples
    --------
    >>> first = FitCost(n_releases=1, mi_nats=0.25, membership=0.6)
    >>> second = FitCost(n_releases=1, mi_nats=0.5, membership=0.7)
    >>> first + second
    FitCost(n_releases=2, mi_nats=0.75, membership=0.7, doubt=0.0)
    """

    n_releases: int = 0
    mi_nats: float = 0.0
    membership: float = 0.5
    doubt: float = 0.0

    def __add__(self, other: FitCost) -> FitCost:
        return FitCost(
            n_releases=self.n_releases + other.n_releases,
            mi_nats=self.mi_nats + other.mi_nats,
            membership=max(self.membership, other.membership),
            doubt=min(1.0, self.doubt + other.doubt),
        )

    @classmethod
    def of(cls, certificate: Certificate) -> Self:
        """Read the cost of one release off its certificate."""
        return cls(
            n_releases=1,
            mi_nats=certificate.mi_upper_nats,
            membership=certificate.membership_bound,
            doubt=1.0 - certificate.confidence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCost:
    """What a whole search has released; every field is public.

    Parameters
    ----------
    candidates : tuple of (str, FitCost)
        Each candidate's parameters, and the cost of its fits on all folds.
    refit : FitCost
        The fit of the best candidate on all records.
    total : FitCost
        The sum.
    certificate : Certificate, optional
        That of the best model, with the total of the search in its ``composition``.

    Examples
    --------
    >>> fit = FitCost(n_releases=2, mi_nats=0.25, membership=0.6)
    >>> refit = FitCost(n_releases=1, mi_nats=0.125, membership=0.6)
    >>> cost = SearchCost(candidates=(("C=1", fit),), refit=refit, total=fit + refit)
    >>> cost.total.mi_nats, cost.ever_used_prior
    (0.375, 0.875)
    """

    candidates: tuple[tuple[str, FitCost], ...]
    refit: FitCost
    total: FitCost
    certificate: Certificate | None = field(default=None, repr=False)

    @property
    def any_inference(self) -> float:
        """Bound on the success of any guess with prior 1/2 about the secrets."""
        return posterior_success(self.total.mi_nats, 0.5)

    @property
    def ever_used_prior(self) -> float:
        """How well a blind guess does at whether a record was used in any of the fits."""
        return 1.0 - 2.0**-self.total.n_releases

    def __str__(self) -> str:
        rows = [*self.candidates, ("refit", self.refit), ("total", self.total)]
        lines = [
            f"{at_most(cost.mi_nats, significant=4):>10} nats  "
            f"{cost.n_releases:>4} releases  {name}"
            for name, cost in rows
        ]
        lines.append(
            f"Each fit has a secret of its own: no attacker guesses whether one record was used in "
            f"one given fit with success above {percent_at_most(self.total.membership)} %. That it "
            f"was used in some fit is likely beforehand ({100 * self.ever_used_prior:.4g} %)."
        )
        return "\n".join(lines)

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        return {
            "schema_version": SCHEMA_VERSION,
            "candidates": [{"params": name, **asdict(cost)} for name, cost in self.candidates],
            "refit": asdict(self.refit),
            "total": asdict(self.total),
            "any_inference": self.any_inference,
            "ever_used_prior": self.ever_used_prior,
            "certificate": self.certificate and self.certificate.to_public_dict(),
        }
