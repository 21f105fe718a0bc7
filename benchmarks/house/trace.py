"""Which modules ``pac release`` crosses, and which packages call each other both ways.

Usage: python benchmarks/house/trace.py [results.json]

A k-means release of a small table runs in this process under a profiler. A module is crossed when
a function that is written in it runs; what runs while a module is imported does not count, and
neither does code that dataclasses generate. A package is a folder or a module beside
``__init__.py``. The caller of a function is the nearest frame of the library below it, so that a
call through joblib or a decorator counts; a frame of the user's own code ends the search, so that
a callback does not.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import tempfile
import threading
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import pacprivacy

MOST_MODULES = 45
RESULTS = Path(__file__).resolve().parents[1] / "results" / "trace.json"
LIBRARY = str(Path(pacprivacy.__file__).parent)
ENTRY = ("pacprivacy.cli", "app")
OPTIONS = "--columns a,b --clusters 3 --budget membership<=0.6 --subsets 32"


class Tracer:
    """Counts calls of the library's functions, by module and from package to package."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.edges: dict[tuple[str, str], Counter[str]] = {}
        self._importing = threading.local()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + (1 if event == "call" else -1)
        elif event == "call" and is_ours(frame) and not getattr(self._importing, "depth", 0):
            self._count(frame)

    def _count(self, frame: FrameType) -> None:
        module = str(frame.f_globals["__name__"])
        self.calls[module] += 1
        caller = caller_of(frame)
        if caller is None:
            return
        ends = package_of(str(caller.f_globals["__name__"])), package_of(module)
        if ends[0] != ends[1]:
            sites = self.edges.setdefault(ends, Counter())
            sites[f"{place(caller)} calls {place(frame)}"] += 1

    def mutual(self) -> list[tuple[str, str]]:
        """Return pairs of packages that call each other, in order of the alphabet."""
        return sorted(pair for pair in self.edges if pair < pair[::-1] and pair[::-1] in self.edges)


def is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(LIBRARY)


def is_users(frame: FrameType) -> bool:
    """Whether a frame is neither of the library nor of anything that is installed."""
    name = frame.f_code.co_filename
    return not (name.startswith((LIBRARY, sys.prefix, sys.base_prefix, "<")))


def caller_of(frame: FrameType) -> FrameType | None:
    below = frame.f_back
    while below is not None and not is_ours(below):
        if is_users(below):
            return None
        below = below.f_back
    return below


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def place(frame: FrameType) -> str:
    module = str(frame.f_globals["__name__"]).removeprefix("pacprivacy.")
    return f"{module}:{frame.f_code.co_qualname}"


def trace_release() -> Tracer:
    """Run ``pac release`` on k-means under the profiler."""
    app = getattr(importlib.import_module(ENTRY[0]), ENTRY[1])
    tracer = Tracer()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "people.csv"
        points = np.random.default_rng(0).normal(size=(60, 2))
        points += np.repeat([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], 20, axis=0)
        np.savetxt(table, points, delimiter=",", header="a,b", comments="", fmt="%.4f")
        words = ["release", str(table), "--model", "kmeans", "-o", str(Path(folder) / "out")]
        threading.setprofile(tracer)
        sys.setprofile(tracer)
        try:
            with redirect_stdout(io.StringIO()):
                app([*words, *OPTIONS.split()], standalone_mode=False)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        assert (Path(folder) / "out" / "release.json").exists()
    return tracer


def main() -> int:
    tracer = trace_release()
    modules, mutual = sorted(tracer.calls), tracer.mutual()
    packages = Counter(package_of(module) for module in modules)
    print(f"pac release on k-means crosses {len(modules)} modules in {len(packages)} packages")
    for package, n_modules in packages.most_common():
        print(f"  {package:14} {n_modules}")
    print(f"{len(tracer.edges)} pairs of packages call, {len(mutual)} of them both ways")
    for first, second in mutual:
        for ends in ((first, second), (second, first)):
            site, _ = tracer.edges[ends].most_common(1)[0]
            print(f"  {ends[0]} -> {ends[1]}: {len(tracer.edges[ends])} places, as {site}")
    enough = len(modules) < MOST_MODULES and not mutual
    record = {
        "n_modules": len(modules),
        "required_below": MOST_MODULES,
        "modules": modules,
        "both_ways": [f"{first} and {second}" for first, second in mutual],
        "passed": enough,
    }
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0 if enough else 1


if __name__ == "__main__":
    raise SystemExit(main())
