"""scikit-learn's interface: the common base, and linear models."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Final, Literal, Self

import numpy as np
from scipy import sparse, special
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from pacprivacy import dp
from pacprivacy._checks import Array, Matrix, Vector, check_positive
from pacprivacy._random import fresh_seed
from pacprivacy._sklearn import Fitted, read_new, read_seed
from pacprivacy.dp.records import clip, read_record_numbers, read_records, record_array
from pacprivacy.errors import BudgetError, DataError, MechanismError

PUBLIC: Final = "public"
PUBLIC_LABELS: Final = "The set of labels that occur in y is public."
COLUMN: Final = "A column-vector y was passed when a 1d array was expected; it was taken as one."


@dataclass(eq=False, repr=False, kw_only=True)
class DPBase(Fitted):
    """Common parameters of DP estimators, besides ``epsilon, delta, neighbours``.

    Parameters
    ----------
    random_state : int, Generator or RandomState, optional
        Seed of what is public, and with ``simulate`` of the noise too.
    simulate : bool
        Draw everything secret from ``random_state``, for experiments: such a fit protects nobody.

    Attributes
    ----------
    certificate_, release_ : DPCertificate and DPRelease
        Promise and released value; may be published.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    neighbours: dp.Neighbours = "add_remove"
    x_bound: float | None = None
    fit_intercept: bool = True
    random_state: Any = None
    simulate: bool = False

    @property
    def _row_bound(self) -> float:
        """Norm of rows over ``x_bound``, the constant included."""
        return math.sqrt(2.0) if self.fit_intercept else 1.0

    def _clipped(self, features: Matrix, bound: float) -> Matrix:
        """Return rows clipped to the bound, and the constant: as large, so that it counts alike."""
        clipped = clip(features, bound)  # rows that are not finite are left out later
        if not self.fit_intercept:
            return clipped
        return np.column_stack([clipped, np.full(len(features), bound)])

    def _noise_seed(self) -> int | None:
        if not self.simulate:
            return None
        seed = read_seed(self.random_state)
        return fresh_seed() if seed is None else seed

    def _keep(self, release: dp.DPRelease, *notes: str) -> None:
        """Keep the release; assumptions that were made before it go into its certificate."""
        certificate = release.certificate
        noted = replace(certificate, assumptions=(*notes, *certificate.assumptions))
        self.release_: dp.DPRelease = replace(release, certificate=noted)
        self.certificate_: dp.DPCertificate = noted


def _check_bound(name: str, bound: float | None) -> float:
    advice = "Declare a norm that is rarely exceeded; it must not be read off the data."
    return check_positive(name, bound, advice=advice)  # type: ignore[arg-type]


def read_dp_estimator_input(
    estimator: Any, X: Any, y: Any, *, numeric: bool = False
) -> tuple[Vector, Array]:
    """Return features and target of ``fit``; refusals are public (claim DP-17)."""
    if y is None:
        raise DataError(
            f"y must be given: {type(estimator).__name__} requires y to be passed, but the target "
            "y is None."
        )
    if sparse.issparse(X):
        raise DataError("X must be dense; got a sparse matrix. Use X.toarray().")
    if "c" in {getattr(getattr(part, "dtype", None), "kind", None) for part in (X, y)}:
        raise DataError("X and y must hold real numbers. Complex data not supported.")
    if getattr(X, "shape", (0, 1))[1:] == (0,):  # in scikit-learn's words, without the number
        raise DataError("X has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required.")
    rows = read_records(X)
    validate_data(estimator, X if hasattr(X, "columns") else rows, skip_check_array=True)
    target = record_array(y)
    if target.ndim == 2 and target.shape[1] == 1:
        warnings.warn(COLUMN, DataConversionWarning, stacklevel=3)
        target = target[:, 0]
    if numeric:
        return rows, read_record_numbers(target, len(rows))
    if target.shape != (len(rows),):
        raise DataError("y must have one label for each row of X. Pass a vector of labels.")
    return rows, target


