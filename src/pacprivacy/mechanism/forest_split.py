"""Where a node of a tree splits: entropies on a public grid, averaged and pulled for stability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.inputs import check_count

__all__ = ["SplitRule", "SplitSearch", "entropy_terms", "split_entropies"]

Matrix = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_MOST_THRESHOLDS: Final = 4096
_RANKS_PER_NAT: Final = 2.0**40  # closer scores are ties: no choice rests on a logarithm's last bit


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """How one point of a grid is chosen, given the class counts between the points.

    Let ``H[g]`` be the class entropy that is left after splitting the node at grid point ``g``
    (nats; see ``weigh_nodes``), ``M[g]`` the mean of ``H`` over the other points at most
    ``neighbour_radius`` steps from ``g``, and ``r`` the node's public reference point. The
    choice minimises ::

        (1 - pull) * ((1 - neighbour_weight) * H[g] + neighbour_weight * M[g])
            + pull * |g - r| / (n_thresholds - 1)

    Ties, to about 1e-12 nats, go to the point nearest ``r``, then to the lower one. So a node
    that is empty or pure takes ``r``.

    Parameters
    ----------
    n_thresholds : int, public
        Points of the grid; the first and the last are the ends of the feature's range.
    neighbour_weight : float in [0, 1], public
        Weight of the neighbours against the point itself.
    neighbour_radius : int >= 0, public
        Steps to either side that count as neighbours; 0 switches them off.
    pull : float in [0, 1], public
        Weight of the distance to the reference, in units of the feature's range.
    weigh_nodes : bool, public
        Take entropies per row of the whole subset, so that the fewer rows a node has, the more
        the pull decides. False takes them per row of the node.
    """

    n_thresholds: int
    neighbour_weight: float
    neighbour_radius: int
    pull: float
    weigh_nodes: bool

    def __post_init__(self) -> None:
        check_count("n_thresholds", self.n_thresholds, 2, advice="Use about 32.")
        check_count("neighbour_radius", self.neighbour_radius, 0, advice="Use 1 for the nearest.")
        if self.n_thresholds > _MOST_THRESHOLDS:
            raise MechanismError(
                f"n_thresholds must be at most {_MOST_THRESHOLDS}; got {self.n_thresholds}. "
                "Use about 32."
            )
        if self.neighbour_radius >= self.n_thresholds:
            raise MechanismError(
                f"neighbour_radius must be below n_thresholds ({self.n_thresholds}); got "
                f"{self.neighbour_radius}. Use 1 for the nearest neighbours."
            )
        for name, value in (("neighbour_weight", self.neighbour_weight), ("pull", self.pull)):
            if not 0.0 <= value <= 1.0:
                raise MechanismError(
                    f"{name} must be between 0 and 1; got {value!r}. Use 0 to switch it off."
                )


def entropy_terms(most: int) -> Matrix:
    """Return ``k ln k`` for every count ``k`` from 0 to ``most``."""
    counts = np.arange(most + 1, dtype=np.float64)
    terms: Matrix = counts * np.log(np.maximum(counts, 1.0))
    return terms


def split_entropies(below: Integers, terms: Matrix) -> Matrix:
    """Return the class entropy left after splitting each node at each grid point.

    Parameters
    ----------
    below : int array of shape (n_classes, n_nodes, n_thresholds + 1), curator-only
        Rows of each class below each point of the grid, and in all.
    terms : array
        From :func:`entropy_terms`, up to the rows of the largest node.

    Returns
    -------
    array of shape (n_nodes, n_thresholds), curator-only
        In nats, summed over the rows of the node.
    """
    n_classes, n_nodes, n_bins = below.shape
    rows = np.empty((n_classes + 1, 2, n_nodes, n_bins - 1), dtype=np.int64)
    classes, sums = rows[:-1], rows[-1]
    classes[:, 0] = below[..., :-1]
    np.subtract(below[..., -1:], below[..., :-1], out=classes[:, 1])
    np.add.reduce(classes, axis=0, out=sums)
    found = terms.take(rows)
    left, right = found[-1] - np.add.reduce(found[:-1], axis=0)
    nats: Matrix = left + right
    return nats


class SplitSearch:
    """The rule made ready for the references of some trees; public.

    Parameters
    ----------
    rule : SplitRule
    reference : int array of shape (n_trees, n_nodes)
        The grid point that each node is pulled to.
    """

    __slots__ = ("_handicap", "_near", "_own", "_rule", "_ties")

    def __init__(self, rule: SplitRule, reference: Integers) -> None:
        points = np.arange(rule.n_thresholds)
        steps = np.abs(points - reference[..., None])
        self._rule = rule
        self._handicap = _RANKS_PER_NAT * rule.pull / (rule.n_thresholds - 1) * steps
        self._ties = 2 * steps + (points > reference[..., None])
        weight = rule.neighbour_weight if rule.neighbour_radius else 0.0
        n_near = np.minimum(points, rule.neighbour_radius)
        n_near = n_near + n_near[::-1]
        self._own = _RANKS_PER_NAT * (1.0 - rule.pull) * (1.0 - weight)
        self._near = _RANKS_PER_NAT * (1.0 - rule.pull) * weight / np.maximum(n_near, 1)

    def choose(self, entropies: Matrix, nodes: slice) -> Integers:
        """Return the grid point at which each node splits.

        Parameters
        ----------
        entropies : array of shape (n_groups, n_trees, n_chosen, n_thresholds), curator-only
            ``H`` of :class:`SplitRule`, for groups that have the same references.
        nodes : slice
            Which ``n_chosen`` of the nodes these are.
        """
        scores = entropies * self._own
        if self._rule.neighbour_radius:
            scores += self._sum_neighbours(entropies) * self._near
        scores += self._handicap[:, nodes]
        # One integer orders by score, then by distance, then by side; it stays below 2**62.
        ranks = np.rint(scores, out=scores).astype(np.int64)
        ranks *= 2 * self._rule.n_thresholds
        ranks += self._ties[:, nodes]
        chosen: Integers = ranks.argmin(axis=-1)
        return chosen

    def _sum_neighbours(self, entropies: Matrix) -> Matrix:
        sums = np.zeros_like(entropies)
        for step in range(1, self._rule.neighbour_radius + 1):
            sums[..., step:] += entropies[..., :-step]
            sums[..., :-step] += entropies[..., step:]
        return sums
