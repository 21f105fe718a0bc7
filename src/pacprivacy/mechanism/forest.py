"""Predictions of a released forest: post-processing, which costs no privacy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Matrix
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.base import Mechanism
from pacprivacy.mechanism.data import Data, read_columns
from pacprivacy.mechanism.labels import Classes, check_count, find_classes, read_labelled
from pacprivacy.mechanism.trees import (
    GrownTrees,
    Layout,
    SplitRule,
    Table,
    TreeRows,
    as_table,
    check_features,
    choose_features,
    find_ranges,
    grow_trees,
)
from pacprivacy.pool import Pool


def forest_scores(value: Mapping[str, Any], X: Any) -> Matrix:
    """Return the mean leaf score of every class over the trees, shape (n_rows, n_classes)."""
    if "features" not in value or "classes" not in value:
        raise MechanismError(
            "value must be a released forest with features and classes; got one without. "
            "Pass what finish returns, in the units of X."
        )
    rows = read_columns((X,), "Forest")
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


Reference: TypeAlias = Literal["low", "middle", "universe"]

_DEEPEST: Final = 12
_CHUNK: Final = 2**15  # rows times trees, or counts, at a time: they stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest(Mechanism):
    """A forest that says everything it knows through one measured vector.

    Every tree is complete and tests one public feature per level. A node's threshold is chosen
    on a public grid over the feature's range by the class entropy that the split leaves,
    averaged over neighbouring points and pulled to a public reference, so that it moves little
    between subsets; :class:`~pacprivacy.mechanism.trees.SplitRule` has the formula. A
    leaf holds one score per class, never a bare label: labels are read off the *released*
    scores. (Published code noised the thresholds and let the labels out as they were.)

    The value on a subset is a dict of ``thresholds``, shape (n_estimators, 2**max_depth - 1), in
    fractions of each feature's range, breadth first, and ``leaves``, shape (n_estimators,
    2**max_depth, n_classes), from left to right. Both are measured. The released value has the
    thresholds in the units of the features, and the public ``features`` and ``classes``: it is all
    that :meth:`predict` needs. A row goes left where its value is below the threshold.

    No subset fails: a node without rows takes its reference, a leaf without rows scores every
    class ``1 / n_classes``, and a class that the subset lacks just counts no rows.

    Parameters
    ----------
    n_estimators, max_depth : int, public
        Number of trees, and levels of each.
    n_thresholds : int, public
        Points of the grid, both ends of the range included.
    neighbour_weight, neighbour_radius : float in [0, 1] and int, public
        How much the entropies of that many points to either side count.
    pull : float in [0, 1], public
        Weight of the distance to the reference.
    weigh_nodes : bool, public
        Take entropies per row of the subset, so that the pull decides in small nodes.
    smoothing : float >= 0, public
        Rows, equally divided over the classes, that are added to every leaf:
        ``score = (rows of the class + smoothing / n_classes) / (rows + smoothing)``. Leaves with
        few rows then move little, and need little noise.
    reference : {"middle", "low", "universe"}, public
        What thresholds are pulled to: the middle or the low end of the range, or the thresholds
        that the *whole universe* gives without pull. With the last one, thresholds that the pull
        holds in place on every subset leave as they are: least noise, but they show the
        universe, and the certificate says so.
    seed : int, public
        Seed of the feature order.
    features : array of shape (n_estimators, max_depth), optional, public
        Column numbers to test, instead of an order by the seed.
    ranges : array of shape (n_columns, 2), optional, public
        Low and high end of each feature. None takes the minimum and maximum over the *whole
        universe*; this is named in the certificate.
    classes : tuple, optional, public
        The classes in the order of the scores. None takes the sorted labels of the whole
        universe; this is named in the certificate.
    layout : optional
        Set by :meth:`prepare`.

    Guarantee
    ---------
    Claim M-3. Every threshold and every leaf score is a coordinate of the measured vector; what
    else the released value shows is fixed by the parameters and the universe.

    Notes
    -----
    The split rule of the published experiments is ``n_thresholds=101, neighbour_weight=0.49,
    pull=0.35, weigh_nodes=False, reference="low"`` on features scaled to [0, 1].
    """

    n_estimators: int = 3
    max_depth: int = 3
    n_thresholds: int = 32
    neighbour_weight: float = 0.5
    neighbour_radius: int = 1
    pull: float = 0.1
    weigh_nodes: bool = True
    smoothing: float = 10.0
    reference: Reference = "middle"
    seed: int = 0
    features: Table | None = None
    ranges: Table | None = None
    classes: Classes | None = None
    layout: Layout | None = field(default=None, repr=False)

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
        if self.reference not in ("low", "middle", "universe"):
            raise MechanismError(
                f"reference must be 'low', 'middle' or 'universe'; got {self.reference!r}. "
                "Leave it out for 'middle'."
            )
        self.rule()
        for name in ("features", "ranges"):
            object.__setattr__(self, name, as_table(getattr(self, name), name))

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return "Forest"

    @property
    def public(self) -> tuple[str, ...]:
        """What is fixed by the universe or declared."""
        features = f"drawn with seed {self.seed}" if self.features is None else "declared"
        ranges = "minimum and maximum over the universe" if self.ranges is None else "declared"
        classes = "labels of the universe" if self.classes is None else "declared"
        said = (
            f"forest features per level: {features}",
            f"forest ranges of the thresholds: {ranges}",
            f"forest classes: {classes}",
        )
        if self.reference == "universe":
            return (*said, "forest reference thresholds: fitted to the whole universe, no noise")
        return said

    def rule(self) -> SplitRule:
        """Return how thresholds are chosen."""
        return SplitRule(
            n_thresholds=self.n_thresholds,
            neighbour_weight=self.neighbour_weight,
            neighbour_radius=self.neighbour_radius,
            pull=self.pull,
            weigh_nodes=self.weigh_nodes,
        )

    def prepare(self, data: Data) -> Self:
        """Fix features, grids, classes and references, with the whole universe where needed."""
        X, y = read_labelled(data.parts, self.name)
        low, width = find_ranges(X, self.ranges)
        layout = Layout(
            features=self._features(len(low)),
            low=low,
            width=width,
            classes=np.asarray(find_classes(y, self.name, self.classes)),
            reference=self._plain_reference(),
            n_thresholds=self.n_thresholds,
        )
        prepared = replace(self, layout=layout)
        if self.reference == "universe":
            free = replace(prepared, pull=0.0)
            grown = free._grow([layout.cells(X, y)])
            prepared = replace(prepared, layout=replace(layout, reference=grown.points))
        return prepared

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> dict[str, Matrix]:
        """Return the thresholds and the leaf scores of one subset."""
        X, y = read_labelled(parts, self.name)
        thresholds, leaves = self._measure(self._grow([self._layout().cells(X, y)]))
        return {"thresholds": thresholds, "leaves": leaves}

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the values of all subsets; rows are binned once, trees grown many at a time."""
        cells = self._layout().cells(*read_labelled(data.parts, self.name))
        values = []
        for chunk in self._chunks(pool):
            subsets = [cells.take(pool.rows(k), axis=2) for k in chunk]
            thresholds, leaves = self._measure(self._grow(subsets))
            # In the order of the keys, as flatten measures a dict.
            each = (leaves.reshape(len(chunk), -1), thresholds.reshape(len(chunk), -1))
            values.append(np.hstack(each))
        return np.vstack(values)

    def finish(self, value: Any) -> dict[str, Any]:
        """Return the released forest in the units of the features, with its public parts."""
        layout = self._layout()
        return {
            "thresholds": layout.thresholds(np.asarray(value["thresholds"], dtype=np.float64)),
            "leaves": np.asarray(value["leaves"], dtype=np.float64),
            "features": layout.features.copy(),
            "classes": layout.classes.copy(),
        }

    def scores(self, value: Mapping[str, Any], X: Any) -> Matrix:
        """Return the mean leaf score of every class over the trees, shape (n_rows, n_classes).

        Parameters
        ----------
        value : dict
            A released forest; neither the universe nor :meth:`prepare` is needed.
        X : array or frame of shape (n_rows, n_columns)
        """
        return forest_scores(value, X)

    def predict(self, value: Mapping[str, Any], X: Any) -> npt.NDArray[Any]:
        """Return the class of the highest score for every row; see :meth:`scores`."""
        best = forest_scores(value, X).argmax(axis=1)
        labels: npt.NDArray[Any] = np.asarray(value["classes"])[best]
        return labels

    def _layout(self) -> Layout:
        if self.layout is None:
            raise MechanismError(
                "layout must be fixed before a subset is evaluated; got None. "
                "Call prepare(data) with the whole universe first."
            )
        return self.layout

    def _features(self, n_columns: int) -> Integers:
        shape = (self.n_estimators, self.max_depth)
        if self.features is None:
            return choose_features(n_columns, shape, self.seed)
        return check_features(self.features, n_columns, shape)

    def _plain_reference(self) -> Integers:
        point = 0 if self.reference == "low" else (self.n_thresholds - 1) // 2
        return np.full((self.n_estimators, 2**self.max_depth - 1), point, dtype=np.int64)

    def _grow(self, subsets: Sequence[Integers]) -> GrownTrees:
        """Grow the trees of several subsets, given as cells; those of the first come first."""
        layout = self._layout()
        entries = [cells.reshape(self.max_depth, -1) for cells in subsets]
        sizes = np.repeat([cells.shape[2] for cells in subsets], self.n_estimators).astype(np.int64)
        rows = TreeRows(
            cells=entries[0] if len(entries) == 1 else np.concatenate(entries, axis=1),
            trees=np.repeat(np.arange(len(sizes)), sizes),
            sizes=sizes,
            n_classes=len(layout.classes),
        )
        return grow_trees(rows, layout.reference, self.rule())

    def _measure(self, grown: GrownTrees) -> tuple[Matrix, Matrix]:
        """Return thresholds in fractions of the range, and leaf scores."""
        return grown.points / (self.n_thresholds - 1), grown.leaf_scores(self.smoothing)

    def _chunks(self, pool: Pool) -> Iterator[range]:
        """Yield the numbers of a few subsets at a time."""
        n_classes = len(self._layout().classes)
        cells = self.n_estimators * 2 ** (self.max_depth - 1) * (self.n_thresholds + 1) * n_classes
        entries = self.n_estimators * max(1, int(pool.sizes().max()))
        step = max(1, _CHUNK // max(entries, cells))
        for start in range(0, pool.n_subsets, step):
            yield range(start, min(start + step, pool.n_subsets))
