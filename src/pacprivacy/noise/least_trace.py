"""The least Gaussian noise that hides the contribution of any one unit to sums.

Noise has a separate covariance in every cell. In coordinates in which the error counts alike
(``W = I``), ``A = Σ w_i y_i y_i'`` with weights that sum to 1 bounds every feasible covariance from
below, ``(tr A^{1/2})² <= μ² tr Σ``, and ``Σ`` in proportion to ``A^{1/2}`` comes near it: the
multiplicative update ``w_i <- w_i g_i²`` raises the bound until the two meet (Yu 2010; Nikolov and
Tang 2024). What a promise needs is computed from the covariance that is used, on all units.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import SMALLEST_RANGE, Integers, Mask, Matrix, Vector
from pacprivacy._rounding import power_of_two
from pacprivacy.errors import BudgetError
from pacprivacy.statistics import COUNT_STD, UnitSums

NULL_DIRECTION: Final = 1e-11  # share of a column's mean square; below it a direction is dropped
TARGET_GAP: Final = 1.01  # updates end when the trace is this near its lower bound
ENOUGH_GAP: Final = 1.03  # units are screened again until the trace over all of them is this near
MAX_UPDATES: Final = 200
MAX_SCREENINGS: Final = 6
SCREENED_UNITS: Final = 1000
SCREENED_UNITS_PER_CELL: Final = 20
SPREAD_UNITS: Final = 500  # of those outside, whatever their norm
CROWD_SHARE: Final = 1e-3  # of a cell's second moments, added in the shape of the crowd's
LEAST_WEIGHT: Final = 1e-4  # of the largest: below it, squares of noise would show
COUNT_NOISE: Final = 0.1  # relative noise up to which a sum that is only divided by may go

Cube = npt.NDArray[np.float64]  # of shape (n_cells, ., .)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumFrame:
    """Coordinates of every cell in which errors count alike; curator-only.

    ``into`` maps sums to coordinates, shape (n_cells, block, rank), and ``back`` maps coordinates
    to sums. Directions in which no unit adds anything have no coordinate: they leave with neither
    noise nor value.
    """

    into: Cube = field(repr=False)
    back: Cube = field(repr=False)
    crowd: Cube = field(repr=False)  # second moments of an average cell in these coordinates
    seconds: Cube = field(repr=False)  # mean products of sums over all units, by cell

    @property
    def rank(self) -> int:
        """Number of coordinates of a cell."""
        return int(self.into.shape[2])

    @property
    def filled(self) -> Mask:
        """Cells to which at least one unit adds."""
        return np.asarray(self.seconds.any(axis=(1, 2)))

    @property
    def floors(self) -> Cube:
        """Amounts added to the second moments of every cell.

        They are the crowd's second moments, scaled to a small share of the cell's. So a cell of few
        units has noise in every direction, but little more than it needs. An empty cell gets all of
        the crowd's second moments, and so the noise of an average cell.
        """
        traces = np.einsum("cbr,cbd,cdr->c", self.into, self.seconds, self.into, optimize=True)
        average = np.einsum("crr->c", self.crowd)
        size = np.divide(traces, average, out=np.ones(len(traces)), where=average > 0)
        share = np.where(self.filled, CROWD_SHARE * size, 1.0)
        return np.asarray(share[:, None, None] * self.crowd)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastTrace:
    """A shape of noise for every cell; curator-only.

    The covariance in the coordinates of the frame is ``basis diag(variances) basis'`` times any
    factor. ``norms`` are the squared norms of all units in it, and ``gap`` is the trace over a
    lower bound of every feasible one.
    """

    basis: Cube = field(repr=False)
    variances: Matrix = field(repr=False)
    norms: Vector = field(repr=False)
    gap: float


def mean_products(sums: UnitSums, factors: Vector | None = None) -> Cube:
    """Return the products of sums that an average unit adds in every cell."""
    products = np.zeros((sums.n_cells, sums.block, sums.block))
    for cell, entries in sums.chunks():
        values = sums.values[entries]
        if factors is not None:
            values = values * factors[sums.units_of(entries)][:, None]
        products[cell] += values.T @ values
    return products / max(1, sums.n_units)


def entry_norms(sums: UnitSums, matrices: Cube) -> Vector:
    """Return ``x' B_c x`` of every entry, for a positive matrix ``B_c`` of its cell."""
    if sums.block == 1:
        each = np.repeat(matrices[:, 0, 0], sums.entries_per_cell)
        return np.asarray(np.square(sums.values[:, 0]) * each)
    norms = np.empty(len(sums.values))
    for cell, entries in sums.chunks():
        values = sums.values[entries]
        norms[entries] = np.einsum("ij,ij->i", values @ matrices[cell], values)
    return np.maximum(norms, 0.0)


