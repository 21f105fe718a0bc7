"""Accuracy-first PAC a thousand times: Rice k-means and Dry Bean SVM, beside fixed budgets.

Usage: python benchmarks/noise/target_runs.py [n_runs] [results.json]

At least 99 % of the runs must be within one point of the asked accuracy on test rows that took no
part in stopping, and the mean spend must be below the smallest budget of a factor-two grid whose
releases do as well. With and without asking for confidence on the validation rows. The result
goes to benchmarks/results/target_runs.json.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from papers.accuracy_first.targets import TASKS, WANTED, measure_target

N_RUNS = 1000
RESULTS = Path(__file__).resolve().parents[1] / "results" / "target_runs.json"


def main() -> int:
    """Run, print and store."""
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else N_RUNS
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS
    started = time.perf_counter()
    with threadpool_limits(limits=1):
        rows = [
            measure_target(name, n_runs=n_runs, confidence=confidence)
            for name in TASKS
            for confidence in (0.99, None)
        ]
    result = {
        "benchmark": "accuracy-first PAC: spend and test accuracy, beside fixed budgets",
        "required_within_a_point": WANTED,
        "rows": [asdict(row) for row in rows],
        "seconds": time.perf_counter() - started,
        "threads": 1,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    sure = [row for row in rows if row.confidence is not None]
    met = all(
        row.within_a_point >= WANTED and row.mean_spent < (row.fixed_nats or np.inf) for row in sure
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
