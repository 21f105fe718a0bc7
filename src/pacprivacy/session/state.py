"""The state of a session, in a file that only one process has open.

With a ledger, the state is in a file for its owner alone: of a pool the candidates, the secret and
the attacker's belief; of coins their key and every unit's clock. The file has mode 0600, never
holds a pickle, and is replaced as a whole: before a release is reserved, with the name of the
reservation to come, and before the release is published, with the belief after it. So the last
reservation in the ledger identifies the latest file. The ledger never holds any of this. The file's
size does not depend on the secret.
"""

from __future__ import annotations

import hashlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec
import numpy as np

from pacprivacy._system import open_regular, write_atomically
from pacprivacy.budget import AnyBudget, Spent
from pacprivacy.errors import BudgetError, LedgerError, PacPrivacyError, PoolError, SecretError
from pacprivacy.session.secret import SampleOptions

Parsed = TypeVar("Parsed")
_MODE: Final = 0o600


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Owner of a state, and its place in the ledger.

    ``reservation`` names the session's last one in the ledger; the belief knows of its release,
    if anyone saw that. ``upcoming`` names one that was about to be made when this was written, and
    of whose release the belief knows nothing. Either is empty where there is none.
    """

    session_id: str
    ledger_id: str
    dataset: str
    principal: str
    data_digest: str
    reservation: str
    upcoming: str


class Storable(ABC):
    """Something that a file holds in as many bytes whatever it is: a secret."""

    __slots__ = ()

    @abstractmethod
    def to_content(self) -> bytes:
        """Return the contents of a file."""

    @classmethod
    @abstractmethod
    def from_content(cls, content: bytes) -> Self:
        """Rebuild it from a file."""


class _File(msgspec.Struct, array_like=True):
    schema_version: int
    checksum: bytes
    stored: bytes


def pack_state(version: int, record: object) -> bytes:
    """Return the content of a file: a version, a checksum, and the record."""
    content = msgspec.msgpack.encode(record, enc_hook=_plain)
    return msgspec.msgpack.encode(_File(version, hashlib.sha256(content).digest(), content))


def unpack_state(content: bytes) -> tuple[int, bytes]:
    """Return the version and the record of a file; raise an error if it is damaged."""
    file = msgspec.msgpack.decode(content, type=_File)
    if file.checksum != hashlib.sha256(file.stored).digest():
        raise ValueError("checksum")
    return file.schema_version, file.stored


def read_record(stored: bytes, kind: type[Parsed]) -> Parsed:
    """Rebuild a record of a kind."""
    return msgspec.msgpack.decode(stored, type=kind, dec_hook=_rebuilt)


def _plain(value: object) -> object:
    """Return an array or a secret as plain types."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Storable):
        return value.to_content()
    raise TypeError(type(value).__name__)


def _rebuilt(kind: Any, stored: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Storable):
        return kind.from_content(stored)
    dtype, shape, content = stored
    return np.frombuffer(content, np.dtype(dtype)).reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SessionState(ABC):
    """State of a session between two releases: all it needs to continue; curator-only."""

    total: Spent
    n_releases: int

    def __repr__(self) -> str:
        return f"SessionState(curator-only, {self.n_releases} releases)"

    @abstractmethod
    def to_bytes(self, marks: Marks) -> bytes:
        """Return the file's content: plain arrays, the secret among them."""

    @property
    def is_complete(self) -> bool:
        """Whether the next release changes nothing but the accounts, which are in it already."""
        return False

    def settled(self, upcoming: str, *, paid: bool) -> SessionState:
        """Return the state after an upcoming reservation was made, or not."""
        return self

    @property
    def may_grow(self) -> bool:
        """Whether the session may go on with other records of the same people, and with more."""
        return False

    @abstractmethod
    def check_sample(self, opened: AccountOwner) -> None:
        """Refuse to go on with another total or another sample than the session began with."""

    @staticmethod
    def from_bytes(content: bytes) -> tuple[SessionState, Marks]:
        """Rebuild a state; raise an error if it is damaged."""
        version, stored = unpack_state(content)
        return STATE_READERS[version](stored)


STATE_READERS: Final[dict[int, Callable[[bytes], tuple[SessionState, Marks]]]] = {}
"""Readers of the state of each kind of secret, by version of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOwner:
    """Whose account it is, and what its session was opened with; curator-only."""

    dataset: str
    principal: str
    data_digest: str
    budget: AnyBudget | None
    options: SampleOptions
    has_tables: bool


def other_total() -> BudgetError:
    return BudgetError(
        "budget must be the total that the session began with; got another. Leave it out, "
        "or start a new session under another dataset or principal."
    )


def other_units() -> PoolError:
    return PoolError(
        "units must be those that the session began with; got other units or none. "
        "Pass the same units."
    )


class StateFile:
    """The file of one session, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, ...] | None = None  # of the file as this process left it
        self._lock: int | None = _lock(path.with_name(path.name + ".lock"))

    def __del__(self) -> None:
        self.close()

    def load(self) -> tuple[SessionState, Marks] | None:
        """Read the state; ``None`` if there is none yet."""
        return self.read(SessionState.from_bytes)

    def read(self, parse: Callable[[bytes], Parsed]) -> Parsed | None:
        """Read the file; ``None`` if there is none yet, refused where it is damaged."""
        try:
            with open_regular(self.path) as file:
                status = os.fstat(file.fileno())
                self._identity, mode = _identity(status), status.st_mode & 0o777
                if os.name != "nt" and mode & 0o077:
                    raise SecretError(
                        f"{self.path} must be readable by its owner alone (mode 0600); got "
                        f"{mode:04o}. Others may know the secret: start a new session, or change "
                        f"the mode if nobody had access."
                    )
                return parse(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = error.strerror or "it cannot be read"
        except SecretError:
            raise
        except (KeyError, ValueError, TypeError, msgspec.MsgspecError, PacPrivacyError):
            reason = "it is damaged, or written by another version"
        raise LedgerError(
            f"{self.path} must be the state of a session; {reason}. Restore a backup, or move it "
            f"away to start a new session."
        )

    def save(self, state: SessionState, marks: Marks) -> None:
        """Replace the state; it is on the disk when this returns."""
        self.write(state.to_bytes(marks))

    def write(self, content: bytes) -> None:
        """Replace the file; it is on the disk when this returns.

        Refused if it is not as this process left it: then it may be of another secret.
        """
        try:
            identity = _identity(self.path.stat())
        except FileNotFoundError:
            identity = None
        except OSError as error:
            raise LedgerError(
                f"{self.path} must be a file that can be written; {error.strerror}. "
                f"Restore its folder."
            ) from None
        if identity != self._identity:
            raise LedgerError(
                f"{self.path} must be as this session left it; another file was put in its place, "
                f"or it is gone. Nothing was spent. Put it back, or open the session again."
            )
        write_atomically(self.path, content, mode=_MODE)
        self._identity = _identity(self.path.stat())

    def close(self) -> None:
        """Let other processes open the session."""
        if getattr(self, "_lock", None) is not None:
            assert self._lock is not None  # checked above
            os.close(self._lock)
            self._lock = None


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _lock(path: Path) -> int:
    """Hold a lock until the descriptor is closed; the file itself stays."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _MODE)
    except OSError as error:
        raise LedgerError(
            f"{path} must be a file that can be written; {error.strerror}. "
            f"Choose another folder with state=."
        ) from None
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise LedgerError(
            f"the session must not be open twice: two releases at once would not know of each "
            f"other; got {path}, which is held. Close the other session."
        ) from None
    return descriptor
