"""Where a node of a tree splits: entropies on a public grid, averaged and pulled for stability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError

__all__ = ["MAX_THRESHOLDS", "SplitRule", "choose_thresholds", "entropy_terms", "split_entropies"]

Matrix = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MAX_THRESHOLDS: Final = 4096
# Scores closer than this are ties, so that a choice never rests on the rounding of a logarithm.
_TIES_PER_NAT: Final = 2.0**40


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """How one threshold of a grid is chosen, given the class counts between the grid's points.

    With ``H_g`` the class entropy (nats) that is left after splitting the node at grid point
    ``g``, ``M_g`` the mean of ``H`` over the other grid points at most ``neighbour_radius``
    steps away, and ``r`` the node's reference point, the choice is the least

        (1 - pull) * ((1 - neighbour_weight) * H_g + neighbour_weight * M_g)
            + pull * |g - r| / (n_thresholds - 1).

    Ties go to the point nearest the reference, then to the lower one.

    Parameters
    ----------
    n_thresholds : int, public
        Points of the grid, both ends of the range included.
    neighbour_weight : float in [0, 1], public
        Weight of the neighbours' mean, against the point's own entropy.
    neighbour_radius : int >= 0, public
        Steps to either side that count as neighbours.
    pull : float in [0, 1], public
        Weight of the distance to the reference, in units of the range.
    """

    n_thresholds: int
    neighbour_weight: float
    neighbour_radius: int
    pull: float

    def __post_init__(self) -> None:
        if not 2 <= self.n_thresholds <= MAX_THRESHOLDS:
            raise MechanismError(
                f"n_thresholds must be between 2 and {MAX_THRESHOLDS}; got {self.n_thresholds}. "
                "Use about 32."
            )
        for name in ("neighbour_weight", "pull"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise MechanismError(
                    f"{name} must be between 0 and 1; got {value!r}. Use 0 to switch it off."
                )
        if self.neighbour_radius < 0:
            raise MechanismError(
                f"neighbour_radius must be at least 0; got {self.neighbour_radius}. "
                "Use 1 for the nearest neighbours."
            )


def entropy_terms(n_rows: int) -> Matrix:
    """Return ``k ln k`` for every count ``k`` from 0 to ``n_rows``."""
    counts = np.arange(n_rows + 1, dtype=np.float64)
    terms: Matrix = counts * np.log(np.maximum(counts, 1.0))
    return terms


def split_entropies(counts: Integers, terms: Matrix) -> Matrix:
    """Return the class entropy left after splitting each node at each grid point.

    Parameters
    ----------
    counts : int array of shape (n_nodes, n_thresholds + 1, n_classes), curator-only
        Rows of each class between the grid's points.
    terms : array, public
        From :func:`entropy_terms`, for at least the rows of the largest node.

    Returns
    -------
    array of shape (n_nodes, n_thresholds), curator-only
        In nats per row of the node; zero for an empty node.
    """
    below = counts.cumsum(axis=1)
    total = below[:, -1:]
    left = below[:, :-1]
    right = total - left
    left_rows, rows = left.sum(axis=2), total.sum(axis=2)
    nats = terms[left_rows] + terms[rows - left_rows]
    nats -= (terms[left] + terms[right]).sum(axis=2)
    nats /= np.maximum(rows, 1)
    return nats


def choose_thresholds(entropies: Matrix, reference: Integers, rule: SplitRule) -> Integers:
    """Return the grid point at which each node splits.

    Parameters
    ----------
    entropies : array of shape (n_nodes, n_thresholds), curator-only
        From :func:`split_entropies`.
    reference : int array of shape (n_nodes,), public
        The grid point that each node is pulled to; an empty node takes it.
    rule : SplitRule, public
    """
    points = np.arange(rule.n_thresholds)
    steps = np.abs(points - reference[:, None])
    scores = (1.0 - rule.pull) * _average_neighbours(entropies, rule)
    scores += rule.pull / (rule.n_thresholds - 1) * steps
    ranks = np.rint(scores * _TIES_PER_NAT).astype(np.int64)
    # One integer orders by score, then by distance, then by side.
    ranks *= 2 * rule.n_thresholds
    ranks += 2 * steps + (points > reference[:, None])
    choice: Integers = ranks.argmin(axis=1)
    return choice


def _average_neighbours(entropies: Matrix, rule: SplitRule) -> Matrix:
    radius = min(rule.neighbour_radius, rule.n_thresholds - 1)
    if radius == 0 or rule.neighbour_weight == 0.0:
        return entropies
    sums = np.zeros_like(entropies)
    n_neighbours = np.zeros(rule.n_thresholds)
    for step in range(1, radius + 1):
        sums[:, step:] += entropies[:, :-step]
        sums[:, :-step] += entropies[:, step:]
        n_neighbours[step:] += 1
        n_neighbours[:-step] += 1
    weight = rule.neighbour_weight
    averaged: Matrix = (1.0 - weight) * entropies + weight * sums / n_neighbours
    return averaged
