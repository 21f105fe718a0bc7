"""One secret throughout a descent against fresh ones, on MNIST 0-vs-7, and the best attackers.

Usage: python benchmarks/noise/same_secret.py [n_trials] [results.json]

50 steps at 1/4 nat in all, 128 candidate halves. Accuracy must be within 0.02 of the fresh-secret
model at the same total, and the attackers, who know the pool and everything released, must stay
under the bounds: naming the subset, and guessing one record's membership, also for the record
where they do best. A thousand trainings by default, about twenty minutes on one core. The result
goes to benchmarks/results/same_secret.json.
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

from papers.design.secret import secret_row

N_TRIALS, WITHIN, BUDGET = 1000, 0.02, 1 / 4
RESULTS = Path(__file__).resolve().parents[1] / "results" / "same_secret.json"


def main() -> int:
    """Train, attack, print and store."""
    n_trials = int(sys.argv[1]) if len(sys.argv) > 1 else N_TRIALS
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS
    started = time.perf_counter()
    with threadpool_limits(limits=1):
        row = secret_row(mi_nats=BUDGET, n_trials=n_trials)
    result = {
        "benchmark": "descent with one secret against fresh secrets, MNIST 0-vs-7, 50 steps",
        **asdict(row),
        "behind_fresh": row.fresh_accuracy - row.accuracy,
        "required_behind_at_most": WITHIN,
        "seconds": time.perf_counter() - started,
        "threads": 1,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    met = (
        abs(row.fresh_accuracy - row.accuracy) <= WITHIN
        and row.named <= row.named_bound
        and max(row.membership, row.worst_membership) <= row.membership_bound
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
