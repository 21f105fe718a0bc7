"""Private estimators: common base, any scikit-learn estimator as one, cost of a search.

Every fit is a release. A grid search fits a private model for every candidate and fold, and looks
at all of them: the certificate of the best model alone would hide the others.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_array, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from pacprivacy import dp
from pacprivacy._checks import Array
from pacprivacy._random import public_generator
from pacprivacy._sklearn import Fitted, find_inside, read_new, read_seed, validate
from pacprivacy.adversary import DEFAULT_GAMMA
from pacprivacy.budget import BudgetLike, Membership, Spent, budget_limits
from pacprivacy.dp.estimators import DPBase
from pacprivacy.errors import CertificateError, DataError, MechanismError
from pacprivacy.mechanism import (
    MINIMUM_ROWS,
    EstimatorFit,
    MatrixLike,
    Mechanism,
    UnitLabels,
    Value,
    check_data_classes,
    choose_data_pool,
    estimator_takes_frames,
    is_data_table,
    last_estimator_step,
    split_data_units,
)
from pacprivacy.noise import AnyRule, as_rule
from pacprivacy.privatizing import privatize
from pacprivacy.release import Certificate, Release
from pacprivacy.sample import Balanced, Coins, Pool, PoolStrategy
from pacprivacy.session import FEWEST_UNITS, SUBSETS_BATCHED, Accuracy
from pacprivacy.theory import posterior_success

DEFAULT_BUDGET: Final = Membership(0.6)
DISCRETIZATION: Final = 1e-3
Method = TypeVar("Method", bound=Callable[..., Any])


def read_estimator_input(
    estimator: Any,
    X: MatrixLike,
    y: MatrixLike,
    *,
    numeric: bool = False,
    wide: bool = False,
    gaps: bool = False,
) -> tuple[Array, Array]:
    """Check features and target of ``fit``; features may have gaps where a model accepts them."""
    features, target = validate(
        estimator,
        least=MINIMUM_ROWS,
        X=X,
        y=y,
        y_numeric=numeric,
        multi_output=wide,
        ensure_all_finite="allow-nan" if gaps else True,
    )
    return features, plain_estimator_labels(target)


def plain_estimator_labels(y: Array) -> Array:
    """Give labels that came in an object array their own type."""
    if y.dtype.kind != "O" or all(isinstance(label, str) for label in y.flat):
        return y
    plain = np.array(y.tolist())
    return plain if plain.dtype.kind in "biuf" else y


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateBase(Fitted, ABC):
    """Common base of private estimators; parameters and attributes are added to their docstrings.

    Parameters
    ----------
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        Limits on every attacker.
    sample : Pool, strategy or Coins, optional
        Which subsets are candidates. By default random halves and their complements, of every
        class if there are classes. ``pac.Coins()`` where the influence of one unit is known.
    n_subsets : int, optional
        Number of candidates.
    rule : str or rule object, optional
        How noise is found; the least certified noise by default.
    n_jobs : int, optional
        Worker processes, through joblib.
    checkpoint : path, optional
        File from which an interrupted ``fit`` goes on.
    random_state : int, Generator or RandomState, optional
        Seed of *public* randomness: the pool, the fits, the proof. Never of the secret subset
        or of the noise, so that two fits with one seed still differ.
    progress : bool, optional
        ``False`` hides the progress bar that a terminal shows.
    simulate : bool
        Take the secret and the noise from ``random_state`` too. For experiments: the certificate
        says that such a release protects no one.
    target : Accuracy, optional
        Stop spending once the estimator is good enough on public data: its ``score``, or
        ``metric(estimator, *on)``. ``budget`` is then the most that may be spent.
    levels : int, optional
        Number of looks when there is a target.

    Attributes
    ----------
    certificate_ : Certificate
        Promise, attackers and proof.
    release_ : Release
        The released value with its certificate and the curator's bundle. The bundle holds
        outputs without noise: it is for the curator alone, and the attribute is left out when
        the estimator is pickled or copied.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    budget: BudgetLike = DEFAULT_BUDGET
    sample: Pool | PoolStrategy | Coins | None = None
    n_subsets: int | None = None
    rule: AnyRule | None = None
    n_jobs: int | None = None
    checkpoint: str | Path | None = None
    random_state: Any = None
    progress: bool | None = None
    simulate: bool = False
    target: Accuracy | None = None
    levels: int | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        sections = _sections(cls.__doc__)
        if "Parameters" in sections:
            bases = [base for base in cls.__mro__[1:] if issubclass(base, PrivateBase)]
            for shared in (_sections(base.__doc__) for base in bases):
                for name in shared.keys() & {"Parameters", "Attributes"}:
                    sections[name] = f"{sections.get(name, '')}\n{shared[name]}".lstrip()
            cls.__doc__ = "\n\n".join(
                f"{name}\n{'-' * len(name)}\n{text}" if name else text
                for name, text in sections.items()
            )

    def fit(self, X: MatrixLike, y: MatrixLike = None, *, units: UnitLabels = None) -> Self:
        """Fit on every candidate subset, then release one of the fits with noise.

        ``X`` and ``y`` are all records; ``y`` is ignored unless the estimator requires one.
        ``units`` is whose record each is, where a person has several: labels, or the column of a
        frame ``X`` that holds them, which is then no feature. If this raises, nothing was released.
        """
        self._forget()
        _warn_of_search(type(self).__name__)
        X, units = split_data_units(X, units)
        seed = read_seed(self.random_state)
        mechanism = self._mechanism(seed)
        data, sample = self._read(X, y, units)
        with_coins = self._with_coins(mechanism, data)
        if with_coins is not None and self._takes_coins(data, units):
            mechanism = with_coins
            sample = self.sample if isinstance(self.sample, Coins) else Coins()
        self._release(mechanism, data, sample=sample, units=units, rng=seed)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the released part of a fitted estimator, and everything of an unfitted one."""
        state = dict(super().__getstate__())
        if "certificate_" not in state:  # unfitted: it may be on its way to a worker
            return state
        state.pop("release_", None)
        if isinstance(self.sample, Pool):
            state["sample"] = None
        for name, value in state.items():
            if name in self._get_param_names() and hasattr(value, "get_params"):
                state[name] = clone(value)  # a parameter might have been fitted elsewhere
        return state

    def _read(self, X: MatrixLike, y: MatrixLike, units: UnitLabels) -> tuple[Any, Any]:
        """Check the data; return the input of the mechanism, and its pool."""
        tags = get_tags(self).target_tags
        if not tags.required:
            return self._rows(X, validate(self, least=MINIMUM_ROWS, X=X)), None
        features, y = read_estimator_input(
            self, X, y, numeric=is_regressor(self), wide=tags.multi_output
        )
        data = (self._rows(X, features), y)
        if not is_classifier(self):
            return data, None
        check_data_classes(y)
        return data, choose_data_pool(y, units)

    def _rows(self, X: MatrixLike, checked: Array) -> Any:
        return checked

    def _release(
        self, mechanism: Any, data: Any, *, sample: Any, units: UnitLabels, rng: int | None
    ) -> None:
        """Run :func:`pacprivacy.privatize` with the settings, and adopt the release."""
        options = {field.name: getattr(self, field.name) for field in fields(PrivateBase)}
        drawn = sample if self.sample is None or isinstance(sample, Pool) else self.sample
        options |= {"sample": drawn, "units": units}
        if isinstance(drawn, Coins):
            options["n_jobs"] = None  # one pass in one process
        del options["random_state"]
        if self.target is not None:
            options["target"] = replace(self.target, metric=self._judge)
        release = privatize(mechanism, data, rng=rng, **options)
        self.certificate_: Certificate = release.certificate
        self.release_: Release = release
        self._adopt(release.value)

    def _with_coins(self, mechanism: Mechanism, data: Any) -> Mechanism | None:
        """Return the mechanism for coins; None: it has a pool by default."""
        return None

    def _takes_coins(self, data: Any, units: UnitLabels) -> bool:
        """Whether every unit has a coin: on request, or where nothing asks for a pool.

        By default there must be enough units, and a limit on membership alone.
        """
        if isinstance(self.sample, Coins):
            return True
        by_pool = (self.sample, self.n_subsets, self.rule, self.checkpoint, self.target)
        limits = budget_limits(self.budget)
        alone = limits.mi_nats is None and limits.success_level is not None
        if not alone or any(setting is not None for setting in (*by_pool, self.levels)):
            return False
        n_rows = len(data[0] if isinstance(data, tuple) else data)
        n_units = n_rows if units is None else len(np.unique(np.asarray(units)))
        return n_units >= FEWEST_UNITS

    def _judge(self, value: Value, *on: Any) -> Any:
        """Return the figure of merit that a released value would give this estimator."""
        assert self.target is not None  # only then is anything judged
        trial = copy(self)
        trial._adopt(value)
        trial.certificate_ = None  # type: ignore[assignment]
        metric = self.target.metric
        return trial.score(*on) if metric is None else metric(trial, *on)

    def _adopt(self, value: Value) -> None:
        for name, attribute in self._attributes(value).items():
            setattr(self, name, attribute)

    def _attributes(self, value: Value) -> dict[str, Any]:
        """Return the fitted attributes, given the released value alone."""
        return {f"{name}_": array for name, array in value.items()}

    @abstractmethod
    def _mechanism(self, seed: int | None) -> Mechanism:
        """Return the mechanism with this estimator's parameters."""


