"""``pac release --promise dp``, and the hint that it would do better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy.cli.console import app
from pacprivacy.dp import DPCertificate
from pacprivacy.errors import CertificateError

RNG = np.random.default_rng(0)
N = 900
PEOPLE = pd.DataFrame(
    {
        "region": RNG.choice(["north", "south"], size=N),
        "age": RNG.integers(20, 60, size=N).astype(float),
        "heavy": RNG.pareto(2, size=N),
    }
)
PEOPLE.loc[::50, "age"] = np.nan
GROUPED = ["--group-by", "region", "--levels", "region=north,south"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("data") / "people.csv"
    PEOPLE.to_csv(path, index=False)
    return path


def call(table: Path, out: Path, *words: str, budget: str = "membership<=0.6") -> Any:
    given = ["release", str(table), "--budget", budget, "-o", str(out), *words]
    return CliRunner().invoke(app, given)


@pytest.mark.claim("DP-40")
@pytest.mark.parametrize("model", ["count", "sum", "mean", "histogram", "median", "quantiles"])
def test_a_release_of_dp_has_its_own_certificate(table: Path, tmp_path: Path, model: str) -> None:
    out = tmp_path / "out"
    words = ["--model", model, "--columns", "age", "--ranges", "0,100", *GROUPED]
    result = call(table, out, *words, "--promise", "dp", "--name", "ages")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("name ")
    assert "Differential privacy (" in result.stdout
    assert "age, north" in result.stdout
    row = next(line for line in result.stdout.splitlines() if "age, north" in line)
    assert row.endswith(" -") == (model in ("median", "quantiles"))
    assert sorted(path.name for path in out.iterdir()) == ["release.json", "values.csv"]
    certificate = DPCertificate.read(out / "release.json")
    assert certificate.membership_bound <= 0.6
    assert certificate.mechanism.startswith("ages (")
    with pytest.raises(CertificateError, match="is differential privacy"):
        pac.Certificate.read(out / "release.json")
    verified = CliRunner().invoke(app, ["verify", str(out / "release.json")])
    assert verified.exit_code == 0, verified.stderr


def test_the_value_and_a_condition(table: Path, tmp_path: Path) -> None:
    words = ["--model", "mean", "--columns", "age", "--ranges", "0,100", "--where", "age < 40"]
    result = call(table, tmp_path / "out", *words, "--promise", "dp", "--json", budget="epsilon<=5")
    found = json.loads(result.stdout)
    assert (found["certificate"]["epsilon"], found["certificate"]["delta"]) == (5.0, 0.0)
    assert abs(found["value"]["mean"]["age"] - PEOPLE.age[PEOPLE.age < 40].mean()) < 3
