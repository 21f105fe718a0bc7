"""What SQL may read: the tables of its candidate, and nothing besides, whatever it is written as.

Every query of the list was answered once, or is a variant of one that was. Each is refused, in the
same words whatever the rows are; the fuzzer makes more of them from the engine's own catalogue.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.errors import QueryError
from pacprivacy.mechanism import coerce_data
from pacprivacy.queries import grammar, make_query_mechanism, names, tables as tables_module
from tests.door_fuzzing import make_both, run_tries, try_query

INNER = "SELECT salary AS s FROM pac_base.people WHERE id = 7"
ATTACKS = [
    # table functions, wherever a source may stand
    f"SELECT max(q.s) AS m FROM people, LATERAL query('{INNER}') q",
    f"SELECT max(q.s) AS m FROM people, query('{INNER}') q",
    f"SELECT max(q.s) AS m FROM people CROSS JOIN query('{INNER}') q",
    f"SELECT max(q.s) AS m FROM people JOIN LATERAL query('{INNER}') q ON true",
    f"SELECT max(q.s) AS m FROM people LEFT JOIN query('{INNER}') q ON true",
    f"SELECT max(salary) AS m FROM people SEMI JOIN query('{INNER}') q ON s > 0",
    f"SELECT max((SELECT s FROM query('{INNER}'))) AS m FROM people",
    f"SELECT count(*) AS m FROM people WHERE salary IN (SELECT s FROM query('{INNER}'))",
    f"SELECT count(*) AS m FROM people WHERE EXISTS (FROM query('{INNER}') WHERE s > 8000)",
    f"WITH q AS (FROM query('{INNER}')) SELECT max(q.s) AS m FROM people, q",
    f"SELECT max(q.s) AS m FROM people, (FROM query('{INNER}')) q",
    f"SELECT max(s) AS m FROM (SELECT salary AS s FROM people UNION FROM query('{INNER}'))",
    f"SELECT max(q.s) AS m FROM people, LATERAL \"query\"('{INNER}') q",
    f"SELECT max(q.s) AS m FROM people, LATERAL main.query('{INNER}') q",
    f"SELECT max(q.s) AS m FROM people, LATERAL system.main.query('{INNER}') q",
    "SELECT max(q.salary) AS m FROM people, LATERAL query_table('pac_base.people') q",
    "SELECT max(q.salary) AS m FROM people, query_table(['pac_whole.people']) q",
    "SELECT max(q.estimated_size) AS m FROM people, duckdb_tables() q",
    "SELECT max(q.estimated_size) AS m FROM people, duckdb_tables q",
    "SELECT count(q.sql) AS m FROM people, duckdb_views() q",
    "SELECT count(*) AS m FROM people, duckdb_columns() q",
    "SELECT max(q.salary) AS m FROM people, read_csv('@/people.csv') q",
    "SELECT max(q.salary) AS m FROM people, LATERAL read_csv_auto('@/people.csv') q",
    "SELECT max(q.cost) AS m FROM people, read_parquet('@/Visits.parquet') q",
    "SELECT max(q.cost) AS m FROM people, parquet_scan('@/Visits.parquet') q",
    "SELECT max(q.num_values) AS m FROM people, parquet_metadata('@/Visits.parquet') q",
    "SELECT max(length(q.content)) AS m FROM people, read_text('@/people.csv') q",
    "SELECT count(*) AS m FROM people, glob('@/*') q",
    "SELECT count(*) AS m FROM people, pragma_storage_info('pac_base.people') q",
    "SELECT count(*) AS m FROM people, pragma_table_info('people') q",
    "SELECT max(i) AS m FROM people, generate_series(1, salary) q(i)",
    "SELECT max(i) AS m FROM people, range((SELECT max(salary) FROM people)) q(i)",
    "SELECT max(i) AS m FROM people, unnest([salary]) q(i)",
    "SELECT sum(q) AS m FROM people, LATERAL read_csv('@/people.csv', skip=8, header=true) q",
    # files and paths as names of tables
    "SELECT max(q.salary) AS m FROM people, '@/people.csv' q",
    'SELECT max(q.cost) AS m FROM people, "@/Visits.parquet" q',
    'WITH "@/PEOPLE.csv" AS (SELECT 1) SELECT max(q.salary) AS m FROM people, "@/people.csv" q',
    'SELECT count(*) AS m FROM people WHERE EXISTS (WITH "@/people.csv" AS (SELECT 1) SELECT 2) '
    'AND EXISTS (FROM "@/people.csv" WHERE salary > 8000)',
    # schemas, the catalog, tables of ours
    "SELECT max(salary) AS m FROM pac_base.people",
    "SELECT max(salary) AS m FROM pac_whole.people",
    "SELECT max(q.salary) AS m FROM people, memory.pac_base.people q",
    "SELECT max(q.code) AS m FROM people, pac_units q",
    "SELECT max(q.code) AS m FROM people, pac_world q",
    "SELECT count(*) AS m FROM people, information_schema.tables q",
    "SELECT count(*) AS m FROM people, sqlite_master q",
    "SELECT max((SELECT max(salary) FROM pac_base.people)) AS m FROM people",
    # characters that one parser skips and another does not
    "SELECT max((SELECT salary\u200bFROM\u200bpac_base.people WHERE id=7)) AS m FROM people",
    "SELECT max((SELECT salary\u2060FROM\u2060pac_base.people WHERE id=7)) AS m FROM people",
    "SELECT max((SELECT salary\ufeffFROM\ufeffpac_base.people WHERE id=7)) AS m FROM people",
    "SELECT max((SELECT salary\u00a0FROM\u00a0pac_base.people WHERE id=7)) AS m FROM people",
    "SELECT max(salary) AS m FROM people, query\u200b('SELECT 1') q",
    # functions that read more than their arguments
    "SELECT max(length(json_serialize_plan('FROM pac_base.people'))) AS m FROM people",
    "SELECT max(length(json_execute_serialized_sql('x'))) AS m FROM people",
    "SELECT max(length(getenv('HOME'))) AS m FROM people",
    "SELECT max(length(current_setting('allowed_paths')::VARCHAR)) AS m FROM people",
    "SELECT max(length(typeof(name))) AS m FROM people",
    "SELECT max(len(enum_range(name))) AS m FROM people",
    "SELECT max(stats(salary)) AS m FROM people",
    "SELECT count(*) AS m FROM people WHERE error(name) IS NULL",
    "SELECT max(hash(people)) AS m FROM people",
    "SELECT max(rowid) AS m FROM people",
    "SELECT max(x) AS m FROM (SELECT list_transform([salary], lambda v: v) x FROM people)",
    "SELECT max(nextval('s')) AS m FROM people",
    "SELECT max(length(sql_auto_complete('SELECT ')::VARCHAR)) AS m FROM people",
    # statements and clauses
    "SELECT max(salary) AS m FROM people; FROM pac_base.people",
    "FROM (SUMMARIZE people)",
    "SELECT max(salary) AS m FROM people USING SAMPLE 3",
    "SELECT max(salary) AS m FROM people AT (VERSION => 1)",
    "SELECT max(COLUMNS(*)) AS m FROM people",
    "EXPLAIN ANALYZE SELECT max(salary) FROM people",
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_both(tmp_path_factory.mktemp("door"))


@pytest.mark.claim("Q-2", "Q-3")
@pytest.mark.parametrize("text", ATTACKS)
def test_what_is_not_allowed_is_refused_in_the_same_words(text: str, both: Any) -> None:
    outcome = try_query(text, both)
    assert (outcome.kind, outcome.wrong) == ("refused", "")


@pytest.mark.claim("Q-2", "Q-3")
def test_queries_from_the_engines_catalogue_read_no_other_row(tmp_path: Path) -> None:
    """A slice of ``benchmarks/robust/door_fuzz.py``."""
    tries = list(run_tries(range(300), tmp_path))
    assert [each for each in tries if each.wrong] == []
    kinds = [each.kind for each in tries]
    assert 5 < kinds.count("answered") < 150  # some do no harm, and are answered


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("planted", ["source", "table", "character"])
def test_a_door_that_is_left_open_is_caught(
    planted: str, both: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read a path of two parts as a table; cut no private table; let invisible characters pass."""
    if planted == "source":
        text = "SELECT max(salary) AS m FROM pac_whole.people"
        real = names._Resolver._table

        def open_table(self: Any, node: Any, *rest: Any, **options: Any) -> Any:
            return real(self, names.replace(node, path=node.path[-1:]), *rest, **options)

        monkeypatch.setattr(names._Resolver, "_table", open_table)
        assert try_query(text, both).kind != "refused"
    elif planted == "table":
        text = "SELECT max(salary) AS m FROM people"
        assert not try_query(text, both).wrong
        uncut = tables_module._of_candidate
        monkeypatch.setattr(
            tables_module,
            "_of_candidate",
            lambda *a: names.replace(uncut(*a), where=None),
        )
        assert try_query(text, both).wrong
    else:
        monkeypatch.setattr(grammar, "is_seen", lambda character: True)
        text = "SELECT max(salary)\u200bAS m FROM people"
        assert try_query(text, both).kind != "refused"


