"""What a report shows, as plain data: the page draws it and computes nothing.

Everything in :class:`CuratorFigures` is for the curator; a page without it is public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from pacprivacy.audit import AuditResult
from pacprivacy.release import Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Noise that one bound on membership success asks for; public.

    Parameters
    ----------
    success : float
        Bound on the success of guessing one unit's membership.
    total_variance : float
        Expected squared length of the noise.
    noise_rms : float
        Root mean square of the noise on one released number.
    """

    success: float
    total_variance: float
    noise_rms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilityCurve:
    """Noise against budget, by increasing success; public.

    Parameters
    ----------
    points : tuple of CurvePoint
        The stops of the slider.
    start : int
        The stop that is nearest to the release.
    """

    points: tuple[CurvePoint, ...]
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStep:
    """One release of a session; public.

    ``learned_nats`` and ``best_guess`` are what the values that left have really told, up to this
    one: the attacker can compute them too.
    """

    number: int
    mechanism: str
    spent_nats: float
    spent_success: float | None = None
    learned_nats: float | None = None
    best_guess: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """What a session had spent after each of its releases; public."""

    steps: tuple[SessionStep, ...]
    total_nats: float | None
    total_success: float | None
    success_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorFigures:
    """What only the curator may see; curator-only.

    Parameters
    ----------
    noise_std : tuple of float
        Standard deviation of the noise along each direction, largest first; at most
        ``n_shown`` of them, evenly picked.
    n_directions : int
        How many there are.
    unit_success_edges, unit_success_counts : tuple
        Histogram of the best attacker's success over the units.
    typical_errors : tuple of float
        For each stop of the slider, root mean square distance of a released number from its mean
        over all candidate subsets: sampling and noise together.
    sampling_error : float
        The same without noise.
    """

    noise_std: tuple[float, ...] = ()
    n_directions: int = 0
    unit_success_edges: tuple[float, ...] = ()
    unit_success_counts: tuple[int, ...] = ()
    typical_errors: tuple[float, ...] = ()
    sampling_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report shows.

    Parameters
    ----------
    certificate : Certificate, public
        What is promised.
    any_inference : tuple of (prior, success), public
        The bound on an arbitrary guess over a grid of priors.
    curve : UtilityCurve, public, optional
        Noise against budget.
    session : SessionFigures, public, optional
        What the session spent.
    audit : tuple of AuditResult, public
        What attacks achieved on simulated releases.
    curator : CuratorFigures, curator-only, optional
        Left out of the public page.
    """

    certificate: Certificate
    any_inference: tuple[tuple[float, float], ...]
    curve: UtilityCurve | None = None
    session: SessionFigures | None = None
    audit: tuple[AuditResult, ...] = ()
    curator: CuratorFigures | None = None

    def to_public(self) -> Self:
        """Return the same report without what only the curator may see."""
        audit = tuple(replace(result, unit=None) for result in self.audit)
        return replace(self, curator=None, audit=audit)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """What one budget would cost, before anything is spent; curator-only.

    Parameters
    ----------
    budget : str
        The budget in words.
    total_variance : float
        Expected squared length of the noise.
    noise_rms : float
        Root mean square of the noise on one number.
    distance : float
        Root mean square distance of one released number from the answer on all records: sampling
        and noise together.
    """

    budget: str
    total_variance: float
    noise_rms: float
    distance: float
