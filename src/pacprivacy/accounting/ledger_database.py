"""Where a ledger is kept: one SQLite file, or a PostgreSQL server, through the same calls.

A transaction that writes holds the only write lock from its first statement on, and has returned
from ``fsync`` when it ends. Connections are opened per transaction, so that threads and forked
processes share none.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from pacprivacy.errors import LedgerError

__all__ = ["Database"]

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
    """A place for a ledger: opens transactions, and says in one line what went wrong.

    Parameters
    ----------
    where : path or URL
        A file, ``sqlite:///file``, or ``postgresql://user@host/name``.
    create : bool
        Whether a file that is not there may be made.
    timeout_s : float
        How long to wait for the write lock.
    """

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
        """Whether the ledger is a SQLite file."""
        return self.path is not None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open one consistent snapshot."""
        on_server = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",)
        with self._transaction("BEGIN", () if self.is_file else on_server) as connection:
            yield connection

    @contextmanager
    def writing(self, *, lock: str) -> Iterator[Connection]:
        """Hold the write lock; what was written is on the disk when this ends.

        ``lock`` is the statement that takes the lock on a server; a file has one lock.
        """
        on_server = (
            f"SET LOCAL lock_timeout = {max(1, int(1000 * self._timeout_s))}",
            "SET LOCAL synchronous_commit = on",
            lock,
        )
        statements = () if self.is_file else on_server
        with self._transaction("BEGIN IMMEDIATE", statements) as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str, first: tuple[str, ...]) -> Iterator[Connection]:
        connection = self._begun(begin, first)
        try:
            yield connection
            connection.commit()
        except (DBAPIError, UnicodeDecodeError) as error:
            raise self._explained(error) from None
        finally:
            connection.close()

    def _begun(self, begin: str, first: tuple[str, ...]) -> Connection:
        """Begin a transaction, again and again while others hold the lock."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            connection: Connection | None = None
            try:
                connection = self._engine.connect().execution_options(pac_begin=begin)
                connection.begin()
                for statement in first:
                    connection.exec_driver_sql(statement)
                return connection
            except (DBAPIError, UnicodeDecodeError) as error:
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

    def _sqlite_engine(self, path: Path, create: bool) -> Engine:
        def connect() -> sqlite3.Connection:
            return _connect_file(path, create=create, timeout_s=self._timeout_s)

        engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql(connection.get_execution_options()["pac_begin"])

        return engine


def _parse(where: str | Path) -> URL | None:
    """Return the URL; ``None`` for a path."""
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
    """Open the file with every commit synced; read-only where it cannot be written."""
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


def _postgres_engine(url: URL, timeout_s: float) -> Engine:
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    try:
        return create_engine(
            url,
            poolclass=NullPool,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": int(min(10, max(2, timeout_s)))},
        )
    except (ImportError, NoSuchModuleError):
        raise LedgerError(
            "psycopg must be installed for a ledger on a PostgreSQL server. "
            "Run: pip install 'pacprivacy[postgres]'"
        ) from None


def _code(error: Exception) -> str:
    """Return SQLite's name of an error, or the five characters of SQL's."""
    if isinstance(error, UnicodeDecodeError):  # a damaged text, or a message that quotes one
        return "SQLITE_CORRUPT"
    original = getattr(error, "orig", None) or error
    name = getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None)
    return str(name or "")
