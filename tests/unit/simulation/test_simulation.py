"""Running a mechanism over a pool: checks, failures, warnings, interruption."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from pacprivacy._random import public_generator
from pacprivacy.errors import DataError, InterruptedRun, MechanismError
from pacprivacy.mechanism import Data, Mechanism, as_mechanism
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import Outputs, run_mechanism, workers
from pacprivacy.simulation.run import choose_run_batch_size
from pacprivacy.statistics import Mean

X = np.random.default_rng(0).normal(size=(40, 3))
POOL = Balanced(n_subsets=16).draw(40, rng=0)


def run(mechanism: Any, **options: Any) -> Outputs:
    return run_mechanism(mechanism, X, POOL, **{"rng": 0, **options})


def test_values_are_those_of_the_function_on_every_subset() -> None:
    outputs = run(lambda X: {"mean": X.mean(axis=0), "size": len(X)})
    assert outputs.values.shape == (16, 4)
    for k in range(16):
        subset = X[POOL.rows(k)]
        np.testing.assert_array_equal(outputs.values[k], [*subset.mean(axis=0), len(subset)])
    restored = outputs.restore(outputs.values[3])
    np.testing.assert_array_equal(restored["mean"], X[POOL.rows(3)].mean(axis=0))


def test_outputs_are_read_only_and_hide_their_values() -> None:
    outputs = run(lambda X: X.mean(axis=0))
    with pytest.raises(ValueError, match="read-only"):
        outputs.values[0, 0] = 0.0
    assert repr(outputs) == (
        "Outputs(structure=Structure(size=3), "
        "mechanism_name='test_outputs_are_read_only_and_hide_their_values.<lambda>', public=(), "
        "published=())"
    )


def test_several_parts_are_unpacked_and_units_stay_together() -> None:
    units = np.arange(40) // 2
    pool = Balanced(n_subsets=4).draw(40, rng=0, units=units)
    outputs = run_mechanism(lambda X, u: len(set(u)) / len(u), (X, units), pool)
    np.testing.assert_array_equal(outputs.values, np.full((4, 1), 0.5))


def test_every_subset_has_its_own_public_generator() -> None:
    outputs = run(lambda X, rng: rng.random(2), rng=7)
    wanted = [public_generator(7, "mechanism", k).random(2) for k in range(16)]
    np.testing.assert_array_equal(outputs.values, wanted)
    assert outputs.seed == 7
    assert run(lambda X, rng: rng.random(), rng=None).seed != run(lambda X: 0.0, rng=None).seed


def test_a_function_may_write_to_its_subset() -> None:
    before = X.copy()

    def scribble(X: np.ndarray) -> float:
        X -= X.mean()
        X[0] = 5.0
        return float(X.sum())

    run(scribble)
    np.testing.assert_array_equal(X, before)


class Recorder(Mechanism):
    """Counts rows above the universe's median, which it names."""

    name = "above the median"

    def __init__(self, median: float | None = None) -> None:
        self.median = median

    @property
    def public(self) -> tuple[str, ...]:
        return ("median of the universe",)

    def prepare(self, data: Data) -> Recorder:
        return Recorder(float(np.median(data.parts[0][:, 0])))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> float:
        return float((parts[0][:, 0] > self.median).sum())

    def finish(self, value: float) -> float:
        return max(0.0, round(value))


def test_prepare_sees_the_universe_and_finish_the_release() -> None:
    outputs = run(Recorder())
    median = np.median(X[:, 0])
    wanted = [(X[POOL.rows(k), 0] > median).sum() for k in range(16)]
    np.testing.assert_array_equal(outputs.values[:, 0], wanted)
    assert outputs.public == ("median of the universe",)
    assert outputs.mechanism_name == "above the median"
    assert outputs.restore([-3.7]) == 0.0


@pytest.mark.parametrize(
    "unstable",
    [
        lambda X: np.random.rand(),  # noqa: NPY002
        lambda X: time.perf_counter_ns(),
        lambda X, state=[0.0]: state.__setitem__(0, state[0] + 1.0) or state[0],
    ],
    ids=["global generator", "clock", "state"],
)
def test_randomness_of_its_own_is_refused(unstable: Any) -> None:
    with pytest.raises(MechanismError, match=r"must be deterministic.*subset 0. Take a parameter"):
        run(unstable)


