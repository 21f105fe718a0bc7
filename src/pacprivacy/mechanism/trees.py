"""Where a node of a tree splits: entropies on a public grid, averaged and pulled for stability."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Matrix, freeze
from pacprivacy._random import public_generator
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.labels import check_count, check_varying

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
    """Return the class entropy left after splitting each node at each grid point."""
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
        """Return the grid point at which each node splits."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeRows:
    """The rows that trees are grown on, one entry for each row of each tree; curator-only.

    Parameters
    ----------
    cells : int array of shape (depth, n_entries)
        For every level, the entry's bin of that level's feature times the number of classes,
        plus the entry's class.
    trees : int array of shape (n_entries,)
        The tree that each entry belongs to.
    sizes : int array of shape (n_trees,)
        Entries of every tree.
    n_classes : int
    """

    cells: Integers
    trees: Integers
    sizes: Integers
    n_classes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GrownTrees:
    """Complete trees; curator-only.

    Parameters
    ----------
    points : int array of shape (n_trees, 2**depth - 1)
        Grid point of each node, breadth first: node ``i`` has the children ``2 i + 1``, for
        rows below its threshold, and ``2 i + 2``.
    counts : int array of shape (n_trees, 2**depth, n_classes)
        Rows of each class in each leaf, from left to right.
    """

    points: Integers
    counts: Integers

    def leaf_scores(self, smoothing: float) -> Matrix:
        """Return class shares in each leaf after adding ``smoothing`` rows, equally divided."""
        n_classes = self.counts.shape[2]
        rows = self.counts.sum(axis=2, keepdims=True) + smoothing
        shares = (self.counts + smoothing / n_classes) / np.where(rows > 0, rows, 1.0)
        scores: Matrix = np.where(rows > 0, shares, 1.0 / n_classes)
        return scores


def fence_grids(low: Matrix, width: Matrix, n_thresholds: int) -> Matrix:
    """Return the points of every column's grid between minus and plus infinity."""
    fences = np.full((len(low), n_thresholds + 2), np.inf)
    fences[:, 0] = -np.inf
    fractions = np.arange(n_thresholds) / (n_thresholds - 1)
    fences[:, 1:-1] = low[:, None] + fractions * width[:, None]
    return fences


def bin_columns(X: Matrix, fences: Matrix) -> Integers:
    """Return, for every value, how many points of its column's grid are not above it.

    A value is below grid point ``g``, and goes left there, exactly if its bin is at most ``g``.
    """
    n_columns, n_fences = fences.shape
    columns = np.ascontiguousarray(X.T)
    low, high, last = fences[:, 1:2], fences[:, -2:-1], n_fences - 3
    with np.errstate(over="ignore"):
        places = columns - low
        places *= last / (high - low)
    np.clip(places, -1.0, last, out=places)
    places += 1.0
    bins: Integers = places.astype(np.int64)
    # Arithmetic may be a step off, and more where the grid is as fine as floats are: check every
    # value against the fences of its bin, and search for the few that are not between them.
    at = bins + np.arange(n_columns)[:, None] * n_fences
    flat = fences.ravel()
    outside = (columns < flat.take(at)) | (columns >= flat[1:].take(at))
    for column in np.flatnonzero(outside.any(axis=1)):
        strays = columns[column, outside[column]]
        bins[column, outside[column]] = np.searchsorted(fences[column, 1:-1], strays, side="right")
    return bins


def grow_trees(rows: TreeRows, reference: Integers, rule: SplitRule) -> GrownTrees:
    """Grow all trees at once: a level looks at every entry once, whatever the number of points."""
    n_trees, n_classes, depth = len(rows.sizes), rows.n_classes, len(rows.cells)
    n_cells = (rule.n_thresholds + 1) * n_classes
    terms = entropy_terms(int(rows.sizes.max(initial=0)))
    search = SplitSearch(rule, reference)
    points = np.empty((n_trees, 2**depth - 1), dtype=np.int64)
    first = rows.trees * n_cells  # the first cell of the node that each entry is in
    for level, cells in enumerate(rows.cells):
        n_nodes = n_trees * 2**level
        at = first + cells
        counts = np.bincount(at, minlength=n_nodes * n_cells).reshape(n_nodes, -1, n_classes)
        below = counts.transpose(2, 0, 1).cumsum(axis=2)
        n_rows = rows.sizes.repeat(2**level) if rule.weigh_nodes else below[..., -1].sum(axis=0)
        nats = split_entropies(below, terms) / np.maximum(n_rows, 1)[:, None]
        inside = slice(2**level - 1, 2 ** (level + 1) - 1)
        each = (-1, len(reference), 2**level, rule.n_thresholds)
        chosen = search.choose(nats.reshape(each), inside).ravel()
        points[:, inside] = chosen.reshape(n_trees, -1)
        if level < depth - 1:
            first = _children(chosen, n_cells, n_classes).take(at)
    left = below[:, np.arange(n_nodes), chosen]
    leaves = np.stack([left, below[..., -1] - left], axis=2)
    return GrownTrees(
        points=points, counts=leaves.reshape(n_classes, n_trees, -1).transpose(1, 2, 0)
    )


def _children(chosen: Integers, n_cells: int, n_classes: int) -> Integers:
    """Return, for every cell of every node, the first cell of the child that its rows go to."""
    goes_right = np.arange(n_cells) >= n_classes * (chosen[:, None] + 1)
    left = 2 * n_cells * np.arange(len(chosen))
    children: Integers = left[:, None] + n_cells * goes_right
    return children.ravel()


