"""Descent with coins: accuracy on test rows, by default and with settings tuned on public rows.

Usage: python benchmarks/learning.py [--tuned] [table ...]

Radii, rates and steps that are tried by default were chosen by looking at the tables that say
"looked_at" in the results; the default of credit card clients and the digits of scikit-learn were
not looked at. Breast cancer and digits are split anew, and have no "DP-GD".

Stores benchmarks/results/learning.json, one entry a table. Rows are split as in the fight; features
are as the fight has them, in deviations of its tuning rows, and the release scales them again from
its own rows. Releases are simulated. "DP-GD" is copied from the stored fight: its best setting, at
the same tight advantage.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "versus"))

from contenders.scattering import load_scattering
from contenders.tables import Split, load
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import pacprivacy as pac

RESULTS = Path(__file__).parent / "results"
CELLS = {
    "rice": "logistic-rice",
    "bank": "logistic-bank",
    "adult": "logistic-adult",
    "dry_bean": "classifier-dry-bean",
    "mnist": "probe-mnist",
    "bank_5000": None,
    "breast_cancer": None,
    "credit_default": None,
    "digits": None,
}
NOT_LOOKED_AT = ("credit_default", "digits")
N_RELEASES = 4
TUNED = [{"radius": radius, "rate": rate} for radius in (1.0, 2.0, 4.0) for rate in (2.0, 8.0)]


def read(name: str) -> Split:
    """Return the rows of one table."""
    if name == "mnist":
        return load_scattering(most=None)
    if name == "bank_5000":
        return load("bank", most=5000)
    if name not in ("breast_cancer", "digits"):
        return load(name)
    reader, n_train = (load_digits, 1200) if name == "digits" else (load_breast_cancer, 400)
    X, y = reader(return_X_y=True)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    order = np.random.default_rng(0).permutation(len(X))
    train, tuning, test = np.split(order, [n_train, n_train + 10])
    parts = {"": train, "_tuning": tuning, "_test": test}
    return Split(
        **{f"X{key}": X[rows] for key, rows in parts.items()},
        **{f"y{key}": y[rows] for key, rows in parts.items()},
    )


def accuracy(value: dict[str, Any], X: Any, y: Any) -> float:
    """Return the share of rows whose class a released model names."""
    scores = np.clip(X, value["lower"], value["upper"]) @ value["coef"].T + value["intercept"]
    chosen = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
    return float(np.mean(np.asarray(value["classes"])[chosen] == y))


def releases(split: Split, success: float, n: int, **settings: Any) -> tuple[list[Any], float]:
    """Return released values and CPU seconds of one release."""
    began, values = time.process_time(), []
    for seed in range(n):
        release = pac.privatize(
            pac.Descent(loss="logistic", **settings),
            (split.X, split.y),
            pac.Membership(success),
            sample=pac.Coins(),
            simulate=True,
            rng=seed,
        )
        values.append(release.value)
    return values, (time.process_time() - began) / n


def measure(name: str, tuned: bool) -> dict[str, Any]:
    """Return the figures of one table."""
    split = read(name)
    began = time.process_time()
    public = LogisticRegression(max_iter=1000).fit(split.X, split.y)
    seconds = time.process_time() - began
    found: dict[str, Any] = {
        "n": len(split.X),
        "looked_at": name not in NOT_LOOKED_AT,
        "without_privacy": float(public.score(split.X_test, split.y_test)),
        "scikit_learn_cpu_seconds": round(seconds, 2),
    }
    cell = CELLS[name]
    if cell is not None:
        rows = json.loads((RESULTS / "versus" / f"{cell}.json").read_text(encoding="utf-8"))["rows"]
        found["dp_at_0.588"] = next(
            max(each["score"] for each in row["dp"]) for row in rows if row["advantage"] == 0.176
        )
    for success in (0.588, 0.6):
        values, spent = releases(split, success, 2 if name == "mnist" else N_RELEASES)
        scores = [accuracy(value, split.X_test, split.y_test) for value in values]
        found[f"default_at_{success}"] = summary(scores)
        found["default_cpu_seconds"] = round(spent, 2)
    if tuned:
        n = 1 if name == "mnist" else 3
        trials = [(releases(split, 0.588, n, **each)[0], each) for each in TUNED]
        values, setting = max(
            trials,
            key=lambda trial: np.mean(
                [accuracy(value, split.X_tuning, split.y_tuning) for value in trial[0]]
            ),
        )
        values = releases(split, 0.588, n + 2, **setting)[0][n:] + values
        scores = [accuracy(value, split.X_test, split.y_test) for value in values]
        found["tuned_at_0.588"] = {**summary(scores), "setting": setting, "n_settings": len(TUNED)}
    return found


def summary(scores: list[float]) -> dict[str, float]:
    """Return mean and deviation of scores."""
    return {"accuracy": round(float(np.mean(scores)), 5), "std": round(float(np.std(scores)), 5)}


def main(words: list[str]) -> None:
    """Measure the tables that are named, or all."""
    path = RESULTS / "learning.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    tuned = "--tuned" in words
    with threadpool_limits(limits=1):
        for name in [word for word in words if not word.startswith("-")] or list(CELLS):
            stored[name] = {**stored.get(name, {}), **measure(name, tuned)}
            print(name, stored[name], flush=True)
            path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
