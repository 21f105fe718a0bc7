"""What the named estimators share: a mechanism of the library behind scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import is_classifier

from pacprivacy.estimators.base import PrivateBase, read_seed
from pacprivacy.estimators.inputs import (
    read_features,
    read_supervised,
)
from pacprivacy.mechanism import Mechanism
from pacprivacy.mechanism.labels import check_classes, choose_pool

__all__ = ["PrivateModel"]


class PrivateModel(PrivateBase):
    """A mechanism of the library with scikit-learn's interface."""

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:
        """Fit on every candidate subset, then release one of the fits with noise.

        Parameters
        ----------
        X : array or frame of shape (n_records, n_features)
            The universe of records.
        y : array of shape (n_records,)
            Labels, if this is a classifier; else ignored.
        units : array of shape (n_records,), optional
            Group label of each record, when a person has several records.

        Raises
        ------
        DataError, PoolError, MechanismError, BudgetError
            Nothing was released.
        """
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
