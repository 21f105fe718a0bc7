"""The tables of a ledger, their version, and how older versions are brought up to date."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    select,
    update,
)

from pacprivacy._random import fresh_seed
from pacprivacy.accounting.ledger_chain import genesis_hash
from pacprivacy.accounting.ledger_database import Database
from pacprivacy.errors import LedgerError

__all__ = ["ENTRIES", "LEDGER", "Head", "now", "open_database", "read_head"]

SCHEMA_VERSION: Final = 1
# From version v to v + 1. The hash of an entry depends on the version that it carries, so a
# migration adds columns and never rewrites an entry.
MIGRATIONS: Final[dict[int, Callable[[Connection], None]]] = {}
_CREATE_LOCK: Final = "SELECT pg_advisory_xact_lock(7020315544)"

_TABLES: Final = MetaData()
_Count = BigInteger().with_variant(Integer(), "sqlite")

LEDGER: Final = Table(
    "pac_ledger",
    _TABLES,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("schema_version", Integer, nullable=False),
    Column("ledger_id", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("n_entries", _Count, nullable=False),
    Column("head", Text, nullable=False),
)
ENTRIES: Final = Table(
    "pac_entries",
    _TABLES,
    Column("seq", _Count, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("time", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("session", Text),
    Column("reservation", Text),
    Column("mi_nats_e12", BigInteger),
    Column("success_e12", BigInteger),
    Column("epsilon_e12", BigInteger),
    Column("delta_e18", BigInteger),
    Column("what", Text, nullable=False),
    Column("certificate", Text),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    UniqueConstraint("reservation", "kind"),
    Index("pac_entries_scope", "dataset", "principal"),
    Index("pac_entries_session", "session"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The one row that says which ledger this is and where its chain ends."""

    schema_version: int
    ledger_id: str
    created: str
    n_entries: int
    hash: str

    @property
    def genesis(self) -> str:
        """What the first entry names as its predecessor."""
        return genesis_hash(self.ledger_id, self.created)


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def read_head(connection: Connection) -> Head:
    """Read the ledger's own row."""
    columns = LEDGER.c
    row = connection.execute(
        select(
            columns.schema_version,
            columns.ledger_id,
            columns.created,
            columns.n_entries,
            columns.head,
        ).where(columns.id == 1)
    ).one_or_none()
    kinds = (int, str, str, int, str)
    if row is None or not all(isinstance(v, kind) for v, kind in zip(row, kinds, strict=True)):
        raise LedgerError("ledger must have an intact first row; it has none. Restore a backup.")
    return Head(
        schema_version=row[0], ledger_id=row[1], created=row[2], n_entries=row[3], hash=row[4]
    )


def open_database(database: Database, *, create: bool) -> Head:
    """Open a ledger, make its tables where there are none, or bring old ones up to date."""
    with database.reading() as connection:
        known = inspect(connection)
        found = known.has_table(LEDGER.name)
        foreign = database.is_file and not found and bool(known.get_table_names())
        head = read_head(connection) if found else None
    if foreign or (head is None and not create):
        raise LedgerError(
            f"ledger {database.label} must be a ledger; it is something else and was left "
            f"alone. Choose another path or make one with 'pac ledger create'."
        )
    if head is None:
        return _create(database)
    if head.schema_version > SCHEMA_VERSION:
        raise LedgerError(
            f"ledger {database.label} must have schema version {SCHEMA_VERSION} or older; got "
            f"{head.schema_version}. Install a newer pacprivacy."
        )
    return head if head.schema_version == SCHEMA_VERSION else _migrate(database)


def _create(database: Database) -> Head:
    with database.writing(lock=_CREATE_LOCK) as connection:
        if not inspect(connection).has_table(LEDGER.name):
            _TABLES.create_all(connection)
            ledger_id, created = f"{fresh_seed():032x}", now()
            connection.execute(
                LEDGER.insert().values(
                    id=1,
                    schema_version=SCHEMA_VERSION,
                    ledger_id=ledger_id,
                    created=created,
                    n_entries=0,
                    head=genesis_hash(ledger_id, created),
                )
            )
        return read_head(connection)


def _migrate(database: Database) -> Head:
    with database.writing(lock=_CREATE_LOCK) as connection:
        head = read_head(connection)
        for version in range(head.schema_version, SCHEMA_VERSION):
            if version not in MIGRATIONS:
                raise LedgerError(
                    f"ledger {database.label} must have a known schema version; got {version}. "
                    f"Restore a backup."
                )
            MIGRATIONS[version](connection)
            connection.execute(update(LEDGER).values(schema_version=version + 1))
        return read_head(connection)
