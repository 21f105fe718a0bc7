"""One release's share of a total: what is left, what is asked, what it costs in the end."""

from __future__ import annotations

from typing import Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.budget import AnyBudget, Information, Limits, Membership
from pacprivacy.errors import BudgetError, BudgetExceededError
from pacprivacy.noise import NoisePlan
from pacprivacy.theory.posterior import posterior_success

__all__ = ["as_budget", "charge_of", "check_left", "share_of", "tighter"]

ROUNDING: Final = 1e-9
ROUND_UP: Final = 1e-12


def tighter(first: Limits, second: Limits) -> Limits:
    """Return limits that meet both, ``None`` being none."""

    def least(*values: float | None) -> float | None:
        return min((value for value in values if value is not None), default=None)

    return Limits(
        mi_nats=least(first.mi_nats, second.mi_nats), success=least(first.success, second.success)
    )


def check_left(name: str, wanted: float | None, left: float | None) -> None:
    """Refuse a share that is not left."""
    if left is not None and left <= ROUNDING:
        raise BudgetExceededError(
            f"the session's {name} budget is used up. Nothing was drawn or spent."
        )
    if wanted is not None and left is not None and wanted > left * (1 + ROUNDING):
        raise BudgetExceededError(
            f"{name} must be at most what is left, {left:.6g}; got {wanted:.6g}. Nothing was "
            f"drawn or spent. Ask for less or end the session."
        )


def share_of(asked: Limits, left: Limits, prior: float) -> Limits:
    """Return the limits of one release: what was asked, never more than what is left.

    ``success`` is a level in what is asked, an increment in what is left and in the result.
    """
    increment = None if asked.success is None else asked.success - prior
    check_left("information", asked.mi_nats, left.mi_nats)
    check_left("membership increment", increment, left.success)
    if increment is not None and increment <= 0:
        raise BudgetError(
            f"success must be above {prior:.4g}, the best guess that this pool allows before any "
            f"release; got {asked.success:.4g}. Use a Balanced pool or a larger success."
        )
    return tighter(Limits(mi_nats=asked.mi_nats, success=increment), left)


def as_budget(share: Limits) -> AnyBudget:
    """Return the information part of a share; increments travel as caps."""
    if share.mi_nats is not None:
        return Information(share.mi_nats)
    assert share.success is not None  # a share limits something
    return Membership(min(0.5 + share.success, 1 - 1e-12))


def charge_of(plan: NoisePlan, share: Limits, before: Vector) -> Limits:
    """Return what a plan costs: its proved bounds, never more than its share.

    Where membership was not measured, the increment is what the information implies.
    """
    nats = max(0.0, plan.mi_upper)
    if share.success is None:
        return Limits(mi_nats=nats)
    if plan.membership is None:
        increments = posterior_success(nats, np.minimum(before, 1.0)) - before
    else:
        increments = plan.membership.upper_per_unit - before
    return Limits(
        mi_nats=nats, success=min(share.success, max(0.0, float(increments.max()) + ROUND_UP))
    )
