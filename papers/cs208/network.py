"""Public pre-training, private fine-tuning: a network learned elsewhere, its last layer here.

A small convolutional network is trained on public images without any noise. Its last hidden layer
turns private images into a few features, and only a linear layer on these is trained privately: few
weights need little noise. Needs ``pacprivacy[jax]``.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy._system import import_jax, without_jax_checks
from pacprivacy.errors import DataError

CHANNELS: Final = (16, 32, 64)
AT_ONCE: Final = 100  # images, when features are computed
Weights = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicFeatures:
    """A network that was trained on public images; it turns images into rows of norm 1.

    ``center`` is the mean of the features of public images, which is subtracted.
    """

    weights: Weights
    center: Vector

    def transform(self, images: npt.NDArray[np.uint8]) -> Matrix:
        """Return features of norm 1; those of images that are not finite are NaN.

        Images are worked on a hundred at a time. That a row is a function of its own image alone
        holds if XLA computes the same for an image wherever it stands among them.
        """
        (jax,) = import_jax("jax")
        hidden = jax.jit(_hidden)
        parts = [np.empty((0, len(self.center)), dtype=np.float32)]
        for start in range(0, len(images), AT_ONCE):
            chunk = images[start : start + AT_ONCE]
            # Always the same shape: what an image becomes does not depend on how many there are.
            padded = np.zeros((AT_ONCE, *images.shape[1:]), dtype=np.float32)
            padded[: len(chunk)] = _scale(chunk)
            with without_jax_checks():
                parts.append(np.asarray(hidden(self.weights, padded))[: len(chunk)])
        rows = np.concatenate(parts).astype(np.float64) - self.center
        with np.errstate(invalid="ignore"):
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            scaled: Matrix = rows / np.maximum(lengths, 1e-12)
        return scaled


def pretrain(
    images: npt.NDArray[np.uint8],
    labels: Any,
    *,
    n_features: int = 64,
    n_epochs: int = 10,
    learning_rate: float = 2e-3,
    rng: np.random.Generator | int | None = None,
) -> PublicFeatures:
    """Train a small convolutional network on public images, without noise, by Adam.

    The images, uint8 of shape (n, height, width, channels), must not contain anybody who is to be
    protected; their classes may be others than the private ones. ``n_features`` is the width of the
    last hidden layer: as many weights per class are trained privately later.
    """
    jax, optax = import_jax("jax", "optax")
    if images.ndim != 4 or len(images) != len(labels):
        raise DataError(
            f"images must have shape (n, height, width, channels), with one label each; got "
            f"{images.shape} and {len(labels)} labels."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    generator = public_generator(coerce_seed(rng), "pretrain")
    weights = _start(images.shape[1:], n_features, len(classes), generator)
    scaled = _scale(images)
    optimiser = optax.adam(learning_rate)

    def loss(tree: Any, batch: Any, target: Any) -> Any:
        scores = _hidden(tree, batch) @ tree["head"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, target).mean()

    @jax.jit  # type: ignore[untyped-decorator]
    def step(tree: Any, state: Any, batch: Any, target: Any) -> Any:
        moves, state = optimiser.update(jax.grad(loss)(tree, batch, target), state)
        return optax.apply_updates(tree, moves), state

    state = optimiser.init(weights)
    size = min(100, len(images))
    for _ in range(n_epochs):
        order = generator.permutation(len(images))
        for start in range(0, len(images) - size + 1, size):
            chosen = order[start : start + size]
            flip = generator.random(size) < 0.5
            batch = np.where(flip[:, None, None, None], scaled[chosen][:, :, ::-1], scaled[chosen])
            weights, state = step(weights, state, batch, codes[chosen])
    kept = {name: np.asarray(array) for name, array in weights.items() if name != "head"}
    hidden = jax.jit(_hidden)
    means = [
        np.asarray(hidden(kept, scaled[start : start + size])).mean(axis=0)
        for start in range(0, len(images) - size + 1, size)
    ]
    center: Vector = np.asarray(np.mean(means, axis=0), dtype=np.float64)
    return PublicFeatures(weights=kept, center=center)


def _start(
    shape: tuple[int, ...], n_features: int, n_classes: int, generator: np.random.Generator
) -> Weights:
    """Return random weights of the usual sizes."""
    weights: Weights = {}
    below = shape[2]
    for layer, above in enumerate(CHANNELS):
        scale = np.sqrt(2.0 / (9 * below))
        drawn = generator.normal(0.0, scale, (3, 3, below, above))
        weights[f"convolution{layer}"] = drawn.astype(np.float32)
        weights[f"constant{layer}"] = np.zeros(above, dtype=np.float32)
        below = above
    width = below * (shape[0] >> len(CHANNELS)) * (shape[1] >> len(CHANNELS))
    drawn = generator.normal(0.0, np.sqrt(2.0 / width), (width, n_features))
    weights["hidden"] = drawn.astype(np.float32)
    drawn = generator.normal(0.0, np.sqrt(1.0 / n_features), (n_features, n_classes))
    weights["head"] = drawn.astype(np.float32)
    return weights


def _hidden(weights: Any, images: Any) -> Any:
    """Return the last hidden layer: three convolutions with pooling, one dense layer."""
    (jax,) = import_jax("jax")
    layers = images
    for layer in range(len(CHANNELS)):
        layers = jax.lax.conv_general_dilated(
            layers,
            weights[f"convolution{layer}"],
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        layers = jax.nn.relu(layers + weights[f"constant{layer}"])
        layers = jax.lax.reduce_window(
            layers, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
    return jax.nn.relu(layers.reshape(layers.shape[0], -1) @ weights["hidden"])


def _scale(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return np.asarray(images, dtype=np.float32) / np.float32(127.5) - np.float32(1.0)
