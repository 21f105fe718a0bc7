"""Ridge regression as a private estimator, regularised for the noise to come."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from pacprivacy.budget import AnyBudget, Membership, limits_of
from pacprivacy.design import JointRidge, OrthogonalRidge, Penalty, Snr, predict_ridge
from pacprivacy.errors import MechanismError
from pacprivacy.estimators.base import PrivateBase, read_new, read_seed, read_supervised
from pacprivacy.mechanism import Mechanism, coerce_data
from pacprivacy.noise import as_rule, propose_variance
from pacprivacy.pool import Pool
from pacprivacy.simulation import draw_candidates, run_mechanism

_DEFAULT: Final = Membership(0.6)


@dataclass(eq=False, repr=False)
class PrivateRidge(RegressorMixin, PrivateBase):  # type: ignore[misc]
    """Ridge regression released with certified noise, with a penalty that knows of the noise.

    Parameters
    ----------
    penalty : "conscious", "post-hoc" or float
        ``conscious`` multiplies the penalty that is best without privacy by ``1 + C``, ``C`` the
        variance of the noise over that of the fits: ``d/2B`` for ``B`` nats of information. For a
        budget on membership alone ``C`` is found on the pool, from fits with the post-hoc penalty.
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
        mechanism = self._mechanism(self._penalty())
        data = read_supervised(self, X, y, numeric=True)
        seed = read_seed(self.random_state)
        pool = None
        if self._waits_for_noise():
            pool, aim = self._noise_to_come(mechanism, data, units, seed)
            mechanism = self._mechanism(Penalty(mi_nats=aim, snr=self.snr))
            units = None  # they are in the pool
        self._release(mechanism, data, pool=pool, units=units, rng=seed)
        return self

    def _adopt(self, value: Any) -> None:
        self.coef_: npt.NDArray[np.float64] = value["coef"]
        self.intercept_: float = value["intercept"]

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the predictions of the released coefficients."""
        rows = read_new(self, X)
        return predict_ridge({"coef": self.coef_, "intercept": self.intercept_}, rows)

    def _waits_for_noise(self) -> bool:
        """Whether the penalty depends on noise that only the pool can tell."""
        by_membership = limits_of(self.budget).mi_nats is None
        return self.penalty == "conscious" and by_membership and not as_rule(self.rule).n_reserve

    def _noise_to_come(
        self, mechanism: Mechanism, data: Any, units: Any, seed: int | None
    ) -> tuple[Pool, float | None]:
        """Draw the pool; return it with the information budget that asks for as much noise.

        A function of the fits on all candidates, and not of the secret, which is drawn later.
        """
        universe = coerce_data(data)
        pool, _ = draw_candidates(
            mechanism,
            universe,
            self.pool,
            n_subsets=self.n_subsets,
            units=units,
            checkpoint=self.checkpoint,
            rng=seed,
        )
        fits = run_mechanism(mechanism, universe, pool, n_jobs=1, rng=seed, progress=False).values
        noise = propose_variance(fits, self.budget, pool=pool, rule=self.rule, rng=seed)
        spread = float(fits.var(axis=0).sum())
        return pool, None if noise == 0.0 else fits.shape[1] * spread / (2.0 * noise)

    def _mechanism(self, penalty: Penalty | float) -> Mechanism:
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
