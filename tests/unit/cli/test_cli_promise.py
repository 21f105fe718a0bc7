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
        "sex": RNG.choice(["f", "m"], size=N),
        "person": RNG.integers(0, 400, size=N),
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
def test_a_pure_epsilon_has_its_own_certificate(table: Path, tmp_path: Path, model: str) -> None:
    out = tmp_path / "out"
    words = ["--model", model, "--columns", "age", "--ranges", "0,100", *GROUPED]
    result = call(table, out, *words, "--promise", "dp", "--name", "ages", budget="epsilon<=1")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("name ")
    assert "Differential privacy (" in result.stdout
    assert "age, north" in result.stdout
    row = next(line for line in result.stdout.splitlines() if "age, north" in line)
    assert row.endswith(" -") == (model in ("median", "quantiles"))
    assert sorted(path.name for path in out.iterdir()) == ["release.json", "values.csv"]
    certificate = DPCertificate.read(out / "release.json")
    assert (certificate.epsilon, certificate.delta) == (1.0, 0.0)
    assert certificate.mechanism.startswith("ages (")
    with pytest.raises(CertificateError, match="is differential privacy"):
        pac.Certificate.read(out / "release.json")
    verified = CliRunner().invoke(app, ["verify", str(out / "release.json")])
    assert verified.exit_code == 0, verified.stderr


SUMS: dict[str, list[str]] = {
    "count": GROUPED,
    "sum": ["--columns", "age", "--ranges", "0,100", *GROUPED],
    "mean": ["--columns", "age", "--ranges", "0,100", *GROUPED],
    "weighted": ["--columns", "age", "--ranges", "age=0,100;heavy=0,5", "--weights", "heavy"],
    "shares": ["--columns", "region", "--levels", "region=north,south"],
    "variance": ["--columns", "age", "--ranges", "0,100"],
    "crosstab": ["--columns", "region,sex", "--levels", "region=north,south;sex=f,m"],
    "histogram": ["--columns", "age", "--ranges", "0,100", "--bins", "4"],
}


@pytest.mark.claim("C-9")
@pytest.mark.parametrize("name", SUMS)
def test_sums_hide_presence(table: Path, tmp_path: Path, name: str) -> None:
    out, model = tmp_path / "out", {"weighted": "mean", "shares": "mean"}.get(name, name)
    words = ["--model", model, *SUMS[name], "--unit", "person", "--rows-per-unit", "3"]
    result = call(table, out, *words, "--promise", "dp", "--name", "ages")
    assert result.exit_code == 0, result.stderr
    assert "Also hides whether a person is in the table" in " ".join(result.stdout.split())
    certificate: Any = pac.Certificate.read(out / "release.json")
    assert certificate.presence.mu == pytest.approx(0.5067, abs=1e-4)
    assert certificate.presence.declared.endswith("rows of one person: 3, the first 3 at most")
    assert (certificate.n_units, certificate.published) == (None, ())
    assert certificate.mechanism.startswith("ages (")
    assert pac.Release.load(out / "release.json").rows()
    verified = CliRunner().invoke(app, ["verify", str(out / "release.json")])
    assert verified.exit_code == 0, verified.stderr


@pytest.mark.claim("C-9")
@pytest.mark.parametrize("name", SUMS)
def test_files_of_other_records_differ_in_their_numbers_alone(tmp_path: Path, name: str) -> None:
    tables = PEOPLE, PEOPLE[::2], PEOPLE.assign(age=1e6), PEOPLE[PEOPLE.sex == "f"].fillna(3.0)
    model, texts = {"weighted": "mean", "shares": "mean"}.get(name, name), set()
    for number, people in enumerate(tables):
        path, out = tmp_path / f"{number}.csv", tmp_path / str(number)
        people.to_csv(path, index=False)
        words = ["--model", model, *SUMS[name], "--unit", "person", "--rows-per-unit", "3", "-q"]
        assert call(path, out, *words, "--promise", "dp").exit_code == 0
        public = json.loads((out / "release.json").read_text(encoding="utf-8"))
        texts.add(json.dumps({**public, "value": 0, "error_bars": 0, "digest": 0}))
    assert len(texts) == 1


