"""How well the best attacker tells a member from a stranger: the definition of PAC privacy itself.

For a unit that is in a share ``f`` of the candidates let ``a = (Q - f) / (2 f (1 - f))``, where
``Q`` is the attacker's belief, after the release, that the unit is in. Then ``E |a|`` is the total
variation between releases with and without the unit (math (6)), and ``(1 + E |a|) / 2`` is the
success of the best guess when both cases are equally likely.

Only the worst-placed units decide. All units are bounded on a few simulated releases; those that
cannot be the worst are dropped; the others are bounded again on more, until few are left. Outputs
of rank 1 need no draws: the integral is a sum over a grid, with a bound on its error (claim A-5).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary.view import View, draw_blocks, posterior
from pacprivacy.errors import PoolError

Units = npt.NDArray[np.int64]

FIRST_STAGE = 2048  # simulated releases on which others are bounded first
CHAMPIONS = 256  # units among which the likely worst are found
FINALISTS = 48  # likely worst units, bounded on all draws
SINGLE_LOSS = 1e-3  # of the largest advantage: what single precision may cost a bound
SCREEN_DRAWS = 1 << 17
SCREEN_BLOCK = 1024
SCREEN_REST = 1e-4
PILOT = 256  # simulated releases that rank the units
BLOCK_CELLS = 1 << 24  # of a block of masks, and of a block of posteriors
GRID_STEPS = (0.2, 0.05, 0.0125)  # of the noise's standard deviation, for outputs of rank 1
LONGEST_LINE = 400.0  # of the noise's standard deviation
REACH = 8.5  # of a grid beyond the outermost candidates
CURVATURE = 4 / math.sqrt(2 * math.pi * math.e)  # integral of |phi''|
HALF_PRECISION = 2.0**-24
ROUNDING = 1e-12  # sums of a few thousand products of double precision


class Candidates(Protocol):
    """A pool, as far as the attacker cares."""

    @property
    def n_subsets(self) -> int:
        """Number of candidate subsets."""
        ...

    @property
    def n_units(self) -> int:
        """Number of units."""
        ...

    @property
    def folds(self) -> int:
        """Candidates ``r, r + m/k, r + 2m/k, ...`` leave out the ``k`` folds of one partition."""
        ...

    def counts(self) -> npt.NDArray[np.int32]:
        """Return the number of subsets that contain each unit."""
        ...

    def inside(self, units: Units | slice, subset: int | None = None) -> npt.NDArray[np.uint8]:
        """Return 1 where a unit is in a subset and 0 where not: all subsets, or one of them."""
        ...


class Tilts:
    """Turns posteriors into ``a`` for any units, by one product.

    The ``k`` candidates of a partition hold ``k - 1`` free numbers, since their centred masks add
    up to zero: ``m (k-1)/k`` multiplications for one unit and draw, half of ``m`` for halves.
    """

    def __init__(self, pool: Candidates) -> None:
        self._pool = pool
        self.n_units, m = pool.n_units, pool.n_subsets
        self._parts = m // pool.folds if pool.folds > 1 else 0
        self.rows = m - self._parts
        self.share: Vector = pool.counts() / m
        if not ((self.share > 0) & (self.share < 1)).all():
            raise PoolError(
                "pool must have every unit in some subsets and out of others; one is in all or "
                "in none, so there is nothing to guess. Use Balanced, or more subsets."
            )
        self.scale: Vector = 0.5 / (self.share * (1 - self.share))
        self.step = max(8, BLOCK_CELLS // m // 8 * 8)

    def fold(self, weights: Matrix) -> Matrix:
        """Bring posteriors of shape (N, m) to the rows that the masks have."""
        if not self._parts:
            return weights
        kept = weights[:, : self.rows].reshape(len(weights), -1, self._parts)
        return (kept - weights[:, None, self.rows :]).reshape(len(weights), self.rows)

    def masks(
        self, units: Units | slice, dtype: npt.DTypeLike, *, whole: bool = False
    ) -> npt.NDArray[Any]:
        """Return centred and scaled masks of these units, shape (rows, n_listed), or all ``m``."""
        masks = self._pool.inside(units)[: None if whole else self.rows].astype(dtype)
        masks -= self.share[units].astype(dtype)
        masks *= self.scale[units].astype(dtype)
        return masks

    def blocks(
        self, units: Units, dtype: npt.DTypeLike, *, whole: bool = False
    ) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield places in ``units`` and their masks, in blocks that fit in memory."""
        everyone = len(units) == self.n_units
        for start in range(0, len(units), self.step):
            place = slice(start, min(start + self.step, len(units)))
            yield place, self.masks(place if everyone else units[place], dtype, whole=whole)

    def sizes(self, weights: Matrix) -> Vector:
        """Return the sum of ``|a|`` over the rows of ``weights``, for every unit."""
        folded, found = self.fold(weights), np.empty(self.n_units)
        for place, masks in self.blocks(np.arange(self.n_units), folded.dtype):
            found[place] = np.abs(folded @ masks).sum(axis=0, dtype=np.float64)
        return found

    def weight(self, before: Vector, units: Units) -> Vector:
        """Return ``Σ p_k |mask_k|`` for units with this ``a`` before the release; 1 if it is 0."""
        share, scale = self.share[units], self.scale[units]
        inside = share + before / scale
        found: Vector = (inside * (1 - share) + (1 - inside) * share) * scale
        return found

    def before(self, log_prior: Vector, units: Units) -> Vector:
        """Return ``a`` before the release; zero under a uniform belief."""
        if not np.ptp(log_prior):
            return np.zeros(len(units))
        weights, found = self.fold(np.exp(log_prior)[None, :]), np.empty(len(units))
        for place, masks in self.blocks(units, np.float64):
            found[place] = (weights @ masks)[0]
        return found


