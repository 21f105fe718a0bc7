"""Peak memory of the exact adversary: 4096 subsets of a hundred thousand units.

Usage: python benchmarks/scale/adversary_memory.py [n_units] [n_subsets]

Membership risk of every unit, exact information, and a release calibrated for membership; the
peak is that of the whole process.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy.adversary import exact_information, membership_risk
from pacprivacy.budget import Information, Membership
from pacprivacy.noise import calibrate
from pacprivacy.sample import Balanced

RESULTS = Path(__file__).parents[1] / "results" / "scale_adversary_memory.json"
LARGEST_GB = 4.0
DIMENSION = 8


def peak_gb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e9 / 1024)


def main() -> int:
    n_units = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    n_subsets = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    steps = []

    def step(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        taken = time.perf_counter() - start
        steps.append({"step": name, "seconds": round(taken, 1), "peak_gb": round(peak_gb(), 2)})
        print(f"{name:<40}{taken:>8.1f} s   peak {peak_gb():.2f} GB", flush=True)
        return result

    pool = step("draw the pool", lambda: Balanced(n_subsets=n_subsets).draw(n_units, rng=0))
    outputs = np.random.default_rng(0).normal(size=(n_subsets, DIMENSION))
    plan = step(
        "waterfill", lambda: calibrate(outputs, Information(0.5), rule="waterfill", pool=pool)
    )
    risk = step("membership risk", lambda: membership_risk(plan.view(outputs), pool, rng=1))
    step("exact information", lambda: exact_information(plan.view(outputs), rng=1))
    step(
        "noise for membership <= 60 %",
        lambda: calibrate(outputs, Membership(0.6), pool=pool, rng=2),
    )
    peak = peak_gb()
    met = peak <= LARGEST_GB
    print(f"worst unit {risk.worst}")
    print(f"peak memory {peak:.2f} GB (at most {LARGEST_GB:.0f}): {'met' if met else 'NOT met'}")
    content = {
        "n_units": n_units,
        "n_subsets": n_subsets,
        "steps": steps,
        "peak_gb": peak,
        "required_gb": LARGEST_GB,
        "met": met,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