def first_row_is(X: np.ndarray, rows: list[int]) -> bool:
    return any(np.array_equal(X, SUBSETS[k]) for k in rows)


SUBSETS = [X[POOL.rows(k)] for k in range(16)]


def faulty(X: np.ndarray, *, bad: list[int], how: str) -> Any:
    if not first_row_is(X, bad):
        return {"a": X.mean(axis=0), "note": "fine"}
    if how == "raise":
        raise ZeroDivisionError("by hand.")
    if how == "nan":
        return {"a": X.mean(axis=0) * np.nan, "note": "fine"}
    if how == "longer":
        return {"a": X.mean(axis=1), "note": "fine"}
    if how == "static":
        return {"a": X.mean(axis=0), "note": "other"}
    return {"a": np.array(["x"]), "note": "fine"}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", r"failed on subset 5: ZeroDivisionError: by hand\. Make the function work"),
        ("nan", "failed on subset 5: value must be finite; got 3 NaN or infinite entries out of 3"),
        ("longer", r"failed on subset 5: value\['a'\] must have the same shape"),
        ("static", r"failed on subset 5: value\['note'\] must have the same shape"),
        ("type", r"failed on subset 5: value\['a'\] must hold real numbers"),
    ],
)
def test_the_first_failing_subset_is_named(how: str, message: str, n_jobs: int) -> None:
    with (
        joblib.parallel_config(backend="threading"),
        pytest.raises(MechanismError, match=message),
    ):
        run(functools.partial(faulty, bad=[5, 6, 11, 15], how=how), n_jobs=n_jobs)


def test_nothing_more_is_run_after_a_failure() -> None:
    calls = []

    def fails_at_four(X: np.ndarray) -> float:
        calls.append(1)
        return 1.0 / (0 if first_row_is(X, [4]) else 1)

    with pytest.raises(MechanismError, match="subset 4: ZeroDivisionError"):
        run(fails_at_four)
    assert len(calls) == 6  # subset 0 twice, then 1, 2, 3 and 4


