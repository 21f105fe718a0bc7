"""1000 queries of chance over tables of chance; the tests run a slice of it.

Usage: python benchmarks/robust/query_fuzz.py [results.json] [number of queries]

Every answered query is compared with the query on each world's own tables; one that is refused must
be one that has to be, in one line. Fails on any difference, and on any other error.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

from tests.query_fuzzing import run_once  # noqa: E402

N_QUERIES = 1000
RESULTS = HERE.parents[1] / "results" / "query_fuzz.json"


def main(path: Path = RESULTS, n_queries: int = N_QUERIES) -> int:
    warnings.simplefilter("ignore")
    outcomes = [run_once(seed) for seed in range(n_queries)]
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    kinds = Counter(f"{o.kind} {o.plan.split(':')[0].split(',')[0]}".strip() for o in outcomes)
    found = {"queries": n_queries, "kinds": dict(kinds), "wrong": [str(o) for o in wrong]}
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 1 if wrong else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(Path(given[0]) if given else RESULTS, int(given[1]) if len(given) > 1 else 1000))
