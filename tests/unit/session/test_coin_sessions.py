"""Sessions with coins: shares, odometer, plans, going on from a ledger, and what is refused.

Forks, kills and what must not show are in ``tests/privacy``, together with those of pools.
"""

import copy
import functools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import Clocks, session_cap
from pacprivacy.budget import Spent
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    DataError,
    LedgerError,
    MechanismError,
    PoolError,
    SecretError,
)
from pacprivacy.ledger import Ledger
from pacprivacy.session import ReleaseCoins
from pacprivacy.session.account import Account
from pacprivacy.session.coin_secret import CoinSecret, CoinState
from pacprivacy.session.state import SessionState, StateFile
from pacprivacy.statistics import Mean

DATA = np.random.default_rng(3).normal(size=(600, 2))
UNITS = np.repeat([f"p{i}" for i in range(300)], 2)
TOTAL = "membership<=0.6"
mean = functools.partial(np.mean, axis=0)
total = functools.partial(np.sum, axis=0)


def begin(path: Path | None = None, **options: Any) -> pac.Session:
    settings: dict[str, Any] = {"budget": TOTAL, "sample": pac.Coins(), "units": UNITS} | options
    if path is not None:
        settings["ledger"] = path
    return pac.Session(settings.pop("data", DATA), **settings)


