"""A linear classifier trained by differentially private stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt
from sklearn.utils.metaestimators import available_if

from pacprivacy.dp import (
    Batch,
    FixedBatch,
    FullBatch,
    Hinge,
    LinearLoss,
    Logistic,
    PoissonBatch,
    ReplacementBatch,
    Softmax,
    Steps,
    dp_sgd,
)
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.estimators.dp_sgd_base import DPLinearClassifier, Matrix
from pacprivacy.release import DPRelease


def _has_probabilities(model: Any) -> bool:
    return bool(model.loss == "logistic")


@dataclass(eq=False, repr=False, kw_only=True)
class DPSGDClassifier(DPLinearClassifier):
    """A linear classifier trained by DP-SGD.

    Rows are divided by ``x_bound``, so that step length and clipping norm need not be changed with
    the units of the features.

    Parameters
    ----------
    loss : {"logistic", "hinge"}
        Logistic loss, of several scores if there are more than two classes; the hinge loss is for
        two.
    sampling : {"poisson", "fixed", "replacement", "full"}
        How the records of a step are picked. Poisson batches protect against adding or removing
        a record, those of a fixed size against replacing one.
    n_public : int
        Number of records as far as it is public; a guess will do. Needed where records may be
        added or removed, since their true number is not public then.
    batch_size : int
        Records in a batch, on average for Poisson batches.
    n_steps, learning_rate, clip_norm, average, l2
        As in :class:`pacprivacy.dp.Steps`, for rows of norm at most 1.
    neighbours : {"add_remove", "replace"}
        Relation for ``sampling="full"``; the others have their own.
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
    >>> y = np.repeat(["no", "yes"], 1000)
    >>> model = DPSGDClassifier(
    ...     x_bound=5.0, classes=("no", "yes"), n_public=2000, batch_size=200, n_steps=50
    ... ).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    >>> model.certificate_.neighbours
    'add_remove'
    """

    loss: Literal["logistic", "hinge"] = "logistic"
    sampling: Literal["poisson", "fixed", "replacement", "full"] = "poisson"
    n_public: int | None = None
    batch_size: int = 256
    n_steps: int = 200
    learning_rate: float = 4.0
    clip_norm: float = 0.5
    average: bool = False
    l2: float = 0.0

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Matrix:
        """Return probabilities of the classes."""
        return self._probabilities(X)

    def _train(
        self, rows: Matrix, labels: npt.NDArray[Any], declared: tuple[Any, ...]
    ) -> DPRelease:
        return dp_sgd(
            rows,
            labels,
            loss=self._loss(declared),
            epsilon=self.epsilon,
            delta=self.delta,
            x_bound=self._row_bound,
            batch=self._batch(),
            steps=Steps(
                n_steps=self.n_steps,
                learning_rate=self.learning_rate,
                clip_norm=self.clip_norm,
                average=self.average,
                penalty=self.l2,
            ),
            simulate=self._noise_seed(),
        )

    def _loss(self, declared: tuple[Any, ...]) -> LinearLoss:
        if self.loss == "hinge":
            return Hinge(classes=declared)
        if self.loss != "logistic":
            raise MechanismError(
                f"loss must be 'logistic' or 'hinge'; got {self.loss!r}. Use 'logistic'."
            )
        return Logistic(classes=declared) if len(declared) == 2 else Softmax(classes=declared)

    def _batch(self) -> Batch:
        if self.sampling == "full":
            return FullBatch(n_public=self.n_public, neighbours=self.neighbours)
        if self.sampling == "fixed":
            return FixedBatch(size=self.batch_size)
        if self.sampling == "replacement":
            return ReplacementBatch(size=self.batch_size)
        if self.sampling != "poisson":
            raise MechanismError(
                "sampling must be 'poisson', 'fixed', 'replacement' or 'full'; got "
                f"{self.sampling!r}. Use 'poisson'."
            )
        if self.n_public is None:
            raise BudgetError(
                "n_public must be given for Poisson batches: the true number of records is not "
                "public; got None. Pass an estimate, or use sampling='fixed'."
            )
        return PoissonBatch(size=self.batch_size, n_public=self.n_public)
