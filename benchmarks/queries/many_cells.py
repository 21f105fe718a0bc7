"""A query with 10^5 cells that differ by 10^6 in size: memory, and the noise of large and small.

Usage: python benchmarks/queries/many_cells.py [number of cells]

Half of the cells are sums of about 1, half of about 10^6, four rows each, from 2000 people. Writes
the peak of memory above the tables, and the noise of both halves over their spread between worlds,
to benchmarks/results/query_cells.json.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

import pacprivacy as pac

RESULTS = Path(__file__).resolve().parents[1] / "results" / "query_cells.json"
N_PEOPLE, N_SUBSETS, LARGE, MOST_GB = 2000, 64, 1e6, 2.0


def tables(n_cells: int) -> pac.Tables:
    rng, n = np.random.default_rng(0), 4 * n_cells
    cell = np.arange(n) % n_cells
    cost = rng.gamma(9, 1 / 9, n) * np.where(cell % 2 == 0, LARGE, 1.0)
    visits = pyarrow.table({"person": rng.integers(0, N_PEOPLE, n), "cell": cell, "cost": cost})
    people = pyarrow.table({"id": np.arange(N_PEOPLE)})
    given = {"people": people, "visits": visits}
    return pac.Tables(given, unit="people.id", via={"visits": "person"})


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def many_cells(n_cells: int) -> dict[str, Any]:
    given = tables(n_cells)
    text = "SELECT cell, sum(cost) AS s FROM visits GROUP BY cell"
    asked: dict[str, Any] = {"keys": {"cell": range(n_cells)}, "n_subsets": N_SUBSETS, "rng": 0}
    before, started = peak_gb(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pac.sql(text, given, pac.Membership(0.8), **asked, simulate=True)
    spent, frame = time.process_time() - started, found.frame
    above = peak_gb() - before
    spread = np.asarray(found.bundle.outputs).std(axis=0)
    ratio = frame["s noise"].to_numpy() / np.maximum(spread, 1e-300)
    ratio = ratio[spread > 0]
    large = (np.arange(n_cells) % 2 == 0)[spread > 0]
    return {
        "cells": len(frame),
        "worlds": N_SUBSETS,
        "cpu_s": round(spent, 1),
        "peak_gb_above_tables": round(above, 2),
        "noise_over_spread": {
            "large cells": round(float(np.median(ratio[large])), 2),
            "small cells": round(float(np.median(ratio[~large])), 2),
        },
        "met": above <= MOST_GB,
    }


if __name__ == "__main__":
    row = many_cells(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    RESULTS.write_text(json.dumps(row, indent=2) + "\n")
    print(json.dumps(row, indent=2))
