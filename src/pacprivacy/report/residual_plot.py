"""Pictures of the search for least noise, and of true information and noise against budgets."""

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


class Iterate(Protocol):
    """One step of a search, as far as a picture cares."""

    @property
    def start(self) -> str:
        """Which start it came from."""
        ...

    @property
    def step(self) -> int:
        """Number of the step."""
        ...

    @property
    def cost(self) -> float:
        """Cost of the noise at the budget."""
        ...


class Measured(Protocol):
    """What :func:`pacprivacy.residual.budget_curve` returns, as far as a picture cares."""

    @property
    def rule(self) -> str:
        """Name of the rule."""
        ...

    @property
    def budgets(self) -> Any:
        """Budgets in nats."""
        ...

    @property
    def true_mi(self) -> Any:
        """True information in nats."""
        ...

    @property
    def noise(self) -> Any:
        """Total noise variance."""
        ...


def plot_convergence(
    steps: Sequence[Iterate], path: str | Path, *, gaussian: float | None = None
) -> Path:
    """Draw the cost of the noise against the step, one line per start that was followed up.

    Parameters
    ----------
    steps : sequence of Step
        Of an :class:`~pacprivacy.residual.Equilibrium`.
    path : path
        A file that ends in .png, .svg or .pdf.
    gaussian : float, optional
        Cost that the Gaussian bound needs, as a level to compare with.
    """
    target = _checked(path, len(steps))
    followed = [name for name in dict.fromkeys(s.start for s in steps) if ", try " not in name]
    figure = _figure(7.0, 4.4)
    axes = figure.add_subplot()
    for step in steps:
        if ", try " in step.start:
            axes.plot(step.step, step.cost, ".", color="#C9CED6", markersize=5)
    for number, name in enumerate(followed):
        mine = [step for step in steps if step.start == name]
        _line(axes, [s.step for s in mine], [s.cost for s in mine], name, number)
    if gaussian is not None:
        axes.axhline(gaussian, color=INK, linestyle=":", label="Gaussian bound")
    axes.set_yscale("log")
    _finish(axes, "step", "cost of the noise at the budget")
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    figure.savefig(target)
    return target


def plot_budget_curves(curves: Sequence[Measured], path: str | Path) -> Path:
    """Draw true information and total noise against the budget, one line per rule.

    Parameters
    ----------
    curves : sequence of BudgetCurve
        One per rule, over the same outputs.
    path : path
        A file that ends in .png, .svg or .pdf.
    """
    target = _checked(path, len(curves))
    figure = _figure(9.0, 4.2)
    left, right = figure.subplots(1, 2)
    top = max(float(curve.budgets[-1]) for curve in curves)
    left.plot([0, top], [0, top], color=INK, linestyle=":", linewidth=1.2, label="budget")
    for number, curve in enumerate(curves):
        _line(left, curve.budgets, curve.true_mi, curve.rule, number)
        noisy = [i for i, noise in enumerate(curve.noise) if noise > 0]
        _line(right, curve.budgets[noisy], curve.noise[noisy], curve.rule, number)
    right.set_yscale("log")
    _finish(left, "budget, nats", "true information, nats")
    _finish(right, "budget, nats", "total noise variance")
    left.legend(frameon=False, fontsize=9, labelcolor=INK)
    figure.savefig(target)
    return target


def _checked(path: str | Path, n_items: int) -> Path:
    target = Path(path)
    if not n_items or target.suffix.lower() not in FORMATS:
        raise MechanismError(
            f"what is drawn must not be empty and path must end in {', '.join(FORMATS)}; got "
            f"{n_items} and {target.name!r}. Name it search.png."
        )
    return target


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MechanismError(
            "plot needs matplotlib, which is not installed. Run: pip install 'pacprivacy[report]'"
        ) from None
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def _line(axes: Any, x: Any, y: Any, label: str, number: int) -> None:
    axes.plot(
        x,
        y,
        color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=5,
        linewidth=1.8,
        label=label,
    )


def _finish(axes: Any, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel, fontsize=10, color=INK)
    axes.set_ylabel(ylabel, fontsize=10, color=INK)
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    axes.grid(color="#D9D9D9", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
