"""Descent on the units that are used: noisy sums of gradients, and a clock for every unit.

Weights are functions of released sums alone, so every unit's gradient at every step is known to
whoever knows its records, used or not. Each unit pays for its own gradient, used or left out; what
it may still pay is spread over the steps to come, and a gradient that costs more is shortened. The
noise of every step is found before a coin is drawn, by a rehearsal on all records with noise of its
own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
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
from pacprivacy.noise.sum_plan import CLIP_QUANTILES, CROWD, LEAST_SHARE
from pacprivacy.noise.unit_lattice import ROUND_UP_NORM
from pacprivacy.theory import lattice_total_variation_bound

STEPS_BITS: Final = 30  # a deviation of the noise has 2^29 to 2^30 grid steps
LEAST_STEPS_PER_STD: Final = 1 << (STEPS_BITS - 1)
RESIDUAL_BITS: Final = 40  # of slopes, at most
RECONSIDERED: Final = (0.0, 0.25, 0.5)  # shares of the steps at which clipping is chosen anew
LEAST_STD: Final = 2.0**-20  # of a step's noise, in deviations of a feature
_EXACT_FLOAT: Final = 2.0**52
_CHUNK: Final = 1 << 22  # numbers at a time
_BELOW: Final = 1 - 2.0**-30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentUnits:
    """Which rows are whose; rows are sorted by unit where a unit has several."""

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

    def norms(self, rows: Matrix, slopes: Matrix) -> Vector:
        """Return the norm of every unit's gradient, in grid steps if slopes are; rounded up."""
        width = rows.shape[1] * slopes.shape[1]
        round_up = ROUND_UP_NORM * (1 + width * 2.0**-53)
        if self.codes is None or self.starts is None:
            squares = np.einsum("ij,ij->i", rows, rows) * np.einsum("ij,ij->i", slopes, slopes)
            return np.asarray(np.sqrt(squares) * round_up)
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
    """What the steps released, public, and what every unit has paid, curator-only.

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
    """How a descent is released; everything but the coins and the noise.

    Parameters
    ----------
    settings : StepMechanism, public
        Steps, their length, momentum, penalty.
    problem, units
        Rows and whose they are; curator-only.
    rate : float, public
        Length of a step.
    noise : tuple of StepNoise, public
        Of every step.
    keep : float, public
        Probability with which a unit is used.
    parameter : float, public
        The influence that a unit may have in all steps together.
    allowed : array of shape (n_units,), curator-only
        Its square, of every unit: what its clock may reach.
    """

    settings: StepMechanism
    problem: StepProblem = field(repr=False)
    units: DescentUnits = field(repr=False)
    rate: float
    noise: tuple[StepNoise, ...]
    keep: float
    parameter: float
    allowed: Vector = field(repr=False)
    rehearsed: Matrix = field(repr=False)

    @property
    def total_variation(self) -> float:
        """Distance of the sampled noise from a function of a continuous one (claim L-2)."""
        return descent_total_variation(self.noise, math.prod(self.problem.shape))

    @property
    def rows_digest(self) -> str:
        """SHA-256 of features, targets and whose rows they are."""
        digest = hashlib.sha256()
        for array in self.problem.arrays:
            digest.update(np.ascontiguousarray(array, dtype="<f8").data)
        if self.units.codes is not None:
            digest.update(np.ascontiguousarray(self.units.codes, dtype="<i8").data)
        return digest.hexdigest()

    def release(self, kept: Mask, source: BitSource) -> DescentTranscript:
        """Descend along noisy sums of the gradients of the units that are used.

        Guarantee
        ---------
        Claim C-14. Assumes that ``kept`` are coins of probability ``keep`` drawn after the plan.
        Ensures that whoever knows everything but one unit's coin guesses it, at even odds, with the
        success of ``parameter`` and :attr:`total_variation` at most.
        """
        if kept.dtype != np.bool_ or kept.shape != (self.units.n_units,):
            raise BudgetError(
                f"kept must be one truth value for each of {self.units.n_units} units; got "
                f"{kept.dtype} of shape {kept.shape}. Pass the coins."
            )
        used = self.units.of_rows(kept.astype(np.float64))[:, None]

        def observe(rows: Matrix, slopes: Matrix, noise: StepNoise) -> Integers:
            total = (rows.T @ (slopes * used)).astype(np.int64)
            units = np.full(total.shape, noise.units_per_std, dtype=np.int64)
            return np.asarray(total + sample_discrete_gaussian(units, source))

        return self._descend(observe)

    def replay(self, integers: Integers) -> DescentTranscript:
        """Return weights and clocks again, given what the steps released.

        They are functions of it: nobody's coin has a part in them.
        """
        steps = iter(integers)
        return self._descend(lambda rows, slopes, noise: next(steps))

    def _descend(
        self, observe: Callable[[Matrix, Matrix, StepNoise], Integers]
    ) -> DescentTranscript:
        clock = DescentClock(units=self.units, allowed=self.allowed)
        path = self.settings.path(self.problem.shape, self.rate)
        released = []
        for place, noise in enumerate(self.noise):
            share = 1.0 / (len(self.noise) - place)
            rows, slopes = self.problem.step(path.weights)
            whole = clock.pay(rows, slopes, noise, share)
            integers = observe(rows, whole, noise)
            released.append(integers)
            gradient = np.ldexp(integers.astype(np.float64), -noise.bits)
            n_used = self.keep * self.problem.n_rows
            path.move(gradient / n_used, noise.std / n_used)
        return DescentTranscript(
            integers=np.stack(released), spent=clock.spent, weights=path.result
        )


@dataclass(slots=True, kw_only=True, eq=False)
class DescentClock:
    """What every unit has paid, and what its gradient of the next step is shortened to."""

    units: DescentUnits
    allowed: Vector
    spent: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.spent = np.zeros(self.units.n_units)

    def limits(self, share: float) -> Vector:
        """Return the influence that every unit may have now: a share of what is left."""
        return np.sqrt(np.maximum(self.allowed - self.spent, 0.0) * share) * _BELOW

    def pay(self, rows: Matrix, slopes: Matrix, noise: StepNoise, share: float) -> Matrix:
        """Return what every row adds, whole slopes that its unit can pay for, and charge them.

        Guarantee
        ---------
        Claim C-14. Every unit pays the square of the norm of its own whole gradient over the
        deviation of the noise, rounded up, whether it is used or not, and no clock passes
        ``allowed``. Depends on weights, all records and clocks alone.
        """
        bits = noise.bits - FEATURE_BITS
        limits = self.limits(share)
        half = 0.5 * math.sqrt(slopes.shape[1])
        row_norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rounding = half * self.units.added_norms(row_norms) / noise.units_per_std
        room = np.maximum(limits - rounding * (1 + 2.0**-20), 0.0) * noise.std
        norms = np.ldexp(self.units.norms(rows, slopes), -FEATURE_BITS)
        factors = room / np.maximum(np.maximum(norms, room), 1e-300)
        whole = np.rint(np.ldexp(slopes * self.units.of_rows(factors)[:, None], bits))
        if bits < 0 or (factors == 0).any():
            whole[self.units.of_rows(factors) == 0] = 0.0
        largest = float(np.abs(rows).max(initial=0.0))
        if not np.abs(whole).sum(axis=0).max(initial=0.0) * largest < _EXACT_FLOAT:
            raise BudgetError(
                "gradients must add up to less than 2**52 grid steps; they do not. Clip the "
                "features: clip=4."
            )
        charges = self.units.norms(rows, whole) / noise.units_per_std
        squares = np.square(charges) * (1 + 2.0**-40)
        spent = np.where(squares > 0, np.nextafter(self.spent + squares, np.inf), self.spent)
        if not (spent <= self.allowed).all():
            raise BudgetError(
                "no unit's clock may pass its limit; one would. Nothing more was released."
            )
        self.spent = spent
        return np.asarray(whole)


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
    """Rehearse a descent on all records, and fix its noise and the length of its steps.

    ``allowed`` is the influence that every unit may have, by default that of ``success``; who may
    have less than a thousandth of the most is left out, used or not.

    Guarantee
    ---------
    Claim C-14. A function of all records, settings and public randomness; no argument depends on
    who is used.
    """
    units, ordered = DescentUnits.sort(problem, codes, n_units)
    n_numbers = math.prod(ordered.shape) * settings.n_steps
    slack = lattice_total_variation_bound(n_numbers, float(LEAST_STEPS_PER_STD))
    parameter = influence_parameter(success, slack)
    limits = np.full(n_units, parameter) if allowed is None else np.minimum(allowed, parameter)
    limits = np.where(limits > LEAST_SHARE * limits.max(), limits, 0.0)
    squares = np.square(limits) * (1 - 2.0**-45)
    rehearsals = [
        _rehearse(settings, ordered, units, (squares, keep), rate, seed) for rate in settings.trials
    ]
    best = min(rehearsals, key=lambda each: each.loss)
    return DescentPlan(
        settings=settings,
        problem=ordered,
        units=units,
        rate=best.rate,
        noise=best.noise,
        keep=keep,
        parameter=parameter,
        allowed=squares,
        rehearsed=best.weights,
    )


def descent_total_variation(noise: tuple[StepNoise, ...], n_numbers: int) -> float:
    """Return the slack of all steps together, for so many numbers a step."""
    units = np.repeat([float(step.units_per_std) for step in noise], n_numbers)
    return lattice_total_variation_bound(len(units), units)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _DryRun:
    rate: float
    noise: tuple[StepNoise, ...]
    weights: Matrix
    loss: float


def _rehearse(
    settings: StepMechanism,
    problem: StepProblem,
    units: DescentUnits,
    limits: tuple[Vector, float],
    rate: float,
    seed: int,
) -> _DryRun:
    """Descend on all records with simulated noise, choosing how much every step has."""
    allowed, keep = limits
    generator = public_generator(seed, "descent")
    clock = DescentClock(units=units, allowed=allowed)
    path = settings.path(problem.shape, rate)
    chosen, quantile = [], 1.0
    again = {int(share * settings.n_steps) for share in RECONSIDERED}
    for place in range(settings.n_steps):
        share = 1.0 / (settings.n_steps - place)
        rows, slopes = problem.step(path.weights)
        needs = _Needs.of(clock, rows, slopes, share)
        if place in again:
            quantile = needs.best_quantile(rows, slopes, share)
        noise = StepNoise.at_least(two_digits(needs.std(quantile)))
        chosen.append(noise)
        whole = clock.pay(rows, slopes, noise, share)
        gradient = np.ldexp(rows.T @ whole, -noise.bits)
        gradient += generator.normal(size=gradient.shape) * noise.std / keep
        path.move(gradient / problem.n_rows, noise.std / (keep * problem.n_rows))
    weights = path.result
    loss = problem.mean_loss(weights) if np.isfinite(weights).all() else math.inf
    return _DryRun(
        rate=rate, noise=tuple(chosen), weights=weights, loss=loss if loss == loss else math.inf
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Needs:
    """Norms of units' gradients, what each may pay, and the noise that it needs for that."""

    units: DescentUnits
    norms: Vector
    limits: Vector
    stds: Vector

    @classmethod
    def of(cls, clock: DescentClock, rows: Matrix, slopes: Matrix, share: float) -> Self:
        """Measure all units at one step."""
        norms = np.ldexp(clock.units.norms(rows, slopes), -FEATURE_BITS)
        limits = clock.limits(share)
        stds = np.divide(norms, limits, out=np.zeros_like(norms), where=limits > 0)
        return cls(units=clock.units, norms=norms, limits=limits, stds=stds)

    @property
    def most(self) -> float:
        """Tenth largest need of a unit: that of a crowd, not of a person."""
        rank = max(0, len(self.stds) - CROWD)
        return float(np.partition(self.stds, rank)[rank])

    def std(self, quantile: float) -> float:
        """Return the noise that a share of the units needs, never more than the tenth largest."""
        most, rank = self.most, int(quantile * (len(self.stds) - 1))
        return max(min(float(np.partition(self.stds, rank)[rank]), most), most * 1e-3, LEAST_STD)

    def best_quantile(self, rows: Matrix, slopes: Matrix, share: float) -> float:
        """Return the share of units not clipped with the least predicted error.

        Squared bias of the sum, which stays, and the variance of the noise, which the steps to come
        average.
        """
        best = (math.inf, 1.0)
        for quantile in (*CLIP_QUANTILES, 1.0):
            std = self.std(quantile)
            missing = 1.0 - np.minimum(1.0, self.limits * std / np.maximum(self.norms, 1e-300))
            of_rows = self.units.of_rows(missing)
            clipped = np.flatnonzero(of_rows)
            bias = rows[clipped].T @ (slopes[clipped] * of_rows[clipped, None])
            error = math.ldexp(float(np.square(bias).sum()), -2 * FEATURE_BITS)
            best = min(best, (error + bias.size * std**2 * share, quantile))
        return best[1]
