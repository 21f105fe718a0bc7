"""True information and noise against the budget, and how steep both are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector, as_outputs, check_log_belief, freeze
from pacprivacy._random import coerce_seed
from pacprivacy.adversary.information import exact_information
from pacprivacy.budget import Information
from pacprivacy.errors import BudgetError
from pacprivacy.noise import Rule, calibrate
from pacprivacy.residual.stackelberg import anisotropy


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCurve:
    """What a rule does at each budget; curator-only.

    Attributes
    ----------
    rule : str
        Public name of the rule.
    budgets, true_mi, noise, uneven : arrays of shape (n,)
        Budget and true information in nats, total noise variance, and
        :func:`~pacprivacy.residual.anisotropy` of the noise.

    Examples
    --------
    >>> outputs = np.repeat([[-1.0], [1.0]], 8, axis=0)
    >>> curve = budget_curve(outputs, [0.1, 0.2, 0.4], rule="waterfill", n_draws=20_000, rng=0)
    >>> bool((np.diff(curve.noise) < 0).all() and (np.diff(curve.true_mi) > 0).all())
    True
    """

    rule: str
    budgets: Vector
    true_mi: Vector
    noise: Vector
    uneven: Vector

    def __post_init__(self) -> None:
        for array in (self.budgets, self.true_mi, self.noise, self.uneven):
            freeze(array)

    @property
    def privacy_slope(self) -> Vector:
        """Nats of true information per nat of budget, between consecutive budgets.

        A rule that spends what it is given has slope 1. The log-determinant rules fall below it
        where outputs are not Gaussian: part of every further nat buys nothing.
        """
        slope: Vector = np.diff(self.true_mi) / np.diff(self.budgets)
        return slope

    @property
    def utility_slope(self) -> Vector:
        """Change of total noise per nat of budget, between consecutive budgets; negative."""
        slope: Vector = np.diff(self.noise) / np.diff(self.budgets)
        return slope

    @property
    def is_coherent(self) -> bool:
        """Whether a larger budget never has more noise (within 1 %, the search's grain)."""
        return bool((self.noise[1:] <= 1.01 * self.noise[:-1]).all())


def budget_curve(
    outputs: object,
    budgets: Sequence[float],
    *,
    rule: Rule = "exact",
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> BudgetCurve:
    """Calibrate at each budget and measure what the noise really tells.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate subset.
    budgets : sequence of float
        In nats, increasing.
    rule, log_belief
        As in :func:`pacprivacy.noise.calibrate`.
    n_draws : int, optional
        Simulated releases behind each true information.

    Examples
    --------
    >>> outputs = np.eye(3)[np.arange(30) % 3]
    >>> curve = budget_curve(outputs, [0.5, 1.0, 1.2], rule="waterfill", n_draws=20_000, rng=0)
    >>> float(curve.noise[-1]), bool(curve.privacy_slope[0] < 1)
    (0.0, True)
    """
    grid = np.asarray(budgets, dtype=np.float64)
    if grid.ndim != 1 or len(grid) < 2 or not (np.diff(grid) > 0).all():
        raise BudgetError(
            f"budgets must be at least two increasing numbers; got {len(grid)}. Sort them."
        )
    values, seed = as_outputs(outputs), coerce_seed(rng)
    log_p = check_log_belief(log_belief, len(values))
    plans = [calibrate(values, Information(b), rule=rule, log_belief=log_p, rng=seed) for b in grid]
    true_mi = [
        plan.mi_upper
        if plan.is_noiseless
        else exact_information(values, plan, log_belief=log_p, n_draws=n_draws, rng=seed).value
        for plan in plans
    ]
    return BudgetCurve(
        rule=plans[0].rule,
        budgets=grid,
        true_mi=np.array(true_mi),
        noise=np.array([plan.total_variance for plan in plans]),
        uneven=np.array([anisotropy(plan) for plan in plans]),
    )
