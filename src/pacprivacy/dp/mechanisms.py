"""Mechanisms for numbers of declared sensitivity, for sums of clipped rows, and for choices.

Choices are made by permute-and-flip (McKenna and Sheldon 2020): look at the candidates in random
order, take each with probability ``exp(-d)``, ``d`` its scaled distance from the best score. That
is the law of the largest score with exponential noise, and every coin can be tossed exactly.
"""

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Vector, check_positive
from pacprivacy._random import BitSource, uniform_below
from pacprivacy.dp import noise
from pacprivacy.dp.accounting import accounting_noise_advantage
from pacprivacy.dp.certificate import REACH, DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.events import PureEvent, noise_event, publish_event
from pacprivacy.dp.records import EMPTY_RECORDS, record_array, sum_clipped
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.noise import lattice_bernoulli_exp

EXACT: Final = "Noise is a whole number of grid steps, drawn exactly; rounding is paid for."
ROUNDED: Final = 1 + 1e-6  # scores of quantiles are rounded
Promise = tuple[float, float, Neighbours]
Simulation = np.random.Generator | int | None


def laplace(
    values: Any,
    *,
    sensitivity: float,
    epsilon: float,
    neighbours: Neighbours,
    simulate: Simulation = None,
) -> DPRelease:
    """Release numbers with Laplace noise; the value has the shape of ``values``.

    ``sensitivity`` is the largest change of all numbers between neighbours, as a sum of absolute
    changes. It must hold for every data set, so it comes from clipping, not from these data.

    Guarantee
    ---------
    Claims DP-1 and DP-30. ``(epsilon, 0)``-differential privacy, if ``sensitivity`` is right.
    """
    return _release_numbers(values, sensitivity, (epsilon, 0.0, neighbours), simulate)


def gaussian(
    values: Any,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    simulate: Simulation = None,
) -> DPRelease:
    """Release numbers with the least Gaussian noise that ``(ε, δ)`` allows.

    As :func:`laplace`, but ``sensitivity`` is the Euclidean length of the change.

    Guarantee
    ---------
    Claim DP-2. ``(epsilon, delta)``-differential privacy, if ``sensitivity`` is right; the grid is
    paid from ``delta``.
    """
    epsilon, delta = noise.check_epsilon_delta(epsilon, delta)
    return _release_numbers(values, sensitivity, (epsilon, delta, neighbours), simulate)


def _release_numbers(
    values: Any,
    sensitivity: float,
    promise: Promise,
    simulate: Simulation,
    *,
    assumptions: tuple[str, ...] = (),
    divisor: float | None = None,
) -> DPRelease:
    """Release numbers with Gaussian noise, and with Laplace noise for ``delta = 0``."""
    epsilon, delta, neighbours = promise
    check_neighbours(neighbours)
    source = noise.dp_noise_source(simulate)
    noisy = noise.add_noise(
        values, sensitivity=sensitivity, epsilon=epsilon, delta=delta, source=source
    )
    n_numbers, law = noisy.values.size, "Gaussian" if delta else "Laplace"
    length = "Euclidean length" if delta else "the sum of absolute values"
    moved = f"Neighbours move the numbers by at most {float(sensitivity):g} in {length}."
    method = "the exact privacy curve of the Gaussian mechanism"
    n = divisor or 1.0
    value = noisy.values / n
    scale = {} if delta else {"laplace scale": noisy.noise_scale / n}
    return publish_event(
        value if value.ndim else float(value),
        promise,
        noise_event(epsilon, delta, n_numbers),
        simulation=source.is_simulation,
        advantage=accounting_noise_advantage(epsilon, delta, n_numbers),
        mechanism=f"{law} mechanism: discrete {law} noise on a grid",
        assumptions=(*(assumptions or (moved,)), EXACT),
        accounting={"method": method if delta else "one Laplace mechanism"},
        noise={**scale, "std": noisy.noise_std / n},
        notes=() if divisor is None else (f"The sum was divided by {n:g}, which is public.",),
    )


def exponential(
    scores: Any,
    *,
    sensitivity: float,
    epsilon: float,
    neighbours: Neighbours,
    monotone: bool = False,
    simulate: Simulation = None,
) -> DPRelease:
    """Release the place of one candidate of a public list, likely one with a high score.

    ``sensitivity`` is the largest change of any score between neighbours. ``monotone`` says that
    they move all scores in the same direction, as adding a record to counts does; then half the
    noise is enough, for ``add_remove`` only.

    Guarantee
    ---------
    Claim DP-8. ``(epsilon, 0)``-differential privacy, exactly, for the float64 scores as they are.
    With probability ``1 - gamma`` the score is within :func:`exponential_score_loss` of the best.
    """
    check_neighbours(neighbours)
    if monotone and neighbours == "replace":
        raise BudgetError(
            "monotone must be False for neighbours='replace': what is removed lowers scores that "
            "what is added may raise; got True. Use 'add_remove', or leave monotone out."
        )
    source = noise.dp_noise_source(simulate)
    chosen = exponential_choice(
        scores, sensitivity=sensitivity, epsilon=epsilon, monotone=monotone, source=source
    )
    same_way = ", all in the same direction" if monotone else ""
    return publish_event(
        chosen,
        (epsilon, 0.0, neighbours),
        PureEvent(epsilon=float(epsilon)),
        simulation=source.is_simulation,
        mechanism="exponential mechanism by permute-and-flip, coins tossed exactly",
        assumptions=(
            f"Neighbours move each score by at most {float(sensitivity):g}{same_way}; the list of "
            "candidates is public.",
        ),
        accounting={"method": "one exponential mechanism", "candidates": int(np.size(scores))},
    )


