"""Queries of chance over tables of chance, with coins and from pools; the tests run a slice of it.

Usage: python benchmarks/robust/query_fuzz.py [results.json] [number of queries]

With coins, what units add to the sums of every answered query is compared with the query on the
rows of single units, and of half of them; from a pool, the cells with the query on each candidate's
own tables. A refused query must be one that has to be, in one line. Fails on any difference, and on
any other error.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

from tests.query_fuzzing import Outcome, run_once, run_sums  # noqa: E402

N_QUERIES = 1000
QUERIES_PER_TABLE = 20
RESULTS = HERE.parents[1] / "results" / "query_fuzz.json"


def answered_with_coins(n_queries: int) -> list[Outcome]:
    """Return the outcomes of queries with coins, until enough were answered."""
    outcomes: list[Outcome] = []
    seed = 0
    while sum(outcome.kind == "answered" for outcome in outcomes) < n_queries:
        outcomes += run_sums(seed, QUERIES_PER_TABLE)
        seed += 1
    return outcomes


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Count what became of queries, and list what is wrong."""
    kinds = Counter(f"{o.kind} {o.plan.split(':')[0].split(',')[0]}".strip() for o in outcomes)
    wrong = [str(outcome) for outcome in outcomes if outcome.wrong]
    return {"queries": len(outcomes), "kinds": dict(kinds), "wrong": wrong}


def main(path: Path = RESULTS, n_queries: int = N_QUERIES) -> int:
    warnings.simplefilter("ignore")
    found = {
        "coins": summary(answered_with_coins(n_queries)),
        "pool": summary([run_once(seed) for seed in range(n_queries)]),
    }
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 1 if any(part["wrong"] for part in found.values()) else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(Path(given[0]) if given else RESULTS, int(given[1]) if len(given) > 1 else 1000))
