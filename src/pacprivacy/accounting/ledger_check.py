"""Check a whole ledger: the chain, the budgets, the end, and the file itself."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from pacprivacy.accounting.ledger_chain import Verification, check_entries
from pacprivacy.accounting.ledger_database import Database
from pacprivacy.accounting.ledger_schema import Head, read_head
from pacprivacy.accounting.ledger_store import read_entries
from pacprivacy.errors import LedgerError

__all__ = ["verify_database"]


def verify_database(database: Database, noted: str | None) -> Verification:
    """Report the first thing that is wrong; see :meth:`Ledger.verify`."""
    try:
        with database.reading() as connection:
            found = _verify(connection, read_head(connection), noted)
            if found.ok and database.is_file:
                found = _check_pages(connection, found)
            return found
    except LedgerError as error:
        return Verification(n_entries=0, head="", problem=str(error))


def _verify(connection: Connection, head: Head, noted: str | None) -> Verification:
    hashes = [head.genesis]
    try:
        hashes.extend(check_entries(read_entries(connection), head.genesis))
    except (ValueError, TypeError, OverflowError, SQLAlchemyError) as error:
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


def _check_pages(connection: Connection, found: Verification) -> Verification:
    """Let SQLite check what the entries do not show: pages and indexes."""
    complaint = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
    if complaint == "ok":
        return found
    return Verification(
        n_entries=found.n_entries,
        head=found.head,
        problem="the file is damaged outside the entries; restore a backup",
    )
