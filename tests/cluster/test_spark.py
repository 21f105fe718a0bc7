"""Frames of Spark as universes and as tables: the same numbers as in memory and in DuckDB."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.design import JointRidge, LogisticFit
from pacprivacy.errors import DataError, MechanismError, QueryError
from pacprivacy.mechanism import SparkDataset, flatten
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Histogram, Mean
from tests.tpch import QUERIES, VIA, shop, write_tpch

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs, about pandas and sockets
N = 1200
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"id": RNG.permutation(9 * N)[:N], "x": RNG.normal(size=N)})
FRAME["flag"] = FRAME["x"] > 0.5
FRAME["z"] = RNG.exponential(size=N)
FRAME["y"] = 2 * FRAME["x"] - FRAME["z"] + RNG.normal(size=N)
SORTED = FRAME.sort_values("id")
QUICK = {  # little compiling, little shuffling
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="pip install 'pacprivacy[cluster]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = sql.SparkSession.builder.master("local[2]").config(map=QUICK).getOrCreate()
    yield session
    session.stop()


@pytest.mark.claim("M-6")
@pytest.mark.claim("Q-2")
@pytest.mark.claim("Q-3")
def test_the_same_numbers_as_here(
    spark: Any, tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """One test, so that Spark is started in one process."""
    statistics_are_those_in_memory(spark)
    queries_are_those_of_duckdb(spark, tmp_path)
    capfd.readouterr()
    what_spark_cannot_do_is_refused(spark, capfd)


def statistics_are_those_in_memory(spark: Any) -> None:
    people = SparkDataset(spark.createDataFrame(FRAME).repartition(3), unit="id")
    pool = pac.Balanced(n_subsets=8, folds=4, blocks=True).draw(N, rng=0)
    X, y = SORTED[["x", "z"]].to_numpy(), SORTED["y"].to_numpy()
    both, labelled = people[["x", "z"]], (people[["x", "z"]], people["y"])
    cases: list[tuple[Any, Any, Any]] = [
        (Mean(), both, X),
        (Histogram(bins=5, universe_facts=True), both, X),
        (JointRidge(), labelled, (X, y)),
    ]
    for mechanism, data, arrays in cases:
        found = run_mechanism(mechanism, data, pool, rng=0)
        wanted = run_mechanism(mechanism, arrays, pool, rng=0)
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-9, atol=1e-9)
    rows = np.array([0, 5, N - 1])
    assert people["x"].take(rows).tolist() == SORTED["x"].to_numpy()[rows].tolist()
    with pytest.raises(DataError, match="unit must be different in every row"):
        SparkDataset(people._frame.union(people._frame), unit="id")
    classes = (people[["x"]], people["flag"])
    with pytest.raises(MechanismError, match="must be summed where they are"):
        run_mechanism(LogisticFit(n_steps=2), classes, pool, rng=0)
    changed = FRAME.assign(z=FRAME["z"].where(FRAME["id"] != FRAME["id"][7], 0.0))
    other = SparkDataset(spark.createDataFrame(changed), unit="id")
    assert people.digest() != other.digest()
    assert people["x"].digest() == other["x"].digest()


def queries_are_those_of_duckdb(spark: Any, folder: Any) -> None:
    """To the last bit: the released numbers, and all that is certified of them."""
    write_tpch(folder, 0.01)
    frames = {path.stem: spark.read.parquet(str(path)) for path in folder.glob("*.parquet")}
    there, here = pac.Tables(frames, unit="customer.c_custkey", via=VIA), shop(folder)
    asked: dict[str, Any] = {"keys": "universe", "at_least": 2, "n_subsets": 64}
    for number in (1, 5, 6):
        found, wanted = (
            pac.sql(QUERIES[number], tables, "membership<=0.75", rng=1, simulate=True, **asked)
            for tables in (there, here)
        )
        assert flatten(found.value)[0].tobytes() == flatten(wanted.value)[0].tobytes()
        assert found.certificate == wanted.certificate
        assert found.plan.endswith("in Spark")


def what_spark_cannot_do_is_refused(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "SECRET77"
    bills = pd.DataFrame({"person": np.arange(60) % 30, "text": [secret, *["1"] * 59]})
    bills["cost"] = [Decimal(i) / 4 for i in range(60)]
    people = pd.DataFrame({"id": range(30)})
    tables = pac.Tables(
        {"people": people, "bills": spark.createDataFrame(bills)},
        unit="people.id",
        via={"bills": "person"},
    )
    for query, reason in {
        "SELECT median(cost) FROM bills": "MEDIAN(bills.cost) is no function of sums",
        "SELECT sum(round(cost)) FROM bills": "got «round(cost)». Make it a column first",
        "SELECT sum(my_udf(cost)) FROM bills": "got «my_udf(cost)». Make it a column first",
        "SELECT count(DISTINCT cost) FROM bills": "since it counts distinct values. Ask it of",
        "SELECT sum(CAST(text AS DOUBLE)) FROM bills": "words may show values",
    }.items():
        with pytest.raises(QueryError) as caught:
            pac.sql(query, tables, "membership<=0.75", n_subsets=8, rng=1, simulate=True)
        assert reason in str(caught.value)
        assert secret not in str(caught.value)
    assert secret not in "".join(capfd.readouterr())
    with pytest.raises(MechanismError, match=r"must be asked by pac\.sql"):
        pac.privatize(lambda world: len(world["bills"]), tables, "membership<=0.75", n_subsets=8)