def read_dp_estimator_classes(classes: Sequence[Any] | str | None, y: Array) -> Array:
    """Return the declared labels in order; refuse to find them in the data unasked."""
    if classes is None:
        raise BudgetError(
            "classes must be declared, because labels found in the data are a release without "
            "noise; got None. List all labels, or say classes='public' if they are."
        )
    if isinstance(classes, str) and classes != PUBLIC:
        raise BudgetError(f"classes must be a sequence of labels or 'public'; got {classes!r}.")
    known = _occurring(y) if isinstance(classes, str) else np.asarray(classes)
    if known.ndim != 1 or len(np.unique(known)) != len(known) or len(known) < 2:
        raise DataError(
            f"classes must hold two or more different labels; got {len(np.unique(known))} class. "
            "Declare every label that may occur."
        )
    return np.sort(known)


def _occurring(y: Array) -> Array:
    """Return the labels that occur, which are public; refusals depend on them alone."""
    plain = np.array(y.tolist()) if y.dtype.kind == "O" else y
    labels = np.unique(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are many for so few records
        check_classification_targets(labels)
    return labels


# Penalties on the sum of losses for rows of norm 1: accuracy is flat there on Adult, Bank and Rice.
LEAST_PENALTY: Final = {"objective": 2.0, "output": 10.0}
CURVATURES: Final = 6.0  # times the least penalty that the objective allows: most of ε is then left
OUTPUT_PENALTY: Final = 25.0  # over ε: noise falls with their product
BATCHES: Final = 20  # in the records, on average
SMALLEST_BATCH: Final = 256


def _has_probabilities(model: Any) -> bool:
    return getattr(model, "loss", "log_loss") != "hinge"


@dataclass(eq=False, repr=False, kw_only=True)
class DPLinearClassifier(ClassifierMixin, DPBase, ABC):  # type: ignore[misc]
    """Common part of linear classifiers; the rest as of :class:`DPBase`.

    Parameters
    ----------
    x_bound : float
        Rows are divided by this norm and clipped to it. It must not come from the data.
    classes : sequence of labels, or "public"
        All labels that may occur; records with others are left out. ``"public"`` says that the
        labels which occur in ``y`` are known to everybody.
    n_public : int
        Number of records as far as it is public; a guess will do. Descent needs it where records
        may be added or removed, since their true number is not public then.
    n_steps, learning_rate, clip_norm, momentum, squares
        As in :class:`pacprivacy.dp.Steps`, for rows of norm at most 1. By default the steps are
        Adam's; with ``squares=0`` their length follows from the noise.
    """

    classes: Sequence[Any] | str | None = None
    n_public: int | None = None
    n_steps: int = 100
    learning_rate: float | None = None
    clip_norm: float = 0.5
    momentum: float = 0.9
    squares: float = 0.99

    def fit(self, X: Any, y: Any) -> Self:
        """Train on the records and release the weights."""
        self._forget()
        bound = _check_bound("x_bound", self.x_bound)
        features, labels = read_dp_estimator_input(self, X, y)
        known = read_dp_estimator_classes(self.classes, labels)
        rows = self._clipped(features, bound) / bound
        release = self._train(rows, labels, tuple(known.tolist()))
        scaled = f"Rows are divided by x_bound = {bound:g} first; it is public."
        self._keep(release, scaled, *((PUBLIC_LABELS,) if isinstance(self.classes, str) else ()))
        self.classes_: Array = known
        weights = np.atleast_2d(np.asarray(self.release_.value, dtype=np.float64))
        n_features = weights.shape[1] - int(self.fit_intercept)
        self.coef_: Matrix = weights[:, :n_features] / bound
        constant = weights[:, n_features] if self.fit_intercept else np.zeros(len(weights))
        self.intercept_: Vector = constant.copy()
        return self

    def decision_function(self, X: Any) -> Matrix:
        scores: Matrix = read_new(self, X) @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        scores = self.decision_function(X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        named: Array = self.classes_[chosen]
        return named

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Matrix:
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(special.softmax(scores, axis=1))
        chances = special.expit(scores)
        return np.column_stack([1.0 - chances, chances])

    @abstractmethod
    def _train(self, rows: Matrix, labels: Array, declared: tuple[Any, ...]) -> dp.DPRelease: ...

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
                penalty=penalty,
            ),
            epsilon=self.epsilon,
            delta=self.delta,
            simulate=self._noise_seed(),
        )


def _logistic_loss(declared: tuple[Any, ...]) -> dp.LinearLoss:
    return dp.Logistic(classes=declared) if len(declared) == 2 else dp.Softmax(classes=declared)


