"""The exponential mechanism, as report-noisy-max: one of several candidates, by score.

The form is permute-and-flip (McKenna and Sheldon 2020): look at the candidates in random order,
take each with probability ``exp(-γ)``, ``γ`` its scaled distance from the best score. That is the
law of the largest score with exponential noise, and every coin can be tossed exactly.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from pacprivacy._checks import Vector, check_positive
from pacprivacy._random import BitSource, uniform_below
from pacprivacy.dp.composition import carried
from pacprivacy.dp.events import PureEvent
from pacprivacy.dp.noise import check_neighbours, read_source
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.noise import bernoulli_exp
from pacprivacy.release import DPCertificate, DPRelease, Neighbours


def exponential(
    scores: Any,
    *,
    sensitivity: float,
    epsilon: float,
    neighbours: Neighbours,
    monotone: bool = False,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the place of one candidate, likely one with a high score.

    Parameters
    ----------
    scores : array of shape (k,), curator-only
        One score for each candidate of a public list.
    sensitivity : float > 0, public
        How far neighbours can move any one score.
    epsilon : float > 0, public
        The promise.
    neighbours : {"add_remove", "replace"}, public
        Relation that ``sensitivity`` and the promise are about.
    monotone : bool, public
        Whether neighbours move all scores in the same direction, as adding a record to counts
        does. Then half the noise is enough. For ``add_remove`` only: to replace a record is to
        remove one and to add another, and scores move either way.
    simulate : Generator or int, optional
        Seed of the choice, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value is the place of the candidate, from 0.

    Raises
    ------
    BudgetError
        If scores are called monotone where records are replaced.

    Guarantee
    ---------
    Claim DP-8. ``(epsilon, 0)``-differential privacy, exactly, for the float64 scores as given.
    With probability ``1 - p`` the score is within :func:`score_loss` of the best.

    Examples
    --------
    >>> exponential([3.0, 90.0, 5.0], sensitivity=1.0, epsilon=1.0, neighbours="replace").value
    1
    """
    check_neighbours(neighbours)
    if monotone and neighbours == "replace":
        raise BudgetError(
            "monotone must be False for neighbours='replace': what is removed lowers scores that "
            "what is added may raise; got True. Use 'add_remove', or leave monotone out."
        )
    source = read_source(simulate)
    chosen = choose_candidate(
        scores, sensitivity=sensitivity, epsilon=epsilon, monotone=monotone, source=source
    )
    same_way = ", all in the same direction" if monotone else ""
    certificate = DPCertificate(
        epsilon=float(epsilon),
        delta=0.0,
        neighbours=neighbours,
        mechanism="exponential mechanism by permute-and-flip, coins tossed exactly",
        assumptions=(
            f"Neighbours move each score by at most {float(sensitivity):g}{same_way}; the list of "
            "candidates is public.",
        ),
        accounting={"method": "one exponential mechanism", "candidates": int(np.size(scores))},
        events=carried(PureEvent(epsilon=float(epsilon))),
        simulation=source.is_simulation,
    )
    return DPRelease(value=chosen, certificate=certificate)


def score_loss(
    n_candidates: int,
    *,
    sensitivity: float,
    epsilon: float,
    failure: float,
    monotone: bool = False,
) -> float:
    """Return by how much the chosen score may miss the best, but for probability ``failure``.

    Examples
    --------
    >>> round(score_loss(100, sensitivity=1.0, epsilon=1.0, failure=0.05), 2)
    15.2
    """
    reach = (1.0 if monotone else 2.0) * sensitivity
    return reach / epsilon * math.log(n_candidates / failure)


def choose_candidate(
    scores: Any, *, sensitivity: float, epsilon: float, monotone: bool, source: BitSource
) -> int:
    """Return the place of one candidate by permute-and-flip; see :func:`exponential`."""
    epsilon = check_positive("epsilon", epsilon, advice="Use about 1.")
    reach = check_positive("sensitivity", sensitivity, advice="Bound what a record adds.")
    values: Vector = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise DataError(
            f"scores must be finite, one for each candidate; got shape {values.shape}. "
            "Clip the losses."
        )
    spread = reach * (1.0 if monotone else 2.0)  # a product with 1 or 2 is exact
    best = float(values.max())
    with np.errstate(over="ignore"):
        gamma = (best - values) * epsilon / spread

    def exact(i: int) -> Fraction:
        return (Fraction(best) - Fraction(float(values[i]))) * Fraction(epsilon) / Fraction(spread)

    heads = bernoulli_exp(gamma, exact, source)  # the best one always shows heads
    willing = np.flatnonzero(heads)
    # The first willing one of a random order of all is a uniform one of the willing.
    return int(willing[uniform_below(source, len(willing))])
