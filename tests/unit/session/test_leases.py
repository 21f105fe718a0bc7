"""A predictor that was saved: one secret that goes on, paid for in a ledger, in one process."""

import os
import shutil

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary import VoteBalances
from pacprivacy.adversary.vote_balances import WATCHED
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetError, BudgetExceededError, LedgerError, SecretError
from pacprivacy.estimators import predictor as predictors
from pacprivacy.ledger import Ledger
from pacprivacy.session import Reply, leases
from tests.serving import Folder, fitted, people

QUESTIONS = people(400, seed=1)[0]
MEMBERSHIP = {"budget": "membership<=0.6", "query": 1e-5}


@pytest.fixture(params=[{"query": 1e-5}, MEMBERSHIP], ids=["information", "membership"])
def folder(request, tmp_path):
    return Folder.make(tmp_path, **request.param)


def spent_in(ledger: Ledger, service: str) -> Spent:
    return ledger.tally(service)


@pytest.mark.claim("V-2")
def test_it_goes_on_where_it_was(folder):
    before = folder.stored()
    first = folder.load()
    first.answer(QUESTIONS[:40])
    seen, belief = first.odometer(), first.odometer().belief
    first.close()
    again = folder.load()
    secret = folder.stored().state.secret
    assert secret.to_storage() == before.state.secret.to_storage()
    assert again.odometer().spent == seen.spent
    np.testing.assert_array_equal(again.odometer().belief, belief)
    assert again.certificate_ == first.certificate_
    assert (belief != 1 / 16).any()
    again.answer(QUESTIONS[40:80])
    assert again.odometer().spent.mi_nats > seen.spent.mi_nats


def test_balances_go_on_to_the_last_bit(tmp_path):
    """Asked half and half, with a restart between, units have paid what one run makes them pay."""
    runs = []
    for name, stop in (("whole", False), ("parts", True)):
        place = tmp_path / name
        place.mkdir()
        folder = Folder.make(place, **MEMBERSHIP)
        model = folder.load()
        for start in (0, 40):
            model.answer(QUESTIONS[start : start + 40])
            if stop:
                model.close()
                model = folder.load()
        units = model._responder._units
        runs.append((units.balance.min(), units._full))
    # other noise, other beliefs: the same to a few hundredths of what was paid
    (one, full), (other, _) = runs
    assert 0 < full - one == pytest.approx(full - other, rel=0.05)


def test_what_was_spent_before_it_was_saved_is_booked(tmp_path):
    model = fitted()
    model.answer(QUESTIONS[:40])
    spent = model.odometer().spent
    model.save(tmp_path / "churn.pac", ledger=tmp_path / "study.db", principal="old")
    with pytest.raises(SecretError, match="closed"):
        model.answer(QUESTIONS[:1])
    folder = Folder(tmp_path, {})
    assert folder.load().odometer().spent == spent
    (total,) = folder.ledger.balances()
    assert total.spent.mi_nats >= spent.mi_nats > 0


@pytest.mark.claim("V-1")
def test_the_ledger_shows_at_least_what_was_answered(folder):
    model, paid = folder.load(), {"ann": [], "bob": []}
    for start in range(0, 200, 20):
        parts = [("ann", 5), ("bob", 15)]
        for (who, _), reply in zip(
            parts, model.answer_each(QUESTIONS[start : start + 20], parts), strict=True
        ):
            assert isinstance(reply, Reply)
            paid[who].append(reply.spent)
            assert (reply.charges[reply.unanimous] == 0).all()
            assert (reply.noise_std[reply.unanimous] == 0).all()
    entries = [entry for entry in folder.ledger.entries() if entry.kind == "reserve"]
    assert len(entries) <= 12  # not one for every answer
    for who, charges in paid.items():
        reserved = sum(e.amounts.mi_nats for e in entries if e.principal == who)
        asked = sum(charge.mi_nats for charge in charges)
        left = folder.stored().leases[who].mi_nats
        assert asked + left <= reserved <= asked + left + 1e-9
        assert asked > 0
    assert folder.ledger.verify().ok


