"""Noise for statistics that are not sums, by the average influence of units with coins.

A plan is a function of all records, of public settings and of public randomness. It is complete
before a coin is drawn; :meth:`AveragePlan.release` is the only place where the sample enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Final

import numpy as np

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy._random import BitSource, public_generator
from pacprivacy.adversary import (
    LARGE_MOVE,
    LARGE_MOVE_SHARE,
    STORED_UNITS,
    AverageRisk,
    DrawnInfluence,
    InfluenceProof,
    InfluenceWager,
    QuantileInfluence,
    QuantileWindow,
    average_gains,
)
from pacprivacy.errors import BudgetError
from pacprivacy.noise.lattice import UNITS_PER_STD, lattice_grid, sample_discrete_gaussian
from pacprivacy.noise.sum_plan import Clip, plan_sums
from pacprivacy.noise.unit_lattice import round_up_two_digits
from pacprivacy.statistics import (
    InfluencedValue,
    LeastSquaresValue,
    OrderStatistics,
    SampleValue,
    UnitQuantiles,
    UnitSums,
    row_lengths,
)
from pacprivacy.theory import lattice_total_variation_bound

LEAST_NOISE: Final = 1e-6  # of the numbers around a quantile: where they are tied, none is needed
SHARING_ROUNDS: Final = 4
SEARCH_ACCURACY: Final = 1e-4  # of the noise, which is rounded up to two digits
MOST_NOISE: Final = 1e12  # times the least
CROWD: Final = 10  # units that reach the largest radius
CLIP_RADII: Final = (1.0, 0.7, 0.5, 0.35)  # 1 is the influence of the tenth largest
CLIP_ROUNDS: Final = 2
PILOT_DRAWS: Final = 32
MORE_PILOT_DRAWS: Final = 256  # of the units that show most
MOST_PILOT_NUMBERS: Final = 1 << 24
PILOT_UNITS: Final = 1000  # those that show most, on which the size of the noise is guessed
MOST_DRAWS: Final = 2500
DRAWS_AT_ONCE: Final = 512  # between two looks at how far bets are
MOST_DRAWS_TIMES: Final = 260.0  # over the advantage: enough if a tenth less is shown
SCALES: Final = ((1.25, 1.1, 1.05, 1.02), (6.0, 2.5, 1.6))  # times the noise of the pilot
LEAST_DRAWN_SCALE: Final = 1.1  # smaller ones would take many draws: by closed forms alone
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
        """Most that rounding two values adds to their distance, in deviations of the noise."""
        return rounding_of(self.units_per_std)

    @property
    def total_variation(self) -> float:
        """Distance of the sampled law from a function of continuous noise (claim L-2)."""
        return lattice_total_variation_bound(
            len(self.units_per_std), self.units_per_std.astype(np.float64)
        )

    def output_std(self, jacobian: Matrix | None = None) -> Vector:
        """Return the standard deviation of the noise of every released number."""
        back = np.eye(len(self.grid)) if self.back is None else self.back
        moved = back if jacobian is None else back @ jacobian
        return np.asarray(np.sqrt(np.square(self.noise_std[:, None] * moved).sum(axis=0)))

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
    """Noise, rounding and proof for the release of a value of the used units; curator-only.

    ``proof`` is the evidence for every figure of ``risk``; ``spread`` the deviation of every number
    by the coins. ``published``, public, are facts of all records that the release shows besides
    the noisy value.
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
        Ensures that an attacker who guesses one unit's coin at even odds, whatever they know of the
        others, has an advantage of :attr:`risk` at most, on average over the coins of the others.
        It combines with no other release of the same coins.
        """
        return self.value.outputs_of(self.lattice.release(self.value.value(kept), source))

    @property
    def noise_std(self) -> Vector:
        """Standard deviation of the noise of every released number."""
        return self.lattice.output_std(self.value.jacobian)


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageTarget:
    """Limits of a release: the average advantage, and the probability of a large move."""

    success: float
    advantage: float
    large_moves: float
    keep: float
    seed: int
    clip: Clip

    @property
    def most_draws(self) -> int:
        """Number of simulated samples after which a noise level is abandoned."""
        return max(MOST_DRAWS, math.ceil(MOST_DRAWS_TIMES / self.advantage))

    @classmethod
    def of(
        cls, success: float, *, keep: float, seed: int, clip: Clip, n_directions: int
    ) -> AverageTarget:
        """Return the limits for a success, less the slack of the sampled noise."""
        slack = (n_directions + 1) / (16.0 * float(UNITS_PER_STD) ** 2)
        advantage = 2 * success - 1 - 2 * slack - 2.0**-50
        if not advantage > 0:
            raise BudgetError(
                f"success must be above 1/2 by more than rounding costs; got {success!r}. Allow a "
                "larger one."
            )
        return cls(
            success=success,
            advantage=advantage,
            large_moves=LARGE_MOVE_SHARE * (2 * success - 1),
            keep=keep,
            seed=seed,
            clip=clip,
        )


def plan_average(
    value: SampleValue, *, success: float, keep: float, seed: int, clip: Clip = "auto"
) -> AveragePlan:
    """Find noise under which no unit's coin shows on average, and everything else of a release.

    Guarantee
    ---------
    Claim C-11. ``risk`` is computed from the noise that is used. Its advantage, with the slack of
    the sampled noise, is at most ``2 success - 1``, and a unit moves the release by more than
    three deviations with at most a quarter of that probability. A plan does not depend on
    the coins.
    """
    if not 0.0 < keep < 1.0:
        raise BudgetError(
            f"keep must be below 1 for a statistic that is no function of sums; got {keep:g}. "
            "Leave it out, or use a pool: sample=pac.Balanced()."
        )
    target = AverageTarget.of(
        success, keep=keep, seed=seed, clip=clip, n_directions=len(value.scales)
    )
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
    """Divide the limits among the numbers for the least squared error; return noise deviations.

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
        levels = [_least_std(influence, i, limits[:, i], rounding) for i in range(n)]
        stds = round_up_two_digits(np.array([std for std, _ in levels]))
        error = float(np.square(stds / scales).sum())
        shown = np.array([_exposures(influence, i, stds[i], rounding) for i in range(n)]).T
        within = (
            influence.together(shown[0]) <= target.advantage
            and influence.together(shown[1]) <= target.large_moves
        )
        if within and error < least_error:
            best, least_error = stds, error
        kept = np.array([at_least for _, at_least in levels])
        weights = np.where(kept, 0.0, (stds * limits[0] / scales) ** (2 / 3))
        limits = _reshare(influence, weights, kept, shown, total)
    if best is None:
        raise too_much()
    return best


