"""Random schemas, tables and queries; the oracle is the query itself on each world's own tables.

A shop of chance: units, a table of theirs, a table that reaches them through the second, a public
one; gaps, repeated rows, units without rows. A query of chance is answered by the library's plan
for every world, and by an engine that never held more than that world; cells must agree."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd

import pacprivacy as pac
from pacprivacy.errors import PacPrivacyError, QueryError
from pacprivacy.mechanism import coerce_data, flatten, mechanism_batch
from pacprivacy.queries import query_mechanism

KINDS = ("a", "b", "c")
AGGREGATES = (
    "count(*)", "count({x})", "sum({x})", "avg({x})", "stddev({x})", "var_pop({x})",
    "sum({x}) FILTER (WHERE {y} > 0)", "count_if({y} > 1)", "sum({x} * {y})", "min({x})",
    "max({y})", "median({x})", "count(DISTINCT kind)", "count(DISTINCT person)",
    "covar_pop({x}, {y})", "sum(CASE WHEN kind = 'a' THEN {x} ELSE 0 END) / count(*)",
    "avg({x}) - avg({y})", "quantile_cont({x}, 0.3)", "2 * count(*) + sum({y})",
)  # fmt: skip
FILTERS = (
    "{x} > 2", "kind <> 'b'", "{y} IS NOT NULL", "kind IN (SELECT kind FROM prices)",
    "{x} > (SELECT avg(x) FROM visits)", "person % 2 = 0", "NOT ({x} < 1 AND {y} < 1)",
    "EXISTS (SELECT 1 FROM tests t9 WHERE t9.visit = v.visit)", "kind LIKE 'a%'",
)  # fmt: skip
SOURCES = (
    ("visits v", "v.x", "v.y"),
    ("visits v JOIN people p ON v.person = p.id", "v.x", "p.age"),
    ("people p LEFT JOIN visits v ON p.id = v.person", "p.age", "v.y"),
    ("visits v JOIN tests t ON v.visit = t.visit", "v.x", "t.result"),
    ("visits v LEFT JOIN prices s USING (kind)", "v.x", "s.price"),
    ("visits v, prices s", "v.x", "s.price"),
    ("prices s LEFT JOIN visits v USING (kind)", "v.x", "s.price"),
    ("visits v JOIN visits w ON v.kind = w.kind AND v.visit = w.visit + 1", "v.x", "w.y"),
    ("(SELECT * FROM visits WHERE y > 0) v", "v.x", "v.y"),
    ("(SELECT person, kind, visit, x + y AS x, y FROM visits) v", "v.x", "v.y"),
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
    "SELECT mode(x) FROM visits v",
    "SELECT count(*) OVER () FROM visits v",
    "SELECT max(kind) FROM visits v",
    "SELECT count(*) FROM prices",
    "SELECT sum(x) FROM visits v GROUP BY CUBE (kind)",
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


def make_query(chance: random.Random) -> tuple[str, bool]:
    """Return a query, and whether it must be refused."""
    source, x, y = chance.choice(SOURCES)
    if chance.random() < 0.15:
        return chance.choice(WRONG).format(x="v.x"), True
    asked = [a.format(x=x, y=y) for a in chance.sample(AGGREGATES, chance.randint(1, 3))]
    kind = "v.kind" if " w " in f" {source} " or "prices" in source else "kind"
    asked = [a.replace("kind", kind).replace("DISTINCT person", "DISTINCT v.person") for a in asked]
    where = ""
    if chance.random() < 0.6:
        chosen = chance.sample(FILTERS, chance.randint(1, 2))
        text = chance.choice((" AND ", " OR ")).join(f.format(x=x, y=y) for f in chosen)
        text = text.replace("(SELECT kind FROM", "(SELECT s9.kind FROM").replace(
            "prices)", "prices s9)"
        )
        for word in ("kind <>", "kind IN", "kind LIKE"):
            text = text.replace(word, word.replace("kind", kind))
        where = f" WHERE {text.replace('person %', 'v.person %')}"
    keyed = chance.random() < 0.6
    shown = [*([f"{kind} AS k"] if keyed else []), *(f"{a} AS o{i}" for i, a in enumerate(asked))]
    return f"SELECT {', '.join(shown)} FROM {source}{where}{' GROUP BY 1' if keyed else ''}", False


def plain_answer(text: str, frames: dict[str, pd.DataFrame], units: Any) -> dict[Any, list[float]]:
    """Return the cells of a query in an engine that holds the rows of these units alone."""
    visits = frames["visits"][frames["visits"]["person"].isin(units)]
    tables = {
        "people": frames["people"][frames["people"]["id"].isin(units)],
        "visits": visits,
        "tests": frames["tests"][frames["tests"]["visit"].isin(visits["visit"])],
        "prices": frames["prices"],
    }
    with duckdb.connect(":memory:") as engine:
        for name, frame in tables.items():
            engine.register("frame", frame)
            engine.execute(f"CREATE TABLE {name} AS SELECT * FROM frame")
            engine.unregister("frame")
        keyed = "AS k" in text
        rows = engine.execute(text).fetchall()
    return {row[0] if keyed else "": list(row[keyed:]) for row in rows}


def _check(mechanism: Any, text: str, frames: Any, units: Any, mine: Any) -> str:
    """Compare cells with the core on a world's own tables, and with the query as it was asked."""
    share = len(units) / len(frames["people"])
    core = mechanism.query.core.replace("pac_share", repr(share)).replace("AS k0", "AS k")
    answers = plain_answer(core, frames, units), plain_answer(text, frames, units)
    for j, column in enumerate(mechanism.query.columns):
        found = mine[column.name]
        ours = list(found.values()) if isinstance(found, dict) else [found]
        scaled = "pac_share" in column.sql
        for cell, one in zip(mechanism.cells, ours, strict=True):
            for answer in answers[: 1 if scaled else 2]:
                row = answer.get(cell[0] if cell else "")
                other = None if row is None else row[j]
                if not _close(one, other):
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
        mechanism = query_mechanism(text, tables, keys=keys, fill=-1.0).prepare(data)
        pool = pac.Balanced(n_subsets=4).draw(n, rng=seed)
        rows = [flatten(mechanism.evaluate(data.take(pool.rows(k)), rng))[0] for k in range(4)]
        batch = mechanism_batch(mechanism)
        values = None if batch is None else batch(data, pool)
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
    for k in range(4):
        mine = mechanism.evaluate(data.take(pool.rows(k)), rng)
        wrong = wrong or _check(mechanism, text, frames, pool.rows(k), mine)
        if values is not None and not np.allclose(values[k], rows[k], rtol=1e-9, atol=1e-9):
            wrong = f"world {k}: the plans differ by {np.abs(values[k] - rows[k]).max()}"
    return Outcome(text=text, kind="answered", plan=mechanism.plan, wrong=wrong)


def _close(one: float, other: Any) -> bool:
    if other is None or not np.isfinite(float(other)):
        return one in (-1.0, 0.0)  # filled, or a total of nothing
    return bool(np.isclose(one, float(other), rtol=1e-9, atol=1e-9))
