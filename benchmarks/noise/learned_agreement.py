"""Learned noise against what must hold: decoders on Iris, rules on MNIST logits.

Usage: python benchmarks/noise/learned_agreement.py [results.json]

On the mean of Iris, a pool of 16 halves: claimed and true information of noise that was learned
against each decoder. With the exact posterior as the follower they must agree within 2 %, and the
noise must be within 5 % of the exact fixed point's. On MNIST logits at the tightest budget
`protect` must keep more accuracy than the Gaussian rules, and SR-PAC must ask for less noise than
Efficient-PAC and Auto-PAC at equal claims; equal truth is reported as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from papers.residual.logits import QUICK, measure_logits
from papers.residual.soundness import BASE, BUDGETS, DECODERS, measure_decoder

RESULTS = Path(__file__).resolve().parents[1] / "results" / "learned_agreement.json"
GAUSSIAN_RULES = ("Efficient-PAC", "Auto-PAC (A.2)", "Auto-PAC (least trace)")


def decoders() -> list[dict[str, Any]]:
    rows = []
    for decoder in DECODERS:
        for row in measure_decoder(decoder, BUDGETS, BASE, 0):
            rows.append(
                {
                    "decoder": decoder,
                    "budget_nats": row.mi_nats,
                    "claimed_nats": row.claimed_nats,
                    "true_nats": row.true_nats,
                    "true_upper": row.true_upper,
                    "shortfall_nats": row.shortfall,
                    "noise_to_fixed_point": row.noise_variance / row.fixed_point,
                }
            )
    return rows


def logits() -> list[dict[str, Any]]:
    return [
        {
            "method": row.method,
            "version": row.version,
            "budget_nats": row.mi_nats,
            "claimed_nats": row.claimed_nats,
            "true_nats": row.true_nats,
            "noise_variance": row.noise_variance,
            "accuracy": row.accuracy,
            "standard_error": row.standard_error,
        }
        for row in measure_logits("mnist", QUICK, 0)
    ]


def check(iris: list[dict[str, Any]], mnist: list[dict[str, Any]]) -> dict[str, bool]:
    exact = [row for row in iris if row["decoder"] == "exact posterior"]
    tightest = min(row["budget_nats"] for row in mnist)
    claims = {
        row["method"]: row
        for row in mnist
        if row["version"] == "equal claim" and row["budget_nats"] == tightest
    }
    truths = {
        row["method"]: row
        for row in mnist
        if row["version"] == "equal truth" and row["budget_nats"] == tightest
    }
    return {
        "claim_within_2_percent": all(
            abs(row["claimed_nats"] / row["true_nats"] - 1) <= 0.02 for row in exact
        ),
        "noise_within_5_percent": all(
            abs(row["noise_to_fixed_point"] - 1) <= 0.05 for row in exact
        ),
        "protect_is_most_accurate": all(
            found["protect"]["accuracy"]
            > found[rule]["accuracy"] + 2 * found[rule]["standard_error"]
            for found in (claims, truths)
            for rule in GAUSSIAN_RULES
        ),
        "sr_pac_below_at_equal_claims": all(
            claims["SR-PAC, learned"]["noise_variance"] < claims[rule]["noise_variance"]
            for rule in ("Efficient-PAC", "Auto-PAC (A.2)")
        ),
    }


def main() -> int:
    iris, mnist = decoders(), logits()
    checks = check(iris, mnist)
    result = {
        "benchmark": "learned noise: decoders on 16 halves of Iris, rules on MNIST logits",
        "checks": checks,
        "iris_mean": iris,
        "mnist_logits": mnist,
        "mnist_classifier": {
            "n_train": QUICK.n_train,
            "n_candidates": QUICK.n_candidates,
            "n_releases": QUICK.n_releases,
        },
    }
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(checks, indent=2))
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
