"""Budgets for mechanisms whose *noise* is chosen from earlier answers: a filter and an odometer.

``account`` composes events that are fixed in advance. To go on as long as the loss distribution of
what has run so far keeps a budget is wrong: which mechanism comes next may depend on how the
earlier ones turned out. A filter fixes the loss distribution of everything it will ever allow, an
odometer bounds the loss at all times at once, by a supermartingale.
"""

import math
import threading
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final

import numpy as np
import scipy
from msgspec.structs import replace

from pacprivacy._random import ProcessBound
from pacprivacy._rounding import at_most
from pacprivacy.budget import Spent
from pacprivacy.dp import accounting, events
from pacprivacy.dp.certificate import DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.noise import check_epsilon_delta, dp_noise_distance, dp_noise_price
from pacprivacy.errors import BudgetError, BudgetExceededError
from pacprivacy.theory import gaussian_parameter

MOST_NUMBERS: Final = 1 << 40  # with discrete Gaussian noise; their grid is paid for at the start
HAIR: Final = 2.0**-26  # part of δ that covers rounding, here and in events
ROUNDING: Final = 2.0**-40  # relative, of the Gaussian parameter; far less than that part of δ


class Filter(ProcessBound):
    """A budget ``(ε, δ)`` for mechanisms that are chosen, noise and all, from earlier answers.

    Gaussian noise on all records and purely private mechanisms share one pool, in any amounts. For
    everything else (sampled batches, promises with a ``δ``) events are ``reserved`` beforehand;
    each can be used for itself, or for something more private of its kind.

    Guarantee
    ---------
    Claim DP-21. Everything released under the filter, whatever was chosen and whenever one stopped,
    is ``(epsilon, delta)``-private, if all that looks at the records goes through :meth:`release`,
    or is spent before anybody sees it.

    Examples
    --------
    >>> from pacprivacy import dp
    >>> budget = Filter(epsilon=1.0, delta=1e-6, neighbours="replace")
    >>> budget.spend(dp.GaussianEvent(noise_multiplier=10.0, count=5))
    >>> round(budget.parameter_left, 2)
    0.08
    """

    KIND = "a filter"

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        neighbours: Neighbours,
        reserved: events.Event | Iterable[events.Event] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._epsilon, self._delta = check_epsilon_delta(epsilon, delta)
        listed = list(reserved) if isinstance(reserved, Iterable) else [reserved]
        check_neighbours(neighbours)
        tokens = events.read_events(listed, neighbours).events if listed else ()
        self._neighbours: Neighbours = neighbours
        distance = dp_noise_distance(MOST_NUMBERS) + events.event_grid_distance(tokens)
        left = self._delta * (1.0 - HAIR) - dp_noise_price(self._epsilon, distance)
        if left <= self._delta / 2.0:
            raise BudgetError(
                f"delta must pay for the grid at epsilon {epsilon:g}; got {delta:g}. Use a larger "
                "delta or a smaller epsilon."
            )
        self._parameter = _pool_beside(tokens, neighbours, self._epsilon, left)
        self._pool = Fraction(self._parameter * (1.0 + ROUNDING)) ** 2
        self._tokens = {token: int(token.count) for token in tokens}
        self._taken = Fraction(0)
        self._numbers = 0
        self._simulation = False

    @property
    def parameter_left(self) -> float:
        """What is left of the pool: one Gaussian mechanism of this ``μ``, or several like it."""
        left = max(0.0, 1.0 - float(self._taken / self._pool)) if self._pool else 0.0
        return self._parameter * math.sqrt(left)

    @property
    def reserved_left(self) -> tuple[events.Event, ...]:
        """Events that were reserved and are not used yet."""
        return tuple(replace(token, count=n) for token, n in self._tokens.items() if n)

    def spend(self, what: events.Accountable | Iterable[events.Accountable]) -> None:
        """Take events, or those of certificates or releases, from the budget: all or nothing."""
        self.check_process()
        composed = events.read_events(what, self._neighbours)
        with self._lock:
            self._take(composed)

    def release(self, run: Callable[[], DPRelease]) -> DPRelease:
        """Run, spend what its certificate says, and only then hand it out."""
        self.check_process()
        release = run()
        self.spend(release)
        return release

    def __str__(self) -> str:
        lines = [
            f"({self._epsilon:g}, {self._delta:g})-differential privacy, {self._neighbours}, for "
            "all that is released under this filter",
            f"left: Gaussian noise of parameter {self.parameter_left:.4g}",
            *(f"left: {event}" for event in self.reserved_left),
        ]
        if self._simulation:
            lines.append("SIMULATION: seeded randomness; nobody is protected.")
        return "\n".join(lines)

    def _take(self, composed: events.Composed) -> None:
        tokens, taken = dict(self._tokens), self._taken
        numbers = self._numbers + sum(e.count * e.n_numbers for e in composed.events)
        for event in composed.events:
            uncovered = int(event.count)
            for token, count in tokens.items():
                if uncovered and count and events.event_covers(token, event):
                    used = min(uncovered, count)
                    tokens[token], uncovered = count - used, uncovered - used
            cost = events.event_gaussian_square(event)
            if uncovered and cost is not None:
                taken, uncovered = taken + uncovered * cost, 0
            if uncovered or taken > self._pool or numbers > MOST_NUMBERS:
                raise BudgetExceededError(
                    "events must be covered by what is left, Gaussian noise of parameter "
                    f"{self.parameter_left:.4g} and {len(self.reserved_left)} kinds of reserved "
                    f"events; got {event}. Use more noise, or reserve such events beforehand."
                )
        self._tokens, self._taken, self._numbers = tokens, taken, numbers
        self._simulation = self._simulation or composed.simulation


