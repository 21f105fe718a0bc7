"""What a budget allows, what is left of it, and whether a spend fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from pacprivacy.accounting.amounts import FAMILIES, KINDS, Charge, Units
from pacprivacy.accounting.ledger_chain import LedgerEntry
from pacprivacy.accounting.ledger_store import Line, budgets_covering, spent
from pacprivacy.errors import BudgetError, BudgetExceededError, LedgerError

__all__ = ["Balance", "balance_of", "check_spend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """One budget: what it allows and what is spent; every field is public.

    Examples
    --------
    >>> import tempfile
    >>> from pacprivacy.accounting import Charge, Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(folder.name + "/study.db")
    >>> _ = ledger.create_budget("people", limits=Charge(mi_nats=1))
    >>> _ = ledger.reserve("people", "ann", Charge(mi_nats=1 / 4), "mean income")
    >>> [balance] = ledger.balances()
    >>> balance.left("mi_nats")
    0.75
    >>> folder.cleanup()
    """

    dataset: str
    principal: str
    limits: Units
    spent: Units

    def left(self, kind: str) -> float | None:
        """Return what is left of one kind, never below zero; ``None`` where there is no limit."""
        limit = getattr(self.limits, kind)
        if limit is None:
            return None
        gone = getattr(self.spent, kind) or 0
        return Units(**{kind: max(0, limit - gone)}).amount(kind)

    def to_public_dict(self) -> dict[str, Any]:
        """Return the budget as plain JSON types."""
        return {
            "dataset": self.dataset,
            "principal": self.principal,
            "limits": self.limits.to_dict(),
            "spent": self.spent.to_dict(),
            "left": {kind: self.left(kind) for kind in KINDS},
        }


def balance_of(connection: Connection, budget: LedgerEntry) -> Balance:
    """Return a budget with what is spent of it."""
    return Balance(
        dataset=budget.dataset,
        principal=budget.principal,
        limits=budget.units,
        spent=spent(connection, budget),
    )


def check_spend(connection: Connection, line: Line, charge: Charge) -> None:
    """Refuse a spend that no budget covers, or that takes one above its limits.

    Guarantee
    ---------
    Claim K-2. Assumes that the caller holds the write lock until the spend is written or given
    up. Returns only if every budget that covers the spend has room for it in every kind.
    """
    budgets = budgets_covering(connection, line.dataset, line.principal)
    limited = {name for budget in budgets for name, _ in budget.units.items()}
    for family in FAMILIES:
        if any(charge.states(name) for name in family):
            _check_family(family, charge, limited, f"dataset {line.dataset!r}")
    for budget in budgets:
        _check_room(budget, line.units, spent(connection, budget))


def _check_family(family: tuple[str, ...], charge: Charge, limited: set[str], whose: str) -> None:
    """Refuse a spend that no budget limits, or that hides what a budget limits."""
    if not limited.intersection(family):
        raise LedgerError(
            f"{whose} must have a budget of {' or '.join(family)} that covers this spend; it has "
            f"none. Make one with 'pac ledger create'."
        )
    for name in family:
        if name in limited and not charge.states(name):
            raise BudgetError(
                f"charge must state {name}, which a budget of {whose} limits; got none. "
                f"Calibrate against both."
            )


def _check_room(budget: LedgerEntry, wanted: Units, gone: Units) -> None:
    for name, limit in budget.units.items():
        asked = getattr(wanted, name) or 0
        left = max(0, limit - (getattr(gone, name) or 0))
        if asked > left:
            shown = Units(**{name: left}).amount(name)
            raise BudgetExceededError(
                f"{name} must be at most what is left of the budget of dataset "
                f"{budget.dataset!r} for principal {budget.principal!r}, {shown:.6g}; got "
                f"{wanted.amount(name):.6g}. Nothing was spent. Ask for less."
            )
