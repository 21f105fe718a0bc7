"""The logistic loss that descents minimise, and logistic regression as a mechanism."""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import scipy

from pacprivacy._checks import Array, Matrix, Vector, check_positive
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

_CURVATURE: Final = 0.25  # most that the loss bends
_NEWTON_STEPS: Final = 100
_TOLERANCE: Final = 1e-8  # of a fit's gradient: its distance from the optimum costs noise
_MOST_STEPS: Final = 10_000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticFit(Mechanism):
    """Weights of a penalised logistic regression, softmax if there are many classes.

    The measured value has shape (1, d + 1) or (n_classes, d + 1): weights of the standardised
    features and of a constant. The *released* value is a dict with ``coef`` and ``intercept`` for
    the original features, and ``classes``.

    Parameters
    ----------
    penalty : float > 0, public
        Of ``penalty/2 |w|²`` beside the mean loss, on all weights. More of it makes the fit move
        less between subsets.
    transform : LinearTransform, public, optional
        Of the features; by default they are standardised with all records. Set by :meth:`prepare`,
        as are the ``classes``.
    """

    name = "logistic regression"
    penalty: float = 0.1
    transform: LinearTransform | None = None
    classes: Classes | None = None

    def __post_init__(self) -> None:
        check_positive("penalty", self.penalty, advice="Use about 0.1.", error=MechanismError)

    @property
    def public(self) -> tuple[str, ...]:
        return () if self.transform is None else (self.transform.description,)

    @property
    def published(self) -> tuple[str, ...]:
        return CLASS_LABELS

    def prepare(self, data: Data) -> Self:
        """Fix scales and classes with all records."""
        X, y = read_labelled_data(data.parts, self.name)
        transform = fit_standard_transform(X) if self.transform is None else self.transform
        return replace(self, transform=transform, classes=find_data_classes(y, self.name))

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Matrix:
        # scikit-learn takes a second to import; only those who fit with it pay for it.
        from sklearn.linear_model import LogisticRegression

        X, y = read_labelled_data(parts, self.name)
        codes = code_data_labels(y, fixed_mechanism(self.classes, "classes"), self.name)
        features = fixed_mechanism(self.transform, "transform").apply(X)
        model = LogisticRegression(
            C=1.0 / (self.penalty * len(X)),
            fit_intercept=False,
            tol=_TOLERANCE,
            max_iter=_MOST_STEPS,
        )
        model.fit(np.column_stack([features, np.ones(len(X))]), codes)
        return np.asarray(model.coef_)

    def finish(self, value: Any) -> dict[str, Any]:
        transform = fixed_mechanism(self.transform, "transform")
        weights = np.asarray(value, dtype=np.float64).reshape(-1, transform.n_outputs + 1)
        coef = weights[:, :-1] @ transform.matrix.T
        return {
            "coef": coef,
            "intercept": weights[:, -1] - coef @ transform.mean,
            "classes": np.asarray(fixed_mechanism(self.classes, "classes")),
        }
