"""Find a data file, check its bytes, unpack it; download it if the publisher offers it.

Folders are searched in this order: ``$PACPRIVACY_DATA``, ``../shared/data`` beside the source
checkout, the user's cache folder. A file that is in none of them is downloaded into the cache
unless ``$PACPRIVACY_OFFLINE`` is set. Bytes are checked against the catalogue every time they are
read; a file with the wrong checksum is never skipped over.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from pacprivacy.errors import DataError
from papers.datasets.catalogue import FILES, DataFile

__all__ = ["cache_folder", "find_file", "read_file", "search_folders"]

MAX_DOWNLOAD_BYTES: Final = 64 * 2**20
TIMEOUT_S: Final = 60.0


def cache_folder() -> Path:
    """Return the user's cache folder for data files (it need not exist).

    Examples
    --------
    >>> cache_folder().name
    'pacprivacy'
    """
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pacprivacy"


def search_folders() -> tuple[Path, ...]:
    """Return the folders that are searched for data files, in order.

    Examples
    --------
    >>> search_folders()[-1] == cache_folder()
    True
    """
    folders: list[Path] = []
    named = os.environ.get("PACPRIVACY_DATA")
    if named:
        folders.append(Path(named))
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        folders.append(checkout.parent / "shared" / "data")
    folders.append(cache_folder())
    return tuple(dict.fromkeys(folders))


def find_file(name: str) -> Path | None:
    """Return where the data file ``name`` lies on this machine, or ``None``; never download.

    A file that the publisher offers as plain text is also found under its unpacked name.

    Examples
    --------
    >>> found = find_file("rice_cammeo_osmancik.arff.gz")
    >>> found is None or found.is_file()
    True
    """
    file = _entry(name)
    names = [file.name] if file.plain_sha256 is None else [file.name, file.plain_name]
    for folder in search_folders():
        for candidate in names:
            if (folder / candidate).is_file():
                return folder / candidate
    return None


def read_file(name: str) -> bytes:
    """Return the checked, unpacked contents of the data file ``name``.

    Raises
    ------
    DataError
        If the file is nowhere to be had, or its bytes are not those of the catalogue.
    """
    file = _entry(name)
    path = find_file(name) or _download(file)
    raw = path.read_bytes()
    is_plain = path.name != file.name
    expected = file.plain_sha256 if is_plain else file.sha256
    found = hashlib.sha256(raw).hexdigest()
    if found != expected:
        raise DataError(
            f"{path} must have SHA-256 {expected}; got {found}. "
            f"Delete it and put the original file in its place."
        )
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def _entry(name: str) -> DataFile:
    if name not in FILES:
        raise DataError(f"name must be one of {', '.join(sorted(FILES))}; got {name!r}.")
    return FILES[name]


def _download(file: DataFile) -> Path:
    """Fetch ``file`` from its official source into the cache; check before it gets its name."""
    if file.url is None:
        raise DataError(_missing(file, "it has no official byte-exact source to download from"))
    if os.environ.get("PACPRIVACY_OFFLINE"):
        raise DataError(_missing(file, "PACPRIVACY_OFFLINE forbids downloads"))
    try:
        with urllib.request.urlopen(file.url, timeout=TIMEOUT_S) as response:
            payload: bytes = response.read(MAX_DOWNLOAD_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(_missing(file, f"the download from {file.url} failed: {error}")) from error
    if file.plain_sha256 is None:
        name, expected, contents = file.name, file.sha256, payload
    else:
        name, expected = file.plain_name, file.plain_sha256
        contents = _pick_member(payload, expected)
    found = hashlib.sha256(contents).hexdigest()
    if found != expected:
        raise DataError(_missing(file, f"what {file.url} serves now has other bytes ({found})"))
    return _write_whole(cache_folder() / name, contents)


def _pick_member(archive: bytes, sha256: str) -> bytes:
    """Return the member of a (nested) zip archive that has the checksum, or nothing."""
    for contents in _members(archive):
        if hashlib.sha256(contents).hexdigest() == sha256:
            return contents
    return b""


def _members(archive: bytes, *, depth: int = 0) -> Iterator[bytes]:
    """Yield the members of an archive and of the archives directly in it; junk has none."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            for info in opened.infolist():
                if info.file_size > MAX_DOWNLOAD_BYTES:
                    continue
                contents = opened.read(info)
                yield contents
                if depth == 0 and PurePosixPath(info.filename).suffix == ".zip":
                    yield from _members(contents, depth=1)
    except (zipfile.BadZipFile, zlib.error):
        return


def _write_whole(path: Path, contents: bytes) -> Path:
    """Write through a temporary file, so that an interrupted download leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(contents)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _missing(file: DataFile, reason: str) -> str:
    """Word the error of a file that is not there."""
    return (
        f"data file {file.name} must be in a data folder; got none ({reason}). Put the file with "
        f"SHA-256 {file.sha256} into {cache_folder()}, or set PACPRIVACY_DATA to its folder."
    )
