"""One cell of the fight: a task on one table, tuned and measured alike for every family.

Every method tries its settings by simulated releases that are judged on the tuning rows; the best
setting at each advantage is then released 3 x 10 times and judged on the test rows. No family
pays for the tuning. The noise is seeded: nothing here protects anybody.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from contenders.coins import CoinMethod, Draw
from pacprivacy._random import public_generator
from pacprivacy.budget import Membership
from pacprivacy.design.tuning import simulate_tuned_releases, tune_budgets
from pacprivacy.dp import calibrate_to_advantage
from pacprivacy.mechanism import as_mechanism, coerce_data
from pacprivacy.sample import Balanced
from pacprivacy.session import DryRun, SampleOptions

ADVANTAGES = (0.1, 0.176, 0.35)
N_SEEDS, N_DRAWS = 3, 10
T_QUANTILE = 2.045  # of Student's law with 29 degrees of freedom: a 95 % interval
Score = Callable[[Any], float]


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a run is: all private rows, or the first ones and half of the candidates.

    ``tuned`` are the advantages at which settings are chosen; the others take the nearest choice.
    """

    name: str
    most: int | None
    divisor: int
    tuned: tuple[float, ...]

    def subsets(self, full: int) -> int:
        """Return the number of candidates."""
        return full // self.divisor


FULL = Size(name="full", most=None, divisor=1, tuned=ADVANTAGES)
QUICK = Size(name="quick", most=4000, divisor=2, tuned=(0.176,))


