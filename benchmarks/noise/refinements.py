"""Refinements inside refinements, attacked: how often the best guess of one membership is right.

A session promises 70 %. Its refinement of a mean looks at a figure of merit that refines another
mean of the same secret, and both go on until their budgets are spent. One of the twelve records is
an outlier: it is the worst placed. Secret, pool and noise law are simulated; the attacker knows the
pool and everything that was released, and takes the likelier case by Bayes' rule.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import pacprivacy as pac

OUT = Path(__file__).parents[1] / "results" / "refinements.json"
DATA = np.append(np.random.default_rng(5).normal(size=11), 6.0)
POOL = pac.Balanced(n_subsets=16).draw(len(DATA), rng=0)
PROMISED, INNER = 0.70, 0.62


def never(metric: Any) -> pac.Accuracy:
    """Return a target that is not reached, so that the whole budget is spent."""
    return pac.Accuracy(at_least=1.0, on=(0.0,), metric=metric)


def refine_once(seed: int) -> tuple[Any, Any, float]:
    """Return the belief that each record was used, whether it was, and what was spent."""
    with pac.Session(
        DATA, budget=pac.Membership(PROMISED), sample=POOL, rng=seed, simulate=True
    ) as session:
        inner: list[Any] = []

        def metric(value: Any, _: Any) -> float:
            if not inner:
                inner.append(None)
                nothing = never(lambda value, _: 0.0)
                session.refine(np.mean, pac.Membership(INNER), nothing, levels=2)
            return 0.0

        session.refine(np.mean, pac.Membership(PROMISED - 1e-9), never(metric), levels=2)
        assert session._secret is not None
        used = POOL.masks()[session._secret._index]
        return np.exp(session.belief.log_p) @ POOL.masks(), used, session.spent.success_increment


def skip_reports() -> None:
    """Leave out what certificates tell besides the promise: it has no part in noise or charges."""
    certificate = importlib.import_module("pacprivacy.release.pool_certificate")
    certificate.information_draws = certificate.membership_draws = lambda m: 2048
    certificate.TOLD = ()


def main() -> None:
    """Count hits on every record; the outlier is the last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    skip_reports()
    hits, sure, spent, start = np.zeros(len(DATA)), np.zeros(len(DATA)), 0.0, time.process_time()
    for done, seed in enumerate(range(options.first, options.first + options.runs), start=1):
        belief, used, increment = refine_once(seed)
        hits += (belief > 0.5) == used
        sure += np.maximum(belief, 1 - belief)
        spent += increment
        if done % 50 == 0 or done == options.runs:
            found = {
                "promised": PROMISED,
                "runs": done,
                "hits": hits.astype(int).tolist(),
                "mean_belief": (sure / done).tolist(),
                "mean_increment_spent": spent / done,
                "cpu_seconds": round(time.process_time() - start),
            }
            print(f"{done} runs: {int(hits[-1])} hits, belief {sure[-1] / done:.4f}", flush=True)
            options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
