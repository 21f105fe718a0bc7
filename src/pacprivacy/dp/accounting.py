"""One sequence of mechanisms, accounted for in five ways side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.optimize import brentq

from pacprivacy.dp.events import Event, GaussianEvent, PoissonSampling
from pacprivacy.dp.loss_distribution import (
    ORDERS,
    amplified_profile,
    loss_distribution,
    renyi_divergences,
)
from pacprivacy.dp.noise import check_epsilon_delta, lattice_slack
from pacprivacy.errors import BudgetError
from pacprivacy.release.dp_certificate import NEIGHBOURS, Neighbours

__all__ = ["METHODS", "Accounts", "account", "read_events", "zcdp_epsilon"]

METHODS: Final[dict[str, str]] = {
    "basic": "sum of the ε of every run, δ shared evenly",
    "advanced": "advanced composition of the same, half of δ for it",
    "zcdp": "ρ + 2 sqrt(ρ ln(1/δ)); without sampling only",
    "renyi": "Rényi divergences over a grid of orders",
    "pld": "privacy-loss distributions, rounded to the safe side",
}
DISCRETIZATION: Final = 1e-4


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

    Examples
    --------
    >>> print(account(GaussianEvent(noise_multiplier=5.0, count=10), delta=1e-5))
    ε at δ = 1e-05, add_remove
    basic        8.3412  sum of the ε of every run, δ shared evenly
    advanced    17.0280  advanced composition of the same, half of δ for it
    zcdp         3.2349  ρ + 2 sqrt(ρ ln(1/δ)); without sampling only
    renyi        2.8141  Rényi divergences over a grid of orders
    pld          2.5944  privacy-loss distributions, rounded to the safe side
    """

    delta: float
    neighbours: Neighbours
    epsilons: dict[str, float | None]

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
        for name, value in self.epsilons.items():
            figure = "unknown" if value is None else f"{value:.4f}"
            lines.append(f"{name:<9}{figure:>10}  {METHODS[name]}")
        return "\n".join(lines)


def account(
    events: Event | Iterable[Event],
    *,
    delta: float,
    neighbours: Neighbours = "add_remove",
    n_numbers: int = 0,
    discretization: float = DISCRETIZATION,
) -> Accounts:
    """Account for mechanisms that ran on the same records, chosen adaptively.

    Parameters
    ----------
    events : Event or several, public
        :class:`GaussianEvent`, :class:`LaplaceEvent`, :class:`PureEvent`, each with the way in
        which its records were sampled.
    delta : float in (0, 1), public
        The ``δ`` of the promise.
    neighbours : {"add_remove", "replace"}, public
        Relation of the promise, and of the sensitivity that noise multipliers are relative to.
    n_numbers : int, public
        How many numbers got discrete noise from :mod:`pacprivacy.dp.noise`, over all runs; the
        price of the grid is taken from ``delta``. 0 for continuous noise.
    discretization : float, public
        Step of privacy-loss distributions.

    Returns
    -------
    Accounts

    Raises
    ------
    BudgetError
        If an argument is out of range, or fixed-size batches are accounted for ``add_remove``.

    Guarantee
    ---------
    Claims DP-4 and DP-5. Every figure is an upper bound on the loss, up to the arithmetic of
    dp-accounting.

    Examples
    --------
    >>> run = GaussianEvent(noise_multiplier=1.0, count=100, sampling=PoissonSampling(rate=0.01))
    >>> method, epsilon = account(run, delta=1e-5).best
    >>> method, round(epsilon, 2)
    ('pld', 0.72)
    """
    listed = read_events(events, neighbours)
    _, delta = check_epsilon_delta(1.0, delta)

    def figures(at: float) -> dict[str, float | None]:
        return {
            "basic": _basic(listed, at),
            "advanced": _advanced(listed, at),
            "zcdp": _zcdp(listed, at),
            "renyi": _renyi(listed, at, neighbours),
            "pld": _pld(listed, at, neighbours, discretization),
        }

    epsilons = figures(delta)
    if n_numbers:
        epsilons = _pay_for_grid(figures, delta, 2 * n_numbers)
    return Accounts(delta=delta, neighbours=neighbours, epsilons=epsilons)


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


