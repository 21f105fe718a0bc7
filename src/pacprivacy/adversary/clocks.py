"""Amounts that every unit has paid in a session of sums: squares of influence, which add up."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from pacprivacy._checks import Vector, freeze
from pacprivacy.adversary.influence import (
    GROUP_SIZES,
    InfluenceRisk,
    influence_parameter,
    influence_risk,
    influence_success,
)
from pacprivacy.errors import BudgetExceededError

SESSION_SLACK: Final = 1e-7  # of success: what whole-number noise may cost over a session
_ROUND_UP: Final = 1 + 2.0**-50
_ROUNDING_SHARE: Final = 2.0**-46  # of the cap: more than rounding a clock up adds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clocks:
    """Amounts that units have paid so far, and the cap on them.

    Parameters
    ----------
    spent : array of shape (n_units,), curator-only
        Sum of the squared influence of every unit, used or left out, rounded up.
    cap : float, public
        Limit of every clock.
    slack : float, public
        Total variation of the noise of all releases so far.

    Guarantee
    ---------
    Claim C-8. Assumes releases of sums, each chosen from earlier ones, all records and public
    randomness. Ensures that whoever knows everything but one unit's coin guesses it from all of
    them with success :attr:`success` at most, at even odds.
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
        """Return the clocks after a release; refuse it if a unit cannot pay."""
        squares = np.square(charges) * _ROUND_UP
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

        A share of what is left. Where ``n_left`` releases are to come, a unit that was asked about
        less than others has saved, and may pay the geometric mean of an even share of what is left
        and of what it has saved against a straight line.
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
