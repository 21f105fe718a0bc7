"""The service over HTTP: tokens, limits, refusals, logs; with a real server on a port."""

import json
import logging
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import session_cap
from pacprivacy.budget import Spent
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    DataError,
    MechanismError,
    SecretError,
    UnansweredError,
)
from pacprivacy.ledger import Ledger
from pacprivacy.serve import Limits, Tokens
from tests.privacy.test_sql_door import ATTACKS
from tests.serving import Client, Folder, Running, malformed, people, send_raw

QUESTIONS = people(400, seed=2)[0]
LIMITS = Limits(rate=10_000.0, rows=200, body_bytes=20_000)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = Folder.make(tmp_path_factory.mktemp("service"), budget="membership<=0.6", query=1e-5)
    started = Running(folder, LIMITS)
    yield started
    started.stop()


def test_answers_come_with_noise_and_what_is_left(running):
    client = running.client()
    status, found = client.predict(QUESTIONS[:50])
    assert status == 200
    values, std = np.array(found["values"]), np.array(found["noise_std"])
    free = np.array(found["unanimous"])
    assert values.shape == (50, 2)
    np.testing.assert_allclose(values.sum(axis=1), 1, atol=1e-9)
    assert 0 < free.sum() < 50
    assert set(values[free].ravel()) <= {0.0, 1.0}
    assert (std[~free] > 1).all()
    assert (std[free] == 0).all()
    assert found["labels"] == values.argmax(axis=1).tolist()
    assert found["left"]["own"] is None
    before = found["left"]["total"]["success_increment"]
    _, again = client.predict(QUESTIONS[:50])
    cost = again["spent"]["success_increment"]
    assert again["left"]["total"]["success_increment"] == pytest.approx(before - cost, abs=1e-12)
    assert (np.array(again["values"])[~free] != values[~free]).all()  # noise of its own


def test_who_asks_at_once_is_answered_in_one_pass(running, monkeypatch):
    passes, real = [], running.model.answer_each

    def answer_each(X, parts):
        passes.append(parts)
        return real(X, parts)

    monkeypatch.setattr(running.model, "answer_each", answer_each)
    found = []
    threads = [
        threading.Thread(
            target=lambda i=i: found.append(running.client().predict(QUESTIONS[i : i + 3]))
        )
        for i in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [status for status, _ in found] == [200] * 12
    assert sum(len(parts) for parts in passes) == 12
    assert len(passes) < 12


@pytest.mark.claim("V-3")
@pytest.mark.parametrize("path", ["/predict", "/budget", "/certificate"])
def test_nothing_without_a_token(running, path):
    method = "POST" if path == "/predict" else "GET"
    body = {"rows": [[0.0] * 4]} if path == "/predict" else None
    for token in (None, "x", "pac_" + "0" * 64, running.folder.tokens["ann"][:-1]):
        status, headers, found = Client(running.port, token).call(method, path, body)
        assert status == 401
        assert headers["www-authenticate"] == "Bearer"
        assert list(json.loads(found)) == ["error"]


@pytest.mark.parametrize(("content", "mode"), [("{", 0o600), ("{}", 0o644)])
def test_tokens_that_cannot_be_read_let_nobody_in(running, content, mode):
    path = running.folder.path / "tokens.json"
    good = path.read_bytes()
    path.write_text(content)
    path.chmod(mode)
    try:
        status, _, text = running.client().call("GET", "/budget")
    finally:
        path.chmod(0o600)
        path.write_bytes(good)
    assert (status, json.loads(text)) == (503, {"error": "No token is valid."})
    assert running.client().call("GET", "/budget")[0] == 200


def test_what_is_open_to_all_says_nothing(running):
    client = Client(running.port, None)
    texts = [client.call("GET", path) for path in ("/", "/health")]
    assert [status for status, _, _ in texts] == [200] * 2
    for _, headers, _ in texts:
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (400, {"body": b"{"}),
        (400, {"body": {"rows": [[1.0] * 3]}}),
        (400, {"body": {"rows": []}}),
        (400, {"body": {"rows": [["a"] * 4]}}),
        (413, {"body": {"rows": [[1.0] * 4] * 201}}),
        (413, {"body": b" " * 20_001, "Content_Type": "application/json"}),
        (415, {"body": b"{}", "Content_Type": "text/plain"}),
    ],
)
def test_bad_bodies(running, status, asked):
    body = asked.pop("body")
    if isinstance(body, bytes):
        asked.setdefault("Content_Type", "application/json")
    found, _, text = running.client().call("POST", "/predict", body, **asked)
    assert found == status
    assert json.loads(text)["error"]


