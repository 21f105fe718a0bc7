"""K-means: pools of Lloyd's fits; coins and DP by Lloyd's steps with noisy sums and counts."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from scipy.special import ndtri

from contenders.coins import CoinMethod, plan_coins
from contenders.problem import DPMethod, Problem, Size
from contenders.tables import load
from pacprivacy import dp
from pacprivacy.mechanism import KMeans, Lloyd, coerce_data
from pacprivacy.theory import gaussian_epsilon, gaussian_parameter, gaussian_success

COUNTED = 0.5  # what a record adds to a count, beside up to 1 to a sum


def make_clusters(name: str, size: Size, k: int) -> Problem:
    """Return k-means centres; the error is the mean squared distance of test rows."""
    split = load(name, most=size.most)
    X = np.clip(split.X, -4.0, 4.0)
    n, d = X.shape
    norms = np.linalg.norm(split.X_tuning, axis=1)
    public = KMeans(n_clusters=k, n_init=10).prepare(coerce_data(split.X_tuning)).reference

    def inertia(rows: Any) -> Any:
        squares = np.square(rows).sum(axis=1)

        def score(value: Any) -> float:
            centres = np.asarray(value).reshape(k, d)
            apart = squares[:, None] - 2 * rows @ centres.T + np.square(centres).sum(axis=1)
            return float(apart.min(axis=1).mean() / d)

        return score

    def lloyd(setting: Any, epsilon: float, seed: int) -> tuple[Any, float]:
        n_steps, share, start = setting
        clip = float(np.quantile(norms, share))
        own = gaussian_parameter(epsilon, split.delta) / np.sqrt(n_steps)
        each = gaussian_epsilon(own * (1 - 1e-6), split.delta)
        reach, spent = np.sqrt(1 + COUNTED**2) * (1 + 1e-9), 0.0
        rows = X * np.minimum(1.0, clip / np.linalg.norm(X, axis=1))[:, None] * (1 - 1e-12)
        centres = np.random.default_rng(start).normal(size=(k, d)) if start else public
        for step in range(n_steps):
            apart = (
                np.square(rows[:, None] - centres).sum(axis=2)
                if d < 8
                else (-2 * rows @ centres.T + np.square(centres).sum(axis=1))
            )
            near = apart.argmin(axis=1)
            sums = np.stack([rows[near == c].sum(axis=0) / clip for c in range(k)])
            counts = COUNTED * np.bincount(near, minlength=k)
            noisy = dp.gaussian(
                np.append(sums.ravel(), counts),
                sensitivity=reach,
                epsilon=each,
                delta=split.delta,
                neighbours="add_remove",
                simulate=1000 * seed + step,
            )
            spent += (2 * ndtri(noisy.certificate.membership_bound)) ** 2
            sizes = np.maximum(noisy.value[k * d :] / COUNTED, 0.02 * n / k)
            moved = clip * noisy.value[: k * d].reshape(k, d) / sizes[:, None]
            lengths = np.linalg.norm(moved, axis=1)
            centres = moved * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[:, None]
        return centres, 2 * gaussian_success(float(np.sqrt(spent))) - 1

    def coins(setting: Any, level: float, seed: int) -> Any:
        n_steps, start = setting
        mechanism = Lloyd(n_clusters=k, n_steps=n_steps, start=None if start else public)
        return plan_coins(mechanism, X, level, seed)

    goal = KMeans(n_clusters=k, n_init=10).prepare(coerce_data(X))
    return Problem(
        data=X,
        n_records=n,
        delta=split.delta,
        tuning=inertia(split.X_tuning),
        test=inertia(split.X_test),
        larger_is_better=False,
        without_privacy=goal.reference,
        pac_make=lambda max_iter: KMeans(n_clusters=k, max_iter=max_iter),
        pac_settings=(300, 2),
        folds=(5, 10),
        n_subsets=size.subsets(1000),
        dp_methods=(
            DPMethod(
                name="DP Lloyd",
                settings=tuple(product((1, 4), (0.99,), (None, 1))),
                release=lloyd,
            ),
        ),
        coin_methods=(
            CoinMethod(
                name="coins, Lloyd",
                settings=tuple(product((1, 4), (None, 1))),
                plan=coins,
                needs="a start: random or from public rows (tuned)",
            ),
        ),
        n_tuning_draws=5,
        pac_needs="nothing; start and order of the centres come from all records",
        dp_needs="scales, a clipping norm, steps, a start: random or from public rows (tuned)",
    )
