"""Descent on JAX losses: gradients of single records, in batches, paid for and replayed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.mechanism import JaxDescent, coerce_data
from pacprivacy.noise import plan_descent
from pacprivacy.release import recompute_descent

jnp = pytest.importorskip("jax.numpy")
enable_x64 = pytest.importorskip("jax").enable_x64

RNG = np.random.default_rng(0)
N = 600
X = RNG.normal(size=(N, 2)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.float32)  # no line tells these apart
HIDDEN = {"a": RNG.normal(size=(2, 8)).astype(np.float32), "b": np.zeros(8, dtype=np.float32)}
COINS: dict[str, Any] = {"sample": pac.Coins(keep=0.9), "simulate": True, "rng": 0}


def network(weights: Any, row: Any, label: Any) -> Any:
    score = jnp.abs(row @ weights["a"]) @ weights["b"]
    return jnp.logaddexp(0.0, score) - label * score


@pytest.mark.claim("C-14")
@pytest.mark.parametrize("n_batches", [1, 3])
def test_a_network_learns_what_no_line_can_and_is_replayed(n_batches: int) -> None:
    fit = JaxDescent(loss=network, start=HIDDEN, rate=2.0, n_steps=90, n_batches=n_batches)
    release = pac.privatize(fit, (X, Y), pac.Membership(0.8), **COINS)
    scores = np.abs(X @ release.value["a"]) @ release.value["b"]
    assert np.mean((scores > 0) == Y) > 0.8
    assert release.bundle.spent.max() <= release.bundle.parameter**2
    assert (release.bundle.spent > 0).all()
    recompute_descent(release.bundle, fit, (X, Y), value=release.value)


@pytest.mark.claim("C-14")
def test_clocks_are_those_of_each_records_own_gradient() -> None:
    fit = JaxDescent(loss=network, start=HIDDEN, rate=0.5, n_steps=1, radius=4.0)
    data = coerce_data((X, Y))
    problem = fit.problem(data.parts)
    plan = plan_descent(fit, problem, None, n_units=N, success=0.6, keep=0.9, seed=0)
    weights = fit.path(plan.shape, plan.rate).weights
    rows, lengths = problem.step(weights)
    step = 1e-2
    for place in (0, 7):
        ends = [weights + step * np.eye(24)[:, [k]] * sign for k in range(24) for sign in (1, -1)]
        losses = [np.asarray(problem._of_records(problem.losses, end))[place] for end in ends]
        slopes = (np.array(losses[::2]) - losses[1::2]) / (2 * step)
        gradient = np.ldexp(rows[place] * lengths[place], -12)
        np.testing.assert_allclose(gradient, slopes, atol=2e-3)
    own = np.linalg.norm(rows * lengths / 2.0**12, axis=1)
    paid = plan.release(np.ones(N, bool), SimulatedSource(0)).spent
    short = own < 4.0  # longer ones were shortened; lengths are rounded to whole steps
    np.testing.assert_allclose(paid[short], np.square(own / plan.noise[0].std)[short], rtol=2e-2)
    assert short.sum() > N / 2


@pytest.mark.claim("C-14")
def test_a_gradient_that_is_no_number_adds_nothing_in_double_precision_too() -> None:
    def loss(weights: Any, row: Any, label: Any) -> Any:
        return label**1.5 * (row @ weights)

    labels = np.ones(N)
    labels[:2] = -1, 1e200  # no number, and one whose square overflows
    with enable_x64(True):
        fit = JaxDescent(loss=loss, start=np.zeros(2), rate=0.1, radius=1.0, n_steps=3)
        release = pac.privatize(fit, (X.astype(np.float64), labels), pac.Membership(0.6), **COINS)
    assert np.isfinite(release.value).all()
    assert (release.bundle.spent[:2] == 0).all()
    assert (release.bundle.spent[2:] > 0).all()


def test_mistakes_are_refused_before_a_coin() -> None:
    for loss in (lambda w, x, y: x, lambda w, x: 0.0 * w["b"].sum()):
        with pytest.raises(MechanismError, match="loss must return a scalar"):
            pac.privatize(JaxDescent(loss=loss, start=HIDDEN), (X, Y), "membership<=0.6", **COINS)
    with pytest.raises(MechanismError, match="start must be finite"):
        JaxDescent(loss=network, start=np.array([np.nan]))
    for name, wrong in (("radius", 0.0), ("rate", np.nan), ("momentum", 1.0), ("average", -1)):
        with pytest.raises(MechanismError, match=f"{name} must be from"):
            JaxDescent(loss=network, start=HIDDEN, **{name: wrong})
    crowded = JaxDescent(loss=network, start=HIDDEN, n_batches=N + 1)
    with pytest.raises(BudgetError, match="n_batches must be at most"):
        pac.privatize(crowded, (X, Y), "membership<=0.6", **COINS)
