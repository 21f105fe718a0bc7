"""Input of an accountant: which mechanism ran, how often, on which sample.

An event is plain data, which certificates carry as JSON. dp-accounting's own events have no place
for the price of a grid (``n_numbers``), nor for mechanisms of which only an ``ε``, or ``(ε, δ)``,
is known.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
import numpy as np
import scipy
from msgspec.structs import replace

from pacprivacy._checks import Vector, check_positive
from pacprivacy.dp.certificate import DPCertificate, DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.noise import check_count, dp_noise_distance, dp_noise_parameter
from pacprivacy.errors import BudgetError, CertificateError

_TAIL = 1e-18  # mass of rare repetitions that is counted as lost entirely


class _Sampling(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    pass


class PoissonSampling(_Sampling, kw_only=True, frozen=True, tag="poisson"):
    """Each record is in with probability ``rate``, independently; for ``add_remove``."""

    rate: float

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise BudgetError(f"rate must be in (0, 1]; got {self.rate!r}. Use batch size / n.")


class BatchSampling(_Sampling, kw_only=True, frozen=True):
    """``batch_size`` of a public number of records; for the relation ``replace``."""

    n_records: int
    batch_size: int

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.n_records or self.n_records < 2:
            raise BudgetError(
                f"batch_size must be from 1 to n_records; got {self.batch_size} of "
                f"{self.n_records}. Use a smaller batch."
            )


class FixedSampling(BatchSampling, kw_only=True, frozen=True, tag="fixed"):
    """A uniform subset of ``batch_size`` of ``n_records``."""

    @property
    def rate(self) -> float:
        return self.batch_size / self.n_records


class ReplacementSampling(BatchSampling, kw_only=True, frozen=True, tag="with replacement"):
    """``batch_size`` independent draws from ``n_records``."""

    @property
    def rate(self) -> float:
        return -math.expm1(self.batch_size * math.log1p(-1.0 / self.n_records))

    @property
    def repetitions(self) -> dict[int, float]:
        """Probability that a record is in the batch so many times; the far tail is left out."""
        from scipy.stats import binom  # slow to import, not always needed

        law = binom(self.batch_size, 1.0 / self.n_records)
        most = 1
        while most < self.batch_size and law.sf(most) > _TAIL:
            most += 1
        return {k: float(law.pmf(k)) for k in range(1, most + 1)}


Sampling: TypeAlias = PoissonSampling | FixedSampling | ReplacementSampling


class _Event(msgspec.Struct, frozen=True, tag_field="event", forbid_unknown_fields=True):
    pass


class _NoiseEvent(_Event, kw_only=True, frozen=True):
    noise_multiplier: float
    count: int = 1
    sampling: Sampling | None = None
    n_numbers: int = 0

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier, advice="Use about 1.")
        check_count("count", self.count)
        check_count("n_numbers", self.n_numbers, least=0)


class GaussianEvent(_NoiseEvent, kw_only=True, frozen=True, tag="gaussian"):
    """Gaussian noise, ``count`` times.

    ``noise_multiplier`` is the standard deviation over the Euclidean sensitivity, of the relation
    that is accounted for. For sums of contributions of norm up to ``C`` that sensitivity is ``C``
    under ``add_remove`` and ``2C`` under ``replace``. ``n_numbers`` says how many numbers each run
    gave *discrete* noise from :mod:`pacprivacy.dp.noise`, whose grid is paid for from ``δ``.
    """

    pure_epsilon: ClassVar[None] = None  # the loss has no bound

    def profile(self, epsilon: Vector, repeats: float = 1) -> Vector:
        """Least ``δ`` of one run without sampling, for ``repeats`` times the sensitivity."""
        parameter = repeats / self.noise_multiplier
        first = scipy.special.log_ndtr(parameter / 2 - epsilon / parameter)
        second = epsilon + scipy.special.log_ndtr(-parameter / 2 - epsilon / parameter)
        return np.asarray(-np.exp(first) * np.expm1(np.minimum(0.0, second - first)))


class LaplaceEvent(_NoiseEvent, kw_only=True, frozen=True, tag="laplace"):
    """Laplace noise, on one number or on several that move together; fields as of a Gaussian one.

    ``noise_multiplier`` is the scale ``b`` over the sensitivity: ``1 / ε``. Several numbers with
    one noise scale, and a sensitivity in the sum of absolute changes, are at least as private as
    one number that moves by all of it (claim DP-30). ``n_numbers`` is 1 if the noise is discrete.
    """

    @property
    def pure_epsilon(self) -> float | None:
        return 1.0 / self.noise_multiplier

    def profile(self, epsilon: Vector, repeats: float = 1) -> Vector:
        largest = repeats / self.noise_multiplier
        return np.asarray(-np.expm1(np.minimum(0.0, (epsilon - largest) / 2.0)))


class PureEvent(_Event, kw_only=True, frozen=True, tag="pure"):
    """Any mechanism that is ``(epsilon, 0)``-private, such as the exponential mechanism."""

    n_numbers: ClassVar[int] = 0  # a grid costs pure mechanisms nothing
    epsilon: float
    count: int = 1
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, advice="Use about 1.")
        check_count("count", self.count)

    @property
    def pure_epsilon(self) -> float | None:
        return self.epsilon

    def profile(self, epsilon: Vector, repeats: float = 1) -> Vector:
        """Largest ``δ`` of one run without sampling, for ``repeats`` times the loss."""
        largest = repeats * self.epsilon
        # (e^L - e^ε) / (1 + e^L), in a form that does not overflow.
        return np.asarray(
            -np.expm1(np.minimum(0.0, epsilon - largest)) / (1.0 + math.exp(-largest))
        )


class ApproximateEvent(_Event, kw_only=True, frozen=True, tag="approximate"):
    """Any mechanism that is ``(epsilon, delta)``-private, when nothing more is known of it."""

    n_numbers: ClassVar[int] = 0  # the grid is paid for in delta
    sampling: ClassVar[None] = None  # the promise is about all records
    pure_epsilon: ClassVar[None] = None  # the loss has no bound
    epsilon: float
    delta: float
    count: int = 1

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, advice="Use about 1.")
        if isinstance(self.delta, bool) or not 0.0 < self.delta < 1.0:
            raise BudgetError(
                f"delta must be between 0 and 1; got {self.delta!r}. Use PureEvent for 0."
            )
        check_count("count", self.count)


Event: TypeAlias = GaussianEvent | LaplaceEvent | PureEvent | ApproximateEvent
Accountable: TypeAlias = Event | DPCertificate | DPRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """Events on the same records, equal ones counted together, and the relation they are about."""

    events: tuple[Event, ...]
    neighbours: Neighbours
    simulation: bool


def read_events(
    items: Accountable | Iterable[Accountable], neighbours: Neighbours | None
) -> Composed:
    """Read the events; the relation is that of the certificates unless it is given."""
    listed = list(items) if isinstance(items, Iterable) else [items]
    certificates = [each for each in map(_certificate, listed) if each is not None]
    relations = {certificate.neighbours for certificate in certificates}
    if neighbours is None:
        neighbours = relations.pop() if len(relations) == 1 else "add_remove"
    check_neighbours(neighbours)
    if relations - {neighbours}:
        raise CertificateError(
            f"certificates must all be about neighbours={neighbours!r} to be composed; got "
            f"{', '.join(sorted(relations))!r}. Release all of them under one relation."
        )
    counts: Counter[Event] = Counter()
    for item in listed:
        for event in _events_in(item):
            check_event_relation(event, neighbours)
            counts[replace(event, count=1)] += int(event.count)
    if not counts:
        raise BudgetError("events must hold at least one event. Pass what was run.")
    return Composed(
        events=tuple(replace(event, count=count) for event, count in counts.items()),
        neighbours=neighbours,
        simulation=any(certificate.simulation for certificate in certificates),
    )


def _certificate(item: Any) -> DPCertificate | None:
    """Return the certificate of a release or of a fitted estimator, or the item if it is one."""
    holders = (item, getattr(item, "certificate", None), getattr(item, "certificate_", None))
    return next((each for each in holders if isinstance(each, DPCertificate)), None)


def _events_in(item: Any) -> list[Event]:
    certificate = _certificate(item)
    if certificate is not None:
        return events_of(certificate)
    if isinstance(item, Event):
        return [item]
    raise BudgetError(
        "events must be events, certificates or releases of differential privacy; got "
        f"{type(item).__name__}. Use GaussianEvent, LaplaceEvent, PureEvent."
    )


def events_of(certificate: DPCertificate) -> list[Event]:
    """Return the events of a certificate; its promise as one event if it carries none.

    Guarantee
    ---------
    Claim DP-20. The release is as private as these events, fixed before it ran.
    """
    if certificate.events:
        try:
            return msgspec.convert(certificate.events, list[Event])
        except (BudgetError, msgspec.ValidationError):
            raise CertificateError(
                "events must be those that a certificate was written with: a known kind and its "
                "numbers. Use the file as it was written."
            ) from None
    if certificate.kind != "dp" or math.isinf(certificate.epsilon):
        raise CertificateError(
            "certificate must carry its events, or a promise that was fixed beforehand, to be "
            f"composed; got kind {certificate.kind!r} with epsilon {certificate.epsilon:g} and no "
            "events. Release again with this version."
        )
    if certificate.delta == 0.0:
        return [PureEvent(epsilon=certificate.epsilon)]
    return [ApproximateEvent(epsilon=certificate.epsilon, delta=certificate.delta)]


def publish_event(
    value: Any,
    promise: tuple[float, float, Neighbours],
    *events: Event,
    simulation: bool,
    mechanism: str,
    assumptions: tuple[str, ...],
    accounting: dict[str, Any],
    noise: dict[str, float] | None = None,
    advantage: float | None = None,
    notes: tuple[str, ...] = (),
    kind: Literal["dp", "dp-ex-post"] = "dp",
) -> DPRelease:
    """Return a value under ``(ε, δ)`` and a relation, with the certificate that says so."""
    certificate = DPCertificate(
        epsilon=float(promise[0]),
        delta=float(promise[1]),
        neighbours=promise[2],
        events=tuple(
            msgspec.to_builtins(each, enc_hook=lambda number: number.item()) for each in events
        ),
        simulation=simulation,
        mechanism=mechanism,
        assumptions=assumptions,
        accounting=accounting,
        noise=noise,
        advantage=advantage,
        notes=notes,
        kind=kind,
    )
    return DPRelease(value=value, certificate=certificate)


def noise_event(epsilon: float, delta: float, n_numbers: int) -> Event:
    """Return the event of so many numbers with the discrete noise that ``(ε, δ)`` asks for."""
    if delta:
        parameter = dp_noise_parameter(epsilon, delta, n_numbers)  # rounded to less noise
        return GaussianEvent(noise_multiplier=(1.0 - 2.0**-48) / parameter, n_numbers=n_numbers)
    if n_numbers == 1:
        return LaplaceEvent(noise_multiplier=(1.0 - 2.0**-48) / float(epsilon), n_numbers=1)
    return PureEvent(epsilon=float(epsilon))


def check_event_relation(event: Event, neighbours: Neighbours) -> None:
    """Refuse a way of sampling to which claim DP-4 does not apply under the relation."""
    if isinstance(event.sampling, PoissonSampling) and neighbours == "replace":
        raise BudgetError(
            "neighbours must be 'add_remove' for Poisson batches: whether a record was drawn may "
            "show more than what it says; got 'replace'. Use FixedSampling, or 'add_remove'."
        )
    if isinstance(event.sampling, BatchSampling) and neighbours == "add_remove":
        raise BudgetError(
            "neighbours must be 'replace' for batches of a fixed size, which need a public "
            "number of records; got 'add_remove'. Use PoissonSampling, or 'replace'."
        )


def event_pure_loss(event: Event) -> float | None:
    """Return the ``ε`` of one run on its sample, if the loss never exceeds it (claim DP-4)."""
    pure, sampling = event.pure_epsilon, event.sampling
    if pure is None or sampling is None:
        return pure
    if isinstance(sampling, ReplacementSampling) and sampling.batch_size > 1:
        return None
    return min(pure, math.log1p(sampling.rate * math.expm1(pure))) if pure < 700 else pure


def event_grid_distance(events: Iterable[Event]) -> float:
    """Return the total distance of the discrete noise of all runs from continuous noise."""
    return math.fsum(
        dp_noise_distance(
            event.count * event.n_numbers,
            law="laplace" if isinstance(event, LaplaceEvent) else "gaussian",
        )
        for event in events
    )
