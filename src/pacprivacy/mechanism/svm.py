"""Linear support vector machines, one against the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import numpy as np

from pacprivacy._checks import Array, Matrix, check_count, check_positive
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import (
    CLASS_LABELS,
    Classes,
    Data,
    MatrixLike,
    Parts,
    check_data_varying,
    code_data_labels,
    find_data_classes,
    read_data_columns,
    read_labelled_data,
)
from pacprivacy.mechanism.mechanism import Mechanism, fixed_mechanism

_SEED: Final = 0  # of the order in which the dual solver visits the rows; public


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSVM(Mechanism):
    """Hyperplanes of a linear support vector machine, one against the rest.

    The value is a dict with ``coef``, shape (n_classes, p) or (1, p) for two classes, and
    ``intercept``, shape (n_classes,) or (1,); all of it is measured. The *released* value has
    ``classes`` besides. The intercept is regularised with the coefficients, as in
    ``sklearn.svm.LinearSVC``: scale the features before, with all records.

    Parameters
    ----------
    C : float > 0, public
        Inverse strength of the regularisation. A small ``C`` is the stabiliser: the hyperplanes
        move less between subsets and need less noise.
    loss : "squared_hinge" or "hinge", public
        Solved in the primal, without any randomness; or in the dual, with a fixed public seed.
    classes : tuple, public, optional
        The classes in the order of the rows; by default the sorted labels of the universe.
    tol, max_iter : float > 0 and int >= 1, public
        Where the solver stops: its distance from the optimum varies between subsets and costs
        noise.
    """

    name = "LinearSVM"
    C: float = 1.0
    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"
    classes: Classes | None = None
    tol: float = 1e-6
    max_iter: int = 10_000

    def __post_init__(self) -> None:
        check_positive("C", self.C, advice="Use 1, or less to stabilise.", error=MechanismError)
        check_positive("tol", self.tol, advice="Use about 1e-6.", error=MechanismError)
        if self.loss not in ("squared_hinge", "hinge"):
            raise MechanismError(
                f"loss must be 'squared_hinge' or 'hinge'; got {self.loss!r}. "
                "Use 'squared_hinge': it is solved without randomness."
            )
        check_count("max_iter", self.max_iter, 1, advice="Use about 10000.")

    @property
    def published(self) -> tuple[str, ...]:
        """The classes, as they are called."""
        return CLASS_LABELS

    def prepare(self, data: Data) -> Self:
        """Fix the classes on the whole universe."""
        X, y = read_labelled_data(data.parts, self.name)
        check_data_varying(X, self.name)
        return replace(self, classes=find_data_classes(y, self.name, self.classes))

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> dict[str, Matrix]:
        """Return coefficients and intercepts of one subset."""
        # scikit-learn takes a second to import; only those who fit with it pay for it.
        from sklearn.svm import LinearSVC

        X, y = read_labelled_data(parts, self.name)
        model = LinearSVC(
            C=self.C,
            loss=self.loss,
            dual=self.loss == "hinge",
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=_SEED,
        ).fit(X, code_data_labels(y, fixed_mechanism(self.classes, "classes"), self.name))
        return {
            "coef": np.asarray(model.coef_, dtype=np.float64),
            "intercept": np.asarray(model.intercept_, dtype=np.float64),
        }

    def finish(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Add the public classes to a released value."""
        return {**value, "classes": np.asarray(fixed_mechanism(self.classes, "classes"))}

    def predict(self, value: Mapping[str, Any], X: MatrixLike) -> Array:
        """Return the class of every row by the *released* hyperplanes; this costs no privacy."""
        scores = self.decide(value, X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        classes = (
            value["classes"] if "classes" in value else fixed_mechanism(self.classes, "classes")
        )
        named: Array = np.asarray(classes)[chosen]
        return named

    def decide(self, value: Mapping[str, Any], X: MatrixLike) -> Matrix:
        """Return the score of every row for every class, or one score if there are two."""
        rows = read_data_columns((X,), self.name)
        coef = np.asarray(value["coef"], dtype=np.float64)
        scores: Matrix = rows @ coef.T + np.asarray(value["intercept"], dtype=np.float64)
        return scores[:, 0] if len(coef) == 1 else scores
