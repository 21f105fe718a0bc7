"""Checkpoints: killed runs go on, to the same bytes, and files of other runs are refused."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacprivacy.errors import CheckpointError, InterruptedRun, MechanismError
from pacprivacy.sample import Balanced
from pacprivacy.simulation import Outputs, read_checkpoint_seed, run_mechanism

X = np.random.default_rng(0).normal(size=(40, 3))
POOL = Balanced(n_subsets=16).draw(40, rng=5)
RECORD = 4 + 4 + 4 * 8 + 4


class Counted:
    """A function that counts its calls, and can be told to stop at one of them."""

    def __init__(self, stop_at: int = 0) -> None:
        self.calls = 0
        self.stop_at = stop_at

    def __call__(self, X: np.ndarray, rng: np.random.Generator) -> Any:
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        return {"mean": X.mean(axis=0), "noise": rng.normal()}


def run(mechanism: Any, path: Path | None, **options: Any) -> Outputs:
    return run_mechanism(mechanism, X, POOL, checkpoint=path, **{"rng": 3, **options})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.pac-checkpoint"


@pytest.mark.claim("M-2")
def test_an_interrupted_run_goes_on_where_it_stopped(path: Path) -> None:
    wanted = run(Counted(), None).values
    with pytest.raises(InterruptedRun) as caught:
        run(Counted(stop_at=9), path)
    done = int(str(caught.value).split()[2])
    assert 1 <= done < 9
    again = Counted()
    outputs = run(again, path)
    assert outputs.values.tobytes() == wanted.tobytes()
    assert again.calls == 16 - done + 1  # the first subset once more
    finished = Counted()
    assert run(finished, path).values.tobytes() == wanted.tobytes()
    assert finished.calls == 1


@pytest.mark.claim("M-2")
@pytest.mark.parametrize("cut", [1, RECORD - 1, RECORD, RECORD + 7, 5 * RECORD])
def test_a_torn_tail_is_run_again(path: Path, cut: int) -> None:
    wanted = run(Counted(), path).values
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    again = Counted()
    assert run(again, path).values.tobytes() == wanted.tobytes()
    assert again.calls == 1 + -(-cut // RECORD)
    assert path.read_bytes() == content


@pytest.mark.claim("M-2")
def test_a_damaged_record_is_run_again(path: Path) -> None:
    wanted = run(Counted(), path).values
    content = bytearray(path.read_bytes())
    content[-3 * RECORD + 20] ^= 1
    path.write_bytes(content)
    again = Counted()
    assert run(again, path).values.tobytes() == wanted.tobytes()
    assert again.calls == 4


def test_seeds_survive_a_restart(path: Path) -> None:
    assert read_checkpoint_seed(path) is None
    first = run(Counted(), path, rng=None)
    assert read_checkpoint_seed(path) == POOL.seed == 5
    second = run(Counted(), path, rng=None)
    assert second.seed == first.seed
    assert second.values.tobytes() == first.values.tobytes()
    assert run(Counted(), path, rng=first.seed).seed == first.seed


def test_the_file_is_for_its_owner_and_holds_no_pickle(path: Path) -> None:
    before = os.umask(0)
    try:
        run(Counted(), path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().startswith(b"PACCHECKPOINT\n")
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert len(path.read_bytes()) == path.read_bytes().index(b"}") + 1 + 16 * RECORD


def test_an_empty_file_is_a_new_checkpoint(path: Path) -> None:
    path.touch(mode=0o644)
    run(Counted(), path)
    assert read_checkpoint_seed(path) == 5
    assert path.stat().st_mode & 0o777 == 0o600


def other(X: np.ndarray, rng: np.random.Generator) -> Any:
    return {"mean": X.mean(axis=0), "noise": rng.normal()}


class Changed(Counted):
    def __call__(self, X: np.ndarray, rng: np.random.Generator) -> Any:
        value = super().__call__(X, rng)
        return {**value, "noise": value["noise"] * (1 + 1e-15)}


Changed.__name__ = Changed.__qualname__ = "Counted"


class Longer(Counted):
    def __call__(self, X: np.ndarray, rng: np.random.Generator) -> Any:
        return (super().__call__(X, rng), 0.0)


Longer.__name__ = Longer.__qualname__ = "Counted"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": X + 1e-12}, "made with other data"),
        ({"pool": Balanced(n_subsets=16).draw(40, rng=6)}, "made with another pool"),
        ({"rng": 4}, "made with another rng; pass the same integer, or None"),
        ({"mechanism": other}, "made with another function"),
        ({"mechanism": Longer()}, "output of another size"),
        ({"mechanism": Changed()}, "values differ on subset 0. The function or a library"),
    ],
)
def test_a_file_of_another_run_is_refused(path: Path, change: dict[str, Any], message: str) -> None:
    run(Counted(), path)
    content = path.read_bytes()
    call: dict[str, Any] = {"mechanism": Counted(), "data": X, "pool": POOL, "rng": 3, **change}
    with pytest.raises(CheckpointError, match=message):
        run_mechanism(checkpoint=path, **call)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name,age\nAda,36\n", "which is something else and was left alone"),
        (b"PACCHECKPOINT\n\x05", "got a damaged one"),
        (b"PACCHECKPOINT\n" + b"\xff" * 40, "got a damaged one"),
    ],
)
def test_other_files_are_left_alone(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        run(Counted(), path)
    assert path.read_bytes() == content


def test_a_newer_format_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(Counted(), path)
    monkeypatch.setattr("pacprivacy.simulation.checkpoint.SCHEMA_VERSION", 2)
    with pytest.raises(CheckpointError, match="schema version 2; got 1"):
        run(Counted(), path)


def test_unusable_paths_are_explained(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"can be written.*existing folder"):
        run(Counted(), tmp_path / "missing" / "file")
    with pytest.raises(CheckpointError, match="can be read"):
        run(Counted(), tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="file locks")
def test_two_runs_cannot_share_a_file(path: Path) -> None:
    def nested(X: np.ndarray) -> float:
        if nested.depth == 2:  # type: ignore[attr-defined]
            nested.depth = 0  # type: ignore[attr-defined]
            run_mechanism(nested, globals()["X"], POOL, checkpoint=path, rng=3)
        nested.depth += 1  # type: ignore[attr-defined]
        return 0.0

    nested.depth = 0  # type: ignore[attr-defined]
    with pytest.raises(MechanismError, match="CheckpointError: checkpoint must not be in use"):
        run_mechanism(nested, X, POOL, checkpoint=path, rng=3)


SCRIPT = """
import os, sys, time
import numpy as np
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism

