"""What linear classifiers under differential privacy share: inputs, intercept, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import special
from sklearn.base import ClassifierMixin

from pacprivacy._checks import check_positive
from pacprivacy._sklearn import read_new
from pacprivacy.dp import DPRelease, norms_of
from pacprivacy.dp.estimators.base import DPBase, label_notes, read_classes, read_private
from pacprivacy.errors import BudgetError

Matrix = npt.NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class DPLinearClassifier(ClassifierMixin, DPBase):  # type: ignore[misc]
    """Settings that every linear classifier under differential privacy has.

    Parameters
    ----------
    x_bound : float
        Rows are clipped to this norm. There is no default: it must not come from the data.
    classes : sequence of labels, or "public"
        All labels that may occur; records with others are left out. ``"public"`` says that the
        labels which occur in ``y`` are known to everybody.
    fit_intercept : bool
        Whether scores have a constant term.
    epsilon, delta, neighbours, random_state, simulate
        As in :class:`~pacprivacy.dp.estimators.base.DPBase`.

    Attributes
    ----------
    coef_, intercept_ : arrays of shapes (n_classes, n_features) and (n_classes,)
        Released weights; one row if there are two classes.
    classes_ : array of shape (n_classes,)
        The declared labels, sorted.
    certificate_, release_
        As in :class:`~pacprivacy.dp.estimators.base.DPBase`.
    """

    x_bound: float | None = None
    classes: Sequence[Any] | str | None = None
    fit_intercept: bool = True

    def fit(self, X: Any, y: Any) -> Self:
        """Train on the records and release the weights."""
        self._forget()
        if self.x_bound is None:
            raise BudgetError(
                "x_bound must be given: rows are clipped to it, and it must not be read off the "
                "data; got None. Use a norm that rows rarely exceed."
            )
        bound = check_positive("x_bound", self.x_bound, advice="Use a norm that rows rarely have.")
        features, labels = read_private(self, X, y)
        known = read_classes(self.classes, labels)
        release = self._train(self._scale(features, bound), labels, tuple(known.tolist()))
        scaled = f"Rows are divided by x_bound = {bound:g} first; it is public."
        self._keep(release, scaled, *label_notes(self.classes))
        self.classes_: npt.NDArray[Any] = known
        self._split(bound)
        return self

    def decision_function(self, X: Any) -> Matrix:
        """Return the score of every class, or one score if there are two."""
        scores: Matrix = read_new(self, X) @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score."""
        scores = self.decision_function(X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        named: npt.NDArray[Any] = self.classes_[chosen]
        return named

    def _train(
        self, rows: Matrix, labels: npt.NDArray[Any], declared: tuple[Any, ...]
    ) -> DPRelease:
        """Release the weights of rows of norm at most ``row_bound``."""
        raise NotImplementedError

    @property
    def _row_bound(self) -> float:
        """Norm of scaled rows, the constant included."""
        return float(np.sqrt(2.0)) if self.fit_intercept else 1.0

    def _probabilities(self, X: Any) -> Matrix:
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(special.softmax(scores, axis=1))
        chances = special.expit(scores)
        return np.column_stack([1.0 - chances, chances])

    def _scale(self, features: Matrix, bound: float) -> Matrix:
        """Divide rows by their bound, clip them to norm 1, and append the constant."""
        with np.errstate(all="ignore"):  # rows that are not finite stay so, and are left out
            scaled = np.asarray(features, dtype=np.float64) / bound
            scaled /= np.maximum(norms_of(scaled), 1.0)
        if not self.fit_intercept:
            return scaled
        return np.column_stack([scaled, np.ones(len(scaled))])

    def _split(self, bound: float) -> None:
        """Split the released weights into coefficients of the given features, and constants."""
        weights = np.atleast_2d(np.asarray(self.release_.value, dtype=np.float64))
        n_features = weights.shape[1] - int(self.fit_intercept)
        self.coef_: Matrix = weights[:, :n_features] / bound
        constant = weights[:, n_features] if self.fit_intercept else np.zeros(len(weights))
        self.intercept_: npt.NDArray[np.float64] = constant.copy()
