"""Queries over tables: every plan gives the answer of the original query on each world's tables."""

import pickle
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy.cli.main import app
from pacprivacy.errors import DataError, MechanismError, QueryError
from pacprivacy.mechanism import coerce_data, flatten, mechanism_batch
from pacprivacy.queries import query_mechanism

N = 120
JOIN = "FROM visits v JOIN people p ON v.person = p.id"


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(1)
    n = 400
    visits = pd.DataFrame(
        {
            "visit": range(n),
            "person": rng.integers(0, N, n),
            "cost": rng.gamma(9, 5, n).round(2),
            "kind": rng.choice(["a", "b", "c"], n),
        }
    )
    visits.loc[::17, "cost"] = np.nan
    tests = pd.DataFrame({"visit": rng.integers(0, n, 300), "result": rng.normal(1e3, 1.0, 300)})
    people = pd.DataFrame({"id": range(N), "region": rng.choice(["n", "s"], N)})
    prices = pd.DataFrame({"kind": ["a", "b", "d"], "price": [1.5, 2.5, 9.0]})
    return {"people": people, "visits": visits, "tests": tests, "prices": prices}


@pytest.fixture(scope="module")
def clinic(frames: dict[str, pd.DataFrame]) -> pac.Tables:
    via: dict[str, Any] = {"visits": "person", "tests": ("visit", "visits.visit")}
    return pac.Tables(frames, unit="people.id", via=via)


def world_of(frames: dict[str, pd.DataFrame], units: Any) -> Any:
    """An engine that holds the private rows of these people and nothing else of them."""
    people = frames["people"][frames["people"]["id"].isin(units)]
    visits = frames["visits"][frames["visits"]["person"].isin(units)]
    tests = frames["tests"][frames["tests"]["visit"].isin(visits["visit"])]
    connection = duckdb.connect(":memory:")
    for name, frame in (("people", people), ("visits", visits), ("tests", tests)):
        connection.register(f"{name}_frame", frame)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_frame")
    connection.register("prices_frame", frames["prices"])
    connection.execute("CREATE TABLE prices AS SELECT * FROM prices_frame")
    return connection


# Query, its numbers of the plain query in a world in terms of the share, expected plan.
SUMS, WORLDS = "sums per unit", "one query per world"
CASES = [
    (f"SELECT region, count(*) AS n, sum(cost) AS s {JOIN} GROUP BY region", SUMS),
    (f"SELECT p.region, avg(cost), stddev(cost), var_pop(cost) {JOIN} GROUP BY 1", SUMS),
    (f"SELECT region AS r, kind, sum(cost) / count(cost) AS c {JOIN} GROUP BY ALL", SUMS),
    ("SELECT count(DISTINCT person) AS n FROM visits", SUMS),
    ("SELECT count(DISTINCT kind) AS n FROM visits", WORLDS),
    ("SELECT corr(result, cost), regr_slope(cost, result), covar_samp(cost, result) "
     "FROM tests JOIN visits USING (visit)", SUMS),
    ("SELECT stddev(result), var_samp(result), stddev_pop(result) FROM tests", SUMS),
    ("SELECT sum(cost) FILTER (WHERE kind = 'a') AS a, count_if(cost > 40) AS c FROM visits", SUMS),
    ("SELECT 2 * sum(cost * price) - count(*) AS x FROM visits JOIN prices USING (kind)", SUMS),
    ("SELECT count(price) AS c, count(*) AS n FROM visits LEFT JOIN prices USING (kind)", SUMS),
    ("SELECT count(v.visit) AS c FROM people p LEFT JOIN visits v ON p.id = v.person", SUMS),
    ("SELECT count(*) AS n FROM prices LEFT JOIN visits USING (kind)", WORLDS),
    ("SELECT count(*) AS n FROM visits a JOIN visits b ON a.kind = b.kind", WORLDS),
    ("SELECT median(cost) AS m, max(cost) AS x, quantile_cont(cost, 0.9) AS q FROM visits", WORLDS),
    ("SELECT avg(n) AS a FROM (SELECT person, count(*) AS n FROM visits GROUP BY person)", WORLDS),
    ("WITH w AS (SELECT cost * 2 AS d, kind FROM visits WHERE cost > 20) "
     "SELECT kind, sum(d) AS d FROM w GROUP BY kind", SUMS),
    ("SELECT kind, sum(d) AS d FROM (SELECT cost * 2 d, kind FROM visits) t GROUP BY kind", SUMS),
    ("SELECT count(*) AS n FROM visits WHERE cost > (SELECT avg(cost) FROM visits)", WORLDS),
    ("SELECT count(*) AS n FROM visits WHERE kind IN (SELECT kind FROM prices)", SUMS),
    ("SELECT avg(r) AS a FROM (SELECT rank() OVER (PARTITION BY kind ORDER BY cost, visit) AS r "
     "FROM visits)", WORLDS),
]  # fmt: skip


