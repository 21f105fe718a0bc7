"""The curves of [CS208], on a small made-up study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacprivacy.dp import Logistic, PoissonBatch, Steps, dp_sgd
from papers.cs208 import CS208, curves, finetune
from papers.cs208.data import Study, load_study
from papers.datasets import load_mnist
from papers.run import Settings


def made_up() -> Study:
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=3000)
    X = generator.normal(size=(3000, 3)) * 0.5 + np.where(y[:, None] == 1, 0.7, -0.7)
    return Study(
        title="made up",
        X=X[:2400],
        y=y[:2400],
        X_test=X[2400:2700],
        y_test=y[2400:2700],
        questions=X[2700:],
        answers=y[2700:],
        classes=(0, 1),
        x_bound=2.0,
        n_public=2400,
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "load_study", lambda name: made_up())
    monkeypatch.setattr(curves, "N_TEACHERS", 40)
    monkeypatch.setattr(curves, "N_BLOCKS", 40)
    monkeypatch.setattr(curves, "N_ASKED", 50)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", sorted(set(curves.METHODS) - {"with replacement", "Poisson"}))
def test_every_method_learns_where_there_is_little_noise(method: str) -> None:
    (row,) = curves.measure_curve("adult", method, (12.0,), 1, 0)
    assert row.no_noise > 0.95
    assert row.accuracy > 0.85
    assert row.delta == 1e-5
    assert row.neighbours == ("replace" if method == "fixed size" else "add_remove")


@pytest.mark.usefixtures("small")
def test_page_shows_curves_and_relations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = replace(curves.PERTURBATION, methods=("objective", "DP-GD"))
    monkeypatch.setattr(curves, "QUICK_EPSILONS", (1.0, 4.0))
    paper = replace(CS208, sections=(section,))
    page = paper.reproduce(
        tmp_path, quick=True, n_jobs=1, settings=Settings(n_trials=2)
    ).read_text()
    assert "simulations" in page
    assert "objective (add or remove)" in page
    assert "| 4 | 0.9" in page or "| 4 | 1.0" in page
    assert (tmp_path / "cs208_perturbation.png").stat().st_size > 10_000
    assert (tmp_path / "cs208_perturbation.csv").read_text().count("\n") == 9


def test_sections_of_the_course_are_all_there() -> None:
    names = [section.name for section in CS208.sections]
    assert names == ["descent", "batches", "perturbation", "aggregate", "finetune"]
    for section in CS208.sections:
        quick = section.jobs(CS208.quick, quick=True)
        full = section.jobs(CS208.full, quick=False)
        assert 0 < len(quick) <= len(full)
    assert finetune.SECTION.jobs(CS208.quick, quick=True)[0].kind is finetune.TunedRow


def test_adult_is_scaled_by_public_constants(require_data: Any) -> None:
    require_data("adult.data.gz", "adult.test.gz")
    study = load_study("adult")
    assert study.X.shape == (32_561, 108)
    assert len(study.X_test) + len(study.questions) == 16_281
    assert study.X.min() >= 0.0
    assert study.X.max() <= 1.0
    clipped = np.mean(np.linalg.norm(study.X, axis=1) > study.x_bound)
    assert clipped < 0.05


def test_mnist_zero_against_seven(require_data: Any) -> None:
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
