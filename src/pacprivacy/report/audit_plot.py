"""A picture of an audit: what each attack achieved, between blind guessing and the promise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pacprivacy._rounding import percent_at_most
from pacprivacy.audit import AuditResult
from pacprivacy.errors import AuditError

# Okabe and Ito's colours: told apart with any kind of colour blindness, and in grey.
HOLDS: Final = "#0072B2"
VIOLATED: Final = "#D55E00"
ALLOWED: Final = "#E8EDF2"
INK: Final = "#333333"

FORMATS: Final = (".png", ".svg", ".pdf")


def plot_audit(
    results: Sequence[AuditResult], path: str | Path | None = None, *, title: str = ""
) -> Any:
    """Draw the success of every attack with its interval, beside blind success and the promise.

    Parameters
    ----------
    results : sequence of AuditResult
        What attacks achieved.
    path : path, optional
        A file to write besides: .png, .svg or .pdf.
    title : str
        First line of the picture.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it.

    Raises
    ------
    AuditError
        If matplotlib is missing, there is nothing to draw, or the file cannot be written.
    """
    target = None if path is None else Path(path)
    if not results:
        raise AuditError("results must not be empty; got none. Run at least one attack.")
    if target is not None and target.suffix.lower() not in FORMATS:
        raise AuditError(
            f"plot must end in {', '.join(FORMATS)}; got {target.name!r}. Name it audit.png."
        )
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise AuditError(
            "plot needs matplotlib, which is not installed. Run: pip install 'pacprivacy[report]'"
        ) from None
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Figure(figsize=(8.0, 2.1 + 0.56 * len(results)), dpi=150, layout=layout)
    axes = figure.add_subplot()
    for row, result in enumerate(results):
        _draw_row(axes, row, result)
    _label_rows(axes, results)
    _draw_scale(axes, results)
    _draw_legend(figure, results)
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK)
    try:
        if target is not None:
            figure.savefig(target)
    except OSError as error:
        raise AuditError(
            f"plot must be a file that can be written; got {target}: {error.strerror}. "
            "Choose another folder."
        ) from None
    return figure


def _draw_row(axes: Any, row: int, result: AuditResult) -> None:
    """Draw one attack: the room that is allowed, blind success, the promise, the interval."""
    violated = result.verdict == "VIOLATED"
    colour = VIOLATED if violated else HOLDS
    low, high = 100 * result.prior, 100 * result.bound
    found = result.success
    axes.barh(row, high - low, left=low, height=0.62, color=ALLOWED, zorder=1)
    axes.vlines(high, row - 0.38, row + 0.38, color=INK, linewidth=2.4, zorder=3)
    axes.vlines(low, row - 0.31, row + 0.31, color=INK, linewidth=1.2, linestyle=":", zorder=3)
    axes.errorbar(
        100 * found.value,
        row,
        xerr=[[100 * (found.value - found.lower)], [100 * (found.upper - found.value)]],
        fmt="X" if violated else "o",
        color=colour,
        markersize=10 if violated else 7,
        markeredgecolor="white",
        linewidth=2.2,
        capsize=4,
        capthick=1.6,
        zorder=4,
    )


def _label_rows(axes: Any, results: Sequence[AuditResult]) -> None:
    axes.set_yticks(range(len(results)), [""] * len(results))
    axes.set_ylim(len(results) - 0.45, -0.55)
    for row, result in enumerate(results):
        violated = result.verdict == "VIOLATED"
        name = result.attack.replace("_", " ")
        rates = f"{100 * result.success.value:.1f} %, promised {percent_at_most(result.bound)} %"
        colour = VIOLATED if violated else INK
        _write(axes, (-0.015, row), name, result.question, side="right", bold=True)
        _write(axes, (1.015, row), rates, result.verdict, side="left", bold=violated, colour=colour)


def _write(
    axes: Any,
    where: tuple[float, int],
    first: str,
    second: str,
    *,
    side: str,
    bold: bool,
    colour: str = INK,
) -> None:
    """Write two lines beside a row."""
    for text, offset, size, weight in (
        (first, 6, 9.5, "bold" if bold else "normal"),
        (second, -7, 8.5, "normal"),
    ):
        axes.annotate(
            text,
            where,
            xycoords=("axes fraction", "data"),
            xytext=(0, offset),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=size,
            fontweight=weight,
            color=colour,
            annotation_clip=False,
        )


def _draw_scale(axes: Any, results: Sequence[AuditResult]) -> None:
    """Draw the axis: no frame, a light grid."""
    confidence = 100 * min(result.success.confidence for result in results)
    trials = min(result.n_trials for result in results)
    axes.set_xlim(0, 100)
    axes.set_xlabel(
        f"success of the attack on {trials} fresh simulated releases, % "
        f"({confidence:.4g} % interval)",
        fontsize=9,
        color=INK,
    )
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    axes.grid(axis="x", color="#D9D9D9", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _draw_legend(figure: Any, results: Sequence[AuditResult]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=INK, linestyle=":", linewidth=1.2, label="blind guess, at most"),
        Patch(color=ALLOWED, label="allowed"),
        Line2D([], [], color=INK, linewidth=2.4, label="promised at most"),
        Line2D([], [], color=HOLDS, marker="o", mec="white", markersize=8, label="holds"),
    ]
    if any(result.verdict == "VIOLATED" for result in results):
        mark = Line2D([], [], color=VIOLATED, marker="X", mec="white", markersize=10)
        mark.set_label("VIOLATED")
        handles.append(mark)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        columnspacing=1.4,
        handlelength=1.6,
    )
