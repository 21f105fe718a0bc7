"""The charts: one function draws each, on a page, in a notebook or in a file.

``chart_*`` draw on axes, for the page too; ``plot_*`` return a matplotlib figure, which a notebook
shows, and write it to ``path`` (.png, .svg or .pdf) if one is named.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pacprivacy._rounding import percent_at_most
from pacprivacy.audit import AuditResult
from pacprivacy.errors import CertificateError, DataError
from pacprivacy.release import CoinCertificate, Release
from pacprivacy.reporting.contents import (
    SessionFigures,
    report_session_figures,
)
from pacprivacy.reporting.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    ROOM,
    SOFT,
    Axes,
    Figure,
    save_styled,
    style_axes,
    styled,
    styled_figure,
)
from pacprivacy.reporting.value_charts import draw_values, value_chart_height, value_layout

RATES: Final = ([share / 5 for share in range(6)], [f"{20 * share} %" for share in range(6)])
MOST_NAMES: Final = 8  # rows of a picture
LONGEST: Final = 34  # characters of a name beside a row
TITLE_CHARACTERS: Final = 44


# --- one release ----------------------------------------------------------------------------


def chart_odds(axes: Axes, prior: float, bound: float) -> None:
    """Draw how much room the promise leaves between a blind guess and certainty."""
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


# --- figures of their own ------------------------------------------------------------------------


@styled
def plot_release(release: Release, path: str | Path | None = None) -> Figure:
    """Draw the released values with their intervals, and the promise below.

    Of a value without named numbers the promise alone.
    """
    cert, rows = release.certificate, release.rows()
    layout = value_layout(release.value, len(rows))
    height = value_chart_height(rows, layout) if rows else 0.0
    figure = styled_figure(2.0 + height)
    if rows:
        above, below = figure.subfigures(2, 1, height_ratios=(height, 2.0))
        draw_values(above, rows, layout)
        title = textwrap.shorten(cert.mechanism, TITLE_CHARACTERS, placeholder=" ...")
        measured = any(not math.isnan(row.lower) for row in rows)
        bars = f": estimates for all {cert.units}, 95 % intervals" if measured else ""
        above.suptitle(f"{title}{bars}", x=0.012, ha="left", fontsize=13, fontweight="bold")
    else:
        below = figure
    axes = below.subplots()
    chart_odds(axes, 0.5, cert.promised_success)
    whom = ", whoever knows all others" if isinstance(cert, CoinCertificate) else ""
    span = ", over the whole session" if cert.is_in_session else ""
    axes.set_title(f"membership success, one {cert.unit}{whom}{span}")
    return save_styled(figure, path)


@styled
def plot_session(releases: Sequence[Release], path: str | Path | None = None) -> Figure:
    """Draw the spent amounts after each release of a session, and its limit."""
    figures = report_session_figures([release.certificate for release in releases])
    if figures is None or len(figures.steps) != len(releases):
        raise CertificateError(
            "releases must be those of a session; got none, or others. Release something first."
        )
    figure = styled_figure(3.9)
    chart_session(figure.subplots(), figures)
    return save_styled(figure, path)


@styled
def plot_audit(results: Sequence[AuditResult], path: str | Path | None = None) -> Figure:
    """Draw the success of every attack with its interval, beside blind success and the promise."""
    if not results:
        raise DataError("results must not be empty; got none. Run at least one attack.")
    figure = styled_figure(1.7 + 0.6 * len(results))
    chart_audit(figure.subplots(), results, verdicts=True)
    figure.legend(loc="outside lower center", ncols=3)
    return save_styled(figure, path)
