"""A service that is stopped and started again: nothing unpaid, no noise twice, the promise holds.

In full: ``benchmarks/serve/load.py``.
"""

import os
import tempfile
import threading
from http.client import HTTPException
from pathlib import Path

import numpy as np
import pytest

from tests.serving import (
    Attack,
    Client,
    Folder,
    ask_from_all,
    ask_shop,
    make_shop,
    malformed,
    people,
    send_raw,
    serve_shop,
    shop_books,
)

QUESTIONS = people(2000, seed=4)[0]
PROMISED = 0.6


@pytest.fixture
def place(tmp_path):
    """A folder in memory where there is one: nothing pulls the plug here, and syncs take time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def guesses(attack: Attack, place, n_runs: int, n_answers: int, n_stops: int, *, forget: bool):
    """The success of the best guess about the three units that are asked for, run by run."""
    found = [
        attack.run(place / str(seed), n_answers, n_stops, seed=seed, forget=forget)[0][:3]
        for seed in range(n_runs)
    ]
    return 0.5 + 0.5 * np.array(found)


@pytest.mark.claim("V-1")
def test_who_sees_all_answers_stays_below_the_promise(place):
    success = guesses(Attack(batch=20), place, 8, 300, 7, forget=False)
    assert success.mean() <= PROMISED
    assert success.mean() > 0.52  # and something was learned


def test_a_service_that_forgets_at_every_stop_is_caught(place):
    success = guesses(Attack(batch=25), place, 8, 2000, 40, forget=True)
    assert success.mean() > PROMISED + 0.02


@pytest.mark.claim("V-1", "Q-4")
def test_tables_are_served_through_kills_and_bad_requests(tmp_path):
    """In small what ``benchmarks/serve/queries.py`` does in full."""
    pytest.importorskip("duckdb")
    folder = make_shop(tmp_path, 4000, 2000)
    n_answered = 0
    for _ in range(2):
        server = serve_shop(folder, 5000)
        timer = threading.Timer(1.5, server.process.kill)
        timer.start()
        n_answered += ask_from_all(folder, server.port, 1000, connections=3)[0].count(200)
        timer.join()
        server.kill()
    server, token = serve_shop(folder, 5000), folder.tokens["ann"]
    for content in malformed(60, token, seed=1, path="/sql", good=b'{"query": "SELECT 1"}'):
        answer = send_raw(server.port, content)
        assert answer[9:10] == b"4"
        assert not any(word in answer for word in (b"Traceback", token.encode(), b"7777777"))
    n_answered += ask_shop(Client(server.port, token))[0] == 200
    server.stop()
    books = shop_books(folder, n_answered)
    assert n_answered > 0
    assert books["answers_lost"] == books["over_the_cap"] == 0
    assert books["reserved"] >= books["committed"] >= books["answered"]
    assert books["n_releases"] == books["reserved"]
    assert 1 - 1e-6 < books["busiest_clock_over_ledger"] <= 1
    assert books["ledger_intact"]


@pytest.mark.claim("V-1")
@pytest.mark.system_entropy
def test_killed_while_it_answers(tmp_path):
    """The ledger shows what clients were told, or more; the next process draws other noise."""
    folder = Folder.make(tmp_path, budget="mi<=5", query=1e-5)
    told: list[tuple[str, float]] = []
    seen: list[float] = []
    secret = folder.stored().state.secret.to_storage()

    def ask(who: str, port: int, enough: threading.Event) -> None:
        client, rng = Client(port, folder.tokens[who]), np.random.default_rng()
        try:
            while True:
                status, found = client.predict(QUESTIONS[rng.integers(2000, size=20)])
                assert status == 200
                told.append((who, found["spent"]["mi_nats"]))
                free = np.array(found["unanimous"])
                seen.extend(np.array(found["values"])[~free, 1].tolist())
                if len(told) >= 12:
                    enough.set()
        except (OSError, ValueError, HTTPException):  # the server is gone
            enough.set()

    server, enough = folder.serve("--rate", "100000", "--quiet"), threading.Event()
    threads = [
        threading.Thread(target=ask, args=(who, server.port, enough))
        for who in ("ann", "bob", "ann")
    ]
    for thread in threads:
        thread.start()
    assert enough.wait(120)
    server.kill()
    for thread in threads:
        thread.join()
    entries = [entry for entry in folder.ledger.entries() if entry.kind == "reserve"]
    for who in ("ann", "bob"):
        reserved = sum(entry.amounts.mi_nats for entry in entries if entry.principal == who)
        assert reserved >= sum(nats for name, nats in told if name == who) > 0
    assert folder.stored().state.secret.to_storage() == secret
    assert folder.ledger.verify().ok
    model = folder.load()  # and it goes on
    assert model.odometer().spent.mi_nats >= sum(nats for _, nats in told) * (1 - 1e-9)
    (reply,) = model.answer_each(QUESTIONS[:200], [("ann", 200)])
    seen.extend(reply.values[~reply.unanimous, 1].tolist())
    assert len(set(seen)) == len(seen) > 150
    model.close()
