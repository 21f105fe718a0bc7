"""Linear models as private estimators, with scikit-learn's parameter names."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from scipy import special
from sklearn.base import (
    ClassifierMixin,
    RegressorMixin,
)

from pacprivacy import design
from pacprivacy._checks import Array, Matrix, Vector, check_positive
from pacprivacy._sklearn import read_new
from pacprivacy.budget import budget_limits
from pacprivacy.errors import MechanismError
from pacprivacy.estimators.private_estimator import PrivateBase
from pacprivacy.mechanism import (
    Descent,
    LinearSVM,
    LossName,
    MatrixLike,
    Mechanism,
    UnitLabels,
    Value,
)
from pacprivacy.release import Certificate
from pacprivacy.sample import Balanced, Coins

POOL_PENALTY: Final = 0.1


def _has_coins(model: PrivateBase) -> bool:
    """Whether every unit had a coin in a fit."""
    certificate: Certificate | None = model.certificate_  # None in a trial
    return certificate is not None and certificate.sampling != "pool"


@dataclass(eq=False, repr=False, kw_only=True)
class _LinearModel(PrivateBase):
    """A linear model, by descent with coins where that is possible, else from a pool.

    Parameters
    ----------
    method : {"auto", "descent", "pool"}
        ``descent`` gives every unit a coin and pays for gradients, see
        :class:`pacprivacy.Descent`; ``pool`` fits every candidate. "auto" is descent from 200 units
        on where the budget limits membership alone and no setting of a pool is given.
    clip : float or None
        With descent, features are clipped to so many deviations, in ``fit`` and ``predict``.
    n_steps : int
        Steps of descent.
    radius : float or "auto"
        Norm to which descent shortens gradients, see :class:`pacprivacy.Descent`.
    errors : bool
        Measure standard errors of a single score by descent: ``release_.to_frame()`` has intervals
        then. Gradients are shortened less.

    Attributes
    ----------
    method_ : {"descent", "pool"}
        Method of the fit.
    lower_, upper_ : arrays of shape (n_features,)
        Where features are clipped; infinite where they are not.
    """

    method: Literal["auto", "descent", "pool"] = "auto"
    clip: float | None = 4.0
    n_steps: int = 60
    radius: float | Literal["auto"] = "auto"
    errors: bool = False

    @property
    def method_(self) -> Literal["descent", "pool"]:
        """Method of the fit."""
        return "descent" if _has_coins(self) else "pool"

    @abstractmethod
    def _descent(self, n_records: int) -> Descent:
        """Return the descent with this estimator's parameters."""

    def _descend(self, loss: LossName, penalty: float, level: float = 0.5) -> Descent:
        return Descent(
            loss=loss,
            level=level,
            penalty=penalty,
            n_steps=self.n_steps,
            radius=self.radius,
            clip=self.clip,
            errors=self.errors,
        )

    def _scores(self, X: MatrixLike) -> Matrix:
        """Return the scores of rows, shape (n, scores)."""
        rows = np.clip(read_new(self, X), self.lower_, self.upper_)
        return np.asarray(rows @ np.atleast_2d(self.coef_).T + self.intercept_)

    def _attributes(self, value: Value) -> dict[str, Any]:
        unclipped = np.full(np.shape(value["coef"])[-1], np.inf)
        if "classes" in value:
            value = {**value, "classes": np.asarray(value["classes"])}
        return super()._attributes({"lower": -unclipped, "upper": unclipped, **value})

    def _read(self, X: MatrixLike, y: MatrixLike, units: UnitLabels) -> tuple[Any, Any]:
        data, sample = super()._read(X, y, units)
        return data, Balanced(folds="auto") if sample is None else sample

    def _with_coins(self, mechanism: Mechanism, data: Any) -> Descent:
        return self._descent(len(data[0]))

    def _takes_coins(self, data: Any, units: UnitLabels) -> bool:
        if self.method not in ("auto", "descent", "pool"):
            raise MechanismError(
                f"method must be 'auto', 'descent' or 'pool'; got {self.method!r}. Use 'auto'."
            )
        if isinstance(self.sample, Coins) or self.method == "descent":
            return True
        return self.method == "auto" and super()._takes_coins(data, units)


