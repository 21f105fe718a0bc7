"""The protocol of [ALG], as data: which rows, which transformer, which model.

The published figures come from this protocol and it is kept as it is, flaws included: the
transformer is fitted on train and test rows together, and one row between the two is dropped.
Both are public choices here and cost no privacy, but accuracies are not those of unseen data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from sklearn import preprocessing
from sklearn.utils import shuffle

from pacprivacy._checks import Matrix, freeze
from pacprivacy.mechanism import PCA, Forest, KMeans, LinearSVM
from papers.datasets import (
    Dataset,
    load_cifar10_subset,
    load_dry_bean,
    load_iris,
    load_rice,
)

SHUFFLE_SEED: Final = 0
IRIS_TRAIN: Final = 100
TRAIN_SHARE: Final = 0.7
PIXEL_RANGE: Final = 255.0

Metric = Literal["accuracy", "restoration error"]
Model = KMeans | LinearSVM | PCA | Forest

DATASETS: Final[dict[str, str]] = {
    "iris": "Iris",
    "rice": "Rice",
    "dry_bean": "Dry Bean",
    "cifar10_subset": "CIFAR-10 (subset)",
}
CLASSES: Final[dict[str, tuple[int, ...]]] = {
    "iris": tuple(range(3)),
    "rice": tuple(range(2)),
    "dry_bean": tuple(range(7)),
}
_LOADERS: Final[dict[str, Callable[[], Dataset]]] = {
    "iris": load_iris,
    "rice": load_rice,
    "dry_bean": load_dry_bean,
    "cifar10_subset": load_cifar10_subset,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedKey:
    """Where the published figures of a task are: a file, a column, and the row's other keys."""

    table: str
    column: str
    keys: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One model on one data set: a panel of a figure.

    ``paper`` is the model as published, ``ours`` as we run it on our pool. ``max_halves``,
    ``max_subsets`` and ``max_releases`` are what the cost of a fit and of a test allows in the
    paper's protocol, on our pool and in simulation.
    """

    name: str
    dataset: str
    model: str
    transformer: str
    paper: Model
    ours: Model
    metric: Metric = "accuracy"
    published: PublishedKey | None = None
    max_halves: int = 4000
    max_subsets: int = 512
    max_releases: int = 16_000

    @property
    def title(self) -> str:
        """Data set and model, for people."""
        return f"{DATASETS[self.dataset]}, {self.model}"

    def data(self, split: Split) -> Any:
        """Return the universe as the model wants it."""
        if self.metric == "restoration error":
            return split.X_train
        return split.X_train, split.y_train

    def score(self, value: Any, split: Split) -> float:
        """Return the metric of one released value on the test rows."""
        if isinstance(self.ours, PCA):
            return PCA.restoration_error(value, split.X_test)
        hits = self.ours.predict(value, split.X_test) == split.y_test
        return float(np.mean(hits))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Train rows (the universe) and test rows, scaled."""

    X_train: Matrix
    y_train: npt.NDArray[np.int64]
    X_test: Matrix
    y_test: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        for array in (self.X_train, self.y_train, self.X_test, self.y_test):
            freeze(array)


@cache
def load_split(dataset: str, transformer: str) -> Split:
    """Return the train and test rows of a data set, scaled by a named transformer.

    One shuffle with seed 0; the first 100 rows of Iris, or 70 % of the others, are the universe;
    the next row is dropped; the rest are test rows. The CIFAR-10 subset has its own test rows
    (the published run tested on a train batch), and pixels are divided by 255.
    """
    loaded = _LOADERS[dataset]()
    if loaded.X_test is not None and loaded.y_test is not None:
        return Split(
            X_train=loaded.X.reshape(len(loaded.X), -1) / PIXEL_RANGE,
            y_train=np.array(loaded.y),
            X_test=loaded.X_test.reshape(len(loaded.X_test), -1) / PIXEL_RANGE,
            y_test=np.array(loaded.y_test),
        )
    scaled = _transformer(transformer).fit_transform(loaded.X)
    X, y = shuffle(scaled, loaded.y, random_state=SHUFFLE_SEED)
    n = IRIS_TRAIN if dataset == "iris" else int(TRAIN_SHARE * len(y))
    return Split(
        X_train=X[:n].copy(),
        y_train=y[:n].copy(),
        X_test=X[n + 1 :].copy(),
        y_test=y[n + 1 :].copy(),
    )


def align_as_printed(goal: Matrix, basis: Matrix) -> Matrix:
    """Return Claim 1's ``M B``: right singular vectors' product, cut to the rows of the bases.

    Unlike the orthogonal Procrustes solution of ``PCA``, what is left is not orthogonal, so it
    changes the subspace's projection, and it is not the nearest either.
    """
    right_goal, right_basis = (np.linalg.svd(rows)[2] for rows in (goal, basis))
    n_rows = len(basis)
    aligned: Matrix = (right_goal @ right_basis.T)[:n_rows, :n_rows] @ basis
    return aligned


def _transformer(name: str) -> Any:
    return {
        "min-max": preprocessing.MinMaxScaler,
        "standard": preprocessing.StandardScaler,
        "robust": preprocessing.RobustScaler,
        "power": lambda: preprocessing.PowerTransformer(standardize=False),
        "power and standard": preprocessing.PowerTransformer,
    }[name]()
