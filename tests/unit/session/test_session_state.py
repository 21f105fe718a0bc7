"""A session with a ledger: the order of its writes, and how it goes on after a restart."""

import copy
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import Clocks, influence_success, session_cap
from pacprivacy.budget import Spent
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    DataError,
    LedgerError,
    PoolError,
    QueryError,
    SecretError,
    UnansweredError,
)
from pacprivacy.ledger import Ledger
from pacprivacy.mechanism import Mechanism
from pacprivacy.queries import QuerySums
from pacprivacy.session import ReleaseSecret
from pacprivacy.session.account import Account, account_digest
from pacprivacy.session.coin_secret import CoinSecret
from pacprivacy.session.state import Marks, SessionState, StateFile

DATA = np.random.default_rng(3).normal(size=(8, 1))
SOURCE = Path(pac.__file__).parent
MODES = pytest.mark.skipif(os.name == "nt", reason="this system has no file modes")


def mean(rows: Any) -> Any:
    return rows.mean(axis=0)


def begin(path: Path, **options: Any) -> pac.Session:
    options = {"budget": pac.Information(1), "n_subsets": 4, "ledger": path} | options
    return pac.Session(options.pop("data", DATA), **options)


class Failure(Exception):
    """Stands for a crash at one step."""


def fail(*args: Any, **kwargs: Any) -> Any:
    raise Failure


class Finishing(Mechanism):
    """A mean, with code of the user's that sees the released value."""

    name = "finishing"

    def __init__(self, *steps: Callable[[Any], Any]) -> None:
        self.steps = steps

    def evaluate(self, parts: Any, rng: Any) -> Any:
        return mean(parts[0])

    def finish(self, value: Any) -> Any:
        for step in self.steps:
            step(value)
        return value


def state_path(folder: Path) -> Path:
    (found,) = folder.glob("*.session")
    return found


def read_file(folder: Path) -> tuple[SessionState, Marks]:
    file = StateFile(state_path(folder))
    try:
        found = file.load()
    finally:
        file.close()
    assert found is not None
    return found