Labels: TypeAlias = npt.NDArray[Any]
Table: TypeAlias = tuple[tuple[Any, ...], ...]

_NARROWEST: Final = 1e-290  # so that a thousand divided by it is a float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Everything about a forest that does not depend on the subset; public.

    Parameters
    ----------
    features : int array of shape (n_trees, depth)
        The column that each tree tests on each level.
    low, width : arrays of shape (n_columns,)
        Lower end and length of every column's range.
    classes : array of shape (n_classes,)
        The labels, in the order of the scores.
    reference : int array of shape (n_trees, 2**depth - 1)
        The grid point that every node is pulled to.
    n_thresholds : int
        Points of every grid.
    columns, places, fences : arrays
        The columns that are tested, the position among them of the one that each level (line) of
        each tree tests, and their grids; they follow from the rest.
    """

    features: Integers
    low: Matrix
    width: Matrix
    classes: Labels
    reference: Integers
    n_thresholds: int
    columns: Integers = field(init=False)
    places: Integers = field(init=False)
    fences: Matrix = field(init=False)

    def __post_init__(self) -> None:
        columns, places = np.unique(self.features.T, return_inverse=True)
        fences = fence_grids(self.low[columns], self.width[columns], self.n_thresholds)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "places", places.reshape(self.features.T.shape))
        object.__setattr__(self, "fences", fences)
        for each in fields(self):
            if each.name != "n_thresholds":
                freeze(getattr(self, each.name))

    def thresholds(self, fractions: Matrix) -> Matrix:
        """Return thresholds in the units of the features, given fractions of their ranges."""
        tested = np.repeat(self.features, 2 ** np.arange(self.features.shape[1]), axis=1)
        return self.low[tested] + fractions * self.width[tested]

    def cells(self, X: Matrix, y: Labels) -> Integers:
        """Return bin and class of every row in one number, shape (depth, n_trees, n_rows)."""
        if X.shape[1] != len(self.low):
            raise MechanismError(
                f"X must have {len(self.low)} columns; got {X.shape[1]}. "
                "Pass the columns that the forest was prepared with."
            )
        bins = bin_columns(X[:, self.columns], self.fences)
        return (bins * len(self.classes) + self.encode(y)).take(self.places, axis=0)

    def encode(self, y: Labels) -> Integers:
        """Return the class number of every row."""
        order = np.argsort(self.classes, kind="stable")
        place = np.searchsorted(self.classes, y, sorter=order)
        codes: Integers = order[np.minimum(place, len(order) - 1)].astype(np.int64, copy=False)
        if not (self.classes[codes] == y).all():
            raise MechanismError(
                f"y must hold the {len(self.classes)} classes fixed for the forest; got a row of "
                "another one. Call prepare(data) with the whole universe first."
            )
        return codes


def find_ranges(X: Matrix, declared: Table | None) -> tuple[Matrix, Matrix]:
    """Return the lower end and the length of every column's range."""
    check_varying(X, "Forest")
    pairs = np.stack([X.min(axis=0), X.max(axis=0)], axis=1)
    if declared is not None:
        pairs = np.asarray(declared, dtype=np.float64)
        if pairs.shape != (X.shape[1], 2) or not (pairs[:, 0] < pairs[:, 1]).all():
            raise MechanismError(
                f"ranges must hold a pair low < high for each of {X.shape[1]} columns; got shape "
                f"{pairs.shape}. Use None to take the ranges of the universe."
            )
    with np.errstate(over="ignore", invalid="ignore"):
        width = pairs[:, 1] - pairs[:, 0]
    if not (np.isfinite(width) & (width > _NARROWEST)).all():
        raise MechanismError(
            f"ranges must be finite and wider than {_NARROWEST}; got a column where they are not. "
            "Rescale it."
        )
    return pairs[:, 0].copy(), width


def choose_features(n_columns: int, shape: tuple[int, int], seed: int) -> Integers:
    """Return the column that each tree tests on each level, shape (n_trees, depth).

    Every tree takes the columns in a random order of its own, and starts again with another one
    when it has more levels than there are columns.
    """
    n_trees, depth = shape
    features = np.empty(shape, dtype=np.int64)
    for tree in range(n_trees):
        rng = public_generator(seed, "forest", tree)
        rounds = [rng.permutation(n_columns) for _ in range(-(-depth // n_columns))]
        features[tree] = np.concatenate(rounds)[:depth]
    return features


def check_features(declared: Table, n_columns: int, shape: tuple[int, int]) -> Integers:
    """Return declared column numbers as an array, and check them."""
    features: npt.NDArray[Any] = np.asarray(declared)
    if features.shape != shape or features.dtype.kind not in "iu":
        raise MechanismError(
            f"features must hold column numbers of shape (n_estimators, max_depth) = {shape}; got "
            f"shape {features.shape} and dtype {features.dtype}. Use None for an order by the seed."
        )
    if features.min() < 0 or features.max() >= n_columns:
        raise MechanismError(
            f"features must be column numbers from 0 to {n_columns - 1}; got some outside. "
            "Count columns from 0."
        )
    return features.astype(np.int64)


def as_table(value: Any, name: str) -> Table | None:
    """Return nested tuples of numbers, which do not change and can be compared."""
    if value is None:
        return None
    try:
        lines = np.asarray(value).tolist()
        return tuple(tuple(line) for line in lines)
    except (TypeError, ValueError) as error:
        raise MechanismError(
            f"{name} must be a table of numbers; got {type(value).__name__}. Pass a list of lists."
        ) from error