class Odometer(ProcessBound):
    """A running bound on the privacy loss of mechanisms chosen from earlier answers.

    Guarantee
    ---------
    Claim DP-22. For every ``ε`` fixed beforehand, all that is released while the reading is at most
    ``ε`` is ``(ε, delta)``-private. With continuous noise the loss is at most the reading *at all
    times*, except with probability ``delta``.
    """

    KIND = "an odometer"

    def __init__(self, *, delta: float, neighbours: Neighbours) -> None:
        self._lock = threading.Lock()
        _, self._delta = check_epsilon_delta(1.0, delta)
        check_neighbours(neighbours)
        self._neighbours: Neighbours = neighbours
        self._divergences = np.zeros(len(accounting.ORDERS))
        self._pure: float = 0.0
        self._numbers = 0
        self._simulation = False

    @property
    def epsilon(self) -> float:
        """The reading."""
        self.check_process()
        return self._read(self._divergences, self._pure, self._numbers)

    @property
    def spent(self) -> Spent:
        """The reading as a record."""
        return Spent(epsilon=self.epsilon, delta=self._delta)

    def spend(self, what: events.Accountable | Iterable[events.Accountable]) -> float:
        """Add events, or those of certificates or releases; return the reading."""
        self.check_process()
        composed = events.read_events(what, self._neighbours)
        with self._lock:
            self._divergences, self._pure, self._numbers = self._after(composed)
            self._simulation = self._simulation or composed.simulation
            return self.epsilon

    def __str__(self) -> str:
        warning = "\nSIMULATION: seeded randomness; nobody is protected."
        return (
            f"ε = {at_most(self.epsilon, significant=4)} so far at δ = {self._delta:g}, "
            f"{self._neighbours}"
            f"{warning if self._simulation else ''}"
        )

    def _after(self, composed: events.Composed) -> tuple[np.ndarray, float, int]:
        divergences, pure, numbers = self._divergences, self._pure, self._numbers
        for event in composed.events:
            more = None
            if not isinstance(event, events.ApproximateEvent):
                more = accounting.renyi_divergences(event, self._neighbours)
            if more is None:
                raise BudgetError(
                    "events must have known Rényi divergences for an odometer: one (ε, δ) says "
                    f"nothing about the loss itself; got {event}. Use a Filter, and reserve it."
                )
            loss = events.event_pure_loss(event)
            divergences = divergences + more
            pure += math.inf if loss is None else event.count * loss
            # Without sampling, discrete noise has the divergences of continuous noise.
            numbers += event.count * event.n_numbers if event.sampling is not None else 0
        return divergences, pure, numbers

    def _read(self, divergences: np.ndarray, pure: float, numbers: int) -> float:
        if pure == 0.0:
            return 0.0
        least = pure * (1 + 1e-12)
        delta = self._delta * (1.0 - HAIR)
        reading = min(least, _crossing(divergences, delta))
        price = dp_noise_price(reading, dp_noise_distance(MOST_NUMBERS))
        if numbers > MOST_NUMBERS or (numbers and price > self._delta * HAIR):
            return least
        return reading


def _crossing(divergences: np.ndarray, delta: float) -> float:
    """Return where the mean of ``exp((α - 1)(L - D_α))`` over all orders is ``1/δ``, rounded up."""
    slopes = np.array(accounting.ORDERS, dtype=np.float64) - 1.0
    if not np.isfinite(divergences).any():
        return math.inf
    log_target = math.log(len(slopes) / delta)

    def excess(loss: float) -> float:
        return float(scipy.special.logsumexp(slopes * (loss - divergences))) - log_target

    high = 1.0
    while excess(high) < 0.0:
        high *= 2.0
    return float(scipy.optimize.brentq(excess, 0.0, high, xtol=1e-12)) * (1 + 1e-9) + 1e-10


def _pool_beside(
    tokens: tuple[events.Event, ...], neighbours: Neighbours, epsilon: float, delta: float
) -> float:
    """Return the largest Gaussian parameter that fits into ``(ε, δ)`` beside what is reserved."""
    most = gaussian_parameter(epsilon, delta)
    if not tokens:
        return most
    losses = accounting.compose_accounting_losses(
        accounting.join_accounted_gaussians(tokens), neighbours, accounting.COARSE, delta
    )
    if not losses.get_delta_for_epsilon(epsilon) <= delta:
        raise BudgetError(
            f"reserved must cost less than epsilon {epsilon:g} at delta {delta:g}. Reserve fewer "
            "events, or with more noise."
        )

    # Slow to import, not always needed.
    from dp_accounting.pld import privacy_loss_distribution as pld

    def fits(parameter: float) -> bool:
        std = 1.0 / (parameter * (1.0 + 2.0 * ROUNDING))
        pool = pld.from_gaussian_mechanism(std, value_discretization_interval=accounting.COARSE)
        return bool(losses.compose(pool).get_delta_for_epsilon(epsilon) <= delta)

    low, high = 0.0, most
    while high - low > 1e-3 * most:
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
