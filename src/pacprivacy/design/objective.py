"""The logistic loss that descents minimise, and logistic regression as a mechanism."""

from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import scipy

from pacprivacy._checks import Array, Matrix, Vector, check_count, check_positive
from pacprivacy.design.ridge import LinearTransform, fit_standard_transform
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    CLASS_LABELS,
    Classes,
    Data,
    Mechanism,
    Parts,
    code_data_labels,
    find_data_classes,
    fixed_mechanism,
    read_labelled_data,
)
from pacprivacy.sample import Pool

_CURVATURE: Final = 0.25  # most that the loss bends
_NEWTON_STEPS: Final = 100
_CELLS_AT_ONCE: Final = 2**23  # scores of records and subsets held at a time, about 64 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Mean logistic loss ``ln(1 + exp(-y x·w))`` over records plus ``penalty/2 |w|²``.

    Targets ``y`` are -1 or 1. There is no intercept, so centre the features.
    """

    penalty: float = 0.1

    def __post_init__(self) -> None:
        check_positive("penalty", self.penalty, advice="Use about 0.1.", error=MechanismError)

    @staticmethod
    def slopes(scores: Array, targets: Array) -> Array:
        """Return the derivative of every record's loss in its score; arrays broadcast."""
        return np.asarray(-targets * scipy.special.expit(-targets * scores))

    def gradient(self, X: Matrix, targets: Vector, weights: Vector) -> Vector:
        """Return the gradient over all rows."""
        pull = X.T @ self.slopes(X @ weights, targets) / len(X)
        return np.asarray(pull + self.penalty * weights)

    def gradient_spread(self, X: Matrix, targets: Vector, weights: Vector) -> Vector:
        """Return the variance over records of each entry of the gradient, divisor ``n - 1``."""
        slopes, n = self.slopes(X @ weights, targets), len(X)
        mean = X.T @ slopes / n
        second = np.square(X).T @ np.square(slopes) / n
        return np.asarray(np.maximum(second - np.square(mean), 0.0) * (n / (n - 1)))

    def smoothness(self, X: Matrix) -> float:
        """Return ``L``: the largest eigenvalue of ``XᵀX/n`` by the curvature, plus the penalty."""
        return _CURVATURE * float(np.linalg.eigvalsh(X.T @ X / len(X))[-1]) + self.penalty

    def minimise(self, X: Matrix, targets: Vector) -> Vector:
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
        losses = np.logaddexp(0.0, -targets * (X @ weights))
        return float(losses.mean() + 0.5 * self.penalty * weights @ weights)

    def _hessian(self, X: Matrix, targets: Vector, weights: Vector) -> Matrix:
        chance = scipy.special.expit(-targets * (X @ weights))
        bend = chance * (1.0 - chance)
        hessian: Matrix = (X.T * bend) @ X / len(X) + self.penalty * np.eye(X.shape[1])
        return hessian


def read_signs(parts: Parts, name: str) -> tuple[Matrix, Vector]:
    """Return features, and targets of -1 and 1."""
    X, targets = read_labelled_data(parts, name)
    if targets.dtype.kind not in "biuf" or not (np.abs(targets) == 1).all():
        raise MechanismError(
            f"targets of the {name} must be -1 or 1; got other values. Code the classes first."
        )
    return X, targets.astype(np.float64)


