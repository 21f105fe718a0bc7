"""Real forks: whoever holds a secret, noise drawn ahead or a budget works in one process only.

A pre-forking server and ``multiprocessing`` copy all of it: the same secret would answer twice with
the same noise, and each copy would have the whole budget.
"""

import ast
import copy
import ctypes
import gc
import json
import multiprocessing
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import pacprivacy as pac
from pacprivacy._random import Process, ProcessBound, SystemSource, fresh_seed
from pacprivacy.budget import Spent
from pacprivacy.dp.accuracy_first import InteractiveAboveThreshold, NoiseReduction
from pacprivacy.dp.descent import DPDescentNoise
from pacprivacy.dp.noise_reduction import NoisyLevels
from pacprivacy.errors import LedgerError, SecretError
from pacprivacy.estimators import PrivatePredictor
from pacprivacy.ledger import Ledger
from pacprivacy.noise import calibrate
from pacprivacy.noise.answers import AnswerNoise
from pacprivacy.sample import Balanced
from pacprivacy.session import ReleaseCoins, ReleaseSecret, SampleOptions, SingleSession
from pacprivacy.session.account import Account
from pacprivacy.session.leases import Leases
from pacprivacy.session.responder import Responder
from pacprivacy.session.secret import SecretHolder
from pacprivacy.statistics import Mean
from tests.serving import Folder, people

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # there are threads
]

DATA = np.random.default_rng(0).normal(size=(20, 2))
POOL = Balanced(n_subsets=16).draw(20, rng=0)
VOTES = POOL.masks()[:, :8].astype(np.int64)
ASKED = people(20, seed=1)[0]
MANY = np.random.default_rng(2).normal(size=400)
POOL_OF_16 = SampleOptions(n_subsets=16)
WITH_COINS = SampleOptions(sample=pac.Coins())
SUMS = pac.plan(np.mean, MANY, "membership<=0.6", sample=pac.Coins())
PLAN = calibrate(np.random.default_rng(1).normal(size=(16, 2)), pac.Information(0.1))


def mean(rows: Any) -> Any:
    return rows.mean(axis=0)


def of_coins(folder: Path, **options: Any) -> pac.Session:
    """A session with coins that has made a release."""
    session = pac.Session(MANY, budget="membership<=0.6", sample=pac.Coins(), **options)
    session.release(np.mean, share=0.1)
    return session


def by_python() -> int:
    return os.fork()


