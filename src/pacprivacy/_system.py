"""Access to the operating system: whole files, few threads, a progress bar.

Files are written beside, synced, renamed, and the folder synced. Evaluations have one numerical
thread, so that results do not depend on the machine's load: a sum split over four threads is added
up in another order than over one, and the last bits differ. The limit is shared by all threads of
a process: the first to enter sets it, the last to leave restores it.

The progress bar, on a terminal, is over all stages of a release. Stages are named where they begin,
with the work in them; without a bar on show that does nothing. What is shown depends on the
universe and on public randomness: the bar is gone before the secret is drawn.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar
from zipfile import ZipFile

import numpy as np
from threadpoolctl import ThreadpoolController

from pacprivacy.errors import LedgerError, PacPrivacyError

# For libraries that a mechanism imports while it runs: they read these when they are loaded.
_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.Lock()
_holders = 0
_stack = ExitStack()
_found: tuple[int, ThreadpoolController] | None = None


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread while inside."""
    global _holders
    with _lock:
        if _holders == 0:
            # Loaded before the limit: SciPy's own BLAS would keep it for as long as it lives.
            import_module("scipy.linalg")
            _stack.enter_context(_environment())
            _stack.enter_context(_numerical_libraries().limit(limits=1))
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                _stack.close()


def _renew_lock() -> None:
    """Replace the lock after a fork, where its holder does not exist."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _numerical_libraries() -> ThreadpoolController:
    """Return the loaded libraries with threads; search again after an import.

    To look takes as long as a small calibration. A library comes with the module that needs it.
    """
    global _found
    if _found is None or _found[0] != len(sys.modules):
        _found = len(sys.modules), ThreadpoolController()
    return _found[1]


@contextmanager
def _environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def available_memory() -> int | None:
    """Return the free memory in bytes; None if it is unknown."""
    free = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    with suppress(OSError, ValueError):  # of a container
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        free.append(limit - int((group / "memory.current").read_text(encoding="ascii")))
    return min(free) if free else None


_GIB: Final = 1 << 30
_MIB: Final = 1 << 20


@contextmanager
def open_regular(path: str | Path, *, most_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Open a file named by the user for reading, after checking its kind and size.

    Pipes and devices have no end, or wait for ever; they are refused before they are opened.
    ``most_bytes`` is the most that is read, by default what the free memory holds. What is refused
    is an ``OSError`` whose ``strerror`` says why.
    """
    most = _free_bytes() if most_bytes is None else most_bytes
    _check_kind(os.stat(path), most)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        _check_kind(os.fstat(file.fileno()), most)
        yield file


def read_regular(path: str | Path, *, most_bytes: int | None = None) -> bytes:
    """Return the content of a file named by the user; see :func:`open_regular`."""
    with open_regular(path, most_bytes=most_bytes) as file:
        return read_at_most(file, most_bytes)


def read_at_most(file: BinaryIO, most_bytes: int | None = None) -> bytes:
    """Return all that a stream has; refuse one with more than the limit, by default the memory."""
    most, content = _free_bytes() if most_bytes is None else most_bytes, bytearray()
    while block := file.read(_MIB):
        content += block
        if len(content) > most:
            raise _too_large("more", most)
    return bytes(content)


def check_unpacked(archive: ZipFile) -> None:
    """Refuse an archive that does not fit in the free memory."""
    size, most = sum(entry.file_size for entry in archive.infolist()), _free_bytes()
    if size > most:
        raise _too_large(f"{size / _MIB:.0f} MiB unpacked", most)


def _free_bytes() -> int:
    return available_memory() or 8 * _GIB


def _check_kind(status: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file")
    if status.st_size > most:
        raise _too_large(f"{status.st_size / _MIB:.0f} MiB", most)


def _too_large(size: str, most: int) -> OSError:
    limit = f"{most / _MIB:.0f} MiB" if most >= _MIB else f"{most} bytes"
    return OSError(errno.EFBIG, f"it has {size}, and at most {limit} are read")


def write_atomically(
    path: Path, content: bytes, *, mode: int, error: type[PacPrivacyError] = LedgerError
) -> None:
    """Replace a file in one step that survives a crash."""
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
    """Make a renaming durable, if the system can open folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_STAGES: ContextVar[Any] = ContextVar("stages", default=None)  # rich's bar, while it is on show
_SHOWING = threading.Lock()  # one bar at a time: it redirects what others print


@contextmanager
def show_stages(enabled: bool | None) -> Iterator[None]:
    """Show a bar for the stages inside, if stderr is a terminal; one on show already is used.

    False shows none, and hides what is inside from a bar outside.
    """
    bar = _STAGES.get()
    visible = enabled is not False and bar is None and _on_terminal()
    if not visible or not _SHOWING.acquire(blocking=False):
        token = _STAGES.set(None if enabled is False else bar)
        try:
            yield
        finally:
            _STAGES.reset(token)
        return
    rich = import_module("rich.progress")
    columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn()]
    columns += [rich.TimeElapsedColumn(), rich.TimeRemainingColumn()]
    console = import_module("rich.console").Console(stderr=True)
    bar = rich.Progress(*columns, console=console, transient=True)
    bar.add_task("starting", total=None)
    token = _STAGES.set(bar)
    try:
        with bar:
            yield
    finally:
        _STAGES.reset(token)
        _SHOWING.release()


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def begin(name: str, total: float | None = None) -> Callable[[float], None]:
    """Name the stage that begins; call the result with the amount of work just done."""
    bar = _STAGES.get()
    if bar is None:
        return lambda count: None
    (task,) = bar.task_ids
    bar.reset(task, description=name, total=total)
    return lambda count: bar.advance(task, count)


# --- JAX, of an extra ---------------------------------------------------------------------------


@contextmanager
def without_jax_checks() -> Iterator[None]:
    """Switch checks and warnings of odd numbers off: what they find is about single records."""
    (jax,) = import_jax("jax")
    with jax.debug_nans(False), jax.debug_infs(False), np.errstate(all="ignore"):
        yield


def import_jax(*modules: str) -> tuple[Any, ...]:
    """Import modules that come with the extra; say what is missing where they did not."""
    try:
        return tuple(import_module(name) for name in modules)
    except ImportError:
        raise PacPrivacyError(
            f"{' and '.join(modules)} must be installed for this. "
            "Run in a checkout: pip install '.[jax]'"
        ) from None