def beliefs(pool: Candidates, log_prior: Vector, units: Units) -> tuple[Vector, Vector]:
    """Return the share of the candidates that hold each unit, and the belief that it is in."""
    tilts = Tilts(pool)
    share = tilts.share[units]
    inside = share + tilts.before(log_prior, units) / tilts.scale[units]
    return share, np.clip(inside, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Estimates of ``E |a|`` per unit with simultaneous bounds; curator-only."""

    value: Vector
    lower: Vector
    upper: Vector
    n_draws: int

    @property
    def per_unit(self) -> tuple[Vector, Vector, Vector]:
        """Value, lower and upper bound."""
        return self.value, self.lower, self.upper


class _Sums:
    """Running sums over draws, for units that are still of interest."""

    def __init__(self, units: Units, before: Vector, share: Vector) -> None:
        self.units, self.before, self.share = units, before, share
        self.sums = np.zeros((4, len(units)))  # of |a|, a, a², |a| a; of a only where it is used
        self.tilted = bool((share != 0.5).any())
        self.n_draws, self.error = 0, 0.0

    def add(self, tilts: Tilts, weights: npt.NDArray[Any]) -> None:
        """Add a block of posteriors, in the precision that they have."""
        folded = tilts.fold(weights)
        if folded.dtype == np.float32:
            total = float(np.abs(folded).sum(dtype=np.float64))
            lost = (tilts.rows + 8) * total + single_loss(weights.shape[1]) * len(weights)
            self.error += lost * HALF_PRECISION
        for place, masks in tilts.blocks(self.units, folded.dtype):
            a = folded @ masks
            self.sums[2, place] += np.einsum("ij,ij->j", a, a)
            if self.tilted:
                self.sums[1, place] += a.sum(axis=0, dtype=np.float64)
                self.sums[3, place] += np.einsum("ij,ij->j", a, np.abs(a))
            np.abs(a, out=a)
            self.sums[0, place] += a.sum(axis=0, dtype=np.float64)
        self.n_draws += len(folded)

    def bounds(self, center: Vector, gamma: float) -> tuple[Vector, Vector, Vector]:
        """Return value, lower and upper bound of ``E |a|``; each bound fails at most ``gamma``.

        ``E a`` is known, so ``x = |a| + s (a - E a)`` has the mean of ``|a|`` for every ``s``, and
        for ``s = 2f - 1`` a range of width 1 (math §13). ``center`` is a guess of the mean that
        these draws have no part in: claim T-5 bounds the mean by the squares around it.
        """
        n, f, (size, tilt, square, cross) = self.n_draws, self.share, self.sums / self.n_draws
        most = 0.5 / np.minimum(f, 1 - f)
        slack = self.error / n * most
        rounded = 2.0**-12 * square + 2 * slack * most if self.error else np.zeros_like(square)
        slopes = (0.0, 0.5, 1.0) if self.tilted else (0.0,)
        level = math.log(len(slopes) * len(RATES) / gamma) / n
        value, lower, upper = size, np.abs(self.before), most
        for part in slopes:
            slope = part * (2 * f - 1)
            mean = size + slope * (tilt - self.before)
            highest = np.maximum((1 + slope) * 0.5 / f, (1 - slope) * 0.5 / (1 - f))
            above = highest - slope * self.before - center
            below = center + slope * self.before
            shift = center + slope * self.before  # x - center = |a| + slope a - shift
            second = square * (1 + slope**2) + 2 * slope * cross
            squares = np.maximum(second - 2 * shift * (size + slope * tilt) + shift**2, 0.0)
            squares += (1 + np.abs(slope)) ** 2 * rounded + 4 * np.abs(shift) * slack
            high = mean + deviation(squares, np.maximum(above, 1e-3), level) + slack
            low = mean - deviation(squares, np.maximum(below, 1e-3), level) - slack
            value = np.where(high < upper, mean, value)
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        return np.clip(value, lower, upper), lower, upper


def single_loss(n_subsets: int) -> float:
    """Return how far a posterior in single precision is off in all, in units of its rounding."""
    return 2 * (math.log(n_subsets) + 8)


RATES = (0.03, 0.06, 0.12, 0.25, 0.5, 0.8)


def deviation(squares: Vector, width: Vector, level: float) -> Vector:
    """Return how far a mean may be from its sample, by the best of a few fixed rates (claim T-5).

    ``squares`` is the sample mean of ``(x - c)²`` with ``c`` fixed beforehand, ``width`` a bound of
    ``|x - c|`` on the side that counts, ``level`` is ``ln(1/γ)/N``.
    """
    scaled = squares / width**2
    best = np.full_like(squares, math.inf)
    for rate in RATES:
        penalty = -math.log1p(-rate) - rate
        np.minimum(best, (level + penalty * scaled) / rate, out=best)
    return best * width


def advantage_bounds(
    view: View, pool: Candidates, *, n_draws: int, gamma: float, rng: np.random.Generator
) -> Bounds:
    """Bound ``E |a|`` for all units at once, sharply for the worst-placed ones.

    Guarantee
    ---------
    Claim A-2. With probability ``1 - gamma`` over the simulated draws every ``lower`` and
    ``upper`` holds, for all units together.
    """
    tilts = Tilts(pool)
    everyone = np.arange(pool.n_units, dtype=np.int64)
    before = tilts.before(view.log_prior, everyone)
    if is_line(view):
        return _on_a_line(view, tilts, everyone, before)
    return _by_draws(view, tilts, everyone, before, n_draws=n_draws, gamma=gamma, rng=rng)


def _by_draws(
    view: View,
    tilts: Tilts,
    units: Units,
    before: Vector,
    *,
    n_draws: int,
    gamma: float,
    rng: np.random.Generator,
) -> Bounds:
    """Bound the likely worst units on all draws, and everybody else until they cannot be worse.

    A pilot ranks the units. The first few are bounded as sharply as the draws allow. The others
    are bounded on few draws, by second moments or one by one, and dropped once their bound is
    below that of the first. Every look at a unit uses fresh draws and pays its share of ``gamma``.
    """
    per_side = gamma / (4 * len(units) * _looks(n_draws))
    gained = np.abs(before)
    pilot = _Sums(units, before, tilts.share)
    for draws in draw_blocks(view, PILOT, rng, block_elements=BLOCK_CELLS // 4):
        pilot.add(tilts, posterior(view, draws, np.float32))
    value = np.maximum(pilot.sums[0] / PILOT, gained)
    variance = float(np.median(pilot.sums[2] / PILOT - value**2))
    lower, upper = gained.copy(), 0.5 / np.minimum(tilts.share, 1 - tilts.share)

    def sums_of(chosen: Units, n: int) -> _Sums:
        sums = _Sums(chosen, before[chosen], tilts.share[chosen])
        for draws in draw_blocks(view, n, rng, block_elements=_block(len(chosen))):
            sums.add(tilts, posterior(view, draws, dtype))
        return sums

    def look(chosen: Units, n: int) -> None:
        value[chosen], low, high = sums_of(chosen, n).bounds(value[chosen], per_side)
        lower[chosen] = np.maximum(lower[chosen], low)
        upper[chosen] = np.minimum(upper[chosen], high)

    few = np.sort(np.argsort(gained - value)[:CHAMPIONS]).astype(np.int64)
    lost = ((tilts.rows + 8) + single_loss(view.n_subsets)) * HALF_PRECISION
    dtype = np.float32 if lost < SINGLE_LOSS * float(value.max()) else np.float64
    value[few] = np.maximum(sums_of(few, FIRST_STAGE).sums[0] / FIRST_STAGE, gained[few])
    first = np.sort(few[np.argsort(gained[few] - value[few])[:FINALISTS]])
    look(first, n_draws)
    goal = float((upper - gained)[first].max())
    room = goal - float(np.median(value - gained))
    seen = np.zeros(len(units), dtype=np.bool_)
    seen[first] = True
    n_seen = FIRST_STAGE
    while n_seen < n_draws and _half_width(variance, n_seen, per_side) > room:
        n_seen = min(2 * n_seen, n_draws)
    cost = n_seen * len(units) * tilts.rows
    if cost > SCREEN_DRAWS * tilts.rows**2 and _screen_width(tilts, value, per_side) < room:
        upper = np.minimum(upper, _second_moments(view, tilts, units, per_side, rng))
        n_seen = FIRST_STAGE
    while True:
        left = np.flatnonzero(~seen & (upper - gained > goal))
        if not len(left):
            break
        look(left, n_seen)
        if n_seen >= n_draws:
            break
        n_seen = min(2 * n_seen, n_draws)
    slack = 2 * view.slack * tilts.weight(before, units) + ROUNDING
    return Bounds(
        value=np.clip(value, lower, upper),
        lower=np.maximum(lower - slack, 0.0),
        upper=upper + slack,
        n_draws=n_draws,
    )


def _looks(n_draws: int) -> int:
    """Return how often one unit is bounded at most."""
    return 3 + max(0, math.ceil(math.log2(max(1.0, n_draws / FIRST_STAGE))))


def _half_width(variance: float, n: int, gamma: float) -> float:
    level = math.log(len(RATES) / gamma) / n
    return float(deviation(np.array([variance]), np.ones(1), level)[0])


def _screen_width(tilts: Tilts, value: Vector, gamma: float) -> float:
    """Return about how far the second moment's bound will be above the middle advantage."""
    worst = 0.5 / float(np.minimum(tilts.share, 1 - tilts.share).min())
    extra = worst * math.sqrt(math.log(1 / gamma) / (2 * SCREEN_DRAWS))
    return 0.25 * float(np.median(value)) + 2 * extra


def _block(n_units: int) -> int:
    """Return how many posterior entries to hold at a time."""
    return BLOCK_CELLS // 4 if n_units > CHAMPIONS else BLOCK_CELLS // 16


def _second_moments(
    view: View, tilts: Tilts, units: Units, gamma: float, rng: np.random.Generator
) -> Vector:
    """Bound ``E |a| <= sqrt(E a²)`` for all units by one quadratic form (math §18).

    Guarantee
    ---------
    Claim A-6. Each bound fails with probability at most ``gamma``.
    """
    n_draws = SCREEN_DRAWS
    kernel, size = np.zeros((tilts.rows, tilts.rows)), 0.0
    for draws in draw_blocks(view, n_draws, rng, block_elements=SCREEN_BLOCK * view.n_subsets):
        folded = tilts.fold(posterior(view, draws))
        size = max(size, float(np.abs(folded).sum(axis=1).max()))
        single = folded.astype(np.float32)
        kernel += single.T @ single
    kernel /= n_draws
    values, vectors = np.linalg.eigh(kernel)
    values = np.maximum(values, 0.0)
    worst = 0.5 / np.minimum(tilts.share, 1 - tilts.share)
    rest = np.cumsum(values) * tilts.rows  # upper bound of what the smallest can hold, times g²
    dropped = int(np.searchsorted(rest, SCREEN_REST))
    root = (vectors[:, dropped:] * np.sqrt(values[dropped:])).T.astype(np.float32)
    moment = np.empty(len(units))
    for place, masks in tilts.blocks(units, np.float32):
        image = root @ masks
        moment[place] = np.einsum("ij,ij->j", image, image)
    rounding = (tilts.rows + 4) * math.sqrt(tilts.rows * float(values.sum())) * HALF_PRECISION
    moment = (np.sqrt(moment * (1 + 2 * tilts.rows * HALF_PRECISION)) + rounding * worst) ** 2
    moment += (float(values[dropped - 1]) * tilts.rows if dropped else 0.0) * worst**2
    moment += (SCREEN_BLOCK + 4) * HALF_PRECISION * (size * worst) ** 2
    extra = worst**2 * math.log(1 / gamma) / (2 * n_draws)
    bound: Vector = np.sqrt(extra) + np.sqrt(moment + extra)
    return bound


def _contenders(gain: tuple[Vector, Vector]) -> npt.NDArray[np.bool_]:
    """Return which units may still be the one whose advantage grows most."""
    lower, upper = gain
    kept: npt.NDArray[np.bool_] = upper > lower.max()
    kept[int(np.argmax(upper))] = True
    return kept


def _on_a_line(view: View, tilts: Tilts, units: Units, before: Vector) -> Bounds:
    """Bound ``E |a|`` for outputs of rank 1 on finer and finer grids (claim A-5)."""
    value, lower, upper = np.empty((3, len(units)))
    active, nodes = units, 0
    for step in GRID_STEPS:
        here, error = np.zeros(len(active)), 0.0
        weight_of_tails = 2.0 * _tail(REACH)
        for weights, mass in line_posteriors(view, step):
            folded, nodes = tilts.fold(weights) * mass[:, None], nodes + len(mass)
            exact = len(active) * 8 <= len(units) or len(units) <= 4096
            dtype = np.float64 if exact else np.float32
            if not exact:
                error += float(np.abs(folded).sum()) * (tilts.rows + 8) * HALF_PRECISION
            folded = folded.astype(dtype)
            for place, masks in tilts.blocks(active, dtype):
                here[place] += np.abs(folded @ masks).sum(axis=0, dtype=np.float64)
        share, a0 = tilts.share[active], before[active]
        worst = 0.5 / np.minimum(share, 1 - share)
        slack = (step**2 / 4 * CURVATURE + 2 * view.slack) * tilts.weight(a0, active)
        slack += (error + weight_of_tails) * worst + ROUNDING
        value[active] = np.maximum(here, np.abs(a0))
        lower[active] = np.maximum(here - slack, np.abs(a0))
        upper[active] = np.maximum(here + slack, lower[active])
        value[active] = np.clip(value[active], lower[active], upper[active])
        gained = np.abs(a0)
        active = active[_contenders((lower[active] - gained, upper[active] - gained))]
    return Bounds(value=value, lower=lower, upper=upper, n_draws=nodes)


def is_line(view: View) -> bool:
    """Whether an integral over a grid is the better way: rank 1, and no candidate far away."""
    if view.points.shape[1] != 1 or view.groups is not None or view.gaps is not None:
        return False
    return float(np.ptp(view.points)) <= LONGEST_LINE


def _tail(reach: float) -> float:
    return 0.5 * math.erfc(reach / math.sqrt(2))


def line_posteriors(view: View, step: float) -> Iterator[tuple[Matrix, Vector]]:
    """Yield posteriors at the nodes of a grid, with the probability of each node's cell."""
    points = view.points[:, 0]
    alive = points[np.isfinite(view.log_prior)]
    low, high = float(alive.min()) - REACH, float(alive.max()) + REACH
    n_nodes = math.ceil((high - low) / step) + 1
    block = max(16, BLOCK_CELLS // 4 // len(points))
    for start in range(0, n_nodes, block):
        z = low + step * np.arange(start, min(start + block, n_nodes))
        log_p = view.log_prior - 0.5 * (z[:, None] - points) ** 2
        top = log_p.max(axis=1)
        weights = np.exp(log_p - top[:, None])
        total = weights.sum(axis=1)
        mass = step / math.sqrt(2 * math.pi) * np.exp(top) * total
        yield weights / total[:, None], mass


def success_room(
    view: View, pool: Candidates, variance: float, n_draws: int, *, gamma: float
) -> float:
    """Return about how far above the truth the bound of the worst unit's success will be."""
    if is_line(view):
        return GRID_STEPS[-1] ** 2 / 8 * CURVATURE
    per_side = gamma / (4 * pool.n_units * _looks(n_draws))
    return 0.5 * _half_width(4 * variance, n_draws, per_side)
