"""Frames of Spark as universes: the same numbers as in memory."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.design import JointRidge, LogisticFit
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism import Histogram, Mean, SparkDataset
from pacprivacy.simulation import run_mechanism

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs, about pandas and sockets
N = 1200
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"id": RNG.permutation(9 * N)[:N], "x": RNG.normal(size=N)})
FRAME["flag"] = FRAME["x"] > 0.5
FRAME["z"] = RNG.exponential(size=N)
FRAME["y"] = 2 * FRAME["x"] - FRAME["z"] + RNG.normal(size=N)
SORTED = FRAME.sort_values("id")


@pytest.fixture(scope="module")
def people() -> Iterator[SparkDataset]:
    sql = pytest.importorskip("pyspark.sql", reason="pip install 'pacprivacy[cluster]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(name, "127.0.0.1")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    yield SparkDataset(session.createDataFrame(FRAME).repartition(3), unit="id")
    session.stop()


@pytest.mark.claim("M-6")
def test_the_same_numbers_as_in_memory(people: SparkDataset) -> None:
    """One test, so that Spark is started in one process."""
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
