"""Rice, linear SVM at 1/16 nats: does ``design.tune`` find the C whose release is best?

Usage: python benchmarks/noise/tune_svm.py [results.json] [picture.png]

``tune`` chooses among eight values on the universe alone (accuracy on its own rows). The judge is
another pool, other seeds and the test rows, on a grid three times as fine. Both use the rule
``waterfill``; the noise of the papers' rule is larger. All releases are simulated.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pacprivacy.budget import Information
from pacprivacy.design.tuning import TuneResult, tune, tune_budgets
from pacprivacy.mechanism import LinearSVM
from pacprivacy.sample import Balanced
from papers.alg.protocol import load_split

MI_NATS, N_SUBSETS, N_RELEASES, WITHIN, AHEAD = 1 / 16, 256, 1000, 0.01, 0.10
COARSE = [10.0**power for power in range(-7, 1)]
FINE = [10.0 ** (power / 3) for power in range(-21, 4)]
OTHER_BUDGETS = (1 / 1024, 1 / 128, 1 / 16, 1 / 2)
RESULTS = Path(__file__).resolve().parents[1] / "results" / "tune_svm.json"


def make_svm(C: float) -> LinearSVM:
    return LinearSVM(C=C, classes=(0, 1))


def accuracy_on(X: Any, y: Any) -> Any:
    judge = make_svm(1.0)
    return lambda value: float(np.mean(judge.predict(value, X) == y))


def at(found: TuneResult, C: float) -> float:
    return next(p.utility for p in found.points if np.isclose(p.theta, C))


def main() -> int:
    split = load_split("rice", "power and standard")
    universe = (split.X_train, split.y_train)
    pool = Balanced(n_subsets=N_SUBSETS, stratify=True)
    budget, common = Information(MI_NATS), {"sample": pool, "rule": "waterfill"}
    started = time.perf_counter()
    with threadpool_limits(limits=1):
        curves = tune_budgets(
            make_svm,
            COARSE,
            universe,
            [Information(mi) for mi in OTHER_BUDGETS],
            accuracy_on(*universe),
            n_releases=400,
            rng=0,
            **common,
        )
        tuned = curves[OTHER_BUDGETS.index(MI_NATS)]
        tune_s = time.perf_counter() - started
        judged = tune(
            make_svm,
            FINE,
            universe,
            budget,
            accuracy_on(split.X_test, split.y_test),
            n_releases=N_RELEASES,
            rng=12345,
            **common,
        )
    chosen, plain = at(judged, tuned.best), at(judged, 1.0)
    best = judged.best_point
    result = {
        "benchmark": "design.tune: C of a linear SVM on Rice at 1/16 nats",
        "tuned_C": tuned.best,
        "tuned_accuracy": chosen,
        "best_C_on_fine_grid": best.theta,
        "best_accuracy": best.utility,
        "best_standard_error": best.standard_error,
        "accuracy_at_C_1": plain,
        "behind_best": best.utility - chosen,
        "required_behind_at_most": WITHIN,
        "ahead_of_C_1": chosen - plain,
        "required_ahead_at_least": AHEAD,
        "n_subsets": N_SUBSETS,
        "n_releases": N_RELEASES,
        "tuned_at_other_budgets": {
            str(mi): curve.best for mi, curve in zip(OTHER_BUDGETS, curves, strict=True)
        },
        "curve": [
            {"C": p.theta, "accuracy": p.utility, "no_noise": p.no_noise} for p in judged.points
        ],
        "tune_s": tune_s,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    passed = result["behind_best"] <= WITHIN and result["ahead_of_C_1"] >= AHEAD
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
