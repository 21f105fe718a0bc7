"""Anisotropic noise for a million outputs: peak memory, and time against one Gram product.

Usage: python benchmarks/scale/waterfill_tall.py [dimension] [n_subsets]

The m x m Gram product of the outputs and the calibration run alternately in one process; the
medians are compared. Peak memory is that of the whole process, the outputs included.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pacprivacy.budget import Information
from pacprivacy.noise import calibrate

RESULTS = Path(__file__).parents[1] / "results" / "scale_waterfill_tall.json"
LARGEST_GB = 4.0
LARGEST_RATIO = 3.0
N_RUNS = 3


def peak_gb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e9 / 1024)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    dimension = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    n_subsets = int(sys.argv[2]) if len(sys.argv) > 2 else 256
    outputs = np.empty((n_subsets, dimension))
    rng = np.random.default_rng(0)
    for row in outputs:
        rng.standard_normal(out=row)
    small = outputs[:, : 8 * n_subsets].copy()  # warm up the libraries
    small @ small.T
    calibrate(small, Information(0.25), rule="waterfill")
    gram, found = [], []
    for _ in range(N_RUNS):
        gram.append(seconds(lambda: outputs @ outputs.T))
        found.append(seconds(lambda: calibrate(outputs, Information(0.25), rule="waterfill")))
    ratio = statistics.median(found) / statistics.median(gram)
    peak = peak_gb()
    met = ratio <= LARGEST_RATIO and peak <= LARGEST_GB
    print(f"outputs {n_subsets} x {dimension}: {outputs.nbytes / 1e9:.2f} GB")
    print(
        f"Gram product {statistics.median(gram):.2f} s, waterfill {statistics.median(found):.2f} s"
    )
    print(f"ratio {ratio:.2f} (at most {LARGEST_RATIO:.0f})")
    print(f"peak memory {peak:.2f} GB (at most {LARGEST_GB:.0f})")
    content = {
        "dimension": dimension,
        "n_subsets": n_subsets,
        "gram_seconds": gram,
        "waterfill_seconds": found,
        "ratio": ratio,
        "required_ratio": LARGEST_RATIO,
        "peak_gb": peak,
        "required_gb": LARGEST_GB,
        "met": met,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    print(f"requirements: {'met' if met else 'NOT met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
