"""Tables on servers: a clinic with all that tells engines apart, and what must be equal there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac

N, SECRET = 400, "SECRET77"
MEMBERSHIP = "membership<=0.7"
COINS: dict[str, Any] = {"sample": pac.Coins(keep=0.9), "rng": 0, "simulate": True}
CLINIC: dict[str, Any] = {"unit": "people.id", "via": {"visits": "person"}}
Pair = tuple[pac.Tables, pac.Tables]
SAME_MEANING = [
    # a ridge by moments
    "SELECT count(*) AS n, sum(age) AS x, sum(cost) AS y, sum(age * age) AS xx, "
    "sum(age * cost) AS xy FROM visits JOIN people ON person = id WHERE cost IS NOT NULL",
    "SELECT kind, avg(cost) AS a, stddev(cost) AS s, count(DISTINCT person) AS n FROM visits "
    "GROUP BY kind",
    "SELECT kind, points > 0 AS p, GROUPING(kind) AS g, count(*) AS n FROM visits "
    "GROUP BY CUBE (kind, p)",
    "SELECT median(cost) AS m, quantile_cont(points, 0.25) FILTER (WHERE points > 0) AS q "
    "FROM visits",
    "SELECT date_part('year', day) AS y, month(day) AS m, count(*) AS n FROM visits "
    "WHERE day >= DATE '2024-02-01' GROUP BY y, m",
    "SELECT count(*) FILTER (WHERE kind < 'b') AS n, sum(CASE WHEN kind LIKE 'b\\_%' THEN 1 "
    "WHEN kind LIKE 'b__' THEN 10 ELSE points / 4 END) AS s, sum(points / 2) AS h FROM visits",
    "SELECT count(price) AS n, sum(cost * price) AS s FROM visits LEFT JOIN prices USING "
    "(kind) WHERE kind NOT IN (SELECT kind FROM prices WHERE price > 2) OR abs(points) > 2.5e0",
]
OTHER_MEANING = [
    "SELECT count(*) AS n FROM visits WHERE code = points",
    "SELECT count(*) AS n FROM visits WHERE code IN (1, 2)",
    "SELECT count(*) AS n FROM visits WHERE CASE WHEN points > 0 THEN code END = points",
    "SELECT count(*) AS n FROM visits WHERE lower(kind) = 'b'",
    "SELECT sum(points // 2) AS n FROM visits",
    "SELECT sum(round(cost)) AS n FROM visits",
    "SELECT count(*) AS n FROM visits WHERE day > '2024-01-01'::DATE + INTERVAL 3 DAY",
    "SELECT count(*) AS n FROM visits WHERE kind = (SELECT max(kind) FROM prices)",
    "SELECT count(*) AS n FROM visits WHERE kind IN "
    "(SELECT kind FROM prices ORDER BY price LIMIT 1)",
    "SELECT count(*) AS n FROM visits WHERE CAST(points AS VARCHAR) = '1'",
    "SELECT sum(TRY_CAST(code AS INTEGER)) AS n FROM visits",
    "SELECT count(*) AS n FROM visits WHERE kind || 'x' = 'ax'",
]


def clinic_frames() -> dict[str, pd.DataFrame]:
    rng, n = np.random.default_rng(0), 4 * N
    visits = pd.DataFrame(
        {
            "person": [f"p{i}" for i in rng.integers(0, N, n)],
            "cost": rng.gamma(9, 5, n).round(2),
            "kind": rng.choice(["a", "B", "b_%", "é", ""], n),
            "day": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 600, n), "D"),
            "code": np.where(np.arange(n) == 7, SECRET, "1"),
            "points": rng.integers(-9, 9, n),
        }
    )
    visits.loc[::17, "cost"] = np.nan
    visits.loc[::13, "kind"] = None
    people = pd.DataFrame({"id": [f"p{i}" for i in range(N)], "age": rng.integers(18, 90, N)})
    prices = pd.DataFrame({"kind": ["a", "B"], "price": [1.5, 2.5]})
    return {"people": people, "visits": visits, "prices": prices}


def assert_same(text: str, tables: Pair, **options: Any) -> None:
    """Assert that two engines give the same integers, plan, noise and numbers."""
    mine, theirs = (pac.sql(text, each, MEMBERSHIP, **COINS, **options) for each in tables)
    np.testing.assert_array_equal(mine.bundle.integers, theirs.bundle.integers)
    assert len(mine.bundle.integers) > 0
    for name, numbers in mine.value.items():  # rows come in another order, and floats are added
        assert theirs.value[name] == pytest.approx(numbers, rel=1e-9)
