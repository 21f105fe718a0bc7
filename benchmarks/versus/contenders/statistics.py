"""Means, medians and quantiles; the error is against the value on all private rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from contenders.coins import CoinMethod, plan_coins
from contenders.problem import DPMethod, Problem, Size
from contenders.tables import load
from pacprivacy import dp
from pacprivacy.mechanism import Mechanism, coerce_data
from pacprivacy.statistics import Mean
from pacprivacy.theory import gaussian_epsilon, gaussian_parameter, gaussian_success

KEEPS = (0.95, 0.98, 0.99)


def clip_rows(X: Any, most: float) -> Any:
    """Shrink rows to a Euclidean norm."""
    norms = np.linalg.norm(X, axis=1)
    return X * np.minimum(1.0, most / np.maximum(norms, 1e-300))[:, None]


@dataclass(frozen=True, kw_only=True)
class ClippedMean(Mechanism):
    """The mean of rows that are shrunk to a norm; infinity leaves them as they are."""

    name = "ClippedMean"
    most: float

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the mean of one subset."""
        return clip_rows(parts[0], self.most).mean(axis=0)

    def batch(self, data: Any, pool: Any) -> Any:
        """Return the means of all subsets."""
        return Mean().batch(coerce_data(clip_rows(data.parts[0], self.most)), pool)


def rms_from(goal: Any) -> Any:
    """Return the root mean square distance of a released vector."""
    return lambda value: float(np.sqrt(np.mean(np.square(np.ravel(value) - goal))))


def make_mean(
    name: str, size: Size, *, folds: tuple[int, ...], n_subsets: int, few: bool = False
) -> Problem:
    """Return the means of all columns."""
    split = load(name, most=size.most)
    n = len(split.X)
    norms = np.linalg.norm(split.X_tuning, axis=1)
    clips = [
        float(f"{np.quantile(norms, q):.3g}")
        for q in ((0.97, 1.0) if few else (0.5, 0.9, 0.97, 1.0))
    ]

    def gaussian(clip: float, epsilon: float, seed: int) -> tuple[Any, float]:
        found = dp.gaussian(
            dp.sum_clipped(split.X, clip_norm=clip) / n,
            sensitivity=(1 + 1e-9) * clip / n,
            epsilon=epsilon,
            delta=split.delta,
            neighbours="add_remove",
            simulate=seed,
        )
        return found.value, 2 * found.certificate.membership_bound - 1

    def coins(clip: Any, level: float, seed: int) -> Any:
        return plan_coins(Mean(), split.X, level, seed, clip=clip)

    error = rms_from(split.X.mean(axis=0))
    return Problem(
        data=split.X,
        n_records=n,
        delta=split.delta,
        tuning=error,
        test=error,
        larger_is_better=False,
        without_privacy=split.X.mean(axis=0),
        pac_make=lambda clip: ClippedMean(most=clip),
        pac_settings=(float("inf"),) if few else (float("inf"), clips[2]),
        folds=folds,
        n_subsets=size.subsets(n_subsets),
        dp_methods=(DPMethod(name="Gaussian sum", settings=clips, release=gaussian),),
        coin_methods=(
            CoinMethod(
                name="coins, sums",
                settings=("auto", 2.0) if few else ("auto", 1.3, 2.0, None),
                plan=coins,
                needs="nothing; clipping was tried",
            ),
        ),
        n_tuning_draws=10,
        pac_needs="nothing" if few else "nothing; clipping was tried",
        dp_needs="scales of the columns, a clipping norm (tuned)",
    )


