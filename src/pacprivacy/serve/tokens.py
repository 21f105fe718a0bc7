"""Who may ask: principals and the hashes of their tokens, in a file for its owner alone."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

import msgspec

from pacprivacy._random import fresh_seed
from pacprivacy._system import open_regular, write_atomically
from pacprivacy.errors import DataError, SecretError

SCHEMA_VERSION: Final = 1
MAX_TOKEN_BYTES: Final = 16 << 20  # a hundred thousand principals
_LONGEST: Final = 200


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
        if not plain or not 0 < len(principal) <= _LONGEST or principal == "*":
            raise DataError(
                f"principal must be a name of 1 to {_LONGEST} printable characters, not *; got "
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
        """Return whose token it is; ``None`` for nobody's."""
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
