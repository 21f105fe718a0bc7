"""Batches: which records a step of descent looks at, and the sampling that it counts as."""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np

from pacprivacy._checks import Integers
from pacprivacy._random import BitSource
from pacprivacy.dp.certificate import Neighbours, check_neighbours
from pacprivacy.dp.events import (
    FixedSampling,
    PoissonSampling,
    ReplacementSampling,
)
from pacprivacy.dp.noise import (
    check_count,
)
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.noise import uniform_lattice_integers

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
    """

    neighbours: ClassVar[Neighbours] = "add_remove"
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

    def size_for(self, n_records: int) -> float:
        """Return the expected size."""
        return float(self.size)

    def draw(self, n_records: int, source: BitSource) -> Integers:
        """Toss one coin for each record; its rate is rounded down to a multiple of 2^-64."""
        if self.size == self.n_public:
            return np.arange(n_records)
        limit = np.uint64(min(_WORD - 1, math.floor(self.rate * _WORD)))
        return np.flatnonzero(source.words(n_records) < limit)

    def sampling(self, n_records: int) -> PoissonSampling:
        """Return the rule as an accountant is told it."""
        return PoissonSampling(rate=self.rate)

    def describe(self, n_records: int) -> str:
        """Return the rule in words."""
        return f"Poisson batches of rate {self.rate:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedBatch:
    """So many records, of a public number."""

    neighbours: ClassVar[Neighbours] = "replace"
    size: int

    def __post_init__(self) -> None:
        check_count("size", self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedBatch(_CountedBatch):
    """A uniformly random set of ``size`` different records."""

    def size_for(self, n_records: int) -> float:
        """Return the size; refuse fewer records."""
        if self.size > n_records:
            raise DataError(
                f"size must be at most the number of records, {n_records}; got {self.size}. "
                "Use smaller batches."
            )
        return float(self.size)

    def draw(self, n_records: int, source: BitSource) -> Integers:
        """Draw records one after the other, passing over those that were drawn before."""
        # Of a large batch, those left out are fewer and take fewer draws.
        n_drawn = min(self.size, n_records - self.size)
        found = np.empty(0, dtype=np.int64)
        while len(found) < n_drawn:
            more = np.append(found, _draw_places(n_records, n_drawn, source))
            _, first = np.unique(more, return_index=True)
            found = more[np.sort(first)][:n_drawn]
        if n_drawn == self.size:
            return found
        left = np.ones(n_records, dtype=np.bool_)
        left[found] = False
        return np.flatnonzero(left)

    def sampling(self, n_records: int) -> FixedSampling:
        """Return the rule as an accountant is told it."""
        return FixedSampling(n_records=n_records, batch_size=self.size)

    def describe(self, n_records: int) -> str:
        """Return the rule in words."""
        return f"batches of {self.size} of {n_records} records without replacement"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementBatch(_CountedBatch):
    """``size`` independent uniform draws; a record may be drawn several times."""

    def size_for(self, n_records: int) -> float:
        """Return the number of draws; refuse to draw from nobody."""
        _check_any(n_records)
        return float(self.size)

    def draw(self, n_records: int, source: BitSource) -> Integers:
        """Draw records independently."""
        return _draw_places(n_records, self.size, source)

    def sampling(self, n_records: int) -> ReplacementSampling:
        """Return the rule as an accountant is told it."""
        return ReplacementSampling(n_records=n_records, batch_size=self.size)

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
    """

    n_public: int | None = None
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        check_neighbours(self.neighbours)
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

    def draw(self, n_records: int, source: BitSource) -> Integers:
        """Return all records."""
        return np.arange(n_records)

    def sampling(self, n_records: int) -> None:
        """Return None: nothing is sampled."""

    def describe(self, n_records: int) -> str:
        """Return the rule in words."""
        return "all records in every step"


Batch: TypeAlias = PoissonBatch | FixedBatch | ReplacementBatch | FullBatch


def _check_any(n_records: int) -> None:
    """Refuse no records at all, where their number is public."""
    if n_records == 0:
        raise DataError("X must have at least one row; got none. Pass one row for each record.")


def _draw_places(n_records: int, size: int, source: BitSource) -> Integers:
    return uniform_lattice_integers(np.full(size, n_records, dtype=np.int64), source)
