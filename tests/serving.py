"""A service under way: a server as users start it, clients, bad requests, and who attacks it.

For the tests, in small, and for ``benchmarks/serve/load.py``, in full.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from sklearn.tree import DecisionTreeClassifier

import pacprivacy as pac
from pacprivacy._random import SystemSource
from pacprivacy.adversary import session_cap
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetExceededError
from pacprivacy.ledger import Ledger
from pacprivacy.release import AnswerBundle
from pacprivacy.serve import Limits, Service, Tokens, run_service
from pacprivacy.session import Responder, leases

N_FEATURES = 4


def people(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Records of two overlapping classes, so that models disagree on many questions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_FEATURES))
    return X, (X[:, 0] + rng.normal(size=n) > 0).astype(int)


def fitted(
    *, budget: Any = "mi<=0.05", n_subsets: int = 16, query: float = 1e-4, n: int = 60
) -> Any:
    """A predictor that has just been fitted."""
    X, y = people(n)
    model = pac.PrivatePredictor(
        DecisionTreeClassifier(max_depth=3, random_state=0),
        n_subsets=n_subsets,
        query_budget=pac.Information(query),
        budget=budget,
        random_state=0,
    )
    return model.fit(X, y)


@dataclass(frozen=True)
class Folder:
    """A predictor that was saved: its files and the tokens of its principals."""

    path: Path
    tokens: dict[str, str]

    @classmethod
    def make(
        cls, path: Path, principals: tuple[str, ...] = ("ann", "bob"), **options: Any
    ) -> Folder:
        fitted(**options).save(path / "churn.pac", ledger=path / "study.db")
        tokens = Tokens(path / "tokens.json")
        return cls(path, {name: tokens.grant(name) for name in principals})

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.path / "study.db", create=False)

    @property
    def state(self) -> Path:
        return next(self.path.glob("*.answers"))

    def load(self) -> Any:
        return pac.PrivatePredictor.load(self.path / "churn.pac", ledger=self.path / "study.db")

    def stored(self) -> Any:
        """What the state holds, the secret included."""
        return leases._parse(self.state.read_bytes())

    def serve(self, *options: str) -> Server:
        return Server(self, *options)


class Server:
    """``pac serve`` in a process of its own."""

    def __init__(self, folder: Folder, *options: str) -> None:
        models = [] if "--tables" in options else ["churn.pac"]
        words = ["serve", *models, "--ledger", "study.db", "--port", "0", "--json", *options]
        self._log = (folder.path / "log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pacprivacy", *words],
            cwd=folder.path,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 120)
        said = b""
        while ready and not said.endswith(b"}\n"):
            line = self.process.stdout.readline()
            assert line, (folder.path / "log").read_text()
            said += line
        self.port = int(json.loads(said)["url"].rpartition(":")[2])

    def kill(self) -> None:
        """As a loss of power would."""
        self.process.kill()
        self.process.wait()
        self._close()

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(60)
        self._close()
        return code

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


class Running:
    """A service on a thread of this process."""

    def __init__(
        self,
        folder: Folder,
        limits: Limits | None = None,
        session: Any = None,
        *,
        models: bool = True,
    ) -> None:
        self.folder, self.model = folder, folder.load() if models else None
        tokens = Tokens(folder.path / "tokens.json")
        self.service = Service(tokens, self.model, session=session, limits=limits)
        told = threading.Event()

        def ready(url: str) -> None:
            self.port = int(url.rpartition(":")[2])
            told.set()

        options = {"port": 0, "ready": ready}
        self.thread = threading.Thread(target=run_service, args=(self.service,), kwargs=options)
        self.thread.start()
        assert told.wait(60)

    def client(self, who: str = "ann") -> Client:
        return Client(self.port, self.folder.tokens.get(who))

    def stop(self) -> None:
        self.service.stop()
        self.thread.join(60)


class Client:
    """One connection that is kept."""

    def __init__(self, port: int, token: str | None, timeout: float = 60) -> None:
        self._token, self._timeout = token, timeout
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def call(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        sent = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
            sent.setdefault("Content-Type", "application/json")
        self.connection.request(method, path, body, sent)
        answer = self.connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    def predict(self, rows: Any) -> tuple[int, Any]:
        status, _, body = self.call("POST", "/predict", {"rows": np.asarray(rows).tolist()})
        return status, json.loads(body)

    def close(self) -> None:
        self.connection.close()

    def __del__(self) -> None:
        self.close()


def malformed(
    n: int,
    token: str,
    seed: int = 0,
    *,
    path: str = "/predict",
    good: bytes = b'{"rows": [[1, 2, 3, 4]]}',
) -> Iterator[bytes]:
    """Yield requests that are wrong in one way or another, as raw bytes."""
    rng, right = np.random.default_rng(seed), path
    bodies = (
        *(b"", b"{}", b"[]", b"null", b"rows", b'{"rows": []}', b'{"rows": [[]]}', b"\xff\xfe\x00"),
        *(b'{"rows": [[1,2,3]]}', b'{"rows": [[1,2,3,4,5]]}', b'{"rows": [[1,2,3,NaN]]}'),
        *(b'{"rows": [[1,2,3,1e999]]}', b'{"rows": [["a",2,3,4]]}', b'{"rows": [[null,2,3,4]]}'),
        *(b'{"rows": [[true,2,3,4]]}', b'{"rows": [[1,2,3,4]], "secret": 1}', b'{"rows": "x"}'),
        *(b'{"rows": [[1,2,3,4]', b"[" * 20000, b'{"a":' * 5000, b'{"rows": {"0": [1,2,3,4]}}'),
        *(b'{"rows": [[1,2,3,4]]}garbage', b'{"rows": [[1,2],[1,2,3,4]]}', b"\x00" * 100),
        b'{"rows": [' + b",".join([b"[1,2,3,4]"] * 1001) + b"]}",
    )
    paths = (
        "/predict",
        "/nothing",
        "/predict/../secret",
        "/models",
        "/%00",
        "/budget?token=x",
        "/..",
    )
    tokens = (
        "",
        "Bearer",
        "Bearer x",
        f"Basic {token}",
        f"Bearer {token}x",
        "Bearer " + "y" * 9000,
    )
    for _ in range(n):
        way = rng.integers(8)
        who, path, body, kind = f"Bearer {token}", right, good, "application/json"
        method, more = "POST", ""
        if way <= 2:
            body = bodies[rng.integers(len(bodies))]
        elif way == 3:
            who = tokens[rng.integers(len(tokens))]
        elif way == 4:
            kind = ("text/plain", "", "application/xml", "multipart/form-data")[rng.integers(4)]
        elif way == 5:
            method = ("GET", "PUT", "DELETE", "PATCH", "BREW", "OPTIONS")[rng.integers(6)]
        elif way == 6:
            path = paths[rng.integers(1, len(paths))]
        else:
            broken = (
                rng.bytes(200) + b"\r\n\r\n",
                b"POST /predict HTTP/9.9\r\n\r\n",
                b"POST /predict\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
                b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
                b"POST /predict HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                b"POST /predict HTTP/1.1\r\nHost: a\r\nX: " + b"z" * 70000 + b"\r\n\r\n",
                b"POST /predict HTTP/1.1\r\nHost a\r\n\r\n",
            )
            yield broken[rng.integers(len(broken))]
            continue
        if rng.random() < 0.2:
            more = "X-Odd: " + "z" * int(rng.integers(1, 3000)) + "\r\n"
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {who}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}"
            "Connection: close\r\n\r\n"
        )
        yield head.encode() + body


def send_raw(port: int, content: bytes) -> bytes:
    """Return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sent:
        found = b""
        try:
            sent.sendall(content)
            sent.shutdown(socket.SHUT_WR)
            while chunk := sent.recv(1 << 16):
                found += chunk
        except (ConnectionResetError, BrokenPipeError):  # it was told before all was sent
            pass
        return found


