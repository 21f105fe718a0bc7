"""Where units are very many, the search keeps the shifts of those that are moved farthest."""

import numpy as np
import pytest

from pacprivacy.adversary import ViewTilts
from pacprivacy.noise import calibrate, shapes, spread_of
from pacprivacy.sample import Balanced

pytestmark = pytest.mark.usefixtures("few_draws")
N_KEPT = 300


@pytest.mark.parametrize("folds", [2, 16])
def test_the_noise_is_as_small_with_the_farthest_alone(
    folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(folds)
    rows = rng.standard_t(3, size=(3000, 5)) * [1, 1, 1, 1, 30]
    rows[1234] = [250, 0, 0, 0, 0]  # far among the small columns
    pool = Balanced(n_subsets=64, folds=folds).draw(len(rows), rng=0)
    inside = pool.inside(slice(0, len(rows))).astype(float)
    outputs = (inside @ rows) / inside.sum(axis=1, keepdims=True)
    whole = calibrate(outputs, "membership<=0.6", pool=pool, rng=1)
    monkeypatch.setattr(shapes, "MOST_SHIFTS", 5 * N_KEPT)
    found = calibrate(outputs, "membership<=0.6", pool=pool, rng=1)
    assert found.membership.upper <= 0.6
    assert found.total_variance <= 1.03 * whole.total_variance
    log_p = np.full(64, -np.log(64))
    spread = spread_of(outputs, np.exp(log_p))
    kept, shifts = shapes._farthest(spread, ViewTilts(pool), log_p)
    assert kept is not None
    assert len(kept) == len(shifts) == N_KEPT
    assert 1234 in kept
    every = ViewTilts(pool).shifts(spread.coordinates, log_p)
    # both are products in single precision, in another order
    assert np.abs(shifts - every[kept]).max() <= 1e-6 * np.abs(every).max()
    for size in (2.0**-100, 2.0**83):  # numbers may be of any size
        spread = spread_of(size * outputs, np.exp(log_p))
        assert np.array_equal(shapes._farthest(spread, ViewTilts(pool), log_p)[0], kept)


def test_nobody_who_moves_anything_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_SHIFTS", 5 * N_KEPT)
    pool = Balanced(n_subsets=16).draw(1000, rng=0)
    outputs = np.vstack([np.eye(8), np.eye(8)])  # of a subset and of its complement alike
    log_p = np.full(16, -np.log(16))
    spread = spread_of(outputs, np.exp(log_p))
    caps, rng = np.full(1000, 0.6), np.random.default_rng(0)
    for shape in shapes.risk_shapes(spread, pool, log_p, caps, rng=rng):
        assert np.isfinite(shape.noise_var).all()
        assert (shape.noise_var > 0).all()
