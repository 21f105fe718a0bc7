"""The learning problems of [AF]: logistic regression on KDD-99, ridge regression on two tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from sklearn.preprocessing import PolynomialFeatures

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.dp.accuracy_first import (
    LogisticProblem,
    RidgeProblem,
)
from papers.datasets import load_california_housing, load_kdd99, load_wine_white

N_KDD: Final = 100_000
LONG_TAILED: Final = ("duration", "src_bytes", "dst_bytes")  # taken as logarithms, as published
SENT: Final = 1  # the place of src_bytes among the columns that are numbers
LOGISTIC_PENALTY: Final = 0.005  # the paper's, for both of its problems
RIDGE_PENALTY: Final = 0.05


def printed_covariance_epsilon(
    alpha: float, *, n_records: int, n_features: int, penalty: float
) -> float:
    """Return the same as the paper prints it: ``4 sqrt(2) (2 sqrt(p) R + p R²)/(n α)``.

    Its ball has ``R = 1/sqrt(λ)``, and pairs of features are perturbed as if they came once.
    """
    radius = 1.0 / math.sqrt(penalty)
    size = 2.0 * math.sqrt(n_features) * radius + n_features * radius**2
    return 4.0 * math.sqrt(2.0) * size / (n_records * alpha)


def printed_optimum_scale(
    epsilon: float, *, n_records: int, n_features: int, penalty: float
) -> float:
    """Return the noise scale of Theorem A.9 of [AF], ridge regression by its perturbed optimum."""
    return (
        (1.0 / math.sqrt(penalty) + 1.0) * math.sqrt(n_features) / (n_records * penalty * epsilon)
    )


def printed_optimum_excess(
    epsilon: float, *, n_records: int, n_features: int, penalty: float
) -> float:
    """Return the excess risk that Theorem A.9 promises on average, as printed; it is exceeded."""
    reach = (1.0 / math.sqrt(penalty) + 1.0) * n_features / epsilon
    return (1.0 / n_records + penalty) * reach**2 / (n_records * penalty)


def smooth_output_epsilon(
    alpha: float, *, n_records: int, n_features: int, penalty: float, gamma: float | None = None
) -> float:
    """Return a smaller sufficient ``ε``: near its minimum a smooth risk grows quadratically.

    On average without ``gamma``; with it, with probability ``1 - gamma``.

    Guarantee
    ---------
    Claim AF-8.
    """
    target = alpha if gamma is None else alpha * gamma
    curvature = math.sqrt(0.25 + penalty)
    return 2.0 * n_features * curvature / (n_records * penalty * math.sqrt(target))


class PrintedRidgeProblem(RidgeProblem):
    """Ridge regression with the ball of the paper, ``1/sqrt(λ)``, whose tests cost more."""

    def __init__(self, X: Matrix, y: Vector, *, penalty: float, x_bound: float, y_bound: float):
        super().__init__(X, y, penalty=penalty, x_bound=x_bound, y_bound=y_bound)
        self.radius = 1.0 / math.sqrt(penalty)
        self.excess_sensitivity = (1.0 + self.radius) ** 2 / self.n_records

    def theory_epsilon(self, alpha: float) -> float:
        """Return the level of Theorem 3.1 of [AF]."""
        return printed_covariance_epsilon(
            alpha, n_records=self.n_records, n_features=self.n_features, penalty=self.penalty
        )


@dataclass(frozen=True, slots=True)
class Study:
    """A data set and its model."""

    name: str
    title: str
    prepare: Callable[[int], RidgeProblem | LogisticProblem]


def printed_epsilon(problem: RidgeProblem | LogisticProblem, alpha: float) -> float:
    """Return what the paper's theorem demands for an excess risk of ``alpha`` on average."""
    if isinstance(problem, LogisticProblem):
        return problem.theory_epsilon(alpha)
    return printed_covariance_epsilon(
        alpha, n_records=problem.n_records, n_features=problem.n_features, penalty=problem.penalty
    )


def sure_epsilon(problem: RidgeProblem | LogisticProblem, alpha: float, gamma: float) -> float:
    """Return what our theorems demand for ``alpha`` with probability ``1 - gamma``."""
    if isinstance(problem, LogisticProblem):
        return smooth_output_epsilon(
            alpha,
            n_records=problem.n_records,
            n_features=problem.n_features,
            penalty=problem.penalty,
            gamma=gamma,
        )
    ours = copy(problem)
    ours.radius = 0.5 / math.sqrt(problem.penalty)
    return RidgeProblem.theory_epsilon(ours, alpha) / math.sqrt(gamma)


def _kdd99(seed: int) -> tuple[Matrix, Vector]:
    """Return 100 000 rows, the 38 columns that are numbers, and attack (1) or not (-1)."""
    dataset = load_kdd99()
    chosen = public_generator(seed, "kdd99 rows").choice(dataset.n_records, N_KDD, replace=False)
    numbers = [i for i, name in enumerate(dataset.feature_names) if name not in dataset.categories]
    features = dataset.X[np.sort(chosen)][:, numbers]
    for column, i in enumerate(numbers):
        if dataset.feature_names[i] in LONG_TAILED:
            features[:, column] = np.log1p(features[:, column])
    normal = dataset.target_names.index("normal")
    return features, np.where(dataset.y[np.sort(chosen)] == normal, -1.0, 1.0)


@cache
def _prepare_kdd99(seed: int) -> LogisticProblem:
    features, labels = _kdd99(seed)
    bound = float(np.abs(features).sum(axis=1).max())
    return LogisticProblem(features, labels, penalty=LOGISTIC_PENALTY, x_bound=bound)


@cache
def _prepare_kdd99_ridge(seed: int) -> RidgeProblem:
    """Predict the bytes sent, in logarithms, from the other 37 columns of the same rows."""
    features, _ = _kdd99(seed)
    target = features[:, SENT]
    rest = np.delete(features, SENT, axis=1)
    return PrintedRidgeProblem(
        rest,
        target,
        penalty=LOGISTIC_PENALTY,
        x_bound=float(np.abs(rest).sum(axis=1).max()),
        y_bound=float(target.max()),
    )


@cache
def _prepare_table(name: str, degree: int) -> RidgeProblem:
    dataset = load_wine_white() if name == "wine" else load_california_housing()
    low, high = dataset.X.min(axis=0), dataset.X.max(axis=0)
    scaled = (dataset.X - low) / (high - low)
    features = PolynomialFeatures(degree, include_bias=False).fit_transform(scaled)
    return RidgeProblem(
        features,
        dataset.y,
        penalty=RIDGE_PENALTY,
        x_bound=float(np.median(np.abs(features).sum(axis=1))),
        y_bound=float(np.abs(dataset.y).max()),
    )


STUDIES: Final = {
    study.name: study
    for study in (
        Study("kdd99", "KDD-99, logistic, p = 38", _prepare_kdd99),
        Study("kdd99_ridge", "KDD-99, ridge, p = 37", _prepare_kdd99_ridge),
        Study("wine_2", "White wine, degree 2, p = 77", lambda _: _prepare_table("wine", 2)),
        Study(
            "california_3",
            "California housing, degree 3, p = 164",
            lambda _: _prepare_table("california", 3),
        ),
        Study("wine_1", "White wine, raw, p = 11", lambda _: _prepare_table("wine", 1)),
    )
}
