"""How well the best attacker tells a unit that was used from one that was left out.

For a unit in a share ``f`` of the candidates let ``a = (Q - f) / (2 f (1 - f))``, where ``Q`` is
the attacker's belief, after the release, that it was used. ``E |a|`` is the unit's advantage (math
(6)); the best guess is right with probability ``(1 + E |a|) / 2`` when both cases are equally
likely.

The promise is about the worst-placed unit, so the bound of each unit may fail as often as the whole
claim (claim A-2). All units are ranked on few simulated releases, the likely worst are bounded on
many, the others on as many as show that they are no worse. Outputs of rank 1 need no draws: the
integral is a sum over a grid (claim A-5).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary.view_and_belief import (
    EVERYONE,
    FEW_UNITS,
    HALF_PRECISION,
    Candidates,
    Floats,
    Units,
    View,
    ViewTilts,
    draw_view_blocks,
    single_loss,
    view_posterior,
)

Average = tuple[Vector, Vector, Vector, Vector, Vector]

PILOT_DRAWS = 256  # on which all units are ranked
CHAMPION_DRAWS = 2048  # on which the first of them are ranked again
FIRST_DRAWS = 1024  # on which all units are bounded, at least
CHAMPIONS, FINALISTS = 512, 64  # units
MAX_LOOKS = 8  # at one unit, on more and more draws
FIRST_DROPPED = 0.25  # share of the units that the first look should drop
LITTLE_ROOM = 0.025  # of what is allowed: with less left, others need only stay below that
GUESSED_ADVANTAGE = 0.2
SINGLE_LOSS = 1e-3  # of the largest advantage: what single precision may cost a bound
CACHED_CELLS = 1 << 18  # posterior entries at a time
GATHERED_DRAWS = 4096  # posteriors that are multiplied at once, at most (claim A-2)
BOUNDED_UNITS = 1 << 16  # at a time
RATES = (0.03, 0.06, 0.12, 0.25, 0.5, 0.8)  # of claim T-5, where nothing is known beforehand
MANY_RATES = tuple(np.geomspace(0.02, 0.9, 40).tolist())
ROUNDING = 1e-12  # sums of a few thousand products of double precision

GRID_STEPS = (0.2, 0.05, 0.0125)  # of the noise's standard deviation, for outputs of rank 1
LONGEST_LINE = 400.0  # of the noise's standard deviation
LINE_CELLS = 1 << 20  # a longer line is fine where candidates are few
NODE_CELLS = 1 << 22  # posterior entries at a time
NOTHING = 1e-20  # of a density
REACH = 8.5  # of a grid beyond the outermost candidates
CURVATURE = 4 / math.sqrt(2 * math.pi * math.e)  # integral of |phi''|


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageBounds:
    """Advantages of all units and their mean, with bounds (claim A-2); curator-only."""

    value: Vector
    lower: Vector
    upper: Vector
    mean: tuple[float, float, float]
    n_draws: int


class AdvantageSums:
    """Sums over simulated releases, for the listed units."""

    def __init__(self, units: Units | slice, before: Vector, share: Vector) -> None:
        self.units, self.before, self.share = units, before, share
        self.sums = np.zeros((4, len(share)))  # of |a|, a, a², |a| a; of a only where it is used
        self.tilted = bool((share != 0.5).any())
        self.n_draws, self.error = 0, 0.0
        self._masks: list[tuple[slice, Floats]] = []

    def __len__(self) -> int:
        return len(self.share)

    def select(self, places: npt.NDArray[np.bool_] | slice) -> "AdvantageSums":
        units = np.arange(len(self)) if isinstance(self.units, slice) else self.units
        selection = AdvantageSums(units[places], self.before[places], self.share[places])
        selection.sums, selection.tilted = self.sums[:, places], self.tilted
        selection.n_draws, selection.error = self.n_draws, self.error
        return selection

    def add(self, tilts: ViewTilts, folded: Floats) -> None:
        """Add a block of folded posteriors, in the precision that they have."""
        if folded.dtype == np.float32:
            total = float(np.abs(folded).sum(dtype=np.float64))
            lost = (tilts.rows + 8) * total + single_loss(tilts.n_subsets) * len(folded)
            self.error += lost * HALF_PRECISION
        self.n_draws += len(folded)
        products = tilts.products(folded, self.units)
        if len(self) <= FEW_UNITS:  # few enough to keep their masks
            self._masks = self._masks or list(tilts.blocks(self.units, folded.dtype))
            products = ((place, folded @ masks) for place, masks in self._masks)
        for place, a in products:
            self.sums[2, place] += np.einsum("ij,ij->j", a, a)
            if self.tilted:
                self.sums[1, place] += a.sum(axis=0, dtype=np.float64)
                self.sums[3, place] += np.einsum("ij,ij->j", a, np.abs(a))
            np.abs(a, out=a)
            self.sums[0, place] += a.sum(axis=0, dtype=np.float64)

    @property
    def value(self) -> Vector:
        """The mean of ``|a|``, which is no less than before the release."""
        mean: Vector = np.maximum(self.sums[0] / self.n_draws, np.abs(self.before))
        return mean

    @property
    def variance(self) -> Vector:
        mean, square = self.sums[0] / self.n_draws, self.sums[2] / self.n_draws
        variance: Vector = np.maximum(square - mean**2, 0.0)
        return variance

    def upper(self, center: Vector, gamma: float, rates: tuple[float, ...] = RATES) -> Vector:
        """Return upper bounds of ``E |a|`` around an independent guess of it (claim T-5)."""
        bound = 0.5 / np.minimum(self.share, 1 - self.share)
        level = self._level(gamma, rates)
        for mean, squares, above, _, lost in self._averages(center):
            width = np.maximum(above, 1e-3)
            high = mean + advantage_deviation(squares, width, level, rates) + lost
            bound = np.minimum(bound, high)
        return np.maximum(bound, np.abs(self.before))

    def lower(self, center: Vector, gamma: float) -> Vector:
        """Return a lower bound of each ``E |a|``, as :meth:`upper`."""
        bound, level = np.abs(self.before), self._level(gamma, RATES)
        for mean, squares, _, below, lost in self._averages(center):
            width = np.maximum(below, 1e-3)
            bound = np.maximum(bound, mean - advantage_deviation(squares, width, level) - lost)
        return bound

    def mean(self, center: Vector, gamma: float) -> tuple[float, float]:
        """Return bounds of the mean over units of ``E |a|``, for ``gamma`` together (A-2)."""
        totals, above, below = np.zeros(3), 1e-3, 1e-3
        for start in range(0, len(self), BOUNDED_UNITS):
            place = slice(start, start + BOUNDED_UNITS)
            averages = next(self.select(place)._averages(center[place]))
            totals += averages[0].sum(), averages[1].sum(), averages[4].sum()
            above, below = max(above, averages[2].max()), max(below, averages[3].max())
        value, square, lost = totals / len(self)
        level = math.log(2 * len(RATES) / gamma) / self.n_draws

        def deviation(width: float) -> float:
            return float(
                advantage_deviation(np.array([square]), np.array([width]), level)[0] + lost
            )

        return float(value) - deviation(below), float(value) + deviation(above)

    @property
    def _slopes(self) -> tuple[float, ...]:
        return (0.0, 0.5, 1.0) if self.tilted else (0.0,)

    def _level(self, gamma: float, rates: tuple[float, ...]) -> float:
        return math.log(len(self._slopes) * len(rates) / gamma) / self.n_draws

    def _averages(self, center: Vector) -> Iterator[Average]:
        """Yield means of ``|a| + s (a - E a)``, squares, room on both sides, rounding."""
        f, (size, tilt, square, cross) = self.share, self.sums / self.n_draws
        most = 0.5 / np.minimum(f, 1 - f)
        lost = self.error / self.n_draws * most
        rounded = 2.0**-12 * square + 2 * lost * most if self.error else np.zeros_like(square)
        for part in self._slopes:
            slope = part * (2 * f - 1)
            shift = center + slope * self.before  # x - center = |a| + slope a - shift
            highest = np.maximum((1 + slope) * 0.5 / f, (1 - slope) * 0.5 / (1 - f))
            second = square * (1 + slope**2) + 2 * slope * cross
            squares = np.maximum(second - 2 * shift * (size + slope * tilt) + shift**2, 0.0)
            squares += (1 + np.abs(slope)) ** 2 * rounded + 4 * np.abs(shift) * lost
            mean = size + slope * (tilt - self.before)
            yield mean, squares, highest - shift, shift, (1 + np.abs(slope)) * lost


def advantage_deviation(
    squares: Vector, width: Vector, level: float, rates: tuple[float, ...] = RATES
) -> Vector:
    """Return how far a mean may be from its sample, by the best of a few fixed rates (claim T-5).

    ``squares`` is the sample mean of ``(x - c)²`` with ``c`` fixed beforehand, ``width`` a bound of
    ``|x - c|`` on the side that counts, ``level`` is ``ln(1/γ)/N``.
    """
    scaled = squares / width**2
    best = np.full_like(squares, math.inf)
    for rate in rates:
        penalty = -math.log1p(-rate) - rate
        np.minimum(best, (level + penalty * scaled) / rate, out=best)
    return best * width


def _half_width(
    variance: float, n: int, gamma: float, width: float = 1.0, rates: tuple[float, ...] = RATES
) -> float:
    level = math.log((3 if width > 1 else 1) * len(rates) / gamma) / n
    return float(advantage_deviation(np.array([variance]), np.full(1, width), level, rates)[0])


def advantage_bounds(
    view: View,
    pool: Candidates,
    *,
    n_draws: int,
    gamma: float,
    rng: np.random.Generator,
    allowed: Vector | None = None,
) -> AdvantageBounds:
    """Bound the advantage on the worst-placed unit, and on every other one less sharply.

    Where some unit is above ``allowed``, the noise is too small, and the others keep loose bounds.

    Claim A-2: with probability ``1 - gamma`` over the simulated draws the largest advantage is
    between the largest ``lower`` and the largest ``upper``, the mean is within its bounds, and so
    is the unit furthest above what is allowed.
    """
    tilts = ViewTilts(pool)
    if has_line_advantage(view):
        return _on_a_line(view, tilts)
    simulation = _Simulation(view, tilts, n_draws=n_draws, gamma=gamma, rng=rng)
    finalists = simulation.choose_finalists()
    simulation.bound_finalists(finalists)
    if allowed is None or (simulation.upper[finalists] <= allowed[finalists]).all():
        simulation.bound_others(finalists, allowed)
    else:
        np.minimum(simulation.value, simulation.value[finalists].max(), out=simulation.value)
        simulation.value[finalists] = simulation.upper[finalists]
    return simulation.bounds()


class _Simulation:
    """Bounds of advantages by simulated releases, stage by stage, each on draws of its own.

    ``gamma``: half for upper bounds of any one unit, a quarter for lower bounds, one for the mean.
    """

    def __init__(
        self, view: View, tilts: ViewTilts, *, n_draws: int, gamma: float, rng: np.random.Generator
    ) -> None:
        self._view, self._tilts, self._rng = view, tilts, rng
        self._n_draws, self._gamma = n_draws, gamma
        self._before = tilts.before(view.log_prior, EVERYONE)
        self._gained = np.abs(self._before)
        self._precision: npt.DTypeLike = np.float32
        self._variance = 0.25
        self.value = np.maximum(GUESSED_ADVANTAGE, self._gained)
        self.lower, self.upper = self._gained.copy(), tilts.most.copy()
        self._mean = float(self._gained.mean()), math.inf

    def choose_finalists(self) -> Units:
        """Return the units that are likely the worst placed; estimate the advantage of all."""
        view, champions = self._view, np.arange(len(self.value))
        if len(champions) > CHAMPIONS:
            self._estimate(EVERYONE, PILOT_DRAWS)
            champions = _ascending(self._gained - self.value)[:CHAMPIONS]
            if view.points.shape[1] <= PILOT_DRAWS:  # those who move the mean most, too
                moved = self._tilts.shift_squares(view.points, view.log_prior)
                champions = np.union1d(champions, _ascending(-moved)[:CHAMPIONS])
        self._estimate(champions, CHAMPION_DRAWS)
        lost = ((self._tilts.rows + 8) + single_loss(view.n_subsets)) * HALF_PRECISION
        if lost >= SINGLE_LOSS * float(self.value.max()):
            self._precision = np.float64
        order = _ascending((self._gained - self.value)[champions])
        return np.sort(champions[order[:FINALISTS]])

    def bound_finalists(self, finalists: Units) -> None:
        sums = self._draw(self._sums(finalists), self._n_draws)
        center = self.value[finalists]
        self._bound_mean(sums, center)
        self.upper[finalists] = sums.upper(center, self._gamma / 2)
        self.lower[finalists] = sums.lower(center, self._gamma / (4 * len(finalists)))
        self.value[finalists] = np.clip(sums.value, self.lower[finalists], self.upper[finalists])

    def bound_others(self, finalists: Units, allowed: Vector | None) -> None:
        """Bound the others on one row of draws, in planned looks, while one may be worse."""
        if len(finalists) == len(self.value):
            return
        limit, listed = self._limit(finalists, allowed), np.arange(len(self.value))
        room = float(np.quantile(limit - self.value, 1 - FIRST_DROPPED))
        looks = np.geomspace(self._first_look(room), self._n_draws, MAX_LOOKS).astype(np.int64)
        sums, center = self._sums(listed), self.value.copy()
        sharp = self.value[finalists], self.upper[finalists]
        for n in np.unique(looks).tolist():
            self._draw(sums, n - sums.n_draws)
            self._bound_mean(sums, center)
            self._look(sums, center, self._sharpest(n)[1])
            above = (self.upper > limit)[listed] & ~np.isin(listed, finalists)
            if not above.any():
                break
            sums, center, listed = sums.select(above), center[above], listed[above]
        self.value[finalists], self.upper[finalists] = sharp  # theirs was all of their share
        np.clip(self.value, self.lower, self.upper, out=self.value)

    def bounds(self) -> AdvantageBounds:
        slack = bound_slack(self._view, self._tilts, self._before, EVERYONE)
        upper, most = self.upper + slack, float(slack.max())
        low, high = max(self._mean[0] - most, 0.0), min(self._mean[1] + most, float(upper.max()))
        return AdvantageBounds(
            value=self.value,
            lower=np.maximum(self.lower - slack, 0.0),
            upper=upper,
            mean=(min(max(float(self.value.mean()), low), high), low, high),
            n_draws=self._n_draws,
        )

    def _sums(self, units: Units | slice) -> AdvantageSums:
        return AdvantageSums(units, self._before[units], self._tilts.share[units])

    def _draw(self, sums: AdvantageSums, n: int) -> AdvantageSums:
        """Add fresh draws, in blocks that fit the cache, of which many are multiplied at once."""
        view, tilts, gathered = self._view, self._tilts, list[Floats]()
        for draws in draw_view_blocks(view, n, self._rng, block_elements=CACHED_CELLS):
            if gathered and sum(map(len, gathered)) + len(draws) > GATHERED_DRAWS:
                sums.add(tilts, np.concatenate(gathered))
                gathered = []
            gathered.append(tilts.fold(view_posterior(view, draws, self._precision)))
        if gathered:
            sums.add(tilts, np.concatenate(gathered))
        return sums

    def _estimate(self, units: Units | slice, n: int) -> None:
        """Estimate advantages, around a guess, for the stages that follow."""
        sums = self._draw(self._sums(units), n)
        if math.isinf(self._mean[1]):  # all may be champions: the mean is bounded here once
            self._bound_mean(sums, np.maximum(GUESSED_ADVANTAGE, self._gained[units]))
        self.value[units], self._variance = sums.value, float(np.median(sums.variance))

    def _bound_mean(self, sums: AdvantageSums, center: Vector) -> None:
        if len(sums) == len(self.value):
            low, high = sums.mean(center, self._gamma / 8)
            self._mean = max(self._mean[0], low), min(self._mean[1], high)

    def _limit(self, finalists: Units, allowed: Vector | None) -> Vector:
        """Return how large the others' bounds may be: as the finalists', or as allowed."""
        goal = float((self.upper - self._gained)[finalists].max())
        limit = self._gained + goal
        if allowed is not None:
            most = max(float((allowed - self._gained)[finalists].max()), 1e-300)
            if 1 - goal / most <= LITTLE_ROOM:
                limit = np.maximum(limit, allowed)
        return limit

    def _sharpest(self, n: int) -> tuple[float, float]:
        """Return about how far above the truth a bound on so many draws is, and its best rate."""
        gamma = self._gamma / (2 * MAX_LOOKS)
        return min(
            (_half_width(self._variance, n, gamma, rates=(rate,)), rate) for rate in MANY_RATES
        )

    def _first_look(self, room: float) -> int:
        """Return how many draws bound a typical unit with so much room."""
        n = min(FIRST_DRAWS, self._n_draws)
        while n < self._n_draws and self._sharpest(n)[0] > room:
            n = min(n + n // 8, self._n_draws)
        return n

    def _look(self, sums: AdvantageSums, center: Vector, rate: float) -> None:
        """Take the smaller of the bounds of units so far and on these draws."""
        gamma = self._gamma / (2 * MAX_LOOKS)
        for start in range(0, len(sums), BOUNDED_UNITS):
            place = slice(start, start + BOUNDED_UNITS)
            part = sums.select(place)
            high = part.upper(center[place], gamma, (rate,))
            self.upper[part.units] = np.minimum(self.upper[part.units], high)
            self.value[part.units] = part.value


def bound_slack(view: View, tilts: ViewTilts, before: Vector, units: Units | slice) -> Vector:
    """Return what every bound of an advantage adds: for the lattice, and for rounding."""
    return 2 * view.slack * tilts.weight(before[units], units) + ROUNDING


def _ascending(values: Vector) -> Units:
    """Return places in ascending order, those of about equal values as they come."""
    scaled = values / max(float(np.abs(values).max(initial=0.0)), 1e-300)
    return np.argsort(np.round(scaled, 5, out=scaled), kind="stable")


def advantage_room(
    view: View, pool: Candidates, variance: float, n_draws: int, *, gamma: float
) -> float:
    """Return about how far above the truth the bound of the worst unit's success will be."""
    if has_line_advantage(view):
        return GRID_STEPS[-1] ** 2 / 8 * CURVATURE
    share = pool.counts() / pool.n_subsets
    most = 0.5 / float(np.minimum(share, 1 - share).min())
    return 0.5 * _half_width(4 * variance, n_draws, gamma / 2, most)


