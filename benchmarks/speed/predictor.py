"""Private answers per second: 128 candidates, two classes, one core.

Usage: python benchmarks/speed/predictor.py [results.json] [--whole]

*Answering* is everything that privacy adds: noise from the operating system, belief, charge; the
models' own votes are there. It is timed on Adult (models mostly agree) and on votes that
never agree. 10^5 answers at 2^-20 nats are judged by their accuracy. With ``--whole`` a
``PrivatePredictor`` is trained and its ``predict`` is timed, 128 boosted models included.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._random import SystemSource
from pacprivacy.accounting.responder import Responder
from pacprivacy.budget import Information
from pacprivacy.estimators import PrivatePredictor
from pacprivacy.experiments.responses import measure_responses
from pacprivacy.experiments.responses_models import load_answers, make_booster, split_dataset
from pacprivacy.pool import Balanced, Pool

N_QUERIES, BUDGET, LEAST_RATE, WITHIN = 100_000, 2.0**-20, 5000.0, 0.005
RESULTS = Path(__file__).resolve().parents[1] / "results" / "predictor.json"


def time_answers(pool: Pool, table: Any, *, n_classes: int = 2) -> float:
    """Return answers per second, noise from the operating system."""
    responder = Responder(pool, query_nats=BUDGET, total_nats=1.0, source=SystemSource())
    started = time.perf_counter()
    if table.ndim == 3:
        responder.answer_scores(table)
    else:
        responder.answer_votes(table, n_classes=n_classes)
    return float(table.shape[1] / (time.perf_counter() - started))


def time_whole() -> dict[str, float]:
    """Train a predictor on Adult and time its answers, the models' predictions included."""
    X, X_test, y, y_test, coded = split_dataset("adult")
    model = PrivatePredictor(
        make_booster(coded),
        n_subsets=128,
        query_budget=Information(BUDGET),
        budget=Information(0.1),
        pool=Balanced(n_subsets=128, independent=True),
        n_jobs=2,
        random_state=0,
    )
    started = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    hits = model.predict(X_test) == y_test
    done = time.perf_counter()
    return {
        "fit_s": fitted - started,
        "whole_per_second": len(y_test) / (done - fitted),
        "whole_accuracy": float(hits.mean()),
    }


def main() -> int:
    arguments = [word for word in sys.argv[1:] if not word.startswith("--")]
    answers = load_answers("adult", n_jobs=2)
    rng = np.random.default_rng(0)
    order = rng.integers(len(answers.truth), size=N_QUERIES)
    split_votes = rng.integers(2, size=(answers.pool.n_subsets, N_QUERIES)).astype(np.int8)
    ones = answers.scores[:, order[:5000]]
    (row,) = measure_responses(
        "adult",
        "one_hot",
        (20,),
        n_transcripts=20,
        n_queries=N_QUERIES,
        seed=1,
        answers=answers,
    )
    published = row.published_gap
    result: dict[str, Any] = {
        "benchmark": "answers per second, 128 candidates, two classes",
        "one_hot_per_second": time_answers(answers.pool, answers.labels[:, order]),
        "one_hot_never_unanimous_per_second": time_answers(answers.pool, split_votes),
        "ten_classes_per_second": time_answers(
            answers.pool, rng.integers(10, size=(128, 5000)), n_classes=10
        ),
        "score_per_second": time_answers(answers.pool, np.stack([1 - ones, ones], axis=2)),
        "least_per_second": LEAST_RATE,
        "n_queries": N_QUERIES,
        "b_nats": BUDGET,
        "accuracy": row.accuracy,
        "standard_error": row.standard_error,
        "nonprivate": row.nonprivate,
        "gap": row.gap,
        "published_gap": published,
        "gap_difference_at_most": WITHIN,
        "free_share": row.free_share,
        "spent_nats": row.spent_nats,
        "success_bound": row.success,
        "counted_in_full_nats": row.counted_nats,
        "counted_in_full_success_bound": row.counted_success,
        "mean_success_of_the_optimal_attacker": row.attacker,
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if "--whole" in sys.argv:
        result |= time_whole()
    target = Path(arguments[0]) if arguments else RESULTS
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    slow = min(result["one_hot_per_second"], result["one_hot_never_unanimous_per_second"])
    near = published is None or abs(row.gap - published) <= WITHIN
    return 0 if slow >= LEAST_RATE and near else 1


if __name__ == "__main__":
    sys.exit(main())
