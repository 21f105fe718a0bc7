"""Logistic regression under differential privacy: descent, or a perturbed objective or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy.typing as npt

from pacprivacy._checks import check_positive
from pacprivacy.dp import (
    Logistic,
    Softmax,
    Steps,
    dp_gd,
    least_penalty,
    objective_perturbation,
    output_perturbation,
)
from pacprivacy.errors import MechanismError
from pacprivacy.estimators.dp_sgd_base import DPLinearClassifier, Matrix
from pacprivacy.release import DPRelease

PENALTY: Final = 10.0


@dataclass(eq=False, repr=False, kw_only=True)
class DPLogisticRegression(DPLinearClassifier):
    """Logistic regression under differential privacy.

    Parameters
    ----------
    method : {"descent", "objective", "output"}
        Noisy gradients of all records (DP-GD); a random linear term in the objective; or noise on
        the weights. The last two are for two classes and need a penalty.
    penalty : float, optional
        Curvature added to the *sum* of losses, for rows divided by ``x_bound``. By default 10, or
        twice the least that the objective needs; none for descent.
    n_public : int
        Number of records as far as it is public, for descent; not needed with ``"replace"``.
    neighbours : {"add_remove", "replace"}
        Relation that the promise is about.
    n_steps, learning_rate, clip_norm, average
        As in :class:`pacprivacy.dp.Steps`, for descent and rows of norm at most 1.
    x_bound, classes, fit_intercept, epsilon, delta, random_state, simulate
        As in :class:`~pacprivacy.estimators.dp_sgd_base.DPLinearClassifier`.

    Attributes
    ----------
    coef_, intercept_, classes_, certificate_, release_, n_features_in_
        As in :class:`~pacprivacy.estimators.dp_sgd_base.DPLinearClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) + np.repeat([[0], [3]], 1000, axis=0)
    >>> y = np.repeat([0, 1], 1000)
    >>> model = DPLogisticRegression(x_bound=5.0, classes=(0, 1), n_public=2000)
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    """

    method: Literal["descent", "objective", "output"] = "descent"
    penalty: float | None = None
    n_public: int | None = None
    n_steps: int = 60
    learning_rate: float = 4.0
    clip_norm: float = 0.5
    average: bool = False

    def predict_proba(self, X: Any) -> Matrix:
        """Return probabilities of the classes."""
        return self._probabilities(X)

    def _train(
        self, rows: Matrix, labels: npt.NDArray[Any], declared: tuple[Any, ...]
    ) -> DPRelease:
        if self.method == "descent":
            return self._descend(rows, labels, declared)
        if self.method in ("objective", "output"):
            return self._perturb(rows, labels, declared)
        raise MechanismError(
            f"method must be 'descent', 'objective' or 'output'; got {self.method!r}. "
            "Use 'descent'."
        )

    def _descend(
        self, rows: Matrix, labels: npt.NDArray[Any], declared: tuple[Any, ...]
    ) -> DPRelease:
        two = len(declared) == 2
        n_public = self.n_public
        if n_public is None and self.neighbours == "replace":
            n_public = len(rows)
        l2 = 0.0
        if self.penalty is not None and n_public is not None:
            l2 = self._read_penalty(0.0) / n_public
        return dp_gd(
            rows,
            labels,
            loss=Logistic(classes=declared) if two else Softmax(classes=declared),
            epsilon=self.epsilon,
            delta=self.delta,
            x_bound=self._row_bound,
            steps=Steps(
                n_steps=self.n_steps,
                learning_rate=self.learning_rate,
                clip_norm=self.clip_norm,
                average=self.average,
                penalty=l2,
            ),
            n_public=n_public,
            neighbours=self.neighbours,
            simulate=self._noise_seed(),
        )

    def _perturb(
        self, rows: Matrix, labels: npt.NDArray[Any], declared: tuple[Any, ...]
    ) -> DPRelease:
        if len(declared) != 2:
            raise MechanismError(
                f"method must be 'descent' for more than two classes; got {self.method!r}."
            )
        common: dict[str, Any] = {
            "classes": declared,
            "x_bound": self._row_bound,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.neighbours,
            "simulate": self._noise_seed(),
        }
        if self.method == "output":
            return output_perturbation(rows, labels, penalty=self._read_penalty(PENALTY), **common)
        check_positive("epsilon", self.epsilon, advice="Use about 1.")
        least = least_penalty(self.epsilon, x_bound=self._row_bound)
        return objective_perturbation(
            rows, labels, penalty=self._read_penalty(max(PENALTY, 2.0 * least)), **common
        )

    def _read_penalty(self, default: float) -> float:
        if self.penalty is None:
            return default
        return check_positive("penalty", self.penalty, advice="Use about 1.")
