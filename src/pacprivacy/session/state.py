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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector, check_log_belief
from pacprivacy._system import open_regular, write_atomically
from pacprivacy.adversary import SESSION_SLACK, Balances, Clocks, session_cap
from pacprivacy.budget import AnyBudget, Spent, budget_limits
from pacprivacy.errors import BudgetError, LedgerError, PacPrivacyError, PoolError, SecretError
from pacprivacy.sample import KEY_BYTES, MARK_BYTES, Coins, Pool
from pacprivacy.session.secret import ReleaseSecret, SampleOptions

Parsed = TypeVar("Parsed")
POOL_VERSION: Final = 7
COIN_VERSION: Final = 8
_MODE: Final = 0o600
_INDEX_BYTES: Final = 8  # of the secret, whatever it is


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
    """Return an array, or a secret in as many bytes as any other, as plain types."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, ReleaseSecret):
        numbers = (value.to_storage(), value.n_subsets)
        return b"".join(number.to_bytes(_INDEX_BYTES, "little") for number in numbers)
    raise TypeError(type(value).__name__)


def _rebuilt(kind: Any, stored: Any) -> Any:
    if kind is ReleaseSecret:
        index, n_subsets = np.frombuffer(stored, dtype="<u8").tolist()
        return ReleaseSecret.from_storage(index, n_subsets)
    dtype, shape, content = stored
    return np.frombuffer(content, np.dtype(dtype)).reshape(shape)


def check_stored_belief(log_p: Vector, secret: ReleaseSecret, n_subsets: int) -> None:
    """Refuse a belief or a secret of another pool, and a belief that is changed on reading."""
    if secret.n_subsets != n_subsets:
        raise ValueError("secret")
    if not np.allclose(log_p, check_log_belief(log_p, n_subsets), rtol=0, atol=1e-9):
        raise ValueError("the probabilities do not add up to one")


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
        return _READERS[version](stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOwner:
    """Whose account it is, and what its session was opened with; curator-only."""

    dataset: str
    principal: str
    data_digest: str
    budget: AnyBudget | None
    options: SampleOptions
    has_tables: bool


def _other_total() -> BudgetError:
    return BudgetError(
        "budget must be the total that the session began with; got another. Leave it out, "
        "or start a new session under another dataset or principal."
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PoolState(SessionState):
    """State of a session with a pool."""

    pool: Pool
    log_p: Vector
    secret: ReleaseSecret
    balances: Balances | None = None

    def to_bytes(self, marks: Marks) -> bytes:
        record = (self.total, self.n_releases, self.log_p, self.secret, self.balances)
        return pack_state(POOL_VERSION, (marks, *self.pool.to_arrays(), *record))

    @staticmethod
    def read(content: bytes) -> tuple[PoolState, Marks]:
        """Rebuild a state."""
        marks, arrays, metadata, total, n_releases, log_p, secret, balances = read_record(
            content, _PoolRecord
        )
        pool = Pool.from_arrays(arrays, metadata)
        check_stored_belief(log_p, secret, pool.n_subsets)
        if balances is not None:
            _check_balances(balances, pool.n_units)
        state = PoolState(
            total=total,
            n_releases=n_releases,
            pool=pool,
            log_p=log_p,
            secret=secret,
            balances=balances,
        )
        return state, marks

    def check_sample(self, opened: AccountOwner) -> None:
        n_subsets, sample = self.pool.n_subsets, opened.options.sample
        if isinstance(sample, Coins):
            raise PoolError(
                "sample must be of the kind that the session began with, a pool; got coins. Leave "
                "it out."
            )
        if opened.budget is not None and budget_limits(opened.budget, n_subsets) != self.total:
            raise _other_total()
        is_other = isinstance(sample, Pool) and sample.digest() != self.pool.digest()
        if is_other or opened.options.n_subsets not in (None, n_subsets):
            raise PoolError(
                f"sample must be the one that the session began with, of {n_subsets} "
                f"subsets; got another. Leave out sample and n_subsets."
            )
        has_units = self.pool.row_units is not None
        if not isinstance(sample, Pool) and (opened.options.units is not None) != has_units:
            raise _other_units()


def _other_units() -> PoolError:
    return PoolError(
        "units must be those that the session began with; got other units or none. "
        "Pass the same units."
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CoinState(SessionState):
    """State of a session with coins: the key of the coins, and every unit's clock.

    ``marks`` are 16 bytes for each unit that the session has met, in the order of ``clocks``.
    ``unpaid`` are the clocks before the charge of a release that is about to be reserved.
    """

    key: bytes
    coins: Coins
    has_units: bool
    marks: bytes
    clocks: Clocks
    unpaid: Clocks | None = None

    @property
    def may_grow(self) -> bool:
        """Whether units have names, so that they can be recognised in another table."""
        return self.has_units

    @property
    def is_complete(self) -> bool:
        """Clocks have paid for the release before it is drawn, and there is no belief."""
        return True

    def settled(self, upcoming: str, *, paid: bool) -> SessionState:
        """Return the state with the clocks from before a release that was never reserved."""
        if not upcoming:
            return self
        if paid or self.unpaid is None:
            return replace(self, n_releases=self.n_releases + paid, unpaid=None)
        return replace(self, clocks=self.unpaid, unpaid=None)

    def to_bytes(self, marks: Marks) -> bytes:
        return pack_state(COIN_VERSION, (marks, self))

    @staticmethod
    def read(content: bytes) -> tuple[CoinState, Marks]:
        """Rebuild a state; refuse clocks that no session could have."""
        marks, state = read_record(content, tuple[Marks, CoinState])
        cap = state.total.mu_squared
        if cap is None:
            raise ValueError("total")
        clocks = _checked_clocks(state.clocks, cap)
        unpaid = None if state.unpaid is None else _checked_clocks(state.unpaid, cap)
        if unpaid is not None and not (unpaid.spent <= clocks.spent).all():
            raise ValueError("clocks")
        if len(state.key) != KEY_BYTES or state.coins.keep is None:
            raise ValueError("key")
        if len(state.marks) != MARK_BYTES * len(state.clocks.spent):
            raise ValueError("units")
        return replace(state, clocks=clocks, unpaid=unpaid), marks

    def check_sample(self, opened: AccountOwner) -> None:
        if opened.budget is not None:
            level = budget_limits(opened.budget).success_level
            if level is None or session_cap(level) != self.total.mu_squared:
                raise _other_total()
        sample = opened.options.sample
        if sample is not None and not isinstance(sample, Coins):
            raise PoolError(
                "sample must be of the kind that the session began with, coins; got a pool. Leave "
                "it out."
            )
        if sample is not None and sample.keep not in (None, self.coins.keep):
            raise PoolError(
                f"keep must be that of the session, {self.coins.keep:g}; got "
                f"{sample.keep:g}. Leave it out."
            )
        if not opened.has_tables and (opened.options.units is not None) != self.has_units:
            raise _other_units()


_READERS: Final[dict[int, Callable[[bytes], tuple[SessionState, Marks]]]] = {
    POOL_VERSION: PoolState.read,
    COIN_VERSION: CoinState.read,
}


_PoolRecord = tuple[
    Marks,
    dict[str, npt.NDArray[Any]],
    dict[str, Any],
    Spent,
    int,
    Vector,
    ReleaseSecret,
    Balances | None,
]


def _checked_clocks(clocks: Clocks, cap: float) -> Clocks:
    """Return stored clocks under the session's cap; refuse any that no session could have."""
    spent = clocks.spent
    if spent.dtype != np.float64 or spent.ndim != 1 or not 0 <= clocks.slack <= SESSION_SLACK:
        raise ValueError("clocks")
    if not ((spent >= 0) & (spent <= cap)).all():
        raise ValueError("clocks")
    return replace(clocks, cap=cap)


def _check_balances(balances: Balances, n_units: int) -> None:
    """Refuse balances that no session could have."""
    full, per_unit = Balances.begin(balances.advantage, 1).worst, balances.per_unit
    if not 0 <= balances.reserve <= 1:
        raise ValueError("reserve")
    if per_unit.shape != (n_units,) or not 0 <= balances.worst <= per_unit.max() <= full:
        raise ValueError("balances")


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
