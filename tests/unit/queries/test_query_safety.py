"""Queries that were made to trip the library up: texts, keys, numbers, threads, forks."""

import os
import threading
import traceback
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow
import pytest

import pacprivacy as pac
from pacprivacy.errors import (
    DataError,
    InterruptedRun,
    MechanismError,
    PacPrivacyError,
    QueryError,
)
from pacprivacy.mechanism import (
    coerce_data,
    flatten,
)
from pacprivacy.queries import QueryMechanism, make_query_mechanism
from pacprivacy.queries.grammar import checked_sql
from pacprivacy.queries.tree import number
from pacprivacy.simulation import run_mechanism

N, ODD = 40, 17  # people; the one whose rows are odd
SECRET = "SECRET77"


@pytest.fixture(scope="module")
def shop() -> pac.Tables:
    rng = np.random.default_rng(3)
    person = np.repeat(np.arange(N), 4)
    odd = person == ODD
    bills = pyarrow.table(
        {
            "bill": np.arange(4 * N),
            "person": person,
            "cost": rng.gamma(9, 5, 4 * N).round(2),
            "kind": [None if i % 5 == 0 else "ab"[i % 2] for i in range(4 * N)],
            "text": [SECRET if o else str(i) for i, o in enumerate(odd)],
            "zero": np.where(odd, 0, 1),
            "huge": np.where(odd, 2**62, 3),
            "wild": np.where(odd, np.inf, 1.0),
            "level": pyarrow.array(np.where(np.arange(4 * N) % 3 == 0, np.nan, 0.5)),
            "big": 2**60 + np.arange(4 * N) * 2**50,
        }
    )
    people = pd.DataFrame({"id": range(N)})
    return pac.Tables({"people": people, "bills": bills}, unit="people.id", via={"bills": "person"})


def matrix(text: str, shop: pac.Tables, **asked: Any) -> tuple[QueryMechanism, Any]:
    """Return a query and its cells on eight candidates."""
    data = coerce_data(shop)
    found = make_query_mechanism(text, shop, **asked).prepare(data)
    pool = pac.Balanced(n_subsets=8).draw(N, rng=0)
    none: Any = None
    rows = [flatten(found.evaluate(data.take(pool.rows(k)), none))[0] for k in range(8)]
    return found, np.array(rows)


# --- what errors say ----------------------------------------------------------------------------

FAILING = {
    "SELECT sum(text::INT) AS s FROM bills": "conversion",
    "SELECT median(text::INT) AS s FROM bills": "conversion",
    "SELECT count(*) AS n FROM bills WHERE text::INT > 3": "conversion",
    "SELECT avg(r) AS a FROM (SELECT rank() OVER (ORDER BY text::INT) r FROM bills)": "conversion",
    "SELECT kind, count(*) FROM bills WHERE text::INT > 3 GROUP BY kind": "conversion",
    "SELECT max(1 // zero) AS x FROM bills": "invalid input",
    "SELECT max(huge * huge) AS x FROM bills": "out of range",
    "SELECT sum(huge::INT) AS x FROM bills": "conversion",
}


@pytest.mark.claim("Q-3")
@pytest.mark.parametrize("text", FAILING)
def test_a_world_that_fails_is_an_error_without_values(text: str, shop: pac.Tables) -> None:
    asked: dict[str, Any] = {"keys": "universe"} if "GROUP BY" in text else {}
    with pac.Session(shop, budget=pac.Information(1), n_subsets=16) as session:
        with pytest.raises(PacPrivacyError, match=FAILING[text]) as caught:
            session.sql(text, pac.Information(0.5), **asked)
        assert session.spent.n_releases == 0
    shown = "".join(traceback.format_exception(caught.value))
    for value in (SECRET, str(2**62), "4611686018427387904"):
        assert value not in shown


def test_a_query_that_fails_for_one_person_alone_is_answered_in_the_worlds_without(
    shop: pac.Tables,
) -> None:
    data = coerce_data(shop)
    text = "SELECT max(huge::INT) AS x FROM bills"
    found = make_query_mechanism(text, shop).prepare(data)
    none: Any = None
    assert found.evaluate(data.take(np.arange(ODD)), none) == {"x": 3.0}
    with pytest.raises(QueryError):
        found.evaluate(data.take(np.arange(N)), none)