def test_rows_of_one_person_are_capped(table: Path, tmp_path: Path) -> None:
    words = ["--model", "count", "--promise", "dp", "--unit", "person", "--rows-per-unit"]
    for rows in (1, 2):
        assert call(table, tmp_path / str(rows), *words, str(rows), "-q").exit_code == 0
        found: Any = pac.Release.load(tmp_path / str(rows) / "release.json")
        truth = PEOPLE.groupby("person").head(rows)
        assert abs(found.value["rows"] - len(truth)) < 6 * found.noise_std["rows"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--unit", "person"], "given together"),
        (["--rows-per-unit", "2"], "given together"),
        (["--model", "median", "--unit", "person"], "must be left out for quantiles"),
        (["--model", "median", "--fill", "0"], "must be left out for quantiles"),
        (["--columns", "age,heavy", "--ranges", "age=0,100"], "none for 'heavy'"),
        (["--columns", "age,sex", "--ranges", "age=0,100"], "none for 'sex'"),
        (["--missing", "error"], "--missing must be drop or category"),
    ],
)
def test_what_is_not_declared_is_refused(
    table: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    asked = ["--model", "mean", "--columns", "age", "--ranges", "0,100", "--promise", "dp", *words]
    result = call(table, tmp_path / "out", *asked)
    assert result.exit_code != 0
    assert said in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.claim("C-9")
def test_what_a_range_declares_as_numbers_is_read_as_such(table: Path, tmp_path: Path) -> None:
    """A refusal would tell of one odd entry; the curator is told instead."""
    words = ["--model", "mean", "--columns", "age,sex", "--ranges", "0,100", "--promise", "dp"]
    result = call(table, tmp_path / "out", *words)
    assert result.exit_code == 0, result.stderr
    assert "missing values: age 18, sex 900" in result.stderr


@pytest.mark.parametrize("model", ["count", "mean", "median"])
def test_a_range_in_a_schema_may_be_of_a_condition_alone(
    table: Path, tmp_path: Path, model: str
) -> None:
    """D6: a schema describes all columns, and a release reads some."""
    schema = tmp_path / "people.toml"
    schema.write_text(
        "[columns.age]\nrange = [0, 100]\n[columns.heavy]\nrange = [0, 9]\n", encoding="utf-8"
    )
    words = ["--model", model, "--where", "heavy < 2 and age > 30", "--promise", "dp"]
    words += ["--columns", "age"] if model != "count" else []
    result = call(table, tmp_path / "out", *words, "--schema", str(schema))
    assert result.exit_code == 0, result.stderr
    if model == "count":
        found: Any = pac.Release.load(tmp_path / "out" / "release.json")
        truth = int(((PEOPLE.heavy < 2) & (PEOPLE.age > 30)).sum())
        assert found.value["rows"] == pytest.approx(truth, abs=12)


def test_the_value_and_a_condition(table: Path, tmp_path: Path) -> None:
    words = ["--model", "mean", "--columns", "age", "--ranges", "0,100", "--where", "age < 40"]
    result = call(table, tmp_path / "out", *words, "--promise", "dp", "--json", budget="epsilon<=5")
    found = json.loads(result.stdout)
    assert (found["certificate"]["epsilon"], found["certificate"]["delta"]) == (5.0, 0.0)
    assert abs(found["value"]["mean"]["age"] - PEOPLE.age[PEOPLE.age < 40].mean()) < 3


@pytest.mark.claim("M-7")
@pytest.mark.parametrize("guessed", [True, False])
def test_a_guessed_format_of_dates_is_not_declared(tmp_path: Path, guessed: bool) -> None:
    """It was read off the records, where one entry may decide how all are read."""
    file, schema = tmp_path / "visits.csv", tmp_path / "visits.toml"
    file.write_text("day\n" + "\n".join(f"{1 + i % 28:02d}/01/2024" for i in range(400)))
    stated = 'guessed = ["type", "date_format"]' if guessed else ""
    schema.write_text(f'[columns.day]\ntype = "date"\ndate_format = "%d/%m/%Y"\n{stated}\n')
    words = ["--model", "count", "--where", "day > '2024-01-09'", "--promise", "dp"]
    result = call(file, tmp_path / "out", *words, "--schema", str(schema))
    assert (result.exit_code == 0) is not guessed, result.stderr


@pytest.mark.claim("M-7")
@pytest.mark.parametrize("model", ["mean", "median", "quantiles"])
@pytest.mark.parametrize("guessed", [True, False])
def test_a_range_is_declared_once_it_is_no_guess(
    table: Path, tmp_path: Path, model: str, guessed: bool
) -> None:
    schema = tmp_path / "people.toml"
    stated = 'guessed = ["range"]' if guessed else ""
    schema.write_text(f'[columns.age]\ntype = "number"\nrange = [0, 100]\n{stated}\n')
    words = ["--model", model, "--columns", "age", "--promise", "dp", "--schema", str(schema)]
    result = call(table, tmp_path / "out", *words, budget="epsilon<=1")
    assert (result.exit_code == 0) is not guessed, result.stderr
    assert ("--ranges must be given" in result.stderr) is guessed