def _reshare(
    influence: QuantileInfluence, weights: Vector, kept: Mask, shown: Matrix, total: Matrix
) -> Matrix:
    """Return limits of every number: its exposure if smallest, else its weighted share."""
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


def _exposures(influence: QuantileInfluence, number: int, std: float, rounding: float) -> Vector:
    return np.array(
        [
            influence.advantages(number, std, rounding),
            influence.moves(number, std, rounding, LARGE_MOVE),
        ]
    )


def _least_std(
    influence: QuantileInfluence, number: int, limits: Vector, rounding: float
) -> tuple[float, bool]:
    """Return the least noise that keeps a quantile within its share, rounded up.

    And whether that is the least that any quantile gets.
    """
    values = influence.windows[number].values
    floor = LEAST_NOISE * (float(np.abs(values).max()) or 1.0)

    def fits(std: float) -> bool:
        return bool((_exposures(influence, number, std, rounding) <= limits).all())

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


# --- by draws ----------------------------------------------------------------------------------


@calibrate_average.register
def _calibrate_by_draws(value: InfluencedValue, target: AverageTarget) -> AveragePlan:
    """Choose the shape on pilot draws, then prove scales, from large noise to small."""
    return _prove_scales(value, target, _Pilot.draw(value, target))


@calibrate_average.register
def _calibrate_unit_quantiles(value: UnitQuantiles, target: AverageTarget) -> AveragePlan:
    return _prove_scales(value, target, _pilot_of_quantiles(value, target))


