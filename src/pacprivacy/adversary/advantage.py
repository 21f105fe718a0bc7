"""Largest success of an attacker who tells used units from those left out.

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
    Floats,
    Units,
    View,
    ViewTilts,
    draw_view_blocks,
    view_posterior,
)
from pacprivacy.sample import Pool

Average = tuple[Vector, Vector, Vector, Vector]

PILOT_DRAWS = 256  # on which all units are ranked
CHAMPION_DRAWS = 2048  # on which the first of them are ranked again
FIRST_DRAWS = 1024  # on which all units are bounded, at least
CHAMPIONS, FINALISTS = 512, 64  # units
MAX_LOOKS = 8  # at one unit, on more and more draws
LITTLE_ROOM = 0.025  # of the allowed advantage: with less remaining, others are held to the limit
GUESSED_ADVANTAGE = 0.2
POSTERIOR_CELLS = 1 << 23  # at a time
RATES = (0.03, 0.06, 0.12, 0.25, 0.5, 0.8)  # of claim T-5, where nothing is known beforehand
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
        self.n_draws = 0

    def __len__(self) -> int:
        return len(self.share)

    def select(self, places: npt.NDArray[np.bool_]) -> "AdvantageSums":
        units = np.arange(len(self)) if isinstance(self.units, slice) else self.units
        selection = AdvantageSums(units[places], self.before[places], self.share[places])
        selection.sums, selection.tilted = self.sums[:, places], self.tilted
        selection.n_draws = self.n_draws
        return selection

    def add(self, tilts: ViewTilts, folded: Floats) -> None:
        """Add a block of folded posteriors."""
        self.n_draws += len(folded)
        for place, a in tilts.products(folded, self.units):
            self.sums[2, place] += np.einsum("ij,ij->j", a, a)
            if self.tilted:
                self.sums[1, place] += a.sum(axis=0)
                self.sums[3, place] += np.einsum("ij,ij->j", a, np.abs(a))
            np.abs(a, out=a)
            self.sums[0, place] += a.sum(axis=0)

    @property
    def value(self) -> Vector:
        """The mean of ``|a|``, which is no less than before the release."""
        mean: Vector = np.maximum(self.sums[0] / self.n_draws, np.abs(self.before))
        return mean

    def upper(self, center: Vector, gamma: float) -> Vector:
        """Return upper bounds of ``E |a|`` around an independent guess of it (claim T-5)."""
        bound, level = 0.5 / np.minimum(self.share, 1 - self.share), self._level(gamma)
        for mean, squares, above, _ in self._averages(center):
            width = np.maximum(above, 1e-3)
            bound = np.minimum(bound, mean + advantage_deviation(squares, width, level))
        return np.maximum(bound, np.abs(self.before))

    def lower(self, center: Vector, gamma: float) -> Vector:
        """Return a lower bound of each ``E |a|``, as :meth:`upper`."""
        bound, level = np.abs(self.before), self._level(gamma)
        for mean, squares, _, below in self._averages(center):
            width = np.maximum(below, 1e-3)
            bound = np.maximum(bound, mean - advantage_deviation(squares, width, level))
        return bound

    def mean(self, center: Vector, gamma: float) -> tuple[float, float]:
        """Return bounds of the mean over units of ``E |a|``, for ``gamma`` together (A-2)."""
        means, squares, above, below = next(self._averages(center))
        value, level = float(means.mean()), math.log(2 * len(RATES) / gamma) / self.n_draws
        square, widths = squares.mean(), [max(1e-3, float(room.max())) for room in (below, above)]
        low, high = advantage_deviation(np.full(2, square), np.array(widths), level)
        return value - float(low), value + float(high)

    @property
    def _slopes(self) -> tuple[float, ...]:
        return (0.0, 0.5, 1.0) if self.tilted else (0.0,)

    def _level(self, gamma: float) -> float:
        return math.log(len(self._slopes) * len(RATES) / gamma) / self.n_draws

    def _averages(self, center: Vector) -> Iterator[Average]:
        """Yield means of ``|a| + s (a - E a)``, squares, room on both sides."""
        f, (size, tilt, square, cross) = self.share, self.sums / self.n_draws
        for part in self._slopes:
            slope = part * (2 * f - 1)
            shift = center + slope * self.before  # x - center = |a| + slope a - shift
            highest = np.maximum((1 + slope) * 0.5 / f, (1 - slope) * 0.5 / (1 - f))
            second = square * (1 + slope**2) + 2 * slope * cross
            squares = np.maximum(second - 2 * shift * (size + slope * tilt) + shift**2, 0.0)
            yield size + slope * (tilt - self.before), squares, highest - shift, shift


def advantage_deviation(squares: Vector, width: Vector, level: float) -> Vector:
    """Return the largest distance of a mean from its sample, by a few fixed rates (claim T-5).

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
    view: View,
    pool: Pool,
    *,
    n_draws: int,
    gamma: float,
    rng: np.random.Generator,
    allowed: Vector | None = None,
) -> AdvantageBounds:
    """Bound the advantage on the worst-placed unit, and less sharply on every other unit.

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
    """Bounds of advantages by simulated releases, stage by stage, each on separate draws.

    ``gamma``: half for upper bounds of any one unit, a quarter for lower bounds, one for the mean.
    """

    def __init__(
        self, view: View, tilts: ViewTilts, *, n_draws: int, gamma: float, rng: np.random.Generator
    ) -> None:
        self._view, self._tilts, self._rng = view, tilts, rng
        self._n_draws, self._gamma = n_draws, gamma
        self._before = tilts.before(view.log_prior, EVERYONE)
        self._gained = np.abs(self._before)
        self.value = np.maximum(GUESSED_ADVANTAGE, self._gained)
        self.lower, self.upper = self._gained.copy(), tilts.most.copy()
        self._mean = float(self._gained.mean()), math.inf

    def choose_finalists(self) -> Units:
        """Return the units that are likely the worst placed; estimate the advantage of all."""
        champions = np.arange(len(self.value))
        if len(champions) > CHAMPIONS:
            self._estimate(EVERYONE, PILOT_DRAWS)
            champions = _ascending(self._gained - self.value)[:CHAMPIONS]
        self._estimate(champions, CHAMPION_DRAWS)
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
        """Bound the other units on one row of draws, in looks."""
        if len(finalists) == len(self.value):
            return
        limit, listed = self._limit(finalists, allowed), np.arange(len(self.value))
        first = min(FIRST_DRAWS, self._n_draws)
        looks = np.geomspace(first, self._n_draws, MAX_LOOKS).astype(np.int64)
        sums, center = self._sums(listed), self.value.copy()
        sharp = self.value[finalists], self.upper[finalists]
        for n in np.unique(looks).tolist():
            self._draw(sums, n - sums.n_draws)
            self._bound_mean(sums, center)
            high = sums.upper(center, self._gamma / (2 * MAX_LOOKS))
            self.upper[listed] = np.minimum(self.upper[listed], high)
            self.value[listed] = sums.value
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
        for draws in draw_view_blocks(self._view, n, self._rng, block_elements=POSTERIOR_CELLS):
            sums.add(self._tilts, self._tilts.fold(view_posterior(self._view, draws)))
        return sums

    def _estimate(self, units: Units | slice, n: int) -> None:
        """Estimate advantages, around a guess, for the stages that follow."""
        sums = self._draw(self._sums(units), n)
        if math.isinf(self._mean[1]):  # all may be champions: the mean is bounded here once
            self._bound_mean(sums, np.maximum(GUESSED_ADVANTAGE, self._gained[units]))
        self.value[units] = sums.value

    def _bound_mean(self, sums: AdvantageSums, center: Vector) -> None:
        if len(sums) == len(self.value):
            low, high = sums.mean(center, self._gamma / 8)
            self._mean = max(self._mean[0], low), min(self._mean[1], high)

    def _limit(self, finalists: Units, allowed: Vector | None) -> Vector:
        """Return the limit for the other units: the finalists' bound, or the allowed one."""
        goal = float((self.upper - self._gained)[finalists].max())
        limit = self._gained + goal
        if allowed is not None:
            most = max(float((allowed - self._gained)[finalists].max()), 1e-300)
            if 1 - goal / most <= LITTLE_ROOM:
                limit = np.maximum(limit, allowed)
        return limit


