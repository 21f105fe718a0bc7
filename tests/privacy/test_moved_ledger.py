"""A ledger, or a session's file, that is not what an open session left: nothing leaves."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

import pacprivacy as pac
from pacprivacy.adversary import session_cap
from pacprivacy.budget import Spent
from pacprivacy.errors import LedgerError, SecretError
from pacprivacy.ledger import Ledger, ledger as ledgers
from pacprivacy.ledger.database import ENTRIES, LEDGER, MARKS
from pacprivacy.session.state import Marks, SessionState, StateFile
from tests.serving import Folder, Running, fitted, people

DATA = np.random.default_rng(3).normal(size=(8, 1))
SHARE = pac.Information(0.01)
QUESTIONS = people(400, seed=1)[0]


def mean(rows: Any) -> Any:
    return rows.mean(axis=0)


def begin(where: str, state: Path, **options: Any) -> pac.Session:
    settings: dict[str, Any] = {"budget": pac.Information(1), "n_subsets": 4}
    return pac.Session(DATA, ledger=where, state=state, **(settings | options))


def entries(where: str) -> list[str]:
    return [entry.hash for entry in Ledger(where, create=False).entries()]


class Backup:
    """A ledger as it was once, to be put in the place of the one that went on."""

    def __init__(self, where: str) -> None:
        self._engine = Ledger(where, create=False)._database._engine
        with self._engine.connect().execution_options(pac_begin="BEGIN") as connection:
            self._rows = {table: _rows(connection, table) for table in (LEDGER, ENTRIES, MARKS)}

    def restore(self) -> None:
        with self._engine.connect().execution_options(pac_begin="BEGIN") as connection:
            for table, rows in self._rows.items():
                connection.execute(table.delete())
                if rows:
                    connection.execute(table.insert(), rows)
            connection.commit()


def _rows(connection: sa.Connection, table: sa.Table) -> list[dict[str, Any]]:
    table.create(connection, checkfirst=True)
    return [dict(row._mapping) for row in connection.execute(sa.select(table))]


@pytest.mark.claim("K-4")
@pytest.mark.parametrize("budget", ["mi<=1", "membership<=0.6"])
def test_of_copies_of_a_state_one_releases(ledger_where: str, tmp_path: Path, budget: str) -> None:
    state = tmp_path / "first"
    with begin(ledger_where, state, budget=budget) as session:
        session.release(mean, share=0.2)
    copies = [shutil.copy2(state, tmp_path / f"copy {number}") for number in range(4)]
    sessions = [begin(ledger_where, Path(copy), budget=None) for copy in copies]
    sessions[2].release(mean, share=0.2)
    before = entries(ledger_where)
    for number in (0, 1, 3):
        kept = Path(copies[number]).read_bytes()
        with pytest.raises(SecretError, match="does not know of the last release"):
            sessions[number].release(mean, share=0.2)
        assert Path(copies[number]).read_bytes() == kept
    assert entries(ledger_where) == before
    sessions[2].release(mean, share=0.2)
    for session in sessions:
        session.close()


@pytest.mark.claim("K-4")
def test_two_that_reserve_at_once_are_told_apart_in_the_transaction(
    ledger_where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked before either reserves."""
    state = tmp_path / "first"
    with begin(ledger_where, state) as session:
        session.release(mean, SHARE)
    copy = shutil.copy2(state, tmp_path / "copy")
    first, second = begin(ledger_where, state, budget=None), begin(ledger_where, copy, budget=None)
    real: Callable[..., Any] = Ledger.reserve

    def reserve(ledger: Ledger, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(Ledger, "reserve", real)
        second.release(mean, SHARE)
        return real(ledger, *args, **options)

    monkeypatch.setattr(Ledger, "reserve", reserve)
    with pytest.raises(SecretError, match="another process has gone on with the same secret"):
        first.release(mean, SHARE)
    assert sum(e.kind == "reserve" for e in Ledger(ledger_where).entries()) == 2
    first.close()
    second.close()


def _copied_before_commit(
    where: str, state: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, inside: Callable[[], None]
) -> pac.Session:
    """Release, with a copy of the file of the release to come, and something before the commit."""
    save, commit = StateFile.save, Ledger.commit

    def saved(file: StateFile, stored: SessionState, marks: Marks) -> None:
        save(file, stored, marks)
        if marks.upcoming and not copy.exists():
            shutil.copy2(file.path, copy)

    def committed(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        inside()
        return commit(*args, **options)

    session = begin(where, state)
    session.release(mean, SHARE)
    monkeypatch.setattr(StateFile, "save", saved)
    monkeypatch.setattr(Ledger, "commit", committed)
    return session


@pytest.mark.claim("K-4")
def test_a_copy_opened_before_the_commit_is_refused_after_it(
    ledger_where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its belief was right when it was opened, and is not any more."""
    copy, others = tmp_path / "copy", []
    session = _copied_before_commit(
        ledger_where,
        tmp_path / "state",
        copy,
        monkeypatch,
        lambda: others.append(begin(ledger_where, copy, budget=None)),
    )
    session.release(mean, SHARE)
    before = entries(ledger_where)
    with pytest.raises(SecretError, match="does not know of the last release"):
        others[0].release(mean, SHARE)
    assert entries(ledger_where) == before
    session.close()
    others[0].close()


@pytest.mark.claim("K-4")
def test_a_release_that_a_copy_went_past_does_not_leave(
    ledger_where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"

    def go_past() -> None:
        with begin(ledger_where, copy, budget=None) as other:
            other.release(mean, SHARE)

    session = _copied_before_commit(ledger_where, tmp_path / "state", copy, monkeypatch, go_past)
    with pytest.raises(SecretError, match="another process has gone on"):
        session.release(mean, SHARE)
    assert sum(e.kind == "commit" for e in Ledger(ledger_where).entries()) == 2
    session.close()


@pytest.mark.claim("K-4")
def test_an_old_ledger_restored_while_a_session_is_open(ledger_where: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with begin(ledger_where, state) as session:
        session.release(mean, SHARE)
        old = Backup(ledger_where)
        session.release(mean, SHARE)
        latest = Backup(ledger_where)
        old.restore()
        before = entries(ledger_where)
        with pytest.raises(LedgerError, match="must hold every entry that it held before"):
            session.release(mean, SHARE)
        assert entries(ledger_where) == before
        latest.restore()
        session.release(mean, SHARE)
    old.restore()
    with pytest.raises(LedgerError, match="it is an old copy"):
        begin(ledger_where, state)


@pytest.mark.claim("K-4")
@pytest.mark.parametrize("put", [os.replace, shutil.copyfile], ids=["replace", "copy over"])
def test_an_old_file_put_in_the_place_of_the_ledger(
    tmp_path: Path, put: Callable[[Path, Path], Any]
) -> None:
    place, old = tmp_path / "study.db", tmp_path / "old.db"
    with begin(str(place), tmp_path / "state") as session:
        session.release(mean, SHARE)
        shutil.copy2(place, old)
        session.release(mean, SHARE)
        latest = shutil.copy2(place, tmp_path / "latest.db")
        put(old, place)
        with pytest.raises(LedgerError, match="must hold every entry that it held before"):
            session.release(mean, SHARE)
        assert len(entries(str(place))) == 3
        shutil.copyfile(latest, place)
        session.release(mean, SHARE)
    spent = Ledger(place).balance("default", "default")[0].spent.mi_nats
    assert spent == pytest.approx(session.odometer().spent.mi_nats, abs=3e-12)  # rounded up thrice
    assert sum(entry.kind == "commit" for entry in Ledger(place).entries()) == 3


@pytest.mark.claim("K-4")
def test_an_old_file_put_there_while_an_entry_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is in the file that was taken away."""
    place, old = tmp_path / "study.db", tmp_path / "old.db"
    with begin(str(place), tmp_path / "state") as session:
        session.release(mean, SHARE)
        shutil.copy2(place, old)
        real = ledgers.check_ledger_spend

        def check(*args: Any) -> None:
            real(*args)
            os.replace(old, place)

        monkeypatch.setattr(ledgers, "check_ledger_spend", check)
        with pytest.raises(LedgerError, match="must stay in its place"):
            session.release(mean, SHARE)
        assert session.odometer().spent.n_releases == 1


@pytest.mark.claim("K-4")
def test_an_old_ledger_that_others_have_added_to(ledger_where: str, tmp_path: Path) -> None:
    """It has as many entries as before, but not the same ones."""
    with begin(ledger_where, tmp_path / "ann", principal="ann") as session:
        session.release(mean, SHARE)
        old = Backup(ledger_where)
        session.release(mean, SHARE)
        old.restore()
        with begin(ledger_where, tmp_path / "bob", principal="bob") as other:
            for _ in range(2):
                other.release(mean, SHARE)
        with pytest.raises(LedgerError, match="must hold every entry that it held before"):
            session.release(mean, SHARE)


@pytest.mark.claim("K-4")
def test_what_other_principals_spent_may_not_vanish(ledger_where: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_where)
    ledger.create_budget("default", "*", limits=Spent(mi_nats=0.05))
    with begin(ledger_where, tmp_path / "ann", principal="ann") as session:
        session.release(mean, SHARE)
        old = Backup(ledger_where)
        with begin(ledger_where, tmp_path / "bob", principal="bob") as other:
            other.release(mean, SHARE)
        session._book.left()  # it has read the total since
        old.restore()
        with pytest.raises(LedgerError, match="must hold every entry that it held before"):
            session.release(mean, SHARE)


@pytest.mark.claim("K-4")
def test_a_refinement_stops_where_its_ledger_is_old(ledger_where: str, tmp_path: Path) -> None:
    backups: list[Backup] = []

    def metric(value: Any, *on: Any) -> float:
        backups.append(Backup(ledger_where))
        if len(backups) == 2:
            backups[0].restore()
        return 0.0

    target = pac.Accuracy(at_least=1.0, on=(DATA,), metric=metric)
    with begin(ledger_where, tmp_path / "state") as session:
        with pytest.raises(LedgerError, match="must hold every entry that it held before"):
            session.refine(mean, pac.Information(0.1), target, levels=4)
        assert session.odometer().spent.n_releases == 2
    assert len(backups) == 2


@pytest.mark.claim("K-4")
@pytest.mark.parametrize("put", [os.unlink, os.replace], ids=["gone", "another"])
def test_a_state_that_was_moved_away(tmp_path: Path, put: Callable[..., Any]) -> None:
    place, state, copy = str(tmp_path / "study.db"), tmp_path / "state", tmp_path / "copy"
    with begin(place, state) as session:
        session.release(mean, SHARE)
        shutil.copy2(state, copy)
        before = entries(place)
        put(*((state,) if put is os.unlink else (copy, state)))
        with pytest.raises(LedgerError, match="must be as this session left it"):
            session.release(mean, SHARE)
        assert entries(place) == before


@pytest.mark.claim("V-2")
def test_a_copy_of_a_predictors_state_leases_nothing(ledger_where: str, tmp_path: Path) -> None:
    models, state, copy = tmp_path / "churn.pac", tmp_path / "state", tmp_path / "copy"
    fitted(query=1e-5).save(models, ledger=ledger_where, state=state)
    shutil.copy2(state, copy)
    first = pac.PrivatePredictor.load(models, ledger=ledger_where, state=state)
    second = pac.PrivatePredictor.load(models, ledger=ledger_where, state=copy)
    first.answer(QUESTIONS[:40])
    before = entries(ledger_where)
    with pytest.raises(SecretError, match="another process has gone on"):
        second.answer(QUESTIONS[:40])
    assert entries(ledger_where) == before
    first.answer(QUESTIONS[40:80])
    first.close()
    second.close()


@pytest.mark.claim("V-2")
def test_an_old_ledger_under_a_predictor(ledger_where: str, tmp_path: Path) -> None:
    models, state = tmp_path / "churn.pac", tmp_path / "state"
    fitted(query=1e-5).save(models, ledger=ledger_where, state=state)
    model = pac.PrivatePredictor.load(models, ledger=ledger_where, state=state)
    old = Backup(ledger_where)
    model.answer(QUESTIONS[:40])
    old.restore()
    with pytest.raises(LedgerError, match="must hold every entry that it held before"):
        model.answer(QUESTIONS[40:80])
    model.close()


@pytest.mark.claim("K-4")
def test_a_service_answers_nothing_from_an_old_ledger(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    pd = pytest.importorskip("pandas")
    folder = Folder.make(tmp_path)
    frame = pd.DataFrame({"id": range(400), "pay": np.arange(400.0)})
    place = str(tmp_path / "study.db")
    folder.ledger.create_budget("pay", "*", limits=Spent(mu_squared=session_cap(0.6)))
    session = pac.Session(
        pac.Tables({"people": frame}, unit="people.id"),
        budget="membership<=0.6",
        ledger=place,
        dataset="pay",
    )
    query = {"query": "SELECT sum(pay) AS pay FROM people"}
    started = Running(folder, session=session)
    try:
        assert started.client().call("POST", "/sql", query)[0] == 200
        old = Backup(place)
        assert started.client("bob").call("POST", "/sql", query)[0] == 200
        latest = Backup(place)
        old.restore()
        before = entries(place)
        for who in ("ann", "bob"):
            status, _, text = started.client(who).call("POST", "/sql", query)
            assert (status, list(json.loads(text))) == (503, ["error"])
        assert entries(place) == before
        latest.restore()
        assert started.client().call("POST", "/sql", query)[0] == 200
    finally:
        started.stop()


# --- a server that goes away ------------------------------------------------------------------


class Cut:
    """Ends the connection to the server before its ``n``-th statement, as a broken socket does."""

    def __init__(self, url: str, after: int) -> None:
        self.url, self.left = url, after

    def __call__(self, connection: Any, cursor: Any, *rest: Any) -> None:
        self.left -= 1
        if self.left == 0:
            import psycopg

            pid = cursor.connection.info.backend_pid
            with psycopg.connect(self.url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


@pytest.fixture
def server(ledger_where: str) -> str:
    if not ledger_where.startswith("postgresql"):
        pytest.skip("a file has no socket")
    return ledger_where


@pytest.mark.claim("K-1")
def test_a_socket_that_drops_anywhere(server: str, tmp_path: Path) -> None:
    """The release is refused, spent at most once, and the same session goes on."""
    place = os.environ["PACPRIVACY_TEST_POSTGRES"]
    refusals: list[str] = []
    share, n_cut, n_reserved = pac.Information(0.001), 0, 0
    with begin(server, tmp_path / "state") as session:
        session.release(mean, SHARE)
        while True:
            cut, before = Cut(place, 2 * n_cut + 1), entries(server)
            sa.event.listen(sa.Engine, "before_cursor_execute", cut)
            try:
                session.release(mean, share)
            except LedgerError as error:
                refusals.append(str(error))
            finally:
                sa.event.remove(sa.Engine, "before_cursor_execute", cut)
            if cut.left > 0:
                break
            n_cut += 1
            added = len(entries(server)) - len(before)
            assert added in (0, 1)  # a reservation whose release was drawn stays spent
            n_reserved += added
        session.release(mean, share)
    assert n_cut > 5
    assert all("must be reachable and intact" in text for text in refusals)
    assert n_reserved >= 1
    assert Ledger(server).verify().ok
    spent = Ledger(server).tally(session._book._session_id).mi_nats
    assert spent == pytest.approx(session.odometer().spent.mi_nats, rel=1e-6)
    assert spent == pytest.approx(0.01 + (n_reserved + 2) * 0.001, rel=1e-4)
    begin(server, tmp_path / "state", budget=None).close()


@pytest.mark.claim("K-1")
def test_a_socket_that_drops_while_a_session_is_opened(server: str, tmp_path: Path) -> None:
    """Nobody is told that an entry is broken, for none is."""
    place = os.environ["PACPRIVACY_TEST_POSTGRES"]
    with begin(server, tmp_path / "state") as session:
        session.release(mean, SHARE)
    refusals: list[str] = []
    for n_cut in range(1, 100):
        cut = Cut(place, n_cut)
        sa.event.listen(sa.Engine, "before_cursor_execute", cut)
        try:
            begin(server, tmp_path / "state", budget=None).close()
        except LedgerError as error:
            refusals.append(str(error))
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", cut)
        if cut.left > 0:
            break
    assert n_cut > 3
    assert all("must be reachable and intact" in text for text in refusals)
    assert not any("broken" in text for text in refusals)
    begin(server, tmp_path / "state", budget=None).close()


@pytest.mark.claim("K-1")
def test_a_lost_acknowledgement_is_not_spent_twice(
    ledger_where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reservation is on the disk, and nobody was told; the next one gives it back."""
    real = sa.Connection.commit
    with begin(ledger_where, tmp_path / "state") as session:
        session.release(mean, SHARE)

        def commit(connection: sa.Connection) -> None:
            real(connection)
            last = connection.execute(sa.select(ENTRIES.c.kind).order_by(ENTRIES.c.seq.desc()))
            if last.first() == ("reserve",):
                raise sa.exc.PendingRollbackError("the acknowledgement was lost")

        monkeypatch.setattr(sa.Connection, "commit", commit)
        with pytest.raises(LedgerError, match="must be reachable and intact"):
            session.release(mean, SHARE)
        monkeypatch.undo()
        copy = shutil.copy2(tmp_path / "state", tmp_path / "copy")
        begin(ledger_where, copy, budget=None).close()  # a new process would go on as well
        session.release(mean, SHARE)
    ledger = Ledger(ledger_where)
    kinds = [entry.kind for entry in ledger.entries()][1:]
    assert kinds == ["reserve", "commit", "reserve", "cancel", "reserve", "commit"]
    assert ledger.verify().ok
    assert ledger.tally(session._book._session_id).mi_nats == pytest.approx(0.02, rel=1e-4)
    begin(ledger_where, tmp_path / "state", budget=None).close()