def objective_constant(rows: Matrix) -> Matrix:
    return np.hstack([rows, np.ones((len(rows), 1))])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ClassFrame:
    """Layout fixed from all records before any subset is fitted; public in this model."""

    transform: LinearTransform
    classes: Classes
    n_records: int
    smoothness: float

    def read(self, parts: Parts, name: str) -> tuple[Matrix, Array]:
        """Return features with a constant column, and targets of shape (n,) or (n, k) in ±1."""
        X, y = read_labelled_data(parts, name)
        codes = code_data_labels(y, self.classes, name)
        if len(self.classes) == 2:
            targets = np.where(codes == 1, 1.0, -1.0)
        else:
            targets = np.where(codes[:, None] == np.arange(len(self.classes)), 1.0, -1.0)
        return objective_constant(self.transform.apply(X)), targets


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticFit(Mechanism):
    """Weights of a regularised logistic regression, one against the rest if there are many classes.

    The measured value has shape (d + 1,) or (d + 1, k): weights of the standardised features and
    of a constant. The *released* value is a dict with ``coef``, ``intercept`` and ``classes``.

    Parameters
    ----------
    penalty : float > 0, public
        Penalty on all weights. More of it makes the fit move less between subsets.
    n_steps : int >= 1, public
        Steps of accelerated gradient descent from zero; what they compute is what is released,
        whether or not it has converged.
    transform : LinearTransform, public, optional
        Of the features; by default they are standardised over the universe.
    """

    penalty: float = 0.1
    n_steps: int = 100
    transform: LinearTransform | None = None
    frame: _ClassFrame | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_positive("penalty", self.penalty, advice="Use about 0.1.", error=MechanismError)
        check_count("n_steps", self.n_steps, 1, advice="Use about 100.")

    @property
    def name(self) -> str:
        return "logistic regression"

    @property
    def public(self) -> tuple[str, ...]:
        return () if self.frame is None else (self.frame.transform.description,)

    @property
    def published(self) -> tuple[str, ...]:
        return CLASS_LABELS

    def prepare(self, data: Data) -> Self:
        """Fix scales, classes and step sizes on the whole universe."""
        X, y = read_labelled_data(data.parts, self.name)
        transform = fit_standard_transform(X) if self.transform is None else self.transform
        rows = objective_constant(transform.apply(X))
        frame = _ClassFrame(
            transform=transform,
            classes=find_data_classes(y, self.name),
            n_records=len(y),
            smoothness=float(np.linalg.eigvalsh(rows.T @ rows / len(y))[-1]),
        )
        return replace(self, frame=frame)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Array:
        rows, targets = fixed_mechanism(self.frame, "frame").read(parts, self.name)
        columns = targets.reshape(len(rows), -1)
        inside = np.ones((len(rows), 1))
        fitted = [self._fit(rows, column, inside)[0] for column in columns.T]
        return fitted[0] if targets.ndim == 1 else np.stack(fitted, axis=1)

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the flattened weights of all subsets, which descend side by side."""
        rows, targets = fixed_mechanism(self.frame, "frame").read(data.parts, self.name)
        columns = targets.reshape(len(rows), -1)
        at_once = max(1, _CELLS_AT_ONCE // len(rows))
        blocks = []
        for start in range(0, pool.n_subsets, at_once):
            subsets = range(start, min(start + at_once, pool.n_subsets))
            inside = np.stack([pool.row_mask(k) for k in subsets], axis=1).astype(np.float64)
            self._check_classes(columns, inside)
            fitted = [self._fit(rows, column, inside) for column in columns.T]
            blocks.append(np.stack(fitted, axis=2).reshape(len(subsets), -1))
        return np.concatenate(blocks)

    def finish(self, value: Any) -> dict[str, Any]:
        frame = fixed_mechanism(self.frame, "frame")
        transform = frame.transform
        columns = np.asarray(value, dtype=np.float64).reshape(transform.n_outputs + 1, -1)
        coef = transform.matrix @ columns[:-1]
        return {
            "coef": coef.T.copy(),
            "intercept": columns[-1] - transform.mean @ coef,
            "classes": np.asarray(frame.classes),
        }

    def _fit(self, rows: Matrix, targets: Vector, inside: Matrix) -> Matrix:
        """Return the weights of all subsets after the last step, shape (m, d)."""
        frame, sizes = fixed_mechanism(self.frame, "frame"), inside.sum(axis=0)
        # A subset's Gram matrix is at most that of the universe, so this bounds its smoothness.
        top = _CURVATURE * frame.smoothness * frame.n_records / sizes + self.penalty
        ratio = np.sqrt(self.penalty / top)
        momentum = (1.0 - ratio) / (1.0 + ratio)
        weights = ahead = np.zeros((rows.shape[1], len(sizes)))
        for _ in range(self.n_steps):
            slopes = Objective.slopes(rows @ ahead, targets[:, None]) * inside
            gradient = rows.T @ slopes / sizes + self.penalty * ahead
            new = ahead - gradient / top
            ahead = new + momentum * (new - weights)
            weights = new
        return np.ascontiguousarray(weights.T)

    def _check_classes(self, columns: Matrix, inside: Matrix) -> None:
        members = (columns > 0).T.astype(np.float64) @ inside
        if len(columns.T) == 1:
            members = np.vstack([members, inside.sum(axis=0) - members])
        if not members.all():
            raise MechanismError(
                f"{self.name} must see every class in every subset; got a subset without one. "
                "Draw the pool with Balanced(stratify=True), or merge rare classes."
            )
