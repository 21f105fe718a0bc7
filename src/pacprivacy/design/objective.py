"""Objectives: the losses that descent and logistic fits minimise, their slopes and smoothness."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import scipy

from pacprivacy._checks import Array, Matrix, Vector, check_positive
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    Parts,
    read_data_columns,
)

_CURVATURE: Final = {"squared": 1.0, "logistic": 0.25}  # most that the loss bends
_NEWTON_STEPS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Mean loss over records plus ``penalty/2 |w|²``; no intercept, so centre the features.

    The ``"squared"`` loss is ``(x·w - y)²/2``, the ``"logistic"`` one ``ln(1 + exp(-y x·w))`` for
    ``y`` in {-1, 1}.
    """

    loss: Literal["squared", "logistic"] = "logistic"
    penalty: float = 0.1

    def __post_init__(self) -> None:
        if self.loss not in _CURVATURE:
            raise MechanismError(
                f"loss must be 'squared' or 'logistic'; got {self.loss!r}. Use 'logistic' for "
                "classes."
            )
        check_positive("penalty", self.penalty, advice="Use about 0.1.", error=MechanismError)

    def check_targets(self, targets: Array) -> None:
        """Refuse targets that the loss is not defined for."""
        if self.loss == "logistic" and not (np.abs(targets) == 1).all():
            raise MechanismError(
                "targets must be -1 or 1 for the logistic loss; got others. Code the classes first."
            )

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Return the derivative of every record's loss in its score; arrays broadcast."""
        if self.loss == "squared":
            return np.asarray(scores - targets)
        return np.asarray(-targets * scipy.special.expit(-targets * scores))

    def gradient(self, X: Matrix, targets: Array, weights: Array) -> Array:
        """Return the gradient over all rows; ``weights`` of shape (d,) or (d, k)."""
        pull = X.T @ self.slopes(X @ weights, targets) / len(X)
        return np.asarray(pull + self.penalty * weights)

    def gradient_spread(self, X: Matrix, targets: Array, weights: Array) -> Array:
        """Return the variance over records of each entry of the gradient, divisor ``n - 1``."""
        slopes, n = self.slopes(X @ weights, targets), len(X)
        mean = X.T @ slopes / n
        second = np.square(X).T @ np.square(slopes) / n
        return np.asarray(np.maximum(second - np.square(mean), 0.0) * (n / (n - 1)))

    def smoothness(self, X: Matrix) -> float:
        """Return ``L``: the largest eigenvalue of ``XᵀX/n`` by the curvature, plus the penalty."""
        top = float(np.linalg.eigvalsh(X.T @ X / len(X))[-1])
        return _CURVATURE[self.loss] * top + self.penalty

    def minimise(self, X: Matrix, targets: Array) -> Array:
        """Return the weights that are best on all rows, by Newton's method."""
        if targets.ndim == 2:
            return np.stack([self.minimise(X, column) for column in targets.T], axis=1)
        weights: Vector = np.zeros(X.shape[1])
        value = self._value(X, targets, weights)
        for _ in range(_NEWTON_STEPS):
            gradient = self.gradient(X, targets, weights)
            direction = np.linalg.solve(self._hessian(X, targets, weights), gradient)
            if float(gradient @ direction) <= 1e-24 * max(value, 1e-300):
                break
            length = 1.0
            while (new := self._value(X, targets, weights - length * direction)) > value:
                length /= 2
                if length < 1e-12:
                    return weights
            weights, value = weights - length * direction, new
        return weights

    def _value(self, X: Matrix, targets: Vector, weights: Vector) -> float:
        scores = X @ weights
        if self.loss == "squared":
            losses = 0.5 * np.square(scores - targets)
        else:
            losses = np.logaddexp(0.0, -targets * scores)
        return float(losses.mean() + 0.5 * self.penalty * weights @ weights)

    def _hessian(self, X: Matrix, targets: Vector, weights: Vector) -> Matrix:
        bend = np.ones(len(X))
        if self.loss == "logistic":
            chance = scipy.special.expit(-targets * (X @ weights))
            bend = chance * (1.0 - chance)
        hessian: Matrix = (X.T * bend) @ X / len(X) + self.penalty * np.eye(X.shape[1])
        return hessian


def read_objective_targets(parts: Parts, name: str) -> tuple[Matrix, Matrix]:
    """Return features and targets as float64; targets of shape (n,) or (n, k)."""
    if len(parts) != 2:
        raise MechanismError(
            f"{name} must be given features and targets; got {len(parts)} parts. "
            "Pass the tuple (X, y)."
        )
    X, targets = read_data_columns(parts[:1], name), read_data_columns(parts[1:], name)
    return X, targets[:, 0] if np.ndim(parts[1]) == 1 else targets


def objective_constant(rows: Matrix) -> Matrix:
    """Return the rows with a column of ones."""
    return np.hstack([rows, np.ones((len(rows), 1))])