@pytest.mark.claim("V-1")
def test_principals_have_limits_and_share_the_total(tmp_path):
    folder = Folder.make(tmp_path, **MEMBERSHIP)
    folder.ledger.create_budget("churn", "ann", limits=Spent(success_increment=0.0002))
    model, refused, answered = folder.load(), 0, {"ann": 0.0, "bob": 0.0}
    for start in range(0, 400, 10):
        parts = [("ann", 5), ("bob", 5)]
        for (who, _), reply in zip(
            parts, model.answer_each(QUESTIONS[start : start + 10], parts), strict=True
        ):
            if isinstance(reply, BudgetExceededError):
                assert who == "ann"
                assert "'ann'" in str(reply)
                refused += 1
            else:
                answered[who] += reply.spent.success_increment
    assert refused
    assert 0.0001 < answered["ann"] <= 0.0002 < answered["bob"]
    left, limits = model.left_for("ann", fresh=True)
    assert limits.own.success_increment == 0.0002
    assert left.own.success_increment == pytest.approx(0.0002 - answered["ann"], abs=1e-9)
    assert left.total.success_increment == pytest.approx(0.1 - sum(answered.values()), abs=1e-9)
    assert model.left_for("eve")[0].own is None


def test_a_refusal_costs_no_unit_anything(tmp_path):
    """What is booked for a batch is taken back if the ledger refuses it before the first draw."""
    folder = Folder.make(tmp_path, **MEMBERSHIP)
    folder.ledger.create_budget("churn", "ann", limits=Spent(success_increment=1e-9))
    model = folder.load()
    balance = model._responder._units.balance.copy()
    for _ in range(3):
        (refused,) = model.answer_each(QUESTIONS[:20], [("ann", 20)])
        assert isinstance(refused, BudgetExceededError)
    np.testing.assert_array_equal(model._responder._units.balance, balance)
    assert model.odometer().spent.n_releases == 0


def test_facts_of_the_universe_are_free_and_write_nothing(folder):
    model = folder.load()
    agreed = QUESTIONS[np.ptp(model._tabulate(QUESTIONS), axis=0) == 0][:5]
    mark, state = folder.ledger.mark(folder.stored().service), folder.state.read_bytes()
    (reply,) = model.answer_each(agreed, [("ann", len(agreed))])
    assert len(agreed) == 5
    assert reply.unanimous.all()
    assert reply.spent.mi_nats == 0
    assert folder.state.read_bytes() == state
    assert folder.ledger.mark(folder.stored().service) == mark


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.claim("V-2")
def test_an_old_state_is_refused(folder, tmp_path):
    old = tmp_path / "old.answers"
    shutil.copy(folder.state, old)
    model = folder.load()
    model.answer(QUESTIONS[:40])
    model.close()
    latest = folder.state.read_bytes()
    for copy in (old,):
        os.replace(copy, folder.state)
        with pytest.raises(SecretError, match="latest"):
            folder.load()
    folder.state.write_bytes(latest)
    folder.load().close()


@pytest.mark.claim("V-2")
def test_a_lost_state_ends_the_budget(folder):
    folder.state.unlink()
    with pytest.raises(LedgerError, match="a fresh one would break what was promised"):
        folder.load()


@pytest.mark.claim("V-2")
def test_a_second_process_is_refused(folder, tmp_path):
    """By the lock where it uses the same state, by the ledger where it has a copy."""
    first = folder.load()
    with pytest.raises(LedgerError, match="must not be open twice"):
        folder.load()
    copy = tmp_path / "copy.answers"
    shutil.copy(folder.state, copy)
    second = pac.PrivatePredictor.load(
        folder.path / "churn.pac", ledger=folder.path / "study.db", state=copy
    )
    first.answer(QUESTIONS[:40])
    with pytest.raises(SecretError, match="another process"):
        second.answer(QUESTIONS[:40])
    with pytest.raises(SecretError, match="closed"):
        second.answer(QUESTIONS[:40])
    second.close()
    with pytest.raises(SecretError, match="latest"):
        pac.PrivatePredictor.load(
            folder.path / "churn.pac", ledger=folder.path / "study.db", state=copy
        )
    first.answer(QUESTIONS[40:80])


