"""Files that are whole or not there: written beside, synced, renamed, and the folder synced."""

import os
from contextlib import suppress
from pathlib import Path

from pacprivacy.errors import LedgerError, PacPrivacyError


def write_atomically(
    path: Path, content: bytes, *, mode: int, error: type[PacPrivacyError] = LedgerError
) -> None:
    """Replace a file in one step that survives a crash; nobody sees a half of it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as cause:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise error(
            f"{path} must be a file that can be written; {cause.strerror}. "
            "Make room, or choose a path in an existing folder."
        ) from None


def _sync_folder(folder: Path) -> None:
    """Make a renaming last; some systems cannot open folders and need no such thing."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
