"""Training functions of JAX on all candidates at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import VmapMechanism
from pacprivacy.simulation import run_mechanism

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.usefixtures("quick_compiler")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(61, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5] > 0).astype(np.float32)


def train(X: Any, y: Any, key: Any) -> Any:
    """Logistic regression by thirty steps from random weights."""

    def loss(weights: Any) -> Any:
        scores = X @ weights
        return (jax.numpy.logaddexp(0.0, scores) - y * scores).mean() + 0.05 * (weights**2).sum()

    weights = jax.random.normal(key, (3,))
    step = jax.grad(loss)
    weights = jax.lax.fori_loop(0, 30, lambda _, w: w - 0.5 * step(w), weights)
    return {"weights": weights, "loss": loss(weights)}


def test_the_values_are_those_of_each_candidate_alone() -> None:
    pool = pac.Balanced(n_subsets=8).draw(61, rng=0)  # sizes 30 and 31
    mechanism = VmapMechanism(train=train, chunk=3)
    outputs = run_mechanism(mechanism, (X, Y), pool, rng=0)
    for k in range(8):
        rows = pool.rows(k)
        alone = mechanism.evaluate((X[rows], Y[rows]), np.random.default_rng(0))
        wanted = [*np.atleast_1d(alone["weights"]), alone["loss"]]
        np.testing.assert_allclose(outputs.restore(outputs.values[k])["weights"], wanted[:3], 1e-4)


def test_a_release_has_the_structure_of_the_function() -> None:
    mechanism = VmapMechanism(train=train)
    release = pac.privatize(mechanism, (X, Y), "mi<=1", n_subsets=8, rule="waterfill")
    assert release.value["weights"].shape == (3,)
    assert any("key of seed 0" in line for line in release.certificate.public)


def test_a_function_that_depends_on_more_than_its_records_is_refused() -> None:
    calls: list[int] = []

    def counts(X: Any, key: Any) -> Any:
        calls.append(1)  # once for each program that is compiled
        return X.mean() + len(calls)

    pool = pac.Balanced(n_subsets=4).draw(60, rng=0)
    with pytest.raises(MechanismError, match="batch must agree with evaluate"):
        run_mechanism(VmapMechanism(train=counts), X[:60], pool, rng=0)


def test_text_is_refused() -> None:
    with pytest.raises(MechanismError, match="must be given numbers"):
        VmapMechanism(train=train).evaluate((np.array(["a", "b"]),), np.random.default_rng(0))


def test_integers_that_jax_would_cut_are_refused() -> None:
    with pytest.raises(MechanismError, match="32 bits"):
        VmapMechanism(train=lambda x, key: x).evaluate(
            (np.full(4, 2**40),), np.random.default_rng(0)
        )
    small = VmapMechanism(train=lambda x, key: x.sum()).evaluate(
        (np.arange(4),), np.random.default_rng(0)
    )
    assert small == 6