@pytest.mark.claim("Q-1")
@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(("text", "plan"), CASES)
def test_every_plan_answers_the_query_on_each_world(
    text: str, plan: str, clinic: pac.Tables, frames: dict[str, pd.DataFrame]
) -> None:
    data = coerce_data(clinic)
    keys: Any = {"region": ["n", "s"], "r": ["n", "s"], "kind": ["a", "b", "c"]}
    asked = query_mechanism(text, clinic, keys=keys)
    mechanism = asked.prepare(data)
    assert mechanism.plan.startswith(plan), mechanism.plan
    pool = pac.Balanced(n_subsets=8, folds=4).draw(N, rng=0)
    batch = mechanism_batch(mechanism)
    assert (batch is None) == (plan == WORLDS)
    rows = [flatten(mechanism.evaluate(data.take(pool.rows(k)), None))[0] for k in range(8)]  # type: ignore[arg-type]
    if batch is not None:
        np.testing.assert_allclose(batch(data, pool), rows, rtol=1e-9, atol=1e-12)
    for k in (0, 5):
        plain = world_of(frames, pool.rows(k)).execute(text).df()
        share = len(pool.rows(k)) / N
        for j, column in enumerate(asked.query.columns):
            values = plain.iloc[:, len(asked.query.keys) + j].to_numpy(dtype=float)
            if "pac_share" in column.sql and column.name not in ("x", "c"):
                values = values / share
            found = mechanism.evaluate(data.take(pool.rows(k)), None)[column.name]  # type: ignore[arg-type]
            ours = np.array(list(found.values()) if isinstance(found, dict) else [found])
            if column.name not in ("x", "c") and len(values) == len(ours):
                np.testing.assert_allclose(np.sort(ours), np.sort(values), rtol=1e-9)


