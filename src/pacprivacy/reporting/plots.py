"""Plots of a release, a plan, a session, an audit: one figure each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pacprivacy._rounding import percent_at_most
from pacprivacy.audit import AuditResult
from pacprivacy.errors import CertificateError, DataError
from pacprivacy.release import Release
from pacprivacy.reporting.charts import (
    chart_audit,
    chart_noise,
    chart_noise_height,
    chart_odds,
    chart_session,
)
from pacprivacy.reporting.contents import (
    LEARNED,
    report_session_figures,
)
from pacprivacy.reporting.style import (
    GREEN,
    INK,
    MARKERS,
    PALETTE,
    SOFT,
    save_styled,
    style_log_axis,
    styled,
    styled_figure,
)

WIDE: Final = 30.0  # ratio of utilities beyond which a logarithmic axis shows more


@styled
def plot_release(release: Release, path: str | Path | None = None) -> Any:
    """Draw what a release promises, and how much of each number's error is noise.

    Returns a matplotlib figure; ``path`` is a file to write besides: .png, .svg or .pdf.
    """
    cert, rows = release.certificate, release.rows()
    figure = styled_figure(1.7 + chart_noise_height(rows))
    above, below = figure.subplots(2, 1, height_ratios=(1.2, chart_noise_height(rows)))
    chart_odds(above, 0.5, cert.promised_success)
    title = f"membership success, one {cert.unit}"
    if cert.is_in_session:
        title += ", over the whole session"
    elif cert.membership_mean is not None:
        title += f"; on average at most {percent_at_most(cert.membership_mean.upper)} %"
    above.set_title(title)
    chart_noise(below, rows, cert.units)
    return save_styled(figure, path)


class PlanNumber(NamedTuple):
    """Noise of one number, and its distance from the answer on all records; curator-only.

    Root mean squares over all candidates and all draws of the noise, in the units of the number.
    """

    name: str
    noise: float
    distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """What one budget would cost, before anything is spent; curator-only.

    ``numbers`` are the released numbers, each in its own units. ``times_least`` is how many times
    the least variance of any noise this is, at most; None where nothing is known.
    """

    budget: str
    numbers: tuple[PlanNumber, ...]
    times_least: float | None = None


@styled
def plot_plan(rows: Sequence[PlanRow], path: str | Path | None = None, *, title: str = "") -> Any:
    """Draw noise and expected distance against the budget; for the curator's eyes.

    Of several numbers, which may have different units, the mean noise in times that of the last
    budget is drawn.
    """
    _refuse_nothing(rows, "rows", "Plan at least one budget.")
    figure = styled_figure(3.8)
    axes = figure.subplots()
    several = len(rows[0].numbers) > 1
    noise = [_relative_noise(row, rows[-1]) if several else row.numbers[0].noise for row in rows]
    axes.plot(noise, "o-", label="noise")
    if not several:
        far = [row.numbers[0].distance for row in rows]
        axes.plot(far, "s--", color=GREEN, label="distance from full answer")
    turned = {"rotation": 20, "ha": "right"} if len(rows) > 4 else {}
    axes.set_xticks(range(len(rows)), [row.budget for row in rows], **turned)
    unit = f"times that at {rows[-1].budget}" if several else "root mean square, its units"
    axes.set(ylabel=unit, title=title)
    if all(value > 0 for value in noise):
        axes.set_yscale("log")
        style_log_axis(axes.yaxis)
    axes.legend()
    return save_styled(figure, path)


def _relative_noise(row: PlanRow, last: PlanRow) -> float:
    """Return the mean over the numbers of how many times the noise of another budget they have."""
    pairs = zip(row.numbers, last.numbers, strict=True)
    times = [one.noise / other.noise for one, other in pairs if other.noise > 0]
    return sum(times) / len(times) if times else 0.0


@styled
def plot_session(releases: Sequence[Release], path: str | Path | None = None) -> Any:
    """Draw what a session has spent after each release under its total; for the curator's eyes.

    Beside it is what was learned in this run, which no promise limits.

    Returns a matplotlib figure; ``path`` is a file to write besides: .png, .svg or .pdf.
    """
    found = report_session_figures([release.certificate for release in releases])
    if found is None or len(found.steps) != len(releases):
        raise CertificateError(
            "releases must be those of a session; got none, or others. Release something first."
        )
    figure = styled_figure(3.9)
    chart_session(figure.subplots(), found)
    if all(step.learned_nats is not None for step in found.steps):
        figure.supxlabel(textwrap.fill(LEARNED, 100), x=0.012, ha="left", fontsize=11, color=SOFT)
    return save_styled(figure, path)


@styled
def plot_audit(
    results: Sequence[AuditResult], path: str | Path | None = None, *, title: str = ""
) -> Any:
    """Draw the success of every attack with its interval, beside blind success and the promise.

    Returns a matplotlib figure; ``path`` is a file to write besides: .png, .svg or .pdf.
    """
    _refuse_nothing(results, "results", "Run at least one attack.")
    figure = styled_figure(1.7 + 0.6 * len(results))
    chart_audit(figure.subplots(), results, verdicts=True)
    figure.legend(loc="outside lower center", ncols=3)
    figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
    return save_styled(figure, path)


@styled
def plot_tune(
    curves: Sequence[Any],
    path: str | Path | None = None,
    *,
    title: str = "",
    parameter: str = "parameter",
    utility: str = "utility of a release",
) -> Any:
    """Draw utility against the parameter, one line per budget; the choice is ringed."""
    _refuse_nothing(curves, "curves", "Tune for at least one budget.")
    figure = styled_figure(4.8)
    axes = figure.subplots()
    points = curves[0].points
    thetas = [point.theta for point in points]
    numeric = all(isinstance(theta, int | float) for theta in thetas)
    places = thetas if numeric else list(range(len(thetas)))
    plain = [point.no_noise for point in points]
    axes.plot(places, plain, color=INK, ls=":", marker="", label="no noise")
    for number, curve in enumerate(curves):
        colour, mark = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        worth = [point.utility for point in curve.points]
        errors = [2 * point.standard_error for point in curve.points]
        look = {"color": colour, "marker": mark, "capsize": 2.5, "label": curve.budget}
        axes.errorbar(places, worth, yerr=errors, **look)
        best = [point is curve.best_point for point in curve.points].index(True)
        axes.plot(places[best], worth[best], "o", ms=14, mfc="none", mec=colour, mew=1.8)
    if not numeric:
        axes.set_xticks(places, [str(theta) for theta in thetas])
    elif min(thetas) > 0 and max(thetas) > 20 * min(thetas):
        axes.set_xscale("log")
        style_log_axis(axes.xaxis)
    axes.set(xlabel=parameter, ylabel=utility, title=title)
    figure.legend(loc="outside lower center", ncols=2)
    return save_styled(figure, path)


def _refuse_nothing(items: Sequence[Any], name: str, advice: str) -> None:
    if not items:
        raise DataError(f"{name} must not be empty; got none. {advice}")
