"""Who may ask, how much, and how a request is refused.

Principals and the hashes of their tokens are in a file for its owner alone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pacprivacy._random import fresh_seed
from pacprivacy._system import open_regular, write_atomically
from pacprivacy.errors import DataError, SecretError

SCHEMA_VERSION: Final = 1
MAX_NAMES: Final = 10_000  # whose rates are counted at a time
MAX_NAME_LENGTH: Final = 200
MAX_TOKEN_BYTES: Final = 16 << 20  # a hundred thousand principals


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one request (``body_bytes``, ``rows``), and of all that are ``waiting``.

    ``seconds`` are for a request to arrive, and again for its answer. ``rate`` is requests a second
    of one principal, on average; twice as many at once. ``per_query`` is the budget of a query in
    SQL.
    """

    body_bytes: int = 1 << 20
    rows: int = 1000
    waiting: int = 256
    seconds: float = 30.0
    rate: float = 50.0
    per_query: str = "mi<=1/1000"


class Refused(Exception):
    """A request that is not answered: the status, and a reason that quotes nothing secret."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class RateLimits:
    """How many requests everyone has left at this moment."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(1.0, 2 * rate)
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        """Count a request; refuse one too many."""
        now = time.monotonic()
        if len(self._left) > MAX_NAMES:
            self._left.clear()
        remaining, since = self._left.get(name, (self._most, now))
        remaining = min(self._most, remaining + self._rate * (now - since))
        if remaining < 1:
            wait = max(1, round((1 - remaining) / self._rate))
            raise Refused(429, "Too many requests. Wait a little.", Retry_After=str(wait))
        self._left[name] = (remaining - 1, now)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema_version: int
    principals: dict[str, str]


class Tokens:
    """Principals and their tokens; a token itself is shown once and kept nowhere.

    Guarantee
    ---------
    Claim V-3. A token has 256 random bits. The file holds SHA-256 of it; a token that is presented
    is compared with every one of them, in a time that does not depend on how far they agree.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._version: tuple[int, int] | None = None
        self._hashes: dict[str, str] = {}
        self._read()

    def __repr__(self) -> str:
        return f"Tokens({len(self._hashes)} principals)"

    @property
    def principals(self) -> tuple[str, ...]:
        """Who has a token."""
        self._read()
        return tuple(self._hashes)

    def grant(self, principal: str) -> str:
        """Make a token for a principal, in place of an earlier one, and return it."""
        plain = principal.isprintable() and principal.strip() == principal
        if not plain or not 0 < len(principal) <= MAX_NAME_LENGTH or principal == "*":
            raise DataError(
                f"principal must be 1 to {MAX_NAME_LENGTH} printable characters, and not *; got "
                f"{principal[:40]!r}. For example 'ann'."
            )
        token = f"pac_{fresh_seed():032x}{fresh_seed():032x}"
        self._read()  # or what another process has ended meanwhile would be valid again
        self._write({**self._hashes, principal: _hash(token)})
        return token

    def revoke(self, principal: str) -> None:
        """Make a principal's token worthless, from the next request on."""
        self._read()
        if principal not in self._hashes:
            raise DataError(f"principal must have a token; got {principal[:40]!r}, who has none.")
        self._write({name: held for name, held in self._hashes.items() if name != principal})

    def principal_of(self, token: str) -> str | None:
        """Return whose token it is; ``None`` if it is unknown."""
        self._read()
        presented, principal = _hash(token), None
        for name, held in self._hashes.items():
            if hmac.compare_digest(held, presented):
                principal = name
        return principal

    def _write(self, hashes: dict[str, str]) -> None:
        content = msgspec.json.encode(_File(SCHEMA_VERSION, hashes))
        write_atomically(self.path, content, mode=0o600, error=DataError)
        self._read()

    def _read(self) -> None:
        try:
            with open_regular(self.path, most_bytes=MAX_TOKEN_BYTES) as file:
                status = os.fstat(file.fileno())
                version = (status.st_mtime_ns, status.st_ino)
                if version == self._version:
                    return
                if os.name != "nt" and status.st_mode & 0o077:
                    raise SecretError(
                        f"{self.path} must be readable by its owner alone (mode 0600); got "
                        f"{status.st_mode & 0o777:04o}. Run: chmod 600"
                    )
                content = msgspec.json.decode(file.read(), type=_File)
        except FileNotFoundError:
            self._version, self._hashes = None, {}
            return
        except (OSError, ValueError):
            raise DataError(
                f"{self.path} must be a file of tokens; it cannot be read as one. "
                f"Make one with 'pac serve --grant NAME'."
            ) from None
        if content.schema_version != SCHEMA_VERSION:
            raise DataError(f"{self.path} must have schema version {SCHEMA_VERSION}; it has not.")
        self._version, self._hashes = version, content.principals


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
