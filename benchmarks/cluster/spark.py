"""Queries on Spark against DuckDB; a worker killed in the middle of a job.

Usage: python benchmarks/cluster/spark.py [scale factor] [n_subsets]

TPC-H Q1, Q5 and Q6, customers as units, are released in simulation mode: by DuckDB, by Spark
``local[2]``, and by a standalone master with two workers on this machine, of which one is killed
with its executor while it runs a task. Releases must be equal to the last bit, with their
certificates. Needs Java 17 and the extra ``cluster``; writes benchmarks/results/cluster_spark.json.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

import pyspark  # noqa: E402

import pacprivacy as pac  # noqa: E402
from benchmarks.cluster.workers import write_results  # noqa: E402
from pacprivacy.mechanism import flatten  # noqa: E402
from tests.tpch import QUERIES, VIA, shop, write_tpch  # noqa: E402

RESULTS = HERE.parents[1] / "results" / "cluster_spark.json"
ASKED = (1, 5, 6)
BUDGET = "membership<=0.6"
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.executor.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def query_release(number: int, tables: pac.Tables, n_subsets: int) -> Any:
    """Return what a query releases in simulation mode."""
    options: dict[str, Any] = {"keys": "universe", "n_subsets": n_subsets, "at_least": 2}
    return pac.sql(QUERIES[number], tables, BUDGET, rng=1, simulate=True, **options)


def releases(tables: pac.Tables, n_subsets: int) -> Iterator[tuple[str, Any, float]]:
    """Yield the name, the release and the seconds of everything that is asked."""
    for number in ASKED:
        start = time.perf_counter()
        release = query_release(number, tables, n_subsets)
        yield f"Q{number}", release, round(time.perf_counter() - start, 1)


def difference(found: Any, wanted: Any) -> dict[str, Any]:
    (value, noise), (true, _) = (
        (flatten(release.value)[0], flatten(release.noise_std)[0]) for release in (found, wanted)
    )
    certificates = [replace(release.certificate, unit="") for release in (found, wanted)]
    return {
        "same_bits": value.tobytes() == true.tobytes(),
        "same_certificate": certificates[0] == certificates[1],  # but for what a unit is called
        "largest_difference_in_noise": float((np.abs(value - true) / noise).max()),
    }


def is_equal(row: dict[str, Any]) -> bool:
    """Whether a release is the wanted one, as the page above says it."""
    return bool(row["same_bits"] and row["same_certificate"])


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def standalone(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a master and two workers of one core; yield its address and the workers."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port, made = free_port(), []
    url = f"spark://127.0.0.1:{port}"
    deploy, host = "org.apache.spark.deploy", ["--host", "127.0.0.1", "--webui-port", "0"]
    worker = [f"{deploy}.worker.Worker", "--cores", "1", "--memory", "2g", *host]
    calls = [[f"{deploy}.master.Master", "--port", str(port), *host]]
    calls += [[*worker, "--work-dir", str(folder / f"worker{i}"), url] for i in range(2)]
    try:
        for call in calls:
            made.append(
                subprocess.Popen(
                    [str(program), *call],
                    start_new_session=True,  # so that a worker is killed with its executor
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            time.sleep(5)
        yield url, made[1:]
    finally:
        for process in made:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start_session(master: str) -> Any:
    builder = pyspark.sql.SparkSession.builder.master(master).config(map=SETTINGS)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def spark_tables(session: Any, folder: Path) -> pac.Tables:
    frames = {path.stem: session.read.parquet(str(path)) for path in folder.glob("*.parquet")}
    return pac.Tables(frames, unit="customer.c_custkey", via=VIA)


def kill_busy(session: Any, worker: subprocess.Popen[bytes], seen: dict[str, Any]) -> None:
    """Kill a worker and its executor while tasks are running."""
    tracker = session.sparkContext.statusTracker()
    time.sleep(1.0)
    while True:
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        active = sum(stage.numActiveTasks for stage in stages if stage is not None)
        if active >= 2:  # one on each worker
            os.killpg(worker.pid, signal.SIGKILL)
            seen["tasks_running"] = active
            return
        time.sleep(0.01)


def main() -> int:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    n_subsets = int(sys.argv[2]) if len(sys.argv) > 2 else 128
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "tpch"
        data.mkdir()
        write_tpch(data, scale)
        wanted: dict[str, Any] = {}
        for name, release, seconds in releases(shop(data), n_subsets):
            wanted[name], rows[name] = release, {"duckdb_s": seconds}
            print(name, rows[name], flush=True)
        session = start_session("local[2]")
        for name, release, seconds in releases(spark_tables(session, data), n_subsets):
            rows[name]["local"] = {"s": seconds, **difference(release, wanted[name])}
            print(name, rows[name]["local"], flush=True)
        session.stop()
        with standalone(folder) as (url, workers):
            session = start_session(url)
            tables = spark_tables(session, data)
            seen: dict[str, Any] = {}
            killer = threading.Thread(target=kill_busy, args=(session, workers[0], seen))
            killer.start()
            for name, release, seconds in releases(tables, n_subsets):
                seen.setdefault("killed_in", name if "tasks_running" in seen else None)
                rows[name]["killed"] = {"s": seconds, **difference(release, wanted[name])}
                print(name, rows[name]["killed"], seen, flush=True)
            killer.join()
            session.stop()
    runs = [row[run] for row in rows.values() for run in ("local", "killed")]
    ok = all(is_equal(run) for run in runs) and seen["killed_in"] is not None
    measured = {"scale_factor": scale, "n_subsets": n_subsets, "worker_killed": seen, "rows": rows}
    return write_results(RESULTS, ok, **measured)


if __name__ == "__main__":
    raise SystemExit(main())
