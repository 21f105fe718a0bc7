"""Success of attackers if the influence of a unit depends on the other used units.

The advantage of whoever knows all other coins is ``G(r)``, ``r`` the distance that the unit moves
the release by, in deviations of the noise. It is averaged over these coins. An average hides rare
large moves, so the chance of a move by more than three deviations is held down, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.adversary.influence import FALSE_ALARM_RATES, influence_hits

MOVES: Final = (0.5, 1.0, 2.0, 3.0)  # deviations of the noise, of which the chance is told
LARGE_MOVE: Final = MOVES[-1]
LARGE_MOVE_SHARE: Final = 0.25  # of the advantage: the most that a large move is likely
_ROUND_UP: Final = 1 + 2.0**-40


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageRisk:
    """Bounds on the success of attackers, on average over the coins, for the most exposed unit.

    Parameters
    ----------
    advantage : float
        True positives minus false positives of whoever knows all other coins.
    moves : tuple of pairs
        For each distance in deviations of the noise, how likely a unit moves the release by more.
    gamma : float
        How likely these figures are too small: 0 where nothing is simulated.
    n_draws : int
        Number of simulated samples behind them.
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

        ``rounding`` is what rounding the value to whole numbers may add to a distance.
        """

    @property
    def not_checkable(self) -> dict[str, str]:
        """Fields of a certificate that a stored proof does not show, and why."""
        return {}

    @property
    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a file; :meth:`of_arrays` reads it."""

    @classmethod
    @abstractmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], keep: float) -> InfluenceProof:
        """Rebuild it; whatever does not fit together raises."""


def average_gains(distance: Vector) -> Vector:
    """Return ``G`` of distances in deviations, rounded up."""
    from scipy.special import erf  # slow to import, not always needed

    advantage: Vector = np.minimum(1.0, erf(distance / math.sqrt(8.0)) * _ROUND_UP)
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
