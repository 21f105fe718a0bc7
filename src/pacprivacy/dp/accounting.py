"""One sequence of mechanisms, accounted for in five ways side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.optimize import brentq

from pacprivacy._rounding import at_most
from pacprivacy.dp.events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    Told,
    grid_distance,
    pure_loss,
    read_composed,
)
from pacprivacy.dp.loss_distribution import (
    ORDERS,
    amplified_profile,
    compose_losses,
    renyi_divergences,
)
from pacprivacy.dp.noise import check_epsilon_delta
from pacprivacy.errors import BudgetError
from pacprivacy.release import Neighbours

METHODS: Final[dict[str, str]] = {
    "basic": "sum of the ε of every run, δ shared evenly",
    "advanced": "advanced composition of the same, half of δ for it",
    "zcdp": "ρ + 2 sqrt(ρ ln(1/δ)); without sampling only",
    "renyi": "Rényi divergences over a grid of orders",
    "pld": "privacy-loss distributions, rounded to the safe side",
}
DISCRETIZATION: Final = 1e-4
GRID_SHARE: Final = (
    2.0**-20
)  # part of δ that is kept for the grid, more only where that is too little


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The ``ε`` of one sequence of mechanisms, by every method that applies.

    Parameters
    ----------
    delta : float
        The ``δ`` that all of them are at.
    neighbours : {"add_remove", "replace"}
        Relation that all of them are about.
    epsilons : dict
        ``ε`` by method; None where the method does not know the sampling or the relation.
    simulation : bool
        Whether one of the certificates is of a simulation, which protects nobody.

    Examples
    --------
    >>> print(account(GaussianEvent(noise_multiplier=5.0, count=10), delta=1e-5))
    ε at δ = 1e-05, add_remove
    basic        8.3412  sum of the ε of every run, δ shared evenly
    advanced    17.0281  advanced composition of the same, half of δ for it
    zcdp         3.2349  ρ + 2 sqrt(ρ ln(1/δ)); without sampling only
    renyi        2.8142  Rényi divergences over a grid of orders
    pld          2.5944  privacy-loss distributions, rounded to the safe side
    """

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

    def to_public_dict(self) -> dict[str, Any]:
        """Return what a certificate shows as accounting."""
        name, _ = self.best
        shown = {method: value for method, value in self.epsilons.items() if value is not None}
        return {"method": name, "delta": self.delta, **shown}

    def __str__(self) -> str:
        lines = [f"ε at δ = {self.delta:g}, {self.neighbours}"]
        if self.simulation:
            lines.append("SIMULATION: seeded randomness; nobody is protected.")
        for name, value in self.epsilons.items():
            figure = "unknown" if value is None else at_most(value, decimals=4)
            lines.append(f"{name:<9}{figure:>10}  {METHODS[name]}")
        return "\n".join(lines)


