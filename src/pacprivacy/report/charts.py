"""The pictures of the report, each from plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pacprivacy._rounding import percent_at_most
from pacprivacy.audit import AuditResult
from pacprivacy.report.records import ReportData, SessionFigures, UtilityCurve
from pacprivacy.report.svg import Frame, number_text, text

RATES = tuple((share / 5, f"{20 * share} %") for share in range(6))


def odds_chart(prior: float, bound: float) -> str:
    """Draw how much room the promise leaves between a blind guess and certainty."""
    frame = Frame(low_x=0.0, high_x=1.0, low_y=0.0, high_y=1.0, left=4, width=612, height=26)
    blind, most = frame.x(prior), frame.x(bound)
    body = (
        f'<rect class="track" x="4" y="16" width="612" height="26" rx="5"/>'
        f'<rect class="blind" x="4" y="16" width="{blind - 4:.2f}" height="26" rx="5"/>'
        f'<rect class="room" x="{blind:.2f}" y="16" width="{most - blind:.2f}" height="26"/>'
        f'<line class="bound" x1="{most:.2f}" x2="{most:.2f}" y1="10" y2="48"/>'
    )
    body += text(blind - 6, 60, f"blind guess {100 * prior:.4g} %", anchor="end")
    side = "start" if bound < 0.75 else "end"
    body += text(
        most, 2, f"promised: at most {percent_at_most(bound)} %", anchor=side, kind="strong"
    )
    body += text(616, 60, "certainty", anchor="end") if bound < 0.999 else ""
    return frame.picture(body, title="Room between a blind guess and the promise", extra=22)


def prior_chart(data: ReportData) -> str:
    """Draw the bound on any guess against how good the guess is without the release."""
    cert = data.certificate
    frame = Frame(low_x=0.0, high_x=1.0, low_y=0.0, high_y=1.0)
    curve = [(0.0, 0.0), *data.any_inference, (1.0, 1.0)]
    body = frame.axes(
        RATES, RATES, label_x="success without the release", label_y="success with it, at most"
    )
    body += f'<path class="area" d="{frame.path([*curve, (0.0, 0.0)])}Z"/>'
    body += f'<path class="blindline" d="{frame.path([(0.0, 0.0), (1.0, 1.0)])}"/>'
    body += f'<path class="line" d="{frame.path(curve)}"/>'
    x, y = frame.x(cert.prior), frame.y(cert.membership_bound)
    body += f'<circle class="dot" cx="{x:.2f}" cy="{y:.2f}" r="6"/>'
    note = f"one {cert.unit} in or out: {percent_at_most(cert.membership_bound)} %"
    body += text(x + 11, y + 15, note, kind="strong halo")
    body += text(frame.x(0.78), frame.y(0.66), "blind guess", anchor="start")
    return frame.picture(body, title="Success against prior")


def noise_chart(bars: Sequence[tuple[str, float]], *, label_x: str) -> str:
    """Draw standard deviations of the noise as bars."""
    top = max((value for _, value in bars), default=0.0) or 1.0
    frame = Frame(low_x=0.0, high_x=float(len(bars)), low_y=0.0, high_y=1.18 * top, height=180)
    ticks = [(top * share / 2, number_text(top * share / 2)) for share in range(3)]
    wide = len(bars) <= 8
    names = [(i + 0.5, name) for i, (name, _) in enumerate(bars)] if wide else []
    body = frame.axes(names, ticks, label_x=label_x, label_y="standard deviation")
    width = min(72.0, 0.72 * frame.width / max(1, len(bars)))
    for i, (_, value) in enumerate(bars):
        x, y = frame.x(i + 0.5) - width / 2, frame.y(value)
        height = frame.top + frame.height - y
        body += (
            f'<rect class="bar" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" '
            f'height="{height:.2f}" rx="2"><title>{number_text(value)}</title></rect>'
        )
        if wide:
            body += text(x + width / 2, y - 6, number_text(value), anchor="middle", kind="strong")
    return frame.picture(body, title="Noise per direction", extra=58)


def utility_chart(
    curve: UtilityCurve, errors: Sequence[float], floor: float | None
) -> tuple[str, tuple[tuple[float, float], ...]]:
    """Draw noise (and error, for the curator) against the bound; return where the stops are."""
    shown = [point.noise_rms for point in curve.points]
    top = max([*shown, *errors]) or 1.0
    least = min(value for value in [*shown, *errors, top] if value > 0)
    low, high = math.log10(least) - 0.15, math.log10(top) + 0.15
    first, last = curve.points[0].success, curve.points[-1].success
    frame = Frame(low_x=first, high_x=last, low_y=low, high_y=high, left=64)

    def at(rms: float) -> float:
        return math.log10(max(rms, 10.0**low))

    ticks_x = [(p.success, f"{100 * p.success:.3g} %") for p in curve.points]
    ticks_y = _decades(low, high)
    body = frame.axes(
        _spaced(ticks_x), ticks_y, label_x="bound on membership success", label_y="per number"
    )
    if floor is not None and floor > 0 and low <= math.log10(floor) <= high:
        y = frame.y(at(floor))
        body += f'<line class="blindline" x1="64" x2="624" y1="{y:.2f}" y2="{y:.2f}"/>'
        label = "sampling alone, without noise"
        body += text(620, y + 16, label, anchor="end", kind="label halo")
    if errors:
        path = frame.path([(p.success, at(e)) for p, e in zip(curve.points, errors, strict=True)])
        body += f'<path class="second" d="{path}"/>'
    path = frame.path([(p.success, at(p.noise_rms)) for p in curve.points])
    body += f'<path class="line" d="{path}"/>'
    places = tuple((frame.x(p.success), frame.y(at(p.noise_rms))) for p in curve.points)
    body += "".join(f'<circle class="stop" cx="{x:.2f}" cy="{y:.2f}" r="3"/>' for x, y in places)
    x, y = places[curve.start]
    body += f'<line id="guide" class="guide" x1="{x:.2f}" x2="{x:.2f}" y1="16" y2="256"/>'
    body += f'<circle id="marker" class="dot" cx="{x:.2f}" cy="{y:.2f}" r="7"/>'
    return frame.picture(body, title="Noise against the bound"), places


def _decades(low: float, high: float) -> list[tuple[float, str]]:
    """Return ticks of a logarithmic axis: powers of ten, and between them where there is room."""
    factors = (1, 2, 5) if high - low < 2.2 else (1, 3) if high - low < 4 else (1,)
    values = [f * 10.0**k for k in range(math.floor(low), math.ceil(high) + 1) for f in factors]
    return [(math.log10(v), number_text(v)) for v in values if low <= math.log10(v) <= high]


def _spaced(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out ticks whose texts would touch."""
    room = 0.1 * (ticks[-1][0] - ticks[0][0])
    kept: list[tuple[float, str]] = []
    for tick in ticks:
        if not kept or tick[0] - kept[-1][0] >= room:
            kept.append(tick)
    return kept


