"""Linear models under differential privacy: classifiers by descent or perturbation, regression."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, Self

import numpy as np
from scipy import special
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from pacprivacy import dp
from pacprivacy._checks import Array, Matrix, Vector, check_positive
from pacprivacy._sklearn import read_new
from pacprivacy.dp.clipping import clipping_norms
from pacprivacy.dp.estimators.base import (
    DPBase,
    dp_estimator_label_notes,
    read_dp_estimator_classes,
    read_dp_estimator_input,
)
from pacprivacy.errors import BudgetError, MechanismError

# Penalties on the sum of losses for rows of norm 1: accuracy is flat there on Adult, Bank and Rice.
LEAST_PENALTY: Final = {"objective": 2.0, "output": 10.0}
CURVATURES: Final = 6.0  # times the least penalty that the objective allows: most of ε is then left
OUTPUT_PENALTY: Final = 25.0  # over ε: noise falls with their product
BATCHES: Final = 20  # in the records, on average
SMALLEST_BATCH: Final = 256


@dataclass(eq=False, repr=False, kw_only=True)
class DPLinear(DPBase):
    """What linear models share: a bound on rows, and perhaps a constant."""

    x_bound: float | None = None
    fit_intercept: bool = True

    def _settings(self) -> dict[str, Any]:
        """Return the promise and the seed, for the mechanisms of ``dp``."""
        return {"epsilon": self.epsilon, "delta": self.delta, "simulate": self._noise_seed()}

    def _read_bound(self) -> float:
        if self.x_bound is None:
            raise BudgetError(
                "x_bound must be given: rows are clipped to it, and it must not be read off the "
                "data; got None. Use a norm that rows rarely exceed."
            )
        return check_positive("x_bound", self.x_bound, advice="Use a norm that rows rarely have.")


def _has_probabilities(model: Any) -> bool:
    return getattr(model, "loss", "log_loss") != "hinge"


@dataclass(eq=False, repr=False, kw_only=True)
class DPLinearClassifier(ClassifierMixin, DPLinear, ABC):  # type: ignore[misc]
    """What linear classifiers share: inputs, intercept, descent, predictions."""

    classes: Sequence[Any] | str | None = None
    n_public: int | None = None
    n_steps: int = 100
    learning_rate: float | None = None
    clip_norm: float = 0.5
    momentum: float = 0.9
    squares: float = 0.99
    average: bool = False

    def fit(self, X: Any, y: Any) -> Self:
        """Train on the records and release the weights."""
        self._forget()
        bound = self._read_bound()
        features, labels = read_dp_estimator_input(self, X, y)
        known = read_dp_estimator_classes(self.classes, labels)
        release = self._train(self._scale(features, bound), labels, tuple(known.tolist()))
        scaled = f"Rows are divided by x_bound = {bound:g} first; it is public."
        self._keep(release, scaled, *dp_estimator_label_notes(self.classes))
        self.classes_: Array = known
        weights = np.atleast_2d(np.asarray(self.release_.value, dtype=np.float64))
        n_features = weights.shape[1] - int(self.fit_intercept)
        self.coef_: Matrix = weights[:, :n_features] / bound
        constant = weights[:, n_features] if self.fit_intercept else np.zeros(len(weights))
        self.intercept_: Vector = constant.copy()
        return self

    def decision_function(self, X: Any) -> Matrix:
        """Return the score of every class, or one score if there are two."""
        scores: Matrix = read_new(self, X) @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Return the class with the highest score."""
        scores = self.decision_function(X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        named: Array = self.classes_[chosen]
        return named

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Matrix:
        """Return probabilities of the classes."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(special.softmax(scores, axis=1))
        chances = special.expit(scores)
        return np.column_stack([1.0 - chances, chances])

    @abstractmethod
    def _train(self, rows: Matrix, labels: Array, declared: tuple[Any, ...]) -> dp.DPRelease:
        """Release the weights of rows of norm at most ``row_bound``."""

    @property
    def _row_bound(self) -> float:
        """Norm of scaled rows, the constant included."""
        return float(np.sqrt(2.0)) if self.fit_intercept else 1.0

    def _scale(self, features: Matrix, bound: float) -> Matrix:
        """Divide rows by their bound, clip them to norm 1, and append the constant."""
        with np.errstate(all="ignore"):  # rows that are not finite stay so, and are left out
            scaled = np.asarray(features, dtype=np.float64) / bound
            scaled /= np.maximum(clipping_norms(scaled), 1.0)
        if not self.fit_intercept:
            return scaled
        return np.column_stack([scaled, np.ones(len(scaled))])

    def _descend(
        self, rows: Matrix, labels: Array, loss: dp.LinearLoss, batch: dp.Batch, penalty: float
    ) -> dp.DPRelease:
        return dp.dp_sgd(
            rows,
            labels,
            loss=loss,
            x_bound=self._row_bound,
            batch=batch,
            steps=dp.Steps(
                n_steps=self.n_steps,
                learning_rate=self.learning_rate,
                clip_norm=self.clip_norm,
                momentum=self.momentum,
                squares=self.squares,
                average=self.average,
                penalty=penalty,
            ),
            **self._settings(),
        )


def _logistic_loss(declared: tuple[Any, ...]) -> dp.LinearLoss:
    return dp.Logistic(classes=declared) if len(declared) == 2 else dp.Softmax(classes=declared)


@dataclass(eq=False, repr=False, kw_only=True)
class DPSGDClassifier(DPLinearClassifier):
    """A linear classifier trained by DP-SGD.

    Rows are divided by ``x_bound``, so that step length and clipping norm need not be changed with
    the units of the features.

    Parameters
    ----------
    loss : {"log_loss", "hinge"}
        Logistic loss, of several scores if there are more than two classes; the hinge loss is for
        two.
    alpha : float
        Penalty on the mean loss: ``alpha/2`` times the squared norm of the weights of scaled rows.
    sampling : {"poisson", "fixed", "replacement", "full"}
        How the records of a step are picked. Poisson batches protect against adding or removing
        a record, those of a fixed size against replacing one.
    batch_size : int, optional
        Records in a batch, on average for Poisson batches; by default a twentieth of all, and 256
        or all of fewer.
    n_public : int
        Number of records as far as it is public; a guess will do. Needed where records may be
        added or removed, since their true number is not public then.
    n_steps, learning_rate, clip_norm, momentum, squares, average
        As in :class:`pacprivacy.dp.Steps`, for rows of norm at most 1. By default the steps are
        Adam's; with ``squares=0`` their length follows from the noise.
    x_bound : float
        Rows are clipped to this norm. There is no default: it must not come from the data.
    classes : sequence of labels, or "public"
        All labels that may occur; records with others are left out. ``"public"`` says that the
        labels which occur in ``y`` are known to everybody.
    fit_intercept : bool
        Whether scores have a constant term.
    neighbours : {"add_remove", "replace"}
        Relation for ``sampling="full"``; the others have their own.
    epsilon, delta, random_state, simulate
        As in :class:`~pacprivacy.dp.estimators.DPBase`.

    Attributes
    ----------
    coef_, intercept_ : arrays of shapes (n_classes, n_features) and (n_classes,)
        Released weights; one row if there are two classes.
    classes_ : array of shape (n_classes,)
        The declared labels, sorted.
    certificate_, release_
        As in :class:`~pacprivacy.dp.estimators.DPBase`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) + np.repeat([[0], [3]], 1000, axis=0)
    >>> y = np.repeat(["no", "yes"], 1000)
    >>> model = DPSGDClassifier(
    ...     x_bound=5.0, classes=("no", "yes"), n_public=2000, n_steps=50
    ... ).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    >>> model.certificate_.neighbours
    'add_remove'
    """

    loss: Literal["log_loss", "hinge"] = "log_loss"
    alpha: float = 0.0
    sampling: Literal["poisson", "fixed", "replacement", "full"] = "poisson"
    batch_size: int | None = None

    def _train(self, rows: Matrix, labels: Array, declared: tuple[Any, ...]) -> dp.DPRelease:
        if self.loss not in ("log_loss", "hinge"):
            raise MechanismError(
                f"loss must be 'log_loss' or 'hinge'; got {self.loss!r}. Use 'log_loss'."
            )
        hinge = self.loss == "hinge"
        loss = dp.Hinge(classes=declared) if hinge else _logistic_loss(declared)
        return self._descend(rows, labels, loss, self._batch(len(rows)), self.alpha)

    def _batch(self, n_records: int) -> dp.Batch:
        if self.sampling == "full":
            return dp.FullBatch(n_public=self.n_public, neighbours=self.neighbours)
        if self.sampling == "fixed":
            return dp.FixedBatch(size=self._size(n_records))
        if self.sampling == "replacement":
            return dp.ReplacementBatch(size=self._size(n_records))
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
        return dp.PoissonBatch(size=self._size(self.n_public), n_public=self.n_public)

    def _size(self, n_public: int) -> int:
        if self.batch_size is not None:
            return self.batch_size
        return max(1, min(n_public, max(SMALLEST_BATCH, n_public // BATCHES)))


@dataclass(eq=False, repr=False, kw_only=True)
class DPLogisticRegression(DPLinearClassifier):
    """Logistic regression under differential privacy.

    Parameters
    ----------
    method : {"auto", "objective", "output", "descent"}
        A random linear term in the objective, or noise on the weights, both for two classes; or
        noisy gradients of all records (DP-GD). ``"auto"`` takes the objective for two classes and
        descent for more.
    C : float, optional
        Inverse of the penalty on the *sum* of losses, for rows divided by ``x_bound``. By default
        0.5 for the objective, or a sixth of the most that it allows at a small ``epsilon``; 0.1
        for the output, or ``epsilon/25``; no penalty for descent.
    n_public : int
        Number of records as far as it is public, for descent; not needed with ``"replace"``.
    neighbours : {"add_remove", "replace"}
        Relation that the promise is about.
    n_steps, learning_rate, clip_norm, momentum, squares, average
        As in :class:`DPSGDClassifier`, for descent.
    x_bound, classes, fit_intercept, epsilon, delta, random_state, simulate
        As in :class:`DPSGDClassifier`.

    Attributes
    ----------
    coef_, intercept_, classes_, certificate_, release_, n_features_in_
        As in :class:`DPSGDClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) + np.repeat([[0], [3]], 1000, axis=0)
    >>> y = np.repeat([0, 1], 1000)
    >>> model = DPLogisticRegression(x_bound=5.0, classes=(0, 1))
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    """

    method: Literal["auto", "objective", "output", "descent"] = "auto"
    C: float | None = None

    def _train(self, rows: Matrix, labels: Array, declared: tuple[Any, ...]) -> dp.DPRelease:
        method = self.method
        if method == "auto":
            method = "objective" if len(declared) == 2 else "descent"
        if method == "descent":
            n_public = self.n_public
            if n_public is None and self.neighbours == "replace":
                n_public = len(rows)
            batch = dp.FullBatch(n_public=n_public, neighbours=self.neighbours)
            penalty = 0.0 if n_public is None else self._penalty(0.0) / n_public
            return self._descend(rows, labels, _logistic_loss(declared), batch, penalty)
        if method not in LEAST_PENALTY:
            raise MechanismError(
                "method must be 'auto', 'objective', 'output' or 'descent'; got "
                f"{self.method!r}. Use 'auto'."
            )
        if len(declared) != 2:
            raise MechanismError(
                f"method must be 'descent' for more than two classes; got {self.method!r}."
            )
        epsilon = check_positive("epsilon", self.epsilon, advice="Use about 1.")
        perturb: Callable[..., dp.DPRelease] = dp.output_perturbation
        wanted = OUTPUT_PENALTY / epsilon
        if method == "objective":
            perturb = dp.objective_perturbation
            wanted = CURVATURES * dp.least_penalty(epsilon, x_bound=self._row_bound)
        return perturb(
            rows,
            labels,
            classes=declared,
            penalty=self._penalty(max(LEAST_PENALTY[method], wanted)),
            x_bound=self._row_bound,
            neighbours=self.neighbours,
            **self._settings(),
        )

    def _penalty(self, default: float) -> float:
        if self.C is None:
            return default
        return 1.0 / check_positive("C", self.C, advice="Use about 0.1.")


@dataclass(eq=False, repr=False)
class DPLinearRegression(RegressorMixin, DPLinear):  # type: ignore[misc]
    """Linear regression with noise in its statistics or in its coefficients.

    Parameters
    ----------
    method : {"adassp", "statistics", "output"}
        AdaSSP, which finds its penalty; moments with noise and the penalty given; or ridge
        coefficients with noise, for ``neighbours="replace"`` only.
    x_bound, y_bound : float
        Rows are clipped to this norm, targets to this absolute value. Required: a bound that is
        read off the data is a release without noise.
    alpha : float, optional
        Penalty on the sum of squares, for ``statistics`` and ``output``. By default what suits the
        noise: :func:`~pacprivacy.dp.ridge_penalty` for ``output``, the norm of the noise in the
        moments for ``statistics``.
    fit_intercept : bool
        Append a column of ``x_bound`` to the clipped rows.
    epsilon, delta, neighbours, random_state, simulate
        As in :class:`~pacprivacy.dp.estimators.DPBase`.

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
    y_bound: float | None = None
    alpha: float | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Clip the records, and release coefficients."""
        self._forget()
        bound = self._read_bound()
        if self.y_bound is None:
            raise BudgetError(
                "y_bound must be given: targets are clipped to it, and it must not be read off "
                "the data; got None. Use a value that targets rarely exceed."
            )
        features, target = read_dp_estimator_input(self, X, y, numeric=True)
        release = self._run(*self._rows(features, bound), np.asarray(target, dtype=float))
        self._keep(release)
        value = release.value["coef"] if self.method == "statistics" else release.value
        self.coef_: Vector = np.array(value[: features.shape[1]])
        self.intercept_: float = float(value[-1] * bound) if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any) -> Vector:
        """Return the predictions of the released coefficients."""
        return np.asarray(read_new(self, X) @ self.coef_ + self.intercept_)

    def _rows(self, features: Any, bound: float) -> tuple[Any, float]:
        """Return clipped rows, with a constant column if there is an intercept, and their norm."""
        if not self.fit_intercept:
            return features, bound
        with np.errstate(all="ignore"):  # rows that are not finite stay so, and are left out
            clipped = features * np.minimum(
                1.0, bound / np.maximum(clipping_norms(features), 1e-300)
            )
        return np.column_stack([clipped, np.full(len(features), bound)]), math.sqrt(2.0) * bound

    def _run(self, rows: Any, bound: float, target: Vector) -> dp.DPRelease:
        given = {"x_bound": bound, "y_bound": self.y_bound, **self._settings()}
        if self.method == "adassp":
            fit = dp.adassp(rows, target, neighbours=self.neighbours, **given)
            return dp.DPRelease(value=fit.value["coef"], certificate=fit.certificate)
        if self.method == "statistics":
            return dp.regression_from_statistics(
                rows, target, penalty=self.alpha, neighbours=self.neighbours, **given
            )
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
        return dp.ridge_output_perturbation(rows, target, penalty=self.alpha, **given)
