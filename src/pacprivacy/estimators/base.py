"""What private estimators share: checked data, ``fit``, and what may leave of a fitted one."""

import inspect
import re
import warnings
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import get_tags

from pacprivacy._checks import Array
from pacprivacy._sklearn import Fitted, read_new as read_new, read_seed as read_seed, validate
from pacprivacy.budget import AnyBudget, Membership, as_budget
from pacprivacy.mechanism import (
    MINIMUM_ROWS,
    MatrixLike,
    Mechanism,
    UnitLabels,
    Value,
    check_data_classes,
    choose_data_pool,
    split_data_units,
)
from pacprivacy.noise import AnyRule
from pacprivacy.privatizing import privatize
from pacprivacy.release import Certificate, Release
from pacprivacy.sample import Pool, PoolStrategy
from pacprivacy.session import Accuracy


def _read_features(estimator: Any, X: MatrixLike) -> Array:
    """Check the features of ``fit``, and note their number and names on the estimator."""
    features: Array = validate(estimator, least=MINIMUM_ROWS, X=X)
    return features


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


DEFAULT_BUDGET: Final = Membership(0.6)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateBase(Fitted, ABC):
    """What private estimators share; parameters and attributes are added to their docstrings.

    Parameters
    ----------
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
    sample : Pool or strategy, optional
        Which subsets are candidates. By default random halves and their complements, of every
        class if there are classes.
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
        says that such a release protects nobody.
    target : Accuracy, optional
        Stop spending once the estimator is good enough on public data: its ``score``, or
        ``metric(estimator, *on)``. ``budget`` is then the most that may be spent.
    levels : int, optional
        Number of looks when there is a target.

    Attributes
    ----------
    certificate_ : Certificate
        What is promised, to whom, how it was proved.
    release_ : Release
        The released value with its certificate and the curator's bundle. The bundle holds
        outputs without noise: it is for the curator alone, and the attribute is left out when
        the estimator is pickled or copied.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    sample: Pool | PoolStrategy | None = None
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
        self._release(mechanism, data, sample=sample, units=units, rng=seed)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return what may leave of a fitted estimator, and everything of an unfitted one."""
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
        """Check the data; return what the mechanism gets, and the pool it needs."""
        tags = get_tags(self).target_tags
        if not tags.required:
            return self._rows(X, _read_features(self, X)), None
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
        """Run :func:`pacprivacy.privatize` with the settings, and adopt what it releases."""
        parameters = self.get_params(deep=False)
        options = {field.name: parameters[field.name] for field in fields(PrivateBase)}
        drawn = sample if self.sample is None or isinstance(sample, Pool) else self.sample
        options |= {"sample": drawn, "units": units}
        del options["random_state"]
        if self.target is not None:
            options["target"] = replace(self.target, metric=self._judge)
        release = privatize(mechanism, data, self._limit, rng=rng, **options)
        self.certificate_: Certificate = release.certificate
        self.release_: Release = release
        self._adopt(release.value)

    @property
    def _limit(self) -> AnyBudget:
        return as_budget(self.get_params(deep=False)["budget"])

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
        """Return what is computed, with this estimator's parameters."""


def _warn_of_search(kind: str) -> None:
    """Say what a search costs, if it is one that fits."""
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
