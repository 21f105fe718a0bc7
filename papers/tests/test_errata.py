"""Mistakes of published experiments that are about data, not code, and are in no other test."""

from collections.abc import Callable

import numpy as np
import pytest

from pacprivacy import datasets


@pytest.mark.parametrize("name", ["cifar10_subset", "cifar100_subset"])
def test_no_test_image_is_a_training_image(name: str, require_data: Callable[..., None]) -> None:
    require_data(*(f"{name}_{part}" for part in ("train.webp", "test.webp", "labels.npz")))
    dataset = getattr(datasets, f"load_{name}")()
    train = {image.tobytes() for image in np.asarray(dataset.X)}
    assert not [k for k, image in enumerate(np.asarray(dataset.X_test)) if image.tobytes() in train]
