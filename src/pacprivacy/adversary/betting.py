"""Upper bounds on means by betting against them, valid whenever one stops.

A gambler who bets a share ``λ`` that numbers in [0, 1] fall below ``u`` has the wealth
``prod (1 + λ (u - x)/(1 - u))``. If their mean is ``u`` or more, wealth does not grow on average,
so it ever passes ``1/γ`` with probability ``γ`` at most. The mean of several such bets is one, too.

No union over units is needed: the claim is about the worst-placed unit, and a wrong claim needs
that unit's own bound to fail. Nor is a union over scales of the noise, which are tried from large
to small, each on separate draws, until one is not proved: the first scale at which the claim is
wrong is accepted with probability ``γ`` at most.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

import numpy as np

from pacprivacy._checks import Integers, Mask, Matrix, Vector, freeze
from pacprivacy.adversary.influence import (
    LARGE_MOVE,
    AverageRisk,
    InfluenceProof,
    average_gains,
)
from pacprivacy.errors import BudgetError

BETS: Final = (0.95, 0.6, 0.3, 0.15, 0.07, 0.03)
GAMMA: Final = 2.5e-10  # of each of two claims, for two lists of scales
N_CLAIMS: Final = 4
STORED_UNITS: Final = 100
_BETS: Final = np.array(BETS)
_LOG_ROUNDING: Final = 1e-9  # of sums of logarithms of a few thousand numbers


def _log_mean(log_wealth: Matrix) -> Vector:
    """Return the logarithm of the mean wealth over bets, along the first axis."""
    top = log_wealth.max(axis=0)
    return np.asarray(top + np.log(np.exp(log_wealth - top).mean(axis=0)))


class Wager:
    """Bets that the mean of every unit is below a cap; a unit is done once its wealth is enough."""

    def __init__(self, n_units: int, cap: float, gamma: float = GAMMA) -> None:
        if not 0 < cap < 1:
            raise BudgetError(f"cap must be between 0 and 1; got {cap}. Pass an advantage.")
        self._cap, self._enough = cap, math.log(1 / gamma) + _LOG_ROUNDING
        self._log_wealth = np.zeros((len(BETS), n_units))
        self.done = np.zeros(n_units, dtype=np.bool_)

    def progress(self, units: Integers) -> float:
        """Return the progress of the slowest unit towards the wealth that it needs."""
        return float(self._log_wealth[:, units].max(axis=0).min(initial=math.inf)) / self._enough

    def add(self, numbers: Vector, units: Integers) -> None:
        """Add one draw of the given units."""
        share = (self._cap - numbers) / (1 - self._cap)
        self._log_wealth[:, units] += np.log1p(_BETS[:, None] * share)
        self.done[units] |= _log_mean(self._log_wealth[:, units]) >= self._enough


class InfluenceWager:
    """Bets that no unit shows more than a cap on average, nor moves the release far too often."""

    def __init__(self, n_units: int, advantage: float, large_moves: float) -> None:
        self._advantages = Wager(n_units, advantage)
        self._moves = Wager(n_units, large_moves)

    @property
    def done(self) -> Mask:
        """Which units were proved."""
        return self._advantages.done & self._moves.done

    def progress(self, units: Integers) -> float:
        """Return the progress of the open bets on advantages, of the slowest unit."""
        return self._advantages.progress(units[~self._advantages.done[units]])

    def add(self, distances: Vector, units: Integers) -> None:
        """Add the influence of the given units in one draw; infinite if undefined."""
        open_units = ~self._advantages.done[units]
        self._advantages.add(draw_gains(distances[open_units]), units[open_units])
        self._moves.add((distances > LARGE_MOVE).astype(np.float64), units)


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnInfluence(InfluenceProof):
    """Influence on simulated samples, of the units that were hardest to prove; curator-only.

    ``distances``, shape (n_draws, units), are in deviations of ``noise_std`` and with rounding;
    infinite where the value is undefined, NaN after the unit was proved. ``advantage`` and
    ``large_moves`` are the proved bounds of every unit. ``n_drawn`` units were proved by draws;
    ``farthest`` bounds the distance of all others, but for an event of probability ``off_event``.
    """

    kind: ClassVar[str] = "draws"
    distances: Matrix = field(repr=False)
    advantage: float
    large_moves: float
    n_drawn: int
    farthest: float
    off_event: float
    noise_std: Vector = field(repr=False)

    def __post_init__(self) -> None:
        freeze(self.distances)
        freeze(self.noise_std)

    def risk(self, noise_std: Vector, rounding: float) -> AverageRisk:
        """Return bounds on the success of attackers; 1 if the draws prove none.

        Guarantee
        ---------
        Claims C-12 and C-11. Noise that is larger than that of the draws shows less.
        """
        proved = noise_std.shape == self.noise_std.shape and bool(
            (noise_std >= self.noise_std).all()
        )
        far = self.farthest + rounding
        advantage = float(average_gains(np.array([far]))[0]) + self.off_event
        large = self.off_event if far <= LARGE_MOVE else 1.0
        if self.n_drawn:
            proved = proved and self._replayed
            advantage, large = max(advantage, self.advantage), max(large, self.large_moves)
        return AverageRisk(
            advantage=min(1.0, advantage) if proved else 1.0,
            moves=((LARGE_MOVE, min(1.0, large) if proved else 1.0),),
            gamma=N_CLAIMS * GAMMA if self.n_drawn else 0.0,
            n_draws=len(self.distances),
        )

    @functools.cached_property
    def _replayed(self) -> bool:
        wager = InfluenceWager(self.distances.shape[1], self.advantage, self.large_moves)
        for line in self.distances:
            units = np.flatnonzero(~np.isnan(line))
            wager.add(line[units], units)
        return bool(wager.done.all())

    @property
    def not_checkable(self) -> dict[str, str]:
        return {
            "n_draws": "that the stored figures are the influence of units: the file has those of "
            f"{self.distances.shape[1]} of {self.n_drawn} units that were proved by draws, and one "
            "bound for all others"
        }

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        numbers = [self.advantage, self.large_moves, self.farthest, self.off_event]
        return {
            "distances": self.distances,
            "noise_std": self.noise_std,
            "numbers": np.array(numbers, dtype=np.float64),
            "n_drawn": np.array([self.n_drawn], dtype=np.int64),
        }

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], keep: float) -> Self:
        advantage, large_moves, farthest, off_event = (float(x) for x in arrays["numbers"])
        distances = np.asarray(arrays["distances"], dtype=np.float64)
        n_drawn = int(arrays["n_drawn"][0])
        stored = min(STORED_UNITS, n_drawn)
        if distances.ndim != 2 or (distances < 0).any() or distances.shape[1] != stored:
            raise ValueError("distances")
        if (np.isnan(distances[:-1]) & ~np.isnan(distances[1:])).any():  # draws are left out
            raise ValueError("distances")
        if not (0 < advantage < 1 and 0 < large_moves < 1):
            raise ValueError("numbers")
        if (n_drawn > 0) != (distances.shape[1] > 0) or not (farthest >= 0 and off_event >= 0):
            raise ValueError("n_drawn")
        return cls(
            distances=distances,
            advantage=advantage,
            large_moves=large_moves,
            n_drawn=n_drawn,
            farthest=farthest,
            off_event=off_event,
            noise_std=arrays["noise_std"],
        )


InfluenceProof.KINDS["draws"] = DrawnInfluence


def draw_gains(distances: Vector) -> Vector:
    """Return ``G`` of distances, 1 for undefined ones."""
    return np.where(np.isnan(distances), 1.0, average_gains(distances))