def _warn_of_search(kind: str) -> None:
    """State the cost of a search, if it is one that fits."""
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if frame.f_code.co_name == "fit" and isinstance(caller, BaseSearchCV):
            if not hasattr(caller, "_pac_shown"):
                caller._pac_shown = True
                warnings.warn(
                    f"every fit of a search is a release of {kind}, and they add up. Ask "
                    "pacprivacy.estimators.search_cost(search) what it has cost.",
                    stacklevel=3,
                )
            return
        frame = frame.f_back


def _sections(doc: str | None) -> dict[str, str]:
    """Split a NumPy docstring at its headings; what stands before the first has the name ''."""
    first, *rest = re.split(r"\n\n(\w+)\n-+\n", inspect.cleandoc(doc or ""))
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


# --- any estimator -------------------------------------------------------------------------------


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
        Estimator to fit. It is cloned, never fitted itself. Everything that is fitted inside it,
        such as a scaler in a pipeline, is measured and gets noise. A frame reaches a pipeline that
        begins with a ``ColumnTransformer``, an imputer or an encoder as it is, text and gaps
        included; categories of encoders must be declared. A step *before* this estimator in an
        outer pipeline is fitted on all records without noise: that is public in this model, and no
        certificate can name it, so say it where you publish.
    released : sequence of str, optional
        Fitted attributes to release, of the last step of a pipeline. By default they are known
        for the common linear models, k-means, PCA, Gaussian naive Bayes and scalers. Everything
        else that ``fit`` sets is dropped.

    Attributes
    ----------
    estimator_ : estimator
        The released one: parameters, released attributes with noise, classes, feature names.
    classes_ : array of shape (n_classes,)
        Labels that occur in the table, if the estimator is a classifier.

    Notes
    -----
    Every ``fit`` is a release with a new secret subset, and information adds up: see
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


