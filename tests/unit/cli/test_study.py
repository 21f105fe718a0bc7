"""``pac release --study``: several statistics of a file under one budget; surveys; every month."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pacprivacy.cli import app
from pacprivacy.errors import DataError
from pacprivacy.tables import StudyFile

N = 20_000
BUDGET = ("--budget", "membership<=0.6")
YEARBOOK = """
suppress = 0.3
levels = {smoker = ["yes", "no"]}

[tables.people]
statistic = "crosstab"
columns = ["region", "smoker"]
margins = true
base = 5

[tables.income]
statistic = "mean"
columns = "income"
by = "region"
importance = 2

[tables."median income"]
statistic = "median"
columns = "income"

[tables.visits]
statistic = "rate"
columns = ["visits", "years"]
per = 100
by = ["smoker", "region"]
standard = {region = {east = 1, north = 2, south = 1, west = 1}}
compare = ["smoker", "no"]
how = "ratio"

[tables.ages]
statistic = "histogram"
columns = "age"
bins = [16, 30, 60, 90]

[tables.line]
statistic = "ols"
target = "income"
columns = ["age", "smoker"]
"""


@pytest.fixture(scope="module")
def truth() -> pd.DataFrame:
    rng = np.random.default_rng(8)
    region = rng.choice(["north", "south", "east", "west"], N, p=[0.4, 0.3, 0.2, 0.1])
    frame = pd.DataFrame(
        {
            "id": [f"P{i:06d}" for i in range(N)],
            "name": [f"Jürgen {i}" for i in range(N)],
            "region": region,
            "village": rng.integers(0, 300, N),
            "weight": rng.uniform(0.5, 2, N).round(2),
            "age": rng.integers(16, 90, N).astype(float),
            "income": (rng.lognormal(10, 0.4, N) + 3000 * (region == "south")).round(2),
            "visits": rng.poisson(2, N),
            "years": rng.uniform(0.5, 1, N).round(2),
            "smoker": rng.choice(["yes", "no"], N),
        }
    )
    frame.loc[rng.random(N) < 0.05, "income"] = np.nan
    frame.loc[rng.random(N) < 0.03, "age"] = np.nan
    frame.loc[rng.random(N) < 0.02, "region"] = None
    return frame


def write_messy(frame: pd.DataFrame, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    text = frame.to_csv(index=False, sep=";", decimal=",", na_rep="NA")
    (folder / "people.csv").write_bytes(text.encode("cp1252"))
    (folder / "yearbook.toml").write_text(YEARBOOK)
    return folder / "people.csv"


@pytest.fixture(scope="module")
def messy(truth: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_messy(truth, tmp_path_factory.mktemp("study"))


def run_pac(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def numbers_in(folder: Path) -> dict[str, float]:
    table = pd.read_csv(folder / "values.csv")
    return dict(zip(table["name"], table["value"], strict=True))


def test_a_yearbook_is_one_command(messy: Path, truth: pd.DataFrame, tmp_path: Path) -> None:
    started = time.process_time()
    out = tmp_path / "out"
    run_pac("release", messy, "--study", messy.with_name("yearbook.toml"), *BUDGET, "-o", out, "-q")
    assert time.process_time() - started < 5.0  # CPU seconds
    study = ("--study", messy.with_name("yearbook.toml"))
    again = run_pac("verify", out / "release.json", "--data", messy, *study).stdout
    assert "of all 20,000 units" in again
    run_pac("report", out / "release.json")
    page = (out / "report.html").read_text()
    for name in ("people", "income", "median income", "visits", "ages", "line"):
        assert f"<h3>{name}</h3>" in page
    values = json.loads((out / "release.json").read_text())["value"]
    people = values["people"]
    for column in ("no", "yes", "total"):
        cells = [people[region][column] for region in ("east", "north", "south", "west")]
        assert sum(cells) == people["total"][column]
        assert all(cell % 5 == 0 for cell in cells)
    means = truth.groupby("region")["income"].mean()
    shown = numbers_in(out)
    for region, mean in means.items():
        assert shown[f"income.{region}"] == pytest.approx(mean, rel=0.02)
    assert shown["visits.yes.standardised"] == pytest.approx(1, abs=0.05)
    assert np.isnan(shown["line.age"])  # its interval is wide: suppressed where it is shown


def test_the_same_file_every_month(truth: pd.DataFrame, tmp_path: Path) -> None:
    ledger = ("--ledger", tmp_path / "s.db", "--unit", "id")
    january = write_messy(truth[:12000], tmp_path / "january")
    study = ("--study", january.with_name("yearbook.toml"), "-q")
    first, second = tmp_path / "1", tmp_path / "2"
    total = ("--total", "membership<=0.6", "--share", "1 of 12")
    run_pac("release", january, *study, *ledger, *total, "-o", first)
    february = write_messy(truth[:13000], tmp_path / "february")
    run_pac("release", february, *study, *ledger, "--share", "1 of 11", "-o", second)
    certificate = json.loads((second / "release.json").read_text())["certificate"]
    assert certificate["composition"]["release_number"] == 2
    assert certificate["composition"]["total_success"] == pytest.approx(0.6)
    run_pac("verify", second / "release.json")


@pytest.mark.claim("C-32")
def test_a_survey_is_one_command(messy: Path, tmp_path: Path) -> None:
    args = ("release", messy, "--model", "mean", "--columns", "income", "--weights", "weight")
    plain, survey = tmp_path / "plain", tmp_path / "survey"
    run_pac(*args, *BUDGET, "-o", plain, "-q")
    shown = run_pac(*args, "--cluster", "village", *BUDGET, "-o", survey).stdout
    assert "intervals are for the population" in " ".join(shown.split())
    run_pac("verify", survey / "release.json")
    errors = [pd.read_csv(out / "values.csv")["standard_error"][0] for out in (plain, survey)]
    assert errors[1] > errors[0]  # it holds the error by the drawing, too


def test_a_study_takes_levels_from_a_schema(truth: pd.DataFrame, tmp_path: Path) -> None:
    people = write_messy(truth[:2000], tmp_path / "data")
    folder = people.parent
    (folder / "people.toml").write_text(
        'decimal = ","\nweights = "weight"\n[columns.smoker]\nlevels = ["no", "yes", "never"]\n'
    )
    (folder / "small.toml").write_text(
        'schema = "people.toml"\n[tables.smokers]\nstatistic = "count"\nby = "smoker"\n'
    )
    run_pac("release", people, "--study", folder / "small.toml", *BUDGET, "-o", tmp_path / "out")
    shown = numbers_in(tmp_path / "out")
    assert abs(shown["smokers.never"]) < 60
    weights = truth[:2000].groupby("smoker")["weight"].sum()
    assert shown["smokers.yes"] == pytest.approx(weights["yes"], rel=0.15)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "must have tables"),
        ({"tables": {"a": {"statistic": "mode"}}}, "statistic of table 'a' must be one of"),
        ({"tables": {"a": {"statistic": "mean", "colums": "x"}}}, "'columns'"),
        ({"weight": "w", "tables": {}}, "'weights'"),
        ({"tables": {"a": {"statistic": "mean", "columns": 3}}}, "must name columns"),
        ({"tables": {"a": {"statistic": "mean", "where": 3}}}, "must be text"),
        ({"tables": {"a": {"statistic": "mean", "levels": 3}}}, "must be a table by column"),
    ],
)
def test_files_that_mean_nothing_are_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        StudyFile.of(said)


def test_options_that_belong_into_the_file(messy: Path, tmp_path: Path) -> None:
    study = ("--study", messy.with_name("yearbook.toml"), *BUDGET, "-o", tmp_path / "out")
    both = run_pac("release", messy, *study, "--model", "mean", code=2)
    assert "--model or --study" in both.stderr
    weights = run_pac("release", messy, *study, "--weights", "weight", code=2)
    assert "--weights must be left out with --study" in weights.stderr


def test_a_survey_keeps_the_unit_of_a_schema_and_declared_ranges(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    person = np.arange(2000) // 2
    frame = pd.DataFrame(
        {
            "person": person,
            "region": np.where(person % 2, "a", "b"),
            "age": rng.integers(0, 90, 2000),
        }
    )
    frame.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "people.toml").write_text('unit = "person"\n', encoding="utf-8")
    words = ["release", str(tmp_path / "people.csv"), "--model", "mean", "--columns", "age"]
    words += ["--strata", "region", "--schema", str(tmp_path / "people.toml"), *BUDGET]
    words += ["--ranges", "0,10", "-o", str(tmp_path / "out")]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    release = json.loads((tmp_path / "out" / "release.json").read_text())
    assert release["certificate"]["n_units"] == 1000
    (value,) = (row for row in np.ravel(list(release["value"]["mean"].values())))
    assert value < 11  # clipped at the declared range


def test_a_survey_without_columns_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("region,age\na,3\nb,4\n", encoding="utf-8")
    words = ["release", str(tmp_path / "people.csv"), "--model", "mean", "--strata", "region"]
    ran = CliRunner().invoke(app, [*words, *BUDGET, "-o", str(tmp_path / "out")])
    assert isinstance(ran.exception, DataError) or ran.exit_code == 2
    assert "columns of table 'mean' must be named" in str(ran.exception) + ran.output


def test_a_budget_of_the_ledger_is_the_total_of_its_first_session(
    truth: pd.DataFrame, tmp_path: Path
) -> None:
    people = write_messy(truth[:2000], tmp_path / "data")
    ledger = ("--ledger", tmp_path / "book.db")
    run_pac("ledger", "create", tmp_path / "book.db", "--dataset", "people", "--membership", "60%")
    options = ("--model", "mean", "--columns", "age", "-q")
    for number in (2, 1):
        share = ("--share", f"1 of {number}", "-o", tmp_path / str(number))
        run_pac("release", people, *options, *ledger, *share)
    certificate = json.loads((tmp_path / "1" / "release.json").read_text())["certificate"]
    assert 0.6 - 1e-6 < certificate["composition"]["total_success"] <= 0.6
    checked = run_pac("ledger", "verify", tmp_path / "book.db").stdout
    assert "no budget exceeded" in " ".join(checked.split())
    pool = ("--sample", "pool", "--subsets", "64", "--budget", "mi<=1/8", "-o", tmp_path / "4")
    account = ("--ledger", tmp_path / "book.db", "--principal", "another")
    assert "--total must be" in run_pac("release", people, *options, *account, *pool, code=2).stderr


def test_missing_values_are_counted_once_for_all_tables(messy: Path, tmp_path: Path) -> None:
    study = ("--study", messy.with_name("yearbook.toml"))
    notes = run_pac("release", messy, *study, *BUDGET, "-o", tmp_path / "out").stderr
    assert notes.count("missing values") == 1
    for column in ("region", "income", "age"):
        assert f"{column} " in notes


def test_levels_of_a_schema_are_the_groups_of_a_query(messy: Path, tmp_path: Path) -> None:
    schema = tmp_path / "people.toml"
    query = ("SELECT smoker, avg(age) AS age FROM people GROUP BY smoker", "--unit", "people.id")
    for guessed, code in (('guessed = ["levels"]', 2), ("", 0)):
        schema.write_text(f'decimal = ","\n[columns.smoker]\nlevels = ["no", "yes"]\n{guessed}\n')
        options = ("--schema", schema, *BUDGET, "-o", tmp_path / str(code), "-q")
        run_pac("sql", messy, *query, *options, code=code)
    shown = pd.read_csv(tmp_path / "0" / "values.csv")
    assert shown["smoker"].tolist() == ["no", "yes"]
    assert shown["age"].to_numpy() == pytest.approx([53, 53], abs=2)
