"""All 1024 × 11 ridge fits on white wine at once, against a Python loop over the subsets.

Usage: python benchmarks/speed/ridge.py [results.json]

Both compute the same coefficients on the same subsets, in the same run, on one thread. The loop
fits scikit-learn's Ridge on the rows of every subset, one coordinate at a time. A second loop,
without scikit-learn and its checks, is timed too.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from pacprivacy.design import OrthogonalRidge, RidgePenalty
from pacprivacy.mechanism import coerce_data
from pacprivacy.sample import Poisson
from papers.datasets import load_wine_white

N_SUBSETS, LEAST_RATIO, N_TIMINGS = 1024, 50.0, 5
RESULTS = Path(__file__).resolve().parents[1] / "results" / "ridge.json"


def best_time(function: Callable[[], Any], n_timings: int) -> tuple[float, Any]:
    seconds, result = [], None
    for _ in range(n_timings):
        started = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - started)
    return min(seconds), result


def main() -> int:
    wine = load_wine_white()
    data = coerce_data((wine.X, wine.y))
    mechanism = OrthogonalRidge(penalty=RidgePenalty(mi_nats=1 / 16)).prepare(data)
    pool = Poisson(n_subsets=N_SUBSETS).draw(wine.n_records, rng=0)
    frame = mechanism.frame
    assert frame is not None
    Z, target = frame.coordinates(data.parts, mechanism.name)
    rows = [pool.rows(k) for k in range(N_SUBSETS)]

    def loop_sklearn() -> np.ndarray:
        fitted = np.empty((N_SUBSETS, Z.shape[1]))
        for k, chosen in enumerate(rows):
            X, y = Z[chosen], target[chosen]
            for j, penalty in enumerate(frame.penalty):
                model = Ridge(alpha=penalty, fit_intercept=False).fit(X[:, j : j + 1], y)
                fitted[k, j] = model.coef_[0]
        return fitted

    def loop_numpy() -> np.ndarray:
        fitted = np.empty((N_SUBSETS, Z.shape[1]))
        for k, chosen in enumerate(rows):
            y = target[chosen]
            for j, penalty in enumerate(frame.penalty):
                x = Z[chosen, j]
                fitted[k, j] = x @ y / (x @ x + penalty)
        return fitted

    with threadpool_limits(limits=1):
        batched_s, batched = best_time(lambda: mechanism.batch(data, pool), N_TIMINGS)
        plain_s, plain = best_time(loop_numpy, 2)
        loop_s, looped = best_time(loop_sklearn, 1)
    off = max(float(np.abs(batched - other).max()) for other in (looped, plain))
    result = {
        "benchmark": "ridge: all subsets at once against a Python loop over subsets",
        "n_subsets": N_SUBSETS,
        "n_coordinates": Z.shape[1],
        "n_records": len(Z),
        "batched_s": batched_s,
        "loop_sklearn_s": loop_s,
        "loop_numpy_s": plain_s,
        "ratio": loop_s / batched_s,
        "ratio_to_numpy_loop": plain_s / batched_s,
        "least_ratio": LEAST_RATIO,
        "largest_difference": off,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "threads": 1,
    }
    target_file = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target_file.parent.mkdir(parents=True, exist_ok=True)
    target_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0 if result["ratio"] >= LEAST_RATIO and off < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
