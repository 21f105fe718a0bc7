"""Queries that try to read what they may not: names and functions of the engine's own catalogue.

Two sets of tables differ in the rows of one person, the victim. A query is asked of a candidate
that does not hold the victim. Whatever it answers, and every word of a refusal, must be the same
for both sets: else it read a row that the candidate does not hold.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

import pacprivacy as pac
from pacprivacy.errors import PacPrivacyError
from pacprivacy.mechanism import coerce_data
from pacprivacy.queries import make_query_mechanism

N, VICTIM = 30, 7
SECRETS = (777_123, 888_321)
INVISIBLE = ("\u200b", "\u2060", "\ufeff", "\u00a0", "\u3000", "\u00ad", "\u202e", "\x0b", "\x00")
VALUES = (
    "salary", "p.salary", "'people'", "'pac_base.people'", "7", "id", "p", "0.5", "'salary'",
    "'SELECT salary AS s FROM pac_base.people WHERE id = 7'", "name", "DATE '2020-01-01'", "[1, 2]",
    "NULL", "*", "{'a': salary}", "born", "INTERVAL 1 DAY", "'%'", "true", "x -> x",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Try:
    """What became of one query: its text, ``answered`` or ``refused``, and what is wrong."""

    text: str
    kind: str
    wrong: str = ""


@cache
def catalogue() -> dict[str, list[str]]:
    """Return the names that the engine knows, by kind: functions, tables, settings."""
    with duckdb.connect(":memory:") as engine:
        rows = engine.execute(
            "SELECT DISTINCT function_type, function_name FROM duckdb_functions() ORDER BY ALL"
        ).fetchall()
        kinds: dict[str, list[str]] = {}
        for kind, name in rows:
            kinds.setdefault(str(kind), []).append(str(name))
        views = engine.execute("SELECT view_name FROM duckdb_views() ORDER BY ALL").fetchall()
        kinds["view"] = [str(row[0]) for row in views]
    return kinds


def make_tables(folder: Path, secret: int) -> pac.Tables:
    """People with salaries, their visits, and a public table; in files."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    people = pd.DataFrame(
        {
            "id": range(N),
            "salary": rng.integers(1000, 9000, N),
            "name": [f"person {i}" for i in range(N)],
            "born": pd.date_range("1960-01-01", periods=N, freq="200D").astype(str),
        }
    )
    people.loc[VICTIM, "salary"] = secret
    people.loc[VICTIM, "name"] = f"name {secret}"
    people.to_csv(folder / "people.csv", index=False)
    visits = pd.DataFrame({"person": rng.integers(0, N, 90), "cost": rng.gamma(9, 5, 90)})
    visits.loc[visits["person"] == VICTIM, "cost"] = float(secret)
    visits.to_parquet(folder / "Visits.parquet")
    pd.DataFrame({"kind": ["a", "b"], "price": [1.5, 2.5]}).to_csv(
        folder / "prices.csv", index=False
    )
    return pac.Tables(folder, unit="people.id", via={"Visits": "person"})


