"""``kill -9`` at any moment: what is spent stays spent, and no release is without an entry."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import Belief, session_cap
from pacprivacy.errors import SecretError
from pacprivacy.ledger import Ledger
from pacprivacy.session.state import StateFile

N_KILLS = 8
TOTAL = 10.0
SHARE = 0.02
DATA = np.random.default_rng(0).normal(size=(8, 1))

# One process imports, then forks a session per trial. A session releases until it is killed and
# notes every release that it was handed. It tells through a pipe when it has reserved.
DRIVER = """
import json, os, signal, sys, tempfile, time
from pathlib import Path
import numpy as np
import pacprivacy as pac
import pacprivacy.session.account as account
import pacprivacy._system as files
from pacprivacy.ledger.ledger import Ledger
from pacprivacy.mechanism import Mechanism
from pacprivacy.session import ReleaseCoins, ReleaseSecret
from pacprivacy import statistics

share, total = float(sys.argv[1]), float(sys.argv[2])
DATA = np.random.default_rng(0).normal(size=(8, 1))

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def around(owner, name, before=None, after=None, first=1):
    original, calls = getattr(owner, name), []
    def wrapped(*args, **kwargs):
        calls.append(name)
        if before is not None and len(calls) >= first:
            before()
        result = original(*args, **kwargs)
        if after is not None and len(calls) >= first:
            after()
        return result
    setattr(owner, name, wrapped)

def note(value):
    with (folder / "seen by the user").open("a") as file:
        file.write(f"{float(np.ravel(value)[0])!r}\\n")
        file.flush()
        os.fsync(file.fileno())
    return value

class Mean(Mechanism):
    name = "mean"
    def evaluate(self, parts, rng):
        return parts[0].mean(axis=0)
    def finish(self, value):
        return note(value)

# The state is saved twice: with the name of the reservation to come, and with the new belief.
POINTS = {
    "before the plan is written": (account.StateFile, "save", "before", 1),
    "after the plan is renamed": (Path, "replace", "after", 1),
    "before reserve": (Ledger, "reserve", "before", 1),
    "after reserve": (Ledger, "reserve", "after", 1),
    "before the noise is drawn": (ReleaseSecret, "observe", "before", 1),
    "after the noise is drawn": (ReleaseSecret, "observe", "after", 1),
    "before the state is written": (account.StateFile, "save", "before", 2),
    "before the state is renamed": (Path, "replace", "before", 2),
    "after the state is renamed": (Path, "replace", "after", 2),
    "before commit": (Ledger, "commit", "before", 1),
    "after commit": (Ledger, "commit", "after", 1),
    "in the user's code": (Mean, "finish", "after", 1),
}

def data():
    return DATA

def terms():
    return {"budget": pac.Information(total), "n_subsets": 4}

def release(opened):
    return opened.release(Mean(), pac.Information(share))

exec(sys.argv[3])  # other data and releases

def session(tell, point, plant, n_before):
    around(Ledger, "reserve", after=lambda: os.write(tell, b"."))
    if plant == "skipped ledger":
        from pacprivacy.session.secret import SpendLog
        for name in ("spend", "keep", "commit"):
            setattr(account.Account, name, getattr(SpendLog, name))
        around(account.Account, "commit", after=lambda: os.write(tell, b"."))
    if point:
        owner, name, when, first = POINTS[point]
        a_release = 2 if name in ("save", "replace") else 1
        around(owner, name, **{when: die}, first=first + n_before * a_release)
    with pac.Session(data(), ledger=where, state=folder / "people.session", dataset="people",
                     principal="ann", progress=False, **terms()) as opened:
        while True:
            made = release(opened)
            with (folder / "released").open("a") as file:
                file.write(made.certificate.digest + "\\n")
                file.flush()
                os.fsync(file.fileno())

def trial(place, n_reserved, delay_s, point, plant, n_before):
    global where, folder
    where, folder = place[0], Path(place[1])
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(hear)
            session(tell, point, plant, n_before)
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    os.close(tell)
    if not point:
        heard = b"."
        while heard and n_reserved:
            heard = os.read(hear, 1)
            n_reserved -= 1
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(hear)
    return os.waitstatus_to_exitcode(status)

# Whatever is imported late is imported here, once, and not in every trial.
with tempfile.TemporaryDirectory() as warmed:
    book = Path(warmed) / "warm.db"
    warm = pac.Session(DATA, ledger=book, budget=pac.Information(1), n_subsets=4)
    warm.release(lambda rows: rows.mean(axis=0), pac.Information(share))
    warm.close()

for line in sys.stdin:
    print(trial(**json.loads(line)), flush=True)
"""

# The same with coins: a release of sums, and a key in the place of a candidate.
OF_COINS = """
DATA = np.random.default_rng(0).normal(size=(400, 1))

class Mean(statistics.Mean):
    def finish(self, value):
        return note(value)

for point, (owner, *rest) in list(POINTS.items()):
    if owner is ReleaseSecret:
        POINTS[point] = (ReleaseCoins, *rest)
POINTS["in the user's code"] = (Mean, "finish", "after", 1)

