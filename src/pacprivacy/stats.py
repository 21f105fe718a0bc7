"""Statistics of a table by the names of its columns, ready for a private release.

>>> import numpy as np, pacprivacy as pac
>>> people = np.array([("north", 31.0), ("south", np.nan), ("south", 52.0), ("north", 40.0)] * 50,
...                   dtype=[("region", "U5"), ("age", "f8")])
>>> ages = pac.stats.mean("age", by="region", where="age >= 18")
>>> sorted(pac.privatize(ages, people, pac.Membership(0.6), n_subsets=64).value)
['north', 'south']

A table is a pandas, polars or Arrow frame, or an array. Gaps are looked after inside every candidate:
a row is dropped, or a gap is filled, by what the candidate's own rows say. Names of columns and the
levels of categories are the same for all candidates: declared with ``levels``, or those that occur in
the universe, which the certificate then lists as published without noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Batch, Data, Mechanism, fixed, subset_sums
from pacprivacy.mechanism.frames import (
    GAP_LEVEL,
    Condition,
    Frame,
    code_levels,
    fill_means,
    find_levels,
    is_text,
    shorten,
)
from pacprivacy.pool import Pool

__all__ = [
    "count",
    "crosstab",
    "logistic",
    "mean",
    "median",
    "ols",
    "poisson",
    "quantiles",
    "sum",
    "variance",
]

Missing = Literal["drop", "mean", "category", "error"]
Levels = Mapping[str, Sequence[Any]]
Names = str | Sequence[str] | None

POLICIES: Final = ("drop", "mean", "category", "error")
MOST_LEVELS: Final = 50  # text with more of them is an id or a remark, unless they are declared
INTERCEPT: Final = "intercept"
_SHOWN_COLUMNS: Final = 4
NEWTON_STEPS: Final = 100
CONVERGED: Final = 1e-10
SINGULAR: Final = 1e-10  # a pivot below this share of the largest: columns determine each other


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """The rows of one candidate as numbers.

    Weights are 0 where the condition is not met, columns have NaN for gaps, and cells are -1 for
    rows of none.
    """

    weights: Vector
    X: Matrix
    cells: npt.NDArray[np.int64]
    y: Vector | None = None

    def take(self, rows: npt.NDArray[Any]) -> _Rows:
        y = None if self.y is None else self.y[rows]
        return _Rows(weights=self.weights[rows], X=self.X[rows], cells=self.cells[rows], y=y)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """What is the same for all candidates: names, levels, and centres that steady the arithmetic."""

    terms: tuple[tuple[str, str, str | None], ...]  # name, column, level of a category
    levels: Mapping[str, tuple[str, ...]]
    measured: tuple[str, ...]
    centre: Vector
    scales: Vector
    target_levels: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic(Mechanism):
    """What all statistics share; made by the functions of :mod:`pacprivacy.stats`.

    Parameters
    ----------
    columns : tuple of str, optional
        What is described; all columns that are not used otherwise by default. A category counts
        as one column of zeros and ones for each level.
    by : tuple of str
        Categories: one result for each combination of their levels.
    where : str, optional
        Condition that a row must meet, such as ``"age >= 18"``.
    weights : str, optional
        Column of weights.
    levels : mapping of str to sequence, optional
        Declared levels of categories; other entries count as missing.
    missing : {"drop", "mean", "category", "error"}
        Gaps are left out; filled by the mean of the candidate; for categories, a level of their
        own (numbers are left out); or refused.
    fill : float, optional
        What stands for the mean, median and so on of nobody.
    """

    kind: ClassVar[str] = ""
    weighted: ClassVar[bool] = True
    reference: ClassVar[bool] = False  # whether the first level of a category has no column

    columns: tuple[str, ...] | None = None
    by: tuple[str, ...] = ()
    where: str | None = None
    weights: str | None = None
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Missing = "drop"
    fill: float | None = None
    target: str | None = None
    layout: _Layout | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.missing not in POLICIES:
            raise MechanismError(
                f"missing must be one of {', '.join(POLICIES)}; got {self.missing!r}. Choose one."
            )
        if self.weights is not None and not self.weighted:
            raise MechanismError(
                f"weights must be left out for {self.kind}; got {self.weights!r}. "
                "Means, sums, counts and regressions take weights."
            )
        if self.where is not None:
            Condition(self.where)

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        used = self.columns or ()
        if self.layout is not None:
            used = tuple(dict.fromkeys(column for _, column, _ in self.layout.terms))
        listed = ", ".join(used) if len(used) <= _SHOWN_COLUMNS else f"{len(used)} columns"
        words = [self.kind]
        if self.target is not None:
            words.append(f"of {self.target} on {listed or 'all columns'}")
        elif listed:
            words.append(f"of {listed}")
        if self.by:
            words.append(f"by {', '.join(self.by)}")
        if self.where is not None:
            words.append(f"where {self.where}")
        return " ".join(words)

    @property
    def public(self) -> tuple[str, ...]:
        """What was declared."""
        said = [f"levels of {name!r}: declared by the curator" for name in sorted(self.levels)]
        if self.missing != "error":
            said.append(f"gaps: {_GAPS[self.missing]}, inside every candidate")
        if self.weights is not None:
            said.append(f"rows are weighted by {self.weights!r}")
        return tuple(said)

    @property
    def published(self) -> tuple[str, ...]:
        """Levels that were read off the universe: the value shows that each of them occurs."""
        measured = () if self.layout is None else self.layout.measured
        return tuple(f"levels of {name!r}: those that occur in the universe" for name in measured)

    # --- reading ------------------------------------------------------------------------------

    def prepare(self, data: Data) -> Self:
        """Fix names and levels on the whole universe, and refuse columns that cannot be used."""
        frame = Frame(data.parts, wanted_by=self.kind)
        used = self._columns(frame)
        read = {name: frame.column(name) for name in (*used, *self.by)}
        self._check_kinds(read)
        levels, measured = dict(self.levels), []
        for name, column in read.items():
            if name in levels or not (is_text(column) or name in self.by):
                continue
            levels[name] = find_levels(column)
            measured.append(name)
            if not levels[name]:
                raise MechanismError(
                    f"column {name!r} must have levels; got none. Leave it out."
                )
        if self.missing == "category":
            for name in levels.keys() & read.keys():
                column = read[name]
                if (code_levels(column, levels[name]) < 0).any() or name in self.levels:
                    levels[name] = (*levels[name], GAP_LEVEL)
        terms = tuple(term for name in used for term in self._terms(name, levels.get(name)))
        width = len(terms) + (self.target is not None)
        layout = _Layout(
            terms=terms,
            levels={name: tuple(found) for name, found in levels.items()},
            measured=tuple(measured),
            centre=np.zeros(width),
            scales=np.ones(width),
            target_levels=self._target_levels(frame),
        )
        whole = replace(self, layout=layout)
        if self.missing == "error":
            whole._check_gaps(frame)
        rows = whole._read(data.parts)
        return replace(whole, layout=_steady(layout, rows))

    def _columns(self, frame: Frame) -> tuple[str, ...]:
        if self.columns is not None:
            return self.columns
        apart = {self.target, self.weights, *self.by}
        names = tuple(name for name in frame.names if name not in apart)
        if not names:
            raise MechanismError(
                f"{self.kind} must be given a column to describe; got none besides those used "
                "otherwise. Name one."
            )
        return names

    def _terms(
        self, name: str, levels: Sequence[str] | None
    ) -> tuple[tuple[str, str, str | None], ...]:
        if levels is None:
            return ((name, name, None),)
        kept = levels[1:] if self.reference else levels
        return tuple((f"{name}={level}", name, level) for level in kept)

    def _target_levels(self, frame: Frame) -> tuple[str, ...] | None:
        return None

    def _check_kinds(self, read: Mapping[str, Any]) -> None:
        """Refuse text that is no category, all such columns in one message."""
        ids, long = [], []
        for name, column in read.items():
            if name in self.levels or not (is_text(column) or name in self.by):
                continue
            n_levels = len(find_levels(column))
            if is_text(column) and n_levels > len(column) / 2:
                ids.append(name)
            elif n_levels > MOST_LEVELS:
                long.append(name)
        said = []
        if ids:
            said.append(f"ids in {shorten(ids)} (most rows have an entry of their own)")
        if long:
            said.append(f"more than {MOST_LEVELS} levels in {shorten(long)}")
        if said:
            raise MechanismError(
                f"columns must hold numbers, dates or categories; got {' and '.join(said)}. Leave "
                "them out, declare the levels that matter, or make an id the unit of privacy."
            )

    def _check_gaps(self, frame: Frame) -> None:
        layout = fixed(self.layout, "layout")
        names = dict.fromkeys([*(column for _, column, _ in layout.terms), *self.by])
        if self.weights is not None:
            names[self.weights] = None
        counts = {name: int(np.count_nonzero(self._gaps(frame, name))) for name in names}
        wrong = [name for name, number in counts.items() if number]
        if wrong:
            raise MechanismError(
                f"columns must have no missing values; got some in {shorten(wrong)}. "
                "Choose missing='drop', 'mean' or 'category'."
            )

    def _gaps(self, frame: Frame, name: str) -> npt.NDArray[np.bool_]:
        column, levels = frame.column(name), fixed(self.layout, "layout").levels.get(name)
        if levels is not None:
            return code_levels(column, levels) < 0
        return np.isnan(column)

    def _read(self, parts: tuple[Any, ...]) -> _Rows:
        """Return the rows of one candidate; looks at no other row."""
        layout, frame = fixed(self.layout, "layout"), Frame(parts, wanted_by=self.kind)
        X = np.ones((frame.n_rows, len(layout.terms)))
        coded: dict[str, Any] = {}
        for j, (_, name, level) in enumerate(layout.terms):
            if level is None:
                X[:, j] = self._numbers(frame, name)
                continue
            if name not in coded:
                coded[name] = self._code(frame, name)
            number = layout.levels[name].index(level)
            X[:, j] = np.where(coded[name] < 0, np.nan, coded[name] == number)
        cells = np.zeros(frame.n_rows, dtype=np.int64)
        for name in self.by:
            codes = self._code(frame, name)
            inside = (cells >= 0) & (codes >= 0)
            cells = np.where(inside, cells * len(layout.levels[name]) + codes, -1)
        weights = np.ones(frame.n_rows)
        if self.weights is not None:
            weights = np.nan_to_num(self._numbers(frame, self.weights))
            if (weights < 0).any():
                raise MechanismError(
                    f"weights must be non-negative; got others in {self.weights!r}. Take others."
                )
        if self.where is not None:
            condition = Condition(self.where)
            met = condition.rows({name: frame.column(name) for name in condition.columns})
            weights = np.where(met, weights, 0.0)
        weights = np.where(cells >= 0, weights, 0.0)
        if self.missing == "mean":
            X = fill_means(X, weights)
        return _Rows(weights=weights, X=X, cells=cells, y=self._target(frame))

    def _code(self, frame: Frame, name: str) -> npt.NDArray[np.int64]:
        levels = fixed(self.layout, "layout").levels[name]
        own = self.missing == "category" and levels[-1] == GAP_LEVEL
        return code_levels(frame.column(name), levels[:-1] if own else levels, gap_level=own)

    def _numbers(self, frame: Frame, name: str) -> Vector:
        column = frame.column(name)
        if is_text(column):
            raise MechanismError(f"column {name!r} must hold numbers; got text. Choose another.")
        if np.isinf(column).any():
            raise MechanismError(
                f"column {name!r} must be finite everywhere; got infinity. Leave those rows out: "
                "where=..."
            )
        return column

    def _target(self, frame: Frame) -> Vector | None:
        return None

    # --- what is measured ------------------------------------------------------------------------

    @property
    def _shape(self) -> tuple[int, ...]:
        """One number for every column and every combination of levels."""
        layout = fixed(self.layout, "layout")
        return (len(layout.terms), *(len(layout.levels[name]) for name in self.by))

    @property
    def _n_cells(self) -> int:
        return int(np.prod(self._shape[1:], dtype=np.int64))

    def finish(self, value: Any) -> Any:
        """Put names on released numbers."""
        layout = fixed(self.layout, "layout")
        axes = [layout.names, *(layout.levels[name] for name in self.by)]
        numbers = np.asarray(value, dtype=np.float64).reshape(self._shape)
        if self.by and len(layout.names) == 1:
            axes, numbers = axes[1:], numbers[0]
        return _labelled(numbers, axes)

    def _nobody(self, empty: npt.NDArray[np.bool_], values: Matrix) -> Matrix:
        """Fill what is empty in some candidate, or refuse it and say what to do."""
        if not empty.any():
            return values
        if self.fill is not None:
            return np.where(empty, self.fill, values)
        layout = fixed(self.layout, "layout")
        axes = [layout.names, *(layout.levels[name] for name in self.by)]
        labels = [" / ".join(label) for label in product(*axes)]
        wrong = [labels[i] for i in np.flatnonzero(empty.reshape(-1, len(labels)).any(axis=0))]
        raise MechanismError(
            f"{self.kind} must have rows enough in every candidate; got candidates with none or "
            f"too few in {len(wrong)} of {len(labels)} cells: {shorten(wrong)}. Merge rare levels, "
            "declare levels without them, or say what stands for nobody: fill=0."
        )


_GAPS: Final = {
    "drop": "rows with one in a column in use are left out of it",
    "mean": "filled by the mean of the candidate's own rows",
    "category": "a level of their own in categories, left out of numbers",
}


def _labelled(numbers: Any, axes: Sequence[Sequence[str]]) -> Any:
    if not axes:
        return float(numbers)
    return {name: _labelled(numbers[i], axes[1:]) for i, name in enumerate(axes[0])}


def _steady(layout: _Layout, rows: _Rows) -> _Layout:
    """Choose centres and scales for the arithmetic; results do not depend on them but in rounding."""
    columns = rows.X if rows.y is None else np.column_stack([rows.X, rows.y])
    there = ~np.isnan(columns) & (rows.weights > 0)[:, None]
    number = np.maximum(there.sum(axis=0), 1)
    plain = np.where(there, columns, 0.0)
    centre = plain.sum(axis=0) / number
    spread = np.sqrt(np.where(there, np.square(columns - centre), 0.0).sum(axis=0) / number)
    return replace(layout, centre=centre, scales=np.where(spread > 0, spread, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summed(Statistic):
    """A function of sums over the rows, so that all candidates are evaluated at once."""

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the numbers of one candidate."""
        sums = self._features(self._read(parts)).sum(axis=0)
        return self._combine(sums[None])[0]

    @property
    def batch(self) -> Batch | None:
        """All candidates at once, unless gaps are filled by the mean of each."""
        return None if self.missing == "mean" else self._at_once

    def _at_once(self, data: Data, pool: Pool) -> Matrix:
        rows = self._read(data.parts)
        width = self._features(rows.take(np.arange(1))).shape[1]
        return self._combine(subset_sums(pool, lambda i: self._features(rows.take(i)), width))

    def _features(self, rows: _Rows) -> Matrix:
        """Return what is summed, one line per row."""
        raise NotImplementedError

    def _combine(self, sums: Matrix) -> Matrix:
        """Return the numbers of every candidate, given its sums."""
        raise NotImplementedError

    def _spread_out(self, rows: _Rows, columns: Sequence[Matrix]) -> Matrix:
        """Put each row's numbers where its cell is; shape (rows, kinds * terms * cells)."""
        stacked = np.stack(columns, axis=1)  # rows, kinds, terms
        if not self.by:
            return stacked.reshape(len(stacked), -1)
        spread = np.zeros((*stacked.shape, self._n_cells))
        inside = np.flatnonzero(rows.cells >= 0)
        spread[inside, :, :, rows.cells[inside]] = stacked[inside]
        return spread.reshape(len(stacked), -1)

    def _parts(self, sums: Matrix, kinds: int) -> list[Matrix]:
        parts = sums.reshape(len(sums), kinds, -1)
        return [parts[:, kind] for kind in range(kinds)]

    def _there(self, rows: _Rows) -> Matrix:
        return np.where(np.isnan(rows.X), 0.0, rows.weights[:, None])

    def _per_number(self, by_term: Vector) -> Vector:
        """Repeat what belongs to a column for every cell."""
        return np.repeat(by_term, self._n_cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mean(_Summed):
    kind = "mean"

    def _features(self, rows: _Rows) -> Matrix:
        there = self._there(rows)
        centred = np.nan_to_num(rows.X - fixed(self.layout, "layout").centre)
        return self._spread_out(rows, [there, there * centred])

    def _combine(self, sums: Matrix) -> Matrix:
        number, total = self._parts(sums, 2)
        empty = number <= 0
        centre = self._per_number(fixed(self.layout, "layout").centre)
        return self._nobody(empty, centre + total / np.where(empty, 1.0, number))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum(_Summed):
    kind = "sum"
    totals: ClassVar[Literal["sum", "count"]] = "sum"

    def _features(self, rows: _Rows) -> Matrix:
        return self._spread_out(rows, [self._there(rows) * np.nan_to_num(rows.X)])

    def _combine(self, sums: Matrix) -> Matrix:
        return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count(_Summed):
    kind = "count"
    totals: ClassVar[Literal["sum", "count"]] = "count"

    def _columns(self, frame: Frame) -> tuple[str, ...]:
        return self.columns or ()

    def _features(self, rows: _Rows) -> Matrix:
        if not self.columns:
            return self._spread_out(rows, [rows.weights[:, None]])
        is_level = np.array([level is not None for *_, level in fixed(self.layout, "").terms])
        hits = np.where(is_level, np.nan_to_num(rows.X), 1.0)
        return self._spread_out(rows, [self._there(rows) * hits])

    def _combine(self, sums: Matrix) -> Matrix:
        return sums

    @property
    def _shape(self) -> tuple[int, ...]:
        layout = fixed(self.layout, "layout")
        return (max(1, len(layout.terms)), *(len(layout.levels[name]) for name in self.by))

    def finish(self, value: Any) -> Any:
        """Put names on released numbers."""
        layout = fixed(self.layout, "layout")
        axes = [layout.names or ("rows",), *(layout.levels[name] for name in self.by)]
        numbers = np.asarray(value, dtype=np.float64).reshape(self._shape)
        if self.by and len(axes[0]) == 1:
            axes, numbers = axes[1:], numbers[0]
        return _labelled(numbers, axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variance(_Summed):
    kind = "variance"
    weighted = False

    def _features(self, rows: _Rows) -> Matrix:
        there = self._there(rows)
        centred = np.nan_to_num(rows.X - fixed(self.layout, "layout").centre)
        return self._spread_out(rows, [there, there * centred, there * np.square(centred)])

    def _combine(self, sums: Matrix) -> Matrix:
        number, first, second = self._parts(sums, 3)
        few = number <= 1
        safe = np.where(few, 2.0, number)
        return self._nobody(few, np.maximum(second - first * first / safe, 0.0) / (safe - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantiles(Statistic):
    kind = "quantiles"
    weighted = False
    q: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        # A class with slots is made anew; its super() without arguments would be the old one.
        super(_Quantiles, self).__post_init__()
        if not self.q or not all(0 <= q <= 1 for q in self.q):
            raise MechanismError(
                f"q must be numbers between 0 and 1; got {self.q!r}. Write q=(0.25, 0.5, 0.75)."
            )

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        plain = super(_Quantiles, self).name
        return plain.replace("quantiles", "median", 1) if self.q == (0.5,) else plain

    @property
    def _shape(self) -> tuple[int, ...]:
        first, *rest = super(_Quantiles, self)._shape
        return (first, *rest, len(self.q))

    @property
    def _n_cells(self) -> int:
        return int(np.prod(self._shape[1:-1], dtype=np.int64))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the quantiles of one candidate."""
        found = [_quantile(values, self.q) for _, values in self._sorted(self._read(parts))]
        values = np.concatenate(found)[None]
        return self._check(values)[0]

    @property
    def batch(self) -> Batch | None:
        """All candidates, sorted once; not where gaps are filled by the mean of each."""
        return None if self.missing == "mean" else self._at_once

    def _at_once(self, data: Data, pool: Pool) -> Matrix:
        cells = list(self._sorted(self._read(data.parts)))
        values = np.empty((pool.n_subsets, len(cells) * len(self.q)))
        for k in range(pool.n_subsets):
            mask = pool.row_mask(k)
            values[k] = np.concatenate([_quantile(v[mask[rows]], self.q) for rows, v in cells])
        return self._check(values)

    def _sorted(self, rows: _Rows) -> Any:
        """Yield the rows of every column and cell in the order of their values, and these."""
        for column in rows.X.T:
            usable = (rows.weights > 0) & ~np.isnan(column)
            for cell in range(self._n_cells):
                own = np.flatnonzero(usable & (rows.cells == cell))
                own = own[np.argsort(column[own], kind="stable")]
                yield own, column[own]

    def _check(self, values: Matrix) -> Matrix:
        shape = (len(values), -1, len(self.q))
        empty = np.isnan(values.reshape(shape)).any(axis=2)
        filled = np.where(np.isnan(values), 0.0 if self.fill is None else self.fill, values)
        if empty.any() and self.fill is None:
            self._cells_without_q()._nobody(empty, empty.astype(np.float64))
        return filled

    def _cells_without_q(self) -> Statistic:
        return _Mean(by=self.by, layout=self.layout)

    def finish(self, value: Any) -> Any:
        """Put names on released numbers, in order where noise has put them out of it."""
        layout = fixed(self.layout, "layout")
        numbers = np.sort(np.asarray(value, dtype=np.float64).reshape(self._shape), axis=-1)
        axes = [layout.names, *(layout.levels[name] for name in self.by)]
        axes.append(tuple(f"{q:g}" for q in sorted(self.q)))
        if len(self.q) == 1:
            axes, numbers = axes[:-1], numbers[..., 0]
        if self.by and len(layout.names) == 1:
            axes, numbers = axes[1:], numbers[0]
        return _labelled(numbers, axes)


def _quantile(values: Vector, q: tuple[float, ...]) -> Vector:
    """Return quantiles of sorted values, as numpy does; NaN of nothing."""
    if not len(values):
        return np.full(len(q), np.nan)
    place = np.sort(np.asarray(q)) * (len(values) - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(values) - 1)
    return np.asarray(values[low] + (place - low) * (values[high] - values[low]))


# --- regressions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Regression(Statistic):
    """Coefficients of a target on columns; of a category, against its first level."""

    reference = True

    def _target(self, frame: Frame) -> Vector | None:
        assert self.target is not None
        return self._numbers(frame, self.target)

    def _complete(self, rows: _Rows) -> _Rows:
        """Set the weight to 0 and the entries to their centres where one is missing."""
        assert rows.y is not None
        layout = fixed(self.layout, "layout")
        gaps = np.isnan(rows.X).any(axis=1) | np.isnan(rows.y)
        X, y = rows.X, rows.y
        X = np.where(gaps[:, None], layout.centre[:-1], X)
        y = np.where(gaps, layout.centre[-1], y)
        return replace(rows, weights=np.where(gaps, 0.0, rows.weights), X=X, y=y)

    def _design(self, rows: _Rows) -> Matrix:
        """Return the columns in steady units, with one of ones before them."""
        layout = fixed(self.layout, "layout")
        scaled = (rows.X - layout.centre[:-1]) / layout.scales[:-1]
        return np.column_stack([np.ones(len(scaled)), scaled])

    def _own_units(self, steady: Matrix, shift: float = 0.0, scale: float = 1.0) -> Matrix:
        """Turn coefficients in steady units, shape (m, p), into those of the columns."""
        layout = fixed(self.layout, "layout")
        slopes = steady[:, 1:] / layout.scales[:-1] * scale
        intercept = shift + scale * steady[:, 0] - slopes @ layout.centre[:-1]
        return np.column_stack([intercept, slopes])

    @property
    def _shape(self) -> tuple[int, ...]:
        return (1 + len(fixed(self.layout, "layout").terms),)

    def finish(self, value: Any) -> Any:
        """Put names on released coefficients."""
        names = (INTERCEPT, *fixed(self.layout, "layout").names)
        return _labelled(np.asarray(value, dtype=np.float64), [names])

    def _solve(self, matrices: Matrix, vectors: Matrix) -> Matrix:
        """Solve one system per candidate; refuse columns that determine each other."""
        diagonal = np.einsum("mii->mi", matrices)
        size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        scaled = matrices / (size[:, :, None] * size[:, None, :])
        if (diagonal <= 0).any() or (np.linalg.eigvalsh(scaled)[:, 0] < SINGULAR).any():
            raise MechanismError(
                f"the columns of {self.kind} must not determine each other in any candidate; got "
                "candidates in which they do, or in which a level does not occur. Leave out "
                "columns that follow from others, and merge rare levels."
            )
        solved = np.linalg.solve(scaled, (vectors / size)[:, :, None])[:, :, 0]
        return np.asarray(solved / size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OLS(_Regression, _Summed):
    kind = "ols"

    def _features(self, rows: _Rows) -> Matrix:
        layout, rows = fixed(self.layout, "layout"), self._complete(rows)
        assert rows.y is not None
        y = (rows.y - layout.centre[-1]) / layout.scales[-1]
        Z = np.column_stack([self._design(rows), y])
        first, second = np.triu_indices(Z.shape[1])
        return rows.weights[:, None] * Z[:, first] * Z[:, second]

    def _combine(self, sums: Matrix) -> Matrix:
        layout = fixed(self.layout, "layout")
        p = len(layout.terms) + 1
        full = np.zeros((len(sums), p + 1, p + 1))
        first, second = np.triu_indices(p + 1)
        full[:, first, second] = sums
        full[:, second, first] = sums
        steady = self._solve(full[:, :p, :p], full[:, :p, p])
        return self._own_units(steady, shift=layout.centre[-1], scale=layout.scales[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Newton(_Regression):
    """A likelihood that is maximised by Newton's steps inside every candidate."""

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the coefficients of one candidate."""
        rows = self._complete(self._read(parts))
        assert rows.y is not None
        Z, y, weights = self._design(rows), rows.y, rows.weights
        used = weights > 0
        if not used.all():
            Z, y, weights = Z[used], y[used], weights[used]
        beta = self._start(Z.shape[1], y, weights)
        value = self._likelihood(Z @ beta, y, weights)
        for _ in range(NEWTON_STEPS):
            mean, curvature = self._moments(Z @ beta)
            slope = Z.T @ (weights * (y - mean))
            matrix = (Z * (weights * curvature)[:, None]).T @ Z
            step = self._solve(matrix[None], slope[None])[0]
            for _ in range(40):  # halve until it does not get worse
                new = self._likelihood(Z @ (beta + step), y, weights)
                if new >= value - 1e-12 * abs(value):
                    break
                step = step / 2
            beta, value = beta + step, new
            if np.abs(step).max() < CONVERGED:
                return self._own_units(beta[None])[0]
        raise MechanismError(
            f"{self.kind} must have a largest likelihood in every candidate; got one that was not "
            "reached. Columns that separate the outcomes have none: leave them out."
        )

    def _start(self, width: int, y: Vector, weights: Vector) -> Vector:
        """Start where the columns say nothing."""
        if not len(y):
            raise MechanismError(f"{self.kind} must have rows in every candidate; got none.")
        beta = np.zeros(width)
        beta[0] = self._link(float(np.average(y, weights=weights)))
        return beta

    def _link(self, mean: float) -> float:
        raise NotImplementedError

    def _moments(self, eta: Vector) -> tuple[Vector, Vector]:
        raise NotImplementedError

    def _likelihood(self, eta: Vector, y: Vector, weights: Vector) -> float:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logistic(_Newton):
    kind = "logistic"

    @property
    def public(self) -> tuple[str, ...]:
        """What was declared, and which outcome the odds are of."""
        said = super(_Logistic, self).public
        levels = None if self.layout is None else self.layout.target_levels
        return said if levels is None else (*said, f"log odds of {self.target} = {levels[1]}")

    @property
    def published(self) -> tuple[str, ...]:
        """Levels that were read off the universe."""
        said = super(_Logistic, self).published
        declared = self.target in self.levels
        return said if declared else (*said, f"the two levels of {self.target!r}")

    def _target_levels(self, frame: Frame) -> tuple[str, ...] | None:
        assert self.target is not None
        levels = tuple(self.levels.get(self.target) or find_levels(frame.column(self.target)))
        if len(levels) != 2:
            raise MechanismError(
                f"column {self.target!r} must have two levels for logistic; got {len(levels)}. "
                "Declare the two that matter, or choose another model."
            )
        return levels

    def _target(self, frame: Frame) -> Vector | None:
        assert self.target is not None
        levels = fixed(self.layout, "layout").target_levels
        codes = code_levels(frame.column(self.target), levels or ())
        return np.where(codes < 0, np.nan, codes.astype(np.float64))

    def _link(self, mean: float) -> float:
        if not 0 < mean < 1:
            raise MechanismError(
                f"column {self.target!r} must have both levels in every candidate; got one alone. "
                "Use more records."
            )
        return float(np.log(mean / (1 - mean)))

    def _moments(self, eta: Vector) -> tuple[Vector, Vector]:
        mean = 0.5 * (1.0 + np.tanh(eta / 2))
        return mean, np.maximum(mean * (1 - mean), 1e-300)

    def _likelihood(self, eta: Vector, y: Vector, weights: Vector) -> float:
        return float(weights @ (y * eta - np.logaddexp(0.0, eta)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Poisson(_Newton):
    kind = "poisson"

    def _target(self, frame: Frame) -> Vector | None:
        y = super(_Poisson, self)._target(frame)
        if y is not None and (y < 0).any():
            raise MechanismError(
                f"column {self.target!r} must hold counts; got negative numbers. "
                "Choose another model."
            )
        return y

    def _link(self, mean: float) -> float:
        if mean <= 0:
            raise MechanismError(
                f"column {self.target!r} must hold counts that are not all zero in any candidate."
            )
        return float(np.log(mean))

    def _moments(self, eta: Vector) -> tuple[Vector, Vector]:
        mean = np.exp(np.minimum(eta, 700.0))
        return mean, mean

    def _likelihood(self, eta: Vector, y: Vector, weights: Vector) -> float:
        return float(weights @ (y * eta - np.exp(np.minimum(eta, 700.0))))


# --- what users call ---------------------------------------------------------------------------


def _names(names: Names) -> tuple[str, ...] | None:
    return None if names is None else (names,) if isinstance(names, str) else tuple(names)


def _make(kind: Callable[..., Statistic], options: Mapping[str, Any], **own: Any) -> Any:
    settings = dict(options)
    levels = settings.pop("levels", None) or {}
    settings["levels"] = {name: tuple(str(x) for x in found) for name, found in levels.items()}
    settings["by"] = _names(settings.pop("by", None)) or ()
    try:
        return kind(**settings, **own)
    except TypeError:
        known = "by, where, weights, levels, missing, fill"
        wrong = sorted(settings.keys() - {*known.split(", ")})
        raise MechanismError(
            f"options must be among {known}; got {', '.join(wrong)}. Check the spelling."
        ) from None


def mean(columns: Names = None, **options: Any) -> Mechanism:
    """Return the means of columns, or of each level of a category (its share).

    Parameters
    ----------
    columns : str or sequence of str, optional
        All columns that are not used otherwise by default.
    **options
        ``by``, ``where``, ``weights``, ``levels``, ``missing`` and ``fill`` as in
        :class:`Statistic`; so for the other functions here.
    """
    return _make(_Mean, options, columns=_names(columns))


def sum(columns: Names = None, **options: Any) -> Mechanism:
    """Return the sums of columns; of nobody it is 0."""
    return _make(_Sum, options, columns=_names(columns))


def count(columns: Names = None, **options: Any) -> Mechanism:
    """Return the number of rows, of entries of a column, or of each level of a category."""
    return _make(_Count, options, columns=_names(columns))


def crosstab(rows: str, columns: str, **options: Any) -> Mechanism:
    """Return the number of rows for each pair of levels of two categories."""
    return _make(_Count, {**options, "by": (rows, columns)})


def variance(columns: Names = None, **options: Any) -> Mechanism:
    """Return the variances of columns, with the divisor n - 1."""
    return _make(_Variance, options, columns=_names(columns))


def median(columns: Names = None, **options: Any) -> Mechanism:
    """Return the medians of columns."""
    return _make(_Quantiles, options, columns=_names(columns))


def quantiles(
    columns: Names = None, *, q: Sequence[float] = (0.25, 0.5, 0.75), **options: Any
) -> Mechanism:
    """Return quantiles of columns, by linear interpolation as in :func:`numpy.quantile`."""
    return _make(_Quantiles, options, columns=_names(columns), q=tuple(sorted(map(float, q))))


def ols(target: str, columns: Names = None, **options: Any) -> Mechanism:
    """Return the coefficients of least squares, by name, with an intercept.

    Of a category the first level is the reference. Rows with a gap in any column are left out.
    """
    return _make(_OLS, options, target=target, columns=_names(columns))


def logistic(target: str, columns: Names = None, **options: Any) -> Mechanism:
    """Return the coefficients of a logistic regression: log odds of the target's second level."""
    return _make(_Logistic, options, target=target, columns=_names(columns))


def poisson(target: str, columns: Names = None, **options: Any) -> Mechanism:
    """Return the coefficients of a Poisson regression with the logarithm as link."""
    return _make(_Poisson, options, target=target, columns=_names(columns))
