"""The charts: one function draws each, on a page, in a notebook or in a file.

``draw_*`` draw on axes that they are given, for the page too; ``plot_*`` make a figure of their own
and return it, for a notebook to show, and write it to a file if one is named.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.audit import AuditResult
from pacprivacy.errors import CertificateError, DataError
from pacprivacy.release import Release
from pacprivacy.reporting.contents import (
    LEARNED,
    Row,
    SessionFigures,
    UtilityCurve,
    session_figures,
)
from pacprivacy.reporting.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MARKERS,
    ORANGE,
    PALETTE,
    ROOM,
    SOFT,
    log_axis,
    name_axes,
    new_figure,
    number_text,
    save,
    styled,
)

RATES: Final = ([share / 5 for share in range(6)], [f"{20 * share} %" for share in range(6)])
WIDE: Final = 30.0  # ratio of utilities beyond which a logarithmic axis shows more
MOST_NAMES: Final = 8  # rows of a picture
LONGEST: Final = 34  # characters of a name beside a row


# --- one release ----------------------------------------------------------------------------


def draw_odds(axes: Any, prior: float, bound: float) -> None:
    """Draw how much room the promise leaves between a blind guess and certainty."""
    axes.barh(0, 1.0, color=GREY, alpha=0.45, height=1.0)
    axes.barh(0, bound, color=ROOM, height=1.0)
    axes.barh(0, prior, color=GREY, height=1.0)
    axes.plot([bound, bound], [-0.7, 0.7], color=INK, lw=2.6, marker="")
    axes.text(prior - 0.01, -0.62, f"blind guess {100 * prior:.4g} %", ha="right", va="top", c=SOFT)
    said = f"promised: at most {percent_at_most(bound)} %"
    axes.text(bound, 0.85, said, ha="left" if bound < 0.72 else "right", weight="bold")
    if bound < 0.999:
        axes.text(1.0, -0.62, "certainty", ha="right", va="top", c=SOFT)
    axes.set(xlim=(0, 1), ylim=(-1.5, 1.7))
    axes.set_axis_off()


def draw_priors(
    axes: Any, curve: Sequence[tuple[float, float]], dot: tuple[float, float], label: str
) -> None:
    """Draw the bound on any guess against how good the guess is without the release."""
    priors, success = zip((0.0, 0.0), *curve, (1.0, 1.0), strict=True)
    axes.fill_between(priors, priors, success, color=ROOM, lw=0)
    axes.plot([0, 1], [0, 1], color=SOFT, lw=1.4, ls="--", marker="")
    axes.plot(priors, success, color=BLUE, marker="")
    axes.plot(*dot, "o", color=BLUE, ms=12, mew=2)
    place = {"textcoords": "offset points", "va": "top", "in_layout": False}
    axes.annotate(label, dot, (12, -5), weight="bold", **place)
    axes.text(0.79, 0.7, "blind guess", c=SOFT)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    name_axes(axes, "success without the release", "success with it, at most")
    axes.set_xticks(*RATES)
    axes.set_yticks(*RATES)


def draw_trade_off(axes: Any, advantage: float, drawn: Sequence[tuple[float, float]] = ()) -> None:
    """Draw the most true positives against false ones: for every unit, and for the worst-placed."""
    rates, most = (0.0, 1.0 - advantage, 1.0), (advantage, 1.0, 1.0)
    axes.fill_between(rates, rates, most, color=ROOM, lw=0)
    axes.plot([0, 1], [0, 1], color=SOFT, lw=1.4, ls="--", marker="")
    axes.plot(rates, most, color=BLUE, marker="")
    if drawn:
        axes.plot(*zip(*drawn, strict=True), "o", color=GREEN, ms=8)
    axes.text(0.62, 0.5, "blind guess", c=SOFT)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    name_axes(axes, "called used, of those not used", "called used, of those used, at most")
    axes.set_xticks(*RATES)
    axes.set_yticks(*RATES)


def noise_height(rows: Sequence[Row]) -> float:
    """Return how high a picture of the noise is, in inches."""
    return 1.1 + 0.34 * min(len(rows), MOST_NAMES)


def draw_noise(axes: Any, rows: Sequence[Row], units: str) -> None:
    """Draw what of each number's error is noise, with the noise in the number's own units."""
    shown = rows[:MOST_NAMES]
    for place, row in enumerate(shown):
        square = row.noise_std**2 + row.spread**2
        share = row.noise_std**2 / square if square else 0.0
        names = ("noise", f"choice of the {_short(units)}") if place == 0 else ("", "")
        axes.barh(place, share, height=0.62, color=BLUE, label=names[0])
        axes.barh(place, 1 - share, left=share, height=0.62, color=GREY, label=names[1])
        aside = {"transform": axes.get_yaxis_transform(), "va": "center"}
        axes.text(-0.015, place, _short(row.name), ha="right", **aside)
        said = f"noise ± {number_text(row.noise_std)}"
        axes.text(1.015, place, said, ha="left", weight="bold", **aside)
    more = len(rows) - len(shown)
    title = "share of the squared error" + f"; the first {len(shown)} numbers" * bool(more)
    name_axes(axes, "", title)
    axes.set(xlim=(0, 1), ylim=(len(shown) - 0.5, -0.6), yticks=[])
    axes.set_xticks(*RATES)
    axes.grid(axis="x")
    axes.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, -0.32 * 3 / (2 + len(shown))))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


@styled
def plot_release(release: Release, path: str | Path | None = None) -> Any:
    """Draw what a release promises, and how much of each number's error is noise.

    Returns a matplotlib figure; ``path`` is a file to write besides: .png, .svg or .pdf.
    """
    cert, rows = release.certificate, release.rows()
    figure = new_figure(1.7 + noise_height(rows))
    above, below = figure.subplots(2, 1, height_ratios=(1.2, noise_height(rows)))
    draw_odds(above, 0.5, cert.membership_bound)
    title = f"success of guessing one {cert.unit}"
    if cert.membership_mean is not None:
        title += f"; on average at most {percent_at_most(cert.membership_mean.upper)} %"
    above.set_title(title)
    draw_noise(below, rows, cert.units)
    return save(figure, path)


def draw_units(
    axes: Any, edges: Sequence[float], counts: Sequence[int], bound: float, units: str
) -> None:
    """Draw how many units are at which risk, with the promise beside."""
    high = max(edges[-1], bound) + 0.01
    top = float(max(counts, default=1) or 1)
    widths = [0.94 * (up - low) for low, up in itertools.pairwise(edges)]
    axes.bar(edges[:-1], counts, widths, align="edge", color=BLUE)
    axes.axvline(bound, color=INK, lw=2.6, marker="")
    label = f"promised {percent_at_most(bound)} %"
    axes.text(bound, 1.08 * top, f"{label} ", ha="right", weight="bold")
    step = max(1, round((high - edges[0]) * 100 / 6))
    ticks = range(math.ceil(100 * edges[0]), int(100 * high) + 1, step)
    axes.set_xticks([tick / 100 for tick in ticks], [f"{tick} %" for tick in ticks])
    axes.set_yticks([0, top / 2, top], [number_text(top * share / 2) for share in range(3)])
    axes.set(xlim=(edges[0], high), ylim=(0, 1.2 * top))
    name_axes(axes, "best attacker's success", units)


# --- noise against budget -------------------------------------------------------------------


def draw_utility(axes: Any, curve: UtilityCurve) -> None:
    """Draw noise against the bound."""
    bounds = [point.success for point in curve.points]
    noise = [point.times_noise for point in curve.points]
    axes.set_yscale("log")
    axes.plot(bounds, noise, color=BLUE, ms=6)
    shown = [value for value in noise if value > 0]
    axes.set_ylim(0.7 * min(shown), 1.4 * max(shown))
    room = 0.1 * (bounds[-1] - bounds[0])
    ticks = bounds[:1]
    for bound in bounds[1:]:
        ticks += [bound] * (bound - ticks[-1] > room)
    axes.set_xticks(ticks, [f"{100 * tick:.3g} %" for tick in ticks])
    name_axes(axes, "bound on membership success", "noise, in times that of this release")
    log_axis(axes.yaxis)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """What one budget would cost, before anything is spent; curator-only.

    ``noise_rms`` is on one number; so is ``distance``, the root mean square distance of the release
    from the answer on all records: sampling and noise together. ``times_least`` is how many times
    the least variance of any noise this is, at most; None where nothing is known.
    """

    budget: str
    total_variance: float
    noise_rms: float
    distance: float
    times_least: float | None = None


@styled
def plot_plan(rows: Sequence[PlanRow], path: str | Path | None = None, *, title: str = "") -> Any:
    """Draw noise and expected distance against the budget; for the curator's eyes."""
    _refuse_nothing(rows, "rows", "Plan at least one budget.")
    figure = new_figure(3.8)
    axes = figure.subplots()
    axes.plot([row.noise_rms for row in rows], "o-", label="noise")
    axes.plot([row.distance for row in rows], "s--", color=GREEN, label="distance from full answer")
    turned = {"rotation": 20, "ha": "right"} if len(rows) > 4 else {}
    axes.set_xticks(range(len(rows)), [row.budget for row in rows], **turned)
    axes.set(ylabel="root mean square per number, its units", title=title)
    if all(row.noise_rms > 0 for row in rows):
        axes.set_yscale("log")
        log_axis(axes.yaxis)
    axes.legend()
    return save(figure, path)


