"""Where tasks run: in this process, or in others through joblib, which may be a cluster's.

All tasks of a run share one object: mechanism, universe and pool. It travels once to each worker
(as a memory-mapped file, or as bytes that a cluster scatters) and is kept there; a task names it
and adds a few numbers. Whatever a worker had not sent back when it died is sent again.
"""

from __future__ import annotations

import platform
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import cloudpickle
import numpy as np

from pacprivacy._checks import as_told
from pacprivacy._random import fresh_seed
from pacprivacy._version import __version__
from pacprivacy.errors import DataError, MechanismError

Task = tuple[Any, ...]
Numbered = tuple[int, Any]

_LARGE: Final = 1 << 16  # bytes of an array that is not copied into a pickle
_LOSSES: Final = 3  # in a row, without any result between
BACKENDS: Final = ("loky", "threading", "dask")


# --- what all tasks share, and how it travels ---------------------------------------------------

_KEPT: dict[str, Any] = {}  # in a worker: the shared object that it saw last, by key


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParcel:
    """A shared object as bytes: a pickle, and large arrays beside it, which are not copied."""

    pickle: bytes
    arrays: tuple[Any, ...]

    @classmethod
    def of(cls, shared: Any) -> WorkerParcel:
        arrays: list[Any] = []

        def keep(buffer: Any) -> bool:
            raw = buffer.raw()
            if raw.nbytes < _LARGE:
                return True  # into the pickle
            arrays.append(np.frombuffer(raw, dtype=np.uint8))
            return False

        pickle = cloudpickle.dumps(shared, protocol=5, buffer_callback=keep)
        return cls(pickle=pickle, arrays=tuple(arrays))

    def open(self) -> Any:
        """Return the object; its large arrays are views of these, and cannot be written to."""
        return cloudpickle.loads(self.pickle, buffers=self.arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFiles:
    """A parcel in a folder, whose arrays all workers map into memory."""

    folder: str
    n_arrays: int

    @classmethod
    def write(cls, parcel: WorkerParcel, folder: Path) -> _InFiles:
        (folder / "pickle").write_bytes(parcel.pickle)
        for i, array in enumerate(parcel.arrays):
            array.tofile(folder / str(i))
        return cls(folder=str(folder), n_arrays=len(parcel.arrays))

    def open(self) -> Any:
        folder = Path(self.folder)
        maps = (np.memmap(folder / str(i), mode="r") for i in range(self.n_arrays))
        arrays = tuple(np.asarray(array) for array in maps)
        return WorkerParcel(pickle=(folder / "pickle").read_bytes(), arrays=arrays).open()


def worker_versions() -> dict[str, str]:
    """Return the versions that the last bits of a result depend on."""
    libraries = {name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"Python": platform.python_version(), "pacprivacy": __version__, **libraries}


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Reference of every task to the shared object: its key, and its readers."""

    key: str = field(default_factory=lambda: f"{fresh_seed():x}")
    versions: dict[str, str] = field(default_factory=worker_versions)


@dataclass(frozen=True, slots=True)
class _AtHand:
    """A shared object that is in this process: threads need no copy."""

    shared: Any


def call_in_worker(label: Label, source: Any, function: Any, number: int, task: Task) -> Numbered:
    """Run one task in a worker, on the shared object, which is opened once there."""
    if isinstance(source, _AtHand):
        return number, function(source.shared, *task)
    opened = _KEPT.get(label.key)  # held, because another thread may forget it
    if opened is None:
        here = worker_versions()
        other = [name for name, version in label.versions.items() if here[name] != version]
        if other:
            listed = ", ".join(f"{name} {here[name]}" for name in other)
            expected = ", ".join(f"{name} {label.versions[name]}" for name in other)
            raise MechanismError(
                f"workers must have the versions of the caller, {expected}; got {listed} on "
                f"{platform.node()}. Install the same there: last bits may differ otherwise."
            )
        opened = source.open() if isinstance(source, _InFiles) else cloudpickle.loads(source)
        _KEPT.clear()
        _KEPT[label.key] = opened
    return number, function(opened, *task)


# --- who runs them ------------------------------------------------------------------------------


class Workers(ABC):
    lost: tuple[type[BaseException], ...] = ()

    def __init__(self, count: int) -> None:
        self.count = count

    def run(
        self, function: Callable[..., Any], shared: Any, tasks: Iterable[Task]
    ) -> Generator[Any, None, None]:
        """Yield ``function(shared, *task)`` of all tasks, in any order; tasks are taken in order.

        Guarantee
        ---------
        Claim M-5. Each task's result is yielded once, whatever workers die, as long as one in
        four attempts brings a result; otherwise it is an error.
        """
        ahead, losses = enumerate(tasks), 0
        sent: dict[int, Task] = {}
        again: deque[tuple[int, Task]] = deque()

        def feed() -> Iterator[tuple[int, Task]]:
            while again:
                number, task = again.popleft()
                sent[number] = task
                yield number, task
            for number, task in ahead:
                sent[number] = task
                yield number, task

        while True:
            try:
                with closing(self._attempt(function, shared, feed())) as results:
                    for number, result in results:
                        if sent.pop(number, None) is not None:
                            losses = 0
                            yield result
                return
            except self.lost as error:
                losses += 1
                if losses > _LOSSES:
                    raise self._explain(error) from error
                again.extend(sorted(sent.items()))
                sent.clear()
            except (KeyboardInterrupt, GeneratorExit, MechanismError):
                raise
            except Exception as error:
                raise self._explain(error) from error

    @abstractmethod
    def _attempt(
        self, function: Any, shared: Any, tasks: Iterator[tuple[int, Task]]
    ) -> Generator[Numbered, None, None]:
        """Yield numbers and results of the tasks until all are done or workers are lost."""

    @staticmethod
    def _explain(error: BaseException) -> MechanismError:
        return MechanismError(
            "the mechanism must run in worker processes; got "
            f"{type(error).__name__}: {error}. A worker may have run out of memory, or the "
            "function cannot be sent to it: use fewer workers, n_jobs=1, or "
            "joblib.parallel_config(backend='threading')."
        )


class _Here(Workers):
    def _attempt(
        self, function: Any, shared: Any, tasks: Iterator[tuple[int, Task]]
    ) -> Generator[Numbered, None, None]:
        for number, task in tasks:
            yield number, function(shared, *task)


class _Joblib(Workers):
    """Processes or threads of this machine, or another backend of joblib."""

    def __init__(self, count: int, prefer: str | None = None) -> None:
        from joblib.externals.loky.process_executor import BrokenProcessPool

        super().__init__(count)
        self.lost, self._prefer = (BrokenProcessPool,), prefer
        if self._on_cluster:
            from distributed.client import FutureCancelledError

            self.lost = (FutureCancelledError,)  # Dask itself sends tasks of lost workers to others

    def _attempt(
        self, function: Any, shared: Any, tasks: Iterator[tuple[int, Task]]
    ) -> Generator[Numbered, None, None]:
        import joblib

        parallel = joblib.Parallel(
            n_jobs=self.count,
            return_as="generator_unordered",
            batch_size=1,
            prefer=self._prefer,
        )
        with self._placed(shared) as (label, source):
            results = parallel(
                joblib.delayed(call_in_worker)(label, source, function, number, task)
                for number, task in tasks
            )
            with closing(results):
                yield from results

    @property
    def _on_cluster(self) -> bool:
        return type(self._backend).__name__ == "DaskDistributedBackend"

    @property
    def _backend(self) -> Any:
        from joblib.parallel import get_active_backend

        return get_active_backend(prefer=self._prefer)[0]

    @contextmanager
    def _placed(self, shared: Any) -> Iterator[tuple[Label, Any]]:
        label = Label()
        if getattr(self._backend, "supports_sharedmem", False):
            yield label, _AtHand(shared)
            return
        if self._on_cluster:  # other machines have other files
            yield label, np.frombuffer(cloudpickle.dumps(shared, protocol=5), dtype=np.uint8)
            return
        folder = Path(tempfile.mkdtemp(prefix="pacprivacy-"))
        try:
            yield label, _InFiles.write(WorkerParcel.of(shared), folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_workers(
    n_jobs: int | None = None, backend: str | None = None, *, prefer: str | None = None
) -> Iterator[Workers]:
    """Yield the executor, by name or by the configuration of joblib in force."""
    import joblib  # slow to import, not always needed

    whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        raise DataError(
            f"n_jobs must be None or an integer other than 0; got {as_told(n_jobs)}. "
            "Use -1 for all cores."
        )
    if backend not in (None, *BACKENDS):
        raise DataError(
            f"backend must be one of {', '.join(BACKENDS)}; got {as_told(backend)}. "
            "Leave it out for loky."
        )
    try:
        configured = joblib.parallel_config(backend=backend) if backend else nullcontext()
    except (ImportError, ValueError) as error:  # it is not installed, or has no client
        raise DataError(
            f"backend must be connected; got {as_told(backend)}, which is not. Open "
            "distributed.Client('host:8786') first, of the extra cluster: pip install '.[cluster]'."
        ) from error
    with configured:
        of_cluster = backend == "dask" and n_jobs is None
        count = int(joblib.effective_n_jobs(-1 if of_cluster else n_jobs))
        yield _Here(1) if count == 1 and backend != "dask" else _Joblib(count, prefer)