def behind_python() -> int:
    """Fork as a server written in C does: Python's own hooks are not called.

    The fork has no other thread. If one of this process had requested the interpreter, the fork
    would hand it over and wait for ever. So threads wait a second before they request it, and
    earlier requests are served first.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1)
    served = time.perf_counter() + 4 * interval
    while time.perf_counter() < served:
        pass
    try:
        return int(ctypes.PyDLL(None).fork())
    finally:
        sys.setswitchinterval(interval)


def in_fork(action: Callable[[], Any], fork: Callable[[], int] = by_python) -> str:
    """Run an action in a fork; return its result as text, or the name of its error."""
    hear, tell = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(60)  # a fork that hangs fails the test
        os.write(tell, outcome(action).encode()[:4096])
        os._exit(0)
    os.close(tell)
    if not select.select([hear], [], [], 60)[0]:  # before it set an alarm
        os.kill(child, signal.SIGKILL)
        pytest.fail("the fork hangs")
    with os.fdopen(hear) as pipe:
        heard = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return heard


def outcome(action: Callable[[], Any]) -> str:
    try:
        return repr(action())
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


# --- every class that is bound to its process ------------------------------------------------


@dataclass(frozen=True)
class Case:
    """How to make one, how to use it, and what shows that it was used."""

    make: Callable[[Path], Any]
    use: Callable[[Any], Any]
    traces: Callable[[Any], Any] = lambda thing: None


def open_session(folder: Path, **options: Any) -> pac.Session:
    return pac.Session(DATA, budget=pac.Information(1), n_subsets=16, **options)


def used_session(folder: Path) -> pac.Session:
    session = open_session(folder)
    session.release(mean, pac.Information(0.1), rule="waterfill")
    return session


def open_book(folder: Path) -> Any:
    session = open_session(folder, ledger=folder / f"{fresh_seed():x}.db")
    session.release(mean, pac.Information(0.1), rule="waterfill")
    return session._book


def open_leases(folder: Path) -> Leases:
    place = folder / f"{fresh_seed():x}"
    place.mkdir()
    saved = Folder.make(place, principals=())
    model = saved.load()
    model.answer(ASKED)
    return model._book


def answered(folder: Path) -> Responder:
    responder = Responder(POOL, query_nats=0.01, total_nats=1.0, source=SystemSource())
    responder.reply_votes(VOTES[:, :2], n_classes=2)  # so that a block of noise is there
    return responder


def taken(folder: Path) -> AnswerNoise:
    noise = AnswerNoise(SystemSource())
    noise.take(3)
    return noise


def refined_levels(folder: Path) -> NoisyLevels:
    levels = NoisyLevels([3.0], sensitivity=1.0, epsilons=[0.1, 0.2, 0.3], source=SystemSource())
    levels.refine()
    return levels


def step_noise(folder: Path) -> DPDescentNoise:
    noise = DPDescentNoise(2.0, 3, "add_remove", SystemSource(), n_steps=4)
    noise.release(np.zeros(3, dtype=np.int64))
    return noise


def threshold(folder: Path) -> InteractiveAboveThreshold:
    asked = InteractiveAboveThreshold(threshold=0.0, sensitivity=1e-6, epsilon=1.0)
    asked.ask(-1.0)
    return asked


CASES: dict[type, Case] = {
    ReleaseSecret: Case(
        lambda folder: ReleaseSecret(16, SystemSource()),
        lambda secret: secret.observe(PLAN, SystemSource()),
    ),
    ReleaseCoins: Case(
        lambda folder: ReleaseCoins(np.arange(400) % 2 == 0),
        lambda coins: coins.observe(SUMS, SystemSource()),
    ),
    pac.Session: Case(
        used_session,
        lambda session: session.release(mean, pac.Information(0.1), rule="waterfill").value,
        lambda session: session.odometer(),
    ),
    SingleSession: Case(
        lambda folder: SingleSession(
            DATA, pac.Information(0.1), options=SampleOptions(n_subsets=16)
        ),
        lambda session: session.release(mean, rule="waterfill").value,
        lambda session: session.odometer(),
    ),
    Account: Case(
        open_book,
        lambda book: book.spend(pac.budget.Spent(mi_nats=0.1), "forked", None),
        lambda book: book.spent(),
    ),
    Leases: Case(
        open_leases,
        lambda book: book.spend(pac.budget.Spent(mi_nats=0.01), "forked", None),
        lambda book: (dict(book._leases), book.ledger.tally(book._service)),
    ),
    Responder: Case(
        answered,
        lambda responder: responder.reply_votes(VOTES, n_classes=2).values,
        lambda responder: (responder.spent.mi_nats, responder.n_free, responder._noise._next),
    ),
    AnswerNoise: Case(taken, lambda noise: noise.take(2), lambda noise: noise._next),
    InteractiveAboveThreshold: Case(
        threshold, lambda asked: asked.ask(-1.0), lambda asked: len(asked._drawn)
    ),
    NoisyLevels: Case(
        refined_levels,
        lambda levels: levels.refine(),
        lambda levels: levels.level,
    ),
    DPDescentNoise: Case(
        step_noise,
        lambda noise: noise.release(np.zeros(3, dtype=np.int64)),
        lambda noise: len(noise._ahead),
    ),
}
COINS = {
    "Session with coins": Case(
        of_coins,
        lambda session: session.release(np.mean, share=0.1).value,
        lambda session: (session.odometer(), session._secret.balances.spent.sum()),
    ),
    "SingleSession with coins": Case(
        lambda folder: SingleSession(MANY, "membership<=0.6", options=WITH_COINS),
        lambda session: session.release(np.mean).value,
        lambda session: session.odometer(),
    ),
    "Account of coins": Case(
        lambda folder: of_coins(folder, ledger=folder / f"{fresh_seed():x}.db")._book,
        lambda book: book.spend(pac.budget.Spent(mu_squared=0.01), "forked", None),
        lambda book: book.spent(),
    ),
}
ALL = {bound.__name__: case for bound, case in CASES.items()} | COINS


def test_the_table_knows_every_class() -> None:
    """A class that is bound to its process and not in the table is a class without a test."""
    gc.collect()  # classes of doctests and of other tests

    def below(bound: type) -> set[type]:
        return {bound}.union(*map(below, bound.__subclasses__()))

    ours = {found for found in below(ProcessBound) if found.__module__.startswith("pacprivacy")}
    assert ours - {ProcessBound, SecretHolder} == set(CASES)


@pytest.mark.claim("R-4")
@pytest.mark.parametrize("fork", [by_python, behind_python])
@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_a_fork_is_refused_and_nothing_is_used(
    case: Case, fork: Callable[[], int], tmp_path: Path
) -> None:
    thing = case.make(tmp_path)
    before = repr(case.traces(thing))

    def attempt() -> str:
        first = outcome(lambda: case.use(thing))
        nested = in_fork(lambda: case.use(thing), fork)
        return json.dumps([first, nested, repr(case.traces(thing))])

    first, nested, after = json.loads(ast.literal_eval(in_fork(attempt, fork)))
    for refused in (first, nested):
        assert refused.startswith("SecretError: "), refused
        assert "must stay in its process; got another one, a fork of it" in refused
    assert after == before
    assert repr(case.traces(thing)) == before
    if not isinstance(thing, Account):
        case.use(thing)  # the process that made it goes on


@pytest.mark.claim("R-4")
@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_a_number_that_is_used_again_is_no_way_in(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maker has ended, and a fork of its fork got its number."""
    thing, number = case.make(tmp_path), os.getpid()

    def attempt() -> Any:
        monkeypatch.setattr(os, "getpid", lambda: number)
        return case.use(thing)

    assert in_fork(attempt).startswith("SecretError: ")


