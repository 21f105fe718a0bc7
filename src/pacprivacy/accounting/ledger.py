"""The ledger: what has been spent on each dataset, by whom, never more than was allowed.

reserve -> release -> commit. A reservation is on the disk before the secret or the noise is used,
and counts as spent from then on; the commit names the certificate of the release.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pacprivacy._random import fresh_seed
from pacprivacy.accounting.amounts import Charge, Units
from pacprivacy.accounting.files import write_atomically
from pacprivacy.accounting.ledger_budget import Balance, balance_of, check_spend
from pacprivacy.accounting.ledger_chain import EVERY, EntryKind, LedgerEntry, Verification
from pacprivacy.accounting.ledger_check import verify_database
from pacprivacy.accounting.ledger_database import Database
from pacprivacy.accounting.ledger_schema import LEDGER, open_database, read_head
from pacprivacy.accounting.ledger_store import (
    Line,
    append,
    budgets_covering,
    last_reservation,
    read_entries,
    settled,
    tally,
)
from pacprivacy.accounting.reservation import Reservation
from pacprivacy.errors import BudgetError, LedgerError

__all__ = ["Balance", "Ledger"]

EXPORT_VERSION: Final = 1
_LONGEST_NAME: Final = 200
_LOCK: Final = f"SELECT id FROM {LEDGER.name} WHERE id = 1 FOR UPDATE"


class Ledger:
    """A book of budgets and spends that many processes can write at once.

    Parameters
    ----------
    where : path or URL
        A SQLite file, made if it is not there, or ``postgresql://user@host/name``.
    create : bool
        Whether to make the ledger where there is none.
    timeout_s : float
        How long to wait for other writers.

    Raises
    ------
    LedgerError
        If it is something else, damaged, read-only, locked, or of a newer version.

    Guarantee
    ---------
    Claim K-1. What :meth:`reserve` returned is on the disk; no crash takes it back.
    Claim K-2. At every moment, for every budget and kind, the sum of what is reserved and not
    cancelled is at most the limit, for any number of processes.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(folder.name + "/study.db")
    >>> _ = ledger.create_budget("people", limits=Charge(mi_nats=1))
    >>> reservation = ledger.reserve("people", "ann", Charge(mi_nats=1 / 4), "mean income")
    >>> _ = ledger.commit(reservation, "0" * 64)
    >>> ledger.balance("people", "ann")[0].left("mi_nats")
    0.75
    >>> ledger.verify().ok
    True
    >>> folder.cleanup()
    """

    def __init__(self, where: str | Path, *, create: bool = True, timeout_s: float = 60.0) -> None:
        self._database = Database(where, create=create, timeout_s=timeout_s)
        self._head = open_database(self._database, create=create)

    def __repr__(self) -> str:
        return f"Ledger({self._database.label!r})"

    @property
    def label(self) -> str:
        """Path or URL without its password."""
        return self._database.label

    @property
    def path(self) -> Path | None:
        """The file; ``None`` on a server."""
        return self._database.path

    @property
    def ledger_id(self) -> str:
        """The name that the ledger was given when it was made."""
        return self._head.ledger_id

    def create_budget(self, dataset: str, principal: str = EVERY, *, limits: Charge) -> LedgerEntry:
        """Set what may be spent on a dataset by a principal; it cannot be changed later.

        ``"*"`` stands for all principals (or datasets) together. Principals who may talk to each
        other need a budget for all of them: budgets of their own do not limit what they learn
        together.
        """
        line = Line(
            kind="budget",
            dataset=_name("dataset", dataset),
            principal=_name("principal", principal),
            units=Units.allowed(limits),
        )
        with self._database.writing(lock=_LOCK) as connection:
            for known in budgets_covering(connection, dataset, principal):
                if (known.dataset, known.principal) == (dataset, principal):
                    raise BudgetError(
                        f"dataset {dataset!r} must not have a budget for principal {principal!r} "
                        f"yet; it has one. Budgets cannot be changed: use another name."
                    )
            return append(connection, line)

    def reserve(
        self,
        dataset: str,
        principal: str,
        charge: Charge,
        what: str,
        *,
        session: str | None = None,
        name: str | None = None,
        simulation: bool = False,
    ) -> Reservation:
        """Spend before anything is drawn; the result allows one release.

        ``name`` is that of the reservation, from :meth:`new_name` and used once, for whoever has
        to write it down before; it is found here by default.

        Raises
        ------
        BudgetExceededError
            If a budget that covers this spend has less left. Nothing is written.
        LedgerError
            If no budget covers it, or for a simulation, which protects nobody.
        """
        if simulation:
            raise LedgerError(
                "a ledger must hold real releases only; got a simulation. Leave out the ledger, "
                "or simulate=True."
            )
        line = Line(
            kind="reserve",
            dataset=_name("dataset", dataset, every=False),
            principal=_name("principal", principal, every=False),
            units=Units.charged(charge),
            session=session,
            reservation=self.new_name() if name is None else _name("name", name),
            what=_plain(what),
        )
        with self._database.writing(lock=_LOCK) as connection:
            assert line.reservation is not None  # named above
            if settled(connection, line.reservation):
                raise LedgerError("name must be new; got that of a reservation. Use new_name().")
            check_spend(connection, line, charge)
            entry = append(connection, line)
        return Reservation(entry, self.ledger_id)

    @staticmethod
    def new_name() -> str:
        """Return a name for a reservation that nobody else has."""
        return f"{fresh_seed():032x}"

    def commit(self, reservation: Reservation, certificate_digest: str) -> LedgerEntry:
        """Record that the release of a reservation exists, by the digest of its certificate."""
        reservation.mark_used()
        return self._settle(reservation, "commit", certificate=_plain(certificate_digest))

    def cancel(self, reservation: Reservation) -> LedgerEntry:
        """Give back a reservation that was provably not used.

        Only the process that made it can do so, with the very object that :meth:`reserve`
        returned, and only before :meth:`Reservation.mark_used`. What a crash left behind stays
        spent.
        """
        reservation.mark_cancelled()
        return self._settle(reservation, "cancel", units=reservation.entry.units)

    def balance(self, dataset: str, principal: str = EVERY) -> tuple[Balance, ...]:
        """Return every budget that limits what a principal learns about a dataset."""
        with self._database.reading() as connection:
            return tuple(
                balance_of(connection, budget)
                for budget in budgets_covering(connection, dataset, principal)
            )

    def balances(self) -> tuple[Balance, ...]:
        """Return every budget."""
        with self._database.reading() as connection:
            budgets = [entry for entry in read_entries(connection) if entry.kind == "budget"]
            return tuple(balance_of(connection, budget) for budget in budgets)

    def entries(
        self, *, dataset: str | None = None, principal: str | None = None
    ) -> tuple[LedgerEntry, ...]:
        """Return the entries in order, all of them or those of one dataset or principal."""
        with self._database.reading() as connection:
            return tuple(read_entries(connection, dataset=dataset, principal=principal))

    def tally(self, session: str) -> tuple[Units, int]:
        """Return what a session spent, and how often."""
        with self._database.reading() as connection:
            return tally(connection, session)

    def last_reservation(self, session: str) -> tuple[str, bool] | None:
        """Return a session's last reservation that was not cancelled, and whether it is committed.

        ``None`` if the session has none.
        """
        with self._database.reading() as connection:
            return last_reservation(connection, session)

    def knows(self, reservation_id: str) -> bool:
        """Whether a reservation of this name was made."""
        with self._database.reading() as connection:
            return "reserve" in settled(connection, reservation_id)

    def verify(self, *, head: str | None = None) -> Verification:
        """Check every entry, every budget and the end of the chain.

        Parameters
        ----------
        head : str, optional
            Hash of an entry that was noted earlier; it must still be in the chain. Without it,
            a ledger that was written anew from some entry on cannot be told from a true one.
        """
        return verify_database(self._database, head)

    def export(self, path: str | Path) -> Path:
        """Write all entries to a JSON file, with the hashes that hold them together."""
        with self._database.reading() as connection:
            found = read_head(connection)
            entries = [entry.to_public_dict() for entry in read_entries(connection)]
        content = {
            "schema_version": EXPORT_VERSION,
            "ledger": found.ledger_id,
            "created": found.created,
            "head": found.hash,
            "entries": entries,
        }
        target = Path(path)
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        write_atomically(target, text.encode(), mode=0o644)
        return target

    def _settle(self, reservation: Reservation, kind: EntryKind, **fields: Any) -> LedgerEntry:
        made = reservation.entry
        if reservation.ledger_id != self.ledger_id:
            raise LedgerError(
                f"reservation must be of this ledger; got one of another. Use the ledger that "
                f"made it, not {self.label}."
            )
        with self._database.writing(lock=_LOCK) as connection:
            assert made.reservation is not None  # reserve() names it
            if settled(connection, made.reservation) != ["reserve"]:
                raise LedgerError(
                    "reservation must be open; it was committed or cancelled, or is not in the "
                    "ledger. Reserve again."
                )
            return append(
                connection,
                Line(
                    kind=kind,
                    dataset=made.dataset,
                    principal=made.principal,
                    session=made.session,
                    reservation=made.reservation,
                    what=made.what,
                    **fields,
                ),
            )


def _name(what: str, text: str, *, every: bool = True) -> str:
    plain = text.isprintable() and text.strip() == text
    if not plain or not 0 < len(text) <= _LONGEST_NAME or (text == EVERY and not every):
        raise LedgerError(
            f"{what} must be a name of 1 to {_LONGEST_NAME} printable characters"
            f"{'' if every else ', not *'}; got {text!r}. For example 'people'."
        )
    return text


def _plain(text: str) -> str:
    """Return a text as one printable line."""
    kept = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return kept[:_LONGEST_NAME]
