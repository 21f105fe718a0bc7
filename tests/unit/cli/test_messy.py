"""A newcomer with a messy table: three commands, whatever kind of file it is in."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pacprivacy.cli import app
from pacprivacy.cli.console import complain, show, show_table
from pacprivacy.tables import read_table

N = 20_000
QUICK = ["--subsets", 64, "--rule", "waterfill", "--budget", "mi<=1/4"]


@pytest.fixture(scope="module")
def truth() -> pd.DataFrame:
    rng = np.random.default_rng(8)
    region = rng.choice(["north", "south", "east", "west"], N, p=[0.4, 0.3, 0.2, 0.1])
    frame = pd.DataFrame(
        {
            "id": [f"P{i:06d}" for i in range(N)],
            "name": [f"Jürgen {i}" for i in range(N)],
            "region": region,
            "age": rng.integers(16, 90, N).astype(float),
            "income": (rng.lognormal(10, 0.4, N) + 3000 * (region == "south")).round(2),
            "joined": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N), "D"),
            "smoker": rng.choice(["yes", "no"], N),
        }
    )
    frame.loc[rng.random(N) < 0.05, "income"] = np.nan
    frame.loc[rng.random(N) < 0.03, "age"] = np.nan
    frame.loc[rng.random(N) < 0.02, "region"] = None
    return frame


def text_of(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, sep=";", decimal=",", na_rep="NA")


@pytest.fixture(scope="module")
def messy(truth: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("messy") / "people.csv"
    path.write_bytes(text_of(truth).encode("cp1252"))
    return path


@pytest.fixture
def few(messy: Path, tmp_path: Path) -> Path:
    path = tmp_path / "few.csv"
    path.write_bytes(b"\n".join(messy.read_bytes().split(b"\n")[:1501]))
    return path


def run_pac(*args: object, code: int = 0, stdin: bytes | None = None) -> Any:
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def released(source: object, out: Path, *args: object, stdin: bytes | None = None) -> Any:
    run_pac("release", source, *QUICK, "-o", out, *args, "-q", stdin=stdin)
    return json.loads((out / "release.json").read_text())["value"]


def test_three_commands(messy: Path, truth: pd.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ["--model", "mean", "--columns", "income", "--group-by", "region"]
    told = run_pac("release", messy, *args, *QUICK, "-o", out)
    run_pac("verify", out / "release.json")
    run_pac("report", out / "release.json")
    assert (out / "report.html").is_file()
    value = json.loads((out / "release.json").read_text())["value"]
    expected = truth.groupby("region").income.mean()
    assert list(value) == list(expected.index)
    # Noise at a quarter of a nat, and half of the records: within a few of their errors.
    assert np.abs(np.array(list(value.values())) - expected.to_numpy()).max() < 1500
    gaps = f"income {truth.income.isna().sum():,}, region {truth.region.isna().sum():,}"
    assert f"missing values: {gaps}" in told.stderr
    public = (out / "release.json").read_text()
    assert "missing values" not in public
    numbers = set(re.findall(r"(?<![\d.])\d+(?![\d.])", public))
    assert not numbers & {f"{truth[name].isna().sum()}" for name in ("income", "region")}
    assert "gaps" in public


def test_the_curator_is_told_of_rare_levels_before_their_names_leave(tmp_path: Path) -> None:
    rows = "".join(f"{i % 2},{'one' if i == 7 else 'ab'[i % 2]}\n" for i in range(80))
    (tmp_path / "x.csv").write_text("x,city\n" + rows)
    args = ["release", tmp_path / "x.csv", "--model", "count", "--group-by", "city", *QUICK]
    told = run_pac(*args, "--where", "x == 1", "-o", tmp_path / "a")
    assert "levels with fewer than 20 records, whose names are published: city 1;" in told.stderr
    assert "40 of 80 records meet the condition" in told.stderr
    told = run_pac(*args, "--levels", "city=a,b", "-o", tmp_path / "b")
    assert "fewer than" not in told.stderr
    assert "one" not in json.loads((tmp_path / "b" / "release.json").read_text())["value"]


def test_every_kind_of_file(truth: pd.DataFrame, tmp_path: Path) -> None:
    args = ["--statistic", "mean", "--columns", "income,joined", "--group-by", "region"]
    args += ["--simulate", "--seed", "5"]
    truth = truth[:3000]
    plain = tmp_path / "p.csv"
    plain.write_bytes(text_of(truth).encode("cp1252"))
    expected = released(plain, tmp_path / "csv", *args)
    packed, parquet, sheet = (tmp_path / f"p.{end}" for end in ("csv.gz", "parquet", "xlsx"))
    packed.write_bytes(gzip.compress(text_of(truth).encode("utf-8")))
    truth.to_parquet(parquet)
    few = truth[["region", "income", "joined"]]
    few.to_excel(sheet, index=False)
    for source in (packed, parquet, sheet):
        assert released(source, tmp_path / source.suffix, *args) == expected, source.name
    piped = released("-", tmp_path / "stdin", *args, stdin=plain.read_bytes())
    assert piped == expected


MODELS = {
    "mean": ["--columns", "income,smoker"],
    "sum": ["--columns", "income", "--where", "age >= 18 and joined < '2024-06-01'"],
    "count": ["--group-by", "region", "--missing", "category"],
    "median": ["--columns", "age,income"],
    "quantiles": ["--columns", "age", "--quantiles", "0.1,0.9"],
    "variance": ["--columns", "age"],
    "crosstab": ["--columns", "region,smoker"],
    "ols": ["--target", "income", "--columns", "age,region"],
    "logistic": ["--target", "smoker", "--columns", "age", "--subsets", "16"],
    "poisson": ["--target", "age", "--columns", "joined,smoker", "--subsets", "16"],
    "covariance": ["--columns", "age,income,region"],
    "kmeans": ["--columns", "age,income", "--clusters", "2", "--missing", "mean", "--subsets", "8"],
    "svm": ["--columns", "age,income,region", "--target", "smoker", "--subsets", "8"],
    "ridge": ["--columns", "age,region", "--target", "income"],
}


@pytest.mark.parametrize("model", MODELS)
def test_every_model_on_the_messy_table(model: str, few: Path, tmp_path: Path) -> None:
    value = released(few, tmp_path / "out", "--model", model, *MODELS[model])
    assert value
    if model == "ols":
        names = ["intercept", "age", "region=north", "region=south", "region=west"]
        assert list(value) == sorted(names)
    if model == "count":
        assert list(value) == ["(missing)", "east", "north", "south", "west"]


def test_ids_are_named_in_one_message(messy: Path, tmp_path: Path) -> None:
    args = ["--model", "mean", *QUICK, "-o", tmp_path / "out"]
    line = run_pac("release", messy, *args, code=2).stderr
    assert "got ids in 'id', 'name' (most records have an entry of their own)" in line
    assert "leave them out: --columns region,age,income,joined,smoker." in line
    assert "--unit id" in line


@pytest.mark.claim("M-4")
def test_rows_are_left_out_of_candidates_not_of_the_universe(few: Path, tmp_path: Path) -> None:
    """Nobody can tell from the certificate how many records have gaps, or meet a condition."""
    args = ["--columns", "age,income", "--where", "age >= 60"]
    for model in ("covariance", "mean"):
        out = tmp_path / model
        run_pac("release", few, "--model", model, *QUICK, *args, "-o", out, "-q")
        certificate = json.loads((out / "release.json").read_text())["certificate"]
        assert certificate["n_units"] == 1500, model


def test_a_session_goes_on_with_another_condition(few: Path, tmp_path: Path) -> None:
    account = ["--ledger", tmp_path / "book.db", "--total", "mi<=1"]
    for number, where in enumerate(("age < 40", "age >= 40 and region == 'south'")):
        out = tmp_path / str(number)
        options = ["--model", "mean", "--columns", "income", "--where", where, *account]
        run_pac("release", few, *QUICK, *options, "-o", out, "-q")


def test_a_column_without_a_name_is_called_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "index.csv").write_text(",age\n0,40\n1,50\n")  # as pandas writes its index
    assert read_table(tmp_path / "index.csv").names == ("column 1", "age")


def test_what_a_terminal_would_obey_is_shown_and_not_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show("\x1b[2J\x9b1A\tü\n")
    complain("\x1b[2J")
    show_table(["[/x]\x1b"], [["\x07"]])
    out, err = capsys.readouterr()
    mark = "\N{REPLACEMENT CHARACTER}"
    assert out.split() == [f"{mark}[2J{mark}1A", "ü", f"[/x]{mark}", mark]
    assert err == f"pac: error: {mark}[2J\n"