def test_the_engine_that_is_asked_has_nothing_else(both: Any) -> None:
    """Other columns, files, settings and tables are not there, whatever is asked."""
    _, tables = both[0]
    made = make_query_mechanism("SELECT avg(salary) AS m FROM people", tables)
    made.prepare(coerce_data(tables))
    asked = tables._here().asked
    listed = asked.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT temporary"
    ).fetchall()
    assert ("pac_whole", "people") in listed
    assert not {"pac_base", "pac_source"} & {schema for schema, _ in listed}
    columns = [row[0] for row in asked.execute("DESCRIBE pac_whole.people").fetchall()]
    assert "name" not in columns
    assert "born" not in columns
    bare = tables._here().bare
    assert bare.execute("SELECT count(*) FROM people").fetchall() == [(0,)]
    for text in ("SET threads = 2", "SET enable_external_access = true", "FROM '@/people.csv'"):
        with pytest.raises(Exception, match=r"locked|not exist|Cannot|disabled|Permission"):
            asked.execute(text).fetchall()


# --- totals that are no totals ------------------------------------------------------------------


@pytest.fixture(scope="module")
def clinic() -> pac.Tables:
    n = 40
    people = pd.DataFrame({"id": range(n), "kind": ["a", "b"] * (n // 2)})
    visits = pd.DataFrame({"person": np.repeat(np.arange(n), 3), "cost": 2.0})
    census = pd.DataFrame({"area": ["x", "y"], "pop": [100.0, 140.0]})
    return pac.Tables(
        {"people": people, "visits": visits, "census": census},
        unit="people.id",
        via={"visits": "person"},
    )


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SELECT avg((SELECT count(*) FROM visits v WHERE v.person = p.id)) AS m FROM people p", 3),
        ("SELECT avg((SELECT sum(cost) FROM visits v WHERE v.person = p.id AND v.cost > 5)) AS m "
         "FROM people p", None),
        ("SELECT sum(cost) / (SELECT sum(pop) FROM census) AS m FROM visits", 1.0),
        ("SELECT (SELECT sum(pop) FROM census) / count(*) AS m FROM visits", 2.0),
        ("SELECT (SELECT count(*) FROM census) + 0 * count(*) AS m FROM visits", 2.0),
        ("SELECT sum(cost) / (SELECT sum(cost) FROM visits) AS m FROM visits", 1.0),
        ("SELECT count(*) / (SELECT count(DISTINCT person) FROM visits) AS m FROM visits", 3.0),
        ("SELECT count(DISTINCT kind) AS m FROM people", 2.0),
        ("SELECT count(DISTINCT id) AS m FROM people", 40.0),
        ("SELECT count(DISTINCT p.person) AS m FROM (SELECT person FROM visits) p", 40.0),
        ("SELECT sum(DISTINCT cost) AS m FROM visits", 2.0),
        ("SELECT sum(pop) AS m FROM census WHERE EXISTS (FROM people)", 240.0),
        ("SELECT sum(pop) AS m FROM census SEMI JOIN people ON true", 240.0),
        ("SELECT count(*) AS m FROM people WHERE 2 * (SELECT sum(pop) FROM census) = 480", 40.0),
        ("SELECT sum(n) AS m FROM (SELECT person, count(*) AS n FROM visits GROUP BY person)", 120),
    ],
)  # fmt: skip
def test_only_totals_of_private_rows_are_scaled(
    text: str, value: float | None, clinic: pac.Tables
) -> None:
    """A quarter of the people stands for all of them; each has the same rows."""
    none: Any = None
    fill = -1.0 if value is None else None
    made = make_query_mechanism(text, clinic, fill=fill).prepare(coerce_data(clinic))
    found = made.evaluate((clinic.take(np.arange(10)),), none)
    assert found == {"m": -1.0 if value is None else pytest.approx(value)}


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.claim("Q-1")
def test_errors_of_keys_do_not_cancel() -> None:
    """A row that reaches two units and one that reaches none are both counted."""
    people = pd.DataFrame({"id": ["1", "01", "2"]})
    with pytest.raises(Exception, match="of one type"):
        pac.Tables(
            {"people": people, "visits": pd.DataFrame({"person": [1, 7, 2]})},
            unit="people.id",
            via={"visits": "person"},
        )
    large = [2.0**53, 2.0**53 + 2]
    with pytest.raises(Exception, match=r"below 2\^53"):
        pac.Tables(
            {
                "people": pd.DataFrame({"id": [2**53, 2**53 + 1, 2**53 + 2]}),
                "visits": pd.DataFrame({"person": large}),
            },
            unit="people.id",
            via={"visits": "person"},
        )
    frames = {
        "people": pd.DataFrame({"id": [0, 1, 2]}),
        "visits": pd.DataFrame({"visit": [5, 5, 6], "person": [0, 1, 2]}),
        "tests": pd.DataFrame({"visit": [5, 9]}),  # one reaches two people, one nobody
    }
    with pytest.raises(Exception, match="reach several"):
        pac.Tables(
            frames, unit="people.id", via={"visits": "person", "tests": ("visit", "visits.visit")}
        )
    gaps = pd.DataFrame({"person": [0.0, 1.0, 2.0]})  # whole numbers, as pandas has them after gaps
    made = pac.Tables(
        {"people": frames["people"], "visits": gaps}, unit="people.id", via={"visits": "person"}
    )
    assert made.n_units == 3


def test_a_public_copy_of_a_private_table_is_warned_of() -> None:
    people = pd.DataFrame({"id": range(9), "x": range(9)})
    with pytest.warns(UserWarning, match="'copy' is public and has the rows"):
        pac.Tables(
            {"people": people, "copy": people.sample(frac=1).reset_index(drop=True)},
            unit="people.id",
        )


def test_hours_of_zoned_times_do_not_follow_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    times = pd.date_range("2024-01-01", periods=24, freq="h", tz="UTC")
    frames = {"people": pd.DataFrame({"id": range(24), "time": times})}
    none: Any = None
    for zone in ("America/New_York", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        tables = pac.Tables(frames, unit="people.id")
        made = make_query_mechanism(
            "SELECT max(hour(time)) AS m FROM people WHERE id < 3", tables
        ).prepare(coerce_data(tables))
        assert made.evaluate((tables.take(np.arange(24)),), none) == {"m": 2.0}


def test_a_word_that_is_no_sql_is_named(clinic: pac.Tables) -> None:
    with pytest.raises(QueryError, match="«SELEC»"):
        make_query_mechanism("SELEC 1", clinic)


def test_every_function_and_plan_is_written_as_it_was_read() -> None:
    """What is written from a tree is read as the same tree: functions, operators, clauses."""
    for name in sorted(grammar.SCALARS | grammar.AGGREGATES):
        counts = grammar.ARITIES.get(name, (1, 2, 3))
        for count in counts:
            arguments = ", ".join("xyz"[:count])
            tree = grammar.read_sql(f"SELECT {name}({arguments}) AS o FROM t")
            assert grammar.read_sql(grammar.checked_sql(tree)) == tree
