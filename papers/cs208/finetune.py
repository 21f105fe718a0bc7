"""Public pre-training on half of CIFAR-10's classes, private last layers on the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression

from pacprivacy._checks import Matrix
from pacprivacy._random import public_generator
from pacprivacy.dp import PoissonBatch, Softmax, Steps, dp_sgd
from papers.cs208.network import PublicFeatures, pretrain
from papers.datasets import load_cifar10_subset

PUBLIC: Final = (0, 1, 3, 4, 8)  # airplane, automobile, cat, deer, ship
N_FEATURES: Final = 64
DELTA: Final = 1e-5
STEPS: Final = Steps(n_steps=100, learning_rate=16.0, clip_norm=0.5)
PIXEL_NORM: Final = 4.0  # of pooled pixels between -1/2 and 1/2


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedRow:
    """Accuracy of a private last layer on some features."""

    features: str
    epsilon: float
    accuracy: float
    standard_error: float
    no_noise: float
    n_runs: int


def measure_tuning(
    epsilons: Sequence[float], n_public: int, n_epochs: int, n_runs: int, seed: int
) -> list[TunedRow]:
    """Pre-train on public classes and train last layers on the others, for every ``ε``."""
    data = load_cifar10_subset()
    assert data.X_test is not None
    assert data.y_test is not None
    public, tested = np.isin(data.y, PUBLIC), ~np.isin(data.y_test, PUBLIC)
    order = public_generator(seed, "public images").permutation(int(public.sum()))[:n_public]
    images, labels = data.X[public][order], data.y[public][order]
    found = []
    networks = {
        "public features": pretrain(
            images, labels, n_features=N_FEATURES, n_epochs=n_epochs, rng=seed
        ),
        "untrained features": pretrain(images, labels, n_features=N_FEATURES, n_epochs=0, rng=seed),
        "pooled pixels": None,
    }
    y, y_test = data.y[~public], data.y_test[tested]
    for name, network in networks.items():
        rows = _features(network, data.X[~public])
        rows_test = _features(network, data.X_test[tested])
        level = LogisticRegression(C=10.0, max_iter=1000).fit(rows, y).score(rows_test, y_test)
        for place, epsilon in enumerate(epsilons):
            scores = []
            for run in range(n_runs):
                generator = public_generator(seed, f"tuning {name}", place, run)
                scores.append(_tune((rows, y), (rows_test, y_test), epsilon, generator))
            spread = float(np.std(scores, ddof=1)) if n_runs > 1 else 0.0
            found.append(
                TunedRow(
                    features=name,
                    epsilon=epsilon,
                    accuracy=float(np.mean(scores)),
                    standard_error=spread / float(np.sqrt(n_runs)),
                    no_noise=float(level),
                    n_runs=n_runs,
                )
            )
    return found


def _tune(
    train: tuple[Matrix, Any], test: tuple[Matrix, Any], epsilon: float, rng: np.random.Generator
) -> float:
    classes = tuple(c for c in range(10) if c not in PUBLIC)
    release = dp_sgd(
        *train,
        loss=Softmax(classes=classes),
        epsilon=epsilon,
        delta=DELTA,
        x_bound=1.0,
        batch=PoissonBatch(size=500, n_public=5000),
        steps=STEPS,
        simulate=rng,
    )
    chosen = np.asarray(classes)[np.argmax(test[0] @ release.value.T, axis=1)]
    return float(np.mean(chosen == test[1]))


def _features(network: PublicFeatures | None, images: Any) -> Matrix:
    if network is not None:
        return network.transform(images)
    pooled = images.reshape(len(images), 8, 4, 8, 4, 3).mean(axis=(2, 4)) / 255.0 - 0.5
    rows: Matrix = pooled.reshape(len(images), -1) / PIXEL_NORM
    return rows
