"""Joint cost of events: ``ε`` at ``δ`` in three ways side by side, and the advantage.

Somebody tosses a coin for one of two neighbouring data sets, and the best attacker names the side
with probability ``(1 + a)/2``. The advantage ``a`` is the total variation distance of the two
outputs: ``δ(0)``, where the mechanism's privacy curve starts. Certificates are verified from the
events that they carry.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._rounding import at_most
from pacprivacy._values import Verified, verify
from pacprivacy.dp.certificate import NOT_PROMISED, ONE_RELEASE, DPCertificate, Neighbours
from pacprivacy.dp.events import (
    Accountable,
    ApproximateEvent,
    BatchSampling,
    Event,
    FixedSampling,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampling,
    PureEvent,
    ReplacementSampling,
    check_event_relation,
    event_grid_distance,
    event_pure_loss,
    events_of,
    read_events,
)
from pacprivacy.dp.noise import check_epsilon_delta, dp_noise_parameter, dp_noise_price
from pacprivacy.errors import BudgetError, CertificateError
from pacprivacy.theory import gaussian_epsilon, gaussian_equivalent

METHODS: Final[dict[str, str]] = {
    "basic": "sum of the ε of every run with a promise of its own",
    "renyi": "Rényi divergences over a grid of orders",
    "pld": "privacy-loss distributions, rounded to the safe side",
}
FINE: Final = 1e-4  # of privacy loss, between the atoms of a distribution; dp-accounting's own
COARSE: Final = 1e-3  # for searches and advantages; pessimistic as well, so the answer is safe
GRID_SHARE: Final = 2.0**-20  # part of δ kept for the grid, more only where that is too little
ORDERS: Final = (
    *(1 + i / 20 for i in range(1, 20)),
    *(2 + i / 4 for i in range(36)),
    *range(11, 64),
    *(64, 80, 96, 128, 192, 256, 384, 512, 1024, 4096),
)
_CUT: Final = 1e-4  # part of δ beyond which losses of the far tail count as infinite
_ROUNDED: Final = 1e-12  # more than a formula of a few float64 operations is off
_TAIL: Final = 1e-8  # δ at which the far tails of losses are cut off, for an advantage
_CALIBRATION: Final = 1e-3  # relative precision of the advantage that a calibration finds
_MOST_TRIALS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The ``ε`` of one sequence of mechanisms at one ``δ``, by method; None where one has none."""

    delta: float
    neighbours: Neighbours
    epsilons: dict[str, float | None]
    simulation: bool = False

    @property
    def best(self) -> tuple[str, float]:
        """The method with the least ``ε``, and that ``ε``; all of them hold."""
        known = {name: value for name, value in self.epsilons.items() if value is not None}
        name = min(known, key=lambda method: known[method])
        return name, known[name]

    def __str__(self) -> str:
        lines = [f"ε at δ = {self.delta:g}, {self.neighbours}"]
        if self.simulation:
            lines.append("SIMULATION: seeded randomness; nobody is protected.")
        for name, value in self.epsilons.items():
            figure = "unknown" if value is None else at_most(value, decimals=4)
            lines.append(f"{name:<9}{figure:>10}  {METHODS[name]}")
        return "\n".join(lines)


def account(
    events: Accountable | Iterable[Accountable],
    *,
    delta: float,
    neighbours: Neighbours | None = None,
    discretization: float = FINE,
) -> Accounts:
    """Account for mechanisms that ran on the same records.

    Parameters
    ----------
    events : Event, certificate or release, or several, public
        Certificates, releases and fitted estimators carry theirs.
    delta : float in [0, 1), public
        The ``δ`` of the promise; 0 for pure events only, whose ``ε`` then add up.
    neighbours : {"add_remove", "replace"}, public
        Relation of the promise, and of the sensitivity that noise multipliers are relative to. By
        default that of the certificates, and ``add_remove`` if there are only events.
    discretization : float, public
        Step of privacy-loss distributions.

    Guarantee
    ---------
    Claims DP-4, DP-5 and DP-20. Every figure is an upper bound on the loss, up to the arithmetic
    of dp-accounting. Computations may be chosen adaptively, events may not: they are fixed
    before any answer is seen.
    """
    composed = read_events(events, neighbours)
    ran, relation = composed.events, composed.neighbours
    if delta:
        _, delta = check_epsilon_delta(1.0, delta)
    figures: dict[str, float | None] = dict.fromkeys(METHODS)
    figures["basic"] = _basic(ran, delta)
    if delta:
        distance = event_grid_distance(ran)
        # Discrete Gaussian noise on all records has the divergences of continuous noise (DP-2).
        sampled = event_grid_distance(_split_gaussian(ran)[1])
        figures["renyi"] = _pay_for_grid(
            lambda at: renyi_epsilon(ran, at, relation), delta, sampled
        )
        figures["pld"] = _pay_for_grid(
            lambda at: pld_epsilon(ran, at, relation, discretization), delta, distance
        )
    elif figures["basic"] in (None, math.inf):
        raise BudgetError(
            "delta must be above 0 for Gaussian noise and for events with a delta of their own; "
            "got 0. Use below 1/n."
        )
    return Accounts(
        delta=delta, neighbours=relation, epsilons=figures, simulation=composed.simulation
    )


