"""Budgets, spends and their chain: what is written, what is refused, what is noticed."""

import copy
import json
import os
import pickle
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy

from pacprivacy.budget import SUMS, Spent
from pacprivacy.errors import BudgetError, BudgetExceededError, LedgerError
from pacprivacy.ledger import Ledger, LedgerEntry, database as schema, ledger as ledger_module
from pacprivacy.ledger.entries import amounts_allowed, amounts_charged, entry_hash, genesis_hash

DIGEST = "ab" * 32


def spend(ledger: Ledger, nats: float = 0.25, *, who: str = "ann", what: str = "mean") -> None:
    ledger.commit(ledger.reserve("people", who, Spent(mi_nats=nats), what), DIGEST)


def cancel(ledger: Ledger, reservation: ledger_module.Reservation) -> None:
    """Give a reservation back, as for one whose acknowledgement was lost."""
    ledger._unsure.append(reservation)
    ledger.withdraw_unsure()


def left(ledger: Ledger, kind: str = "mi_nats", who: str = "ann") -> float | None:
    return min(getattr(b.left, kind) or 0.0 for b in ledger.balance("people", who))


@pytest.fixture
def ledger(ledger_where: str) -> Ledger:
    made = Ledger(ledger_where)
    made.create_budget(
        "people", limits=Spent(mi_nats=1, success_increment=0.1, epsilon=2, delta=1e-6)
    )
    return made


# --- amounts --------------------------------------------------------------------------------


def test_a_thousand_thousandths_are_one() -> None:
    assert 1000 * amounts_charged(Spent(mi_nats=0.001))["mi_nats"] == 10**12
    assert 1000 * amounts_charged(Spent(epsilon=1, delta=1e-9))["delta"] == 10**12


def test_charges_are_rounded_up_and_limits_down() -> None:
    third = Spent(mi_nats=1 / 3, epsilon=1 / 3, delta=1e-19)
    up, down = amounts_charged(third), amounts_allowed(third)
    assert (up["mi_nats"], down["mi_nats"]) == (333333333334, 333333333333)
    assert (up["delta"], down["delta"]) == (1, 0)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), 2.0, True, "much"])
def test_amounts_out_of_range_are_refused(bad: float) -> None:
    with pytest.raises(BudgetError, match="success_increment must be a number from 0 to 1"):
        amounts_charged(Spent(success_increment=bad))


def test_levels_of_success_are_refused() -> None:
    with pytest.raises(BudgetError, match="levels do not add up"):
        amounts_charged(Spent(success_level=0.6))


def test_delta_needs_epsilon_and_epsilon_alone_is_pure() -> None:
    assert amounts_charged(Spent(epsilon=1))["delta"] == 0
    with pytest.raises(BudgetError, match="epsilon must be given with delta"):
        amounts_charged(Spent(delta=1e-6))
    with pytest.raises(BudgetError, match="at least one amount"):
        amounts_charged(Spent())


@pytest.mark.claim("K-3")
def test_entries_of_the_first_version_keep_their_hash() -> None:
    """A ledger is never forgotten: what 0.1 wrote is read, and its chain holds."""
    entry = LedgerEntry(
        seq=2,
        kind="reserve",
        time="2026-01-02T03:04:05.000006+00:00",
        dataset="people",
        principal="ann",
        session="s" * 8,
        reservation="r" * 8,
        units={"mi_nats": 250_000_000_000, "success_increment": 50_000_000_000},
        what="mean",
        version=1,
        previous=genesis_hash("f" * 32, "2026-01-01T00:00:00.000000+00:00"),
    )
    written = "3f5ec238d5ac57d637d22fb02fa4f623730cc40e015d03992fa2dcc31fac6d7d"
    assert entry_hash(entry) == written
    assert entry.amounts == Spent(mi_nats=0.25, success_increment=0.05)


# --- spending -------------------------------------------------------------------------------


def both(nats: float = 0.25, success: float = 0.0) -> Spent:
    return Spent(mi_nats=nats, success_increment=success)


@pytest.mark.claim("K-2")
def test_spends_add_up_to_the_limit_and_no_further(ledger_where: str) -> None:
    ledger = Ledger(ledger_where)
    ledger.create_budget("people", limits=Spent(mi_nats=1))
    for _ in range(10):
        spend(ledger, 0.1)
    before = ledger.entries()
    assert left(ledger) == 0.0
    with pytest.raises(BudgetExceededError, match="mi_nats must be at most what is left"):
        ledger.reserve("people", "ann", Spent(mi_nats=1e-12), "one more")
    assert ledger.entries() == before
    assert ledger.verify().ok


