"""TPC-H with customers as units: which queries are answered, and that every plan is right."""

import duckdb
import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import QueryError
from pacprivacy.mechanism import coerce_data, flatten
from pacprivacy.queries import make_query_mechanism
from tests.sql_support import ALONE, SUMS
from tests.tpch import (
    EXPECTED,
    PLANS,
    QUERIES,
    REASONS,
    ask_tpch,
    largest_difference,
    shop,
    write_tpch,
)

SCALE, N_CANDIDATES = 0.1, 8


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> pac.Tables:
    folder = tmp_path_factory.mktemp("tpch")
    write_tpch(folder, SCALE)
    file = folder / "shop.duckdb"  # every candidate reads the tables again: they are decoded once
    with duckdb.connect(str(file), config={"threads": 1}) as connection:
        for path in folder.glob("*.parquet"):
            connection.execute(f"CREATE TABLE {path.stem} AS SELECT * FROM '{path}'")
    return shop(file)


def test_every_query_has_an_expectation() -> None:
    assert sorted(n for group in EXPECTED.values() for n in group) == sorted(QUERIES)
    assert len(EXPECTED["noise"]) >= 13


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("number", EXPECTED["noise"])
def test_answered_queries_equal_the_runs_of_each_candidate(number: int, tables: pac.Tables) -> None:
    if PLANS[number] == SUMS:
        assert largest_difference(number, tables, N_CANDIDATES) <= 1e-9
        return
    mechanism = ask_tpch(number, tables)
    assert mechanism.plan.startswith(f"{ALONE}, since")
    value = mechanism.evaluate((tables.take(np.arange(5000)),), np.random.default_rng(0))
    assert np.isfinite(flatten(value)[0]).all()


@pytest.mark.parametrize("number", EXPECTED["public"])
def test_queries_of_public_tables_are_said_to_be_public(number: int, tables: pac.Tables) -> None:
    with pytest.raises(QueryError, match="its answer is public"):
        make_query_mechanism(QUERIES[number], tables)


@pytest.mark.parametrize("number", EXPECTED["refused"])
def test_other_queries_are_refused_with_the_reason(number: int, tables: pac.Tables) -> None:
    with pytest.raises(QueryError) as caught:
        make_query_mechanism(QUERIES[number], tables, keys="universe").prepare(coerce_data(tables))
    assert REASONS[number] in str(caught.value)
