"""Success of attackers when every unit has a coin.

One unit changes the released sums by its *influence*, measured in deviations of the noise. It is
the same whoever else is used, so the bound holds against an attacker who knows all other coins,
and with it against everybody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.errors import BudgetError
from pacprivacy.theory import gaussian_equivalent, success_at

FALSE_ALARM_RATES: Final = (1e-3, 1e-6)
GROUP_SIZES: Final = (2, 5)
_ROUND_UP: Final = 1 + 2.0**-48  # of a distribution function in double precision


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceRisk:
    """Bounds on the success of attackers, for the unit with the largest charge; public.

    Parameters
    ----------
    parameter : float
        The largest influence of a unit, in deviations of the noise.
    advantage : float
        True positives minus false positives of the best attacker.
    success : float
        How often the best attacker is right where used and left out are equally likely.
    success_at_keep : float
        How often where the unit is used with its own probability, and ``keep`` without a release.
    hits : tuple of pairs
        For each rate of false alarms, the share of used units that an attacker finds.
    groups : tuple of pairs
        For each size of a group whose coins agree, the success of guessing which way.
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

    ``total_variation`` is what the sampled noise may differ from a continuous one.
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
        step *= 2.0  # near 1/2 rounding is large beside what is allowed
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
    noise apart at most, whoever else is used, that coins are independent, and that the noise is
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
