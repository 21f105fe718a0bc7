"""``pac release --ledger``: several commands, one secret half, one total budget."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from pacprivacy.cli.console import app
from pacprivacy.ledger import Ledger
from pacprivacy.release import Bundle, Certificate
from pacprivacy.session import Session
from pacprivacy.session.account import account_digest


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    lines = ["age,income,smoker,person"]
    for i in range(40):
        row = (rng.normal(40, 10), rng.normal(3e4, 5e3), "yes" if i % 3 else "no", i // 2)
        lines.append(",".join(map(str, row)))
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pac(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="pac")


def release(*arguments: str, output: str = "out", columns: str = "age,income") -> Result:
    fixed = ["release", "people.csv", "--columns", columns, "-o", output, "--subsets", "16"]
    return pac(*fixed, "--ledger", "study.db", *arguments)


FIRST = ("--model", "mean", "--budget", "mi<=1/8", "--total", "mi<=1/2")


def entries() -> list[tuple[str, Any]]:
    return [(entry.kind, entry.amounts.mi_nats) for entry in Ledger("study.db").entries()]


def test_models_follow_each_other_on_one_half(study: Path) -> None:
    assert release(*FIRST, output="one").exit_code == 0
    svm = ("--model", "svm", "--target", "smoker", "--budget", "mi<=1/4")
    assert release(*svm, output="two").exit_code == 0
    first, second = (Bundle.load(study / name / "curator.npz") for name in ("one", "two"))
    assert first.pool.digest() == second.pool.digest()
    assert not np.allclose(second.log_p, second.log_p[0])  # calibrated to what the first has told
    certificate = Certificate.read("two/release.json")
    facts = certificate.composition
    assert facts is not None
    assert (facts["release_number"], facts["total_nats"]) == (2, 0.5)
    assert facts["spent_nats_so_far"] <= 3 / 8
    assert pac("verify", "two/release.json").exit_code == 0
    assert [kind for kind, _ in entries()] == ["budget", "reserve", "commit", "reserve", "commit"]
    assert Ledger("study.db").entries()[-1].certificate == account_digest(certificate)


def test_what_is_not_left_is_refused_and_not_spent(study: Path) -> None:
    assert release(*FIRST, output="one").exit_code == 0
    before = entries()
    refused = release("--model", "mean", "--budget", "mi<=1/2", output="two")
    assert refused.exit_code == 3
    assert entries() == before
    assert not (study / "two").exists()


def test_an_output_that_cannot_be_written_costs_nothing(study: Path) -> None:
    (study / "file").write_text("")
    for output in ("file", "file/below", "\0"):
        assert release(*FIRST, output=output).exit_code == 2
    assert not (study / "study.db").exists()


def test_budget_of_the_ledger_is_the_total(study: Path) -> None:
    made = pac("ledger", "create", "study.db", "--dataset", "people", "--increment", "10%")
    assert made.exit_code == 0
    arguments = ("--model", "mean", "--budget", "membership<=0.55")
    assert release(*arguments, output="one").exit_code == 0
    facts = Certificate.read("one/release.json").composition
    assert facts is not None
    assert facts["total_success"] == pytest.approx(0.6)
    for name in ("two", "three"):  # at most ((0.6 - 0.5) / (0.55 - 0.5))² of them fit
        assert release(*arguments, output=name).exit_code == 0
    assert release(*arguments, output="four").exit_code in (0, 3)
    assert release(*arguments, output="five").exit_code == 3


def test_without_a_total_there_is_no_new_session(study: Path) -> None:
    result = release("--model", "mean", "--budget", "mi<=1/8")
    assert result.exit_code == 2
    assert not (study / "study.db").exists()
    pac("ledger", "create", "study.db", "--dataset", "others", "--mi", "1")
    result = release("--model", "mean", "--budget", "mi<=1/8")
    assert result.exit_code == 2
    assert "--total must be given for a new session" in result.stderr
    assert '--total "membership<=0.6"' in result.stderr
    assert "To go on with 'others': --dataset 'others'" in result.stderr
    assert len(entries()) == 1


def test_a_table_under_a_new_name_is_pointed_to_its_budget(study: Path) -> None:
    first = release(*FIRST, output="one")
    assert first.exit_code == 0
    assert "budget of its own" not in first.stderr
    (study / "people.csv").rename(study / "february.csv")
    words = ("release", "february.csv", "--columns", "age,income", "--subsets", "16")
    words = (*words, "--ledger", "study.db")
    second = pac(*words, *FIRST, "-o", "two")
    assert second.exit_code == 0
    assert "'february' gets a budget of its own beside 'people'" in second.stderr
    third = pac(*words, *FIRST[:4], "--dataset", "people", "-o", "three")
    assert third.exit_code == 0
    assert "budget of its own" not in third.stderr


@pytest.mark.parametrize("change", ["rows", "unit"])
def test_other_data_are_refused(study: Path, change: str) -> None:
    assert release(*FIRST, output="one").exit_code == 0
    before = entries()
    more = ()
    if change == "rows":
        path = study / "people.csv"
        path.write_text(path.read_text().replace("yes", "no", 1))
    else:
        more = ("--unit", "person")
    result = release("--model", "mean", "--budget", "mi<=1/8", *more, output="two")
    assert result.exit_code == 2
    assert "must be what the session" in result.stderr
    assert entries() == before


def test_stratified_pool_is_drawn_by_the_labels(study: Path) -> None:
    svm = ("--model", "svm", "--target", "smoker", "--budget", "mi<=1/4", "--total", "mi<=1")
    assert release(*svm).exit_code == 0
    assert Certificate.read("out/release.json").scheme == "balanced-stratified"


@pytest.mark.parametrize("option", ["--dataset", "--principal", "--total", "--state"])
def test_options_of_the_ledger_need_one(study: Path, option: str) -> None:
    fixed = ["release", "people.csv", "--model", "mean", "--budget", "mi<=1/8", "-o", "out"]
    result = pac(*fixed, option, "mi<=1")
    assert result.exit_code == 2
    assert "--ledger must be given" in result.stderr


def test_simulations_are_not_booked(study: Path) -> None:
    result = release(*FIRST, "--simulate")
    assert result.exit_code == 2
    assert "simulate must be False" in result.stderr


def test_python_goes_on_where_the_command_stopped(study: Path) -> None:
    assert release(*FIRST).exit_code == 0
    with pytest.raises(Exception, match="data must be what the session"):
        Session.resume(np.zeros((40, 2)), ledger="study.db", dataset="people")
