"""Two workers against one on loky and Dask; bytes of a task; two workers killed.

Usage: python benchmarks/cluster/workers.py [n_subsets] [milliseconds] [backend ...]

A black box of 50 ms of processor time on 512 candidates. Starting the workers and their imports are
excluded: a short run comes first. Needs two idle cores and the extra ``cluster``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from joblib.externals.loky import reusable_executor

from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism, workers

RESULTS = Path(__file__).parents[1] / "results" / "cluster_workers.json"
LEAST = {"loky": 1.8, "dask": 1.7}
MOST_BYTES = 2000


def pid() -> int:
    time.sleep(0.3)
    return os.getpid()


def kill(numbers: list[int] | Callable[[], list[int]], which: int) -> None:
    os.kill((numbers() if callable(numbers) else numbers)[which], 9)


def make_work(seconds: float) -> Callable[..., Any]:
    def work(X: np.ndarray, rng: np.random.Generator) -> Any:
        value = {"inverse": np.linalg.inv(X.T @ X), "draw": rng.normal(size=3)}
        start = time.process_time()
        while time.process_time() - start < seconds:
            pass
        return value

    return work


@contextmanager
def cluster(kind: str, n_workers: int) -> Iterator[tuple[dict[str, Any], Callable[[], list[int]]]]:
    """Yield options of a run and a function that returns the numbers of the processes."""
    if kind == "loky":
        yield {"n_jobs": n_workers}, lambda: list(reusable_executor._executor._processes)
    elif kind == "dask":
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=50,
            ) as made,
            Client(made) as client,
        ):
            yield {"backend": "dask"}, lambda: list(client.run(os.getpid).values())


def measure(kind: str, n_subsets: int, seconds: float) -> dict[str, Any]:
    X = np.random.default_rng(0).normal(size=(20_000, 20))
    pool = Balanced(n_subsets=n_subsets).draw(len(X), rng=0)
    few = Balanced(n_subsets=16).draw(len(X), rng=0)
    work, found, values = make_work(seconds), {}, []
    for n_workers in (1, 2):
        with cluster(kind, n_workers) as (options, pids):
            run_mechanism(work, X, few, rng=1, **options)  # imports
            start = time.perf_counter()
            values.append(run_mechanism(work, X, pool, rng=1, **options).values.tobytes())
            found[n_workers] = time.perf_counter() - start
            if n_workers == 2:
                threading.Timer(0.5, kill, (pids() if kind != "loky" else pids, 0)).start()
                # loky replaces all workers when one dies, which takes a while.
                delay = 4.0 if kind == "loky" else 1.5
                threading.Timer(delay, kill, (pids() if kind != "loky" else pids, 1)).start()
                start = time.perf_counter()
                values.append(run_mechanism(work, X, pool, rng=1, **options).values.tobytes())
                killed = time.perf_counter() - start
    return {
        "backend": kind,
        "one_worker_s": round(found[1], 2),
        "two_workers_s": round(found[2], 2),
        "speedup": round(found[1] / found[2], 3),
        "speedup_least": LEAST[kind],
        "two_killed_s": round(killed, 2),
        "equal": len(set(values)) == 1,
    }


def write_results(path: Path, ok: bool, **found: Any) -> int:
    """Write what was measured, show it, and return the exit status."""
    load = round(os.getloadavg()[0], 1)
    text = json.dumps({**found, "load_average": load, "ok": ok}, indent=2) + "\n"
    path.write_text(text)
    print(text, end="")
    return 0 if ok else 1


def main() -> int:
    n_subsets = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    seconds = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.05
    task = (
        workers.call_in_worker,
        workers.Label(),
        workers.SharedFiles(folder="f" * 40, n_arrays=2),
        len,
    )
    n_bytes = len(cloudpickle.dumps((*task, 7, tuple(range(500, 505)))))
    rows = [measure(kind, n_subsets, seconds) for kind in (sys.argv[3:] or LEAST)]
    ok = n_bytes <= MOST_BYTES and all(
        r["equal"] and r["speedup"] >= r["speedup_least"] for r in rows
    )
    return write_results(
        RESULTS,
        ok,
        n_subsets=n_subsets,
        seconds_each=seconds,
        bytes_of_a_task=n_bytes,
        bytes_most=MOST_BYTES,
        rows=rows,
    )


if __name__ == "__main__":
    raise SystemExit(main())
