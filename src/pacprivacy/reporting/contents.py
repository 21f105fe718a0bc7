"""What a report shows, gathered from a release as plain data: the page computes nothing.

Everything in :class:`CuratorFigures` is for the curator; a page without it is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from pacprivacy._random import public_generator
from pacprivacy._rounding import two_digits
from pacprivacy._values import Row as Row
from pacprivacy.adversary import membership_draws, membership_risk, noiseless_membership
from pacprivacy.audit import AuditResult
from pacprivacy.budget import Membership
from pacprivacy.errors import CertificateError
from pacprivacy.noise import propose_rule_variance
from pacprivacy.release import (
    Bundle,
    CertificateNoise,
    PoolCertificate,
)
from pacprivacy.session import QueryAnswer
from pacprivacy.theory import posterior_success

N_PRIORS: Final = 100
STOPS: Final = (0.52, 0.55, 0.60, 0.65, 0.70, 0.80, 0.90)
ROOM: Final = 0.01  # a stop that is nearer to the release's own bound shows nothing new
LEARNED: Final = (
    "The promise is an average over secrets and noise: in one run readers may learn more than it "
    "says, in another less. What they learned in this run is for the curator, and is no promise."
)
CURVE: Final = "noise against budget: estimated from all {units}, rounded up to two digits"
RISK_BINS: Final = 24
RISK_DRAWS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Noise under one bound on membership success, in times that of the release; public."""

    success: float
    times_noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilityCurve:
    """Noise against budget, by increasing success; ``start`` is the release itself; public."""

    points: tuple[CurvePoint, ...]
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStep:
    """One release of a session; public, but for what was learned up to it in this run."""

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
    """Risk of the units as a histogram; curator-only."""

    unit_success_edges: tuple[float, ...] = ()
    unit_success_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a reader asks first and no certificate knows; each may be empty; public."""

    title: str = ""
    by: str = ""
    dataset: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report shows; public but for ``curator`` and the units of ``audit``.

    ``values`` are the released numbers by name; ``value_text`` stands for what has none; ``answer``
    is there for a query. ``any_inference`` is the bound on an arbitrary guess over a grid of
    priors.
    """

    certificate: PoolCertificate
    about: About = About()
    values: tuple[Row, ...] = ()
    value_text: str = ""
    answer: QueryAnswer | None = None
    any_inference: tuple[tuple[float, float], ...]
    curve: UtilityCurve | None = None
    session: SessionFigures | None = None
    audit: tuple[AuditResult, ...] = ()
    curator: CuratorFigures | None = None

    def to_public(self) -> Self:
        """Return the same report without what only the curator may see."""
        audit, session = tuple(replace(result, unit=None) for result in self.audit), self.session
        if session is not None:
            steps = (replace(s, learned_nats=None, best_guess=None) for s in session.steps)
            session = replace(session, steps=tuple(steps))
        return replace(self, curator=None, audit=audit, session=session)


def build_report_contents(
    certificate: PoolCertificate,
    *,
    bundle: Bundle | None = None,
    curve: bool = False,
    curator: bool = False,
    session: Sequence[PoolCertificate] = (),
    audit: Sequence[AuditResult] = (),
    about: About | None = None,
    values: tuple[Row, ...] = (),
    value_text: str = "",
    answer: QueryAnswer | None = None,
) -> ReportData:
    """Return the data of a report.

    Claim R-9: without ``curve`` and ``curator`` the bundle is not looked at; what is shown is a
    function of what was published.
    """
    data = ReportData(
        certificate=certificate,
        about=About() if about is None else about,
        values=values,
        value_text=value_text,
        answer=answer,
        any_inference=_any_inference(certificate.mi_upper_nats),
        curve=None if bundle is None or not curve else _utility_curve(certificate, bundle),
        session=report_session_figures([certificate, *session]),
        audit=tuple(audit),
        curator=None if bundle is None or not curator else _curator_figures(certificate, bundle),
    )
    return data if curator else data.to_public()


