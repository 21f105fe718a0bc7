"""Single mechanisms: what they promise, what they refuse, and that the promise is in the text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from pacprivacy.dp.mechanisms import (
    exponential,
    exponential_choice,
    exponential_score_loss,
    gaussian,
    laplace,
    private_mean,
    private_sum,
)
from pacprivacy.dp.noise import dp_noise_source
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.theory import gaussian_parameter

PROMISE: dict[Any, dict[str, float]] = {
    laplace: {"epsilon": 0.5},
    gaussian: {"epsilon": 0.5, "delta": 1e-6},
}


@pytest.mark.parametrize("mechanism", PROMISE)
def test_a_number_and_an_array_keep_their_shape(mechanism: Callable[..., Any]) -> None:
    settings = {"sensitivity": 1.0, "neighbours": "replace", **PROMISE[mechanism]}
    one = mechanism(3.0, **settings)
    assert isinstance(one.value, float)
    assert not one.certificate.simulation
    many = mechanism(np.zeros((2, 3)), **settings, simulate=1)
    assert many.value.shape == (2, 3)
    assert many.certificate.simulation
    again = mechanism(np.zeros((2, 3)), **settings, simulate=1)
    assert np.array_equal(many.value, again.value)
    assert many.certificate.epsilon == 0.5
    assert many.certificate.neighbours == "replace"
    assert "at most 1" in str(many.certificate)
    assert mechanism(3.0, **settings).value != one.value


@pytest.mark.parametrize("mechanism", PROMISE)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_promises_are_refused(mechanism: Callable[..., Any], bad: float) -> None:
    settings = {"sensitivity": 1.0, "neighbours": "replace", **PROMISE[mechanism]}
    for name in ("epsilon", "sensitivity"):
        with pytest.raises(BudgetError, match=f"{name} must be"):
            mechanism(3.0, **(settings | {name: bad}))
    with pytest.raises(BudgetError, match="neighbours must be"):
        mechanism(3.0, **(settings | {"neighbours": "friends"}))
    with pytest.raises(TypeError, match="neighbours"):
        mechanism(3.0, sensitivity=1.0, **PROMISE[mechanism])


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan])
def test_delta_outside_is_refused(delta: float) -> None:
    with pytest.raises(BudgetError, match="delta must be between 0 and 1"):
        gaussian(1.0, sensitivity=1.0, epsilon=0.5, delta=delta, neighbours="replace")


@pytest.mark.claim("DP-2")
def test_noise_is_less_than_the_classical_formula_has() -> None:
    release = gaussian(0.0, sensitivity=2.0, epsilon=0.9, delta=1e-5, neighbours="replace")
    classical = 2.0 * math.sqrt(2 * math.log(1.25e5)) / 0.9
    assert 0.5 * classical < (release.certificate.noise or {})["std"] < 0.9 * classical


@pytest.mark.claim("DP-8")
def test_choices_have_the_law_of_permute_and_flip() -> None:
    scores, epsilon, n = np.array([0.0, 1.0, 1.5]), 1.4, 20_000
    p = np.exp(epsilon * (scores - scores.max()) / 2)
    t = np.linspace(0, 1, 20_001)
    law = np.array(
        [p[r] * trapezoid(np.prod([1 - t * p[j] for j in range(3) if j != r], axis=0), t)
         for r in range(3)]
    )  # fmt: skip
    assert law.sum() == pytest.approx(1.0, abs=1e-8)
    source = dp_noise_source(5)
    drawn = [
        exponential_choice(scores, sensitivity=1.0, epsilon=epsilon, monotone=False, source=source)
        for _ in range(n)
    ]
    counts = np.bincount(drawn, minlength=3)
    assert stats.chisquare(counts, n * law).pvalue > 1e-6
    softmax = p / p.sum()  # the textbook's law is another one
    assert stats.chisquare(counts, n * softmax).pvalue < 1e-6


@pytest.mark.claim("DP-8")
@pytest.mark.parametrize("monotone", [False, True])
def test_no_probability_changes_by_more_than_the_promise(monotone: bool) -> None:
    """The exact law, over a grid of scores and of neighbours: the proof, checked by brute force."""
    t = np.linspace(0, 1, 2001)

    def law(scores: np.ndarray) -> np.ndarray:
        p = np.exp((scores - scores.max()) / (1.0 if monotone else 2.0))
        return np.array(
            [
                p[r] * trapezoid(np.prod([1 - t * q for q in np.delete(p, r)], axis=0), t)
                for r in range(len(p))
            ]
        )

    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(100):
        scores = rng.uniform(-3, 3, size=4)
        change = rng.choice([0.0, 1.0] if monotone else [-1.0, 1.0], size=4)
        largest = max(largest, float(np.abs(np.log(law(scores) / law(scores + change))).max()))
    assert 0.8 < largest <= 1.0 + 1e-5


@pytest.mark.claim("DP-8")
def test_the_choice_is_within_its_utility_bound() -> None:
    scores = np.concatenate([[100.0], np.full(200, 100.0 - 12.0)])
    bound = exponential_score_loss(201, sensitivity=1.0, epsilon=1.5, gamma=0.1)
    assert bound < 12.0
    source = dp_noise_source(6)
    misses = sum(
        exponential_choice(scores, sensitivity=1.0, epsilon=1.5, monotone=False, source=source) > 0
        for _ in range(2000)
    )
    assert misses < 0.1 * 2000


def test_extreme_scores_are_handled() -> None:
    scores = [1e308, -1e308, 1e308]
    assert exponential(scores, sensitivity=1e-3, epsilon=9.0, neighbours="replace").value in (0, 2)
    assert exponential([5.0], sensitivity=1.0, epsilon=1.0, neighbours="replace").value == 0
    for bad in ([], [math.nan], [[1.0]]):
        with pytest.raises(DataError, match="scores must be finite"):
            exponential(bad, sensitivity=1.0, epsilon=1.0, neighbours="replace")
    for name in ("sensitivity", "epsilon"):
        with pytest.raises(BudgetError, match=f"{name} must be"):
            exponential_choice(
                [1.0],
                **({"sensitivity": 1.0, "epsilon": 1.0} | {name: 0.0}),  # type: ignore[arg-type]
                monotone=False,
                source=dp_noise_source(0),
            )


@pytest.mark.claim("DP-3")
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_sums_clip_in_the_norm_of_their_noise(delta: float, neighbours: Any) -> None:
    rows = np.array([[30.0, 40.0]] * 7 + [[0.1, 0.1]])
    settings: dict[str, Any] = {"clip_norm": 5.0, "epsilon": 1.0, "delta": delta}
    release = private_sum(rows, neighbours=neighbours, simulate=0, **settings)
    noise = release.certificate.noise
    assert noise is not None
    reach = 5.0 if neighbours == "add_remove" else 10.0
    name = "std" if delta else "laplace scale"
    expected = reach / gaussian_parameter(1.0, delta) if delta else reach
    assert noise[name] == pytest.approx(expected, rel=1e-6)
    clipped = rows * np.minimum(1, 5 / np.linalg.norm(rows, 2 if delta else 1, axis=1))[:, None]
    loud = private_sum(rows, neighbours=neighbours, simulate=0, **(settings | {"epsilon": 500.0}))
    assert np.allclose(loud.value, clipped.sum(axis=0), atol=3.0)  # the other norm is 6 away
    mean = private_mean(rows, neighbours=neighbours, n_public=8, simulate=0, **settings)
    assert np.allclose(mean.value, release.value / 8)
    assert mean.certificate.noise[name] == pytest.approx(expected / 8, rel=1e-6)  # type: ignore[index]
    assert ("Euclidean" if delta else "absolute entries") in str(mean.certificate)


def test_means_need_a_public_number() -> None:
    settings: dict[str, Any] = {"clip_norm": 1.0, "epsilon": 1.0}
    with pytest.raises(BudgetError, match="n_public must be given"):
        private_mean([1.0, 2.0], neighbours="add_remove", **settings)
    assert isinstance(private_mean([1.0, 2.0], neighbours="replace", **settings).value, float)
    with pytest.raises(BudgetError, match="clip_norm must be"):
        private_sum([1.0], neighbours="replace", clip_norm=None, epsilon=1.0)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="delta must be"):
        private_sum([1.0], neighbours="replace", delta=2.0, **settings)
