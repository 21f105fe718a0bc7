"""What a session has spent in the worst case, and what has really been learned."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from pacprivacy.accounting.shown import odometer_html
from pacprivacy.adversary import Belief
from pacprivacy.budget import Limits
from pacprivacy.noise.plan import Observation
from pacprivacy.pool import Pool
from pacprivacy.release import Certificate
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.composition import Spent, learned_facts

__all__ = ["Odometer", "Spent", "read_odometer", "with_belief"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    """What has been spent in the worst case, and what has really been learned so far; public.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> with pac.Session(data, budget=pac.Information(1), n_subsets=16) as session:
    ...     _ = session.release(np.mean, pac.Information(1 / 4), rule="waterfill")
    >>> seen = session.odometer()
    >>> seen.n_releases, seen.spent_nats <= 1 / 4
    (1, True)
    """

    n_releases: int
    spent_nats: float
    total_nats: float | None
    spent_success: float
    total_success: float | None
    learned_nats: float
    best_guess_now: float
    ever_used_prior: float | None

    def _repr_html_(self) -> str:
        return odometer_html(asdict(self))


def read_odometer(
    spent: Spent, total: Limits, belief: Belief | None, pool: Pool | None, *, fresh: bool
) -> Odometer:
    """Return what was spent in the worst case and what was really learned."""
    n = spent.n_releases
    learned, guess = 0.0, 0.5
    if belief is not None and pool is not None:
        learned, guess = belief.learned_nats, float(belief.success_per_unit(pool).max())
    return Odometer(
        n_releases=n,
        spent_nats=spent.nats,
        total_nats=total.mi_nats,
        spent_success=spent.success,
        total_success=total.success,
        learned_nats=learned,
        best_guess_now=guess,
        ever_used_prior=1 - 2.0**-n if fresh and n else None,
    )


def with_belief(
    certificate: Certificate, bundle: Bundle, observation: Observation, belief: Belief, pool: Pool
) -> tuple[Certificate, Bundle]:
    """Add to a certificate what its readers can have learned by now, and to the bundle why."""
    part, facts = bundle.session, certificate.composition
    assert part is not None  # of a session
    assert facts is not None  # likewise
    return (
        replace(certificate, composition={**facts, **learned_facts(belief, pool)}),
        replace(bundle, session=replace(part, observation=observation)),
    )
