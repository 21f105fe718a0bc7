"""Sums over units in whole numbers: each unit is rounded by itself, and noise is an integer.

Rounding a total would move it by up to half a step in every direction, more than the contribution
of a small unit. Here a unit's contribution is a vector of integers, and the unit pays for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy._random import BitSource
from pacprivacy.errors import BudgetError
from pacprivacy.noise.lattice import MAX_UNITS_PER_STD, lattice_grid, sample_discrete_gaussian
from pacprivacy.statistics import UnitSums
from pacprivacy.theory import lattice_total_variation_bound

LEAST_STEPS: Final = 1 << 20  # grid steps in a standard deviation, up to 2^20 units
ROUND_UP_NORM: Final = 1 + 2.0**-40  # covers the rounding of a sum of squares of integers
_EXACT_FLOAT: Final = 2.0**52
_EXACT_TOTAL: Final = 1 << 62

Cube = npt.NDArray[np.float64]


def steps_per_std(n_units: int) -> int:
    """Return the least number of grid steps in a standard deviation, by number of units.

    ``2^20`` up to ``2^20`` units, above ``2^(10 + ceil(log2(n) / 2))``: at least ``1024 sqrt(n)``.
    """
    doubled = max(0, (max(1, n_units) - 1).bit_length())
    return max(LEAST_STEPS, 1 << (10 + -(-doubled // 2)))


def round_up_two_digits(figures: Matrix) -> Matrix:
    """Round positive figures up to two significant digits."""
    exponent = np.floor(np.log10(figures)) - 1.0
    step = 10.0**exponent
    rounded = np.ceil(figures / step) * step
    return np.asarray(np.where(rounded < figures, rounded + step, rounded))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitLattice:
    """Noise directions of every cell, their grids, and the noise on them; curator-only.

    ``into``, shape (n_cells, block, rank), leads from sums to directions, ``back`` from these to
    sums. ``grid`` has the step of every direction, a power of two, ``units_per_std`` the standard
    deviation of the noise in steps.
    """

    into: Cube = field(repr=False)
    back: Cube = field(repr=False)
    grid: Matrix = field(repr=False)
    units_per_std: Integers = field(repr=False)

    @classmethod
    def choose(cls, into: Cube, back: Cube, noise_std: Matrix, n_units: int) -> UnitLattice:
        """Choose grids for standard deviations, which are rounded up to whole steps."""
        grid, units = lattice_grid(noise_std, steps_per_std(n_units))
        if units.size and int(units.max()) > MAX_UNITS_PER_STD:
            raise BudgetError(
                f"n_units must leave at most 2**31 steps a standard deviation; got {n_units}. "
                "Use fewer units."
            )
        return cls(into=into, back=back, grid=grid, units_per_std=units)

    @property
    def n_directions(self) -> int:
        """Number of integers that are released."""
        return int(self.grid.size)

    @property
    def noise_std(self) -> Matrix:
        """Standard deviation of the noise in every direction."""
        return np.asarray(self.grid * self.units_per_std)

    @property
    def total_variation(self) -> float:
        """Distance of the sampled law from a function of continuous noise (claim L-2)."""
        return lattice_total_variation_bound(
            self.n_directions, self.units_per_std.astype(np.float64).ravel()
        )

    @property
    def covariances(self) -> Cube:
        """Covariance of the noise of the sums of every cell."""
        scaled = self.back * self.noise_std[:, :, None]
        return np.asarray(np.swapaxes(scaled, 1, 2) @ scaled)

    def integers(
        self, sums: UnitSums, factors: Vector, cell: int, entries: slice
    ) -> tuple[Matrix, float]:
        """Return the contributions to a cell in grid steps, rounded unit by unit, and the largest.

        They are whole numbers below 2^52, which floats hold exactly.
        """
        values = sums.values[entries] @ (self.into[cell] / self.grid[cell])
        values *= factors[sums.units_of(entries)][:, None]
        np.rint(values, out=values)
        values += 0.0  # no negative zeros: a bundle stores integers, and the digest is of bytes
        largest = max(-float(values.min(initial=0.0)), float(values.max(initial=0.0)))
        if not largest < _EXACT_FLOAT:  # or NaN
            raise BudgetError(
                "contributions must be below 2**52 grid steps; got a larger one. Clip them, or "
                "allow a unit less."
            )
        return np.asarray(values), largest

    def charges(self, sums: UnitSums, factors: Vector) -> Vector:
        """Return the charge of every unit, used or left out: the norm of its integers.

        Guarantee
        ---------
        Claim C-3. At least the distance, in deviations of the noise, between the integers with
        and without the unit, also where another machine's matrix product rounds a coordinate to
        the integer next to this one's.
        """
        squares = np.empty(len(sums.values))
        for cell, entries in sums.chunks():
            scaled, _ = self.integers(sums, factors, cell, entries)
            self._check_rounding(sums, factors, cell, entries)
            scaled /= self.units_per_std[cell]
            squares[entries] = np.einsum("ij,ij->i", scaled, scaled)
        norms = np.sqrt(sums.add_by_unit(squares)) * ROUND_UP_NORM
        return np.asarray(norms + np.where(factors > 0, self.rounding_allowance(sums), 0.0))

    def _check_rounding(self, sums: UnitSums, factors: Vector, cell: int, entries: slice) -> None:
        """Refuse contributions whose matrix product may be off by a quarter of a step."""
        steps = (sums.block + 4) * 2.0**-53 * np.abs(self.into[cell]) / self.grid[cell]
        if sums.largest * steps.sum(axis=0).max(initial=0.0) < 0.25:
            return
        values = sums.values[entries]
        largest = np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))
        if (largest @ steps).max(initial=0.0) < 0.25:
            return
        clipped = np.abs(values) * factors[sums.units_of(entries)][:, None]
        if not (clipped.max(axis=0, initial=0.0) @ steps).max(initial=0.0) < 0.25:  # or NaN
            raise BudgetError(
                "contributions must be rounded the same everywhere; got sums that nearly determine "
                "each other, or that differ too much in size. Leave one of them out, or clip."
            )

    def rounding_allowance(self, sums: UnitSums) -> Vector:
        """Return a grid step in each coordinate of a unit, in deviations of the noise."""
        if not self.units_per_std.size:
            return np.zeros(sums.n_units)
        coordinates = sums.add_by_unit(np.full(len(sums.values), float(self.grid.shape[1])))
        return np.asarray(np.sqrt(coordinates) / float(self.units_per_std.min()) * ROUND_UP_NORM)

    def add(self, sums: UnitSums, factors: Vector, kept: Mask) -> Integers:
        """Add up the integers of the units that are used, exactly.

        All units are read, in the same time whichever are used.
        """
        total = np.zeros(self.grid.shape, dtype=np.int64)
        bound = 0
        used = kept.astype(np.float64)
        for cell, entries in sums.chunks():
            block, largest = self.integers(sums, factors, cell, entries)
            most = len(block) * int(largest)
            bound += most
            if bound >= _EXACT_TOTAL:
                raise BudgetError(
                    "contributions must add up to less than 2**62 grid steps; got more. Clip them."
                )
            mask = used[sums.units_of(entries)]
            if most < _EXACT_FLOAT:  # every partial sum is a whole number that floats hold exactly
                total[cell] += (mask @ block).astype(np.int64)
            else:
                total[cell] += mask.astype(np.int64) @ block.astype(np.int64)
        return total

    def release(self, total: Integers, source: BitSource) -> Integers:
        """Add integer Gaussian noise to totals of units."""
        noise = sample_discrete_gaussian(self.units_per_std, source)
        return np.asarray(total + noise)

    def restore(self, integers: Integers) -> Matrix:
        """Return sums, given integers of the noise directions."""
        return np.asarray(np.einsum("cr,crb->cb", integers * self.grid, self.back))


def charge_integers(
    integers: Integers, units: Integers, starts: Integers, units_per_std: Integers, n_units: int
) -> Vector:
    """Return the charges of units that add these integers: one line for every entry.

    As :meth:`UnitLattice.charges`, of a stored release.
    """
    cells = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    scaled = integers / units_per_std[cells]
    squares = np.einsum("ij,ij->i", scaled, scaled)
    norms = np.sqrt(np.bincount(units, weights=squares, minlength=n_units)) * ROUND_UP_NORM
    if not units_per_std.size:
        return np.asarray(norms)
    entries = np.where(norms > 0, np.bincount(units, minlength=n_units), 0)
    allowance = np.sqrt(entries * float(units_per_std.shape[1])) / float(units_per_std.min())
    return np.asarray(norms + allowance * ROUND_UP_NORM)


def least_scale(norms: Vector, coordinates: Vector, parameter: float, n_units: int) -> float:
    """Return the factor of the noise at which every unit's charge is at most ``parameter``.

    ``norms`` are those of units at factor 1. Room is left for the rounding of a unit to integers
    and for its allowance.
    """
    room = parameter * (1 - 2.0**-30) - 1.6 * np.sqrt(coordinates) / steps_per_std(n_units)
    if room.size and not room.min() > 0:
        raise BudgetError(
            "units must add to fewer sums for this budget; got one in too many cells. Merge "
            "groups, or allow a larger success."
        )
    return float(np.max(norms / room, initial=0.0)) if norms.size else math.nan
