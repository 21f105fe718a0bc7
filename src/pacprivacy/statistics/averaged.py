"""Statistics that are no functions of sums: how much one unit moves them depends on who is used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy.mechanism import Data

SEVERAL_ROWS: Final = "a {unit} may have several rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinUnits:
    """Whose coins a release rests on: number, name, probability, clipping, public randomness."""

    n_units: int
    unit: str
    keep: float
    clip: float | Literal["auto"] | None
    seed: int


class SampleValue(ABC):
    """The value of a statistic on every sample of the units; curator-only."""

    __slots__ = ()
    n_units: int

    @property
    @abstractmethod
    def on_all(self) -> Vector:
        """The value on all records, as it would be without coins."""

    @abstractmethod
    def value(self, kept: Mask) -> Vector:
        """Return the value on the used units. Defined for *every* sample, also an empty one."""

    @property
    @abstractmethod
    def scales(self) -> Vector:
        """Scales in which the errors of the numbers are compared."""

    def outputs_of(self, numbers: Vector) -> Vector:
        """Return what is released, an affine function of the numbers that noise is added to."""
        return numbers

    @property
    def jacobian(self) -> Matrix | None:
        """Derivatives of what is released, (numbers, outputs); None: the numbers themselves."""
        return None

    @property
    def public(self) -> tuple[str, ...]:
        """Definition of the value, for the certificate."""
        return ()


class InfluencedValue(SampleValue):
    """A value with a known influence of every unit, given who else is used."""

    __slots__ = ()

    @abstractmethod
    def influence(self, kept: Mask, units: Integers) -> Matrix:
        """Return the influence of units, shape (units, numbers): the value with each less without.

        ``kept`` are the used units; whether the unit itself is one does not matter. NaN where it is
        not defined.
        """

    def bound_distances(self, whiten: Matrix, keep: float) -> tuple[Vector, float]:
        """Return bounds on the influence of every unit, and the probability that they fail.

        In the norm of the value times ``whiten``. Infinite where nothing is known without draws.
        """
        return np.full(self.n_units, np.inf), 0.0

    @property
    def tested_units(self) -> Integers:
        """Units of which every other moves the value by the law of one of them; by default all."""
        return np.arange(self.n_units)

    def typical_influence(self) -> Matrix | None:
        """Return an estimate of every unit's influence on the value; None: simulate it.

        The noise is shaped by it; no promise rests on it.
        """
        return None

    def coin_spread(self) -> Vector | None:
        """Return an estimate of the distance to the value of all records; None: simulate it."""
        return None

    def rounding(self, whiten: Matrix) -> float:
        """Return the most that rounding errors of the value add to a distance, in the same norm."""
        return 0.0


class AveragedStatistic(ABC):
    """A statistic whose influence is averaged over the coins of the others."""

    __slots__ = ()

    @abstractmethod
    def on_samples(
        self, data: Data, units: npt.NDArray[Any] | None, coins: CoinUnits
    ) -> SampleValue | None:
        """Return the value on samples; ``units`` numbers the unit of every row from 0 on.

        None where it is not known how one unit moves it.
        """

    def shaped(self, numbers: Vector, data: Data) -> Any:
        """Return the numbers of the value in the shape that is released."""
        return numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankedSet:
    """The records of one column and one group in increasing order, and whose each is."""

    values: Vector = field(repr=False)
    units: Integers = field(repr=False)
    cell: int
    scale: float

    @classmethod
    def of(cls, values: Vector, units: Integers, *, cell: int, scale: float) -> RankedSet:
        """Order records."""
        order = np.argsort(values, kind="stable")
        return cls(values=values[order], units=units[order], cell=cell, scale=scale)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderStatistics(SampleValue):
    """Quantiles of sets of records, as order statistics of the used records.

    The quantiles of the first set come first, in the order of ``probabilities``. If no unit of a
    set is used, its quantiles are those of all its records.
    """

    sets: tuple[RankedSet, ...] = field(repr=False)
    probabilities: tuple[float, ...]
    n_units: int

    @property
    def on_all(self) -> Vector:
        """The quantiles of all records, interpolated."""
        return np.concatenate(
            [interpolated_quantiles(each.values, self.probabilities) for each in self.sets]
        )

    def value(self, kept: Mask) -> Vector:
        """Return the order statistics of the used units."""
        numbers = np.empty((len(self.sets), len(self.probabilities)))
        for i, each in enumerate(self.sets):
            used = each.values[kept[each.units]]
            records = used if len(used) else each.values
            for j, q in enumerate(self.probabilities):
                place = int(quantile_places(q, np.array([len(records)]))[0])
                numbers[i, j] = records[place - 1]
        return numbers.ravel()

    @property
    def scales(self) -> Vector:
        """The deviation of the column."""
        return np.repeat([each.scale for each in self.sets], len(self.probabilities))

    @property
    def one_row_each(self) -> bool:
        """Whether no unit has two records in a set."""
        return all(len(np.unique(each.units)) == len(each.units) for each in self.sets)

    @property
    def one_set_each(self) -> bool:
        """Whether no unit is in sets of two different groups."""
        own = np.full(self.n_units, -1)
        for each in self.sets:
            before = own[each.units]
            if ((before >= 0) & (before != each.cell)).any():
                return False
            own[each.units] = each.cell
        return True

    @property
    def public(self) -> tuple[str, ...]:
        """Definition of the quantile."""
        return (
            "quantiles: order statistics of the used records (place ceil(q k) of k), as they are",
        )


def interpolated_quantiles(values: Vector, q: tuple[float, ...]) -> Vector:
    """Return quantiles of values in increasing order, as NumPy does; NaN of nothing."""
    if not len(values):
        return np.full(len(q), np.nan)
    place = np.asarray(q) * (len(values) - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(values) - 1)
    return np.asarray(values[low] + (place - low) * (values[high] - values[low]))


def quantile_places(probability: float, counts: Integers) -> Integers:
    """Return the place of the quantile among so many records: ``ceil(q k)``, at least 1.

    ``probability`` is taken as it is written, so that a tenth of ten records is one.
    """
    q = Fraction(repr(float(probability)))
    top, bottom = q.numerator, q.denominator
    return np.array([max(1, -(-top * int(k) // bottom)) for k in counts], dtype=np.int64)
