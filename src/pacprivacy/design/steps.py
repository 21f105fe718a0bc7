"""Step sizes and budgets of a descent, chosen before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.design.objective import Objective
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.theory.descent import (
    descent_shares,
    descent_step,
    descent_step_exact,
    subset_mean_variance,
)
from pacprivacy.theory.design import noise_ratio

__all__ = ["Shares", "StepRule", "split_budget"]

Shares: TypeAlias = Literal["uniform", "late"] | npt.ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepRule:
    """One step size for each coordinate, from the error bound ``J`` (claim D-4).

    Parameters
    ----------
    mi_nats : float, public, optional
        The information budget of the whole descent; None gives the *post-hoc* step sizes, which
        are best without privacy.
    start_error : "universe", float or array, public
        Squared distance of each coordinate from its optimum at the start: that of the fit on the
        whole universe (default; the certificate says so), or given.
    exact : bool, public
        Minimise ``J`` itself instead of the paper's approximation.

    Examples
    --------
    >>> StepRule(mi_nats=0.25, start_error=1.0).exact
    False
    """

    mi_nats: float | None = None
    start_error: Literal["universe"] | npt.ArrayLike = "universe"
    exact: bool = False

    def __post_init__(self) -> None:
        if self.mi_nats is not None:
            check_positive("mi_nats", self.mi_nats, advice="Use the budget of the descent.")

    def choose(self, objective: Objective, X: Matrix, targets: Matrix, *, n_steps: int) -> Matrix:
        """Return step sizes of the shape of the weights, at most ``1/L``.

        The gradient's variance is that of a Poisson(1/2) subset at the start, in closed form
        (claim D-5). Everything comes from the universe: public, whatever the secret is.
        """
        start = np.zeros((X.shape[1], *targets.shape[1:]))
        spread = objective.gradient_spread(X, targets, start)
        ratio = 0.0
        if self.mi_nats is not None:
            ratio = float(noise_ratio(self.mi_nats, n_dimensions=start.size, n_steps=n_steps))
        find = descent_step_exact if self.exact else descent_step
        steps = find(
            start_error=self._start_error(objective, X, targets),
            gradient_var=subset_mean_variance(spread, len(X)),
            convexity=objective.l2,
            n_steps=n_steps,
            ratio=ratio,
            largest=1.0 / objective.smoothness(X),
        )
        return np.broadcast_to(steps, start.shape).copy()

    def describe(self) -> str:
        """Return one public sentence for the certificate."""
        aim = "without regard to the noise" if self.mi_nats is None else "for the noise to come"
        known = "given from outside"
        if isinstance(self.start_error, str):
            known = "that of the fit on the whole universe"
        return (
            f"step sizes: chosen {aim}, from the gradient's variance and the smoothness over the "
            f"whole universe and a distance to go, {known}; they do not depend on the secret"
        )

    def _start_error(self, objective: Objective, X: Matrix, targets: Matrix) -> npt.ArrayLike:
        if not isinstance(self.start_error, str):
            return self.start_error
        if self.start_error != "universe":
            raise MechanismError(
                f"start_error must be 'universe' or numbers; got {self.start_error!r}. "
                "Leave it out to take it from the universe."
            )
        return np.square(objective.minimise(X, targets))


def split_budget(
    mi_nats: float, n_steps: int, *, shares: Shares = "uniform", step: float = 0.0, l2: float = 1.0
) -> Vector:
    """Return the budget of each step; they sum to at most ``mi_nats``.

    Parameters
    ----------
    mi_nats : float > 0, public
        Total.
    n_steps : int >= 1, public
        Number of steps.
    shares : "uniform", "late" or array of shape (T,), public
        ``late`` gives later steps more, as the bound ``J`` asks for at this ``step`` and ``l2``
        (claim D-4); numbers are positive shares of any sum.
    """
    total = check_positive("mi_nats", mi_nats, advice="Use about 0.02.")
    if isinstance(shares, str) and shares not in ("uniform", "late"):
        raise BudgetError(
            f"shares must be 'uniform', 'late' or one number for each step; got {shares!r}. "
            "Use 'uniform'."
        )
    if isinstance(shares, str) and shares == "late":
        parts = descent_shares(step, convexity=l2, n_steps=n_steps)
    elif isinstance(shares, str):
        parts = np.ones(n_steps)
    else:
        parts = np.asarray(shares, dtype=np.float64)
    if parts.shape != (n_steps,) or not (np.isfinite(parts).all() and (parts > 0).all()):
        raise BudgetError(
            f"shares must be {n_steps} positive numbers, one for each step; got shape "
            f"{parts.shape}. Use 'uniform'."
        )
    # A little less than all, so that the rounded sum does not exceed the total.
    budgets: Vector = (1.0 - 1e-12) * total * (parts / parts.sum())
    return budgets
