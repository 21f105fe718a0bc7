"""Frames of Spark as tables: the same numbers as in DuckDB."""

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
from pacprivacy.errors import MechanismError, QueryError
from pacprivacy.mechanism import flatten
from tests.tpch import QUERIES, VIA, shop, write_tpch

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs, about pandas and sockets
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


@pytest.mark.claim("Q-2")
@pytest.mark.claim("Q-3")
def test_the_same_numbers_as_here(
    spark: Any, tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """One test, so that Spark is started in one process."""
    queries_are_those_of_duckdb(spark, tmp_path)
    capfd.readouterr()
    what_spark_cannot_do_is_refused(spark, capfd)


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
        "SELECT median(cost) FROM bills": "median is no function of sums over units",
        "SELECT sum(round(cost)) FROM bills": "got «round(cost)». Make it a column first",
        "SELECT sum(my_udf(cost)) FROM bills": "got «my_udf(cost)». The reference",
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
