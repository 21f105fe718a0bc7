"""Blocks beside each other: the same numbers, whatever the number of threads."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pacprivacy import _system
from pacprivacy._system import few_threads, in_threads, single_threaded
from pacprivacy.adversary import advantage, membership_risk, view_and_belief
from pacprivacy.adversary.view_and_belief import View, ViewTilts
from pacprivacy.mechanism import Data
from pacprivacy.sample import Balanced
from pacprivacy.sample.bits import BlockBits
from pacprivacy.statistics import Mean


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
    with threadpool_limits(2), few_threads(_system.SMALL_WORK):
        assert workers() != main
        with few_threads(1):
            assert workers() == main
        with few_threads(_system.SMALL_WORK):  # of a work inside another
            assert workers() != main
        assert {library["num_threads"] for library in threadpool_info()} == {1}
    assert workers() == main


def test_threads_are_as_many_as_blas_would_take_up_to_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for numbers, wanted in (([], 1), ([2, 1], 2), ([1, 64], 8)):
        found = [{"num_threads": number} for number in numbers]
        libraries = SimpleNamespace(info=lambda found=found: found)
        monkeypatch.setattr(_system, "_numerical_libraries", lambda found=libraries: found)
        assert _system._usable_threads() == wanted


def test_threads_see_what_the_caller_set_and_run_little_ahead(several: None) -> None:
    said, taken = ContextVar("said", default=""), []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    said.set("by the caller")
    with few_threads(10), np.errstate(over="raise"):
        found = in_threads(lambda _: (said.get(), np.geterr()["over"]), items())
        for number, result in enumerate(found):
            assert result[0] == "by the caller"
            assert result[1] == "raise" or np.lib.NumpyVersion(np.__version__) < "2.0.0"
            assert len(taken) <= number + 4  # each of them may be large


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
    with bits._drawing, _system._lock:
        child = os.fork()
        if not child:
            signal.alarm(20)
            with few_threads(10):
                os._exit(0 if bits[:, :].any() else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_threads_of_a_fork_do_not_meet_the_lock_of_before() -> None:
    bits = BlockBits(seed=5, n_subsets=8, folds=4, n_units=400)
    held, seen = bits._drawing, []

    class Watched(BlockBits):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            seen.append(self._process != os.getpid() or self._drawing is not held)

    bits.__class__ = Watched
    bits._process = -1
    seen.clear()
    assert bits[:, :].any()
    assert seen
    assert all(seen)  # at no moment is the old lock taken for one of this process


def test_work_goes_on_where_no_thread_can_be_had() -> None:
    code = """
import threading
from pacprivacy import _system
_system.SMALL_WORK, _system._usable_threads = 1, lambda: 3
ended = threading.main_thread().join
def work():
    ended()
    with _system.few_threads(10):
        print(list(_system.in_threads(lambda number: number * number, range(9))))
threading.Thread(target=work).start()
"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.split("\n")[0] == str([number * number for number in range(9)])
    assert not said.stderr


