"""Noise reduction passes an audit on worst-case neighbours; one coin for the vector does not.

The loss of a Brownian path is above what is said as rarely as is said; planted bugs are caught.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from pacprivacy._random import BitSource, SimulatedSource
from pacprivacy.dp.accuracy_first import InteractiveAboveThreshold, geometric_levels, noise_levels
from pacprivacy.dp.accuracy_first.noise_levels import BrownianLevels, NoisyLevels
from pacprivacy.dp.audit import audit_dp

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
    coins = noise_levels.lattice_bernoulli_enclosed(
        lambda bits: noise_levels.enclose_level_keep_rate(coarse, fine, bits),
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
    monkeypatch.setattr(noise_levels, "_toss", one_coin_for_each_run)
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


# --- Gaussian noise -------------------------------------------------------------------------

DELTA = 0.05


def count_losses_above(seed: int) -> int:
    """Of ``N_TRIALS`` paths, how many have at some level a loss above that level's epsilon.

    Neighbours differ by 1 in one number. The loss is that of the level alone: its noise ``s`` has
    variance ``v``, and ``ln p(s)/p(s + 1)`` is ``(s + 1/2)/v``.
    """
    epsilons = geometric_levels(0.1, 4.0, 40)
    path = BrownianLevels(
        np.zeros(N_TRIALS),
        sensitivity=1.0,
        epsilons=epsilons,
        delta=DELTA,
        source=SimulatedSource(seed),
    )
    above = np.zeros(N_TRIALS, dtype=bool)
    for level, epsilon in enumerate(epsilons):
        above |= (path.refine() + 0.5) / path.noise_scale(level) ** 2 > epsilon
    return int(above.sum())


def violated(count: int) -> bool:
    return bool(stats.binomtest(count, N_TRIALS, DELTA, alternative="greater").pvalue < 1e-8)


@pytest.mark.claim("AF-10")
def test_the_loss_of_a_brownian_path_is_rarely_above_what_is_said() -> None:
    count = count_losses_above(5)
    assert not violated(count)
    assert count > 0.2 * DELTA * N_TRIALS  # and not by waste


@pytest.mark.claim("AF-10")
@pytest.mark.parametrize("bug", ["half the variance", "standard deviation", "one level alone"])
def test_a_boundary_that_does_not_hold_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = noise_levels.brownian_level_variances

    def planted(epsilons: Draws, delta: float) -> Draws:
        if bug == "half the variance":
            return right(epsilons, delta) / 2
        if bug == "standard deviation":
            return np.sqrt(right(epsilons, delta))
        # What each level would need if it were the only one: the path is never looked at twice.
        far = stats.norm.isf(delta)
        return np.asarray((np.sqrt(far**2 + 2 * epsilons) - far) ** -2.0)

    monkeypatch.setattr(noise_levels, "brownian_level_variances", planted)
    assert violated(count_losses_above(6))


@pytest.mark.claim("AF-10")
def test_a_stopped_brownian_path_passes_an_audit() -> None:
    source = SimulatedSource(7)

    def draw(side: int, n: int) -> Draws:
        path = BrownianLevels(
            np.full(n, float(side)),
            sensitivity=1.0,
            epsilons=(0.5, 1.5),
            delta=0.01,
            source=source,
        )
        first, second = path.refine(), path.refine()
        stopped = np.where(first > 2.0, first, second)  # by what was seen
        return np.stack([first, second, stopped], axis=1)

    found = audit_dp(draw, epsilon=1.5, delta=0.01, n_trials=N_TRIALS)
    assert found.verdict == "holds", str(found)
    assert found.epsilon_lower > 0.3
