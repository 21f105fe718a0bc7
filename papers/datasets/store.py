"""The data files of the papers: find one, check its bytes, unpack it; download it if need be.

Folders are searched in this order: ``$PACPRIVACY_DATA``, ``../shared/data`` beside the source
checkout, the user's cache folder. A file that is in none of them is downloaded into the cache
unless ``$PACPRIVACY_OFFLINE`` is set. Bytes are checked against the catalogue every time they are
read; a file with the wrong checksum is never skipped over.

The checksums name the exact bytes. ``plain_sha256`` is that of the unpacked text: where the
publisher offers the text but not our gzip of it, the download is checked against this one.
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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from pacprivacy.errors import DataError

MAX_DOWNLOAD_BYTES: Final = 64 * 2**20
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of a data folder, and its official https source, if there is one.

    ``plain_sha256`` is of the unpacked file, for those the publisher offers unpacked or in a zip.
    """

    name: str
    sha256: str
    plain_sha256: str | None = None
    url: str | None = None

    @property
    def plain_name(self) -> str:
        """Name of the file once unpacked."""
        return self.name.removesuffix(".gz")


_UCI: Final = "https://archive.ics.uci.edu/static/public"
_MNIST: Final = "https://storage.googleapis.com/cvdf-datasets/mnist"

_ENTRIES: Final = (
    DataFile(
        name="rice_cammeo_osmancik.arff.gz",
        sha256="a288597ca1d21edff60823408b7d3692de6c13c73ea09fdc7fc63e906b752368",
        plain_sha256="1af97883100c89de2ea2972f7a28d428f4f1c14711a61defc0b0569e9eb65665",
        url=f"{_UCI}/545/rice+cammeo+and+osmancik.zip",
    ),
    DataFile(
        name="dry_bean.arff.gz",
        sha256="5cbe4371e7b5113a24ca87d680ef7bbb7ecb3a23b2963366771d42df92714f86",
    ),
    DataFile(
        name="winequality-red.csv.gz",
        sha256="77c4c53e3dc8371eb8cdd58da0a4a62d8c7a54d981c974db9ae9b238fe5fd43f",
        plain_sha256="4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
        url=f"{_UCI}/186/wine+quality.zip",
    ),
    DataFile(
        name="winequality-white.csv.gz",
        sha256="ff103b10a75a748f5011b351ce4f2cdea731d40ec025b8157940ae140ef7fa89",
        plain_sha256="76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
        url=f"{_UCI}/186/wine+quality.zip",
    ),
    DataFile(
        name="california_housing_sklearn.csv.gz",
        sha256="642053bb90f69c5c2d2c5c8733481383d80c045f0731a0dd9a1cc21fb2299fb1",
    ),
    DataFile(
        name="default_credit_card_clients.csv.gz",
        sha256="86ea40d2c9cb7138c68d94a1c24e2f61955e14fffe09ef179bacf50672f62ff7",
    ),
    DataFile(
        name="train-images-idx3-ubyte.gz",
        sha256="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        url=f"{_MNIST}/train-images-idx3-ubyte.gz",
    ),
    DataFile(
        name="train-labels-idx1-ubyte.gz",
        sha256="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        url=f"{_MNIST}/train-labels-idx1-ubyte.gz",
    ),
    DataFile(
        name="t10k-images-idx3-ubyte.gz",
        sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        url=f"{_MNIST}/t10k-images-idx3-ubyte.gz",
    ),
    DataFile(
        name="t10k-labels-idx1-ubyte.gz",
        sha256="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        url=f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
    ),
    DataFile(
        name="cifar10_subset_train.webp",
        sha256="c5b6f731a3c6d4a663465bf0ee8e8ebce32c7a769547ea8b6662ffad09b760e9",
    ),
    DataFile(
        name="cifar10_subset_test.webp",
        sha256="212d5ea8009fbca7f3ee4dfd606ac3c4bc5d4d6f25a29f103edf64616265a6c2",
    ),
    DataFile(
        name="cifar10_subset_labels.npz",
        sha256="6a9f0f2dcdc7fb1ca4f125b684483bde26781e229b6ece0b02d9bf46b2875ce0",
    ),
    DataFile(
        name="cifar100_subset_train.webp",
        sha256="41cd7fba46238c3d7b598a7b77c0a7f0e994b1f09ebb6435bb1c8c811ec0445f",
    ),
    DataFile(
        name="cifar100_subset_test.webp",
        sha256="19924bda3552d5042b9a3b5da810436be5ce3ef71f868e11675f3023cfd0c6c0",
    ),
    DataFile(
        name="cifar100_subset_labels.npz",
        sha256="6500c288f03154df9e8d2c1f3e1670953c4329b8eb2e7dd787347ee1bc5a1508",
    ),
    DataFile(
        name="ag_news_train_subset.csv.gz",
        sha256="651bacb549562d91668ea4caa8e741ecf7f65c218e407f432bea6dc32dfdb375",
    ),
    DataFile(
        name="ag_news_test.csv.gz",
        sha256="a0687337e1d12c4c6e06e96e5ffaf0cdbfc59a2a20614bd7598a4f4b167b6eec",
    ),
    DataFile(
        name="kddcup.data_10_percent.gz",
        sha256="8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
        url="https://ndownloader.figshare.com/files/5976042",
    ),
    DataFile(
        name="adult.data.gz",
        sha256="fb9b6b419c38dd70d75d31f014b7f0905bf76e9625473c593455e31679a93184",
        plain_sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        url=f"{_UCI}/2/adult.zip",
    ),
    DataFile(
        name="adult.test.gz",
        sha256="5dd8e51005f6a86e42f058d66a957721196362cf8e8dde3efc8508532af4a083",
        plain_sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        url=f"{_UCI}/2/adult.zip",
    ),
    DataFile(
        name="bank-full.csv.gz",
        sha256="2cf6b847bc108d650d72750b04817c3a1cba305ebde1fe8f5174d8ac0bdc0d23",
        plain_sha256="d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
        url=f"{_UCI}/222/bank+marketing.zip",
    ),
)

FILES: Final[dict[str, DataFile]] = {entry.name: entry for entry in _ENTRIES}


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
    digest = hashlib.sha256(raw).hexdigest()
    if digest != expected:
        raise DataError(
            f"{path} must have SHA-256 {expected}; got {digest}. "
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
    digest = hashlib.sha256(contents).hexdigest()
    if digest != expected:
        raise DataError(_missing(file, f"what {file.url} serves now has other bytes ({digest})"))
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
