"""Base classifiers for the logits of [RPAC], trained here with jax: small, quick, from a seed.

The model of these experiments, said plainly: the classifier and a finite set of inputs are
**public**; the secret is *which input of that set* was used, each equally likely; the output is
the classifier's logits on that input. Nothing is promised to the records the classifier was
trained on, and nothing to an input outside the set.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import CountVectorizer

from pacprivacy._checks import Matrix, freeze
from pacprivacy._random import public_generator
from pacprivacy.errors import PacPrivacyError
from papers.datasets import (
    Dataset,
    load_ag_news,
    load_cifar10_subset,
    load_cifar100_subset,
    load_mnist,
)

CLASSIFIED: Final[dict[str, tuple[str, Callable[[], Dataset]]]] = {
    "mnist": ("MNIST", load_mnist),
    "cifar10": ("CIFAR-10 (subset)", load_cifar10_subset),
    "cifar100": ("CIFAR-100 (subset)", load_cifar100_subset),
    "ag_news": ("AG-News (subset)", load_ag_news),
}
N_TEST: Final = 2000  # test inputs that the accuracy of a classifier is measured on
CHANNELS: Final = (32, 64)  # the paper's, for CIFAR-10 and MNIST
N_INNER: Final = 128
N_WORDS: Final = 30_000
N_TOKENS: Final = 64
EMBEDDING: Final = 300
N_INNER_TEXT: Final = 256
BATCH: Final = 128
RATE: Final = 2e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Logits:
    """The outputs of one classifier on a public set of candidate inputs.

    ``test_accuracy`` and ``train_accuracy`` are on up to 2000 inputs of the test split and of the
    training rows, ``accuracy`` on the candidates.
    """

    dataset: str
    values: Matrix
    labels: npt.NDArray[np.int64]
    n_train: int
    test_accuracy: float
    train_accuracy: float

    def __post_init__(self) -> None:
        freeze(self.values)
        freeze(self.labels)

    @property
    def accuracy(self) -> float:
        """Share of candidates whose largest logit is the right one."""
        return float((self.values.argmax(axis=1) == self.labels).mean())


def fit_logits(
    dataset: str, *, n_train: int, n_epochs: int, n_candidates: int, seed: int
) -> Logits:
    """Train a classifier on the train split; return its logits on inputs of the test split."""
    data = CLASSIFIED[dataset][1]()
    assert data.X_test is not None  # all four have a test split
    assert data.y_test is not None
    rng = public_generator(seed, f"{dataset} classifier")
    rows = rng.permutation(data.n_records)[:n_train]
    held_out = public_generator(seed, f"{dataset} candidates").permutation(len(data.y_test))
    held_out = held_out[: max(n_candidates, N_TEST)]
    encode = text_encoder(data.X[rows]) if dataset == "ag_news" else image_features
    train, test = encode(data.X[rows]), encode(data.X_test[held_out])
    labels = data.y_test[held_out]
    predict = fit_classifier(
        train, data.y[rows], n_classes=len(data.target_names), n_epochs=n_epochs, rng=rng
    )
    values = predict(test)
    return Logits(
        dataset=dataset,
        values=values[:n_candidates].copy(),
        labels=labels[:n_candidates].copy(),
        n_train=len(rows),
        test_accuracy=float((values.argmax(axis=1) == labels).mean()),
        train_accuracy=float(
            (predict(train[:N_TEST]).argmax(axis=1) == data.y[rows[:N_TEST]]).mean()
        ),
    )


def image_features(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return images as (n, side, side, channels) in [-1, 1]."""
    scaled = images.astype(np.float32) / 127.5 - 1.0
    return scaled[..., None] if scaled.ndim == 3 else scaled