def _basic(events: Sequence[Event], delta: float) -> float | None:
    """Add up the ``ε`` and ``δ`` of promises; None if a run has none."""
    promises = [_promise(event) for event in events]
    spent = math.fsum(e.count * p[1] for e, p in zip(events, promises, strict=True) if p)
    if None in promises:
        return None
    if spent > delta * (1 + 1e-12):
        return math.inf
    return math.fsum(e.count * p[0] for e, p in zip(events, promises, strict=True) if p)


def _promise(event: Event) -> tuple[float, float] | None:
    if isinstance(event, ApproximateEvent):
        return event.epsilon, event.delta
    loss = event_pure_loss(event)  # discrete noise keeps it as it is
    return None if loss is None else (loss, 0.0)


def _pay_for_grid(
    find: Callable[[float], float | None], delta: float, distance: float
) -> float | None:
    """Compute a figure at the ``δ`` that discrete noise leaves at that figure."""
    if distance == 0.0:
        return find(delta)
    kept = GRID_SHARE * delta
    while kept < delta:
        value = find(delta - kept)
        price = 0.0 if value is None else dp_noise_price(value, distance)
        if price <= kept:
            return value
        kept = max(8.0 * kept, price)  # at less δ the figure, and its price, only grow
    return math.inf


def accounting_profile(event: PureEvent | GaussianEvent | LaplaceEvent, epsilon: Vector) -> Vector:
    """Return the least known ``δ`` of one run on a sample, at every ``ε >= 0`` (claim DP-4)."""
    if event.sampling is None:
        return event.profile(epsilon)
    rate = event.sampling.rate
    inner = np.log1p(np.expm1(epsilon) / rate)
    repetitions = {1: rate}
    if isinstance(event.sampling, ReplacementSampling):
        repetitions = event.sampling.repetitions
    known = sum(p * event.profile(inner, k) for k, p in repetitions.items())
    return np.asarray(known + max(0.0, rate - math.fsum(repetitions.values())))


def _loss_distribution(
    event: Event, neighbours: Neighbours, discretization: float, delta: float
) -> Any:
    """Return the privacy-loss distribution of all runs of an event, rounded to the safe side."""
    # Slow to import, not always needed.
    from dp_accounting.pld import common, privacy_loss_distribution as pld

    check_event_relation(event, neighbours)
    if isinstance(event, ApproximateEvent):
        promise = common.DifferentialPrivacyParameters(event.epsilon, event.delta)
        one = pld.from_privacy_parameters(promise, value_discretization_interval=discretization)
    elif isinstance(event, PureEvent) or isinstance(event.sampling, BatchSampling):
        one = _from_profile(event, discretization, _CUT * delta / event.count)
    else:
        gaussian = isinstance(event, GaussianEvent)
        law = pld.from_gaussian_mechanism if gaussian else pld.from_laplace_mechanism
        rate = 1.0 if event.sampling is None else event.sampling.rate
        one = law(
            event.noise_multiplier, sampling_prob=rate, value_discretization_interval=discretization
        )
    return one.self_compose(event.count)


def _compose_losses(
    events: Sequence[Event], neighbours: Neighbours, discretization: float, delta: float
) -> Any:
    parameter, runs = _split_gaussian(events)
    if parameter:  # all Gaussian runs on all records are one run
        runs.append(GaussianEvent(noise_multiplier=1.0 / parameter))
    laws = (_loss_distribution(event, neighbours, discretization, delta) for event in runs)
    return reduce(lambda one, other: one.compose(other), laws)


