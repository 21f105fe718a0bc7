"""Any scikit-learn estimator as a mechanism: fit on a subset, keep what is released."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.base import Mechanism
from pacprivacy.mechanism.data import Data
from pacprivacy.mechanism.estimators import declare_released, last_step
from pacprivacy.mechanism.inputs import Classes, code_labels, find_classes

__all__ = ["EstimatorFit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorFit(Mechanism):
    """Fit a clone of an estimator on every subset.

    The value is the fitted estimator, of which only the released attributes are measured and
    everything else fitted is dropped; see :mod:`pacprivacy.mechanism.estimators`.

    Parameters
    ----------
    estimator : scikit-learn estimator or pipeline, public
        Never fitted itself. Where a ``random_state`` inside is None it becomes ``seed``, the
        same for all subsets: what two fits differ in is then the records alone.
    released : tuple of str, public, optional
        Names of the fitted attributes that are released, for the last step if the estimator is
        a pipeline. None looks them up by the estimator's class.
    seed : int, public
        See ``estimator``.
    classes : tuple, public, optional
        For a classifier, the labels that occur in the universe. Set by :meth:`prepare`.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> mechanism = EstimatorFit(estimator=Ridge(alpha=0.5), released=("coef_",))
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> mechanism.evaluate((X, X[:, 0]), np.random.default_rng(0)).coef_.round(2)
    array([0.91])
    """

    estimator: Any
    released: tuple[str, ...] | None = None
    seed: int = 0
    classes: Classes | None = None

    def __post_init__(self) -> None:
        if not (hasattr(self.estimator, "fit") and hasattr(self.estimator, "get_params")) or (
            isinstance(self.estimator, type)
        ):
            got = getattr(self.estimator, "__name__", type(self.estimator).__name__)
            raise MechanismError(
                f"estimator must be an instance of a scikit-learn estimator; got {got}. "
                "Pass for example LinearSVC() with brackets."
            )

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        kind = type(self.estimator).__name__
        steps = getattr(self.estimator, "steps", None)
        if not isinstance(steps, list):
            return kind
        return f"{kind}({', '.join(type(step).__name__ for _, step in steps)})"

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe."""
        kind = type(last_step(self.estimator)).__name__
        return () if self.classes is None else (f"{kind} classes: the labels of the universe",)

    def prepare(self, data: Data) -> Self:
        """Fix the classes of a classifier on the whole universe."""
        # scikit-learn takes a second to import; only those who fit with it pay for it.
        from sklearn.base import is_classifier

        if not is_classifier(self.estimator) or len(data.parts) != 2:
            return self
        return replace(self, classes=find_classes(np.asarray(data.parts[1]), self.name))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the estimator fitted on one subset."""
        from sklearn.base import clone

        if self.classes is not None:
            code_labels(np.asarray(parts[1]), self.classes, self.name)
        model = clone(self.estimator)
        params = model.get_params(deep=True).items()
        unset = [k for k, v in params if k.rpartition("__")[2] == "random_state" and v is None]
        model.set_params(**dict.fromkeys(unset, self.seed))
        model.fit(*parts)
        if self.released is not None:
            declare_released(model, self.released)
        return model
