"""A session on tables that grow: old units keep coin and clock, new ones start, all exact."""

import re
import subprocess
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.adversary import cap_success, session_cap
from pacprivacy.errors import CertificateError, PoolError
from pacprivacy.ledger import Ledger
from pacprivacy.mechanism import Descent, coerce_data
from pacprivacy.release import CoinBundle, DescentBundle, recompute_descent
from pacprivacy.sample import Roster, keyed_coins
from pacprivacy.session import SampleOptions
from pacprivacy.session.coin_secret import CoinSecret, CoinState
from pacprivacy.session.state import SessionState
from tests.monthly import (
    AWAY,
    BUSY,
    LATE,
    N_MONTHS,
    TOTAL,
    frames_of_month,
    release_month,
    tables_of_month,
)

pytestmark = pytest.mark.claim("C-16")
IN_A_PROCESS = (4, 9)  # the other months are sessions of this one
ROOT = Path(__file__).parents[3]


@dataclass
class Year:
    """Twelve releases: their certificates, bundles, and who was in the tables."""

    folder: Path
    certificates: list[Any]
    bundles: list[CoinBundle]
    people: list[list[str]]
    states: list[CoinState]


def state_of(folder: Path) -> CoinState:
    (path,) = folder.glob("*.session")
    state, _ = SessionState.from_bytes(path.read_bytes())
    assert isinstance(state, CoinState)
    return state


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Year:
    made = Year(tmp_path_factory.mktemp("year"), [], [], [], [])
    for month in range(1, N_MONTHS + 1):
        if month in IN_A_PROCESS:
            command = [sys.executable, "-m", "tests.monthly", str(made.folder), str(month)]
            subprocess.run(command, check=True, cwd=ROOT, timeout=120)
        else:
            release_month(made.folder, month)
        saved = made.folder / f"{month:02d}"
        made.certificates.append(pac.Release.load(saved).certificate)
        made.bundles.append(CoinBundle.load(saved / "curator.npz"))
        made.people.append(sorted(frames_of_month(month)["people"].person))
        made.states.append(state_of(made.folder))
    return made


def mark_of(person: str) -> bytes:
    return bytes(Roster.of(b"", (b"t" + person.encode(),)).marks.tobytes())


def clock_of(state: CoinState, person: str) -> float:
    marks = [state.marks[i : i + 16] for i in range(0, len(state.marks), 16)]
    return float(state.clocks.spent[marks.index(mark_of(person))])


def test_what_everybody_has_paid_is_exact(year: Year) -> None:
    paid: dict[str, float] = {}
    for bundle, people, state in zip(year.bundles, year.people, year.states, strict=True):
        assert len(bundle.charges) == len(people) == bundle.n_units
        for person, charge in zip(people, bundle.charges, strict=True):
            paid[person] = paid.get(person, 0.0) + charge**2
        clocks = {person: clock_of(state, person) for person in paid}
        assert clocks == pytest.approx(paid, rel=1e-12)
        assert len(state.clocks.spent) == len(paid)
        assert state.clocks.busiest <= session_cap(0.6)
    assert paid[LATE] == sum(
        bundle.charges[people.index(LATE)] ** 2
        for bundle, people in zip(year.bundles[6:], year.people[6:], strict=True)
    )
    assert LATE not in year.people[5]
    assert paid[LATE] < paid[BUSY]


def test_everybody_keeps_their_coin(year: Year) -> None:
    keys = {state.key for state in year.states}
    assert len(keys) == 1
    assert {state.coins.keep for state in year.states} == {0.9}
    ids = tuple(b"t" + person.encode() for person in year.people[0])
    first = keyed_coins(ids, 0.9, keys.pop())
    data = coerce_data(tables_of_month(12))
    secret = CoinSecret(data, SampleOptions(rng=0), pac.Coins())
    secret.go_on(year.states[-1])
    secret.draw(_NoSource())
    assert secret._held is not None
    assert secret._ids is not None
    last = dict(zip(secret._ids, secret._held._kept, strict=True))
    assert [bool(last[i]) for i in ids] == first.tolist()


class _NoSource:
    """Nothing is drawn: the key is that of the session."""

    def words(self, n: int) -> Any:
        raise AssertionError("a resumed session drew new coins")


