"""Thirty means by group of Adult in one session: coins beside a pool, under the same total.

Usage: python benchmarks/queries/session_means.py [results.json]

Every mean is in deviations of its column, over groups of 200 people or more; the error is the root
mean square over all groups of all queries, against all records, in simulated sessions.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

import pacprivacy as pac  # noqa: E402
from papers.datasets.tables import load_adult  # noqa: E402

RESULTS = HERE.parents[1] / "results" / "session_means.json"
TOTAL = "membership<=0.6"
NUMBERS = ("age", "hours_per_week", "education_num")
GROUPS = ("sex", "race", "workclass", "marital_status", "relationship", "occupation", "education",
          "age // 10", "hours_per_week // 10", "sex || ' ' || race")  # fmt: skip
AT_LEAST = 200
KINDS = {"coins": {"sample": pac.Coins()}, "pool": {"n_subsets": 64}}


def adult_people() -> pd.DataFrame:
    """Return the people of Adult, categories as the texts that they are."""
    adult = load_adult()
    names = [name.replace("-", "_") for name in adult.feature_names]
    people = pd.DataFrame(adult.X, columns=names)
    for old, name in zip(adult.feature_names, names, strict=True):
        if old in adult.categories:
            people[name] = np.array(adult.categories[old], dtype=object)[people[name].astype(int)]
    people["person"] = np.arange(len(people))
    return people


def adult_tables() -> pac.Tables:
    """Return the people of Adult as tables."""
    return pac.Tables({"people": adult_people()}, unit="people.person")


def session_errors(tables: pac.Tables, kind: str) -> tuple[float, float]:
    """Return the root mean square error of a session's means, and CPU seconds."""
    queries = [(number, group) for group in GROUPS for number in NUMBERS]
    squares: list[float] = []
    started = time.process_time()
    options: dict[str, Any] = {"rng": 0, "simulate": True, **KINDS[kind]}
    with pac.Session(tables, budget=TOTAL, **options) as session:
        for done, (number, group) in enumerate(queries):
            scale = tables.rows(f"SELECT stddev({number}) FROM pac_base.people")[0][0]
            text = f"SELECT {group} AS g, avg({number}) AS m FROM people GROUP BY g"
            made = session.sql(
                text, share=f"1 of {len(queries) - done}", keys="universe", at_least=AT_LEAST
            )
            truth = dict(
                tables.rows(f"SELECT {group}, avg({number}) FROM pac_base.people GROUP BY 1")
            )
            named = {str(key): value for key, value in truth.items()}
            squares += [((v - named[k]) / scale) ** 2 for k, v in made.value["m"].items()]
    return float(np.sqrt(np.mean(squares))), time.process_time() - started


def main(path: Path = RESULTS) -> None:
    warnings.simplefilter("ignore")
    tables = adult_tables()
    rows = {}
    for kind in KINDS:
        error, spent = session_errors(tables, kind)
        rows[kind] = {"rmse": float(f"{error:.3g}"), "cpu_s": round(spent, 1)}
        print(kind, rows[kind], flush=True)
    met = rows["coins"]["rmse"] <= rows["pool"]["rmse"] / 2
    path.write_text(
        json.dumps({"total": TOTAL, "queries": 30, **rows, "met": met}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
