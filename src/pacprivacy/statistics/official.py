"""Tables of statistical offices, as functions of noisy sums.

Rates, rates for a standard population, differences from a group or ratios to it, margins, rounding
to a base. Derivatives follow every step, so intervals include all covariances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from pacprivacy._checks import Integers, Matrix, Vector, as_told
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, MechanismWrapper, fixed_mechanism
from pacprivacy.statistics.joint_sums import (
    LEAST_CELL,
    JointStatistic,
    JointSums,
    TablePlace,
    shaping_slopes,
    sums_of_table,
)
from pacprivacy.statistics.sums import SummedStatistic
from pacprivacy.statistics.table import StatisticRows, label_statistic
from pacprivacy.statistics.unit_sums import COUNT_STD, SUM, Sums, UnitSums

TOTAL: Final = "total"
ROUNDING: Final = 1e-9  # of sums of fractions
Compare = Literal["difference", "ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRate(SummedStatistic):
    """The sum of a column over that of another, such as cases per person-year.

    ``columns`` are the two; ``per`` multiplies the rate.
    """

    kind = "rate"
    declared_kind = "sum"
    formula = SUM
    per: float = 1.0

    def _summed(self, rows: StatisticRows) -> Matrix:
        gaps = np.isnan(rows.X).any(axis=1, keepdims=True)
        return np.where(gaps, np.nan, rows.X)

    @property
    def _labels(self) -> tuple[str, ...]:
        names = fixed_mechanism(self.layout, "layout").names
        if len(names) != 2:
            raise MechanismError(
                f"a rate must be of two columns of numbers; got {len(names)}. Write "
                "pac.stats.rate('cases', 'person_years')."
            )
        return (f"{names[0]} per {names[1]}",)

    def _of_cells(self, sums: Sums, keep: float) -> Matrix:
        cases, size = sums.values.T
        least = 0.0 if sums.noise_std is None else COUNT_STD * sums.noise_std[:, 1]
        empty = size <= least
        rate = self.per * cases / np.where(empty, 1.0, size)
        return np.where(empty, math.nan if self.fill is None else self.fill, rate)[:, None]

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        cases, size = sums.values.T
        size = np.where(size > 0, size, 1.0)
        slopes = np.stack([1.0 / size, -cases / np.square(size)], axis=1)
        return np.asarray(self.per * slopes[:, None, :])

    def _output_scales(self, deviations: Vector) -> Vector:
        return np.ones(1)


class _Step(NamedTuple):
    """Figures along axes of categories, and derivatives of each by all sums (last axis)."""

    figures: npt.NDArray[np.float64]
    slopes: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfficialTable(JointStatistic, MechanismWrapper):
    """A table of a statistic, worked up; :func:`pacprivacy.stats.official` makes it.

    Parameters
    ----------
    inner : SummedStatistic
        Counts, sums, means or rates by the levels of categories.
    standard : mapping of str to mapping
        Weights of the levels of a category, by which figures are averaged.
    compare : (str, str) or None
        Category and level with which its other levels are compared.
    how : {"difference", "ratio"}
        How they are compared.
    margins : bool
        Add totals of counts or sums over every category.
    base : float or None
        Round to multiples of it; margins still add up.

    Guarantee
    ---------
    Claim C-33. The table is a function of the noisy sums of ``inner``. Rounded cells and margins
    add up; in tables of up to two categories none is moved by the base or more.
    """

    inner: SummedStatistic = field()
    standard: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    compare: tuple[str, str] | None = None
    how: Compare = "difference"
    margins: bool = False
    base: float | None = None

    def __post_init__(self) -> None:
        inner = self.inner
        if not isinstance(inner, SummedStatistic):
            raise MechanismError(
                "a table must be of a count, sum, mean, variance or rate of pac.stats; got "
                f"{type(inner).__name__}."
            )
        chosen = [*self.standard, *(self.compare or ())[:1]]
        if wrong := [name for name in chosen if name not in inner.by]:
            raise MechanismError(
                f"standard and compare must name categories of by={list(inner.by)}; got {wrong}."
            )
        if (self.margins or self.base is not None) and inner.formula is not SUM:
            raise MechanismError("margins and base must be of counts or sums; got others.")
        for weights in self.standard.values():
            if not weights or not all(0 <= w < math.inf for w in weights.values()):
                raise MechanismError(
                    f"standard must hold weights of levels; got {as_told(weights)}. Write "
                    "standard={'age': {'0-39': 0.6, '40+': 0.4}}."
                )

    @property
    def name(self) -> str:
        words = [self.inner.name]
        words += [f"standardised by {name}" for name in self.standard]
        if self.compare is not None:
            words.append(f"{self.how} from {self.compare[0]} {self.compare[1]}")
        return ", ".join(words)

    @property
    def public(self) -> tuple[str, ...]:
        lines = [
            f"standard of {name!r}: {', '.join(f'{k} {w:g}' for k, w in weights.items())}"
            for name, weights in self.standard.items()
        ]
        lines += [] if self.base is None else [f"rounded to multiples of {self.base:g}"]
        return (*self.inner.public, *lines)

    def coin_obstacle(self) -> str | None:
        return self.inner.coin_obstacle()

    def contributions(self, data: Data, units: Integers | None = None) -> UnitSums:
        """Return the contributions of every unit to all cells, in one row."""
        return JointSums.of((self.inner.contributions(data, units),))

    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        """Return the figures, rounded if they have noise."""
        cells = self._cells(sums)
        figures = self._worked(self.inner.value(cells, keep), None).figures
        if self.base is not None and sums.noise_std is not None:
            figures = round_to_base(figures, self.base, margins=self.margins)
        return figures.ravel()

    def own_deviations(self, sums: Sums) -> Vector:
        return np.full(len(self.value(sums)), (self.base or 0.0) / math.sqrt(6.0))

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        cells = self._cells(sums)
        worked = self._worked(self.inner.value(cells), self.inner.flat_slopes(cells))
        return worked.slopes.reshape(1, -1, sums.values.size)

    def output_slopes(self, contributions: UnitSums) -> npt.NDArray[np.float64]:
        """Return the derivatives, those of figures of few units at most as large as others."""
        assert isinstance(contributions, JointSums)
        (part,) = contributions.parts
        slopes = self.jacobian(contributions.total())[0]
        in_small_cells = np.repeat(part.entries_per_cell < LEAST_CELL, part.block)
        sizes = np.abs(slopes).max(axis=1)
        of_many = sizes[(slopes[:, in_small_cells] == 0).all(axis=1)]
        if len(of_many):
            most = float(of_many.max())
            slopes = slopes * (most / np.maximum(sizes, most))[:, None]
        cells = shaping_slopes(self.inner.output_slopes(part), part)
        return np.vstack([slopes, cells[-part.n_cells * part.block :]])[None]

    def _cells(self, sums: Sums) -> Sums:
        cells = self.inner.n_cells
        block = sums.values.size // cells
        return sums_of_table(sums, TablePlace(cells=cells, block=block, centres=len(sums.centre)))

    def _worked(self, figures: Vector, slopes: Matrix | None) -> _Step:
        shape = [len(axis) for axis in self.inner.axes]
        if slopes is None:
            slopes = np.zeros((len(figures), 0))
        step = _Step(figures.reshape(shape), slopes.reshape(*shape, slopes.shape[-1]))
        place = {name: 1 + i for i, name in enumerate(self.inner.by)}
        for category, weights in self.standard.items():
            levels = self.inner.axes[place[category]]
            step = _average(step, place[category], _level_weights(category, levels, weights))
        if self.compare is not None:
            category, level = self.compare
            levels = list(self.inner.axes[place[category]])
            step = _compare(step, place[category], _level_place(category, levels, level), self.how)
        for axis in place.values() if self.margins else ():
            step = _Step(*(np.concatenate([a, a.sum(axis, keepdims=True)], axis) for a in step))
        return step

    def finish(self, value: Any) -> Any:
        axes = self._named_axes
        numbers = np.asarray(value, dtype=np.float64).reshape([len(axis) for axis in axes])
        if self.inner.by and len(axes[0]) == 1:
            axes, numbers = axes[1:], numbers[0]
        return label_statistic(numbers, axes)

    @property
    def _named_axes(self) -> list[tuple[str, ...]]:
        names = [tuple(axis) for axis in self.inner.axes]
        for place, category in enumerate(self.inner.by, start=1):
            if self.compare is not None and category == self.compare[0]:
                names[place] = tuple(n for n in names[place] if n != self.compare[1])
            if category in self.standard:
                names[place] = ("standardised",)
            elif self.margins:
                names[place] = (*names[place], TOTAL)
        return names


def _level_weights(category: str, levels: Sequence[str], weights: Mapping[str, float]) -> Vector:
    if set(weights) != set(levels):
        raise MechanismError(
            f"standard must have a weight for every level of {category!r}; got other levels. "
            "Declare levels=."
        )
    sizes = np.array([float(weights[level]) for level in levels])
    return np.asarray(sizes / sizes.sum())


def _level_place(category: str, levels: Sequence[str], level: str) -> int:
    if level not in levels:
        raise MechanismError(
            f"compare must name a level of {category!r}; got {level!r}. Declare levels=."
        )
    return list(levels).index(level)


def _average(step: _Step, axis: int, weights: Vector) -> _Step:
    """Return weighted means along an axis, which keeps one place."""
    return _Step(*(np.expand_dims(np.tensordot(weights, a, axes=(0, axis)), axis) for a in step))


def _compare(step: _Step, axis: int, reference: int, how: Compare) -> _Step:
    """Return differences from a place along an axis, or ratios to it, without that place."""
    figures, slopes = (np.delete(a, reference, axis) for a in step)
    of_figures, of_slopes = (np.take(a, [reference], axis) for a in step)
    if how == "difference":
        return _Step(figures - of_figures, slopes - of_slopes)
    safe = np.where(of_figures == 0, math.nan, of_figures)
    ratios = figures / safe
    return _Step(ratios, (slopes - ratios[..., None] * of_slopes) / safe[..., None])


def round_to_base(
    table: npt.NDArray[np.float64], base: float, *, margins: bool
) -> npt.NDArray[np.float64]:
    """Round to multiples of a base; with margins, last along every axis, so that they add up.

    Every figure goes to one of its two neighbours. In tables of up to two categories all sums agree
    (Cox 1982); with more, cells are rounded and added up.
    """
    if not margins:
        return np.asarray(np.rint(table / base) * base)
    rounded = np.empty_like(table)
    for place, each in enumerate(table / base):
        rounded[place] = _controlled(each)
    return np.asarray(rounded * base)


def _controlled(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Round a table with its margins to whole numbers that add up."""
    cells = table[(slice(None, -1),) * table.ndim]
    if cells.ndim <= 2:
        flat = cells.reshape(len(cells), -1)
        whole = np.floor(flat) + _lift(flat - np.floor(flat)).reshape(flat.shape)
        whole = whole.reshape(cells.shape)
    else:
        whole = np.rint(cells)
    for axis in range(whole.ndim):
        whole = np.concatenate([whole, whole.sum(axis, keepdims=True)], axis)
    return np.asarray(whole)


def _lift(parts: Matrix) -> Vector:
    """Choose the fractions to round up, so that sums of rows and columns stay closest.

    This is a transport problem, whose corners are whole.
    """
    n_lines, n_columns = parts.shape
    of_lines = scipy.sparse.kron(scipy.sparse.eye(n_lines), np.ones((1, n_columns)))
    of_columns = scipy.sparse.kron(np.ones((1, n_lines)), scipy.sparse.eye(n_columns))
    sums = scipy.sparse.vstack([of_lines, of_columns, np.ones((1, parts.size))])
    exact = sums @ parts.ravel()
    limits = scipy.optimize.LinearConstraint(
        sums, np.floor(exact + ROUNDING), np.ceil(exact - ROUNDING)
    )
    solved = scipy.optimize.milp(
        1.0 - 2.0 * parts.ravel(),
        constraints=limits,
        bounds=scipy.optimize.Bounds(0, np.ceil(parts.ravel())),
        integrality=np.ones(parts.size),
    )
    chosen = parts.ravel() if solved.x is None else solved.x
    return np.asarray(np.rint(chosen), dtype=np.float64)