def make_frame(
    sums: UnitSums, slopes: Cube | None, parameter: float, factors: Vector | None = None
) -> SumFrame:
    """Return coordinates in which the errors of the outputs count alike.

    Parameters
    ----------
    sums : UnitSums, curator-only
        Contribution of every unit.
    slopes : array of shape (n_cells, outputs, block) or None, curator-only
        Derivatives of the outputs by the sums, in units of the outputs. None: every sum is an
        output, in units of its root mean square over units.
    parameter : float, public
        Largest charge of a unit. It decides how much noise a sum may have that outputs are divided
        by, and nothing else.
    factors : array of shape (n_units,), curator-only, optional
        Shrink contributions, so that no coordinate is made for the sake of one unit.
    """
    products = mean_products(sums, factors)
    pooled = products.sum(axis=0)
    _check_sizes(sums, np.diag(pooled))
    size = np.sqrt(np.diag(pooled))
    size = np.where(size > 0, size, 1.0)
    eigenvalues, vectors = np.linalg.eigh(pooled / np.outer(size, size))
    span = vectors[:, eigenvalues > NULL_DIRECTION * sums.block]
    plain, rank = span / size[:, None], span.shape[1]
    roots = np.broadcast_to(np.eye(rank), (sums.n_cells, rank, rank))
    inverses = roots
    if slopes is not None and rank:
        relative = 2.0 * np.sqrt(rank) / (parameter * _effective_entries(sums, factors))
        weights, axes = np.linalg.eigh(_weigh_errors(slopes @ (size[:, None] * span), relative))
        floor = np.clip((relative / COUNT_NOISE) ** 4, LEAST_WEIGHT, 1.0)
        largest = weights[:, -1:]
        weights = np.where(largest > 0, np.maximum(weights, floor[:, None] * largest), 1.0)
        turned = np.swapaxes(axes, 1, 2)
        roots = (axes * np.sqrt(weights)[:, None, :]) @ turned
        inverses = (axes / np.sqrt(weights)[:, None, :]) @ turned
    into = plain @ roots
    crowd = np.swapaxes(into, 1, 2) @ pooled @ into / max(1, sums.n_cells)
    return SumFrame(
        into=into, back=inverses @ (size[:, None] * span).T, crowd=crowd, seconds=products
    )


def _check_sizes(sums: UnitSums, mean_squares: Vector) -> None:
    """Refuse sums whose squares underflow, as they would count as empty."""
    small = mean_squares < SMALLEST_RANGE**2
    if small.any() and sums.values[:, small].any():
        raise BudgetError(
            f"contributions must be 0 or above {SMALLEST_RANGE:g} in size; got smaller ones. "
            "Rescale what is summed."
        )


def _effective_entries(sums: UnitSums, factors: Vector | None) -> Vector:
    """Return the effective number of entries of every cell; at least 1.

    A count of that many has a relative noise of about its inverse. A direction in which outputs do
    not change, such as a count at the centre of its column, could have any noise to first order.
    Its least weight follows from this, and holds its relative noise to about ``COUNT_NOISE``.
    """
    entries = np.maximum(sums.entries_per_cell, 1).astype(np.float64)
    if sums.units is None:
        return entries
    sizes = np.abs(sums.values)
    if factors is not None:
        sizes *= factors[sums.units][:, None]
    filled = np.flatnonzero(np.diff(sums.starts))
    first = sums.starts[filled]
    if len(filled):
        largest = np.maximum.reduceat(sizes, first, axis=0)
        totals = np.add.reduceat(sizes, first, axis=0)
        equal = np.divide(totals, largest, out=np.ones_like(totals), where=largest > 0)
        entries[filled] = np.minimum(entries[filled], np.maximum(equal.max(axis=1), 1.0))
    return entries


