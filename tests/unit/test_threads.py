"""Pools in blocks, products of blocks: whole, in order, and safe in threads and forks."""

import math
from typing import Any

import numpy as np
import pytest

from pacprivacy.adversary import advantage, membership_risk, view_and_belief
from pacprivacy.adversary.view_and_belief import View, ViewTilts
from pacprivacy.sample import Balanced


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
def test_shifts_are_those_of_whole_masks(folds: int) -> None:
    n, m, q = 1500, 64, 300
    tilts = ViewTilts(Balanced(n_subsets=m, folds=folds).draw(n, rng=1))
    tilts.step = 256
    points, uniform = np.random.default_rng(0).normal(size=(m, q)), np.full(m, -math.log(m))
    exact = tilts.masks(slice(0, n), np.float64, whole=True).T @ (points - points.mean(axis=0)) / m
    assert np.abs(tilts.shifts(points, uniform) - exact).max() < 1e-5


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
    monkeypatch.setattr(advantage, "POSTERIOR_CELLS", 128 * m)
    points = np.random.default_rng(1).normal(size=(m, 5)) * 0.1
    view = View(points=points, log_prior=np.full(m, -math.log(m)))
    membership_risk(view, Balanced(n_subsets=m).draw(n, rng=1), n_draws=4096, rng=2)
    assert max(map(len, added)) == 128
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