class Stopped(BaseException):
    """A stop that nothing catches."""


@pytest.mark.claim("V-1")
@pytest.mark.parametrize("where", ["reserve", "write", "move_mark"])
@pytest.mark.parametrize("after", [False, True])
def test_it_goes_on_after_a_stop_anywhere(folder, monkeypatch, where, after):
    home = {"write": leases.StateFile}.get(where, type(folder.ledger))
    model = folder.load()
    model.answer(QUESTIONS[:40])
    known = folder.stored()
    real = getattr(home, where)

    def stop(*args, **options):
        if after:
            real(*args, **options)
        raise Stopped

    monkeypatch.setattr(home, where, stop)
    if where == "reserve":
        monkeypatch.setattr(leases, "_covers", lambda *_: False)  # it needs another lease
    with pytest.raises(Stopped):
        model.answer(QUESTIONS[40:80])
    monkeypatch.undo()
    model._book.close()  # as the system does for a process that is gone
    again = folder.load()
    stored = folder.stored()
    moved = where == "move_mark" or (where == "write" and after)
    assert (stored.upcoming != known.upcoming) is moved
    assert stored.state.secret.to_storage() == known.state.secret.to_storage()
    assert folder.ledger.mark(stored.service) == stored.upcoming
    spent = again.odometer().spent
    reserved = sum(e.amounts.mi_nats for e in folder.ledger.entries() if e.kind == "reserve")
    assert reserved >= spent.mi_nats
    again.answer(QUESTIONS[80:120])
    again.close()
    folder.load().close()


@pytest.mark.claim("V-2")
def test_changed_models_are_refused_before_they_are_read(folder, monkeypatch):
    monkeypatch.setattr(predictors.pickle, "loads", lambda _: pytest.fail("it was unpickled"))
    path = folder.path / "churn.pac"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="digest is not known"):
        folder.load()


def test_files_for_their_owner_alone(folder):
    for path in (folder.path / "churn.pac", folder.state):
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o640)
        with pytest.raises(SecretError, match="mode 0600"):
            folder.load()
        path.chmod(0o600)
    folder.load().close()


def test_other_versions_are_refused(folder, monkeypatch):
    monkeypatch.setattr(predictors.sklearn, "__version__", "0.1")
    with pytest.raises(LedgerError, match="versions that it was saved with"):
        folder.load()


@pytest.mark.parametrize("damage", [b"", b"x", b"\x93\x01"])
def test_a_damaged_state_is_refused(folder, damage):
    folder.state.write_bytes(damage)
    with pytest.raises(LedgerError, match="damaged"):
        folder.load()


def test_what_cannot_be_saved(tmp_path):
    X, y = people(60)
    tree = fitted().estimator
    simulated = pac.PrivatePredictor(tree, n_subsets=16, simulate=True).fit(X, y)
    with pytest.raises(SecretError, match="simulated"):
        simulated.save(tmp_path / "a.pac", ledger=tmp_path / "study.db")
    model = fitted()
    model.save(tmp_path / "a.pac", ledger=tmp_path / "study.db")
    with pytest.raises(SecretError, match="closed"):
        model.save(tmp_path / "b.pac", ledger=tmp_path / "study.db")
    with pytest.raises(LedgerError, match="must not be there yet"):
        fitted().save(tmp_path / "a.pac", ledger=tmp_path / "study.db")
    loaded = pac.PrivatePredictor.load(tmp_path / "a.pac", ledger=tmp_path / "study.db")
    with pytest.raises(SecretError, match="up to date"):
        loaded.save(tmp_path / "b.pac", ledger=tmp_path / "study.db")
    assert not (tmp_path / "b.pac").exists()


