"""Columns that say whose row it is, by their names and by how their entries repeat.

Where such a column repeats and is not declared as the unit, a promise about rows would pass for one
about people. Nobody is refused for it: the curator is warned, and shown names of columns alone.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from pacprivacy._checks import Array, shorten
from pacprivacy.errors import UnitWarning
from pacprivacy.mechanism.dates import find_date_formats

_FEW: Final = 10  # levels that nobody takes for names
_FEWEST_PEOPLE: Final = 4
_MOST_ROWS_EACH: Final = 50  # on average; more are places or products, not people
_MOST_COLUMNS: Final = 1000  # whose entries are looked at; of more, those with such a name
_LAST_WORDS: Final = re.compile(
    r"ids?|uuid|guid|key|pseudonym|hash|mrn|ssn|pid|uid|email|login|username|people"
    r"|(person|patient|customer|client|user|subject|member|employee|participant|respondent|student"
    r"|pupil|household|account|individual|citizen|resident|worker|driver|player|passenger|buyer"
    r"|owner|donor|child|mother|guest|tenant|borrower|insured|policyholder)(s|id)?"
)
_NUMBERED: Final = re.compile(r"nr|no|num|number")
_MOMENTS: Final = ("year", "month", "week", "day", "hour", "time", "date", "quarter", "wave")
Entries = tuple[Array, Array | None]
_CODE: Final = re.compile(r"[A-Za-z]{1,6}[-_ ]?\d{4,}|\d{6,}|(?=.*\d)[0-9a-fA-F-]{8,}")


def is_identity_column(n_levels: int, n_entries: int) -> bool:
    """Whether text says who somebody is: entries of their own, for all or for most of many."""
    return n_levels == n_entries or (n_levels > _FEW and n_levels >= n_entries / 2)


def is_identity_name(name: str) -> bool:
    """Whether a column of this name may say whose row it is."""
    return _least_people(name) is not None


def repeated_identities(columns: Mapping[str, Callable[[], Entries]]) -> tuple[str, ...]:
    """Return the columns that say whose row it is and have an entry in several rows.

    ``columns`` hold functions that return the entries, and of texts the distinct ones; only those
    with such a name are called where there are many.
    """
    narrow = len(columns) <= _MOST_COLUMNS
    return tuple(
        name
        for name, read in columns.items()
        if (narrow or is_identity_name(name)) and _repeats(name, *read())
    )


def warn_of_identities(names: tuple[str, ...]) -> None:
    """Warn that rows will be protected where people have several."""
    if names:
        warnings.warn(f"{identity_warning(names)} Pass units={names[0]!r}.", UnitWarning, 3)


def identity_warning(names: tuple[str, ...]) -> str:
    """Return what is said of columns of :func:`repeated_identities`; what to do is added."""
    says = "seems to say whose row it is, and repeats"
    if len(names) > 1:
        says = "seem to say whose row it is, and repeat"
    return (
        f"{shorten(names)} {says}: each row is protected, not each person with all of their rows."
    )


def _least_people(name: str) -> int | None:
    """Return from how many entries on a column of this name may be of people; None if of none."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower()
    last = (re.findall(r"[a-z]+", words) or [""])[-1]
    if _LAST_WORDS.fullmatch(last):
        return _FEWEST_PEOPLE
    return _FEW + 1 if _NUMBERED.fullmatch(last) else None


def _repeats(name: str, entries: Array, texts: Array | None) -> bool:
    """Whether entries repeat as those of people do."""
    least = _least_people(name)
    if texts is None and not _is_key(name, entries, running=least is None):
        return False
    distinct = np.unique(entries) if texts is None else texts
    if not len(distinct) < len(entries) <= _MOST_ROWS_EACH * len(distinct):
        return False
    if least is not None:
        return len(distinct) >= least
    if texts is not None:
        codes = len(texts) > _FEW and all(_CODE.fullmatch(str(text)) for text in texts)
        return codes and not find_date_formats([str(text) for text in texts])
    dense = len(distinct) >= 0.9 * (float(distinct[-1]) - float(distinct[0]) + 1)
    return dense and len(distinct) > 5 * _FEW


def _is_key(name: str, numbers: Array, *, running: bool) -> bool:
    """Whether numbers are whole; if ``running``, in order from 0 or 1 on and no moments, too."""
    if numbers.dtype.kind not in "iuf" or not len(numbers):
        return False
    if running:
        moments = any(word in name.lower() for word in _MOMENTS)
        if moments or numbers[0] not in (0, 1) or not (np.diff(numbers) >= 0).all():
            return False
    return numbers.dtype.kind != "f" or not (numbers % 1 != 0).any()
