"""Twelve statistics of Adult in one study, beside twelve releases of a twelfth of the budget each.

Usage: python benchmarks/queries/study.py [results.json]

A twelfth is one of the squared influence, so that both promise the same in all: membership<=0.6.
study  root mean square error of the numbers of a table in the study, against all records
single the same of the release by itself; medians, quartiles and least squares then have the weaker
       promise of an average over coins
error  the first over the second; most of it is noise, and both leave out the same share
noise  the same of the deviations of the noise
The noise is seeded: nothing here protects anybody. Results go to benchmarks/results/study.json.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parent)]

from session_means import adult_people  # noqa: E402

import pacprivacy as pac  # noqa: E402
from pacprivacy.adversary import influence_parameter, influence_success  # noqa: E402
from pacprivacy.mechanism import flatten  # noqa: E402

RESULTS = HERE.parents[1] / "results" / "study.json"
TOTAL = 0.6
N_SEEDS = 30
S = pac.stats
STATISTICS: dict[str, Any] = {
    "age by education": S.mean("age", by="education"),
    "hours by occupation": S.mean("hours_per_week", by="occupation"),
    "hours by sex": S.mean("hours_per_week", by="sex"),
    "education by race": S.mean("education_num", by="race"),
    "education by workclass": S.mean("education_num", by="workclass"),
    "sex by marital status": S.crosstab("sex", "marital_status"),
    "relationship": S.mean("relationship"),
    "ages": S.histogram("age", bins=[17, 25, 35, 45, 55, 65, 90]),
    "median weight by sex": S.median("fnlwgt", by="sex"),
    "weights, quartiles": S.quantiles("fnlwgt"),
    "variances": S.variance(["age", "hours_per_week"]),
    "hours explained": S.ols("hours_per_week", ["age", "education_num", "sex"]),
}


def measure(statistic: Any, table: Any, success: float, truth: np.ndarray) -> tuple[Any, Any]:
    """Return root mean square errors and noise deviations of all numbers over the seeds."""
    squares = []
    for seed in range(N_SEEDS):
        budget = pac.Membership(success)
        release = pac.privatize(
            statistic, table, budget, sample=pac.Coins(), rng=seed, simulate=True
        )
        squares.append(np.square(flatten(release.value)[0] - truth))
    return np.sqrt(np.mean(squares, axis=0)), flatten(release.noise_std)[0]


def exact(statistic: Any, table: Any) -> np.ndarray:
    """Return the numbers of all records, in the order of released ones."""
    budget = pac.Membership(1 - 1e-7)
    coins = pac.Coins(keep=1.0, clip=None)
    try:
        return flatten(pac.privatize(statistic, table, budget, sample=coins, simulate=True).value)[
            0
        ]
    except pac.errors.MechanismError:  # no function of sums
        rows = statistic.prepare(pac.mechanism.coerce_data(table))
        return flatten(rows.finish(rows.evaluate((table,), np.random.default_rng(0))))[0]


def main(path: Path = RESULTS) -> None:
    warnings.simplefilter("ignore")
    table = adult_people()
    for name in ("education", "occupation", "workclass"):  # groups of 200 people or more
        counts = table[name].value_counts()
        table = table[table[name].isin(counts[counts >= 200].index)]
    rows: dict[str, Any] = {}
    single = influence_success(influence_parameter(TOTAL) / math.sqrt(len(STATISTICS)))
    truths = {name: exact(each, table) for name, each in sorted(STATISTICS.items())}
    started = time.process_time()
    errors, noise = measure(
        pac.Study(STATISTICS), table, TOTAL, np.concatenate(list(truths.values()))
    )
    spent = (time.process_time() - started) / N_SEEDS
    start = 0
    for name, each in sorted(STATISTICS.items()):  # as they are flattened
        stop = start + len(truths[name])
        own = measure(each, table, single, truths[name])
        ratios = [
            math.sqrt(np.mean(np.square(joint[start:stop])) / np.mean(np.square(alone)))
            for joint, alone in zip((errors, noise), own, strict=True)
        ]
        sizes = [math.sqrt(np.mean(np.square(each))) for each in (errors[start:stop], own[0])]
        figures = (*sizes, *ratios)
        rows[name] = {
            kind: float(f"{figure:.3g}")
            for kind, figure in zip(("study", "single", "error", "noise"), figures, strict=True)
        }
        print(f"{name:25s}", rows[name], flush=True)
        start = stop
    means = {
        kind: float(f"{np.exp(np.mean([math.log(row[kind]) for row in rows.values()])):.3g}")
        for kind in ("error", "noise")
    }
    print("geometric mean", means, f"{spent:.1f} CPU s a study")
    found = {"total": f"membership<={TOTAL}", "seeds": N_SEEDS, "tables": rows,
             "geometric_mean": means, "cpu_s_of_a_study": round(spent, 1)}  # fmt: skip
    path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