def test_reserved_counts_as_spent_before_it_is_committed(ledger: Ledger, ledger_where: str) -> None:
    ledger.reserve("people", "ann", both(0.75), "mean")
    assert left(ledger) == 0.25
    assert left(Ledger(ledger_where, create=False)) == 0.25


@pytest.mark.claim("K-2")
def test_the_kinds_are_never_added_together(ledger: Ledger) -> None:
    ledger.reserve("people", "ann", both(1.0, 0.0), "uses up the information")
    ledger.reserve("people", "ann", both(0.0, 0.1), "uses up the membership")
    ledger.reserve("people", "ann", Spent(epsilon=2, delta=1e-6), "uses up the DP budget")
    ledger.create_budget("people", "ann", limits=Spent(mu_squared=0.25))
    ledger.reserve("people", "ann", Spent(mu_squared=0.25), "uses up the clocks of coins")
    everyone, ann = ledger.balance("people", "ann")
    pools = [kind for kind in SUMS if kind != "mu_squared"]
    assert [getattr(everyone.left, kind) for kind in pools] == [0.0] * 4
    assert ann.left == Spent(mu_squared=0.0)
    for one_more in (
        both(1e-12),
        both(0, 1e-12),
        Spent(epsilon=1e-12),
        Spent(mu_squared=1e-12),
    ):
        with pytest.raises(BudgetExceededError):
            ledger.reserve("people", "ann", one_more, "more")


@pytest.mark.parametrize(
    ("scope", "spender", "fits"),
    [
        (("people", "*"), ("people", "ann"), False),
        (("people", "ann"), ("people", "ann"), False),
        (("*", "ann"), ("people", "ann"), False),
        (("*", "*"), ("people", "ann"), False),
        (("people", "bob"), ("people", "ann"), True),
        (("others", "*"), ("people", "ann"), True),
    ],
)
@pytest.mark.claim("K-2")
def test_every_budget_that_covers_a_spend_limits_it(
    ledger_where: str, scope: tuple[str, str], spender: tuple[str, str], fits: bool
) -> None:
    ledger = Ledger(ledger_where)
    ledger.create_budget(*scope, limits=Spent(mi_nats=0.1))
    if scope != spender:
        ledger.create_budget(*spender, limits=Spent(mi_nats=10))
    if fits:
        ledger.reserve(*spender, Spent(mi_nats=0.2), "mean")
    else:
        with pytest.raises(BudgetExceededError):
            ledger.reserve(*spender, Spent(mi_nats=0.2), "mean")
    assert ledger.verify().ok


def test_principals_share_the_budget_of_the_dataset(ledger: Ledger) -> None:
    ledger.create_budget("people", "ann", limits=Spent(mi_nats=0.7))
    ledger.reserve("people", "ann", both(0.6), "mean")
    with pytest.raises(BudgetExceededError, match=r"principal '\*', 0\.4"):
        ledger.reserve("people", "bob", both(0.5), "mean")
    with pytest.raises(BudgetExceededError, match=r"principal 'ann', 0\.1"):
        ledger.reserve("people", "ann", both(0.2), "mean")


def test_a_budget_that_comes_late_counts_what_was_spent_before(ledger: Ledger) -> None:
    ledger.reserve("people", "ann", both(0.6), "mean")
    ledger.create_budget("people", "ann", limits=Spent(mi_nats=0.5))
    with pytest.raises(BudgetExceededError, match="'ann', 0;"):
        ledger.reserve("people", "ann", both(0.1), "mean")
    ledger.reserve("people", "bob", both(0.1), "mean")
    assert ledger.verify().ok


def test_a_spend_without_a_budget_is_refused(ledger_where: str) -> None:
    ledger = Ledger(ledger_where)
    with pytest.raises(LedgerError, match="must have a budget of mi_nats or success_increment"):
        ledger.reserve("people", "ann", Spent(mi_nats=0.1), "mean")
    ledger.create_budget("people", limits=Spent(mi_nats=1))
    with pytest.raises(LedgerError, match="must have a budget of epsilon or delta"):
        ledger.reserve("people", "ann", Spent(epsilon=0.1), "mean")
    assert [entry.kind for entry in ledger.entries()] == ["budget"]


def test_a_charge_may_not_hide_what_a_budget_limits(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="charge must state success_increment"):
        ledger.reserve("people", "ann", Spent(mi_nats=0.1), "mean")