def _any_inference(mi_nats: float) -> tuple[tuple[float, float], ...]:
    """Return the bound on an arbitrary guess over a grid of priors."""
    near_zero = np.geomspace(1e-4, 0.005, 16)[:-1]  # where the curve is steep
    priors = np.concatenate([near_zero, np.linspace(0.005, 0.995, N_PRIORS)])
    success = posterior_success(mi_nats, priors)
    return tuple(zip(priors.tolist(), success.tolist(), strict=True))


def check_report_contents(certificate: PoolCertificate, bundle: Bundle) -> None:
    """Refuse a bundle of another release; ``pac verify`` checks much more."""
    noise = CertificateNoise.of(bundle.grid_step, bundle.units_per_std).rounded()
    stated = certificate.noise.rounded()
    ours = (certificate.n_subsets, certificate.n_units, certificate.dimension, stated)
    shape = (bundle.pool.n_subsets, bundle.pool.n_units, bundle.outputs.shape[1], noise)
    if ours != shape:
        raise CertificateError(
            "bundle must be of this release; its pool or its noise is another. "
            "Pass the curator.npz that was written beside the release."
        )


def _utility_curve(certificate: PoolCertificate, bundle: Bundle) -> UtilityCurve | None:
    """Propose noise for a grid of bounds; None in a session, and where there is no noise."""
    bound_here = certificate.membership_bound
    if certificate.composition or bundle.iid_rule is not None or not 0.5 < bound_here < 1:
        return None
    bounds = sorted([bound_here, *(stop for stop in STOPS if abs(stop - bound_here) > ROOM)])
    variances = [
        # A fixed seed: the bundle's is not for readers, not even through the last digits.
        propose_rule_variance(bundle.outputs, Membership(bound), pool=bundle.pool, rng=0)
        for bound in bounds
    ]
    start = bounds.index(bound_here)
    if not variances[start] > 0:
        return None
    times = [two_digits(float(np.sqrt(variance / variances[start]))) for variance in variances]
    points = [
        CurvePoint(success=bound, times_noise=factor)
        for bound, factor in zip(bounds, times, strict=True)
    ]
    return UtilityCurve(points=tuple(points), start=start)


def _curator_figures(certificate: PoolCertificate, bundle: Bundle) -> CuratorFigures:
    edges, counts = _unit_histogram(certificate, bundle)
    return CuratorFigures(unit_success_edges=edges, unit_success_counts=counts)


def _unit_histogram(
    certificate: PoolCertificate, bundle: Bundle
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Count units by the success of the best attacker on them; for pools that are known."""
    if bundle.iid_rule is not None:
        return (), ()
    if len(bundle.units_per_std) == 0:
        per_unit = noiseless_membership(bundle.pool, bundle.log_p, bundle.groups).per_unit
    else:
        draws = min(RISK_DRAWS, membership_draws(bundle.pool.n_subsets))
        per_unit = membership_risk(
            bundle.view,
            bundle.pool,
            n_draws=draws,
            gamma=1e-3,
            rng=public_generator(bundle.seed, "report-units"),
        ).per_unit
    low = min(0.5, float(per_unit.min()))
    high = max(certificate.membership_bound, float(per_unit.max()), low + 1e-3)
    counts, edges = np.histogram(per_unit, bins=RISK_BINS, range=(low, high))
    return tuple(edges.tolist()), tuple(counts.tolist())


def report_session_figures(certificates: Sequence[PoolCertificate]) -> SessionFigures | None:
    """Return what a session spent, from the certificates of its releases."""
    facts = [(c.composition or {}, c.mechanism) for c in certificates]
    known = {f["release_number"]: (f, name) for f, name in facts if "spent_nats_so_far" in f}
    if not known:
        return None
    steps = tuple(
        SessionStep(
            number=int(number),
            mechanism=name,
            spent_nats=float(f["spent_nats_so_far"]),
            spent_success=f.get("spent_increments_so_far"),
            learned_nats=f.get("learned_nats"),
            best_guess=f.get("best_guess_now"),
        )
        for number, (f, name) in sorted(known.items())
    )
    last = known[max(known)][0]
    return SessionFigures(
        steps=steps,
        total_nats=last.get("total_nats"),
        total_success=last.get("total_success"),
        success_bound=float(last.get("session_success_bound", 1.0)),
    )
