"""Coins: what is kept by default, exact probabilities, ids of one unit."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from pacprivacy._random import SimulatedSource, SystemSource
from pacprivacy.errors import PoolError
from pacprivacy.sample import Coins, code_units, draw_coins, keyed_coins
from pacprivacy.sample.coins import canonical_unit_ids, coin_threshold

KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("n_units", "keep"),
    [
        (200, 0.9),
        (999, 0.9),
        (1000, 0.9),
        (1999, 0.9),
        (2000, 0.95),
        (5000, 0.98),
        (10_000, 0.99),
        (20_000, 0.995),
        (99_999, 0.995),
        (100_000, 0.999),
        (10**8, 0.999),
    ],
)
def test_the_default_leaves_out_a_hundred(n_units: int, keep: float) -> None:
    assert Coins().resolve(n_units) == keep


def test_small_tables_are_refused_unless_everybody_is_used() -> None:
    for coins, n_units in ((Coins(), 199), (Coins(keep=0.9), 199), (Coins(keep=0.99), 1999)):
        with pytest.raises(PoolError, match="must leave out at least 20 units on average; got"):
            coins.resolve(n_units)
    assert Coins(keep=0.9).resolve(200) == 0.9  # exactly twenty
    assert Coins(keep=0.99).resolve(2000) == 0.99
    assert Coins(keep=1).resolve(3) == 1.0
    assert Coins(keep=0.5).resolve(40) == 0.5


@pytest.mark.parametrize("keep", [0, -1, 1.01, float("nan"), "most", True, 1e-5])
def test_other_probabilities_are_refused(keep: object) -> None:
    with pytest.raises(PoolError, match="keep must be between"):
        Coins(keep=keep)  # type: ignore[arg-type]


@pytest.mark.claim("C-1")
def test_a_coin_has_exactly_the_probability_that_is_stated() -> None:
    for keep in (0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1 / 3, 2.0**-11, 0.5, 1.0):
        assert Fraction(coin_threshold(keep), 2**64) == Fraction(keep)


class Words:
    """Words that are handed in."""

    is_simulation = True

    def __init__(self, words: list[int]) -> None:
        self.left = words

    def words(self, size: int) -> np.ndarray:
        taken, self.left = self.left[:size], self.left[size:]
        return np.array(taken, dtype=np.uint64)


@pytest.mark.claim("C-1")
def test_words_below_the_threshold_mean_used() -> None:
    edge = coin_threshold(0.95)
    source = Words([0, edge - 1, edge, 2**64 - 1])
    assert draw_coins(4, 0.95, source).tolist() == [True, True, False, False]
    source = Words([2**64 - 1] * 3)
    assert draw_coins(2, 1.0, source).all()
    assert len(source.left) == 1  # a word for every unit, whatever keep is
    assert draw_coins(1000, 0.5, SystemSource()).dtype == np.bool_


@pytest.mark.claim("C-1")
def test_coins_have_their_law() -> None:
    n = 200_000
    drawn = draw_coins(n, 0.95, SimulatedSource(0))
    hashed = keyed_coins(canonical_unit_ids(range(n)), 0.95, KEY)
    for coins in (drawn, hashed):
        assert abs(coins.mean() - 0.95) < 5 * np.sqrt(0.95 * 0.05 / n)
        pairs = (coins[1:] & coins[:-1]).mean()
        assert abs(pairs - 0.95**2) < 0.003
    assert abs(np.corrcoef(drawn, hashed)[0, 1]) < 0.02


@pytest.mark.claim("C-1")
def test_a_unit_keeps_its_coin_when_the_table_grows() -> None:
    _, few = code_units(np.array(["b", "a", "b"]), 3)
    _, more = code_units(np.array(["c", "a", "d", "b"]), 4)
    first = dict(zip(few, keyed_coins(few, 0.5, KEY), strict=True))
    later = dict(zip(more, keyed_coins(more, 0.5, KEY), strict=True))
    assert {unit: later[unit] for unit in first} == first
    other = keyed_coins(canonical_unit_ids(range(200)), 0.5, bytes(32))
    assert (other != keyed_coins(canonical_unit_ids(range(200)), 0.5, KEY)).any()
    assert keyed_coins(few, 1.0, KEY).all()
    with pytest.raises(PoolError, match="key must be 32 bytes"):
        keyed_coins(few, 0.5, b"short")


@pytest.mark.claim("C-1")
def test_one_unit_however_its_id_is_written() -> None:
    same = [7, 7.0, np.int32(7), np.float32(7), "7", "7.0", "7.00", Decimal("7.0"), np.str_("7")]
    same += [b"7", np.bytes_(b"7.0"), np.longdouble(7), Fraction(7)]
    assert len(set(canonical_unit_ids(same))) == 1
    apart = ["07", "7a", " 7", 7.5, -7, "seven", b"\xff7", "", "-", "1e3", 1e300, "n7", "t7"]
    assert len({*canonical_unit_ids(apart), *canonical_unit_ids([7])}) == len(apart) + 1
    assert canonical_unit_ids([0.0, -0.0, "0", "-0"])[1:] == canonical_unit_ids([0] * 3)
    assert canonical_unit_ids([True]) == canonical_unit_ids([1])
    # labels that are one unit never become two units with one coin
    codes, ids = code_units(np.array([7, "7.0", 8, "7", "x"], dtype=object), 5)
    assert codes.tolist() == [0, 0, 1, 0, 2]
    assert len(ids) == 3


@pytest.mark.claim("C-1")
def test_one_unit_whatever_the_reader_makes_of_its_id() -> None:
    noon = np.datetime64("2020-05-01T12:00:00")
    stamp = pd.Timestamp("2020-05-01 12:00")
    instants = [*(noon.astype(f"M8[{unit}]") for unit in ("h", "s", "ms", "us", "ns")), stamp]
    instants += [stamp.to_pydatetime(), stamp.tz_localize("UTC")]
    instants += [stamp.tz_localize("UTC").tz_convert("Asia/Tokyo")]
    assert len(set(canonical_unit_ids(instants))) == 1
    days = [
        date(2020, 5, 1),
        np.datetime64("2020-05-01"),
        np.datetime64("2020-05"),
        datetime(2020, 5, 1),
    ]
    assert len(set(canonical_unit_ids(days))) == 1
    spans = [np.timedelta64(5, "s"), np.timedelta64(5 * 10**9, "ns"), timedelta(seconds=5)]
    assert len(set(canonical_unit_ids([*spans, pd.Timedelta(5, "s")]))) == 1
    apart = [stamp + pd.Timedelta(1, "ns"), *days[:1], *instants[:1], spans[0], 5, 5 * 10**9]
    assert len(set(canonical_unit_ids(apart))) == len(apart)
    ids = [code_units(noon.astype(unit).repeat(2), 2)[1] for unit in ("M8[s]", "M8[ns]")]
    assert ids[0] == ids[1]
    # ids above 2^53, as floats where a reader met a gap
    large = 2**62 + 2**40
    assert len(set(canonical_unit_ids([large, float(large), np.uint64(large), str(large)]))) == 1
    number = UUID(int=7)
    assert canonical_unit_ids([number]) == canonical_unit_ids([str(number)])
    pairs = [("a", 1), ("a", 1.0), ("a1",), ("a", "b"), ("a2:n1",), (("a", 1),)]
    assert len(set(canonical_unit_ids(pairs))) == len(pairs) - 1
    assert len(canonical_unit_ids(["\ud800"])[0]) > 1
    # what is written differently in another process would have another coin there
    for label in (object(), frozenset({"a", "b"}), 1j, np.timedelta64(1, "M")):
        with pytest.raises(PoolError, match="units must be"):
            canonical_unit_ids([label])


def test_codes_of_arrays() -> None:
    codes, ids = code_units(np.array([3.0, 1.0, 3.0, 2.5]), 4)
    assert codes.tolist() == [0, 1, 0, 2]
    assert ids == (b"n3", b"n1", b"n2.5")
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-01"], dtype="datetime64[D]")
    assert code_units(days, 3)[0].tolist() == [0, 1, 0]
    with pytest.raises(PoolError, match="no missing labels"):
        code_units(np.array([1.0, np.nan]), 2)