REFUSED = {
    "SELECT * FROM visits": "«*»",
    "SELECT cost FROM visits": "«cost»",
    "SELECT kind, cost, count(*) FROM visits GROUP BY kind": "«cost»",
    "SELECT cost + count(*) FROM visits GROUP BY kind": "«cost»",
    "SELECT DISTINCT kind FROM visits": "DISTINCT",
    "SELECT count(*) FROM visits WHERE cost > random()": "«random()»",
    "SELECT count(*) FROM visits WHERE cost > 0 AND now() > TIMESTAMP '2020-01-01'": "«now()»",
    "SELECT first(cost) FROM visits": "«first(cost)»",
    "SELECT string_agg(kind, ',') FROM visits": "order of rows",
    "SELECT max(kind) FROM visits": "«max(kind)»",
    "SELECT count(*) FROM nowhere": "«nowhere»",
    "SELECT count(*) FROM read_csv('people.csv')": "declared",
    "SELECT count(*) FROM pac_whole.visits": "declared",
    "SELECT count(*) FROM visits WHERE pac_unit = 3": "pac_",
    "SELECT count(*) FROM prices": "public",
    "DELETE FROM visits": "SELECT",
    "DROP TABLE visits": "SELECT",
    "COPY visits TO 'out.csv'": "SELECT",
    "SELECT count(*) FROM visits; SELECT 1": "one statement",
    "SELECT count(* FROM visits": "SQL",
    "SELECT count(*) FROM visits UNION ALL SELECT count(*) FROM people": "set operation",
    "SELECT sum(count(*)) OVER () FROM visits GROUP BY kind": "windows",
    "SELECT sum(nothing) FROM visits": "DuckDB",
    "SELECT kind, count(*) FROM visits GROUP BY ROLLUP (kind)": "plain keys",
    "SELECT kind, count(*) FROM visits GROUP BY kind": "keys=",
    "SELECT count(*) FROM visits USING SAMPLE 10": "",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_answered_is_refused_with_the_fragment(
    text: str, clinic: pac.Tables
) -> None:
    with pytest.raises(QueryError) as caught:
        query_mechanism(text, clinic).prepare(coerce_data(clinic))
    assert REFUSED[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_of_the_universe_are_said_and_rare_ones_left_out(clinic: pac.Tables) -> None:
    text = "SELECT kind, count(*) AS n FROM visits GROUP BY kind"
    found = query_mechanism(text, clinic, keys="universe").prepare(coerce_data(clinic))
    assert found.cells == (("a",), ("b",), ("c",))
    assert "3 groups of kind" in found.published[0]
    people = "SELECT person, count(*) AS n FROM visits GROUP BY person"
    with pytest.raises(QueryError, match="at least 20 units"):
        query_mechanism(people, clinic, keys="universe").prepare(coerce_data(clinic))
    with pytest.raises(QueryError, match="at_least must be"):
        query_mechanism(people, clinic, keys="universe", at_least=1)


def test_an_empty_average_is_refused_or_filled(clinic: pac.Tables) -> None:
    text = "SELECT kind, avg(cost) AS c, count(*) AS n FROM visits GROUP BY kind"
    keys = {"kind": ["a", "z"]}
    with pytest.raises((QueryError, MechanismError), match="fill=0"):
        pac.sql(text, clinic, "membership<=0.8", keys=keys, n_subsets=16)
    found = pac.sql(text, clinic, "membership<=0.8", keys=keys, fill=0, n_subsets=16, rng=0)
    assert found.value["c"]["z"] == 0.0  # the same in all worlds: no noise was needed
    assert found.value["n"]["z"] == 0.0


def test_order_limit_and_having_are_taken_of_released_numbers(clinic: pac.Tables) -> None:
    text = (
        "SELECT kind AS what, count(*) AS n, upper(kind) AS big FROM visits GROUP BY kind "
        "HAVING sum(cost) > 0 ORDER BY 2 DESC LIMIT 2"
    )
    found = pac.sql(
        text, clinic, "membership<=0.9", keys="universe", n_subsets=32, rng=0, simulate=True
    )
    frame = found.frame
    names = ["what", "n", "n noise", "n low", "n high", "big"]
    assert list(frame.columns) == names
    counts = sorted(found.value["n"].values(), reverse=True)[:2]
    assert frame["n"].tolist() == [round(c) for c in counts]
    assert (frame["n low"] < frame["n"]).all()
    assert (frame["n"] < frame["n high"]).all()
    assert found.plan.startswith("sums per unit")
    assert "what" in str(found)
    assert "<table" in found._repr_html_()


def test_sessions_answer_queries_and_any_function_sees_the_tables(clinic: pac.Tables) -> None:
    with pac.Session(clinic, budget=pac.Information(1), n_subsets=32, rng=0) as session:
        first = session.sql("SELECT count(*) AS n FROM visits", pac.Information(0.5))

        def cost_of_a_person(tables: Any) -> float:
            return float(tables["visits"].groupby("person")["cost"].sum().median())

        second = session.release(cost_of_a_person, pac.Information(0.5))
    assert first.certificate.mechanism == "SELECT count(*) AS n FROM visits"
    assert second.value > 0
    with (
        pytest.raises(DataError, match=r"pac\.Tables"),
        pac.Session(np.arange(20.0), budget=pac.Information(1)) as other,
    ):
        other.sql("SELECT count(*) FROM visits", pac.Information(1))


# --- where tables are, and what is wrong with them ----------------------------------------------


def test_the_same_tables_from_every_source_give_the_same_release(
    frames: dict[str, pd.DataFrame], clinic: pac.Tables, tmp_path: Path
) -> None:
    file, folder = tmp_path / "clinic.duckdb", tmp_path / "clinic"
    folder.mkdir()
    with duckdb.connect(str(file)) as connection:
        for name, frame in frames.items():
            connection.register("frame", frame)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM frame")
            connection.unregister("frame")
            frame.to_parquet(folder / f"{name}.parquet")
    via: dict[str, Any] = {"visits": "person", "tests": ("visit", "visits.visit")}
    text = f"SELECT region, avg(cost) AS c {JOIN} GROUP BY region"
    values = []
    live = duckdb.connect(str(file), read_only=True)
    sources = [file, folder, live]
    for tables in (clinic, *(pac.Tables(s, unit="people.id", via=via) for s in sources)):
        found = pac.sql(
            text, tables, "mi<=1", keys={"region": ["n", "s"]}, n_subsets=16, rng=0, simulate=True
        )
        values.append(found.value)
        assert tables.digest() == clinic.digest()
    assert all(value == values[0] for value in values)
    assert len(pickle.loads(pickle.dumps(clinic))) == N


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({}, {"unit": "people"}, "table.column"),
        ({}, {"unit": "persons.id"}, "'persons'"),
        ({}, {"unit": "people.key"}, "'key'"),
        ({}, {"via": {"visits": "client"}}, "'client'"),
        ({}, {"via": {"tests": ("visit", "prices.kind")}}, "private tables"),
        ({"person": [0, 1, 999]}, {}, "1 rows whose 'person'"),
        ({"person": [0, 1, None]}, {}, "1 rows whose 'person'"),
    ],
)
def test_broken_keys_are_told_with_counts(
    change: dict[str, Any], options: dict[str, Any], said: str, frames: dict[str, pd.DataFrame]
) -> None:
    given = dict(frames)
    if change:
        given["visits"] = pd.DataFrame({"visit": [1, 2, 3], **change, "cost": 1.0, "kind": "a"})
    settings = {"unit": "people.id", "via": {"visits": "person"}, **options}
    with pytest.raises(DataError, match=said):
        pac.Tables(given, **settings)


