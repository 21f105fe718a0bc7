"""One release's share of a total: what is left, and what is asked."""

from __future__ import annotations

from typing import Final

from pacprivacy.budget import AnyBudget, Information, Limits, Membership
from pacprivacy.errors import BudgetError, BudgetExceededError

__all__ = ["as_budget", "check_left", "share_of", "tighter"]

ROUNDING: Final = 1e-9


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
