"""The scripted newcomer of ``benchmarks/friendliness``, with few rows and in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.friendliness import newcomer
from pacprivacy.cli import app

FEW = ("--subsets", 64, "--rule", "waterfill")  # the defaults take their time


def run_here(*words: object, stdin: Path | None = None) -> tuple[float, str]:
    given = None if stdin is None else stdin.read_bytes()
    result = CliRunner().invoke(app, [str(word) for word in words], input=given)
    assert result.exit_code == 0, result.stderr
    assert "error:" not in result.stderr
    assert "warning" not in result.stderr
    return 0.0, result.stdout


@pytest.mark.parametrize("kind", newcomer.KINDS)
def test_three_commands_from_a_messy_table_to_a_page(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcomer, "run_pac", run_here)
    table = newcomer.make_table(2_000)
    source = newcomer.write_table(table, tmp_path, kind)
    found = newcomer.first_task(source, tmp_path, piped=kind == "stdin", extra=FEW)
    truth = table.groupby("region")[["income", "age"]].mean()
    assert list(found["value"]) == ["age", "income"]  # names in their order
    assert set(found["value"]["income"]) == set(truth.index)
