"""Pictures of measured curves: panels of lines that can be told apart without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pacprivacy.theory import posterior_success
from papers.page import as_budget

INK: Final = "#333333"
GRID: Final = "#DDDDDD"
PANEL_WIDTH: Final = 4.4
PANEL_HEIGHT: Final = 3.3
MOST_COLUMNS: Final = 3
LEGEND_WIDTH: Final = 3.0  # of one entry at least, in inches
LETTER_WIDTH: Final = 0.075  # of the legend, in inches
DPI: Final = 150
LEAST_RATIO: Final = 5.0  # of the largest to the least value on a logarithmic axis
BUDGET_LABEL: Final = "budget in nats; below it the guaranteed membership success"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a line looks; Okabe and Ito's colours, and a marker of its own."""

    colour: str
    marker: str = "o"
    line: str = "-"
    hollow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve, or a level across the panel where ``x`` is empty."""

    label: str
    style: Style
    x: tuple[float, ...]
    y: tuple[float, ...]

    @classmethod
    def of(
        cls, label: str, style: Style, rows: Sequence[Any], y: str, *, x: str = "mi_nats"
    ) -> Line:
        """Return one field of some records against another; missing values are left out."""
        points = [(getattr(row, x), getattr(row, y)) for row in rows]
        known = [(place, value) for place, value in points if value is not None]
        return cls(
            label=label,
            style=style,
            x=tuple(float(place) for place, _ in known),
            y=tuple(float(value) for _, value in known),
        )

    @classmethod
    def level(cls, label: str, style: Style, y: float) -> Line:
        """Return a level across the panel."""
        return cls(label=label, style=style, x=(), y=(y,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot: a title, what is on the vertical axis, and its lines."""

    title: str
    ylabel: str
    lines: tuple[Line, ...]
    log_y: bool = False  # where the values are far apart
    percent: bool = False  # whether values are rates, to be drawn in percent
    least_span: float = 0.0  # of the vertical axis: smaller differences do not matter


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def draw_panels(
    path: Path,
    panels: Sequence[Panel],
    *,
    title: str,
    xlabel: str,
    ticks: Sequence[tuple[float, str]],
) -> Path:
    """Draw panels that share a logarithmic horizontal axis with named ticks."""
    n_columns = min(MOST_COLUMNS, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    width = max(6.4, PANEL_WIDTH * n_columns)
    figure = new_figure(width, PANEL_HEIGHT * n_rows + 1.1)
    grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, panel, ticks)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[max(0, len(panels) - n_columns) : len(panels)]:
        axes.set_xlabel(xlabel, fontsize=8.5, color=INK)
    figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK)
    handles = {line.label: _handle(line) for panel in panels for line in panel.lines}
    entry = max(LEGEND_WIDTH, 0.7 + LETTER_WIDTH * max(map(len, handles)))
    figure.legend(
        handles=list(handles.values()),
        loc="outside lower center",
        ncols=max(1, int(width / entry)),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
    figure.savefig(path)
    return path


def budget_ticks(budgets: Sequence[float]) -> list[tuple[float, str]]:
    """Name budgets on an axis; every other one where there are many."""
    chosen = budgets[:: 2 if len(budgets) > 6 else 1]
    return [(mi, f"{as_budget(mi)}\n{100 * posterior_success(mi):.1f} %") for mi in chosen]


def soften(axes: Any) -> None:
    """Take the frame away and leave a light grid."""
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _draw_panel(axes: Any, panel: Panel, ticks: Sequence[tuple[float, str]]) -> None:
    axes.set_xscale("log", base=2)
    if panel.log_y:
        _scale_log(axes, [y for line in panel.lines for y in line.y])
    scale = 100.0 if panel.percent else 1.0
    for line in panel.lines:
        values = [scale * y for y in line.y]
        if line.x:
            axes.plot(line.x, values, **_look(line.style))
        else:
            axes.axhline(values[0], color=line.style.colour, linestyle=line.style.line, lw=1.3)
    low, high = axes.get_ylim()
    if high - low < panel.least_span:
        middle = 0.5 * (low + high)
        axes.set_ylim(middle - 0.5 * panel.least_span, middle + 0.5 * panel.least_span)
    axes.set_xticks([x for x, _ in ticks], [name for _, name in ticks])
    axes.minorticks_off()
    soften(axes)
    axes.set_title(panel.title, loc="left", fontsize=10, color=INK)
    axes.set_ylabel(panel.ylabel, fontsize=9, color=INK)


def _scale_log(axes: Any, values: Sequence[float]) -> None:
    """Use a logarithmic axis, with numbers on it, where the values need one."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator

    if max(values) < LEAST_RATIO * min(values):
        return
    axes.set_yscale("log")
    wide = max(values) > 1000 * min(values)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))


def _look(style: Style) -> dict[str, Any]:
    return {
        "color": style.colour,
        "marker": style.marker,
        "linestyle": style.line,
        "linewidth": 1.7,
        "markersize": 7 if style.hollow else 5,
        "markerfacecolor": "none" if style.hollow else style.colour,
    }


def _handle(line: Line) -> Any:
    from matplotlib.lines import Line2D

    look = _look(line.style) if line.x else {**_look(line.style), "marker": "none"}
    return Line2D([], [], label=line.label, **look)
