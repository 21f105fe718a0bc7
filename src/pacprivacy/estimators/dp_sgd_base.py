"""What linear classifiers under differential privacy share: inputs, intercept, predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from pacprivacy._checks import check_positive
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.estimators.base import read_seed
from pacprivacy.estimators.inputs import read_new, read_supervised
from pacprivacy.release.dp_certificate import DPCertificate
from pacprivacy.release.dp_release import DPRelease

__all__ = ["DPLinearClassifier"]

Matrix = npt.NDArray[np.float64]
PUBLIC_LABELS = "The set of labels that occur in y is public."


@dataclass(eq=False, repr=False)
class DPLinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Settings that every linear classifier under differential privacy has.

    Parameters
    ----------
    epsilon, delta : float
        The promise; ``delta`` below one over the number of records.
    x_bound : float
        Rows are clipped to this norm. There is no default: it must not come from the data.
    classes : sequence of labels, or "public"
        All labels that may occur; others are refused. ``"public"`` says that the labels which
        occur in ``y`` are known to everybody.
    fit_intercept : bool
        Whether scores have a constant term.
    random_state : int, Generator or RandomState, optional
        Seed of a simulation; noise and batches of a real fit come from the operating system.
    simulate : bool
        Take noise and batches from ``random_state``. The certificate says that such a fit
        protects nobody.

    Attributes
    ----------
    coef_, intercept_ : arrays of shapes (n_classes, n_features) and (n_classes,)
        Released weights; one row if there are two classes.
    classes_ : array of shape (n_classes,)
        The declared labels, sorted.
    certificate_ : DPCertificate
        What is promised, about which neighbours, on which assumptions.
    release_ : DPRelease
        The released weights, before they were split into coefficients and intercept.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    x_bound: float | None = None
    classes: Any = None
    fit_intercept: bool = True
    random_state: Any = None
    simulate: bool = False

    def fit(self, X: Any, y: Any) -> Self:
        """Train on the records and release the weights.

        Parameters
        ----------
        X : array or frame of shape (n_records, n_features)
            Features.
        y : array of shape (n_records,)
            Labels.

        Raises
        ------
        DataError, BudgetError, MechanismError
            Nothing was spent.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        if self.x_bound is None:
            raise BudgetError(
                "x_bound must be given: rows are clipped to it, and it must not be read off the "
                "data; got None. Use a norm that rows rarely exceed."
            )
        bound = check_positive("x_bound", self.x_bound, advice="Use a norm that rows rarely have.")
        features, labels = read_supervised(self, X, y)
        check_classification_targets(labels)
        declared = self._read_classes(labels)
        release = self._train(self._scale(features, bound), labels, declared)
        self._keep(self._note(release), bound)
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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "certificate_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = not (self.simulate and self.random_state is not None)
        return tags

    def _train(
        self, rows: Matrix, labels: npt.NDArray[Any], declared: tuple[Any, ...]
    ) -> DPRelease:
        """Release the weights of rows of norm at most ``row_bound``."""
        raise NotImplementedError

    @property
    def _row_bound(self) -> float:
        """Norm of scaled rows, the constant included."""
        return float(np.sqrt(2.0)) if self.fit_intercept else 1.0

    def _seed(self) -> int | None:
        if not self.simulate:
            return None
        seed = read_seed(self.random_state)
        return 0 if seed is None else seed

    def _probabilities(self, X: Any) -> Matrix:
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(special.softmax(scores, axis=1))
        chances = special.expit(scores)
        return np.column_stack([1.0 - chances, chances])

    def _read_classes(self, labels: npt.NDArray[Any]) -> tuple[Any, ...]:
        if self.classes is None:
            raise BudgetError(
                "classes must be declared: a label that occurs once would show that its record is "
                "there; got None. List all labels, or say classes='public' if they are."
            )
        known = labels if isinstance(self.classes, str) else np.asarray(self.classes)
        if isinstance(self.classes, str) and self.classes != "public":
            raise BudgetError(
                f"classes must be a sequence of labels or 'public'; got {self.classes!r}."
            )
        found = np.unique(known)
        if len(found) < 2:
            raise DataError(
                f"classes must be at least two; got {len(found)} class. Declare every label."
            )
        if len(found) != len(known) and not isinstance(self.classes, str):
            raise DataError("classes must be different from each other. Declare each label once.")
        self.classes_: npt.NDArray[Any] = found
        return tuple(found.tolist())

    def _scale(self, features: Matrix, bound: float) -> Matrix:
        """Divide rows by their bound, clip them to norm 1, and append the constant."""
        scaled = np.asarray(features, dtype=np.float64) / bound
        norms = np.linalg.norm(scaled, axis=1, keepdims=True)
        scaled /= np.maximum(norms, 1.0)
        if not self.fit_intercept:
            return scaled
        return np.column_stack([scaled, np.ones(len(scaled))])

    def _note(self, release: DPRelease) -> DPRelease:
        """Say in the certificate what was done before the weights were trained."""
        said: tuple[str, ...] = (
            f"Rows are divided by x_bound = {self.x_bound:g} first; it is public.",
        )
        if isinstance(self.classes, str):
            said += (PUBLIC_LABELS,)
        certificate = release.certificate
        noted = replace(certificate, assumptions=(*said, *certificate.assumptions))
        return replace(release, certificate=noted)

    def _keep(self, release: DPRelease, bound: float) -> None:
        weights = np.atleast_2d(np.asarray(release.value, dtype=np.float64))
        n_features = weights.shape[1] - int(self.fit_intercept)
        self.coef_: Matrix = weights[:, :n_features] / bound
        constant = weights[:, n_features] if self.fit_intercept else np.zeros(len(weights))
        self.intercept_: npt.NDArray[np.float64] = constant.copy()
        self.release_: DPRelease = release
        self.certificate_: DPCertificate = release.certificate
