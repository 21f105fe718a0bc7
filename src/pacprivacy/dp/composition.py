"""What ran on the same records, told by events, by certificates or by releases.

Every certificate of differential privacy carries the events of its mechanism. Here they are read
again, checked against the relation that is asked for, and equal ones are counted together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from scipy import special

from pacprivacy.dp.certificate import NEIGHBOURS, DPCertificate, DPRelease, Neighbours
from pacprivacy.dp.events import (
    ApproximateEvent,
    Event,
    FixedSampling,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampling,
    PureEvent,
    ReplacementSampling,
    Sampling,
)
from pacprivacy.dp.noise import lattice_distance, lattice_parameter
from pacprivacy.errors import BudgetError, CertificateError

_SAMPLINGS: Final = {law.kind: law for law in (PoissonSampling, FixedSampling, ReplacementSampling)}
_EVENTS: Final = {
    law.kind: law for law in (GaussianEvent, LaplaceEvent, PureEvent, ApproximateEvent)
}
Told: TypeAlias = Event | DPCertificate | DPRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """Events on the same records, equal ones counted together, and the relation they are about."""

    events: tuple[Event, ...]
    neighbours: Neighbours
    simulation: bool


def read_composed(told: Told | Iterable[Told], neighbours: Neighbours | None) -> Composed:
    """Read what ran; the relation is that of the certificates unless it is given."""
    listed = list(told) if isinstance(told, Iterable) else [told]
    certificates = [found for item in listed if (found := _certificate(item)) is not None]
    relations = {certificate.neighbours for certificate in certificates}
    if neighbours is None:
        neighbours = relations.pop() if len(relations) == 1 else "add_remove"
    if neighbours not in NEIGHBOURS:
        raise BudgetError(
            f"neighbours must be 'add_remove' or 'replace'; got {neighbours!r}. Name one."
        )
    if relations - {neighbours}:
        raise CertificateError(
            f"certificates must all be about neighbours={neighbours!r} to be composed; got "
            f"{', '.join(sorted(relations))!r}. Release all of them under one relation."
        )
    counts: Counter[Event] = Counter()
    for item in listed:
        certificate = _certificate(item)
        told_events: list[Any] = [item] if certificate is None else [*events_of(certificate)]
        for event in told_events:
            check_relation(event, neighbours)
            counts[replace(event, count=1)] += int(event.count)
    if not counts:
        raise BudgetError("events must hold at least one event. Pass what was run.")
    return Composed(
        events=tuple(replace(event, count=count) for event, count in counts.items()),
        neighbours=neighbours,
        simulation=any(certificate.simulation for certificate in certificates),
    )


def read_events(told: Told | Iterable[Told], neighbours: Neighbours) -> list[Event]:
    """Return what ran as a list of events; refuse those that the relation does not fit."""
    return list(read_composed(told, neighbours).events)


def events_of(certificate: DPCertificate) -> list[Event]:
    """Return the events of a certificate; its promise as one event if it carries none.

    Guarantee
    ---------
    Claim DP-20. What was released is as private as these events, fixed before it ran.

    Examples
    --------
    >>> certificate = DPCertificate(
    ...     epsilon=1.0, delta=0.0, neighbours="replace", mechanism="something pure"
    ... )
    >>> events_of(certificate)
    [PureEvent(epsilon=1.0, count=1, sampling=None)]
    """
    if certificate.events:
        return [event_from_dict(plain) for plain in certificate.events]
    if certificate.kind != "dp" or math.isinf(certificate.epsilon):
        raise CertificateError(
            "certificate must carry its events, or a promise that was fixed beforehand, to be "
            f"composed; got kind {certificate.kind!r} with epsilon {certificate.epsilon:g} and no "
            "events. Release again with this version."
        )
    if certificate.delta == 0.0:
        return [PureEvent(epsilon=certificate.epsilon)]
    return [ApproximateEvent(epsilon=certificate.epsilon, delta=certificate.delta)]


def event_from_dict(plain: Any) -> Event:
    """Rebuild an event from what a certificate carries."""
    try:
        fields = dict(plain)
        law = _EVENTS[fields.pop("event")]
        if fields.get("sampling") is not None:
            drawn = dict(fields["sampling"])
            fields["sampling"] = _SAMPLINGS[drawn.pop("kind")](**drawn)
        return law(**fields)
    except (BudgetError, KeyError, TypeError, ValueError):
        raise CertificateError(
            "events must be those that a certificate was written with: a known kind and its "
            "numbers. Use the file as it was written."
        ) from None


def carried(*events: Event) -> tuple[dict[str, Any], ...]:
    """Return events as a certificate carries them."""
    return tuple(event.to_public_dict() for event in events)


def gaussian_event(parameter: float, n_numbers: int) -> GaussianEvent:
    """Return the event of discrete Gaussian noise of parameter ``μ``, rounded to less noise."""
    return GaussianEvent(noise_multiplier=(1.0 - 2.0**-48) / parameter, n_numbers=int(n_numbers))


def noise_event(epsilon: float, delta: float, n_numbers: int) -> Event:
    """Return the event of so many numbers with the discrete noise that ``(ε, δ)`` asks for.

    Gaussian of :func:`~pacprivacy.dp.noise.lattice_parameter`, or Laplace for ``delta = 0``.
    """
    if delta:
        return gaussian_event(lattice_parameter(epsilon, delta, n_numbers), n_numbers)
    if n_numbers == 1:
        return LaplaceEvent(noise_multiplier=(1.0 - 2.0**-48) / float(epsilon), n_numbers=1)
    return PureEvent(epsilon=float(epsilon))


def check_relation(event: Event, neighbours: Neighbours) -> None:
    """Refuse a way of sampling about which nothing is known under the relation.

    Guarantee
    ---------
    Claim DP-4 holds for what passes.
    """
    if not isinstance(event, GaussianEvent | LaplaceEvent | PureEvent | ApproximateEvent):
        raise BudgetError(
            "events must be events, certificates or releases of differential privacy; got "
            f"{type(event).__name__}. Use GaussianEvent, LaplaceEvent, PureEvent."
        )
    sampling = event.sampling
    if isinstance(sampling, PoissonSampling):
        if neighbours == "replace" and sampling.removal is None:
            raise BudgetError(
                "removal must be given for Poisson batches under 'replace': how far removing a "
                "record moves the numbers, over how far replacing one does; got None. Use "
                "PoissonSampling(rate=..., removal=0.5) for sums of rows clipped to a norm."
            )
        if neighbours == "add_remove" and sampling.removal is not None:
            raise BudgetError(
                "removal must be left out under 'add_remove', where noise is relative to the "
                f"removal itself; got {sampling.removal!r}. Leave it out, or use 'replace'."
            )
    elif sampling is not None and neighbours == "add_remove":
        raise BudgetError(
            "neighbours must be 'replace' for batches of a fixed size, which need a public "
            "number of records; got 'add_remove'. Use PoissonSampling, or 'replace'."
        )


def pure_loss(event: Event) -> float | None:
    """Return the ``ε`` of one run on its sample, if its loss is never exceeded; None otherwise.

    Guarantee
    ---------
    Claim DP-4, at ``δ = 0``.
    """
    pure, sampling = event.pure_epsilon, event.sampling
    if pure is None or sampling is None:
        return pure
    if isinstance(sampling, ReplacementSampling) and sampling.batch_size > 1:
        return None
    removal = sampling.removal if isinstance(sampling, PoissonSampling) else None
    drawn = pure * max(1.0, removal or 0.0)  # whether the record is in, or what it says
    return min(pure, math.log1p(sampling.rate * math.expm1(drawn))) if drawn < 700 else pure


def grid_distance(events: Iterable[Event]) -> float:
    """Return how far the discrete noise of all runs is from continuous noise in total."""
    return math.fsum(
        lattice_distance(
            event.count * event.n_numbers,
            law="laplace" if isinstance(event, LaplaceEvent) else "gaussian",
        )
        for event in events
    )


def gaussian_square(event: Event) -> Fraction | None:
    """Return the ``μ²`` of a Gaussian mechanism that dominates one run; None if none is known.

    Guarantee
    ---------
    Claim DP-21.
    """
    if isinstance(event, GaussianEvent):
        return None if event.sampling is not None else 1 / Fraction(event.noise_multiplier) ** 2
    loss = pure_loss(event)
    if loss is None:
        return None
    # The trade-off of a pure mechanism lies above the Gaussian curve through its corner.
    return Fraction(-2.0 * float(special.ndtri(special.expit(-loss))) * (1.0 + 1e-12)) ** 2


def covers(token: Event, event: Event) -> bool:
    """Tell whether one run of ``token`` is nowhere more private than one of ``event``.

    Guarantee
    ---------
    Claim DP-21.
    """
    if replace(event, count=token.count) == token:
        return True
    if isinstance(token, PureEvent | ApproximateEvent):
        loss = pure_loss(event)
        if isinstance(token, ApproximateEvent) and isinstance(event, ApproximateEvent):
            return event.epsilon <= token.epsilon and event.delta <= token.delta
        limit = pure_loss(token) if isinstance(token, PureEvent) else token.epsilon
        return loss is not None and limit is not None and loss <= limit
    if type(token) is not type(event) or not isinstance(event, GaussianEvent | LaplaceEvent):
        return False
    if isinstance(event, LaplaceEvent) and event.n_numbers > token.n_numbers:
        return False  # the grid of a Laplace law is paid for where it is reserved
    return event.noise_multiplier >= token.noise_multiplier and _sampled_less(
        token.sampling, event.sampling
    )


def _certificate(item: Any) -> DPCertificate | None:
    if isinstance(item, DPCertificate):
        return item
    for name in ("certificate", "certificate_"):  # of a release, of a fitted estimator
        found = getattr(item, name, None)
        if isinstance(found, DPCertificate):
            return found
    return None


def _sampled_less(token: Sampling | None, event: Sampling | None) -> bool:
    if isinstance(token, PoissonSampling) and isinstance(event, PoissonSampling):
        return event.rate <= token.rate and (event.removal or 0.0) <= (token.removal or 0.0)
    return token == event