def test_who_was_away_goes_on_where_the_clock_stood(year: Year) -> None:
    before, after = year.states[2], year.states[7]
    assert AWAY not in year.people[3]
    assert clock_of(before, AWAY) == clock_of(after, AWAY) > 0
    assert clock_of(year.states[8], AWAY) > clock_of(after, AWAY)


def test_each_release_says_the_total_and_records_its_table(year: Year) -> None:
    for number, certificate in enumerate(year.certificates, start=1):
        assert certificate.composition["release_number"] == number
        assert certificate.composition["total_success"] == cap_success(session_cap(0.6))
    digests = [bundle.session.data_digest for bundle in year.bundles if bundle.session]
    assert len(set(digests)) == N_MONTHS
    assert all(digests)
    for month in (1, 7, 12):
        folder = year.folder / f"{month:02d}"
        pac.verify(pac.Release.load(folder).certificate, folder / "curator.npz")
    with pytest.raises(CertificateError):
        pac.verify(year.certificates[3], year.bundles[4])


def test_who_knows_everybody_else_stays_below_the_cap(year: Year) -> None:
    """All twelve releases, the integers of one person and noise of the bundles' scales."""
    rng, best = np.random.default_rng(0), 0.0
    for person in (BUSY, LATE, year.people[0][np.argmax(year.bundles[0].charges)]):
        squares = 0.0
        for bundle, people in zip(year.bundles, year.people, strict=True):
            if person not in people:
                continue
            cells = np.repeat(np.arange(len(bundle.starts) - 1), np.diff(bundle.starts))
            own = bundle.units == people.index(person)
            moved = bundle.integers[own] / bundle.units_per_std[cells[own]]
            squares += float(np.square(moved).sum())
        used = rng.random(400_000) < 0.5
        evidence = np.sqrt(squares) * rng.normal(size=len(used)) + squares * (used - 0.5)
        best = max(best, float(((evidence > 0) == used).mean()))
    assert 0.595 < best < 0.6 + 3 * 0.5 / np.sqrt(400_000)


def test_keys_may_change_from_numbers_to_texts(tmp_path: Path) -> None:
    def clinic(kind: type) -> pac.Tables:
        people = pd.DataFrame({"id": [kind(i) for i in range(300)]})
        return pac.Tables({"people": people}, unit="people.id")

    path = tmp_path / "study.db"
    for kind in (int, str):
        with pac.Session(clinic(kind), budget=TOTAL, ledger=path) as session:
            session.sql("SELECT count(*) AS n FROM people", share=0.3)
    assert len(state_of(tmp_path).clocks.spent) == 300


def test_a_table_of_strangers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    for names in ("a", "b"):
        people = pd.DataFrame({"id": [f"{names}{i}" for i in range(300)]})
        tables = pac.Tables({"people": people}, unit="people.id")
        if names == "b":
            with pytest.raises(PoolError, match="by the same names"):
                pac.Session(tables, ledger=path)
            return
        with pac.Session(tables, budget=TOTAL, ledger=path) as session:
            session.sql("SELECT count(*) AS n FROM people", share=0.3)


def _clinic(ids: list[Any]) -> pac.Tables:
    texts = any(isinstance(each, str) for each in ids)  # one type in a column
    people = pd.DataFrame({"id": [str(each) for each in ids] if texts else ids})
    return pac.Tables({"people": people}, unit="people.id")


PADDED = [f"{i:03d}" for i in range(300)]
NAMES = [f"José {i}" if i < 40 else f"Ann {i}" for i in range(300)]


