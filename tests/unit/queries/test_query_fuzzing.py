"""A slice of ``benchmarks/robust/query_fuzz.py``: queries of chance, on tables of chance."""

import pytest

from tests.query_fuzzing import run_once


@pytest.mark.claim("Q-1")
@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("seed", [*range(0, 120, 10), 290])  # 290: AND inside and outside
def test_a_query_of_chance_agrees_with_each_world(seed: int) -> None:
    outcome = run_once(seed)
    assert not outcome.wrong, outcome
