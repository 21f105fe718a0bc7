"""Statistics of joined tables are those of the rows that each candidate's own tables give."""

import traceback
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.errors import DataError, MechanismError, QueryError
from pacprivacy.mechanism import Mechanism, coerce_data, flatten

N = 60
JOIN = "visits JOIN people ON person = id"
LEVELS = {"region": ["n", "s"], "ward": ["A", "B", "C"]}


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(3)
    n = 900
    visits = pd.DataFrame(
        {
            "person": rng.integers(0, N - 5, n),  # five people without a visit
            "cost": rng.gamma(9, 5, n).round(2),
            "size": rng.integers(0, 4, n),
            "ward": rng.choice(["A", "B", "C"], n),
            "back": rng.choice(["yes", "no"], n),
        }
    )
    visits.loc[::7, "cost"] = np.nan
    people = pd.DataFrame(
        {"id": range(N), "region": rng.choice(["n", "s"], N), "age": rng.integers(18, 80, N)}
    )
    return {"people": people, "visits": visits}


@pytest.fixture(scope="module")
def clinic(frames: dict[str, pd.DataFrame]) -> pac.Tables:
    return pac.Tables(frames, unit="people.id", via={"visits": "person"})


# Statistic with a table, the same without one, its FROM clause, and whether all go at once.
CASES: dict[str, tuple[Mechanism, Mechanism, str, bool]] = {}
for _name, _kind, _settings, _table, _at_once in (
    ("group means", pac.stats.mean, {"columns": "cost", "by": "region"}, JOIN, True),
    ("sums", pac.stats.sum, {"columns": "cost", "where": "size > 1"}, JOIN, True),
    ("crosstab", pac.stats.crosstab, {"rows": "region", "columns": "ward"}, JOIN, True),
    ("variance", pac.stats.variance, {"columns": "cost", "by": "ward"}, "visits", True),
    ("quantiles", pac.stats.quantiles, {"columns": "cost", "by": "region"}, JOIN, False),
    ("filled", pac.stats.mean, {"columns": "cost", "missing": "mean"}, JOIN, False),
    ("ols", pac.stats.ols, {"target": "cost", "columns": ["age", "size"]}, JOIN, True),
    ("logistic", pac.stats.logistic, {"target": "back", "columns": ["size"]}, JOIN, False),
    ("poisson", pac.stats.poisson, {"target": "size", "columns": ["age"]}, JOIN, False),
    ("two in a row", pac.stats.mean, {"columns": "cost"},
     "visits JOIN (SELECT person AS other, ward FROM visits WHERE size = 3) USING (ward)", False),
    ("pairs", pac.stats.mean, {"columns": "age"},
     "visits a JOIN visits b ON a.cost = b.cost JOIN people ON a.person = id", False),
):  # fmt: skip
    _needed = {name for name in LEVELS if name in str(_settings)}
    _options: dict[str, Any] = {**_settings, "levels": {n: LEVELS[n] for n in _needed}}
    CASES[_name] = (_kind(**_options, table=_table), _kind(**_options), _table, _at_once)


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_statistic_of_each_candidates_joined_rows(
    name: str, clinic: pac.Tables, frames: dict[str, pd.DataFrame]
) -> None:
    joined, plain, table, at_once = CASES[name]
    data, rng = coerce_data(clinic), np.random.default_rng(0)
    pool = pac.Balanced(n_subsets=8, folds=4).draw(N, rng=0)
    prepared = joined.prepare(data)
    batch = prepared.batch
    assert (batch is not None) == at_once
    for k in (0, 5):
        units = pool.rows(k)
        with duckdb.connect(":memory:") as connection:
            visits = frames["visits"]
            connection.register("people", frames["people"][frames["people"]["id"].isin(units)])
            connection.register("visits", visits[visits["person"].isin(units)])
            rows = connection.sql(f"SELECT * FROM {table}").to_arrow_table()
            once = [name for name in rows.column_names if rows.column_names.count(name) == 1]
            rows = rows.select(once)
        own = coerce_data(rows)
        expected = flatten(plain.prepare(own).evaluate(own.parts, rng))[0]
        found = flatten(prepared.evaluate(data.take(units), rng))[0]
        np.testing.assert_allclose(found, expected, rtol=1e-7)
        if batch is not None:
            np.testing.assert_allclose(batch(data, pool)[k], expected, rtol=1e-7)


def test_a_histogram_of_joined_rows(clinic: pac.Tables, frames: dict[str, pd.DataFrame]) -> None:
    edges = [0, 30, 40, 60, 200]
    made = pac.stats.histogram("cost", bins=edges, table=JOIN).prepare(coerce_data(clinic))
    found = made.evaluate((clinic.take(np.arange(30)),), np.random.default_rng(0))
    visits = frames["visits"]
    expected = np.histogram(visits[visits["person"] < 30]["cost"].dropna(), edges)[0]
    assert np.asarray(found).ravel().tolist() == expected.tolist()
    assert made.name.endswith("in visits JOIN people ON person = id WHERE cost IS NOT NULL")


def test_a_release_has_the_names_of_a_statistic(clinic: pac.Tables) -> None:
    asked = pac.stats.mean("cost", by="region", levels={"region": ["n", "s"]}, table=JOIN)
    with pac.Session(clinic, budget=pac.Information(2), n_subsets=16, rng=0) as session:
        release = session.release(asked, pac.Information(1), rule="waterfill")
    assert list(release.value) == ["n", "s"]
    assert release.certificate.mechanism == f"mean of cost by region in {JOIN}"
    assert release.certificate.unit == "person"


def test_wrong_use_is_told(clinic: pac.Tables, frames: dict[str, pd.DataFrame]) -> None:
    with pytest.raises(DataError, match=r"pac\.Tables"):
        pac.stats.mean("age", table="people").prepare(coerce_data(frames["people"]))
    with pytest.raises(QueryError, match="declared"):
        pac.stats.mean("age", table="nobody").prepare(coerce_data(clinic))
    with pytest.raises(MechanismError, match="'years'"):
        pac.stats.mean("years", table="people").prepare(coerce_data(clinic))
    with pytest.raises(MechanismError, match="tables"):
        pac.stats.mean("age", tables="people")


@pytest.mark.parametrize(
    "clause", ["LIMIT 3", "GROUP BY ALL", "QUALIFY rank() OVER (ORDER BY age) < 3"]
)
def test_a_table_is_no_whole_query(clause: str, clinic: pac.Tables) -> None:
    """What comes after WHERE would be left out where rows are joined once for all."""
    with pytest.raises(QueryError, match="after FROM"):
        pac.stats.count(table=f"people {clause}").prepare(coerce_data(clinic))


@pytest.mark.claim("Q-3")
@pytest.mark.parametrize(
    "table", ["visits WHERE ward::INT > 0", "(SELECT ward::INT AS cost FROM visits)"]
)
def test_a_join_that_fails_shows_no_value(table: str, clinic: pac.Tables) -> None:
    with pytest.raises(QueryError, match="'conversion'") as caught:
        pac.stats.mean("cost", table=table).prepare(coerce_data(clinic))
    shown = traceback.format_exception(caught.value)
    assert not any("Could not convert" in line for line in shown)