# --- searches ------------------------------------------------------------------------------------


def search_cost(search: Any, *, delta: float | None = None) -> Spent:
    """Add up the possible releases of a fitted search over private estimators.

    Every fit counts at its whole budget, also one that raised, since the caller may have seen
    what was released. Where a budget limits only membership, its information counts at
    ``ln(n_subsets)``. ``delta`` is that of the total, for differential privacy; the sum over all
    fits by default.

    Guarantee
    ---------
    Claim E-2. The secrets of all fits together, and all that the search released, have mutual
    information at most ``mi_nats``; the best guess of one record's membership in one given fit
    succeeds at most with ``success_level``. Both hold except with probability ``gamma`` over the
    draws of the proofs. Claim DP-23 for differential privacy: all fitted models together are
    ``(epsilon, delta)``-private; scores on private records and the choice made by them are not
    covered.

    Examples
    --------
    >>> import numpy as np
    >>> from pacprivacy.dp import DPLinearRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(120, 2))
    >>> model = DPLinearRegression("statistics", x_bound=2.0, y_bound=1.0)
    >>> search = GridSearchCV(model, {"alpha": [1.0, 10.0]}, cv=2)
    >>> search_cost(search.fit(X, X[:, 0])).n_releases
    5
    """
    check_is_fitted(search)
    candidates = [_cost_of_fit(search, params) for params in search.cv_results_["params"]]
    fits = [cost for cost in candidates for _ in range(search.n_splits_)]
    if search.refit:  # of the candidate that costs most: the choice depends on the other fits
        fits.append(_largest(candidates))
    total = sum(fits[1:], fits[0])
    return total if total.epsilon is None else _compose(search, fits, total, delta)


