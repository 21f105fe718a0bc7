"""Queries over tables: every plan gives the answer of the original query on each world's tables."""

import pickle
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy.cli.console import app
from pacprivacy.errors import DataError, MechanismError, QueryError
from pacprivacy.mechanism import coerce_data
from pacprivacy.queries import QuerySums, make_query_mechanism
from pacprivacy.queries.tree import number, write_sql
from tests.sql_support import (
    ALONE,
    ANSWERED,
    JOIN,
    KEYS,
    NOT_ANSWERED,
    PAGE,
    SUMS,
    N,
    cells_of_candidate,
    clinic_frames,
    clinic_tables,
    written_page,
)


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return clinic_frames()


@pytest.fixture(scope="module")
def clinic(frames: dict[str, pd.DataFrame]) -> pac.Tables:
    return clinic_tables(frames)


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


@pytest.mark.claim("Q-1")
@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(("text", "plan"), ANSWERED)
def test_every_plan_answers_the_query_on_each_candidate(
    text: str, plan: str, clinic: pac.Tables, frames: dict[str, pd.DataFrame]
) -> None:
    data = coerce_data(clinic)
    mechanism = make_query_mechanism(text, clinic, keys=KEYS).prepare(data)
    assert ("since" in mechanism.plan) == (plan == ALONE), mechanism.plan
    pool = pac.Balanced(n_subsets=8, folds=4).draw(N, rng=0)
    sums = make_query_mechanism(text, clinic, keys=KEYS, fill=-1.0, kind=QuerySums)
    assert (sums.coin_obstacle() is None) == (plan == SUMS)
    worlds = [data.take(pool.rows(k)) for k in range(8)]
    found = [mechanism.evaluate(world, None) for world in worlds]  # type: ignore[arg-type]
    if plan == SUMS and not re.search("median|_cont", text):
        sums = sums.prepare(data)
        assert isinstance(sums, QuerySums)
        added = sums.contributions(data)
        for k in range(8):
            mine = sums.cell_values(added.total(pool.row_mask(k).astype(float)))
            theirs = cells_of_candidate(sums, clinic, pool.rows(k))
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    query, k, share = mechanism.query, 5, len(pool.rows(5)) / N
    engine = world_of(frames, pool.rows(k))
    core_rows = engine.execute(write_sql(query.core(number(share)))).fetchall()
    core = {row[: query.n_keys]: row for row in core_rows}
    for j, column in enumerate(query.columns):
        numbers = found[k][column.name]
        ours = list(numbers.values()) if isinstance(numbers, dict) else [numbers]
        for cell, mine in zip(mechanism.cells or (), ours, strict=True):
            other = core[cell][query.n_keys + j] if cell in core else mechanism.nothing[j]  # type: ignore[index]
            assert mine == pytest.approx(float(other), rel=1e-9)
    # The numbers of the query as it was written, whatever its core is; mode may name another one.
    plain = engine.execute(text).df()
    for column in query.columns:
        if not column.scaled and "mode" not in text:
            numbers = found[k][column.name]
            ours = list(numbers.values()) if isinstance(numbers, dict) else [numbers]
            theirs = plain[column.name].to_numpy(dtype=float)
            np.testing.assert_allclose(np.sort(ours), np.sort(theirs), rtol=1e-9)


@pytest.mark.parametrize(("text", "said"), NOT_ANSWERED)
def test_what_cannot_be_answered_is_refused_with_the_fragment(
    text: str, said: str, clinic: pac.Tables
) -> None:
    with pytest.raises(QueryError) as caught:
        make_query_mechanism(text, clinic).prepare(coerce_data(clinic))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_table_of_what_is_answered_is_that_of_the_tests() -> None:
    page = PAGE.read_text()
    assert page == written_page(page), "run: python -m tests.sql_support"


def test_keys_of_the_universe_are_said_and_rare_ones_left_out(clinic: pac.Tables) -> None:
    text = "SELECT kind, count(*) AS n FROM visits GROUP BY kind"
    found = make_query_mechanism(text, clinic, keys="universe").prepare(coerce_data(clinic))
    assert found.cells == (("a",), ("b",), ("c",))
    assert "3 groups of kind" in found.published[0]
    people = "SELECT person, count(*) AS n FROM visits GROUP BY person"
    with pytest.raises(QueryError, match="at least 20 units"):
        make_query_mechanism(people, clinic, keys="universe").prepare(coerce_data(clinic))
    with pytest.raises(QueryError, match="at_least must be"):
        make_query_mechanism(people, clinic, keys="universe", at_least=1)


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
    assert found.plan == "one query per candidate"
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
        (
            {"person": ["0", "1", "SECRET"]},
            {},
            "of one type on both sides; got VARCHAR in 'person'",
        ),
        ({"person": [0, 1, "SECRET"]}, {}, "entries of one kind in each column"),
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


def test_a_table_that_via_does_not_name_is_not_called_harmless(
    frames: dict[str, pd.DataFrame],
) -> None:
    with pytest.raises(QueryError, match="name it in via"):
        make_query_mechanism(
            "SELECT sum(cost) AS s FROM visits", pac.Tables(frames, unit="people.id")
        )


def test_rows_that_reach_two_people_are_told_with_counts(
    frames: dict[str, pd.DataFrame],
) -> None:
    twice = pd.concat([frames["visits"], frames["visits"].head(3).assign(person=N - 1)])
    via: dict[str, Any] = {"visits": "person", "tests": ("visit", "visits.visit")}
    with pytest.raises(DataError, match="rows that reach several through"):
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
    assert shown.startswith("kind")
    assert "± standard error" in shown
    assert "Plan: one query per candidate" in shown
    assert "times in 100; 50 without the release" in " ".join(shown.split())
    out = folder.parent / "out"
    lines = (out / "values.csv").read_text().splitlines()
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
        (["SELECT tests, count(*) FROM visits GROUP BY 1"], "«tests»"),
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