def test_a_broken_file_is_an_error_without_values(tmp_path: Path) -> None:
    lines = ["id,cost"] + [f"{i},1" for i in range(30000)] + [f"30001,{SECRET}"]
    (tmp_path / "people.csv").write_text("\n".join(lines))

    def answer() -> Any:
        tables = pac.Tables(tmp_path, unit="people.id")
        return pac.sql("SELECT sum(cost::INT) AS s FROM people", tables, "mi<=1", n_subsets=8)

    for fails in (
        answer,
        lambda: pac.Tables(tmp_path, unit="people.id").take(np.arange(9))["people"],
    ):
        with pytest.raises(PacPrivacyError) as caught:
            fails()
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    (tmp_path / "OTHER.PARQUET").write_text(SECRET)
    with pytest.raises(DataError, match="table 'OTHER' must be one that can be read") as unread:
        pac.Tables(tmp_path, unit="people.id")
    assert SECRET not in "".join(traceback.format_exception(unread.value))


@pytest.mark.claim("Q-3")
def test_no_error_lists_the_values_of_a_type_or_of_a_key(shop: pac.Tables, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as engine:
        engine.execute(
            f"CREATE TABLE people AS SELECT i AS id, CAST(CASE i WHEN 3 THEN '{SECRET}' "
            f"ELSE 'a' END AS ENUM('a', '{SECRET}')) AS kind FROM range(40) r(i)"
        )
    tables = pac.Tables(tmp_path / "a.duckdb", unit="people.id")
    wrong: list[tuple[pac.Tables, str, Any]] = [
        (tables, "SELECT sum(kind) FROM people", None),
        (tables, "SELECT max(kind) FROM people", None),
        (tables, "SELECT sum({'a': kind}) FROM people", None),
        (tables, "SELECT [kind], count(*) FROM people GROUP BY 1", "universe"),
        (
            shop,
            "SELECT text || '' AS t, count(*) FROM bills GROUP BY 1 ORDER BY t::INT",
            "universe",
        ),
    ]
    for data, text, keys in wrong:
        with pytest.raises(QueryError) as caught:
            pac.sql(text, data, "mi<=1", keys=keys, at_least=2, n_subsets=8)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_connection_that_fails_shows_no_value() -> None:
    with duckdb.connect(":memory:") as engine:
        engine.execute(f"CREATE VIEW people AS SELECT 1 AS id, CAST('{SECRET}' AS INT) AS x")
        with pytest.raises(PacPrivacyError) as caught:
            pac.Tables(engine, unit="people.id")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_two_tables_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which of them is meant is not ours to say: one may be an old copy."""
    with duckdb.connect(str(tmp_path / "a.duckdb")) as engine:
        engine.execute(
            "CREATE TABLE people AS SELECT 1 AS id; CREATE SCHEMA old; "
            "CREATE TABLE old.People AS SELECT 2 AS id"
        )
        with pytest.raises(DataError, match="'people' in several schemas"):
            pac.Tables(engine, unit="people.id")
    with pytest.raises(DataError, match="'people' in several schemas"):
        pac.Tables(tmp_path / "a.duckdb", unit="people.id")
    frame = pd.DataFrame({"id": range(3)})
    with pytest.raises(DataError, match="'people' in capitals"):
        pac.Tables({"people": frame, "People": frame}, unit="people.id")
    for name in ("people.csv", "People.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match="'people' with several endings"):
        pac.Tables(tmp_path, unit="people.id")


@pytest.mark.claim("Q-1")
def test_views_of_private_tables_are_private_or_not_there(tmp_path: Path) -> None:
    """A view that is not named would show the rows of all units in every world."""
    with duckdb.connect(str(tmp_path / "a.duckdb")) as engine:
        engine.execute(
            "CREATE TABLE people AS SELECT i AS id, i AS x FROM range(40) r(i); "
            "CREATE TABLE prices AS SELECT 3 AS price; "
            "CREATE VIEW rich AS SELECT id AS person, x FROM People WHERE x > 9"
        )
        sources = [
            pac.Tables(engine, unit="people.id", via=via) for via in ({}, {"rich": "person"})
        ]
    sources.append(pac.Tables(tmp_path / "a.duckdb", unit="people.id", via={"rich": "person"}))
    assert set(sources[0].names) == {"people", "prices"}
    with pytest.raises(QueryError, match="those that were declared"):
        make_query_mechanism("SELECT count(*) AS n FROM people, rich", sources[0])
    for tables in sources[1:]:
        assert set(tables.names) == {"people", "prices", "rich"}
        text = "SELECT count(*) AS n, min(x) AS low FROM rich, prices"
        core = make_query_mechanism(text, tables).query.core(number(1.0))
        assert tables.take(np.arange(5, 20)).ask(core) == [(10, 10)]


@pytest.mark.claim("Q-2")
def test_what_was_spent_is_shown_also_where_it_cannot_be_arranged(shop: pac.Tables) -> None:
    text = "SELECT kind, count(*) AS n FROM bills GROUP BY kind ORDER BY {} DESC"
    asked: dict[str, Any] = {"keys": {"kind": ["a", "b"]}, "n_subsets": 8, "rng": 0}
    wrong, late = (
        text.format(by) for by in ("CASE WHEN kind = 'b' THEN kind::INT END", "(2 * n)::TINYINT")
    )
    with pytest.raises(QueryError, match=r"Conversion error"):  # before anything is spent
        pac.sql(wrong, shop, "mi<=1", simulate=True, **asked)
    large = "SELECT huge::HUGEINT AS k, count(*) AS n FROM bills GROUP BY k"
    with pytest.raises(QueryError, match="too large"):
        pac.sql(large, shop, "mi<=1", simulate=True, **asked | {"keys": [2**70]})
    with pytest.warns(UserWarning, match="all cells are shown"):
        found = pac.sql(late, shop, "mi<=1", simulate=True, **asked)
    assert [row[0] for row in found.answer.rows] == ["a", "b"]


@pytest.mark.parametrize("call", ["ago(INTERVAL 1 DAY)", "pg_sleep(9)", "assert_true(cost > 0)"])
def test_macros_of_what_changes_or_waits_or_fails_are_refused(call: str, shop: pac.Tables) -> None:
    with pytest.raises(QueryError, match="same value in every run"):
        make_query_mechanism(f"SELECT count(*) FROM bills WHERE {call} IS NULL", shop)


@pytest.mark.claim("Q-3")
@pytest.mark.parametrize(
    "call", ["len(enum_range(text))", "enum_code(text)", "length(typeof(text))"]
)
def test_what_a_type_may_hold_is_not_asked(call: str, shop: pac.Tables) -> None:
    """The levels of an ENUM are facts of all rows, and the same in every world."""
    with pytest.raises(QueryError, match="values that a type may have"):
        make_query_mechanism(f"SELECT sum({call}) AS s FROM bills", shop)


# --- what a text may hold -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SELECT sum(length('pac_share $pac_share')) AS s FROM bills", 20 * 4 * N),
        ("SELECT max(length('$pac_share')) AS s FROM bills", 10),
        ("SELECT count(*) AS s -- */ $pac_share ; DROP TABLE bills\n FROM bills", 4 * N),
        ('SELECT count(*) AS "s; "" --" FROM bills /* DELETE */', 4 * N),
        ('SELECT count(*) AS s FROM bills AS "visits \' t"', 4 * N),
    ],
)
def test_what_stands_in_texts_and_names_is_left_alone(
    text: str, value: float, shop: pac.Tables
) -> None:
    _, rows = matrix(text, shop)
    np.testing.assert_allclose(rows, value)


@pytest.mark.claim("Q-2")
def test_the_name_of_a_table_in_a_query_is_no_sql(shop: pac.Tables) -> None:
    """Names that people choose do not reach the engine: they could be read as something else."""
    for alias in ("0+y.s", "order", "x; --", "pac_whole"):
        found, rows = matrix(f'SELECT sum("{alias}".cost) AS s FROM bills AS "{alias}"', shop)
        assert found.plan == "one query per candidate"
        assert np.ptp(rows) > 0
        assert alias not in checked_sql(found.query.core(number(0.5)))


@pytest.mark.parametrize("name", ["pac_unit", "{'pac_unit': 1}.pac_unit", '"PAC_share"'])
def test_names_of_ours_are_refused(name: str, shop: pac.Tables) -> None:
    with pytest.raises(QueryError, match=r"columns must be|functions must be|plain columns"):
        make_query_mechanism(f"SELECT sum({name}) AS s FROM bills", shop)


def test_a_column_that_is_called_as_a_cell_is_none() -> None:
    tables = pac.Tables({"people": pd.DataFrame({"id": range(N), "c0": 3.0})}, unit="people.id")
    for text in ("SELECT c0, count(*) FROM people", "SELECT count(*) FROM people HAVING c0 > 1"):
        with pytest.raises(QueryError, match="aggregate or a group key"):
            make_query_mechanism(text, tables)


@pytest.mark.parametrize("end", ["CONNECT BY PRIOR bill = person", "CLUSTER BY bill"])
def test_no_part_of_a_query_is_dropped(end: str, shop: pac.Tables) -> None:
    with pytest.raises(QueryError, match="the query must be SQL"):
        make_query_mechanism(f"SELECT count(*) AS n FROM bills {end}", shop)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"SELECT sum({'(' * 2000}cost{')' * 2000}) FROM bills", "fewer brackets"),
        ("SELECT count(*) FROM bills WHERE kind = '\ud800'", "can be seen"),
        ("SELECT count(*) AS 'n\0' FROM bills", "can be seen"),
        (
            f"SELECT count(*) FROM bills GROUP BY CUBE ({', '.join(map(str, range(40)))})",
            "fewer brackets, keys",
        ),
        (f"SELECT count(*) FROM bills GROUP BY {', '.join(['CUBE (bill, kind)'] * 6)}", "1024 gr"),
    ],
)
def test_a_query_that_is_too_deep_or_half_a_text_is_refused(
    text: str, said: str, shop: pac.Tables
) -> None:
    with (
        pac.Session(shop, budget=pac.Information(1), n_subsets=16) as session,
        pytest.raises(QueryError, match=said),
    ):
        session.sql(text, pac.Information(0.5))


def test_the_engine_reads_the_declared_files_and_no_others(
    shop: pac.Tables, tmp_path: Path
) -> None:
    pd.DataFrame({"id": range(9)}).to_parquet(tmp_path / "people.parquet")
    (tmp_path / "other.csv.txt").write_text("a\n1\n")
    tables = pac.Tables(tmp_path, unit="people.id")
    assert tables.rows("SELECT count(*) FROM pac_base.people") == [(9,)]
    other, frame = str(tmp_path / "other.csv.txt"), pd.DataFrame({"id": range(9)})
    assert len(frame) == 9
    engines = [
        e for t in (shop, tables) for e in (t._here().store, t._here().asked, t._here().bare)
    ]
    for engine in engines:
        for text in (
            f"SELECT * FROM read_csv('{other}')",
            f"COPY (SELECT 1) TO '{other}'",
            f"ATTACH '{tmp_path / 'new.duckdb'}'",
            "SET enable_external_access = true",
            "FROM frame",  # a variable of the program
        ):
            with pytest.raises(duckdb.Error):
                engine.execute(text)


# --- keys ---------------------------------------------------------------------------------------


def test_a_key_is_the_column_where_an_alias_has_its_name(shop: pac.Tables) -> None:
    text = "SELECT upper(kind) AS kind, count(*) AS n FROM bills GROUP BY kind"
    found, rows = matrix(text, shop, keys={"kind": ["a", "b"]})
    assert [key.name for key in found.query.keys] == ["kind"]
    assert rows.min() > 0


def test_missing_keys_and_those_of_subtotals_are_told_apart(shop: pac.Tables) -> None:
    text = (
        "SELECT kind, GROUPING(kind) AS total, count(*) AS n FROM bills GROUP BY ROLLUP (kind) "
        "ORDER BY total DESC, kind NULLS FIRST"
    )
    found = pac.sql(text, shop, "mi<=1", keys="universe", n_subsets=16, rng=0, simulate=True)
    assert set(found.value["n"]) == {"a", "b", "NULL", "all"}
    frame = found.frame
    assert frame["total"].tolist() == [1, 0, 0, 0]
    assert [None if pd.isna(k) else k for k in frame["kind"]] == [None, None, "a", "b"]
    assert frame["n"].tolist() == [round(found.value["n"][k]) for k in ("all", "NULL", "a", "b")]
    (told,) = [line for line in found.certificate.published if "groups" in line]
    assert told.endswith("with at least 20 units in the whole table: a; b; NULL; all")
    declared = {"kind": ["a", None]}
    _, rows = matrix(text, shop, keys=declared)
    assert rows.shape == (8, 3)
    with pytest.raises(QueryError, match="mapping"):
        matrix(text, shop, keys=["a", "b"])
    with pytest.raises(QueryError, match="mapping"):
        matrix("SELECT kind, count(*) FROM bills GROUP BY kind", shop, keys=3)


@pytest.mark.claim("R-7")
def test_the_plan_which_may_depend_on_a_record_is_listed_as_published(shop: pac.Tables) -> None:
    asked: dict[str, Any] = {"n_subsets": 8, "rng": 0, "simulate": True, "fill": 0}
    found = pac.sql("SELECT sum(wild) AS s FROM bills", shop, "mi<=1", **asked)
    assert "some units are infinite" in found.to_public_dict()["table"]["plan"]
    assert f"the plan of the query: {found.plan}" in found.certificate.published


@pytest.mark.claim("Q-2")
def test_groups_of_the_universe_have_units_enough_behind_them() -> None:
    """Units, not rows: 19 people with many rows are too few."""
    person = np.concatenate([np.arange(20), np.repeat(np.arange(20, 39), 5)])
    kinds = np.where(person < 20, "20 people", "19 people")
    tables = pac.Tables(
        {"people": pd.DataFrame({"id": range(39)}),
         "bills": pd.DataFrame({"person": person, "kind": kinds})},
        unit="people.id", via={"bills": "person"},
    )  # fmt: skip
    text = "SELECT kind, count(*) AS n FROM bills GROUP BY kind"
    found = make_query_mechanism(text, tables, keys="universe").prepare(coerce_data(tables))
    assert found.cells == (("20 people",),)
    assert found.published[0].endswith("20 people; that 1 others were left out")


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT kind, max(person) AS n FROM bills GROUP BY kind",
        "WITH w AS (SELECT person, kind, count(*) AS n FROM bills GROUP BY ALL) "
        "SELECT w.kind, max(n) AS n FROM w JOIN public USING (kind) GROUP BY w.kind",
        "SELECT kind, count(*) AS n FROM bills b WHERE EXISTS "
        "(SELECT 1 FROM people p WHERE p.id = b.person) GROUP BY kind",
    ],
)
def test_units_behind_a_group_are_counted_whatever_is_asked(text: str) -> None:
    person = np.concatenate([np.arange(20), np.repeat(np.arange(20, 39), 5)])
    kinds = np.where(person < 20, "20 people", "19 people")
    frames = {
        "people": pd.DataFrame({"id": range(39)}),
        "bills": pd.DataFrame({"person": person, "kind": kinds}),
        "public": pd.DataFrame({"kind": ["20 people", "19 people"]}),
    }
    tables = pac.Tables(frames, unit="people.id", via={"bills": "person"})
    found = make_query_mechanism(text, tables, keys="universe").prepare(coerce_data(tables))
    assert found.plan.startswith("one query per candidate, since")
    assert found.cells == (("20 people",),)
    assert found.published[0].endswith("20 people; that 1 others were left out")


def _one_with_a_word() -> pac.Tables:
    people = pd.DataFrame({"id": range(40), "word": ["a"] * 39 + ["of one unit"]})
    return pac.Tables({"people": people}, unit="people.id")


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("join", ["CROSS JOIN people b", "LEFT JOIN people b ON true"])
def test_a_key_that_one_unit_has_is_not_published_for_others(join: str) -> None:
    text = f"SELECT b.word, max(1) AS n FROM people a {join} GROUP BY b.word"
    tables = _one_with_a_word()
    found = make_query_mechanism(text, tables, keys="universe").prepare(coerce_data(tables))
    assert found.cells == (("a",),)


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "source",
    [
        "people a CROSS JOIN (SELECT max(word) AS word FROM people WHERE id = 39) b",
        "people a CROSS JOIN (SELECT word FROM people UNION ALL SELECT 'x' AS word) b",
        "(SELECT a.id, c.word, count(*) AS n FROM people a CROSS JOIN people c GROUP BY ALL) b",
        "(SELECT id, max(word) OVER () AS word FROM people) b",
        "(SELECT id, (SELECT max(word) FROM people) AS word FROM people) b",
        "(SELECT id, m AS word FROM (SELECT id, max(word) OVER () AS m FROM people)) b",
    ],
)
def test_keys_whose_units_cannot_be_traced_are_refused(source: str) -> None:
    text = f"SELECT b.word, max(1) AS n FROM {source} GROUP BY b.word"
    tables = _one_with_a_word()
    with pytest.raises(QueryError, match="units behind a group cannot be counted"):
        make_query_mechanism(text, tables, keys="universe").prepare(coerce_data(tables))


def test_cells_whose_names_look_alike_stay_apart(shop: pac.Tables) -> None:
    text = "SELECT kind, text, count(*) AS n, min(cost) AS c FROM bills GROUP BY kind, text"
    cells = [("a, 1", "2"), ("a", "1, 2"), (None, "x"), ("NULL", "x")]
    found, rows = matrix(text, shop, keys=cells, fill=-1)
    assert rows.shape == (8, 8)
    assert len(set(found._shaped(np.zeros((4, 2)))["n"])) == 4


def test_keys_that_are_not_numbers_are_one_key(shop: pac.Tables) -> None:
    nan = float("nan")
    for aggregate in ("count(*)", "median(cost)"):
        text = f"SELECT level, {aggregate} AS n FROM bills GROUP BY level"
        _, rows = matrix(text, shop, keys={"level": [0.5, nan]})
        assert (rows > 0).all()
    text = "SELECT level, count(*) AS n FROM bills GROUP BY level"
    assert len(matrix(text, shop, keys="universe")[0].cells or ()) == 2
    with pytest.raises(QueryError, match="one twice"):
        matrix(text, shop, keys={"level": [nan, nan]})


# --- numbers ------------------------------------------------------------------------------------


def test_infinite_values_do_not_spread_to_worlds_without_them(shop: pac.Tables) -> None:
    with pytest.raises(QueryError, match="fill=0"):
        matrix("SELECT sum(wild) AS s FROM bills", shop)
    found, rows = matrix("SELECT sum(wild) AS s FROM bills", shop, fill=-1)
    assert found.plan == "one query per candidate, since sums of some units are infinite"
    assert set(rows[:, 0]) == {-1.0, 4.0 * N}


def test_counts_of_pairs_say_that_they_are_too_small(shop: pac.Tables) -> None:
    """Half of the people make a quarter of the pairs."""
    found, rows = matrix("SELECT count(*) AS n FROM people a CROSS JOIN people b", shop)
    np.testing.assert_allclose(rows, N * N / 2)
    assert any("below those of all units" in line for line in found.public)
    found, _ = matrix("SELECT count(*) AS n FROM people", shop)
    assert not any("below those of all units" in line for line in found.public)


def test_large_integers_and_decimals_keep_their_digits(shop: pac.Tables) -> None:
    text = "SELECT sum(big) AS s, avg(big) AS a, sum(cost::DECIMAL(30, 12)) AS d FROM bills"
    _, rows = matrix(text, shop)
    inside = pac.Balanced(n_subsets=8).draw(N, rng=0).row_mask(0)
    bills = np.flatnonzero(np.repeat(inside, 4))
    exact = sum(2**60 + int(b) * 2**50 for b in bills) * N / inside.sum()
    order = flatten({"s": 0.0, "a": 1.0, "d": 2.0})[0].tolist()
    assert rows[0][order.index(0.0)] == pytest.approx(exact, rel=1e-14)
    spread, _ = matrix("SELECT stddev(1e9 + cost / 1e3) AS s FROM bills", shop)
    assert spread.plan.startswith("one query per candidate, since its spread")


def test_modes_do_not_depend_on_the_order_of_rows() -> None:
    shown = []
    for order in (slice(None), slice(None, None, -1)):
        rows = pd.DataFrame({"id": range(12), "x": [5, 5, 2, 2, 9, 9, 1, 7, 8, 3, 4, 6]})[order]
        tables = pac.Tables({"people": rows}, unit="people.id")
        shown.append(matrix_of_all(tables, "SELECT mode(x) AS m FROM people"))
    assert shown == [{"m": 2.0}, {"m": 2.0}]


def matrix_of_all(tables: pac.Tables, text: str) -> Any:
    data, none = coerce_data(tables), None
    found = make_query_mechanism(text, tables).prepare(data)
    return found.evaluate(data.take(np.arange(tables.n_units)), none)  # type: ignore[arg-type]


# --- threads, forks, stops ----------------------------------------------------------------------

WINDOW = (
    "SELECT kind, avg(r) AS a FROM (SELECT kind, rank() OVER (ORDER BY cost) AS r FROM bills) "
    "GROUP BY kind"
)


def test_workers_do_not_change_a_bit(shop: pac.Tables) -> None:
    pool = pac.Balanced(n_subsets=12).draw(N, rng=0)
    asked = make_query_mechanism(WINDOW, shop, keys={"kind": ["a", "b"]})
    one, two = (run_mechanism(asked, shop, pool, n_jobs=n).values for n in (1, 2))
    assert one.tobytes() == two.tobytes()


def count_of(world: Any) -> int:
    query = make_query_mechanism("SELECT count(*) AS n FROM bills", world.tables).query
    ((count,),) = world.ask(query.core(number(1.0)))
    return int(count)


def test_threads_see_their_own_worlds(shop: pac.Tables) -> None:
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        for _ in range(4):
            found[k] = count_of(shop.take(np.arange(k, N)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: 4 * (N - k) for k in range(4)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_opens_the_tables_anew(shop: pac.Tables) -> None:
    assert shop.rows("SELECT count(*) FROM pac_base.bills") == [(4 * N,)]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            count = count_of(shop.take(np.arange(5)))
            os.write(writer, str(count).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writer)  # or a child that dies would leave this one waiting
    os.waitpid(child, 0)
    assert os.read(reader, 4000) == b"20"


def test_a_stopped_run_of_worlds_goes_on(
    shop: pac.Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"keys": {"kind": ["a", "b"]}, "n_subsets": 16, "rng": 0}
    asked |= {"simulate": True}
    whole = pac.sql(WINDOW, shop, "mi<=1", **asked)
    real, seen = QueryMechanism.evaluate, []

    def stops(self: Any, parts: Any, rng: Any) -> Any:
        seen.append(1)
        if len(seen) == 9:
            raise KeyboardInterrupt
        return real(self, parts, rng)

    monkeypatch.setattr(QueryMechanism, "evaluate", stops)
    with pytest.raises(InterruptedRun, match="checkpoint"):
        pac.sql(WINDOW, shop, "mi<=1", **asked, checkpoint=tmp_path / "c")
    again = pac.sql(WINDOW, shop, "mi<=1", **asked, checkpoint=tmp_path / "c")
    assert again.value == whole.value
    assert (
        len(seen) < 9 + 12
    )  # of the 16 worlds and two checks, those that were there are not redone


def test_a_defect_of_the_engine_does_not_end_the_tables(shop: pac.Tables) -> None:
    """DuckDB answers nothing more after an error of its own; then it is opened anew."""

    class Broken:
        def execute(self, *_: Any) -> None:
            raise duckdb.InternalException("a value of somebody")

    (before,) = shop.rows("SELECT count(*) FROM pac_units")
    shop._here().store = Broken()
    with pytest.raises(QueryError, match="'internal'") as error:
        shop.rows("SELECT 1")
    assert "somebody" not in str(error.value)
    assert shop.rows("SELECT count(*) FROM pac_units") == [before]


@pytest.mark.claim("Q-4")
@pytest.mark.parametrize(
    "item", ["sum(#)", "stddev(#)", "corr(#, cost)", "median(#)", "count(DISTINCT #)", "max(#)"]
)
def test_what_is_free_reads_no_private_row(shop: pac.Tables, item: str) -> None:
    """One that would, if it did, learn by the words of a free refusal what is in the rows."""
    bad = item.replace("#", f"CASE WHEN person = {ODD} THEN text::INT ELSE cost END")
    made = make_query_mechanism(f"SELECT {bad} AS x FROM bills", shop)
    with pytest.raises(QueryError, match="group keys must be declared"):
        make_query_mechanism(f"SELECT {bad} AS x FROM bills GROUP BY kind", shop)
    with pytest.raises((QueryError, MechanismError), match="must have a value on every subset"):
        run_mechanism(made, coerce_data(shop), pac.Balanced(n_subsets=8).draw(N, rng=0), rng=0)
