"""At equal guaranteed membership success, 58.8 %: ``risk`` against privacy-conscious design.

Usage: python benchmarks/noise/equal_success.py [dataset ...]

Ridge and logistic regression with the estimators' defaults must beat the paper's conscious design
with the information rule (1/64 nats, oracle parameters) on every data set of its tables. All
training rows, pools of 256 halves, 500 trainings per cell. The result goes to
benchmarks/results/equal_success.json; rows of data sets that are not named are kept.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from papers.design.data import NAMES
from papers.design.equal import equal_row

RESULTS = Path(__file__).resolve().parents[1] / "results" / "equal_success.json"


def measure(dataset: str) -> dict[str, Any]:
    """Measure one data set."""
    started = time.perf_counter()
    with threadpool_limits(limits=1):
        row = equal_row(dataset)
    return {
        **asdict(row),
        "gain": row.gain,
        "gain_relative": row.gain / row.conscious,
        "beats_conscious": row.gain > 0,
        "seconds": time.perf_counter() - started,
    }


def main() -> int:
    """Measure the data sets side by side, print and store."""
    found = Parallel(n_jobs=-1)(delayed(measure)(name) for name in sys.argv[1:] or NAMES)
    rows: dict[str, Any] = {}
    if len(sys.argv) > 1 and RESULTS.is_file():
        rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    rows |= {row["dataset"]: row for row in found}
    result = {
        "benchmark": "risk against conscious design at equal guaranteed membership success",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "rows": {name: rows[name] for name in NAMES if name in rows},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0 if all(row["beats_conscious"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