def session_chart(session: SessionFigures) -> str:
    """Draw the information spent after each release, and what was really learned, as stairs."""
    steps = session.steps
    spent = [(step.number, step.spent_nats) for step in steps]
    learned = [(s.number, s.learned_nats) for s in steps if s.learned_nats is not None]
    top = max(session.total_nats or 0.0, *(y for _, y in [*spent, *learned])) * 1.08 or 1.0
    first, last = steps[0].number, steps[-1].number
    frame = Frame(low_x=first - 1, high_x=last + 0.5, low_y=0.0, high_y=top, height=180)
    ticks = [(top * k / 2 / 1.08, number_text(top * k / 2 / 1.08)) for k in range(3)]
    numbers = _spaced([(float(step.number), str(step.number)) for step in steps])
    body = frame.axes(numbers, ticks, label_x="release number", label_y="nats")
    if session.total_nats is not None:
        y = frame.y(session.total_nats)
        body += f'<line class="bound" x1="56" x2="616" y1="{y:.2f}" y2="{y:.2f}"/>'
        body += text(62, y + 16, f"total {number_text(session.total_nats)} nats", kind="strong")
    if len(learned) == len(steps):
        body += f'<path class="second" d="{frame.path(_stairs(learned, last + 0.5))}"/>'
    body += f'<path class="line" d="{frame.path(_stairs(spent, last + 0.5))}"/>'
    for step in steps:
        x, y = frame.x(step.number), frame.y(step.spent_nats)
        body += f'<circle class="dot" cx="{x:.2f}" cy="{y:.2f}" r="5"/>'
    return frame.picture(body, title="What the session has spent")


