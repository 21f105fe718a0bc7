"""Composition as the slides of [CS208] have it, for comparison: ``dp.account`` never needs more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import dp_accounting
import numpy as np

N_ORDERS: Final = 200


def advanced_composition(
    epsilon: float, delta: float, *, n_runs: int, slack: float
) -> tuple[float, float]:
    """Return what ``n_runs`` adaptive runs of ``(ε, δ)`` cost together.

    ``ε sqrt(2T ln(1/δ')) + T ε (e^ε - 1)`` at ``T δ + δ'``, ``δ'`` the slack.
    """
    total = epsilon * math.sqrt(2 * n_runs * math.log(1 / slack))
    return total + n_runs * epsilon * math.expm1(epsilon), n_runs * delta + slack


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedCurve:
    """``(ρ, ω)``-tCDP: Rényi divergences of order ``α`` are at most ``ρ α`` for ``1 < α <= ω``."""

    rho: float
    omega: float

    def compose(self, other: TruncatedCurve) -> TruncatedCurve:
        """Return the curve of both mechanisms together."""
        return TruncatedCurve(rho=self.rho + other.rho, omega=min(self.omega, other.omega))

    def epsilon(self, delta: float) -> float:
        """Return the least ``ρ α + ln(1/δ)/(α - 1)``: the best order, or the last one."""
        loss = math.log(1 / delta)
        order = min(self.omega, 1.0 + math.sqrt(loss / self.rho))
        return self.rho * order + loss / (order - 1.0)


def truncated_curve(event: Any, *, omega: float) -> TruncatedCurve:
    """Return the least ``ρ`` of an event of dp_accounting, from its Rényi accountant.

    Divergences increase with their order, so between two orders the upper one bounds them.
    """
    orders = np.geomspace(1.0 + 1.0 / N_ORDERS, omega, N_ORDERS)
    accountant = dp_accounting.rdp.RdpAccountant(orders)
    divergences = accountant.compose(event).rdp
    below = np.concatenate([[1.0], orders[:-1]])
    return TruncatedCurve(rho=float(np.max(divergences / below)), omega=omega)
