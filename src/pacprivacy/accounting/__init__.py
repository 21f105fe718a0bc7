"""Many releases of one secret: belief, budgets that add up, an odometer, and the ledger of it all.

The ledger's names are imported on first use: SQLAlchemy takes a while, and a session without a
ledger does not need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pacprivacy.accounting.amounts import Charge
from pacprivacy.accounting.session import Odometer, Session
from pacprivacy.accounting.target import Accuracy, Look

if TYPE_CHECKING:
    from pacprivacy.accounting.account import certificate_digest
    from pacprivacy.accounting.gradual import GradualRelease
    from pacprivacy.accounting.ledger import Ledger
    from pacprivacy.accounting.ledger_budget import Balance
    from pacprivacy.accounting.ledger_chain import LedgerEntry, Verification
    from pacprivacy.accounting.reservation import Reservation

__all__ = [
    "Accuracy",
    "Balance",
    "Charge",
    "GradualRelease",
    "Ledger",
    "LedgerEntry",
    "Look",
    "Odometer",
    "Reservation",
    "Session",
    "Verification",
    "certificate_digest",
]

_LATER = {
    "Balance": "ledger_budget",
    "GradualRelease": "gradual",
    "Ledger": "ledger",
    "LedgerEntry": "ledger_chain",
    "Reservation": "reservation",
    "Verification": "ledger_chain",
    "certificate_digest": "account",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