@pytest.mark.claim("R-4")
@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_none_can_be_pickled_or_copied(case: Case, tmp_path: Path) -> None:
    thing = case.make(tmp_path)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(SecretError, match="must stay in its process; got a request to pickle"):
            attempt(thing)


def test_a_process_knows_itself() -> None:
    here = Process()
    assert here.is_here
    assert in_fork(lambda: (here.is_here, Process().is_here)) == "(False, True)"
    assert here.is_here


# --- the attacks -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def questions() -> Any:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 2))
    return X, (X[:, 0] + 0.5 * rng.normal(size=60) > 0).astype(int)


def fitted(questions: Any) -> PrivatePredictor:
    X, y = questions
    return PrivatePredictor(
        DecisionTreeClassifier(max_depth=2, random_state=0),
        n_subsets=16,
        query_budget=pac.Information(0.01),
        budget=pac.Information(1.0),
    ).fit(X, y)


@pytest.mark.claim("F-2")
@pytest.mark.claim("R-4")
@pytest.mark.parametrize("used", [False, True])
def test_forked_workers_of_a_predictor_answer_nothing(questions: Any, used: bool) -> None:
    """Two workers with one secret and one block of noise: their answers would cancel the noise."""
    X = questions[0]
    model = fitted(questions)
    if used:
        model.predict(X[:5])
    spent = model.odometer().spent.mi_nats
    uses: list[Callable[[], Any]] = [
        lambda: model.answer(X[:4]),
        lambda: model.predict(X[:4]),
        lambda: model.predict_proba(X[:4]),
        lambda: model.distil(DecisionTreeClassifier(), X[:4]),
    ]
    for use in uses:
        for _ in range(2):
            assert in_fork(use).startswith("SecretError: a responder must stay in its process")
    assert in_fork(lambda: outcome(uses[0]) and model.odometer().spent.mi_nats) == repr(spent)
    assert model.odometer().spent.mi_nats == spent
    assert model.answer(X[:4]).shape == (4, 2)


@pytest.mark.claim("R-4")
def test_a_predictor_that_is_fitted_in_the_fork_answers(questions: Any) -> None:
    assert in_fork(lambda: fitted(questions).predict(questions[0][:3]).shape) == "(3,)"


@pytest.mark.claim("S-1")
@pytest.mark.claim("R-4")
@pytest.mark.parametrize("n_before", [0, 1])
def test_six_children_of_a_session_release_nothing(n_before: int) -> None:
    """Each had its own copy of what is left."""
    with pac.Session(DATA, budget=pac.Information(0.2), n_subsets=16) as session:
        for _ in range(n_before):
            session.release(mean, pac.Information(0.01), rule="waterfill")

        def release() -> Any:
            return session.release(mean, pac.Information(0.19), rule="waterfill").value

        for _ in range(6):
            assert in_fork(release).startswith("SecretError: a session must stay in its process")
        assert session.odometer().spent.n_releases == n_before
        release()
    assert session.odometer().spent.mi_nats <= 0.2


def worker(session: pac.Session, results: Any) -> None:
    results.put(outcome(lambda: session.release(mean, pac.Information(0.1)).value))


@pytest.mark.claim("R-4")
def test_multiprocessing_copies_no_session() -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with open_session(Path()) as session:
        session.release(mean, pac.Information(0.1), rule="waterfill")
        child = context.Process(target=worker, args=(session, results))
        child.start()
        assert results.get().startswith("SecretError: ")
        child.join()
        with pytest.raises(SecretError, match="pickle"):
            multiprocessing.get_context("spawn").Process(
                target=worker, args=(session, None)
            ).start()


def fork_inside(call: Callable[[Callable[[], None]], Any]) -> str:
    """Call something that forks while it runs; return what became of the child's call."""
    parent, children = os.getpid(), []
    hear, tell = os.pipe()

    def fork_once() -> None:
        if os.getpid() == parent and not children:
            children.append(os.fork())
            if children[0] == 0:
                signal.alarm(60)

    said = outcome(lambda: call(fork_once))
    if os.getpid() != parent:
        os.write(tell, said.encode()[:4096])
        os._exit(0)
    assert not said.startswith("SecretError"), said
    os.close(tell)
    with os.fdopen(hear) as pipe:
        heard = pipe.read()
    os.waitpid(children[0], 0)
    return heard


