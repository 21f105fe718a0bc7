"""Success of attackers when every unit has a coin: one release, a session, and on average.

A unit changes the released sums by its *influence*, measured in deviations of the noise. It is the
same for any other used units, so the bound holds against an attacker who knows all other coins. In
a session the squares of influence add up, on a clock for every unit. Where influence depends on the
other used units, the bound is an average over their coins; an average hides rare large changes, so
the probability of a change by more than three deviations is limited, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import ClassVar, Final, Self

import numpy as np

from pacprivacy._checks import Vector, freeze
from pacprivacy.errors import BudgetError, BudgetExceededError
from pacprivacy.theory import gaussian_equivalent, success_at

FALSE_ALARM_RATES: Final = (1e-3, 1e-6)
GROUP_SIZES: Final = (2, 5)
SESSION_SLACK: Final = 1e-7  # of success: what whole-number noise may cost over a session
MOVES: Final = (0.5, 1.0, 2.0, 3.0)  # deviations of the noise, whose probability is stated
LARGE_MOVE: Final = MOVES[-1]
LARGE_MOVE_SHARE: Final = 0.25  # of the advantage: the largest probability of a large move
_ROUND_UP: Final = 1 + 2.0**-48  # of a distribution function in double precision
_ROUND_UP_GAINS: Final = 1 + 2.0**-40
_ROUND_UP_SQUARES: Final = 1 + 2.0**-50
_ROUNDING_SHARE: Final = 2.0**-46  # of the cap: more than rounding a clock up adds


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceRisk:
    """Bounds on the success of attackers, for the unit with the largest charge; public.

    ``parameter`` is the largest influence of a unit, ``advantage`` true minus false positives.
    ``success`` is for even odds, ``success_at_keep`` for a unit that is used with probability
    ``keep``. ``hits`` pairs rates of false alarms with the share of used units that is found,
    ``groups`` pairs sizes of groups whose coins agree with the success of guessing which way.
    """

    parameter: float
    advantage: float
    success: float
    success_at_keep: float
    hits: tuple[tuple[float, float], ...]
    groups: tuple[tuple[int, float], ...]


def influence_advantage(influence: float) -> float:
    """Return ``2 Φ(r/2) - 1``, rounded up: the advantage of telling two means at distance ``r``.

    Examples
    --------
    >>> round(influence_advantage(0.4449), 4)
    0.176
    """
    if not influence >= 0.0:
        raise BudgetError(
            f"influence must be at least 0; got {influence}. Pass a distance in deviations."
        )
    return min(1.0, math.erf(influence / math.sqrt(8.0)) * _ROUND_UP)


def influence_parameter(success: float, total_variation: float = 0.0) -> float:
    """Return the influence that a membership success allows, rounded down.

    ``total_variation`` is the distance of the sampled noise from a continuous one.
    """
    if not 0.5 < success < 1.0:
        raise BudgetError(
            f"success must be above 1/2 (a coin guesses that well) and below 1; got {success!r}. "
            "Use 0.6 for a strong promise, 0.75 for a moderate one."
        )
    parameter = gaussian_equivalent(success - total_variation)
    step = 2.0**-46
    while parameter > 0 and influence_success(parameter, total_variation) > success:
        parameter = parameter * (1 - step) if step < 1 else 0.0
        step *= 2.0  # near 1/2 rounding is large beside the allowed influence
    if not parameter > 0:
        raise BudgetError(
            f"success must be above 1/2 by more than {total_variation:g}, which rounding costs; "
            f"got {success!r}. Allow a larger one."
        )
    return parameter


def influence_success(influence: float, total_variation: float = 0.0) -> float:
    """Return the success of the best attacker at even odds, rounded up."""
    return min(1.0, (0.5 + influence_advantage(influence) / 2) * (1 + 2.0**-51) + total_variation)


def influence_hits(influence: float, false_alarms: float, total_variation: float = 0.0) -> float:
    """Return the largest share of used units that an attacker finds at a rate of false alarms.

    ``Φ(Φ⁻¹(FPR) + r)`` with the slack of the sampled noise on both sides, rounded up.
    """
    rate = min(1.0, false_alarms + total_variation)
    if not 0.0 < rate < 1.0:
        return min(1.0, rate + total_variation)
    shifted = NormalDist().inv_cdf(rate) + influence
    hits = 0.5 * math.erfc(-shifted / math.sqrt(2.0))
    return min(1.0, hits * (1 + 2.0**-40) + total_variation)


def influence_risk(charges: Vector, *, keep: float, total_variation: float = 0.0) -> InfluenceRisk:
    """Return bounds on the success of attackers on noisy sums, by the charge of every unit.

    Guarantee
    ---------
    Claim C-2. Assumes that the integers with and without a unit are ``charges`` deviations of the
    noise apart at most, for any other used units, that coins are independent, and that the noise is
    within ``total_variation`` of a function of a continuous one. Ensures every field for every
    attacker, whatever they know of the other units; ``groups`` for units whose coins agree.
    """
    largest = np.sort(np.asarray(charges, dtype=np.float64))[::-1]
    top = float(largest[0]) if len(largest) else 0.0
    advantage = min(1.0, influence_advantage(top) + 2 * total_variation)
    groups = []
    for size in GROUP_SIZES:
        together = math.fsum(largest[:size].tolist()) * _ROUND_UP
        groups.append((size, influence_success(together, total_variation)))
    return InfluenceRisk(
        parameter=top,
        advantage=advantage,
        success=influence_success(top, total_variation),
        success_at_keep=success_at(advantage, keep),
        hits=tuple((a, influence_hits(top, a, total_variation)) for a in FALSE_ALARM_RATES),
        groups=tuple(groups),
    )


# --- a session of sums: squares of influence, which add up --------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clocks:
    """Squared influence that every unit has paid so far, used or left out; rounded up.

    ``spent`` is curator-only. ``cap`` limits every clock; ``slack`` is the total variation of the
    noise of all releases so far.

    Guarantee
    ---------
    Claim C-8. Assumes releases of sums, each chosen from earlier ones, all records and public
    randomness. Ensures that an attacker who knows everything but one unit's coin guesses it from
    all of them with success :attr:`success` at most, at even odds.
    """

    spent: Vector = field(repr=False)
    cap: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        freeze(self.spent)

    @classmethod
    def begin(cls, success: float, n_units: int) -> Self:
        """Return clocks at zero under a total membership success."""
        return cls(spent=np.zeros(n_units), cap=session_cap(success))

    def extended(self, n_units: int) -> Self:
        """Return clocks for more units; new clocks start at zero."""
        return replace(self, spent=np.append(self.spent, np.zeros(n_units - len(self.spent))))

    @property
    def left(self) -> Vector:
        """Remaining budget of every unit, less an allowance for rounding up."""
        most = self.cap * (1 - _ROUNDING_SHARE)
        return np.asarray(np.maximum(most - self.spent, 0.0))

    @property
    def busiest(self) -> float:
        """Largest amount that any unit has paid."""
        return float(self.spent.max(initial=0.0))

    @property
    def success(self) -> float:
        """The membership success that is promised over the session."""
        return cap_success(self.cap)

    def after(self, charges: Vector, slack: float) -> Self:
        """Return the clocks after a release; refuse one that a unit cannot pay."""
        squares = np.square(charges) * _ROUND_UP_SQUARES
        spent = np.where(squares == 0, self.spent, np.nextafter(self.spent + squares, np.inf))
        if not self.slack + slack <= SESSION_SLACK:
            raise BudgetExceededError(
                "the session must release fewer numbers in all: each costs a little for being a "
                "whole number of grid steps. Nothing was drawn or spent. Start a new session."
            )
        if not (spent <= self.cap).all():
            raise BudgetExceededError(
                "the release must be paid for by every unit; some have less left. Nothing was "
                "drawn or spent. Ask for less."
            )
        return replace(self, spent=spent, slack=self.slack + slack)

    def allowances(self, share: float, n_left: int | None, n_done: int) -> Vector:
        """Return the allowance of every unit for the next release.

        It is a share of the remaining budget. Where ``n_left`` releases are to come, a unit that
        paid less than others may pay the geometric mean of an even share and of its savings
        against a straight line.
        """
        even = self.left * share
        if n_left is None:
            return even
        line = self.cap * (n_done + 1) / (n_done + n_left)
        saved = np.maximum(line - self.spent, 0.0)
        return np.asarray(np.minimum(self.left, np.sqrt(even * np.maximum(saved, even))))


def session_cap(success: float) -> float:
    """Return the squared influence that a unit may pay in all, rounded down."""
    return influence_parameter(success, SESSION_SLACK) ** 2 * (1 - 2.0**-44)


def session_risk(cap: float, keep: float) -> InfluenceRisk:
    """Return bounds on the success of attackers on all releases of a session."""
    alike = np.full(max(GROUP_SIZES), math.sqrt(cap) * (1 + 2.0**-50))
    return influence_risk(alike, keep=keep, total_variation=SESSION_SLACK)


def cap_success(cap: float) -> float:
    """Return the membership success of a cap, rounded up."""
    return influence_success(math.sqrt(cap) * (1 + 2.0**-50), SESSION_SLACK)


# --- influence that depends on the other used units ----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageRisk:
    """Bounds on the success of attackers, on average over the coins, for the most exposed unit.

    ``moves`` pairs distances in deviations of the noise with the probability that the unit changes
    the release by more. The figures, from ``n_draws`` simulated samples, are too small with
    probability ``gamma``; closed forms have 0 of both.
    """

    advantage: float
    moves: tuple[tuple[float, float], ...]
    gamma: float = 0.0
    n_draws: int = 0

    @property
    def large_moves(self) -> float:
        """Probability that a unit moves the release by more than three deviations."""
        return dict(self.moves)[LARGE_MOVE]

    def within(self, advantage: float, large_moves: float) -> bool:
        """Whether every figure is within its limit; NaN is not."""
        return self.advantage <= advantage and self.large_moves <= large_moves


class InfluenceProof(ABC):
    """Evidence for the influence of units on a release; curator-only."""

    __slots__ = ()
    KINDS: ClassVar[dict[str, type[InfluenceProof]]] = {}
    kind: ClassVar[str]

    @abstractmethod
    def risk(self, noise_std: Vector, rounding: float) -> AverageRisk:
        """Return bounds on the success of attackers, by the noise of each direction.

        ``rounding`` is the largest effect of rounding on a distance.
        """

    @property
    def not_checkable(self) -> dict[str, str]:
        """Fields of a certificate that a stored proof does not show, and why."""
        return {}

    @property
    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The proof as arrays for a file; :meth:`of_arrays` reads them."""

    @classmethod
    @abstractmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], keep: float) -> InfluenceProof:
        """Rebuild it; whatever does not fit together raises."""


def average_gains(distance: Vector) -> Vector:
    """Return ``G`` of distances in deviations, rounded up."""
    from scipy.special import erf  # slow to import, not always needed

    advantage: Vector = np.minimum(1.0, erf(distance / math.sqrt(8.0)) * _ROUND_UP_GAINS)
    return advantage


def average_hits(
    advantage: float, moves: tuple[tuple[float, float], ...], total_variation: float
) -> dict[str, float]:
    """Return the largest share of used units that are flagged, for each rate of false alarms.

    ``Φ(Φ⁻¹(FPR) + r) + P(move > r)`` for the best ``r``, or ``FPR`` plus the advantage: claim C-10.
    """
    return {
        f"{rate:g}": min(
            1.0,
            rate + advantage,
            *(influence_hits(r, rate, total_variation) + chance for r, chance in moves),
        )
        for rate in FALSE_ALARM_RATES
    }
