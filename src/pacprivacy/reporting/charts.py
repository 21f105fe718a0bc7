"""The charts: released values with their intervals, and the promise.

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

from pacprivacy._rounding import percent_at_most
from pacprivacy._values import Row, read_bin, row_texts, rows_by_table
from pacprivacy.audit import AuditResult
from pacprivacy.reporting.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAPER,
    ROOM,
    SOFT,
    Axes,
    style_axes,
)

RATES: Final = ([share / 5 for share in range(6)], [f"{20 * share} %" for share in range(6)])
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
    """Return the arrangement of a release's numbers; None for a plain list."""
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
    edges = np.array(layout.edges)
    widths = np.diff(edges)
    uneven = not np.allclose(widths, widths[0])
    per = widths / widths.min() if uneven else np.ones(len(widths))
    heights = np.array([max(row.value, 0.0) for row in rows]) / per
    axes.bar(
        edges[:-1], heights, widths, align="edge", color=BLUE, alpha=0.6, edgecolor=PAPER, lw=1.5
    )
    for middle, row, share in zip(edges[:-1] + widths / 2, rows, per, strict=True):
        if not math.isnan(row.lower):
            ends = [row.lower / share, row.upper / share]
            axes.plot([middle, middle], ends, color=INK, lw=2, marker="")
    axes.set_xticks(edges if len(edges) <= 14 else edges[:: len(edges) // 10])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    what = f"count for each {widths.min():,.6g} of width" if uneven else "count"
    style_axes(axes, layout.name, f"{what}, with 95 % interval")


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


# --- the promise ----------------------------------------------------------------------------


def chart_odds(axes: Axes, prior: float, bound: float) -> None:
    """Draw the promise between a blind guess and certainty."""
    axes.barh(0, 1.0, color=GREY, alpha=0.45, height=1.0)
    axes.barh(0, bound, color=ROOM, height=1.0)
    axes.barh(0, prior, color=GREY, height=1.0)
    axes.plot([bound, bound], [-0.7, 0.7], color=INK, lw=2.6, marker="")
    axes.text(prior - 0.01, -0.62, f"blind guess {100 * prior:.4g} %", ha="right", va="top", c=SOFT)
    text = f"promised: at most {percent_at_most(bound)} %"
    axes.text(bound, 0.85, text, ha="right", weight="bold")
    if bound < 0.999:
        axes.text(1.0, -0.62, "certainty", ha="right", va="top", c=SOFT)
    axes.set(xlim=(0, 1), ylim=(-1.5, 1.7))
    axes.set_axis_off()


def chart_trade_off(
    axes: Axes,
    line: Sequence[tuple[float, float]],
    marks: Sequence[tuple[float, float]],
) -> None:
    """Draw the most hits by false alarms, for every unit and the one placed worst."""
    rates, most = zip(*line, strict=True)
    axes.fill_between(rates, rates, most, color=ROOM, lw=0)
    axes.plot([0, 1], [0, 1], color=SOFT, lw=1.4, ls="--", marker="")
    axes.plot(rates, most, color=BLUE, marker="")
    if marks:
        axes.plot(*zip(*marks, strict=True), "o", color=GREEN, ms=8)
    axes.text(0.62, 0.5, "blind guess", c=SOFT)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    style_axes(axes, "false alarms, of those left out", "hits, of those used, at most")
    axes.set_xticks(*RATES)
    axes.set_yticks(*RATES)


# --- many releases --------------------------------------------------------------------------


class SessionStep(NamedTuple):
    """One release of a session, and the amount spent by then; public."""

    number: int
    mechanism: str
    spent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """Spent amounts of a session after each of its releases, in one unit; public."""

    steps: tuple[SessionStep, ...]
    total: float | None
    unit: str
    text: str
    success_bound: float


def chart_session(axes: Axes, session: SessionFigures) -> None:
    """Draw the spent amounts after each release as stairs below the promise."""
    spent, total = [step.spent for step in session.steps], session.total
    numbers = [step.number for step in session.steps]
    end = numbers[-1] + 0.5
    start = [0.0] * (numbers[0] == 1)  # else the releases before are not known
    axes.step(
        [*start, *numbers, end], [*start, *spent, spent[-1]], where="post", marker="", color=BLUE
    )
    axes.plot(numbers, spent, "o", color=BLUE, ms=9)
    if total is not None:
        axes.axhline(total, color=INK, marker="")
        axes.text(end, total, session.text, ha="right", va="bottom", weight="bold")
    axes.set_xticks(numbers[:: 1 + len(numbers) // 20])
    axes.set_xlim(numbers[0] - 1, end)
    style_axes(axes, "release number", session.unit)
    axes.set_ylim(0, 1.15 * max(total or 0.0, *spent) or 1.0)


# --- attacks --------------------------------------------------------------------------------


def chart_audit(axes: Axes, results: Sequence[AuditResult], *, verdicts: bool = False) -> None:
    """Draw the success of every attack between blind guess and promise, with verdicts on demand."""
    for row, result in enumerate(results):
        violated, success = result.verdict == "VIOLATED", result.success
        colour = ORANGE if violated else BLUE
        room = result.bound - result.prior
        names = ("allowed", "blind guess, at most", "promised at most") if row == 0 else [""] * 3
        axes.barh(row, room, left=result.prior, height=0.55, color=ROOM, label=names[0])
        blind, most = [result.prior] * 2, [result.bound] * 2
        reach = [row - 0.34, row + 0.34]
        axes.plot(blind, reach, color=SOFT, lw=1.4, ls=":", marker="", label=names[1])
        axes.plot(most, reach, color=INK, lw=2.6, marker="", label=names[2])
        axes.plot([success.lower, success.upper], [row, row], color=colour, lw=3, marker="")
        axes.plot(success.value, row, "X" if violated else "o", color=colour, ms=10)
        sides = [
            (-0.015, "right", result.attack.replace("_", " ")[:LONGEST], result.question[:LONGEST])
        ]
        if verdicts:
            text = f"{100 * success.value:.1f} %, promised {percent_at_most(result.bound)} %"
            sides.append((1.015, "left", text, result.verdict))
        for x, side, first, second in sides:
            beside, y = axes.get_yaxis_transform(), row - 0.05 * verdicts
            ink, small = (colour, colour) if violated and side == "left" else (INK, SOFT)
            above = "bottom" if verdicts else "center"
            axes.text(x, y, first, va=above, ha=side, weight="bold", c=ink, transform=beside)
            if verdicts:
                axes.text(x, row + 0.05, second, va="top", ha=side, c=small, transform=beside)
    trials = min(result.n_trials for result in results)
    axes.set_xlabel(f"success of the attack on {trials} fresh simulated releases")
    axes.set(xlim=(0, 1), ylim=(len(results) - 0.45, -0.55), yticks=[])
    axes.set_xticks(*RATES)
    axes.grid(axis="x")
