"""Any scikit-learn estimator, private."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, TypeVar

from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from pacprivacy._random import public_generator
from pacprivacy.budget import BudgetLike
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.estimators.base import DEFAULT_BUDGET, PrivateBase, plain_estimator_labels, read_new
from pacprivacy.mechanism import (
    EstimatorFit,
    MatrixLike,
    UnitLabels,
    Value,
    check_data_classes,
    choose_data_pool,
    estimator_takes_frames,
    is_data_table,
    last_estimator_step,
)

Method = TypeVar("Method", bound=Callable[..., Any])


def _if_it_has(name: str) -> Callable[[Method], Method]:
    """Show a method only where the estimator has one of that name."""

    def exists(self: PrivateEstimator) -> bool:
        getattr(self._delegate(), name)  # raises an AttributeError that names the estimator
        return True

    decorator: Callable[[Method], Method] = available_if(exists)
    return decorator


def _delegated(name: str, what: str) -> Any:
    """Return a method that exists where the estimator has it, and runs on the released one."""

    def method(self: PrivateEstimator, X: MatrixLike) -> Any:
        return self._call(name, self._check_new(X))

    method.__name__ = name
    method.__qualname__ = f"PrivateEstimator.{name}"
    method.__doc__ = f"Return {what}, by the released estimator."
    return _if_it_has(name)(method)


@dataclass(eq=False, repr=False)
class PrivateEstimator(PrivateBase):
    """Fit any estimator on a secret part of the records and release it with certified noise.

    ``predict``, ``predict_proba``, ``decision_function``, ``transform``, ``score`` and so on are
    there where the estimator has them, and use the released one: applying it costs no privacy.

    Parameters
    ----------
    estimator : scikit-learn estimator or pipeline
        What to fit. It is cloned, never fitted itself. Everything that is fitted inside it, such
        as a scaler in a pipeline, is measured and gets noise. A frame reaches a pipeline that
        begins with a ``ColumnTransformer``, an imputer or an encoder as it is, text and gaps
        included; categories of encoders must be declared. A step *before* this estimator in
        an outer pipeline is fitted on all records without noise: that is public in this model,
        and no certificate can name it, so say it where you publish.
    released : sequence of str, optional
        Fitted attributes to release, of the last step of a pipeline. By default they are known
        for the common linear models, k-means, PCA, Gaussian naive Bayes and scalers. Everything
        else that ``fit`` sets is dropped.

    Attributes
    ----------
    estimator_ : estimator
        The released one: parameters, released attributes with noise, classes, feature names.
    classes_ : array of shape (n_classes,)
        Labels that occur in the universe, if the estimator is a classifier.

    Notes
    -----
    Every ``fit`` is a release with a secret subset of its own, and information adds up: see
    :func:`~pacprivacy.estimators.search_cost` for a grid search. A search *inside* the estimator,
    as in ``RidgeCV`` or ``LogisticRegressionCV``, is part of one release.

    Guarantee
    ---------
    Claim E-1. After ``fit`` the estimator holds the released value, its certificate, and what is
    equal for all subsets; besides ``release_.bundle`` nothing computed from records without
    noise, and no record. A pickle or a copy holds no bundle.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PrivateEstimator(RidgeClassifier(), budget=pac.Information(0.5), n_subsets=32)
    >>> model.fit(X, y).predict(X[:2]).shape
    (2,)
    """

    estimator: Any
    _: KW_ONLY
    budget: BudgetLike = DEFAULT_BUDGET
    released: Sequence[str] | None = None

    predict = _delegated("predict", "predictions")
    predict_proba = _delegated("predict_proba", "probabilities of the classes")
    predict_log_proba = _delegated("predict_log_proba", "log probabilities of the classes")
    decision_function = _delegated("decision_function", "scores of the classes")
    transform = _delegated("transform", "transformed features")

    def _mechanism(self, seed: int | None) -> EstimatorFit:
        return EstimatorFit(
            estimator=clone(self.estimator, safe=False),
            released=_read_names(self.released),
            seed=0 if seed is None else int(public_generator(seed, "estimator").integers(2**31)),
        )

    def _rows(self, X: MatrixLike, checked: Any) -> Any:
        return X if is_data_table(X) else checked  # a frame's names reach what is fitted

    def _read(self, X: MatrixLike, y: MatrixLike, units: UnitLabels) -> tuple[Any, Any]:
        if not self._as_frame(X):
            return super()._read(X, y, units)
        validate_data(self, X=X, skip_check_array=True)  # notes the names of the columns
        if not get_tags(self).target_tags.required:
            return X, None
        if y is None:
            raise DataError("y must be given to this estimator; got None. Pass fit(X, y).")
        target = plain_estimator_labels(check_array(y, ensure_2d=False, dtype=None, input_name="y"))
        if not is_classifier(self):
            return (X, target), None
        check_data_classes(target)
        return (X, target), choose_data_pool(target, units)

    def _as_frame(self, X: MatrixLike) -> bool:
        """Whether the rows go to the estimator as they are, text and gaps included."""
        return is_data_table(X) and estimator_takes_frames(self.estimator)

    def _attributes(self, value: Value) -> dict[str, Any]:
        return {"estimator_": value}

    @_if_it_has("inverse_transform")
    def inverse_transform(self, X: MatrixLike) -> Any:
        """Return features in the original space, by the released estimator."""
        return self._call("inverse_transform", X)

    @_if_it_has("transform")
    def fit_transform(
        self, X: MatrixLike, y: MatrixLike = None, *, units: UnitLabels = None
    ) -> Any:
        """Fit, then transform the same records by the released estimator."""
        return self.fit(X, y, units=units).transform(X)

    @_if_it_has("fit_predict")
    def fit_predict(self, X: MatrixLike, y: MatrixLike = None, *, units: UnitLabels = None) -> Any:
        """Fit, then predict the same records by the released estimator."""
        return self.fit(X, y, units=units).predict(X)

    @_if_it_has("score")
    def score(self, X: MatrixLike, y: MatrixLike = None) -> Any:
        """Return the score of the released estimator."""
        X = self._check_new(X)
        return self._call("score", X) if y is None else self._call("score", X, y)

    @_if_it_has("get_feature_names_out")
    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the transformed features."""
        return self._call("get_feature_names_out", input_features)

    @_if_it_has("set_output")
    def set_output(self, *, transform: Any = None) -> Self:
        """Choose the container that ``transform`` returns, as in scikit-learn."""
        self.estimator.set_output(transform=transform)
        if hasattr(self, "estimator_"):
            self.estimator_.set_output(transform=transform)
        return self

    @property
    def classes_(self) -> Any:
        """Labels of the classes, if the estimator is a classifier."""
        return self.estimator_.classes_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        for name in (
            "estimator_type",
            "classifier_tags",
            "regressor_tags",
            "transformer_tags",
            "input_tags",
        ):
            setattr(tags, name, getattr(inner, name))
        tags.target_tags = get_tags(last_estimator_step(self.estimator)).target_tags
        tags.input_tags.sparse = tags.input_tags.allow_nan = False
        return tags

    def _delegate(self) -> Any:
        return getattr(self, "estimator_", self.estimator)

    def _check_new(self, X: MatrixLike) -> Any:
        if self._as_frame(X):
            check_is_fitted(self)
            return validate_data(self, X=X, reset=False, skip_check_array=True)
        return self._rows(X, read_new(self, X, dtype="numeric"))

    def _call(self, name: str, *arguments: Any) -> Any:
        check_is_fitted(self)
        try:
            return getattr(self.estimator_, name)(*arguments)
        except AttributeError as error:
            steps = [step for _, step in getattr(self.estimator_, "steps", ())]
            ours = any(error.obj is model for model in (self.estimator_, *steps))
            if not (ours or isinstance(error, NotFittedError)):
                raise
            raise MechanismError(
                f"{name} must need no more than the released attributes; got one that needs "
                f"{error.name or 'another'}. Name what it reads in released=[...], or use another "
                "method."
            ) from error


def _read_names(released: Sequence[str] | None) -> tuple[str, ...] | None:
    if released is None:
        return None
    if isinstance(released, str) or not all(isinstance(name, str) for name in released):
        raise MechanismError(
            f"released must be a sequence of attribute names; got {type(released).__name__}. "
            "Write released=['coef_', 'intercept_']."
        )
    return tuple(released)
