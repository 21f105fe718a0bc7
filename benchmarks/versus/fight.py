"""PAC against differential privacy, each at its own tight advantage: the fight.

Usage: python benchmarks/versus/fight.py [--list] [--quick] [--threads N] [cell ...]

Three families: coins, pools and differential privacy. Runs the cells that are named, or all, one
after another; stores each in benchmarks/results/versus/CELL.json as soon as it is done. A family
that is stored with the same settings is not run again. --quick takes 4000 private rows (15,000 of
MNIST), half of the candidates, and tunes at the middle advantage only; it does not replace what was
measured in full. Then page.py draws the pictures and writes the tables. About two hours on two
cores in all; every file says its CPU seconds. Needs the data of the papers; the cells on boosting
also ``pip install interpret-core``.
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
from contenders.components import make_components
from contenders.counts import make_counts
from contenders.linear_models import (
    LOGISTIC,
    SQUARED,
    as_dp,
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
    """One task on one table; its versions grow when the settings of a family change."""

    task: str
    data: str
    metric: str
    larger_is_better: bool
    make: Callable[[Size], Problem] | None = None
    run: Callable[[Size], dict[str, Any]] | None = None
    version: int = 1
    coins_version: int = 1

    def families(self) -> tuple[str, ...]:
        """Return who takes part."""
        return ("pool", "dp") if self.run is not None else ("pool", "coins", "dp")

    def settings(self, size: Size, family: str) -> dict[str, Any]:
        """Return what a stored result of a family must have been measured with."""
        return {
            "size": size.name,
            "most_records": size.most,
            "tuned_at": list(size.tuned),
            "version": self.coins_version if family == "coins" else self.version,
            "advantages": list(ADVANTAGES),
            "n_seeds": N_SEEDS,
            "n_draws": N_DRAWS,
        }


RMS = "rms error, deviations"
BEAN = {
    "loss": LOGISTIC, "pac": (1e-3, 1e-2), "folds": (5, 10), "draws": 3,
    "coins": as_dp(60, (4.0,), (1.0, 2.0)),
    "dp": ((60,), (8.0, None), (1.0, 2.0)),
}  # fmt: skip
PROBE = {
    "loss": SQUARED, "pac": (1e-2, 1e-1), "folds": (10,), "draws": 1,
    "coins": ({"n_steps": 30}, as_dp(40, (10.0,), (1.0,))[0]),
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
    "components-dry-bean": Cell(
        task="components", data="Dry Bean", metric="error of restored rows",
        larger_is_better=False,
        make=lambda size: make_components("dry_bean", size, 4),
    ),
    "crosstab-adult": Cell(
        task="crosstab", data="Adult", metric="rms error of a cell", larger_is_better=False,
        make=lambda size: make_counts("adult", "crosstab", size),
    ),
    "crosstab-bank": Cell(
        task="crosstab", data="Bank", metric="rms error of a cell", larger_is_better=False,
        make=lambda size: make_counts("bank", "crosstab", size),
    ),
    "histogram-adult": Cell(
        task="histogram", data="Adult", metric="rms error of a cell", larger_is_better=False,
        make=lambda size: make_counts("adult", "histogram", size),
    ),
    "histogram-bank": Cell(
        task="histogram", data="Bank", metric="rms error of a cell", larger_is_better=False,
        make=lambda size: make_counts("bank", "histogram", size),
    ),
}  # fmt: skip


def run(name: str, size: Size, threads: int) -> None:
    """Run the families of one cell that are not stored with the same settings, or larger ones."""
    cell, path = CELLS[name], RESULTS / f"{name}.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept = stored.get("settings", {})
    missing = [
        family
        for family in cell.families()
        if kept.get(family) not in (cell.settings(size, family), cell.settings(FULL, family))
    ]
    if not missing:
        print(f"{name}: kept", flush=True)
        return
    started = time.perf_counter()
    with threadpool_limits(limits=threads):
        if cell.run is not None:
            measured = cell.run(size)
        else:
            measured = measure(replace(cell.make(size), tuned=size.tuned), missing)  # type: ignore[misc]
    before = stored.get("rows", [{} for _ in measured["rows"]])
    measured["rows"] = [old | new for old, new in zip(before, measured["rows"], strict=True)]
    measured["cpu_seconds"] = stored.get("cpu_seconds", {}) | measured["cpu_seconds"]
    result = {
        "cell": name,
        "task": cell.task,
        "data": cell.data,
        "metric": cell.metric,
        "larger_is_better": cell.larger_is_better,
        "settings": kept | {family: cell.settings(size, family) for family in missing},
        **measured,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {time.perf_counter() - started:.0f} s", measured["cpu_seconds"], flush=True)
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print the scores of a cell."""
    print(f"  {result['metric']}, {result['without_privacy']:.4g} without privacy")
    for row in result["rows"]:
        for each in (row["pool"], *row.get("coins", []), *row["dp"]):
            print(
                f"  {row['advantage']:<6} {each['score']:.5f} ± {each['half_width']:.5f} "
                f"{each['method']} {each['setting']}",
                flush=True,
            )


def main(words: list[str]) -> int:
    """Run the cells that are asked for."""
    if "--list" in words:
        print("\n".join(CELLS))
        return 0
    size = QUICK if "--quick" in words else FULL
    threads = int(words[words.index("--threads") + 1]) if "--threads" in words else 1
    chosen = [word for word in words if word in CELLS]
    for name in chosen or CELLS:
        run(name, size, threads)
    return runpy.run_path(str(Path(__file__).with_name("page.py")))["main"]() if not chosen else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
