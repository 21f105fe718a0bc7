"""Coins on the command line: release, plan, verify, audit, report, with the options of pools."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pacprivacy.cli import app
from pacprivacy.release import Certificate, Release
from pacprivacy.session.coin_secret import CoinState
from pacprivacy.session.state import SessionState

N = 1500
POOL_WORDS = re.compile(r"\b(pool|candidate|fold|universe|subset|belief)s?\b", re.IGNORECASE)
BUDGET = ["--budget", "membership<=0.6"]
COINS = ["--sample", "coins"]
STATISTICS = {
    "mean": ["--columns", "income"],
    "mean by region": ["--columns", "income,age", "--group-by", "region", "--weights", "weight"],
    "sum": ["--columns", "income", "--where", "age >= 30"],
    "count": ["--group-by", "region", "--levels", "region=north,south"],
    "variance": ["--columns", "income"],
    "covariance": ["--columns", "income,age"],
    "histogram": ["--target", "age", "--ranges", "0,120"],
    "crosstab": ["--columns", "region,smoker", "--missing", "category"],
    "mean of dates": ["--columns", "joined"],
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(8)
    person = rng.integers(0, 600, N)
    frame = pd.DataFrame(
        {
            "person": [f"{p}.0" if i % 2 else str(p) for i, p in enumerate(person)],
            "region": rng.choice(["north", "south"], N),
            "age": rng.integers(16, 90, N).astype(float),
            "income": rng.lognormal(10, 0.4, N).round(2),
            "joined": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N), "D"),
            "smoker": rng.choice(["yes", "no"], N),
            "weight": rng.random(N).round(3),
        }
    )
    frame.loc[rng.random(N) < 0.05, "income"] = np.nan
    frame.loc[rng.random(N) < 0.02, "region"] = None
    path = tmp_path_factory.mktemp("coins") / "people.csv"
    frame.to_csv(path, index=False)
    return path


def pac(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def refused(*args: object, code: int = 2) -> str:
    result = pac(*args, code=code)
    assert result.stderr.count("\n") == 1, result.stderr
    return str(result.stderr)


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_of_sums(name: str, people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--model", name.split()[0], *STATISTICS[name], "--unit", "person"]
    text = pac("release", people, *options, *COINS, *BUDGET, "-o", out, "--full").stdout
    text += pac("verify", out / "release.json").stdout
    text += pac("verify", out / "release.json", "--data", people, *options).stdout
    text += pac("audit", out / "release.json", "--seed", 1, "--trials", 500).stdout
    for version in ("--officer", None):
        pac("report", out, *([version] if version else []))
    pages = "".join((out / f"{page}.html").read_text() for page in ("report", "officer"))
    text += re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]*>", " ", pages, flags=re.DOTALL)
    text += (out / "release.json").read_text()
    assert not POOL_WORDS.findall(text)
    assert json.loads((out / "release.json").read_text())["certificate"]["sampling"] == "coins"


AVERAGED = {
    "median": ["--columns", "income,age", "--group-by", "region", "--where", "age >= 20"],
    "quantiles": ["--columns", "income", "--quantiles", "0.1,0.9"],
    "ols": ["--target", "income", "--columns", "age,smoker", "--weights", "weight"],
    "ridge": ["--target", "income", "--columns", "age,smoker", "--where", "age >= 20"],
}


@pytest.mark.claim("C-11")
@pytest.mark.parametrize("name", AVERAGED)
def test_every_statistic_that_is_proved_on_average(name: str, people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--model", name, *AVERAGED[name], "--budget", "membership<=0.7", "--seed", 1]
    options += [] if name in ("median", "quantiles") else ["--unit", "person"]
    text = pac("release", people, *options, *COINS, "-o", out, "--full").stdout
    assert "on average over the coins" in " ".join(text.split())
    text += pac("verify", out / "release.json").stdout
    again = ["--data", people, "--model", name, *AVERAGED[name]]
    if name in ("median", "quantiles"):
        text += (again_text := pac("verify", out / "release.json", *again).stdout)
        assert "the records around each quantile are those of" in " ".join(again_text.split())
        assert "that the stored records" not in " ".join(again_text.split())
    else:
        again += ["--unit", "person"]
        assert "in no file" in refused("verify", out / "release.json", *again)
    for version in ("--officer", None):
        pac("report", out, *([version] if version else []))
    planned = pac("plan", people, "--model", name, *AVERAGED[name], *COINS, "--budgets", "70%")
    pages = "".join((out / f"{page}.html").read_text() for page in ("report", "officer"))
    text += re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]*>", " ", pages, flags=re.DOTALL)
    assert not POOL_WORDS.findall(text + planned.stdout + (out / "release.json").read_text())
    values = pd.read_csv(out / "values.csv")
    assert (values["standard_error"] > 0).all()


def test_the_number_comes_first_on_eight_lines(people: Path, tmp_path: Path) -> None:
    options = ["--model", "mean", "--columns", "age", "--unit", "person", *COINS, *BUDGET]
    lines = pac("release", people, *options, "-o", tmp_path / "o").stdout.splitlines()
    assert lines[1].startswith("age ")
    assert len(lines) <= 8
    said = " ".join(lines)
    assert "60 times in 100; 50 without it. This holds also against those who know all" in said


def test_seven_and_seven_point_nought_are_one_unit(people: Path, tmp_path: Path) -> None:
    options = ["--model", "count", "--unit", "person", *COINS, *BUDGET, "-q"]
    pac("release", people, *options, "-o", tmp_path / "o")
    certificate = json.loads((tmp_path / "o" / "release.json").read_text())["certificate"]
    frame = pd.read_csv(people)
    assert certificate["n_units"] == frame.person.nunique()


def test_plan_shows_what_a_release_has(people: Path, tmp_path: Path) -> None:
    options = ["--model", "mean", "--columns", "income", "--group-by", "region", *COINS]
    planned = json.loads(pac("plan", people, *options, "--budgets", "55%,60%", "--json").stdout)
    pac("release", people, *options, *BUDGET, "-o", tmp_path / "o", "-q")
    values = pd.read_csv(tmp_path / "o" / "values.csv")
    numbers = planned["rows"][1]["numbers"]
    assert [number["name"] for number in numbers] == list(values["name"])
    np.testing.assert_allclose([n["distance"] for n in numbers], values["standard_error"])
    text = pac("plan", people, *options).stdout
    assert "standard error" in text
    assert not POOL_WORDS.findall(text)
    pooled = pac(
        "plan",
        people,
        "--model",
        "mean",
        "--columns",
        "income",
        "--sample",
        "pool",
        "--subsets",
        64,
        "--budget",
        "60%",
    ).stdout
    assert "64 candidate samples of" in pooled


def test_plan_names_budgets_that_groups_are_too_small_for(people: Path) -> None:
    options = ["--model", "mean", "--columns", "income", *COINS, "--where", "age < 20"]
    text = pac("plan", people, *options, "--budgets", "51%,90%").stdout
    assert "Groups are too small for success <= 51 %: noise may leave no value." in text
    assert "--fill 0" in refused("plan", people, *options, "--budgets", "51%", "-q")


def test_everybody_used(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    options = ["--model", "mean", "--columns", "age", *COINS, "--keep", 1, "--clip", "none"]
    text = pac("release", people, *options, *BUDGET, "-o", out, "--full").stdout
    assert "without a given record" in text
    assert "coins agree" not in text
    pac("verify", out / "release.json")
    pac("report", out)


def test_a_session_with_shares(people: Path, tmp_path: Path) -> None:
    ledger = ["--ledger", tmp_path / "s.db", "--unit", "person"]
    first = ["--model", "mean", "--columns", "age", *COINS, "--total", "membership<=0.7"]
    pac("release", people, *first, *ledger, "--share", "1 of 3", "-o", tmp_path / "1", "-q")
    second = ["--model", "count", "--group-by", "region", *COINS, "--share", "0.5"]
    text = pac("release", people, *second, *ledger, "-o", tmp_path / "2", "--full").stdout
    assert not POOL_WORDS.findall(text)
    assert "70 times in 100; 50 without them" in " ".join(text.split())
    last = ["--model", "mean", "--columns", "age", *COINS, "--budget", "membership<=0.7"]
    refused("release", people, *last, *ledger, "-o", tmp_path / "3", code=3)
    earlier = ["--session", tmp_path / "1" / "release.json"]
    pac("report", tmp_path / "2", *earlier)
    assert "Budget spent" in (tmp_path / "2" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sample", "coin"], "--sample must be coins or pool"),
        (["--sample", "pool", "--keep", "0.9"], "--keep must be left out with --sample pool"),
        (["--sample", "pool", "--clip", "1"], "--clip must be left out with --sample pool"),
        ([*COINS, "--keep", "2"], "--keep must be between"),
        ([*COINS, "--keep", "0.999"], "Choose a smaller --keep, use --sample pool, or --keep 1"),
        ([*COINS, "--clip", "much"], "--clip must be auto, none or a positive number"),
        ([*COINS, "--subsets", "64"], "--subsets must be left out with --sample coins"),
        ([*COINS, "--rule", "risk"], "--rule must be left out with --sample coins"),
        ([*COINS, "--jobs", "2"], "--jobs must be left out with --sample coins"),
        ([*COINS, "--missing", "mean"], "--missing must be drop, category or error"),
        ([*COINS, "--share", "0.5"], "one of --budget and --share must be given; got both"),
        ([*COINS, "--where", "age > 1000"], "--fill 0"),
    ],
)
def test_refusals_speak_the_command_line(
    options: list[str], said: str, people: Path, tmp_path: Path
) -> None:
    mean = ["--model", "mean", "--columns", "age", "--unit", "person"]
    result = pac("release", people, *mean, *BUDGET, *options, "-o", tmp_path / "o", code=2)
    assert said in result.stderr
    assert not re.search(r"\w=\S|pac\.", result.stderr.partition("error:")[2])
    assert not (tmp_path / "o").exists()


def test_what_coins_cannot_do_is_refused_before_reading(people: Path, tmp_path: Path) -> None:
    out = ["-o", tmp_path / "o"]
    said = refused("release", "nowhere.csv", "--model", "kmeans", "--clusters", 3, *COINS, *BUDGET,
                   *out)  # fmt: skip
    assert "--model must be one of mean, sum, count" in said
    median = ["release", "nowhere.csv", "--model", "median", *COINS, *BUDGET, *out]
    assert "--keep must be below 1 for --model median" in refused(*median, "--keep", 1)
    said = refused(*median, "--ledger", tmp_path / "ledger.db", "--total", "membership<=0.7")
    assert "--ledger must be left out with --sample coins for --model median" in said
    nats = ["--budget", "mi<=1"]
    said = refused("release", "nowhere.csv", "--model", "mean", *COINS, *nats, *out)
    assert "--budget must limit membership alone" in said
    said = refused("release", "nowhere.csv", "--model", "mean", *COINS, "--share", 1, *out)
    assert "--ledger must be given with --share" in said


def test_verify_refuses_another_table(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    mean = ["--model", "mean", "--columns", "age"]
    pac("release", people, *mean, *COINS, *BUDGET, "-o", out, "-q")
    release = out / "release.json"
    frame = pd.read_csv(people)
    frame.loc[3, "age"] += 40
    changed = tmp_path / "changed.csv"
    frame.to_csv(changed, index=False)
    assert (
        "follow from these records"
        in pac("verify", release, "--data", changed, *mean, code=2).stderr
    )
    assert "--data must come with" in refused("verify", release, "--data", people)
    assert "--data must come with" in refused("verify", release, "--columns", "age")


def test_a_regression_descends_and_verify_pays_its_clocks_again(
    people: Path, tmp_path: Path
) -> None:
    fit = ["--model", "logistic", "--target", "smoker", "--columns", "age,income,region"]
    fit += ["--unit", "person"]
    ledger = ["--ledger", tmp_path / "l.db", "--total", "membership<=0.75", *COINS]
    for place, rest in ((tmp_path / "o", []), (tmp_path / "s", ledger)):
        pac("release", people, *fit, *BUDGET, *rest, "-o", place, "-q")
        text = pac("verify", place / "release.json", "--data", people, *fit).stdout
        assert "clocks" in text
        assert "follows from the released steps" in text
        assert "with the data" not in text
    release = tmp_path / "o" / "release.json"
    alone = tmp_path / "certificate.json"
    alone.write_text(Certificate.read(release).to_json())
    files = ["--bundle", tmp_path / "o" / "curator.npz", "--data", people]
    assert "follows from the released steps" not in pac("verify", alone, *files, *fit).stdout
    interval = Release.load(release).interval()
    assert interval.lower["age"] < interval.upper["age"]
    frame = pd.read_csv(people)
    frame.loc[3, "age"] += 40
    changed = tmp_path / "changed.csv"
    frame.to_csv(changed, index=False)
    assert "other features follow" in refused("verify", release, "--data", changed, *fit)
    assert "got a descent" in refused("audit", release)
    clipped = ["--clip", 3, "-o", tmp_path / "c"]
    assert "clip must be left out" in refused("release", people, *fit, *BUDGET, *clipped, "-q")


DEFAULTS = {
    "mean": ["--columns", "income", "--group-by", "region"],
    "median": ["--columns", "income"],
    "histogram": ["--target", "age", "--bins", 8, "--ranges", "0,100"],
    "ols": ["--target", "income", "--columns", "age,region"],
    "logistic": ["--target", "smoker", "--columns", "age,region"],
    "poisson": ["--target", "age", "--columns", "income,region"],
}


@pytest.mark.parametrize("model", DEFAULTS)
def test_whoever_sets_nothing_has_coins_and_reads_of_nothing_else(
    model: str, people: Path, tmp_path: Path
) -> None:
    options = ["--model", model, *DEFAULTS[model]]
    text = pac("release", people, *options, *BUDGET, "-o", tmp_path, "--full").stdout
    assert Certificate.read(tmp_path / "release.json").sampling in ("coins", "average")
    text += pac("verify", tmp_path / "release.json").stdout
    pac("report", tmp_path / "release.json")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    seen = re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "coin" in text
    assert "coin" in seen
    assert not POOL_WORDS.search(text), POOL_WORDS.search(text)
    assert not POOL_WORDS.search(seen), POOL_WORDS.search(seen)


def test_a_pool_says_why_in_release_and_plan(people: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.csv"
    pd.read_csv(people).iloc[:150].to_csv(few, index=False)
    mean = ["--model", "mean", "--columns", "age"]
    why = "because the table has fewer than 200 records."
    pac("release", few, *mean, *BUDGET, "--subsets", 32, "-o", tmp_path / "o")
    notes = Certificate.read(tmp_path / "o" / "release.json").notes
    assert f"Sample: a pool of 32 candidates, {why}" in notes
    plan = pac("plan", few, *mean, "--budgets", "60%", "--subsets", 32).stdout
    assert why in " ".join(plan.split())
    assert "coin" in pac("plan", people, *mean, "--budgets", "60%").stdout
    pac(
        "release", people, *mean, *BUDGET, "--sample", "pool", "--subsets", 32, "-o", tmp_path / "p"
    )
    certificate = Certificate.read(tmp_path / "p" / "release.json")
    assert certificate.sampling == "pool"
    assert not any(note.startswith("Sample:") for note in certificate.notes)
    pac("release", people, *mean, *BUDGET, "--keep", 0.8, "-o", tmp_path / "k")
    assert Certificate.read(tmp_path / "k" / "release.json").used_prior == 0.8


@pytest.mark.claim("C-16")
def test_ids_keep_their_encoding_from_release_to_release(tmp_path: Path) -> None:
    """One byte of Latin-1 in a remark would rename everybody with an accent."""
    path, ledger = tmp_path / "people.csv", tmp_path / "l.db"
    rows = "".join(f"{'José' if i < 40 else 'Ann'}{i},{i % 50},ok\n" for i in range(400))
    asked = ["release", path, "--model", "mean", "--columns", "x", "--unit", "id", "--dataset", "d"]
    asked += ["--sample", "coins", "--keep", ".9", "--budget", "membership<=0.55", "-q"]
    asked += ["--total", "membership<=0.7", "--ledger", ledger]
    for number, more in enumerate((b"", b"Bob,3,caf\xe9\n", b"Bob,3,caf\xc3\xa9\n")):
        path.write_bytes(b"id,x,note\n" + rows.encode() + more)
        if number == 1:
            before = [each.read_bytes() for each in sorted(tmp_path.glob("*.session"))]
            said = refused(*asked, "-o", tmp_path / "1")
            assert "must be UTF-8, or its encoding be named" in said
            said = refused(*asked, "-o", tmp_path / "1", "--encoding", "cp1252")
            assert "letters in another encoding" in said
            assert before == [each.read_bytes() for each in sorted(tmp_path.glob("*.session"))]
        else:
            pac(*asked, "-o", tmp_path / f"{number}")


@pytest.mark.claim("C-16")
def test_ids_of_queries_are_texts_by_a_schema(tmp_path: Path) -> None:
    """One person called A01 must not make others of those who were numbers."""
    tables, schemas, ledger = (tmp_path / name for name in ("t", "s", "l.db"))
    tables.mkdir(), schemas.mkdir()
    (schemas / "visits.toml").write_text('[columns.cost]\ntype = "number"\n', encoding="utf-8")
    for number, more in enumerate(([], ["A01"])):
        ids = [*(f"{i:03d}" for i in range(300)), *more]
        people = "".join(f"{each},1\n" for each in ids)
        (tables / "people.csv").write_text(f"id,x\n{people}", encoding="utf-8")
        visits = "".join(f"{each},{i % 7}\n" for i, each in enumerate(ids * 2))
        (tables / "visits.csv").write_text(f"person,cost\n{visits}", encoding="utf-8")
        asked = ["sql", tables, "SELECT sum(cost) AS s FROM visits", "--schema", schemas]
        asked += ["--unit", "people.id", "--via", "visits=person", "--ledger", ledger, "-q"]
        asked += ["--budget", "membership<=0.55", "--total", "membership<=0.7", "--dataset", "d"]
        pac(*asked, "-o", tmp_path / f"{number}")
    (path,) = tmp_path.glob("*.session")
    state, _ = SessionState.from_bytes(path.read_bytes())
    assert isinstance(state, CoinState)
    assert len(state.clocks.spent) == 301