def posterior(votes: Any, values: Any, noise_std: Any, log_p: Any) -> Any:
    """The belief of whoever saw noisy two-class votes: Bayes, and nothing of the library's.

    ``votes`` (m, q) are what each candidate would say; what is exact excludes the others.
    """
    log_p = np.array(log_p, dtype=np.float64)
    for vote, value, std in zip(votes.T, values[:, 1], noise_std, strict=True):
        if std > 0:
            log_p -= 0.5 * np.square((value - vote) / std)
        else:
            log_p[vote != value] = -np.inf
        log_p -= log_p.max() + np.log(np.exp(log_p - log_p.max()).sum())
    return log_p


def wait_for(port: int, seconds: float = 60) -> None:
    """Wait until the service answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            client = Client(port, None, timeout=5)
            if client.call("GET", "/health")[0] == 200:
                client.close()
                return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError


# --- stopped and started again, under attack -----------------------------------------------------


class Stopped(BaseException):
    """A stop at some point of a flush, which nothing catches."""


@dataclass(frozen=True)
class Attack:
    """Services of one pool, each with a secret of its own, and whoever sees all their answers.

    Questions are as telling as can be: all candidates answer with the membership of one unit.
    """

    advantage: float = 0.2
    query_nats: float = 2e-4
    n_subsets: int = 16
    n_units: int = 12
    batch: int = 10

    @property
    def pool(self) -> Any:
        return pac.Balanced(n_subsets=self.n_subsets).draw(self.n_units, rng=0)

    def questions(self, n: int) -> Any:
        """Votes of all candidates: about three units, in turn."""
        return self.pool.masks()[:, np.arange(n) % 3].astype(np.int64)

    def run(self, place: Path, n_answers: int, n_stops: int, *, seed: int, forget: bool) -> Any:
        """Return each unit's ``|a|`` for who saw all answers, whether its guess is right, and more.

        The service is stopped ``n_stops`` times, before its file is written, before the ledger
        knows, or after; and it goes on, or with ``forget`` it begins anew with the same secret.
        """
        place.mkdir()
        rng, pool, votes = np.random.default_rng(seed), self.pool, self.questions(n_answers)
        service = Answering(self, place)
        service.begin()
        secret, start = service.secret, 0
        log_p, n_seen = np.full(self.n_subsets, -np.log(self.n_subsets)), 0
        batches = range(0, n_answers, self.batch)
        stops = set(rng.choice(len(batches), min(n_stops, len(batches)), replace=False).tolist())
        for number, start in enumerate(batches):
            asked = votes[:, start : start + self.batch]
            where = str(rng.choice(["write", "mark", "after"])) if number in stops else None
            reply = service.answer(asked, stop=where)
            if reply is not None:
                log_p = posterior(asked, reply.values, reply.noise_std, log_p)
                n_seen += asked.shape[1]
            if where is not None:
                service.start_again(forget=forget)
        service.close()
        assert service.secret == secret
        signs = 2.0 * pool.masks() - 1
        tilt = np.exp(log_p) @ signs
        right = (tilt > 0) == pool.masks()[secret]
        return np.abs(tilt), right, n_seen, service.spent_in_ledger

    def run_killed(self, place: Path, n_answers: int, n_kills: int, *, seed: int) -> Any:
        """As :meth:`run`; the service is a process of its own, and is stopped by ``kill -9``.

        Whoever asks begins again with what was not answered, and sees what left before the kill.
        """
        place.mkdir()
        rng, pool, votes = np.random.default_rng(seed), self.pool, self.questions(n_answers)
        service = Answering(self, place)
        service.begin()
        service.close()
        log_p, start, n_seen = np.full(self.n_subsets, -np.log(self.n_subsets)), 0, 0
        for kills_left in range(n_kills, -1, -1):
            left = (n_answers - start) // self.batch
            most = 2 * left // (kills_left + 1)
            enough = int(rng.integers(most + 1)) if kills_left else left
            after = rng.uniform(0, 0.02)
            for reply in service.answer_until_killed(votes[:, start:], enough, after):
                asked = votes[:, start : start + self.batch]
                if reply is not None:
                    log_p = posterior(asked, np.array(reply[0]), np.array(reply[1]), log_p)
                    n_seen += self.batch
                start += self.batch
        assert start >= n_answers  # everything was answered or refused
        tilt = np.exp(log_p) @ (2.0 * pool.masks() - 1)
        right = (tilt > 0) == pool.masks()[service.secret]
        return np.abs(tilt), right, n_seen, service.spent_in_ledger

    def terms(self, pool: Any) -> AnswerBundle:
        return AnswerBundle(
            pool=pool,
            budget=pac.Membership(0.5 + 0.5 * self.advantage),
            query_budget=pac.Information(self.query_nats),
            mechanism="votes",
            output="votes",
            n_classes=2,
            simulation=False,
        )


class Answering:
    """A responder with its leases, without models; it can be stopped."""

    NAME = "a" * 64

    def __init__(self, attack: Attack, place: Path) -> None:
        self._attack, self._place = attack, place
        self._forgotten: Any = None

    def _leases(self) -> leases.Leases:
        place = self._place / "study.db"
        return leases.Leases(place, self.NAME, dataset="votes")

    def _responder(self, book: Any, state: Any) -> Responder:
        return Responder(
            self._attack.pool,
            query_nats=self._attack.query_nats,
            total_nats=float("inf"),
            advantage=self._attack.advantage,
            source=SystemSource(),
            book=book,
            state=state,
        )

    def begin(self) -> None:
        book = self._leases()
        book.begin(Spent(success_level=0.5 + 0.5 * self._attack.advantage), Spent())
        first = self._responder(None, None)
        self._forgotten = first.state()
        first.hand_over(book)
        self._open()

    def _open(self) -> None:
        self._book = self._leases()
        self.responder = self._responder(self._book, self._book.resume(self._attack.n_subsets))

    @property
    def secret(self) -> int:
        return int(self._forgotten.secret.to_storage())

    @property
    def spent_in_ledger(self) -> float:
        found = Ledger(self._place / "study.db").tally(self.NAME).success_increment
        return float(found or 0.0)

    def answer(self, votes: Any, *, stop: str | None) -> Any:
        """Return the reply, or None if it was refused or did not leave before the stop."""

        def fail(*_: Any) -> None:
            raise Stopped

        if stop == "write":
            self._book._file.write = fail  # type: ignore[method-assign]
        if stop == "mark":
            self._book.ledger.move_mark = fail  # type: ignore[method-assign]
        try:
            reply = self.responder.reply_votes(votes, n_classes=2)
            self.responder.flush()
        except (BudgetExceededError, Stopped):
            return None
        return reply

    def answer_until_killed(self, votes: Any, enough: int, more_s: float) -> list[Any]:
        """Return what a new process answers, in order, before it is killed: None if refused.

        It is killed ``more_s`` seconds after it has answered ``enough``.
        """
        come, go = os.pipe()
        child = os.fork()
        if not child:
            try:
                self._open()
                for start in range(0, votes.shape[1], self._attack.batch):
                    reply = self.answer(votes[:, start : start + self._attack.batch], stop=None)
                    told = reply and (reply.values.tolist(), reply.noise_std.tolist())
                    os.write(go, msgspec.json.encode(told) + b"\n")
            finally:
                os._exit(0)
        os.close(go)
        with os.fdopen(come, "rb") as file:
            lines = [line for _, line in zip(range(enough), file, strict=False)]
            time.sleep(more_s)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            lines += file.readlines()
        return [msgspec.json.decode(line) for line in lines]

    def start_again(self, *, forget: bool) -> None:
        self._book.close()  # as the system does for a process that is gone
        if forget:
            self.responder = self._responder(None, self._forgotten)
        else:
            self._open()

    def close(self) -> None:
        self._book.close()


# --- tables behind HTTP ---

SHOP_TOTAL = 0.9
SENTINEL = 7_777_777.25  # somebody's value, which no answer may quote
SHOP_REGIONS = ["east", "north", "south", "west"]
SHOP_QUERY = "SELECT region, count(*) AS n, sum(cost) AS total FROM visits GROUP BY region"


def make_shop(place: Path, n_rows: int, n_people: int) -> Folder:
    """Write a shop of visits, with tokens for two principals and a ledger."""
    import duckdb

    with duckdb.connect(str(place / "shop.duckdb")) as shop:
        shop.execute(f"CREATE TABLE people AS SELECT range AS id FROM range({n_people})")
        shop.execute(
            "CREATE TABLE visits AS SELECT (hash(range) % ?)::BIGINT AS person, "
            "['east','north','south','west'][1 + (hash(range + 7) % 4)::INT] AS region, "
            "20 + (hash(range + 3) % 1000) / 20.0 AS cost FROM range(?)",
            [n_people, n_rows],
        )
        shop.execute("UPDATE visits SET cost = ? WHERE rowid = 11", [SENTINEL])
    tokens = Tokens(place / "tokens.json")
    Ledger(place / "study.db").create_budget(
        "tables", limits=Spent(mu_squared=session_cap(SHOP_TOTAL))
    )
    return Folder(place, {name: tokens.grant(name) for name in ("ann", "bob")})


def serve_shop(folder: Folder, n_queries: int) -> Server:
    """Start a server whose total is enough for so many queries."""
    price = pac.Membership(0.5 + 0.5 * (2 * SHOP_TOTAL - 1) / n_queries**0.5 / 2)
    words = ("--tables", "shop.duckdb", "--unit", "people.id", "--via", "visits=person")
    budget = (
        "--total",
        f"membership<={SHOP_TOTAL}",
        "--per-query",
        f"membership<={price.success:.9f}",
    )
    return Server(folder, *words, *budget, "--rate", "1000000", "--quiet")


def ask_shop(client: Client) -> tuple[int, float | None]:
    """Return a status, and what the answer says is left of the total."""
    body = {"query": SHOP_QUERY, "keys": {"region": SHOP_REGIONS}}
    status, _, answer = client.call("POST", "/sql", body)
    assert str(SENTINEL)[:7].encode() not in answer
    found = json.loads(answer)
    return status, found["left"]["total"]["mu_squared"] if status == 200 else None


def ask_from_all(
    folder: Folder, port: int, n: int, connections: int = 8
) -> tuple[list[int], list[float]]:
    """Ask from all connections until each has asked ``n`` times, or the server is gone."""
    statuses: list[int] = []
    seconds: list[float] = []

    def work(number: int) -> None:
        client = Client(port, folder.tokens[("ann", "bob")[number % 2]])
        try:
            for _ in range(n):
                began = time.perf_counter()
                statuses.append(ask_shop(client)[0])
                seconds.append(time.perf_counter() - began)
        except (OSError, ValueError, http.client.HTTPException):
            return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses, seconds


def shop_books(folder: Folder, n_answered: int) -> dict[str, Any]:
    """Compare ledger and clocks with what clients received."""
    entries = folder.ledger.entries(dataset="tables")
    reserved = [e.units["mu_squared"] for e in entries if e.kind == "reserve"]
    tables = pac.Tables(folder.path / "shop.duckdb", unit="people.id", via={"visits": "person"})
    with pac.Session.resume(tables, ledger=folder.path / "study.db", dataset="tables") as session:
        clocks: Any = session.balances
        return {
            "answered": n_answered,
            "reserved": len(reserved),
            "committed": sum(e.kind == "commit" for e in entries),
            "answers_lost": max(0, n_answered - len(reserved)),
            "ledger_intact": folder.ledger.verify().ok,
            "busiest_clock_over_ledger": round(clocks.busiest / (1e-12 * sum(reserved)), 12),
            "over_the_cap": int((clocks.spent > clocks.cap).sum()),
            "n_releases": session.spent.n_releases,
        }
