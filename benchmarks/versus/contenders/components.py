"""Principal components: how well rows are restored from a few directions."""

from __future__ import annotations

from typing import Any

import numpy as np

from contenders.coins import CoinMethod, plan_coins
from contenders.problem import DPMethod, Problem, Size
from contenders.tables import load
from pacprivacy import dp
from pacprivacy.mechanism import PCA
from pacprivacy.statistics import PrincipalComponents


def make_components(name: str, size: Size, n_components: int) -> Problem:
    """Return principal components; the error is that of restored test rows."""
    split = load(name, most=size.most)
    n, d = split.X.shape
    norms = np.linalg.norm(split.X_tuning, axis=1)
    clips = tuple(float(f"{np.quantile(norms, q):.3g}") for q in (0.5, 0.8, 0.9, 0.97))
    upper = np.triu_indices(d)
    weights = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))  # norms are those of matrices

    def restoration(X: Any) -> Any:
        return lambda value: PCA.restoration_error(value, X)

    def moments(clip: float, epsilon: float, seed: int) -> tuple[Any, float]:
        rows = split.X * np.minimum(1.0, clip / np.maximum(norms_of, 1e-300))[:, None]
        found = dp.gaussian(
            (rows.T @ rows)[upper] * weights, sensitivity=(1 + 1e-9) * clip**2, epsilon=epsilon,
            delta=split.delta, neighbours="add_remove", simulate=seed,
        )  # fmt: skip
        matrix = np.zeros((d, d))
        matrix[upper] = found.value / weights
        _, vectors = np.linalg.eigh(matrix + np.triu(matrix, 1).T)
        value = {"components": vectors[:, -n_components:].T, "mean": np.zeros(d)}
        return value, 2 * found.certificate.membership_bound - 1

    def coins(clip: Any, level: float, seed: int) -> Any:
        mechanism = PrincipalComponents(n_components=n_components)
        return plan_coins(mechanism, split.X, level, seed, clip=clip)

    norms_of = np.linalg.norm(split.X, axis=1)
    return Problem(
        data=split.X,
        n_records=n,
        delta=split.delta,
        tuning=restoration(split.X_tuning),
        test=restoration(split.X_test),
        larger_is_better=False,
        pac_make=lambda center: PCA(n_components=n_components, center=center),
        pac_settings=("subset", "universe"),
        folds=(5, 10),
        n_subsets=size.subsets(1000),
        coin_methods=(
            CoinMethod(
                name="coins, second moments",
                settings=("auto", 1.3, 2.0, None),
                plan=coins,
                needs="nothing; clipping was tried",
            ),
        ),
        dp_methods=(DPMethod(name="Gaussian second moments", settings=clips, release=moments),),
        n_tuning_draws=5,
        pac_needs="nothing",
        dp_needs="scales and centres of the columns, a clipping norm (tuned)",
    )
