"""Public pre-training and private last layers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pacprivacy.dp import FixedBatch, Softmax, Steps, dp_sgd
from pacprivacy.errors import DataError, PacPrivacyError
from papers.cs208.network import pretrain

pytest.importorskip("jax")
pytest.importorskip("optax")


def stripes(n: int, kinds: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Images with stripes of several directions; mirrored, the first two stay what they are."""
    generator = np.random.default_rng(0)
    labels = np.asarray(kinds)[generator.integers(len(kinds), size=n)]
    rows, columns = np.mgrid[0:16, 0:16]
    waves = {
        0: rows,
        1: columns,
        2: rows + columns,
        3: rows - columns,
    }
    shift = generator.uniform(0, 6, size=n)
    clean = np.stack([np.sin(waves[k] * 1.2 + s) for k, s in zip(labels, shift, strict=True)])
    noisy = clean + generator.normal(0, 0.5, size=clean.shape)
    images = np.clip(127.5 + 60 * noisy, 0, 255).astype(np.uint8)
    return np.repeat(images[..., None], 3, axis=3), labels


def test_features_learned_elsewhere_help_a_private_layer() -> None:
    public, public_labels = stripes(600, (0, 1, 2, 3))
    images, labels = stripes(1000, (0, 1))
    accuracy = {}
    for n_epochs in (0, 4):
        network = pretrain(public, public_labels, n_features=16, n_epochs=n_epochs, rng=0)
        release = dp_sgd(
            network.transform(images[:800]),
            labels[:800],
            loss=Softmax(classes=(0, 1)),
            epsilon=1.0,
            delta=1e-5,
            x_bound=1.0,
            batch=FixedBatch(size=100),
            steps=Steps(n_steps=30, learning_rate=8.0, clip_norm=0.5),
            simulate=1,
        )
        scores = network.transform(images[800:]) @ release.value.T
        accuracy[n_epochs] = np.mean(scores.argmax(axis=1) == labels[800:])
    assert accuracy[4] > 0.95
    assert accuracy[4] > accuracy[0]
    assert release.certificate.neighbours == "replace"


@pytest.mark.claim("G-3")
def test_features_of_an_image_do_not_depend_on_the_others() -> None:
    images, labels = stripes(150, (0, 1))
    network = pretrain(images[:100], labels[:100], n_features=8, n_epochs=0, rng=0)
    together = network.transform(images)
    np.testing.assert_array_equal(network.transform(images[:1]), together[:1])
    np.testing.assert_array_equal(network.transform(images[:101]), together[:101])
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)


def test_bad_input_and_missing_jax_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = stripes(40, (0, 1))
    with pytest.raises(DataError, match="images must have shape"):
        pretrain(images[..., 0], labels)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(PacPrivacyError, match=r"pip install '\.\[jax\]'"):
        pretrain(images, labels)