def _prove_scales(value: InfluencedValue, target: AverageTarget, pilot: _Pilot) -> AveragePlan:
    """Prove scales from large noise to small, each on fresh draws."""
    proved = None
    for scales in SCALES:  # each tried from large noise to small until one is not proved
        for factor in scales:
            rng = public_generator(target.seed, "scale", round(1000 * factor))
            tried = pilot.lattice(factor * pilot.scale)
            most_draws = target.most_draws if factor >= LEAST_DRAWN_SCALE else 0
            proof = _prove_by_draws(value, tried, target, rng, most_draws)
            if proof is None:
                break
            proved = proof, tried
        if proved is not None:
            break
    else:
        raise too_much()
    proof, lattice = proved
    return AveragePlan(
        value=value,
        lattice=lattice,
        proof=proof,
        risk=proof.risk(lattice.noise_std, lattice.rounding),
        keep=target.keep,
        spread=pilot.spread,
        published=(
            "size and directions of the noise: computed from all records and simulated samples of "
            "them, rounded up",
        ),
    )


@calibrate_average.register
def _calibrate_least_squares(value: LeastSquaresValue, target: AverageTarget) -> AveragePlan:
    """Let units that move the fit most count less, then go on by closed forms and draws."""
    if target.clip is None:
        return _calibrate_by_draws(value, target)
    reweighted, radius = _clip_fit(value, target)
    plan = _calibrate_by_draws(reweighted, target)
    fact = f"units that move the fit most count less: at most {radius:g} times as the tenth largest"
    return replace(plan, published=(*plan.published, fact))


def _clip_fit(value: LeastSquaresValue, target: AverageTarget) -> tuple[LeastSquaresValue, float]:
    """Return the fit in which units count less, of the radius with the least predicted error.

    Fits are made anew for every radius: where one unit counts less, others count more, so clipping
    changes more than the sum of the parts that are cut off. A change is compared with the fit of
    the largest radius, in whose coordinates no single unit has much to say, and counts as if it
    went the same way as the sampling error: it is a bias, and the same in every release.
    """
    typical = value.typical_influence()
    sums = UnitSums.of_rows(typical)
    slopes = np.eye(sums.block)[None]
    crowd = plan_sums(sums, success=target.success, keep=target.keep, slopes=slopes, clip=1.0)
    whiten = crowd.lattice.into[0] / crowd.lattice.noise_std[0]
    norms = row_lengths(sums.values @ whiten)
    tenth = float(np.sort(norms)[-min(CROWD, len(norms))])
    noise_var = float(crowd.noise_variances(slopes).sum()) * target.keep**2
    if target.clip != "auto":
        radius = float(target.clip or 1.0)
        return _clipped_at(value, typical, whiten, radius * tenth), radius
    widest = _clipped_at(value, typical, whiten, tenth)
    sampling = float(np.linalg.norm(widest.typical_influence()))
    best, best_radius, least_error = widest, 1.0, math.inf
    for radius in CLIP_RADII:
        fit = widest if radius == 1.0 else _clipped_at(value, typical, whiten, radius * tenth)
        bias = float(np.linalg.norm(fit.distance_from(widest)))
        influence = fit.influence_beside(value)
        largest = float(row_lengths(influence @ whiten).max())
        error = bias**2 + 2 * bias * sampling + noise_var * (largest / tenth) ** 2
        if error < least_error:
            best, best_radius, least_error = fit, radius, error
    return best, best_radius


