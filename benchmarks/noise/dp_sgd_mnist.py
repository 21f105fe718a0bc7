"""DP-SGD on MNIST 0-vs-7 with noise from the operating system: accuracy, ε, time.

Usage: python benchmarks/noise/dp_sgd_mnist.py [n_runs] [results.json]

All 784 pixels and a constant; 100 steps on Poisson batches of 600 of about 12000 images, clipping
norm 1, at (1, 1e-5). Accuracy on the test split must be at least 0.98 in every run, and the stated
ε that of dp-accounting's privacy-loss distribution. The result goes to
benchmarks/results/dp_sgd_mnist.json.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from threadpoolctl import threadpool_limits

from pacprivacy.dp import Logistic, PoissonBatch, Steps, dp_sgd
from papers.datasets import load_mnist

N_RUNS, REQUIRED = 10, 0.98
EPSILON, DELTA = 1.0, 1e-5
BATCH = PoissonBatch(size=600, n_public=12_000)
STEPS = Steps(n_steps=100, learning_rate=1.0, clip_norm=1.0)
RESULTS = Path(__file__).resolve().parents[1] / "results" / "dp_sgd_mnist.json"


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows with a constant, and labels, of the two digits."""
    data = load_mnist()
    parts = []
    for images, labels in ((data.X, data.y), (data.X_test, data.y_test)):
        chosen = np.isin(labels, (0, 7))
        rows = images[chosen].reshape(-1, 784) / 255.0
        parts += [np.column_stack([rows, np.ones(len(rows))]), labels[chosen]]
    return tuple(parts)


def main() -> int:
    """Train, compare, print and store."""
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else N_RUNS
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS
    X, y, X_test, y_test = load()
    scores, seconds = [], []
    with threadpool_limits(limits=1):
        for _ in range(n_runs):
            begin = time.perf_counter()
            release = dp_sgd(
                X,
                y,
                loss=Logistic(classes=(0, 7)),
                epsilon=EPSILON,
                delta=DELTA,
                x_bound=10.0,
                batch=BATCH,
                steps=STEPS,
            )
            seconds.append(time.perf_counter() - begin)
            scores.append(float(np.mean(np.where(X_test @ release.value > 0, 7, 0) == y_test)))
    figures = release.certificate.accounting
    event = dp_accounting.PoissonSampledDpEvent(
        BATCH.rate, dp_accounting.GaussianDpEvent(figures["noise multiplier"])
    )
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    theirs = PLDAccountant(relation).compose(event, STEPS.n_steps).get_epsilon(DELTA)
    met = min(scores) >= REQUIRED and abs(figures["epsilon"] - theirs) < 1e-6
    result = {
        "benchmark": "DP-SGD on MNIST 0-vs-7, real noise",
        "epsilon": EPSILON,
        "delta": DELTA,
        "neighbours": release.certificate.neighbours,
        "n_runs": n_runs,
        "accuracy_mean": float(np.mean(scores)),
        "accuracy_least": min(scores),
        "required": REQUIRED,
        "noise_multiplier": figures["noise multiplier"],
        "epsilon_stated": figures["epsilon"],
        "epsilon_of_dp_accounting": theirs,
        "seconds_first_run": seconds[0],
        "seconds_later_runs": float(np.mean(seconds[1:])) if n_runs > 1 else None,
        "met": met,
        "threads": 1,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
