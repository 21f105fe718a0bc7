"""PAC against differential privacy, each at its own tight advantage: the fight.

Usage: python benchmarks/versus/fight.py [--list] [--quick] [cell ...]

Runs the cells that are named, or all of them, one after another, and stores each in
benchmarks/results/versus/CELL.json as soon as it is done. A cell that is stored with the same
settings is not run again. --quick takes 4000 private rows (15,000 of MNIST), half of the
candidates, and tunes at the middle advantage only; it does not replace what was measured in full.
Then page.py draws the pictures and writes the tables. About two hours on two cores in all; every
file says its CPU seconds. Needs the data of the papers; the cells on boosting also
``pip install interpret-core``.
"""

from __future__ import annotations

import json
import platform
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from contenders.answers import measure_answers
from contenders.clusters import make_clusters
from contenders.linear_models import (
    LOGISTIC,
    SQUARED,
    make_classifier,
    make_least_squares,
    make_logistic,
    make_quantile_regression,
)
from contenders.problem import (
    ADVANTAGES,
    FULL,
    N_DRAWS,
    N_SEEDS,
    QUICK,
    Problem,
    Size,
    measure,
)
from contenders.scattering import load_scattering
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
    make: Callable[[Size], Problem] | None = None
    run: Callable[[Size], dict[str, Any]] | None = None
    version: int = 1

    def settings(self, size: Size) -> dict[str, Any]:
        """Return what a stored result must have been measured with."""
        return {
            "size": size.name,
            "most_records": size.most,
            "tuned_at": list(size.tuned),
            "version": self.version,
            "advantages": list(ADVANTAGES),
            "n_seeds": N_SEEDS,
            "n_draws": N_DRAWS,
        }


RMS = "rms error, deviations"
BEAN = {
    "loss": LOGISTIC, "pac": (1e-3, 1e-2), "folds": (5, 10), "draws": 3,
    "dp": ((60,), (8.0, None), (1.0, 2.0)),
}  # fmt: skip
PROBE = {
    "loss": SQUARED, "pac": (1e-2, 1e-1), "folds": (10,), "draws": 1,
    "dp": ((40,), (20.0, None), (1.0,)),
}  # fmt: skip
CELLS: dict[str, Cell] = {
    "mean-wine": Cell(
        task="mean", data="White wine", metric=RMS, larger_is_better=False,
        make=lambda size: make_mean("wine_white", size, folds=(10, 20), n_subsets=2000),
    ),
    "mean-adult": Cell(
        task="mean", data="Adult", metric=RMS, larger_is_better=False,
        make=lambda size: make_mean("adult", size, folds=(5, 10), n_subsets=1000, few=True),
    ),
    "median-wine": Cell(
        task="median", data="White wine", metric=RMS, larger_is_better=False,
        make=lambda size: make_quantiles("wine_white", size, tuple(range(11)), (0.5,)),
    ),
    "quantiles-housing": Cell(
        task="quantiles", data="Housing", metric=RMS, larger_is_better=False,
        make=lambda size: make_quantiles(
            "california_housing", size, (0,), (0.1, 0.25, 0.5, 0.75, 0.9),
            folds=(2, 5, 10, 20), steps=((10, 1.0), (30, 1.0)),
        ),
    ),
    "ols-housing": Cell(
        task="ols", data="Housing", metric="squared error", larger_is_better=False,
        make=lambda size: make_least_squares("california_housing", size),
    ),
    "ridge-wine": Cell(
        task="ridge", data="White wine", metric="squared error", larger_is_better=False,
        make=lambda size: make_least_squares("wine_white", size),
    ),
    "logistic-rice": Cell(
        task="logistic", data="Rice", metric="accuracy", larger_is_better=True,
        make=lambda size: make_logistic("rice", size, folds=(5, 10), n_subsets=1000),
    ),
    "logistic-adult": Cell(
        task="logistic", data="Adult", metric="accuracy", larger_is_better=True,
        make=lambda size: make_logistic("adult", size, folds=(6,), n_subsets=600, few=True),
    ),
    "logistic-bank": Cell(
        task="logistic", data="Bank", metric="accuracy", larger_is_better=True,
        make=lambda size: make_logistic("bank", size, folds=(6,), n_subsets=600, few=True),
    ),
    "kmeans-rice": Cell(
        task="kmeans", data="Rice", metric="squared distance", larger_is_better=False,
        make=lambda size: make_clusters("rice", size, 2), version=2,
    ),
    "kmeans-dry-bean": Cell(
        task="kmeans", data="Dry Bean", metric="squared distance", larger_is_better=False,
        make=lambda size: make_clusters("dry_bean", size, 7), version=2,
    ),
    "classifier-dry-bean": Cell(
        task="classifier", data="Dry Bean", metric="accuracy", larger_is_better=True,
        make=lambda size: make_classifier(
            load("dry_bean", most=size.most), size, n_subsets=1000, options=BEAN
        ),
    ),
    "probe-mnist": Cell(
        task="probe", data="MNIST, scattering", metric="accuracy", larger_is_better=True,
        make=lambda size: make_classifier(
            load_scattering(most=size.most and 15_000), size, n_subsets=1000, options=PROBE
        ),
    ),
    "boosting-adult": Cell(
        task="boosting", data="Adult", metric="accuracy", larger_is_better=True,
        run=lambda size: measure_answers("adult", size), version=2,
    ),
    "boosting-bank": Cell(
        task="boosting", data="Bank", metric="accuracy", larger_is_better=True,
        run=lambda size: measure_answers("bank", size), version=2,
    ),
    "quantile-regression-housing": Cell(
        task="quantile regression", data="Housing", metric="pinball loss",
        larger_is_better=False,
        make=lambda size: make_quantile_regression("california_housing", size, 0.9),
    ),
}  # fmt: skip


def run(name: str, size: Size) -> None:
    """Run one cell, unless it is stored with the same settings, or larger ones."""
    cell, path = CELLS[name], RESULTS / f"{name}.json"
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["settings"] in (cell.settings(size), cell.settings(FULL)):
            print(f"{name}: kept", flush=True)
            return
    started = time.perf_counter()
    with threadpool_limits(limits=1):
        if cell.run is not None:
            found = cell.run(size)
        else:
            found = measure(replace(cell.make(size), tuned=size.tuned))  # type: ignore[misc]
    result = {
        "cell": name,
        "task": cell.task,
        "data": cell.data,
        "metric": cell.metric,
        "larger_is_better": cell.larger_is_better,
        "settings": cell.settings(size),
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
        pac = row["pac"]
        print(
            f"  {row['advantage']:<6} PAC {pac['score']:.4f} ± {pac['half_width']:.4f} "
            f"k={pac['folds']} {pac['setting']}"
        )
        for each in row["dp"]:
            print(
                f"         DP {each['score']:.4f} ± {each['half_width']:.4f} "
                f"{each['method']} {each['setting']} ε={each['epsilon']:.3f}",
                flush=True,
            )


def main(words: list[str]) -> int:
    """Run the cells that are asked for."""
    if "--list" in words:
        print("\n".join(CELLS))
        return 0
    size = QUICK if "--quick" in words else FULL
    chosen = [word for word in words if not word.startswith("--")]
    for name in CELLS:
        if not chosen or name in chosen:
            run(name, size)
    return runpy.run_path(str(Path(__file__).with_name("page.py")))["main"]() if not chosen else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
