"""Parts of scikit-learn for all estimators: checks of features, seeds, searches."""

from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from pacprivacy._checks import Array
from pacprivacy._random import coerce_seed
from pacprivacy.errors import DataError

_LEAVES: Final = (type, str, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


class Fitted(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators: a fit has a certificate."""

    simulate: bool
    random_state: Any

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "certificate_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = not (self.simulate and self.random_state is not None)
        return tags

    def _forget(self) -> None:
        """Drop an earlier fit, so that a failed fit leaves nothing."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)


def validate(estimator: Any, *, least: int = 1, **data: Any) -> Any:
    """Run scikit-learn's checks without messages that quote records."""
    problem = ""
    try:
        checked = validate_data(estimator, ensure_min_samples=least, order="C", **data)
        features = checked[0] if isinstance(checked, tuple) else checked
        if features.dtype.kind in "biuf":
            return checked
    except ValueError as error:
        problem = str(error)
        if not any(quoting in problem for quoting in ("array=", "convert string", "bytes/str")):
            if "\n" not in problem:
                raise
            raise DataError(f"{problem.partition(chr(10))[0]} Drop or fill such rows.") from None
    if "array=" in problem:
        raise DataError(
            "X must have two axes, records and features; got another number of axes. Reshape your "
            "data, with X.reshape(-1, 1) if there is one feature."
        )
    raise DataError(
        "X must hold numbers; got strings. Encode these columns, or drop them: an encoder fitted "
        "on all records is public, one inside the estimator is part of what is measured."
    )


def read_new(estimator: Any, X: Any, *, dtype: Any = np.float64, gaps: bool = False) -> Array:
    """Check features that a fitted estimator is applied to; refuse one that is not fitted."""
    check_is_fitted(estimator)
    finite: Any = "allow-nan" if gaps else True
    features: Array = validate(estimator, X=X, reset=False, dtype=dtype, ensure_all_finite=finite)
    return features


def read_seed(random_state: Any) -> int | None:
    """Return the seed that a caller gave as ``random_state``; None stays None."""
    if random_state is None:
        return None
    if hasattr(random_state, "randint"):  # numpy's RandomState, as scikit-learn allows
        return int(random_state.randint(2**31 - 1))
    return coerce_seed(random_state)


def find_inside(root: Any, kind: Any) -> Iterator[Any]:
    """Yield every object of a kind that can be reached from an object, not looking into it."""
    visited: set[int] = set()
    queue = [root]
    while queue:
        item = queue.pop(0)
        if id(item) in visited or hasattr(item, "__array__") or isinstance(item, _LEAVES):
            continue
        visited.add(id(item))
        if isinstance(item, kind):
            yield item
        elif isinstance(item, dict):
            queue.extend(item.values())
        elif isinstance(item, list | tuple | set):
            queue.extend(item)
        elif hasattr(item, "__dict__"):
            queue.extend(vars(item).values())