# --- many releases --------------------------------------------------------------------------


def draw_session(axes: Any, session: SessionFigures) -> None:
    """Draw the information spent after each release, and what was really learned, as stairs."""
    steps, total_nats = session.steps, session.total_nats
    numbers = [step.number for step in steps]
    end = numbers[-1] + 0.5
    first = numbers[0] == 1  # else the releases before are not known

    def stairs(values: list[float], **look: Any) -> None:
        x, y = [*numbers, end], [*values, values[-1]]
        start = [0.0] * first
        axes.step([*start, *x], [*start, *y], where="post", marker="", **look)

    spent = [step.spent_nats for step in steps]
    learned = [step.learned_nats for step in steps if step.learned_nats is not None]
    stairs(spent, color=BLUE, label="spent, at most")
    axes.plot(numbers, spent, "o", color=BLUE, ms=9)
    if len(learned) == len(steps):
        stairs(learned, color=GREEN, ls="--", label="really learned")
        axes.legend(
            loc="lower right", ncols=2, bbox_to_anchor=(1, 1), borderaxespad=0, columnspacing=3
        )
    if total_nats is not None:
        axes.axhline(total_nats, color=INK, marker="")
        text = f"total {at_most(total_nats, significant=4)} nats"
        axes.text(end, total_nats, text, ha="right", va="bottom", weight="bold")
    axes.set_xticks(numbers[:: 1 + len(numbers) // 20])
    axes.set_xlim(numbers[0] - 1, end)
    name_axes(axes, "release number", "information, nats")
    axes.set_ylim(0, 1.15 * max(total_nats or 0.0, *spent, *learned) or 1.0)


@styled
def plot_session(releases: Sequence[Release], path: str | Path | None = None) -> Any:
    """Draw what a session has spent after each release, and what was learned, under its total.

    Returns a matplotlib figure; ``path`` is a file to write besides: .png, .svg or .pdf.
    """
    found = session_figures([release.certificate for release in releases])
    if found is None or len(found.steps) != len(releases):
        raise CertificateError(
            "releases must be those of a session; got none, or others. Release something first."
        )
    figure = new_figure(3.9)
    draw_session(figure.subplots(), found)
    if all(step.learned_nats is not None for step in found.steps):
        figure.supxlabel(textwrap.fill(LEARNED, 100), x=0.012, ha="left", fontsize=11, color=SOFT)
    return save(figure, path)


# --- attacks --------------------------------------------------------------------------------


def draw_audit(axes: Any, results: Sequence[AuditResult], *, verdicts: bool = False) -> None:
    """Draw the success of every attack with its interval, between blind guess and promise.

    ``verdicts`` writes questions and verdicts beside, where no table does.
    """
    for row, result in enumerate(results):
        violated, found = result.verdict == "VIOLATED", result.success
        colour = ORANGE if violated else BLUE
        room = result.bound - result.prior
        names = ("allowed", "blind guess, at most", "promised at most") if row == 0 else [""] * 3
        axes.barh(row, room, left=result.prior, height=0.55, color=ROOM, label=names[0])
        blind, most = [result.prior] * 2, [result.bound] * 2
        reach = [row - 0.34, row + 0.34]
        axes.plot(blind, reach, color=SOFT, lw=1.4, ls=":", marker="", label=names[1])
        axes.plot(most, reach, color=INK, lw=2.6, marker="", label=names[2])
        axes.plot([found.lower, found.upper], [row, row], color=colour, lw=3, marker="")
        axes.plot(found.value, row, "X" if violated else "o", color=colour, ms=10)
        sides = [
            (-0.015, "right", result.attack.replace("_", " ")[:LONGEST], result.question[:LONGEST])
        ]
        if verdicts:
            said = f"{100 * found.value:.1f} %, promised {percent_at_most(result.bound)} %"
            sides.append((1.015, "left", said, result.verdict))
        for x, side, first, second in sides:
            place = {"transform": axes.get_yaxis_transform(), "ha": side}
            ink, small = (colour, colour) if violated and side == "left" else (INK, SOFT)
            above = "bottom" if verdicts else "center"
            axes.text(x, row - 0.05 * verdicts, first, va=above, weight="bold", c=ink, **place)
            if verdicts:
                axes.text(x, row + 0.05, second, va="top", c=small, **place)
    trials = min(result.n_trials for result in results)
    axes.set_xlabel(f"success of the attack on {trials} fresh simulated releases")
    axes.set(xlim=(0, 1), ylim=(len(results) - 0.45, -0.55), yticks=[])
    axes.set_xticks(*RATES)
    axes.grid(axis="x")


@styled
def plot_audit(
    results: Sequence[AuditResult], path: str | Path | None = None, *, title: str = ""
) -> Any:
    """Draw the success of every attack with its interval, beside blind success and the promise.

    Returns a matplotlib figure; ``path`` is a file to write besides: .png, .svg or .pdf.
    """
    _refuse_nothing(results, "results", "Run at least one attack.")
    figure = new_figure(1.7 + 0.6 * len(results))
    draw_audit(figure.subplots(), results, verdicts=True)
    figure.legend(loc="outside lower center", ncols=3)
    figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
    return save(figure, path)


# --- utilities ------------------------------------------------------------------------------


@styled
def plot_comparison(found: Any, path: str | Path | None = None) -> Any:
    """Draw utility against method; PAC and DP in their own colours, never in one."""
    rows = [row for row in found.rows if row.utility is not None][::-1]
    figure = new_figure(1.5 + 0.36 * len(rows))
    axes = figure.subplots()
    values = [float(row.utility) for row in rows]
    for place, row in enumerate(rows):
        colour, mark = (BLUE, "o") if row.family == "PAC" else (ORANGE, "s")
        error = 2 * (row.standard_error or 0.0)
        axes.errorbar(values[place], place, xerr=error, fmt=mark, color=colour, ms=9, capsize=4)
    positive = [value for value in (*values, found.without_privacy) if value > 0]
    if len(positive) == len(values) + 1 and max(positive) > WIDE * min(positive):
        axes.set_xscale("log")
        log_axis(axes.xaxis)
    label = f"without privacy: {found.without_privacy:.4g}"
    axes.axvline(found.without_privacy, color=INK, lw=1.4, ls="--", marker="", label=label)
    axes.set_yticks(range(len(rows)), [f"{row.family}  {row.method}" for row in rows])
    axes.grid(axis="x")
    better = "larger is better" if found.larger_is_better else "smaller is better"
    axes.set_xlabel(f"{found.metric} ({better}); bars are two standard errors")
    axes.set_title(
        f"{found.model} at a guaranteed membership success of {100 * found.success:.1f} %"
    )
    figure.legend(loc="outside lower right")
    return save(figure, path)


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
    figure = new_figure(4.8)
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
        log_axis(axes.xaxis)
    axes.set(xlabel=parameter, ylabel=utility, title=title)
    figure.legend(loc="outside lower center", ncols=2)
    return save(figure, path)


def _refuse_nothing(items: Sequence[Any], name: str, advice: str) -> None:
    if not items:
        raise DataError(f"{name} must not be empty; got none. {advice}")