def test_a_limit_of_what_is_not_counted_is_refused(tmp_path):
    """Without a membership budget nobody knows what an answer adds to a guess."""
    folder = Folder.make(tmp_path)
    folder.ledger.create_budget("churn", "ann", limits=Spent(success_increment=0.1))
    model = folder.load()
    refused, answered = model.answer_each(QUESTIONS[:40], [("ann", 20), ("bob", 20)])
    assert isinstance(refused, BudgetError)
    assert "success_increment" in str(refused)
    assert isinstance(answered, Reply)


def test_another_ledger_does_not_know_it(folder, tmp_path):
    Ledger(tmp_path / "other.db")
    with pytest.raises(LedgerError, match="digest is not known"):
        pac.PrivatePredictor.load(folder.path / "churn.pac", ledger=tmp_path / "other.db")


def test_a_table_with_names_is_asked_by_them(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = people(60)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = pac.PrivatePredictor(fitted().estimator, n_subsets=16, query_budget="mi<=1e-4")
    model.fit(frame, y).save(tmp_path / "a.pac", ledger=tmp_path / "study.db")
    again = pac.PrivatePredictor.load(tmp_path / "a.pac", ledger=tmp_path / "study.db")
    assert again.predict(frame[:5]).shape == (5,)


@pytest.mark.claim("V-1")
def test_balances_of_many_units_go_on_and_are_never_charged_more_than_the_worst():
    """With more units than are watched, some of whom owe: as if nothing had stopped."""
    pool = pac.Balanced(n_subsets=16).draw(WATCHED + 300, rng=0)
    rng, whole, parts = np.random.default_rng(0), *(VoteBalances(pool, 0.1, 1e-5) for _ in "ab")
    for _ in range(30):
        moves = 2e-4 * rng.normal(size=(5, 16))
        before, worst = whole.increment_left, whole.worst_increment(5, 1e-5)
        assert worst > 0
        for units in (whole, parts):
            units.pay(moves, 1e-3)
        assert before - whole.increment_left <= worst
        stored = parts.to_arrays()
        parts = VoteBalances(pool, 0.1, 1e-5)
        parts.restore(stored)
        assert parts.increment_left == whole.increment_left
    assert np.abs(whole._owed).sum() > 0  # some had not paid yet
    whole.settle()
    parts.settle()
    np.testing.assert_array_equal(parts.balance, whole.balance)
    np.testing.assert_array_equal(parts.reserve, whole.reserve)
    assert whole.balance.max() < VoteBalances(pool, 0.1, 1e-5).balance.max()


@pytest.mark.parametrize("name", ["balance", "reserve", "kept", "watched", "owed", "rest"])
def test_balances_that_make_no_sense_are_refused(name):
    pool = pac.Balanced(n_subsets=16).draw(20, rng=0)
    stored = VoteBalances(pool, 0.1, 1e-5).to_arrays()
    wrong = {
        "balance": stored["balance"] * 2,
        "reserve": stored["reserve"][:3],
        "kept": stored["reserve"] * 2,
        "watched": stored["watched"] * 0,
        "owed": stored["owed"].astype(np.float32),
        "rest": -np.ones(3),
    }
    place = "reserve" if name == "kept" else name
    with pytest.raises(ValueError, match=r"dtype|shape|watched|balance|reserve"):
        VoteBalances(pool, 0.1, 1e-5).restore({**stored, place: wrong[name]})


@pytest.mark.claim("V-1")
@pytest.mark.parametrize("fail_at", ["before the charge", "after the draw"])
def test_what_fails_for_one_is_not_drawn_again_for_others(tmp_path, monkeypatch, fail_at):
    folder = Folder.make(tmp_path)
    model = folder.load()
    name = "_check" if fail_at == "before the charge" else "observe"
    real, calls = getattr(model._responder, name), []

    def second(*args, **options):
        calls.append(args)
        found = real(*args, **options)
        if len(calls) == 2:
            raise ZeroDivisionError
        return found

    monkeypatch.setattr(model._responder, name, second)
    parts = [("ann", 20), ("bob", 20), ("ann", 20)]
    first, failed, last = model.answer_each(QUESTIONS[:60], parts)
    assert isinstance(failed, ZeroDivisionError)
    told = first.spent.mi_nats + last.spent.mi_nats
    spent = model.odometer().spent
    assert spent.n_releases == 40
    if fail_at == "before the charge":
        assert spent.mi_nats == pytest.approx(told, rel=1e-9)
    else:  # the worst that it can have cost stays spent
        assert spent.mi_nats > told + 10 * 1e-4
    model.close()
    assert folder.load().odometer().spent == spent  # and all of it is on the disk


@pytest.mark.claim("V-1")
def test_what_was_booked_for_a_failure_is_given_back_to_nobody(tmp_path, monkeypatch):
    folder = Folder.make(tmp_path)
    model = folder.load()
    table = model._tabulate(QUESTIONS)
    free = QUESTIONS[np.ptp(table, axis=0) == 0]

    def fail(*_):
        raise ZeroDivisionError

    model.answer_each(QUESTIONS[:20], [("bob", 20)])
    with monkeypatch.context() as patch:
        patch.setattr("pacprivacy.session.responder._answer_votes", fail)
        model.answer_each(QUESTIONS[:40], [("ann", 40)])
    held = dict(model._book._leases)
    for who in ("bob", "eve"):
        (reply,) = model.answer_each(free[:3], [(who, 3)])
        assert reply.unanimous.all()
    assert model._book._leases == held


@pytest.mark.claim("V-1")
def test_a_ledger_that_does_not_know_the_last_lease_is_refused(folder):
    """One step behind, where the mark alone could not tell it from a stop between two writes."""
    database, before = folder.path / "study.db", folder.path / "before.db"
    shutil.copy(database, before)
    model = folder.load()
    model.answer_each(QUESTIONS[:40], [("ann", 40)])
    model._book.close()  # as the system does for a process that is gone
    shutil.copy(database, folder.path / "latest.db")
    shutil.copy(before, database)
    with pytest.raises(LedgerError, match="shows less than the state"):
        folder.load()
    shutil.copy(folder.path / "latest.db", database)
    folder.load().close()


@pytest.mark.claim("V-2")
def test_a_save_that_fails_at_the_last_moment_leaves_one_secret(tmp_path, monkeypatch):
    """The ledger has the mark, but the answer of its server was lost."""
    model, real = fitted(), Ledger.move_mark

    def lost(*args):
        real(*args)
        raise LedgerError("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "move_mark", lost)
        with pytest.raises(LedgerError, match="went dead"):
            model.save(tmp_path / "churn.pac", ledger=tmp_path / "study.db")
    with pytest.raises(SecretError, match="closed"):
        model.answer(QUESTIONS[:1])
    Folder(tmp_path, {}).load().close()


# --- many principals --------------------------------------------------------------------------


def costly(model, n: int):
    """Questions on which the models disagree, so that each is paid for."""
    table = model._tabulate(QUESTIONS)
    return QUESTIONS[(table != table[:1]).any(axis=0)][:n]


@pytest.mark.claim("V-1")
def test_idle_principals_do_not_use_up_the_total(tmp_path, monkeypatch):
    """Each lease is smaller than the one before it, and nobody is refused."""
    monkeypatch.setattr(leases, "PART", 1 / 16)
    folder = Folder.make(tmp_path, budget="mi<=2", query=1e-6)
    model = folder.load()
    (row,) = costly(model, 1)
    for number in range(40):
        (reply,) = model.answer_each(row[None], [(f"principal {number}", 1)])
        assert isinstance(reply, Reply), (number, reply)
    (total,) = folder.ledger.balances()
    assert model.odometer().spent.mi_nats < 0.001
    assert total.left.mi_nats > 0.25
    assert len(folder.stored().leases) == 40
    assert folder.ledger.verify().ok