def test_budgets_cannot_be_changed(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="must not have a budget for principal '\\*' yet"):
        ledger.create_budget("people", limits=Spent(mi_nats=100))


@pytest.mark.parametrize("name", ["", " x", "a\nb", "x" * 201, "\x00"])
def test_odd_names_are_refused(ledger: Ledger, name: str) -> None:
    with pytest.raises(LedgerError, match="dataset must be a name"):
        ledger.create_budget(name, limits=Spent(mi_nats=1))
    with pytest.raises(LedgerError, match="principal must be a name"):
        ledger.reserve("people", name, both(), "mean")


def test_everybody_cannot_spend(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="not \\*"):
        ledger.reserve("people", "*", both(), "mean")


def test_any_text_fits_in_the_description(ledger: Ledger) -> None:
    ledger.reserve("people", "Åsa '); DROP TABLE x; --", both(), "<lambda>\n\x00é" + "x" * 500)
    entry = ledger.entries()[-1]
    assert entry.what.startswith("<lambda>  éx")
    assert ledger.verify().ok


# --- reservations ---------------------------------------------------------------------------


@pytest.mark.claim("K-1")
def test_a_reservation_stays_spent_and_is_committed_once(ledger: Ledger) -> None:
    reservation = ledger.reserve("people", "ann", both(1.0), "mean")
    assert left(ledger) == 0.0
    ledger.commit(reservation, DIGEST)
    ledger.withdraw_unsure()  # it was acknowledged
    with pytest.raises(LedgerError, match="reservation must be open"):
        ledger.commit(reservation, DIGEST)
    assert left(ledger) == 0.0
    assert [entry.kind for entry in ledger.entries()] == ["budget", "reserve", "commit"]


def test_a_reservation_cannot_be_copied(ledger: Ledger) -> None:
    reservation = ledger.reserve("people", "ann", both(), "mean")
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(LedgerError, match="must stay in its process"):
            attempt(reservation)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_cannot_commit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "study.db")
    ledger.create_budget("people", limits=Spent(mi_nats=1))
    reservation = ledger.reserve("people", "ann", Spent(mi_nats=1), "mean")
    child = os.fork()
    if child == 0:
        try:
            ledger.commit(reservation, DIGEST)
        except LedgerError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert left(ledger) == 0.0


def test_a_reservation_of_another_ledger_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other.db")
    other.create_budget("people", limits=Spent(mi_nats=1))
    reservation = other.reserve("people", "ann", Spent(mi_nats=0.1), "mean")
    with pytest.raises(LedgerError, match="must be of this ledger"):
        ledger.commit(reservation, DIGEST)


