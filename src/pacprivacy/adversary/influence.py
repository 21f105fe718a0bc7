"""Success of attackers when every unit has a coin.

One unit moves the released numbers by its *influence*, measured in deviations of the noise. For
sums it is the same whoever else is used, so the bound holds against an attacker who knows all
other coins, and with it against everybody. For a mean over the units that are used it depends on
them, and the bound is an average over their coins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from pacprivacy._checks import LARGEST_OUTPUT, SMALLEST_RANGE, Matrix, Vector
from pacprivacy.errors import BudgetError
from pacprivacy.theory import gaussian_equivalent, success_at
from pacprivacy.theory.bounds import falling_root

FALSE_ALARM_RATES: Final = (1e-3, 1e-6)
GROUP_SIZES: Final = (2, 5)
_ROUND_UP: Final = 1 + 2.0**-48  # of a distribution function in double precision
_WIDEST_BINOMIAL: Final = 1 << 20  # laws of more coins are cut off where nothing is left
_TAIL_STD: Final = 40.0
_POINT_ROUNDING: Final = 2.0**-40  # of means of floats, as a share of the largest


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


# --- a mean over the units that are used -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanInfluence:
    """Distances between units and their mean, for bound (9), in any unit; curator-only.

    ``extreme`` is the largest distance of a unit from the mean of the others, ``spread`` the mean
    squared distance of the others from that mean.
    """

    n_units: int
    extreme: float
    spread: float

    @classmethod
    def of(cls, points: Matrix) -> MeanInfluence:
        """Measure points, one a unit, in coordinates in which the noise is the same everywhere."""
        n = len(points)
        if n < 3:
            raise BudgetError(f"points must be at least 3; got {n}. Release sums of so few units.")
        size = float(np.abs(points).max(initial=0.0))
        if not (size == 0 or SMALLEST_RANGE <= size <= LARGEST_OUTPUT):
            raise BudgetError(
                f"points must be between {SMALLEST_RANGE:g} and {LARGEST_OUTPUT:g} in size, where "
                "squares neither vanish nor overflow; got other values. Rescale them."
            )
        squares = np.square(points - points.mean(axis=0)).sum(axis=1)
        rounding = _POINT_ROUNDING * size * points.shape[1]
        extreme = math.sqrt(float(squares.max())) * n / (n - 1) + rounding
        others = float(squares.sum()) - float(squares.max()) * n / (n - 1)
        return cls(n_units=n, extreme=extreme, spread=max(0.0, others) / (n - 1) + rounding**2)


def mean_advantage(
    influence: MeanInfluence, *, noise_std: float, keep: float, rounding: float = 0.0
) -> float:
    """Return the advantage on a mean of the units that are used, on average over coins.

    ``rounding`` is what rounding the mean to a grid may add to a distance, in deviations.

    Guarantee
    ---------
    Claim C-5. The mean of no unit is any fixed value. For every attacker, whatever they know of
    the other coins, on average over these. Rounded up.
    """
    if not (noise_std > 0.0 and rounding >= 0.0):
        raise BudgetError(
            f"noise_std must be positive and rounding not negative; got {noise_std} and "
            f"{rounding}. Take the noise from least_mean_noise."
        )
    n = influence.n_units
    counts, law = binomial_law(n - 1, keep)
    k = counts[counts > 0].astype(np.float64)
    within = (n - 1 - k) / (k * (n - 2)) * influence.spread
    distance = np.sqrt(influence.extreme**2 + within) / (k + 1) / noise_std + rounding
    from scipy.special import erf  # slow to import, not always needed

    advantages = np.ones(len(counts))
    advantages[counts > 0] = np.minimum(1.0, erf(distance / math.sqrt(8.0)))
    return min(1.0, float(law @ advantages) * (1 + 1e-9) + 1e-15)


def least_mean_noise(
    influence: MeanInfluence, *, advantage: float, keep: float, rounding: float = 0.0
) -> float:
    """Return the least noise at which :func:`mean_advantage` is within a bound, rounded up."""

    def excess(log_std: float) -> float:
        reached = mean_advantage(
            influence, noise_std=math.exp(log_std), keep=keep, rounding=rounding
        )
        return reached - advantage

    start = math.log(max(influence.extreme, 1e-290) / influence.n_units)
    low, high = start - 1.0, start + 1.0
    while excess(high) > 0:
        high += 2.0
        if high > start + 100.0:
            raise BudgetError(
                "success must leave room for empty samples and for rounding; got too small a "
                "one for so few units. Allow a larger success or release sums."
            )
    while excess(low) <= 0:
        low -= 2.0
        if low < start - 100.0:
            return math.exp(low)
    return math.exp(falling_root(excess, low, high))


def binomial_law(n: int, keep: float) -> tuple[np.ndarray, Vector]:
    """Return numbers of kept units and their probabilities, exact but for 1e-11 of each.

    By the ratios of neighbours from the mode on, then divided by their sum, which is 1. Of many
    coins the numbers more than 40 deviations from the mean are left out, below 1e-300 in all.
    """
    if keep >= 1.0 or n == 0:
        return np.array([n if keep >= 1.0 else 0]), np.ones(1)
    mode = min(n, int((n + 1) * keep))
    low, high = 0, n
    if n > _WIDEST_BINOMIAL:
        reach = int(_TAIL_STD * math.sqrt(n * keep * (1 - keep))) + 40
        low, high = max(0, mode - reach), min(n, mode + reach)
    up = np.arange(mode, high, dtype=np.float64)
    down = np.arange(mode, low, -1, dtype=np.float64)
    odds = keep / (1 - keep)
    rising = np.cumprod((n - up) / (up + 1) * odds)
    falling = np.cumprod(down / (n - down + 1) / odds)[::-1]
    law = np.concatenate([falling, [1.0], rising])
    return np.arange(low, high + 1), law / math.fsum(law.tolist())
