"""Least noise for a true budget beside the least that the Gaussian bound certifies.

Usage: python benchmarks/noise/residual_exact.py

For every example pool: total noise of `waterfill` and of `exact`, how many times less the second
is, its true information over the budget (by simulation), and the certified upper end over the
budget. Asked: 1.15 and 1.4 times less on votes at 0.75 and 0.9 of their entropy, none at their
entropy. The result goes to benchmarks/results/residual_exact.json.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import pacprivacy as pac
from pacprivacy.adversary import exact_information
from pacprivacy.noise import calibrate
from papers.residual.equilibrium import free_budget
from papers.residual.examples import EXAMPLES, example_outputs

BUDGETS = (1 / 16, 1 / 4, 1.0, 2.0)
SHARES = (0.5, 0.75, 0.9, 1.0)
N_SUBSETS = 256
RESULT = Path(__file__).resolve().parents[1] / "results" / "residual_exact.json"


def measure(name: str, budget: float) -> dict[str, object]:
    """Return the figures of one pool at one budget."""
    outputs = example_outputs(name, n_subsets=N_SUBSETS)
    started = time.process_time()
    exact = calibrate(outputs, pac.Information(budget), rule="exact", rng=0)
    seconds = time.process_time() - started
    gaussian = calibrate(outputs, pac.Information(budget), rule="waterfill")
    row: dict[str, object] = {
        "shape": name,
        "budget_nats": round(budget, 6),
        "share_of_entropy": round(budget / free_budget(outputs), 4),
        "waterfill": gaussian.total_variance,
        "exact": exact.total_variance,
        "cpu_seconds": round(seconds, 1),
    }
    if exact.is_noiseless:
        return row | {"noiseless": True}
    true_mi = exact_information(exact.view(outputs), n_draws=2_000_000, gamma=1e-3, rng=1)
    return row | {
        "ratio": gaussian.total_variance / exact.total_variance,
        "true_mi_over_budget": true_mi.value / budget,
        "true_mi_interval": [true_mi.lower / budget, true_mi.upper / budget],
        "certified_over_budget": exact.mi_upper / budget,
        "log_det_over_budget": exact.log_det_nats / budget,
    }


def main(only: list[str]) -> None:
    """Measure the pools named, or all, and store the figures."""
    rows = []
    for name in only or EXAMPLES:
        budgets = set(BUDGETS)
        if "votes" in name:
            entropy = free_budget(example_outputs(name, n_subsets=N_SUBSETS))
            budgets = {b for b in budgets if b < entropy} | {s * entropy for s in SHARES}
        if name == "two signs":
            budgets = (budgets - {2.0}) | {1.2, math.log(4)}
        for budget in sorted(budgets):
            rows.append(measure(name, budget))
            print(json.dumps(rows[-1]), flush=True)
    if not only:
        content = {"n_subsets": N_SUBSETS, "rows": rows}
        RESULT.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
