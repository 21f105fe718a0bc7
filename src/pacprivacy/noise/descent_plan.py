"""Descent on the used units: noisy sums of gradients, a clock for every unit, standard errors.

Weights are functions of released sums alone. Each unit pays for its own gradient, used or left out;
its remaining budget is spread over the steps to come, and a gradient that costs more is shortened.
All steps have the same noise: gradients of one norm, the radius, spend the budget under it. Radius
and rate are chosen before a coin is drawn, by rehearsals on all records with separate noise.

With several batches, units are assigned by a public order; a step sums over one batch, and units
pay only in the steps of their own batch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Mask, Matrix, Vector, freeze
from pacprivacy._random import BitSource, public_generator
from pacprivacy._rounding import two_digits
from pacprivacy.adversary import influence_parameter
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import FEATURE_BITS, StepMechanism, StepProblem
from pacprivacy.noise.lattice import sample_discrete_gaussian
from pacprivacy.noise.sum_plan import LEAST_SHARE
from pacprivacy.noise.unit_lattice import ROUND_UP_NORM
from pacprivacy.theory import lattice_total_variation_bound

STEPS_BITS: Final = 30  # a deviation of the noise has 2^29 to 2^30 grid steps
LEAST_STEPS_PER_STD: Final = 1 << (STEPS_BITS - 1)
RESIDUAL_BITS: Final = 40  # of slopes, at most
MOST_REHEARSED: Final = 1 << 14  # units; more change neither radius nor rate
N_PATHS: Final = 1000  # simulated for standard errors: they are exact to about 2 %
MOST_WEIGHTS: Final = 200  # of a model whose standard errors are simulated
_EXACT_FLOAT: Final = 2.0**52
_CHUNK: Final = 1 << 22  # numbers at a time
_BELOW: Final = 1 - 2.0**-30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentUnits:
    """Units of the rows; rows are sorted by unit if a unit has several."""

    n_units: int
    codes: npt.NDArray[np.int64] | None = field(repr=False)  # of sorted rows
    starts: npt.NDArray[np.int64] | None = field(default=None, repr=False)

    @classmethod
    def sort(
        cls, problem: StepProblem, codes: npt.NDArray[np.integer] | None, n_units: int
    ) -> tuple[Self, StepProblem]:
        """Return units, and the problem with its rows in their order."""
        if codes is None:
            return cls(n_units=n_units, codes=None), problem
        order = np.argsort(codes, kind="stable")
        ordered = codes[order].astype(np.int64)
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        return cls(n_units=n_units, codes=ordered, starts=starts), problem.ordered(order)

    def of_rows(self, per_unit: Vector) -> Vector:
        """Return the number of every row's unit."""
        return per_unit if self.codes is None else per_unit[self.codes]

    def gradients(self, rows: Matrix, slopes: Matrix) -> Matrix:
        """Return the gradients of units that have rows, of one score."""
        each = np.ldexp(rows * slopes, -FEATURE_BITS)
        return each if self.starts is None else np.add.reduceat(each, self.starts, axis=0)

    def norms(self, rows: Matrix, slopes: Matrix, row_norms: Vector) -> Vector:
        """Return the norm of every unit's gradient, in grid steps if slopes are; rounded up."""
        width = rows.shape[1] * slopes.shape[1]
        round_up = ROUND_UP_NORM * (1 + width * 2.0**-53)
        if self.codes is None or self.starts is None:
            of_slopes = np.sqrt(np.einsum("ij,ij->i", slopes, slopes))
            return np.asarray(row_norms * of_slopes * round_up)
        norms = np.zeros(self.n_units)
        ends = np.append(self.starts[1:], len(rows))
        first = 0
        while first < len(self.starts):
            limit = self.starts[first] + max(1, _CHUNK // width)
            last = max(first + 1, int(np.searchsorted(ends, limit, side="right")))
            begin, end = int(self.starts[first]), int(ends[last - 1])
            each = rows[begin:end, :, None] * slopes[begin:end, None, :]
            sums = np.add.reduceat(each, self.starts[first:last] - begin, axis=0)
            squares = np.einsum("ijk,ijk->i", sums, sums)
            norms[self.codes[self.starts[first:last]]] = np.sqrt(squares) * round_up
            first = last
        return norms

    def added_norms(self, row_norms: Vector) -> Vector:
        """Return the sum of the norms of a unit's rows."""
        if self.codes is None:
            return row_norms
        added = np.bincount(self.codes, weights=row_norms, minlength=self.n_units)
        return np.asarray(added, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentBatch:
    """Units whose gradients are summed in the same steps, and their rows; curator-only.

    ``members`` are the numbers of the units among all.
    """

    problem: StepProblem = field(repr=False)
    units: DescentUnits = field(repr=False)
    members: npt.NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(
        cls,
        problem: StepProblem,
        codes: npt.NDArray[np.integer] | None,
        members: npt.NDArray[np.int64],
        n_units: int,
    ) -> Self:
        """Take the rows of these units, in ascending order, out of those of all units."""
        n_members = len(members)
        if codes is None:
            part = problem if n_members == n_units else problem.ordered(members)
            units = DescentUnits(n_units=n_members, codes=None)
            return cls(problem=part, units=units, members=members)
        place = np.full(n_units, -1)
        place[members] = np.arange(n_members)
        rows = np.flatnonzero(place[codes] >= 0)
        units, ordered = DescentUnits.sort(problem.ordered(rows), place[codes[rows]], n_members)
        return cls(problem=ordered, units=units, members=members)


def split_descent_units(
    problem: StepProblem,
    codes: npt.NDArray[np.integer] | None,
    n_units: int,
    n_batches: int,
    most: int | None = None,
) -> tuple[DescentBatch, ...]:
    """Deal units out to batches by a public order; ``most`` takes so many of them."""
    if n_batches == 1 and (most is None or most >= n_units):
        everybody = np.arange(n_units)
        return (DescentBatch.of(problem, codes, everybody, n_units),)
    order = public_generator(0, "descent-batches").permutation(n_units)[:most]
    parts = (np.sort(order[first::n_batches]) for first in range(n_batches))
    return tuple(DescentBatch.of(problem, codes, members, n_units) for members in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNoise:
    """The noise of one step: ``units_per_std`` grid steps of ``2^-bits``; public."""

    bits: int
    units_per_std: int

    @classmethod
    def at_least(cls, std: float) -> Self:
        """Return noise of this deviation or a little more."""
        bits = min(FEATURE_BITS + RESIDUAL_BITS, STEPS_BITS - math.frexp(std)[1])
        units = math.ceil(math.ldexp(std, bits))
        if bits < FEATURE_BITS - 40 or units < LEAST_STEPS_PER_STD:
            raise BudgetError(
                "noise of a step must be within 2^-22 and 2^58 times a feature's deviation; got "
                "another. Rescale the target, or use clip=4."
            )
        return cls(bits=bits, units_per_std=units)

    @property
    def std(self) -> float:
        """Standard deviation of every number."""
        return math.ldexp(self.units_per_std, -self.bits)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentTranscript:
    """Released integers of the steps, public, and payments of every unit, curator-only.

    ``integers`` has shape (steps, features, scores), in grid steps.
    """

    integers: Integers
    spent: Vector = field(repr=False)
    weights: Matrix

    def __post_init__(self) -> None:
        for array in (self.integers, self.spent, self.weights):
            freeze(array)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentPlan:
    """Plan of a released descent: everything but the coins and the noise.

    ``batches``, curator-only, take turns; ``rate`` is the length of a step and ``noise`` that of
    every step. ``parameter`` is the influence that a unit may have in all steps together,
    ``allowed``, curator-only, the limit of every unit's clock. ``rehearsed`` is the end of a
    rehearsal, with separate noise.
    """

    settings: StepMechanism
    batches: tuple[DescentBatch, ...] = field(repr=False)
    rate: float
    noise: tuple[StepNoise, ...]
    keep: float
    parameter: float
    allowed: Vector = field(repr=False)
    rehearsed: Matrix = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the weights."""
        return self.batches[0].problem.shape

    @property
    def n_rows(self) -> int:
        """Number of rows of all units."""
        return sum(batch.problem.n_rows for batch in self.batches)

    @property
    def total_variation(self) -> float:
        """Distance of the sampled noise from a function of a continuous one (claim L-2)."""
        numbers = math.prod(self.shape)
        units = np.repeat([float(step.units_per_std) for step in self.noise], numbers)
        return lattice_total_variation_bound(len(units), units)

    @property
    def rows_digest(self) -> str:
        """SHA-256 of features, targets and units of rows."""
        digest = hashlib.sha256()
        for batch in self.batches:
            for array in batch.problem.arrays:
                digest.update(np.ascontiguousarray(array, dtype="<f8").data)
            if batch.units.codes is not None:
                digest.update(np.ascontiguousarray(batch.units.codes, dtype="<i8").data)
        return digest.hexdigest()

    def release(self, kept: Mask, source: BitSource) -> DescentTranscript:
        """Descend along noisy sums of the gradients of the used units.

        Guarantee
        ---------
        Claim C-14. Assumes that ``kept`` are coins of probability ``keep`` drawn after the plan.
        Ensures that an attacker who knows everything but one unit's coin guesses it, at even odds,
        with the success of ``parameter`` and :attr:`total_variation` at most.
        """
        if kept.dtype != np.bool_ or kept.shape != self.allowed.shape:
            raise BudgetError(
                f"kept must be one truth value for each of {len(self.allowed)} units; got "
                f"{kept.dtype} of shape {kept.shape}. Pass the coins."
            )

        def observe(batch: DescentBatch, rows: Matrix, slopes: Matrix, noise: StepNoise) -> Matrix:
            used = batch.units.of_rows(kept[batch.members].astype(np.float64))
            total = (rows.T @ (slopes * used[:, None])).astype(np.int64)
            units = np.full(total.shape, noise.units_per_std, dtype=np.int64)
            return np.asarray(total + sample_discrete_gaussian(units, source))

        return self._descend(observe)

    def replay(self, integers: Integers) -> DescentTranscript:
        """Recompute weights and clocks from the released integers alone."""
        steps = iter(integers)
        return self._descend(lambda batch, rows, slopes, noise: next(steps))

    def rehearse(self, n_rows: int, seed: int) -> Self:
        """Descend with simulated noise, that of a table of ``n_rows``; return the end beside it."""
        generator, share = public_generator(seed, "descent"), self.n_rows / n_rows

        def observe(batch: DescentBatch, rows: Matrix, slopes: Matrix, noise: StepNoise) -> Matrix:
            total = rows.T @ slopes
            drawn = generator.normal(size=total.shape) * (noise.units_per_std * share)
            return np.asarray(total * self.keep + drawn)

        return replace(self, rehearsed=self._descend(observe, share).weights)

    @property
    def rehearsed_loss(self) -> float:
        """Mean loss at the end of the rehearsal."""
        if not np.isfinite(self.rehearsed).all():
            return math.inf
        losses = [batch.problem.mean_loss(self.rehearsed) for batch in self.batches]
        loss = float(np.mean(losses))
        return loss if loss == loss else math.inf

    def clocks(self) -> list[DescentClock]:
        """Return clocks at zero, one for the units of each batch."""
        return [
            DescentClock(units=batch.units, allowed=self.allowed[batch.members])
            for batch in self.batches
        ]

    def _descend(
        self,
        observe: Callable[[DescentBatch, Matrix, Matrix, StepNoise], Matrix],
        noise_share: float = 1.0,
    ) -> DescentTranscript:
        clocks, released = self.clocks(), []
        path = self.settings.path(self.shape, self.rate)
        for place, noise in enumerate(self.noise):
            number = place % len(self.batches)
            batch = self.batches[number]
            rows, slopes = batch.problem.step(path.weights)
            share = 1.0 / math.ceil((len(self.noise) - place) / len(self.batches))
            whole = clocks[number].pay(rows, slopes, noise, share)
            integers = observe(batch, rows, whole, noise)
            released.append(integers)
            gradient = np.ldexp(integers.astype(np.float64), -noise.bits)
            n_used = self.keep * batch.problem.n_rows
            path.move(gradient / n_used, noise.std * noise_share / n_used)
        spent = np.zeros(len(self.allowed))
        for batch, clock in zip(self.batches, clocks, strict=True):
            spent[batch.members] = clock.spent
        return DescentTranscript(integers=np.stack(released), spent=spent, weights=path.result)


@dataclass(slots=True, kw_only=True, eq=False)
class DescentClock:
    """Payments of every unit, and the limits of their next gradients."""

    units: DescentUnits
    allowed: Vector
    spent: Vector = field(init=False)
    _rows: Matrix | None = field(init=False, default=None)
    _row_norms: Vector = field(init=False)
    _largest: float = field(init=False)

    def __post_init__(self) -> None:
        self.spent = np.zeros(self.units.n_units)

    def limits(self, share: float) -> Vector:
        """Return the current limit of every unit: a share of its remaining budget."""
        return np.sqrt(np.maximum(self.allowed - self.spent, 0.0) * share) * _BELOW

    def pay(self, rows: Matrix, slopes: Matrix, noise: StepNoise, share: float) -> Matrix:
        """Return the whole slopes of every row within its unit's limit, and charge the units.

        Guarantee
        ---------
        Claim C-14. Every unit pays the square of the norm of its own whole gradient over the
        deviation of the noise, rounded up, whether it is used or not, and no clock passes
        ``allowed``. Depends on weights, all records and clocks alone.
        """
        self._measure(rows)
        bits = noise.bits - FEATURE_BITS
        limits = self.limits(share)
        half = 0.5 * math.sqrt(slopes.shape[1])
        rounding = half * self.units.added_norms(self._row_norms) / noise.units_per_std
        room = np.maximum(limits - rounding * (1 + 2.0**-20), 0.0) * noise.std
        norms = np.ldexp(self.units.norms(rows, slopes, self._row_norms), -FEATURE_BITS)
        factors = room / np.maximum(np.maximum(norms, room), 1e-300)
        whole = np.rint(np.ldexp(slopes * self.units.of_rows(factors)[:, None], bits))
        if bits < 0 or (factors == 0).any():
            whole[self.units.of_rows(factors) == 0] = 0.0
        if not np.abs(whole).sum(axis=0).max(initial=0.0) * self._largest < _EXACT_FLOAT:
            raise BudgetError(
                "gradients must add up to less than 2**52 grid steps; they do not. Clip the "
                "features: clip=4."
            )
        charges = self.units.norms(rows, whole, self._row_norms) / noise.units_per_std
        squares = np.square(charges) * (1 + 2.0**-40)
        spent = np.where(squares > 0, np.nextafter(self.spent + squares, np.inf), self.spent)
        if not (spent <= self.allowed).all():
            raise BudgetError(
                "no unit's clock may pass its limit; one would. Nothing more was released."
            )
        self.spent = spent
        return np.asarray(whole)

    def _measure(self, rows: Matrix) -> None:
        """Keep the norms of rows that stay from step to step."""
        if rows is self._rows:
            return
        self._rows, self._row_norms = rows, np.sqrt(np.einsum("ij,ij->i", rows, rows))
        self._largest = max(float(rows.max(initial=0.0)), -float(rows.min(initial=0.0)))


def plan_descent(
    settings: StepMechanism,
    problem: StepProblem,
    codes: npt.NDArray[np.integer] | None,
    *,
    n_units: int,
    success: float,
    keep: float,
    seed: int,
    allowed: Vector | None = None,
) -> DescentPlan:
    """Rehearse a descent on records of all units, and fix its noise and the length of its steps.

    ``allowed`` is the largest influence of every unit, by default that of ``success``. Units with
    less than a thousandth of the largest one have no part, used or not.

    Guarantee
    ---------
    Claim C-14. A function of all records, settings and public randomness; no argument depends on
    the coins.
    """
    n_batches = settings.n_batches
    if n_batches > n_units:
        raise BudgetError(
            f"n_batches must be at most the number of units; got {n_batches} for {n_units}. Use "
            "fewer."
        )
    n_numbers = math.prod(problem.shape) * settings.n_steps
    slack = lattice_total_variation_bound(n_numbers, float(LEAST_STEPS_PER_STD))
    parameter = influence_parameter(success, slack)
    limits = np.full(n_units, parameter) if allowed is None else np.minimum(allowed, parameter)
    limits = np.where(limits > LEAST_SHARE * limits.max(), limits, 0.0)
    batches = split_descent_units(problem, codes, n_units, n_batches)
    paying = limits[limits > 0]
    typical = float(np.median(paying)) if len(paying) else parameter
    n_rehearsed = max(MOST_REHEARSED, n_batches)
    per_radius = math.sqrt(math.ceil(settings.n_steps / n_batches)) / typical

    def rehearse(rate: float, radius: float) -> DescentPlan:
        noise = StepNoise.at_least(two_digits(radius * per_radius))
        plan = replace(trial, rate=rate, noise=(noise,) * settings.n_steps)
        return plan.rehearse(problem.n_rows, seed)

    trial = DescentPlan(
        settings=settings,
        batches=split_descent_units(problem, codes, n_units, n_batches, n_rehearsed),
        rate=1.0,
        noise=(),
        keep=keep,
        parameter=parameter,
        allowed=np.square(limits) * (1 - 2.0**-45),
        rehearsed=np.zeros(problem.shape),
    )
    radii = settings.radii
    first = radii[len(radii) // 2]
    plans = [rehearse(rate, first) for rate in settings.trials]
    best = min(plans, key=lambda plan: plan.rehearsed_loss)
    plans = [best, *(rehearse(best.rate, radius) for radius in radii if radius != first)]
    best = min(plans, key=lambda plan: plan.rehearsed_loss)
    return replace(best, batches=batches)


# --- standard errors -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentErrors:
    """The end without coins and noise, and simulated distances from it, one line a path."""

    end: Vector
    by_coins: Matrix
    by_noise: Matrix


def simulate_descent_errors(plan: DescentPlan, *, seed: int) -> DescentErrors | None:
    """Simulate the distance of paths from the path without coins and noise; None if unknown.

    A path that is off by ``d`` has a gradient that is off by ``Hd``, ``H`` being the second
    derivatives of the rows whose gradient is not shortened: the others stay as long as they are.
    The error by noise is new at every step; that by coins is the error of a sample of the units at
    the end, the same at every step. A function of all records, the plan and public randomness.
    """
    walk = _walk(plan)
    if walk is None:
        return None
    end, bends, gradients = walk
    values, vectors = np.linalg.eigh((1.0 / plan.keep - 1.0) * gradients.T @ gradients)
    generator = public_generator(seed, "descent-errors")
    size = (len(end), N_PATHS)
    sample = vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * generator.normal(size=size))
    shifts = []
    for by_noise in (False, True):
        path = plan.settings.path(size, plan.rate)
        for noise, hessian in zip(plan.noise, bends, strict=True):
            std = noise.std / (plan.keep * plan.n_rows)
            error = generator.normal(size=size) * std if by_noise else sample
            path.move(hessian @ path.weights + error, std)
        shifts.append(path.result.T)
    if not all(np.isfinite(shift).all() for shift in shifts):
        return None
    return DescentErrors(end=end.ravel(), by_coins=shifts[0], by_noise=shifts[1])


def _walk(plan: DescentPlan) -> tuple[Matrix, list[Matrix], Matrix] | None:
    """Descend without coins and noise; return the end, second derivatives, and last gradients."""
    if len(plan.batches) > 1:
        return None
    problem, units, (clock,) = plan.batches[0].problem, plan.batches[0].units, plan.clocks()
    path = plan.settings.path(plan.shape, plan.rate)
    bends: list[Matrix] = []
    for place, noise in enumerate(plan.noise):
        rows, slopes = problem.step(path.weights)
        paid = clock.pay(rows, slopes, noise, 1.0 / (len(plan.noise) - place))
        paid = np.ldexp(paid, FEATURE_BITS - noise.bits)
        grid = math.ldexp(1.0, FEATURE_BITS - noise.bits)
        free = np.asarray((np.abs(paid) >= np.abs(slopes) - grid).all(axis=1), dtype=np.float64)
        hessian = problem.hessian(path.weights, free)
        if hessian is None or len(hessian) > MOST_WEIGHTS:
            return None
        bends.append(hessian)
        path.move(np.ldexp(rows.T @ paid, -FEATURE_BITS) / problem.n_rows, 0.0)
    return path.result, bends, units.gradients(rows, paid) / problem.n_rows
