"""``pac ledger``: what it prints, what it writes, and with which code it ends."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pacprivacy.adversary import session_cap
from pacprivacy.budget import Spent
from pacprivacy.cli import app
from pacprivacy.ledger import Ledger


def pac(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["ledger", *(str(arg) for arg in args)])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def refused(*args: object) -> str:
    lines = pac(*args, code=2).stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("pac: error: ")
    return str(lines[0])


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.db"
    pac("create", path, "--dataset", "people", "--mi", "1", "--increment", "10%")
    pac("create", path, "--dataset", "people", "--principal", "ann", "--mi", "1/2")
    ledger = Ledger(path)
    charge = Spent(mi_nats=0.25, success_increment=0.05)
    ledger.commit(ledger.reserve("people", "ann", charge, "mean income"), "ab" * 32)
    return path


def test_it_says_what_to_type_next() -> None:
    text = pac().stdout
    assert "pac ledger create study.db --dataset people --mi 1" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_create_writes_the_limits(tmp_path: Path) -> None:
    options = ("--mi", "1/4", "--increment", "5%", "--epsilon", "2", "--delta", "1e-6", "--json")
    made = json.loads(pac("create", tmp_path / "x.db", "--dataset", "people", *options).stdout)
    assert (made["kind"], made["dataset"], made["principal"]) == ("budget", "people", "*")
    assert made["mi_nats_e12"] == 250_000_000_000
    assert made["success_e12"] == 50_000_000_000
    assert (made["epsilon_e12"], made["delta_e18"]) == (2 * 10**12, 10**12)


def test_a_budget_of_coins_is_a_membership_success(tmp_path: Path) -> None:
    path = tmp_path / "coins.db"
    made = json.loads(
        pac("create", path, "--dataset", "people", "--membership", "60%", "--json").stdout
    )
    assert made["mu_squared_e12"] == int(1e12 * session_cap(0.6))
    Ledger(path).reserve("people", "ann", Spent(mu_squared=session_cap(0.6) / 4), "mean income")
    rows = [line.split() for line in pac("show", path).stdout.splitlines()]
    shown = ["60.00", "%", "25.01", "%", "of", "it", "74.99", "%", "of", "it"]
    assert ["people", "*", "membership,", "coins", *shown] in rows
    assert "60.00 %" in pac("spend-log", path).stdout
    assert "above 1/2" in refused("create", path, "--dataset", "x", "--membership", "0.4")
    both = ("--dataset", "y", "--mi", "1", "--membership", "0.55")
    assert "is set" in pac("create", path, *both).stdout


def test_create_refuses(study: Path, tmp_path: Path) -> None:
    assert "cannot be changed" in refused("create", study, "--dataset", "people", "--mi", "2")
    assert "one of --mi, --increment" in refused("create", tmp_path / "y.db", "--dataset", "x")
    assert "--mi must be a number" in refused("create", study, "--dataset", "x", "--mi", "lots")
    assert "--dataset" in refused("create", study, "--mi", "1")
    assert not (tmp_path / "y.db").exists()


def test_show(study: Path) -> None:
    text = pac("show", study).stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["people", "*", "information", "(nats)", "1", "0.25", "0.75"] in rows
    assert ["people", "*", "membership,", "pools", "0.1", "0.05", "0.05"] in rows
    assert ["people", "ann", "information", "(nats)", "0.5", "0.25", "0.25"] in rows
    assert max(len(line) for line in text.splitlines()) <= 90  # the hash is long
    plain = json.loads(pac("show", study, "--json").stdout)
    assert plain["head"] == Ledger(study).verify().head
    assert [budget["left"]["mi_nats"] for budget in plain["budgets"]] == [0.75, 0.25]
    assert pac("show", study, "--quiet").stdout == ""


def test_spend_log(study: Path) -> None:
    text = pac("spend-log", study, "--principal", "ann").stdout
    assert "0.25 nats" in text
    assert "reserve" in text
    plain = json.loads(pac("spend-log", study, "--json").stdout)
    assert [entry["kind"] for entry in plain] == ["budget", "budget", "reserve", "commit"]
    assert plain[3]["certificate"] == "ab" * 32


def test_verify(study: Path) -> None:
    found = json.loads(pac("verify", study, "--json").stdout)
    assert (found["verified"], found["n_entries"]) == (True, 4)
    assert "4 entries, all intact" in pac("verify", study, "--head", found["head"]).stdout
    assert "noted hash is not in the chain" in refused("verify", study, "--head", "0" * 64)


@pytest.mark.claim("K-3")
def test_verify_names_the_first_broken_entry(study: Path) -> None:
    connection = sqlite3.connect(study, isolation_level=None)
    connection.execute("UPDATE pac_entries SET principal = 'bob' WHERE seq = 3")
    connection.close()
    assert "entry 3 is broken: its hash does not match" in refused("verify", study)
    result = pac("verify", study, "--json", code=2)
    assert json.loads(result.stdout)["broken_entry"] == 3
    assert "entry 3 is broken" in pac("show", study, code=2).stderr


@pytest.mark.parametrize("verb", ["show", "spend-log", "verify"])
def test_what_is_no_ledger_is_refused_and_left_alone(verb: str, tmp_path: Path) -> None:
    assert "must be a file that is there" in refused(verb, tmp_path / "missing.db")
    text = tmp_path / "notes.txt"
    text.write_text("hello\n" * 1000)
    assert "must be a ledger" in refused(verb, text)
    assert text.read_text() == "hello\n" * 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


@pytest.mark.parametrize("verb", ["create", "show", "spend-log", "verify"])
def test_every_verb_has_an_example(verb: str) -> None:
    text = pac(verb, "--help").stdout
    assert f"pac ledger {verb}" in text


def test_damaged_files_end_in_one_line(study: Path) -> None:
    """Cut off anywhere, or with random bytes: codes 0 and 2, never a defect."""
    content = study.read_bytes()
    rng = np.random.default_rng(11)
    for _ in range(40):
        damaged = bytearray(content[: int(rng.integers(1, len(content)))])
        for _ in range(int(rng.integers(0, 40))):
            damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
        study.write_bytes(damaged)
        for verb in ("show", "spend-log", "verify"):
            result = CliRunner().invoke(app, ["ledger", verb, str(study)])
            assert result.exit_code in (0, 2), result.stderr
        for leftover in ("-wal", "-shm"):
            study.with_name(study.name + leftover).unlink(missing_ok=True)
