"""Every mechanism passes an audit on worst-case neighbours; planted bugs do not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pacprivacy.dp import audit_dp
from pacprivacy.dp.mechanisms import (
    exponential,
    exponential_choice,
    gaussian,
    laplace,
)
from pacprivacy.dp.noise import (
    add_gaussian,
    add_laplace,
    dp_noise_parameter,
    dp_noise_source,
)
from pacprivacy.dp.records import sum_clipped
from pacprivacy.errors import AuditError

N_TRIALS = 40_000
EPSILON, DELTA = 1.0, 1e-3
Draw = Callable[[int, int], np.ndarray]


# --- mechanisms pass ------------------------------------------------------------------------


@pytest.mark.claim("DP-1")
def test_laplace_passes_and_the_audit_is_tight() -> None:
    source = dp_noise_source(0)
    scale = add_laplace(0.0, sensitivity=1.0, epsilon=EPSILON, source=source)

    def draw(side: int, n: int) -> np.ndarray:
        # n coordinates that move by 1 each have sensitivity n; at n ε the scale is that of one.
        noisy = add_laplace(
            np.full(n, float(side)), sensitivity=float(n), epsilon=n * EPSILON, source=source
        )
        assert noisy.noise_scale == pytest.approx(scale.noise_scale, rel=1e-8)
        return noisy.values

    found = audit_dp(draw, epsilon=EPSILON, delta=0.0, n_trials=N_TRIALS)
    assert found.verdict == "holds"
    assert found.epsilon_lower > 0.85


def gaussian_draw(parameter: float, *, sensitivity: float = 1.0) -> Draw:
    """Many copies at once: n of them have √n times the sensitivity and the parameter of one."""
    source = dp_noise_source(0)

    def draw(side: int, n: int) -> np.ndarray:
        root = math.sqrt(n)
        return add_gaussian(
            np.full(n, float(side)),
            sensitivity=sensitivity * root,
            parameter=parameter * root,
            source=source,
        ).values

    return draw


@pytest.mark.claim("DP-2")
def test_gaussian_passes_and_the_audit_is_tight() -> None:
    epsilon = 0.99
    certificate = gaussian(
        0.0, sensitivity=1.0, epsilon=epsilon, delta=DELTA, neighbours="replace", simulate=0
    ).certificate
    draw = gaussian_draw(1.0 / certificate.noise["std"])  # type: ignore[index]
    found = audit_dp(draw, epsilon=epsilon, delta=DELTA, n_trials=N_TRIALS)
    assert found.verdict == "holds"
    assert found.epsilon_lower > 0.5


def one_by_one(release: Callable[[int, int], float]) -> Draw:
    seeds = iter(range(10**9))

    def draw(side: int, n: int) -> np.ndarray:
        return np.array([release(side, next(seeds)) for _ in range(n)])

    return draw


MECHANISMS: dict[str, tuple[Callable[[int, int], float], float]] = {
    "laplace": (
        lambda side, seed: (
            laplace(
                float(side), sensitivity=1.0, epsilon=EPSILON, neighbours="replace", simulate=seed
            ).value
        ),
        0.0,
    ),
    "exponential": (
        lambda side, seed: (
            exponential(
                [1.0 - side, float(side), 0.0],
                sensitivity=1.0,
                epsilon=EPSILON,
                neighbours="replace",
                simulate=seed,
            ).value
        ),
        0.0,
    ),
}


@pytest.mark.claim("DP-6")
@pytest.mark.claim("DP-8")
@pytest.mark.parametrize("name", MECHANISMS)
def test_public_mechanisms_pass(name: str) -> None:
    release, delta = MECHANISMS[name]
    found = audit_dp(one_by_one(release), epsilon=EPSILON, delta=delta, n_trials=1500)
    assert found.verdict == "holds", str(found)
    assert found.epsilon_lower > 0.0, str(found)


@pytest.mark.claim("DP-8")
def test_the_choice_among_candidates_is_tight_where_it_should_be() -> None:
    # Two candidates whose scores move in opposite directions by the sensitivity.
    source = dp_noise_source(3)

    def draw(side: int, n: int) -> np.ndarray:
        scores = [0.0, 2.0] if side else [1.0, 1.0]
        return np.array(
            [
                exponential_choice(
                    scores, sensitivity=1.0, epsilon=EPSILON, monotone=False, source=source
                )
                for _ in range(n)
            ]
        )

    found = audit_dp(draw, epsilon=EPSILON, delta=0.0, n_trials=4000)
    assert found.verdict == "holds"
    assert found.epsilon_lower > 0.6
    half = audit_dp(draw, epsilon=EPSILON / 2, delta=0.0, n_trials=4000)
    assert half.verdict == "VIOLATED"


# --- planted bugs fail ----------------------------------------------------------------------


@pytest.mark.claim("DP-6")
def test_halved_sensitivity_is_found() -> None:
    rng = np.random.default_rng(1)
    source = dp_noise_source(1)

    def wrong_laplace(side: int, n: int) -> np.ndarray:
        return side + rng.laplace(0, 0.5 / EPSILON, size=n)

    wrong_gaussian = gaussian_draw(dp_noise_parameter(EPSILON, DELTA, 1), sensitivity=0.5)

    def wrong_choice(side: int, n: int) -> np.ndarray:
        scores = [0.0, 2.0] if side else [1.0, 1.0]
        return np.array(
            [
                exponential_choice(
                    scores, sensitivity=0.5, epsilon=EPSILON, monotone=False, source=source
                )
                for _ in range(n)
            ]
        )

    assert (
        audit_dp(wrong_laplace, epsilon=EPSILON, delta=0.0, n_trials=N_TRIALS).verdict == "VIOLATED"
    )
    found = audit_dp(wrong_gaussian, epsilon=EPSILON, delta=DELTA, n_trials=N_TRIALS)
    assert found.verdict == "VIOLATED"
    found = audit_dp(wrong_choice, epsilon=EPSILON, delta=0.0, n_trials=4000)
    assert found.verdict == "VIOLATED"


@pytest.mark.claim("DP-3")
@pytest.mark.claim("DP-6")
@pytest.mark.parametrize(("rule", "verdict"), [("min", "holds"), ("max", "VIOLATED")])
def test_clipping_with_max_is_found(rule: str, verdict: str) -> None:
    rng = np.random.default_rng(2)
    bound, row = 1.0, np.array([[50.0]])  # one record far outside; its neighbour has none
    total = float(sum_clipped(row, clip_norm=bound)[0])
    if rule == "max":
        total = float((row * max(1.0, bound / np.linalg.norm(row))).sum())

    def draw(side: int, n: int) -> np.ndarray:
        return side * total + rng.laplace(0, bound / EPSILON, size=n)

    found = audit_dp(draw, epsilon=EPSILON, delta=0.0, n_trials=N_TRIALS)
    assert found.verdict == verdict


@pytest.mark.claim("DP-6")
@pytest.mark.parametrize(("norm", "verdict"), [("l1", "holds"), ("l2", "VIOLATED")])
def test_euclidean_clipping_with_laplace_noise_is_found(norm: str, verdict: str) -> None:
    # A mean of 10 rows with 16 coordinates: the worst row has equal entries, whose sum is four
    # times its Euclidean length, and Laplace noise for length 1 is too little.
    rng = np.random.default_rng(3)
    d, n_rows, bound = 16, 10, 1.0
    row = np.full(d, 100.0)
    row *= min(1.0, bound / np.linalg.norm(row, 1 if norm == "l1" else 2))

    def draw(side: int, n: int) -> np.ndarray:
        noise = rng.laplace(0, bound / EPSILON / n_rows, size=(n, d))
        released = side * row / n_rows + noise
        b = bound / EPSILON / n_rows
        ratio = (np.abs(released) - np.abs(released - row / n_rows)).sum(axis=1) / b
        return np.stack([ratio, released.sum(axis=1)], axis=1)

    found = audit_dp(draw, epsilon=EPSILON, delta=0.0, n_trials=N_TRIALS)
    assert found.verdict == verdict
    assert found.epsilon_lower > 0.2


# --- the audit itself -----------------------------------------------------------------------


@pytest.mark.claim("DP-6")
def test_the_lower_bound_is_that_of_clopper_and_pearson() -> None:
    # Randomised response: the answer is right with probability e/(1 + e).
    rng = np.random.default_rng(4)
    rate = math.e / (1 + math.e)

    def draw(side: int, n: int) -> np.ndarray:
        truth = rng.random(n) < rate
        return np.where(truth, side, 1 - side)

    found = audit_dp(draw, epsilon=1.0, delta=0.0, n_trials=50_000)
    p, q = (count / 50_000 for count in found.hits)
    assert found.epsilon_lower < math.log(p / q) < found.epsilon_lower + 0.1
    assert found.verdict == "holds"
    assert "promised 1" in str(found)


@pytest.mark.claim("DP-6")
def test_identical_data_sets_show_nothing() -> None:
    rng = np.random.default_rng(5)
    found = audit_dp(
        lambda side, n: rng.normal(size=(n, 2)), epsilon=0.01, delta=0.0, n_trials=N_TRIALS
    )
    assert found.epsilon_lower == 0.0


@pytest.mark.claim("DP-6")
def test_runs_that_choose_the_event_are_not_counted() -> None:
    calls = []

    def draw(side: int, n: int) -> np.ndarray:
        calls.append(side)
        return np.full(n, float(side)) if len(calls) <= 2 else np.zeros(n)  # a coincidence at first

    assert audit_dp(draw, epsilon=1.0, delta=0.0, n_trials=1000).epsilon_lower == 0.0
    assert sorted(calls) == [0, 0, 1, 1]


def test_bad_audits_are_refused() -> None:
    def draw(side: int, n: int) -> np.ndarray:
        return np.zeros(n)

    with pytest.raises(AuditError, match="n_trials must be"):
        audit_dp(draw, epsilon=1.0, delta=0.0, n_trials=10)
    with pytest.raises(AuditError, match="epsilon must be"):
        audit_dp(draw, epsilon=0.0, delta=0.0)
    with pytest.raises(AuditError, match="draw must return"):
        audit_dp(lambda side, n: np.array(["a"] * n), epsilon=1.0, delta=0.0)
