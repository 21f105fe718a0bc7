"""Time of ``import pacprivacy``, beside that of numpy and of the parts of SciPy it puts off.

Usage: python benchmarks/speed/import_time.py [results.json]

Every import is timed in a fresh interpreter, in turn, and the least of several is kept; the time
of an interpreter that imports nothing is taken off. Ratios are comparable on a busy machine,
seconds are not.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

MOST_SECONDS, MOST_TIMES_NUMPY, N_TIMINGS = 0.5, 2.0, 9
STATEMENTS = {
    "nothing": "pass",
    "numpy": "import numpy",
    "numpy and scipy": "import numpy, scipy.linalg, scipy.optimize, scipy.spatial, scipy.special",
    "scikit-learn": "import sklearn.base, sklearn.linear_model",
    "pacprivacy": "import pacprivacy",
    "the command pac": "import pacprivacy.cli.console",
}
RESULTS = Path(__file__).resolve().parents[1] / "results" / "import_time.json"


def seconds(statement: str) -> float:
    started = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    return time.perf_counter() - started


def main() -> int:
    found = {name: [] for name in STATEMENTS}
    for _ in range(N_TIMINGS):
        for name, statement in STATEMENTS.items():
            found[name].append(seconds(statement))
    empty = min(found.pop("nothing"))
    least = {name: min(times) - empty for name, times in found.items()}
    ratio = least["pacprivacy"] / least["numpy and scipy"]
    times_numpy = least["pacprivacy"] / least["numpy"]
    for name, value in least.items():
        print(f"{name:18} {value:.3f} s")
    print(f"pacprivacy against numpy and scipy: {ratio:.2f}")
    print(f"pacprivacy against numpy alone: {times_numpy:.2f}")
    enough = least["pacprivacy"] <= MOST_SECONDS and times_numpy <= MOST_TIMES_NUMPY
    record = {
        "seconds": least,
        "ratio_to_numpy_and_scipy": ratio,
        "ratio_to_numpy": times_numpy,
        "required_seconds": MOST_SECONDS,
        "required_ratio_to_numpy": MOST_TIMES_NUMPY,
        "passed": enough,
        "python": platform.python_version(),
    }
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0 if enough else 1


if __name__ == "__main__":
    raise SystemExit(main())
