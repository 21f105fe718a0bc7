"""Plans for sums over units with coins: clip, shape, scale and round before any coin is read.

A plan is a function of all records and of public settings. It is complete before a coin is drawn;
:meth:`SumPlan.release` is the only place where the sample enters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import LARGEST_OUTPUT, Mask, Matrix, Vector, as_told, freeze
from pacprivacy._random import BitSource
from pacprivacy._rounding import two_digits
from pacprivacy.adversary import InfluenceRisk, influence_parameter, influence_risk
from pacprivacy.errors import BudgetError
from pacprivacy.noise.least_trace import (
    LeastTrace,
    SumFrame,
    crowd_norm,
    entry_norms,
    least_trace,
    make_frame,
)
from pacprivacy.noise.unit_lattice import (
    UnitLattice,
    least_scale,
    round_up_two_digits,
    steps_per_std,
)
from pacprivacy.statistics import WIDEST_BLOCK, Declaration, Sums, UnitSums

CROWD: Final = 10  # the radius is at most the norm of the tenth largest unit
STANDS_OUT: Final = 1.5  # times the norm of the tenth largest unit
MAX_CROWD_ROUNDS: Final = 20
LEAST_SHARE: Final = 1e-3  # of the largest charge; units with a smaller one are left out
CROWD_GAP: Final = 1.05  # how near to the least a noise must be that only serves as a norm
DECLARED_UNITS: Final = 1 << 30  # in place of the number of units, which must not show
CLIP_QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.998)

Clip = float | Literal["auto"] | None
Cube = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumPlan:
    """Noise, rounding, clipping and charges of a release of sums over units.

    Curator-only: ``factors`` of the contributions, below 1 for clipped units; ``charges`` of all
    units, used or left out, in deviations of the noise; ``clipped``, the sums of all clipped units,
    which a release estimates. Public: ``parameter``, the largest charge, ``2 Φ⁻¹`` of the
    membership success; the clipping ``radius``; ``gap``, the trace of the noise over the least
    there is; ``centre`` of the columns; ``published``, facts of all records that show besides the
    noisy sums.
    """

    lattice: UnitLattice = field(repr=False)
    factors: Vector = field(repr=False)
    charges: Vector = field(repr=False)
    clipped: Sums = field(repr=False)
    parameter: float
    keep: float
    radius: float | None
    gap: float
    centre: Vector
    published: tuple[str, ...]

    def __post_init__(self) -> None:
        for array in (self.factors, self.charges):  # the certificate rests on them
            freeze(array)

    @property
    def risk(self) -> InfluenceRisk:
        """Bounds on the success of attackers on the release."""
        return influence_risk(
            self.charges, keep=self.keep, total_variation=self.lattice.total_variation
        )

    def integer_blocks(self, sums: UnitSums) -> Iterator[tuple[slice, Matrix]]:
        """Yield blocks of entries with their whole numbers of grid steps."""
        for cell, entries in sums.chunks():
            block, _ = self.lattice.integers(sums, self.factors, cell, entries)
            yield entries, block

    def release(self, sums: UnitSums, kept: Mask, source: BitSource) -> Sums:
        """Return the noisy sums of the units that are used.

        Guarantee
        ---------
        Claim C-3. Assumes that ``sums`` are those of the plan and that ``kept`` are coins of
        probability ``keep`` drawn after it. Ensures that an attacker who knows everything but one
        unit's coin guesses it, at even odds, with the success of :attr:`risk` at most. A second
        release of the same coins costs every unit ``charges`` again, and the squares add up; the
        caller keeps the account.
        """
        self._check(sums, kept)
        total = self.lattice.add(sums, self.factors, kept)
        values = self.lattice.restore(self.lattice.release(total, source))
        return Sums(values=values, centre=self.centre, noise_std=self.sum_noise_std)

    @property
    def sum_noise_std(self) -> npt.NDArray[np.float64]:
        """Standard deviation of the noise of every sum, shape (n_cells, block)."""
        return np.asarray(np.sqrt(np.einsum("cbb->cb", self.lattice.covariances)))

    def noise_variances(self, slopes: Cube) -> npt.NDArray[np.float64]:
        """Return the noise variance of every output, given its derivatives by the sums."""
        variances: Cube = np.einsum(
            "ckb,cbd,ckd->ck", slopes, self.lattice.covariances, slopes, optimize=True
        )
        return variances / self.keep**2

    def sampling_variances(self, sums: UnitSums, slopes: Cube) -> npt.NDArray[np.float64]:
        """Return the variance of every output by the coins, given its derivatives by the sums."""
        variances = np.zeros(slopes.shape[:2])
        for cell, entries in sums.chunks() if self.keep < 1 else ():
            moved = sums.values[entries] @ slopes[cell].T
            moved *= self.factors[sums.units_of(entries)][:, None]
            variances[cell] += np.einsum("ij,ij->j", moved, moved)
        return np.asarray(variances * (1 - self.keep) / self.keep)

    def _check(self, sums: UnitSums, kept: Mask) -> None:
        shape = (sums.n_cells, sums.block, self.lattice.grid.shape[1])
        if kept.dtype != np.bool_ or kept.shape != self.factors.shape:
            raise BudgetError(
                f"kept must be one truth value for each of {len(self.factors)} units; got "
                f"{kept.dtype} of shape {kept.shape}. Pass the coins."
            )
        if sums.n_units != len(self.factors) or self.lattice.into.shape != shape:
            raise BudgetError(
                "sums must be those of the plan; got other sums. Plan again "
                "for other contributions."
            )


def plan_sums(
    sums: UnitSums,
    *,
    success: float,
    keep: float,
    slopes: Cube | None = None,
    clip: Clip = "auto",
    allowed: Vector | None = None,
) -> SumPlan:
    """Find the least noise under which no unit's coin shows, and everything else about a release.

    Parameters
    ----------
    sums : UnitSums, curator-only
        Contribution of every unit. Above ``WIDEST_BLOCK`` sums in a cell, noise is not correlated:
        pass cells of one sum.
    success : float in (1/2, 1), public
        How often the best attacker may guess a coin at even odds.
    keep : float, public
        Probability with which a unit is used; :meth:`Coins.resolve` chooses it.
    slopes : array of shape (n_cells, outputs, block), curator-only, optional
        Derivatives of the outputs by the sums, in the units in which errors are compared.
    clip : "auto", float or None, public
        Radius, 1 being the influence of the tenth largest unit (of the largest, where there are
        fewer). None leaves outliers as they are, and the noise then tells how large the largest
        is. "auto" takes the radius of the least predicted error, not above 1.
    allowed : array of shape (n_units,), curator-only, optional
        Largest charge of each unit, where below that of ``success``. Units without an allowance
        are left out.

    Guarantee
    ---------
    Claims C-3 and C-6. Every entry of ``charges``, computed from the noise that is used on all
    units, is at most ``parameter`` and at most ``allowed``, and the success of ``risk`` is at most
    ``success``. A plan does not depend on the coins.
    """
    _check_settings(sums, keep, slopes, clip)
    n_directions = sums.n_cells * sums.block
    slack = (n_directions + 1) / (16.0 * float(steps_per_std(sums.n_units)) ** 2)
    parameter = influence_parameter(success, slack)
    scaled, shares = _scale_to_allowance(sums, allowed, parameter)
    factors, radius = np.ones(sums.n_units), None
    gap, lattice = 1.0, _empty_lattice(sums)
    if scaled.values.any():
        crowd = _find_crowd(scaled, slopes, parameter, shrink=clip is not None)
        if clip is not None:
            trace = crowd.trace / (parameter * keep) ** 2
            radius = _best_radius(sums, crowd, trace) if clip == "auto" else float(clip)
            factors = _shrink(crowd.norms, radius)
        shape = least_trace(scaled, crowd.frame, factors, crowd.first_norms)
        gap, lattice = shape.gap, _choose_lattice(scaled, crowd.frame, shape, parameter)
    factors = np.where(shares > 0, factors, 0.0)
    charges = lattice.charges(sums, factors)
    if allowed is not None and (charges > allowed).any():  # by what rounding adds to small shares
        room = allowed - 2.0 * lattice.rounding_allowance(sums)
        reduced = np.divide(
            room, charges, out=np.zeros_like(room), where=(room > 0) & (charges > room)
        )
        factors = np.where(charges > allowed, factors * reduced, factors)
        charges = lattice.charges(sums, factors)
    if charges.size and not float(charges.max()) <= parameter:  # NaN, too
        raise BudgetError(
            "noise must hide every unit; got a unit that costs more than the budget. Rescale what "
            "is summed."
        )
    return SumPlan(
        lattice=lattice,
        factors=factors,
        charges=charges,
        clipped=sums.total(factors),
        parameter=parameter,
        keep=keep,
        radius=radius,
        gap=gap,
        centre=sums.centre,
        published=_published(sums, lattice, radius),
    )


def plan_declared(
    sums: UnitSums, declaration: Declaration, *, success: float, keep: float
) -> SumPlan:
    """Return the noise that hides every unit that could be declared, and so that one is there.

    Guarantee
    ---------
    Claim C-9. Assumes that ``sums`` are those of rows within the declaration, each unit with
    ``rows_per_unit`` rows at most. Noise, directions, grid and parameter are functions of the
    declaration and of the budget alone, and any unit costs at most ``parameter``: with or without
    it, the noisy sums are as hard to tell apart as two normal laws at that distance.
    """
    axes = declaration.axes()
    steps = steps_per_std(DECLARED_UNITS)
    rank = sum(1 if axis.merged else len(axis.places) for axis in axes)
    if rank > WIDEST_BLOCK:
        raise BudgetError(
            f"declared sums must be at most {WIDEST_BLOCK} in a group; got {rank}. Name fewer "
            "columns or levels."
        )
    slack = (declaration.n_cells * rank + 1) / (16.0 * float(steps) ** 2)
    parameter = influence_parameter(success, slack)
    rows = declaration.rows_per_unit
    room = parameter * (1 - 2.0**-20) - 2.0 * math.sqrt(rows * declaration.n_axes_of_row) / steps
    if not room > 0:
        raise BudgetError(
            "rows_per_unit must be smaller for this budget; got too many. Use fewer, or allow a "
            "larger success."
        )
    n_sums = sum(len(axis.places) for axis in axes)
    if (declaration.n_cells, n_sums) != (sums.n_cells, sums.block):
        raise BudgetError("sums must be those of the declaration; got other sums. Declare again.")
    into, back, std = np.zeros((sums.block, rank)), np.zeros((rank, sums.block)), np.zeros(rank)
    first = 0
    for axis in axes:
        width = 1 if axis.merged else len(axis.places)
        places, columns = list(axis.places), slice(first, first + width)
        # One sum for each coordinate: products are exact, whoever else is in the table.
        into[places[:width], columns] = np.eye(width)
        back[columns, places] = 1.0 if axis.merged else np.eye(width)
        std[columns] = rows * axis.reach / (math.sqrt(axis.share) * room)
        first += width
    cells = declaration.n_cells
    lattice = UnitLattice.choose(
        np.broadcast_to(into, (cells, *into.shape)),
        np.broadcast_to(back, (cells, *back.shape)),
        np.broadcast_to(std, (cells, rank)),
        DECLARED_UNITS,
    )
    factors = np.ones(sums.n_units)
    charges = lattice.charges(sums, factors)
    largest = declaration.unit_influence(lattice.grid, lattice.units_per_std)
    if not max(largest, float(charges.max(initial=0.0))) <= parameter:
        raise BudgetError("noise must hide every unit within the declaration; it does not.")
    return SumPlan(
        lattice=lattice,
        factors=factors,
        charges=charges,
        clipped=sums.total(),
        parameter=parameter,
        keep=keep,
        radius=None,
        gap=1.0,
        centre=sums.centre,
        published=(),
    )


def _scale_to_allowance(
    sums: UnitSums, allowed: Vector | None, parameter: float
) -> tuple[UnitSums, Vector]:
    """Return sums scaled to equal allowances, and the allowed share of every unit."""
    if allowed is None:
        return sums, np.ones(sums.n_units)
    shares = np.minimum(allowed / parameter, 1.0)
    shares = np.where(shares > LEAST_SHARE, shares, 0.0)
    if (shares == 1.0).all():
        return sums, shares
    inverse = np.divide(1.0, shares, out=np.zeros_like(shares), where=shares > 0)
    of_entries = inverse if sums.units is None else inverse[sums.units]
    return replace(sums, values=sums.values * of_entries[:, None]), shares


def _check_settings(sums: UnitSums, keep: float, slopes: Cube | None, clip: Clip) -> None:
    if not 0.0 < keep <= 1.0:
        raise BudgetError(f"keep must be above 0 and at most 1; got {keep}. Use Coins.resolve.")
    if slopes is not None and not (
        slopes.shape[::2] == (sums.n_cells, sums.block) and (np.abs(slopes) < LARGEST_OUTPUT).all()
    ):
        raise BudgetError(
            f"slopes must be finite, of shape ({sums.n_cells}, outputs, {sums.block}); got shape "
            f"{slopes.shape} or others. Use SumStatistic.output_slopes."
        )
    if sums.block > WIDEST_BLOCK:
        raise BudgetError(
            f"cells must have at most {WIDEST_BLOCK} sums; got {sums.block}. Pass a cell for "
            "every sum."
        )
    number = isinstance(clip, int | float) and not isinstance(clip, bool)
    if clip is None or clip == "auto" or (number and 0 < float(clip) < math.inf):
        return
    raise BudgetError(
        f"clip must be 'auto', None or a positive number; got {as_told(clip)}. Use 'auto'."
    )


def _choose_lattice(
    sums: UnitSums, frame: SumFrame, shape: LeastTrace, parameter: float
) -> UnitLattice:
    """Return the noise, scaled so that it hides the largest unit and rounded up."""
    coordinates = sums.add_by_unit(np.full(len(sums.values), float(frame.rank)))
    scale = least_scale(np.sqrt(shape.norms), coordinates, parameter, sums.n_units)
    std = round_up_two_digits(scale * np.sqrt(shape.variances))
    into = frame.into @ shape.basis
    back = np.swapaxes(shape.basis, 1, 2) @ frame.back
    return UnitLattice.choose(into, back, std, sums.n_units)


def _empty_lattice(sums: UnitSums) -> UnitLattice:
    """Return the lattice of empty sums, with no direction."""
    return UnitLattice(
        into=np.zeros((sums.n_cells, sums.block, 0)),
        back=np.zeros((sums.n_cells, 0, sums.block)),
        grid=np.zeros((sums.n_cells, 0)),
        units_per_std=np.zeros((sums.n_cells, 0), dtype=np.int64),
    )


def _published(sums: UnitSums, lattice: UnitLattice, radius: float | None) -> tuple[str, ...]:
    """List the facts of all records that a release shows besides the noisy sums."""
    facts = []
    if lattice.n_directions:
        facts.append("size and directions of the noise: computed from all records, rounded up")
        if radius is None:
            facts.append("units are not clipped: the noise tells how large the largest is")
        else:
            facts.append(
                f"units are clipped at {radius:g} times the influence of the tenth largest"
            )
        sizes = [each.entries_per_cell for each in sums.tables if each.n_cells > 1]
        if any(((size > 0) & (size < CROWD)).any() for size in sizes):
            facts.append(
                f"groups of fewer than {CROWD} units: their noise tells how much these add"
            )
    if lattice.grid.shape[1] < sums.block:
        facts.append(
            "what is the same for every unit leaves without noise: sums that nobody adds to, "
            "columns of one value, sums that follow from others"
        )
    if sums.centre.any():
        facts.append("centres of columns, to a sixteenth of a deviation")
    return tuple(facts)


# --- clipping --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Crowd:
    """Coordinates and a norm that no single unit decides."""

    frame: SumFrame
    first_norms: Vector  # squared, of entries, in a first shape
    norms: Vector  # of units in the least noise for the crowd, over that of the tenth largest
    trace: float  # of that noise at parameter 1 and radius 1


def _find_crowd(sums: UnitSums, slopes: Cube | None, parameter: float, *, shrink: bool) -> _Crowd:
    """Shrink units to the tenth largest in every sum, in every cell and in the norm, if at all.

    Again in the norm that follows, as long as a unit stands out in it.
    """
    shrunk = _shrink_columns(sums) if shrink else None
    frame = make_frame(sums, slopes, parameter, shrunk)
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        first_norms = entry_norms(sums, crowd_norm(frame))
    norms, trace = _check_norms(np.sqrt(sums.add_by_unit(first_norms))), 0.0
    if shrunk is not None:
        in_cells = _shrink_in_cells(sums, np.sqrt(first_norms))
        for _ in range(MAX_CROWD_ROUNDS):
            tenth = _tenth_largest(norms)
            shrunk = np.minimum(_shrink(norms, tenth), in_cells) if tenth > 0 else shrunk
            frame = make_frame(sums, slopes, parameter, shrunk)
            shape = least_trace(sums, frame, shrunk, first_norms, CROWD_GAP)
            norms, trace = np.sqrt(shape.norms) / shrunk, float(shape.variances.sum())
            if not tenth > 0 or (norms * shrunk).max() <= STANDS_OUT * _tenth_largest(norms):
                break
    unit = _tenth_largest(norms) or 1.0  # rounding a radius up must not pass the tenth largest
    return _Crowd(frame=frame, first_norms=first_norms, norms=norms / unit, trace=trace * unit**2)


def _check_norms(norms: Vector) -> Vector:
    if not (norms < LARGEST_OUTPUT).all():
        raise BudgetError(
            f"contributions must be within {LARGEST_OUTPUT:g} times the size of the tenth largest; "
            "got larger ones. Correct the declaration."
        )
    return norms


def _shrink_columns(sums: UnitSums) -> Vector:
    """Return the factors that bring every sum of a unit to the tenth largest of that sum."""
    factors = np.ones(len(sums.values))
    for column in np.abs(sums.values).T:
        tenth = _tenth_largest(column)
        if tenth > 0:  # fewer are no crowd: the norm is all that there is
            factors = np.minimum(factors, tenth / np.maximum(column, tenth))
    if sums.units is None:
        return factors
    of_units = np.ones(sums.n_units)
    np.minimum.at(of_units, sums.units, factors)
    return of_units


def _shrink_in_cells(sums: UnitSums, norms: Vector) -> Vector:
    """Return the factors that bring the entries of a cell to its tenth largest norm.

    A cell whose sums are small beside those of others must not take its noise from one unit.
    Fewer than ten are no crowd, and stay.
    """
    of_units = np.ones(sums.n_units)
    if sums.units is None:
        return of_units
    for first, last in itertools.pairwise(sums.starts.tolist()):
        cell_norms = norms[first:last]
        tenth = _tenth_largest(cell_norms)
        if tenth > 0:
            far = np.flatnonzero(cell_norms > tenth)
            units = sums.units[first + far]  # each once in a cell
            of_units[units] = np.minimum(of_units[units], tenth / cell_norms[far])
    return of_units


def _best_radius(sums: UnitSums, crowd: _Crowd, noise_trace: float) -> float:
    """Return the radius of the least predicted error: squared bias and variance of the noise.

    ``noise_trace`` is the variance of the crowd's noise; at radius ``r`` it is ``r²`` times that.
    """
    radii = _radii(crowd.norms)
    missing = np.zeros((len(radii), sums.n_cells, sums.block))
    each = np.array(radii)[:, None]
    for cell, entries in sums.chunks():
        factors = each / np.maximum(crowd.norms[sums.units_of(entries)], each)
        missing[:, cell] += (1.0 - factors) @ sums.values[entries]
    bias = np.square(np.einsum("kcb,cbr->kcr", missing, crowd.frame.into)).sum(axis=(1, 2))
    return radii[int(np.argmin(bias + np.square(radii) * noise_trace))]


def _radii(norms: Vector) -> list[float]:
    """Return the radii that are tried: quantiles and the tenth largest, rounded up."""
    most = _tenth_largest(norms)
    if not most > 0:
        raise BudgetError(
            f"clip='auto' must have at least {CROWD} units that add something; got fewer. Merge "
            "groups, or declare a radius: clip=0.5."
        )
    ranks = [int(share * (len(norms) - 1)) for share in CLIP_QUANTILES]
    quantiles = np.partition(norms, ranks)[ranks].tolist()
    return sorted({two_digits(min(r, most)) for r in (*quantiles, most) if r > 0})


def _tenth_largest(norms: Vector) -> float:
    """Return the tenth largest norm, 0 for fewer than ten."""
    rank = len(norms) - CROWD
    return float(np.partition(norms, rank)[rank]) if rank >= 0 else 0.0


def _shrink(norms: Vector, radius: float) -> Vector:
    """Return the factors that bring every norm to the radius at most."""
    factors: Vector = radius / np.maximum(norms, radius)
    return factors
