"""Tables of a Spark session: the integers of DuckDB, whoever dies, and only sums leave it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import DataError, PacPrivacyError, QueryError
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

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # theirs, about pandas
RIDGE = SAME_MEANING[0]


def spark_of(master: str, warehouse: Path) -> Any:
    """Start Spark on this machine."""
    pyspark = pytest.importorskip("pyspark.sql", reason="pip install 'pacprivacy[cluster]'")
    if not shutil.which("java"):
        pytest.skip("no Java")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(warehouse),
    }
    session = pyspark.SparkSession.builder.master(master).config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def read_folder(session: Any, folder: Path, n_parts: int = 0) -> None:
    """Let a session know the files of a folder by name, in as many parts as are wanted."""
    for path in folder.glob("*.parquet"):
        frame = session.read.parquet(str(path))
        (frame.repartition(n_parts) if n_parts else frame).createOrReplaceTempView(path.stem)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write TPC-H, and a clinic."""
    tpch, clinic = tmp_path_factory.mktemp("tpch"), tmp_path_factory.mktemp("clinic")
    write_tpch(tpch, 0.01)
    for name, frame in clinic_frames().items():
        frame.to_parquet(clinic / f"{name}.parquet")
    return tpch, clinic


@pytest.fixture(scope="module", params=["local[2]", "local-cluster[2,1,768]"])
def session(request: pytest.FixtureRequest, tmp_path_factory: Any, folders: Any) -> Iterator[Any]:
    """Yield Spark as threads, and as a cluster of two workers."""
    session = spark_of(request.param, tmp_path_factory.mktemp("warehouse"))
    for folder in folders:
        read_folder(session, folder)
    session.sql("SELECT * FROM visits WHERE cost > 3").createOrReplaceTempView("dear_visits")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def shops(session: Any, folders: tuple[Path, Path]) -> Iterator[Pair]:
    tables = pac.Tables(session, unit="customer.c_custkey", via=VIA)
    yield shop(folders[0]), tables
    tables.close()


@pytest.fixture(scope="module")
def clinics(session: Any) -> Iterator[Pair]:
    tables = pac.Tables(session, **CLINIC)
    yield pac.Tables(clinic_frames(), **CLINIC), tables
    tables.close()


@pytest.mark.claim("Q-6")
@pytest.mark.parametrize("number", [1, 5, 6])
def test_queries_of_a_shop_have_the_same_integers(number: int, shops: Pair) -> None:
    assert_same(QUERIES[number], shops, keys=KEYS.get(number, "universe"), at_least=2, fill=0)


@pytest.mark.claim("Q-6")
def test_whatever_is_asked_the_integers_are_the_same(clinics: Pair, session: Any) -> None:
    local = session.sparkContext.master == "local[2]"
    for text in SAME_MEANING if local else [RIDGE]:
        assert_same(text, clinics, keys="universe", at_least=2)


@pytest.mark.claim("Q-6")
def test_a_killed_worker_changes_nothing(session: Any, shops: Pair) -> None:
    if session.sparkContext.master == "local[2]":
        pytest.skip("threads of one process")
    options: dict[str, Any] = {**COINS, "keys": "universe", "at_least": 2}
    tables, killed = shops[1], list[int]()
    before = pac.sql(QUERIES[1], tables, MEMBERSHIP, **options)
    tables.forget()
    java = session.sparkContext._gateway.proc.pid

    def kill() -> None:
        tracker = session.sparkContext.statusTracker()
        while not tracker.getActiveJobsIds():
            time.sleep(0.005)
        killed.append(executors(java)[0])
        os.kill(killed[0], 9)

    killer = threading.Thread(target=kill)
    killer.start()
    after = pac.sql(QUERIES[1], tables, MEMBERSHIP, **options)
    killer.join()
    assert not Path(f"/proc/{killed[0]}").exists()
    np.testing.assert_array_equal(before.bundle.integers, after.bundle.integers)
    assert before.value == after.value


