"""``pac serve`` before it serves: tokens, and what it refuses to start with."""

import json
import socket
import warnings

import duckdb
import pytest
from typer.testing import CliRunner

from pacprivacy.cli.console import app
from tests.serving import Folder


def run(*words):
    return CliRunner().invoke(app, ["serve", *map(str, words)])


def test_tokens_are_granted_and_revoked(tmp_path):
    tokens = tmp_path / "tokens.json"
    granted = run("--grant", "ann", "--tokens", tokens)
    assert granted.exit_code == 0
    assert granted.stdout.strip().startswith("pac_")
    assert granted.stdout.strip() not in tokens.read_text()
    found = run("--revoke", "ann", "--tokens", tokens, "--json")
    assert json.loads(found.stdout) == {"principals": [], "token": None}
    assert run("--revoke", "ann", "--tokens", tokens).exit_code == 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Folder.make(tmp_path_factory.mktemp("cli"))


@pytest.mark.parametrize("words", [("churn.pac",), ("--tables", "shop.duckdb")])
def test_without_a_ledger_it_does_not_start(folder, words, monkeypatch):
    monkeypatch.chdir(folder.path)
    found = run(*words)
    assert found.exit_code == 2
    assert "--ledger must be given" in found.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "MODELS or --tables must be given"),
        (("--host", "0.0.0.0"), "travel in the clear"),
        (("--host", "example.org"), "travel in the clear"),
        (("--tls-cert", "a.pem"), "must be given together"),
        (("--tokens", "none.json"), "must hold a principal"),
        (("--rate", "0"), "--rate must be above 0"),
        (("--per-query", "nonsense"), "budget"),
        (("--per-query", "mi<=1"), "--per-query must limit membership alone"),
        (("--tables", "shop.duckdb"), "--unit must be given"),
        (("--dataset", "other"), "state must be there"),
    ],
)
def test_what_it_does_not_start_with(folder, words, said, monkeypatch):
    monkeypatch.chdir(folder.path)
    files = () if not words else ("churn.pac", "--ledger", "study.db")
    found = run(*files, *words)
    assert found.exit_code == 2, found.output
    assert said in found.output
    folder.load().close()  # and nothing holds the secret


@pytest.mark.claim("V-3")
def test_what_models_warn_of_is_not_logged(folder, monkeypatch):
    monkeypatch.chdir(folder.path)

    def serve(service, **_):
        warnings.warn("a value of somebody", stacklevel=1)
        service.desk.close()

    monkeypatch.setattr("pacprivacy.serve.run_service", serve)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert run("churn.pac", "--ledger", "study.db").exit_code == 0
    assert not seen


def test_a_port_that_is_taken(folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = run("churn.pac", "--ledger", "study.db", "--port", port)
    assert found.exit_code == 2
    assert "must be free" in found.output
    folder.load().close()


@pytest.mark.parametrize(("total", "code"), [("membership<=0.6", 0), ("mi<=1", 2)])
def test_totals_of_tables_limit_membership_alone(folder, monkeypatch, total, code):
    monkeypatch.chdir(folder.path)
    file = f"{total[:2]}.duckdb"
    with duckdb.connect(file) as shop:
        shop.execute("CREATE OR REPLACE TABLE customer AS SELECT range AS id FROM range(400)")
    monkeypatch.setattr("pacprivacy.serve.run_service", lambda service, **_: service.desk.close())
    files = ("--tables", file, "--unit", "customer.id", "--queries", total[:2])
    found = run("--ledger", "study.db", *files, "--total", total)
    assert found.exit_code == code, found.output
    assert ("--total must limit membership alone" in found.output) == (code == 2)
