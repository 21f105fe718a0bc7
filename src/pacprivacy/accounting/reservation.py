"""A reservation: budget that is spent and may be used for one release."""

from __future__ import annotations

import threading
from typing import NoReturn

from pacprivacy._random import Process
from pacprivacy.accounting.ledger_chain import LedgerEntry
from pacprivacy.errors import LedgerError

__all__ = ["Reservation"]


class Reservation:
    """Spent budget in the hands of one process; it cannot be copied or pickled.

    Because there is one object in one process, and it is marked before the secret is touched,
    an unmarked one proves that nothing was drawn: only such a one can be cancelled.

    Examples
    --------
    >>> import tempfile
    >>> from pacprivacy.accounting import Charge, Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(folder.name + "/study.db")
    >>> _ = ledger.create_budget("people", limits=Charge(mi_nats=1))
    >>> reservation = ledger.reserve("people", "ann", Charge(mi_nats=1 / 4), "mean income")
    >>> reservation
    Reservation('mean income', unused)
    >>> ledger.cancel(reservation).kind
    'cancel'
    >>> folder.cleanup()
    """

    __slots__ = ("_lock", "_process", "_state", "entry", "ledger_id")

    def __init__(self, entry: LedgerEntry, ledger_id: str) -> None:
        self.entry = entry
        self.ledger_id = ledger_id
        self._process = Process()
        self._state = "unused"
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Reservation({self.entry.what!r}, {self._state})"

    def __reduce__(self) -> NoReturn:
        raise LedgerError(
            "a reservation must stay in its process; got a request to pickle or copy it. "
            "Reserve again."
        )

    def mark_used(self) -> None:
        """Say that the secret or the noise is about to be used; call it before, not after."""
        with self._lock:
            self._check()
            self._state = "used"

    def mark_cancelled(self) -> None:
        """Say that it will never be used; refuse if it was."""
        with self._lock:
            self._check()
            if self._state == "used":
                raise LedgerError(
                    "reservation must be unused to be cancelled; it was used, so it stays spent."
                )
            self._state = "cancelled"

    def _check(self) -> None:
        if not self._process.is_here:
            raise LedgerError(
                "reservation must be used by the process that made it; got another process, so "
                "it stays spent. Reserve again."
            )
        if self._state == "cancelled":
            raise LedgerError("reservation must be open; it was cancelled. Reserve again.")
