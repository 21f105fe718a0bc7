"""What differential privacy reaches with nothing tuned, on public data.

Floors are below what seeds scatter around; with the defaults before, every one is missed.
"""

from __future__ import annotations

import numpy as np

import gains
from pacprivacy.dp import (
    DPLogisticRegression,
    DPSGDClassifier,
    Logistic,
    PoissonBatch,
    Steps,
    dp_sgd,
)
from papers.cs208.data import load_study
from papers.datasets import load_mnist, load_wine_white
from papers.tests.conftest import Require


def test_logistic_regression_on_adult(require_data: Require) -> None:
    require_data("adult.data.gz", "adult.test.gz")
    data = load_study("adult")
    model = DPLogisticRegression(x_bound=3.2, classes=(0, 1))
    assert model.fit(data.X, data.y).score(data.X_test, data.y_test) >= 0.835  # 0.848; 0.764 before


def test_sgd_on_a_quarter_of_mnist(require_data: Require) -> None:
    require_data("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
    data = load_mnist()
    images, others = (  # of a quarter of the pixels too, to be quick
        part.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / 255.0
        for part in (data.X[:15_000], data.X_test)
    )
    model = DPSGDClassifier(x_bound=5.0, classes=range(10), n_public=15_000)
    assert (
        model.fit(images, data.y[:15_000]).score(others, data.y_test) >= 0.85
    )  # 0.876; 0.796 before


def test_descent_is_no_majority_vote(require_data: Require) -> None:
    require_data("winequality-white.csv.gz")
    data = load_wine_white()
    held_out = np.random.default_rng(0).permutation(len(data.X)) < len(data.X) // 4
    records = gains.mapped(data.X, data.y > 5, "logistic", 1e-5)
    train = records._replace(X=records.X[~held_out], y=records.y[~held_out])
    rows = np.column_stack([records.X, np.ones(len(records.X))])[held_out]
    assert max(np.mean(records.y[held_out] == side) for side in (-1, 1)) < 0.69
    for name in ("DP-GD", "DP-SGD"):
        release = gains.calibrated(gains.DP_METHODS["logistic"][name], train, 2 * 0.588 - 1)
        accuracy = np.mean((rows @ release.value > 0) == (records.y[held_out] > 0))
        assert accuracy >= 0.72, (name, accuracy)


def test_adult_is_scaled_by_public_constants(require_data: Require) -> None:
    require_data("adult.data.gz", "adult.test.gz")
    study = load_study("adult")
    assert study.X.shape == (32_561, 108)
    assert len(study.X_test) + len(study.questions) == 16_281
    assert study.X.min() >= 0.0
    assert study.X.max() <= 1.0
    clipped = np.mean(np.linalg.norm(study.X, axis=1) > study.x_bound)
    assert clipped < 0.05


def test_mnist_zero_against_seven(require_data: Require) -> None:
    require_data("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
    mnist = load_mnist()
    parts = []
    for images, labels in ((mnist.X, mnist.y), (mnist.X_test, mnist.y_test)):
        chosen = (labels == 0) | (labels == 7)
        flat = images[chosen].reshape(-1, 784) / 255.0
        parts.append((np.column_stack([flat, np.ones(len(flat))]), labels[chosen]))
    (X, y), (X_test, y_test) = parts
    release = dp_sgd(
        X,
        y,
        loss=Logistic(classes=(0, 7)),
        epsilon=1.0,
        delta=1e-5,
        x_bound=10.0,
        batch=PoissonBatch(size=600, n_public=12_000),
        steps=Steps(n_steps=100, learning_rate=1.0, clip_norm=1.0),
    )
    assert np.mean(np.where(X_test @ release.value > 0, 7, 0) == y_test) >= 0.98
    assert not release.certificate.simulation