def advantage_upper(
    view: View,
    tilts: ViewTilts,
    units: Units,
    *,
    n_draws: int,
    gamma: float,
    n_measured: int,
    rng: np.random.Generator,
) -> tuple[Vector, Vector]:
    """Predict the bounds of few units on ``n_draws`` draws from other ones; and the variances."""
    sums = AdvantageSums(units, tilts.before(view.log_prior, units), tilts.share[units])
    for draws in draw_view_blocks(view, n_measured, rng):
        sums.add(tilts, tilts.fold(view_posterior(view, draws, np.float32)))
    center, variance, scale = sums.value, sums.variance, n_draws / n_measured
    sums.sums, sums.error, sums.n_draws = sums.sums * scale, sums.error * scale, n_draws
    return sums.upper(center, gamma / 2), variance


def has_line_advantage(view: View) -> bool:
    """Whether an integral over a grid is the better way: rank 1, and no candidate far away."""
    if view.points.shape[1] != 1 or view.groups is not None or view.gaps is not None:
        return False
    length = float(np.ptp(view.points))
    return length <= LONGEST_LINE or length * view.n_subsets <= LINE_CELLS


def _on_a_line(view: View, tilts: ViewTilts) -> AdvantageBounds:
    """Bound ``E |a|`` for outputs of rank 1 on finer and finer grids (claim A-5)."""
    before = tilts.before(view.log_prior, EVERYONE)
    gained, units = np.abs(before), np.arange(tilts.n_units)
    value, lower, upper = np.empty((3, len(units)))
    active, nodes = units, 0
    for step in GRID_STEPS:
        exact = len(active) * 8 <= len(units) or len(units) <= 4096
        dtype = np.float64 if exact else np.float32
        here, error, n_nodes = line_advantage(view, tilts, active, step, dtype)
        nodes += n_nodes
        slack = step**2 / 4 * CURVATURE * tilts.weight(before[active], active)
        slack += error * tilts.most[active] + bound_slack(view, tilts, before, active)
        lower[active] = np.maximum(here - slack, gained[active])
        upper[active] = np.maximum(here + slack, lower[active])
        value[active] = np.clip(here, lower[active], upper[active])
        active = active[(upper - gained)[active] > (lower - gained)[active].max()]
    mean = (float(value.mean()), float(lower.mean()), float(upper.mean()))
    return AdvantageBounds(value=value, lower=lower, upper=upper, mean=mean, n_draws=nodes)


