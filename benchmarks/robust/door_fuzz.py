"""10,000 queries that reach for more than they may; the tests run a slice of it.

Usage: python benchmarks/robust/door_fuzz.py [results.json] [number of queries]

They are made from the engine's own catalogue of functions, table functions and views. Each is asked
of a candidate that does not hold one person, of two sets of tables that differ in that person's
rows. Fails if an answer, or a word of a refusal, differs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

from tests.door_fuzzing import run_tries  # noqa: E402

N_QUERIES = 10_000
RESULTS = HERE.parents[1] / "results" / "door_fuzz.json"


def main(path: Path = RESULTS, n_queries: int = N_QUERIES) -> int:
    warnings.simplefilter("ignore")
    kinds: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for outcome in run_tries(range(n_queries), Path(folder)):
            kinds[outcome.kind] += 1
            wrong += [str(outcome)] if outcome.wrong else []
    results = {"queries": n_queries, "kinds": dict(kinds), "wrong": wrong}
    path.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 1 if wrong else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    count = int(given[1]) if len(given) > 1 else N_QUERIES
    sys.exit(main(Path(given[0]) if given else RESULTS, count))
