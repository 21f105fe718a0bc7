"""At equal guaranteed membership success, 58.8 %: ``risk`` against privacy-conscious design.

Usage: python benchmarks/noise/equal_success.py [dataset ...]

Ridge and logistic regression with the estimators' defaults must beat the paper's conscious design
with the information rule (1/64 nats, oracle parameters) on every data set of its tables. All
training rows, pools of 256 halves, 500 trainings per cell. The result goes to
benchmarks/results/equal_success.json; rows of data sets that are not named are kept.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from pacprivacy.experiments.design_data import NAMES
from pacprivacy.experiments.design_equal import equal_row

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
    """Measure, print and store after every data set."""
    rows: dict[str, Any] = {}
    if len(sys.argv) > 1 and RESULTS.is_file():
        rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    for dataset in sys.argv[1:] or NAMES:
        rows[dataset] = measure(dataset)
        print(json.dumps(rows[dataset]), flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        ordered = {name: rows[name] for name in NAMES if name in rows}
        RESULTS.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row["beats_conscious"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
