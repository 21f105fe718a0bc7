"""Executors of tasks: in this process, or in others through joblib, which may be a cluster's.

All tasks of a run share one object: mechanism, universe and pool. Processes of this machine map its
large arrays, as joblib does. To a cluster it travels once for each worker, as bytes, and is kept
there under a label. Whatever a worker had not sent back when it died is sent again.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final

import cloudpickle
import numpy as np

from pacprivacy._random import fresh_seed
from pacprivacy._version import __version__
from pacprivacy.errors import MechanismError

Task = tuple[Any, ...]
Numbered = tuple[int, Any]

_LOSSES: Final = 3  # in a row, without any result between
BACKENDS: Final = ("loky", "threading", "dask")


# --- the object that all tasks share, on a cluster ------------------------------------------------

_KEPT: dict[str, Any] = {}  # in a worker: the shared object that it saw last, by key


def worker_versions() -> dict[str, str]:
    """Return the versions that the last bits of a result depend on."""
    libraries = {name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"Python": platform.python_version(), "pacprivacy": __version__, **libraries}


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Reference of every task to the shared object: its key, and the caller's versions."""

    key: str = field(default_factory=lambda: f"{fresh_seed():x}")
    versions: dict[str, str] = field(default_factory=worker_versions)


def call_in_worker(
    label: Label | None, source: Any, function: Any, number: int, task: Task
) -> Numbered:
    """Run one task in a worker, on the shared object.

    With a label ``source`` is the pickled object, which is opened once; without, the object itself.
    """
    if label is None:
        return number, function(source, *task)
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
        opened = cloudpickle.loads(source)
        _KEPT.clear()
        _KEPT[label.key] = opened
    return number, function(opened, *task)


# --- who runs them ------------------------------------------------------------------------------


class Workers:
    """Processes or threads of this machine, or another backend of joblib."""

    def __init__(self, count: int, prefer: str | None = None) -> None:
        self.count, self._prefer = count, prefer

    @property
    def lost(self) -> tuple[type[BaseException], ...]:
        """Errors that say that workers died."""
        if self._on_cluster:  # Dask itself sends tasks of lost workers to others
            from distributed.client import FutureCancelledError

            return (FutureCancelledError,)
        from joblib.externals.loky.process_executor import BrokenProcessPool

        return (BrokenProcessPool,)

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

    @staticmethod
    def _explain(error: BaseException) -> MechanismError:
        return MechanismError(
            "the mechanism must run in worker processes; got "
            f"{type(error).__name__}: {error}. A worker may have run out of memory, or the "
            "function cannot be sent to it: use fewer workers, n_jobs=1, or "
            "joblib.parallel_config(backend='threading')."
        )

    def _attempt(
        self, function: Any, shared: Any, tasks: Iterator[tuple[int, Task]]
    ) -> Generator[Numbered, None, None]:
        """Yield numbers and results of the tasks until all are done or workers are lost."""
        import joblib

        parallel = joblib.Parallel(
            n_jobs=self.count,
            return_as="generator_unordered",
            batch_size=1,
            prefer=self._prefer,
        )
        label, source = None, shared
        if self._on_cluster:  # other machines have other files
            label = Label()
            source = np.frombuffer(cloudpickle.dumps(shared, protocol=5), dtype=np.uint8)
        results = parallel(
            joblib.delayed(call_in_worker)(label, source, function, number, task)
            for number, task in tasks
        )
        with closing(results):
            yield from results

    @property
    def _on_cluster(self) -> bool:
        from joblib.parallel import get_active_backend

        backend, _ = get_active_backend(prefer=self._prefer)
        return type(backend).__name__ == "DaskDistributedBackend"
