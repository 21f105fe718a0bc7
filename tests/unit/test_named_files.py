"""Files that somebody names: their kind and their size are looked at before they are read."""

import gzip
import io
import os
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy import _system, _values
from pacprivacy._values import MAX_RELEASE_BYTES, read_key, read_release
from pacprivacy.cli import app
from pacprivacy.errors import PacPrivacyError
from pacprivacy.ledger import Ledger
from pacprivacy.release import Bundle
from pacprivacy.reporting.page import _read_audit
from pacprivacy.session.state import SessionState, StateFile
from pacprivacy.simulation.checkpoint import read_checkpoint_header
from pacprivacy.tables.table import STDIN, read_table

HUGE = 1 << 40


def _read_state(path: Path) -> Any:
    file = StateFile(path)
    try:
        return file.read(SessionState.from_bytes)
    finally:
        file.close()


def _pac(*words: Any) -> None:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 2, found.output
    assert found.exception is None or isinstance(found.exception, SystemExit)
    raise PacPrivacyError(found.stderr)


def _serve(path: Path) -> None:
    _pac("serve", "m.pac", "--ledger", "l.db", "--tls-cert", path, "--tls-key", path)


def _tokens(path: Path) -> Any:
    serve = pytest.importorskip("pacprivacy.serve")
    return serve.Tokens(path)


READERS: dict[str, Callable[[Path], Any]] = {
    "release": read_release,
    "load": pac.Release.load,
    "bundle": Bundle.load,
    "audit": _read_audit,
    "private key": lambda path: read_key(path, private=True),
    "public key": lambda path: read_key(path, private=False),
    "table": read_table,
    "state": _read_state,
    "checkpoint": read_checkpoint_header,
    "ledger": Ledger,
    "duckdb": lambda path: pac.Tables(path, unit="a.b"),
    "tokens": _tokens,
    "predictor": lambda path: pac.PrivatePredictor.load(path, ledger=path.with_name("l.db")),
    "pac verify": lambda path: _pac("verify", path),
    "pac report": lambda path: _pac("report", path),
    "pac release": lambda path: _pac(
        "release", path, "--model", "mean", "--budget", "mi<=1", "-o", "o"
    ),
    "pac serve --tls": _serve,
}


def in_time(call: Callable[[], Any]) -> PacPrivacyError:
    """Return the error of a call, which comes at once."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits, or reads without end"
    assert len(errors) == 1
    assert isinstance(errors[0], PacPrivacyError), repr(errors[0])
    return errors[0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("reader", READERS)
def test_pipes_are_refused(reader: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    in_time(lambda: READERS[reader](pipe))


def held_memory() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no such device")
@pytest.mark.parametrize("reader", [r for r in READERS if r not in ("state", "ledger")])
def test_devices_are_refused(reader: str, tmp_path: Path) -> None:
    link = tmp_path / "device"
    link.symlink_to("/dev/zero")
    before = held_memory()
    in_time(lambda: READERS[reader](link))
    assert held_memory() - before < 1 << 28


@pytest.mark.parametrize("reader", [r for r in READERS if r not in ("ledger", "duckdb", "dataset")])
def test_what_is_too_large_is_not_read(reader: str, tmp_path: Path) -> None:
    """A file without content, so that the test itself needs no room."""
    place = tmp_path / "huge"
    with place.open("wb") as file:
        try:
            file.truncate(HUGE)
        except OSError:
            pytest.skip("this file system has no files with holes")
    place.chmod(0o600)
    text = str(in_time(lambda: READERS[reader](place)))
    assert "key" in reader or "tokens" in reader or "are read" in text, text


def test_the_limit_of_a_release_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "release.json"
    with place.open("wb") as file:
        file.truncate(160 << 20)
    with pytest.raises(PacPrivacyError, match=r"it has 160 MiB, and at most 64 MiB are read"):
        read_release(place)
    assert MAX_RELEASE_BYTES == 64 << 20
    monkeypatch.setattr(_values, "MAX_RELEASE_BYTES", 3)
    place.write_text("[1]")
    assert read_release(place) == [1]
    place.write_text("[10]")
    with pytest.raises(PacPrivacyError, match=r"at most 3 bytes are read. Pass a release.json"):
        read_release(place)


@pytest.mark.parametrize("kind", ["gzip", "excel", "bundle", "stdin"])
def test_what_does_not_fit_in_memory_unpacked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_system, "available_memory", lambda: 1 << 20)
    place, zeros = tmp_path / "bomb", bytes(1 << 24)
    if kind == "gzip":
        place.write_bytes(gzip.compress(zeros))
    elif kind == "excel":
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("sheet.xml", zeros)
    elif kind == "bundle":
        np.savez_compressed(place.with_suffix(".npz"), metadata=np.zeros(1 << 24, np.uint8))
        place = place.with_suffix(".npz")
    else:
        place = STDIN
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(zeros)))
    read: Any = Bundle.load if kind == "bundle" else read_table
    with pytest.raises(PacPrivacyError, match="and at most 1 MiB are read"):
        read(place)