def text_encoder(texts: npt.NDArray[Any]) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.int32]]:
    """Return what turns texts into places in a vocabulary of these ones; 0 is an unknown word."""
    vectorizer = CountVectorizer(max_features=N_WORDS, token_pattern=r"\S+")
    analyse = vectorizer.build_analyzer()
    places = {w: 1 + i for w, i in vectorizer.fit([" ".join(p) for p in texts]).vocabulary_.items()}

    def encode(texts: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        found = np.zeros((len(texts), N_TOKENS), dtype=np.int32)
        for row, parts in zip(found, texts, strict=True):
            words = analyse(" ".join(parts))[:N_TOKENS]
            row[: len(words)] = [places.get(word, 0) for word in words]
        return found

    return encode


def fit_classifier(
    features: npt.NDArray[Any],
    labels: npt.NDArray[np.int64],
    *,
    n_classes: int,
    n_epochs: int,
    rng: np.random.Generator,
) -> Callable[[npt.NDArray[Any]], Matrix]:
    """Train the paper's network, without its dropout and batch normalisation.

    Images pass two blocks of convolution and pooling, texts are the mean of their words'
    embeddings; one hidden layer follows.

    Returns the function from features to logits.
    """
    try:
        import jax
        import optax  # noqa: F401
    except ImportError as error:
        raise PacPrivacyError(
            "classifiers need jax and optax, which are not installed. Run: pip install '.[jax]'"
        ) from error
    params = _first_params(features.shape[1:], n_classes, rng)
    n_batches = len(features) // BATCH
    run_epoch, memory = _trainer(n_epochs * n_batches)
    X, y = jax.numpy.asarray(features), jax.numpy.asarray(labels)
    carry = (params, memory(params))
    for _ in range(n_epochs):
        order = rng.permutation(len(features))[: n_batches * BATCH].reshape(n_batches, BATCH)
        carry = run_epoch(carry, X, y, order)
    return partial(_predict, carry[0], jax.jit(_logits))


@cache
def _trainer(n_steps: int) -> tuple[Any, Any]:
    """Return the compiled epoch, and the function that starts the optimiser's memory."""
    import jax
    import optax

    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, n_steps))

    def run_epoch(carry: Any, X: Any, y: Any, order: Any) -> Any:
        def step(carry: Any, rows: Any) -> Any:
            params, memory = carry
            slope = jax.grad(_loss)(params, X[rows], y[rows])
            updates, memory = optimiser.update(slope, memory)
            return (optax.apply_updates(params, updates), memory), None

        return jax.lax.scan(step, carry, order)[0]

    return jax.jit(run_epoch), optimiser.init


def _predict(params: Any, logits: Any, features: npt.NDArray[np.float32]) -> Matrix:
    parts = [
        np.asarray(logits(params, features[start : start + 1000]), dtype=np.float64)
        for start in range(0, len(features), 1000)
    ]
    return np.concatenate(parts)


def _first_params(
    shape: tuple[int, ...], n_classes: int, rng: np.random.Generator
) -> dict[str, npt.NDArray[np.float32]]:
    params: dict[str, npt.NDArray[np.float32]] = {}

    def weights(*size: int) -> npt.NDArray[np.float32]:
        std = math.sqrt(2.0 / math.prod(size[:-1]))
        return (std * rng.standard_normal(size)).astype(np.float32)

    if len(shape) == 3:
        side, width = shape[0], shape[-1]
        for layer, channels in enumerate(CHANNELS):
            params[f"filter{layer}"] = weights(3, 3, width, channels)
            params[f"shift{layer}"] = np.zeros(channels, dtype=np.float32)
            width, side = channels, side // 2
        width, inner = width * side * side, N_INNER
    else:
        params["words"] = 0.1 * rng.standard_normal((N_WORDS + 1, EMBEDDING)).astype(np.float32)
        width, inner = EMBEDDING, N_INNER_TEXT
    params["inner"], params["inner_bias"] = weights(width, inner), np.zeros(inner, dtype=np.float32)
    params["outer"] = weights(inner, n_classes)
    params["outer_bias"] = np.zeros(n_classes, dtype=np.float32)
    return params


def _logits(params: Any, features: Any) -> Any:
    import jax

    x = params["words"][features].mean(axis=1) if "words" in params else features
    if x.ndim == 4:
        for layer in range(len(CHANNELS)):
            # The nine neighbours of every pixel side by side: jax is slow at convolutions in loops.
            height, width = x.shape[1:3]
            wide = jax.numpy.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            near = [wide[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
            kernel = params[f"filter{layer}"]
            x = jax.numpy.concatenate(near, axis=-1) @ kernel.reshape(-1, kernel.shape[-1])
            x = jax.nn.relu(x + params[f"shift{layer}"])
            side = x.shape[1] // 2
            x = x[:, : 2 * side, : 2 * side].reshape(len(x), side, 2, side, 2, -1).max(axis=(2, 4))
    x = jax.nn.relu(x.reshape(len(x), -1) @ params["inner"] + params["inner_bias"])
    return x @ params["outer"] + params["outer_bias"]


def _loss(params: Any, features: Any, labels: Any) -> Any:
    import optax

    found = optax.softmax_cross_entropy_with_integer_labels(_logits(params, features), labels)
    return found.mean()