@pytest.mark.claim("K-1")
def test_a_commit_needs_its_reservation_in_the_ledger(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: the reservation is made up, nothing is written."""

    def skipped(connection: object, line: object) -> LedgerEntry:
        return LedgerEntry(
            seq=2,
            kind="reserve",
            time="",
            dataset="people",
            principal="ann",
            session=None,
            reservation="f" * 32,
            what="mean",
            certificate=None,
            previous="",
        )

    with monkeypatch.context() as patch:
        patch.setattr(ledger_module.db, "append_to_database", skipped)
        reservation = ledger.reserve("people", "ann", both(), "mean")
    with pytest.raises(LedgerError, match="is not in the ledger"):
        ledger.commit(reservation, DIGEST)


# --- the chain ------------------------------------------------------------------------------


def filled(path: Path) -> Ledger:
    ledger = Ledger(path)
    ledger.create_budget("people", limits=Spent(mi_nats=1))
    spend(ledger, 0.25)
    cancel(ledger, ledger.reserve("people", "bob", Spent(mi_nats=0.5), "median"))
    spend(ledger, 0.125, who="bob", what="covariance")
    return ledger


def execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_entries_are_chained(ledger: Ledger) -> None:
    ledger.reserve("people", "ann", both(), "mean")
    first, second = ledger.entries()
    assert second.previous == first.hash == entry_hash(first)
    assert ledger.verify().head == second.hash
    assert ledger.verify().n_entries == 2


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        ("UPDATE pac_entries SET mi_nats_e12 = 1 WHERE seq = 2", 2),
        ("UPDATE pac_entries SET mi_nats_e12 = mi_nats_e12 * 1.5 WHERE seq = 2", 2),
        ("UPDATE pac_entries SET success_e12 = 0 WHERE seq = 2", 2),
        ("UPDATE pac_entries SET dataset = 'others' WHERE seq = 2", 2),
        ("UPDATE pac_entries SET principal = 'bob' WHERE seq = 3", 3),
        ("UPDATE pac_entries SET time = '2020' WHERE seq = 1", 1),
        ("UPDATE pac_entries SET kind = 'cancel' WHERE seq = 3", 3),
        ("UPDATE pac_entries SET what = CAST(what AS BLOB) WHERE seq = 2", 2),
        ("UPDATE pac_entries SET certificate = NULL WHERE seq = 3", 3),
        ("UPDATE pac_entries SET version = 1 WHERE seq = 6", 6),
        ("UPDATE pac_entries SET version = 3 WHERE seq = 6", 6),
        ("UPDATE pac_entries SET mu_squared_e12 = 1 WHERE seq = 2", 2),
        ("UPDATE pac_entries SET hash = upper(hash) WHERE seq = 6", 6),
        ("UPDATE pac_entries SET previous = hash WHERE seq = 4", 4),
        ("DELETE FROM pac_entries WHERE seq = 4", 4),
        ("DELETE FROM pac_entries WHERE seq = 7", 7),
        ("DELETE FROM pac_entries", 1),
        ("UPDATE pac_ledger SET n_entries = 6", 8),
        ("UPDATE pac_ledger SET head = 'x'", 8),
        ("UPDATE pac_ledger SET ledger_id = 'x'", 1),
        ("UPDATE pac_ledger SET created = 'x'", 1),
    ],
)
@pytest.mark.claim("K-3")
def test_a_changed_entry_is_reported(tmp_path: Path, statement: str, broken: int) -> None:
    path = tmp_path / "study.db"
    filled(path)
    execute(path, statement)
    found = Ledger(path, create=False).verify()
    assert not found.ok
    assert found.broken_entry == broken


@pytest.mark.claim("K-3")
def test_a_chain_written_anew_is_told_by_a_noted_head(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    ledger = filled(path)
    noted = ledger.verify().head
    assert ledger.verify(head=noted).ok
    spend(ledger, 0.1)
    assert ledger.verify(head=noted).ok
    path.unlink()
    forged = filled(path)
    assert forged.verify().ok
    assert not forged.verify(head=noted).ok


@pytest.mark.claim("K-3")
def test_an_overspent_chain_is_reported_though_its_hashes_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: the check of the budget is skipped."""

    ledger = filled(tmp_path / "study.db")
    monkeypatch.setattr(ledger_module, "check_ledger_spend", lambda *_: None)
    ledger.reserve("people", "ann", Spent(mi_nats=5), "mean")
    found = ledger.verify()
    assert (found.broken_entry, found.problem) == (8, "entry 8 is broken: it goes over a budget")


@pytest.mark.claim("K-3")
def test_a_spend_after_a_damaged_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    filled(path)
    for statement in (
        "UPDATE pac_entries SET mi_nats_e12 = 0 WHERE seq = 7",
        "DELETE FROM pac_entries WHERE seq = 7",
        "UPDATE pac_ledger SET head = 'x'",
    ):
        execute(path, statement)
        with pytest.raises(LedgerError, match=r"must (end where its|hold every)"):
            Ledger(path).reserve("people", "ann", Spent(mi_nats=0.1), "mean")


def entry_bytes(path: Path, entries: tuple[LedgerEntry, ...]) -> list[int]:
    """Offsets in the file of every byte of every text field of the entries."""
    content = path.read_bytes()
    found: set[int] = set()
    for entry in entries:
        fields = entry.covered() | {"hash": entry.hash}
        for value in fields.values():
            text = value.encode() if isinstance(value, str) else b""
            if len(text) > 12:  # long enough to stand for one field only
                start = content.find(text)
                while start >= 0:
                    found.update(range(start, start + len(text)))
                    start = content.find(text, start + 1)
    return sorted(found)


@pytest.mark.claim("K-3")
def test_every_flipped_byte_of_an_entry_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    ledger = filled(path)
    entries = ledger.entries()
    content = path.read_bytes()
    rng = np.random.default_rng(7)
    texts = rng.choice(entry_bytes(path, entries), size=150, replace=False)
    anywhere = rng.integers(len(content), size=150)
    changed = 0
    for offset in (*texts, *anywhere):
        damaged = bytearray(content)
        damaged[offset] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            again = Ledger(path, create=False)
            found = again.verify()
            same = found.ok and again.entries() == entries
        except LedgerError:
            found, same = None, False
        if offset in texts:
            assert found is None or not found.ok, f"byte {offset} was flipped unnoticed"
        if found is not None and found.ok:
            assert same, f"byte {offset} changed an entry unnoticed"
        changed += found is None or not found.ok
        for leftover in ("-wal", "-shm"):
            path.with_name(path.name + leftover).unlink(missing_ok=True)
    assert changed >= 150


# --- files that are no ledgers, and ledgers that cannot be written ---------------------------


def test_it_is_in_wal_mode_and_waits_for_the_disk(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "study.db")
    with ledger._database.read_transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_opening_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="must be a file that is there"):
        Ledger(tmp_path / "missing.db", create=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LedgerError, match="must be a file in an existing folder"):
        Ledger(tmp_path / "nowhere" / "study.db")
    with pytest.raises(LedgerError, match="ledger must be a file"):
        Ledger(tmp_path)
    for odd in ("mysql://host/db", ":memory:", "sqlite://", ""):
        with pytest.raises(LedgerError, match="ledger must be a"):
            Ledger(odd)


