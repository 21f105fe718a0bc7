"""What is asked of the operating system: files that are whole or not there, and few threads.

Files are written beside, synced, renamed, and the folder synced. Evaluations have one numerical
thread, so that results do not depend on the machine's load: a sum split over four threads is added
up in another order than over one, and the last bits differ. The limit is shared by all threads of
a process: the first to enter sets it, the last to leave restores it.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from threadpoolctl import threadpool_limits

from pacprivacy.errors import LedgerError, PacPrivacyError

# For libraries that a mechanism imports while it runs: they read these when they are loaded.
_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

SMALL_WORK: Final = 5_000_000

_lock = threading.Lock()
_holders = 0
_stack = ExitStack()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread while inside."""
    global _holders
    with _lock:
        if _holders == 0:
            # Loaded before the limit: SciPy's own BLAS would keep it for as long as it lives.
            import_module("scipy.linalg")
            _stack.enter_context(_environment())
            _stack.enter_context(threadpool_limits(limits=1))
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                _stack.close()


@contextmanager
def few_threads(n_elements: int) -> Iterator[None]:
    """Use one thread while inside, unless matrices of ``n_elements`` are worth several.

    On small products threads cost several times more than they save.
    """
    with single_threaded() if n_elements < SMALL_WORK else nullcontext():
        yield


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


def used_memory() -> int:
    """Return the bytes of memory that this process holds; 0 where it cannot be told."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> int | None:
    """Return the bytes of memory that can still be had; None where it cannot be told."""
    free = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    with suppress(OSError, ValueError):  # of a container
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        free.append(limit - int((group / "memory.current").read_text(encoding="ascii")))
    return min(free) if free else None


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
