"""``pac`` that is told to end takes its worker processes along."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

PATIENCE_S = 120.0


def members(group: int) -> list[str]:
    """The command lines of the processes of a group."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if folder.name.isdigit() and int(fields[2]) == group and fields[0] != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended meanwhile, or is no process
            continue
    return found


def wait_until(happened: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
def test_no_worker_outlives_the_command(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{'xyz'[i % 3]}" for i, (a, b) in enumerate(rng.normal(size=(3000, 2)))]
    (tmp_path / "big.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    words = "release big.csv --model svm --target y --subsets 4096 --budget mi<=8 --jobs 2 -o out"
    script = "from pacprivacy.cli.console import run_console; run_console()"
    command = subprocess.Popen(
        [sys.executable, "-c", script, *words.split()],
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    group = command.pid

    def has_workers() -> bool:
        return sum("LokyProcess" in line for line in members(group)) >= 2

    try:
        assert wait_until(lambda: has_workers() or command.poll() is not None)
        assert command.poll() is None
        command.terminate()
        said = command.communicate(timeout=PATIENCE_S)[1]
        assert command.returncode == 130
        assert said.startswith("pac: error: stopped")
        assert wait_until(lambda: not any("LokyProcess" in line for line in members(group)))
        assert not (tmp_path / "out" / "release.json").exists()
    finally:
        if members(group):
            os.killpg(group, signal.SIGKILL)
