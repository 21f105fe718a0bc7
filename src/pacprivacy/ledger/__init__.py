"""Budgets and spends: entries chained by hashes, in SQLite or PostgreSQL.

The ledger itself is imported on first use: SQLAlchemy takes a while.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pacprivacy.ledger.entries import LedgerEntry, Verification

if TYPE_CHECKING:
    from pacprivacy.ledger.ledger import Balance, Ledger, Reservation, SessionPlace

__all__ = ["Balance", "Ledger", "LedgerEntry", "Reservation", "SessionPlace", "Verification"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("pacprivacy.ledger.ledger"), name)