def _weigh_errors(slopes: Cube, count_noise: Vector) -> Cube:
    """Return the matrix by which squared errors count in every cell, up to a common factor.

    A cell of so few units that noise exceeds its count has no useful value.
    It counts like an average one of the others, or its units alone would decide all noise.
    """
    largest = np.abs(slopes).max(initial=0.0)
    if largest > 0:  # squares must not overflow
        slopes = slopes / power_of_two(largest)
    weights: Cube = np.swapaxes(slopes, 1, 2) @ slopes
    known = count_noise * COUNT_STD <= 1.0
    if known.any() and not known.all():
        weights[~known] = weights[known].mean(axis=0)
    return weights


def crowd_norm(frame: SumFrame) -> Cube:
    """Return the matrices of a first norm, in sums, in which all units have the same weight."""
    seconds = np.swapaxes(frame.into, 1, 2) @ frame.seconds @ frame.into
    roots, vectors = _roots(seconds + frame.floors)
    trace = float(roots[frame.filled].sum())
    return _matrices(frame, roots, vectors, trace)


def least_trace(
    sums: UnitSums,
    frame: SumFrame,
    factors: Vector,
    first_norms: Vector,
    target: float = TARGET_GAP,
) -> LeastTrace:
    """Return the shape of least trace under which no unit's norm exceeds the largest.

    ``factors`` shrink contributions. Units that are far inside by ``first_norms``, those of
    entries in any shape, are screened out of the updates; all units take part in ``norms``, from
    which a promise is computed. Updates end at ``target`` times the least trace.

    Guarantee
    ---------
    Claim C-4. ``norms`` are the squared norms of all units under the shape that is returned, up
    to rounding. ``gap`` is at least the trace at equal largest norm over the least there is.
    """
    chosen = _screen(sums, first_norms)
    weights = np.full(len(chosen), 1.0 / max(1, len(chosen)))
    best: LeastTrace | None = None
    for _ in range(MAX_SCREENINGS):
        active = _Active.of(sums, frame, factors, chosen)
        weights, roots, vectors = active.solve(weights, target)
        trace = float(roots[frame.filled].sum())
        norms = entry_norms(sums, _matrices(frame, roots, vectors, trace))
        norms = sums.add_by_unit(norms) * np.square(factors)
        largest = float(norms.max(initial=0.0))
        lower = active.lower_bound(weights)
        gap = largest * trace**2 / lower if lower > 0 else 1.0
        if best is None or gap < best.gap:
            best = LeastTrace(basis=vectors, variances=trace * roots, norms=norms, gap=gap)
        if gap <= target + ENOUGH_GAP - TARGET_GAP:
            break
        outside = np.setdiff1d(np.flatnonzero(norms > target), chosen, assume_unique=True)
        if not len(outside):
            break
        order = outside[np.argsort(-norms[outside], kind="stable")]
        # In a table of counts all units of a cell are equal: those of rare cells would be all that
        # is chosen by the norm.
        spread = order[:: len(order) // SPREAD_UNITS + 1]
        worst = np.unique(np.concatenate([order[:SCREENED_UNITS], spread]))
        fresh = np.full(len(worst), 0.1 / len(worst))
        order = np.argsort(np.concatenate([chosen, worst]), kind="stable")
        weights = np.concatenate([0.9 * weights, fresh])[order]
        chosen = np.concatenate([chosen, worst])[order]
    assert best is not None
    return best


def _screen(sums: UnitSums, first_norms: Vector) -> Integers:
    """Return the units that are far out, in all and in every cell."""
    norms = sums.add_by_unit(first_norms)
    most = max(SCREENED_UNITS, 20 * sums.block)
    if sums.n_units <= most:
        return np.arange(sums.n_units)
    chosen = [np.argpartition(-norms, most)[:most]]
    if sums.units is not None and sums.n_cells > 1:
        for cell in range(sums.n_cells):
            start, stop = int(sums.starts[cell]), int(sums.starts[cell + 1])
            cell_norms = first_norms[start:stop]
            if len(cell_norms) > SCREENED_UNITS_PER_CELL:
                largest = np.argpartition(-cell_norms, SCREENED_UNITS_PER_CELL)[
                    :SCREENED_UNITS_PER_CELL
                ]
                chosen.append(sums.units[start + largest])
            else:
                chosen.append(sums.units[start:stop])
    return np.unique(np.concatenate(chosen))


def _roots(matrices: Cube) -> tuple[Matrix, Cube]:
    """Return the eigenvalues of the square roots of positive matrices, and the eigenvectors."""
    eigenvalues, vectors = np.linalg.eigh(matrices)
    least = 1e-14 * np.maximum(eigenvalues[:, -1:], 1e-290)
    return np.sqrt(np.maximum(eigenvalues, least)), vectors


def _matrices(frame: SumFrame, roots: Matrix, vectors: Cube, trace: float) -> Cube:
    """Return the matrices of the squared norm, in sums."""
    turned = frame.into @ vectors
    return (turned / (trace * roots)[:, None, :]) @ np.swapaxes(turned, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Active:
    """The units that take part in the updates, in the coordinates of the frame."""

    points: Matrix  # (entries, rank), ordered by cell
    owners: Integers  # place of the unit among those that take part
    cells: Integers
    n_units: int
    floors: Cube
    filled: Mask

    @classmethod
    def of(cls, sums: UnitSums, frame: SumFrame, factors: Vector, chosen: Integers) -> _Active:
        place = np.full(sums.n_units, -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        of_entry = place if sums.units is None else place[sums.units]
        entries = np.flatnonzero(of_entry >= 0)
        owners = of_entry[entries]
        cells = np.searchsorted(sums.starts, entries, side="right") - 1
        values = sums.values[entries] * factors[chosen][owners][:, None]
        if sums.n_cells == 1:
            points = values @ frame.into[0]
        else:
            points = np.einsum("eb,ebr->er", values, frame.into[cells])
        return cls(
            points=points, owners=owners, cells=cells, n_units=len(chosen),
            floors=frame.floors, filled=frame.filled,
        )  # fmt: skip

    def second_moments(self, weights: Vector) -> Cube:
        n_cells, rank = len(self.floors), self.points.shape[1]
        of_entry = weights[self.owners]
        if n_cells == 1:
            product = (self.points * of_entry[:, None]).T @ self.points
            return product[None]
        moments = np.empty((n_cells, rank, rank))
        for j in range(rank):
            scaled = self.points[:, j] * of_entry
            for k in range(j + 1):
                column = np.bincount(self.cells, scaled * self.points[:, k], minlength=n_cells)
                moments[:, j, k] = moments[:, k, j] = column
        return moments

    def solve(self, weights: Vector, target: float) -> tuple[Vector, Matrix, Cube]:
        """Update the weights until no norm is far above 1; return the shape with them."""
        for update in range(1, MAX_UPDATES + 1):
            roots, vectors = _roots(self.second_moments(weights) + self.floors)
            norms = self.norms(roots, vectors)
            if update == MAX_UPDATES or norms.max(initial=0.0) <= target:
                return weights / weights.sum(), roots, vectors
            # The square: twice the step of Yu's update, which is the last one for separate cells.
            weights = weights * np.square(norms)
            weights = weights / weights.sum()
        raise AssertionError("the loop returns")

    def norms(self, roots: Matrix, vectors: Cube) -> Vector:
        trace = float(roots[self.filled].sum())
        if len(self.floors) == 1:
            turned = np.square(self.points @ vectors[0]) @ (1.0 / (trace * roots[0]))
        else:
            turned = np.square(np.einsum("er,erk->ek", self.points, vectors[self.cells]))
            turned = (turned / (trace * roots[self.cells])).sum(axis=1)
        return np.asarray(np.bincount(self.owners, turned, minlength=self.n_units), np.float64)

    def lower_bound(self, weights: Vector) -> float:
        """Return the least trace at largest norm 1 that the weights prove."""
        eigenvalues = np.linalg.eigvalsh(self.second_moments(weights))
        return float(np.sqrt(np.maximum(eigenvalues, 0.0)).sum()) ** 2
