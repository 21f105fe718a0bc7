"""Pictures for a notebook or a file: a release, a session, a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.errors import CertificateError
from pacprivacy.release import Release
from pacprivacy.report.records import PlanRow

# Okabe and Ito's colours: told apart with any kind of colour blindness, and in grey.
BLUE: Final = "#0072B2"
GREEN: Final = "#009E73"
GREY: Final = "#C9CED6"
INK: Final = "#333333"
FORMATS: Final = (".png", ".svg", ".pdf")


class HasReleases(Protocol):
    """A session, as far as its picture cares."""

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases, in order."""
        ...


def plot_release(release: Release, path: str | Path | None = None) -> Any:
    """Draw what a release promises, and its noise per direction; for the curator's eyes.

    Parameters
    ----------
    release : Release
        What :func:`pacprivacy.privatize` returned.
    path : path, optional
        A file to write besides: .png, .svg or .pdf.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it.
    """
    figure = _figure(3.4)
    left, right = figure.subplots(1, 2)
    cert = release.certificate
    rates = [("blind guess", cert.prior, GREY)]
    if cert.membership_mean is not None:
        rates.append(("mean over units", cert.membership_mean.upper, BLUE))
    rates.append(("promised, at most", cert.membership_bound, INK))
    for row, (name, rate, colour) in enumerate(rates):
        left.barh(row, 100 * rate, color=colour, height=0.6)
        left.text(101, row, f"{percent_at_most(rate)} %", va="center", fontsize=9, color=INK)
        left.text(1, row - 0.42, name, va="bottom", fontsize=8.5, color=INK)
    left.set(xlim=(0, 116), yticks=[], xlabel="%", title=f"success of guessing one {cert.unit}")
    left.set_ylim(len(rates) - 0.4, -0.75)
    std = sorted((release.bundle.grid_step * release.bundle.units_per_std).tolist(), reverse=True)
    right.bar(range(1, len(std) + 1), std, color=BLUE)
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set(title="noise per direction", ylabel="standard deviation", xlabel="direction")
    _tidy(left, right)
    return _save(figure, path)


def plot_session(session: HasReleases | Sequence[Release], path: str | Path | None = None) -> Any:
    """Draw what a session has spent after each release, and what was learned, under its total.

    Parameters
    ----------
    session : Session or sequence of Release
        With at least one release of a session.
    path : path, optional
        A file to write besides: .png, .svg or .pdf.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it.
    """
    releases = session if isinstance(session, Sequence) else session.releases
    facts = [release.certificate.composition for release in releases]
    if not facts or any(fact is None or "release_number" not in fact for fact in facts):
        raise CertificateError(
            "session must have releases of a session; got none, or others. Release something first."
        )
    known = [fact for fact in facts if fact is not None]
    figure = _figure(3.2)
    axes = figure.subplots()
    numbers = [0, *(fact["release_number"] for fact in known)]
    spent = [0.0, *(fact["spent_nats_so_far"] for fact in known)]
    axes.step([*numbers, numbers[-1] + 0.5], [*spent, spent[-1]], where="post", color=BLUE, lw=2.4)
    axes.plot(numbers[1:], spent[1:], "o", color=BLUE, mec="white", ms=8)
    if all("learned_nats" in fact for fact in known):
        learned = [0.0, *(fact["learned_nats"] for fact in known)]
        stairs = ([*numbers, numbers[-1] + 0.5], [*learned, learned[-1]])
        axes.step(*stairs, where="post", color=GREEN, lw=2, ls="--", label="really learned")
        axes.plot([], [], color=BLUE, lw=2.4, label="spent, at most")
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, reverse=True, loc="upper left")
    if (total := known[-1].get("total_nats")) is not None:
        axes.axhline(total, color=INK, lw=1.8)
        place = (numbers[-1] + 0.5, total)
        axes.text(
            *place,
            f"total {at_most(total, significant=4)} nats",
            va="bottom",
            ha="right",
            fontsize=9,
            color=INK,
        )
    axes.set(xlabel="release", ylabel="nats", title="what the session has spent")
    axes.set_ylim(bottom=0)
    axes.set_xticks(numbers)
    axes.margins(y=0.15)
    _tidy(axes)
    return _save(figure, path)


def plot_plan(rows: Sequence[PlanRow], path: str | Path | None = None, *, title: str = "") -> Any:
    """Draw noise and expected distance against the budget; for the curator's eyes."""
    if not rows:
        raise CertificateError("rows must not be empty; got none. Plan at least one budget.")
    figure = _figure(3.8)
    axes = figure.subplots()
    places = range(len(rows))
    axes.plot(places, [row.noise_rms for row in rows], "o-", color=BLUE, lw=2.2, label="noise")
    distances = [row.distance for row in rows]
    axes.plot(places, distances, "s--", color=GREEN, lw=2, label="distance from the full answer")
    axes.set_yscale("log" if all(row.noise_rms > 0 for row in rows) else "linear")
    labels = [row.budget for row in rows]
    axes.set_xticks(places, labels, rotation=20 if len(rows) > 4 else 0, ha="right")
    axes.set(ylabel="root mean square per number", title=title)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    _tidy(axes)
    return _save(figure, path)


def _figure(height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CertificateError(
            "plots need matplotlib, which is not installed. Run: pip install 'pacprivacy[report]'"
        ) from None
    return Figure(figsize=(8.0, height), dpi=150, layout="constrained")


def _tidy(*many: Any) -> None:
    for axes in many:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.tick_params(labelsize=9, labelcolor=INK)
        axes.title.set(fontsize=11, color=INK)


def _save(figure: Any, path: str | Path | None) -> Any:
    if path is None:
        return figure
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise CertificateError(
            f"plot must end in {', '.join(FORMATS)}; got {target.name!r}. Name it plan.png."
        )
    try:
        figure.savefig(target)
    except OSError as error:
        raise CertificateError(
            f"plot must be a file that can be written; got {target}: {error.strerror}. "
            "Choose another folder."
        ) from None
    return figure