def test_rows_that_reach_two_people_are_told_with_counts(
    frames: dict[str, pd.DataFrame],
) -> None:
    twice = pd.concat([frames["visits"], frames["visits"].head(3).assign(person=N - 1)])
    via: dict[str, Any] = {"visits": "person", "tests": ("visit", "visits.visit")}
    with pytest.raises(DataError, match=r"3 values of visits\.visit"):
        pac.Tables({**frames, "visits": twice}, unit="people.id", via=via)


# --- on the command line -------------------------------------------------------------------------


@pytest.fixture
def folder(frames: dict[str, pd.DataFrame], tmp_path: Path) -> Path:
    where = tmp_path / "clinic"
    where.mkdir()
    for name, frame in frames.items():
        frame.to_parquet(where / f"{name}.parquet")
    return where


def run_sql(folder: Path, *words: str, code: int = 0) -> Any:
    private = ["--unit", "people.id", "--via", "visits=person", "--budget", "mi<=1"]
    few = ["--via", "tests=visit:visits.visit", "--subsets", "16"]
    args = ["sql", str(folder), *words, *private, *few, "-o", str(folder.parent / "out")]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == code, (result.stdout, result.stderr)
    return result


def test_one_command_answers_a_query_over_a_folder(folder: Path) -> None:
    text = "SELECT kind, count(*) AS n, avg(cost) AS cost FROM visits GROUP BY kind ORDER BY n DESC"
    shown = run_sql(folder, text, "--keys", "kind=a,b,c").stdout
    assert "Answer ± standard error" in shown
    assert "plan: sums per unit" in shown
    out = folder.parent / "out"
    lines = (out / "answer.csv").read_text().splitlines()
    assert lines[0] == "kind,n,n noise,n low,n high,cost,cost noise,cost low,cost high"
    assert len(lines) == 4
    saved = pac.Release.load(out / "release.json")
    assert saved.certificate.mechanism == text
    assert {line.split(",")[0] for line in lines[1:]} == set(saved.value["n"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["SELECT cost FROM visits"], "«cost»"),
        (["SELECT count(*) FROM visits", "--keys", "kind"], "--keys must be"),
        (["SELECT count(*) FROM visits", "--via", "visits"], "--via must be"),
        (["SELECT count(*) FROM visits", "--total", "mi<=1"], "--ledger"),
        (["SELECT tests, count(*) FROM visits GROUP BY 1"], "DuckDB"),
        (["SELECT person, count(*) FROM visits GROUP BY 1", "--keys", "person=x"], "BIGINT"),
    ],
)
def test_wrong_use_is_one_line(words: list[str], said: str, folder: Path) -> None:
    line = run_sql(folder, *words, code=2).stderr
    assert len(line.splitlines()) == 1
    assert said in line
    assert not (folder.parent / "out").exists()


def test_a_unit_is_called_as_its_table(clinic: pac.Tables) -> None:
    query = "SELECT avg(cost) AS cost FROM visits"
    made = pac.sql(query, clinic, pac.Information(1), n_subsets=16)
    assert made.certificate.unit == "person"