def test_a_slow_body_and_a_slow_head_are_cut_off(running, monkeypatch):
    monkeypatch.setattr("pacprivacy.serve.service._TimeoutProtocol.PATIENCE", 0.1)
    monkeypatch.setattr(running.service, "_limits", replace(LIMITS, seconds=0.1))
    token, began = running.folder.tokens["ann"], time.monotonic()
    head = (
        f"POST /predict HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with (
        socket.create_connection(("127.0.0.1", running.port), timeout=20) as body,
        socket.create_connection(("127.0.0.1", running.port), timeout=20) as first_line,
    ):
        first_line.sendall(b"POST /pre")
        body.sendall(head.encode())
        assert b" 408 " in body.recv(1 << 16)
        with suppress(ConnectionError):  # it may be closed already
            first_line.sendall(b"d")
            assert first_line.recv(1 << 16) == b""
    assert time.monotonic() - began < 15


def test_bad_requests_are_refused_and_it_stays_up(running, caplog):
    token = running.folder.tokens["bob"]
    with caplog.at_level(logging.DEBUG):
        for content in malformed(80, token):
            answer = send_raw(running.port, content)
            status = answer[9:12]
            assert answer.startswith(b"HTTP/1.1 4"), (content[:200], answer[:200])
            assert status.isdigit()
            assert b"Traceback" not in answer
            assert token.encode() not in answer
    assert "Traceback" not in caplog.text
    assert running.client().predict(QUESTIONS[:2])[0] == 200


@pytest.mark.claim("V-3")
def test_logs_hold_no_token_question_or_answer(running, caplog):
    with caplog.at_level(logging.DEBUG):
        _, found = running.client().predict([[123.25, 1.0, 2.0, 3.0]])
        running.client("nobody").call("GET", "/budget")
        Client(running.port, "wrong-token").call("GET", "/budget?secret-in-the-query")
    assert "ann /predict 200" in caplog.text
    for said in (running.folder.tokens["ann"], "wrong-token", "secret-in-the-query", "123.25"):
        assert said not in caplog.text
    assert str(found["values"][0][0])[:8] not in caplog.text or found["unanimous"][0]


@pytest.mark.parametrize(
    "error", [ZeroDivisionError, StopIteration, DataError, BudgetExceededError]
)
def test_an_error_of_a_model_is_told_by_nothing(running, monkeypatch, caplog, error):
    """Whatever its kind, also one whose words would be sent if it were ours."""

    def fail(*_):
        raise error("a value of somebody")

    monkeypatch.setattr("pacprivacy.estimators.predictor._ask", fail)
    before = running.model.odometer().spent
    with caplog.at_level(logging.DEBUG):
        found, text = running.client().predict(QUESTIONS[:1])
    assert (found, "somebody" in json.dumps(text) + caplog.text) == (400, False)
    assert running.model.odometer().spent == before


@pytest.mark.parametrize(("error", "status"), [(ZeroDivisionError, 500), (MechanismError, 400)])
def test_an_unexpected_error_is_told_by_its_kind(running, monkeypatch, caplog, error, status):
    def fail(*_):
        raise error("a value of somebody")

    monkeypatch.setattr(running.model, "answer_each", fail)
    with caplog.at_level(logging.DEBUG):
        answered, found = running.client().predict(QUESTIONS[:1])
    assert answered == status
    assert "somebody" not in json.dumps(found) + caplog.text
    assert ("ZeroDivisionError" in caplog.text) == (status == 500)


def test_one_bad_question_does_not_take_others_with_it(running, monkeypatch):
    real = running.model.answer_each

    def answer_each(X, parts):
        if (np.asarray(X) == 666).any():
            raise ZeroDivisionError
        time.sleep(0.05)
        return real(X, parts)

    monkeypatch.setattr(running.model, "answer_each", answer_each)
    found = {}

    def ask(i):
        found[i] = running.client().predict([[666.0 if i == 3 else 0.5] * 4])[0]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: 500 if i == 3 else 200 for i in range(8)}


BIG = 10 * (1 << 20)


