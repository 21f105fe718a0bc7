"""The sums of several statistics as one vector of every unit, whose noise is correlated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Parts, Value
from pacprivacy.statistics.unit_sums import (
    WIDEST_BLOCK,
    Cube,
    Sums,
    SumStatistic,
    UnitSums,
    flatten_slopes,
)

CROWD: Final = 10  # units above which a size does not decide how noise is shared out
LEAST_CELL: Final = 30  # units; a smaller cell counts like one of so many
STEADY_UNITS: Final = 160  # in a cell, below which every sum counts like an output
LEAST_STEADY: Final = 0.01  # of an output, in cells of many units
SIZE_UPDATES: Final = 10  # of the weights of units, for the size of a table's noise
FAR_UNITS: Final = 1000  # that take part in them, and as many of any norm
LEAST_EIGENVALUE: Final = 1e-14  # of the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """Place of a table in joint sums: its cells, sums of a cell, centres and numbers."""

    cells: int
    block: int
    centres: int
    numbers: int = 0
    start: int = 0
    first_centre: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointSums(UnitSums):
    """Sums of several statistics in one cell, and those of each apart."""

    parts: tuple[UnitSums, ...] = field(repr=False)

    @property
    def tables(self) -> tuple[UnitSums, ...]:
        return tuple(table for part in self.parts for table in part.tables)

    @classmethod
    def of(cls, parts: tuple[UnitSums, ...]) -> Self:
        """Join the sums of all cells of all statistics into one row for every unit."""
        n_units = max(part.n_units for part in parts)
        widths = [part.n_cells * part.block for part in parts]
        if sum(widths) > WIDEST_BLOCK:
            raise MechanismError(
                f"a study must have at most {WIDEST_BLOCK} sums; got {sum(widths)}, {max(widths)} "
                "of them in one table. Make two studies, or tables of fewer cells."
            )
        values, start = np.zeros((n_units, sum(widths))), 0
        for part, width in zip(parts, widths, strict=True):
            for cell, entries in part.chunks():
                places = slice(start + cell * part.block, start + (cell + 1) * part.block)
                values[part.units_of(entries), places] = part.values[entries]
            start += width
        return cls(
            values=values,
            units=None,
            starts=np.array([0, n_units]),
            n_units=n_units,
            centre=np.concatenate([part.centre for part in parts]),
            parts=parts,
        )


class JointStatistic(SumStatistic):
    """A statistic of one cell, which holds the sums of several cells: it has coins alone."""

    __slots__ = ()

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        raise MechanismError(
            "a study, or a table of pac.stats.official, must have a coin for every unit; got a "
            "pool, as by default below 200 units and for budgets besides membership. Use "
            "sample=pac.Coins(), or single releases."
        )

    @property
    def batch(self) -> None:
        return None


def sums_of_table(sums: Sums, place: TablePlace) -> Sums:
    """Return the sums of one table, in its cells."""
    where = slice(place.start, place.start + place.cells * place.block)
    shape = (place.cells, place.block)
    return Sums(
        values=sums.values[0, where].reshape(shape),
        centre=sums.centre[place.first_centre : place.first_centre + place.centres],
        noise_std=None if sums.noise_std is None else sums.noise_std[0, where].reshape(shape),
        sizes=None if sums.sizes is None else sums.sizes[where].reshape(shape).max(axis=0),
    )


def limit_small_cells(slopes: Cube, sums: UnitSums) -> Cube:
    """Return the derivatives, those of cells of few units at most as large as others."""
    sizes = np.abs(slopes).max(axis=(1, 2), initial=0.0)
    large = sums.entries_per_cell >= LEAST_CELL
    if not large.any():
        return slopes
    most = float(sizes[large].max())
    factors = np.divide(most, sizes, out=np.ones_like(sizes), where=sizes > most)
    return np.asarray(slopes * factors[:, None, None])


def shaping_slopes(slopes: Cube, sums: UnitSums) -> Matrix:
    """Return the derivatives of the outputs, and of every sum with a small weight.

    To first order, outputs do not depend on some sums, such as the count of a column at its centre.
    Such a sum could have any noise. So its own error counts, too, the more the fewer units a cell
    has.
    """
    slopes = limit_small_cells(slopes, sums)
    totals = sums.squares(np.ones(sums.n_units))
    each = np.maximum(sums.entries_per_cell, 1.0)[:, None]
    sizes = np.sqrt(each * totals)
    units = (np.abs(slopes) * sizes[:, None, :]).max(axis=(1, 2), initial=0.0)[:, None]
    weights = units * np.clip(np.square(STEADY_UNITS / each), LEAST_STEADY, 1.0)
    of_sums = np.divide(weights, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    steady = of_sums[:, :, None] * np.eye(sums.block)
    return flatten_slopes(np.concatenate([slopes, steady], axis=1))


def least_deviation(values: Matrix, slopes: Matrix) -> float:
    """Return the deviation of the least noise that hides every unit of a crowd, up to a factor.

    ``slopes`` are the derivatives of the errors by the sums. Units that stand out are shrunk to the
    tenth largest. The noise is that of :func:`pacprivacy.noise.plan_sums`, but roughly.
    """
    moved = values @ np.asarray(np.linalg.qr(slopes, mode="r")).T
    norms = np.linalg.norm(moved, axis=1)
    rank = max(0, len(norms) - CROWD)
    tenth = float(np.partition(norms, rank)[rank]) if len(norms) else 0.0
    if not tenth > 0:
        return float(norms.max(initial=0.0))
    points = moved * np.minimum(1.0, tenth / np.maximum(norms, tenth))[:, None]
    weights = np.full(len(points), 1.0 / len(points))
    trace, norms = _weighted_norms(points, weights)
    order = np.argsort(-norms, kind="stable")
    far = np.unique(np.concatenate([order[:FAR_UNITS], order[:: len(order) // FAR_UNITS + 1]]))
    points, weights, norms = points[far], weights[far], norms[far]
    for _ in range(SIZE_UPDATES):
        weights = weights * np.square(norms)
        weights /= weights.sum()
        trace, norms = _weighted_norms(points, weights)
    return trace * math.sqrt(float(norms.max()))


def _weighted_norms(points: Matrix, weights: Vector) -> tuple[float, Vector]:
    """Return the trace of a shape of noise, and the squared norms of all units in it."""
    eigenvalues, vectors = np.linalg.eigh((points * weights[:, None]).T @ points)
    roots = np.sqrt(np.maximum(eigenvalues, LEAST_EIGENVALUE * eigenvalues[-1]))
    trace = float(roots.sum())
    return trace, np.square(points @ vectors) @ (1.0 / (trace * roots))
