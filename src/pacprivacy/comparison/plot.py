"""A comparison as a picture: one point for each rule and each method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pacprivacy.errors import DataError

if TYPE_CHECKING:
    from pacprivacy.comparison.record import Comparison


COLOURS: Final = {"PAC": "#0072B2", "DP": "#D55E00"}
INK: Final = "#333333"
FORMATS: Final = (".png", ".svg", ".pdf")
WIDE: Final = 30.0  # ratio of utilities beyond which a logarithmic axis shows more


def plot_comparison(found: Comparison, path: str | Path | None = None) -> Any:
    """Draw utility against method; PAC and DP in their own colours, never in one."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DataError(
            "plots need matplotlib, which is not installed. Run: pip install 'pacprivacy[report]'"
        ) from None
    rows = [row for row in found.rows if row.utility is not None][::-1]
    figure = Figure(figsize=(8.0, 1.4 + 0.42 * len(rows)), dpi=150, layout="constrained")
    axes = figure.subplots()
    values = [float(row.utility or 0.0) for row in rows]
    for place, row in enumerate(rows):
        axes.errorbar(
            values[place],
            place,
            xerr=2 * (row.standard_error or 0.0),
            fmt="o" if row.family == "PAC" else "s",
            color=COLOURS[row.family],
            markersize=8,
            capsize=4,
        )
    positive = [value for value in (*values, found.without_privacy) if value > 0]
    if len(positive) == len(values) + 1 and max(positive) > WIDE * min(positive):
        axes.set_xscale("log")
    label = f"without privacy: {found.without_privacy:.4g}"
    axes.axvline(found.without_privacy, color=INK, lw=1.4, ls="--", label=label)
    axes.set_yticks(range(len(rows)), [f"{row.family}  {row.method}" for row in rows])
    axes.grid(axis="x", color="#dddddd", lw=0.8)
    axes.set_axisbelow(True)
    better = "larger is better" if found.larger_is_better else "smaller is better"
    axes.set_xlabel(f"{found.metric} ({better}); bars are two standard errors", color=INK)
    axes.set_title(
        f"{found.model} at a guaranteed membership success of {100 * found.success:.1f} %",
        fontsize=11,
        color=INK,
    )
    axes.legend(
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        loc="lower center",
        ncols=1,
        bbox_to_anchor=(0.5, 1.08),
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=9, labelcolor=INK)
    return figure if path is None else _save(figure, Path(path))


def _save(figure: Any, target: Path) -> Path:
    if target.suffix.lower() not in FORMATS:
        raise DataError(
            f"plot must end in {', '.join(FORMATS)}; got {target.name!r}. Name it compare.png."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target)
    except OSError as error:
        raise DataError(
            f"{target} must be writable; got: {error.strerror or error}. Choose another folder."
        ) from None
    return target
