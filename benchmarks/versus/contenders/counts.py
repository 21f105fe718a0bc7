"""Counts of cells: crosstabs of two categories, and histograms of ages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from contenders.coins import CoinMethod, plan_coins
from contenders.problem import DPMethod, Problem, Size
from pacprivacy import dp
from pacprivacy.mechanism import Mechanism
from pacprivacy.statistics import Histogram
from papers import datasets

CATEGORIES = {"adult": ("education", "marital-status"), "bank": ("job", "education")}
N_BINS, AGES = 20, (0.0, 100.0)


@dataclass(frozen=True, kw_only=True)
class CellShares(Mechanism):
    """Shares of rows by cell, times the number of all records."""

    name = "CellShares"
    n_cells: int
    n_records: int

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the counts of one subset, for all records."""
        counts = np.bincount(parts[0].astype(np.int64), minlength=self.n_cells)
        return counts * (self.n_records / len(parts[0]))


def read_cells(name: str, kind: str) -> tuple[Any, int]:
    """Return the cell of every row, and the number of cells."""
    table = getattr(datasets, f"load_{name}")()
    if kind == "histogram":
        ages = table.X[:, table.feature_names.index("age")]
        low, high = AGES
        return np.minimum((ages - low) // ((high - low) / N_BINS), N_BINS - 1), N_BINS
    first, second = (
        np.unique(table.X[:, table.feature_names.index(column)], return_inverse=True)
        for column in CATEGORIES[name]
    )
    n_second = len(second[0])
    return (first[1] * n_second + second[1]).astype(np.float64), len(first[0]) * n_second


def make_counts(name: str, kind: str, size: Size) -> Problem:
    """Return counts of all cells; the error of a cell is against the count of all rows."""
    cells, n_cells = read_cells(name, kind)
    cells = cells[: size.most]
    goal = np.bincount(cells.astype(np.int64), minlength=n_cells).astype(np.float64)
    delta = len(cells) ** -1.5

    def error(value: Any) -> float:
        counts = value["counts"] if isinstance(value, dict) else value
        return float(np.sqrt(np.mean(np.square(np.ravel(counts) - goal))))

    def coins(clip: Any, level: float, seed: int) -> Any:
        histogram = Histogram(bins=n_cells, ranges=(0, n_cells))
        return plan_coins(histogram, cells, level, seed, clip=clip)

    def gaussian(_: None, epsilon: float, seed: int) -> tuple[Any, float]:
        found = dp.gaussian(
            goal, sensitivity=1.0, epsilon=epsilon, delta=delta, neighbours="add_remove",
            simulate=seed,
        )  # fmt: skip
        return found.value, 2 * found.certificate.membership_bound - 1

    return Problem(
        data=cells,
        n_records=len(cells),
        delta=delta,
        tuning=error,
        test=error,
        larger_is_better=False,
        without_privacy=goal,
        pac_make=lambda _: CellShares(n_cells=n_cells, n_records=len(cells)),
        pac_settings=(None,),
        folds=(10, 20),
        n_subsets=size.subsets(1000),
        coin_methods=(CoinMethod(name="coins, counts", settings=("auto",), plan=coins),),
        dp_methods=(DPMethod(name="Gaussian counts", settings=(None,), release=gaussian),),
        n_tuning_draws=5,
    )
