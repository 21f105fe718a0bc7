"""The paper's protocol and rule against the published figures of [ALG], at every budget.

Usage: python benchmarks/noise/alg_agreement.py

Accuracy must agree within 0.02, restoration error within 0.01 or 10 %. 4000 halves estimate the
variances, 4000 others are released four times each; the seed is 0 and was not chosen. Needs the
reference files. The result goes to benchmarks/results/alg_agreement.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from papers.alg import models
from papers.alg.measure import Row, measure_paper
from papers.alg.protocol import Task, load_split
from papers.run import FULL

RESULT = Path(__file__).resolve().parents[1] / "results" / "alg_agreement.json"
TASKS = (
    "iris_kmeans",
    "rice_kmeans",
    "iris_svm",
    "iris_svm_regularised",
    "rice_svm",
    "rice_svm_regularised",
    "rice_pca_1",
    "rice_pca_6",
)
ACCURACY = 0.02
ERROR, RELATIVE_ERROR = 0.01, 0.1


def agrees(row: Row) -> bool:
    """Whether one cell is as near to the published figure as it must be."""
    if row.published is None:
        raise SystemExit("the published figures are not at hand; see docs/howto/reproduce.md")
    difference = abs(row.utility - row.published)
    if row.metric == "accuracy":
        return difference <= ACCURACY
    return difference <= max(ERROR, RELATIVE_ERROR * row.published)


def measure(task: Task) -> dict[str, Any]:
    """Return how far one model is from the published figures."""
    split = load_split(task.dataset, task.transformer)
    with threadpool_limits(limits=1):
        rows = list(measure_paper(task, split, FULL))
    met = [agrees(row) for row in rows]
    pairs = [(row, row.published) for row in rows if row.published is not None]
    worst, figure = max(pairs, key=lambda pair: abs(pair[0].utility - pair[1]))
    return {
        "task": task.name,
        "metric": worst.metric,
        "n_cells": len(rows),
        "n_agree": sum(met),
        "largest_difference": abs(worst.utility - figure),
        "largest_relative_difference": max(abs(row.utility / p - 1) for row, p in pairs),
        "there": {
            "rule": worst.rule,
            "mi_nats": worst.mi_nats,
            "published": figure,
            "measured": worst.utility,
            "standard_error": worst.standard_error,
        },
        "met": all(met),
    }


def main() -> int:
    """Measure, print and store."""
    found = []
    for name in TASKS:
        found.append(measure(models.TASKS[name]))
        print(json.dumps(found[-1]), flush=True)
    content = {"n_halves": FULL.n_halves, "n_noises": FULL.n_noises, "rows": found}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row["met"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
