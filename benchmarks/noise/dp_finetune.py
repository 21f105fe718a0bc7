"""A private last layer on features learned from public classes, CIFAR-10 subset.

Usage: python benchmarks/noise/dp_finetune.py [n_runs] [results.json]

Five classes are public and train a small network for ten epochs; the last layer for the other five
is trained by DP-SGD. Public features must beat untrained ones and pooled pixels at every ε. The
noise is simulated. A few minutes on one core; the result goes to
benchmarks/results/dp_finetune.json.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from papers.cs208.finetune import measure_tuning

N_RUNS = 5
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
RESULTS = Path(__file__).resolve().parents[1] / "results" / "dp_finetune.json"


def main() -> int:
    """Train, compare, print and store."""
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else N_RUNS
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS
    begin = time.perf_counter()
    rows = measure_tuning(EPSILONS, 5000, 10, n_runs, 0)
    found = {(row.features, row.epsilon): row.accuracy for row in rows}
    met = all(
        found["public features", epsilon] > found[other, epsilon]
        for epsilon in EPSILONS
        for other in ("untrained features", "pooled pixels")
    )
    result = {
        "benchmark": "private last layer, public classes of the CIFAR-10 subset",
        "rows": [asdict(row) for row in rows],
        "met": met,
        "seconds": time.perf_counter() - begin,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
