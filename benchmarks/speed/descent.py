"""A hundred trainings of private descent on MNIST 0-vs-7 at once, against one after another.

Usage: python benchmarks/speed/descent.py [results.json]

One after another is the papers' protocol as it is written: at every step a fresh subset for each
coordinate is drawn, its mean gradient computed, and Gaussian noise added. At once, a subset's
mean is a normal variable of the same, exactly known mean and variance. For comparison the batched
arithmetic is timed with one trial at a time too. All on one thread; a few trials are timed and
scaled to a hundred.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from pacprivacy.design.descent import subset_gradient_variance
from pacprivacy.design.ridge import noise_ratio
from papers.design.data import BinarySplit, load_binary
from papers.design.descent import N_STEPS, choose_steps, train_fresh

N_TRIALS, N_TIMED, LEAST_RATIO, BUDGET = 100, 4, 20.0, 1 / 4
RESULTS = Path(__file__).resolve().parents[1] / "results" / "descent.json"


def one_training(
    split: BinarySplit, steps: np.ndarray, ratio: float, rng: np.random.Generator
) -> np.ndarray:
    """Train once by the protocol as it is written, in single precision like the batch."""
    X, y = split.X.astype(np.float32), split.y.astype(np.float32)
    n, d = X.shape
    weights = np.zeros(d, dtype=np.float32)
    share = float(subset_gradient_variance(1.0, n))
    for _ in range(N_STEPS):
        slopes = -y / (1.0 + np.exp(y * (X @ weights)))
        gradients = X * slopes[:, None]
        coins = np.frombuffer(rng.bytes(-(-n * d // 8)), dtype=np.uint8)
        inside = np.unpackbits(coins, count=n * d).reshape(n, d)
        means = np.einsum("ij,ij->j", inside, gradients) / inside.sum(axis=0, dtype=np.int64)
        noise_std = np.sqrt(ratio * share * gradients.var(axis=0, ddof=1))
        released = means + noise_std * rng.standard_normal(d, dtype=np.float32)
        weights = weights - steps * (released + split.objective.penalty * weights)
    return weights


def main() -> int:
    split = load_binary("mnist_0v7")
    steps = choose_steps(split, "oracle", mi_nats=BUDGET, mode="conscious")
    ratio = float(noise_ratio(BUDGET, n_dimensions=split.X.shape[1], n_steps=N_STEPS))
    ratios, rng = np.full(N_STEPS, ratio), np.random.default_rng(0)

    def batch(n_trials: int) -> tuple[float, np.ndarray]:
        started = time.perf_counter()
        weights = train_fresh(
            split.X, split.y, split.objective, steps, ratios, n_trials=n_trials, rng=rng
        )
        return time.perf_counter() - started, weights

    with threadpool_limits(limits=1):
        batched_s, weights = min((batch(N_TRIALS) for _ in range(3)), key=lambda pair: pair[0])
        single_s = sum(batch(1)[0] for _ in range(N_TIMED)) * N_TRIALS / N_TIMED
        started = time.perf_counter()
        drawn = np.array([one_training(split, steps, ratio, rng) for _ in range(N_TIMED)])
        drawn_s = (time.perf_counter() - started) * N_TRIALS / N_TIMED
    result = {
        "benchmark": "descent: 100 trainings at once against one after another",
        "n_records": len(split.y),
        "n_coordinates": split.X.shape[1],
        "n_steps": N_STEPS,
        "n_trials": N_TRIALS,
        "at_once_s": batched_s,
        "one_after_another_s": drawn_s,
        "one_at_a_time_same_arithmetic_s": single_s,
        "ratio": drawn_s / batched_s,
        "ratio_same_arithmetic": single_s / batched_s,
        "least_ratio": LEAST_RATIO,
        "accuracy_at_once": float(split.accuracies(weights).mean()),
        "accuracy_one_after_another": float(split.accuracies(drawn).mean()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "threads": 1,
    }
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0 if result["ratio"] >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