def _split_gaussian(events: Sequence[Event]) -> tuple[float, list[Event]]:
    """Return the ``μ`` of all Gaussian runs on all records together, and the other events."""
    runs = [e for e in events if not isinstance(e, GaussianEvent) or e.sampling is not None]
    plain = [e for e in events if isinstance(e, GaussianEvent) and e.sampling is None]
    squares = math.fsum(event.count / event.noise_multiplier**2 for event in plain)
    return math.sqrt(squares) * (1 + 1e-14), runs


def pld_epsilon(
    events: Sequence[Event], delta: float, neighbours: Neighbours, discretization: float
) -> float:
    parameter, runs = _split_gaussian(events)
    if not runs:
        return gaussian_epsilon(parameter, delta)
    composed = _compose_losses(events, neighbours, discretization, delta)
    return float(composed.get_epsilon_for_delta(delta))


def _from_profile(
    event: PureEvent | GaussianEvent | LaplaceEvent, discretization: float, least_delta: float
) -> Any:
    # Slow to import, not always needed.
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution as pld

    def is_rare(epsilon: float) -> bool:
        return bool(accounting_profile(event, np.array([epsilon]))[0] <= least_delta)

    largest = discretization
    while not is_rare(largest) and largest < 512.0:
        largest *= 1.1
    rounded = np.arange(0, math.ceil(largest / discretization) + 1)
    losses = np.asarray(rounded * discretization, dtype=np.float64)
    upper = np.clip(accounting_profile(event, losses), 0.0, 1.0)
    lower = -np.expm1(-losses) + np.exp(-losses) * upper  # the same test, with roles exchanged
    deltas = np.minimum.accumulate(np.concatenate([lower[:0:-1], upper]))
    both = np.concatenate([-rounded[:0:-1], rounded])
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(discretization, both, deltas)
    return pld.PrivacyLossDistribution(pmf)


def renyi_epsilon(events: Sequence[Event], delta: float, neighbours: Neighbours) -> float | None:
    """Return the ``ε`` at ``δ`` of Rényi divergences; None where one of them is not known."""
    from dp_accounting import rdp  # slow to import, not always needed

    total = np.zeros(len(ORDERS))
    for event in events:
        divergences = renyi_divergences(event, neighbours)
        if divergences is None:
            return None
        total += divergences
    return float(rdp.compute_epsilon(list(ORDERS), total, delta)[0])


def renyi_divergences(event: Event, neighbours: Neighbours) -> Vector | None:
    """Return bounds on the Rényi divergences of all runs at ``ORDERS``; None if not known."""
    from dp_accounting import rdp  # slow to import, not always needed

    check_event_relation(event, neighbours)
    known = as_dp_accounting(event, neighbours)
    if known is None:
        loss, orders = event_pure_loss(event), np.array(ORDERS, dtype=np.float64)
        if loss is None:
            return None
        return np.asarray(event.count * np.minimum(loss, orders * loss**2 / 2.0))
    accountant = rdp.RdpAccountant(list(ORDERS), known[1])
    # dp-accounting logs which orders it leaves out; the others suffice.
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        accountant.compose(known[0], int(event.count))
    finally:
        logger.setLevel(level)
    return np.asarray(accountant.rdp, dtype=np.float64)


def as_dp_accounting(event: Event, neighbours: Neighbours) -> tuple[Any, Any] | None:
    """Return one run as dp-accounting's Rényi accountant knows it, None where it does not."""
    import dp_accounting  # slow to import, not always needed

    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    sampling = event.sampling
    if sampling is None and isinstance(event, LaplaceEvent):
        return dp_accounting.LaplaceDpEvent(event.noise_multiplier), relation
    if not isinstance(event, GaussianEvent):
        return None
    gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    if sampling is None:
        return gaussian, relation
    if isinstance(sampling, PoissonSampling):
        return dp_accounting.PoissonSampledDpEvent(sampling.rate, gaussian), relation
    if isinstance(sampling, FixedSampling):
        drawn = (sampling.n_records, sampling.batch_size)
        sampled = dp_accounting.SampledWithoutReplacementDpEvent(*drawn, gaussian)
        return sampled, dp_accounting.NeighboringRelation.REPLACE_ONE
    return None


