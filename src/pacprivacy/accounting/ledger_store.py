"""Reading and appending entries, inside a transaction that the caller holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, select, true, update

from pacprivacy.accounting.amounts import KINDS, Units
from pacprivacy.accounting.ledger_chain import (
    ENTRY_VERSION,
    EVERY,
    EntryKind,
    LedgerEntry,
    entry_hash,
    scopes_of,
)
from pacprivacy.accounting.ledger_schema import ENTRIES, LEDGER, now, read_head
from pacprivacy.errors import LedgerError

__all__ = [
    "Line",
    "append",
    "budgets_covering",
    "last_reservation",
    "read_entries",
    "settled",
    "spent",
    "tally",
]

NOTHING: Final = Units()
_COLUMNS: Final = dict(
    zip(KINDS, ("mi_nats_e12", "success_e12", "epsilon_e12", "delta_e18"), strict=True)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What the caller knows of a new entry; its place in the chain is found on appending."""

    kind: EntryKind
    dataset: str
    principal: str
    units: Units = NOTHING
    session: str | None = None
    reservation: str | None = None
    what: str = ""
    certificate: str | None = None


def append(connection: Connection, line: Line) -> LedgerEntry:
    """Append an entry to the chain; refuse to go on from an end that is damaged."""
    head = read_head(connection)
    _check_end(connection, head.n_entries, head.hash)
    entry = LedgerEntry(
        seq=head.n_entries + 1,
        version=ENTRY_VERSION,
        kind=line.kind,
        time=now(),
        dataset=line.dataset,
        principal=line.principal,
        session=line.session,
        reservation=line.reservation,
        units=line.units,
        what=line.what,
        certificate=line.certificate,
        previous=head.hash,
    )
    entry = replace(entry, hash=entry_hash(entry))
    connection.execute(ENTRIES.insert().values(**entry.covered(), hash=entry.hash))
    connection.execute(update(LEDGER).values(n_entries=entry.seq, head=entry.hash))
    return entry


def _check_end(connection: Connection, n_entries: int, head: str) -> None:
    last = connection.execute(select(ENTRIES).order_by(ENTRIES.c.seq.desc()).limit(1)).one_or_none()
    intact = n_entries == 0 if last is None else _ends_at(_entry(last), n_entries, head)
    if not intact:
        raise LedgerError(
            "ledger must end where its last writer left it; the last entry is damaged or missing. "
            "Run 'pac ledger verify' and restore a backup."
        )


def _ends_at(entry: LedgerEntry, n_entries: int, head: str) -> bool:
    try:
        return entry.seq == n_entries and entry.hash == head and entry_hash(entry) == head
    except (TypeError, ValueError):  # a field that JSON does not know
        return False


def read_entries(
    connection: Connection, *, dataset: str | None = None, principal: str | None = None
) -> Iterator[LedgerEntry]:
    """Yield the entries in order, all of them or those of one dataset or principal."""
    query = select(ENTRIES).order_by(ENTRIES.c.seq)
    if dataset is not None:
        query = query.where(ENTRIES.c.dataset == dataset)
    if principal is not None:
        query = query.where(ENTRIES.c.principal == principal)
    for row in connection.execute(query):
        yield _entry(row)


def budgets_covering(
    connection: Connection, dataset: str, principal: str
) -> tuple[LedgerEntry, ...]:
    """Return the budget entries that limit what a principal learns about a dataset."""
    scopes = scopes_of(dataset, principal)
    query = (
        select(ENTRIES)
        .where(
            ENTRIES.c.kind == "budget",
            ENTRIES.c.dataset.in_([name for name, _ in scopes]),
            ENTRIES.c.principal.in_([name for _, name in scopes]),
        )
        .order_by(ENTRIES.c.seq)
    )
    return tuple(_entry(row) for row in connection.execute(query))


def spent(connection: Connection, budget: LedgerEntry) -> Units:
    """Return what counts against a budget: everything reserved and not cancelled."""
    column = ENTRIES.c
    return _total(
        connection,
        and_(
            true() if budget.dataset == EVERY else column.dataset == budget.dataset,
            true() if budget.principal == EVERY else column.principal == budget.principal,
        ),
    )


def tally(connection: Connection, session: str) -> tuple[Units, int]:
    """Return what a session spent, and how often."""
    query = select(ENTRIES.c.kind, func.count()).where(ENTRIES.c.session == session)
    rows = connection.execute(query.group_by(ENTRIES.c.kind))
    counts = {str(row[0]): int(row[1]) for row in rows}
    total = _total(connection, ENTRIES.c.session == session)
    return total, counts.get("reserve", 0) - counts.get("cancel", 0)


def last_reservation(connection: Connection, session: str) -> tuple[str, bool] | None:
    """Return a session's last reservation that was not cancelled, and whether it is committed."""
    column = ENTRIES.c
    own = select(column.reservation).where(column.session == session)
    query = own.where(
        column.kind == "reserve", column.reservation.not_in(own.where(column.kind == "cancel"))
    )
    name = connection.execute(query.order_by(column.seq.desc()).limit(1)).scalar_one_or_none()
    return None if name is None else (str(name), "commit" in settled(connection, name))


def settled(connection: Connection, reservation: str) -> list[str]:
    """Return the kinds of entries that a reservation has."""
    query = select(ENTRIES.c.kind).where(ENTRIES.c.reservation == reservation)
    return [str(kind) for (kind,) in connection.execute(query)]


def _total(connection: Connection, condition: ColumnElement[bool]) -> Units:
    sign = case((ENTRIES.c.kind == "cancel", -1), else_=1)
    sums = [func.coalesce(func.sum(sign * ENTRIES.c[name]), 0) for name in _COLUMNS.values()]
    row = connection.execute(
        select(*sums).where(ENTRIES.c.kind.in_(("reserve", "cancel")), condition)
    ).one()
    return Units(**dict(zip(KINDS, (int(value) for value in row), strict=True)))


def _entry(row: Row[Any]) -> LedgerEntry:
    fields = dict(row._mapping)
    units = Units(**{kind: fields.pop(column) for kind, column in _COLUMNS.items()})
    return LedgerEntry(units=units, **fields)
