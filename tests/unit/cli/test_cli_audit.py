"""``pac audit``: the table, JSON, the plot, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy._values import write_release
from pacprivacy.cli import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = np.random.default_rng(0).normal(size=(40, 2))
    release = pac.privatize(
        lambda x: x.mean(axis=0), data, pac.Information(0.25), n_subsets=16, rng=0, simulate=True
    )
    out = tmp_path_factory.mktemp("out")
    release.save(out)
    return out


def run_audit(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["audit", *(str(arg) for arg in args)])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def test_table_stands_beside_the_promise(folder: Path) -> None:
    text = run_audit(folder / "release.json", "--trials", 500, "--seed", 1).stdout
    assert "Promised: membership of one unit at most" in text
    assert "Every promise holds against these attacks." in text
    rows = [line for line in text.splitlines() if line.endswith("holds")]
    assert len(rows) == 4
    assert max(len(line) for line in rows) <= 80


def test_json_can_be_repeated(folder: Path) -> None:
    options = ["--trials", 300, "--attack", "bayes", "--attack", "naming", "--json"]
    first = json.loads(run_audit(folder / "release.json", *options).stdout)
    assert [found["attack"] for found in first["results"]] == ["bayes", "naming"]
    assert first["verdict"] == "holds"
    assert "unit" not in first["results"][0]
    again = run_audit(folder / "release.json", *options, "--seed", first["seed"]).stdout
    assert json.loads(again) == first


def test_quiet(folder: Path) -> None:
    assert run_audit(folder / "release.json", "--trials", 200, "--quiet").stdout == ""


def test_a_broken_promise_ends_with_4(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "release.json").read_text())
    content["certificate"]["membership_bound"] = 0.5
    content["certificate"]["mi_upper_nats"] = 1e-6
    forged = tmp_path / "release.json"
    write_release(forged, {key: item for key, item in content.items() if key != "digest"})
    options = ["--bundle", folder / "curator.npz", "--trials", 4000, "--seed", 1]
    text = run_audit(forged, *options, code=4).stdout
    assert "VIOLATED: an attack beats the promise. Do not publish." in text
    plain = json.loads(run_audit(forged, *options, "--json", code=4).stdout)
    assert plain["verdict"] == "VIOLATED"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--trials", 10], "n_trials must be at least 100; got 10"),
        (["--attack", "magic"], "attack must be one of bayes"),
        (["--attack", "precision"], "precision must attack a procedure"),
        (["--seed", -1], "--seed must be greater than or equal to 0"),
        (["--bundle", "nowhere.npz"], "bundle must be a file"),
    ],
)
def test_bad_input_ends_with_2_and_one_line(
    folder: Path, options: list[Any], complaint: str
) -> None:
    found = run_audit(folder / "release.json", *options, code=2)
    assert found.stdout == ""
    assert complaint in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_a_bundle_of_another_release_is_refused(folder: Path, tmp_path: Path) -> None:
    data = np.random.default_rng(1).normal(size=(40, 2))
    other = pac.privatize(
        lambda x: x.mean(axis=0), data, pac.Information(0.25), n_subsets=16, rng=0, simulate=True
    )
    other.save(tmp_path)
    found = run_audit(folder / "release.json", "--bundle", tmp_path / "curator.npz", code=2)
    assert "bundle must belong to the certificate" in found.stderr
