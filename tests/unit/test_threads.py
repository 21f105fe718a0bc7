"""Blocks beside each other: the same numbers, whatever the number of threads."""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from pacprivacy import _system
from pacprivacy._system import few_threads, in_threads, single_threaded
from pacprivacy.adversary import membership_risk
from pacprivacy.adversary.view_and_belief import View, ViewTilts
from pacprivacy.mechanism import Data, Mean
from pacprivacy.pool import Balanced
from pacprivacy.pool.bits import BlockBits


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have works of any size share three threads."""
    monkeypatch.setattr(_system, "SMALL_WORK", 1)
    monkeypatch.setattr(_system, "_usable_threads", lambda: 3)


def test_results_come_in_order_and_items_are_taken_by_the_caller(several: None) -> None:
    takers: set[int] = set()
    workers: set[int] = set()

    def items() -> Iterator[int]:
        for number in range(40):
            takers.add(threading.get_ident())
            yield number

    def slow_at_first(number: int) -> int:
        workers.add(threading.get_ident())
        time.sleep(0.004 if number % 3 == 0 else 0.0)
        return number * number

    with few_threads(10):
        found = list(in_threads(slow_at_first, items()))
    assert found == [number * number for number in range(40)]
    assert takers == {threading.get_ident()}
    assert takers.isdisjoint(workers)
    assert 1 < len(workers) <= 3


def test_small_works_and_those_inside_a_limit_have_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_system, "_usable_threads", lambda: 3)
    main = [threading.get_ident()] * 2

    def workers() -> list[int]:
        return list(in_threads(lambda _: threading.get_ident(), range(2)))

    assert workers() == main
    with few_threads(_system.SMALL_WORK - 1):
        assert workers() == main
    with single_threaded(), few_threads(_system.SMALL_WORK):
        assert workers() == main
    with few_threads(_system.SMALL_WORK):
        assert workers() != main
        with few_threads(1):
            assert workers() == main
        with few_threads(_system.SMALL_WORK):  # of a work inside another
            assert workers() != main
        assert {library["num_threads"] for library in threadpool_info()} == {1}
    assert workers() == main


def test_a_failure_in_a_thread_is_raised_where_results_are_read(several: None) -> None:
    done: list[int] = []

    def fails(number: int) -> int:
        done.append(number)
        return 1 // (number - 2)

    with few_threads(10), pytest.raises(ZeroDivisionError):
        list(in_threads(fails, range(1000)))
    assert len(done) < 20  # those that were not begun are left


def test_whoever_stops_reading_leaves_no_thread_behind(several: None) -> None:
    before = threading.active_count()
    with few_threads(10):
        results = in_threads(lambda number: number, range(1000))
        assert next(results) == 0
        results.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("folds", [2, 4, 16])
def test_products_sums_and_pools_are_equal_to_the_last_bit(several: None, folds: int) -> None:
    rng = np.random.default_rng(folds)
    n, m = 3000, 64
    uniform = np.full(m, -math.log(m))
    rows, weights = rng.normal(size=(n, 3)), rng.dirichlet(np.ones(m), size=40)

    def found() -> list[np.ndarray]:
        pool = Balanced(n_subsets=m, folds=folds, blocks=True).draw(n, rng=1)
        tilts = ViewTilts(pool)
        tilts.step = 64  # so that there are many blocks
        data = Data(parts=(rows,), n_rows=n, single=True)
        view = View(points=rows[:m] * 0.3, log_prior=uniform)
        risk = membership_risk(view, pool, n_draws=4096, gamma=1e-6, rng=2)
        return [
            pool.bits[:, :],
            Mean().batch(data, pool),
            tilts.sizes(weights),
            tilts.shifts(rows[:m], uniform),
            risk.upper_per_unit,
        ]

    alone = found()
    with few_threads(10):
        beside = found()
    for first, second in zip(alone, beside, strict=True):
        assert np.array_equal(first, second)


def test_threads_that_want_one_block_draw_it_once(
    several: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bits = BlockBits(seed=5, n_subsets=64, folds=4, n_units=4000)
    drawn: list[int] = []
    whole = bits._draw

    def counted(b: int) -> np.ndarray:
        drawn.append(b)
        time.sleep(0.01)
        return whole(b)

    monkeypatch.setattr(bits, "_draw", counted)
    with few_threads(10):
        blocks = list(in_threads(lambda start: bits[:, start : start + 10], range(0, 500, 10)))
    assert drawn == [0]
    again = BlockBits(seed=5, n_subsets=64, folds=4, n_units=4000)
    assert np.array_equal(np.hstack(blocks), again[:, :])


def test_a_fork_while_another_thread_draws_does_not_hang() -> None:
    bits = BlockBits(seed=5, n_subsets=64, folds=4, n_units=400)
    with bits._drawing:
        child = os.fork()
        if not child:
            signal.alarm(20)
            os._exit(0 if bits[:, :].any() else 1)
        assert os.waitpid(child, 0)[1] == 0
