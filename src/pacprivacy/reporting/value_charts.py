"""Charts of released values with their 95 % intervals.

Histograms have their edges, two-way tables are a heat map, coefficients lie around zero, and all
other numbers are dots with intervals, those with errors of one size on one axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from pacprivacy._values import Row, read_bin, row_texts, rows_by_table
from pacprivacy.reporting.style import BLUE, GREY, INK, PAPER, SOFT, Axes, style_axes

MAX_DOTS: Final = 16  # rows of a picture of dots
MAX_LEVELS: Final = 14  # lines and columns of a heat map
SAME_UNITS: Final = 30.0  # errors that differ more are of numbers in other units
LONGEST: Final = 34  # characters of a name beside a row
HISTOGRAM_HEIGHT: Final = 2.9
INTERCEPT: Final = "intercept"


@dataclass(frozen=True, slots=True)
class HistogramLayout:
    """A column of counts between bin edges."""

    name: str
    edges: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TwoWayLayout:
    """A table with one number for each pair of levels."""

    lines: tuple[str, ...]
    columns: tuple[str, ...]


Layout = tuple[HistogramLayout, ...] | TwoWayLayout | None


def value_layout(value: Any, n_numbers: int) -> Layout:
    """Return how the numbers of a release are arranged; None for a plain list of them."""
    if not isinstance(value, Mapping) or not value:
        return None
    columns = {"": value} if _is_histogram(value) else value
    if all(map(_is_histogram, columns.values())):
        layouts = tuple(
            HistogramLayout(str(name), tuple(map(float, part["edges"])))
            for name, part in columns.items()
        )
        return layouts if sum(len(each.edges) - 1 for each in layouts) == n_numbers else None
    if edges := _edges_of(value):
        return (HistogramLayout("", edges),)
    inner = [tuple(part) if isinstance(part, Mapping) else () for part in value.values()]
    levels = inner[0]
    plain = all(isinstance(x, int | float) for part in value.values() if isinstance(part, Mapping)
                for x in part.values())  # fmt: skip
    square = plain and len(set(inner)) == 1 and 2 <= len(levels) <= MAX_LEVELS
    if square and 2 <= len(value) <= MAX_LEVELS and len(value) * len(levels) == n_numbers:
        return TwoWayLayout(tuple(map(str, value)), tuple(map(str, levels)))
    return None


def _edges_of(value: Mapping[Any, Any]) -> tuple[float, ...]:
    """Return the edges of the bins that the keys of a value name; none where they do not."""
    bins = [read_bin(str(key)) for key in value]
    ends = sorted((each[1], each[2]) for each in bins if each is not None and not each[0])
    touching = all(one[1] == other[0] for one, other in itertools.pairwise(ends))
    if len(ends) < 2 or len(ends) < len(value) or not touching:
        return ()
    return (ends[0][0], *(high for _, high in ends))


class NamedTable(NamedTuple):
    """A table of a study: its name, rows with names of its own, and their arrangement."""

    name: str
    rows: tuple[Row, ...]
    layout: Layout


def study_tables(release: Any, rows: Sequence[Row]) -> tuple[NamedTable, ...]:
    """Return the tables of a study with their rows; none of other releases."""
    if not isinstance(release.value, Mapping):
        return ()
    return tuple(
        NamedTable(name, named, value_layout(release.value.get(name), len(named)))
        for name, named in rows_by_table(release.model, rows)
    )


def _is_histogram(part: Any) -> bool:
    """Whether a part of a value is the counts of one column between edges."""
    return (
        isinstance(part, Mapping)
        and set(part) == {"counts", "edges"}
        and np.ndim(part["edges"]) == 1
    )


def value_chart_height(rows: Sequence[Row], layout: Layout) -> float:
    """Return how high a picture of values is, in inches."""
    if isinstance(layout, TwoWayLayout):
        return 0.7 + 0.55 * len(layout.lines)
    if layout:
        return HISTOGRAM_HEIGHT * len(layout)
    parts = _comparable(rows)
    return 0.55 * len(parts) + 0.3 * sum(map(len, parts))


def draw_values(figure: Any, rows: Sequence[Row], layout: Layout) -> None:
    """Draw released values with their intervals."""
    if isinstance(layout, TwoWayLayout):
        _draw_two_way(figure.subplots(), rows, layout)
    elif layout:
        first = 0
        for axes, part in zip(
            figure.subplots(len(layout), 1, squeeze=False)[:, 0], layout, strict=True
        ):
            last = first + len(part.edges) - 1
            _draw_histogram(axes, rows[first:last], part)
            first = last
    else:
        parts = _comparable(rows)
        heights = [0.55 + 0.3 * len(part) for part in parts]
        grid = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
        for axes, rows_of_one_size in zip(grid[:, 0], parts, strict=True):
            _draw_dots(axes, rows_of_one_size, zero=_are_coefficients(rows))


def _draw_histogram(axes: Axes, rows: Sequence[Row], layout: HistogramLayout) -> None:
    """Draw counts as bars between their edges, each with its interval."""
    edges = np.array(layout.edges)
    widths = np.diff(edges)
    axes.bar(
        edges[:-1], [max(row.value, 0.0) for row in rows], widths, align="edge", color=BLUE,
        alpha=0.6, edgecolor=PAPER, lw=1.5,
    )  # fmt: skip
    for middle, row in zip(edges[:-1] + widths / 2, rows, strict=True):
        if not math.isnan(row.lower):
            axes.plot([middle, middle], [row.lower, row.upper], color=INK, lw=2, marker="")
    axes.set_xticks(edges if len(edges) <= 14 else edges[:: len(edges) // 10])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    style_axes(axes, layout.name, "count, with 95 % interval")


def _draw_two_way(axes: Axes, rows: Sequence[Row], layout: TwoWayLayout) -> None:
    """Draw a table as a heat map: darker is more; each cell with its number and error."""
    from matplotlib.patches import Rectangle  # slow to import, and needed for pictures only

    values = np.array([row.value for row in rows])
    low, high = min(0.0, values.min()), values.max()
    shares = (values - low) / (high - low) if high > low else np.zeros(len(values))
    n_columns = len(layout.columns)
    for place, (row, share) in enumerate(zip(rows, shares, strict=True)):
        y, x = divmod(place, n_columns)
        shade = float(0.08 + 0.5 * share)
        axes.add_patch(Rectangle((x, y), 1, 1, fc=BLUE, alpha=shade, ec=PAPER, lw=2))
        value, error = row_texts(row)
        text = value if math.isnan(row.std_error) else f"{value} ± {error}"
        axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", c=INK)
    axes.set(xlim=(0, n_columns), ylim=(len(layout.lines), 0))
    axes.set_xticks(np.arange(n_columns) + 0.5, [_short(name) for name in layout.columns])
    axes.set_yticks(np.arange(len(layout.lines)) + 0.5, [_short(name) for name in layout.lines])
    axes.tick_params(labelcolor=INK, labeltop=True, labelbottom=False)
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)


def _are_coefficients(rows: Sequence[Row]) -> bool:
    """Whether the numbers are coefficients of a regression."""
    return any(row.name == INTERCEPT or row.name.startswith("coef[") for row in rows)


def _draw_dots(axes: Axes, rows: Sequence[Row], *, zero: bool) -> None:
    """Draw a dot and an interval for each number; around a line at zero for coefficients."""
    for place, row in enumerate(rows):
        if not math.isnan(row.lower):
            ends = [row.lower, row.upper]
            axes.plot(ends, [place, place], color=BLUE, lw=5, alpha=0.45, marker="")
        axes.plot(row.value, place, "o", color=BLUE, ms=8)
    if zero and any(row.name != INTERCEPT for row in rows):
        axes.axvline(0, color=SOFT, lw=1.4, ls="--", marker="")
    axes.set_yticks(range(len(rows)), [_short(row.name) for row in rows])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.08)
    if all(row.is_date for row in rows):
        axes.locator_params(axis="x", nbins=2, integer=True)
        axes.xaxis.set_major_formatter(lambda value, _: row_texts(_day(value))[0])
    else:
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(axis="x", color=GREY)
    axes.grid(False, axis="y")


def _day(value: float) -> Row:
    return Row("", value, *(math.nan,) * 3, is_date=True)


def _comparable(rows: Sequence[Row]) -> list[list[Row]]:
    """Split off the first rows with errors of comparable size."""
    parts: list[list[Row]] = []
    for row in rows[:MAX_DOTS]:
        others = [other.std_error for other in parts[-1]] if parts else []
        sizes = [error for error in (*others, row.std_error) if error > 0]
        alone = INTERCEPT in (row.name, parts[-1][-1].name if parts else "")  # far from the others
        if others and not alone and (not sizes or max(sizes) <= SAME_UNITS * min(sizes)):
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