def line_advantage(
    view: View, tilts: ViewTilts, units: Units, step: float, dtype: npt.DTypeLike = np.float64
) -> tuple[Vector, float, int]:
    """Return the sum of ``|D|`` over a grid, per unit; its error in masks; its nodes (A-5)."""
    advantage, error = np.zeros(len(units)), 2.0 * normal_tail(REACH)
    nodes, block = _line_nodes(view, step), max(16, NODE_CELLS // view.n_subsets)
    for start in range(0, len(nodes), block):
        z = nodes[start : start + block, None]
        density = np.exp(view.log_prior - 0.5 * np.square(z - view.points[:, 0]))
        density[density < NOTHING] = 0.0  # numbers that are nearly zero are slow
        folded = tilts.fold(step / math.sqrt(2 * math.pi) * density).astype(dtype)
        if dtype == np.float32:
            total = float(np.abs(folded).sum(dtype=np.float64))
            error += total * (tilts.rows + 16) * HALF_PRECISION
        for place, masks in tilts.blocks(units, dtype):
            advantage[place] += np.abs(folded @ masks).sum(axis=0, dtype=np.float64)
    return advantage, error, len(nodes)


def normal_tail(reach: float) -> float:
    """Return the probability that a standard normal number is above ``reach``."""
    return 0.5 * math.erfc(reach / math.sqrt(2))


def _line_nodes(view: View, step: float) -> Vector:
    alive = view.points[np.isfinite(view.log_prior), 0]
    low, high = float(alive.min()) - REACH, float(alive.max()) + REACH
    nodes: Vector = low + step * np.arange(math.ceil((high - low) / step) + 1, dtype=np.float64)
    return nodes


def line_advantage_posteriors(view: View, step: float) -> Iterator[tuple[Matrix, Vector]]:
    """Yield posteriors at the nodes of a grid, with the probability of each node's cell."""
    points, nodes = view.points[:, 0], _line_nodes(view, step)
    block = max(16, NODE_CELLS // len(points))
    for start in range(0, len(nodes), block):
        z = nodes[start : start + block]
        log_p = view.log_prior - 0.5 * (z[:, None] - points) ** 2
        top = log_p.max(axis=1)
        weights = np.exp(log_p - top[:, None])
        total = weights.sum(axis=1)
        mass = step / math.sqrt(2 * math.pi) * np.exp(top) * total
        yield weights / total[:, None], mass