class _LinearClassifier(ClassifierMixin, _LinearModel):  # type: ignore[misc]
    """Predictions of released hyperplanes.

    Attributes
    ----------
    coef_, intercept_ : arrays of shapes (n_classes, n_features) and (n_classes,)
        Released, for the features as they were given; one row if there are two classes.
    classes_ : array of shape (n_classes,)
        Labels that occur in the table.
    """

    def decision_function(self, X: MatrixLike) -> Matrix:
        """Return the score of every class, or one score if there are two."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: MatrixLike) -> Array:
        """Return the class with the highest score."""
        scores = self.decision_function(X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        named: Array = self.classes_[chosen]
        return named


class _LinearRegressor(RegressorMixin, _LinearModel):  # type: ignore[misc]
    """Predictions of released coefficients.

    Attributes
    ----------
    coef_, intercept_ : array of shape (n_features,) and float
        Released, for the features as they were given.
    """

    def _mechanism(self, seed: int | None) -> Mechanism:
        return self._descent(0)

    def _attributes(self, value: Value) -> dict[str, Any]:
        flat = {"coef": value["coef"][0], "intercept": float(value["intercept"][0])}
        return super()._attributes({**value, **flat})

    def predict(self, X: MatrixLike) -> Vector:
        """Return the predictions of the released coefficients."""
        return self._scores(X)[:, 0]


@dataclass(eq=False, repr=False)
class PrivateLinearSVC(_LinearClassifier):
    """Linear support vector machine, one against the rest, released with certified noise.

    Parameters
    ----------
    C : float
        Inverse strength of the penalty. A small one needs less noise.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0], [9]], 100, axis=0)
    >>> y = np.repeat(["no", "yes"], 100)
    >>> model = PrivateLinearSVC(1e-3, budget=pac.Information(0.5), n_subsets=32).fit(X - 4.5, y)
    >>> model.score(X - 4.5, y) > 0.9
    True
    """

    C: float = 1.0

    def _mechanism(self, seed: int | None) -> LinearSVM:
        return LinearSVM(C=self.C)

    def _descent(self, n_records: int) -> Descent:
        penalty = 1.0 / (check_positive("C", self.C, advice="Use 1.") * n_records)
        return self._descend("hinge", penalty)


@dataclass(eq=False, repr=False)
class PrivateLogisticRegression(_LinearClassifier):
    """Logistic regression, released with certified noise.

    Parameters
    ----------
    alpha : float, optional
        Penalty on the weights of the standardised features, ``alpha/2 |w|²`` beside the *mean*
        loss as in ``SGDClassifier``. More of it needs less noise. By default 0 with descent, where
        the number of steps limits weights, and 0.1 from a pool. Several classes have the softmax
        loss.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(400, 2)) + np.repeat([[0], [3]], 200, axis=0)
    >>> y = np.repeat(["no", "yes"], 200)
    >>> model = PrivateLogisticRegression(budget="membership<=0.75").fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    alpha: float | None = None

    def predict_proba(self, X: MatrixLike) -> Matrix:
        """Return probabilities of the classes."""
        scores = self._scores(X)
        if scores.shape[1] == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        return np.asarray(special.softmax(scores, axis=1))

    def _mechanism(self, seed: int | None) -> design.LogisticFit:
        penalty = POOL_PENALTY if self.alpha is None else self.alpha
        return design.LogisticFit(penalty=penalty)

    def _descent(self, n_records: int) -> Descent:
        return self._descend("logistic", self.alpha or 0.0)


@dataclass(eq=False, repr=False)
class PrivatePoissonRegressor(_LinearRegressor):
    """Poisson regression of counts with a log link, released with certified noise.

    Parameters
    ----------
    alpha : float
        Penalty on the weights of the scaled features, as in ``PoissonRegressor``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = rng.poisson(np.exp(X @ [0.5, -0.5] + 1.0))
    >>> model = PrivatePoissonRegressor(budget="membership<=0.6").fit(X, y)
    >>> bool(model.coef_[0] > 0.3)
    True
    """

    alpha: float = 0.0

    def predict(self, X: MatrixLike) -> Vector:
        """Return the expected counts of the released coefficients."""
        return np.asarray(np.exp(super().predict(X)))

    def _descent(self, n_records: int) -> Descent:
        return self._descend("poisson", self.alpha)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