def terms():
    return {"budget": "membership<=0.9", "sample": pac.Coins()}

def release(opened):
    return opened.release(Mean(), "membership<=0.51")
"""


@dataclass(frozen=True)
class Kind:
    """What differs between a pool and coins."""

    other: str
    data: Any
    amount: str  # what is charged
    share: float  # the most that one release may cost
    secret: Callable[[Any], Any]  # of a stored state
    memory: Callable[[Any], bytes]  # what a session knows of earlier releases
    unused: bytes  # the same before the first release


POOL = Kind(
    other="",
    data=DATA,
    amount="mi_nats",
    share=SHARE,
    secret=lambda state: state.secret.to_storage(),
    memory=lambda session: session._secret.belief.log_p.tobytes(),
    unused=Belief.uniform(4).log_p.tobytes(),
)
COINS = Kind(
    other=OF_COINS,
    data=np.random.default_rng(0).normal(size=(400, 1)),
    amount="mu_squared",
    share=session_cap(0.51) + 1e-9,
    secret=lambda state: (state.key, state.coins, state.marks),
    memory=lambda session: session._secret.balances.spent.tobytes(),
    unused=np.zeros(400).tobytes(),
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this system cannot fork")


class Driver:
    """The process that runs sessions and kills them: one for many tests, since it imports much."""

    def __init__(self, *, other: str = "", kind: Kind = POOL) -> None:
        self.kind = kind
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(SHARE), str(TOTAL), other or kind.other],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=60) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()

    def run(self, order: dict[str, Any]) -> int:
        """Run one session; return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module", params=[POOL, COINS], ids=["pool", "coins"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    with Driver(kind=request.param) as started:
        yield started


@pytest.fixture
def crashes(driver: Driver, ledger_where: str, tmp_path: Path) -> "Crashes":
    return Crashes(driver, ledger_where, tmp_path)


class Crashes:
    """Sessions that are killed, and what is left after each."""

    def __init__(self, driver: Driver, where: str, folder: Path) -> None:
        self.where, self.folder, self._driver = where, folder, driver
        self.kind = driver.kind
        self.secret: Any = None

    def kill(self, delay_s: float = 0.0, *, n_reserved: int = 1, **at: Any) -> None:
        """Run one session; kill it some time after a reservation, or at a point of its own.

        That is in the release after ``n_before`` whole ones.
        """
        order = {"point": "", "plant": "", "n_before": 0, **at}
        order |= {"n_reserved": n_reserved, "delay_s": delay_s}
        order["place"] = (self.where, str(self.folder))
        assert self._driver.run(order) == -9, "the session ended before it was killed"

    def released(self) -> list[str]:
        path = self.folder / "released"
        return path.read_text().split() if path.exists() else []

    def check(self) -> Counter[str]:
        """Assert what must hold after every crash; return the kinds of entries."""
        ledger = Ledger(self.where)
        found = ledger.verify()
        assert found.ok, found.problem
        entries = ledger.entries()
        committed = {entry.certificate for entry in entries if entry.kind == "commit"}
        missing = [digest for digest in self.released() if digest not in committed]
        assert not missing, f"{len(missing)} releases without an entry"
        for balance in ledger.balances():
            spent, most = (getattr(x, self.kind.amount) for x in (balance.spent, balance.limits))
            assert 0 <= (spent or 0) <= (most or 0)
        self._check_state(len(committed), {entry.session for entry in entries})
        return Counter(entry.kind for entry in entries)

    def _check_state(self, n_committed: int, sessions: set[str | None]) -> None:
        """The session is whole, knows of every release, and never changes a secret it used."""
        file = StateFile(self.folder / "people.session")
        try:
            found = file.load()
        finally:
            file.close()
        if found is None:
            assert not n_committed
            return
        state, marks = found
        assert counted(state, marks, self.where) >= n_committed
        if marks.session_id in sessions:
            if self.secret is not None:
                assert self.kind.secret(state) == self.secret
            self.secret = self.kind.secret(state)


def counted(state: Any, marks: Any, where: str) -> int:
    """Releases that a session knows of when it goes on; with coins every one that was paid for."""
    last = (Ledger(where).last_reservation(marks.session_id) or ("", False))[0]
    known: int = state.settled(marks.upcoming, paid=last == marks.upcoming).n_releases
    return known