@dataclass(frozen=True, kw_only=True)
class DPMethod:
    """A method of differential privacy with the settings that are tried.

    ``release(setting, epsilon, seed)`` returns a value and the advantage of the best attacker on
    it. ``advantage(setting, epsilon)`` is given where it can be told without a release.
    """

    name: str
    settings: Sequence[Any]
    release: Callable[[Any, float, int], tuple[Any, float]]
    advantage: Callable[[Any, float], float] | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is released from which records, and how both families go about it.

    ``pac_make`` maps a setting to a mechanism; ``tuning`` and ``test`` judge a released value.
    ``folds`` are numbers of folds that are tried with ``n_subsets`` candidates each.
    """

    data: Any
    n_records: int
    delta: float
    tuning: Score
    test: Score
    larger_is_better: bool
    pac_make: Callable[[Any], Any]
    pac_settings: Sequence[Any]
    dp_methods: Sequence[DPMethod]
    coin_methods: Sequence[CoinMethod] = ()
    folds: tuple[int, ...] = (10, 20)
    n_subsets: int = 2000
    n_tuning_draws: int = 5
    pac_name: str = "folds, risk"
    pac_needs: str = "nothing"
    dp_needs: str = ""
    tuned: tuple[float, ...] = ADVANTAGES
    without_privacy: Any = None

    def nearest(self, level: float) -> float:
        """Return where the settings of an advantage are chosen."""
        return min(self.tuned, key=lambda each: abs(each - level))

    def fit_all(self) -> Any:
        """Return the value on all records, of the setting that is best on the tuning rows."""
        if self.without_privacy is not None:
            return self.without_privacy
        data, found = coerce_data(self.data), []
        for setting in self.pac_settings:
            mechanism = as_mechanism(self.pac_make(setting)).prepare(data)
            value = mechanism.evaluate(data.parts, np.random.default_rng(0))
            found.append(mechanism.finish(value))
        return min(found, key=self.loss(self.tuning))

    def loss(self, score: Score) -> Callable[[Any], float]:
        """Return what is made small."""
        return (lambda value: -score(value)) if self.larger_is_better else score


@dataclass
class Clock:
    """CPU seconds of the parts of a cell."""

    parts: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.process_time)

    def lap(self, name: str) -> None:
        now = time.process_time()
        self.parts[name] = round(self.parts.get(name, 0.0) + now - self._since, 1)
        self._since = now


def measure(problem: Problem, families: Sequence[str]) -> dict[str, Any]:
    """Tune and release with these families at every advantage."""
    clock, found = Clock(), {}
    if "pool" in families:
        found["pool"] = fight_pool(problem, clock)
    if "coins" in families:
        found["coins"] = fight_coins(problem, clock)
    if "dp" in families:
        found["dp"] = fight_dp(problem, clock)
    return {
        "n_records": problem.n_records,
        "without_privacy": problem.test(problem.fit_all()),
        "rows": [
            {"advantage": level} | {family: found[family][level] for family in found}
            for level in ADVANTAGES
        ],
        "cpu_seconds": clock.parts,
    }


def fight_coins(problem: Problem, clock: Clock) -> dict[float, list[dict[str, Any]]]:
    """Tune every method with coins, then release each with its best setting."""
    loss = problem.loss(problem.tuning)
    tried = sum(len(method.settings) for method in problem.coin_methods)
    sign = -1.0 if problem.larger_is_better else 1.0
    chosen: dict[tuple[str, float], tuple[Any, float]] = {}
    for method, level in product(problem.coin_methods, problem.tuned):
        scores = []
        for setting in method.settings:
            draw = method.plan(setting, level, 0)
            losses = [loss(draw(1000 + k)) for k in range(problem.n_tuning_draws)]
            scores.append(float(np.mean(losses)))
        place = int(np.argmin(scores))
        chosen[method.name, level] = method.settings[place], sign * scores[place]
    clock.lap("coins_tuning")
    found: dict[float, list[dict[str, Any]]] = {}
    for level in ADVANTAGES:
        found[level] = []
        for method in problem.coin_methods:
            setting, tuned_at = chosen[method.name, problem.nearest(level)]
            values = [
                _drawn(method.plan(setting, level, seed), seed) for seed in range(1, N_SEEDS + 1)
            ]
            about = {"method": method.name, "setting": repr(setting), "tuned_at": tuned_at}
            about |= {"tried": tried, "needs": method.needs}
            found[level].append(summary(problem, values) | about)
    clock.lap("coins_releases")
    return found


def _drawn(draw: Draw, seed: int) -> list[Any]:
    return [draw(10_000 * seed + k) for k in range(N_DRAWS)]


def fight_pool(problem: Problem, clock: Clock) -> dict[float, dict[str, Any]]:
    """Tune the setting and the number of folds, then release from three pools."""
    budgets = [Membership((1 + level) / 2) for level in problem.tuned]
    utility = problem.loss(problem.tuning)
    tuned = {}
    for folds in problem.folds:
        tuned[folds] = tune_budgets(
            problem.pac_make,
            problem.pac_settings,
            problem.data,
            budgets,
            lambda value: -utility(value),
            sample=Balanced(n_subsets=problem.n_subsets, folds=folds),
            rule="risk",
            n_releases=max(2, problem.n_tuning_draws),
            n_jobs=1,
            rng=0,
        )
    chosen = {}
    for level in ADVANTAGES:
        number = problem.tuned.index(problem.nearest(level))
        folds = max(problem.folds, key=lambda k, number=number: tuned[k][number].best_point.utility)
        chosen[level] = (folds, tuned[folds][number].best)
    clock.lap("pool_tuning")
    values: dict[float, list[list[Any]]] = {level: [] for level in ADVANTAGES}
    quiet: dict[float, list[float]] = {level: [] for level in ADVANTAGES}
    nats: dict[float, float] = {}
    for seed in range(1, N_SEEDS + 1):
        for pair in dict.fromkeys((k, repr(setting)) for k, setting in chosen.values()):
            levels = [level for level, (k, s) in chosen.items() if (k, repr(s)) == pair]
            folds, setting = chosen[levels[0]]
            options = SampleOptions(
                sample=Balanced(n_subsets=problem.n_subsets, folds=folds),
                n_jobs=1,
                rng=seed,
                progress=False,
            )
            dry_run = DryRun(problem.data, options)
            outputs = dry_run.run(problem.pac_make(setting))
            for level in levels:
                plan = dry_run.calibrate(outputs, Membership((1 + level) / 2), rule="risk")
                nats[level] = max(nats.get(level, 0.0), plan.mi_upper)
                released = simulate_tuned_releases(plan, N_DRAWS, public_generator(seed, "fight"))
                values[level].append([outputs.restore(vector) for vector in released])
                some = outputs.values[:: max(1, outputs.n_subsets // 20)]
                quiet[level].append(
                    float(np.mean([problem.test(outputs.restore(v)) for v in some]))
                )
    clock.lap("pool_releases")
    return {
        level: summary(problem, values[level])
        | {
            "method": problem.pac_name,
            "setting": repr(chosen[level][1]),
            "folds": chosen[level][0],
            "n_subsets": problem.n_subsets,
            "tried": len(problem.pac_settings) * len(problem.folds),
            "without_noise": float(np.mean(quiet[level])),
            "mi_nats_at_most": nats[level],
            "needs": problem.pac_needs,
        }
        for level in ADVANTAGES
    }


def fight_dp(problem: Problem, clock: Clock) -> dict[float, list[dict[str, Any]]]:
    """Tune every method, then release each with its best setting."""
    found: dict[float, list[dict[str, Any]]] = {}
    loss = problem.loss(problem.tuning)
    tried = sum(len(method.settings) for method in problem.dp_methods)
    sign = -1.0 if problem.larger_is_better else 1.0
    chosen: dict[tuple[str, float], tuple[Any, float]] = {}
    for method, level in product(problem.dp_methods, problem.tuned):
        scores = []
        for setting in method.settings:
            epsilon = _epsilon(method, setting, level, problem.delta)
            draws = range(problem.n_tuning_draws)
            lost = [loss(method.release(setting, epsilon, 1000 + k)[0]) for k in draws]
            scores.append(float(np.mean(lost)))
        place = int(np.argmin(scores))
        chosen[method.name, level] = method.settings[place], sign * scores[place]
    clock.lap("dp_tuning")
    for level in ADVANTAGES:
        found[level] = []
        for method in problem.dp_methods:
            setting, tuned_at = chosen[method.name, problem.nearest(level)]
            epsilon = _epsilon(method, setting, level, problem.delta)
            values, advantage = [], 0.0
            for seed in range(1, N_SEEDS + 1):
                drawn = [
                    method.release(setting, epsilon, 10_000 * seed + k) for k in range(N_DRAWS)
                ]
                values.append([value for value, _ in drawn])
                advantage = max(advantage, *(own for _, own in drawn))
            assert advantage <= level, (method.name, advantage, level)
            clock.lap("dp_releases")
            found[level].append(
                summary(problem, values)
                | {
                    "method": method.name,
                    "setting": repr(setting),
                    "tuned_at": tuned_at,
                    "epsilon": epsilon,
                    "delta": problem.delta,
                    "advantage": advantage,
                    "tried": tried,
                    "needs": problem.dp_needs,
                }
            )
    return found


def _epsilon(method: DPMethod, setting: Any, level: float, delta: float) -> float:
    told = method.advantage
    if told is None:
        return calibrate_to_advantage(
            lambda trial: method.release(setting, trial, 0)[1], level, delta=delta
        )
    return calibrate_to_advantage(lambda trial: told(setting, trial), level, delta=delta)


def summary(problem: Problem, values: list[list[Any]]) -> dict[str, Any]:
    """Return mean and interval of the test score over seeds and draws."""
    return describe([[problem.test(value) for value in drawn] for drawn in values])


def describe(scores: list[list[float]]) -> dict[str, Any]:
    """Return mean and interval; the wider of those by draws and by means of seeds."""
    table = np.array(scores)
    by_draws = table.std(ddof=1) / math.sqrt(table.size)
    by_seeds = table.mean(axis=1).std(ddof=1) / math.sqrt(len(table))
    return {
        "score": float(table.mean()),
        "half_width": T_QUANTILE * float(max(by_draws, by_seeds)),
        "scores": [[float(f"{score:.5g}") for score in drawn] for drawn in table],
    }
