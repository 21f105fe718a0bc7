"""A picture of a tuned parameter: what a release is worth, against its value, per budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pacprivacy.errors import MechanismError

# Okabe and Ito's colours: told apart with any kind of colour blindness, and in grey.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
INK: Final = "#333333"
FORMATS: Final = (".png", ".svg", ".pdf")


class CurvePoint(Protocol):
    """One value of the parameter."""

    @property
    def theta(self) -> Any:
        """The value."""
        ...

    @property
    def utility(self) -> float:
        """Mean utility of simulated releases."""
        ...

    @property
    def standard_error(self) -> float:
        """Of the utility."""
        ...

    @property
    def no_noise(self) -> float:
        """Mean utility without noise."""
        ...


class Curve(Protocol):
    """What :func:`pacprivacy.design.tuning` returns, as far as a picture cares."""

    @property
    def points(self) -> Sequence[CurvePoint]:
        """All values tried."""
        ...

    @property
    def budget(self) -> str:
        """What the releases are held to."""
        ...

    @property
    def best_point(self) -> CurvePoint:
        """The value chosen."""
        ...


def plot_tune(
    curves: Sequence[Curve],
    path: str | Path,
    *,
    title: str = "",
    parameter: str = "parameter",
    utility: str = "utility of a release",
) -> Path:
    """Draw utility against the parameter, one line per budget; the choice is ringed."""
    target = Path(path)
    if not curves or target.suffix.lower() not in FORMATS:
        raise MechanismError(
            f"curves must not be empty and path must end in {', '.join(FORMATS)}; got "
            f"{len(curves)} and {target.name!r}. Name it tune.png."
        )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MechanismError(
            "plot needs matplotlib, which is not installed. Run: pip install 'pacprivacy[report]'"
        ) from None
    figure = Figure(figsize=(7.0, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    places = _places(curves[0].points)
    plain = [point.no_noise for point in curves[0].points]
    axes.plot(places, plain, color=INK, linestyle=":", linewidth=1.6, label="no noise")
    for number, curve in enumerate(curves):
        _draw_curve(axes, curve, places, number % len(COLOURS))
    if _is_geometric(curves[0].points):
        axes.set_xscale("log")
    elif not _is_numeric(curves[0].points):
        axes.set_xticks(places, [str(point.theta) for point in curves[0].points])
    axes.set_xlabel(parameter, fontsize=10, color=INK)
    axes.set_ylabel(utility, fontsize=10, color=INK)
    axes.minorticks_off()
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    axes.grid(color="#D9D9D9", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=INK)
    if title:
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK)
    figure.savefig(target)
    return target


def _draw_curve(axes: Any, curve: Curve, places: Sequence[float], number: int) -> None:
    colour = COLOURS[number]
    axes.errorbar(
        places,
        [point.utility for point in curve.points],
        yerr=[2 * point.standard_error for point in curve.points],
        color=colour,
        marker=MARKERS[number],
        markersize=5,
        linewidth=1.8,
        capsize=2.5,
        label=curve.budget,
    )
    chosen = [point is curve.best_point for point in curve.points].index(True)
    axes.plot(
        places[chosen],
        curve.points[chosen].utility,
        marker="o",
        markersize=13,
        markerfacecolor="none",
        markeredgecolor=colour,
        markeredgewidth=1.8,
        linestyle="none",
    )


def _is_numeric(points: Sequence[CurvePoint]) -> bool:
    return all(isinstance(point.theta, int | float) for point in points)


def _is_geometric(points: Sequence[CurvePoint]) -> bool:
    """Whether the values spread over more than a factor of twenty, all positive."""
    if not _is_numeric(points):
        return False
    values = [float(point.theta) for point in points]
    return min(values) > 0 and max(values) > 20 * min(values)


def _places(points: Sequence[CurvePoint]) -> list[float]:
    if _is_numeric(points):
        return [float(point.theta) for point in points]
    return [float(i) for i in range(len(points))]
