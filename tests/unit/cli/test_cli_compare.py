"""``pac compare`` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pacprivacy.cli.console import app


@pytest.fixture
def people(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    ages = rng.uniform(18, 90, size=120)
    lines = [f"{age:.1f},{'yes' if age > 50 else 'no'}" for age in ages]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["age,smokes", *lines]) + "\n")
    return path


def pac(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return result.exit_code, result.output


SMALL = ("--subsets", 16, "--releases", 20)


def test_json_has_both_families(people: Path) -> None:
    code, out = pac(
        people, "--model", "mean", "--columns", "age", "--ranges", "0,120", "--json", *SMALL
    )
    assert code == 0
    found = json.loads(out)
    assert {row["family"] for row in found["rows"]} == {"PAC", "DP"}
    assert "universe" in found["promises"]["PAC"]
    assert found["advantage"] == pytest.approx(0.176)
    for row in found["rows"]:
        if row["family"] == "DP":
            assert 0.99 * 0.176 <= row["advantage"] <= found["advantage"]


def test_table_and_picture(people: Path, tmp_path: Path) -> None:
    plot = tmp_path / "compare.svg"
    options = ("--model", "logistic", "--target", "smokes", "--ranges", "age=0,120", "--plot", plot)
    code, out = pac(people, *options, *SMALL)
    assert code == 0
    assert "objective perturbation" in out
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--model", "forest", "--ranges", "0,1"), "model must be one of"),
        (("--model", "mean", "--columns", "age", "--ranges", "5"), "two numbers LO,HI"),
        (("--model", "mean", "--columns", "age", "--ranges", "x=0,1"), "none for 'age'"),
        (("--model", "logistic", "--ranges", "0,1"), "--target"),
        (("--model", "mean", "--ranges", "0,1", "--budget", "mi<=1"), "must limit membership"),
        (("--model", "ridge", "--target", "age", "--columns", "nope", "--ranges", "0,1"), "nope"),
    ],
)
def test_wrong_options_are_one_line(people: Path, options: tuple[str, ...], complaint: str) -> None:
    code, out = pac(people, *options)
    assert code == 2
    assert complaint in out
    assert "Traceback" not in out