def account(
    events: Told | Iterable[Told],
    *,
    delta: float,
    neighbours: Neighbours | None = None,
    discretization: float = DISCRETIZATION,
) -> Accounts:
    """Account for mechanisms that ran on the same records.

    Parameters
    ----------
    events : Event, certificate or release, or several, public
        :class:`GaussianEvent`, :class:`LaplaceEvent`, :class:`PureEvent`,
        :class:`ApproximateEvent`, each with the way in which its records were sampled; or
        certificates, releases and fitted estimators, which carry theirs.
    delta : float in [0, 1), public
        The ``δ`` of the promise; 0 for pure events only, whose ``ε`` then add up.
    neighbours : {"add_remove", "replace"}, public
        Relation of the promise, and of the sensitivity that noise multipliers are relative to.
        By default that of the certificates, and ``add_remove`` if there are only events.
    discretization : float, public
        Step of privacy-loss distributions.

    Returns
    -------
    Accounts

    Raises
    ------
    BudgetError
        If an argument is out of range; if fixed-size batches are accounted for ``add_remove``; if
        Poisson batches are accounted for ``replace`` without saying how far a removal moves.
    CertificateError
        If certificates are about different relations, or one carries no event.

    Guarantee
    ---------
    Claims DP-4, DP-5 and DP-20. Every figure is an upper bound on the loss, up to the arithmetic
    of dp-accounting. What is computed may be chosen adaptively, the events may not: where the next
    amount of noise depends on earlier answers, use :class:`Filter` or :class:`Odometer`.

    Examples
    --------
    >>> from pacprivacy.dp import PoissonSampling
    >>> run = GaussianEvent(noise_multiplier=1.0, count=100, sampling=PoissonSampling(rate=0.01))
    >>> method, epsilon = account(run, delta=1e-5).best
    >>> method, round(epsilon, 2)
    ('pld', 0.72)
    """
    composed = read_composed(events, neighbours)
    listed = composed.events
    if delta == 0.0:
        return _account_pure(listed, composed.neighbours, simulation=composed.simulation)
    _, delta = check_epsilon_delta(1.0, delta)
    methods: dict[str, Callable[[float], float | None]] = {
        "basic": lambda at: _basic(listed, at),
        "advanced": lambda at: _advanced(listed, at),
        "zcdp": lambda at: _zcdp(listed, at),
        "renyi": lambda at: _renyi(listed, at, composed.neighbours),
        "pld": lambda at: _pld(listed, at, composed.neighbours, discretization),
    }
    # Pure losses and zCDP hold for discrete noise as it is.
    some = grid_distance(event for event in listed if pure_loss(event) is None)
    distances = dict.fromkeys(methods, grid_distance(listed))
    distances |= {"basic": some, "advanced": some, "zcdp": 0.0}
    return Accounts(
        delta=delta,
        neighbours=composed.neighbours,
        epsilons={
            name: _pay_for_grid(found, delta, distances[name]) for name, found in methods.items()
        },
        simulation=composed.simulation,
    )


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the ``ε`` at ``δ`` of a ``ρ``-zCDP mechanism.

    Gaussian noise of variance ``Δ²/(2ρ)`` is ``ρ``-zCDP; several add their ``ρ``.

    Examples
    --------
    >>> round(zcdp_epsilon(0.1, 1e-5), 4)
    2.246
    """
    check_epsilon_delta(1.0, delta)
    if not rho >= 0:
        raise BudgetError(f"rho must be at least 0; got {rho!r}. Use sensitivity²/(2 variance).")
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def _account_pure(events: Sequence[Event], neighbours: Neighbours, *, simulation: bool) -> Accounts:
    losses = [(event.count, pure_loss(event)) for event in events]
    if any(loss is None for _, loss in losses):
        raise BudgetError(
            "delta must be above 0 for Gaussian noise and for events with a delta of their own; "
            "got 0. Use below 1/n."
        )
    total = math.fsum(count * loss for count, loss in losses if loss is not None)
    unknown: dict[str, float | None] = dict.fromkeys(METHODS)
    return Accounts(
        delta=0.0, neighbours=neighbours, epsilons=unknown | {"basic": total}, simulation=simulation
    )


def _pay_for_grid(
    find: Callable[[float], float | None], delta: float, distance: float
) -> float | None:
    """Compute a figure at the ``δ`` that discrete noise leaves at that figure."""
    if distance == 0.0:
        return find(delta)
    kept = GRID_SHARE * delta
    while kept < delta:
        value = find(delta - kept)
        if value is None or (1.0 + math.exp(min(value, 700.0))) * distance <= kept:
            return value
        kept *= 8.0
    return math.inf


def _single(event: Event, delta: float) -> float:
    """Return the ``ε`` of one run on its sample at this ``δ``."""

    def excess(epsilon: float) -> float:
        return float(amplified_profile(event, np.array([epsilon]))[0]) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2.0
    root = float(brentq(excess, 0.0, high, xtol=1e-12))
    return root * (1 + 1e-9) + 1e-10


def _split(events: Sequence[Event], delta: float) -> list[tuple[int, float]]:
    """Return count and ``ε`` of each event.

    Promises with a ``δ`` of their own take it; what remains is shared by the runs that need some.
    """
    own = math.fsum(e.count * e.delta for e in events if isinstance(e, ApproximateEvent))
    left = delta - own
    needy = [e for e in events if pure_loss(e) is None and not isinstance(e, ApproximateEvent)]
    if left < -1e-12 * delta or (needy and left <= 0.0):
        return [(1, math.inf)]
    share = left / max(1, sum(event.count for event in needy))
    parts = []
    for event in events:
        loss = event.epsilon if isinstance(event, ApproximateEvent) else pure_loss(event)
        parts.append((event.count, _single(event, share) if loss is None else loss))
    return parts


def _basic(events: Sequence[Event], delta: float) -> float:
    return math.fsum(count * epsilon for count, epsilon in _split(events, delta))


def _advanced(events: Sequence[Event], delta: float) -> float:
    own = math.fsum(e.count * e.delta for e in events if isinstance(e, ApproximateEvent))
    spare = (delta - own) / 2.0
    if spare <= 0.0:
        return math.inf
    parts = _split(events, delta - spare)
    mean = math.fsum(n * e * math.tanh(e / 2.0) for n, e in parts)
    squares = math.fsum(n * e * e for n, e in parts)
    return mean + math.sqrt(2.0 * math.log(1.0 / spare) * squares)


def _zcdp(events: Sequence[Event], delta: float) -> float | None:
    rho = 0.0
    for event in events:
        if event.sampling is not None or isinstance(event, ApproximateEvent):
            return None
        if isinstance(event, GaussianEvent):
            rho += event.count / (2.0 * event.noise_multiplier**2)
        elif event.pure_epsilon is not None:
            rho += event.count * event.pure_epsilon**2 / 2.0
    return zcdp_epsilon(rho, delta)


def _renyi(events: Sequence[Event], delta: float, neighbours: Neighbours) -> float | None:
    from dp_accounting.rdp import compute_epsilon

    total = np.zeros(len(ORDERS))
    for event in events:
        divergences = renyi_divergences(event, neighbours)
        if divergences is None:
            return None
        total += divergences
    return float(compute_epsilon(list(ORDERS), total, delta)[0])


def _pld(
    events: Sequence[Event], delta: float, neighbours: Neighbours, discretization: float
) -> float:
    losses = compose_losses(events, neighbours, discretization, delta)
    return float(losses.get_epsilon_for_delta(delta))
