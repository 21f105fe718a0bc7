"""Quantiles, medians, least squares and ridge with a coin for every unit, and what they cost.

Usage: python benchmarks/noise/coins_average.py [results.json] [--only TEXT] [--again]

A piece is one cell at one advantage, or the times. Each is stored when it is done, and one that is
stored is not measured again unless ``--again``; ``--only`` takes pieces whose name has the text.

error   quantiles of housing and medians of white wine: root mean square error, in deviations,
        against all private rows; least squares of housing and ridge of white wine: squared error on
        test rows. Rows, scores and numbers of draws are those of benchmarks/versus, whose stored
        pools and best tuned DP method stand beside. Every plan is certified at the advantage, and
        made once for each seed. For fits, features are clipped and penalised as is best on the
        tuning rows, which neither family pays for; ``plain`` is without either.
time    CPU seconds of ``pac release`` of a file of 20,000 rows, from start to files, and of a
        release of least squares of 200,000 x 20 in Python.

The noise is seeded: nothing here protects anybody. The result goes to
benchmarks/results/coins_average.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "versus"))

from contenders.problem import ADVANTAGES, N_DRAWS, N_SEEDS  # noqa: E402
from contenders.tables import clip_columns, load, with_constant  # noqa: E402

import pacprivacy as pac  # noqa: E402
from pacprivacy._random import SimulatedSource  # noqa: E402
from pacprivacy.mechanism import as_mechanism, coerce_data  # noqa: E402
from pacprivacy.noise import AveragePlan, plan_average  # noqa: E402
from pacprivacy.sample import Coins, draw_coins  # noqa: E402
from pacprivacy.statistics import (  # noqa: E402
    CoinUnits,
    LeastSquaresValue,
    SampleValue,
    statistic_with_coins,
)

RESULTS = HERE / "results" / "coins_average.json"
QUANTILES: dict[str, tuple[str, tuple[int, ...], tuple[float, ...]]] = {
    "quantiles-housing": ("california_housing", (0,), (0.1, 0.25, 0.5, 0.75, 0.9)),
    "median-wine": ("wine_white", tuple(range(11)), (0.5,)),
}
FITS = {"ols-housing": "california_housing", "ridge-wine": "wine_white"}
NOT_REQUIRED = {("median-wine", 0.35)}
CLIPS, PENALTIES = (4.0, np.inf), (0.0, 30.0)
RELEASES = {
    "quantiles": ["--columns", "income"],
    "median": ["--columns", "income,age", "--group-by", "region"],
    "ols": ["--target", "cost", "--columns", "age,income,region"],
    "ridge": ["--target", "cost", "--columns", "age,income,region"],
}
MOST_CPU_S, MOST_FIT_CPU_S = 4.0, 5.0


def released(plan: AveragePlan, n: int, keep: float, seed: int) -> list[Any]:
    """Return releases of one plan, each with coins and noise of its own."""
    return [
        plan.release(
            draw_coins(n, keep, SimulatedSource(10_000 + 100 * seed + draw)),
            SimulatedSource(20_000 + 100 * seed + draw),
        )
        for draw in range(N_DRAWS)
    ]


def score(value: SampleValue, keep: float, level: float, **judges: Any) -> dict[str, float]:
    """Return the mean scores over seeds and draws, and the certified advantage."""
    drawn, certified = [], []
    for seed in range(N_SEEDS):
        plan = plan_average(value, success=(1 + level) / 2, keep=keep, seed=seed)
        certified.append(plan.risk.advantage)
        drawn += released(plan, value.n_units, keep, seed)
    scores = {name: float(np.mean([of(each) for each in drawn])) for name, of in judges.items()}
    return {**scores, "certified_advantage": max(certified)}


def rivals(cell: str, level: float) -> dict[str, float]:
    """Return pool and best tuned DP of benchmarks/versus."""
    rows = json.loads((HERE / "results" / "versus" / f"{cell}.json").read_text("utf-8"))["rows"]
    row = rows[ADVANTAGES.index(level)]
    return {"pool": row["pool"]["score"], "dp": min(method["score"] for method in row["dp"])}


def compare_quantiles(cell: str, level: float) -> dict[str, Any]:
    """Return errors of quantiles by default."""
    name, columns, q = QUANTILES[cell]
    X = load(name).X[:, columns]
    keep, goal = Coins().resolve(len(X)), np.quantile(X, q, axis=0).T.ravel()
    mechanism = as_mechanism(functools.partial(np.quantile, q=q, axis=0))
    statistic, data, _ = statistic_with_coins(mechanism, coerce_data(X), None)
    coins = CoinUnits(n_units=len(X), unit="record", keep=keep, clip="auto", seed=0)
    value = statistic.on_samples(data, None, coins)

    def error(numbers: Any) -> float:
        return float(np.sqrt(np.mean(np.square(numbers - goal))))

    return {"n_units": len(X), "keep": keep, **score(value, keep, level, score=error)}


def compare_fits(cell: str, level: float) -> dict[str, Any]:
    """Return errors on test rows, with the setting that is best on tuning rows."""
    split = load(FITS[cell])
    keep = Coins().resolve(len(split.X))

    def judge(X: Any, y: Any, clip: float) -> Any:
        rows = with_constant(clip_columns(X, clip))
        return lambda weights: float(np.mean(np.square(y - rows @ weights)))

    tried = []
    for clip, penalty in product(CLIPS, PENALTIES):
        Z = with_constant(clip_columns(split.X, clip))
        penalties = np.full(Z.shape[1], penalty)
        penalties[-1] = 0.0
        value = LeastSquaresValue.fit(Z, split.y, keep=keep, penalty=penalties)
        test = judge(split.X_test, split.y_test, clip)
        tuning = judge(split.X_tuning, split.y_tuning, clip)
        scores = score(value, keep, level, score=test, tuning=tuning)
        tried.append({**scores, "clip": None if clip == np.inf else clip, "penalty": penalty})
    best = min(tried, key=lambda one: one["tuning"])
    plain = next(one for one in tried if one["clip"] is None and one["penalty"] == 0)
    return {"n_units": len(split.X), "keep": keep, **best, "plain": plain["score"]}


def compare(cell: str, level: float) -> dict[str, Any]:
    """Return the errors of one cell at one advantage, with those of its rivals, and print them."""
    measure = compare_quantiles if cell in QUANTILES else compare_fits
    row = {"cell": cell, "advantage": level, **measure(cell, level), **rivals(cell, level)}
    row["required"] = (cell, level) not in NOT_REQUIRED
    row["met"] = row["score"] <= min(row["pool"], row["dp"])
    plain = f", plain {row['plain']:.5f}" if "plain" in row else ""
    print(
        f"{cell} {level}: {row['score']:.5f}{plain}, pool {row['pool']:.5f}, DP "
        f"{row['dp']:.5f}, certified {row['certified_advantage']:.4f}",
        flush=True,
    )
    return row


def measure_time() -> dict[str, Any]:
    """Return CPU seconds of the command line and of a large fit, and print them."""
    rng, n = np.random.default_rng(0), 20_000
    frame = pd.DataFrame(
        {
            "region": rng.choice(["north", "south"], n),
            "age": rng.integers(16, 90, n),
            "income": rng.lognormal(10, 0.4, n).round(2),
        }
    )
    frame["cost"] = (100 + 2 * frame["age"] + 0.001 * frame["income"] + rng.normal(size=n)).round(2)
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(f"{folder}/people.csv", index=False)
        for model, options in RELEASES.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "pacprivacy", "release", f"{folder}/people.csv", "-q"]
            command += ["--model", model, *options, "-o", f"{folder}/{model}"]
            subprocess.run([*command, "--budget", "membership<=0.6"], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
            seconds[f"pac release, {model}, 20,000 rows"] = used
    X = rng.normal(size=(200_000, 20))
    columns = [f"x{i}" for i in range(20)]
    large = pd.DataFrame(X, columns=columns).assign(
        y=X @ rng.normal(size=20) + rng.normal(size=len(X))
    )
    start = time.process_time()
    ols = pac.stats.ols("y", columns)
    pac.privatize(ols, large, "membership<=0.6", sample=Coins(), rng=0, simulate=True)
    seconds["least squares, 200,000 x 20"] = time.process_time() - start
    for name, used in seconds.items():
        print(f"{name}: {used:.1f} CPU s", flush=True)
    required = {name: MOST_CPU_S if name.startswith("pac") else MOST_FIT_CPU_S for name in seconds}
    met = all(used <= required[name] for name, used in seconds.items())
    return {"cpu_seconds": seconds, "required_cpu_seconds": required, "met": met}


def store(target: Path, pieces: dict[str, Any], n_pieces: int) -> bool:
    """Write all pieces that there are; return whether all are, and every one that is required met.

    Each piece says so of itself.
    """
    complete = len(pieces) == n_pieces
    met = complete and all(one["met"] or not one.get("required", True) for one in pieces.values())
    result = {
        "benchmark": "quantiles and fits with coins, beside pools and differential privacy",
        "pieces": dict(sorted(pieces.items())),
        "complete": complete,
        "met": met,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return met


def main() -> int:
    """Measure, print and store; 1 unless everything required is met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        f"{cell} {level}": functools.partial(compare, cell, level)
        for cell in (*QUANTILES, *FITS)
        for level in ADVANTAGES
    }
    measures["times"] = measure_time
    pieces: dict[str, Any] = {}
    if options.results.exists():
        pieces = json.loads(options.results.read_text("utf-8"))["pieces"]
    met = False
    with threadpool_limits(limits=1):
        for name, measure in measures.items():
            if options.only in name and (options.again or name not in pieces):
                pieces[name] = measure()
            met = store(options.results, pieces, len(measures))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