def exponential_score_loss(
    n_candidates: int, *, sensitivity: float, epsilon: float, gamma: float, monotone: bool = False
) -> float:
    """Return the largest gap to the best score, but for probability ``gamma``."""
    reach = (1.0 if monotone else 2.0) * sensitivity
    return reach / epsilon * math.log(n_candidates / gamma)


def exponential_choice(
    scores: Any, *, sensitivity: float, epsilon: float, monotone: bool = False, source: BitSource
) -> int:
    """Return the index of a candidate drawn by permute-and-flip; see :func:`exponential`."""
    epsilon = check_positive("epsilon", epsilon, advice="Use about 1.")
    reach = check_positive("sensitivity", sensitivity, advice="Bound a record's contribution.")
    values: Vector = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise DataError(
            f"scores must be finite, one for each candidate; got shape {values.shape}. "
            "Clip the losses."
        )
    spread = reach * (1.0 if monotone else 2.0)  # a product with 1 or 2 is exact
    best = float(values.max())
    with np.errstate(over="ignore"):
        distances = (best - values) * epsilon / spread

    def exact(i: int) -> Fraction:
        return (Fraction(best) - Fraction(float(values[i]))) * Fraction(epsilon) / Fraction(spread)

    heads = lattice_bernoulli_exp(distances, exact, source)  # the best one always shows heads
    willing = np.flatnonzero(heads)
    # The first willing one of a random order of all is a uniform one of the willing.
    return int(willing[uniform_below(source, len(willing))])


def choose_quantile(
    numbers: Vector,
    grid: Vector,
    level: float,
    *,
    epsilon: float,
    neighbours: Neighbours,
    source: BitSource,
) -> float:
    """Return a point of a grid near a quantile, chosen by its rank (claims DP-14 and DP-40)."""
    ordered = np.sort(numbers)
    below = np.searchsorted(ordered, grid, side="left")
    above = len(ordered) - np.searchsorted(ordered, grid, side="right")
    reach = quantile_reach(level) if neighbours == "add_remove" else ROUNDED
    # A quantile has at most its share of the numbers below it, and the rest above.
    size = len(ordered)
    scores = -np.maximum(below - level * size, above - (1 - level) * size)
    place = exponential_choice(scores, sensitivity=reach, epsilon=epsilon, source=source)
    return float(grid[place])


def quantile_reach(level: float) -> float:
    """Return the largest change of a point's score by one more record."""
    return max(level, 1 - level) * ROUNDED


def private_sum(
    rows: Any,
    *,
    clip_norm: float,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours,
    simulate: Simulation = None,
) -> DPRelease:
    """Release the sum of rows, each scaled down to ``min(1, clip_norm/|row|)`` of itself.

    ``rows`` holds one number or row for each record. ``clip_norm`` bounds the sum of absolute
    entries for ``delta=0``, which takes Laplace noise, and the Euclidean length otherwise.

    Guarantee
    ---------
    Claims DP-1, DP-2, DP-3 and DP-17. ``(epsilon, delta)``-differential privacy; clipping and
    summation are inside, so nothing is left to declare.
    """
    return _sum(rows, clip_norm, (epsilon, delta, neighbours), simulate)


def private_mean(
    rows: Any,
    *,
    clip_norm: float,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours,
    n_public: int | None = None,
    simulate: Simulation = None,
) -> DPRelease:
    """Release the sum of clipped rows over a *public* number of records, as :func:`private_sum`.

    ``n_public`` is the number that the sum is divided by. Under ``replace`` the number of records
    is public and is the default; under ``add_remove`` it must be given, and an estimate will do.
    """
    noise.check_public_number(n_public, neighbours)
    n = check_positive("n_public", len(rows) if n_public is None else n_public, advice="Use n.")
    return _sum(rows, clip_norm, (epsilon, delta, neighbours), simulate, divisor=n)


def _sum(
    rows: Any,
    clip_norm: float,
    promise: Promise,
    simulate: Simulation,
    divisor: float | None = None,
) -> DPRelease:
    epsilon, delta = noise.check_dp_noise_promise(*promise)
    values = record_array(rows)
    flat = values.ndim == 1
    total: Any = sum_clipped(
        values[:, None] if flat else rows, clip_norm=clip_norm, norm="l2" if delta else "l1"
    )
    kind = "Euclidean length" if delta else "sum of absolute entries"
    clipped = (
        f"Rows are scaled down to a {kind} of at most {float(clip_norm):g}, which was declared."
    )
    return _release_numbers(
        total[0] if flat else total,
        REACH[promise[2]] * float(clip_norm),
        (epsilon, delta, promise[2]),
        simulate,
        assumptions=(clipped, EMPTY_RECORDS),
        divisor=divisor,
    )
