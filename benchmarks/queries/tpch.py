"""TPC-H, customers as units: what private answers cost, and how exact they are.

Usage: python benchmarks/queries/tpch.py [scale factor] [query ...]

Median relative error of Q1, Q5 and Q6 at membership 0.6 with a coin for every customer; CPU time
beside the engine's own GROUP BY group and customer; and peak memory. Each query has a process of
its own. ``tpchgen-cli`` makes the tables in a temporary folder. Written to
benchmarks/results/tpch.json.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

from pacprivacy._random import SimulatedSource  # noqa: E402
from pacprivacy.mechanism import coerce_data  # noqa: E402
from pacprivacy.noise import plan_sums  # noqa: E402
from pacprivacy.queries import QuerySums  # noqa: E402
from pacprivacy.sample import draw_coins  # noqa: E402
from tests.tpch import ask_tpch, shop, write_tpch  # noqa: E402

RESULTS = HERE.parents[1] / "results" / "tpch.json"

COINS = {0.99: {1: 0.0005, 5: 0.009, 6: 0.0006}, 0.999: {1: 0.0003, 5: 0.008, 6: 0.0003}}
MOST_TIMES, MOST_SECONDS, MOST_GB = 1.5, 0.5, 1.0
N_RELEASES = 100


def measure(number: int, folder: str) -> dict[str, Any]:
    """Return the relative error of releases of one query, and what they cost."""
    started = time.process_time()
    tables = shop(folder)
    row: dict[str, Any] = {"opened_s": time.process_time() - started}
    data = coerce_data(tables)
    started = time.process_time()
    query = ask_tpch(number, tables, kind=QuerySums)
    assert isinstance(query, QuerySums)
    assert query.sums is not None
    row["prepared_s"] = time.process_time() - started
    tables.forget()
    started = time.process_time()
    tables.ask_kept(query.sums.query, "SELECT count(*) FROM {}")
    row["engine_s"] = time.process_time() - started
    row["engine_gb"] = peak_gb()
    tables.forget()
    started = time.process_time()
    sums = query.contributions(data)
    row["contributions_s"] = time.process_time() - started
    truth = query.value(sums.total())
    slopes = query.output_slopes(sums)
    row |= {"cells": len(truth), "entries": len(sums.values)}
    met = row["contributions_s"] <= MOST_TIMES * row["engine_s"] + MOST_SECONDS
    for keep, most in COINS.items():
        started = time.process_time()
        plan = plan_sums(sums, success=0.6, keep=keep, slopes=slopes)
        row[f"plan_s at {keep}"] = time.process_time() - started
        row["above_engine_gb"] = peak_gb() - row["engine_gb"]
        source, errors = SimulatedSource(number), []
        for _ in range(N_RELEASES):
            kept = draw_coins(tables.n_units, keep, source)
            value = query.value(plan.release(sums, kept, source), keep)
            errors.append(np.abs(value - truth) / np.abs(truth))
        row[f"median_error at {keep}"] = float(np.median(errors))
        met &= row[f"median_error at {keep}"] <= most[number]
    met &= row["above_engine_gb"] <= MOST_GB
    return {**{name: float(f"{value:.3g}") for name, value in row.items()}, "met": bool(met)}


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(scale: str, numbers: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_tpch(Path(folder), float(scale))
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        rows = found.setdefault(f"scale factor {scale}", {})
        for number in numbers:
            command = [sys.executable, str(HERE), "--one", number, folder]
            shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            rows[f"Q{number}"] = json.loads(shown)
            print(f"Q{number}", rows[f"Q{number}"], flush=True)
            RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]), sys.argv[3])))
    else:
        given = sys.argv[1:]
        main(given[0] if given else "1", given[1:] or ["1", "5", "6"])
