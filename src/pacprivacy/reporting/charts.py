"""The charts: one function draws each, on a page, in a notebook or in a file.

``draw_*`` draw on axes that they are given, for the page too; ``plot_*`` make a figure of their own
and return it, for a notebook to show, and write it to a file if one is named.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.audit import AuditResult
from pacprivacy.reporting.contents import Row, SessionFigures, UtilityCurve
from pacprivacy.reporting.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    ROOM,
    SOFT,
    style_axes,
    style_log_axis,
    style_number,
)

RATES: Final = ([share / 5 for share in range(6)], [f"{20 * share} %" for share in range(6)])
MOST_NAMES: Final = 8  # rows of a picture
LONGEST: Final = 34  # characters of a name beside a row


# --- one release ----------------------------------------------------------------------------


def chart_odds(axes: Any, prior: float, bound: float) -> None:
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


def chart_priors(
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
    style_axes(axes, "success without the release", "success with it, at most")
    axes.set_xticks(*RATES)
    axes.set_yticks(*RATES)


def chart_trade_off(axes: Any, advantage: float, drawn: Sequence[tuple[float, float]] = ()) -> None:
    """Draw the most true positives against false ones: for every unit, and for the worst-placed."""
    rates, most = (0.0, 1.0 - advantage, 1.0), (advantage, 1.0, 1.0)
    axes.fill_between(rates, rates, most, color=ROOM, lw=0)
    axes.plot([0, 1], [0, 1], color=SOFT, lw=1.4, ls="--", marker="")
    axes.plot(rates, most, color=BLUE, marker="")
    if drawn:
        axes.plot(*zip(*drawn, strict=True), "o", color=GREEN, ms=8)
    axes.text(0.62, 0.5, "blind guess", c=SOFT)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    style_axes(axes, "called used, of those not used", "called used, of those used, at most")
    axes.set_xticks(*RATES)
    axes.set_yticks(*RATES)


def chart_noise_height(rows: Sequence[Row]) -> float:
    """Return how high a picture of the noise is, in inches."""
    return 1.1 + 0.34 * min(len(rows), MOST_NAMES)


def chart_noise(axes: Any, rows: Sequence[Row], units: str) -> None:
    """Draw what of each number's error is noise, with the noise in the number's own units."""
    shown = rows[:MOST_NAMES]
    for place, row in enumerate(shown):
        square = row.noise_std**2 + row.spread**2
        share = row.noise_std**2 / square if square else 0.0
        rest = 1 - share if square else 0.0
        names = ("noise", f"choice of the {_short(units)}") if place == 0 else ("", "")
        axes.barh(place, share, height=0.62, color=BLUE, label=names[0])
        axes.barh(place, rest, left=share, height=0.62, color=GREY, label=names[1])
        aside = {"transform": axes.get_yaxis_transform(), "va": "center"}
        axes.text(-0.015, place, _short(row.name), ha="right", **aside)
        said = f"noise ± {style_number(row.noise_std)}" if square else "no error"
        axes.text(1.015, place, said, ha="left", weight="bold", **aside)
    more = len(rows) - len(shown)
    title = "share of the squared error" + f"; the first {len(shown)} numbers" * bool(more)
    style_axes(axes, "", title)
    axes.set(xlim=(0, 1), ylim=(len(shown) - 0.5, -0.6), yticks=[])
    axes.set_xticks(*RATES)
    axes.grid(axis="x")
    axes.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, -0.32 * 3 / (2 + len(shown))))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


def chart_units(
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
    axes.set_yticks([0, top / 2, top], [style_number(top * share / 2) for share in range(3)])
    axes.set(xlim=(edges[0], high), ylim=(0, 1.2 * top))
    style_axes(axes, "best attacker's success", units)


# --- noise against budget -------------------------------------------------------------------


def chart_utility(axes: Any, curve: UtilityCurve) -> None:
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
    style_axes(axes, "bound on membership success", "noise, in times that of this release")
    style_log_axis(axes.yaxis)


# --- many releases --------------------------------------------------------------------------


def chart_session(axes: Any, session: SessionFigures) -> None:
    """Draw what was spent after each release under the promise, as stairs.

    Of membership where that is limited, in percentage points; else of information. Beside it is
    what was learned in this run, where the figures have it.
    """
    steps, total = session.steps, session.total_nats
    spent = [step.spent_nats for step in steps]
    learned = [step.learned_nats for step in steps if step.learned_nats is not None]
    text, unit = f"total {at_most(total or 0.0, significant=4)} nats", "information, nats"
    if session.total_success is not None:
        total = 100 * (session.total_success - 0.5)
        spent = [100 * (step.spent_success or 0.0) for step in steps]
        guesses = [step.best_guess for step in steps if step.best_guess is not None]
        learned = [100 * (guess - 0.5) for guess in guesses]
        text = f"membership success at most {percent_at_most(session.total_success)} %"
        unit = "membership, points above 50 %"
    numbers = [step.number for step in steps]
    end = numbers[-1] + 0.5
    first = numbers[0] == 1  # else the releases before are not known

    def stairs(values: list[float], **look: Any) -> None:
        x, y = [*numbers, end], [*values, values[-1]]
        start = [0.0] * first
        axes.step([*start, *x], [*start, *y], where="post", marker="", **look)

    stairs(spent, color=BLUE, label="spent, at most")
    axes.plot(numbers, spent, "o", color=BLUE, ms=9)
    if len(learned) == len(steps):
        stairs(learned, color=GREEN, ls="--", label="learned in this run (for the curator)")
        axes.legend(
            loc="lower right", ncols=2, bbox_to_anchor=(1, 1), borderaxespad=0, columnspacing=3
        )
    if total is not None:
        axes.axhline(total, color=INK, marker="")
        axes.text(end, total, text, ha="right", va="bottom", weight="bold")
    axes.set_xticks(numbers[:: 1 + len(numbers) // 20])
    axes.set_xlim(numbers[0] - 1, end)
    style_axes(axes, "release number", unit)
    axes.set_ylim(0, 1.15 * max(total or 0.0, *spent, *learned) or 1.0)


# --- attacks --------------------------------------------------------------------------------


def chart_audit(axes: Any, results: Sequence[AuditResult], *, verdicts: bool = False) -> None:
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


# --- utilities ------------------------------------------------------------------------------