def _clipped_at(
    value: LeastSquaresValue, typical: Matrix, whiten: Matrix, most: float
) -> LeastSquaresValue:
    """Return the fit with units of large ``typical`` influence downweighted.

    A second round clips the units that are then too large: influence depends on all weights.
    """
    fit, weights = value, np.ones(value.n_units)
    for _ in range(CLIP_ROUNDS):
        influence = typical if fit is value else fit.influence_beside(value)
        norms = row_lengths(influence @ whiten)
        if not (norms > most).any():
            break
        weights = weights * (most / np.maximum(norms, most))
        fit = value.reweighted(weights)
    return fit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pilot:
    """Results of pilot draws: shape and size of the noise, and the spread by the coins."""

    into: Matrix | None
    back: Matrix | None
    noise_std: Vector
    scale: float
    spread: Vector

    @classmethod
    def draw(cls, value: InfluencedValue, target: AverageTarget) -> _Pilot:
        rng = public_generator(target.seed, "pilot", 0)
        typical, spread = _typical(value, target, rng)
        sums = UnitSums.of_rows(typical)
        if not sums.values.any():
            raise BudgetError(
                "influence must not be zero for every unit; got a constant value. Publish "
                "it without noise: it is a fact of all records."
            )
        slopes = np.diag(1.0 / value.scales)[None]
        success = 0.5 + target.advantage / 2
        lattice = plan_sums(
            sums, success=success, keep=target.keep, slopes=slopes, clip=None
        ).lattice
        into, back, std = lattice.into[0], lattice.back[0], lattice.noise_std[0]
        largest = row_lengths(typical @ (into / std))
        hardest = np.sort(np.argsort(largest)[-PILOT_UNITS:])
        distances = np.empty((MORE_PILOT_DRAWS, len(hardest)))
        for line in distances:
            kept = _draw_kept(rng, value.n_units, target.keep)
            line[:] = row_lengths(value.influence(kept, hardest) @ (into / std))
        scale = _least_scale(np.nan_to_num(distances, nan=np.inf), target, 0.25)
        return cls(into=into, back=back, noise_std=std, scale=scale, spread=spread)

    def lattice(self, scale: float) -> OutputLattice:
        """Return the noise, so much times as large."""
        return OutputLattice.choose(
            round_up_two_digits(scale * self.noise_std), into=self.into, back=self.back
        )


def _least_scale(distances: Matrix, target: AverageTarget, floor: float) -> float:
    """Return the least scale of the noise that hides distances, (draws, units), on average."""

    def fits(scale: float) -> bool:
        at_scale = distances / scale
        advantage = average_gains(np.minimum(at_scale, 99.0)).mean(axis=0).max()
        large = (at_scale > LARGE_MOVE).mean(axis=0).max()
        return bool(advantage <= target.advantage and large <= 0.4 * target.large_moves)

    return least_noise(fits, floor)[0]


def _pilot_of_quantiles(value: UnitQuantiles, target: AverageTarget) -> _Pilot:
    """Return noise for every number, which share the limits.

    The exposure by a number is about in proportion to the inverse of its noise, and adds up over
    the numbers that a unit has part in: the sum of squares is least in proportion to the cube root.
    """
    rng = public_generator(target.seed, "pilot", 0)
    units, scales = value.tested_units, value.scales
    n_draws = MORE_PILOT_DRAWS
    while n_draws > PILOT_DRAWS and n_draws * len(units) * len(scales) > MOST_PILOT_NUMBERS:
        n_draws //= 2
    moved, squares = np.empty((n_draws, len(units), len(scales))), np.zeros(len(scales))
    for line in moved:
        kept = _draw_kept(rng, value.n_units, target.keep)
        line[:] = np.abs(value.influence(kept, units))
        squares += np.square(value.value(kept) - value.on_all)
    floor = LEAST_NOISE * np.maximum(np.abs(value.on_all), scales)
    alone = np.array(
        [_least_scale(moved[:, :, i], target, floor[i]) for i in range(len(scales))]
    ) / scales  # fmt: skip
    cells = np.unique(value.shared_cells, return_inverse=True)[1]
    together = np.bincount(cells, weights=alone ** (2 / 3))[cells]
    std = scales * alone ** (1 / 3) * together
    scale = _least_scale(np.linalg.norm(moved / std, axis=2), target, 0.05)
    spread = np.sqrt(squares / n_draws)
    return _Pilot(into=None, back=None, noise_std=std, scale=scale, spread=spread)


