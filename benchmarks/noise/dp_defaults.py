"""Differential privacy with nothing tuned: the estimators' defaults on Adult, MNIST and housing.

Usage: python benchmarks/noise/dp_defaults.py [n_runs]

Noise from the operating system, δ = 1e-6. Bounds are declared: a norm of 3.2 for Adult's columns in
[0, 1], 10 and 28 for MNIST's pixels in [0, 1] (28 is the most that 784 of them can have), 2.83 for
housing's columns in [-1, 1]. At ε = 1 logistic regression on Adult must reach 0.835, DP-SGD on
MNIST 0.89. The result goes to benchmarks/results/dp_defaults.json.
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
from threadpoolctl import threadpool_limits

from pacprivacy.dp import DPLinearRegression, DPLogisticRegression, DPSGDClassifier
from papers.cs208.data import load_study
from papers.datasets import load_california_housing, load_mnist

EPSILONS = (0.3, 1.0, 8.0)
REQUIRED = {"Adult, logistic": 0.835, "MNIST, SGD, x_bound 10": 0.89}
RESULTS = Path(__file__).resolve().parents[1] / "results" / "dp_defaults.json"
# Least and largest values of housing's columns, known without the data.
HOUSING = np.array(
    [[0, 0, 0, 0, 0, 0, 32, -125], [15, 52, 20, 5, 10_000, 10, 42, -114]], dtype=float
)


def tasks() -> dict[str, Callable[[float], float]]:
    """Return for each task a fit at some ε, and its score on test rows."""
    adult, mnist, houses = load_study("adult"), load_mnist(), load_california_housing()
    images, others = (rows.reshape(len(rows), -1) / 255.0 for rows in (mnist.X, mnist.X_test))
    rows = np.clip(2 * (houses.X - HOUSING[0]) / (HOUSING[1] - HOUSING[0]) - 1, -1, 1)
    order = np.random.default_rng(0).permutation(len(rows))
    train, test = order[5000:], order[:5000]

    def digits(bound: float) -> Callable[[float], float]:
        told: dict[str, Any] = {"x_bound": bound, "classes": range(10), "n_public": 60_000}
        return lambda epsilon: (
            DPSGDClassifier(**told, epsilon=epsilon)
            .fit(images, mnist.y)
            .score(others, mnist.y_test)
        )

    def income(**settings: Any) -> Callable[[float], float]:
        told = {"x_bound": 3.2, "classes": (0, 1), "n_public": 32_000, **settings}
        return lambda epsilon: (
            DPLogisticRegression(**told, epsilon=epsilon)
            .fit(adult.X, adult.y)
            .score(adult.X_test, adult.y_test)
        )

    def prices(method: Any) -> Callable[[float], float]:
        told: dict[str, Any] = {"x_bound": 8**0.5, "y_bound": 5.0, "neighbours": "replace"}
        return lambda epsilon: (
            DPLinearRegression(method, **told, epsilon=epsilon)
            .fit(rows[train], houses.y[train])
            .score(rows[test], houses.y[test])
        )

    return {
        "Adult, logistic": income(),
        "Adult, logistic, descent": income(method="descent"),
        "Adult, logistic, output": income(method="output"),
        "MNIST, SGD, x_bound 10": digits(10.0),
        "MNIST, SGD, x_bound 28": digits(28.0),
        "housing, AdaSSP (R²)": prices("adassp"),
        "housing, statistics (R²)": prices("statistics"),
        "housing, output (R²)": prices("output"),
    }


def main() -> int:
    """Fit, score, print and store."""
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    begin, found = time.perf_counter(), {}
    with threadpool_limits(limits=1):
        for name, fit in tasks().items():
            scores = {str(epsilon): [fit(epsilon) for _ in range(n_runs)] for epsilon in EPSILONS}
            found[name] = {key: [float(np.mean(s)), min(s), max(s)] for key, s in scores.items()}
            print(name, found[name], flush=True)
    met = all(found[name]["1.0"][1] >= least for name, least in REQUIRED.items())
    result = {
        "benchmark": "estimators under differential privacy with their defaults",
        "delta": 1e-6,
        "n_runs": n_runs,
        "scores: mean, least, largest": found,
        "required": REQUIRED,
        "met": met,
        "seconds": time.perf_counter() - begin,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    RESULTS.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