def advantage(
    events: Accountable | Iterable[Accountable],
    *,
    neighbours: Neighbours = "add_remove",
) -> float:
    """Return the advantage of the best attacker; parameters as of :func:`account`.

    Guarantee
    ---------
    Claim DP-30. No attacker has a larger advantage, up to the arithmetic of dp-accounting. Closed
    forms are used for Gaussian runs without sampling, one Laplace run and one pure run.
    """
    listed = read_events(events, neighbours).events
    distance = _closed_form(listed)
    if distance is None:
        combined = _compose_losses(listed, neighbours, COARSE, _TAIL)
        distance = float(combined.get_delta_for_epsilon(0.0))
    # Each of the two laws is that far from its continuous one, in total variation.
    return min(1.0, distance * (1 + _ROUNDED) + 2 * event_grid_distance(listed))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TradeOffCurve:
    """Trade-off of errors for every test of two neighbours (f-DP); public.

    ``deltas`` are the ``δ`` at every one of ``epsilons``, which determine the curve.
    """

    neighbours: Neighbours
    epsilons: Vector
    deltas: Vector

    def misses(self, false_alarms: Any) -> Vector:
        """Return the least share of misses of a test with these shares of false alarms."""
        rate = np.asarray(false_alarms, dtype=np.float64)
        if not ((rate >= 0) & (rate <= 1)).all():
            raise BudgetError(
                "false_alarms must be between 0 and 1; got values outside. Pass fractions."
            )
        loss, delta = self.epsilons, self.deltas
        one = 1.0 - delta - np.exp(loss) * rate[..., None]
        other = np.exp(-loss) * (1.0 - delta - rate[..., None])
        return np.asarray(np.maximum(0.0, np.maximum(one, other).max(axis=-1)))


def trade_off(
    events: Accountable | Iterable[Accountable],
    *,
    neighbours: Neighbours | None = None,
) -> TradeOffCurve:
    """Return the trade-off curve of mechanisms; parameters as of :func:`account`.

    Guarantee
    ---------
    Claim DP-32. No test of a record's presence has fewer misses at its rate of false alarms.
    """
    composed = read_events(events, neighbours)
    combined = _compose_losses(composed.events, composed.neighbours, COARSE, _TAIL)
    losses = np.concatenate([np.arange(0.0, 8.0, 0.01), np.arange(8.0, 64.0, 0.5)])
    distance = event_grid_distance(composed.events)
    deltas = np.asarray(combined.get_delta_for_epsilon(losses)) * (1 + _ROUNDED)
    price = np.array([dp_noise_price(float(loss), distance) for loss in losses])
    return TradeOffCurve(
        neighbours=composed.neighbours, epsilons=losses, deltas=np.minimum(1.0, deltas + price)
    )


def accounting_noise_advantage(epsilon: float, delta: float, n_numbers: int) -> float:
    """Return the advantage on numbers with the noise that ``(ε, δ)`` asks for."""
    if delta == 0.0:
        return advantage(LaplaceEvent(noise_multiplier=1.0 / epsilon, n_numbers=n_numbers))
    parameter = dp_noise_parameter(epsilon, delta, n_numbers)
    return advantage(GaussianEvent(noise_multiplier=1.0 / parameter, n_numbers=n_numbers))


def calibrate_to_advantage(
    advantage_at: Callable[[float], float], target: float, *, delta: float = 1e-5
) -> float:
    """Return the largest ``ε`` with an advantage within a target, rounded down.

    At a fixed ``δ`` this finds the ``ε`` that makes a method as private as a membership success
    ``(1 + target)/2`` asks for, and no more. ``advantage_at`` returns the advantage at an ``ε``,
    for example from a certificate; it increases.

    Guarantee
    ---------
    Claim DP-30. ``0.999 target <= advantage_at(result) <= target``; an error if no such ``ε``
    exists.
    """
    if not 0.0 < target < 1.0:
        raise BudgetError(f"target must be between 0 and 1; got {target!r}. Use 2 success - 1.")
    aim = target * (1 - _CALIBRATION / 2)
    low, high = (0.0, 0.0), (math.inf, 1.0)  # an ε and its advantage, on either side
    trial = gaussian_epsilon(gaussian_equivalent((1 + aim) / 2), delta) or target
    for _ in range(_MOST_TRIALS):
        value = advantage_at(trial)
        if target * (1 - _CALIBRATION) <= value <= target:
            return trial
        if value < target:
            low = (trial, value)
        else:
            high = (trial, value)
        if math.isinf(high[0]) or low[0] == 0.0:
            trial = 2.0 * low[0] or 0.5 * high[0]
        else:
            share = (aim - low[1]) / (high[1] - low[1])
            trial = low[0] + min(0.9, max(0.1, share)) * (high[0] - low[0])
    raise BudgetError(
        f"target must be an advantage that the method can have; none near {target:.6g} was found. "
        "Use a larger success, or a smaller delta."
    )