def _big(kind):
    """Return the headers and the body of a request that is too large, or says that it is."""
    if kind == "chunked":
        chunk = b"%x\r\n%s\r\n" % (1 << 16, b" " * (1 << 16))
        return "Transfer-Encoding: chunked", chunk * (BIG >> 16) + b"0\r\n\r\n"
    length = {"as said": BIG, "less than said": 1000 * BIG, "nothing": BIG, "more than said": 5}
    return f"Content-Length: {length[kind]}", b"" if kind == "nothing" else b" " * BIG


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("as said", 413),
        ("chunked", 413),
        ("less than said", 413),
        ("nothing", 413),
        ("more than said", 400),
    ],
)
def test_a_body_of_ten_megabytes_is_refused_at_once(running, kind, status):
    """A client that sends all of it first, as most do, gets to read why."""
    said, body = _big(kind)
    head = (
        f"POST /predict HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
        f"{running.folder.tokens['ann']}\r\nContent-Type: application/json\r\n{said}\r\n\r\n"
    )
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as sent:
        try:
            sent.sendall(head.encode() + body)
        except ConnectionError:
            assert kind == "more than said"  # what is beyond the length is no request
        else:
            assert sent.recv(1 << 16).startswith(b"HTTP/1.1 %d " % status)
    assert time.monotonic() - began < 10
    assert running.client().predict(QUESTIONS[:1])[0] == 200


def test_budget_and_certificate(running):
    client = running.client()
    client.predict(QUESTIONS[:3])
    found = json.loads(client.call("GET", "/budget")[2])
    assert found["principal"] == "ann"
    assert found["limits"]["total"]["success_increment"] == pytest.approx(0.1)
    assert 0 < found["left"]["total"]["success_increment"] < 0.1
    told = json.loads(client.call("GET", "/certificate")[2])
    assert told["digest"] == running.model.certificate_.digest
    assert "60 times in 100" in told["promise"]


# --- services of their own ---------------------------------------------------------------------


def test_spent_budgets_and_rates(tmp_path):
    folder = Folder.make(tmp_path, budget="mi<=0.002")
    started = Running(folder, Limits(rate=5.0))
    try:
        statuses = []
        for _ in range(9):
            status, found = started.client().predict(QUESTIONS[:10])
            statuses.append(status)
        assert statuses[0] == 200
        assert 403 in statuses
        assert "what is left" in found["error"]
        for _ in range(12):
            status, headers, _ = started.client("bob").call("GET", "/budget")
        assert status == 429
        assert int(headers["retry-after"]) >= 1
    finally:
        started.stop()
    folder.load().close()  # the secret was let go


def test_a_service_that_cannot_write_stops(tmp_path, monkeypatch):
    folder = Folder.make(tmp_path)
    started = Running(folder)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pacprivacy._system.os.fsync", full)
    status, found = started.client().predict(QUESTIONS[:50])
    assert status == 503
    assert "values" not in found
    assert started.service._health().status_code == 503
    started.thread.join(60)
    assert not started.thread.is_alive()
    monkeypatch.undo()
    folder.load().close()


@pytest.mark.claim("V-1")
def test_a_ledger_that_goes_away_and_comes_back(tmp_path):
    folder = Folder.make(tmp_path)
    started, place, away = Running(folder), tmp_path / "study.db", tmp_path / "away.db"
    try:
        place.rename(away)
        status, found = started.client().predict(QUESTIONS[:50])
        assert (status, list(found)) == (503, ["error"])
        assert not place.exists()  # none is made in its place
        away.rename(place)
        assert started.client().predict(QUESTIONS[:50])[0] == 200  # nothing had been drawn
    finally:
        started.stop()


@pytest.mark.claim("V-3")
def test_tokens(tmp_path):
    path = tmp_path / "tokens.json"
    tokens = Tokens(path)
    ann, bob = tokens.grant("ann"), tokens.grant("bob")
    assert path.stat().st_mode & 0o777 == 0o600
    assert ann not in path.read_text()
    assert (tokens.principal_of(ann), tokens.principal_of(bob)) == ("ann", "bob")
    assert tokens.principal_of("") is tokens.principal_of(ann + "0") is None
    Tokens(path).revoke("ann")  # by another process
    assert tokens.principal_of(ann) is None
    assert tokens.principal_of(bob) == "bob"
    Tokens(path).revoke("bob")
    tokens.grant("eve")  # by one who has not asked since
    assert Tokens(path).principal_of(bob) is None
    with pytest.raises(DataError, match="who has none"):
        tokens.revoke("bob")
    path.chmod(0o644)
    with pytest.raises(SecretError, match="mode 0600"):
        Tokens(path)
    path.chmod(0o600)
    path.write_text("{}")
    with pytest.raises(DataError, match="file of tokens"):
        Tokens(path)
    for name in ("", "*", " a", "a\nb", "x" * 300):
        with pytest.raises(DataError, match="principal"):
            tokens.grant(name)


PER_QUERY = "membership<=0.52"
COST = session_cap(0.52)
KEYS = {"region": ["north", "south"]}


