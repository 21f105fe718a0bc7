"""The section on ridge regression: Tables 1 and 3 of [DESIGN], and California housing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pacprivacy.experiments.design_adassp import EPSILONS, AdasspRow, adassp_rows
from pacprivacy.experiments.design_data import NAMES
from pacprivacy.experiments.design_pool import RULES, PoolRow, pool_rows
from pacprivacy.experiments.design_ridge import SETTINGS, ridge_rows
from pacprivacy.experiments.design_rows import DesignRow
from pacprivacy.experiments.design_table import draw_tables, write_rows, write_table
from pacprivacy.experiments.measure import Settings
from pacprivacy.experiments.page import Page, as_number, as_percent
from pacprivacy.experiments.section import Job
from pacprivacy.theory.posterior import success_for_epsilon

__all__ = ["SECTION", "RidgeTables"]

ADASSP_RELEASES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgeTables:
    """The section on ridge regression."""

    name: str = "ridge"
    title: str = "Ridge regression"
    covers: str = "Tables 1 and 3 and the rows of AdaSSP (wine); housing with the same code"
    notes: tuple[str, ...] = (
        "*Paper's rule*: for every coordinate 1024 Poisson subsets and a secret of its own; noise "
        "of d/2B times the variance. One run of this protocol is off by about 2 %; this is the "
        "mean of several.",
        "*Ours*: one secret half of a balanced pool for all coordinates together. `exact` has the "
        "conscious penalty, `risk` the penalty that is best without noise: the defaults of "
        "`PrivateRidge`. At small budgets that is too little; the last column shrinks as much as "
        "the noise of `risk` asks for.",
        "AdaSSP is differentially private (δ = 1/n²), at the ε with the same membership success. "
        "The published figures agree with bounds read off the data by the largest norm; a typical "
        "norm with clipping serves it better. Both are simulations.",
    )
    datasets: tuple[str, ...] = ("wine_red", "wine_white", "housing")
    quick_datasets: tuple[str, ...] = ("wine_red",)

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return the paper's protocol and our rules for every data set, and AdaSSP."""
        datasets = self.quick_datasets if quick else self.datasets
        jobs = []
        for dataset in datasets:
            names = ("oracle", "SNR1") if quick else tuple(SETTINGS)
            paper = (dataset, names, settings.mi_budgets, settings.n_repeats, settings.seed)
            name = f"{NAMES[dataset]}: paper"
            jobs.append(Job(name=name, function=_paper, arguments=paper, kind=DesignRow))
            for mi_nats in settings.mi_budgets:
                ours = (dataset, mi_nats, settings.n_subsets, settings.n_releases)
                name = f"{NAMES[dataset]}, {mi_nats:g} nats: ours"
                jobs.append(Job(name=name, function=_ours, arguments=ours, kind=PoolRow))
        n_releases = 20 if quick else ADASSP_RELEASES
        adassp = Job(name="AdaSSP", function=_adassp, arguments=(n_releases,), kind=AdasspRow)
        return (*jobs, adassp)

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write CSV files and the plot, and put plot and tables on the page."""
        paper = [row for row in rows if isinstance(row, DesignRow)]
        ours = [row for row in rows if isinstance(row, PoolRow)]
        write_rows(stem, rows)
        picture = draw_tables(stem.with_suffix(".png"), self.title, paper, ours)
        page.image(picture, "mean squared error against the budget")
        for dataset in dict.fromkeys(row.dataset for row in paper):
            write_table(page, dataset, paper, ours)
        _write_adassp(page, [row for row in rows if isinstance(row, AdasspRow)])


def _paper(
    dataset: str, names: tuple[str, ...], budgets: tuple[float, ...], n_repeats: int, seed: int
) -> list[DesignRow]:
    return ridge_rows(
        datasets=(dataset,), settings=names, mi_budgets=budgets, n_repeats=n_repeats, seed=seed
    )


def _ours(dataset: str, mi_nats: float, n_subsets: int, n_releases: int) -> list[PoolRow]:
    return pool_rows(dataset, (mi_nats,), RULES, n_subsets=n_subsets, n_releases=n_releases)


def _adassp(n_releases: int) -> list[AdasspRow]:
    return adassp_rows(n_releases=n_releases)


def _write_adassp(page: Page, rows: Sequence[AdasspRow]) -> None:
    for dataset in dict.fromkeys(row.dataset for row in rows):
        page.heading(f"{NAMES[dataset]}, AdaSSP", level=3)
        found = {(row.bound, row.epsilon): row for row in rows if row.dataset == dataset}
        page.table(
            ["ε", "success <=", "published", "largest norm", "typical norm, clipped"],
            [
                [
                    f"{epsilon:g}",
                    as_percent(success_for_epsilon(epsilon)),
                    as_number(found["largest norm", epsilon].published, 2),
                    as_number(found["largest norm", epsilon].utility),
                    as_number(found["typical norm", epsilon].utility),
                ]
                for epsilon in EPSILONS
            ],
        )


SECTION: Final = RidgeTables()
