"""Many processes at one ledger: no budget is overspent, no entry is lost."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pacprivacy.budget import Spent
from pacprivacy.ledger import Ledger

N_PROCESSES = 8
N_SPENDS = 12
N_ALLOWED = 50

# One process imports, then forks the others, which all start when the pipe is closed.
FORKS = """
import json, os, sys
from pathlib import Path
import pacprivacy.ledger.ledger

where, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
gate, opener = os.pipe()
children = []
for number in range(count):
    child = os.fork()
    if child == 0:
        os.close(opener)
        os.read(gate, 1)
        code = 1
        try:
            (folder / f"{number}.json").write_text(json.dumps(work(where, f"process {number}")))
            code = 0
        finally:
            os._exit(code)
    children.append(child)
os.close(opener)
failed = [os.waitpid(child, 0)[1] for child in children]
sys.exit(any(failed))
"""

SPEND = """
from pacprivacy.budget import Spent
from pacprivacy.ledger import Ledger
from pacprivacy.errors import BudgetExceededError

def work(where, who):
    ledger = Ledger(where, create=False, timeout_s=300)
    made, refused = [], 0
    for number in range({n_spends}):
        try:
            reservation = ledger.reserve("people", who, Spent(mi_nats=0.01), f"spend {{number}}")
        except BudgetExceededError:
            refused += 1
        else:
            ledger.commit(reservation, "ab" * 32)
            made.append(reservation.entry.reservation)
    return {{"made": made, "refused": refused}}
"""

CREATE = """
from pacprivacy.budget import Spent
from pacprivacy.ledger import Ledger
from pacprivacy.errors import BudgetError

def work(where, who):
    ledger = Ledger(where, timeout_s=300)
    try:
        ledger.create_budget("people", limits=Spent(mi_nats=0.5))
    except BudgetError:
        return [ledger.ledger_id, "found"]
    return [ledger.ledger_id, "made"]
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this system cannot fork")


def run_all(
    work: str,
    where: str,
    folder: Path,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    n: int = N_PROCESSES,
) -> list[Any]:
    """Do the work in all processes at once and return what each brought back."""
    folder.mkdir()
    command = [sys.executable, "-c", work + FORKS, where, str(folder), str(n)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            meanwhile()
            time.sleep(0.2)
        assert process.stderr is not None
        assert process.returncode == 0, process.stderr.read()
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(n)]


@pytest.mark.slow
@pytest.mark.claim("K-2")
def test_eight_processes_spend_exactly_the_budget(ledger_where: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_where)
    ledger.create_budget("people", limits=Spent(mi_nats=0.5))
    seen = []

    def look() -> None:
        """A reader sees a whole ledger at any time."""
        found = ledger.verify()
        assert found.ok, found.problem
        seen.append(found.n_entries)

    work = SPEND.format(n_spends=N_SPENDS)
    results = run_all(work, ledger_where, tmp_path / "results", look)
    assert seen == sorted(seen)
    made = [name for result in results for name in result["made"]]
    assert len(made) == len(set(made)) == N_ALLOWED
    assert sum(result["refused"] for result in results) == N_PROCESSES * N_SPENDS - N_ALLOWED
    entries = ledger.entries()
    assert Counter(entry.kind for entry in entries) == {
        "budget": 1,
        "reserve": N_ALLOWED,
        "commit": N_ALLOWED,
    }
    assert {entry.reservation for entry in entries if entry.kind == "commit"} == set(made)
    found = ledger.verify()
    assert found.ok, found.problem
    assert found.n_entries == 1 + 2 * N_ALLOWED
    (balance,) = ledger.balance("people")
    assert balance.left.mi_nats == 0.0


def test_a_ledger_that_all_create_at_once_is_one_ledger(ledger_where: str, tmp_path: Path) -> None:
    results = run_all(CREATE, ledger_where, tmp_path / "results")
    assert {ledger_id for ledger_id, _ in results} == {Ledger(ledger_where).ledger_id}
    assert Counter(outcome for _, outcome in results) == {"made": 1, "found": N_PROCESSES - 1}
    assert Ledger(ledger_where).verify().ok
