"""A file that lets a stopped run go on: append-only, checked, without pickle.

Layout: magic, length and JSON text of the header with its checksum, then one record per finished
subset: its number, its length, the float64 values and a checksum. The file holds outputs and
seeds, so it is for the curator alone (mode 0600).
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import CheckpointError

__all__ = ["Checkpoint", "Header", "read_checkpoint_seed", "read_header"]

MAGIC: Final = b"PACCHECKPOINT\n"
SCHEMA_VERSION: Final = 1
_HEAD: Final = struct.Struct("<II")
_RECORD: Final = struct.Struct("<II")
_CRC: Final = struct.Struct("<I")
_MODE: Final = 0o600

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint belongs to; curator-only.

    Seeds are 128-bit integers and are written as text.
    """

    schema_version: int = SCHEMA_VERSION
    mechanism: str
    data: str
    pool: str
    n_subsets: int
    n_outputs: int
    seed: int
    pool_seed: int | None

    def to_json(self) -> bytes:
        """Return the header as JSON text."""
        fields = asdict(self)
        fields["seed"] = str(self.seed)
        fields["pool_seed"] = None if self.pool_seed is None else str(self.pool_seed)
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read a header; raise if it is from another version of the format."""
        fields = json.loads(text)
        if fields.get("schema_version") != SCHEMA_VERSION:
            raise CheckpointError(
                f"checkpoint must have schema version {SCHEMA_VERSION}; got "
                f"{fields.get('schema_version')}. Finish it with the version that began it."
            )
        fields["seed"] = int(fields["seed"])
        if fields["pool_seed"] is not None:
            fields["pool_seed"] = int(fields["pool_seed"])
        return cls(**fields)


class Checkpoint:
    """An open checkpoint file.

    Attributes
    ----------
    done : dict, curator-only
        Values of the subsets finished so far.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self.done: dict[int, Vector] = {}
        if read_header(path) is None:
            _create(path, header)
        self._file = path.open("r+b")
        try:
            _lock(self._file, path)
            self._load()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, results: Mapping[int, Vector]) -> None:
        """Write finished subsets and wait until they are on the disk."""
        self._file.write(b"".join(_pack(k, vector) for k, vector in sorted(results.items())))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _load(self) -> None:
        content = self._file.read()
        stored, position = _parse_header(content, self.path)
        _compare(stored, self.header, self.path)
        size = _RECORD.size + 8 * self.header.n_outputs + _CRC.size
        while position + size <= len(content):
            found = _unpack(content[position : position + size], self.header)
            if found is None:
                break
            self.done[found[0]] = found[1]
            position += size
        # What follows was cut short by a crash; those subsets are simply run again.
        self._file.truncate(position)
        self._file.seek(position)


def read_header(path: Path) -> Header | None:
    """Return the header of a checkpoint, or None if there is no file or an empty one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return _parse_header(content, path)[0] if content else None


def read_checkpoint_seed(path: str | Path) -> int | None:
    """Return the seed of the pool that a checkpoint was made with.

    Draw the pool again with it to go on with a stopped run. None if there is no checkpoint yet,
    or if the pool had no seed.
    """
    header = read_header(Path(path))
    return None if header is None else header.pool_seed


def _create(path: Path, header: Header) -> None:
    text = header.to_json()
    body = MAGIC + _HEAD.pack(len(text), zlib.crc32(text)) + text
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        # Either the whole header is there after a crash, or no file at all.
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(
            f"checkpoint must be a file that can be written; got {path} ({error.strerror}). "
            "Choose a path in an existing folder."
        ) from error


def _parse_header(content: bytes, path: Path) -> tuple[Header, int]:
    start = len(MAGIC) + _HEAD.size
    if not content.startswith(MAGIC):
        raise CheckpointError(
            f"checkpoint must be a checkpoint file or a new path; got {path}, which is something "
            "else and was left alone. Choose another path."
        )
    if len(content) >= start:
        length, checksum = _HEAD.unpack_from(content, len(MAGIC))
        text = content[start : start + length]
        if len(text) == length and zlib.crc32(text) == checksum:
            return Header.from_json(text), start + length
    raise CheckpointError(
        f"checkpoint must have an intact header; got a damaged one in {path}. "
        "Delete the file and start again."
    )


def _compare(stored: Header, wanted: Header, path: Path) -> None:
    advice = {
        "pool": "another pool of subsets; draw the pool with the same seed",
        "n_subsets": "another number of subsets",
        "pool_seed": "another seed of the pool",
        "data": "other data, or the same data in another order or type",
        "mechanism": "another function",
        "n_outputs": "a function with an output of another size",
        "seed": "another rng; pass the same integer, or None to take it from the file",
    }
    for name, meaning in advice.items():
        if getattr(stored, name) != getattr(wanted, name):
            raise CheckpointError(
                f"checkpoint must belong to this run; got {path}, which was made with {meaning}. "
                "Delete the file to start again, or choose another path."
            )


def _pack(k: int, vector: Vector) -> bytes:
    body = _RECORD.pack(k, vector.size) + vector.astype("<f8").tobytes()
    return body + _CRC.pack(zlib.crc32(body))


def _unpack(record: bytes, header: Header) -> tuple[int, Vector] | None:
    body, checksum = record[: -_CRC.size], _CRC.unpack(record[-_CRC.size :])[0]
    k, length = _RECORD.unpack_from(body)
    if zlib.crc32(body) != checksum or length != header.n_outputs or k >= header.n_subsets:
        return None
    return k, np.frombuffer(body, dtype="<f8", offset=_RECORD.size).astype(np.float64)


def _lock(file: Any, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on this operating system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint must not be in use; got {path}, which another run is writing. "
            "Wait for it, or choose another path."
        ) from error