@dataclass(frozen=True, kw_only=True)
class Quantiles(Mechanism):
    """Quantiles of every column."""

    name = "Quantiles"
    levels: tuple[float, ...]

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the quantiles of one subset, column by column."""
        return np.quantile(parts[0], self.levels, axis=0).T.ravel()


@dataclass(frozen=True, kw_only=True)
class Pinball:
    """The loss whose minimiser is a quantile; targets clipped to a declared absolute value."""

    level: float
    y_bound: float
    n_scores = 1

    def encode(self, y: Any, n_records: int) -> Any:
        """Return clipped targets."""
        return np.clip(np.asarray(y, dtype=np.float64), -self.y_bound, self.y_bound)

    def slopes(self, scores: Any, target: Any) -> Any:
        """Return a subgradient."""
        return np.where(target[:, None] > scores, -self.level, 1.0 - self.level)


def make_quantiles(
    name: str,
    size: Size,
    columns: tuple[int, ...],
    levels: tuple[float, ...],
    *,
    folds: tuple[int, ...] = (2, 4, 5, 8, 10, 20),
    steps: tuple[tuple[int, float], ...] = tuple(product((10, 30), (1.0, 2.0))),
) -> Problem:
    """Return quantiles of some columns."""
    split = load(name, most=size.most)
    X = split.X[:, columns]
    n, count = len(X), len(columns) * len(levels)
    goal = Quantiles(levels=levels).evaluate((X,), np.random.default_rng(0))
    spread = float(np.abs(split.X_tuning[:, columns]).max())

    def flip(reach: float, epsilon: float, seed: int) -> tuple[Any, float]:
        found = dp.release_dp_statistic(
            {str(j): column for j, column in enumerate(X.T)},
            statistic="quantiles",
            ranges=[(-reach, reach)] * len(columns),
            q=levels,
            epsilon=epsilon,
            simulate=seed,
        )
        numbers = [v for column in found.value["quantiles"].values() for v in _numbers(column)]
        return np.array(numbers), 2 * found.certificate.membership_bound - 1

    def descend(setting: tuple[int, float], epsilon: float, seed: int) -> tuple[Any, float]:
        n_steps, rate = setting
        each = gaussian_parameter(epsilon, split.delta) / np.sqrt(count)
        own = gaussian_epsilon(each * (1 - 1e-6), split.delta)
        found, spent = [], 0.0
        for number, (column, level) in enumerate(
            (column, level) for column in X.T for level in levels
        ):
            release = dp.dp_sgd(
                np.ones((n, 1)),
                column,
                loss=Pinball(level=level, y_bound=spread),
                epsilon=own,
                delta=split.delta,
                x_bound=1.0,
                batch=dp.FullBatch(n_public=n),
                steps=dp.Steps(n_steps=n_steps, learning_rate=rate, clip_norm=1.0, average=False),
                simulate=1000 * seed + number,
            )
            found.append(float(release.value[0]))
            spent += gaussian_parameter_of(2 * release.certificate.membership_bound - 1) ** 2
        return np.array(found), 2 * gaussian_success(np.sqrt(spent)) - 1

    def coins(keep: float, level: float, seed: int) -> Any:
        quantiles = partial(np.quantile, q=levels, axis=0)
        draw = plan_coins(quantiles, X, level, seed, keep=keep)
        return lambda number: np.asarray(draw(number)).T.ravel()

    error = rms_from(goal)
    return Problem(
        data=X,
        n_records=n,
        delta=split.delta,
        tuning=error,
        test=error,
        larger_is_better=False,
        without_privacy=goal,
        pac_make=lambda _: Quantiles(levels=levels),
        pac_settings=(None,),
        folds=folds,
        n_subsets=size.subsets(2000),
        dp_methods=(
            DPMethod(name="permute and flip", settings=(spread, 0.5 * spread), release=flip),
            DPMethod(
                name="DP-GD, pinball loss",
                settings=steps,
                release=descend,
            ),
        ),
        coin_methods=(CoinMethod(name="coins, quantiles", settings=KEEPS, plan=coins),),
        n_tuning_draws=5,
        pac_needs="nothing",
        dp_needs="ranges of the columns; steps and rate (tuned)",
    )


def gaussian_parameter_of(advantage: float) -> float:
    """Return the Gaussian parameter with that advantage."""
    from scipy.special import ndtri

    return 2 * float(ndtri((1 + advantage) / 2))


def _numbers(value: Any) -> list[float]:
    return list(value.values()) if isinstance(value, dict) else [float(value)]
