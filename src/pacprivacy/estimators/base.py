"""What ``fit`` is given: features and targets checked as scikit-learn checks them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils.validation import check_is_fitted, validate_data

from pacprivacy._random import coerce_seed
from pacprivacy.errors import DataError
from pacprivacy.mechanism import MINIMUM_ROWS, Mechanism, check_classes, choose_pool
from pacprivacy.noise import AnyRule
from pacprivacy.pool import Pool, PoolStrategy
from pacprivacy.privatizing import privatize
from pacprivacy.release import Certificate, Release
from pacprivacy.session import Accuracy

Numbers = npt.NDArray[Any]
Labels = npt.NDArray[Any]


def read_features(estimator: Any, X: Any) -> Numbers:
    """Check the features of ``fit``, and note their number and names on the estimator."""
    features: Numbers = _validate(estimator, X=X)
    return features


def read_supervised(
    estimator: Any, X: Any, y: Any, *, numeric: bool = False, wide: bool = False
) -> tuple[Numbers, Labels]:
    """Check features and target of ``fit``."""
    features, target = _validate(estimator, X=X, y=y, y_numeric=numeric, multi_output=wide)
    return features, _plain_labels(target)


def read_new(estimator: Any, X: Any, *, dtype: Any = np.float64) -> Numbers:
    """Check features that a fitted estimator is applied to; refuse one that is not fitted."""
    check_is_fitted(estimator)
    features: Numbers = _validate(estimator, X=X, reset=False, dtype=dtype)
    return features


def _validate(estimator: Any, **data: Any) -> Any:
    """Run scikit-learn's checks, without those of its messages that quote records."""
    least = MINIMUM_ROWS if data.get("reset", True) else 1
    problem = ""
    try:
        checked = validate_data(estimator, ensure_min_samples=least, order="C", **data)
        features = checked[0] if isinstance(checked, tuple) else checked
        if features.dtype.kind in "biuf":
            return checked
    except ValueError as error:
        problem = str(error)
        if not any(quoting in problem for quoting in ("array=", "convert string", "bytes/str")):
            raise
    if "array=" in problem:
        raise DataError(
            "X must have two axes, records and features; got another number of axes. Reshape your "
            "data, with X.reshape(-1, 1) if there is one feature."
        )
    raise DataError(
        "X must hold numbers; got strings. Encode these columns, or drop them: an encoder fitted "
        "on all records is public, one inside the estimator is part of what is measured."
    )


def _plain_labels(y: Labels) -> Labels:
    """Give labels that came in an object array their own type."""
    if y.dtype.kind != "O" or all(isinstance(label, str) for label in y.flat):
        return y
    plain = np.array(y.tolist())
    return plain if plain.dtype.kind in "biuf" else y


_LEAVES: Final = (type, str, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
Kind = TypeVar("Kind")


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateBase(BaseEstimator):  # type: ignore[misc]
    """Settings of every private estimator, beside its ``budget``.

    Parameters
    ----------
    pool : Pool or strategy, optional
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
        Progress bar on stderr; by default only on a terminal.
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
    """

    pool: Pool | PoolStrategy | None = None
    n_subsets: int | None = None
    rule: AnyRule | None = None
    n_jobs: int | None = None
    checkpoint: str | Path | None = None
    random_state: Any = None
    progress: bool | None = None
    simulate: bool = False
    target: Accuracy | None = None
    levels: int | None = None

    _curator_only: ClassVar[tuple[str, ...]] = ("release_",)

    def __getstate__(self) -> dict[str, Any]:
        """Return what may leave of a fitted estimator, and everything of an unfitted one."""
        state = dict(super().__getstate__())
        if "certificate_" not in state:  # unfitted: it may be on its way to a worker
            return state
        for name in self._curator_only:
            state.pop(name, None)
        if isinstance(self.pool, Pool):
            state["pool"] = None
        for name, value in state.items():
            if name in self._get_param_names() and hasattr(value, "get_params"):
                state[name] = clone(value)  # a parameter might have been fitted elsewhere
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "certificate_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = not (self.simulate and self.random_state is not None)
        return tags

    def _forget(self) -> None:
        """Drop an earlier fit, so that a failure never leaves two halves of different ones."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _release(
        self, mechanism: Any, data: Any, *, pool: Any, units: Any, rng: int | None
    ) -> None:
        """Run :func:`pacprivacy.privatize` with the settings, and adopt what it releases."""
        given = self.get_params(deep=False)
        settings = {field.name: given[field.name] for field in fields(PrivateBase)}
        wanted = pool if self.pool is None or isinstance(pool, Pool) else self.pool
        settings |= {"pool": wanted, "units": units}
        del settings["random_state"]
        if self.target is not None:
            settings["target"] = replace(self.target, metric=self._judge)
        release = privatize(mechanism, data, given["budget"], rng=rng, **settings)
        self.certificate_: Certificate = release.certificate
        self.release_: Release = release
        self._adopt(release.value)

    def _judge(self, value: Any, *on: Any) -> Any:
        """Return the figure of merit that a released value would give this estimator."""
        assert self.target is not None  # only then is anything judged
        trial = copy(self)
        trial._adopt(value)
        trial.certificate_ = None  # type: ignore[assignment]
        metric = self.target.metric
        return trial.score(*on) if metric is None else metric(trial, *on)

    def _adopt(self, value: Any) -> None:
        """Set the fitted attributes, given the released value alone."""
        raise NotImplementedError


def read_seed(random_state: Any) -> int | None:
    """Return the seed that a caller gave as ``random_state``; None stays None."""
    if random_state is None:
        return None
    if hasattr(random_state, "randint"):  # numpy's RandomState, as scikit-learn allows
        return int(random_state.randint(2**31 - 1))
    return coerce_seed(random_state)


def find_inside(root: Any, kind: type[Kind]) -> Iterator[Kind]:
    """Yield every object of a kind that can be reached from an object, not looking into it."""
    seen: set[int] = set()
    queue = [root]
    while queue:
        item = queue.pop(0)
        if id(item) in seen or hasattr(item, "__array__") or isinstance(item, _LEAVES):
            continue
        seen.add(id(item))
        if isinstance(item, kind):
            yield item
        elif isinstance(item, dict):
            queue.extend(item.values())
        elif isinstance(item, list | tuple | set):
            queue.extend(item)
        elif hasattr(item, "__dict__"):
            queue.extend(vars(item).values())


class PrivateModel(PrivateBase):
    """A mechanism of the library with scikit-learn's interface."""

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:
        """Fit on every candidate subset, then release one of the fits with noise."""
        self._forget()
        mechanism = self._mechanism()
        data: Any
        if is_classifier(self):
            data = read_supervised(self, X, y)
            check_classes(data[1])
            pool = choose_pool(data[1], units)
        else:
            data, pool = read_features(self, X), None
        seed = read_seed(self.random_state)
        self._release(mechanism, data, pool=pool, units=units, rng=seed)
        return self

    def _adopt(self, value: Any) -> None:
        for name, attribute in self._attributes(value).items():
            setattr(self, name, attribute)

    def _mechanism(self) -> Mechanism:
        """Return what is computed, with this estimator's parameters."""
        raise NotImplementedError

    def _attributes(self, value: Any) -> dict[str, Any]:
        """Return the fitted attributes, given the released value alone."""
        raise NotImplementedError
