"""Black boxes on Dask: the same bytes as here, whoever dies."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

from pacprivacy.errors import InterruptedRun, MechanismError
from pacprivacy.sample import Balanced
from pacprivacy.simulation import Outputs, checkpoint, run_mechanism, workers

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs, about sockets, ports and pipes
X = np.random.default_rng(0).normal(size=(4000, 20))
POOL = Balanced(n_subsets=64).draw(len(X), rng=0)


def make_work(seconds: float = 0.0) -> Callable[..., Any]:
    """Return a function that travels whole, as those of a notebook do."""

    def work(X: np.ndarray, rng: np.random.Generator) -> Any:
        time.sleep(seconds)
        return {"inverse": np.linalg.inv(X.T @ X), "draw": rng.normal(size=3)}

    return work


@dataclass
class Cluster:
    """A cluster of two workers on this machine, and the numbers of their processes."""

    name: str
    pids: Callable[[], list[int]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    distributed = pytest.importorskip("distributed", reason="pip install 'pacprivacy[cluster]'")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as made,
        distributed.Client(made) as client,
    ):
        yield Cluster("dask", lambda: list(client.run(os.getpid).values()))


@pytest.fixture(scope="module")
def here() -> bytes:
    return run_mechanism(make_work(), X, POOL, rng=1).values.tobytes()


def run(cluster: Cluster, seconds: float = 0.0, **options: Any) -> Outputs:
    return run_mechanism(make_work(seconds), X, POOL, rng=1, backend=cluster.name, **options)


def configured(name: str) -> AbstractContextManager[Any]:
    config: AbstractContextManager[Any] = joblib.parallel_config(backend=name)
    return config


@pytest.mark.claim("M-2")
def test_same_bytes(cluster: Cluster, here: bytes) -> None:
    assert run(cluster).values.tobytes() == here
    assert run(cluster, n_jobs=1).values.tobytes() == here
    with configured(cluster.name):
        assert run_mechanism(make_work(), X, POOL, rng=1).values.tobytes() == here


@pytest.mark.claim("M-5")
def test_two_killed_workers_change_nothing(cluster: Cluster, here: bytes) -> None:
    for delay, pid in zip((0.2, 0.5), cluster.pids(), strict=False):
        threading.Timer(delay, os.kill, (pid, 9)).start()
    assert run(cluster, 0.03).values.tobytes() == here
    assert len(cluster.pids()) == 2  # others took their place


@pytest.mark.claim("M-2")
def test_an_interrupted_run_goes_on(
    cluster: Cluster, here: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, appended = tmp_path / "run.checkpoint", []
    append = checkpoint.Checkpoint.append

    def stop(self: Any, results: Any) -> None:
        append(self, results)
        appended.append(results)
        if len(appended) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "append", stop)
        with pytest.raises(InterruptedRun, match=r"stopped after \d+ of 64 subsets"):
            run(cluster, checkpoint=file)
    assert run(cluster, checkpoint=file).values.tobytes() == here


@pytest.mark.claim("M-5")
def test_other_versions_are_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {**workers.worker_versions(), "numpy": "1.0"}
    monkeypatch.setattr(workers, "Label", partial(workers.Label, versions=versions))
    with pytest.raises(MechanismError, match=r"versions of the caller, numpy 1\.0; got numpy 2"):
        run(cluster)


def test_failures_name_their_subset(cluster: Cluster) -> None:
    def fails(X: np.ndarray, rng: np.random.Generator) -> float:
        if rng.random() < 0.3:
            raise LookupError("no such thing")
        return 0.0

    messages = set()
    for backend in (None, cluster.name):
        with pytest.raises(MechanismError, match=r"failed on subset \d+: LookupError") as caught:
            run_mechanism(fails, X, POOL, rng=1, backend=backend)
        messages.add(str(caught.value))
    assert len(messages) == 1
