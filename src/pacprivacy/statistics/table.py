"""Common parts of all statistics: rows as numbers, gaps, levels, conditions, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Matrix, Vector, as_told, shorten, suggestion
from pacprivacy._values import DATES
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    FILLED_GAPS,
    GAP_LEVEL,
    Columns,
    Condition,
    Data,
    Kind,
    Mechanism,
    are_dates_clear,
    code_column_levels,
    code_plain_levels,
    column_levels,
    declared_column_levels,
    fill_column_means,
    fixed_mechanism,
    is_identity_column,
    is_number_text,
    is_text_column,
    list_columns,
)
from pacprivacy.statistics.declared import Declaration

Missing = Literal["drop", "mean", "category", "error"]

POLICIES: Final = ("drop", "mean", "category", "error")
MOST_LEVELS: Final = 50  # text with more of them is an id or a remark, unless they are declared


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatisticRows:
    """The rows of one candidate as numbers.

    Weights are 0 where the condition is not met, columns have NaN for gaps, and cells are -1 for
    rows of none.
    """

    weights: Vector
    X: Matrix
    cells: npt.NDArray[np.int64]
    y: Vector | None = None

    def take(self, rows: Integers) -> StatisticRows:
        y = None if self.y is None else self.y[rows]
        return StatisticRows(
            weights=self.weights[rows], X=self.X[rows], cells=self.cells[rows], y=y
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatisticLayout:
    """Common to all candidates: names, levels, centres that steady the arithmetic."""

    terms: tuple[tuple[str, str, str | None], ...]  # name, column, level of a category
    levels: Mapping[str, tuple[str, ...]]
    measured: tuple[str, ...]
    centre: Vector
    scales: Vector
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    date_formats: Mapping[str, str] = field(default_factory=dict)
    target_levels: tuple[str, ...] | None = None
    declaration: Declaration | None = None  # centres are its own, and nothing is measured

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic(Mechanism):
    """Common base of all statistics; made by the functions of :mod:`pacprivacy.stats`.

    Parameters
    ----------
    columns : tuple of str, optional
        Columns to describe; by default all that have no other use. A category counts
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
        Value reported for an empty group.
    categories : tuple of str
        Columns whose entries are levels, also where they are numbers or look like them.
    date_formats : mapping of str to str, optional
        How the texts of a column write dates, ``{"day": "%d/%m/%Y"}``; found if there is no doubt.
    ranges : mapping of str to pair, optional
        Declared ranges of columns and weights, known without the records. Numbers outside are moved
        to the nearer end.
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
    categories: tuple[str, ...] = ()
    date_formats: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    layout: StatisticLayout | None = field(default=None, repr=False, compare=False)
    by_entry: bool = field(default=False, repr=False, compare=False)  # presence is hidden

    def __post_init__(self) -> None:
        if self.missing not in POLICIES:
            raise MechanismError(
                f"missing must be one of {', '.join(POLICIES)}; got {as_told(self.missing)}. "
                + suggestion(as_told(self.missing), POLICIES, otherwise="Choose one.")
            )
        if self.weights is not None and not self.weighted:
            raise MechanismError(
                f"weights must be left out for {self.kind}; got {as_told(self.weights)}. "
                "Means, sums, counts and regressions take weights."
            )
        if self.target is not None and self.target in (self.columns or ()):
            raise MechanismError(
                f"columns must leave out the target; got {self.target!r} in both. Drop it there."
            )
        if self.where is not None:
            Condition(self.where)

    @property
    def name(self) -> str:
        used = self.columns or ()
        if self.layout is not None:
            used = tuple(dict.fromkeys(column for _, column, _ in self.layout.terms))
        listed = list_columns(used)
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
        lines = [f"levels of {name!r}: declared by the curator" for name in sorted(self.levels)]
        lines += [
            f"range of {name!r}: {low:g} to {high:g}, declared by the curator"
            for name, (low, high) in sorted(self.ranges.items())
        ]
        if self.missing != "error":
            lines.append(f"gaps: {_GAPS[self.missing]}")
        if self.weights is not None:
            lines.append(f"rows are weighted by {self.weights!r}")
        if dates := self._dates:
            lines.append(f"{DATES}{', '.join(dates)}")
        return tuple(lines)

    @property
    def published(self) -> tuple[str, ...]:
        """Levels that were read off all records: the value shows that each of them occurs."""
        measured = () if self.layout is None else self.layout.measured
        return tuple(f"levels of {name!r}: those that occur in the table" for name in measured)

    def coin_obstacle(self) -> str | None:
        return FILLED_GAPS if self.missing == "mean" else None

    # --- reading ------------------------------------------------------------------------------

    def reading_by_entry(self) -> Self:
        """Return the statistic that reads every entry by itself, by types and declarations.

        Guarantee
        ---------
        Claim C-9. Whether it is refused, and the message, follow from types of columns and from
        declarations alone.
        """
        return replace(self, by_entry=True)

    @property
    def _declared_kinds(self) -> dict[str, Kind] | None:
        """Kinds of columns of objects, where presence is hidden; others have those of types."""
        if not self.by_entry:
            return None
        numbers: dict[str, Kind] = dict.fromkeys(self.ranges, "number")
        return numbers | dict.fromkeys((*self.levels, *self.categories, *self.by), "text")

    def prepare(self, data: Data) -> Self:
        """Fix names, kinds and levels with all records, and refuse columns that cannot be used."""
        frame = self._understand(data)
        used = self._columns(frame)
        grouped = dict.fromkeys((*used, *self.by))
        if not self.by_entry:
            self._check_kinds(frame, tuple(grouped))
        levels, measured = {}, []
        for name in grouped:
            if name in self.levels:
                levels[name] = declared_column_levels(name, self.levels[name], frame.kind(name))
            elif self._is_category(frame, name):
                if self.by_entry:
                    raise self._undeclared(name)
                levels[name] = column_levels(frame.category(name))
                measured.append(name)
                if not levels[name]:
                    raise MechanismError(
                        f"column {name!r} must have levels; got none. Leave it out."
                    )
        if self.missing == "category":
            for name, known in levels.items():
                gaps = (code_column_levels(frame.category(name), known) < 0).any()
                if gaps or name in self.levels:
                    levels[name] = (*known, GAP_LEVEL)
        terms = tuple(term for name in used for term in self._terms(name, levels.get(name)))
        width = len(terms) + (self.target is not None)
        layout = StatisticLayout(
            terms=terms,
            levels=levels,
            measured=tuple(measured),
            centre=np.zeros(width),
            scales=np.ones(width),
            kinds={name: frame.kind(name) for name in self._read_names(used)},
            date_formats=frame.date_formats,
            target_levels=self._target_levels(frame),
        )
        whole = replace(self, layout=layout)
        if self.where is not None:
            condition = Condition(self.where)
            condition.check({name: frame.compared(name) for name in condition.columns})
        if self.by_entry:
            return whole  # centres are declared
        if self.missing == "error":
            whole._check_gaps(frame)
        rows = whole.read(data.parts)
        return replace(whole, layout=_steady(layout, rows))

    def _understand(self, data: Data) -> Columns:
        """Return all records, texts that are dates as such; ask where they are not clear."""
        if self.by_entry:
            return self._frame(data.parts, self.date_formats)
        frame = Columns(data.parts, wanted_by=self.kind, date_formats=self.date_formats)
        texts = [
            name
            for name in self._read_names(self._columns(frame))
            if name not in self.categories and not frame.is_categorical(name)
        ]
        formats = frame.find_date_formats(texts)
        compared = () if self.where is None else Condition(self.where).columns
        unclear = {
            name: possible
            for name, possible in formats.items()
            if not are_dates_clear(possible) and (name in compared or name not in self.levels)
        }
        if unclear:
            name, either = next(iter(unclear.items()))
            raise MechanismError(
                f"dates must be written in one way; got {shorten(list(unclear))}, to be read as "
                f"{' or '.join(either)}. Say which: date_formats={{{name!r}: {either[0]!r}}}."
            )
        clear = {name: one[0] for name, one in formats.items() if are_dates_clear(one)}
        return Columns(data.parts, wanted_by=self.kind, date_formats={**self.date_formats, **clear})

    def _frame(
        self,
        parts: tuple[Any, ...],
        date_formats: Mapping[str, str],
        kinds: Mapping[str, Kind] | None = None,
    ) -> Columns:
        return Columns(
            parts,
            wanted_by=self.kind,
            date_formats=date_formats,
            kinds=kinds,
            declared=self._declared_kinds,
        )

    def _undeclared(self, name: str) -> MechanismError:
        if name in self.ranges:
            return MechanismError(
                "formats of dates must be declared where presence is hidden; got none for "
                f"{name!r}, a column of texts. Write date_formats={{{name!r}: '%d/%m/%Y'}}, or "
                "'ISO' for 2024-05-31; or turn the column into numbers."
            )
        return MechanismError(
            f"levels must be declared where presence is hidden; got none for {name!r}. Write "
            f"levels={{{name!r}: ['a', 'b']}}; of numbers in a column of objects, "
            f"ranges={{{name!r}: (0, 100)}}."
        )

    def _read_names(self, used: Sequence[str]) -> tuple[str, ...]:
        """Return all columns that are read: those in use, groups, target, weights, condition."""
        where = () if self.where is None else Condition(self.where).columns
        apart = [name for name in (self.target, self.weights) if name is not None]
        return tuple(dict.fromkeys((*used, *self.by, *apart, *where)))

    def _is_category(self, frame: Columns, name: str) -> bool:
        declared = name in self.levels or name in self.categories or name in self.by
        return declared or is_text_column(frame.column(name))

    @property
    def _dates(self) -> tuple[str, ...]:
        if self.layout is None:
            return ()
        shown = [*(name for _, name, level in self.layout.terms if level is None), self.target]
        kinds = self.layout.kinds
        return tuple(n for n in dict.fromkeys(shown) if n is not None and kinds.get(n) == "date")

    def _columns(self, frame: Columns) -> tuple[str, ...]:
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

    def _target_levels(self, frame: Columns) -> tuple[str, ...] | None:
        return None

    def _check_kinds(self, frame: Columns, names: Sequence[str]) -> None:
        ids, long, numbers = [], [], []
        for name in names:
            if name in self.levels or not self._is_category(frame, name):
                continue
            column = frame.category(name)
            levels, text = column_levels(column), frame.kind(name) == "text"
            there = int(np.count_nonzero(column != None))  # noqa: E711
            if text and is_identity_column(len(levels), there):
                ids.append(name)
            elif len(levels) > MOST_LEVELS:
                long.append(name)
            declared = name in (*self.categories, *self.by) or frame.is_categorical(name)
            if text and not declared and is_number_text(levels):
                numbers.append(name)
        problems, advice = [], ["Leave them out."]
        if numbers:
            problems.append(f"numbers among the texts in {shorten(numbers)}")
            advice.append(
                "Turn the texts into numbers and gaps; or, if its entries may be published as "
                f"levels, categories={numbers[0]!r}."
            )
        if apart := [name for name in ids if name not in numbers]:
            problems.append(f"ids in {shorten(apart)} (most rows have an entry of their own)")
        if many := [name for name in long if name not in numbers]:
            problems.append(f"more than {MOST_LEVELS} levels in {shorten(many)}")
            advice.append("Declare the levels that matter: levels=....")
        if apart or many:
            advice.append(f"If one says whose row it is: units={(apart or many)[0]!r}.")
        if problems:
            raise MechanismError(
                f"columns must hold numbers, dates or categories; got {' and '.join(problems)}. "
                + " ".join(advice)
            )

    def _check_gaps(self, frame: Columns) -> None:
        layout = fixed_mechanism(self.layout, "layout")
        names = dict.fromkeys([*(column for _, column, _ in layout.terms), *self.by])
        names.update({name: None for name in (self.target, self.weights) if name is not None})
        counts = {name: int(np.count_nonzero(self._gaps(frame, name))) for name in names}
        wrong = [name for name, number in counts.items() if number]
        if wrong:
            raise MechanismError(
                f"columns must have no missing values; got some in {shorten(wrong)}. "
                "Choose missing='drop', 'mean' or 'category'."
            )

    def _gaps(self, frame: Columns, name: str) -> npt.NDArray[np.bool_]:
        levels = fixed_mechanism(self.layout, "layout").levels.get(name)
        if levels is not None:
            return code_column_levels(frame.category(name), levels) < 0
        column = frame.column(name)
        return column == None if is_text_column(column) else np.isnan(column)  # noqa: E711

    def read(self, parts: tuple[Any, ...]) -> StatisticRows:
        """Return the rows of one candidate; looks at no other row."""
        layout = fixed_mechanism(self.layout, "layout")
        frame = self._frame(parts, layout.date_formats, layout.kinds)
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
        groups = [(self._code(frame, name), len(layout.levels[name])) for name in self.by]
        cells = number_cells(groups, frame.n_rows)
        weights = np.ones(frame.n_rows)
        if self.weights is not None:
            weights = np.nan_to_num(self._numbers(frame, self.weights))
            if self.by_entry:
                weights = np.maximum(weights, 0.0)
            if (weights < 0).any():
                raise MechanismError(
                    f"weights must be non-negative; got negative ones in {self.weights!r}. "
                    "Correct them."
                )
        if self.where is not None:
            condition = Condition(self.where)
            met = condition.rows({name: frame.compared(name) for name in condition.columns})
            weights = np.where(met, weights, 0.0)
        weights = np.where(cells >= 0, weights, 0.0)
        if self.missing == "mean":
            X = fill_column_means(X, weights)
        return StatisticRows(weights=weights, X=X, cells=cells, y=self._target(frame))

    def _code(self, frame: Columns, name: str) -> npt.NDArray[np.int64]:
        layout = fixed_mechanism(self.layout, "layout")
        levels = layout.levels[name]
        gap_level = self.missing == "category" and levels[-1] == GAP_LEVEL
        known = levels[:-1] if gap_level else levels
        code = code_column_levels if layout.declaration is None else code_plain_levels
        return code(frame.category(name), known, gap_level=gap_level)

    def _numbers(self, frame: Columns, name: str) -> Vector:
        column = frame.column(name)
        if is_text_column(column):
            raise MechanismError(f"column {name!r} must hold numbers; got text. Choose another.")
        if name in self.ranges:
            return np.clip(column, *self.ranges[name])
        if self.by_entry:
            return np.where(np.isinf(column), np.nan, column)
        if np.isinf(column).any():
            raise MechanismError(
                f"column {name!r} must be finite everywhere; got infinity. Leave those rows out: "
                "where=..."
            )
        return column

    def _target(self, frame: Columns) -> Vector | None:
        return None

    # --- what is measured ------------------------------------------------------------------------

    @property
    def _labels(self) -> tuple[str, ...]:
        """Names along the first axis: those of the columns."""
        return fixed_mechanism(self.layout, "layout").names

    @property
    def _cell_parts(self) -> tuple[str, ...]:
        """Names of the numbers of one cell, where it has several."""
        return ()

    @property
    def axes(self) -> list[Sequence[str]]:
        """Names along every axis: columns, and the levels of each category of the groups."""
        levels = fixed_mechanism(self.layout, "layout").levels
        return [self._labels, *(levels[name] for name in self.by)]

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes)

    @property
    def n_cells(self) -> int:
        return int(np.prod(self._shape[1:], dtype=np.int64))

    def finish(self, value: Any) -> Any:
        axes = [*self.axes, self._cell_parts or ("",)]
        numbers = np.asarray(value, dtype=np.float64).reshape([len(axis) for axis in axes])
        if len(self._cell_parts) < 2:
            axes, numbers = axes[:-1], numbers[..., 0]
        if self.by and len(axes[0]) == 1:
            axes, numbers = axes[1:], numbers[0]
        return label_statistic(numbers, axes)

    def check_empty(self, values: Matrix) -> Matrix:
        """Fill groups that are empty in some candidate, or refuse them with advice."""
        empty = np.isnan(values)
        if self.fill is not None:
            return np.where(empty, self.fill, values)
        if not empty.any():
            return values
        labels = [" / ".join(label) for label in product(*self.axes)]
        by_label = empty.reshape(len(empty), len(labels), -1).any(axis=(0, 2))
        wrong = [labels[i] for i in np.flatnonzero(by_label)]
        raise MechanismError(
            f"{self.kind} must have rows enough in every candidate; got candidates with none or "
            f"too few in {len(wrong)} of {len(labels)} cells: {shorten(wrong)}. Merge rare levels, "
            "declare levels without them, or give the value of empty cells: fill=0."
        )


