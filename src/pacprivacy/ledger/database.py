"""Storage of a ledger: one SQLite file or a PostgreSQL server, through the same calls.

A transaction that writes holds the only write lock from its first statement on, and has returned
from ``fsync`` when it ends. Connections are opened per transaction, so that threads and forked
processes share none.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from pacprivacy._random import fresh_seed
from pacprivacy.errors import LedgerError
from pacprivacy.ledger.entries import (
    COLUMNS,
    EVERY,
    LedgerEntry,
    Units,
    entry_hash,
    entry_scopes,
    genesis_hash,
)

PAUSE_S: Final = 0.01
_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03", "40001", "40P01")
# What each error of a database means to a reader, by the start of its code.
_MEANINGS: Final = (
    (_BUSY, "not be in use for long", "another process holds it", "Try again"),
    (("SQLITE_FULL", "53100"), "have room to grow", "the disk is full", "Make room"),
    (("SQLITE_READONLY", "25006", "42501"), "be writable", "it is read-only", "Change its mode"),
    (
        ("SQLITE_NOTADB", "SQLITE_CORRUPT"),
        "be a ledger file",
        "it is something else or damaged, and was left alone",
        "Choose another path or restore a backup",
    ),
    (
        ("SQLITE_CANTOPEN",),
        "be a file in an existing folder",
        "it cannot be opened",
        "Choose another path",
    ),
    (("SQLITE_IOERR",), "be on a working disk", "reading or writing failed", "Check the disk"),
)


class Database:
    """Opens transactions on a file, ``sqlite:///file`` or ``postgresql://user@host/name``."""

    def __init__(self, where: str | Path, *, create: bool, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        url = _parse(where)
        self.path: Path | None = None
        if url is None or url.drivername.startswith("sqlite"):
            self.path = Path(where) if url is None else Path(url.database or "")
            self.label = str(self.path)
            self._check_file(self.path, create)
            self._engine = self._sqlite_engine(self.path, create)
        else:
            self.label = url.render_as_string(hide_password=True)
            self._engine = _postgres_engine(url, timeout_s)

    def __repr__(self) -> str:
        return f"Database({self.label!r})"

    @property
    def is_file(self) -> bool:
        return self.path is not None

    @contextmanager
    def read_transaction(self) -> Iterator[sa.Connection]:
        on_server = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",)
        with self._transaction("BEGIN", () if self.is_file else on_server) as connection:
            yield connection

    @contextmanager
    def writing(self, *, lock: str) -> Iterator[sa.Connection]:
        """Hold the write lock (``lock`` takes it on a server); all is on the disk at the end."""
        on_server = (
            f"SET LOCAL lock_timeout = {max(1, int(1000 * self._timeout_s))}",
            "SET LOCAL synchronous_commit = on",
            lock,
        )
        statements, before = () if self.is_file else on_server, self._identity()
        with self._transaction("BEGIN IMMEDIATE", statements) as connection:
            yield connection
        if before is not None and self._identity() != before:
            raise LedgerError(
                f"ledger {self.label} must stay in its place; another file was put there while "
                f"this one was written. Restore the latest one."
            )

    def _identity(self) -> tuple[int, int] | None:
        if self.path is None:
            return None
        try:
            status = self.path.stat()
        except OSError:
            return None
        return (status.st_dev, status.st_ino)

    @contextmanager
    def _transaction(self, begin: str, first: tuple[str, ...]) -> Iterator[sa.Connection]:
        connection = self._begun(begin, first)
        try:
            yield connection
            connection.commit()
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            raise self._explained(error) from None
        finally:
            connection.close()

    def _begun(self, begin: str, first: tuple[str, ...]) -> sa.Connection:
        """Begin a transaction; retry while others hold the lock."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            connection: sa.Connection | None = None
            try:
                connection = self._engine.connect().execution_options(pac_begin=begin)
                connection.begin()
                for statement in first:
                    connection.exec_driver_sql(statement)
                return connection
            except (SQLAlchemyError, UnicodeDecodeError) as error:
                if connection is not None:
                    connection.close()
                if not _code(error).startswith(_BUSY) or time.monotonic() > deadline:
                    raise self._explained(error) from None
            # Nothing has been written yet, so trying again cannot spend twice.
            time.sleep(PAUSE_S)

    def _explained(self, error: Exception) -> LedgerError:
        code = _code(error)
        for codes, constraint, finding, advice in _MEANINGS:
            if code.startswith(codes):
                return LedgerError(f"ledger {self.label} must {constraint}; {finding}. {advice}.")
        kind = type(getattr(error, "orig", None) or error).__name__
        return LedgerError(
            f"ledger {self.label} must be reachable and intact; got {kind} {code}. "
            f"Check the address, the permissions and the server."
        )

    def _check_file(self, path: Path, create: bool) -> None:
        if not path.name or str(path).startswith(":memory:"):
            raise LedgerError(
                f"ledger must be a file or a postgresql:// URL; got {str(path)!r}. "
                f"For example study.db."
            )
        if not create and not path.exists():
            raise LedgerError(
                f"ledger must be a file that is there; got {path}. "
                f"Make one with 'pac ledger create'."
            )
        if path.exists() and not path.is_file():
            raise LedgerError(f"ledger must be a file; got {path}. Choose another path.")

    def _sqlite_engine(self, path: Path, create: bool) -> sa.Engine:
        def connect() -> sqlite3.Connection:
            return _connect_file(path, create=create, timeout_s=self._timeout_s)

        engine = sa.create_engine("sqlite://", creator=connect, poolclass=NullPool)

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql(connection.get_execution_options()["pac_begin"])

        return engine


def _parse(where: str | Path) -> URL | None:
    text = os.fspath(where)
    if "://" not in text:
        return None
    try:
        url = make_url(text)
    except ArgumentError:
        url = None
    if url is None or url.drivername.split("+")[0] not in ("sqlite", "postgresql", "postgres"):
        raise LedgerError(
            "ledger must be a path, sqlite:///file or postgresql://user@host/name; got another "
            "kind of URL. For example study.db."
        )
    return url


def _connect_file(path: Path, *, create: bool, timeout_s: float) -> sqlite3.Connection:
    """Open the file with every commit synced; read-only if it cannot be written."""
    mode = "rwc" if create else "rw"
    if path.exists() and not _may_write(path):
        mode = "ro"
        log = path.with_name(path.name + "-wal")
        if not _may_write(path.parent) and not log.exists():
            mode = "ro&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=timeout_s,
        isolation_level=None,
    )
    try:
        if mode == "rwc" and path.stat().st_size == 0:
            connection.execute("PRAGMA journal_mode = WAL")  # kept in the file from then on
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _postgres_engine(url: URL, timeout_s: float) -> sa.Engine:
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    try:
        return sa.create_engine(
            url,
            poolclass=NullPool,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": int(min(10, max(2, timeout_s)))},
        )
    except (ImportError, NoSuchModuleError):
        raise LedgerError(
            "psycopg must be installed for a ledger on a PostgreSQL server. "
            "Run in a checkout: pip install '.[postgres]'"
        ) from None


def _code(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):  # a damaged text, or a message that quotes one
        return "SQLITE_CORRUPT"
    original = getattr(error, "orig", None) or error
    name = getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None)
    return str(name or "")


SCHEMA_VERSION: Final = 2


# From version v to v + 1. The hash of an entry depends on the version that it carries, so a
# migration adds columns and never rewrites an entry.
def _add_influence(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE pac_entries ADD COLUMN mu_squared_e12 BIGINT"))


MIGRATIONS: Final[dict[int, Callable[[sa.Connection], None]]] = {1: _add_influence}
_CREATE_LOCK: Final = "SELECT pg_advisory_xact_lock(7020315544)"

_TABLES: Final = sa.MetaData()
_Count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

LEDGER: Final = sa.Table(
    "pac_ledger",
    _TABLES,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("ledger_id", sa.Text, nullable=False),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("n_entries", _Count, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
)
ENTRIES: Final = sa.Table(
    "pac_entries",
    _TABLES,
    sa.Column("seq", _Count, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("principal", sa.Text, nullable=False),
    sa.Column("session", sa.Text),
    sa.Column("reservation", sa.Text),
    sa.Column("mi_nats_e12", sa.BigInteger),
    sa.Column("success_e12", sa.BigInteger),
    sa.Column("mu_squared_e12", sa.BigInteger),
    sa.Column("epsilon_e12", sa.BigInteger),
    sa.Column("delta_e18", sa.BigInteger),
    sa.Column("what", sa.Text, nullable=False),
    sa.Column("certificate", sa.Text),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.UniqueConstraint("reservation", "kind"),
    sa.Index("pac_entries_scope", "dataset", "principal"),
    sa.Index("pac_entries_session", "session"),
)

# The latest file of each service; not in the chain, since every answer changes it.
MARKS: Final = sa.Table(
    "pac_marks",
    _TABLES,
    sa.Column("session", sa.Text, primary_key=True),
    sa.Column("mark", sa.Text, nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseHead:
    """The row with the identity of the ledger and the end of its chain."""

    schema_version: int
    ledger_id: str
    created: str
    n_entries: int
    hash: str

    @property
    def genesis(self) -> str:
        """Hash that the first entry names as its predecessor."""
        return genesis_hash(self.ledger_id, self.created)


def _database_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def read_database_head(connection: sa.Connection) -> DatabaseHead:
    row = connection.execute(sa.select(LEDGER).where(LEDGER.c.id == 1)).one_or_none()
    fields = {} if row is None else dict(row._mapping)
    kinds = (int, int, str, str, int, str)
    if not fields or not all(map(isinstance, fields.values(), kinds)):
        raise LedgerError("ledger must have an intact first row; it has none. Restore a backup.")
    return DatabaseHead(hash=fields.pop("head"), **{k: v for k, v in fields.items() if k != "id"})


def open_database(database: Database, *, create: bool) -> DatabaseHead:
    """Open a ledger: create missing tables, upgrade old ones."""
    with database.read_transaction() as connection:
        known = sa.inspect(connection)
        exists = known.has_table(LEDGER.name)
        foreign = database.is_file and not exists and bool(known.get_table_names())
        head = read_database_head(connection) if exists else None
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


def _create(database: Database) -> DatabaseHead:
    with database.writing(lock=_CREATE_LOCK) as connection:
        if not sa.inspect(connection).has_table(LEDGER.name):
            _TABLES.create_all(connection)
            ledger_id, created = f"{fresh_seed():032x}", _database_now()
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
        return read_database_head(connection)


def _migrate(database: Database) -> DatabaseHead:
    with database.writing(lock=_CREATE_LOCK) as connection:
        head = read_database_head(connection)
        for version in range(head.schema_version, SCHEMA_VERSION):
            if version not in MIGRATIONS:
                raise LedgerError(
                    f"ledger {database.label} must have a known schema version; got {version}. "
                    f"Restore a backup."
                )
            MIGRATIONS[version](connection)
            connection.execute(sa.update(LEDGER).values(schema_version=version + 1))
        return read_database_head(connection)


def append_to_database(connection: sa.Connection, new: LedgerEntry) -> LedgerEntry:
    """Append an entry to the chain; refuse to go on from an end that is damaged."""
    head = read_database_head(connection)
    _check_end(connection, head.n_entries, head.hash)
    placed = replace(new, seq=head.n_entries + 1, time=_database_now(), previous=head.hash)
    entry = replace(placed, hash=entry_hash(placed))
    connection.execute(ENTRIES.insert().values(**entry.covered(), hash=entry.hash))
    connection.execute(sa.update(LEDGER).values(n_entries=entry.seq, head=entry.hash))
    return entry


def _check_end(connection: sa.Connection, n_entries: int, head: str) -> None:
    last = connection.execute(
        sa.select(ENTRIES).order_by(ENTRIES.c.seq.desc()).limit(1)
    ).one_or_none()
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


def read_database_entries(
    connection: sa.Connection, *, dataset: str | None = None, principal: str | None = None
) -> Iterator[LedgerEntry]:
    query = sa.select(ENTRIES).order_by(ENTRIES.c.seq)
    if dataset is not None:
        query = query.where(ENTRIES.c.dataset == dataset)
    if principal is not None:
        query = query.where(ENTRIES.c.principal == principal)
    for row in connection.execute(query):
        yield _entry(row)


def database_budgets(
    connection: sa.Connection, dataset: str, principal: str
) -> tuple[LedgerEntry, ...]:
    scopes = entry_scopes(dataset, principal)
    query = (
        sa.select(ENTRIES)
        .where(
            ENTRIES.c.kind == "budget",
            ENTRIES.c.dataset.in_([name for name, _ in scopes]),
            ENTRIES.c.principal.in_([name for _, name in scopes]),
        )
        .order_by(ENTRIES.c.seq)
    )
    return tuple(_entry(row) for row in connection.execute(query))


def database_spent(connection: sa.Connection, budget: LedgerEntry) -> Units:
    """Return the amount that counts against a budget: reserved and not cancelled."""
    column = ENTRIES.c
    return database_total(
        connection,
        sa.and_(
            sa.true() if budget.dataset == EVERY else column.dataset == budget.dataset,
            sa.true() if budget.principal == EVERY else column.principal == budget.principal,
        ),
    )


def database_settled(connection: sa.Connection, reservation: str) -> list[str]:
    query = sa.select(ENTRIES.c.kind).where(ENTRIES.c.reservation == reservation)
    return [str(kind) for (kind,) in connection.execute(query)]


def read_last_reservation(connection: sa.Connection, session: str) -> tuple[str, bool] | None:
    """Return a session's last reservation that was not cancelled, and whether it is committed."""
    column = ENTRIES.c
    reservations = sa.select(column.reservation).where(column.session == session)
    open_ = reservations.where(
        column.kind == "reserve",
        column.reservation.not_in(reservations.where(column.kind == "cancel")),
    )
    last = open_.order_by(column.seq.desc()).limit(1)
    name = connection.execute(last).scalar_one_or_none()
    return None if name is None else (str(name), "commit" in database_settled(connection, name))


def database_has(connection: sa.Connection, head: DatabaseHead) -> bool:
    """Whether the chain still holds an entry that was once its last."""
    if head.n_entries == 0:
        return True
    query = sa.select(ENTRIES.c.hash).where(ENTRIES.c.seq == head.n_entries)
    return bool(connection.execute(query).scalar_one_or_none() == head.hash)


def read_database_mark(connection: sa.Connection, session: str) -> str | None:
    if not sa.inspect(connection).has_table(MARKS.name):  # a ledger from before there were marks
        return None
    query = sa.select(MARKS.c.mark).where(MARKS.c.session == session)
    return connection.execute(query).scalar_one_or_none()


def move_database_mark(connection: sa.Connection, session: str, old: str, new: str) -> bool:
    """Replace a mark if it still has the old value; the empty text means none."""
    if old:
        moved = sa.update(MARKS).where(MARKS.c.session == session, MARKS.c.mark == old)
        return connection.execute(moved.values(mark=new)).rowcount == 1
    MARKS.create(connection, checkfirst=True)
    if read_database_mark(connection, session) is not None:
        return False
    connection.execute(MARKS.insert().values(session=session, mark=new))
    return True


def database_total(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> Units:
    """Add up the amounts that are reserved and not cancelled."""
    sign = sa.case((ENTRIES.c.kind == "cancel", -1), else_=1)
    sums = [sa.func.coalesce(sa.func.sum(sign * ENTRIES.c[name]), 0) for name in COLUMNS.values()]
    row = connection.execute(
        sa.select(*sums).where(ENTRIES.c.kind.in_(("reserve", "cancel")), condition)
    ).one()
    return dict(zip(COLUMNS, (int(value) for value in row), strict=True))


def _entry(row: sa.Row[Any]) -> LedgerEntry:
    fields = dict(row._mapping)
    units = {kind: fields.pop(column) for kind, column in COLUMNS.items()}
    amounts = {kind: number for kind, number in units.items() if number is not None}
    return LedgerEntry(units=amounts, **fields)
