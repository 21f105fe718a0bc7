"""A file that lets a stopped run go on: append-only, checked, without pickle.

Layout: magic, length and JSON text of the header with its checksum, then one record per finished
subset: its number, its length, the float64 values and a checksum. The file holds outputs and
seeds, so it is for the curator alone (mode 0600).
"""

import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np

from pacprivacy._checks import Mask, Matrix, Vector
from pacprivacy._system import open_regular, write_atomically
from pacprivacy.errors import CheckpointError

MAGIC: Final = b"PACCHECKPOINT\n"
SCHEMA_VERSION: Final = 1
_HEAD: Final = struct.Struct("<II")
_RECORD: Final = struct.Struct("<II")
_CRC: Final = struct.Struct("<I")
_MODE: Final = 0o600
_MAX_HEADER: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHeader:
    """Identity of the run of a checkpoint; curator-only."""

    schema_version: int = SCHEMA_VERSION
    mechanism: str
    data: str
    pool: str
    n_subsets: int
    n_outputs: int
    seed: int
    pool_seed: int | None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        fields = json.loads(text)
        if fields.get("schema_version") != SCHEMA_VERSION:
            raise CheckpointError(
                f"checkpoint must have schema version {SCHEMA_VERSION}; got "
                f"{fields.get('schema_version')}. Finish it with the version that began it."
            )
        for name in ("seed", "pool_seed"):  # texts in older files
            fields[name] = None if fields[name] is None else int(fields[name])
        return cls(**fields)


class Checkpoint:
    """An open checkpoint file; created if missing, refused if of another run."""

    def __init__(self, path: Path, header: CheckpointHeader) -> None:
        self._path = path
        self._header = header
        if read_checkpoint_header(path) is None:
            _create(path, header)
        self._file = path.open("r+b")
        try:
            _lock(self._file, path)
            _compare(_read_header(self._file, path), header, path)
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

    def load(self, values: Matrix, finished: Mask) -> None:
        """Copy the stored subsets into ``values`` and mark them; call it once, before append."""
        size = _RECORD.size + 8 * self._header.n_outputs + _CRC.size
        position = self._file.tell()
        while len(record := self._file.read(size)) == size:
            k = _check_record(record, self._header)
            if k is None:
                break
            values[k] = np.frombuffer(record[_RECORD.size : -_CRC.size], dtype="<f8")
            finished[k] = True
            position += size
        # What follows was cut short by a crash; those subsets are simply run again.
        self._file.truncate(position)
        self._file.seek(position)

    def append(self, results: Mapping[int, Vector]) -> None:
        """Write finished subsets and wait until they are on the disk."""
        try:
            self._file.write(b"".join(_pack(k, vector) for k, vector in sorted(results.items())))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise CheckpointError(
                f"checkpoint must be a file that can be written; got {self._path} "
                f"({error.strerror}). Make room and run the same call again to resume."
            ) from error


def read_checkpoint_header(path: Path) -> CheckpointHeader | None:
    """Return the header of a checkpoint, or None if there is no file or an empty one."""
    try:
        with open_regular(path) as file:
            return _read_header(file, path) if os.fstat(file.fileno()).st_size else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(
            f"checkpoint must be a file that can be read; got {path} ({error.strerror}). "
            "Choose another path."
        ) from error


def read_checkpoint_seed(path: str | Path) -> int | None:
    """Return the seed of the pool of a checkpoint, to draw it again; None if there is none."""
    header = read_checkpoint_header(Path(path))
    return None if header is None else header.pool_seed


def _create(path: Path, header: CheckpointHeader) -> None:
    text = header.to_json()
    body = MAGIC + _HEAD.pack(len(text), zlib.crc32(text)) + text
    # Either the whole header is there after a crash, or no file at all.
    write_atomically(path, body, mode=_MODE, error=CheckpointError)


def _read_header(file: BinaryIO, path: Path) -> CheckpointHeader:
    if file.read(len(MAGIC)) != MAGIC:
        raise CheckpointError(
            f"checkpoint must be a checkpoint file or a new path; got {path}, which is something "
            "else and was left alone. Choose another path."
        )
    sizes = file.read(_HEAD.size)
    if len(sizes) == _HEAD.size:
        length, checksum = _HEAD.unpack(sizes)
        text = file.read(min(length, _MAX_HEADER))
        if len(text) == length and zlib.crc32(text) == checksum:
            return CheckpointHeader.from_json(text)
    raise CheckpointError(
        f"checkpoint must have an intact header; got a damaged one in {path}. "
        "Delete the file and start again."
    )


def _compare(stored: CheckpointHeader, expected: CheckpointHeader, path: Path) -> None:
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
        if getattr(stored, name) != getattr(expected, name):
            raise CheckpointError(
                f"checkpoint must belong to this run; got {path}, which was made with {meaning}. "
                "Delete the file to start again, or choose another path."
            )


def _pack(k: int, vector: Vector) -> bytes:
    body = _RECORD.pack(k, vector.size) + vector.astype("<f8").tobytes()
    return body + _CRC.pack(zlib.crc32(body))


def _check_record(record: bytes, header: CheckpointHeader) -> int | None:
    k, length = _RECORD.unpack_from(record)
    intact = zlib.crc32(record[: -_CRC.size]) == _CRC.unpack(record[-_CRC.size :])[0]
    return k if intact and length == header.n_outputs and k < header.n_subsets else None


def _lock(file: BinaryIO, path: Path) -> None:
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