@dataclass(eq=False, repr=False)
class PrivateQuantileRegressor(_LinearRegressor):
    """Linear regression of a quantile of the target, released with certified noise.

    Parameters
    ----------
    quantile : float
        Share of targets that lie below the prediction.
    alpha : float
        Penalty ``alpha/2 |w|²`` beside the mean loss, on weights of the scaled features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 1))
    >>> model = PrivateQuantileRegressor(0.9, budget="membership<=0.6")
    >>> below = model.fit(X, X[:, 0] + rng.normal(size=2000)).predict(X)
    >>> below.shape
    (2000,)
    """

    quantile: float = 0.5
    _: KW_ONLY
    alpha: float = 0.0

    def _descent(self, n_records: int) -> Descent:
        return self._descend("quantile", self.alpha, self.quantile)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearRegression(RegressorMixin, PrivateBase):  # type: ignore[misc]
    """Least squares, released with certified noise.

    From 200 units on every unit has a coin, where the budget limits membership alone and no setting
    of a pool is given; ``release_.to_frame()`` then has intervals.

    Parameters
    ----------
    universe_facts : bool
        Publish the exact mean of the target over all records through the intercept, instead of
        measuring that of the sample; the certificate says so.

    Attributes
    ----------
    coef_, intercept_ : array of shape (n_features,) and float
        Released, for the features as they were given.
    method_ : {"influence", "pool"}
        Method of the fit.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = X @ [1.0, -2.0] + 5.0
    >>> model = PrivateLinearRegression(budget="membership<=0.6").fit(X, y)
    >>> model.method_, model.score(X, y) > 0.9
    ('influence', True)
    """

    universe_facts: bool = False

    @property
    def method_(self) -> Literal["influence", "pool"]:
        """Method of the fit."""
        return "influence" if _has_coins(self) else "pool"

    def predict(self, X: MatrixLike) -> Vector:
        """Return the predictions of the released coefficients."""
        predicted: Vector = read_new(self, X) @ self.coef_ + self.intercept_
        return predicted

    def _mechanism(self, seed: int | None) -> design.OrthogonalRidge:
        return self._with_penalty(0.0)

    def _with_penalty(self, penalty: design.RidgePenalty | float) -> design.OrthogonalRidge:
        return design.OrthogonalRidge(penalty=penalty, universe_facts=self.universe_facts)

    def _with_coins(self, mechanism: Mechanism, data: Any) -> Mechanism:
        assert isinstance(mechanism, design.OrthogonalRidge)  # see _mechanism
        # With one penalty for all coordinates no rotation changes the fit: none is searched.
        rotated = isinstance(mechanism.penalty, design.RidgePenalty)
        return mechanism if rotated else replace(mechanism, transform="whitening")


@dataclass(eq=False, repr=False)
class PrivateRidge(PrivateLinearRegression):
    """Ridge regression released with certified noise, with a penalty that knows of the noise.

    Parameters
    ----------
    alpha : "conscious", "post-hoc" or float
        Penalty on the coefficients of independent components. ``conscious`` multiplies the one that
        is best without privacy by ``1 + C``, ``C`` the variance of the noise over that of the fits:
        ``d/2B`` for ``B`` nats of information. For a budget on membership alone it is ``post-hoc``:
        the noise is small beside the fits.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = X @ [1.0, -2.0] + 5.0
    >>> model = PrivateRidge(budget=pac.Information(0.5), n_subsets=32).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    alpha: Literal["conscious", "post-hoc"] | float = "conscious"

    def _mechanism(self, seed: int | None) -> design.OrthogonalRidge:
        if not isinstance(self.alpha, str):
            return self._with_penalty(self.alpha)
        if self.alpha not in ("conscious", "post-hoc"):
            raise MechanismError(
                f"alpha must be 'conscious', 'post-hoc' or a number; got {self.alpha!r}. "
                "Use 'conscious'."
            )
        aim = budget_limits(self.budget).mi_nats if self.alpha == "conscious" else None
        return self._with_penalty(design.RidgePenalty(mi_nats=aim))
