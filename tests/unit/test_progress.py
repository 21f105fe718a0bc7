"""The bar that is shown while one waits: its stages, and what it never shows."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.live import _RefreshThread
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy import _system
from pacprivacy._system import begin, show_stages
from pacprivacy.cli import app
from pacprivacy.mechanism import LinearSVM
from pacprivacy.session import ReleaseSecret

X = np.random.default_rng(0).normal(size=(120, 2))


class Watched:
    """What a terminal has shown so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._so_far = capsys, ""

    def getvalue(self) -> str:
        self._so_far += self._capsys.readouterr().err
        return self._so_far


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Watched:
    monkeypatch.setattr(_system, "_on_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return Watched(capsys)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((Terminal(), True), (io.StringIO(), False), (None, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with show_stages(None):
            assert (_system._STAGES.get() is not None) is shown


def release(**options: Any) -> pac.Release:
    return pac.privatize(np.mean, X, pac.Membership(0.7), n_subsets=16, rng=0, **options)


def test_stages_are_shown_and_wiped(terminal: Watched) -> None:
    with show_stages(None):
        advance = begin("evaluating candidates", 10)
        advance(4)
        _system._STAGES.get().refresh()
        begin("finding the noise")
        _system._STAGES.get().refresh()
    shown = terminal.getvalue()
    assert shown.index("evaluating candidates") < shown.index("finding the noise")
    assert "40%" in shown
    assert shown.endswith("\x1b[1A\x1b[2K"), "nothing is left of it"


def test_nobody_watches_and_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    release()
    assert capsys.readouterr() == ("", "")


def test_what_is_silent_inside_stays_so(terminal: Watched) -> None:
    with show_stages(True):
        begin("outside")
        with show_stages(False):
            begin("inside")
        with show_stages(None):
            begin("again")
        _system._STAGES.get().refresh()
    shown = terminal.getvalue()
    assert "inside" not in shown
    assert "again" in shown


def ask(folder: Path) -> None:
    rows = [f"{i},{a}" for i, (a, _) in enumerate(X)]
    (folder / "people.csv").write_text("\n".join(["id,a", *rows]) + "\n")
    words = ["sql", str(folder), "SELECT avg(a) AS a FROM people", "--unit", "people.id"]
    words += ["--budget", "mi<=1", "--subsets", "16", "-o", str(folder / "out")]
    assert CliRunner().invoke(app, words).exit_code == 0


@pytest.mark.claim("R-2")
@pytest.mark.parametrize("make", [lambda _: release(), ask])
def test_it_is_gone_before_the_secret_is_drawn(
    make: Callable[[Path], Any],
    tmp_path: Path,
    terminal: Watched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    init = ReleaseSecret.__init__

    def record(self: ReleaseSecret, *args: Any, **options: Any) -> None:
        drawing = [t for t in threading.enumerate() if isinstance(t, _RefreshThread)]
        ticking = [thread for thread in drawing if not thread.done.is_set()]
        seen.append((_system._STAGES.get(), ticking, terminal.getvalue()))
        init(self, *args, **options)

    monkeypatch.setattr(ReleaseSecret, "__init__", record)
    make(tmp_path)
    (line, ticking, before) = seen[0]
    assert line is None
    assert ticking == []
    assert before or make is ask, "the runner of commands has a terminal of its own"
    assert terminal.getvalue() == before, "nothing was shown since"


def test_a_stopped_command_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{a},{b},{'yn'[int(a > 0)]}" for a, b in X]
    (tmp_path / "people.csv").write_text("\n".join(["a,b,c", *rows]) + "\n")
    out = tmp_path / "out"
    words = ["release", tmp_path / "people.csv", "--model", "svm", "--target", "c", "--budget"]
    words += ["mi<=2", "--rule", "waterfill", "--subsets", "32", "-o", out]
    calls, fit = [0], LinearSVM.evaluate

    def run_until(last: int) -> Any:
        def evaluate(self: LinearSVM, *args: Any) -> Any:
            calls[0] += 1
            if calls[0] == last:
                raise KeyboardInterrupt
            return fit(self, *args)

        calls[0] = 0
        monkeypatch.setattr(LinearSVM, "evaluate", evaluate)
        return CliRunner().invoke(app, [str(word) for word in words])

    stopped = run_until(20)
    assert stopped.exit_code == 130
    kept = out / "checkpoint.pac"
    assert f"type the same command again to go on from {kept}" in stopped.stderr
    assert kept.stat().st_mode & 0o077 == 0
    done = int(re.search(r"stopped after (\d+) of 32", stopped.stderr)[1])  # type: ignore[index]
    assert done >= 10
    again = run_until(10**9)
    assert again.exit_code == 0, again.stderr
    assert calls[0] <= 32 - done + 2
    assert sorted(path.name for path in out.iterdir()) == ["curator.npz", "release.json"]


def test_a_command_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "people.csv").write_text("a,c\n" + "1,y\n2,n\n" * 20)

    def fail(*_: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(LinearSVM, "evaluate", fail)
    words = ["release", tmp_path / "people.csv", "--model", "svm", "--target", "c", "--budget"]
    words += ["mi<=2", "--subsets", "8", "-o", tmp_path / "out"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()
