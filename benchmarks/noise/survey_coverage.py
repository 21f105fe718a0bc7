"""How often intervals for the population hold it, in simulated surveys with noise and coins.

Usage: python benchmarks/noise/survey_coverage.py [results.json]

A population of villages in regions, of unequal sizes and incomes; villages are drawn with
replacement within regions and everybody in them is asked, with weights. Each survey is released
once with membership<=0.6: weighted mean, total, shares, a median and a regression. Coverage is that
of nominal 95 % intervals, by number; ``bare`` leaves the design out of the intervals.
The noise is seeded: nothing here protects anybody. The result goes to
benchmarks/results/survey_coverage.json.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pacprivacy as pac
from pacprivacy.mechanism import coerce_data, flatten

RESULTS = Path(__file__).resolve().parents[1] / "results" / "survey_coverage.json"
N_SURVEYS = 400
N_REGIONS, N_VILLAGES, DRAWN = 5, 200, 20
S = pac.stats
STATISTICS: dict[str, Any] = {
    "mean": S.mean("income"),
    "total": S.sum("income"),
    "share": S.mean("works"),
    "median": S.median("income"),
    "regression": S.ols("income", ["hours", "sex"]),
}
DESIGN = {"weights": "weight", "strata": "region", "cluster": "village"}


def make_population(rng: np.random.Generator) -> pd.DataFrame:
    """Return people of villages in regions, who resemble each other."""
    villages = N_REGIONS * N_VILLAGES
    village = np.repeat(np.arange(villages), rng.integers(15, 45, villages))
    region = village // N_VILLAGES
    level = rng.normal(0, 12, villages)[village]
    hours = rng.integers(0, 60, len(village))
    sex = rng.choice(["f", "m"], len(village))
    income = 120 + 12 * region + level + 1.5 * hours + 9 * (sex == "m")
    return pd.DataFrame(
        {
            "region": np.array(list("abcde"))[region],
            "village": village,
            "hours": hours,
            "sex": sex,
            "income": income + rng.gamma(4, 10, len(village)),
            "works": np.where(rng.random(len(village)) < 0.3 + 0.1 * region, 1.0, 0.0),
        }
    )


def draw_survey(population: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Draw villages with replacement in every region; a village drawn twice is two clusters."""
    groups = dict(list(population.groupby("village")))
    asked = []
    for region in range(N_REGIONS):
        drawn = region * N_VILLAGES + rng.integers(0, N_VILLAGES, DRAWN)
        asked += [groups[v].assign(village=f"{v}.{i}") for i, v in enumerate(drawn.tolist())]
    return pd.concat(asked, ignore_index=True).assign(weight=N_VILLAGES / DRAWN)


def covered(survey: pd.DataFrame, truth: np.ndarray, seed: int) -> tuple[Any, Any]:
    """Return which intervals hold the truth, with the design and without."""
    hits = []
    for design in (DESIGN, {"weights": "weight"}):
        study = pac.Study(STATISTICS, **design)
        release = pac.privatize(
            study, survey, "membership<=0.6", sample=pac.Coins(), rng=seed, simulate=True
        )
        low, high = (flatten(end)[0] for end in release.interval(0.95, of="population"))
        hits.append((low <= truth) & (truth <= high))
    return hits[0], hits[1]


def population_values(population: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
    """Return the numbers of the whole population, as a release has them, and their names."""
    data = coerce_data(population.assign(weight=1.0))
    study = pac.Study(STATISTICS, weights="weight").prepare(data)
    value = study.finish(study.value(study.contributions(data).total()))
    numbers, structure = flatten(value)
    names = list(structure.names())
    median = np.flatnonzero([name.startswith("median") for name in names])
    numbers[median] = population["income"].median()
    return numbers, names


def main(path: Path = RESULTS) -> None:
    warnings.simplefilter("ignore")
    rng, started = np.random.default_rng(1), time.process_time()
    population = make_population(rng)
    truth, names = population_values(population)
    hits = [covered(draw_survey(population, rng), truth, seed) for seed in range(N_SURVEYS)]
    rates = [np.mean([pair[kind] for pair in hits], axis=0).round(3).tolist() for kind in (0, 1)]
    found = {
        "surveys": N_SURVEYS,
        "coverage": dict(zip(names, rates[0], strict=True)),
        "bare": dict(zip(names, rates[1], strict=True)),
        "met": bool(all(0.92 <= rate <= 0.98 for rate in rates[0])),
        "cpu_s": round(time.process_time() - started),
    }
    print(json.dumps(found, indent=2))
    path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
