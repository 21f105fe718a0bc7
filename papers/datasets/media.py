"""Loaders of images and texts: MNIST, the CIFAR subsets, AG News."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import DataError
from papers.datasets.record import Dataset
from papers.datasets.store import read_file

TILE: Final = 32


def load_mnist() -> Dataset:
    """Load MNIST: 60000 + 10000 images of digits, (n, 28, 28) uint8."""
    return Dataset(
        name="mnist",
        X=_idx("train-images-idx3-ubyte.gz"),
        y=_idx("train-labels-idx1-ubyte.gz").astype(np.int64),
        X_test=_idx("t10k-images-idx3-ubyte.gz"),
        y_test=_idx("t10k-labels-idx1-ubyte.gz").astype(np.int64),
        task="classification",
        feature_names=(),
        target_names=tuple("0123456789"),
        licence="CC BY-SA 3.0 as commonly stated",
        source="LeCun, Cortes and Burges; LeCun et al. 1998",
    )


def load_cifar10_subset() -> Dataset:
    """Load a subset of CIFAR-10: 10000 + 2000 images, (n, 32, 32, 3) uint8. Needs Pillow.

    The first 1000 train and 200 test images of each class, in the original order.
    """
    return _cifar("cifar10")


def load_cifar100_subset() -> Dataset:
    """Load a subset of CIFAR-100: 5000 + 1000 images, (n, 32, 32, 3) uint8. Needs Pillow.

    50 train and 10 test images of each fine class, drawn at random.
    """
    return _cifar("cifar100")


def load_ag_news() -> Dataset:
    """Load AG News: a 40000-row subset of the train split and the whole test split of 7600.

    ``X`` holds objects of shape (n, 2): title and description. The subset is not a uniform
    sample of the 120000 published rows, so a result on it is not a result on AG News.
    """
    X, y = _news("ag_news_train_subset.csv.gz")
    X_test, y_test = _news("ag_news_test.csv.gz")
    return Dataset(
        name="ag_news",
        X=X,
        y=y,
        X_test=X_test,
        y_test=y_test,
        task="classification",
        feature_names=("title", "description"),
        target_names=("World", "Sports", "Business", "Sci/Tech"),
        licence="non-commercial use",
        source="AG corpus of A. Gulli; Zhang, Zhao and LeCun 2015",
        is_subset=True,
    )


def _idx(name: str) -> npt.NDArray[np.uint8]:
    """Read an idx file: a magic number whose last byte is the rank, the sizes, the bytes."""
    raw = read_file(name)
    rank = raw[3]
    shape = np.frombuffer(raw, ">i4", rank, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _cifar(name: str) -> Dataset:
    with np.load(io.BytesIO(read_file(f"{name}_subset_labels.npz")), allow_pickle=False) as labels:
        y = labels["y_train"].astype(np.int64)
        y_test = labels["y_test"].astype(np.int64)
        classes = tuple(str(label) for label in labels["classes"])
    return Dataset(
        name=f"{name}_subset",
        X=_mosaic(f"{name}_subset_train.webp"),
        y=y,
        X_test=_mosaic(f"{name}_subset_test.webp"),
        y_test=y_test,
        task="classification",
        feature_names=(),
        target_names=classes,
        licence="none stated",
        source="Krizhevsky 2009",
        is_subset=True,
    )


def _mosaic(name: str) -> npt.NDArray[np.uint8]:
    """Cut a lossless mosaic into its tiles, row by row."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            f"Pillow must be installed to read {name}; got no such package. Run: pip install pillow"
        ) from error
    with Image.open(io.BytesIO(read_file(name))) as image:
        mosaic = np.asarray(image.convert("RGB"))
    n_rows, n_columns = mosaic.shape[0] // TILE, mosaic.shape[1] // TILE
    tiles = mosaic.reshape(n_rows, TILE, n_columns, TILE, 3).swapaxes(1, 2)
    return tiles.reshape(n_rows * n_columns, TILE, TILE, 3)


def _news(name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    rows = list(csv.reader(io.StringIO(read_file(name).decode("utf-8"), newline="")))
    X = np.array([row[1:] for row in rows], dtype=object)
    y = np.array([int(row[0]) - 1 for row in rows], dtype=np.int64)
    return X, y
