"""The first task of a newcomer, in four libraries: the mean income by region, with an error bar.

A messy CSV file (semicolons, decimal commas, gaps, ids, dates, text) of 200,000 rows; every library
in a pinned environment of its own, made under a temporary folder. The tasks in ``tasks`` are as
short as we can write them with what each library documents. Counted are the lines of code that are
neither empty nor comments, as ``ruff format`` lays them out, and CPU seconds of the whole process,
imports included; an error bar counts if the library gives one.
"""

from __future__ import annotations

import compileall
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RESULT = HERE.parent / "results" / "friendliness.json"
ROOT = HERE.parents[1]
N_ROWS = 200_000
PINNED = {
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn==1.5.2", "numpy==2.0.2", "pandas==2.3.3"),
    "smartnoise": ("smartnoise-sql==1.0.10", "pandas==2.3.3", "numpy==2.4.6"),
    "opendp": ("opendp[polars]==0.16.0", "polars==1.36.1"),
}
REMARKS = {
    "diffprivlib": "no error bar; one call for each region; the number of records is public",
    "smartnoise": "no error bar: execute_with_accuracy raises NotImplementedError in this version",
    "opendp": "bars for sum and count; that of the mean is put together by hand; keys are public",
    "ours": "membership 0.6, standard error for all records",
    "ours_dp": "pure epsilon 1, standard deviation of the noise; levels and range declared",
}
ERROR_BAR = {
    "diffprivlib": "no",
    "smartnoise": "no",
    "opendp": "by hand",
    "ours": "yes",
    "ours_dp": "yes",
}


def write_people(path: Path, n_rows: int) -> None:
    """Write a made-up table as people export them."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        file.write("id;joined;region;smoker;age;income\n")
        for number in range(n_rows):
            income = f"{min(draw.lognormvariate(10, 0.5), 190_000):.2f}".replace(".", ",")
            cells = (
                f"p{number:06d}",
                f"{2010 + number % 15}-0{1 + number % 9}-11",
                draw.choice(("east", "north", "south", "west")),
                draw.choice(("yes", "no", "")),
                str(draw.randint(18, 90)),
                "" if draw.random() < 0.05 else income,
            )
            file.write(";".join(cells) + "\n")


def count_lines(task: Path) -> int:
    """Count the lines that are neither empty nor comments."""
    lines = (line.strip() for line in task.read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


def make_environment(folder: Path, packages: tuple[str, ...]) -> str | None:
    """Make a virtual environment; return what went wrong, in one line."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(folder / "bin" / "pip"), "install", "--quiet", *packages]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode == 0:
        return None
    errors = [line for line in made.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed without a reason"])[-1]


def run(command: list[str], folder: Path, **environment: str) -> dict[str, object]:
    """Run a task; return its CPU seconds and what it printed last."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    shown = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return {"cpu_seconds": round(seconds, 2), "exit_code": done.returncode, "shown": shown[-8:]}


def main() -> int:
    """Run all tasks, print the table, store it."""
    rows: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_people(folder / "people.csv", N_ROWS)
        for library, packages in PINNED.items():
            task = HERE / "tasks" / f"{library}_task.py"
            rows[library] = {"lines": count_lines(task), "packages": list(packages)}
            problem = make_environment(folder / library, packages)
            if problem is None:
                python = str(folder / library / "bin" / "python")
                rows[library] |= run([python, str(task)], folder, PYTHONPATH="")
            else:
                rows[library]["not_installed"] = problem
        compileall.compile_dir(ROOT / "src", quiet=1)  # as pip does with the others
        pac = folder / "pac"
        pac.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pacprivacy "$@"\n', encoding="utf-8")
        pac.chmod(0o755)
        for library in ("ours", "ours_dp"):
            task = HERE / "tasks" / f"{library}.sh"
            given = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
            rows[library] = {
                "lines": count_lines(task),
                **run(["sh", str(task)], folder, **given),
            }
    for library, row in rows.items():
        row |= {"error_bar": ERROR_BAR[library], "remark": REMARKS[library]}
        print(f"{library:<12}", row["lines"], row.get("cpu_seconds"), row["error_bar"], sep="\t")
    RESULT.write_text(json.dumps({"n_rows": N_ROWS, "rows": rows}, indent=2) + "\n")
    return int(any(row.get("exit_code") for row in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())
