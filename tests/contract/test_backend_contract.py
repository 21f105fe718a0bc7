"""One suite for every backend: the same bytes, failures and warnings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_info, threadpool_limits

from pacprivacy.errors import MechanismError
from pacprivacy.sample import Balanced
from pacprivacy.simulation import Outputs, run_mechanism

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 80))  # above a megabyte: shared through a memory-mapped file
FRAME = pd.DataFrame({"a": RNG.normal(size=2000), "b": RNG.choice(["u", "v"], size=2000)})
POOL = Balanced(n_subsets=32).draw(2000, rng=0)


@pytest.fixture(scope="module", autouse=True)
def shut_down_workers() -> Iterator[None]:
    yield
    get_reusable_executor().shutdown(wait=True)


def work(X: np.ndarray, frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    """Products and decompositions whose last bits depend on the number of BLAS threads."""
    X[:, 0] += 1.0
    gram = X.T @ X
    return {
        "gram": gram,
        "inverse": np.linalg.inv(gram),
        "groups": frame.groupby("b")["a"].mean(),
        "noise": rng.normal(size=3),
    }


def config(backend: str | None) -> AbstractContextManager[Any]:
    return nullcontext() if backend is None else joblib.parallel_config(backend=backend)


def run(mechanism: Any, n_jobs: int | None, backend: str | None, **options: Any) -> Outputs:
    with config(backend):
        return run_mechanism(mechanism, (X, FRAME), POOL, n_jobs=n_jobs, rng=1, **options)


BACKENDS = [(1, None), (2, None), (3, "threading")]
MORE = [(2, "loky"), (-1, None), (4, None)]  # changing their number restarts the workers


@pytest.fixture(scope="module")
def reference() -> bytes:
    return run(work, None, None).values.tobytes()


@pytest.mark.claim("M-2")
@pytest.mark.parametrize(("n_jobs", "backend"), [*BACKENDS, *MORE])
def test_same_bytes(n_jobs: int, backend: str | None, reference: bytes) -> None:
    assert run(work, n_jobs, backend).values.tobytes() == reference


def count_threads(X: np.ndarray, frame: pd.DataFrame) -> int:
    return max(library["num_threads"] for library in threadpool_info())


@pytest.mark.claim("M-2")
@pytest.mark.parametrize(("n_jobs", "backend"), BACKENDS)
def test_one_numerical_thread_inside_and_as_before_outside(
    n_jobs: int, backend: str | None
) -> None:
    with threadpool_limits(limits=2):
        before, environment = threadpool_info(), dict(os.environ)
        assert (run(count_threads, n_jobs, backend).values == 1.0).all()
        assert threadpool_info() == before
        assert dict(os.environ) == environment


@pytest.mark.claim("M-2")
def test_joblib_configuration_is_honoured(reference: bytes) -> None:
    with joblib.parallel_config(backend="threading", n_jobs=2):
        outputs = run_mechanism(work, (X, FRAME), POOL, rng=1)
    assert outputs.values.tobytes() == reference


@pytest.mark.claim("M-2")
def test_batches_do_not_matter(reference: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pacprivacy.simulation.run.choose_run_batch_size", lambda *_: 5)
    assert run(work, 1, None).values.tobytes() == reference
    assert run(work, 3, "threading").values.tobytes() == reference


@pytest.mark.claim("M-2")
def test_checkpoint_with_workers(tmp_path: Path, reference: bytes) -> None:
    path = tmp_path / "checkpoint"
    assert run(work, 2, None, checkpoint=path).values.tobytes() == reference
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert run(work, 1, None, checkpoint=path).values.tobytes() == reference


def fails(X: np.ndarray, frame: pd.DataFrame, rng: np.random.Generator) -> float:
    if rng.random() < 0.3:
        raise LookupError("no such thing")
    return 0.0


def test_the_same_subset_is_reported() -> None:
    messages = set()
    for n_jobs, backend in BACKENDS:
        with pytest.raises(MechanismError, match=r"failed on subset \d+: LookupError") as caught:
            run(fails, n_jobs, backend)
        messages.add(str(caught.value))
    assert len(messages) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_cannot_be_sent_is_explained() -> None:
    """The manager thread of loky may die with its pool when a task cannot be pickled."""
    import threading

    lock = threading.Lock()

    def holds_a_lock(X: np.ndarray, frame: pd.DataFrame) -> float:
        with lock:
            return float(X[0, 0])

    with pytest.raises(MechanismError, match=r"must run in worker processes; got .*n_jobs=1"):
        run(holds_a_lock, 2, None)
    get_reusable_executor().shutdown(wait=True)  # so that it dies here and not in a later test
    assert run(holds_a_lock, 2, "threading").n_outputs == 1
