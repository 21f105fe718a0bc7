"""PAC against differential privacy, each at its own tight advantage: the fight.

Usage: python benchmarks/versus/fight.py [--list] [word ...]

Runs every cell whose name holds one of the words, or all of them, one after another, and stores
each in benchmarks/results/versus/NAME.json as soon as it is done. A cell that is stored with the
same settings is not run again. Then page.py draws the pictures and writes the tables. About two
hours on two cores in all; every file says its CPU seconds. Needs the data of the papers; the cells
on boosting also ``pip install interpret-core``.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contenders.clusters import make_clusters
from contenders.linear_models import (
    make_classifier,
    make_least_squares,
    make_logistic,
    make_quantile_regression,
)
from contenders.problem import ADVANTAGES, N_DRAWS, N_SEEDS, Problem, measure
from contenders.statistics import make_mean, make_quantiles
from contenders.tables import load
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).resolve().parents[1] / "results" / "versus"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One task on one table; ``version`` grows when its settings change."""

    task: str
    data: str
    metric: str
    larger_is_better: bool
    make: Callable[[], Problem] | None = None
    run: Callable[[], dict[str, Any]] | None = None
    version: int = 1

    def settings(self) -> dict[str, Any]:
        """Return what a stored result must have been measured with."""
        return {
            "version": self.version,
            "advantages": list(ADVANTAGES),
            "n_seeds": N_SEEDS,
            "n_draws": N_DRAWS,
        }


RMS = "rms error, deviations"
BEAN = {"dp": ((20, 60), (2.0, 8.0), (0.5, 2.0)), "pac": (1e-4, 1e-2, 1e-1, 1.0), "folds": (5, 10)}
CELLS: dict[str, Cell] = {
    "mean-wine": Cell(
        task="mean", data="White wine", metric=RMS, larger_is_better=False,
        make=lambda: make_mean("wine_white"),
    ),
    "mean-adult": Cell(
        task="mean", data="Adult", metric=RMS, larger_is_better=False,
        make=lambda: make_mean("adult"),
    ),
    "median-wine": Cell(
        task="median", data="White wine", metric=RMS, larger_is_better=False,
        make=lambda: make_quantiles("wine_white", tuple(range(11)), (0.5,)),
    ),
    "quantiles-housing": Cell(
        task="quantiles", data="Housing", metric=RMS, larger_is_better=False,
        make=lambda: make_quantiles("california_housing", (0,), (0.1, 0.25, 0.5, 0.75, 0.9)),
    ),
    "ols-housing": Cell(
        task="ols", data="Housing", metric="squared error", larger_is_better=False,
        make=lambda: make_least_squares("california_housing", plain=True),
    ),
    "ridge-wine": Cell(
        task="ridge", data="White wine", metric="squared error", larger_is_better=False,
        make=lambda: make_least_squares("wine_white", plain=False),
    ),
    "logistic-rice": Cell(
        task="logistic", data="Rice", metric="accuracy", larger_is_better=True,
        make=lambda: make_logistic("rice"),
    ),
    "logistic-adult": Cell(
        task="logistic", data="Adult", metric="accuracy", larger_is_better=True,
        make=lambda: make_logistic("adult", n_tuning_draws=2),
    ),
    "logistic-bank": Cell(
        task="logistic", data="Bank", metric="accuracy", larger_is_better=True,
        make=lambda: make_logistic("bank", n_tuning_draws=2),
    ),
    "kmeans-rice": Cell(
        task="kmeans", data="Rice", metric="squared distance", larger_is_better=False,
        make=lambda: make_clusters("rice", 2),
    ),
    "kmeans-dry-bean": Cell(
        task="kmeans", data="Dry Bean", metric="squared distance", larger_is_better=False,
        make=lambda: make_clusters("dry_bean", 7),
    ),
    "classifier-dry-bean": Cell(
        task="classifier", data="Dry Bean", metric="accuracy", larger_is_better=True,
        make=lambda: make_classifier(
            load("dry_bean"), n_subsets=1000, options={**BEAN, "draws": 3}
        ),
    ),
    "quantile-regression-housing": Cell(
        task="quantile regression", data="Housing", metric="pinball loss",
        larger_is_better=False,
        make=lambda: make_quantile_regression("california_housing", 0.9),
    ),
}  # fmt: skip


def run(name: str) -> None:
    """Run one cell, unless it is stored with the same settings."""
    cell, path = CELLS[name], RESULTS / f"{name}.json"
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["settings"] == cell.settings():
            print(f"{name}: kept", flush=True)
            return
    started = time.perf_counter()
    with threadpool_limits(limits=1):
        found = cell.run() if cell.run is not None else measure(cell.make())  # type: ignore[misc]
    result = {
        "cell": name,
        "task": cell.task,
        "data": cell.data,
        "metric": cell.metric,
        "larger_is_better": cell.larger_is_better,
        "settings": cell.settings(),
        **found,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {time.perf_counter() - started:.0f} s", found["cpu_seconds"], flush=True)
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print what a cell found."""
    print(f"  {result['metric']}, {result['without_privacy']:.4g} without privacy")
    for row in result["rows"]:
        pac, dp = row["pac"], row["dp"]
        print(
            f"  {row['advantage']:<6} PAC {pac['score']:.4f} ± {pac['half_width']:.4f} "
            f"k={pac.get('folds')} {pac['setting']}"
        )
        for each in row["dp_all"]:
            mark = "*" if each["method"] == dp["method"] else " "
            print(
                f"        {mark}DP {each['score']:.4f} ± {each['half_width']:.4f} "
                f"{each['method']} {each['setting']} ε={each['epsilon']:.3f}",
                flush=True,
            )


def main(words: list[str]) -> int:
    """Run the cells that are asked for."""
    if "--list" in words:
        print("\n".join(CELLS))
        return 0
    for name in CELLS:
        if not words or any(word in name for word in words):
            run(name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
