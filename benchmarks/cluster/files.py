"""A universe in Parquet files: mean, histogram and ridge in passes, against a plain script.

Usage: python benchmarks/cluster/files.py [n_rows] [n_subsets] [folder]

Evaluation of all candidates, for every statistic in a process of its own: seconds and peak memory,
beside a script that reads the files once and multiplies float32 chunks with unpacked random masks.
Then four sizes, for the exponent of time in the number of rows. With ``--release`` every statistic
is released whole under ``membership<=0.6``: search, proof and certificate.
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

RESULTS = Path(__file__).parents[1] / "results" / "cluster_files.json"
MOST_GB, MOST_RATIO, MOST_EXPONENT = 2.0, 2.0, 1.05
COLUMNS = [f"x{i}" for i in range(9)]
BINS = 10
STATISTICS = ("mean", "histogram", "ridge")
CHUNK = 4096


def write(folder: Path, n_rows: int) -> None:
    """Write rows of ten columns, a million to a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(n_rows)
    for number, start in enumerate(range(0, n_rows, 1_000_000)):
        size = min(1_000_000, n_rows - start)
        X = rng.normal(size=(size, 9))
        columns = {name: X[:, i] for i, name in enumerate(COLUMNS)}
        columns["y"] = X @ np.arange(9.0) + rng.normal(size=size)
        path = folder / f"part{number:04}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=250_000, use_dictionary=False)


def mechanism_and_data(statistic: str, folder: Path) -> tuple[Any, Any]:
    import pacprivacy as pac
    from pacprivacy.design import JointRidge
    from pacprivacy.statistics import Histogram, Mean

    people = pac.Dataset(folder)
    if statistic == "ridge":
        return JointRidge(penalty=1.0), (people[COLUMNS], people["y"])
    return (Mean() if statistic == "mean" else Histogram(bins=BINS, ranges=(-60.0, 60.0))), people


def evaluate(statistic: str, folder: Path, n_subsets: int) -> None:
    from pacprivacy.sample import Balanced
    from pacprivacy.simulation import run_mechanism

    mechanism, data = mechanism_and_data(statistic, folder)
    n_rows = len(data[0] if isinstance(data, tuple) else data)
    pool = Balanced(n_subsets=n_subsets, blocks=True).draw(n_rows, rng=0)
    run_mechanism(mechanism, data, pool, rng=0)


def release(statistic: str, folder: Path, n_subsets: int) -> None:
    import pacprivacy as pac

    mechanism, data = mechanism_and_data(statistic, folder)
    found = pac.privatize(mechanism, data, "membership<=0.6", n_subsets=n_subsets)
    assert found.certificate.membership_bound <= 0.6


def script(statistic: str, folder: Path, n_subsets: int) -> None:
    """Read the files once; float32 features times unpacked masks, one thread as above."""
    import pyarrow.dataset as ds
    from threadpoolctl import threadpool_limits

    rng, sums = np.random.default_rng(0), np.zeros(1)
    with threadpool_limits(limits=1):
        for batch in ds.dataset(str(folder)).to_batches(batch_size=1 << 16):
            rows = np.column_stack([column.to_numpy() for column in batch.columns])
            for start in range(0, len(rows), CHUNK):
                block = features(statistic, rows[start : start + CHUNK]).astype(np.float32)
                width = -(-len(block) // 8)
                packed = np.frombuffer(rng.bytes(n_subsets * width), dtype=np.uint8)
                masks = np.unpackbits(packed.reshape(n_subsets, width), axis=1, count=len(block))
                sums = sums + masks.astype(np.float32) @ block


def features(statistic: str, rows: np.ndarray) -> np.ndarray:
    if statistic == "mean":
        return rows
    if statistic == "histogram":
        where = np.clip(((rows + 60.0) * (BINS / 120.0)).astype(int), 0, BINS - 1)
        hits = np.zeros((len(rows), rows.shape[1], BINS))
        np.put_along_axis(hits, where[:, :, None], 1.0, axis=2)
        return hits.reshape(len(rows), -1)
    X, y = rows[:, :9], rows[:, 9:]
    left, right = np.triu_indices(9)
    return np.hstack([X * y, X[:, left] * X[:, right], y])


def measure(task: str, statistic: str, folder: Path, n_subsets: int) -> dict[str, float]:
    """Run one task in a process of its own, without its imports; return seconds and gigabytes."""
    command = [sys.executable, __file__, "--child", task, statistic, str(folder), str(n_subsets)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(task: str, statistic: str, folder: str, n_subsets: str) -> None:
    import pyarrow.dataset  # noqa: F401

    import pacprivacy.design
    import pacprivacy.simulation  # noqa: F401

    start = time.perf_counter()
    {"evaluate": evaluate, "script": script, "release": release}[task](
        statistic, Path(folder), int(n_subsets)
    )
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 / 1024)
    print(json.dumps({"seconds": round(seconds, 2), "peak_gb": round(peak, 3)}))


def main() -> int:
    if "--child" in sys.argv:
        child(*sys.argv[2:6])
        return 0
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    n_rows = int(float(words[0])) if words else 10_000_000
    n_subsets = int(words[1]) if len(words) > 1 else 1024
    root = Path(words[2]) if len(words) > 2 else Path(tempfile.mkdtemp(prefix="pacprivacy-files-"))
    sizes = [n_rows // 8, n_rows // 4, n_rows // 2, n_rows]
    for size in sizes:
        if not (root / str(size)).exists():
            write(root / str(size), size)
    rows = []
    for statistic in STATISTICS:
        ours = measure("evaluate", statistic, root / str(n_rows), n_subsets)
        plain = measure("script", statistic, root / str(n_rows), n_subsets)
        ratio = round(ours["seconds"] / plain["seconds"], 2)
        rows.append({"statistic": statistic, **ours, "script": plain, "ratio": ratio})
        print(rows[-1], flush=True)
    times = [measure("evaluate", "mean", root / str(n), n_subsets)["seconds"] for n in sizes]
    exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    result: dict[str, Any] = {
        "n_rows": n_rows,
        "n_subsets": n_subsets,
        "load_average": round(os.getloadavg()[0], 1),
        "rows": rows,
        "peak_gb_most": MOST_GB,
        "ratio_most": MOST_RATIO,
        "seconds_by_size": dict(zip(map(str, sizes), times, strict=True)),
        "exponent": round(exponent, 3),
        "exponent_most": MOST_EXPONENT,
        "seconds_of_1e8_rows": round(times[-1] * (1e8 / n_rows) ** exponent, 0),
    }
    if "--release" in sys.argv:
        result["release"] = {
            name: measure("release", name, root / str(n_rows), n_subsets) for name in STATISTICS
        }
    peaks = [row["peak_gb"] for row in (*rows, *result.get("release", {}).values())]
    fast = exponent <= MOST_EXPONENT and all(row["ratio"] <= MOST_RATIO for row in rows)
    result["ok"] = fast and max(peaks) <= MOST_GB
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
