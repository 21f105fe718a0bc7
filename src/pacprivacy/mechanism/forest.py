"""A forest whose thresholds and leaf scores are one measured vector.

Every tree is complete and tests one public feature per level. What does not depend on the subset
is a :class:`ForestLayout`; all trees of many subsets are grown at once, level by level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np

from pacprivacy._checks import Array, Integers, Matrix, check_count, fixed_mechanism, freeze
from pacprivacy._random import public_generator
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import (
    CLASS_LABELS,
    Classes,
    Data,
    Labels,
    MatrixLike,
    Parts,
    Value,
    check_data_varying,
    coarse_data_ranges,
    code_data_labels,
    find_data_classes,
    read_data_columns,
    read_labelled_data,
)
from pacprivacy.mechanism.mechanism import Mechanism
from pacprivacy.sample import Pool

Reference: TypeAlias = Literal["low", "middle"]
Ranges: TypeAlias = tuple[tuple[float, float], ...]

_DEEPEST: Final = 12
_MOST_THRESHOLDS: Final = 4096
_NARROWEST: Final = 1e-290  # so that a thousand divided by it is a float
_RANKS_PER_NAT: Final = 2.0**40  # closer scores are ties: no choice rests on a logarithm's last bit
_CHUNK: Final = 2**15  # rows times trees, or counts, at a time: they stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest(Mechanism):
    """A forest that says everything it knows through one measured vector.

    A node's threshold is chosen on a public grid over the feature's range. Let ``H[g]`` be the
    class entropy (nats) after splitting the node at grid point ``g``, ``M[g]`` the mean of ``H``
    over the two points beside ``g``, and ``r`` the node's public reference point.
    The choice minimises ::

        (1 - pull) * ((1 - neighbour_weight) * H[g] + neighbour_weight * M[g])
            + pull * |g - r| / (n_thresholds - 1)

    so that it moves little between subsets. Ties, to about 1e-12 nats, go to the point nearest
    ``r``, then to the lower one. A node without rows takes ``r``; a leaf without rows scores every
    class ``1 / n_classes``. A leaf holds scores, never a bare label.

    The value on a subset is a dict of ``thresholds``, shape (n_estimators, 2**max_depth - 1), in
    fractions of each feature's range, breadth first, and ``leaves``, shape (n_estimators,
    2**max_depth, n_classes), from left to right; a row goes left where its value is below the
    threshold. The released value, all that :meth:`predict` needs, has the thresholds in the units
    of the features, and the public ``features`` and ``classes``.

    Parameters
    ----------
    n_estimators, max_depth, n_thresholds : int, public
        Number of trees, levels of each, and points of the grid, both ends of the range included.
    neighbour_weight : float in [0, 1], public
        How much the entropies of the points to either side count; 0 switches them off.
    pull : float in [0, 1], public
        Weight of the distance to the reference, in units of the feature's range.
    weigh_nodes : bool, public
        Take entropies per row of the whole subset, so that the fewer rows a node has, the more
        the pull decides. False takes them per row of the node.
    smoothing : float >= 0, public
        Rows, equally divided over the classes, that are added to every leaf, so that leaves with
        few rows move little.
    reference : {"middle", "low"}, public
        Reference of thresholds: the middle or the low end of the range.
    seed : int, public
        Seed of the feature order.
    ranges : array of shape (n_columns, 2), optional, public
        Low and high end of each feature. None takes the first and the last percentile of the
        universe, rounded outwards to three binary digits; with ``universe_facts`` the exact
        extremes, which thresholds may then show, and the certificate says so.
    classes : tuple, optional, public
        The classes in the order of the scores; by default the sorted labels of all records.
    layout : optional
        Set by :meth:`prepare`.

    Guarantee
    ---------
    Claim M-3. Every threshold and every leaf score is a coordinate of the measured vector; what
    else the released value shows is fixed by the parameters and by all records.

    Notes
    -----
    The split rule of the published experiments is ``n_thresholds=101, neighbour_weight=0.49,
    pull=0.35, weigh_nodes=False, reference="low"`` on features scaled to [0, 1].
    """

    name = "Forest"
    n_estimators: int = 3
    max_depth: int = 3
    n_thresholds: int = 32
    neighbour_weight: float = 0.5
    pull: float = 0.1
    weigh_nodes: bool = True
    smoothing: float = 10.0
    reference: Reference = "middle"
    seed: int = 0
    ranges: Ranges | None = None
    universe_facts: bool = False
    classes: Classes | None = None
    layout: ForestLayout | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_count("n_estimators", self.n_estimators, 1, advice="Use about 3.")
        check_count("max_depth", self.max_depth, 1, advice="Use about 3.")
        if self.max_depth > _DEEPEST:
            raise MechanismError(
                f"max_depth must be at most {_DEEPEST}; got {self.max_depth}. Use about 3, and "
                "more trees."
            )
        if not 0.0 <= self.smoothing < np.inf:
            raise MechanismError(
                f"smoothing must be a number of rows >= 0; got {self.smoothing!r}. Use about 10."
            )
        if self.reference not in ("low", "middle"):
            raise MechanismError(
                f"reference must be 'low' or 'middle'; got {self.reference!r}. "
                "Leave it out for 'middle'."
            )
        check_count("n_thresholds", self.n_thresholds, 2, advice="Use about 32.")
        if self.n_thresholds > _MOST_THRESHOLDS:
            raise MechanismError(
                f"n_thresholds must be at most {_MOST_THRESHOLDS}; got {self.n_thresholds}. "
                "Use about 32."
            )
        for name, value in (("neighbour_weight", self.neighbour_weight), ("pull", self.pull)):
            if not 0.0 <= value <= 1.0:
                raise MechanismError(
                    f"{name} must be between 0 and 1; got {value!r}. Use 0 to switch it off."
                )
        if self.ranges is not None:
            object.__setattr__(self, "ranges", _as_pairs(self.ranges))

    @property
    def public(self) -> tuple[str, ...]:
        ranges = "of the universe" if self.ranges is None else "declared"
        return (
            f"forest features per level: drawn with seed {self.seed}",
            f"forest ranges of the thresholds: {ranges}",
            *(("forest classes: declared",) if self.classes is not None else ()),
        )

    @property
    def published(self) -> tuple[str, ...]:
        facts = CLASS_LABELS if self.classes is None else ()
        if self.ranges is None and self.universe_facts:
            facts += ("forest ranges: minimum and maximum of every feature over the universe",)
        elif self.ranges is None:
            facts += ("spread of the features: their ranges, in three binary digits",)
        return facts

    def prepare(self, data: Data) -> Self:
        X, y = read_labelled_data(data.parts, self.name)
        low, width = _find_ranges(X, self.ranges, exact=self.universe_facts)
        point = 0 if self.reference == "low" else (self.n_thresholds - 1) // 2
        layout = ForestLayout(
            features=self._features(len(low)),
            low=low,
            width=width,
            classes=np.asarray(find_data_classes(y, self.name, self.classes)),
            reference=np.full((self.n_estimators, 2**self.max_depth - 1), point, dtype=np.int64),
            n_thresholds=self.n_thresholds,
        )
        return replace(self, layout=layout)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> dict[str, Matrix]:
        X, y = read_labelled_data(parts, self.name)
        thresholds, leaves = self._measure([fixed_mechanism(self.layout, "layout").cells(X, y)])
        return {"thresholds": thresholds, "leaves": leaves}

    def batch(self, data: Data, pool: Pool) -> Matrix:
        cells = fixed_mechanism(self.layout, "layout").cells(
            *read_labelled_data(data.parts, self.name)
        )
        values = []
        for chunk in self._chunks(pool):
            subsets = [cells.take(pool.rows(k), axis=2) for k in chunk]
            thresholds, leaves = self._measure(subsets)
            # In the order of the keys, as flatten measures a dict.
            each = (leaves.reshape(len(chunk), -1), thresholds.reshape(len(chunk), -1))
            values.append(np.hstack(each))
        return np.vstack(values)

    def finish(self, value: Value) -> dict[str, Any]:
        layout = fixed_mechanism(self.layout, "layout")
        return {
            "thresholds": layout.thresholds(np.asarray(value["thresholds"], dtype=np.float64)),
            "leaves": np.asarray(value["leaves"], dtype=np.float64),
            "features": layout.features.copy(),
            "classes": layout.classes.copy(),
        }

    def scores(self, value: Mapping[str, Any], X: MatrixLike) -> Matrix:
        """Return the mean leaf scores of a released forest, shape (n_rows, n_classes)."""
        if "features" not in value or "classes" not in value:
            raise MechanismError(
                "value must be a released forest with features and classes; got one without. "
                "Pass what finish returns, in the units of X."
            )
        rows = read_data_columns((X,), self.name)
        features = np.asarray(value["features"], dtype=np.int64)
        if features.max() >= rows.shape[1]:
            raise MechanismError(
                f"X must have at least {int(features.max()) + 1} columns; got {rows.shape[1]}. "
                "Pass the columns that the forest was fitted on."
            )
        thresholds, leaves = np.asarray(value["thresholds"]), np.asarray(value["leaves"])
        total = np.zeros((len(rows), leaves.shape[2]))
        for tree, columns in enumerate(features):
            node = np.zeros(len(rows), dtype=np.int64)
            for column in columns:
                node = 2 * node + 2 - (rows[:, column] < thresholds[tree, node])
            total += leaves[tree, node - thresholds.shape[1]]
        mean: Matrix = total / len(features)
        return mean

    def predict(self, value: Mapping[str, Any], X: MatrixLike) -> Array:
        """Return the class of the highest score for every row; see :meth:`scores`."""
        best = self.scores(value, X).argmax(axis=1)
        labels: Array = np.asarray(value["classes"])[best]
        return labels

    def _features(self, n_columns: int) -> Integers:
        """Return the columns tested, shape (n_estimators, max_depth); every tree has an order."""
        drawn = np.empty((self.n_estimators, self.max_depth), dtype=np.int64)
        for tree in range(self.n_estimators):
            rng = public_generator(self.seed, "forest", tree)
            n_rounds = -(-self.max_depth // n_columns)
            rounds = [rng.permutation(n_columns) for _ in range(n_rounds)]
            drawn[tree] = np.concatenate(rounds)[: self.max_depth]
        return drawn

    def _measure(self, subsets: Sequence[Integers]) -> tuple[Matrix, Matrix]:
        points, counts = _grow_trees(self, fixed_mechanism(self.layout, "layout"), subsets)
        n_classes = counts.shape[2]
        rows = counts.sum(axis=2, keepdims=True) + self.smoothing
        shares = (counts + self.smoothing / n_classes) / np.where(rows > 0, rows, 1.0)
        return points / (self.n_thresholds - 1), np.where(rows > 0, shares, 1.0 / n_classes)

    def _chunks(self, pool: Pool) -> Iterator[range]:
        n_classes = len(fixed_mechanism(self.layout, "layout").classes)
        cells = self.n_estimators * 2 ** (self.max_depth - 1) * (self.n_thresholds + 1) * n_classes
        entries = self.n_estimators * max(1, int(pool.sizes().max()))
        step = max(1, _CHUNK // max(entries, cells))
        for start in range(0, pool.n_subsets, step):
            yield range(start, min(start + step, pool.n_subsets))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForestLayout:
    """Everything about a forest that does not depend on the subset; public.

    ``features`` is the column that each tree tests on each level, ``low`` and ``width`` are the
    columns' ranges, ``reference`` is the grid point that every node is pulled to. The last three
    fields follow: the tested columns, the place of each level's column among them, and their grids.
    """

    features: Integers
    low: Matrix
    width: Matrix
    classes: Labels
    reference: Integers
    n_thresholds: int
    columns: Integers = field(init=False)
    places: Integers = field(init=False)
    grids: Matrix = field(init=False)

    def __post_init__(self) -> None:
        columns, places = np.unique(self.features.T, return_inverse=True)
        grids = forest_grids(self.low[columns], self.width[columns], self.n_thresholds)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "places", places.reshape(self.features.T.shape))
        object.__setattr__(self, "grids", grids)
        for each in fields(self):
            if each.name != "n_thresholds":
                freeze(getattr(self, each.name))

    def thresholds(self, fractions: Matrix) -> Matrix:
        tested = np.repeat(self.features, 2 ** np.arange(self.features.shape[1]), axis=1)
        return self.low[tested] + fractions * self.width[tested]

    def cells(self, X: Matrix, y: Labels) -> Integers:
        """Return bin and class of every row in one number, shape (depth, n_trees, n_rows)."""
        if X.shape[1] != len(self.low):
            raise MechanismError(
                f"X must have {len(self.low)} columns; got {X.shape[1]}. "
                "Pass the columns that the forest was prepared with."
            )
        bins = bin_forest_columns(X[:, self.columns], self.grids)
        codes = code_data_labels(y, tuple(self.classes), "Forest", every_class=False)
        return (bins * len(self.classes) + codes).take(self.places, axis=0)


def _find_ranges(X: Matrix, declared: Ranges | None, *, exact: bool) -> tuple[Matrix, Matrix]:
    check_data_varying(X, "Forest")
    pairs = np.stack([X.min(axis=0), X.max(axis=0)], axis=1) if exact else coarse_data_ranges(X)
    if declared is not None:
        pairs = np.asarray(declared, dtype=np.float64)
        if pairs.shape != (X.shape[1], 2) or not (pairs[:, 0] < pairs[:, 1]).all():
            raise MechanismError(
                f"ranges must hold a pair low < high for each of {X.shape[1]} columns; got shape "
                f"{pairs.shape}. Leave ranges out to have coarse ones chosen."
            )
    with np.errstate(over="ignore", invalid="ignore"):
        width = pairs[:, 1] - pairs[:, 0]
    if not (np.isfinite(width) & (width > _NARROWEST)).all():
        raise MechanismError(
            f"ranges must be finite and wider than {_NARROWEST}; got a column where they are not. "
            "Rescale it."
        )
    return pairs[:, 0].copy(), width


def _as_pairs(ranges: Value) -> Ranges:
    """Return nested tuples of numbers, which do not change and can be compared."""
    try:
        return tuple(tuple(pair) for pair in np.asarray(ranges).tolist())
    except (TypeError, ValueError) as error:
        raise MechanismError(
            f"ranges must be a table of numbers; got {type(ranges).__name__}. Pass a list of pairs."
        ) from error


def forest_grids(low: Matrix, width: Matrix, n_thresholds: int) -> Matrix:
    fractions = np.arange(n_thresholds) / (n_thresholds - 1)
    return np.asarray(low[:, None] + fractions * width[:, None])


def bin_forest_columns(X: Matrix, grids: Matrix) -> Integers:
    """Return the bin of each value: the number of grid points not above it."""
    columns = zip(grids, X.T, strict=True)
    return np.stack([np.searchsorted(grid, column, side="right") for grid, column in columns])


def _grow_trees(
    forest: Forest, layout: ForestLayout, subsets: Sequence[Integers]
) -> tuple[Integers, Integers]:
    """Return the grid points of nodes, breadth first, and class counts of leaves, left to right."""
    entries = [cells.reshape(forest.max_depth, -1) for cells in subsets]
    all_cells = entries[0] if len(entries) == 1 else np.concatenate(entries, axis=1)
    sizes = np.repeat([cells.shape[2] for cells in subsets], forest.n_estimators).astype(np.int64)
    n_trees, n_classes, depth = len(sizes), len(layout.classes), forest.max_depth
    n_cells = (forest.n_thresholds + 1) * n_classes
    counted = np.arange(int(sizes.max(initial=0)) + 1, dtype=np.float64)
    entropies = counted * np.log(np.maximum(counted, 1.0))
    search = _SplitSearch(forest, layout.reference)
    points = np.empty((n_trees, 2**depth - 1), dtype=np.int64)
    # The first cell of the node that each entry is in.
    first = np.repeat(np.arange(n_trees), sizes) * n_cells
    for level, cells in enumerate(all_cells):
        n_nodes = n_trees * 2**level
        at = first + cells
        counts = np.bincount(at, minlength=n_nodes * n_cells).reshape(n_nodes, -1, n_classes)
        below = counts.transpose(2, 0, 1).cumsum(axis=2)
        n_rows = sizes.repeat(2**level) if forest.weigh_nodes else below[..., -1].sum(axis=0)
        nats = _split_entropies(below, entropies) / np.maximum(n_rows, 1)[:, None]
        inside = slice(2**level - 1, 2 ** (level + 1) - 1)
        each = (-1, forest.n_estimators, 2**level, forest.n_thresholds)
        chosen = search.choose(nats.reshape(each), inside).ravel()
        points[:, inside] = chosen.reshape(n_trees, -1)
        if level < depth - 1:
            first = _children(chosen, n_cells, n_classes).take(at)
    left = below[:, np.arange(n_nodes), chosen]
    leaves = np.stack([left, below[..., -1] - left], axis=2)
    return points, leaves.reshape(n_classes, n_trees, -1).transpose(1, 2, 0)


def _children(chosen: Integers, n_cells: int, n_classes: int) -> Integers:
    """Return, for every cell of every node, the first cell of the child that its rows go to."""
    goes_right = np.arange(n_cells) >= n_classes * (chosen[:, None] + 1)
    left = 2 * n_cells * np.arange(len(chosen))
    children: Integers = left[:, None] + n_cells * goes_right
    return children.ravel()


def _split_entropies(below: Integers, entropies: Matrix) -> Matrix:
    """Return the class entropy after splitting each node at each grid point; given ``k ln k``."""
    n_classes, n_nodes, n_bins = below.shape
    rows = np.empty((n_classes + 1, 2, n_nodes, n_bins - 1), dtype=np.int64)
    classes, sums = rows[:-1], rows[-1]
    classes[:, 0] = below[..., :-1]
    np.subtract(below[..., -1:], below[..., :-1], out=classes[:, 1])
    np.add.reduce(classes, axis=0, out=sums)
    chosen = entropies.take(rows)
    left, right = chosen[-1] - np.add.reduce(chosen[:-1], axis=0)
    nats: Matrix = left + right
    return nats


class _SplitSearch:
    """The choice of thresholds, prepared for the references of a few trees; public."""

    __slots__ = ("_forest", "_handicap", "_near", "_own", "_ties")

    def __init__(self, forest: Forest, reference: Integers) -> None:
        points = np.arange(forest.n_thresholds)
        steps = np.abs(points - reference[..., None])
        self._forest = forest
        self._handicap = _RANKS_PER_NAT * forest.pull / (forest.n_thresholds - 1) * steps
        self._ties = 2 * steps + (points > reference[..., None])
        n_near = np.minimum(points, 1)
        n_near = n_near + n_near[::-1]
        weight = forest.neighbour_weight
        self._own = _RANKS_PER_NAT * (1.0 - forest.pull) * (1.0 - weight)
        self._near = _RANKS_PER_NAT * (1.0 - forest.pull) * weight / n_near

    def choose(self, entropies: Matrix, nodes: slice) -> Integers:
        scores = entropies * self._own
        beside = np.zeros_like(entropies)
        beside[..., 1:] += entropies[..., :-1]
        beside[..., :-1] += entropies[..., 1:]
        scores += beside * self._near
        scores += self._handicap[:, nodes]
        # One integer orders by score, then by distance, then by side; it stays below 2**62.
        ranks = np.rint(scores, out=scores).astype(np.int64)
        ranks *= 2 * self._forest.n_thresholds
        ranks += self._ties[:, nodes]
        chosen: Integers = ranks.argmin(axis=-1)
        return chosen