def clocks_of(session: pac.Session) -> Clocks:
    clocks = session._secret.balances
    assert isinstance(clocks, Clocks)
    return clocks


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger and a session of two releases; tests work on copies."""
    folder = tmp_path_factory.mktemp("finished")
    with begin(folder / "study.db") as session:
        session.release(mean, share=0.2)
        session.release(total, "membership<=0.52")
    return folder


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    """The ledger of a session of two releases."""
    return Path(shutil.copytree(finished, tmp_path / "study")) / "study.db"


def state_path(study: Path) -> Path:
    (found,) = study.parent.glob("*.session")
    return found


# --- what a release may spend ---------------------------------------------------------------


def test_the_odometer_says_the_cap_and_the_busiest_unit() -> None:
    with begin() as session:
        before = session.odometer()
        assert str(before).splitlines() == [
            "Promised membership success: at most 60.00 %",
            "Releases: 0",
            "Spent by the busiest unit: 0.00 % of what a unit may spend",
        ]
        session.release(mean, share=0.2)
        reading = session.odometer()
        assert reading.success_bound == before.success_bound
        assert reading.spent.mu_squared == clocks_of(session).busiest
        assert 0.15 < clocks_of(session).busiest / session_cap(0.6) <= 0.2
        assert (reading.learned_nats, reading.best_guess_now, reading.belief) == (0.0, 0.5, None)
        assert "influence 0.2" in repr(session)


def test_a_share_of_what_is_left_and_one_of_several() -> None:
    with begin() as session:
        first = session.release(mean, share="1 of 12").certificate
        assert first.influence**2 == pytest.approx(session_cap(0.6) / 12, rel=1e-4)
        left = np.sort(clocks_of(session).left)[-10]  # what ten units may pay
        second = session.release(mean, share=0.5).certificate
        assert second.influence**2 == pytest.approx(left / 2, rel=1e-4)
        assert second.composition["release_number"] == 2
        assert second.composition["session_success_bound"] <= 0.6
        assert (second.hits, second.groups) == (first.hits, first.groups)  # those of the session


def test_a_release_with_a_budget_takes_that_and_no_more() -> None:
    with begin() as session:
        made = session.release(mean, "membership<=0.55")
        assert 0.5499 < made.certificate.membership_bound <= 0.55
        assert clocks_of(session).busiest <= session_cap(0.55)
    with begin() as session:
        session.release(mean, TOTAL)  # all at once
        with pytest.raises(BudgetExceededError, match="at most what is left to a unit"):
            session.release(mean, TOTAL)


def test_all_can_be_spent_and_then_nothing_is_left() -> None:
    flat = np.ones(400)
    with begin(data=flat, units=None) as session:
        assert use_up(session, np.sum) > 1  # rounding noise up to two digits leaves something
        clocks = clocks_of(session)
        assert (clocks.spent <= clocks.cap).all()


def use_up(session: pac.Session, mechanism: Any) -> int:
    """Release until nothing is left; return how often."""
    for number in range(200):
        try:
            session.release(mechanism)
        except BudgetExceededError:
            return number
    raise AssertionError("there is no end to it")


def test_plans_spend_nothing_and_old_plans_are_refused() -> None:
    with begin() as session:
        plan = session.plan(mean, share=0.2)
        assert session.odometer().spent.n_releases == 0
        assert "nothing was released or spent" in str(plan)
        session.publish(plan)
        with pytest.raises(SecretError, match="Plan it again"):
            session.publish(plan)
        old = session.plan(mean, share=0.2)
        session.release(mean, share=0.2)
        with pytest.raises(SecretError, match="Plan it again"):
            session.publish(old)


def test_a_mechanism_that_releases_inside_makes_the_plan_old() -> None:
    with begin() as session:

        class Nested(Mean):
            def value(self, *args: Any) -> Any:
                if not session.odometer().spent.n_releases:
                    session.release(mean, share=0.1)
                return super().value(*args)

        with pytest.raises(SecretError, match="Plan it again"):
            session.release(Nested(), share=0.2)
        assert session.odometer().spent.n_releases == 1


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        ({"rule": "isotropic"}, BudgetError, "rule and checkpoint must be left out"),
        ({"checkpoint": "x"}, BudgetError, "rule and checkpoint must be left out"),
        ({"budget": "mi<=1"}, BudgetError, "must limit membership alone"),
        ({"budget": "mi<=1 & membership<=0.55"}, BudgetError, "must limit membership alone"),
        ({"budget": "residual>=0.9"}, BudgetError, "must limit membership alone"),
        ({"budget": "membership<=0.7"}, BudgetExceededError, r"left to a unit, 0\.5999"),
        ({"share": 0}, BudgetError, "share must be above 0"),
        ({"share": "2 of 3"}, BudgetError, "share must be above 0"),
        ({"share": 0.1, "budget": "membership<=0.51"}, BudgetError, "must not both be given"),
    ],
)
def test_what_cannot_be_asked_of_coins(ask: Any, error: type[Exception], message: str) -> None:
    with begin() as session:
        with pytest.raises(error, match=message):
            session.release(mean, **ask)
        assert session.odometer().spent.n_releases == 0
        assert session._secret._key is None  # nothing was drawn


def test_other_work_needs_a_pool() -> None:
    with begin() as session:
        median, target = functools.partial(np.median, axis=0), pac.Accuracy(at_least=0.0, on=(0.0,))
        with pytest.raises(MechanismError, match="function of sums in a session"):
            session.refine(median, TOTAL, target)
        with pytest.raises(MechanismError, match="function of sums in a session"):
            session.release(median)
        assert session.spent.n_releases == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n_subsets": 16}, PoolError),
        ({"n_jobs": 2}, PoolError),
        ({"budget": "mi<=1"}, BudgetError),
        ({"budget": None}, BudgetError),
        ({"data": DATA[:20], "units": None}, PoolError),
    ],
)
def test_what_cannot_be_opened_lets_the_file_go(
    options: Any, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error) as kept:  # the traceback is alive, and so is what it refers to
        begin(tmp_path / "study.db", **options)
    begin(tmp_path / "study.db").close()
    assert kept.value is not None


# --- going on -------------------------------------------------------------------------------


@pytest.mark.claim("C-8")
def test_a_session_goes_on_with_the_same_key_keep_and_clocks(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with begin(path, sample=pac.Coins(keep=0.8, clip=0.9)) as first:
        first.release(mean, share=0.3)
        kept, key = first._secret._held._kept, first._secret._key
        clocks = clocks_of(first)
    with pac.Session(DATA, units=UNITS, ledger=path) as second:
        assert second._secret.keep == 0.8
        assert second._secret._coins == pac.Coins(keep=0.8, clip=0.9)
        assert second._secret._key == key
        assert clocks_of(second).spent.tobytes() == clocks.spent.tobytes()
        assert clocks_of(second).slack == clocks.slack > 0
        made = second.release(mean, share=0.3)
        assert np.array_equal(second._secret._held._kept, kept)
        assert made.certificate.composition["release_number"] == 2
        assert (clocks_of(second).spent >= clocks.spent).all()
        assert second.odometer().spent.n_releases == 2
    assert Ledger(path).verify().ok


def test_units_of_other_names_are_refused(study: Path) -> None:
    for units in (np.arange(600), None, UNITS.astype("U9").astype(object) + "x"):
        with pytest.raises(PoolError, match="units must be those that the session began with"):
            begin(study, units=units)
    begin(study).close()


def test_rows_without_names_must_stay_as_they_are(tmp_path: Path) -> None:
    with begin(tmp_path / "study.db", units=None) as session:
        session.release(mean, share=0.1)
    for other in (DATA + 1, DATA[::-1], np.concatenate([DATA, DATA])):
        with pytest.raises(DataError, match="data must be what the session"):
            begin(tmp_path / "study.db", units=None, data=other)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": "membership<=0.7"}, BudgetError, "the total that the session began with"),
        ({"budget": "mi<=1"}, BudgetError, "the total that the session began with"),
        ({"sample": pac.Balanced()}, PoolError, "the session began with, coins; got a pool"),
        ({"sample": pac.Coins(keep=0.5)}, PoolError, "keep must be that of the session, 0.9"),
        ({"n_subsets": 8}, PoolError, "must be left out where every unit has a coin"),
        ({"simulate": True}, LedgerError, "simulate must be False with a ledger"),
    ],
)
def test_going_on_with_something_else_is_refused(
    study: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        begin(study, **options)
    begin(study, sample=None, budget=None).close()  # the lock was let go and nothing was changed


def test_a_session_with_a_pool_does_not_go_on_with_coins(tmp_path: Path) -> None:
    with begin(tmp_path / "study.db", sample=None, n_subsets=16) as session:
        session.release(mean, share=0.1)
    with pytest.raises(PoolError, match="the session began with, a pool; got coins"):
        begin(tmp_path / "study.db")


@pytest.mark.claim("K-1")
def test_an_old_copy_of_the_file_is_refused(study: Path) -> None:
    old = study.parent / "old"
    shutil.copy2(state_path(study), old)
    with begin(study) as session:
        session.release(mean, share=0.1)
    old.replace(state_path(study))
    with pytest.raises(SecretError, match="must be the latest of its session"):
        begin(study)


def test_a_session_is_open_once(study: Path) -> None:
    with begin(study), pytest.raises(LedgerError, match="must not be open twice"):
        begin(study)


# --- the file -------------------------------------------------------------------------------


def change(study: Path, **fields: Any) -> None:
    """Write a file with other fields and a checksum that fits."""
    path = state_path(study)
    state, marks = SessionState.from_bytes(path.read_bytes())
    values = {name: getattr(state, name) for name in CoinState.__slots__}
    values |= {"total": state.total, "n_releases": state.n_releases} | fields
    path.write_bytes(CoinState(**values).to_bytes(marks))


def stored_clocks(value: float) -> Clocks:
    return Clocks(spent=np.full(300, value), cap=session_cap(0.6))


@pytest.mark.parametrize(
    "fields",
    [
        {"key": b"short"},
        {"clocks": stored_clocks(-1e-9)},
        {"clocks": stored_clocks(np.nan)},
        {"clocks": stored_clocks(1.0)},
        {"clocks": Clocks(spent=np.zeros(300, dtype=np.float32), cap=1.0)},
        {"clocks": Clocks(spent=np.zeros((1, 300)), cap=1.0)},
        {"clocks": Clocks(spent=np.zeros(299), cap=1.0)},
        {"marks": bytes(16 * 299)},
        {"clocks": Clocks(spent=np.zeros(300), cap=1.0, slack=1.0)},
        {"total": Spent(mi_nats=1.0)},
    ],
)
def test_a_file_that_no_session_wrote_is_refused(study: Path, fields: dict[str, Any]) -> None:
    change(study, **fields)
    with pytest.raises(LedgerError, match="must be the state of a session"):
        begin(study)


def test_a_file_of_other_units_is_refused(study: Path) -> None:
    change(study, marks=bytes(range(240)) * 20)
    with pytest.raises(PoolError, match="units must be those"):
        begin(study)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:40] + b"\0" + b[41:]])
def test_a_damaged_file_is_refused(study: Path, damage: Callable[[bytes], bytes]) -> None:
    path = state_path(study)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LedgerError, match="it is damaged, or written by another version"):
        begin(study)


def test_the_ledger_holds_nothing_of_the_coins(study: Path) -> None:
    state, _ = SessionState.from_bytes(state_path(study).read_bytes())
    assert isinstance(state, CoinState)
    content = study.read_bytes()
    assert state.key not in content
    assert state.key.hex().encode() not in content
    assert msgspec.msgpack.encode(state.clocks.spent.tobytes())[:40] not in content


# --- the order of the steps -----------------------------------------------------------------


@pytest.mark.claim("K-1")
def test_the_order_of_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def noting(owner: Any, name: str, step: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            steps.append(step)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    noting(StateFile, "save", "save")
    noting(Ledger, "reserve", "reserve")
    noting(ReleaseCoins, "observe", "observe")
    noting(Ledger, "commit", "commit")
    noting(CoinSecret, "plan", "plan")
    noting(CoinSecret, "draw", "draw")
    with begin(tmp_path / "study.db") as session:
        session.release(mean, share=0.1)
    assert steps == ["plan", "draw", "save", "reserve", "observe", "commit"]


@pytest.mark.claim("K-1")
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("owner", "name", "spent"),
    [
        (StateFile, "save", False),
        (Ledger, "reserve", False),
        (ReleaseCoins, "observe", True),
        (Account, "keep", True),
        (Ledger, "commit", False),  # clocks and file know of it
    ],
)
def test_a_stop_at_any_step_hands_out_nothing(
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    spent: bool,
    error: type[BaseException],
) -> None:
    def stop(*args: Any, **kwargs: Any) -> Any:
        raise error

    with begin(study) as session:
        before = clocks_of(session)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stop)
            with pytest.raises(error):
                session.release(mean, share=0.2)
        if spent:  # something may have been drawn: this object is at its end
            with pytest.raises(SecretError, match="must be open"):
                session.release(mean, share=0.2)
        else:
            assert (clocks_of(session) is before) == (name != "commit")
            session.release(mean, share=0.2)
        assert len(session.releases) == (not spent)
    reserved = [e for e in Ledger(study).entries() if e.kind == "reserve"]
    assert len(reserved) == 3 + (name == "commit")
    with begin(study) as session:  # what was reserved is paid for, by every clock
        after = clocks_of(session)
        assert after.busiest > before.busiest
        charged = sum(entry.amounts.mu_squared or 0.0 for entry in reserved)
        assert charged == pytest.approx(after.busiest, abs=1e-9)
        session.release(mean, share=0.2)


# --- two at once ----------------------------------------------------------------------------


def test_two_analysts_in_threads_share_one_cap() -> None:
    errors: list[BaseException] = []
    with begin() as session:

        def ask() -> None:
            try:
                for _ in range(10):
                    session.release(total, "membership<=0.51")
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        paid = sum(
            np.bincount(b.units, np.square(b.integers / b.units_per_std[0]).sum(axis=1))
            for b in (release.bundle for release in session.releases)
        )
        assert not errors
        assert session.odometer().spent.n_releases == 20
        assert (paid <= clocks_of(session).spent).all()
        assert (clocks_of(session).spent <= session_cap(0.6)).all()


@pytest.mark.claim("K-4")
def test_two_processes_with_copies_of_one_file_do_not_both_release(study: Path) -> None:
    """Both have the key and the clocks; the ledger lets the first go on, and ends the second."""
    other = study.parent / "other.session"
    shutil.copy2(state_path(study), other)
    with begin(study) as first, begin(study, state=other) as second:
        assert first._secret._key == second._secret._key
        planned = second.plan(total, share=0.2)
        first.release(total, share=0.2)
        n_entries = len(Ledger(study).entries())
        with pytest.raises(SecretError):
            second.publish(planned)
        with pytest.raises(SecretError, match="must be open"):
            second.release(total, share=0.2)
        assert len(Ledger(study).entries()) == n_entries
        first.release(total, share=0.2)


@pytest.mark.claim("K-1")
def test_a_release_that_was_not_reserved_is_not_on_the_clocks(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is written before the ledger is: then the process dies."""
    with begin(study) as session:
        before = clocks_of(session).spent.tobytes()
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "reserve", lambda *args, **kwargs: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                session.release(total, share=0.2)
    stored, marks = SessionState.from_bytes(state_path(study).read_bytes())
    assert isinstance(stored, CoinState)
    assert marks.upcoming
    assert stored.unpaid is not None
    assert stored.unpaid.spent.tobytes() == before != stored.clocks.spent.tobytes()
    with begin(study) as session:
        assert clocks_of(session).spent.tobytes() == before


