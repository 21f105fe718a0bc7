"""Influence of a unit on a statistic, among the other used units; the user's, and its check."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, Mechanism, Structure, as_mechanism, coerce_data, flatten
from pacprivacy.sample import code_units
from pacprivacy.statistics.unit_sums import Sums, SumStatistic

AGREEMENT: Final = 1e-6  # of the size of the value: how far rounding may lead
CHECKED_KEEP: Final = 0.9
PLAN_SAMPLES: Final = 2  # that a plan checks by itself
PLAN_UNITS: Final = 8


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
        """Return the released values, an affine function of the numbers that noise is added to."""
        return numbers

    @property
    def jacobian(self) -> Matrix | None:
        """Derivatives of the released values, (numbers, outputs); None: the numbers themselves."""
        return None

    @property
    def public(self) -> tuple[str, ...]:
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
        """Units to test: every other unit has the same law of influence as one of them."""
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
        self, data: Data, units: Integers | None, coins: CoinUnits
    ) -> SampleValue | None:
        """Return the value on samples; ``units`` numbers the unit of every row from 0 on.

        None where the influence of a unit is not known.
        """

    def shaped(self, numbers: Vector, data: Data) -> Any:
        return numbers


# --- mechanisms that state their influence --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnValue(InfluencedValue):
    """The value of a user's mechanism on samples. Where it fails, it is that of all records."""

    mechanism: Mechanism
    data: Data = field(repr=False)
    codes: Integers = field(repr=False)
    n_units: int
    on_all: Vector = field(repr=False)

    def value(self, kept: Mask) -> Vector:
        """Return the value on the used units; errors and warnings would tell who they are."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = self._evaluate(kept)
        except Exception:
            return self.on_all
        plain = value.shape == self.on_all.shape and bool(np.isfinite(value).all())
        return value if plain else self.on_all

    def _evaluate(self, kept: Mask) -> Vector:
        rows = np.flatnonzero(kept[self.codes])
        return flatten(self.mechanism.evaluate(self.data.take(rows), np.random.default_rng(0)))[0]

    def influence(self, kept: Mask, units: Integers) -> Matrix:
        state = self.mechanism.influence
        assert state is not None  # else it would be none of these
        moved = state(self.data, self.codes, kept.copy())
        shape = (self.n_units, len(self.on_all))
        if np.shape(moved) != shape:
            raise MechanismError(
                f"influence must be an array of shape {shape}, one line a unit; got "
                f"{np.shape(moved)}. Return one for all units."
            )
        return np.asarray(moved, dtype=np.float64)[units]

    @property
    def scales(self) -> Vector:
        return np.ones(len(self.on_all))

    @property
    def public(self) -> tuple[str, ...]:
        return (
            "influence of one unit: as stated by the mechanism, compared with leaving units out",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluencedStatistic(AveragedStatistic):
    """A mechanism that states its influence."""

    mechanism: Mechanism

    def on_samples(self, data: Data, units: Integers | None, coins: CoinUnits) -> InfluencedValue:
        """Return the value on samples, after a check of a few influences."""
        value = _own_value(self.mechanism, data, units, coins.n_units)
        _compare(
            value, n_samples=PLAN_SAMPLES, n_units=PLAN_UNITS, keep=coins.keep, seed=coins.seed
        )
        return value

    def shaped(self, numbers: Vector, data: Data) -> Any:
        return _evaluate_all(self.mechanism, data)[1].restore(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedInfluence:
    """Result of a comparison: the numbers of units and samples, and the largest difference."""

    n_compared: int
    n_samples: int
    largest_difference: float


def check_influence(
    mechanism: Any,
    data: Any,
    *,
    units: Any = None,
    n_samples: int = 5,
    n_units: int = 20,
    keep: float = CHECKED_KEEP,
    rng: int = 0,
) -> CheckedInfluence:
    """Compare the stated influence of units with their removal.

    Draws samples, and computes the value with and without units: those with the largest stated
    influence, and others. For a statistic of sums, the value of all sums less the contribution of a
    unit is compared with that of the rows of all others. Refuses differences above rounding.

    Parameters
    ----------
    mechanism : Mechanism
        With a method ``influence``, or a statistic of sums.
    data
        Records, as for :func:`pacprivacy.privatize`.
    units : optional
        Unit of every row; by default every row is a unit.
    n_samples, n_units : int
        How many samples are drawn, and how many units are left out in each.
    keep : float
        Probability with which a unit is used.
    rng : int
        Seed of the samples.

    Raises
    ------
    MechanismError
        If the two differ.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> from pacprivacy.statistics import Mean
    >>> pac.check_influence(Mean(), np.arange(50.0)).n_compared
    20
    """
    records = coerce_data(data)
    prepared = as_mechanism(mechanism).prepare(records)
    codes, number = None, records.n_rows
    if units is not None:
        labels, ids = code_units(units, records.n_rows)
        codes, number = labels.astype(np.int64), len(ids)
    if isinstance(prepared, SumStatistic):
        return _compare_sums(prepared, records, codes, number, n_units=n_units, seed=rng)
    if prepared.influence is None:
        raise MechanismError(
            f"mechanism must state its influence; got {prepared.name[:60]}, which does not. Define "
            "influence(data, units, inside)."
        )
    value = _own_value(prepared, records, codes, number)
    return _compare(value, n_samples=n_samples, n_units=n_units, keep=keep, seed=rng)


def _own_value(mechanism: Mechanism, data: Data, units: Integers | None, n_units: int) -> OwnValue:
    codes = np.arange(data.n_rows) if units is None else np.asarray(units, dtype=np.int64)
    on_all = _evaluate_all(mechanism, data)[0]
    if not np.isfinite(on_all).all():
        raise MechanismError(
            "value must be finite on all records; got NaN or infinity. Drop gaps beforehand."
        )
    return OwnValue(mechanism=mechanism, data=data, codes=codes, n_units=n_units, on_all=on_all)


def _evaluate_all(mechanism: Mechanism, data: Data) -> tuple[Vector, Structure]:
    everybody = data.take(np.arange(data.n_rows))
    return flatten(mechanism.evaluate(everybody, np.random.default_rng(0)))


def _compare(
    value: OwnValue, *, n_samples: int, n_units: int, keep: float, seed: int
) -> CheckedInfluence:
    rng = public_generator(seed, "check influence")
    largest, n_compared = 0.0, 0
    for _ in range(n_samples):
        kept = rng.random(value.n_units) < keep
        moved = value.influence(kept, np.arange(value.n_units))
        sizes = np.abs(np.nan_to_num(moved, nan=0.0, posinf=0.0, neginf=0.0)).sum(axis=1)
        first = np.argsort(sizes)[::-1][: n_units // 2]
        others = rng.choice(value.n_units, min(n_units - len(first), value.n_units), replace=False)
        for unit in dict.fromkeys((*first.tolist(), *others.tolist())):
            stated = moved[unit]
            if not np.isfinite(stated).all():
                continue  # said to be undefined, and charged as such
            used = np.arange(value.n_units) == unit
            with_unit, without = value.value(kept | used), value.value(kept & ~used)
            difference = np.abs(with_unit - without - stated)
            size = np.maximum(np.abs(with_unit), np.abs(without)) + np.abs(stated)
            if (difference > AGREEMENT * size).any():
                place = int(np.argmax(difference - AGREEMENT * size))
                raise MechanismError(
                    f"influence must be the value with a unit less that without it; got a "
                    f"difference in number {place} that is "
                    f"{difference[place] / max(abs(stated[place]), 1e-300):.2g} times what was "
                    "stated. Compare with evaluate on the same rows."
                )
            largest, n_compared = max(largest, float(difference.max())), n_compared + 1
    return CheckedInfluence(n_compared=n_compared, n_samples=n_samples, largest_difference=largest)


def _compare_sums(
    statistic: SumStatistic,
    data: Data,
    codes: Integers | None,
    number: int,
    *,
    n_units: int,
    seed: int,
) -> CheckedInfluence:
    rng = public_generator(seed, "check influence")
    of_row = np.arange(data.n_rows) if codes is None else codes
    sums = statistic.contributions(data, codes).with_units(number)
    total, largest = sums.total(), 0.0
    chosen = rng.choice(number, min(n_units, number), replace=False)
    for unit in chosen.tolist():
        factors = np.ones(number)
        factors[unit] = 0.0
        others = np.flatnonzero(of_row != unit)
        rest = Data(parts=data.take(others), n_rows=len(others), single=data.single)
        less = statistic.value(Sums(values=sums.total(factors).values, centre=total.centre))
        again = statistic.value(statistic.contributions(rest).total())
        difference = np.abs(less - again)
        both = np.isnan(less) & np.isnan(again)
        size = np.maximum(np.abs(less), np.abs(again)) + float(np.nanmax(np.abs(again), initial=0))
        if not (both | (difference <= AGREEMENT * size)).all():
            raise MechanismError(
                "contributions must add up: the value of all sums less those of a unit differs "
                "from that of the rows of all others. What a unit adds must not depend on others."
            )
        largest = max(largest, float(np.nanmax(difference, initial=0.0)))
    return CheckedInfluence(n_compared=len(chosen), n_samples=1, largest_difference=largest)