@pytest.mark.slow
@pytest.mark.claim("K-1")
def test_many_kills_between_reserve_and_commit(crashes: Crashes) -> None:
    """A fast machine may commit before any timed kill: every second one is at a named point.

    Points of the state's file are left out, as a session that goes on may write it once more before
    it reserves.
    """
    rng = np.random.default_rng(50)
    points = ("after reserve", "before the noise is drawn", "after the noise is drawn")
    for number, delay_s in enumerate(rng.uniform(0, 0.04, size=N_KILLS)):
        # Every third session has handed out a release before.
        n_before = 1 if number % 3 == 0 else 0
        if number % 2:
            crashes.kill(point=points[number // 2 % 3], n_before=n_before)
        else:
            crashes.kill(delay_s, n_reserved=n_before + 1)
        kinds = crashes.check()
    assert kinds["reserve"] >= N_KILLS
    assert len(crashes.released()) >= N_KILLS // 3
    assert kinds["reserve"] >= kinds["commit"] + N_KILLS // 2


POINTS: dict[str, dict[str, Any]] = {
    "before the plan is written": {"reserve": 0, "commit": 0, "state": 0},
    "after the plan is renamed": {"reserve": 0, "commit": 0, "state": 0},
    "before reserve": {"reserve": 0, "commit": 0, "state": 0},
    "after reserve": {"reserve": 1, "commit": 0, "state": 0},
    "before the noise is drawn": {"reserve": 1, "commit": 0, "state": 0},
    "after the noise is drawn": {"reserve": 1, "commit": 0, "state": 0},
    "before the state is written": {"reserve": 1, "commit": 0, "state": 0},
    "before the state is renamed": {"reserve": 1, "commit": 0, "state": 0},
    "after the state is renamed": {"reserve": 1, "commit": 0, "state": 1},
    "before commit": {"reserve": 1, "commit": 0, "state": 1},
    "after commit": {"reserve": 1, "commit": 1, "state": 1},
    "in the user's code": {"reserve": 1, "commit": 1, "state": 1},
}


@pytest.mark.claim("K-1")
def test_a_kill_at_every_step_leaves_what_it_must(crashes: Crashes, tmp_path: Path) -> None:
    expected: Counter[str] = Counter()
    coins = crashes.kind is COINS
    for point, traces in POINTS.items():
        if coins and "the state is" in point:  # it is written once, before the reservation
            continue
        crashes.kill(point=point)
        found = crashes.check()
        expected.update(traces)
        assert found["reserve"] == expected["reserve"], point
        assert found["commit"] == expected["commit"], point
        file = StateFile(tmp_path / "people.session")
        stored = file.load()
        file.close()
        known = 0 if stored is None else counted(*stored, crashes.where)
        assert known == expected["reserve" if coins else "state"], point
        assert crashes.released() == []
        seen = (tmp_path / "seen by the user").exists()
        assert seen == (point == "in the user's code"), point
    ledger = Ledger(crashes.where)
    kind = crashes.kind
    spent = getattr(ledger.balance("people", "ann")[0].spent, kind.amount) or 0
    reserved = [e.units.get(kind.amount, 0) for e in ledger.entries() if e.kind == "reserve"]
    assert round(1e12 * spent) == sum(reserved) > 0  # in whole numbers of 1e-12
    with open_state(crashes, tmp_path / "people.session") as session:
        assert getattr(session.spent, kind.amount) == spent
        if kind is COINS:
            # Clocks have paid for all that was reserved, and for nothing else.
            clocks = session._secret.balances
            assert clocks.busiest == pytest.approx(spent, abs=1e-10)
            assert (clocks.spent <= clocks.cap).all()


ROUNDS = (
    "in the user's code",
    "before commit",
    "in the user's code",
    "after the noise is drawn",
    "after the state is renamed",
    "before reserve",
    "before the state is renamed",
    "before commit",
    "before commit",
    "after commit",
)


@pytest.mark.claim("K-1")
@pytest.mark.claim("S-1")
def test_after_a_kill_only_the_latest_file_goes_on(crashes: Crashes, tmp_path: Path) -> None:
    """Whoever puts an older file back is refused; the latest knows of all that anyone saw."""
    copies: list[tuple[int, Path]] = []
    beliefs = [crashes.kind.unused]
    coins = crashes.kind is COINS
    rounds = [point for point in ROUNDS if not (coins and "the state is" in point)]
    for number, point in enumerate(rounds):
        crashes.kill(point=point)
        n_reserved = crashes.check()["reserve"]
        copies.append((n_reserved, tmp_path / f"{number}.session"))
        shutil.copy2(tmp_path / "people.session", copies[-1][1])
        for known, copied in copies:
            if known == n_reserved:
                with open_state(crashes, copied) as session:
                    spent = getattr(session.odometer().spent, crashes.kind.amount)
                    assert spent <= crashes.kind.share * n_reserved
                    beliefs.append(crashes.kind.memory(session))
            else:
                with pytest.raises(SecretError, match="must be the latest of its session"):
                    open_state(crashes, copied)
        if point == "in the user's code":
            # The value is in a file of the user's. Each one has moved the belief.
            assert len(set(beliefs)) == len(beliefs)
    assert len((tmp_path / "seen by the user").read_text().split()) == 2


def open_state(crashes: Crashes, state: Path) -> pac.Session:
    names = {"dataset": "people", "principal": "ann"}
    return pac.Session.resume(crashes.kind.data, ledger=crashes.where, state=state, **names)


@pytest.mark.claim("K-1")
def test_a_skipped_ledger_write_is_caught(crashes: Crashes) -> None:
    """A planted bug: sessions release without writing anything down."""
    crashes.kill(delay_s=0.5, plant="skipped ledger")
    assert crashes.released()
    with pytest.raises(AssertionError, match="releases without an entry"):
        crashes.check()
