"""The line that is shown while one waits: its stages, where it is, and what it never shows."""

from __future__ import annotations

import io
import re
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy import _system
from pacprivacy._system import begin, expect, show_stages
from pacprivacy.cli import app
from pacprivacy.mechanism import LinearSVM
from pacprivacy.release import ReleaseSecret

X = np.random.default_rng(0).normal(size=(120, 2))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watched:
    """What a terminal would have shown so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._so_far = capsys, ""

    def getvalue(self) -> str:
        self._so_far += self._capsys.readouterr().err
        return self._so_far


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Watched:
    monkeypatch.setattr(_system, "wanted", lambda: True)
    return Watched(capsys)


def test_only_a_terminal_or_a_notebook_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, watched in ((Terminal(), True), (io.StringIO(), False), (None, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert _system.wanted() is watched


def release(**options: Any) -> pac.Release:
    return pac.privatize(np.mean, X, pac.Membership(0.7), n_subsets=16, rng=0, **options)


def test_all_stages_are_on_one_line(terminal: Watched) -> None:
    release()
    shown = terminal.getvalue()
    names = ["evaluating candidates", "finding the noise", "proving", "writing the certificate"]
    places = [shown.index(name) for name in names]
    assert places == sorted(places)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert re.search(r"\[[#.]{24}\] \d:\d\d, about \d:\d\d left", shown)
    assert shown.endswith(" \r"), "nothing is left of it"


def test_it_fills_up_and_never_goes_back(terminal: Watched) -> None:
    with show_stages(None):
        expect({"one": 0.05, "two": 0.05})
        advance = begin("one", 10)
        for _ in range(10):
            advance(1)
            _system._SHOWN.get().draw()  # type: ignore[union-attr]
        begin("two")
    filled = [text.count("#") for text in re.findall(r"\[([#.]*)\]", terminal.getvalue())]
    assert filled == sorted(filled)
    assert "10/10" in terminal.getvalue()


def test_a_long_wait_is_announced_before_it_begins(terminal: Watched) -> None:
    with show_stages(None):
        expect({"one": 3700.0, "two": 20.0})
        begin("one")
        expect({"two": 600.0})
    shown = terminal.getvalue()
    assert shown.lstrip().startswith("this may take about 1:02:00\n")
    assert shown.count("this may take") == 1


def test_a_notebook_sees_it_without_widgets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = type("ZMQInteractiveShell", (), {})()
    fake = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)  # type: ignore[arg-type]
    release()
    shown = capsys.readouterr()
    assert "finding the noise" in shown.err
    assert shown.out == ""


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
    shown = terminal.getvalue()
    assert "outside" in shown
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
        alive = [t for t in threading.enumerate() if getattr(t, "_target", None) is not None]
        ticking = [t for t in alive if "_tick" in repr(t._target)]  # type: ignore[attr-defined]
        seen.append((_system._SHOWN.get(), ticking, terminal.getvalue()))
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