def _closed_form(events: Sequence[Event]) -> float | None:
    """Return the advantage where a formula has it: Gaussian noise, or one pure run."""
    parameter, runs = _split_gaussian(events)
    if not runs:
        return math.erf(parameter / math.sqrt(8.0))  # 2 Φ(μ/2) - 1
    event = runs[0]
    if parameter or len(runs) > 1 or event.count > 1 or event.sampling is not None:
        return None
    if isinstance(event, LaplaceEvent):
        return -math.expm1(-0.5 / event.noise_multiplier)
    return math.tanh(event.epsilon / 2.0) if isinstance(event, PureEvent) else None


VERIFIED_WITHIN: Final = 1e-3  # what the step of privacy-loss distributions may add, relative

NOT_CHECKABLE_DP: Final[Mapping[str, str]] = {
    "events": "that the mechanism did what they say; the promise was computed from them",
    "kind": "whether the loss was fixed beforehand",
    "neighbours": "the relation that the sensitivities behind the events are about",
    "mechanism": "which mechanism was run",
    "assumptions": "clipping, bounds and sensitivities",
    "accounting": "the figures of the accountant at the time",
    "noise": "the scales of the noise",
    "notes": "the notes of the mechanism",
    "not_promised": "whether more should be named; that the usual sentences are there was checked",
    "simulation": "that the noise came from the operating system",
    "software": "which version wrote the certificate",
}
_EX_POST: Final = {
    "epsilon": "the loss of what was released; that it is not above the worst was checked"
}
_ADVANTAGE: Final = {"advantage": "the loss distribution, of which the events say only the promise"}


@verify.register
def verify_dp(certificate: DPCertificate, bundle: None = None) -> Verified:
    """Check that a promise of differential privacy follows from the events beside it.

    Guarantee
    ---------
    Claim R-6. Returns only if the events are ``(epsilon, delta)``-private by one of the
    accountants, give an attacker no larger advantage than is stated, each up to a thousandth, and
    no sentence of what is not promised is missing.
    """
    if bundle is not None:
        raise CertificateError(
            "bundle must be left out with a certificate of differential privacy; got one. "
            "What is checked are the events that the certificate carries."
        )
    if not certificate.events:
        raise CertificateError(
            "certificate must carry its events to be verified; got none, so that nothing can be "
            "recomputed. Release again with this version."
        )
    missing = set(NOT_PROMISED) - {*certificate.not_promised, ONE_RELEASE}
    if missing:  # ONE_RELEASE is said in other words of a search
        raise CertificateError(
            "certificate field not_promised must hold what no such release promises; a sentence "
            "is missing. Do not rely on this certificate."
        )
    _check_epsilon(certificate)
    unproved = {
        **NOT_CHECKABLE_DP,
        **({} if certificate.kind == "dp" else _EX_POST),
        **({} if _check_advantage(certificate) else _ADVANTAGE),
    }
    unproved = {k: why for k, why in unproved.items() if getattr(certificate, k) not in (None, ())}
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(f.name for f in fields(certificate) if f.name not in unproved),
        not_checkable=unproved,
    )


def _check_epsilon(certificate: DPCertificate) -> None:
    try:
        worst = account(certificate, delta=certificate.delta).best[1]
    except BudgetError as error:
        raise CertificateError(f"events must fit the promise of the certificate; {error}") from None
    promised = certificate.epsilon
    least, most = (worst, promised) if certificate.kind == "dp" else (promised, worst)
    if least > most * (1 + VERIFIED_WITHIN):
        raise _refusal("epsilon", promised, worst)


def _check_advantage(certificate: DPCertificate) -> bool:
    """Refuse an advantage below that of the events; return whether they give one."""
    if certificate.advantage is None:
        return True
    events = events_of(certificate)
    if not all(isinstance(event, GaussianEvent | LaplaceEvent) for event in events):
        return False
    worst = advantage(events, neighbours=certificate.neighbours)
    if worst > certificate.advantage * (1 + VERIFIED_WITHIN):
        raise _refusal("advantage", certificate.advantage, worst)
    return True


def _refusal(name: str, claimed: float, recomputed: float) -> CertificateError:
    return CertificateError(
        f"certificate field {name} must follow from its events; it says {claimed:.6g}, the events "
        f"give {recomputed:.6g}. Do not rely on this certificate."
    )
