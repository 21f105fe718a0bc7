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
from pacprivacy.adversary import membership_draws, membership_risk
from pacprivacy.audit import AuditResult
from pacprivacy.budget import Membership
from pacprivacy.errors import CertificateError
from pacprivacy.noise import propose_variance
from pacprivacy.release import (
    Bundle,
    Certificate,
    Row,
    noise_summary,
    noiseless_membership,
    times_least,
)
from pacprivacy.theory import posterior_success

N_PRIORS: Final = 100
STOPS: Final = (0.52, 0.55, 0.60, 0.65, 0.70, 0.80, 0.90)
ROOM: Final = 0.01  # a stop so near to the blind guess would need noise without end
SHOWN_DIRECTIONS: Final = 64
RISK_BINS: Final = 24
RISK_DRAWS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Noise that one bound on membership success asks for, in all and per number; public."""

    success: float
    total_variance: float
    noise_rms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilityCurve:
    """Noise against budget, by increasing success; ``start`` is nearest to the release; public."""

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
        Standard deviation of the noise along each of ``n_directions`` directions, largest first;
        where they are many, some of them, evenly picked.
    unit_success_edges, unit_success_counts : tuple
        Histogram of the best attacker's success over the units.
    typical_errors : tuple of float
        For each stop of the slider, root mean square distance of a released number from its mean
        over all candidate subsets: sampling and noise together.
    sampling_error : float
        The same without noise.
    times_least : float or None
        How many times the least variance of any noise this one has, at most.
    """

    noise_std: tuple[float, ...] = ()
    n_directions: int = 0
    unit_success_edges: tuple[float, ...] = ()
    unit_success_counts: tuple[int, ...] = ()
    typical_errors: tuple[float, ...] = ()
    sampling_error: float | None = None
    times_least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report shows; public but for ``curator`` and the units of ``audit``.

    ``values`` are the first released numbers by name, with their error bars; ``any_inference`` is
    the bound on an arbitrary guess over a grid of priors.
    """

    certificate: Certificate
    values: tuple[Row, ...] = ()
    any_inference: tuple[tuple[float, float], ...]
    curve: UtilityCurve | None = None
    session: SessionFigures | None = None
    audit: tuple[AuditResult, ...] = ()
    curator: CuratorFigures | None = None

    def to_public(self) -> Self:
        """Return the same report without what only the curator may see."""
        audit = tuple(replace(result, unit=None) for result in self.audit)
        return replace(self, curator=None, audit=audit)


def build_report(
    certificate: Certificate,
    *,
    values: Sequence[Row] = (),
    bundle: Bundle | None = None,
    curve: bool = True,
    curator: bool = False,
    session: Sequence[Certificate] = (),
    audit: Sequence[AuditResult] = (),
) -> ReportData:
    """Return the data of a report."""
    drawn = None
    if bundle is not None and curve and bundle.iid_rule is None:
        drawn = _utility_curve(certificate, bundle)
    figures = None
    if curator and bundle is not None:
        figures = _curator_figures(certificate, bundle, drawn)
    found = ReportData(
        certificate=certificate,
        values=tuple(values),
        any_inference=_any_inference(certificate.mi_upper_nats),
        curve=drawn,
        session=session_figures([certificate, *session]),
        audit=tuple(audit),
        curator=figures,
    )
    return found if curator else found.to_public()


def _any_inference(mi_nats: float) -> tuple[tuple[float, float], ...]:
    """Return the bound on an arbitrary guess over a grid of priors."""
    near_zero = np.geomspace(1e-4, 0.005, 16)[:-1]  # where the curve is steep
    priors = np.concatenate([near_zero, np.linspace(0.005, 0.995, N_PRIORS)])
    success = posterior_success(mi_nats, priors)
    return tuple(zip(priors.tolist(), success.tolist(), strict=True))


def check_belongs(certificate: Certificate, bundle: Bundle) -> None:
    """Refuse a bundle of another release; ``pac verify`` checks much more."""
    noise = noise_summary(bundle.grid_step, bundle.units_per_std).rounded()
    said = certificate.noise.rounded()
    ours = (certificate.n_subsets, certificate.n_units, certificate.dimension, said)
    shape = (bundle.pool.n_subsets, bundle.pool.n_units, bundle.outputs.shape[1], noise)
    if ours != shape:
        raise CertificateError(
            "bundle must be of this release; its pool or its noise is another. "
            "Pass the curator.npz that was written beside the release."
        )


def _utility_curve(certificate: Certificate, bundle: Bundle) -> UtilityCurve | None:
    """Propose noise for a grid of bounds; about a fresh secret, before any release."""
    least = 0.5 + ROOM
    bounds = [stop for stop in STOPS if stop >= least]
    points = []
    for success in bounds:
        # A fixed seed: the bundle's is not for readers, not even through the last digits.
        found = propose_variance(bundle.outputs, Membership(success), pool=bundle.pool, rng=0)
        variance = two_digits(found)
        rms = two_digits(float(np.sqrt(variance / bundle.outputs.shape[1])))
        points.append(CurvePoint(success=success, total_variance=variance, noise_rms=rms))
    if len(points) < 2 or not points[0].noise_rms > 0:
        return None
    distance = [abs(point.success - certificate.membership_bound) for point in points]
    return UtilityCurve(points=tuple(points), start=int(np.argmin(distance)))


def _curator_figures(
    certificate: Certificate, bundle: Bundle, curve: UtilityCurve | None
) -> CuratorFigures:
    std = np.sort(bundle.grid_step * bundle.units_per_std)[::-1]
    picked = np.linspace(0, len(std) - 1, min(len(std), SHOWN_DIRECTIONS)).round().astype(int)
    weights = np.exp(bundle.log_p)
    centred = bundle.outputs - weights @ bundle.outputs
    sampling = float((weights @ np.square(centred)).mean())
    edges, counts = _unit_histogram(certificate, bundle)
    return CuratorFigures(
        noise_std=tuple(std[picked].tolist()),
        n_directions=len(std),
        unit_success_edges=edges,
        unit_success_counts=counts,
        typical_errors=()
        if curve is None
        else tuple(float(np.sqrt(sampling + p.noise_rms**2)) for p in curve.points),
        sampling_error=float(np.sqrt(sampling)),
        times_least=times_least(bundle),
    )


def _unit_histogram(
    certificate: Certificate, bundle: Bundle
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


def session_figures(certificates: Sequence[Certificate]) -> SessionFigures | None:
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
