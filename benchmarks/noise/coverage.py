"""How often nominal 95 % intervals cover: eight statistics, halves and folds, both targets.

Each release has 600 fresh records of a known law and a pool of its own, with the default number of
candidates. It takes the library's steps: candidates, noise (by the log-determinant bound, which
needs no draws), error bars, secret, release. The noise is about a quarter of the spread over the
pool: larger noise is normal and known, and makes intervals better.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.noise import calibrate
from pacprivacy.release import measure_error_bars
from pacprivacy.session.dry_run import SUBSETS_BATCHED, SUBSETS_BLACK_BOX
from pacprivacy.simulation import run_mechanism

OUT = Path(__file__).parents[1] / "results" / "coverage.json"
N, SLOPE, MISSING, SHARE = 600, 0.5, 0.15, 0.4
FOLDS = (2, 20)  # the fewest and the most that the library chooses among
QUANTILES = (0.1, 0.9)
NUMBERS = {  # the numbers of every statistic, in their order
    "mean": ("mean",),
    "median": ("median",),
    "quantiles": ("10 % quantile", "90 % quantile"),
    "sum": ("sum",),
    "count": ("count of a group", "count of the other"),
    "group mean": ("group mean with gaps", "mean of the other group"),
    "regression": ("intercept", "regression coefficient"),
    "own function": ("own function",),
}
LONG = ("median", "quantiles")  # these are released more often


def variation(amounts: Any) -> float:
    """Return the coefficient of variation: a function that the library does not know."""
    return float(amounts.std() / amounts.mean())


STATISTICS: dict[str, Any] = {
    "mean": pac.stats.mean("amount"),
    "median": pac.stats.median("amount"),
    "quantiles": pac.stats.quantiles("amount", q=QUANTILES),
    "sum": pac.stats.sum("amount"),
    "count": pac.stats.count(by="group"),
    "group mean": pac.stats.mean("score", by="group"),
    "regression": pac.stats.ols("y", ["x"]),
    "own function": variation,
}


def draw_records(rng: np.random.Generator) -> pd.DataFrame:
    """Draw records: an amount, a group, a score with gaps, and a regression."""
    group, x = rng.random(N) < SHARE, rng.normal(size=N)
    score = rng.gamma(4.0, size=N) + group
    return pd.DataFrame(
        {
            "amount": rng.gamma(4.0, size=N) + group,
            "group": np.where(group, "a", "b"),
            "score": np.where(rng.random(N) < MISSING, np.nan, score),
            "x": x,
            "y": SLOPE * x + rng.normal(size=N),
        }
    )


def of_records(rows: pd.DataFrame) -> dict[str, Any]:
    """Return every statistic on all records, without the library."""
    amount, groups = rows["amount"], rows.groupby("group")["score"]
    slope, intercept = np.polyfit(rows["x"], rows["y"], 1)
    return {
        "mean": [amount.mean()],
        "median": [np.median(amount)],
        "quantiles": np.quantile(amount, QUANTILES),
        "sum": [amount.sum()],
        "count": groups.size().to_numpy(),
        "group mean": groups.mean().to_numpy(),
        "regression": [intercept, slope],
        "own function": [variation(amount.to_numpy())],
    }


def of_population(n: int = 4_000_000) -> dict[str, Any]:
    """Return the parameters of the law, by its formulas and one very large sample."""
    rng = np.random.default_rng(99)
    amount = rng.gamma(4.0, size=n) + (rng.random(n) < SHARE)
    mean = 4.0 + SHARE
    return {
        "mean": [mean],
        "median": [np.median(amount)],
        "quantiles": np.quantile(amount, QUANTILES),
        "sum": [mean * N],
        "count": [SHARE * N, (1 - SHARE) * N],
        "group mean": [5.0, 4.0],
        "regression": [0.0, SLOPE],
        "own function": [np.sqrt(4.0 + SHARE * (1 - SHARE)) / mean],
    }


def count_hits(name: str, data: Any, pool: Any, truths: tuple[Any, Any], rng: Any) -> Counter[str]:
    """Release one statistic; count the intervals that cover, and the normal one beside it."""
    outputs = run_mechanism(STATISTICS[name], data, pool, rng=0)
    plan = calibrate(outputs, pac.Information(1.5), rule="waterfill", pool=pool)
    bars = measure_error_bars(outputs, plan, pool)
    assert bars is not None
    seen = plan.observe(int(rng.integers(pool.n_subsets)), SimulatedSource(rng))
    numbers = bars.numbers_of(outputs.restore(plan.value_of(seen)))
    tried = {
        "records": bars.interval(numbers, 0.95, "records"),
        "population": bars.interval(numbers, 0.95, "population"),
        "population, normal law": replace(bars, freedom=None).interval(numbers, 0.95, "population"),
    }
    found: Counter[str] = Counter()
    for target, (lower, upper) in tried.items():
        truth = np.asarray(truths[0] if target == "records" else truths[1])
        for number, hit in zip(NUMBERS[name], (lower <= truth) & (truth <= upper), strict=True):
            found[f"{number}|{target}"] = int(hit)
    return found


def count_all(folds: int, releases: int, long_releases: int) -> tuple[Counter[str], Counter[str]]:
    """Return hits and releases of every number, for pools of so many folds."""
    population, hits, made = of_population(), Counter(), Counter()
    for universe in range(max(releases, long_releases)):
        rng = np.random.default_rng([folds, universe])
        rows = draw_records(rng)
        records, pools = of_records(rows), {}
        for size in (SUBSETS_BATCHED, SUBSETS_BLACK_BOX):
            strategy = pac.Balanced(n_subsets=-(-size // folds) * folds, folds=folds)
            pools[size] = strategy.draw(N, rng=rng)
        for name in STATISTICS if universe < releases else LONG:
            own = name == "own function"
            pool = pools[SUBSETS_BLACK_BOX if own else SUBSETS_BATCHED]
            data = rows["amount"].to_numpy() if own else rows
            hits.update(count_hits(name, data, pool, (records[name], population[name]), rng))
            made.update(NUMBERS[name])
    return hits, made


def page_rows(stored: dict[str, Any]) -> list[str]:
    """Return the rows of the table on the page: the share of intervals that covered."""
    halves, folds = ({row["number"]: row for row in pool["rows"]} for pool in stored["pools"])
    rows = []
    for number, row in halves.items():
        cells = [
            f"{100 * one['covered'][target] / one['releases']:.1f}"
            for one in (row, folds[number])
            for target in ("records", "population")
        ]
        rows.append(f"| {number} | {row['releases']} | {' | '.join(cells)} |")
    return rows


def main() -> None:
    """Print the table and store it, for one number of folds or for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=400)
    parser.add_argument("--long", type=int, default=1000, help="of medians and quantiles")
    parser.add_argument("--folds", type=int, choices=FOLDS, action="append")
    options = parser.parse_args()
    for folds in options.folds or FOLDS:
        start = time.process_time()
        hits, made = count_all(folds, options.releases, options.long)
        rows = []
        for number in (number for numbers in NUMBERS.values() for number in numbers):
            found = {
                key.split("|")[1]: n for key, n in hits.items() if key.startswith(number + "|")
            }
            rows.append({"number": number, "releases": made[number], "covered": found})
            shares = ", ".join(f"{target} {n / made[number]:.3f}" for target, n in found.items())
            print(
                f"{folds:>3} folds  {number:<24} {made[number]:>5} releases: {shares}", flush=True
            )
        seconds = round(time.process_time() - start)
        store({"folds": folds, "rows": rows, "cpu_seconds": seconds})


def store(pool: dict[str, Any]) -> None:
    """Write the counts of one kind of pool, and keep those of the others."""
    stored = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {"pools": []}
    pools = [other for other in stored["pools"] if other["folds"] != pool["folds"]]
    pools = sorted([*pools, pool], key=lambda one: one["folds"])
    stored = {"n": N, "confidence": 0.95, "pools": pools}
    OUT.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
