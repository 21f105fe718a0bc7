"""Linear regression under differential privacy."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from pacprivacy._checks import check_positive
from pacprivacy.dp import adassp, norms_of, regression_from_statistics, ridge_output_perturbation
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.estimators.base import read_new
from pacprivacy.estimators.dp_base import DPBase, read_private
from pacprivacy.release import DPRelease

Vector = npt.NDArray[np.float64]


@dataclass(eq=False, repr=False)
class DPLinearRegression(RegressorMixin, DPBase):  # type: ignore[misc]
    """Linear regression with noise in its statistics or in its coefficients.

    Parameters
    ----------
    method : {"adassp", "statistics", "output"}
        AdaSSP, which finds its penalty; moments with noise and the penalty given; or ridge
        coefficients with noise, for ``neighbours="replace"`` only.
    x_bound, y_bound : float
        Rows are clipped to this norm, targets to this absolute value. Required: a bound that is
        read off the data is a release without noise.
    penalty : float
        Of the sum of squares, for ``statistics`` and ``output``.
    fit_intercept : bool
        Append a column of ``x_bound`` to the clipped rows.
    epsilon, delta, neighbours, random_state, simulate
        As in :class:`~pacprivacy.estimators.dp_base.DPBase`.

    Attributes
    ----------
    coef_, intercept_ : array of shape (n_features,) and float
        Released coefficients.
    certificate_, release_, n_features_in_, feature_names_in_
        What is promised, the release, and as in scikit-learn.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2))
    >>> y = X @ [1.0, -1.0] + 0.5
    >>> model = DPLinearRegression(x_bound=2.0, y_bound=3.0, epsilon=1.0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    >>> model.certificate_.neighbours
    'add_remove'
    """

    method: Literal["adassp", "statistics", "output"] = "adassp"
    _: KW_ONLY
    x_bound: float | None = None
    y_bound: float | None = None
    penalty: float = 1.0
    fit_intercept: bool = True

    def fit(self, X: Any, y: Any) -> Self:
        """Release coefficients.

        Parameters
        ----------
        X : array or frame of shape (n_records, n_features)
            Features.
        y : array of shape (n_records,)
            Target.

        Raises
        ------
        BudgetError, DataError, MechanismError
            Nothing was released.
        """
        self._forget()
        if self.x_bound is None or self.y_bound is None:
            raise BudgetError(
                "x_bound and y_bound must be given; got None. Use a norm and a value that rows and "
                "targets rarely exceed, known beforehand."
            )
        features, target = read_private(self, X, y, numeric=True)
        bound = check_positive("x_bound", self.x_bound, advice="Use a norm that rows rarely have.")
        release, solved = self._run(*self._rows(features, bound), np.asarray(target, dtype=float))
        self._keep(release)
        self.coef_: Vector = np.array(solved[: features.shape[1]])
        self.intercept_: float = float(solved[-1] * bound) if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any) -> Vector:
        """Return the predictions of the released coefficients."""
        return np.asarray(read_new(self, X) @ self.coef_ + self.intercept_)

    def _rows(self, features: Any, bound: float) -> tuple[Any, float]:
        """Return clipped rows, with a constant column if there is an intercept, and their norm."""
        if not self.fit_intercept:
            return features, bound
        with np.errstate(all="ignore"):  # rows that are not finite stay so, and are left out
            clipped = features * np.minimum(1.0, bound / np.maximum(norms_of(features), 1e-300))
        return np.column_stack([clipped, np.full(len(features), bound)]), math.sqrt(2.0) * bound

    def _run(self, rows: Any, bound: float, target: Vector) -> tuple[DPRelease, Vector]:
        given: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "x_bound": bound,
            "y_bound": self.y_bound,
            "simulate": self._noise_seed(),
        }
        if self.method == "adassp":
            fit = adassp(rows, target, neighbours=self.neighbours, **given)
            coef = fit.value["coef"]
            return DPRelease(value=coef, certificate=fit.certificate), coef
        if self.method == "statistics":
            release = regression_from_statistics(
                rows, target, penalty=self.penalty, neighbours=self.neighbours, **given
            )
            return release, release.value["coef"]
        if self.method != "output":
            raise MechanismError(
                "method must be 'adassp', 'statistics' or 'output'; got "
                f"{self.method!r}. Use 'adassp'."
            )
        if self.neighbours != "replace":
            raise BudgetError(
                f"neighbours must be 'replace' for output perturbation; got {self.neighbours!r}. "
                "Use 'replace', or another method."
            )
        release = ridge_output_perturbation(rows, target, penalty=self.penalty, **given)
        return release, release.value
