"""Private answers per second: 128 candidates, two classes, one core.

Usage: python benchmarks/speed/predictor.py [results.json] [--whole]

*Answering* is everything that privacy adds: noise from the operating system, belief, charge. It
is timed on Adult (models mostly agree) and on votes that never agree; what the models' own votes
cost is timed apart. 10^5 answers at 2^-20 nats are judged by their accuracy. With ``--whole`` a
``PrivatePredictor`` of 128 boosted models answers 10^5 queries, their predictions included; the
models are trained on a tenth of Adult, which changes nothing in what an answer costs.
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
from threadpoolctl import threadpool_limits

from pacprivacy._random import SystemSource
from pacprivacy.budget import Information
from pacprivacy.estimators import PrivatePredictor
from pacprivacy.sample import Pool
from pacprivacy.session.responder import Responder
from papers.responses.models import load_answers, make_booster, split_dataset
from papers.responses.transcripts import measure_responses

N_QUERIES, BUDGET, LEAST_RATE, WITHIN = 100_000, 2.0**-20, 5000.0, 0.005
RESULTS = Path(__file__).resolve().parents[1] / "results" / "predictor.json"


def time_answers(pool: Pool, table: Any, *, n_classes: int = 2) -> float:
    """Return answers per second, noise from the operating system."""
    responder = Responder(pool, query_nats=BUDGET, total_nats=1.0, source=SystemSource())
    started = time.perf_counter()
    if table.ndim == 3:
        responder.reply_scores(table)
    else:
        responder.reply_votes(table, n_classes=n_classes)
    return float(table.shape[1] / (time.perf_counter() - started))


def time_models(n_models: int = 2) -> float:
    """Return questions per second of processor time that 128 boosted models answer by themselves.

    One thread and processor time, from a few of the models: it is no part of what privacy costs.
    """
    X, X_test, y, _, coded = split_dataset("adult")
    with threadpool_limits(limits=1):
        models = [make_booster(coded).fit(X[k::2], y[k::2]) for k in range(n_models)]
        started = time.process_time()
        for model in models:
            model.predict(X_test)
        spent = time.process_time() - started
    return float(len(X_test) / (spent / n_models * 128))


def time_whole() -> dict[str, float]:
    """Train a predictor and time its answers, the models' predictions included."""
    X, X_test, y, y_test, coded = split_dataset("adult")
    model = PrivatePredictor(
        make_booster(coded),
        n_subsets=128,
        query_budget=Information(BUDGET),
        budget=Information(0.1),
        n_jobs=2,
    )
    started = time.perf_counter()
    model.fit(X[::10], y[::10])
    fitted = time.perf_counter()
    order = np.random.default_rng(0).integers(len(y_test), size=N_QUERIES)
    model.predict(X_test[order])
    done = time.perf_counter()
    return {"whole_fit_s": fitted - started, "whole_per_second": N_QUERIES / (done - fitted)}


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
        "models_alone_per_cpu_second": time_models(),
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