_GAPS: Final = {
    "drop": "rows with a gap in a column in use are left out",
    "mean": "filled by the mean of the rows that are used",
    "category": "a level of their own in categories, left out of numbers",
}


def number_cells(
    groups: Sequence[tuple[npt.NDArray[np.int64], int]], n_rows: int
) -> npt.NDArray[np.int64]:
    """Return the cell of every row, from its codes in several categories and their sizes.

    The last category varies fastest. A row without a code in one of them, -1, is in no cell: -1.
    """
    cells = np.zeros(n_rows, dtype=np.int64)
    for codes, n_levels in groups:
        cells = np.where((cells < 0) | (codes < 0), -1, cells * n_levels + codes)
    return cells


def label_statistic(numbers: Any, axes: Sequence[Sequence[str]]) -> Any:
    """Return an array as dictionaries of dictionaries, by the names along its axes."""
    if not axes:
        return float(numbers)
    return {name: label_statistic(numbers[i], axes[1:]) for i, name in enumerate(axes[0])}


def _steady(layout: StatisticLayout, rows: StatisticRows) -> StatisticLayout:
    """Choose centres and scales for the arithmetic; results depend on them in rounding only."""
    columns = rows.X if rows.y is None else np.column_stack([rows.X, rows.y])
    there = ~np.isnan(columns) & (rows.weights > 0)[:, None]
    number = np.maximum(there.sum(axis=0), 1)
    plain = np.where(there, columns, 0.0)
    centre = plain.sum(axis=0) / number
    spread = np.sqrt(np.where(there, np.square(columns - centre), 0.0).sum(axis=0) / number)
    return replace(layout, centre=centre, scales=np.where(spread > 0, spread, 1.0))