@pytest.mark.parametrize("content", [b"hello, world\n" * 500, b"SQLite format 3\x00" + b"x" * 5000])
def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"must be a ledger file; it is something else"):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    execute(path, "CREATE TABLE recipes (name TEXT)")
    content = path.read_bytes()
    with pytest.raises(LedgerError, match="must be a ledger; it is something else"):
        Ledger(path)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_ledger_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    path.touch()
    with pytest.raises(LedgerError, match="must be a ledger"):
        Ledger(path, create=False)
    assert Ledger(path).verify().ok


def test_sqlite_urls_are_paths(tmp_path: Path) -> None:
    filled(tmp_path / "study.db")
    assert len(Ledger(f"sqlite:///{tmp_path}/study.db", create=False).entries()) == 7


def test_odd_characters_in_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=ro#%41.db"
    assert filled(path).verify().ok
    assert path.exists()


def test_passwords_are_not_shown() -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger("postgresql://me:hunter2@127.0.0.1:1/none", timeout_s=2)
    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_a_locked_ledger_says_so(ledger: Ledger, ledger_where: str) -> None:
    waiting = Ledger(ledger_where, timeout_s=0.1)
    with ledger._database.writing(lock="SELECT id FROM pac_ledger FOR UPDATE"):
        with pytest.raises(LedgerError, match="must not be in use for long; another process holds"):
            waiting.reserve("people", "ann", both(), "mean")
        assert waiting.verify().ok  # readers do not wait
    waiting.reserve("people", "ann", both(), "mean")
    assert [entry.kind for entry in ledger.entries()] == ["budget", "reserve"]


@pytest.fixture
def plain_user() -> Iterator[None]:
    """Be somebody whom file modes stop, also where the tests run as root."""
    if not hasattr(os, "geteuid"):
        pytest.skip("this system has no file modes")
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_read_only_ledger_can_be_read_but_not_spent_from(
    open_folder: Path, request: pytest.FixtureRequest
) -> None:
    path = open_folder / "study.db"
    head = filled(path).verify().head
    path.chmod(0o444)
    open_folder.chmod(0o555)
    request.getfixturevalue("plain_user")
    try:
        ledger = Ledger(path)
        assert ledger.verify().head == head
        with pytest.raises(LedgerError, match="must be writable; it is read-only"):
            ledger.reserve("people", "ann", Spent(mi_nats=0.1), "mean")
        with pytest.raises(LedgerError, match="must be a file in an existing folder"):
            Ledger(open_folder / "new.db")
    finally:
        os.seteuid(os.getuid())
        open_folder.chmod(0o755)


def fill_up(ledger: Ledger) -> None:
    for _ in range(1000):
        ledger.reserve("people", "ann", Spent(mi_nats=1e-6), "x" * 200)


def test_a_full_ledger_says_so_and_spends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pacprivacy.ledger import database as module

    ledger = filled(tmp_path / "study.db")
    before = ledger.entries()
    connect = module._connect_file

    def small(path: Path, **options: object) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.execute("PRAGMA max_page_count = 1")  # no page may be added
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(module, "_connect_file", small)
        with pytest.raises(LedgerError, match="must have room to grow; the disk is full"):
            fill_up(ledger)
    found = ledger.verify()
    assert found.ok
    assert found.n_entries == len(ledger.entries()) >= len(before)


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small disk can be mounted by root only")
    try:
        ledger = Ledger(disk / "study.db")
        ledger.create_budget("people", limits=Spent(mi_nats=1))
        with pytest.raises(LedgerError, match=r"room to grow|working disk"):
            fill_up(ledger)
        assert ledger.verify().ok
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- versions -------------------------------------------------------------------------------