def bound_slack(view: View, tilts: ViewTilts, before: Vector, units: Units | slice) -> Vector:
    """Return the slack of every bound of an advantage: lattice and rounding."""
    return 2 * view.slack * tilts.weight(before[units], units) + ROUNDING


def _ascending(values: Vector) -> Units:
    """Return positions in ascending order; nearly equal values keep their order."""
    scaled = values / max(float(np.abs(values).max(initial=0.0)), 1e-300)
    return np.argsort(np.round(scaled, 5, out=scaled), kind="stable")


def advantage_room(view: View, pool: Pool, variance: float, n_draws: int, *, gamma: float) -> float:
    """Estimate the gap between the bound of the worst unit's success and the truth."""
    if has_line_advantage(view):
        return GRID_STEPS[-1] ** 2 / 8 * CURVATURE
    share = pool.counts() / pool.n_subsets
    most = 0.5 / float(np.minimum(share, 1 - share).min())
    level = math.log((3 if most > 1 else 1) * len(RATES) * 2 / gamma) / n_draws
    return 0.5 * float(advantage_deviation(np.full(1, 4 * variance), np.full(1, most), level)[0])


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
        here, error, n_nodes = line_advantage(view, tilts, active, step)
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
    view: View, tilts: ViewTilts, units: Units, step: float
) -> tuple[Vector, float, int]:
    """Return the sum of ``|D|`` over a grid, per unit; its error in masks; its nodes (A-5)."""
    advantage, error = np.zeros(len(units)), 2.0 * normal_tail(REACH)
    nodes, block = _line_nodes(view, step), max(16, NODE_CELLS // view.n_subsets)
    for start in range(0, len(nodes), block):
        z = nodes[start : start + block, None]
        density = np.exp(view.log_prior - 0.5 * np.square(z - view.points[:, 0]))
        density[density < NOTHING] = 0.0  # numbers that are nearly zero are slow
        folded = tilts.fold(step / math.sqrt(2 * math.pi) * density)
        for place, masks in tilts.blocks(units, np.float64):
            advantage[place] += np.abs(folded @ masks).sum(axis=0)
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
