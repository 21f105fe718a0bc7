"""The learners of [CS208], each as a function from a promise to released predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.dp import ClippedMean, GridMedian, count_votes, label_by_votes, subsample_aggregate
from pacprivacy.dp.noise import read_source
from pacprivacy.estimators import DPLogisticRegression, DPSGDClassifier
from pacprivacy.release import DPCertificate
from papers.cs208.data import Study, load_study

__all__ = ["DELTA", "METHODS", "CurveRow", "measure_curve", "non_private_accuracy", "scaled_rows"]

DELTA: Final = 1e-5
N_TEACHERS: Final = 250
N_ASKED: Final = 300
N_BLOCKS: Final = 200
RADIUS: Final = 10.0  # of a block's weights
LARGEST_WEIGHT: Final = 3.0  # end of the grid of medians

Learned = tuple[Vector, DPCertificate]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRow:
    """Accuracy of one method at one promise, over several runs."""

    study: str
    method: str
    neighbours: str
    epsilon: float
    delta: float
    accuracy: float
    standard_error: float
    no_noise: float
    noise_multiplier: float | None
    n_runs: int


def measure_curve(
    study: str, method: str, epsilons: Sequence[float], n_runs: int, seed: int
) -> list[CurveRow]:
    """Measure the accuracy of a method on test rows, for every ``ε``."""
    data, learn = load_study(study), METHODS[method]
    rows = []
    with threadpool_limits(limits=1):
        for place, epsilon in enumerate(epsilons):
            scores, certificate = [], None
            for run in range(n_runs):
                generator = public_generator(seed, f"{study} {method}", place, run)
                predicted, certificate = learn(study, epsilon, int(generator.integers(2**31)))
                scores.append(float(np.mean(predicted == data.y_test)))
            assert certificate is not None
            figures = certificate.accounting or {}
            spread = float(np.std(scores, ddof=1)) if n_runs > 1 else 0.0
            rows.append(
                CurveRow(
                    study=study,
                    method=method,
                    neighbours=certificate.neighbours,
                    epsilon=epsilon,
                    delta=certificate.delta,
                    accuracy=float(np.mean(scores)),
                    standard_error=spread / float(np.sqrt(n_runs)),
                    no_noise=non_private_accuracy(study),
                    noise_multiplier=figures.get("noise multiplier"),
                    n_runs=n_runs,
                )
            )
    return rows


def non_private_accuracy(study: str) -> float:
    """Return the test accuracy of logistic regression without any noise."""
    from sklearn.linear_model import LogisticRegression

    data = load_study(study)
    model = LogisticRegression(C=10.0, max_iter=500, tol=1e-3).fit(
        scaled_rows(data, data.X), data.y
    )
    return float(model.score(scaled_rows(data, data.X_test), data.y_test))


def scaled_rows(data: Study, X: Matrix) -> Matrix:
    """Divide by the bound, clip to norm 1, append a constant: what every method is given."""
    scaled = X / data.x_bound
    scaled /= np.maximum(1.0, np.linalg.norm(scaled, axis=1, keepdims=True))
    return np.column_stack([scaled, np.ones(len(scaled))])


def _declared(data: Study, epsilon: float, seed: int) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "delta": DELTA,
        "x_bound": data.x_bound,
        "classes": data.classes,
        "random_state": seed,
        "simulate": True,
    }


def _sgd(**settings: Any) -> Callable[[str, float, int], Learned]:
    def learn(study: str, epsilon: float, seed: int) -> Learned:
        data = load_study(study)
        batch_size = data.n_public // 20
        used = {"n_steps": 300, "learning_rate": 16.0, "batch_size": batch_size} | settings
        model = DPSGDClassifier(
            **_declared(data, epsilon, seed), n_public=data.n_public, **used
        ).fit(data.X, data.y)
        return model.predict(data.X_test), model.certificate_

    return learn


def _logistic(**settings: Any) -> Callable[[str, float, int], Learned]:
    def learn(study: str, epsilon: float, seed: int) -> Learned:
        data = load_study(study)
        model = DPLogisticRegression(
            **_declared(data, epsilon, seed), n_public=data.n_public, **settings
        ).fit(data.X, data.y)
        return model.predict(data.X_test), model.certificate_

    return learn


def _aggregate(median: bool) -> Callable[[str, float, int], Learned]:
    def learn(study: str, epsilon: float, seed: int) -> Learned:
        data = load_study(study)
        rows = scaled_rows(data, data.X)
        aggregator = (
            GridMedian(lower=-LARGEST_WEIGHT, upper=LARGEST_WEIGHT, n_points=51)
            if median
            else ClippedMean(radius=RADIUS)
        )
        release = subsample_aggregate(
            _fit_block,
            (rows, 2 * (data.y == data.classes[1]) - 1),
            n_blocks=N_BLOCKS,
            size=rows.shape[1],
            aggregator=aggregator,
            epsilon=epsilon,
            delta=DELTA,
            simulate=seed,
        )
        return _answer(data, scaled_rows(data, data.X_test) @ release.value), release.certificate

    return learn


def _fit_block(rows: Matrix, signs: Vector) -> Vector:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=10.0, fit_intercept=False, tol=1e-2).fit(rows, signs)
    weights: Vector = model.coef_[0]
    return weights


def _pate(study: str, epsilon: float, seed: int) -> Learned:
    from sklearn.linear_model import LogisticRegression

    data = load_study(study)
    asked = scaled_rows(data, data.questions)[:N_ASKED]
    votes = count_votes(
        LogisticRegression(C=10.0, tol=1e-2, max_iter=300),
        scaled_rows(data, data.X),
        data.y,
        asked,
        classes=data.classes,
        n_teachers=N_TEACHERS,
        neighbours="add_remove",
        source=read_source(seed),
    )
    release = label_by_votes(
        votes, epsilon=epsilon, delta=DELTA, neighbours="add_remove", simulate=seed + 1
    )
    answers = np.asarray(data.classes)[release.value]
    if len(np.unique(answers)) == 1:
        return np.full(len(data.y_test), answers[0]), release.certificate
    student = LogisticRegression(C=10.0, max_iter=500).fit(asked, answers)
    return student.predict(scaled_rows(data, data.X_test)), release.certificate


def _answer(data: Study, scores: Vector) -> Vector:
    return np.where(scores > 0, data.classes[1], data.classes[0])


METHODS: Final[dict[str, Callable[[str, float, int], Learned]]] = {
    "DP-GD": _logistic(method="descent", n_steps=120, learning_rate=16.0),
    "DP-SGD": _sgd(),
    "DP-SGD, average": _sgd(average=True),
    "DP-SGD, hinge": _sgd(loss="hinge"),
    "Poisson": _sgd(),
    "fixed size": _sgd(sampling="fixed"),
    "with replacement": _sgd(sampling="replacement"),
    "output": _logistic(method="output", penalty=20.0),
    "objective": _logistic(method="objective", penalty=20.0),
    "S&A, mean": _aggregate(median=False),
    "S&A, median": _aggregate(median=True),
    "PATE": _pate,
}
