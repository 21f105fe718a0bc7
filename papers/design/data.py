"""The data of [DESIGN], split and turned into coordinates as in the paper.

Ridge: train and test 80/20 with seed 42, standardised, independent components, a centred target.
Descent: digits of MNIST in [0, 1], centred, principal components to 95 % of the variance. The
credit data are split like the ridge data and standardised first, and get a constant column: four
in five clients pay, which weights without an intercept cannot say. Their target column is not
among the features; in ``credit_leaky`` it is, as it was in the published run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import train_test_split

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.design import Objective, fit_ica_transform, fit_standard_transform
from papers.datasets import (
    Dataset,
    load_california_housing,
    load_credit_default,
    load_mnist,
    load_wine_red,
    load_wine_white,
)

SPLIT_SEED: Final = 42
TEST_SHARE: Final = 0.2
KEPT_VARIANCE: Final = 0.95
PIXEL_RANGE: Final = 255.0
NAMES: Final[dict[str, str]] = {
    "wine_red": "Red wine",
    "wine_white": "White wine",
    "housing": "California housing",
    "mnist_0v7": "MNIST 0 or 7",
    "mnist_7v9": "MNIST 7 or 9",
    "credit": "Credit default",
}
LEAKY: Final = "credit_leaky"
REGRESSION: Final[dict[str, Callable[[], Dataset]]] = {
    "wine_red": load_wine_red,
    "wine_white": load_wine_white,
    "housing": load_california_housing,
}
_DIGITS: Final = {"mnist_0v7": (0, 7), "mnist_7v9": (7, 9)}
_PENALTIES: Final = {"mnist_0v7": 0.1, "mnist_7v9": 1.0, "credit": 1.0, LEAKY: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegressionSplit:
    """Train rows in orthogonal coordinates, and the test error as a quadratic form.

    The test error of coefficients ``w`` is ``offset - 2 linear·w + w·quadratic·w``.
    """

    name: str
    Z: Matrix
    target: Vector
    offset: float
    linear: Vector
    quadratic: Matrix

    def __post_init__(self) -> None:
        for array in (self.Z, self.target, self.linear, self.quadratic):
            freeze(array)

    def test_errors(self, coefficients: Matrix) -> Vector:
        """Return the test error of every row of coefficients."""
        bent = np.einsum("ri,ij,rj->r", coefficients, self.quadratic, coefficients, optimize=True)
        errors: Vector = self.offset - 2.0 * coefficients @ self.linear + bent
        return errors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BinarySplit:
    """Two classes in principal components; targets are -1 and 1.

    Where ``has_constant``, the last column is one for every row.
    """

    name: str
    objective: Objective
    has_constant: bool
    X: Matrix
    y: Vector
    X_test: Matrix
    y_test: Vector

    def __post_init__(self) -> None:
        for array in (self.X, self.y, self.X_test, self.y_test):
            freeze(array)

    def accuracies(self, weights: Matrix) -> Vector:
        """Return the test accuracy of every row of weights."""
        hits: npt.NDArray[np.bool_] = (self.X_test @ weights.T > 0) == (self.y_test[:, None] > 0)
        rates: Vector = hits.mean(axis=0)
        return rates


@cache
def load_regression(name: str) -> RegressionSplit:
    """Return the split of ``wine_red``, ``wine_white`` or ``housing``."""
    X, X_test, y, y_test = _split(REGRESSION[name]())
    transform = fit_ica_transform(X, seed=SPLIT_SEED)
    Z_test, target_test = transform.apply(X_test), y_test - y.mean()
    return RegressionSplit(
        name=name,
        Z=transform.apply(X),
        target=y - y.mean(),
        offset=float(np.mean(target_test**2)),
        linear=Z_test.T @ target_test / len(y_test),
        quadratic=Z_test.T @ Z_test / len(y_test),
    )


@cache
def load_binary(name: str) -> BinarySplit:
    """Return the split of two digits, of ``credit`` or of ``LEAKY``."""
    leaky = name == LEAKY
    X, X_test, y, y_test = _digits(*_DIGITS[name]) if name in _DIGITS else _credit(leaky=leaky)
    mean = X.mean(axis=0)
    spread, axes = np.linalg.eigh((X - mean).T @ (X - mean))
    spread, axes = spread[::-1], axes[:, ::-1]
    n_kept = int(np.searchsorted(np.cumsum(spread) / spread.sum(), KEPT_VARIANCE)) + 1
    # As printed, all columns of the credit data stay, and get unit variance.
    kept = axes * np.sqrt(len(X) / spread) if leaky else axes[:, :n_kept]
    rows, rows_test = (X - mean) @ kept, (X_test - mean) @ kept
    has_constant = name == "credit"
    if has_constant:
        rows, rows_test = add_constant(rows), add_constant(rows_test)
    return BinarySplit(
        name=name,
        has_constant=has_constant,
        objective=Objective(penalty=_PENALTIES[name]),
        X=rows,
        y=y,
        X_test=rows_test,
        y_test=y_test,
    )


def add_constant(rows: Matrix) -> Matrix:
    """Return the rows with a column of ones."""
    return np.hstack([rows, np.ones((len(rows), 1))])


def _split(loaded: Dataset) -> tuple[Matrix, Matrix, Vector, Vector]:
    X, X_test, y, y_test = train_test_split(
        loaded.X, loaded.y, test_size=TEST_SHARE, random_state=SPLIT_SEED
    )
    return X, X_test, y, y_test


def _credit(*, leaky: bool) -> tuple[Matrix, Matrix, Vector, Vector]:
    X, X_test, y, y_test = _split(load_credit_default())
    if leaky:
        X, X_test = np.column_stack([X, y]), np.column_stack([X_test, y_test])
    standard = fit_standard_transform(X)
    signs, signs_test = (np.where(labels == 1, 1.0, -1.0) for labels in (y, y_test))
    return standard.apply(X), standard.apply(X_test), signs, signs_test


def _digits(first: int, second: int) -> tuple[Matrix, Matrix, Vector, Vector]:
    mnist = load_mnist()
    assert mnist.X_test is not None  # MNIST has a test split
    assert mnist.y_test is not None
    X, y = _pick(mnist.X, mnist.y, first, second)
    X_test, y_test = _pick(mnist.X_test, mnist.y_test, first, second)
    return X, X_test, y, y_test


def _pick(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], first: int, second: int
) -> tuple[Matrix, Vector]:
    chosen = (labels == first) | (labels == second)
    pixels: Matrix = images[chosen].reshape(int(chosen.sum()), -1) / PIXEL_RANGE
    return pixels, np.where(labels[chosen] == second, 1.0, -1.0)
