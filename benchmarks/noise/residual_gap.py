"""How much of the Gaussianity gap each lower bound recovers, on pools of several shapes.

Run: python benchmarks/noise/residual_gap.py
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pacprivacy as pac
from pacprivacy.noise import calibrate
from pacprivacy.residual import exact_gap, sliced_gap, variational_gap
from papers.residual.examples import example_outputs

N_HELD_OUT = 1_000_000
N_SUBSETS = 256
LABELS = math.log(4)
SKEWED = -sum(p * math.log(p) for p in (0.7, 0.15, 0.1, 0.05))
BUDGETS = {
    "gaussian": (0.25, 1.0, 2.0),
    "bimodal": (0.25, 1.0, 1.5, 2.0),
    "heavy tail": (0.25, 1.0, 2.0),
    "votes": tuple(share * LABELS for share in (0.25, 0.5, 0.75, 0.9)),
    "skewed votes": tuple(share * SKEWED for share in (0.25, 0.5, 0.75, 0.9)),
    "rank deficient": (0.25, 1.0, 2.0),
    "k-means": (0.25, 1.0, 2.0),
}


def measure(name: str, budget: float) -> dict[str, object]:
    """Return all three figures of one pool under the noise of `waterfill`."""
    outputs = example_outputs(name, n_subsets=N_SUBSETS)
    plan = calibrate(outputs, pac.Information(budget), rule="waterfill")
    started = time.process_time()
    exact = exact_gap(outputs, plan, n_draws=400_000, rng=0)
    sliced = sliced_gap(outputs, plan, rng=0)
    critic = variational_gap(outputs, plan, n_draws=N_HELD_OUT, rng=0)
    return {
        "shape": name,
        "budget_nats": round(budget, 6),
        "true_mi_nats": plan.log_det_nats - exact.value,
        "exact_gap": exact.value,
        "exact_lower": exact.lower,
        "exact_upper": exact.upper,
        "sliced_lower": sliced.lower,
        "critic_value": critic.value,
        "critic_lower": critic.lower,
        "critic_share": critic.lower / exact.value if exact.value > 0 else None,
        "confidence": f"1 - {1 - critic.confidence:.0e}",
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    rows = []
    for name, budgets in BUDGETS.items():
        for budget in budgets:
            rows.append(measure(name, budget))
            print(json.dumps(rows[-1]), flush=True)
    content = {
        "what": "lower bounds of the Gaussianity gap beside the exact one, noise of waterfill",
        "n_subsets": N_SUBSETS,
        "held_out_draws": N_HELD_OUT,
        "rows": rows,
    }
    target = Path(__file__).parents[1] / "results" / "residual_gap.json"
    target.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
