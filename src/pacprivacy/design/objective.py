"""Losses that gradient descent minimises: squared and logistic, with an l2 penalty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from pacprivacy._checks import Matrix, Vector, check_positive, freeze
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.mechanism import Data, Mechanism, read_columns, subset_sizes, subset_sums
from pacprivacy.pool import Pool
from pacprivacy.theory.design import (
    descent_shares,
    descent_step,
    descent_step_exact,
    noise_ratio,
    subset_mean_variance,
)

Array = npt.NDArray[Any]  # float32 in large simulations, else float64

_CURVATURE: Final = {"squared": 1.0, "logistic": 0.25}  # most that the loss bends
_NEWTON_STEPS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Mean loss over records plus ``l2/2 |w|²``; no intercept, so centre the features.

    Parameters
    ----------
    loss : "squared" or "logistic", public
        ``(x·w - y)²/2``, or ``ln(1 + exp(-y x·w))`` for ``y`` in {-1, 1}.
    l2 : float > 0, public
        Penalty; it is the strong convexity of the objective.
    """

    loss: Literal["squared", "logistic"] = "logistic"
    l2: float = 0.1

    def __post_init__(self) -> None:
        if self.loss not in _CURVATURE:
            raise MechanismError(
                f"loss must be 'squared' or 'logistic'; got {self.loss!r}. Use 'logistic' for "
                "classes."
            )
        check_positive("l2", self.l2, advice="Use about 0.1.", error=MechanismError)

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
        return np.asarray(-targets * special.expit(-targets * scores))

    def gradient(self, X: Matrix, targets: Array, weights: Array) -> Array:
        """Return the gradient over all rows; ``weights`` of shape (d,) or (d, k)."""
        pull = X.T @ self.slopes(X @ weights, targets) / len(X)
        return np.asarray(pull + self.l2 * weights)

    def gradient_spread(self, X: Matrix, targets: Array, weights: Array) -> Array:
        """Return the variance over records of each entry of the gradient, divisor ``n - 1``."""
        slopes, n = self.slopes(X @ weights, targets), len(X)
        mean = X.T @ slopes / n
        second = np.square(X).T @ np.square(slopes) / n
        return np.asarray(np.maximum(second - np.square(mean), 0.0) * (n / (n - 1)))

    def smoothness(self, X: Matrix) -> float:
        """Return ``L``: the largest eigenvalue of ``XᵀX/n`` times the loss's curvature, plus l2."""
        top = float(np.linalg.eigvalsh(X.T @ X / len(X))[-1])
        return _CURVATURE[self.loss] * top + self.l2

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
        return float(losses.mean() + 0.5 * self.l2 * weights @ weights)

    def _hessian(self, X: Matrix, targets: Vector, weights: Vector) -> Matrix:
        bend = np.ones(len(X))
        if self.loss == "logistic":
            chance = special.expit(-targets * (X @ weights))
            bend = chance * (1.0 - chance)
        hessian: Matrix = (X.T * bend) @ X / len(X) + self.l2 * np.eye(X.shape[1])
        return hessian


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanGradient(Mechanism):
    """Mean gradient over a subset, at weights that everybody knows.

    Parameters
    ----------
    objective : Objective, public
        Loss and penalty.
    weights : array of shape (d,) or (d, k), public
        The iterate: a function of earlier releases.
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


Shares: TypeAlias = Literal["uniform", "late"] | npt.ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepRule:
    """One step size for each coordinate, from the error bound ``J`` (claim D-4).

    Parameters
    ----------
    mi_nats : float, public, optional
        The information budget of the whole descent; None gives the *post-hoc* step sizes, which
        are best without privacy.
    start_error : "universe", float or array, public
        Squared distance of each coordinate from its optimum at the start: that of the fit on the
        whole universe (default; the certificate says so), or given.
    exact : bool, public
        Minimise ``J`` itself instead of the paper's approximation.
    """

    mi_nats: float | None = None
    start_error: Literal["universe"] | npt.ArrayLike = "universe"
    exact: bool = False

    def __post_init__(self) -> None:
        if self.mi_nats is not None:
            check_positive("mi_nats", self.mi_nats, advice="Use the budget of the descent.")

    def choose(self, objective: Objective, X: Matrix, targets: Matrix, *, n_steps: int) -> Matrix:
        """Return step sizes of the shape of the weights, at most ``1/L``.

        The gradient's variance is that of a Poisson(1/2) subset at the start, in closed form
        (claim D-5). Everything comes from the universe: public, whatever the secret is.
        """
        start = np.zeros((X.shape[1], *targets.shape[1:]))
        spread = objective.gradient_spread(X, targets, start)
        ratio = 0.0
        if self.mi_nats is not None:
            ratio = float(noise_ratio(self.mi_nats, n_dimensions=start.size, n_steps=n_steps))
        find = descent_step_exact if self.exact else descent_step
        steps = find(
            start_error=self._start_error(objective, X, targets),
            gradient_var=subset_mean_variance(spread, len(X)),
            convexity=objective.l2,
            n_steps=n_steps,
            ratio=ratio,
            largest=1.0 / objective.smoothness(X),
        )
        return np.broadcast_to(steps, start.shape).copy()

    def describe(self) -> str:
        """Return one public sentence for the certificate."""
        aim = "without regard to the noise" if self.mi_nats is None else "for the noise to come"
        known = "given from outside"
        if isinstance(self.start_error, str):
            known = "that of the fit on the whole universe"
        return (
            f"step sizes: chosen {aim}, from the gradient's variance and the smoothness over the "
            f"whole universe and a distance to go, {known}; they do not depend on the secret"
        )

    def _start_error(self, objective: Objective, X: Matrix, targets: Matrix) -> npt.ArrayLike:
        if not isinstance(self.start_error, str):
            return self.start_error
        if self.start_error != "universe":
            raise MechanismError(
                f"start_error must be 'universe' or numbers; got {self.start_error!r}. "
                "Leave it out to take it from the universe."
            )
        return np.square(objective.minimise(X, targets))


def split_budget(
    mi_nats: float, n_steps: int, *, shares: Shares = "uniform", step: float = 0.0, l2: float = 1.0
) -> Vector:
    """Return the budget of each step; they sum to at most ``mi_nats``."""
    total = check_positive("mi_nats", mi_nats, advice="Use about 0.02.")
    if isinstance(shares, str) and shares not in ("uniform", "late"):
        raise BudgetError(
            f"shares must be 'uniform', 'late' or one number for each step; got {shares!r}. "
            "Use 'uniform'."
        )
    if isinstance(shares, str) and shares == "late":
        parts = descent_shares(step, convexity=l2, n_steps=n_steps)
    elif isinstance(shares, str):
        parts = np.ones(n_steps)
    else:
        parts = np.asarray(shares, dtype=np.float64)
    if parts.shape != (n_steps,) or not (np.isfinite(parts).all() and (parts > 0).all()):
        raise BudgetError(
            f"shares must be {n_steps} positive numbers, one for each step; got shape "
            f"{parts.shape}. Use 'uniform'."
        )
    # A little less than all, so that the rounded sum does not exceed the total.
    budgets: Vector = (1.0 - 1e-12) * total * (parts / parts.sum())
    return budgets
