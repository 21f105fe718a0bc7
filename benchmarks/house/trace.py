"""Which files and functions six flows cross, and which files call each other both ways.

Usage: python benchmarks/house/trace.py [results.json]

Each flow runs in this process under a profiler. A file is crossed when a function that is written
in it runs; what runs while a module is imported does not count, and neither does code that
dataclasses generate. The caller of a function is the nearest frame of the library below it, so that
a call through joblib or a decorator counts; a frame of the user's own code ends the search, so that
a callback does not. The figures are printed and judged by people: no gate sits above them.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

import pacprivacy as pac
from pacprivacy.cli import app

RESULTS = Path(__file__).resolve().parents[1] / "results" / "trace.json"
LIBRARY = str(Path(pac.__file__).parent)
BUDGET = "membership<=0.6"

Flow = Callable[[], Any]


class Tracer:
    """Counts calls of the library's functions, and from file to file."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.calls: dict[tuple[str, str], Counter[str]] = {}
        self._importing = threading.local()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code.co_name == "<module>" and event in ("call", "return"):
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + (1 if event == "call" else -1)
        elif event == "call" and is_ours(frame) and not getattr(self._importing, "depth", 0):
            self._count(frame)

    def _count(self, frame: FrameType) -> None:
        file, function = file_of(frame), frame.f_code.co_qualname
        self.functions.add((file, function))
        caller = caller_of(frame)
        if caller is not None and file_of(caller) != file:
            ends = file_of(caller), file
            places = self.calls.setdefault(ends, Counter())
            places[f"{caller.f_code.co_qualname} calls {function}"] += 1

    @property
    def files(self) -> list[str]:
        return sorted({file for file, _ in self.functions})

    @property
    def both_ways(self) -> list[tuple[str, str]]:
        """Pairs of files that call each other, in order of the alphabet."""
        return sorted(ends for ends in self.calls if ends < ends[::-1] and ends[::-1] in self.calls)


def is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(LIBRARY)


def is_users(frame: FrameType) -> bool:
    """Whether a frame is neither of the library nor of anything that is installed."""
    name = frame.f_code.co_filename
    return not name.startswith((LIBRARY, sys.prefix, sys.base_prefix, "<"))


def caller_of(frame: FrameType) -> FrameType | None:
    below = frame.f_back
    while below is not None and not is_ours(below):
        if is_users(below):
            return None
        below = below.f_back
    return below


def file_of(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(LIBRARY).lstrip("/\\")


def command(*words: str) -> Any:
    return app([*words], standalone_mode=False)


def flows(folder: Path) -> dict[str, Flow]:
    """Return what is traced, with everything that is needed beforehand at hand."""
    rng, privatize = np.random.default_rng(0), pac.privatize  # names load on first use: an import
    table, out = folder / "people.csv", folder / "out"
    values = rng.normal(size=(300, 2))
    np.savetxt(table, values, delimiter=",", header="a,b", comments="", fmt="%.4f")
    options = ["--columns", "a,b", "--budget", BUDGET, "--subsets", "32", "--seed", "0", "-o"]
    release = ["release", str(table), "--model", "mean", *options]
    command(*release, str(out))
    coins = ["release", str(table), "--model", "mean", "--columns", "a,b", "--sample", "coins"]
    people = pd.DataFrame({"id": range(200), "region": rng.choice(list("NS"), 200)})
    visits = pd.DataFrame({"person": rng.integers(0, 200, 600), "cost": rng.gamma(9, 5, 600)})
    tables = pac.Tables(
        {"people": people, "visits": visits}, unit="people.id", via={"visits": "person"}
    )
    query = (
        "SELECT region, avg(cost) AS cost FROM visits JOIN people ON person = id GROUP BY region"
    )
    session = pac.Session(tables, budget=BUDGET, n_subsets=64, rng=0)
    X = rng.normal(size=(80, 2))
    model = _predictor(X)
    return {
        "pac release --model mean": lambda: command(*release, str(folder / "again")),
        "the same, with coins": lambda: command(
            *coins, "--budget", BUDGET, "-o", str(folder / "coins")
        ),
        "privatize(np.median)": lambda: privatize(
            np.median, values[:, 0], BUDGET, n_subsets=64, rng=0
        ),
        "Session.sql": lambda: session.sql(query, share="1 of 12", keys={"region": ["N", "S"]}),
        "PrivatePredictor.predict": lambda: model.predict(0.02 * X[:5]),
        "pac verify": lambda: command("verify", str(out / "release.json")),
    }


def _predictor(X: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    model = pac.PrivatePredictor(
        LogisticRegression(), budget="membership<=0.7", n_subsets=32, random_state=0
    )
    return model.fit(X, X[:, 0] > 0)


def trace(flow: Flow) -> Tracer:
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flow()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return tracer


def main() -> int:
    record = {}
    with tempfile.TemporaryDirectory() as name:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = flows(Path(name))
        for title, flow in traced.items():
            tracer = trace(flow)
            pairs = tracer.both_ways
            print(
                f"{title:26} {len(tracer.files):3} files {len(tracer.functions):4} functions "
                f"{len(pairs):2} pairs of files call each other both ways"
            )
            for first, second in pairs:
                there, back = tracer.calls[first, second], tracer.calls[second, first]
                print(f"    {first} -> {second}: {there.most_common(1)[0][0]}")
                print(f"    {second} -> {first}: {back.most_common(1)[0][0]}")
            record[title] = {
                "n_files": len(tracer.files),
                "n_functions": len(tracer.functions),
                "both_ways": [" and ".join(pair) for pair in pairs],
                "files": tracer.files,
            }
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
