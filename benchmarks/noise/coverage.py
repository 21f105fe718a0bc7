"""How often nominal 95 % intervals cover: statistics, budgets, halves and folds.

Records: one proved plan, secret and noise drawn anew 2000 times, against the statistic on all
records. Population: 300 universes, each with a pool of its own, one secret and one noise drawn in
each, against the parameter of the law behind them. There the law of the noise is the one that was
proved on the first universe: intervals take it as known.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.noise import NoisePlan
from pacprivacy.release import ErrorBars, measure_error_bars
from pacprivacy.simulation import run_mechanism

HERE = Path(__file__).parent
N, SUBSETS = 1000, {2: 256, 10: 640}
NAMES = ("mean", "median", "quantile 90 %", "group mean", "crosstab cell", "OLS", "logistic")
SLOPE, LOG_ODDS = 0.5, 0.8


def universe(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Draw records: two columns, a group, a numeric and a binary outcome."""
    x, group = rng.normal(size=N), rng.random(N) < 0.4
    amount = rng.gamma(4.0, size=N) + group
    label = rng.random(N) < 1 / (1 + np.exp(-LOG_ODDS * x))
    return np.column_stack([x, amount, group, SLOPE * x + rng.normal(size=N), label])


def statistics(rows: np.ndarray) -> np.ndarray:
    """Return the seven statistics of some records."""
    x, amount, group, y, label = rows.T
    design = np.column_stack([np.ones(len(x)), x])
    weights = np.zeros(2)
    for _ in range(6):  # Newton's method for the logistic regression
        p = 1 / (1 + np.exp(-design @ weights))
        step = np.linalg.solve((design.T * (p * (1 - p))) @ design, design.T @ (label - p))
        weights = weights + step
    return np.array(
        [
            amount.mean(),
            np.median(amount),
            np.quantile(amount, 0.9),
            amount[group > 0].mean(),
            (group * label).mean(),
            np.linalg.lstsq(design, y, rcond=None)[0][1],
            weights[1],
        ]
    )


def truth(n: int = 4_000_000) -> np.ndarray:
    """Return the parameters of the law, by its formulas and one very large sample."""
    rng = np.random.default_rng(99)
    amount = rng.gamma(4.0, size=n) + (rng.random(n) < 0.4)
    quantiles = np.quantile(amount, [0.5, 0.9])
    return np.array([4.4, *quantiles, 5.0, 0.4 * 0.5, SLOPE, LOG_ODDS])


def covers(bars: ErrorBars, y: np.ndarray, of: Any, target: np.ndarray) -> np.ndarray:
    lower, upper = bars.interval(y, 0.95, of)
    return (lower <= target) & (target <= upper)


def records(plan: Any, target: np.ndarray, draws: int, rng: np.random.Generator) -> list[float]:
    source, hits = SimulatedSource(rng), np.zeros(len(NAMES))
    for _ in range(draws):
        seen = plan.noise.observe(int(rng.integers(plan.outputs.n_subsets)), source)
        y = plan.outputs.restore(plan.noise.value_of(seen))
        hits += covers(plan.error_bars, y, "records", target)
    return (hits / draws).tolist()


def population(
    plans: dict[float, Any], folds: int, universes: int, rng: np.random.Generator
) -> dict[float, list[float]]:
    target, hits = truth(), {q: np.zeros(len(NAMES)) for q in plans}
    laws: dict[float, NoisePlan] = {q: plan.noise for q, plan in plans.items()}
    for _ in range(universes):
        rows = universe(rng)
        pool = pac.Balanced(n_subsets=SUBSETS[folds], folds=folds).draw(N, rng=rng)
        outputs = run_mechanism(statistics, rows, pool, rng=0)
        for q, law in laws.items():
            factor = law.noise_factor()
            y = outputs.values[rng.integers(pool.n_subsets)]
            y = y + rng.normal(size=len(factor)) @ factor
            bars = measure_error_bars(outputs, law, pool)
            assert bars is not None
            hits[q] += covers(bars, y, "population", target)
    return {q: (hit / universes).tolist() for q, hit in hits.items()}


def main() -> None:
    """Print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--universes", type=int, default=300)
    asked = parser.parse_args()
    rng, start, cells = np.random.default_rng(7), time.process_time(), []
    for folds in SUBSETS:
        rows = universe(rng)
        pool = pac.Balanced(n_subsets=SUBSETS[folds], folds=folds)
        plans = {
            q: pac.plan(statistics, rows, pac.Membership(q), pool=pool, rng=1) for q in (0.55, 0.75)
        }
        assert all(plan.outputs.scales is None for plan in plans.values())  # laws in own units
        over = population(plans, folds, asked.universes, rng)
        for q, plan in plans.items():
            ours = records(plan, statistics(rows), asked.draws, rng)
            noise = (plan.error_bars.noise_std / plan.error_bars.spread).tolist()
            for i, name in enumerate(NAMES):
                cell = {"statistic": name, "folds": folds, "membership": q}
                cell |= {"records": ours[i], "population": over[q][i], "noise/spread": noise[i]}
                cells.append(cell)
                print(
                    f"{name:<14} k={folds:<3} {q:<5} records {ours[i]:.3f} "
                    f"population {over[q][i]:.3f}  noise/spread {noise[i]:.2f}",
                    flush=True,
                )
        store(cells, asked, round(time.process_time() - start))  # a stopped run keeps its halves


def store(cells: list[dict[str, Any]], asked: argparse.Namespace, seconds: int) -> None:
    """Write the cells so far, and how far they range."""
    summary = {
        kind: {
            "least": min(cell[kind] for cell in cells),
            "most": max(cell[kind] for cell in cells),
            "mean": float(np.mean([cell[kind] for cell in cells])),
        }
        for kind in ("records", "population")
    }
    print(json.dumps(summary, indent=1), flush=True)
    stored = {"n": N, "draws": asked.draws, "universes": asked.universes, "cells": cells}
    stored |= {"summary": summary, "cpu_seconds": seconds}
    out = HERE.parent / "results" / "coverage.json"
    out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