def test_a_newer_ledger_is_refused(ledger: Ledger, ledger_where: str) -> None:
    with ledger._database.writing(lock="SELECT 1") as connection:
        connection.execute(sqlalchemy.text("UPDATE pac_ledger SET schema_version = 99"))
    with pytest.raises(LedgerError, match=r"schema version 2 or older; got 99\. Install"):
        Ledger(ledger_where)


def test_an_older_ledger_is_migrated_and_still_verifies(
    ledger: Ledger, ledger_where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve("people", "ann", both(), "mean")

    def add_column(connection: sqlalchemy.Connection) -> None:
        connection.execute(sqlalchemy.text("ALTER TABLE pac_ledger ADD COLUMN note TEXT"))

    monkeypatch.setattr(schema, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(schema, "MIGRATIONS", {2: add_column})
    again = Ledger(ledger_where)
    assert again.verify().ok
    assert again.entries() == ledger.entries()
    with again._database.read_transaction() as connection:
        row = connection.execute(sqlalchemy.text("SELECT schema_version, note FROM pac_ledger"))
        assert tuple(row.one()) == (3, None)
    assert Ledger(ledger_where).verify().ok  # the second opening has nothing to do


def make_first_version(ledger: Ledger) -> list[str]:
    """Write a ledger as version 0.1 did, before there were coins; return the hashes."""
    hashes = [ledger._head.genesis]
    with ledger._database.writing(lock="SELECT 1") as connection:
        for entry in list(schema.read_database_entries(connection)):
            old = replace(entry, version=1, previous=hashes[-1])
            hashes.append(entry_hash(old))
            changed = {"version": 1, "previous": old.previous, "hash": hashes[-1]}
            table = schema.ENTRIES
            connection.execute(
                sqlalchemy.update(table).where(table.c.seq == entry.seq).values(**changed)
            )
        connection.execute(sqlalchemy.text("ALTER TABLE pac_entries DROP COLUMN mu_squared_e12"))
        connection.execute(
            sqlalchemy.update(schema.LEDGER).values(schema_version=1, head=hashes[-1])
        )
    return hashes[1:]


@pytest.mark.claim("K-3")
def test_a_ledger_of_the_first_version_goes_on_with_coins(
    ledger: Ledger, ledger_where: str
) -> None:
    ledger.commit(ledger.reserve("people", "ann", both(), "mean"), "ab" * 32)
    hashes = make_first_version(ledger)
    again = Ledger(ledger_where)
    assert again.verify().ok
    assert [entry.hash for entry in again.entries()] == hashes
    assert [entry.version for entry in again.entries()] == [1, 1, 1]
    with pytest.raises(LedgerError, match="--membership for releases with coins"):
        again.reserve("people", "ann", Spent(mu_squared=0.1), "sum")
    again.create_budget("people", "ann", limits=Spent(mu_squared=0.25))
    again.commit(again.reserve("people", "ann", Spent(mu_squared=0.1), "sum"), "cd" * 32)
    assert again.entries()[-2].version == 2
    assert again.verify(head=hashes[-1]).ok
    # An amount that somebody adds to an entry of the first version shows.
    with again._database.writing(lock="SELECT 1") as connection:
        connection.execute(
            sqlalchemy.text("UPDATE pac_entries SET mu_squared_e12 = 7 WHERE seq = 2")
        )
    assert again.verify().broken_entry == 2


def test_an_unknown_older_version_is_refused(
    ledger_where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger(ledger_where)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 3)
    with pytest.raises(LedgerError, match="must have a known schema version; got 2"):
        Ledger(ledger_where)


# --- public form ----------------------------------------------------------------------------


def test_balances_in_public_form(ledger: Ledger) -> None:
    ledger.reserve("people", "ann", both(0.25, 0.05), "mean")
    (plain,) = [balance.to_public_dict() for balance in ledger.balances()]
    assert plain["left"] == {
        "mi_nats": 0.75,
        "success_increment": 0.05,
        "mu_squared": None,
        "epsilon": 2.0,
        "delta": 1e-6,
    }
    assert plain["spent"]["mi_nats"] == 0.25
    json.dumps(plain, allow_nan=False)