def executors(java: int) -> list[int]:
    """Return the processes of workers, which the cluster's process has started."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        words = path.read_text().rpartition(")")[2].split()
        if int(words[1]) == java and b"ExecutorBackend" in (path.parent / "cmdline").read_bytes():
            children.append(int(path.parent.name))
    return children


@pytest.mark.claim("Q-6")
def test_floats_are_added_in_one_order_however_rows_are_spread(
    session: Any, folders: tuple[Path, Path]
) -> None:
    if session.sparkContext.master == "local[2]":
        pytest.skip("shown by a cluster")
    values = []
    for n_parts in (1, 5):
        read_folder(session, folders[1], n_parts)
        tables = pac.Tables(session, **CLINIC)
        text = "SELECT sum(cost) AS s, sum(cost * cost) AS t FROM visits"
        values.append(pac.sql(text, tables, MEMBERSHIP, **COINS).value)
        tables.close()
    assert values[0] == values[1]


@pytest.mark.claim("Q-6")
def test_what_may_mean_another_thing_is_refused_with_the_name(clinics: Pair) -> None:
    more = [
        "SELECT sum(CAST(cost AS INTEGER)) AS n FROM visits",  # cuts digits off there
        "SELECT sum(sqrt(cost)) AS n FROM visits",
        "SELECT count(*) AS n FROM visits WHERE cost < ANY (SELECT price FROM prices)",
    ]
    for text in [*OTHER_MEANING, *more]:
        with pytest.raises(QueryError, match="Spark"):
            pac.sql(text, clinics[1], MEMBERSHIP, **COINS)
    with pytest.raises(PacPrivacyError, match="with coins"):
        pac.sql("SELECT median(cost) AS m FROM visits", clinics[1], "mi<=1")


@pytest.mark.claim("Q-3")
def test_an_error_shows_no_value(clinics: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    text = "SELECT sum(CAST(code AS DOUBLE)) AS s FROM visits"
    with pytest.raises(QueryError, match="Spark stopped") as caught:
        pac.sql(text, clinics[1], MEMBERSHIP, **COINS)
    assert SECRET not in str(caught.value) + "".join(capfd.readouterr())
    assert caught.value.__cause__ is None
    assert_same("SELECT count(*) AS n FROM visits", clinics)


@pytest.mark.claim("Q-6")
def test_texts_are_texts(clinics: Pair) -> None:
    for text in ("a' OR '1'='1", "${spark.app.name}", "b\\_%", "é", '"', "\\u0061", "--"):
        asked = text.replace("'", "''")
        assert_same(f"SELECT count(*) FILTER (WHERE kind <> '{asked}') AS n FROM visits", clinics)


@pytest.mark.claim("Q-6")
def test_no_statement_depends_on_who_is_used(
    clinics: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pacprivacy.queries.servers import Spark

    statements: list[str] = []
    real = Spark.execute

    def recorded(self: Spark, text: str, names: Any) -> Any:
        statements.append(text)
        return real(self, text, names)

    monkeypatch.setattr(Spark, "execute", recorded)
    values, runs = [], []
    for _ in range(2):  # coins and noise of the operating system
        clinics[1].forget()
        statements.clear()
        text, options = "SELECT sum(points) AS n FROM visits", {"sample": pac.Coins(keep=0.9)}
        values.append(pac.sql(text, clinics[1], MEMBERSHIP, **options).value)
        runs.append(list(statements))
    assert values[0] != values[1]
    assert runs[0] == runs[1] != []


def test_views_of_private_rows_are_left_out(clinics: Pair, session: Any) -> None:
    assert "prices" in clinics[1].names
    assert "dear_visits" not in clinics[1].names
    session.sql("SELECT *, rand() AS r FROM people").createOrReplaceTempView("drawn")
    with pytest.raises(DataError, match="random numbers"):
        pac.Tables(session, unit="drawn.id")
    session.catalog.dropTempView("drawn")


def test_a_statement_is_stopped_with_its_thread(clinics: Pair) -> None:
    server = clinics[1]._here().engines._server  # type: ignore[attr-defined]
    stopped: list[bool] = []

    def work() -> None:
        with pytest.raises(QueryError):
            server.rows("SELECT count(*) FROM range(0, 100000000000, 1, 2) WHERE id % 3 = rand()")
        stopped.append(True)

    slow = threading.Thread(target=work)
    slow.start()
    for _ in range(600):
        server.interrupt(slow.ident)
        slow.join(0.1)
    assert stopped
