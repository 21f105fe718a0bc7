"""Privacy-loss distributions and Rényi divergences of events, through dp-accounting."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.dp.events import (
    ApproximateEvent,
    Event,
    FixedSampling,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampling,
    check_relation,
    pure_loss,
)
from pacprivacy.release import Neighbours

ORDERS: Final = (
    *(1 + i / 20 for i in range(1, 20)),
    *(2 + i / 4 for i in range(36)),
    *range(11, 64),
    *(64, 80, 96, 128, 192, 256, 384, 512, 1024, 4096),
)
_CUT: Final = 1e-4  # part of δ beyond which losses of the far tail count as infinite


def amplified_profile(event: Event, epsilon: Vector) -> Vector:
    """Return the least known ``δ`` of one run on a sample, at every ``ε >= 0``.

    Guarantee
    ---------
    Claim DP-4. Amplification by subsampling (Balle, Barthe and Gaboardi 2018).
    """
    if event.sampling is None:
        return event.profile(epsilon)
    rate = event.sampling.rate
    inner = np.log1p(np.expm1(epsilon) / rate)
    removal = _removal(event)
    if removal is not None:
        share = np.exp(epsilon - inner)
        drawn = (1.0 - share) * event.profile(inner, removal) + share * event.profile(inner)
        return np.asarray(rate * np.minimum(drawn, event.profile(epsilon)))
    repetitions = event.sampling.repetitions
    known = sum(p * event.profile(inner, k) for k, p in repetitions.items())
    return np.asarray(known + max(0.0, rate - math.fsum(repetitions.values())))


def loss_distribution(
    event: Event, neighbours: Neighbours, discretization: float, delta: float
) -> Any:
    """Return the privacy-loss distribution of all runs of an event, rounded to the safe side."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    check_relation(event, neighbours)
    step = {"value_discretization_interval": discretization}
    if isinstance(event, ApproximateEvent):
        promise = common.DifferentialPrivacyParameters(event.epsilon, event.delta)
        return pld.from_privacy_parameters(promise, **step).self_compose(event.count)
    if event.sampling is None and isinstance(event, GaussianEvent):
        std = event.noise_multiplier / math.sqrt(event.count)
        return pld.from_gaussian_mechanism(standard_deviation=std, **step)
    known = event.sampling is None or (
        isinstance(event.sampling, PoissonSampling) and neighbours == "add_remove"
    )
    rate = 1.0 if event.sampling is None else event.sampling.rate
    if known and isinstance(event, GaussianEvent):
        one = pld.from_gaussian_mechanism(event.noise_multiplier, sampling_prob=rate, **step)
    elif known and isinstance(event, LaplaceEvent):
        one = pld.from_laplace_mechanism(event.noise_multiplier, sampling_prob=rate, **step)
    else:
        one = _from_profile(event, discretization, _CUT * delta / event.count)
    return one.self_compose(event.count)


def compose_losses(
    events: Iterable[Event], neighbours: Neighbours, discretization: float, delta: float
) -> Any:
    """Return the loss distribution of all events together; see :func:`loss_distribution`."""
    listed = list(events)
    plain = [e for e in listed if isinstance(e, GaussianEvent) and e.sampling is None]
    others = [event for event in listed if event not in plain]
    if plain:  # Gaussian runs on all records are one run
        squares = math.fsum(event.count / event.noise_multiplier**2 for event in plain)
        others.append(GaussianEvent(noise_multiplier=1.0 / math.sqrt(squares * (1 + 1e-14))))
    combined: Any = None
    for event in others:
        one = loss_distribution(event, neighbours, discretization, delta)
        combined = one if combined is None else combined.compose(one)
    return combined


def _from_profile(event: Event, discretization: float, least_delta: float) -> Any:
    """Build the distribution from the profile alone; the relation is symmetric."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    def is_rare(epsilon: float) -> bool:
        return bool(amplified_profile(event, np.array([epsilon]))[0] <= least_delta)

    largest = discretization
    while not is_rare(largest) and largest < 512.0:
        largest *= 1.1
    rounded = np.arange(0, math.ceil(largest / discretization) + 1)
    losses = np.asarray(rounded * discretization, dtype=np.float64)
    upper = np.clip(amplified_profile(event, losses), 0.0, 1.0)
    lower = -np.expm1(-losses) + np.exp(-losses) * upper  # the same test, with roles exchanged
    deltas = np.minimum.accumulate(np.concatenate([lower[:0:-1], upper]))
    both = np.concatenate([-rounded[:0:-1], rounded])
    if _removal(event) is not None:
        deltas = _convex_below(np.exp(both * discretization), deltas)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(discretization, both, deltas)
    return pld.PrivacyLossDistribution(pmf)


def _removal(event: Event) -> float | None:
    """Return how far a removal moves the numbers, where Poisson batches have records replaced."""
    return event.sampling.removal if isinstance(event.sampling, PoissonSampling) else None


def _convex_below(x: Vector, y: Vector) -> Vector:
    """Return the largest convex function below the points: true profiles are convex in ``e^ε``."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return np.interp(x, x[kept], y[kept])


def renyi_divergences(event: Event, neighbours: Neighbours) -> Vector | None:
    """Return bounds on the Rényi divergence of all runs at ``ORDERS``; None where none is known."""
    check_relation(event, neighbours)
    orders = np.array(ORDERS, dtype=np.float64)
    if event.sampling is None:
        if isinstance(event, GaussianEvent):
            return np.asarray(event.count * orders / (2.0 * event.noise_multiplier**2))
        if isinstance(event, LaplaceEvent):
            return _renyi_by_accountant(event, neighbours)
    loss = pure_loss(event)
    if loss is not None:
        return np.asarray(event.count * np.minimum(loss, orders * loss**2 / 2.0))
    return _renyi_by_accountant(event, neighbours)


def _renyi_by_accountant(event: Event, neighbours: Neighbours) -> Vector | None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    relations = dp_accounting.NeighboringRelation
    if event.sampling is None and isinstance(event, LaplaceEvent):
        told, relation = (
            dp_accounting.LaplaceDpEvent(event.noise_multiplier),
            relations.ADD_OR_REMOVE_ONE,
        )
    elif not isinstance(event, GaussianEvent):
        return None
    elif isinstance(event.sampling, PoissonSampling) and neighbours == "add_remove":
        gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        told = dp_accounting.PoissonSampledDpEvent(event.sampling.rate, gaussian)
        relation = relations.ADD_OR_REMOVE_ONE
    elif isinstance(event.sampling, FixedSampling):
        gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        told = dp_accounting.SampledWithoutReplacementDpEvent(
            event.sampling.n_records, event.sampling.batch_size, gaussian
        )
        relation = relations.REPLACE_ONE
    else:
        return None
    accountant = RdpAccountant(list(ORDERS), relation)
    with _quiet_orders():
        accountant.compose(told, int(event.count))
    return np.asarray(accountant.rdp, dtype=np.float64)


@contextmanager
def _quiet_orders() -> Iterator[None]:
    """Keep dp-accounting from telling which orders it leaves out: the others suffice."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
