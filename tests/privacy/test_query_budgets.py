"""Many queries on one budget: killed at any step, resumed, two analysts at once; totals exact."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pacprivacy.budget import Spent
from pacprivacy.cli.console import app
from pacprivacy.ledger import Ledger
from tests.contract.test_ledger_concurrency import run_all
from tests.privacy.test_ledger_crash import POINTS, SHARE, Crashes, Driver

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this system cannot fork")

# Every query is chosen by the answer before it. What is slow to import is imported before the fork.
TABLES = """
import duckdb, narwhals.stable.v2, numpy as np, pandas as pd, pyarrow, scipy.sparse
import pacprivacy as pac
import pacprivacy.session.account

def data():
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"id": range(12)})
    visits = pd.DataFrame({"person": rng.integers(0, 12, 50), "cost": rng.gamma(9, 5, 50)})
    frames = {"people": people, "visits": visits}
    return pac.Tables(frames, unit="people.id", via={"visits": "person"})

def ask(opened, nats, last):
    query = f"SELECT sum(cost) AS total FROM visits WHERE cost < {50 + last % 20:.4f}"
    return opened.sql(query, pac.Information(nats))
"""
ASK = f"""
{TABLES}
def release(opened):
    path = folder / "answers"
    last = float(path.read_text().split()[-1]) if path.exists() else 0.0
    made = ask(opened, share, last)
    with path.open("a") as file:
        file.write(f"{{made.value['total']!r}}\\n")
    return made
"""


@pytest.mark.claim("K-1", "Q-2")
def test_ten_adaptive_queries_survive_a_kill_between_any_two_steps(tmp_path: Path) -> None:
    where = str(tmp_path / "study.db")
    points = [point for point in POINTS if point != "in the user's code"]
    with Driver(other=ASK) as driver:
        crashes = Crashes(driver, where, tmp_path)
        n_reserved = n_committed = 0
        for point in points:
            crashes.kill(point=point, n_before=1)
            found = crashes.check()
            n_reserved += 1 + POINTS[point]["reserve"]
            n_committed += 1 + POINTS[point]["commit"]
            assert (found["reserve"], found["commit"]) == (n_reserved, n_committed), point
    ledger = Ledger(where)
    entries = ledger.entries()
    answers = (tmp_path / "answers").read_text().split()
    assert len(answers) == len(set(answers)) == len(crashes.released()) == len(points) >= 10
    reserved = [e for e in entries if e.kind == "reserve"]
    spent = ledger.balance("people", "ann")[0].spent.mi_nats or 0.0
    assert round(1e12 * spent) == sum(e.units["mi_nats"] for e in reserved)  # to the last unit
    assert spent <= SHARE * len(reserved)
    # Each query was chosen by an answer that left, or is the one that a crash had begun.
    asked = {f"cost < {50 + last % 20:.4f}" for last in (0.0, *map(float, answers))}
    assert {e.what.partition("WHERE ")[2] for e in reserved} <= asked
    shown = CliRunner().invoke(app, ["ledger", "spend-log", where, "--json"])
    assert [row["what"] for row in json.loads(shown.stdout)] == [e.what for e in entries]
    assert reserved[0].what == "SELECT sum(cost) AS total FROM visits WHERE cost < 50.0000"


@pytest.mark.claim("K-2", "Q-2")
def test_two_analysts_at_once_spend_one_budget_exactly(tmp_path: Path) -> None:
    where = str(tmp_path / "study.db")
    ledger = Ledger(where)
    ledger.create_budget("clinic", limits=Spent(mi_nats=0.1))
    work = f"""
{TABLES}
from pacprivacy.errors import BudgetExceededError

def work(where, who):
    last, n_asked = 0.0, 0
    with pac.Session(data(), ledger=where, budget=pac.Information(0.09), n_subsets=4,
                     dataset="clinic", principal=who, progress=False) as opened:
        while True:
            try:
                last = ask(opened, 0.01, last).value["total"]
            except BudgetExceededError:
                return [n_asked, opened.odometer().spent.mi_nats]
            n_asked += 1
"""
    results = run_all(work, where, tmp_path / "results", n=2)
    entries = ledger.entries()
    assert ledger.verify().ok
    reserved = [e for e in entries if e.kind == "reserve"]
    assert sum(n for n, _ in results) == len([e for e in entries if e.kind == "commit"])
    assert len(reserved) == sum(n for n, _ in results) >= 10
    for number, (n_asked, nats) in enumerate(results):
        own = [e.units["mi_nats"] for e in reserved if e.principal == f"process {number}"]
        assert len(own) == n_asked
        assert 0 <= sum(own) - 1e12 * nats <= n_asked  # each is rounded up
    (balance,) = ledger.balance("clinic")
    spent = sum(e.units["mi_nats"] for e in reserved)
    assert round(1e12 * (balance.spent.mi_nats or 0)) == spent <= round(1e12 * 0.1)
    assert (balance.left.mi_nats or 0) < 0.01  # neither could ask once more