@dataclass(eq=False, repr=False, kw_only=True)
class DPSGDClassifier(DPLinearClassifier):
    """A linear classifier trained by DP-SGD; other settings as of ``DPLinearClassifier``.

    Parameters
    ----------
    loss : {"log_loss", "hinge"}
        Logistic loss, of several scores if there are more than two classes; the hinge loss is for
        two.
    alpha : float
        Penalty on the mean loss: ``alpha/2`` times the squared norm of the weights of scaled rows.
    sampling : {"poisson", "fixed", "replacement", "full"}
        How the records of a step are picked. Poisson batches protect against adding or removing
        a record, those of a fixed size against replacing one, full ones against ``neighbours``.
    batch_size : int, optional
        Records in a batch, on average for Poisson batches; by default the larger of 256 and a
        twentieth of all, at most all.
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
    """Logistic regression; other settings as of ``DPLinearClassifier``.

    Parameters
    ----------
    method : {"auto", "objective", "output", "descent"}
        A random linear term in the objective, or noise on the weights, both for two classes; or
        noisy gradients of all records (DP-GD). ``"auto"`` takes the objective for two classes and
        descent for more.
    C : float, optional
        Inverse of the penalty on the *sum* of losses, for rows divided by ``x_bound``. By default
        0.5 for the objective, or a sixth of its maximum at a small ``epsilon``; 0.1
        for the output, or ``epsilon/25``; no penalty for descent.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) + np.repeat([[0], [3]], 1000, axis=0)
    >>> y = np.repeat([0, 1], 1000)
    >>> DPLogisticRegression(x_bound=5.0, classes=(0, 1)).fit(X, y).score(X, y) > 0.9
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
        penalty = OUTPUT_PENALTY / epsilon
        if method == "objective":
            perturb = dp.objective_perturbation
            penalty = CURVATURES * dp.least_penalty(epsilon, x_bound=self._row_bound)
        return perturb(
            rows,
            labels,
            classes=declared,
            penalty=self._penalty(max(LEAST_PENALTY[method], penalty)),
            x_bound=self._row_bound,
            neighbours=self.neighbours,
            epsilon=self.epsilon,
            delta=self.delta,
            simulate=self._noise_seed(),
        )

    def _penalty(self, default: float) -> float:
        if self.C is None:
            return default
        return 1.0 / check_positive("C", self.C, advice="Use about 0.1.")


@dataclass(eq=False, repr=False)
class DPLinearRegression(RegressorMixin, DPBase):  # type: ignore[misc]
    """Linear regression from noisy statistics.

    Parameters
    ----------
    method : {"adassp", "statistics"}
        AdaSSP, which finds its penalty; or moments with noise and the penalty given.
    x_bound, y_bound : float
        Rows are clipped to this norm, targets to this absolute value; neither comes from the data.
    alpha : float, optional
        Penalty on the sum of squares, except for AdaSSP; by default it follows from the noise.
    """

    method: Literal["adassp", "statistics"] = "adassp"
    _: KW_ONLY
    y_bound: float | None = None
    alpha: float | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Clip the records, and release coefficients."""
        self._forget()
        bound = _check_bound("x_bound", self.x_bound)
        y_bound = _check_bound("y_bound", self.y_bound)
        features, target = read_dp_estimator_input(self, X, y, numeric=True)
        rows = self._clipped(features, bound)
        release = self._run(rows, self._row_bound * bound, target, y_bound)
        coef = release.value["coef"]
        if self.method == "adassp":
            release = replace(release, value=coef)
        self._keep(release)
        self.coef_: Vector = np.array(coef[: features.shape[1]])
        self.intercept_: float = float(coef[-1] * bound) if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any) -> Vector:
        return np.asarray(read_new(self, X) @ self.coef_ + self.intercept_)

    def _run(self, rows: Matrix, bound: float, target: Vector, y_bound: float) -> dp.DPRelease:
        fits: dict[str, Callable[..., dp.DPRelease]] = {
            "adassp": dp.adassp,
            "statistics": partial(dp.regression_from_statistics, penalty=self.alpha),
        }
        if self.method not in fits:
            raise MechanismError(
                f"method must be 'adassp' or 'statistics'; got {self.method!r}. Use 'adassp'."
            )
        return fits[self.method](
            rows,
            target,
            epsilon=self.epsilon,
            delta=self.delta,
            x_bound=bound,
            y_bound=y_bound,
            neighbours=self.neighbours,
            simulate=self._noise_seed(),
        )
