"""Tables on a PostgreSQL server: the same integers as in DuckDB, and only sums leave it."""

import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pacprivacy as pac
from pacprivacy.errors import DataError, PacPrivacyError, QueryError
from pacprivacy.queries import make_query_mechanism
from pacprivacy.queries.dialects import POSTGRES, ServerRelation
from pacprivacy.queries.query import parse_query
from pacprivacy.queries.servers import Postgres
from tests.servers import (
    CLINIC,
    COINS,
    MEMBERSHIP,
    OTHER_MEANING,
    SAME_MEANING,
    SECRET,
    Pair,
    assert_same,
    clinic_frames,
)
from tests.tpch import KEYS, QUERIES, VIA, shop, write_tpch

TYPES = {"DOUBLE": "double precision", "TIMESTAMP_NS": "timestamp", "TIMESTAMP_S": "timestamp"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Yield a schema of its own on a real server."""
    url = os.environ.get("PACPRIVACY_TEST_POSTGRES")
    if not url:
        pytest.skip("PACPRIVACY_TEST_POSTGRES names no PostgreSQL server")
    import psycopg

    schema = f"pac_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


def write_tables(url: str, engine: Any, sources: Mapping[str, str], folder: Path) -> None:
    """Copy relations of DuckDB to a server."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for name, source in sources.items():
            columns = engine.execute(f"DESCRIBE FROM {source}").fetchall()
            typed = ", ".join(f'"{row[0]}" {TYPES.get(row[1], row[1])}' for row in columns)
            connection.execute(f"CREATE TABLE {name} ({typed})")
            file = folder / f"{uuid.uuid4().hex}.txt"
            engine.execute(f"COPY (FROM {source}) TO '{file}' (FORMAT csv, HEADER false)")
            with connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN CSV") as copy:
                copy.write(file.read_bytes())


@pytest.fixture(scope="module")
def shops(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """TPC-H in files, and on the server."""
    folder, other = tmp_path_factory.mktemp("tpch"), tmp_path_factory.mktemp("csv")
    write_tpch(folder, 0.01)
    sources = {path.stem: f"'{path}'" for path in folder.glob("*.parquet")}
    with duckdb.connect() as engine:
        write_tables(server, engine, sources, other)
    tables = pac.Tables(server, unit="customer.c_custkey", via=VIA)
    yield shop(folder), tables
    tables.close()


@pytest.fixture(scope="module")
def clinics(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    frames = clinic_frames()
    with duckdb.connect() as engine:
        for name, frame in frames.items():
            engine.register(f"frame_{name}", frame)
        sources = {name: f"frame_{name}" for name in frames}
        write_tables(server, engine, sources, tmp_path_factory.mktemp("csv"))
    tables = pac.Tables(server, **CLINIC)
    yield pac.Tables(frames, **CLINIC), tables
    tables.close()


@pytest.mark.claim("Q-6")
@pytest.mark.parametrize("number", [1, 5, 6])
def test_queries_of_a_shop_have_the_same_integers(number: int, shops: Pair) -> None:
    keys = KEYS.get(number, "universe")
    assert_same(QUERIES[number], shops, keys=keys, at_least=2, fill=0)


@pytest.mark.claim("Q-6")
@pytest.mark.parametrize("text", SAME_MEANING)
def test_whatever_is_asked_the_integers_are_the_same(text: str, clinics: Pair) -> None:
    assert_same(text, clinics, keys="universe", at_least=2)


@pytest.mark.claim("Q-6")
@pytest.mark.parametrize("text", OTHER_MEANING)
def test_what_may_mean_another_thing_is_refused_with_the_name(text: str, clinics: Pair) -> None:
    with pytest.raises(QueryError, match="PostgreSQL"):
        pac.sql(text, clinics[1], MEMBERSHIP, **COINS)


def test_today_is_no_day(clinics: Pair) -> None:
    with pytest.raises(QueryError):
        pac.sql("SELECT count(*) AS n FROM visits WHERE day > 'today'", clinics[1], MEMBERSHIP)
    assert_same("SELECT count(*) AS n FROM visits WHERE day > '2024-06-01'", clinics)
    query = parse_query("SELECT count(*) FROM visits WHERE day > DATE 'today'", clinics[0])
    with pytest.raises(QueryError, match="PostgreSQL"):
        POSTGRES.write(query.select, {("visits",): ServerRelation(text="visits")}, {})


@pytest.mark.claim("Q-3")
def test_an_error_of_the_server_shows_no_value(clinics: Pair) -> None:
    text = "SELECT sum(CAST(code AS INTEGER)) AS s FROM visits"
    with pytest.raises(QueryError, match="PostgreSQL stopped") as caught:
        pac.sql(text, clinics[1], MEMBERSHIP, **COINS)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    # and the connection goes on
    assert_same("SELECT count(*) AS n FROM visits", clinics)


@pytest.mark.claim("Q-6")
def test_no_statement_depends_on_who_is_used(
    clinics: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    real = Postgres.execute

    def recorded(self: Postgres, text: str, names: Any) -> Any:
        statements.append(text)
        return real(self, text, names)

    monkeypatch.setattr(Postgres, "execute", recorded)
    text = "SELECT kind, avg(cost) AS c FROM visits GROUP BY kind"
    options: dict[str, Any] = {"keys": "universe", "sample": pac.Coins(keep=0.9)}
    values, runs = [], []
    for _ in range(2):  # coins and noise of the operating system
        clinics[1].forget()
        statements.clear()
        values.append(pac.sql(text, clinics[1], MEMBERSHIP, **options).value)
        runs.append(list(statements))
    assert values[0] != values[1]
    assert runs[0] == runs[1] != []


def test_an_answer_that_is_missing_is_a_row(clinics: Pair) -> None:
    """No match at all: whether one is of another unit is NULL, alone in its line."""
    text = (
        "SELECT count(*) AS n, count(v.cost) AS m FROM people p "
        "LEFT JOIN visits v ON v.person = p.id AND v.cost > 1e9"
    )
    assert_same(text, clinics, fill=0)


def test_a_stop_is_of_the_statements_of_one_thread(clinics: Pair) -> None:
    """Other principals have paid for theirs, and share the connection."""
    tables, answers = clinics[1], list[Any]()
    server = tables._here().engines._server  # type: ignore[attr-defined]
    slow = threading.Thread(target=lambda: answers.extend(server.rows("SELECT 1, pg_sleep(0.5)")))
    slow.start()
    while not server.thread:
        time.sleep(0.01)
    tables.query_stop()()
    slow.join()
    assert answers == [(1, "")]


def test_rows_stay_on_the_server(clinics: Pair) -> None:
    for sample in (None, pac.Balanced(n_subsets=8)):
        with pytest.raises(PacPrivacyError, match="with coins"):
            pac.sql("SELECT median(cost) AS m FROM visits", clinics[1], "mi<=1", sample=sample)
    with pytest.raises(PacPrivacyError, match="with coins"):
        pac.privatize(lambda tables: len(tables["visits"]), clinics[1], "mi<=1", n_subsets=8)


@pytest.mark.claim("C-16")
def test_a_session_goes_on_when_the_table_has_grown(server: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE TABLE members (id integer)")
        connection.execute("INSERT INTO members SELECT generate_series(1, 500)")
        ledger, text = tmp_path / "study.db", "SELECT count(*) AS n FROM members"
        tables = pac.Tables(server, unit="members.id")
        with pac.Session(tables, ledger=ledger, budget=MEMBERSHIP) as session:
            first = session.sql(text, share="1 of 2")
        connection.execute("INSERT INTO members SELECT generate_series(501, 600)")
        grown = pac.Tables(server, unit="members.id")
        with pac.Session.resume(grown, ledger=ledger) as session:
            second = session.sql(text, share="1 of 1")
    assert tables.digest() != grown.digest()
    tables.close()
    grown.close()
    assert (first.certificate.n_units, second.certificate.n_units) == (500, 600)
    assert round(second.certificate.composition["total_success"], 3) == 0.7


def test_what_is_wrong_with_a_server_is_said(clinics: Pair, server: str) -> None:
    with pytest.raises(DataError, match="that answers") as caught:
        pac.Tables("postgresql://nobody:hidden@/x?host=/nowhere", unit="people.id")
    assert "hidden" not in str(caught.value)
    with pytest.raises(DataError, match="'clients'"):
        pac.Tables(server, unit="clients.id")
    with pytest.raises(DataError, match="rows whose 'kind' is missing"):
        pac.Tables(server, unit="prices.kind", via={"visits": "kind"})
    assert make_query_mechanism("SELECT count(*) AS n FROM visits", clinics[1]).name