@pytest.mark.claim("C-1")
@pytest.mark.parametrize(
    ("first", "then", "change"),
    [
        (list(range(300)), [*PADDED, "A01"], "texts such as 007 for numbers such as 7"),
        (PADDED, [*range(300), 1000], "numbers such as 7 for texts such as 007"),
        ([f"{i:3d}" for i in range(300)], [*range(300)], "numbers such as 7 for texts"),
        ([f"{i:<3d}" for i in range(300)], [*range(300)], "numbers such as 7 for texts"),
        ([*PADDED, "A01"], ["A01", *range(300)], "numbers such as 7 for texts such as 007"),
        ([7.5, *range(300)], ["7.50", *map(str, range(299)), "+299"], "texts such as 007"),
        (NAMES, [n.encode().decode("cp1252") for n in NAMES], "letters in another encoding"),
        ([n.encode().decode("cp1252") for n in NAMES], NAMES, "letters in another encoding"),
        ([n.encode("cp1252").decode("cp850") for n in NAMES], NAMES, "letters in another encoding"),
        (NAMES, [unicodedata.normalize("NFD", n) for n in NAMES], "letters in another encoding"),
    ],
)
def test_ids_that_are_read_otherwise_are_refused(
    tmp_path: Path, first: list[Any], then: list[Any], change: str
) -> None:
    """Before anything is charged: a new coin and a new clock would break the promise."""
    path = tmp_path / "study.db"
    with pac.Session(_clinic(first), budget=TOTAL, ledger=path, dataset="d") as session:
        session.sql("SELECT count(*) AS n FROM people", share=0.3)
    kept, spent = state_of(tmp_path), Ledger(path).balance("d", "default")
    with pytest.raises(PoolError, match=re.escape(change)) as refused:
        pac.Session.resume(_clinic(then), ledger=path, dataset="d")
    assert "Nothing was charged" in str(refused.value)
    assert state_of(tmp_path).clocks.spent.tolist() == kept.clocks.spent.tolist()
    assert Ledger(path).balance("d", "default") == spent
    with pac.Session.resume(_clinic([*first, "new", "00x", "Zoë"]), ledger=path, dataset="d") as s:
        s.sql("SELECT count(*) AS n FROM people", share=0.3)


@pytest.mark.parametrize("kind", [np.float64, np.float32, object])
def test_ids_that_a_float_would_round_are_refused(kind: Any) -> None:
    """Whole numbers with a gap become floats in a frame: most would be others, with a new clock."""
    ids = np.arange(300.0).astype(kind)
    ids[-1] = float(2**24 if kind is np.float32 else 2**53)
    people = pd.DataFrame({"id": ids, "x": np.arange(300.0)})
    with pytest.raises(PoolError, match="floats would round"):
        pac.Session(people, budget=TOTAL, sample=pac.Coins(), units="id")
    tables = pac.Tables({"people": people.astype({"id": float})}, unit="people.id")
    if kind is not np.float32:
        with pytest.raises(PoolError, match="floats would round"):
            pac.Session(tables, budget=TOTAL)


def test_two_spellings_in_one_table_are_two_people(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    for ids in (PADDED, [*PADDED, "7", "0007"]):
        with pac.Session(_clinic(ids), budget=TOTAL, ledger=path) as session:
            session.sql("SELECT count(*) AS n FROM people", share=0.3)
    assert len(state_of(tmp_path).clocks.spent) == 302


def test_keys_that_are_one_number_are_one_unit(tmp_path: Path) -> None:
    people = pd.DataFrame({"id": [*(str(i) for i in range(300)), *(f"{i}.0" for i in range(5))]})
    tables = pac.Tables({"people": people}, unit="people.id")
    with pac.Session(tables, budget=TOTAL) as session:
        assert session._secret.n_units == 300
        session.sql("SELECT count(*) AS n FROM people", share=0.3)


@pytest.mark.claim("C-14")
def test_a_descent_is_paid_by_those_who_are_in_the_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(700, 2))
    labels = (features[:, 0] + rng.logistic(size=700) > 0).astype(int)
    fit = Descent(n_steps=3)

    def ask(people: np.ndarray, **options: Any) -> DescentBundle:
        rows, units = (features[people], labels[people]), people
        with pac.Session(rows, units=units, ledger=tmp_path / "book.db", **options) as session:
            release = session.release(fit, share=0.5)
        release.bundle.save(tmp_path / "curator.npz")
        pac.verify(release.certificate, tmp_path / "curator.npz")
        recompute_descent(tmp_path / "curator.npz", fit, rows, units)
        return release.bundle

    first = ask(np.arange(500), budget="membership<=0.7", sample=pac.Coins())
    ask(np.arange(699, 299, -1))  # in another order; some are new and some away
    clocks = state_of(tmp_path).clocks.spent  # 0 to 499, then 699 to 500
    spent = np.square(first.session.allowed)
    np.testing.assert_allclose(clocks[:300], spent[:300], rtol=1e-9)
    assert (clocks[300:500] > 1.2 * spent[300:500]).all()
    assert (clocks[500:] > 0).all()
    last = ask(np.arange(700))
    np.testing.assert_array_equal(last.session.clocks, np.append(clocks[:500], clocks[:499:-1]))