def read_events(events: Event | Iterable[Event], neighbours: Neighbours) -> list[Event]:
    """Return events as a list; refuse those that the relation does not fit."""
    listed = list(events) if isinstance(events, Iterable) else [events]
    if not listed:
        raise BudgetError("events must hold at least one event. Pass what was run.")
    if neighbours not in NEIGHBOURS:
        raise BudgetError(
            f"neighbours must be 'add_remove' or 'replace'; got {neighbours!r}. Name one."
        )
    for event in listed:
        if neighbours == "add_remove" and not isinstance(
            event.sampling, PoissonSampling | type(None)
        ):
            raise BudgetError(
                "neighbours must be 'replace' for batches of a fixed size, which need a public "
                "number of records; got 'add_remove'. Use PoissonSampling, or 'replace'."
            )
    return listed


def _pay_for_grid(
    figures: Callable[[float], dict[str, float | None]], delta: float, n_numbers: int
) -> dict[str, float | None]:
    """Compute every figure at the ``δ`` that the grid leaves at that figure."""
    paid: dict[str, float | None] = {}
    found = figures(delta)
    for name in found:
        value = found[name]
        for _ in range(20):
            if value is None:
                break
            left = delta - lattice_slack(value * (1 + 1e-6) + 1e-9, n_numbers)
            if left <= 0.0:
                value = math.inf
                break
            again = figures(left)[name]
            if again is None or again <= value * (1 + 1e-6) + 1e-9:
                break
            value = again
        paid[name] = value if value is None else value * (1 + 1e-6) + 1e-9
    return paid


def _single(event: Event, delta: float) -> tuple[float, bool]:
    """Return the ``ε`` of one run on its sample, and whether it used the ``δ``."""
    pure, sampling = event.pure_epsilon, event.sampling
    if pure is not None and (sampling is None or max(sampling.repetitions) == 1):
        rate = 1.0 if sampling is None else sampling.rate
        return math.log1p(rate * math.expm1(pure)) if pure < 700 else pure, False

    def excess(epsilon: float) -> float:
        return float(amplified_profile(event, np.array([epsilon]))[0]) - delta

    if excess(0.0) <= 0:
        return 0.0, True
    high = 1.0
    while excess(high) > 0:
        high *= 2.0
    root = float(brentq(excess, 0.0, high, xtol=1e-12))
    return root * (1 + 1e-9) + 1e-10, True


def _split(events: list[Event], delta: float) -> list[tuple[int, float]]:
    """Return count and ``ε`` of each event, ``delta`` shared by the runs that need some."""
    needy = sum(event.count for event in events if _single(event, 0.5)[1])
    return [(event.count, _single(event, delta / max(needy, 1))[0]) for event in events]


def _basic(events: list[Event], delta: float) -> float:
    return math.fsum(count * epsilon for count, epsilon in _split(events, delta))


def _advanced(events: list[Event], delta: float) -> float:
    parts = _split(events, delta / 2.0)
    mean = math.fsum(n * e * math.tanh(e / 2.0) for n, e in parts)
    squares = math.fsum(n * e * e for n, e in parts)
    return mean + math.sqrt(2.0 * math.log(2.0 / delta) * squares)


def _zcdp(events: list[Event], delta: float) -> float | None:
    rho = 0.0
    for event in events:
        if event.sampling is not None:
            return None
        if isinstance(event, GaussianEvent):
            rho += event.count / (2.0 * event.noise_multiplier**2)
        elif event.pure_epsilon is not None:
            rho += event.count * event.pure_epsilon**2 / 2.0
    return zcdp_epsilon(rho, delta)


def _renyi(events: list[Event], delta: float, neighbours: Neighbours) -> float | None:
    from dp_accounting.rdp import compute_epsilon

    total = np.zeros(len(ORDERS))
    for event in events:
        divergences = renyi_divergences(event, neighbours)
        if divergences is None:
            return None
        total += divergences
    return float(compute_epsilon(list(ORDERS), total, delta)[0])


def _pld(events: list[Event], delta: float, neighbours: Neighbours, discretization: float) -> float:
    combined: Any = None
    for event in events:
        one = loss_distribution(event, neighbours, discretization, delta)
        combined = one if combined is None else combined.compose(one)
    return float(combined.get_epsilon_for_delta(delta))
