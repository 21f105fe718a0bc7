"""A coin for every unit: independent, with one probability of being used.

Coins are drawn once, from the operating system, or follow from a secret key and the unit's id. The
second way gives a unit that arrives later its own coin, and an old one keeps it. Nothing of the
size of the table is secret then but the key. A :class:`Roster` recognises units in later tables.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal, Self
from uuid import UUID

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Mask, Vector, as_told
from pacprivacy._random import BitSource
from pacprivacy.errors import PoolError
from pacprivacy.sample.pool import Codes, encode_pool_labels

KEEP_CHOICES: Final = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
FEWEST_LEFT_OUT: Final = 20  # on average; below it a guess "used" is right about nearly everybody
TYPICAL_LEFT_OUT: Final = 100  # what the default leaves out at least
LEAST_KEEP: Final = 2.0**-11  # down to here a float is a whole number of 2^-64
KEY_BYTES: Final = 32
MOST_ROWS_PER_UNIT: Final = 1 << 20
_WORDS: Final = 1 << 64
_ATTOSECONDS: Final = {
    "W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3_600 * 10**18, "m": 60 * 10**18,
    "s": 10**18, "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 1000, "as": 1,
}  # fmt: skip
MARK_BYTES: Final = 16  # of a unit's id, hashed
WIDEST_ID: Final = 16  # characters of a number with leading zeros, or with spaces
_LIKE_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]{1,30}(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\s*")
_ENCODINGS: Final = ("utf-8", "cp1252", "latin-1", "cp1250", "cp850", "mac_roman")
_AS_NUMBERS: Final = "numbers such as 7 for texts such as 007"
_AS_TEXTS: Final = "texts such as 007 for numbers such as 7"
_ENCODED: Final = "letters in another encoding"
_ADVICE: Final = {
    _AS_NUMBERS: 'Read the column of ids as texts, as before: with a schema, type = "id".',
    _AS_TEXTS: "Write those ids as before, without leading zeros; or begin a new session with a "
    'schema that says type = "id", which keeps ids as they are written.',
    _ENCODED: "Name the encoding of the file: --encoding cp1252, or encoding = in a schema.",
}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Coins:
    """Every unit is used with probability ``keep``, by a separate coin.

    Parameters
    ----------
    keep : float in (0, 1], public, optional
        By default the largest of .9, .95, .98, .99, .995 and .999 that leaves out at least 100
        units on average; .9 below 1,000 units. With 1 everybody is used: the promise then compares
        a release with the one that the unit has no part in.
    clip : "auto", float or None, public
        How much one unit may add to sums, 1 being the influence of the tenth largest unit. "auto"
        takes the radius of the least predicted error, not above 1; None keeps outliers as they
        are, and the noise then reveals the size of the largest.
    rows_per_unit : int, public, optional
        Hide also that a unit is in the table at all: differential privacy. Noise then follows from
        declared ranges, levels and this largest number of rows of a unit, never from records;
        further rows of a unit are not used, and ``clip`` has no part. ``keep`` is 1 by default.

    Examples
    --------
    >>> Coins().resolve(32_561), Coins().resolve(500), Coins(keep=0.95).resolve(500)
    (0.995, 0.9, 0.95)
    """

    keep: float | None = None
    clip: float | Literal["auto"] | None = "auto"
    rows_per_unit: int | None = None

    def __post_init__(self) -> None:
        rows = self.rows_per_unit
        if rows is not None and not (type(rows) is int and 1 <= rows <= MOST_ROWS_PER_UNIT):
            raise PoolError(
                f"rows_per_unit must be a whole number from 1 to {MOST_ROWS_PER_UNIT}; got "
                f"{as_told(rows)}. Declare how many rows of a unit are used at most."
            )
        if rows is not None and self.clip != "auto":
            raise PoolError(
                "clip must be left out with rows_per_unit: declared ranges take its place; got "
                f"{as_told(self.clip)}. Drop it."
            )
        if self.keep is None:
            return
        try:
            keep = float(self.keep)
        except (TypeError, ValueError, OverflowError):
            keep = math.nan
        if isinstance(self.keep, bool) or not LEAST_KEEP <= keep <= 1.0:
            raise PoolError(
                f"keep must be between {LEAST_KEEP:g} and 1; got {as_told(self.keep)}. Leave it "
                "out for a choice by the number of units."
            )
        object.__setattr__(self, "keep", keep)

    def resolve(self, n_units: int) -> float:
        """Return the probability with which a unit is used; refuse tables that are too small."""
        if self.keep == 1.0:
            return 1.0
        keep = self.keep
        if self.rows_per_unit is not None:  # the number of units must not show
            return 1.0 if keep is None else keep
        if keep is None:
            large = [k for k in KEEP_CHOICES if left_out_on_average(n_units, k) >= TYPICAL_LEFT_OUT]
            keep = max(large, default=KEEP_CHOICES[0])
        if left_out_on_average(n_units, keep) < FEWEST_LEFT_OUT:
            raise PoolError(
                f"coins must leave out at least {FEWEST_LEFT_OUT} units on average; got "
                f"{n_units} units and keep={keep:g}. Choose a smaller keep, use a pool "
                "(pac.Balanced), or keep=1 to use everybody."
            )
        return keep


def left_out_on_average(n_units: int, keep: float) -> Fraction:
    """Return the number of units left out on average, for ``keep`` as written."""
    return n_units * (1 - Fraction(repr(float(keep))))


def coin_threshold(keep: float) -> int:
    """Return the number of 64-bit words that mean *used*.

    Guarantee
    ---------
    Claim C-1. ``keep`` times 2^64 is a whole number for every float from 2^-11 to 1, so the
    probability is ``keep`` itself.
    """
    threshold = Fraction(float(keep)) * _WORDS
    if not (LEAST_KEEP <= keep <= 1.0 and threshold.denominator == 1):
        raise PoolError(
            f"keep must be between {LEAST_KEEP:g} and 1; got {as_told(keep)}. Use Coins.resolve."
        )
    return int(threshold)


def draw_coins(n_units: int, keep: float, source: BitSource) -> Mask:
    """Draw one coin for every unit; True means *used* (secret).

    Guarantee
    ---------
    Claim C-1. Assumes independent uniform words from ``source``. Ensures that the coins are
    independent and that each is True with probability ``keep``, exactly. One word is taken for
    every unit, whatever the coins are.
    """
    threshold = coin_threshold(keep)
    words = source.words(n_units)
    if threshold == _WORDS:
        return np.ones(n_units, dtype=np.bool_)
    return np.asarray(words < np.uint64(threshold))


def keyed_coins(unit_ids: Sequence[bytes], keep: float, key: bytes) -> Mask:
    """Return the coin of every unit by a keyed hash of its id; True means *used* (secret).

    ``unit_ids`` are those of :func:`canonical_unit_ids`. The coin of a unit depends on its id, the
    key and ``keep`` alone.

    Guarantee
    ---------
    Claim C-1. Assumes that BLAKE2b under a secret key from the operating system is a random
    function of the ids. Ensures the law of :func:`draw_coins` for units of different ids.
    """
    if len(key) != KEY_BYTES:
        raise PoolError(
            f"key must be {KEY_BYTES} bytes; got {len(key)}. Take one from the operating system."
        )
    threshold = coin_threshold(keep)
    keyed = hashlib.blake2b(key=key, digest_size=8)
    words = np.empty(len(unit_ids), dtype=np.uint64)
    for i, unit_id in enumerate(unit_ids):
        state = keyed.copy()
        state.update(unit_id)
        words[i] = int.from_bytes(state.digest(), "little")
    if threshold == _WORDS:
        return np.ones(len(unit_ids), dtype=np.bool_)
    return np.asarray(words < np.uint64(threshold))


def code_units(labels: npt.ArrayLike, n_records: int) -> tuple[Codes, tuple[bytes, ...]]:
    """Return the unit number of every row, and the canonical id of every unit.

    Units are numbered in order of first appearance. Labels with the same canonical id are one
    unit, so that no two units ever share a coin; labels that are missing are refused.

    Examples
    --------
    >>> codes, ids = code_units(np.array([7, "7.0", "a", 7.0], dtype=object), 4)
    >>> codes.tolist(), ids
    ([0, 0, 1, 0], (b'n7', b'ta'))
    """
    codes, n_labels = encode_pool_labels(labels, n_records, name="units")
    values = np.asarray(labels)
    first = np.full(n_labels, n_records, dtype=np.int64)
    np.minimum.at(first, codes, np.arange(n_records))
    plain = values.dtype.kind in "biufSU" and values.dtype != np.longdouble
    ids = canonical_unit_ids(values[first].tolist() if plain else values[first])
    numbers: dict[bytes, int] = {}
    merged = np.array([numbers.setdefault(each, len(numbers)) for each in ids], dtype=np.int32)
    return merged[codes], tuple(numbers)


def check_exact_ids(labels: Any) -> None:
    """Refuse floats so large that they may be rounded: another table may have them exactly."""
    array = np.asarray(labels)
    floats = [array] if array.dtype.kind == "f" else []
    if array.dtype.kind == "O":
        floats = [np.array([each for each in array.flat if isinstance(each, float)])]
    for each in floats:
        largest = 2.0 ** (np.finfo(each.dtype).nmant + 1)
        if (np.abs(each) >= largest).any():
            raise PoolError(
                f"ids must be whole numbers or texts where floats would round them; got floats of "
                f"{largest:.0f} or more. Read the column of ids as texts."
            )


def canonical_unit_ids(labels: Sequence[Any] | npt.NDArray[Any]) -> list[bytes]:
    """Return bytes that are equal for labels of one unit, in every process and from every reader.

    7, 7.0, ``"7"``, ``"7.0"`` and ``b"7"`` are one; so are an instant in any unit and time zone,
    and a UUID and its text. Labels whose text may differ from process to process are refused.
    """
    return [_canonical(label) for label in labels]


def _canonical(label: Any) -> bytes:
    if isinstance(label, np.datetime64 | np.timedelta64):
        return _time_id(label)  # item() makes plain integers of some of them
    plain = label.item() if isinstance(label, np.generic) else label
    if isinstance(plain, int):  # True is 1, as for Python
        return b"n%d" % plain
    if isinstance(plain, float) and plain.is_integer():
        return b"n%d" % int(plain)  # repr would round from 2^53 on
    if isinstance(plain, float | Decimal):
        return _number(format(Decimal(repr(plain)) if isinstance(plain, float) else plain, "f"))
    if isinstance(plain, bytes):
        try:
            plain = plain.decode()
        except UnicodeDecodeError:
            return b"b%b" % plain
    if isinstance(plain, str):
        return _number(plain) if _NUMBER.fullmatch(plain) else b"t" + _encode(plain)
    return _other_id(plain)


def _other_id(label: Any) -> bytes:
    if isinstance(label, np.longdouble):
        return _canonical(float(label) if label == float(label) else str(label))
    if isinstance(label, Fraction):
        return _canonical(label.numerator) if label.denominator == 1 else b"t" + _encode(str(label))
    if isinstance(label, UUID):
        return b"t" + _encode(str(label))
    if isinstance(label, date | timedelta):
        return _time_id(label)
    if isinstance(label, tuple):
        parts = [_canonical(part) for part in label]
        return b"s" + b"".join(b"%d:%b" % (len(part), part) for part in parts)
    raise PoolError(
        "units must be numbers, texts, dates, UUIDs, or tuples of these; got "
        f"{type(label).__name__}. Use strings or integers."
    )


def _time_id(label: Any) -> bytes:
    """Return a date, an instant or a span in exact units; an instant without a zone is in UTC."""
    if isinstance(label, datetime) and label.tzinfo is not None:
        label = label.astimezone(UTC).replace(tzinfo=None)
    # Instants of pandas know their nanoseconds, which Python's classes drop.
    exact = label.asm8 if hasattr(label, "asm8") else label
    if isinstance(exact, date):
        exact = np.datetime64(exact)
    elif isinstance(exact, timedelta):
        exact = np.timedelta64(exact)
    unit, steps = np.datetime_data(exact.dtype)
    if unit in ("Y", "M") and isinstance(exact, np.datetime64):  # the first day of it
        exact, unit, steps = exact.astype("M8[D]"), "D", 1
    if unit not in _ATTOSECONDS:
        raise PoolError(
            "units must be dates or spans of a fixed length; got months or years. Use strings."
        )
    kind = b"d" if isinstance(exact, np.datetime64) else b"p"
    return kind + b"%d" % (int(exact.astype(np.int64)) * steps * _ATTOSECONDS[unit])


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _number(text: str) -> bytes:
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return b"n" + ("0" if short in ("-0", "") else short).encode()


# --- units that a session has met ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roster:
    """The units that a session has met: a mark for each, in the order of the clocks.

    ``places`` are those of the table's units among them, ``n_known`` of which came before.
    """

    marks: npt.NDArray[np.void] = field(repr=False)
    places: npt.NDArray[np.int64] = field(repr=False)
    n_known: int

    @classmethod
    def of(cls, marks: bytes, unit_ids: tuple[bytes, ...]) -> Self:
        """Find the units of a table among those that are known, and add the new ones."""
        mark_type = np.dtype((np.void, MARK_BYTES))
        known = np.frombuffer(marks, dtype=mark_type).tolist()
        places: dict[bytes, int] = {mark: i for i, mark in enumerate(known)}
        n_before = len(places)
        here = [places.setdefault(mark, len(places)) for mark in map(_mark, unit_ids)]
        if len(set(here)) < len(here):
            raise PoolError("units must differ; got two of one mark. Rename one of them.")
        known_places = np.array(here, dtype=np.int64)
        whole = np.frombuffer(b"".join(places), dtype=mark_type)
        return cls(
            marks=whole, places=known_places, n_known=int(np.count_nonzero(known_places < n_before))
        )

    def check_spellings(self, unit_ids: tuple[bytes, ...], n_before: int) -> None:
        """Refuse new units that are known by another spelling, and are not in the table by it.

        Guarantee
        ---------
        Claim C-16. Ids that are read as another type, or in another encoding, than before begin no
        new clock: 007 read as 7 or the other way round, and José read as JosÃ©.
        """
        away = set(self.marks[:n_before].tolist()) - set(self.marks[self.places].tolist())
        if not away:
            return
        new = (i for i, place in zip(unit_ids, self.places, strict=True) if place >= n_before)
        for change, spelled in (each for unit_id in new for each in _spellings(unit_id)):
            if _mark(spelled) in away:
                raise PoolError(
                    f"ids must be read as in earlier releases; got {change}, which would give "
                    f"known units a new coin and a new clock. {_ADVICE[change]} If they are other "
                    "people, give them other ids. Nothing was charged."
                )

    def spread(self, charges: Vector) -> Vector:
        """Return charges of all units that the session has met: none for those who are away."""
        every = np.zeros(len(self.marks))
        every[self.places] = charges
        return every

    def largest_absent(self, clocks: Vector) -> float:
        """Return the clock of the busiest unit that is not in the table."""
        away = np.ones(len(clocks), dtype=np.bool_)
        away[self.places] = False
        return float(clocks[away].max(initial=0.0))


def _mark(unit_id: bytes) -> bytes:
    return hashlib.blake2b(unit_id, digest_size=MARK_BYTES).digest()


def _spellings(unit_id: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield other spellings of an id, with the change that leads to each."""
    text = unit_id[1:].decode("utf-8", "surrogatepass") if unit_id[:1] in (b"n", b"t") else ""
    if unit_id[:1] == b"n" and text.isdecimal():
        for width in range(len(text) + 1, WIDEST_ID + 1):
            for padded in (text.zfill(width), text.rjust(width), text.ljust(width)):
                yield _AS_NUMBERS, b"t" + padded.encode()
    elif _LIKE_NUMBER.fullmatch(text) and math.isfinite(float(text)):
        number = int(text) if text.strip().lstrip("+-").isdecimal() else float(text)
        yield _AS_TEXTS, canonical_unit_ids([number])[0]
    if text.isascii():
        return
    for form in ("NFC", "NFD"):
        yield _ENCODED, b"t" + unicodedata.normalize(form, text).encode("utf-8", "surrogatepass")
    for read, written in itertools.permutations(_ENCODINGS, 2):
        with suppress(UnicodeError):
            yield _ENCODED, b"t" + text.encode(read).decode(written).encode()
