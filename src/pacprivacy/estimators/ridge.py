"""Ridge regression as a private estimator, regularised for the noise to come."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from pacprivacy.budget import AnyBudget, Membership, limits_of
from pacprivacy.design import JointRidge, OrthogonalRidge, Penalty, predict_ridge
from pacprivacy.design.penalty import Snr
from pacprivacy.errors import MechanismError
from pacprivacy.estimators.base import PrivateBase, read_seed
from pacprivacy.estimators.inputs import read_new, read_supervised
from pacprivacy.mechanism import Mechanism

__all__ = ["PrivateRidge"]

_DEFAULT: Final = Membership(0.6)


@dataclass(eq=False, repr=False)
class PrivateRidge(RegressorMixin, PrivateBase):  # type: ignore[misc]
    """Ridge regression released with certified noise, with a penalty that knows of the noise.

    Parameters
    ----------
    penalty : "conscious", "post-hoc" or float
        ``conscious`` multiplies the penalty that is best without privacy by ``1 + d/2B``, ``B``
        the information budget in nats; it is the least error of the *released* coefficients. A
        budget on membership alone needs far less noise than that, and gets the post-hoc penalty.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
    snr : "universe", float or Oracle
        Squared coefficient over target noise, where the penalty is not a number: estimated on
        all records (default; the certificate says so), a constant, or known from elsewhere.
    form : {"orthogonal", "joint"}
        One coefficient at a time in independent components, or all at once.
    pool, n_subsets, rule, n_jobs, checkpoint, random_state, progress, simulate, target, levels
        As in :class:`~pacprivacy.estimators.base.PrivateBase`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Released coefficients of the features as they were given.
    intercept_ : float
        Makes the mean prediction over the universe equal to the mean target, which is public.
    certificate_, release_, n_features_in_, feature_names_in_
        As in :class:`~pacprivacy.PrivateEstimator`.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = X @ [1.0, -2.0] + 5.0
    >>> model = PrivateRidge(budget=pac.Information(0.5), n_subsets=32).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    penalty: Literal["conscious", "post-hoc"] | float = "conscious"
    budget: AnyBudget = _DEFAULT
    _: KW_ONLY
    snr: Snr = "universe"
    form: Literal["orthogonal", "joint"] = "orthogonal"

    def fit(self, X: Any, y: Any, *, units: Any = None) -> Self:
        """Fit on every candidate subset, then release one of the fits with noise.

        Parameters
        ----------
        X : array or frame of shape (n_records, n_features)
            The universe of records.
        y : array of shape (n_records,)
            Target.
        units : array of shape (n_records,), optional
            Group label of each record, when a person has several records.

        Raises
        ------
        DataError, PoolError, MechanismError, BudgetError
            Nothing was released.
        """
        self._forget()
        mechanism = self._mechanism()
        data = read_supervised(self, X, y, numeric=True)
        seed = read_seed(self.random_state)
        self._release(mechanism, data, pool=None, units=units, rng=seed)
        return self

    def _adopt(self, value: Any) -> None:
        self.coef_: npt.NDArray[np.float64] = value["coef"]
        self.intercept_: float = value["intercept"]

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the predictions of the released coefficients."""
        rows = read_new(self, X)
        return predict_ridge({"coef": self.coef_, "intercept": self.intercept_}, rows)

    def _mechanism(self) -> Mechanism:
        penalty = self._penalty()
        if self.form == "joint":
            return JointRidge(penalty=penalty)
        if self.form == "orthogonal":
            return OrthogonalRidge(penalty=penalty)
        raise MechanismError(
            f"form must be 'orthogonal' or 'joint'; got {self.form!r}. Use 'orthogonal'."
        )

    def _penalty(self) -> Penalty | float:
        if not isinstance(self.penalty, str):
            return self.penalty
        if self.penalty not in ("conscious", "post-hoc"):
            raise MechanismError(
                f"penalty must be 'conscious', 'post-hoc' or a number; got {self.penalty!r}. "
                "Use 'conscious'."
            )
        aim = limits_of(self.budget).mi_nats if self.penalty == "conscious" else None
        return Penalty(mi_nats=aim, snr=self.snr)