def read_state(folder: Path) -> SessionState:
    return read_file(folder)[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger and a session of two releases; tests work on copies."""
    folder = tmp_path_factory.mktemp("finished")
    with begin(folder / "study.db") as session:
        session.release(mean, pac.Information(0.125))
        session.release(mean, pac.Information(0.125))
    return folder


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    """The ledger of a session of two releases."""
    return Path(shutil.copytree(finished, tmp_path / "study")) / "study.db"


# --- going on -------------------------------------------------------------------------------


def test_a_session_goes_on_with_the_same_pool_secret_and_belief(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with begin(path) as first:
        first.release(mean, pac.Information(0.125))
        pool, belief, secret = first._secret.pool, first._secret.belief, first._secret.secret
    with begin(path) as second:
        assert second._secret.pool is not None
        assert second._secret.belief is not None
        assert second._secret.secret is not None
        assert pool is not None
        assert belief is not None
        assert secret is not None
        assert second._secret.pool.digest() == pool.digest()
        assert second._secret.belief.log_p.tobytes() == belief.log_p.tobytes()
        assert second._secret.secret.to_storage() == secret.to_storage()
        assert second.odometer().spent.n_releases == 1
        made = second.release(mean, pac.Information(0.125))
    assert made.certificate.composition is not None
    assert made.certificate.composition["release_number"] == 2
    assert second.odometer().spent.mi_nats == pytest.approx(0.25, rel=0.01)


def test_resuming_needs_no_budget_and_keeps_the_total(study: Path) -> None:
    with pac.Session.resume(DATA, ledger=study) as session:
        assert session.odometer().total.mi_nats == 1.0
        with pytest.raises(BudgetExceededError):
            session.release(mean, pac.Information(0.8))
        session.release(mean, pac.Information(0.5))
    assert Ledger(study).verify().ok


def test_there_must_be_something_to_go_on_with(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="budget must be given for a new session"):
        pac.Session.resume(DATA, ledger=tmp_path / "study.db")
    begin(tmp_path / "study.db").close()  # the lock was let go


@pytest.mark.claim("K-1")
def test_the_belief_on_disk_is_that_of_the_session(study: Path) -> None:
    """The stored belief is the update by what was released, not the one before it."""
    with begin(study) as session:
        before = read_belief(study.parent)
        session.release(mean, pac.Information(0.25))
        assert session._secret.belief is not None
        after = read_belief(study.parent)
        assert after.tobytes() == session._secret.belief.log_p.tobytes()
        assert after.tobytes() != before.tobytes()


def read_belief(folder: Path) -> Any:
    return SessionState.from_bytes(state_path(folder).read_bytes())[0].log_p


def test_what_a_crash_left_reserved_counts_for_the_session(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begin(study) as session, monkeypatch.context() as patch:
        patch.setattr(ReleaseSecret, "observe", fail)
        with pytest.raises(Failure):
            session.release(mean, pac.Information(0.5))
    with begin(study) as session:
        assert session.odometer().spent.mi_nats == pytest.approx(0.75, rel=0.01)
        with pytest.raises(BudgetExceededError):
            session.release(mean, pac.Information(0.3))


def test_units_survive(tmp_path: Path) -> None:
    units = np.repeat(np.arange(4), 2)
    path = tmp_path / "study.db"
    with begin(path, units=units) as session:
        session.release(mean, pac.Information(0.1))
    with begin(path, units=units) as session:
        assert session._secret.pool is not None
        assert session._secret.pool.n_units == 4
    with pytest.raises(PoolError, match="units must be those that the session began with"):
        begin(path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"data": DATA + 1}, DataError, "data must be what the session 'default' began with"),
        ({"data": DATA[::-1]}, DataError, "got other values, types or order"),
        ({"budget": pac.Information(2)}, BudgetError, "the total that the session began with"),
        ({"budget": pac.Membership(0.6)}, BudgetError, "the total that the session began with"),
        ({"n_subsets": 8}, PoolError, "the one that the session began with, of 4 subsets"),
        (
            {"n_subsets": None, "sample": pac.Balanced(n_subsets=4).draw(8, rng=1)},
            PoolError,
            "the one that the session began with",
        ),
        ({"simulate": True}, LedgerError, "simulate must be False with a ledger"),
    ],
)
def test_going_on_with_something_else_is_refused(
    study: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        begin(study, **options)
    begin(study).close()  # the lock was let go and nothing was changed


def test_other_names_are_other_sessions(study: Path) -> None:
    with begin(study, dataset="others", data=DATA + 1) as session:
        session.release(mean, pac.Information(0.1))
    assert len(list(study.parent.glob("*.session"))) == 2
    assert len(Ledger(study).balances()) == 2


# --- one at a time --------------------------------------------------------------------------


def test_a_session_is_open_once(study: Path) -> None:
    session = begin(study)
    with pytest.raises(LedgerError, match="must not be open twice"):
        begin(study)
    session.close()
    begin(study).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_session_cannot_release(study: Path) -> None:
    with begin(study) as session:
        child = os.fork()
        if child == 0:
            try:
                session.release(mean, pac.Information(0.1))
            except SecretError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(Ledger(study).entries()) == 5


# --- old copies -----------------------------------------------------------------------------


@pytest.mark.claim("K-1")
def test_an_old_copy_of_the_state_is_refused(study: Path, tmp_path: Path) -> None:
    """It would not know of the last release, so its noise would be too little."""
    old = shutil.copy2(state_path(study.parent), tmp_path / "old")
    with begin(study) as session:
        session.release(mean, pac.Information(0.1))
    shutil.copy2(old, state_path(study.parent))
    with pytest.raises(SecretError, match="must be the latest of its session; got an old copy"):
        begin(study)


@pytest.mark.claim("K-1")
def test_attempts_that_were_not_committed_give_no_slack(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was kept for an attempt must not pass for that of the release after it."""
    copies = []
    for number in range(3):
        with begin(study) as session, monkeypatch.context() as patch:
            patch.setattr(Ledger, "commit", fail)
            with pytest.raises(Failure):
                session.release(mean, pac.Information(0.05))
        copies.append(shutil.copy2(state_path(study.parent), tmp_path / str(number)))
        for older in copies[:-1]:
            with pytest.raises(SecretError, match="must be the latest"):
                begin(study, state=older)
    with begin(study) as session:
        session.release(mean, pac.Information(0.05))
    assert read_state(study.parent).n_releases == 6
    for older in copies:
        with pytest.raises(SecretError, match="must be the latest"):
            begin(study, state=older)
    begin(study).close()


@pytest.mark.claim("K-1")
def test_the_file_of_a_release_to_come_is_old_once_it_is_committed(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on while nobody can have seen the release, and then never again."""
    real, copied = Ledger.commit, tmp_path / "to come"
    taken: list[SessionState] = []

    def save(
        file: StateFile, state: SessionState, marks: Marks, original: Any = StateFile.save
    ) -> None:
        original(file, state, marks)
        if marks.upcoming:
            shutil.copy2(file.path, copied)
            taken.append(state)

    def commit(*args: Any, **options: Any) -> Any:
        begin(study, state=copied).close()
        return real(*args, **options)

    monkeypatch.setattr(StateFile, "save", save)
    monkeypatch.setattr(Ledger, "commit", commit)
    with begin(study) as session:
        session.release(mean, pac.Information(0.05))
    assert [state.n_releases for state in taken] == [2]
    with pytest.raises(SecretError, match="must be the latest"):
        begin(study, state=copied)


def test_a_session_that_reserved_nothing_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its secret was never used, so it may be asked for with another pool and another total."""
    path = tmp_path / "study.db"
    with begin(path) as session, monkeypatch.context() as patch:
        patch.setattr(Ledger, "reserve", fail)
        with pytest.raises(Failure):
            session.release(mean, pac.Information(0.1))
    first = read_file(tmp_path)[1]
    with begin(path, n_subsets=8) as session:
        session.release(mean, pac.Information(0.1))
    assert read_state(tmp_path).pool.n_subsets == 8
    assert read_file(tmp_path)[1].session_id != first.session_id


def test_names_of_reservations_are_used_once(study: Path) -> None:
    ledger = Ledger(study)
    used = ledger.entries()[-1].reservation
    with pytest.raises(LedgerError, match="name must be new"):
        ledger.reserve("default", "default", Spent(mi_nats=0.01), "again", name=used)
    assert ledger.verify().ok


def test_the_last_reservation_of_a_session_is_not_one_that_was_cancelled(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "study.db")
    ledger.create_budget("people", limits=Spent(mi_nats=1))

    def reserve(session: str) -> Any:
        return ledger.reserve("people", "ann", Spent(mi_nats=0.1), "mean", session=session)

    assert ledger.last_reservation("a") is None
    first, second, other = reserve("a"), reserve("a"), reserve("b")
    assert ledger.last_reservation("a") == (second.entry.reservation, False)
    ledger._unsure.append(second)  # as one whose acknowledgement was lost
    ledger.withdraw_unsure()
    assert ledger.last_reservation("a") == (first.entry.reservation, False)
    ledger.commit(first, "0" * 64)
    assert ledger.last_reservation("a") == (first.entry.reservation, True)
    assert ledger.last_reservation("b") == (other.entry.reservation, False)


def test_an_old_copy_of_the_ledger_is_refused(study: Path, tmp_path: Path) -> None:
    old = shutil.copy2(study, tmp_path / "old.db")
    with begin(study) as session:
        session.release(mean, pac.Information(0.1))
    shutil.copy2(old, study)
    with pytest.raises(LedgerError, match="must hold the releases that the session made"):
        begin(study)


def test_a_state_of_another_ledger_is_refused(study: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="state must belong to ledger"):
        begin(tmp_path / "new.db", state=state_path(study.parent))


def test_a_broken_ledger_is_not_spent_from(study: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(study, isolation_level=None)
    connection.execute("UPDATE pac_entries SET mi_nats_e12 = 0 WHERE seq = 2")
    connection.close()
    with pytest.raises(LedgerError, match="must verify; entry 2 is broken"):
        begin(study)


# --- the file -------------------------------------------------------------------------------


@MODES
def test_the_state_is_for_its_owner_alone(study: Path) -> None:
    for path in study.parent.glob("*.session*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [path.name for path in study.parent.glob("*.new")] == []


@MODES
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_state_that_others_can_read_is_refused(study: Path, mode: int) -> None:
    state_path(study.parent).chmod(mode)
    with pytest.raises(SecretError, match=f"must be readable by its owner alone.*{mode:04o}"):
        begin(study)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: b"not a state",
        lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        lambda content: bytes([content[0], content[1] + 1]) + content[2:],  # another version
        lambda content: pickle.dumps({"secret": 1}),
    ],
)
def test_a_damaged_state_is_refused(study: Path, damage: Callable[[bytes], bytes]) -> None:
    path = state_path(study.parent)
    content = damage(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="must be the state of a session; it is damaged"):
        begin(study)
    assert path.read_bytes() == content


def test_pickles_are_not_read(study: Path) -> None:
    path = state_path(study.parent)
    state, marks = read_file(study.parent)
    with_objects = replace(state, log_p=np.array([{"an": "object"}] * 4, dtype=object))
    path.write_bytes(with_objects.to_bytes(marks))
    with pytest.raises(LedgerError, match="it is damaged"):
        begin(study)


@pytest.mark.parametrize("index", [-1, 4, 2**40])
def test_a_secret_outside_the_pool_is_refused(study: Path, index: int) -> None:
    with pytest.raises(SecretError, match="must be of this pool"):
        ReleaseSecret.from_storage(index, 4)


def test_the_size_of_the_file_does_not_depend_on_the_secret(study: Path) -> None:
    state, marks = read_file(study.parent)
    sizes = {
        len(replace(state, secret=ReleaseSecret.from_storage(index, 4)).to_bytes(marks))
        for index in range(4)
    }
    assert len(sizes) == 1


def test_a_stored_secret_is_still_secret(study: Path) -> None:
    state = read_state(study.parent)
    assert repr(state.secret) == "Secret(one of 4)"
    assert repr(state) == "SessionState(curator-only, 2 releases)"
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(SecretError, match="must stay in its process"):
            attempt(state.secret)
    with pytest.raises(SecretError):
        pickle.dumps(state)


def test_only_the_session_state_reads_the_index() -> None:
    """And nothing else in the library ever does."""
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\b(to|from)_(storage|content)\b", path.read_text(encoding="utf-8"))
    }
    assert users == {"session/pool_secret.py", "session/state.py"}


def test_the_ledger_holds_nothing_of_the_secret(study: Path) -> None:
    """Same data, pool and releases, other secret: the same entries."""
    state, marks = read_file(study.parent)
    content = study.read_bytes()
    assert marks.data_digest.encode() not in content
    assert state.pool.digest().encode() not in content
    assert state.pool.bits.tobytes() not in content
    assert str(state.pool.seed).encode() not in content
    known = {"seq", "version", "kind", "time", "dataset", "principal", "session", "reservation"}
    known |= {"mi_nats_e12", "success_e12", "mu_squared_e12", "epsilon_e12", "delta_e18"}
    known |= {"what", "certificate", "previous"}
    assert set(Ledger(study).entries()[-1].covered()) == known


# --- the order of things --------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the steps of a release as they happen."""
    happened: list[str] = []

    def recorded(owner: Any, name: str, step: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            happened.append(step)
            return result

        monkeypatch.setattr(owner, name, wrapped)

    recorded(Ledger, "reserve", "reserved")
    recorded(ReleaseSecret, "observe", "secret used")
    recorded(StateFile, "save", "state stored")
    recorded(Ledger, "commit", "committed")
    return happened


@pytest.mark.claim("K-1")
def test_the_order_of_a_release(tmp_path: Path, steps: list[str]) -> None:
    """What is about to be done, the charge, the noise, the belief, the entry; then the user."""
    mechanism = Finishing(lambda value: steps.append("seen by the user"))
    with begin(tmp_path / "study.db") as session:
        made = session.release(mechanism, pac.Information(0.1))
    wanted = ["state stored", "reserved", "secret used", "state stored", "committed"]
    assert steps == [*wanted, "seen by the user"]
    last = Ledger(tmp_path / "study.db").entries()[-1]
    assert last.certificate == account_digest(made.certificate)


@pytest.mark.parametrize(
    ("owner", "name", "call", "kinds", "n_stored"),
    [
        (StateFile, "save", 1, ["reserve", "commit"], 2),
        (Ledger, "reserve", 1, ["reserve", "commit"], 2),
        (ReleaseSecret, "observe", 1, ["reserve", "commit", "reserve"], 2),
        (StateFile, "save", 2, ["reserve", "commit", "reserve"], 2),
        (Ledger, "commit", 1, ["reserve", "commit", "reserve"], 3),
    ],
)
@pytest.mark.claim("K-1")
def test_a_step_that_fails_hands_out_nothing_and_stays_spent(
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    call: int,
    kinds: list[str],
    n_stored: int,
) -> None:
    original, calls = getattr(owner, name), []

    def fail_at_last(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return fail() if len(calls) == call else original(*args, **kwargs)

    session = begin(study)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail_at_last)
        with pytest.raises(Failure):
            session.release(mean, pac.Information(0.125))
    assert session.releases == ()
    assert [entry.kind for entry in Ledger(study).entries()][3:] == kinds
    session.close()
    assert read_state(study.parent).n_releases == n_stored
    with begin(study) as again:
        spent = (2 + (len(kinds) == 3)) * 0.125
        assert again.odometer().spent.mi_nats == pytest.approx(spent, rel=0.01)
        again.release(mean, pac.Information(0.125))
    assert read_state(study.parent).n_releases == n_stored + 1
    assert Ledger(study).verify().ok


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.claim("K-1")
@pytest.mark.claim("S-1")
def test_the_belief_is_stored_before_the_users_code_sees_the_value(study: Path, where: int) -> None:
    """It fails after it has seen the value: the file must not keep the belief from before."""
    seen: list[Any] = []
    with begin(study) as session:
        before = read_belief(study.parent)
        if where == 0:
            with pytest.raises(Failure):
                session.release(Finishing(seen.append, fail), pac.Information(0.5))
        else:
            target = pac.Accuracy(at_least=0.0, on=(0.0,), metric=lambda *args: fail())
            with pytest.raises(Failure):
                session.refine(Finishing(seen.append), pac.Information(0.5), target, levels=1)
        assert seen
        after = read_belief(study.parent)
        assert session._secret.belief is not None
        assert after.tobytes() == session._secret.belief.log_p.tobytes() != before.tobytes()
        assert session.odometer().spent.n_releases == 3
        session.release(mean, pac.Information(0.01))  # it knows all that was seen, and goes on
    assert [entry.kind for entry in Ledger(study).entries()][5:7] == ["reserve", "commit"]
    with begin(study) as again:
        assert again.odometer().spent.n_releases == 4


def test_what_fails_before_the_spend_costs_nothing(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["pacprivacy.release"]
    before = Ledger(study).entries()
    with begin(study) as session:
        with pytest.raises(pac.errors.MechanismError):
            session.release(fail, pac.Information(0.1))
        monkeypatch.setattr(module, "write_certificate", fail)
        with pytest.raises(Failure):
            session.release(mean, pac.Information(0.1))
        assert session.odometer().spent.mi_nats == pytest.approx(0.25, rel=0.01)
    assert Ledger(study).entries() == before


@pytest.mark.claim("K-1")
def test_a_release_that_was_not_reserved_does_not_leave(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: the session forgets to write its spend down."""
    monkeypatch.setattr(Account, "spend", lambda *args, **kwargs: None)
    with begin(study) as session:
        with pytest.raises(LedgerError, match="must be reserved before it is published"):
            session.release(mean, pac.Information(0.1))
        assert session.releases == ()


def test_a_full_disk_under_the_state(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    from pacprivacy import _system as files

    with begin(study) as session:
        before = read_belief(study.parent)
        monkeypatch.setattr(files.os, "fsync", full)
        with pytest.raises(LedgerError, match=r"No space left on device\. Make room"):
            session.release(mean, pac.Information(0.1))
        assert read_belief(study.parent).tobytes() == before.tobytes()
        assert [path.name for path in study.parent.glob("*.new")] == []


# --- budgets --------------------------------------------------------------------------------


def test_the_total_becomes_the_budget_of_a_new_ledger(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    budget = pac.Information(1) & pac.Membership(0.9)
    with begin(path, budget=budget, dataset="people", principal="ann") as session:
        session.release(mean, pac.Membership(0.7))
    (balance,) = Ledger(path).balance("people", "ann")
    assert (balance.limits.mi_nats, balance.limits.success_increment) == (1.0, 0.4)
    assert 0 < (balance.spent.success_increment or 0) <= 0.2


@pytest.mark.claim("K-2")
def test_the_ledger_limits_a_session_below_its_own_total(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    calls = []

    def counted(rows: Any) -> Any:
        calls.append(1)
        return mean(rows)

    Ledger(path).create_budget("people", limits=Spent(mi_nats=0.1))
    with begin(path, dataset="people", principal="ann") as session:
        with pytest.raises(BudgetExceededError, match=r"at most what is left, 0\.1"):
            session.release(counted, pac.Information(0.25))
        assert calls == []
        session.release(counted, pac.Information(0.1))
        with pytest.raises(BudgetExceededError, match=r"what is left|used up"):
            session.release(counted, pac.Information(0.1))
    assert Ledger(path).verify().ok


@pytest.mark.claim("K-2")
def test_a_session_charges_membership_where_the_ledger_limits_it(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    Ledger(path).create_budget("people", limits=Spent(mi_nats=1, success_increment=0.05))
    with begin(path, dataset="people", principal="ann") as session:
        made = session.release(mean, pac.Information(0.9))
    entry = Ledger(path).entries()[1]
    assert 0 < (entry.amounts.success_increment or 0) <= 0.05
    assert made.certificate.membership_bound <= 0.5501


def test_two_sessions_share_the_budget_of_their_dataset(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    Ledger(path).create_budget("people", limits=Spent(mi_nats=0.5))
    with begin(path, dataset="people", principal="ann") as session:
        session.release(mean, pac.Information(0.4))
    with (
        begin(path, dataset="people", principal="bob") as session,
        pytest.raises(BudgetExceededError),
    ):
        session.release(mean, pac.Information(0.4))


def test_the_whole_budget_can_be_spent(tmp_path: Path) -> None:
    with begin(tmp_path / "study.db", budget=pac.Information(0.3)) as session:
        for _ in range(3):
            session.release(mean, pac.Information(0.1))
    assert Ledger(tmp_path / "study.db").verify().ok


def test_certificates_of_simulations_have_no_digest() -> None:
    with pac.Session(DATA, budget=pac.Information(1), n_subsets=4, rng=0, simulate=True) as session:
        made = session.release(mean, pac.Information(0.1))
    with pytest.raises(LedgerError, match="certificate of a simulation"):
        account_digest(made.certificate)


# --- how it is asked for --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dataset", "principal", "state"])
def test_names_need_a_ledger(name: str) -> None:
    with pytest.raises(LedgerError, match="ledger must be given with dataset"):
        pac.Session(DATA, budget=pac.Information(1), **{name: "x"})


def test_a_ledger_object_can_be_passed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "study.db")
    with begin(tmp_path, ledger=ledger, state=tmp_path / "mine") as session:
        session.release(mean, pac.Information(0.1))
    assert (tmp_path / "mine").exists()
    assert len(ledger.entries()) == 3


def test_a_server_needs_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "study.db")
    monkeypatch.setattr(Ledger, "path", property(lambda self: None))
    with pytest.raises(LedgerError, match="state must be given with a ledger on a server"):
        begin(tmp_path, ledger=ledger)


def test_a_session_on_any_ledger_goes_on(ledger_where: str, tmp_path: Path) -> None:
    state = tmp_path / "people.session"
    for number in (1, 2):
        with begin(tmp_path, ledger=ledger_where, state=state) as session:
            session.release(mean, pac.Information(0.1))
            assert session.odometer().spent.n_releases == number


def test_importing_the_library_does_not_wait_for_sqlalchemy() -> None:
    program = "import sys, pacprivacy; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.claim("K-1")
def test_the_last_of_a_membership_budget_is_not_lost_to_rounding(tmp_path: Path) -> None:
    """A ledger rounds every charge up, so that less is left there than in the balances."""
    data = np.random.default_rng(0).normal(size=(40, 1))
    with pac.Session(
        data, budget=pac.Membership(0.7), ledger=tmp_path / "study.db", n_subsets=16
    ) as session:
        for share in (1 / 3, 1 / 2, None):
            session.release(lambda rows: rows.mean(axis=0), share=share)
        assert session.odometer().spent.success_increment == pytest.approx(0.2, rel=1e-4)
        assert session.odometer().spent.success_increment < 0.2


# --- queries of principals ------------------------------------------------------------------


def asked_tables() -> Any:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("duckdb")
    return pac.Tables({"people": pd.DataFrame({"id": range(400)})}, unit="people.id")


GOOD, BAD = (f"SELECT sum({x}) AS s FROM people" for x in ("id", "('x' || id)::int"))
PRICE = "membership<=0.51"


@pytest.mark.claim("Q-4", "K-1")
def test_a_query_is_paid_for_before_its_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop while the engine reads leaves a session that has paid, and goes on."""
    tables, cost = asked_tables(), session_cap(0.51)
    real, folders = QuerySums.prepare, [tmp_path / name for name in ("now", "one", "two")]
    stops = iter(folders[1:])

    def prepare(self: Any, data: Any) -> Any:
        if not self.plan:
            shutil.copytree(folders[0], next(stops))  # what a stop at this moment would leave
        return real(self, data)

    folders[0].mkdir()
    names = {"ledger": folders[0] / "study.db", "budget": "membership<=0.6"}
    with pac.Session(tables, **names) as session, monkeypatch.context() as patch:
        session.sql(GOOD, PRICE, principal="ann")
        patch.setattr(QuerySums, "prepare", prepare)
        session.sql(GOOD, PRICE, principal="ann")
        with pytest.raises(UnansweredError) as refused:
            session.sql(BAD, PRICE, principal="ann")
        assert isinstance(refused.value.__cause__, QueryError)
        assert session.odometer().spent.n_releases == 3
    for folder, n_paid in zip(folders, (3, 2, 3), strict=True):
        with pac.Session.resume(tables, ledger=folder / "study.db") as again:
            seen, clocks = again.odometer().spent, again.balances
            assert seen.n_releases == n_paid
            assert seen.mu_squared == pytest.approx(n_paid * cost, rel=1e-6)
            assert isinstance(clocks, Clocks)
            assert clocks.spent.min() == clocks.busiest == seen.mu_squared  # everybody paid
            if folder.name == "two":
                with pytest.raises(QueryError):  # the curator reads the words, and pays nothing
                    again.sql(BAD, PRICE)
                assert again.odometer().spent == seen
                again.sql(GOOD, PRICE, principal="ann")
        assert Ledger(folder / "study.db").verify().ok


@pytest.mark.claim("Q-4")
def test_what_words_refuse_is_free_and_principals_need_coins(tmp_path: Path) -> None:
    tables, path = asked_tables(), tmp_path / "study.db"
    with pac.Session(tables, budget="membership<=0.6", ledger=path) as session:
        for words in ("SELECT max(id) AS m FROM people", "SELECT id FROM people", "nonsense"):
            with pytest.raises(QueryError):
                session.sql(words, PRICE, principal="ann")
        with pytest.raises(LedgerError, match="principal must be a name"):
            session.sql(GOOD, PRICE, principal="")
        assert session.spent.n_releases == 0
    pool = {"budget": "mi<=1", "n_subsets": 8, "ledger": tmp_path / "pool.db"}
    with (
        pac.Session(tables, **pool) as session,
        pytest.raises(BudgetError, match="must be coins for queries of principals"),
    ):
        session.sql(GOOD, "mi<=1/8", principal="ann")
    assert [entry.kind for entry in Ledger(path).entries()].count("reserve") == 0


@pytest.mark.claim("Q-4", "C-8")
def test_units_move_an_answer_by_no_more_than_they_paid_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a query plans while another is paid; a query planned at twice the price is not."""
    tables, path = asked_tables(), tmp_path / "study.db"

    def overspent() -> bool:
        with pac.Session(tables, budget="membership<=0.6", ledger=path) as session:
            bundles = [session.sql(GOOD, PRICE, principal="ann").bundle for _ in range(2)]
            clocks: Any = session.balances
        return bool((sum(np.square(b.charges) for b in bundles) > clocks.spent).any())

    assert not overspent()
    real = CoinSecret.plan_paid

    def doubled(self: Any, request: Any, price: Any) -> Any:
        terms = price.terms
        wider = replace(
            terms,
            parameter=2 * terms.parameter,
            allowed=2 * terms.allowed,
            budget=pac.Membership(influence_success(2 * terms.parameter)),
        )
        return real(self, request, replace(price, terms=wider))

    monkeypatch.setattr(CoinSecret, "plan_paid", doubled)
    path = tmp_path / "planted.db"
    assert overspent()


def test_a_query_of_the_curators_is_not_a_principals(tmp_path: Path) -> None:
    """In another thread, after a principal's: its words are the curator's, and cost nothing."""
    tables, path = asked_tables(), tmp_path / "study.db"
    errors: list[Exception] = []

    def ask() -> None:
        try:
            session.sql(BAD, PRICE)
        except Exception as error:
            errors.append(error)

    curator = threading.Thread(target=ask)
    with pac.Session(tables, budget="membership<=0.6", ledger=path) as session:
        session.sql(GOOD, PRICE, principal="ann")
        before = session.spent
        curator.start()
        curator.join()
        assert isinstance(errors[0], QueryError)  # and not the words for a principal
        assert session.spent == before