def _typical(
    value: InfluencedValue, target: AverageTarget, rng: np.random.Generator
) -> tuple[Matrix, Vector]:
    """Return the typical influence of every unit, and the spread by the coins."""
    typical, spread = value.typical_influence(), value.coin_spread()
    if typical is not None and spread is not None:
        return typical, spread
    squares, moved = np.zeros(len(value.on_all)), np.zeros((value.n_units, len(value.scales)))
    for _ in range(PILOT_DRAWS):
        kept = _draw_kept(rng, value.n_units, target.keep)
        moved += np.nan_to_num(value.influence(kept, np.arange(value.n_units))) / PILOT_DRAWS
        squares += np.square(value.outputs_of(value.value(kept)) - value.on_all)
    return moved, np.sqrt(squares / PILOT_DRAWS)


def _prove_by_draws(
    value: InfluencedValue,
    lattice: OutputLattice,
    target: AverageTarget,
    rng: np.random.Generator,
    most_draws: int,
) -> DrawnInfluence | None:
    """Return a proof that no unit shows too much, or None: closed forms first, then draws."""
    whiten = np.diag(1 / lattice.noise_std)
    if lattice.into is not None:
        whiten = lattice.into / lattice.noise_std
    rounding = lattice.rounding + value.rounding(whiten)
    far, off_event = value.bound_distances(whiten, target.keep)
    easy = (average_gains(far + rounding) + off_event <= target.advantage) & (
        far + rounding <= LARGE_MOVE
    )
    if not off_event <= target.large_moves:
        easy[:] = False
    tested = value.tested_units
    pending = tested[~easy[tested]]
    n_drawn = len(pending)
    wager = InfluenceWager(value.n_units, target.advantage, target.large_moves)
    history: list[tuple[Integers, Vector]] = []
    while len(pending):
        drawn = len(history)
        if drawn >= most_draws:
            return None
        looks = drawn > 0 and drawn % DRAWS_AT_ONCE == 0
        if looks and 2 * wager.progress(pending) < drawn / most_draws:
            return None  # a bet is far behind
        kept = _draw_kept(rng, value.n_units, target.keep)
        distances = row_lengths(value.influence(kept, pending) @ whiten) + rounding
        distances = np.where(np.isfinite(distances), distances, np.inf)
        wager.add(distances, pending)
        history.append((pending, distances))
        pending = pending[~wager.done[pending]]
    return DrawnInfluence(
        distances=_longest(history, value.n_units),
        advantage=target.advantage,
        large_moves=target.large_moves,
        n_drawn=n_drawn,
        farthest=float(far[easy].max(initial=0.0)) + value.rounding(whiten),
        off_event=off_event if easy.any() else 0.0,
        noise_std=lattice.noise_std,
    )


def _draw_kept(rng: np.random.Generator, n_units: int, keep: float) -> Mask:
    """Toss simulated coins: first the number of units left out, then their positions."""
    kept = np.ones(n_units, dtype=np.bool_)
    n_out = int(rng.binomial(n_units, 1 - keep))
    kept[rng.choice(n_units, n_out, replace=False, shuffle=False)] = False
    return kept


def _longest(history: list[tuple[Integers, Vector]], n_units: int) -> Matrix:
    """Return the draws of the units with most draws, NaN after their last one."""
    lengths = np.zeros(n_units, dtype=np.int64)
    for units, _ in history:
        lengths[units] += 1
    chosen = np.argsort(-lengths, kind="stable")[:STORED_UNITS]
    chosen = chosen[lengths[chosen] > 0]
    places = np.full(n_units, -1)
    places[chosen] = np.arange(len(chosen))
    stored = np.full((len(history), len(chosen)), np.nan)
    for line, (units, distances) in zip(stored, history, strict=True):
        placed = places[units] >= 0
        line[places[units[placed]]] = distances[placed]
    return stored
