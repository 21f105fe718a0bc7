"""Means with a coin for every unit, beside pools and differential privacy; and what they cost.

Usage: python benchmarks/noise/coins.py [results.json]

error   root mean square error, in deviations, of the means of Adult (94 columns) and white wine
        against those of all private rows, at advantages .1, .176 and .35: the same rows, seeds and
        numbers of draws as benchmarks/versus, whose stored pools and best tuned DP method stand
        beside. Coins with their default keep, and with the best of several keeps and clips.
time    CPU seconds of one release of the mean of 200,000 x 10, from the matrix to the numbers, over
        those of ``X.mean(axis=0)`` and ``np.cov(X.T)`` together; the least of several runs of each.

The noise is seeded: nothing here protects anybody. The result goes to
benchmarks/results/coins.json.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "versus"))

from contenders.problem import ADVANTAGES, N_DRAWS, N_SEEDS  # noqa: E402
from contenders.tables import load  # noqa: E402

from pacprivacy._random import SimulatedSource  # noqa: E402
from pacprivacy.mechanism import coerce_data  # noqa: E402
from pacprivacy.noise import plan_sums  # noqa: E402
from pacprivacy.sample import Coins, draw_coins  # noqa: E402
from pacprivacy.statistics import Mean  # noqa: E402

RESULTS = HERE / "results" / "coins.json"
TABLES = {"mean-adult": "adult", "mean-wine": "wine_white"}
KEEPS = (0.95, 0.99)
CLIPS: tuple[Any, ...] = ("auto", 1.3, None)
MOST_TIMES = 10.0
N_TIMED = 7


def release_mean(X: Any, keep: float, clip: Any, success: float, seed: int) -> Any:
    """Return one released mean of a matrix, from end to end."""
    data, mean = coerce_data(X), Mean()
    sums = mean.contributions(data)
    plan = plan_sums(sums, success=success, keep=keep, slopes=mean.output_slopes(sums), clip=clip)
    kept = draw_coins(len(X), keep, SimulatedSource(seed))
    return mean.value(plan.release(sums, kept, SimulatedSource(seed + 1)), keep)


def errors(X: Any, keep: float, clip: Any, level: float) -> dict[str, Any]:
    """Return the error over seeds and draws, and the certified advantage."""
    mean, goal = Mean(), X.mean(axis=0)
    sums = mean.contributions(coerce_data(X))
    slopes = mean.output_slopes(sums)
    plan = plan_sums(sums, success=(1 + level) / 2, keep=keep, slopes=slopes, clip=clip)
    scores = []
    for seed in range(N_SEEDS * N_DRAWS):
        kept = draw_coins(len(X), keep, SimulatedSource(10_000 + seed))
        value = mean.value(plan.release(sums, kept, SimulatedSource(20_000 + seed)), keep)
        scores.append(float(np.sqrt(np.mean(np.square(value - goal)))))
    return {
        "error": float(np.mean(scores)),
        "keep": keep,
        "clip": clip,
        "radius": plan.radius,
        "certified_advantage": plan.risk.advantage,
        "noise_over_least": plan.gap,
    }


def compare(cell: str, name: str) -> dict[str, Any]:
    """Return the errors of coins beside those that are stored."""
    X = load(name).X
    stored = json.loads((HERE / "results" / "versus" / f"{cell}.json").read_text("utf-8"))
    default = Coins().resolve(len(X))
    rows = []
    for level, row in zip(ADVANTAGES, stored["rows"], strict=True):
        tried = [errors(X, keep, clip, level) for keep in (*KEEPS, default) for clip in CLIPS]
        own = next(r for r in tried if r["keep"] == default and r["clip"] == "auto")
        best = min(tried, key=lambda r: r["error"])
        pool, dp = row["pac"]["score"], min(method["score"] for method in row["dp"])
        print(
            f"{cell} {level}: default {own['error']:.5f} (keep {default:g}), tuned "
            f"{best['error']:.5f} (keep {best['keep']:g}, clip {best['clip']}), pool {pool:.5f}, "
            f"DP {dp:.5f}, certified {own['certified_advantage']:.4f}",
            flush=True,
        )
        rows.append({"advantage": level, "default": own, "tuned": best, "pool": pool, "dp": dp})
    return {"cell": cell, "n_units": len(X), "n_columns": X.shape[1], "rows": rows}


def least_cpu(run: Callable[[], Any]) -> float:
    """Return the CPU seconds of the fastest of several runs."""
    seconds = []
    for _ in range(N_TIMED):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measure_time() -> dict[str, Any]:
    """Return CPU seconds of one release and of the plain statistics."""
    X = np.random.default_rng(0).normal(size=(200_000, 10)) * np.arange(1, 11) + 3
    release_mean(X, 0.999, "auto", 0.588, 0)
    coins = least_cpu(lambda: release_mean(X, 0.999, "auto", 0.588, 0))
    plain = least_cpu(lambda: (X.mean(axis=0), np.cov(X.T)))
    print(f"200,000 x 10: {coins:.3f} CPU s, mean and covariance {plain:.4f}: {coins / plain:.1f}")
    return {"coins_cpu_s": coins, "plain_cpu_s": plain, "times": coins / plain}


def main() -> int:
    """Measure, print and store; 1 where a tuned error is above a rival's or time is over."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    with threadpool_limits(limits=1):
        cells = [compare(cell, name) for cell, name in TABLES.items()]
        timed = measure_time()
    level = [
        row["tuned"]["error"] <= min(row["pool"], row["dp"]) for c in cells for row in c["rows"]
    ]
    result = {
        "benchmark": "means with coins, beside pools and differential privacy",
        "cells": cells,
        "time": timed,
        "required_times_at_most": MOST_TIMES,
        "met": all(level) and timed["times"] <= MOST_TIMES,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
