"""Learned SR-PAC on the mean of Iris, a pool of 16 candidate halves, all enumerated."""

import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pacprivacy.errors import BudgetError, PacPrivacyError
from pacprivacy.noise import spread_of
from pacprivacy.noise.plan import waterfill
from pacprivacy.noise.shapes import axis_shape, refine_shape
from pacprivacy.residual import (
    LearnedNoise,
    Training,
    check_learned_noise,
    learn_noise,
    learn_noise_curve,
)
from pacprivacy.residual.learned_noise import Follower
from pacprivacy.sample import Balanced

BUDGETS = (0.25, 2.0)
EXACT = Training(n_steps=400, batch=256)
BRIEF = Training(n_steps=60, batch=128, warm_up=20, hidden=16, n_check=1 << 16)

pytestmark = pytest.mark.usefixtures("quick_compiler")


@cache
def iris_means() -> np.ndarray:
    features = load_iris().data
    low, high = features.min(axis=0), features.max(axis=0)
    pool = Balanced(n_subsets=16).draw(len(features), rng=0)
    scaled = (features - low) / (high - low)
    return np.array([scaled[pool.rows(k)].mean(axis=0) for k in range(16)])


@cache
def learned_exactly() -> tuple[LearnedNoise, ...]:
    return learn_noise_curve(
        iris_means(), BUDGETS, family="gaussian_full", follower="exact", training=EXACT, rng=0
    )


def test_the_exact_follower_claims_the_truth_and_finds_the_fixed_point() -> None:
    spread = spread_of(iris_means(), np.full(16, 1 / 16))
    log_p = np.full(16, -np.log(16))
    for learned, mi_nats in zip(learned_exactly(), BUDGETS, strict=True):
        found = check_learned_noise(learned, rng=1)
        assert learned.claimed_nats == pytest.approx(found.true_nats.value, rel=0.02)
        assert found.true_nats.value == pytest.approx(mi_nats, rel=0.02)
        start = axis_shape(waterfill(spread.eigenvalues, mi_nats=mi_nats))
        fixed = refine_shape(
            start, spread, log_p, mi_nats=mi_nats, rng=np.random.default_rng(0), n_steps=24
        )
        assert learned.total_variance == pytest.approx(fixed.total_variance, rel=0.05)
    # far from the Gaussian bound there is something to gain, and it is found
    assert (
        learned_exactly()[1].total_variance < 0.8 * waterfill(spread.eigenvalues, mi_nats=2.0).sum()
    )


def test_a_utility_loss_moves_noise_to_where_it_costs_least() -> None:
    """The first coordinate costs a hundred times as much: by hand, in the loss, and by default."""

    def dear(noise: Any) -> Any:
        return (noise**2).at[:, 0].multiply(100.0).sum(axis=1)

    def plain(noise: Any) -> Any:
        return (noise**2).sum(axis=1)

    outputs = np.random.default_rng(0).standard_normal((16, 2))
    by_loss = {
        loss: learn_noise(
            outputs, 0.5, family="gaussian_full", follower="exact", loss=loss, training=BRIEF, rng=0
        )
        for loss in (None, plain, dear)
    }
    default, same, moved = (np.diag(by_loss[loss].covariance()) for loss in (None, plain, dear))
    np.testing.assert_allclose(same, default, rtol=0.1)
    assert moved[0] < 0.7 * default[0]
    assert moved[1] > 1.3 * default[1]
    with pytest.raises(BudgetError, match="positive on average"):
        learn_noise(outputs, 0.5, loss=lambda noise: 0.0 * noise[:, 0], training=BRIEF, rng=0)


def test_the_same_seed_gives_the_same_noise_and_another_one_does_not() -> None:
    again, other = (
        learn_noise_curve(
            iris_means(), BUDGETS, family="gaussian_full", follower="exact", training=EXACT, rng=rng
        )
        for rng in (0, 1)
    )
    for first, second, third in zip(learned_exactly(), again, other, strict=True):
        assert first.claimed_nats == second.claimed_nats
        assert np.array_equal(first.factor, second.factor)
        assert not np.array_equal(first.factor, third.factor)


@pytest.mark.claim("W-2")
def test_a_decoder_that_sees_one_projection_understates() -> None:
    sliced = replace(BRIEF, n_slices=1)
    learned = learn_noise(iris_means(), 0.25, training=sliced, rng=0)
    found = check_learned_noise(learned, n_draws=50_000, rng=1)
    assert found.value > 0.05
    assert learned.claimed_nats + 5 * learned.claimed_error < found.true_nats.lower


@pytest.mark.claim("W-2")
@pytest.mark.parametrize("follower", ["mlp", "exact"])
def test_no_follower_claims_more_than_there_is(follower: Follower) -> None:
    training = Training(
        n_steps=20,
        batch=64,
        warm_up=0,
        follower_steps=1,
        hidden=8,
        n_layers=1,
        n_check=1 << 15,
    )
    learned = learn_noise(
        iris_means(),
        0.5,
        follower=follower,
        training=training,
        log_belief=np.log(np.arange(1, 17) / 136),
        rng=0,
    )
    found = check_learned_noise(learned, n_draws=20_000, rng=1)
    assert learned.claimed_nats <= found.true_nats.upper + 5 * learned.claimed_error
    assert learned.total_variance > 0


def test_unknown_names_and_budgets_are_refused() -> None:
    outputs = iris_means()
    with pytest.raises(BudgetError, match="family must be one of"):
        learn_noise(outputs, 0.5, family="cauchy")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="follower must be one of"):
        learn_noise(outputs, 0.5, follower="oracle")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="below the entropy"):
        learn_noise(outputs, 3.0)
    with pytest.raises(BudgetError, match="mi_nats must be a positive"):
        learn_noise(outputs, -1.0)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(PacPrivacyError, match=r"pip install '\.\[jax\]'"):
        learn_noise(iris_means(), 0.5)