@dataclass
class Served:
    """Tables of a coin session behind HTTP: 400 people, a total of 0.6, bob with a limit."""

    folder: Folder
    limits: Limits
    bob: float | None = None
    models: bool = False

    def session(self, **options):
        frame = pytest.importorskip("pandas").DataFrame(
            {
                "id": range(400),
                "pay": np.arange(400) % 50 + 5000.0,
                "region": np.where(np.arange(400) % 2, "north", "south"),
            }
        )
        tables = pac.Tables({"people": frame}, unit="people.id")
        names = {"ledger": self.folder.path / "study.db", "dataset": "pay"}
        return pac.Session(tables, sample=pac.Coins(), **names, **options)

    @contextmanager
    def running(self, **options):
        session = self.session(**options)
        limits = {"*": session_cap(0.6), **({} if self.bob is None else {"bob": self.bob})}
        for who, mu_squared in limits.items():
            with suppress(BudgetError):  # it has one
                self.folder.ledger.create_budget("pay", who, limits=Spent(mu_squared=mu_squared))
        started = Running(self.folder, self.limits, session, models=self.models)
        try:
            yield started
        finally:
            started.stop()

    def reserved(self):
        entries = self.folder.ledger.entries(dataset="pay")
        return [entry.principal for entry in entries if entry.kind == "reserve"]


def served(tmp_path, *, models=False, bob=None, **limits):
    pytest.importorskip("duckdb")
    if models:
        folder = Folder.make(tmp_path)
    else:
        tokens = Tokens(tmp_path / "tokens.json")
        folder = Folder(tmp_path, {name: tokens.grant(name) for name in ("ann", "bob")})
        Ledger(tmp_path / "study.db")
    limits = Limits(**({"per_query": PER_QUERY, "rate": 1e4} | limits))
    return Served(folder, limits, bob, models)


def ask(started, who, query, **more):
    status, _, text = started.client(who).call("POST", "/sql", {"query": query, **more})
    return status, json.loads(text)


@pytest.mark.claim("V-1")
def test_tables_are_asked_in_sql(tmp_path, monkeypatch):
    """Principals share the coins and the total, and pay under their own limits.

    A query that takes too long is cut short, and paid for by who asked it.
    """
    setting = served(tmp_path, models=True, bob=1.5 * COST)
    query = "SELECT avg(pay) AS pay FROM people"
    with setting.running(budget="membership<=0.6") as started:
        status, answer = ask(started, "ann", query)
        assert (status, answer["columns"][0], answer["note"]) == (200, "pay", None)
        assert abs(answer["rows"][0][0] - 5024.5) < 40
        assert "all releases of this session" in answer["promise"]
        assert answer["certificate"]["sampling"] == "coins"
        status, answer = ask(started, "bob", query)
        assert answer["note"] is None  # what others asked is not told
        assert answer["left"]["own"]["mu_squared"] == pytest.approx(0.5 * COST, rel=1e-6)
        assert ask(started, "bob", query)[0] == 403
        status, answer = ask(started, "ann", f" {query} ")
        assert (status, answer["note"].startswith("You had this query")) == (200, True)
        by_region = "SELECT region, count(*) AS n FROM people GROUP BY region"
        status, answer = ask(started, "ann", by_region, keys=KEYS)
        assert [row[0] for row in answer["rows"]] == KEYS["region"]
        for wrong in (by_region, "DROP TABLE people", "SELECT max(pay) AS x FROM people"):
            assert ask(started, "ann", wrong)[0] == 400
        slow = ", ".join(f"people {name}" for name in "abcdef")
        words = f"SELECT sum(a.pay + b.pay) AS x FROM {slow} WHERE a.id = b.id AND c.pay > d.pay"
        with monkeypatch.context() as patch:
            limits = replace(setting.limits, seconds=0.6)
            patch.setattr(started.service.desk, "_limits", limits)
            status, answer = ask(started, "ann", words)
        assert status in (400, 422)
        assert started.client().predict(QUESTIONS[:1])[0] == 200
        budget = json.loads(started.client("bob").call("GET", "/budget")[2])
    n_paid = 4 + (status == 422)
    assert setting.reserved() == ["ann", "bob", "ann", "ann", *["ann"] * (status == 422)]
    total = budget["tables"]["left"]["total"]["mu_squared"]
    assert total == pytest.approx(session_cap(0.6) - n_paid * COST, rel=1e-6)
    alone = replace(setting, models=False)
    with alone.running() as started:  # goes on from the file
        again = json.loads(started.client().call("GET", "/budget")[2])
        facts = json.loads(started.client().call("GET", "/certificate")[2])
        assert again["left"]["total"]["mu_squared"] == total
        assert (facts["sql"], "n_columns" in facts) == (True, False)
        assert ask(started, "ann", query)[0] == 200
        assert started.service.desk.session.spent.n_releases == n_paid + 1
        assert started.client().call("POST", "/predict", {"rows": [[0.0] * 4]})[0] == 404


