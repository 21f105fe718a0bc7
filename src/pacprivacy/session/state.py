"""A session on disk: its pool, its secret and the attacker's belief, for the owner's eyes only.

The file has mode 0600, never holds a pickle, and is replaced as a whole: before a release is
reserved, with the name of the reservation to come, and before anyone sees the release, with the
belief after it. So the last reservation in the ledger tells the latest file from every older one.
The ledger never holds any of this. Its size does not depend on the secret.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector, check_log_belief, freeze
from pacprivacy._files import write_atomically
from pacprivacy.adversary import Belief
from pacprivacy.budget import Limits
from pacprivacy.errors import LedgerError, PacPrivacyError, SecretError
from pacprivacy.pool import Pool
from pacprivacy.release import Certificate, Secret, Spent

SCHEMA_VERSION: Final = 2
_MODE: Final = 0o600
_NAMES: Final = (
    "session_id",
    "ledger_id",
    "dataset",
    "principal",
    "data_digest",
    "reservation",
    "upcoming",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SessionState:
    """Everything a session needs to go on; curator-only.

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
    n_releases: int
    total: Limits
    pool: Pool
    log_p: Vector
    secret: Secret

    def __repr__(self) -> str:
        return f"SessionState(curator-only, {self.n_releases} releases)"

    def to_bytes(self) -> bytes:
        """Return the file's content: plain arrays, the secret among them."""
        pool_arrays, pool_metadata = self.pool.to_arrays()
        metadata = {
            "schema_version": SCHEMA_VERSION,
            **{name: getattr(self, name) for name in _NAMES},
            "n_releases": self.n_releases,
            "total": [self.total.mi_nats, self.total.success],
            "pool": pool_metadata,
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "metadata": np.frombuffer(json.dumps(metadata).encode(), dtype=np.uint8),
            "log_p": self.log_p,
            "secret": np.array([self.secret.to_storage()], dtype=np.int64),
            **{f"pool_{name}": array for name, array in pool_arrays.items()},
        }
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)  # not compressed: sizes would tell
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Rebuild a state; raise ``ValueError`` or ``KeyError`` where it is damaged."""
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        metadata = json.loads(arrays.pop("metadata").tobytes())
        if metadata["schema_version"] != SCHEMA_VERSION:
            raise KeyError("schema_version")
        bits = {name[5:]: array for name, array in arrays.items() if name.startswith("pool_")}
        pool = Pool.from_arrays(bits, metadata["pool"])
        mi_nats, success = metadata["total"]
        return cls(
            **{name: str(metadata[name]) for name in _NAMES},
            n_releases=int(metadata["n_releases"]),
            total=Limits(mi_nats=mi_nats, success=success),
            pool=pool,
            log_p=_belief(arrays["log_p"], pool.n_subsets),
            secret=Secret.from_storage(int(arrays["secret"][0]), pool.n_subsets),
        )


class StateFile:
    """The file of one session, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = _lock(path.with_name(path.name + ".lock"))

    def __del__(self) -> None:
        self.close()

    def load(self) -> SessionState | None:
        """Read the state; ``None`` if there is none yet."""
        try:
            with self.path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode & 0o777
                if os.name != "nt" and mode & 0o077:
                    raise SecretError(
                        f"{self.path} must be readable by its owner alone (mode 0600); got "
                        f"{mode:04o}. Others may know the secret: start a new session, or change "
                        f"the mode if nobody had access."
                    )
                return SessionState.from_bytes(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = error.strerror or "it cannot be read"
        except SecretError:
            raise
        except (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, PacPrivacyError):
            reason = "it is damaged, or written by another version"
        raise LedgerError(
            f"{self.path} must be the state of a session; {reason}. Restore a backup, or move it "
            f"away to start a new session."
        )

    def save(self, state: SessionState) -> None:
        """Replace the state; it is on the disk when this returns."""
        write_atomically(self.path, state.to_bytes(), mode=_MODE)

    def close(self) -> None:
        """Let other processes open the session."""
        if getattr(self, "_lock", None) is not None:
            assert self._lock is not None  # checked above
            os.close(self._lock)
            self._lock = None


def _belief(log_p: Vector, n_subsets: int) -> Vector:
    """Return a stored belief to the last bit; refuse what is none."""
    if not np.allclose(log_p, check_log_belief(log_p, n_subsets), rtol=0, atol=1e-9):
        raise ValueError("the probabilities do not add up to one")
    freeze(log_p)
    return log_p


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """Where a session stands between two releases; curator-only."""

    total: Limits
    n_releases: int
    pool: Pool
    belief: Belief
    secret: Secret


class Book(Protocol):
    """What a session needs of the place where its spends are written."""

    @property
    def state(self) -> SessionState | None:
        """The session as it was left on disk; ``None`` for a new one."""
        ...

    def spent(self) -> Spent:
        """Return what was spent before this process, crashed attempts included."""
        ...

    def left(self) -> Limits:
        """Return what is left besides the session's own total; ``None`` where unlimited."""
        ...

    def spend(self, charge: Limits, what: str, before: Standing) -> None:
        """Write a charge down; the secret is not used before this returns."""
        ...

    def keep(self, after: Standing) -> None:
        """Store the belief after a release; nobody sees the release before this returns."""
        ...

    def commit(self, certificate: Certificate) -> None:
        """Record the certificate; nobody sees the release before this returns."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class Unrecorded:
    """A session without a ledger: it lasts as long as its process."""

    state: None = None

    def spent(self) -> Spent:
        """Return that nothing was spent before."""
        return Spent()

    def left(self) -> Limits:
        """Return no limits."""
        return Limits()

    def spend(self, charge: Limits, what: str, before: Standing) -> None:
        """Write nothing down."""

    def keep(self, after: Standing) -> None:
        """Store nothing."""

    def commit(self, certificate: Certificate) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Hold nothing."""


def check_no_names(*names: object) -> None:
    """Refuse the names of an account where there is no ledger."""
    if any(name is not None for name in names):
        raise LedgerError(
            "ledger must be given with dataset, principal or state; got none. "
            "Add ledger='study.db'."
        )
