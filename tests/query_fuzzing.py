"""Random schemas, tables and queries; the oracle is the query itself on each world's own tables.

A shop of chance: units, a table of theirs, a table that reaches them through the second, a public
one; gaps, repeated rows, units without rows. A query of chance is answered by the library's plan
for every world, and by an engine that never held more than that world; cells must agree."""

from __future__ import annotations

import random
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd

import pacprivacy as pac
from pacprivacy.errors import PacPrivacyError, QueryError
from pacprivacy.mechanism import coerce_data
from pacprivacy.queries import QuerySums, make_query_mechanism
from pacprivacy.queries.tree import number, write_sql

KINDS = ("a", "b", "c")
AGGREGATES = (
    "count(*)", "count({x})", "sum({x})", "avg({x})", "stddev({x})", "var_pop({x})",
    "sum({x}) FILTER (WHERE {y} > 0)", "count_if({y} > 1)", "sum({x} * {y})", "min({x})",
    "max({y})", "median({x})", "count(DISTINCT kind)", "count(DISTINCT person)",
    "covar_pop({x}, {y})", "sum(CASE WHEN kind = 'a' THEN {x} ELSE 0 END) / count(*)",
    "avg({x}) - avg({y})", "quantile_cont({x}, 0.3)", "2 * count(*) + sum({y})",
    "quantile_disc({y}, 0.7)", "skewness({x})", "mad({x})", "count(DISTINCT {y})",
    "sum(DISTINCT {y})", "max({x}) FILTER (WHERE kind = 'b')", "max({x}) - min({x}) + count(*)",
)  # fmt: skip
FILTERS = (
    "{x} > 2", "kind <> 'b'", "{y} IS NOT NULL", "kind IN (SELECT kind FROM prices)",
    "NOT ({x} < 1 AND {y} < 1)", "{y} IS NULL", "person % 2 = 0",
    "{x} > (SELECT avg(x) FROM visits)",
    "EXISTS (SELECT 1 FROM tests t9 WHERE t9.visit = v.visit)", "kind LIKE 'a%'",
    "{y} >= (SELECT min(y) FROM visits v9 WHERE v9.kind = v.kind)",
    "v.person NOT IN (SELECT v9.person FROM visits v9 WHERE v9.y > 7)",
    "(SELECT count(*) FROM visits) > 9 + (SELECT count(*) FROM tests t9 WHERE t9.visit = v.visit)",
)  # fmt: skip
SOURCES = (
    ("visits v", "v.x", "v.y"),
    ("visits v JOIN people p ON v.person = p.id", "v.x", "p.age"),
    ("people p LEFT JOIN visits v ON p.id = v.person", "p.age", "v.y"),
    ("visits v JOIN tests t ON v.visit = t.visit", "v.x", "t.result"),
    ("visits v LEFT JOIN prices s USING (kind)", "v.x", "s.price"),
    ("visits v, prices s", "v.x", "s.price"),
    ("visits v LEFT JOIN visits w ON v.visit = w.visit + 1", "v.x", "w.y"),
    ("visits v LEFT JOIN (SELECT visit, 1 AS one FROM tests) t ON v.visit = t.visit",
     "v.x", "t.one"),
    ("prices s LEFT JOIN visits v USING (kind)", "v.x", "s.price"),
    ("visits v JOIN visits w ON v.kind = w.kind AND v.visit = w.visit + 1", "v.x", "w.y"),
    ("(SELECT * FROM visits WHERE y > 0) v", "v.x", "v.y"),
    ("(SELECT person, kind, visit, x + y AS x, y FROM visits) v", "v.x", "v.y"),
    ("(SELECT * FROM visits WHERE x > 3 UNION ALL SELECT * FROM visits WHERE y < 2) v",
     "v.x", "v.y"),
    ("(SELECT * FROM visits EXCEPT SELECT * FROM visits WHERE y = 2) v", "v.x", "v.y"),
    ("(SELECT person, kind, max(visit) AS visit, sum(x) AS x, count(*) AS y FROM visits "
     "GROUP BY person, kind HAVING count(*) > 1) v", "v.x", "v.y"),
    ("(SELECT *, sum(x) OVER (PARTITION BY kind) AS t FROM visits) v", "v.t", "v.y"),
    ("(SELECT DISTINCT kind, person, y, x, visit // 9 AS visit FROM visits) v", "v.x", "v.y"),
    ("visits v FULL JOIN prices s ON v.kind = s.kind", "v.x", "s.price"),
    ("(SELECT person, kind, max(visit) AS visit, sum(x) AS x, count(*) AS y FROM visits "
     "GROUP BY person, kind) v", "v.x", "v.y"),
)  # fmt: skip
WRONG = (
    "SELECT {x} FROM visits v",
    "SELECT * FROM visits v",
    "SELECT kind, {x}, count(*) FROM visits v GROUP BY 1",
    "SELECT sum(random()) FROM visits v",
    "SELECT count(*) FROM nothing",
    "SELECT sum(kind) FROM visits v",
    "SELECT count(*) FROM visits v WHERE",
    "SELECT 1",
    "INSERT INTO visits SELECT * FROM visits",
    "SELECT first(x) FROM visits v",
    "SELECT arg_max(x, y) FROM visits v",
    "SELECT sum(x) FROM (SELECT x FROM visits LIMIT 3) v",
    "SELECT count(*) OVER () FROM visits v",
    "SELECT max(kind) FROM visits v",
    "SELECT count(*) FROM prices",
    "SELECT sum(x) FROM visits v GROUP BY CUBE (kind, kind)",
    "SELECT count(*) FROM read_parquet('x.parquet')",
    "PRAGMA database_list",
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one query: its text, ``answered`` or ``refused``, and what is wrong."""

    text: str
    kind: str
    plan: str = ""
    wrong: str = ""


def make_frames(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    n, n_visits, n_tests = int(rng.integers(8, 30)), int(rng.integers(20, 90)), 40
    gaps = rng.random(n_visits) < 0.1
    x = rng.normal(3, 2, n_visits).round(int(rng.integers(0, 4)))
    visits = {
        "visit": np.arange(n_visits),
        "person": rng.integers(0, n, n_visits),
        "kind": rng.choice(KINDS, n_visits),
        "x": np.where(gaps, np.nan, x),
        "y": rng.integers(-3, 9, n_visits),
    }
    return {
        "people": pd.DataFrame({"id": range(n), "age": rng.integers(18, 90, n)}),
        "visits": pd.DataFrame(visits),
        "tests": pd.DataFrame(
            {"visit": rng.integers(0, n_visits, n_tests), "result": rng.normal(50, 9, n_tests)}
        ),
        "prices": pd.DataFrame({"kind": ["a", "b", "d"], "price": [1.5, 2.5, 9.0]}),
    }


def make_query(chance: random.Random, *, plain: bool = False) -> tuple[str, bool]:
    """Return a query, and whether it must be refused."""
    plain = chance.random() < 0.4 or plain  # sums of rows, which have a plan of their own
    sources = SOURCES[:8] if plain else SOURCES
    aggregates = [a for a in AGGREGATES if not plain or re.match("count|sum|avg|std|var|cov", a)]
    filters = FILTERS[:6] if plain else FILTERS
    source, x, y = chance.choice(sources)
    if chance.random() < 0.15:
        return chance.choice(WRONG).format(x="v.x"), True
    asked = [a.format(x=x, y=y) for a in chance.sample(aggregates, chance.randint(1, 3))]
    kind = "v.kind" if " w " in f" {source} " or "prices" in source else "kind"
    asked = [a.replace("kind", kind).replace("DISTINCT person", "DISTINCT v.person") for a in asked]
    where = ""
    if chance.random() < 0.6:
        chosen = chance.sample(filters, chance.randint(1, 2))
        text = chance.choice((" AND ", " OR ")).join(f.format(x=x, y=y) for f in chosen)
        text = text.replace("(SELECT kind FROM", "(SELECT s9.kind FROM").replace(
            "prices)", "prices s9)"
        )
        for word in ("kind <>", "kind IN", "kind LIKE"):
            text = text.replace(word, word.replace("kind", kind))
        where = f" WHERE {text.replace('person %', 'v.person %')}"
    keyed = chance.random() < 0.6
    shown = [*([f"{kind} AS k"] if keyed else []), *(f"{a} AS o{i}" for i, a in enumerate(asked))]
    grouped = chance.choice((" GROUP BY 1", " GROUP BY 1", " GROUP BY ROLLUP (1)"))
    grouped = grouped.replace("(1)", f"({kind})") if keyed else ""
    with_ = "WITH w9 AS (SELECT * FROM visits) " if chance.random() < 0.2 else ""
    if with_:
        source, where = source.replace("visits", "w9"), where.replace("visits", "w9")
    return f"{with_}SELECT {', '.join(shown)} FROM {source}{where}{grouped}", False


def world_engine(engine: Any, frames: dict[str, pd.DataFrame], units: Any) -> None:
    """Let an engine hold the private rows of these units, and nothing else of them."""
    visits = frames["visits"][frames["visits"]["person"].isin(units)]
    tables = {
        "people": frames["people"][frames["people"]["id"].isin(units)],
        "visits": visits,
        "tests": frames["tests"][frames["tests"]["visit"].isin(visits["visit"])],
        "prices": frames["prices"],
    }
    for name, frame in tables.items():
        engine.register("frame", frame)
        engine.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM frame")
        engine.unregister("frame")


def plain_answer(text: str, engine: Any) -> dict[Any, list[float]]:
    """Return the cells of a query in an engine that holds one world alone."""
    rows, keyed = engine.execute(text).fetchall(), "AS k" in text
    # The subtotal of a ROLLUP has no key; no kind is missing in these tables but in joins.
    total = keyed and "ROLLUP" in text and "GROUPING(" not in text
    if total and sum(row[0] is None for row in rows) > 1:
        return {}
    hidden = keyed and "GROUPING(" in text
    return {(row[: 1 + hidden] if keyed else ()): list(row[keyed + hidden :]) for row in rows}


def _check(mechanism: Any, text: str, engine: Any, share: float, mine: Any) -> str:
    """Compare cells with the core on a world's own tables, and with the query as it was asked."""
    core = write_sql(mechanism.query.core(number(share))).replace('AS "k0"', "AS k")
    answers = plain_answer(core, engine), plain_answer(text, engine)
    for j, column in enumerate(mechanism.query.columns):
        found = mine[column.name]
        ours = list(found.values()) if isinstance(found, dict) else [found]
        scaled = column.scaled
        for cell, one in zip(mechanism.cells, ours, strict=True):
            for answer in answers[: 1 if scaled else 2]:
                short = answer is not answers[0]
                row = answer.get(cell[:1] if short else cell)
                other = None if row is None else row[j]
                if (answer or not short) and not _close(one, other):
                    return f"{column.name} of {cell}: {one} and not {other}"
    return ""


def run_once(seed: int) -> Outcome:
    """Ask one query of chance of tables of chance."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    frames = make_frames(rng)
    text, refused = make_query(chance)
    via: Any = {"visits": "person", "tests": ("visit", "visits.visit")}
    tables = pac.Tables(frames, unit="people.id", via=via)
    data, n = coerce_data(tables), len(frames["people"])
    keys = {"k": list(KINDS)}
    try:
        mechanism = make_query_mechanism(text, tables, keys=keys, fill=-1.0).prepare(data)
        pool = pac.Balanced(n_subsets=4).draw(n, rng=seed)
        mine = [mechanism.evaluate(data.take(pool.rows(k)), rng) for k in range(4)]
    except QueryError as error:
        said = str(error)
        wrong = "" if refused else f"refused: {said}"
        if "\n" in said or (refused and "got" not in said and "must" not in said):
            wrong = f"unclear: {said}"
        return Outcome(text=text, kind="refused", wrong=wrong)
    except PacPrivacyError as error:
        return Outcome(text=text, kind="refused", wrong=f"{type(error).__name__}: {error}")
    if refused:
        return Outcome(text=text, kind="answered", wrong="it should have been refused")
    wrong = ""
    with duckdb.connect(":memory:", config={"threads": 1}) as engine:
        for k in range(4):
            world_engine(engine, frames, pool.rows(k))
            wrong = wrong or _check(mechanism, text, engine, len(pool.rows(k)) / n, mine[k])
    return Outcome(text=text, kind="answered", plan=mechanism.plan, wrong=wrong)


def _close(one: float, other: Any) -> bool:
    if other is None or not np.isfinite(float(other)):
        return one in (-1.0, 0.0)  # filled, or a total of nothing
    return bool(np.isclose(one, float(other), rtol=1e-9, atol=1e-9))


def run_sums(seed: int, n_queries: int) -> list[Outcome]:
    """Compare what units add to the sums of queries with each query on the rows of one unit alone.

    And on a few sets of units: what all of them add is what the query says of them together.
    """
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    frames = make_frames(rng)
    via: Any = {"visits": "person", "tests": ("visit", "visits.visit")}
    tables = pac.Tables(frames, unit="people.id", via=via)
    n = len(frames["people"])
    groups = [[unit] for unit in rng.permutation(n)[:4]] + [rng.permutation(n)[: n // 2]]
    with ExitStack() as stack:
        worlds = []
        for units in groups:
            connect = duckdb.connect(":memory:", config={"threads": 1})
            worlds.append((np.asarray(units), stack.enter_context(connect)))
            world_engine(worlds[-1][1], frames, units)
        queries = [make_query(chance, plain=True) for _ in range(n_queries)]
        return [_compare_sums(text, refused, tables, worlds) for text, refused in queries]


def _compare_sums(text: str, refused: bool, tables: pac.Tables, worlds: list[Any]) -> Outcome:
    data, keys = coerce_data(tables), {"k": list(KINDS)}
    try:
        query = make_query_mechanism(text, tables, keys=keys, fill=-1.0, kind=QuerySums)
        query = query.prepare(data)
        assert isinstance(query, QuerySums)
        added = query.contributions(data)
    except QueryError as error:
        known = refused or "function of sums" in str(error)
        return Outcome(text=text, kind="refused", wrong="" if known else f"refused: {error}")
    if refused:
        return Outcome(text=text, kind="answered", wrong="it should have been refused")
    wrong = ""
    for units, engine in worlds:
        inside = np.zeros(tables.n_units)
        inside[units] = 1.0
        mine = query.shaped(query.value(added.total(inside)), data)
        wrong = wrong or _check(query, text, engine, 1.0, mine)
    return Outcome(text=text, kind="answered", plan=query.plan, wrong=wrong)