def _cost_of_fit(search: Any, params: Any) -> Spent:
    model = clone(search.estimator).set_params(**clone(params, safe=False))
    steps = [step for _, step in getattr(model, "steps", [("", model)])]
    private = [step for step in steps if isinstance(step, PrivateBase | DPBase)]
    others = [step for step in steps if not isinstance(step, PrivateBase | DPBase)]
    if not private or any(True for _ in find_inside(others, PrivateBase | DPBase)):
        raise CertificateError(
            f"search must be over a private estimator or a pipeline of them; got "
            f"{type(model).__name__}, whose number of releases is not known. Search over the "
            "private estimator itself."
        )
    if len({isinstance(step, DPBase) for step in private}) > 1:
        raise CertificateError(
            f"estimator must be private in one sense; got a {type(model).__name__} with PAC "
            "and DP steps, whose costs do not add up. Search over one of them."
        )
    costs = [_allowed(step) for step in private]
    return sum(costs[1:], costs[0])


def _allowed(model: PrivateBase | DPBase) -> Spent:
    """Return the budget of one fit of a private estimator."""
    if isinstance(model, DPBase):
        return Spent(n_releases=1, epsilon=float(model.epsilon), delta=float(model.delta))
    rule = as_rule(model.rule)
    if rule.n_reserve:
        raise CertificateError(
            f"search must use a rule for a finite pool to be counted by its budget; got "
            f"{rule.name!r}. Use rule='risk' or 'waterfill'."
        )
    limits = budget_limits(model.budget)
    n_subsets = model.n_subsets or getattr(model.sample, "n_subsets", None) or SUBSETS_BATCHED
    nats = math.log(n_subsets)  # nobody learns more than the secret itself
    nats = nats if limits.mi_nats is None else min(nats, limits.mi_nats)
    success = limits.success_level
    if success is None:
        even = model.sample is None or isinstance(model.sample, Balanced)
        success = posterior_success(nats, 0.5) if even else 1.0
    return Spent(n_releases=1, mi_nats=nats, success_level=success, gamma=DEFAULT_GAMMA)


def _largest(costs: list[Spent]) -> Spent:
    amounts = [asdict(cost) for cost in costs]
    first = amounts[0]
    return Spent(**{name: first[name] and max(each[name] for each in amounts) for name in first})


def _compose(search: Any, fits: list[Spent], total: Spent, delta: float | None) -> Spent:
    """Compose the promises of all fits, or add them up if that is less."""
    best = getattr(search, "best_estimator_", None)
    relations = {model.certificate_.neighbours for model in find_inside(best, DPBase)}
    searched = {name.split("__")[-1] for params in search.cv_results_["params"] for name in params}
    if len(relations) != 1 or searched & {"neighbours", "sampling"}:
        raise CertificateError(
            "search must tell which neighbours its fits are about; got none, or several. Use "
            "refit=True and one setting of neighbours and sampling."
        )
    assert total.epsilon is not None  # of differential privacy
    assert total.delta is not None
    at = total.delta if delta is None else float(delta)
    events = [
        dp.ApproximateEvent(epsilon=fit.epsilon or 0.0, delta=fit.delta)
        if fit.delta
        else dp.PureEvent(epsilon=fit.epsilon or 0.0)
        for fit in fits
    ]
    epsilon = dp.account(
        events, delta=at, neighbours=relations.pop(), discretization=DISCRETIZATION
    ).best[1]
    least = min(epsilon, total.epsilon) if at >= total.delta else epsilon
    return replace(total, epsilon=least, delta=at)
