"""The MNIST experiment of learned noise: classifier, logits, SR-PAC for several budgets.

Usage: python benchmarks/speed/learned.py [--data DIR] [--out FILE] [--against FILE]

Runs on whatever device jax finds; set JAX_PLATFORMS=cpu for the processor, and pin the process
to two cores for the comparison. Everything is done twice: the first pass compiles and is not
timed. ``--data`` holds the four MNIST files; ``--against`` is the result of another device, and
adds the ratio of its times to ours.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parents[1] / "results"
N_TRAIN, N_EPOCHS, N_CANDIDATES = 30_000, 2, 1024
BUDGETS = (0.25, 1.0, 2.0, 4.0)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    return parser.parse_args()


def run(*, timed: bool) -> dict[str, Any]:
    """Train the classifier, then the noise."""
    from pacprivacy.residual import Training, check_learned_noise, learn_noise_curve
    from papers.residual.classifiers import fit_logits

    training = Training(n_steps=200, warm_up=50, batch=1024, hidden=128)
    started = time.perf_counter()
    logits = fit_logits(
        "mnist", n_train=N_TRAIN, n_epochs=N_EPOCHS, n_candidates=N_CANDIDATES, seed=0
    )
    classified = time.perf_counter()
    learned = learn_noise_curve(logits.values, BUDGETS, training=training, rng=0)
    done = time.perf_counter()
    return {
        "classifier_s": classified - started,
        "learning_s": done - classified,
        "total_s": done - started,
        "test_accuracy": logits.test_accuracy,
        "budgets_nats": list(BUDGETS),
        "claimed_nats": [law.claimed_nats for law in learned],
        "true_nats": [
            check_learned_noise(law, n_draws=20_000, rng=1).true_nats.value if timed else None
            for law in learned
        ],
        "noise_variance": [law.total_variance for law in learned],
    }


def main() -> int:
    arguments = read_arguments()
    if arguments.data is not None:
        os.environ["PACPRIVACY_DATA"] = str(arguments.data.resolve())
    import jax

    device = jax.devices()[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    run(timed=False)
    busy = time.process_time()
    found = run(timed=True)
    result = {
        "benchmark": "learned noise on MNIST logits: classifier and SR-PAC, after compiling",
        "device": f"{device.platform}: {device.device_kind}",
        "cores": cores,
        **found,
        "processor_s": time.process_time() - busy,
        "n_train": N_TRAIN,
        "n_epochs": N_EPOCHS,
        "n_candidates": N_CANDIDATES,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    if arguments.against is not None:
        other = json.loads(arguments.against.read_text(encoding="utf-8"))
        result["against"] = {name: other[name] for name in ("device", "cores", "total_s")}
        result["speed_up"] = {
            name: other[name] / result[name] for name in ("classifier_s", "learning_s", "total_s")
        }
    out = arguments.out or RESULTS / f"learned_{device.platform}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