@pytest.mark.claim("R-4")
@pytest.mark.parametrize("n_before", [0, 1])
def test_a_fork_in_the_middle_of_a_release_ends_in_the_child(n_before: int) -> None:
    """The mechanism forks: both processes come back to the session."""
    with open_session(Path()) as session:
        for _ in range(n_before):
            session.release(mean, pac.Information(0.1), rule="waterfill")

        def call(fork: Callable[[], None]) -> Any:
            def mechanism(rows: Any) -> Any:
                fork()
                return mean(rows)

            return session.release(mechanism, pac.Information(0.1), rule="waterfill").value

        assert fork_inside(call).startswith("SecretError: a session must stay in its process")
        assert session.odometer().spent.n_releases == n_before + 1


@pytest.mark.claim("R-4")
@pytest.mark.parametrize("single", [False, True])
def test_a_fork_while_contributions_are_computed_ends_in_the_child(single: bool) -> None:
    budget = "membership<=0.6"
    opened: pac.Session = SingleSession(MANY, budget, options=WITH_COINS)
    if not single:
        opened = pac.Session(MANY, budget=budget, sample=pac.Coins())
    with opened as session:

        def call(fork: Callable[[], None]) -> Any:
            class Forking(Mean):
                def contributions(self, *records: Any) -> Any:
                    fork()
                    return super().contributions(*records)

            return session.release(Forking()).value

        assert fork_inside(call).startswith("SecretError: a session must stay in its process")
        assert session.odometer().spent.n_releases == 1


@pytest.mark.claim("S-3")
@pytest.mark.claim("R-4")
def test_a_fork_between_two_steps_of_a_refinement_ends_in_the_child() -> None:
    with open_session(Path()) as session:

        def call(fork: Callable[[], None]) -> Any:
            def metric(value: Any, known: Any) -> float:
                fork()
                return -1.0

            target = pac.Accuracy(at_least=0.0, on=(0.0,), metric=metric)
            budget = pac.Information(0.5)
            return session.refine(mean, budget, target, rule="waterfill", levels=3).reached

        assert fork_inside(call).startswith("SecretError: a session must stay in its process")
        assert session.odometer().spent.n_releases == 3


@pytest.mark.claim("R-4")
def test_a_fork_does_not_wait_for_a_lock_that_nobody_will_open() -> None:
    session, responder = used_session(Path()), answered(Path())
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with session._lock, responder._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        for use in (
            lambda: session.release(mean, pac.Information(0.1)),
            lambda: responder.reply_votes(VOTES, n_classes=2).values,
        ):
            assert in_fork(use).startswith("SecretError: ")
    finally:
        done.set()
        thread.join()


@pytest.mark.claim("R-4")
def test_levels_of_noise_are_read_in_one_process() -> None:
    gradual = NoiseReduction([3.0], sensitivity=1.0, epsilons=[0.1, 0.2, 0.4], neighbours="replace")
    gradual.refine()
    assert in_fork(gradual.refine).startswith("SecretError: ")
    assert gradual.refine().certificate.epsilon == 0.2


@pytest.mark.claim("K-1")
@pytest.mark.claim("R-4")
@pytest.mark.parametrize("coins", [False, True])
def test_a_fork_of_a_session_with_a_ledger_writes_nothing(coins: bool, tmp_path: Path) -> None:
    begin = of_coins if coins else open_session
    with begin(tmp_path, ledger=tmp_path / "study.db") as session:
        asked = {"share": 0.1} if coins else {"budget": pac.Information(0.1), "rule": "waterfill"}
        mechanism = np.mean if coins else mean
        session.release(mechanism, **asked)
        files = {path.name: path.read_bytes() for path in tmp_path.glob("*.session")}
        n_entries = len(Ledger(tmp_path / "study.db").entries())

        def release() -> Any:
            return session.release(mechanism, **asked)

        assert in_fork(release).startswith("SecretError: ")
        assert {path.name: path.read_bytes() for path in tmp_path.glob("*.session")} == files
        assert len(Ledger(tmp_path / "study.db").entries()) == n_entries
        release()


@pytest.mark.claim("K-1")
def test_a_fork_cannot_use_a_reservation(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "study.db")
    ledger.create_budget("people", limits=Spent(mi_nats=1))
    reservation = ledger.reserve("people", "ann", Spent(mi_nats=0.1), "mean")
    number = os.getpid()

    def attempt() -> Any:
        os.getpid = lambda: number
        return ledger.commit(reservation, "ab" * 32)

    assert in_fork(attempt).startswith("LedgerError: reservation must be used by the process")
    assert sys.modules["os"].getpid() == number
    with pytest.raises(LedgerError, match="must stay in its process"):
        pickle.dumps(reservation)
    ledger.commit(reservation, "ab" * 32)
