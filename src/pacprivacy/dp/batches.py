"""Which records a step of descent looks at: batches that nobody outside gets to see.

A batch is a public rule. Which records it picks is secret and drawn from the operating system;
not even their number leaves, since sums are divided by the expected size.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._random import BitSource
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.release import NEIGHBOURS, Neighbours

Places = npt.NDArray[np.int64]
_WORD: Final = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonBatch:
    """Every record is in with the same probability, independently of all others.

    Parameters
    ----------
    size : float > 0, public
        Expected size; sums are divided by it.
    n_public : int, public
        Number of records as far as it is public; a guess will do. The probability is
        ``size / n_public``. The true number is what adding or removing a record changes, so it
        is not used.

    Examples
    --------
    >>> PoissonBatch(size=50, n_public=1000).rate
    0.05
    """

    size: float
    n_public: int

    def __post_init__(self) -> None:
        check_count("n_public", self.n_public)
        if not 0 < self.size <= self.n_public:
            raise BudgetError(
                f"size must be above 0 and at most n_public; got {self.size!r} of "
                f"{self.n_public}. Use for example a twentieth of n_public."
            )

    @property
    def rate(self) -> float:
        """Probability of every record."""
        return self.size / self.n_public

    @property
    def neighbours(self) -> Neighbours:
        """Adding or removing a record."""
        return "add_remove"

    def size_for(self, n_records: int) -> float:
        """Return the expected size."""
        return float(self.size)

    def draw(self, n_records: int, source: BitSource) -> Places:
        """Toss one coin for each record; its rate is rounded down to a multiple of 2^-64."""
        if self.size == self.n_public:
            return np.arange(n_records)
        limit = np.uint64(min(_WORD - 1, math.floor(self.rate * _WORD)))
        return np.flatnonzero(source.words(n_records) < limit)

    def describe(self, n_records: int) -> str:
        """Return the rule in words."""
        return f"Poisson batches of rate {self.rate:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedBatch:
    """A uniformly random set of ``size`` different records.

    Parameters
    ----------
    size : int, public
        Number of records in a batch. The number of all records is public: the promise is about
        replacing one of them.

    Examples
    --------
    >>> FixedBatch(size=50).neighbours
    'replace'
    """

    size: int

    def __post_init__(self) -> None:
        check_count("size", self.size)

    @property
    def neighbours(self) -> Neighbours:
        """Replacing a record."""
        return "replace"

    def size_for(self, n_records: int) -> float:
        """Return the size; refuse fewer records."""
        if self.size > n_records:
            raise DataError(
                f"size must be at most the number of records, {n_records}; got {self.size}. "
                "Use smaller batches."
            )
        return float(self.size)

    def draw(self, n_records: int, source: BitSource) -> Places:
        """Draw records one after the other, passing over those that were drawn before."""
        # Of a large batch, those left out are fewer and take fewer draws.
        n_drawn = min(self.size, n_records - self.size)
        found = np.empty(0, dtype=np.int64)
        while len(found) < n_drawn:
            more = np.append(found, _draw_below(n_records, n_drawn, source))
            _, first = np.unique(more, return_index=True)
            found = more[np.sort(first)][:n_drawn]
        if n_drawn == self.size:
            return found
        left = np.ones(n_records, dtype=np.bool_)
        left[found] = False
        return np.flatnonzero(left)

    def describe(self, n_records: int) -> str:
        """Return the rule in words."""
        return f"batches of {self.size} of {n_records} records without replacement"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementBatch:
    """``size`` independent uniform draws; a record may be drawn several times.

    Parameters
    ----------
    size : int, public
        Number of draws. The number of all records is public: the promise is about replacing one.

    Examples
    --------
    >>> ReplacementBatch(size=50).neighbours
    'replace'
    """

    size: int

    def __post_init__(self) -> None:
        check_count("size", self.size)

    @property
    def neighbours(self) -> Neighbours:
        """Replacing a record."""
        return "replace"

    def size_for(self, n_records: int) -> float:
        """Return the number of draws; refuse to draw from nobody."""
        _check_any(n_records)
        return float(self.size)

    def draw(self, n_records: int, source: BitSource) -> Places:
        """Draw records independently."""
        return _draw_below(n_records, self.size, source)

    def describe(self, n_records: int) -> str:
        """Return the rule in words."""
        return f"batches of {self.size} draws with replacement from {n_records} records"


@dataclass(frozen=True, slots=True, kw_only=True)
class FullBatch:
    """All records in every step: DP-GD.

    Parameters
    ----------
    n_public : int, optional, public
        Number of records as far as it is public, by which sums are divided. Under ``replace``
        the number itself is public and is the default.
    neighbours : {"add_remove", "replace"}, public
        Relation that the promise is about; replacement needs twice the noise.

    Examples
    --------
    >>> FullBatch(n_public=1000).neighbours
    'add_remove'
    """

    n_public: int | None = None
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        if self.neighbours not in NEIGHBOURS:
            raise BudgetError(
                f"neighbours must be 'add_remove' or 'replace'; got {self.neighbours!r}. "
                "Use 'add_remove'."
            )
        if self.n_public is not None:
            check_count("n_public", self.n_public)
        elif self.neighbours == "add_remove":
            raise BudgetError(
                "n_public must be given where records may be added or removed: their true number "
                "is not public; got None. Pass a public estimate, or use neighbours='replace'."
            )

    def size_for(self, n_records: int) -> float:
        """Return the public number of records; refuse none, where the true one is public."""
        if self.n_public is not None:
            return float(self.n_public)
        _check_any(n_records)
        return float(n_records)

    def draw(self, n_records: int, source: BitSource) -> Places:
        """Return all records."""
        return np.arange(n_records)

    def describe(self, n_records: int) -> str:
        """Return the rule in words."""
        return "all records in every step"


Batch: TypeAlias = PoissonBatch | FixedBatch | ReplacementBatch | FullBatch


def _check_any(n_records: int) -> None:
    """Refuse no records at all, where their number is public."""
    if n_records == 0:
        raise DataError("X must have at least one row; got none. Pass one row for each record.")


def _draw_below(bound: int, size: int, source: BitSource) -> Places:
    """Draw ``size`` integers uniformly from ``0 .. bound-1``, exactly (by rejection)."""
    limit = np.uint64((_WORD // bound) * bound - 1)
    words = source.words(size).copy()
    while (again := np.flatnonzero(words > limit)).size:
        words[again] = source.words(again.size)
    return (words % np.uint64(bound)).astype(np.int64)


def check_count(name: str, value: Any) -> None:
    """Refuse anything but a whole number of at least 1."""
    try:
        good = operator.index(value) >= 1 and not isinstance(value, bool)
    except TypeError:
        good = False
    if not good:
        raise BudgetError(f"{name} must be a whole number of at least 1; got {value!r}.")
