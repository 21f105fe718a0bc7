"""Statistics that are no sums, with coins: noise for what one unit moves on average.

A plan is a function of all records, of public settings and of public randomness. It is complete
before a coin is drawn; :meth:`AveragePlan.release` is the only place where the sample enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Final

import numpy as np

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy._random import BitSource
from pacprivacy.adversary import (
    LARGE_MOVE,
    LARGE_MOVE_SHARE,
    AverageRisk,
    InfluenceProof,
    QuantileInfluence,
    QuantileWindow,
)
from pacprivacy.errors import BudgetError
from pacprivacy.noise.lattice import UNITS_PER_STD, lattice_grid, sample_discrete_gaussian
from pacprivacy.noise.unit_lattice import round_up_two_digits
from pacprivacy.statistics import OrderStatistics, SampleValue
from pacprivacy.theory import lattice_total_variation_bound

LEAST_NOISE: Final = 1e-6  # of the numbers around a quantile: where they are tied, none is needed
SHARING_ROUNDS: Final = 4
SEARCH_ACCURACY: Final = 1e-4  # of the noise, which is rounded up to two digits
MOST_NOISE: Final = 1e12  # times the least
_EXACT: Final = 2.0**52


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputLattice:
    """Noise directions of a value, their grids, and the noise on them.

    ``into`` leads from the numbers to directions, ``back`` from these to the numbers, curator-only;
    None: every number is one. ``grid`` has a step for each, a power of two, ``units_per_std`` the
    deviation of the noise in steps.
    """

    grid: Vector = field(repr=False)
    units_per_std: Integers = field(repr=False)
    into: Matrix | None = field(default=None, repr=False)
    back: Matrix | None = field(default=None, repr=False)

    @classmethod
    def choose(
        cls, noise_std: Vector, into: Matrix | None = None, back: Matrix | None = None
    ) -> OutputLattice:
        """Choose grids for deviations, which are rounded up to whole steps."""
        grid, units = lattice_grid(noise_std)
        return cls(grid=grid, units_per_std=units, into=into, back=back)

    @property
    def noise_std(self) -> Vector:
        """Standard deviation of the noise in every direction."""
        return np.asarray(self.grid * self.units_per_std)

    @property
    def rounding(self) -> float:
        """What rounding two values may add to their distance, in deviations of the noise."""
        return rounding_of(self.units_per_std)

    @property
    def total_variation(self) -> float:
        """Distance of the sampled law from a function of continuous noise (claim L-2)."""
        return lattice_total_variation_bound(
            len(self.units_per_std), self.units_per_std.astype(np.float64)
        )

    def output_std(self) -> Vector:
        """Return the standard deviation of the noise of every number."""
        if self.back is None:
            return self.noise_std
        return np.asarray(np.sqrt(np.square(self.noise_std[:, None] * self.back).sum(axis=0)))

    def release(self, value: Vector, source: BitSource) -> Vector:
        """Round a value to whole numbers, add integer noise, and put the units back.

        Numbers beyond 2^52 steps are cut off there, which brings none farther from another.
        """
        directions = value if self.into is None else value @ self.into
        integers = np.clip(np.rint(directions / self.grid), -_EXACT, _EXACT).astype(np.int64)
        noisy = (integers + sample_discrete_gaussian(self.units_per_std, source)) * self.grid
        return np.asarray(noisy if self.back is None else noisy @ self.back)


def rounding_of(units_per_std: Integers) -> float:
    """Return a grid step in every direction, in deviations of the noise, rounded up."""
    if not len(units_per_std):
        return 0.0
    return math.sqrt(len(units_per_std)) / float(units_per_std.min()) * (1 + 2.0**-40)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AveragePlan:
    """How a value of the used units is released: noise, rounding, and what one unit shows.

    Parameters
    ----------
    value : SampleValue, curator-only
        The value on every sample.
    lattice : OutputLattice, curator-only
        Directions, grids and noise.
    proof : InfluenceProof, curator-only
        What every figure of ``risk`` is computed from.
    risk : AverageRisk, curator-only
        What attackers reach, on average over the coins.
    keep : float, public
        Probability with which a unit is used.
    spread : array, curator-only
        Deviation of every number from that of all records, by the coins.
    published : tuple of str, public
        What the release shows of all records besides the noisy value.
    """

    value: SampleValue = field(repr=False)
    lattice: OutputLattice = field(repr=False)
    proof: InfluenceProof = field(repr=False)
    risk: AverageRisk = field(repr=False)
    keep: float
    spread: Vector = field(repr=False)
    published: tuple[str, ...]

    def release(self, kept: Mask, source: BitSource) -> Vector:
        """Return the noisy value of the units that are used.

        Guarantee
        ---------
        Claim C-11. Assumes that ``kept`` are coins of probability ``keep`` drawn after the plan.
        Ensures that whoever guesses one unit's coin at even odds, whatever they know of the others,
        has an advantage of :attr:`risk` at most, on average over the coins of the others. That is
        one release: it does not join others of the same coins.
        """
        return self.lattice.release(self.value.value(kept), source)


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageTarget:
    """What a release may show: the advantage on average, and how likely a large move is."""

    advantage: float
    large_moves: float
    keep: float
    seed: int

    @classmethod
    def of(cls, success: float, *, keep: float, seed: int, n_directions: int) -> AverageTarget:
        """Return what a success stands for, less what the sampled noise may add."""
        slack = (n_directions + 1) / (16.0 * float(UNITS_PER_STD) ** 2)
        advantage = 2 * success - 1 - 2 * slack - 2.0**-50
        if not advantage > 0:
            raise BudgetError(
                f"success must be above 1/2 by more than rounding costs; got {success!r}. Allow a "
                "larger one."
            )
        return cls(
            advantage=advantage,
            large_moves=LARGE_MOVE_SHARE * (2 * success - 1),
            keep=keep,
            seed=seed,
        )


def plan_average(value: SampleValue, *, success: float, keep: float, seed: int) -> AveragePlan:
    """Find noise under which no unit's coin shows on average, and everything else of a release.

    Guarantee
    ---------
    Claim C-11. ``risk`` is computed from the noise that is used. Its advantage, with what the
    sampled noise adds, is at most ``2 success - 1``, and a unit moves the release by more than
    three deviations with at most a quarter of that probability. A plan does not depend on who is used.
    """
    if not 0.0 < keep < 1.0:
        raise BudgetError(
            f"keep must be below 1 for a statistic that is no function of sums; got {keep:g}. "
            "Leave it out, or use a pool: sample=pac.Balanced()."
        )
    target = AverageTarget.of(success, keep=keep, seed=seed, n_directions=len(value.scales))
    plan = calibrate_average(value, target)
    if not plan.risk.within(target.advantage, target.large_moves):
        raise too_much()
    return plan


@singledispatch
def calibrate_average(value: SampleValue, target: AverageTarget) -> AveragePlan:
    """Find noise for a kind of value."""
    raise NotImplementedError(type(value).__name__)


def too_much() -> BudgetError:
    """Return the error of a release that no noise hides."""
    return BudgetError(
        "success must leave room for samples in which one unit decides; got too small a one for so "
        "few units. Merge groups, or allow a larger success."
    )


# --- quantiles ---------------------------------------------------------------------------------


@calibrate_average.register
def _calibrate_quantiles(value: OrderStatistics, target: AverageTarget) -> AveragePlan:
    numbers = [(each, q) for each in value.sets for q in value.probabilities]
    windows = tuple(
        QuantileWindow.of(each.values, probability=q, keep=target.keep) for each, q in numbers
    )
    influence = QuantileInfluence(
        windows=windows,
        cells=tuple(each.cell for each, _ in numbers),
        one_cell_each=value.one_set_each,
    )
    stds = _share_out(influence, value.scales, target)
    lattice = OutputLattice.choose(stds)
    centre = value.on_all
    return AveragePlan(
        value=value,
        lattice=lattice,
        proof=influence,
        risk=influence.risk(lattice.noise_std, lattice.rounding),
        keep=target.keep,
        spread=np.array([w.spread(float(c)) for w, c in zip(windows, centre, strict=True)]),
        published=(
            "size of the noise: computed from the records around every quantile, rounded up",
        ),
    )


def _share_out(influence: QuantileInfluence, scales: Vector, target: AverageTarget) -> Vector:
    """Return deviations of the noise: what may be shown is shared for the least squared error.

    Where noise is large, the advantage on a number is in proportion to its inverse; the sum of
    squares is least if shares go with the two-thirds power of that. A number that needs no noise
    leaves its share to others.
    """
    n = len(influence.windows)
    rounding = rounding_of(np.full(n, UNITS_PER_STD))
    total = np.array([[target.advantage], [target.large_moves]])
    limits = np.tile(total / influence.most_together, (1, n))
    best, least_error = None, math.inf
    for _ in range(SHARING_ROUNDS if influence.most_together > 1 else 1):
        found = [_least_std(influence, i, limits[:, i], rounding) for i in range(n)]
        stds = round_up_two_digits(np.array([std for std, _ in found]))
        error = float(np.square(stds / scales).sum())
        shown = np.array([_shown(influence, i, stds[i], rounding) for i in range(n)]).T
        within = (
            influence.together(shown[0]) <= target.advantage
            and influence.together(shown[1]) <= target.large_moves
        )
        if within and error < least_error:
            best, least_error = stds, error
        kept = np.array([at_least for _, at_least in found])
        weights = np.where(kept, 0.0, (stds * limits[0] / scales) ** (2 / 3))
        limits = _reshare(influence, weights, kept, shown, total)
    if best is None:
        raise too_much()
    return best


def _reshare(
    influence: QuantileInfluence, weights: Vector, kept: Mask, shown: Matrix, total: Matrix
) -> Matrix:
    """Return limits of every number: what it shows if that is least, else by weight of the rest."""
    cells = np.unique(np.array(influence.cells), return_inverse=True)[1]
    if not influence.one_cell_each:
        cells = np.zeros_like(cells)
    sums = np.bincount(cells, weights=weights)[cells]
    limits = np.empty_like(shown)
    for limit, each, whole in zip(limits, shown, total[:, 0], strict=True):
        used = np.bincount(cells, weights=np.where(kept, each, 0.0))[cells]
        limit[:] = (whole - used) * weights / np.where(sums > 0, sums, 1.0)
        limit[kept] = each[kept] * (1 + 1e-9)
    return limits


def _shown(influence: QuantileInfluence, number: int, std: float, rounding: float) -> Vector:
    return np.array(
        [
            influence.advantages(number, std, rounding),
            influence.moves(number, std, rounding, LARGE_MOVE),
        ]
    )


def _least_std(
    influence: QuantileInfluence, number: int, limits: Vector, rounding: float
) -> tuple[float, bool]:
    """Return the least noise at which a quantile shows no more than its share, rounded up.

    And whether that is the least that any quantile gets.
    """
    values = influence.windows[number].values
    floor = LEAST_NOISE * (float(np.abs(values).max()) or 1.0)

    def fits(std: float) -> bool:
        return bool((_shown(influence, number, std, rounding) <= limits).all())

    return least_noise(fits, floor)


def least_noise(fits: Callable[[float], bool], floor: float) -> tuple[float, bool]:
    """Return the least noise from ``floor`` on that fits, rounded up, and whether it is that."""
    if fits(floor):
        return floor, True
    low, high = 0.0, 4.0
    while not fits(floor * math.exp(high)):
        low, high = high, 2 * high
        if math.exp(high) > MOST_NOISE:
            raise too_much()
    while high - low > SEARCH_ACCURACY:
        middle = 0.5 * (low + high)
        if fits(floor * math.exp(middle)):
            high = middle
        else:
            low = middle
    return floor * math.exp(high), False