def _stairs(points: Sequence[tuple[int, float]], end: float) -> list[tuple[float, float]]:
    """Return the corners of a staircase that rises at each point, from nothing if it is there."""
    corners = [] if points[0][0] > 1 else [(0.0, 0.0), (1.0, 0.0)]
    for (number, value), until in zip(points, [*(n for n, _ in points[1:]), end], strict=True):
        corners += [(float(number), value), (float(until), value)]
    return corners


def audit_chart(results: Sequence[AuditResult]) -> str:
    """Draw the success of every attack with its interval, between blind guess and promise."""
    height = 52.0 * len(results)
    frame = Frame(low_x=0.0, high_x=1.0, low_y=0.0, high_y=1.0, left=196, width=420, height=height)
    body = frame.axes(RATES, [], label_x="success of the attack", label_y="")
    for row, result in enumerate(results):
        y = frame.top + 52 * row + 26
        blind, most = frame.x(result.prior), frame.x(result.bound)
        found = result.success
        kind = "broken" if result.verdict == "VIOLATED" else "found"
        body += text(186, y - 1, result.attack.replace("_", " "), anchor="end", kind="strong")
        body += text(186, y + 14, result.question[:34], anchor="end", kind="small")
        body += (
            f'<rect class="room" x="{blind:.2f}" y="{y - 12:.2f}" '
            f'width="{max(0.0, most - blind):.2f}" height="24"/>'
            f'<line class="blindline" x1="{blind:.2f}" x2="{blind:.2f}" '
            f'y1="{y - 12}" y2="{y + 12}"/>'
            f'<line class="bound" x1="{most:.2f}" x2="{most:.2f}" y1="{y - 15}" y2="{y + 15}"/>'
            f'<line class="{kind}" x1="{frame.x(found.lower):.2f}" '
            f'x2="{frame.x(found.upper):.2f}" y1="{y}" y2="{y}"/>'
            f'<circle class="{kind}" cx="{frame.x(found.value):.2f}" cy="{y}" r="5"/>'
        )
    return frame.picture(body, title="Attacks against the promise")


def unit_chart(edges: Sequence[float], counts: Sequence[int], bound: float) -> str:
    """Draw how many units are at which risk, with the promise beside."""
    high = max(edges[-1], bound) + 0.01
    top = float(max(counts, default=1) or 1)
    frame = Frame(low_x=edges[0], high_x=high, low_y=0.0, high_y=top, height=180)
    step = max(1, round((high - edges[0]) * 100 / 6))
    begin = math.ceil(100 * edges[0])
    ticks_x = [(k / 100, f"{k} %") for k in range(begin, int(100 * high) + 1, step)]
    ticks_y = [(top * k / 2, number_text(top * k / 2)) for k in range(3)]
    body = frame.axes(ticks_x, ticks_y, label_x="best attacker's success", label_y="units")
    for low, up, count in zip(edges[:-1], edges[1:], counts, strict=True):
        x, y = frame.x(low), frame.y(count)
        body += (
            f'<rect class="bar" x="{x + 0.5:.2f}" y="{y:.2f}" '
            f'width="{max(0.5, frame.x(up) - x - 1):.2f}" '
            f'height="{frame.top + frame.height - y:.2f}"/>'
        )
    x = frame.x(bound)
    body += f'<line class="bound" x1="{x:.2f}" x2="{x:.2f}" y1="16" y2="196"/>'
    body += text(
        x - 6, 30, f"promised {percent_at_most(bound)} %", anchor="end", kind="strong halo"
    )
    return frame.picture(body, title="Risk per unit")