def test_failure_on_the_first_subset_is_named_and_chained() -> None:
    with pytest.raises(MechanismError, match="failed on subset 0: ZeroDivisionError") as caught:
        run(functools.partial(faulty, bad=[0], how="raise"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "raise ZeroDivisionError" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 39 + ["b"], r"ValueError: .*draw a pool with larger or stratified subsets"),
        (["a", "b"] * 19 + ["c", "c"], r"value\.(coef_|classes_) must have .* stratify the pool"),
    ],
)
def test_a_missing_class_advises_to_stratify(labels: list[str], message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        run_mechanism(lambda X, y: LogisticRegression().fit(X, y), (X, np.array(labels)), POOL)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(MechanismError, match="must hold at least one number"):
        run(lambda X: "done")


def test_the_pool_must_fit_the_data() -> None:
    with pytest.raises(DataError, match=r"as many rows as the pool \(40\); got 39"):
        run_mechanism(lambda X: 0.0, X[:39], POOL)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (3, "got int. Pass a function"),
        (LogisticRegression(), r"got LogisticRegression. Write a function such as: lambda X, y"),
        (Mean, r"got the class Mean. Write Mean\(\)"),
    ],
)
def test_what_is_not_a_mechanism_is_refused(mechanism: Any, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        as_mechanism(mechanism)


class Largest(Mechanism):
    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> float:
        return float(parts[0].max())


def test_a_mechanism_needs_a_function_and_no_more() -> None:
    outputs = run(Largest())
    assert outputs.mechanism_name == "Largest"
    assert outputs.values[3] == X[POOL.rows(3)].max()
    with pytest.raises(TypeError, match="evaluate"):
        type("Idle", (Mechanism,), {})()


def test_a_mechanism_needs_a_name_of_text() -> None:
    numbered = type("Numbered", (Largest,), {"name": 3})
    with pytest.raises(MechanismError, match="name must be a string; got int"):
        as_mechanism(numbered())


def test_rng_is_passed_by_signature() -> None:
    def bound(X: Any, rng: Any) -> int:
        return int(rng)

    assert as_mechanism(bound).takes_rng  # type: ignore[attr-defined]
    assert not as_mechanism(functools.partial(bound, rng=3)).takes_rng  # type: ignore[attr-defined]
    assert not as_mechanism(lambda X, **options: 0.0).takes_rng  # type: ignore[attr-defined]
    assert not as_mechanism(np.mean).takes_rng  # type: ignore[attr-defined]
    assert run(functools.partial(bound, rng=3)).values.tolist() == [[3.0]] * 16
    assert as_mechanism(functools.partial(bound, rng=3)).name.endswith("bound")


@pytest.mark.parametrize("n_jobs", [0, 1.5, "two", True])
def test_n_jobs_must_make_sense(n_jobs: Any) -> None:
    with pytest.raises(ValueError, match="n_jobs must be"):
        run(lambda X: 0.0, n_jobs=n_jobs)


def complaining(X: np.ndarray) -> float:
    warnings.warn("slow to converge", RuntimeWarning, stacklevel=1)
    return float(X.sum())


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_warnings_are_neither_lost_nor_errors(n_jobs: int) -> None:
    with pytest.warns(RuntimeWarning, match=r"slow to converge \[17 such warnings") as caught:
        run(complaining, n_jobs=n_jobs)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_warnings_do_not_hide_a_failure() -> None:
    def both(X: np.ndarray) -> float:
        complaining(X)
        raise ZeroDivisionError

    with pytest.raises(MechanismError, match="subset 0: ZeroDivisionError"):
        run(both)


def test_a_filter_that_makes_warnings_errors_does_not_change_the_function() -> None:
    def catches(X: np.ndarray) -> float:
        try:
            warnings.warn("careful", RuntimeWarning, stacklevel=1)
        except RuntimeWarning:
            return 1.0
        return 0.0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not run(catches).values.any()
    with pytest.raises(RuntimeWarning, match="careful"):
        run(catches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(Mechanism):
    """A batch mechanism with a fault to choose."""

    fault: str = ""

    @property
    def name(self) -> str:
        return "Sum"

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> np.ndarray:
        return parts[0].sum(axis=0)

    def batch(self, data: Data, pool: Pool) -> np.ndarray:
        values = pool.masks().astype(float) @ data.parts[0]
        if self.fault == "value":
            values[0, 1] += 1e-6
        if self.fault == "nan":
            values[7, 2] = np.nan
        return values[:, :2] if self.fault == "shape" else values


def test_batch_mechanisms_run_at_once_and_need_no_checkpoint(tmp_path: Path) -> None:
    outputs = run(Sum(), checkpoint=tmp_path / "unused")
    np.testing.assert_allclose(outputs.values[9], X[POOL.rows(9)].sum(axis=0))
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("value", "batch must agree with evaluate"),
        ("nan", "failed on subset 7: value must be finite"),
        ("shape", r"batch must return shape \(16, 3\); got \(16, 2\)"),
    ],
)
def test_faulty_batches_are_refused(fault: str, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        run(Sum(fault=fault))


def interrupted_at(call: int) -> Any:
    calls = []

    def stop(X: np.ndarray) -> float:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return float(X.sum())

    return stop


def test_interruption_says_how_to_resume(tmp_path: Path) -> None:
    with pytest.raises(InterruptedRun, match=r"after 0 of 16 subsets; pass checkpoint="):
        run(interrupted_at(1))
    path = tmp_path / "run.pac-checkpoint"
    with pytest.raises(InterruptedRun, match=r"of 16 subsets; run the same call again with checkp"):
        run(interrupted_at(12), checkpoint=path)
    assert issubclass(InterruptedRun, KeyboardInterrupt)


def test_batch_size_follows_time_and_workers() -> None:
    assert choose_run_batch_size(1000, 10.0, 2) == 1
    assert choose_run_batch_size(1000, 1e-6, 1) == 125
    assert choose_run_batch_size(1000, 0.05, 1) == 5
    assert choose_run_batch_size(3, 0.0, 4) == 1


@pytest.mark.skipif(os.name != "posix", reason="signals to a process group")
def test_control_c_with_worker_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import signal, sys, time
        import numpy as np
        from pacprivacy.errors import InterruptedRun
        from pacprivacy.sample import Balanced
        from pacprivacy.simulation import run_mechanism

        def slow(X, path):
            open(path, "a").write(".")
            time.sleep(0.02)
            return X.mean()

        if __name__ == "__main__":
            import functools
            # ignored in whatever a shell started in the background
            signal.signal(signal.SIGINT, signal.default_int_handler)
            pool = Balanced(n_subsets=1024).draw(40, rng=0)
            f = functools.partial(slow, path=sys.argv[1])
            try:
                run_mechanism(f, np.arange(40.0), pool, n_jobs=2)
            except InterruptedRun as error:
                print(error)
        """)
    )
    side = tmp_path / "calls"
    process = subprocess.Popen(
        [sys.executable, str(script), str(side)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while (not side.exists() or side.stat().st_size < 60) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "of 1024 subsets; pass checkpoint=" in out
    assert "Traceback" not in err


# --- workers ------------------------------------------------------------------------------------


def _is_first(folder: Path) -> bool:
    """Whether no process has been here before."""
    try:
        (folder / "seen").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@pytest.mark.claim("M-5")
@pytest.mark.filterwarnings("ignore:A worker stopped:UserWarning")
def test_a_killed_worker_costs_its_tasks_only(tmp_path: Path) -> None:
    home = os.getpid()

    def dies_once(x: np.ndarray) -> float:
        if os.getpid() != home and _is_first(tmp_path):
            os.kill(os.getpid(), 9)
        return float(x.sum())

    data, pool = np.arange(400.0), Balanced(n_subsets=32).draw(400, rng=0)
    outputs = run_mechanism(dies_once, data, pool, n_jobs=2, rng=0)
    assert (tmp_path / "seen").exists()
    assert outputs.values.tobytes() == run_mechanism(dies_once, data, pool, rng=0).values.tobytes()


@pytest.mark.claim("M-5")
def test_workers_that_always_die_are_an_error() -> None:
    class Dying(workers.Workers):
        lost = (ConnectionError,)
        attempts = 0

        def _attempt(self, function: Any, shared: Any, tasks: Any) -> Any:
            self.attempts += 1
            for number, task in tasks:
                if number == 5:
                    raise ConnectionError("gone")
                yield number, task

    dying, found = Dying(2), []
    with pytest.raises(MechanismError, match=r"worker processes; got ConnectionError: gone"):
        found.extend(dying.run(len, None, ((k,) for k in range(9))))
    assert dying.attempts == 4

    class Recovering(Dying):
        def _attempt(self, function: Any, shared: Any, tasks: Any) -> Any:
            self.attempts += 1
            for i, (number, task) in enumerate(tasks):
                if i == 2 and self.attempts < 4:
                    raise ConnectionError("gone")
                yield number, task

    found = list(Recovering(2).run(len, None, ((k,) for k in range(9))))
    assert sorted(found) == [(k,) for k in range(9)]


@pytest.mark.claim("M-5")
def test_other_versions_are_refused() -> None:
    label = workers.Label(versions={**workers.worker_versions(), "numpy": "1.0"})
    with pytest.raises(MechanismError, match=r"versions of the caller, numpy 1\.0; got numpy 2"):
        workers.call_in_worker(label, cloudpickle.dumps([1, 2]), sum, 7, ())


def test_a_cluster_opens_the_shared_object_once() -> None:
    label, source = workers.Label(), cloudpickle.dumps([1, 2])
    assert workers.call_in_worker(label, source, sum, 7, ()) == (7, 3)
    assert workers.call_in_worker(label, b"", sum, 8, (4,)) == (8, 7)


@pytest.mark.parametrize("backend", ["slurm", "loky://host", "dask"])
def test_unknown_backends_are_refused(backend: str) -> None:
    with pytest.raises(DataError, match=r"^backend must be"):
        run_mechanism(np.max, np.arange(40.0), Balanced(n_subsets=8).draw(40), backend=backend)