CALLS, CHECKPOINT, DELAY = sys.argv[1], sys.argv[2] or None, float(sys.argv[3])
X = np.random.default_rng(0).normal(size=(60, 3))

def slow(X, rng):
    descriptor = os.open(CALLS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b".")
    os.close(descriptor)
    time.sleep(DELAY)
    return X.mean(axis=0) + rng.normal(size=3)

pool = Balanced(n_subsets=256).draw(60, rng=1)
values = run_mechanism(slow, X, pool, checkpoint=CHECKPOINT, rng=2).values
"""


@pytest.mark.claim("M-2")
@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_killed_run_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, calls, path = tmp_path / "script.py", tmp_path / "calls", tmp_path / "checkpoint"
    script.write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen([sys.executable, str(script), str(calls), str(path), "0.005"])
    try:
        deadline = time.monotonic() + 60
        while (not calls.exists() or calls.stat().st_size < 100) and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    header = path.read_bytes().index(b"}") + 1
    done = (path.stat().st_size - header) // (4 + 4 + 3 * 8 + 4)
    assert 1 < done < 256

    def finish(side: str, checkpoint: str) -> tuple[np.ndarray, int]:
        arguments = [str(script), str(tmp_path / side), checkpoint, "0"]
        monkeypatch.setattr(sys, "argv", arguments)
        values = runpy.run_path(str(script))["values"]
        return values, (tmp_path / side).stat().st_size

    resumed, n_calls = finish("again", str(path))
    fresh, _ = finish("fresh", "")
    assert resumed.tobytes() == fresh.tobytes()
    assert n_calls == 256 - done + 1