@pytest.mark.claim("Q-4")
def test_a_query_that_fails_on_the_data_is_paid_for(tmp_path, caplog, monkeypatch):
    """Whatever it fails of, one thing is said; what its words alone forbid is free."""
    setting = served(tmp_path, bob=4.5 * COST)

    def left(started, who):
        remaining = json.loads(started.client(who).call("GET", "/budget")[2])["left"]
        return [(remaining[whose] or {}).get("mu_squared") for whose in ("total", "own")]

    total = session_cap(0.6)
    with setting.running(budget="membership<=0.6") as started:
        for words in ("sum(pay", "sum(nobody)", "pay", "sum(random())", "sum('x'::int::date)"):
            assert ask(started, "bob", f"SELECT {words} AS x FROM people")[0] == 400, words
        desk = started.service.desk
        with monkeypatch.context() as patch:  # who waited for others too long is not begun
            patch.setattr(desk, "_limits", replace(desk._limits, seconds=0.4))
            for _ in range(setting.limits.queries):
                desk._readers.submit(time.sleep, 0.3)
            assert ask(started, "bob", "SELECT sum('x'::int) AS x FROM people")[0] == 503
        assert left(started, "bob") == pytest.approx([total, 4.5 * COST])
        failing = (
            "sum(CASE WHEN id = 7 AND pay > 6 THEN 'x'::int ELSE 0 END)",
            "sum(CASE WHEN id = 7 THEN 1e308 * 10 ELSE 0 END)",
            "sum(CASE WHEN id = 7 THEN sqrt(6 - pay) ELSE 0 END)",
            "sum(pay) + (SELECT pay FROM people WHERE pay > 6)",
        )
        n_paid = 0
        with caplog.at_level(logging.DEBUG):
            for words in failing:
                status, answer = ask(started, "bob", f"SELECT {words} AS x FROM people")
                assert status in (400, 422), words
                if status == 422:
                    assert answer == {"error": str(UnansweredError())}
                n_paid += status == 422
                assert left(started, "bob") == pytest.approx(
                    [total - n_paid * COST, (4.5 - n_paid) * COST]
                )
        assert n_paid >= 3
        assert "bob /sql 422" in caplog.text
        assert "Query" not in caplog.text
        for _ in range(4 - n_paid):
            ask(started, "bob", "SELECT sum(sqrt(-1 - pay)) AS x FROM people")
        assert ask(started, "bob", "SELECT sum(sqrt(-1 - pay)) AS x FROM people")[0] == 403
        assert ask(started, "ann", "SELECT avg(pay) AS x FROM people")[0] == 200
        assert left(started, "ann") == [pytest.approx(total - 5 * COST), None]
    assert setting.reserved() == ["bob"] * 4 + ["ann"]
    assert setting.folder.ledger.verify().ok


@pytest.mark.claim("V-1", "Q-4")
def test_analysts_at_once_pay_for_every_answer_and_nobody_passes_the_cap(tmp_path):
    """They are read side by side; charges, clocks and the ledger agree to the last unit."""
    setting = served(tmp_path, per_query="membership<=0.55")
    statuses = []
    with setting.running(budget="membership<=0.6") as started:

        def work(who):
            for _ in range(3):
                query = "SELECT region, sum(pay) AS x FROM people GROUP BY region"
                statuses.append(ask(started, who, query, keys=KEYS)[0])

        threads = [threading.Thread(target=work, args=(who,)) for who in ("ann", "bob") * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clocks = started.service.desk.session.balances
    assert statuses.count(200) == 4  # 4.06 would fit
    assert statuses.count(403) == 8
    assert clocks.busiest <= clocks.cap
    assert len(setting.reserved()) == 4
    entries = setting.folder.ledger.entries(dataset="pay")
    charged = sum(entry.units["mu_squared"] for entry in entries if entry.kind == "reserve")
    assert charged * 1e-12 == pytest.approx(clocks.busiest, rel=1e-9)
    assert charged * 1e-12 >= clocks.busiest


@pytest.mark.claim("Q-2", "Q-3")
def test_attacks_over_http_are_refused_unpaid(tmp_path):
    """Texts that read more than they may: 400, no value, and nothing spent."""
    setting = served(tmp_path)
    with setting.running(budget="membership<=0.6") as started:
        for text in ATTACKS:
            status, answer = ask(started, "ann", text.replace("@", str(tmp_path)))
            assert status == 400, (text, answer)
            assert "5007" not in str(answer)
    assert setting.reserved() == []