# --- the ledger -----------------------------------------------------------------------------


def test_the_total_becomes_the_budget_of_a_new_ledger(study: Path) -> None:
    (balance,) = Ledger(study).balance("default", "default")
    assert balance.limits.mu_squared == pytest.approx(session_cap(0.6), abs=1e-12)
    assert balance.limits.success_increment is None
    with begin(study) as session:
        spent = session.odometer().spent.mu_squared  # the ledger rounds up
        assert balance.spent.mu_squared == pytest.approx(spent, abs=1e-8)
        assert balance.spent.mu_squared == pytest.approx(clocks_of(session).busiest, abs=1e-11)


def test_a_ledger_for_pools_alone_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "study.db")
    ledger.create_budget("default", limits=Spent(mi_nats=1, success_increment=0.1))
    with begin(tmp_path / "study.db") as session:
        with pytest.raises(LedgerError, match=r"--membership 0\.6"):
            session.release(mean, share=0.1)
        assert session._secret._key is None
    ledger.create_budget("default", "default", limits=Spent(mu_squared=session_cap(0.55)))
    with begin(tmp_path / "study.db") as session:
        session.release(mean, share=0.1)


def test_the_ledger_limits_a_session_below_its_own_total(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "study.db")
    ledger.create_budget("default", limits=Spent(mu_squared=session_cap(0.52)))
    with begin(tmp_path / "study.db") as session:
        with pytest.raises(BudgetExceededError, match="at most what is left to a unit"):
            session.release(total, "membership<=0.55")
        session.release(total)
        assert clocks_of(session).busiest <= session_cap(0.52)
    with begin(tmp_path / "study.db") as session:
        for _ in range(5):  # units that added little to the first have most of it left
            session.release(total)
        assert clocks_of(session).busiest <= session_cap(0.52)
    assert ledger.verify().ok


def test_two_principals_have_coins_of_their_own_and_share_a_budget(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    Ledger(path).create_budget("default", limits=Spent(mu_squared=session_cap(0.6)))
    ann, bob = (begin(path, principal=name) for name in ("ann", "bob"))
    with ann, bob:
        ann.release(mean, share=0.6)
        bob.release(mean, share=0.6)
        assert ann._secret._key != bob._secret._key
        (balance,) = Ledger(path).balance("default", "bob")
        spent = clocks_of(ann).busiest + clocks_of(bob).busiest
        assert balance.spent.mu_squared == pytest.approx(spent, abs=1e-9)
        assert spent <= session_cap(0.6)


def test_copies_of_a_session_are_refused(study: Path) -> None:
    with begin(study) as session, pytest.raises(SecretError):
        copy.copy(session)
