"""Means, sums, counts and variances of named columns, in all or by the levels of categories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import LARGEST_OUTPUT, Integers, Matrix, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    Columns,
    Condition,
    Data,
    fixed_mechanism,
    is_text_column,
    plain_level,
)
from pacprivacy.statistics.declared import Declaration, DeclaredColumn, DeclaredKind
from pacprivacy.statistics.table import Statistic, StatisticLayout, StatisticRows
from pacprivacy.statistics.unit_sums import (
    MEAN,
    SUM,
    VARIANCE,
    Formula,
    Sums,
    SumStatistic,
    UnitSums,
    round_centre,
    shape_block,
    slopes_of_block,
    value_of_block,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedStatistic(Statistic, SumStatistic):
    """A formula of named columns."""

    formula: ClassVar[Formula]
    declared_kind: ClassVar[DeclaredKind]

    def _summed(self, rows: StatisticRows) -> Matrix:
        """Return the columns that the formula is of; NaN is a gap."""
        return rows.X

    def contributions(self, data: Data, units: Integers | None = None) -> UnitSums:
        rows, layout = self.read(data.parts), fixed_mechanism(self.layout, "layout")
        X = self._summed(rows)
        centre = np.zeros(X.shape[1])
        declared = layout.declaration is not None
        if self.formula.centred:
            centre = layout.centre if declared else round_centre(layout.centre, layout.scales)
            X = X - centre
        shared = not declared and not np.isnan(X).any()  # whether there are gaps is not declared
        return UnitSums.of_rows(
            shape_block(self.formula, X, rows.weights, shared=shared),
            units=units,
            cells=rows.cells if self.by else None,
            n_cells=self.n_cells,
            centre=centre,
            scales=self._output_scales(layout.scales),
        )

    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        return self.arrange(self._of_cells(sums, keep))

    def arrange(self, per_cell: Matrix) -> Vector:
        return per_cell.T.ravel()

    def cell_values(self, sums: Sums) -> Matrix:
        return self._of_cells(sums, 1.0)

    def _of_cells(self, sums: Sums, keep: float) -> Matrix:
        n_columns, limits = len(self._labels), self._limits()
        if limits is None:
            return value_of_block(self.formula, sums, n_columns, keep=keep, fill=self.fill)
        low, high = limits
        values = value_of_block(self.formula, sums, n_columns, keep=keep, fill=None)
        fill = (low + high) / 2 if self.fill is None else self.fill
        return np.where(np.isnan(values), fill, np.clip(values, low, high))

    def _limits(self) -> tuple[Vector, Vector] | None:
        """Return the possible means and variances of columns whose ranges are declared."""
        return None

    def declare(self, rows_per_unit: int) -> tuple[Self, Declaration]:
        layout = fixed_mechanism(self.layout, "layout")
        self._check_declared(layout)
        layout = self._declared_layout(layout)
        width = {name: 0 for _, name, _ in layout.terms}
        for _, name, level in layout.terms:
            width[name] += level is not None
        columns = []
        for name, n_levels in width.items():
            low, high = (0.0, 1.0) if n_levels else self.ranges.get(name, (0.0, 1.0))
            columns.append(DeclaredColumn(name=name, low=low, high=high, n_levels=n_levels))
        declaration = Declaration(
            statistic=self.declared_kind,
            columns=tuple(columns),
            n_cells=self.n_cells,
            rows_per_unit=rows_per_unit,
            largest_weight=1.0 if self.weights is None else self.ranges[self.weights][1],
        )
        centre = np.repeat(
            [declaration.centre_of(column) for column in columns],
            [column.width for column in columns],
        )
        layout = replace(
            layout, declaration=declaration, centre=centre, scales=np.ones(len(centre))
        )
        return replace(self, layout=layout), declaration

    def _declared_layout(self, layout: StatisticLayout) -> StatisticLayout:
        """Return names and levels as declared: of texts, none is read by what others look like."""
        guessed_dates = set(layout.date_formats) - set(self.date_formats)
        kinds = {
            name: "text" if name in guessed_dates else kind for name, kind in layout.kinds.items()
        }
        levels = {}
        for name, known in layout.levels.items():
            written = known if kinds[name] == "date" else self.levels[name]
            levels[name] = (*written, *known[len(written) :])
            if len({plain_level(level) for level in written}) < len(written):
                raise MechanismError(
                    f"levels of {name!r} must differ as numbers, too, where presence is hidden; "
                    "got one twice, such as 1 and 1.0. Name each once."
                )
        return replace(
            layout,
            levels=levels,
            terms=tuple(
                term
                for name in dict.fromkeys(column for _, column, _ in layout.terms)
                for term in self._terms(name, levels.get(name))
            ),
            kinds=kinds,
            date_formats=dict(self.date_formats),
        )

    def _check_declared(self, layout: StatisticLayout) -> None:
        if layout.measured:
            raise self._undeclared(layout.measured[0])
        numbers = [name for _, name, level in layout.terms if level is None]
        needed = [] if self.declared_kind == "count" else numbers
        needed += [] if self.weights is None else [self.weights]
        for name in needed:
            if name not in self.ranges:
                raise MechanismError(
                    f"ranges must be declared where presence is hidden; got none for {name!r}. "
                    f"Write ranges={{{name!r}: (0, 100)}}, known without the records."
                )
        if self.weights is not None and self.ranges[self.weights][0] < 0:
            raise MechanismError(
                f"ranges of weights must begin at 0 or above; got {self.ranges[self.weights]}."
            )
        guessed = set(layout.date_formats) - set(self.date_formats) - set(self._only_levels)
        if guessed:
            name = min(guessed)
            raise MechanismError(
                "formats of dates must be declared where presence is hidden; got none for "
                f"{name!r}. Write date_formats={{{name!r}: '%d/%m/%Y'}}, or 'ISO' for 2024-05-31."
            )
        if self.missing not in ("drop", "category"):
            raise MechanismError(
                f"missing must be 'drop' or 'category' where presence is hidden; got "
                f"{self.missing!r}: a refusal would tell of gaps. Drop them."
            )

    @property
    def _only_levels(self) -> tuple[str, ...]:
        """Columns of which declared levels are counted, and that no condition compares."""
        compared = () if self.where is None else Condition(self.where).columns
        return tuple(name for name in self.levels if name not in compared)

    def declared_errors(self, sums: Sums, deviations: Matrix) -> Matrix:
        """Return deviations of every cell: of one without a count, the width of the range."""
        limits = self._limits()
        if limits is None:
            return deviations
        values = value_of_block(self.formula, sums, len(self._labels), keep=1.0, fill=None)
        widths = limits[1] - limits[0]
        return np.where(np.isnan(values), widths, np.minimum(deviations, widths))

    def _term_ranges(self) -> tuple[Vector, Vector] | None:
        """Return both ends of every term's declared range; None where not all is declared."""
        declaration = fixed_mechanism(self.layout, "layout").declaration
        if declaration is None:
            return None
        widths = [column.width for column in declaration.columns]
        low = np.repeat([column.low for column in declaration.columns], widths)
        high = np.repeat([column.high for column in declaration.columns], widths)
        return low, high

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        return slopes_of_block(self.formula, sums, len(self._labels))

    def _output_scales(self, deviations: Vector) -> Vector:
        return deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMean(SummedStatistic):
    """Means; of a category, the share of each level."""

    kind = "mean"
    declared_kind = "mean"
    formula = MEAN

    def _limits(self) -> tuple[Vector, Vector] | None:
        return self._term_ranges()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSum(SummedStatistic):
    """Sums over the rows of a candidate; a release scales them to all records."""

    kind = "sum"
    declared_kind = "sum"
    formula = SUM
    totals: ClassVar[Literal["sum", "count"]] = "sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVariance(SummedStatistic):
    """Variances with the divisor n - 1."""

    kind = "variance"
    declared_kind = "variance"
    formula = VARIANCE
    weighted = False

    def _limits(self) -> tuple[Vector, Vector] | None:
        ranges = self._term_ranges()
        if ranges is None:
            return None
        largest = np.square(ranges[1] - ranges[0]) / 2  # of two rows, at both ends
        return np.zeros(len(largest)), largest

    def _output_scales(self, deviations: Vector) -> Vector:
        return np.square(deviations)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCount(SummedStatistic):
    """Numbers of rows, of entries, or of entries of each level: sums of ones."""

    kind = "count"
    declared_kind = "count"
    formula = SUM
    totals: ClassVar[Literal["sum", "count"]] = "count"

    def _columns(self, frame: Columns) -> tuple[str, ...]:
        return self.columns or ()

    def _summed(self, rows: StatisticRows) -> Matrix:
        terms = fixed_mechanism(self.layout, "layout").terms
        if not terms:
            return np.ones((len(rows.weights), 1))
        is_level = np.array([level is not None for *_, level in terms])
        return np.where(is_level | np.isnan(rows.X), rows.X, 1.0)

    def _numbers(self, frame: Columns, name: str) -> Vector:
        if name == self.weights or is_text_column(frame.column(name)):
            return Statistic._numbers(self, frame, name)
        return np.clip(frame.column(name), -LARGEST_OUTPUT, LARGEST_OUTPUT)  # infinity is an entry

    def _output_scales(self, deviations: Vector) -> Vector:
        return np.ones(len(self._labels))

    @property
    def _labels(self) -> tuple[str, ...]:
        return fixed_mechanism(self.layout, "layout").names or ("rows",)