def test_results_stay_in_order_where_some_threads_cannot_be_had(
    several: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, asked = _system.ThreadPoolExecutor.submit, []

    def now_and_then(*given: Any) -> Any:
        asked.append(given)
        if len(asked) % 3 == 0:
            raise RuntimeError("can't start new thread")
        return submit(*given)

    def slow(number: int) -> int:
        time.sleep(0.002 if number % 2 else 0.0)
        return number

    monkeypatch.setattr(_system.ThreadPoolExecutor, "submit", now_and_then)
    with few_threads(10):
        assert list(in_threads(slow, range(30))) == list(range(30))


@pytest.mark.parametrize("folds", [2, 4, 16])
def test_one_product_is_small_however_many_the_draws(
    folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, m, cells = 3000, 64, 1 << 18
    tilts = ViewTilts(Balanced(n_subsets=m, folds=folds).draw(n, rng=1))
    tilts.step = 512
    rows = np.random.default_rng(0).normal(size=(1025, tilts.rows)).astype(np.float32)
    exact = rows.astype(np.float64) @ tilts.masks(slice(0, n), np.float64)
    monkeypatch.setattr(view_and_belief, "PRODUCT_CELLS", cells)
    found = np.full((len(rows), n), np.nan)
    order = []
    largest = 0
    for place, a in tilts.products(rows, slice(None)):
        assert np.isnan(found[:, place]).all()
        found[:, place] = a
        order.append(place.start)
        largest = max(largest, a.size)
    assert order == sorted(order)
    assert largest <= cells
    assert len(order) > 6
    assert np.abs(found - exact).max() < 1e-3
    assert [a.shape[0] for _, a in tilts.products(rows[:0], np.arange(9))] == [0]
    monkeypatch.setattr(view_and_belief, "PRODUCT_CELLS", 1)
    few = tilts.products(rows[:3], np.arange(600))
    assert sum(a.shape[1] for _, a in few) == 600


@pytest.mark.parametrize("folds", [2, 16])
def test_shifts_in_blocks_are_whole(several: None, folds: int) -> None:
    n, m, q = 1500, 64, 300
    tilts = ViewTilts(Balanced(n_subsets=m, folds=folds).draw(n, rng=1))
    tilts.step = 256
    points, uniform = np.random.default_rng(0).normal(size=(m, q)), np.full(m, -math.log(m))
    exact = tilts.masks(slice(0, n), np.float64, whole=True).T @ (points - points.mean(axis=0)) / m
    with few_threads(10):
        places, blocks = zip(*tilts.shift_blocks(points, uniform), strict=True)
        squares = tilts.shift_squares(points, uniform)
    assert [(place.start, place.stop) for place in places] == [
        (start, min(start + 256, n)) for start in range(0, n, 256)
    ]
    assert np.abs(np.vstack(blocks) - exact).max() < 1e-5
    assert np.abs(squares - np.square(exact).sum(axis=1)).max() < 1e-4


def test_every_draw_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws that count twice would make bounds too sharp."""
    n, m = 3000, 64
    drawn: list[int] = []
    added: list[np.ndarray] = []
    add, blocks = advantage.AdvantageSums.add, advantage.draw_view_blocks

    def watched(self: Any, tilts: ViewTilts, folded: np.ndarray) -> None:
        added.append(folded)
        add(self, tilts, folded)

    def counted(*arguments: Any, **settings: Any) -> Any:
        for draws in blocks(*arguments, **settings):
            drawn.append(len(draws))
            yield draws

    monkeypatch.setattr(advantage.AdvantageSums, "add", watched)
    monkeypatch.setattr(advantage, "draw_view_blocks", counted)
    monkeypatch.setattr(advantage, "GATHERED_DRAWS", 300)
    monkeypatch.setattr(advantage, "CACHED_CELLS", 128 * m)
    points = np.random.default_rng(1).normal(size=(m, 5)) * 0.1
    view = View(points=points, log_prior=np.full(m, -math.log(m)))
    membership_risk(view, Balanced(n_subsets=m).draw(n, rng=1), n_draws=4096, rng=2)
    assert 128 < max(map(len, added)) <= 300  # some are gathered, as many as rounding allows
    assert sum(map(len, added)) == sum(drawn)
    assert len(np.unique(np.vstack(added), axis=0)) == sum(drawn)


def test_a_list_of_all_units_is_taken_in_its_order() -> None:
    tilts = ViewTilts(Balanced(n_subsets=16, folds=4).draw(700, rng=1))
    weights = np.random.default_rng(0).dirichlet(np.ones(16), size=3)
    folded, units = tilts.fold(weights), np.arange(700)[::-1]
    backwards = np.hstack([a for _, a in tilts.products(folded, units)])
    forwards = np.hstack([a for _, a in tilts.products(folded, slice(None))])
    assert np.allclose(backwards[:, ::-1], forwards, rtol=0, atol=1e-14)
    assert np.abs(forwards - backwards).max() > 1e-3
