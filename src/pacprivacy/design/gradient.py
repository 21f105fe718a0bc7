"""The gradient at a public iterate as a mechanism: one value for every subset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, freeze
from pacprivacy.design.objective import Objective
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.base import Mechanism
from pacprivacy.mechanism.columns import read_columns
from pacprivacy.mechanism.data import Data
from pacprivacy.mechanism.sums import subset_sizes, subset_sums
from pacprivacy.pool import Pool

__all__ = ["MeanGradient", "read_targets"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanGradient(Mechanism):
    """Mean gradient over a subset, at weights that everybody knows.

    Parameters
    ----------
    objective : Objective, public
        Loss and penalty.
    weights : array of shape (d,) or (d, k), public
        The iterate: a function of earlier releases.

    Examples
    --------
    >>> step = MeanGradient(objective=Objective(loss="squared", l2=1.0), weights=np.array([1.0]))
    >>> X, y = np.array([[1.0], [2.0]]), np.array([0.0, 0.0])
    >>> step.evaluate((X, y), np.random.default_rng(0))
    array([3.5])
    """

    objective: Objective
    weights: Matrix = field(repr=False)

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        freeze(weights)
        object.__setattr__(self, "weights", weights)

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return f"mean gradient of the {self.objective.loss} loss"

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Matrix:
        """Return the gradient of one subset."""
        X, targets = self._read(parts)
        return self.objective.gradient(X, targets, self.weights)

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the flattened gradients of all subsets."""
        X, targets = self._read(data.parts)
        slopes = self.objective.slopes(X @ self.weights, targets)

        def features(rows: npt.NDArray[np.int64]) -> Matrix:
            return record_gradients(X[rows], slopes[rows])

        sums = subset_sums(pool, features, self.weights.size)
        shrink = self.objective.l2 * self.weights.ravel()
        gradients: Matrix = sums / subset_sizes(pool)[:, None] + shrink
        return gradients

    def _read(self, parts: tuple[Any, ...]) -> tuple[Matrix, Matrix]:
        X, targets = read_targets(parts, self.name)
        self.objective.check_targets(targets)
        if self.weights.shape != (X.shape[1], *targets.shape[1:]):
            raise MechanismError(
                f"weights must have shape {(X.shape[1], *targets.shape[1:])}; got "
                f"{self.weights.shape}. Pass one weight for each feature and target."
            )
        return X, targets


def record_gradients(X: Matrix, slopes: Matrix) -> Matrix:
    """Return every record's gradient without the penalty, flattened: shape (n, d) or (n, d k)."""
    if slopes.ndim == 1:
        gradients: Matrix = X * slopes[:, None]
        return gradients
    spread: Matrix = (X[:, :, None] * slopes[:, None, :]).reshape(len(X), -1)
    return spread


def read_targets(parts: tuple[Any, ...], name: str) -> tuple[Matrix, Matrix]:
    """Return features and targets as float64; targets of shape (n,) or (n, k)."""
    if len(parts) != 2:
        raise MechanismError(
            f"{name} must be given features and targets; got {len(parts)} parts. "
            "Pass the tuple (X, y)."
        )
    X, targets = read_columns(parts[:1], name), read_columns(parts[1:], name)
    flat = np.ndim(parts[1]) == 1
    return X, targets[:, 0] if flat else targets
