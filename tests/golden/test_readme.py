"""What the README shows is true: its Python runs, its commands are understood, its links exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pacprivacy.cli import app

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    joined = "".join(blocks("console")).replace("\\\n", " ")
    return [shlex.split(line[2:]) for line in joined.splitlines() if line.startswith("$ ")]


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks("python")
    assert len(found) >= 4
    names: dict[str, Any] = {}
    for block in found:
        exec(compile(block, "README.md", "exec"), names)
    assert (tmp_path / "out" / "ages" / "release.json").is_file()
    assert names["release"].certificate.unit == "group of rows"
    assert names["session"].odometer().spent_nats <= 0.5


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    rows = [f"p{i // 2},{rng.integers(1, 99)},{rng.normal(5e4, 9e3):.2f}" for i in range(40)]
    Path("people.csv").write_text("\n".join(["person,age,income", *rows]) + "\n")
    found = commands()
    assert [command[1] for command in found] == [
        "release",
        "release",
        "verify",
        "convert",
        "convert",
    ]
    for command in found:
        quick = ["--subsets", "32"] if command[1] == "release" else []
        result = CliRunner().invoke(app, [*command[1:], *quick])
        assert result.exit_code == 0, (command, result.output)
    shown = blocks("console")[-1].split("\n", 1)[1]
    assert result.stdout.startswith("\n".join(line.rstrip() for line in shown.splitlines()))


def test_links_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert not missing
