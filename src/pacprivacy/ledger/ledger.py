"""The ledger: budgets, reservations that spend them, and the check of the whole book.

A release is reserved before the secret is used and committed before anyone sees it. What a crash
leaves reserved stays spent.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pacprivacy._random import Process, fresh_seed
from pacprivacy.budget import SUMS, Spent
from pacprivacy.errors import BudgetError, BudgetExceededError, LedgerError, SecretError
from pacprivacy.ledger import database as db
from pacprivacy.ledger.database import database_spent
from pacprivacy.ledger.entries import (
    EVERY,
    FAMILIES,
    EntryKind,
    LedgerEntry,
    Units,
    Verification,
    amounts_allowed,
    amounts_charged,
    amounts_of,
    check_entries,
)


class Reservation:
    """Spent budget in the hands of one process; it cannot be copied or pickled."""

    __slots__ = ("_process", "entry", "ledger_id")

    def __init__(self, entry: LedgerEntry, ledger_id: str) -> None:
        self.entry = entry
        self.ledger_id = ledger_id
        self._process = Process()

    def __repr__(self) -> str:
        return f"Reservation({self.entry.what!r})"

    def __reduce__(self) -> NoReturn:
        raise LedgerError(
            "a reservation must stay in its process; got a request to pickle or copy it. "
            "Reserve again."
        )

    def check_process(self) -> None:
        """Refuse to go on in another process than the one that reserved."""
        if not self._process.is_here:
            raise LedgerError(
                "reservation must be used by the process that made it; got another process, so "
                "it stays spent. Reserve again."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """One budget with its limit, spent and remaining amounts, never below zero; public."""

    dataset: str
    principal: str
    limits: Spent
    spent: Spent
    left: Spent

    def to_public_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"dataset": self.dataset, "principal": self.principal}
        for name in ("limits", "spent", "left"):
            plain[name] = {kind: getattr(getattr(self, name), kind) for kind in SUMS}
        return plain


def _balance_of(connection: Connection, budget: LedgerEntry) -> Balance:
    spent = database_spent(connection, budget)
    return Balance(
        dataset=budget.dataset,
        principal=budget.principal,
        limits=budget.amounts,
        spent=amounts_of(spent),
        left=amounts_of(_left(budget, spent)),
    )


def _left(budget: LedgerEntry, spent: Units) -> Units:
    return {kind: max(0, limit - spent.get(kind, 0)) for kind, limit in budget.units.items()}


ADVICE: Final = {"mu_squared": ", with --membership for releases with coins"}


def check_ledger_spend(connection: Connection, entry: LedgerEntry) -> None:
    """Refuse a spend that no budget covers, or that takes one above its limits.

    Guarantee
    ---------
    Claim K-2. Assumes that the caller holds the write lock until the spend is written or given
    up. Returns only if every budget that covers the spend has room for it in every kind.
    """
    budgets = db.database_budgets(connection, entry.dataset, entry.principal)
    limited = {kind for budget in budgets for kind in budget.units}
    for family in FAMILIES:
        if entry.units.keys() & set(family):
            _check_family(family, entry.units, limited, f"dataset {entry.dataset!r}")
    for budget in budgets:
        _check_room(budget, entry.units, database_spent(connection, budget))


def _check_family(family: tuple[str, ...], amounts: Units, limited: set[str], whose: str) -> None:
    """Refuse a spend without a limit, or without a kind that a budget limits."""
    if not limited.intersection(family):
        raise LedgerError(
            f"{whose} must have a budget of {' or '.join(family)} that covers this spend; it has "
            f"none. Make one with 'pac ledger create'{ADVICE.get(family[0], '')}."
        )
    for kind in family:
        if kind in limited and kind not in amounts:
            raise BudgetError(
                f"charge must state {kind}, which a budget of {whose} limits; got none. "
                f"Calibrate against both."
            )


def _check_room(budget: LedgerEntry, amounts: Units, spent: Units) -> None:
    for kind, remaining in _left(budget, spent).items():
        if amounts.get(kind, 0) > remaining:
            shown, requested = (
                amounts_of({kind: number}).sums()[kind] for number in (remaining, amounts[kind])
            )
            raise BudgetExceededError(
                f"{kind} must be at most what is left of the budget of dataset "
                f"{budget.dataset!r} for principal {budget.principal!r}, {shown:.6g}; got "
                f"{requested:.6g}. Nothing was spent. Ask for less."
            )


def _verify_database(database: db.Database, noted: str | None) -> Verification:
    """Report the first error; see :meth:`Ledger.verify`."""
    try:
        with database.read_transaction() as connection:
            verification = _verify(connection, db.read_database_head(connection), noted)
            if not (verification.ok and database.is_file):
                return verification
            # SQLite checks what the entries do not show: pages and indexes.
            if connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() == "ok":
                return verification
            damaged = "the file is damaged outside the entries; restore a backup"
            return replace(verification, problem=damaged)
    except LedgerError as error:
        return Verification(n_entries=0, head="", problem=str(error))


def _verify(connection: Connection, head: db.DatabaseHead, noted: str | None) -> Verification:
    hashes = [head.genesis]
    try:
        hashes.extend(check_entries(db.read_database_entries(connection), head.genesis))
    except (ValueError, TypeError, OverflowError, SQLAlchemyError) as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise  # the server went away, which says nothing about the entry
        reason = str(error) if type(error) is ValueError else "it cannot be read"
        return _broken(len(hashes), hashes[-1], f"entry {len(hashes)} is broken: {reason}")
    n_entries = len(hashes) - 1
    if n_entries != head.n_entries or hashes[-1] != head.hash:
        problem = f"the ledger must end with entry {head.n_entries}; it ends with {n_entries}"
        return _broken(n_entries + 1, hashes[-1], problem)
    if noted is not None and noted not in hashes:
        problem = "the noted hash is not in the chain: entries were written anew or removed"
        return Verification(n_entries=n_entries, head=hashes[-1], problem=problem)
    return Verification(n_entries=n_entries, head=hashes[-1])


def _broken(entry: int, head: str, problem: str) -> Verification:
    return Verification(n_entries=entry - 1, head=head, broken_entry=entry, problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """Place of a session in the ledger: its mark, or its last reservation, or nothing.

    ``unseen``: the process does not know that reservation's release, which must not be committed.
    """

    name: str
    unseen: bool = False


MOVED: Final = (
    "ledger {} must stand where this process left it; another process has gone on with the same "
    "secret. Nothing was released. Close this one."
)
_LONGEST_NAME: Final = 200
_LOCK: Final = f"SELECT id FROM {db.LEDGER.name} WHERE id = 1 FOR UPDATE"


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

    Guarantee
    ---------
    Claim K-1. What :meth:`reserve` returned is on the disk; no crash takes it back.
    Claim K-2. At every moment, for every budget and kind, the sum of what is reserved and not
    cancelled is at most the limit, for any number of processes.
    """

    def __init__(self, where: str | Path, *, create: bool = True, timeout_s: float = 60.0) -> None:
        self._database = db.Database(where, create=create, timeout_s=timeout_s)
        self._head = self._latest = db.open_database(self._database, create=create)
        if self._database.is_file:  # one that goes away is missed, not made anew
            self._database = db.Database(where, create=False, timeout_s=timeout_s)
        self._unsure: list[Reservation] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Ledger({self._database.label!r})"

    @property
    def label(self) -> str:
        return self._database.label

    @property
    def path(self) -> Path | None:
        """The file; ``None`` on a server."""
        return self._database.path

    @property
    def ledger_id(self) -> str:
        return self._head.ledger_id

    @contextmanager
    def _read_transaction(self) -> Iterator[Connection]:
        known = self._latest
        with self._database.read_transaction() as connection:
            head = self._check_head(connection, known)
            yield connection
        self._note(head)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        known = self._latest
        with self._database.writing(lock=_LOCK) as connection:
            self._check_head(connection, known)
            yield connection
            head = db.read_database_head(connection)
        self._note(head)

    def _check_head(self, connection: Connection, known: db.DatabaseHead) -> db.DatabaseHead:
        """Refuse a ledger without an entry that this object read or wrote before.

        Guarantee
        ---------
        Claim K-4. The hash covers every entry before it, so none of those is missing or changed.
        """
        head = db.read_database_head(connection)
        same = head.ledger_id == known.ledger_id and head.n_entries >= known.n_entries
        if not same or not db.database_has(connection, known):
            raise LedgerError(
                f"ledger {self.label} must hold every entry that it held before; it is damaged, or "
                f"an old copy or another ledger was put in its place. Nothing was spent. Restore "
                f"the latest one."
            )
        return head

    def _note(self, head: db.DatabaseHead) -> None:
        with self._lock:
            if head.n_entries > self._latest.n_entries:
                self._latest = head

    def create_budget(self, dataset: str, principal: str = EVERY, *, limits: Spent) -> LedgerEntry:
        """Set the limit of a principal for a dataset; it cannot be changed later.

        ``"*"`` means all principals (or datasets) together: principals who may share answers need
        a budget together.
        """
        entry = LedgerEntry(
            kind="budget",
            dataset=_name("dataset", dataset),
            principal=_name("principal", principal),
            units=amounts_allowed(limits),
        )
        with self._writing() as connection:
            for known in db.database_budgets(connection, dataset, principal):
                if (known.dataset, known.principal) == (dataset, principal):
                    raise BudgetError(
                        f"dataset {dataset!r} must not have a budget for principal {principal!r} "
                        f"yet; it has one. Budgets cannot be changed: use another name."
                    )
            return db.append_to_database(connection, entry)

    def reserve(
        self,
        dataset: str,
        principal: str,
        charge: Spent,
        what: str,
        *,
        session: str | None = None,
        name: str | None = None,
        after: SessionPlace | None = None,
    ) -> Reservation:
        """Spend before anything is drawn; the result allows one release. A refusal writes nothing.

        ``name`` is that of the reservation, from :meth:`new_name` and used once, for a caller who
        has to store it before. ``after`` is the required place of the session; a SecretError says
        that another process continued it.

        Guarantee
        ---------
        Claim K-4. ``after`` is compared in the transaction that reserves.
        """
        entry = LedgerEntry(
            kind="reserve",
            dataset=_name("dataset", dataset, every=False),
            principal=_name("principal", principal, every=False),
            units=amounts_charged(charge),
            session=session,
            reservation=self.new_name() if name is None else _name("name", name),
            what=_plain(what),
        )
        reservation = Reservation(entry, self.ledger_id)
        try:
            with self._writing() as connection:
                self._reserve(connection, reservation, after)
        except (BudgetError, BudgetExceededError, SecretError):
            raise
        except BaseException:  # it may be on the disk all the same: an acknowledgement was lost
            self._unsure.append(reservation)
            raise
        return reservation

    def _reserve(
        self,
        connection: Connection,
        reservation: Reservation,
        after: SessionPlace | None,
    ) -> None:
        entry = reservation.entry
        assert entry.reservation is not None  # named in reserve()
        if db.database_settled(connection, entry.reservation):
            raise LedgerError("name must be new; got that of a reservation. Use new_name().")
        if after is not None and entry.session is not None:
            self._check_place(connection, entry.session, after)
        check_ledger_spend(connection, entry)
        reservation.entry = db.append_to_database(connection, entry)

    def _check_place(self, connection: Connection, session: str, after: SessionPlace) -> None:
        """Refuse a session that another process has continued."""
        mark = db.read_database_mark(connection, session)
        last, committed = db.read_last_reservation(connection, session) or ("", False)
        if (last if mark is None else mark) != after.name or (after.unseen and committed):
            raise SecretError(MOVED.format(self.label))

    def withdraw_unsure(self) -> None:
        """Give back a reservation that :meth:`reserve` failed to acknowledge."""
        if not self._unsure:
            return
        with self._writing() as connection:
            for unsure in self._unsure:
                name = unsure.entry.reservation
                if name is not None and db.database_settled(connection, name) == ["reserve"]:
                    self._append(connection, unsure, "cancel", units=unsure.entry.units)
        self._unsure.clear()

    @staticmethod
    def new_name() -> str:
        """Return an unused name for a reservation."""
        return f"{fresh_seed():032x}"

    def commit(
        self, reservation: Reservation, certificate_digest: str, *, last: bool = False
    ) -> LedgerEntry:
        """Record that the release of a reservation exists, by the digest of its certificate.

        With ``last`` it must be the session's last one: otherwise another process continued the
        session without knowing of this release, which must not be published.
        """
        reservation.check_process()
        entry = reservation.entry
        with self._writing() as connection:
            if last and entry.session is not None:
                latest = db.read_last_reservation(connection, entry.session)
                if latest is not None and latest[0] != entry.reservation:
                    raise SecretError(MOVED.format(self.label))
            return self._append(
                connection, reservation, "commit", certificate=_plain(certificate_digest)
            )

    def balance(self, dataset: str, principal: str = EVERY) -> tuple[Balance, ...]:
        """Return every budget that limits a principal's spends on a dataset."""
        with self._read_transaction() as connection:
            return tuple(
                _balance_of(connection, budget)
                for budget in db.database_budgets(connection, dataset, principal)
            )

    def balances(self) -> tuple[Balance, ...]:
        with self._read_transaction() as connection:
            budgets = [
                entry for entry in db.read_database_entries(connection) if entry.kind == "budget"
            ]
            return tuple(_balance_of(connection, budget) for budget in budgets)

    def entries(
        self, *, dataset: str | None = None, principal: str | None = None
    ) -> tuple[LedgerEntry, ...]:
        """Return the entries in order: all, or those of one dataset or principal."""
        with self._read_transaction() as connection:
            return tuple(db.read_database_entries(connection, dataset=dataset, principal=principal))

    def tally(self, session: str) -> Spent:
        query = select(db.ENTRIES.c.kind, func.count()).where(db.ENTRIES.c.session == session)
        with self._read_transaction() as connection:
            rows = connection.execute(query.group_by(db.ENTRIES.c.kind))
            counts = {str(row[0]): int(row[1]) for row in rows}
            total = amounts_of(db.database_total(connection, db.ENTRIES.c.session == session))
        return replace(total, n_releases=counts.get("reserve", 0) - counts.get("cancel", 0))

    def last_reservation(self, session: str) -> tuple[str, bool] | None:
        """Return a session's last reservation that was not cancelled, and if it is committed."""
        with self._read_transaction() as connection:
            return db.read_last_reservation(connection, session)

    def knows(self, reservation_id: str) -> bool:
        with self._read_transaction() as connection:
            return "reserve" in db.database_settled(connection, reservation_id)

    def mark(self, session: str) -> str:
        """Return the mark of a session's file, empty if there is none."""
        with self._read_transaction() as connection:
            return db.read_database_mark(connection, session) or ""

    def move_mark(self, session: str, old: str, new: str) -> None:
        """Move the mark of a session on the disk; refused unless it stood at ``old``."""
        with self._writing() as connection:
            if not db.move_database_mark(connection, session, old, new):
                raise SecretError(MOVED.format(self.label))

    def verify(self, *, head: str | None = None) -> Verification:
        """Check every entry, every budget and the end of the chain.

        ``head`` is the hash of an entry that was noted earlier, and must still be in the chain:
        without it, a ledger that was written anew passes.
        """
        return _verify_database(self._database, head)

    def _append(
        self, connection: Connection, reservation: Reservation, kind: EntryKind, **fields: Any
    ) -> LedgerEntry:
        entry = reservation.entry
        if reservation.ledger_id != self.ledger_id:
            raise LedgerError(
                f"reservation must be of this ledger; got one of another. Use the ledger that "
                f"made it, not {self.label}."
            )
        assert entry.reservation is not None  # reserve() names it
        if db.database_settled(connection, entry.reservation) != ["reserve"]:
            raise LedgerError(
                "reservation must be open; it was committed or cancelled, or is not in the "
                "ledger. Reserve again."
            )
        return db.append_to_database(
            connection,
            LedgerEntry(
                kind=kind,
                dataset=entry.dataset,
                principal=entry.principal,
                session=entry.session,
                reservation=entry.reservation,
                what=entry.what,
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
    kept = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return kept[:_LONGEST_NAME]
