"""Noise reduction passes an audit on worst-case neighbours; one coin for the vector does not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pacprivacy._random import BitSource, SimulatedSource
from pacprivacy.dp import noise_reduction
from pacprivacy.dp.accuracy_first import InteractiveAboveThreshold
from pacprivacy.dp.audit import audit_dp
from pacprivacy.dp.noise_reduction import NoisyLevels

EPSILONS = (0.5, 2.0)  # the level that is read, and the less noisy one it was made from
N_COORDINATES = 20
N_TRIALS = 20_000
Draws = npt.NDArray[np.float64]


def draw_first_level(side: int, n: int, source: BitSource) -> Draws:
    """Run a release of 20 coordinates ``n`` times; neighbours differ by 1 in the first one.

    All runs are one long vector, so that this is fast: coins and noise are those of ``n`` runs.
    """
    values = np.zeros((n, N_COORDINATES))
    values[:, 0] = side
    levels = NoisyLevels(
        values.ravel() * 2.0**40, sensitivity=2.0**40, epsilons=EPSILONS, source=source
    )
    return (levels.refine() / 2.0**40).reshape(n, N_COORDINATES)


def what_an_attacker_sees(side: int, n: int, source: BitSource) -> Draws:
    """The first coordinate alone; and where the others are small: probably the coin was "keep"."""
    noisy = draw_first_level(side, n, source)
    calm = np.abs(noisy[:, 1:]).mean(axis=1) < 0.75  # 1/2 with the smaller noise, 2 with the other
    return np.stack([noisy[:, 0], np.where(calm, noisy[:, 0], -1000.0)], axis=1)


def one_coin_for_each_run(
    coarse: int, fine: int, size: int, source: BitSource
) -> npt.NDArray[np.bool_]:
    coins = noise_reduction.lattice_bernoulli_enclosed(
        lambda bits: noise_reduction.enclose_level_keep_rate(coarse, fine, bits),
        size // N_COORDINATES,
        source,
    )
    return np.repeat(coins, N_COORDINATES)


@pytest.mark.claim("AF-1", "AF-2")
def test_the_audit_passes_a_coin_for_each_coordinate() -> None:
    source = SimulatedSource(1)
    found = audit_dp(
        lambda side, n: what_an_attacker_sees(side, n, source),
        epsilon=EPSILONS[0],
        delta=0.0,
        n_trials=N_TRIALS,
    )
    assert found.verdict == "holds", str(found)
    assert found.epsilon_lower > 0.35  # the audit is not blind


@pytest.mark.claim("AF-1", "AF-2")
def test_the_audit_fails_one_coin_for_the_whole_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_reduction, "_toss", one_coin_for_each_run)
    source = SimulatedSource(2)
    found = audit_dp(
        lambda side, n: what_an_attacker_sees(side, n, source),
        epsilon=EPSILONS[0],
        delta=0.0,
        n_trials=N_TRIALS,
    )
    assert found.verdict == "VIOLATED"
    assert found.epsilon_lower > 1.0, str(found)


@pytest.mark.claim("AF-2")
def test_seeing_both_levels_costs_the_second_alone() -> None:
    source = SimulatedSource(3)

    def draw(side: int, n: int) -> Draws:
        levels = NoisyLevels(
            np.full(n, side * 2.0**40), sensitivity=2.0**40, epsilons=(1.0, 1.5), source=source
        )
        first, second = levels.refine() / 2.0**40, levels.refine() / 2.0**40
        return np.stack([first, second, first + second, np.maximum(first, second)], axis=1)

    found = audit_dp(draw, epsilon=1.5, delta=0.0, n_trials=4 * N_TRIALS)
    assert found.verdict == "holds", str(found)
    assert found.epsilon_lower > 1.3
    # Levels with independent noise would cost the sum.
    rng = np.random.default_rng(3)

    def independent(side: int, n: int) -> Draws:
        first, second = rng.laplace(side, 1.0, n), rng.laplace(side, 1 / 1.5, n)
        return np.minimum(first, second)

    apart = audit_dp(independent, epsilon=1.5, delta=0.0, n_trials=4 * N_TRIALS)
    assert apart.verdict == "VIOLATED"


@pytest.mark.claim("AF-3", "AF-4")
def test_where_the_threshold_search_stops_gives_away_no_more_than_epsilon() -> None:
    source = SimulatedSource(4)
    queries = ((0.0, 0.0, 0.0), (-1.0, -1.0, 1.0))  # each moves by the sensitivity of 1

    def stop(side: int) -> int:
        search = InteractiveAboveThreshold(
            threshold=0.0, sensitivity=1.0, epsilon=2.0, source=source
        )
        return next((i for i, q in enumerate(queries[side]) if search.ask(q)), len(queries[side]))

    found = audit_dp(
        lambda side, n: np.array([stop(side) for _ in range(n)]),
        epsilon=2.0,
        delta=0.0,
        n_trials=2000,
    )
    assert found.verdict == "holds", str(found)
    assert found.epsilon_lower > 0.1
