"""What differential privacy means for one guess: the advantage of the best attacker.

Somebody tosses a coin for one of two neighbouring data sets, and the best attacker names the side
with probability ``(1 + a)/2``. The advantage ``a`` is the total variation distance of the two
outputs: ``δ(0)``, where the mechanism's privacy curve starts. It is the figure that differential
privacy shares with a PAC promise about membership, so it is what the two are compared at. One
``(ε, δ)`` of the curve bounds it too, but only randomised response goes that far: a Gaussian
mechanism calibrated through one point gets several times the noise that its advantage asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from pacprivacy.dp.events import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    grid_distance,
    read_composed,
)
from pacprivacy.dp.loss_distribution import loss_distribution
from pacprivacy.dp.noise import lattice_parameter
from pacprivacy.errors import BudgetError
from pacprivacy.release import Neighbours
from pacprivacy.theory import gaussian_epsilon, gaussian_equivalent

ADVANTAGE_STEP: Final = 1e-3  # of privacy loss; the advantage is rounded up by less than 1e-4 of it
ROUNDED: Final = 1e-12  # more than a formula of a few float64 operations is off
TAIL: Final = 1e-8  # δ at which the far tails of losses are cut off
CALIBRATION: Final = 1e-3  # of the advantage that a calibration finds, relative
MOST_TRIALS: Final = 40


def advantage(
    events: Event | Iterable[Event],
    *,
    neighbours: Neighbours = "add_remove",
    discretization: float = ADVANTAGE_STEP,
) -> float:
    """Return the advantage of the best attacker on mechanisms that ran on the same records.

    Parameters
    ----------
    events : Event or several, public
        :class:`GaussianEvent`, :class:`LaplaceEvent`, :class:`PureEvent`, each with the way in
        which its records were sampled. What is computed may depend on what was released before,
        the events may not.
    neighbours : {"add_remove", "replace"}, public
        Relation of the promise, and of the sensitivity that noise multipliers are relative to.
    discretization : float, public
        Step of privacy-loss distributions, where there is no closed form.

    Returns
    -------
    float
        ``δ(0)`` of the privacy-loss distribution, the larger of both directions, rounded up. The
        best guess at prior 1/2 succeeds with probability ``(1 + advantage)/2``.

    Raises
    ------
    BudgetError
        If an argument is out of range, or fixed-size batches are accounted for ``add_remove``.

    Guarantee
    ---------
    Claim DP-30. No attacker has a larger advantage, up to the arithmetic of dp-accounting. Closed
    forms are used for Gaussian runs without sampling, one Laplace run and one pure run.

    Examples
    --------
    >>> round(advantage(GaussianEvent(noise_multiplier=4.0, count=4)), 4)
    0.1974
    >>> round(advantage(LaplaceEvent(noise_multiplier=1.0)), 4), round(math.tanh(0.5), 4)
    (0.3935, 0.4621)
    """
    listed = list(read_composed(events, neighbours).events)
    found = _closed_form(listed)
    if found is None:
        combined: Any = None
        for event in listed:
            one = loss_distribution(event, neighbours, discretization, TAIL)
            combined = one if combined is None else combined.compose(one)
        found = float(combined.get_delta_for_epsilon(0.0))
    # Each of the two laws is that far from its continuous one, in total variation.
    return min(1.0, found * (1 + ROUNDED) + 2 * grid_distance(listed))


def noise_advantage(epsilon: float, delta: float, n_numbers: int) -> float:
    """Return the advantage on numbers with the noise that ``(ε, δ)`` asks for.

    Gaussian noise, by :func:`~pacprivacy.dp.noise.lattice_parameter`, or Laplace noise for
    ``delta=0``. Either may be shared among several statistics: for both laws the whole is as
    private as one statistic that moves by all of it.
    """
    if delta == 0.0:
        return advantage(LaplaceEvent(noise_multiplier=1.0 / epsilon, n_numbers=n_numbers))
    parameter = lattice_parameter(epsilon, delta, n_numbers)
    return advantage(GaussianEvent(noise_multiplier=1.0 / parameter, n_numbers=n_numbers))


def calibrate_to_advantage(
    advantage_at: Callable[[float], float], target: float, *, delta: float = 1e-5
) -> float:
    """Return the largest ``ε`` at which a method's own advantage keeps a target, rounded down.

    Most methods are told an ``ε`` and a ``δ``. At a fixed ``δ`` this finds the ``ε`` that makes
    them as private as a membership success ``(1 + target)/2`` asks for, and no more.

    Parameters
    ----------
    advantage_at : callable, public
        Advantage on the method at an ``ε``, for example from its certificate; increasing.
    target : float in (0, 1), public
        The advantage to reach: ``2 success - 1``.
    delta : float in (0, 1), public
        The ``δ`` that the method is told. The search begins where a Gaussian mechanism with this
        ``δ`` is a little below the target.

    Returns
    -------
    float
        An ``ε`` at which the advantage is at most ``target``, and at least 99.9 % of it.

    Raises
    ------
    BudgetError
        If no such ``ε`` is found: the advantage of a method that has ``δ`` is never below it.

    Guarantee
    ---------
    Claim DP-30. ``advantage_at(result) <= target``.

    Examples
    --------
    >>> epsilon = calibrate_to_advantage(lambda e: 1 - math.exp(-e / 2), 0.176)  # Laplace noise
    >>> round(epsilon, 3)
    0.387
    """
    if not 0.0 < target < 1.0:
        raise BudgetError(f"target must be between 0 and 1; got {target!r}. Use 2 success - 1.")
    aim = target * (1 - CALIBRATION / 2)
    low, high = (0.0, 0.0), (math.inf, 1.0)  # an ε and its advantage, on either side
    trial = gaussian_epsilon(gaussian_equivalent((1 + aim) / 2), delta) or target
    for _ in range(MOST_TRIALS):
        value = advantage_at(trial)
        if target * (1 - CALIBRATION) <= value <= target:
            return trial
        if value < target:
            low = (trial, value)
        else:
            high = (trial, value)
        trial = _between(low, high, aim)
    raise BudgetError(
        f"target must be an advantage that the method can have; none near {target:.6g} was found. "
        "Use a larger success, or a smaller delta."
    )


def _between(low: tuple[float, float], high: tuple[float, float], aim: float) -> float:
    """Return where to look next: on the chord, not too near an end."""
    if math.isinf(high[0]):
        return 2.0 * low[0]
    if low[0] == 0.0:
        return 0.5 * high[0]
    share = (aim - low[1]) / (high[1] - low[1])
    return low[0] + min(0.9, max(0.1, share)) * (high[0] - low[0])


def _closed_form(events: list[Event]) -> float | None:
    """Return the advantage where a formula has it: Gaussian noise, or one pure run."""
    if any(event.sampling is not None for event in events):
        return None
    if all(isinstance(event, GaussianEvent) for event in events):
        squares = [e.count / e.noise_multiplier**2 for e in events if isinstance(e, GaussianEvent)]
        return math.erf(math.sqrt(math.fsum(squares) / 8.0))  # 2 Φ(μ/2) - 1
    if len(events) == 1 and events[0].count == 1:
        event = events[0]
        if isinstance(event, LaplaceEvent):
            return -math.expm1(-0.5 / event.noise_multiplier)
        if isinstance(event, PureEvent):
            return math.tanh(event.epsilon / 2.0)
    return None
