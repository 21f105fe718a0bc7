"""Whole releases at scale: a million records with 4096 candidates, a million numbers with 512.

Usage: python benchmarks/cluster/scale.py [rows|numbers] [size] [n_subsets] [file]

``rows``: the mean of ten columns of a Parquet file under ``membership<=0.6``, candidates drawn
block by block. ``numbers``: means of a million columns of 256 records under ``mi<=0.5``, against
ten times the time that reading all outputs and writing them elsewhere in memory takes. Each in
a process of its own: seconds, CPU seconds and peak memory, without imports. Without words both are
run whole.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "cluster_scale.json"
MOST_SECONDS, MOST_GB = 1200.0, 4.0  # of a million records
MOST_TIMES_COPIES, MOST_TIMES_OUTPUTS = 4.0, 3.0  # of a million numbers
SIZES = {"rows": (1_000_000, 4096), "numbers": (1_000_000, 512)}
COLUMNS, RECORDS, COPIES = 10, 256, 10


def write(path: Path, n_rows: int) -> None:
    """Write rows of ten columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X = np.random.default_rng(n_rows).normal(size=(n_rows, COLUMNS))
    columns = {f"x{i}": X[:, i] for i in range(COLUMNS)}
    pq.write_table(pa.table(columns), path, row_group_size=250_000, use_dictionary=False)


def release_rows(path: Path, n_rows: int, n_subsets: int) -> dict[str, Any]:
    import pacprivacy as pac
    from pacprivacy.statistics import Mean

    found = pac.privatize(Mean(), pac.Dataset(path), "membership<=0.6", n_subsets=n_subsets, rng=0)
    certificate = found.certificate
    assert certificate.membership_bound <= 0.6
    return {"scheme": certificate.scheme, "membership_bound": certificate.membership_bound}


def release_numbers(path: Path, n_numbers: int, n_subsets: int) -> dict[str, Any]:
    import pacprivacy as pac
    from pacprivacy.statistics import Mean

    X = np.random.default_rng(0).normal(size=(RECORDS, n_numbers))
    pool = pac.Balanced(n_subsets=n_subsets)
    start = time.perf_counter()
    cpu = time.process_time()
    found = pac.privatize(Mean(), X, "mi<=0.5", sample=pool, rng=0)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert found.certificate.mi_upper_nats <= 0.5
    return {
        "release_seconds": round(seconds, 2),
        "release_cpu_seconds": round(cpu, 2),
        "mi_upper_nats": found.certificate.mi_upper_nats,
    }


def copy_outputs(path: Path, n_numbers: int, n_subsets: int) -> dict[str, Any]:
    """Read all outputs and write them elsewhere, ten times."""
    outputs, elsewhere = np.ones((n_subsets, n_numbers)), np.zeros((n_subsets, n_numbers))
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(COPIES):
        np.copyto(elsewhere, outputs)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"copies_seconds": round(seconds, 2), "copies_cpu_seconds": round(cpu, 2)}


TASKS = {"rows": release_rows, "numbers": release_numbers, "copies": copy_outputs}


def child(task: str, path: str, size: str, n_subsets: str) -> None:
    import pyarrow.dataset  # noqa: F401

    import pacprivacy.mechanism
    import pacprivacy.session  # noqa: F401

    start, cpu = time.perf_counter(), time.process_time()
    found = TASKS[task](Path(path), int(size), int(n_subsets))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 / 1024)
    figures = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "peak_gb": peak}
    print(json.dumps({**figures, **found}))


def measure(task: str, path: Path, size: int, n_subsets: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", task, str(path), str(size), str(n_subsets)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"size": size, "n_subsets": n_subsets, "load": round(os.getloadavg()[0], 1), **found}


def main() -> int:
    if "--child" in sys.argv:
        child(*sys.argv[2:6])
        return 0
    words = sys.argv[1:]
    result = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for task in words[:1] or ["rows", "numbers"]:
        size, n_subsets = SIZES[task]
        size = int(float(words[1])) if len(words) > 1 else size
        n_subsets = int(words[2]) if len(words) > 2 else n_subsets
        with tempfile.TemporaryDirectory(prefix="pacprivacy-scale-") as folder:
            path = Path(folder) / "people.parquet"
            if task == "rows":
                write(path, size)
                found = measure(task, path, size, n_subsets)
                limits = {"seconds_most": MOST_SECONDS, "peak_gb_most": MOST_GB}
                ok = found["seconds"] <= MOST_SECONDS and found["peak_gb"] <= MOST_GB
            else:
                copies = measure("copies", path, size, n_subsets)
                found = {**copies, **measure(task, path, size, n_subsets)}
                outputs = 8e-9 * size * n_subsets
                found["times_copies"] = found["release_seconds"] / found["copies_seconds"]
                found["times_copies_in_cpu_seconds"] = (
                    found["release_cpu_seconds"] / found["copies_cpu_seconds"]
                )
                found["times_outputs"] = found["peak_gb"] / outputs
                limits = {
                    "times_copies_most": MOST_TIMES_COPIES,
                    "times_outputs_most": MOST_TIMES_OUTPUTS,
                }
                ok = (
                    found["times_copies"] <= MOST_TIMES_COPIES
                    and found["times_outputs"] <= MOST_TIMES_OUTPUTS
                )
        result[task] = {**found, **limits, "ok": ok}
        print(json.dumps({task: result[task]}, indent=2), flush=True)
        if (size, n_subsets) == SIZES[task]:
            RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if all(result[task]["ok"] for task in words[:1] or ["rows", "numbers"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
