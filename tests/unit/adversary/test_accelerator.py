"""Proofs by JAX: the figures of NumPy, within what claim A-2 adds for single precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import accelerated, make_view, membership_risk

pytest.importorskip("jax")
UNITS = 1200


@pytest.mark.claim("A-2")
@pytest.mark.parametrize(
    "strategy", [pac.Balanced(n_subsets=60), pac.Balanced(n_subsets=60, folds=5), pac.Half()]
)
def test_bounds_are_those_of_numpy(strategy: Any) -> None:
    pool = strategy.draw(UNITS, rng=0)
    points = np.random.default_rng(1).normal(0, 0.3, size=(pool.n_subsets, 5))
    view, settings = make_view(points), {"n_draws": 4000, "rng": 3}
    plain = membership_risk(view, pool, **settings)
    with accelerated():
        found = membership_risk(view, pool, **settings)
    assert found.worst.n_draws == plain.worst.n_draws
    for one, other in ((found.per_unit, plain.per_unit), (found.upper, plain.upper)):
        np.testing.assert_allclose(one, other, atol=2e-7)
    np.testing.assert_allclose(found.upper_per_unit, plain.upper_per_unit, atol=2e-7)
    assert not np.array_equal(found.per_unit, plain.per_unit)  # it was another program


def test_an_accelerated_release_is_verified_without(tmp_path: Any) -> None:
    people = np.random.default_rng(0).normal(size=(300, 3))
    with accelerated():
        release = pac.privatize(lambda X: X.mean(axis=0), people, "membership<=0.7", n_subsets=32)
    release.save(tmp_path)
    found = pac.verify(release.certificate, tmp_path / "curator.npz")
    assert found.digest == release.certificate.digest
