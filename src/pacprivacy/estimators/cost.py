"""What the fits of a search have released, one by one and together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.budget import Spent
from pacprivacy.release import Certificate
from pacprivacy.theory import posterior_success

SCHEMA_VERSION: Final = 2
NO_FIT: Final = Spent(mi_nats=0.0, success_level=0.5)


def spent_by(certificate: Certificate) -> Spent:
    """Read what one release spent off its certificate."""
    return Spent(
        n_releases=1,
        mi_nats=certificate.mi_upper_nats,
        success_level=certificate.membership_bound,
        doubt=1.0 - certificate.confidence,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCost:
    """What a whole search has released; every field is public.

    Parameters
    ----------
    candidates : tuple of (str, Spent)
        Each candidate's parameters, and what its fits on all folds spent. Every fit has a secret
        of its own; ``success_level`` bounds the guess of membership in one of the subsets.
    refit : Spent
        The fit of the best candidate on all records.
    total : Spent
        The sum.
    certificate : Certificate, optional
        That of the best model, with the total of the search in its ``composition``.

    Examples
    --------
    >>> from pacprivacy.budget import Spent
    >>> fit = Spent(n_releases=2, mi_nats=0.25, success_level=0.6)
    >>> refit = Spent(n_releases=1, mi_nats=0.125, success_level=0.6)
    >>> cost = SearchCost(candidates=(("C=1", fit),), refit=refit, total=fit + refit)
    >>> cost.total.mi_nats, cost.ever_used_prior
    (0.375, 0.875)
    """

    candidates: tuple[tuple[str, Spent], ...]
    refit: Spent
    total: Spent
    certificate: Certificate | None = field(default=None, repr=False)

    @property
    def any_inference(self) -> float:
        """Bound on the success of any guess with prior 1/2 about the secrets."""
        assert self.total.mi_nats is not None  # every fit states it
        return posterior_success(self.total.mi_nats, 0.5)

    @property
    def ever_used_prior(self) -> float:
        """How well a blind guess does at whether a record was used in any of the fits."""
        return 1.0 - 2.0**-self.total.n_releases

    def __str__(self) -> str:
        rows = [*self.candidates, ("refit", self.refit), ("total", self.total)]
        lines = [
            f"{at_most(cost.mi_nats or 0.0, significant=4):>10} nats  "
            f"{cost.n_releases:>4} releases  {name}"
            for name, cost in rows
        ]
        level = percent_at_most(self.total.success_level or 1.0)
        lines.append(
            f"Each fit has a secret of its own: no attacker guesses whether one record was used in "
            f"one given fit with success above {level} %. That it "
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
