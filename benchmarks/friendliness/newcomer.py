"""A newcomer with a messy table: three commands from the file to the page, with defaults.

Usage: python benchmarks/friendliness/newcomer.py [results.json]

The table has 200,000 rows with text, gaps, dates, ids, names and decimal commas. It is asked for
the means of income and age by region, with intervals, the certificate is recomputed, and the page
written: ``pac release``, ``pac verify``, ``pac report``. The same is done with a CSV file,
Parquet, Excel and standard input. CPU seconds are those of each command with its children; a
command that fails, or warns of anything on the way, fails the benchmark.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

N_ROWS, MOST_SECONDS, BUDGET = 200_000, 60.0, "membership<=0.6"
KINDS = ("csv", "parquet", "xlsx", "stdin")
ASKED = ["--model", "mean", "--columns", "income,age", "--group-by", "region"]
RESULTS = Path(__file__).resolve().parents[1] / "results" / "newcomer.json"


def make_table(n_rows: int = N_ROWS, seed: int = 0) -> pd.DataFrame:
    """Return people with all that real tables have."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "east", "west"], n_rows, p=[0.4, 0.3, 0.2, 0.1])
    days = pd.to_timedelta(rng.integers(0, 1500, n_rows), "D")
    table = pd.DataFrame(
        {
            "id": [f"P{i:07d}" for i in range(n_rows)],
            "name": [f"Jürgen {i}" for i in range(n_rows)],
            "region": region,
            "age": rng.integers(16, 90, n_rows).astype(float),
            "income": (rng.lognormal(10, 0.4, n_rows) + 3000 * (region == "south")).round(2),
            "joined": pd.Timestamp("2020-01-01") + days,
            "smoker": rng.choice(["yes", "no"], n_rows),
            "remark": rng.choice(["", "called twice; no answer", 'said "later"', "ok"], n_rows),
        }
    )
    table.loc[rng.random(n_rows) < 0.05, "income"] = np.nan
    table.loc[rng.random(n_rows) < 0.03, "age"] = np.nan
    table.loc[rng.random(n_rows) < 0.02, "region"] = None
    return table


def write_table(table: pd.DataFrame, folder: Path, kind: str) -> Path:
    """Write the table as a file of that kind; standard input gets the CSV."""
    path = folder / f"people.{'csv' if kind == 'stdin' else kind}"
    if kind == "parquet":
        table.to_parquet(path)
    elif kind == "xlsx":
        table.to_excel(path, index=False)
    else:
        table.to_csv(path, index=False, sep=";", decimal=",", na_rep="NA", encoding="cp1252")
    return path


def run_pac(*arguments: object, stdin: Path | None = None) -> tuple[float, str]:
    """Run a command as the user does; return CPU seconds with children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pacprivacy", *map(str, arguments)]
    source = None if stdin is None else stdin.open("rb")
    done = subprocess.run(command, stdin=source, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or "error:" in done.stderr or "warning:" in done.stderr:
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def first_task(
    source: Path, folder: Path, *, piped: bool = False, extra: tuple[object, ...] = ()
) -> dict[str, Any]:
    """Do the three commands; return CPU seconds of each, and the released means."""
    out = folder / "out"
    data, stdin = ("-", source) if piped else (source, None)
    arguments = [*ASKED, "--budget", BUDGET, "-o", out, *extra]
    release, told = run_pac("release", data, *arguments, stdin=stdin)
    assert "standard error" in told, told
    verify, _ = run_pac("verify", out / "release.json")
    report, _ = run_pac("report", out / "release.json")
    content = json.loads((out / "release.json").read_text(encoding="utf-8"))
    assert (out / "report.html").is_file()
    assert "error_bars" in content
    seconds = {"release": release, "verify": verify, "report": report}
    return {"cpu_seconds": seconds, "total": sum(seconds.values()), "value": content["value"]}


def main() -> int:
    table = make_table()
    truth = table.groupby("region")[["income", "age"]].mean()
    rows, slow = {}, []
    with tempfile.TemporaryDirectory() as place:
        for kind in KINDS:
            folder = Path(place) / kind
            folder.mkdir()
            found = first_task(write_table(table, folder, kind), folder, piped=kind == "stdin")
            value = found.pop("value")
            error = max(
                abs(value[name][region] / truth.loc[region, name] - 1)
                for name in truth
                for region in truth.index
            )
            rows[kind] = {**found, "largest_relative_error": error}
            parts = ", ".join(f"{n} {s:.1f}" for n, s in found["cpu_seconds"].items())
            print(f"{kind:8} {found['total']:6.1f} CPU s ({parts}), means within {error:.2%}")
            slow += [kind] * (found["total"] > MOST_SECONDS)
    content = {"n_rows": N_ROWS, "budget": BUDGET, "cores": os.cpu_count(), "kinds": rows}
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"missed {MOST_SECONDS:g} CPU seconds: {', '.join(slow)}" if slow else "met")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
