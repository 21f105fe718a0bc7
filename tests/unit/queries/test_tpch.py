"""TPC-H with customers as units: which queries are answered, and that every plan is right."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import QueryError
from pacprivacy.mechanism import coerce_data, flatten, mechanism_batch
from pacprivacy.queries import query_mechanism
from tests.tpch import EXPECTED, FILL, KEYS, QUERIES, shop

N_WORLDS = 2


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> pac.Tables:
    folder = tmp_path_factory.mktemp("tpch")
    beside = Path(sys.executable).parent / "tpchgen-cli"
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    assert program is not None, "tpchgen-cli is one of the development tools"
    made = [program, "parquet", "-s", "0.01", "-o", str(folder), "--quiet"]
    subprocess.run(made, check=True, capture_output=True)
    return shop(folder)


def test_every_query_has_an_expectation() -> None:
    assert sorted(n for group in EXPECTED.values() for n in group) == sorted(QUERIES)
    assert len(EXPECTED["noise"]) >= 13


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("number", EXPECTED["noise"])
def test_answered_queries_equal_the_runs_of_each_world(number: int, tables: pac.Tables) -> None:
    data = coerce_data(tables)
    keys = KEYS.get(number, "universe")
    mechanism = query_mechanism(
        QUERIES[number], tables, keys=keys, at_least=2, fill=FILL.get(number)
    ).prepare(data)
    pool = pac.Balanced(n_subsets=N_WORLDS).draw(tables.n_units, rng=number)
    rng = np.random.default_rng(0)
    rows = [flatten(mechanism.evaluate(data.take(pool.rows(k)), rng))[0] for k in range(N_WORLDS)]
    assert np.isfinite(rows).all()
    batch = mechanism_batch(mechanism)
    if batch is not None:
        scale = np.abs(rows).max(axis=0)
        assert np.abs(batch(data, pool) - rows).max() <= 1e-9 * scale.max()


@pytest.mark.parametrize("number", EXPECTED["public"])
def test_queries_of_public_tables_are_said_to_be_public(number: int, tables: pac.Tables) -> None:
    with pytest.raises(QueryError, match="its answer is public"):
        query_mechanism(QUERIES[number], tables)


REASONS = {
    3: "at least 20 units; got «l_orderkey»",
    10: "at least 20 units; got «c_custkey»",
    15: "«s_suppkey»",
    18: "group keys must be declared",
    20: "«s_name»",
}


@pytest.mark.parametrize("number", EXPECTED["refused"])
def test_other_queries_are_refused_with_the_reason(number: int, tables: pac.Tables) -> None:
    with pytest.raises(QueryError) as caught:
        query_mechanism(QUERIES[number], tables, keys="universe").prepare(coerce_data(tables))
    assert REASONS[number] in str(caught.value)
