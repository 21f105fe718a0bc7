"""At equal guaranteed membership success: privacy-conscious design by information, and ``risk``.

The question of the whole page in one table. Both columns promise that no guess of one record's
membership is right more often than 58.8 %: the paper's design through the information that implies
it, ours by calibrating to that success itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pacprivacy.theory import posterior_success
from papers.charts import INK, new_figure, soften
from papers.design.data import NAMES, REGRESSION
from papers.design.descent import descent_rows
from papers.design.pool import PoolRow, pool_rows
from papers.design.ridge import ridge_rows
from papers.design.tables import DesignRow
from papers.page import Page, as_number, as_percent, write_csv
from papers.run import Job, Settings

MI_NATS: Final = 1 / 64  # its bound on membership success is 58.8 %
LOOKS: Final = {
    "conscious": ("conscious design, information rule", "#D55E00", "s"),
    "same_information": ("exact, same information", "#0072B2", "D"),
    "risk": ("risk, same guaranteed success", "#009E73", "o"),
    "no_noise": ("no noise, half the data", INK, "|"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualRow:
    """Both promises on one data set.

    Attributes
    ----------
    success : float
        The guaranteed bound on membership success, of all columns.
    conscious, conscious_error : float
        The paper's protocol with oracle parameters, and its standard error.
    same_information : float
        Our pool at the same information.
    risk, risk_error : float
        Our pool at the same success, with the estimators' defaults, and its standard error.
    no_noise : float
        The model of ``risk`` without noise.
    risk_nats : float
        Proved bound on the information that ``risk`` gives away.
    """

    dataset: str
    metric: Literal["mean squared error", "accuracy"]
    success: float
    conscious: float
    conscious_error: float
    same_information: float
    risk: float
    risk_error: float
    no_noise: float
    risk_nats: float
    n_trials: int
    n_subsets: int
    n_releases: int

    @property
    def gain(self) -> float:
        """How much better ``risk`` is: error taken away, or accuracy won."""
        better = self.risk - self.conscious
        return better if self.metric == "accuracy" else -better


def equal_row(
    dataset: str,
    *,
    n_trials: int = 500,
    n_repeats: int = 8,
    n_subsets: int = 256,
    n_releases: int = 1000,
    seed: int = 0,
) -> EqualRow:
    """Measure one data set under both promises."""
    if dataset in REGRESSION:
        paper = ridge_rows(
            datasets=(dataset,),
            settings=("oracle",),
            mi_budgets=(MI_NATS,),
            n_repeats=n_repeats,
            seed=seed,
        )
    else:
        paper = descent_rows(
            dataset=dataset,
            settings=("oracle",),
            mi_budgets=(MI_NATS,),
            n_trials=n_trials,
            seed=seed,
        )
    ours = pool_rows(
        dataset,
        (MI_NATS,),
        ("exact", "risk"),
        n_subsets=n_subsets,
        n_releases=n_releases,
        seed=seed,
    )
    return _join(paper[1], ours[0], ours[1])


def _join(conscious: DesignRow, exact: PoolRow, risk: PoolRow) -> EqualRow:
    return EqualRow(
        dataset=risk.dataset,
        metric=risk.metric,
        success=posterior_success(MI_NATS),
        conscious=conscious.utility,
        conscious_error=conscious.standard_error,
        same_information=exact.utility,
        risk=risk.utility,
        risk_error=risk.standard_error,
        no_noise=risk.no_noise,
        risk_nats=risk.mi_upper_nats,
        n_trials=conscious.n_releases,
        n_subsets=risk.n_subsets,
        n_releases=risk.n_releases,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Equal:
    """The section at equal success."""

    name: str = "equal"
    title: str = "At equal guaranteed membership success"
    covers: str = "a comparison of ours; Tables 1 to 4 at 1/64 nats"
    notes: tuple[str, ...] = (
        "Every column has the noise under which a guess of one record's membership is right at "
        "most 58.82 % of the time; ours prove it, the paper's rule if its estimated variances are "
        "the true ones. All training rows, no subsample.",
        "The information rule also bounds every other inference by its 1/64 nats. `risk` does "
        "not: what it gives away in all is in the last column.",
        "In the paper's rule every coordinate (and step) has a secret of its own, and the success "
        "is about any one of those. In ours there is one secret.",
    )
    datasets: tuple[str, ...] = tuple(NAMES)
    quick_datasets: tuple[str, ...] = ("wine_red", "mnist_0v7")

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one job for each data set."""
        sizes = {
            "n_trials": settings.n_trials,
            "n_repeats": settings.n_repeats,
            "n_subsets": settings.n_subsets,
            "n_releases": settings.n_releases,
            "seed": settings.seed,
        }
        return tuple(
            Job(
                name=f"{NAMES[dataset]}: equal success",
                function=equal_row,
                arguments=(dataset,),
                options=sizes,
                kind=EqualRow,
            )
            for dataset in (self.quick_datasets if quick else self.datasets)
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plot, and put both on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        page.image(_draw(stem.with_suffix(".png"), rows), "both promises on every data set")
        page.table(
            [
                "data",
                "what",
                "success <=",
                "conscious, information rule",
                "`exact`, same MI",
                "`risk`, same success",
                "no noise, half the data",
                "won",
                "`risk` information <=",
            ],
            [_cells(row) for row in rows],
        )


def _cells(row: EqualRow) -> list[str]:
    won = f"{100 * row.gain:.1f} points"
    if row.metric != "accuracy":
        won = f"{row.gain:.3f} ({100 * row.gain / row.conscious:.0f} % less error)"
    return [
        NAMES[row.dataset],
        row.metric,
        as_percent(row.success),
        f"{as_number(row.conscious)} ± {row.conscious_error:.1g}",
        as_number(row.same_information),
        f"{as_number(row.risk)} ± {row.risk_error:.1g}",
        as_number(row.no_noise),
        won,
        f"{row.risk_nats:.3g} nats",
    ]


def _draw(path: Path, rows: Sequence[EqualRow]) -> Path:
    metrics = list(dict.fromkeys(row.metric for row in rows))
    height = 1.9 + 0.5 * max(sum(row.metric == name for row in rows) for name in metrics)
    figure = new_figure(4.8 * len(metrics) + 1.0, height)
    grid = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(grid, metrics, strict=True):
        chosen = [row for row in rows if row.metric == metric]
        places = range(len(chosen), 0, -1)
        for row, place in zip(chosen, places, strict=True):
            ends = [row.conscious, row.same_information, row.risk, row.no_noise]
            axes.plot([min(ends), max(ends)], [place] * 2, color="#CCCCCC", lw=2.5, zorder=1)
        for field, (label, colour, marker) in LOOKS.items():
            values = [getattr(row, field) for row in chosen]
            size = 14 if marker == "|" else 8
            axes.plot(
                values, list(places), marker, color=colour, markersize=size, mew=2, label=label
            )
        axes.set_yticks(list(places), [NAMES[row.dataset] for row in chosen])
        axes.set_ylim(0.4, len(chosen) + 0.6)
        better = "higher" if metric == "accuracy" else "lower"
        axes.set_xlabel(f"{metric} on test rows ({better} is better)", fontsize=9, color=INK)
        soften(axes)
    figure.suptitle(
        "Membership guessed right at most 58.8 % of the time: what that costs",
        x=0.012,
        ha="left",
        fontsize=12,
        fontweight="bold",
        color=INK,
    )
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2, frameon=False, labelcolor=INK
    )
    figure.savefig(path)
    return path


SECTION: Final = Equal()