def _value(chance: random.Random, depth: int = 0) -> str:
    """Return an expression of chance."""
    names = catalogue()
    kinds = ("scalar", "macro", "aggregate", "scalar", "table", "pragma", "table_macro")
    kind = chance.choice(kinds)
    if depth > 1 or chance.random() < 0.3 or not names.get(kind):
        return chance.choice(VALUES)
    arguments = [_value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    name = chance.choice(names[kind])
    name = name if name.isidentifier() else f'"{name}"'
    return f"{name}({', '.join(arguments)})"


def _source(chance: random.Random) -> str:
    """Return a source of chance."""
    names = catalogue()
    files = [f"@/{name}" for name in ("people.csv", "Visits.parquet", "prices.csv")]
    table = chance.choice(names.get("table", ["range"]) + names.get("table_macro", []))
    inner = chance.choice(
        [*(f"'{file}'" for file in files), "'people'", "'SELECT salary AS s FROM people'", "3"]
    )
    return chance.choice(
        [
            f"{table}({inner})",
            f"{table}({inner}, {chance.choice(VALUES)})",
            f"LATERAL {table}({inner})",
            f"LATERAL (SELECT {_value(chance)} AS s)",
            f"'{chance.choice(files)}'",
            f'"{chance.choice(files)}"',
            "pac_base.people", "pac_whole.people", "memory.main.people", "pac_world", "pac_units",
            chance.choice(names["view"]),
            f"information_schema.{chance.choice(['tables', 'columns', 'schemata'])}",
            f"(SELECT {_value(chance)} AS s FROM people)",
            f"(VALUES ({_value(chance)})) v(s)",
            "(SUMMARIZE people)", "(SHOW ALL TABLES)", "(DESCRIBE people)",
            f"(FROM {table}({inner}))",
        ]
    )  # fmt: skip


def make_attack(chance: random.Random) -> str:
    """Return a query of chance that reaches for more than it may."""
    value, source, path = _value(chance), _source(chance), "@/people.csv"
    text = chance.choice(
        [
            f"SELECT max({value}) AS m FROM people p",
            f"SELECT sum({value}) AS m FROM people p, {source} AS q",
            f"SELECT count(*) AS m FROM people p JOIN {source} AS q ON true",
            f"SELECT max(q.s) AS m FROM people p, {source} AS q",
            f"SELECT max(q.salary) AS m FROM people p, {source} AS q",
            f"SELECT avg((SELECT {value} FROM {source} AS q LIMIT 1)) AS m FROM people p",
            f"SELECT count(*) AS m FROM people p WHERE {value} > {_value(chance)}",
            f"SELECT count(*) AS m FROM people p WHERE EXISTS (FROM {source} AS q)",
            f'WITH "@/PEOPLE.csv" AS (SELECT 1 AS s) SELECT max(salary) AS m FROM "{path}"',
            f"WITH q AS (FROM {source}) SELECT max(salary) AS m FROM people p, q",
            f"SELECT median({value}) OVER () AS m FROM people p",
            f"SELECT max(x) AS m FROM (SELECT {value} AS x FROM people p GROUP BY ALL)",
            f"SELECT count(*) AS m FROM people p GROUP BY {value}",
            f"SELECT count(*) AS m FROM people p HAVING {value} ORDER BY {_value(chance)}",
            f"SELECT max(salary) AS m FROM people p LIMIT {value}",
            f"SELECT sum(salary) FILTER (WHERE {value}) AS m FROM people p",
            f"SELECT max(CAST({value} AS {chance.choice(['INT', 'VARCHAR', 'JSON', 'people'])})) "
            "AS m FROM people p",
        ]
    )
    if chance.random() < 0.15:
        hidden = chance.choice(INVISIBLE)
        text = (
            text.replace(" ", hidden, chance.randint(1, 6))
            if chance.random() < 0.5
            else (
                f"SELECT max((SELECT salary{hidden}FROM{hidden}pac_base.people WHERE id={VICTIM})) "
                "AS m FROM people"
            )
        )
    return text


def ask(text: str, tables: pac.Tables) -> tuple[str, str]:
    """Return what a query gives for a candidate without the victim, or the words of its refusal."""
    data = coerce_data(tables)
    units = np.array([i for i in range(N) if i != VICTIM and i % 3])
    none: Any = None
    try:
        made = make_query_mechanism(text, tables, keys={}, fill=-1.0)
    except PacPrivacyError as error:
        return "refused", str(error)
    try:
        value = made.prepare(data).evaluate(data.take(units), none)
    except PacPrivacyError as error:
        return "failed", str(error)
    return "answered", repr(value)


def try_query(text: str, both: list[tuple[Path, pac.Tables]]) -> Try:
    """Ask a query of both sets of tables; ``@`` stands for their folder.

    A query that fails on the rows is paid for (Q-4) and may fail for one set alone.
    """
    outcomes = []
    for folder, tables in both:
        kind, words = ask(text.replace("@", str(folder)), tables)
        outcomes.append((kind, words.replace(str(folder), "@").replace(str(folder).upper(), "@")))
    first, second = outcomes
    wrong = ""
    if any(str(secret) in words for secret in SECRETS for _, words in outcomes):
        wrong = "a value of the victim was shown"
    elif first != second and "failed" not in (first[0], second[0]):
        wrong = f"it depends on rows of a unit that is left out: {first} and {second}"
    return Try(text=text, kind=first[0], wrong=wrong)


def make_both(folder: Path) -> list[tuple[Path, pac.Tables]]:
    """Return the two sets of tables, and their folders."""
    return [
        (folder / str(i), make_tables(folder / str(i), secret)) for i, secret in enumerate(SECRETS)
    ]


def run_tries(seeds: range, folder: Path) -> Iterator[Try]:
    """Return what became of queries of chance."""
    both = make_both(folder)
    for seed in seeds:
        yield try_query(make_attack(random.Random(seed)), both)
