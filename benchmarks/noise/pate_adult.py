"""A PATE student on Adult beside the same model without privacy.

Usage: python benchmarks/noise/pate_adult.py [n_runs] [results.json]

250 teachers share the 32 561 training records. Half of the test split stands for public people
whose incomes nobody knows: its features are the questions. The other half measures accuracy.
The student must be within 3 points of the model that is trained on all records at epsilon <= 5.
About a minute on one core. The result goes to benchmarks/results/pate_adult.json.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from pacprivacy.dp import count_pate_votes, label_by_votes
from pacprivacy.dp.noise import dp_noise_source
from papers.datasets import load_adult

N_RUNS, N_TEACHERS, DELTA, WITHIN = 8, 250, 1e-5, 0.03
EPSILONS = (0.5, 1.0, 2.0, 5.0)
N_QUESTIONS = {0.5: 200, 1.0: 400, 2.0: 800, 5.0: 1600}
RESULTS = Path(__file__).resolve().parents[1] / "results" / "pate_adult.json"
# Constants of the form, not of these records: all scaled columns are within about [0, 1].
SCALES = {"age": 90.0, "education-num": 16.0, "hours-per-week": 99.0}
LOGARITHMS = {"capital-gain": 12.0, "capital-loss": 12.0}


def encode(
    rows: np.ndarray, names: tuple[str, ...], levels: dict[str, tuple[str, ...]]
) -> np.ndarray:
    """Return one column per category and scaled numbers, without the survey weight."""
    columns = []
    for j, name in enumerate(names):
        if name in levels:
            columns.append(np.eye(len(levels[name]))[rows[:, j].astype(int)])
        elif name in LOGARITHMS:
            columns.append(np.log1p(rows[:, [j]]) / LOGARITHMS[name])
        elif name in SCALES:
            columns.append(rows[:, [j]] / SCALES[name])
    return np.concatenate(columns, axis=1)


def main() -> int:
    """Train, label, teach, print and store."""
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else N_RUNS
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS
    started = time.perf_counter()
    with threadpool_limits(limits=1):
        result = measure(n_runs)
    result |= {
        "seconds": time.perf_counter() - started,
        "threads": 1,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0 if result["students"][-1]["behind"] <= WITHIN else 1


def measure(n_runs: int) -> dict[str, Any]:
    """Return accuracies with and without privacy."""
    adult = load_adult()
    levels = dict(adult.categories)
    X, others = (encode(rows, adult.feature_names, levels) for rows in (adult.X, adult.X_test))
    y, y_others = np.asarray(adult.y), np.asarray(adult.y_test)
    model = LogisticRegression(C=1.0, max_iter=300)
    runs: dict[float, list[tuple[float, float, float]]] = {e: [] for e in EPSILONS}
    plain = []
    for run in range(n_runs):
        order = np.random.default_rng(run).permutation(len(others))
        public, held_out = np.array_split(order, 2)
        plain.append(model.fit(X, y).score(others[held_out], y_others[held_out]))
        votes = count_pate_votes(
            model, X, y, others[public[: max(N_QUESTIONS.values())]], classes=(0, 1),
            n_teachers=N_TEACHERS, neighbours="add_remove", source=dp_noise_source(run),
        )  # fmt: skip
        for epsilon in EPSILONS:
            asked = votes[: N_QUESTIONS[epsilon]]
            release = label_by_votes(
                asked, epsilon=epsilon, delta=DELTA, neighbours="add_remove", simulate=run
            )
            student = LogisticRegression(C=1.0, max_iter=300)
            student.fit(others[public[: len(asked)]], release.value)
            runs[epsilon].append(
                (
                    student.score(others[held_out], y_others[held_out]),
                    float(np.mean(release.value == np.argmax(asked, axis=1))),
                    release.certificate.noise["std of votes"],
                )
            )
    students = []
    for epsilon, rows in runs.items():
        accuracy, agreement, std = np.mean(rows, axis=0)
        students.append(
            {
                "epsilon": epsilon,
                "delta": DELTA,
                "n_questions": N_QUESTIONS[epsilon],
                "accuracy": accuracy,
                "accuracy_std": float(np.std([row[0] for row in rows])),
                "behind": float(np.mean(plain) - accuracy),
                "labels_as_without_noise": agreement,
                "noise_std_of_votes": std,
            }
        )
    return {
        "benchmark": "PATE student on Adult, logistic regression, 250 teachers, add_remove",
        "n_runs": n_runs,
        "accuracy_without_privacy": float(np.mean(plain)),
        "students": students,
        "required_behind_at_most": WITHIN,
        "required_epsilon_at_most": 5.0,
    }


if __name__ == "__main__":
    sys.exit(main())
