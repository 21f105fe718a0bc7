"""How well the best attacker tells a member from a stranger: the definition of PAC privacy itself.

For a unit that is in a share ``f`` of the candidates let ``a = (Q - f) / (2 f (1 - f))``, where
``Q`` is the attacker's belief, after the release, that the unit is in. Then ``E |a|`` is the total
variation between releases with and without the unit (math (6)), and ``(1 + E |a|) / 2`` is the
success of the best guess when both cases are equally likely.

Only the worst-placed units decide. All units are bounded on a few simulated releases; those that
cannot be the worst are dropped; the others are bounded again on more, until few are left. Outputs
of rank 1 and 2 need no draws: the integral is a sum over a grid, with a bound on its error (claims
A-5 and A-8).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, lengthened, shortened
from pacprivacy._system import in_threads
from pacprivacy.adversary.candidates import Candidates, Units
from pacprivacy.adversary.second_moments import (
    BOUNDED,
    AdvantageRegression,
    MomentScreen,
    RegressedSums,
    advantage_moments,
)
from pacprivacy.adversary.view_and_belief import (
    EVERYONE,
    FEW_UNITS,
    HALF_PRECISION,
    Draws,
    View,
    ViewTilts,
    draw_view_blocks,
    draw_views,
    single_loss,
    view_posterior,
)

FIRST_STAGE = 2048  # simulated releases on which others are bounded first
CHAMPIONS = 512  # units among which the likely worst are found
LITTLE_ROOM = 0.025  # of what is allowed: with less left, others need only stay below that
FIRST_DROPPED = 0.25  # share of the units that the first look at others should drop
FINALISTS = 64  # likely worst units, bounded on all draws
SINGLE_LOSS = 1e-3  # of the largest advantage: what single precision may cost a bound
SCREEN_TAILS = 0.2, 0.02  # of the largest squared advantage, for all but the strongest directions
GUESS = 0.2  # an advantage, before anything is known
PILOT = 256  # simulated releases that rank the units, half of that where they are very many
VERY_MANY = 1 << 27  # entries of all masks
CACHED = 1 << 18  # posterior entries at a time
GATHERED = 4096  # posteriors that are multiplied at once, where units are many
BLOCK_CELLS = 1 << 24  # of a block of posteriors
GRID_STEPS = (0.2, 0.05, 0.0125)  # of the noise's standard deviation, for outputs of rank 1
LONGEST_LINE = 1e6  # of the noise's standard deviation
SHORT_LINE, BANDED_LINE = 400.0, 100.0
LINE_CELLS = 1 << 20  # a longer line is fine where candidates are few
PLANE_NODES = 1 << 19
PLANE_REACH = 6.5
PLANE_BATCH = 64  # units
PLANE_LOOKS = 4096
LARGEST_PLANE = 2500.0  # of the noise's variance
ROUGH, ROUGH_ERROR = 0.5, 6e-9  # a grid's step, and the relative error that is left by it
LINE_BLOCK = 1024  # nodes
NOTHING = 1e-20  # of a density
REACH = 8.5  # of a grid beyond the outermost candidates
CURVATURE = 4 / math.sqrt(2 * math.pi * math.e)  # integral of |phi''|
RATES = (0.03, 0.06, 0.12, 0.25, 0.5, 0.8)  # of claim T-5, where nothing is known beforehand
MANY_RATES = tuple(np.geomspace(0.02, 0.9, 40).tolist())
ROUNDING = 1e-12  # sums of a few thousand products of double precision


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageBounds:
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

    def __init__(self, units: Units | slice, before: Vector, share: Vector) -> None:
        self.units, self.before, self.share = units, before, share
        self.sums = np.zeros((4, len(share)))  # of |a|, a, a², |a| a; of a only where it is used
        self.tilted = bool((share != 0.5).any())
        self.n_draws, self.error = 0, 0.0
        self._kept: list[tuple[slice, npt.NDArray[Any]]] = []

    def __len__(self) -> int:
        return len(self.share)

    def of(self, kept: npt.NDArray[np.bool_] | slice) -> "_Sums":
        """Return the sums of some of the units."""
        if isinstance(self.units, slice):  # all of them
            units = kept if isinstance(kept, slice) else np.flatnonzero(kept)
        else:
            units = self.units[kept]
        found = _Sums(units, self.before[kept], self.share[kept])
        found.sums, found.tilted = self.sums[:, kept], self.tilted
        found.n_draws, found.error = self.n_draws, self.error
        return found

    def add(self, tilts: ViewTilts, folded: npt.NDArray[Any]) -> None:
        """Add a block of folded posteriors, in the precision that they have."""
        if folded.dtype == np.float32:
            total = float(np.abs(folded).sum(dtype=np.float64))
            lost = (tilts.rows + 8) * total + single_loss(tilts.n_subsets) * len(folded)
            self.error += lost * HALF_PRECISION
        self.n_draws += len(folded)
        if tilts.accelerator is not None and folded.dtype == np.float32:
            listed = np.arange(len(self)) if isinstance(self.units, slice) else self.units
            for place, found in tilts.accelerator.sums(listed, folded):
                self.sums[:, place] += found
            return
        if len(self) <= FEW_UNITS:  # few enough to keep their masks
            self._kept = self._kept or list(tilts.blocks(self.units, folded.dtype))
            products = ((place, folded @ masks) for place, masks in self._kept)
        else:
            products = (found[1:] for found in tilts.products(folded, self.units))
        for place, a in products:
            self.sums[2, place] += np.einsum("ij,ij->j", a, a)
            if self.tilted:
                self.sums[1, place] += a.sum(axis=0, dtype=np.float64)
                self.sums[3, place] += np.einsum("ij,ij->j", a, np.abs(a))
            np.abs(a, out=a)
            self.sums[0, place] += a.sum(axis=0, dtype=np.float64)

    def bounds(
        self, center: Vector, gamma: float, rates: tuple[float, ...] = RATES
    ) -> tuple[Vector, Vector, Vector]:
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
        level = math.log(len(slopes) * len(rates) / gamma) / n
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
            lost = (1 + np.abs(slope)) * slack  # of |a| and of slope a
            high = mean + advantage_deviation(squares, np.maximum(above, 1e-3), level, rates) + lost
            low = mean - advantage_deviation(squares, np.maximum(below, 1e-3), level, rates) - lost
            value = np.where(high < upper, mean, value)
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        return np.clip(value, lower, upper), lower, upper


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


def advantage_bounds(
    view: View,
    pool: Candidates,
    *,
    n_draws: int,
    gamma: float,
    rng: np.random.Generator,
    allowed: Vector | None = None,
) -> AdvantageBounds:
    """Bound ``E |a|`` for all units at once, sharply for the worst-placed ones.

    Where the draws show that some unit is above ``allowed``, the others keep the wide bounds of a
    few draws: the noise is too small whatever they are, and the value of the worst is its bound.

    Guarantee
    ---------
    Claim A-2. With probability ``1 - gamma`` over the simulated draws every ``lower`` and
    ``upper`` holds, for all units together.
    """
    tilts = ViewTilts(pool)
    before = tilts.before(view.log_prior, EVERYONE)
    if has_line_advantage(view):
        return _on_a_line(view, tilts, before)
    screen = advantage_moments(view, tilts) if has_plane_advantage(view) else None
    found = None if screen is None else _on_a_plane(view, tilts, before, screen)
    if found is None:
        settings: Any = {"n_draws": n_draws, "gamma": gamma, "rng": rng, "allowed": allowed}
        found = _by_draws(view, tilts, before, **settings)
    return found


def _by_draws(
    view: View,
    tilts: ViewTilts,
    before: Vector,
    *,
    n_draws: int,
    gamma: float,
    rng: np.random.Generator,
    allowed: Vector | None = None,
) -> AdvantageBounds:
    """Bound the likely worst units on all draws, and everybody else until they cannot be worse.

    All units are looked at on a few draws, which ranks them. The first few are bounded as sharply
    as the draws allow. The others are bounded by second moments, or by regression on squares, where
    that can help, and on more and more draws of one row while their bound is above that of the
    first. Every look at a unit pays its share of ``gamma``.
    """
    n_units = tilts.n_units
    per_side = gamma / (4 * n_units * _looks(n_draws))
    gained = lengthened(np.abs(*shortened(before)), n_units)
    lower, upper = gained.copy(), tilts.most
    dtype: npt.DTypeLike = np.float32
    halves = tilts.accelerator is None and bool((tilts.share == 0.5).all())

    def sums_of(chosen: Units | slice) -> _Sums:
        return _Sums(chosen, before[chosen], tilts.share[chosen])

    def draw(sums: _Sums, n: int, others: RegressedSums | None = None) -> _Sums:
        held: list[npt.NDArray[Any]] = []
        together = len(sums) > CHAMPIONS or tilts.accelerator is not None

        def folded(draws: Draws) -> npt.NDArray[Any]:
            return tilts.fold(view_posterior(view, draws, dtype, tilts.accelerator))

        for some in in_threads(folded, draw_view_blocks(view, n, rng, block_elements=CACHED)):
            held.append(some)
            if others is not None:
                others.add(some)
            if not together or sum(map(len, held)) + len(some) > GATHERED:
                sums.add(tilts, np.concatenate(held))
                held = []
        if held:
            sums.add(tilts, np.concatenate(held))
        return sums

    def look(sums: _Sums, center: Vector, rates: tuple[float, ...] = RATES) -> None:
        for start in range(0, len(sums), BOUNDED):
            place = slice(start, min(start + BOUNDED, len(sums)))
            some = sums.of(place)
            chosen = some.units
            value[chosen], low, high = some.bounds(center[place], per_side, rates)
            lower[chosen] = np.maximum(lower[chosen], low)
            upper[chosen] = np.minimum(upper[chosen], high)

    screen = None
    if n_units > CHAMPIONS:
        most = 1.0 if allowed is None else float(allowed.max())
        screen = MomentScreen.of(view, tilts, most)
    if screen is not None:
        value = screen.bounds(EVERYONE, screen.rank(SCREEN_TAILS[0] * most**2))
        upper = np.maximum(value, gained)
        np.minimum(tilts.most, upper, out=upper)
        ranked = gained - upper
    else:
        many = tilts.rows * n_units > VERY_MANY
        value, upper = np.maximum(GUESS, gained), upper.copy()
        look(draw(sums_of(EVERYONE), PILOT // 2 if many else PILOT), value)
        ranked = gained - value
    sample = np.arange(0, n_units, n_units // CHAMPIONS + 1)
    few = np.union1d(_ascending(ranked)[:CHAMPIONS], sample).astype(np.int64)
    del ranked
    if screen is None and view.points.shape[1] <= PILOT and n_units > CHAMPIONS:
        moved = tilts.shift_squares(view.points, view.log_prior)
        few = np.union1d(few, _ascending(-moved)[:CHAMPIONS])
        del moved
    finer = draw(sums_of(few), FIRST_STAGE).sums / FIRST_STAGE
    shown = np.maximum(finer[0], gained[few])
    sampled = np.isin(few, sample)
    variance = float(np.median((finer[2] - finer[0] ** 2)[sampled]))
    if screen is not None:
        value *= shown[sampled].sum() / value[sample].sum()
    value[few] = shown
    lost = ((tilts.rows + 8) + single_loss(view.n_subsets)) * HALF_PRECISION
    dtype = np.float32 if lost < SINGLE_LOSS * float(value.max()) else np.float64
    first = np.sort(few[_ascending(gained[few] - value[few])[:FINALISTS]])

    def sharpest(n: int) -> tuple[float, float]:
        return min((_half_width(variance, n, per_side, rates=(rate,)), rate) for rate in MANY_RATES)

    def seen(room: float) -> int:
        n = min(FIRST_STAGE, n_draws)
        while n < n_draws and sharpest(n)[0] > room:
            n = min(n + n // 8, n_draws)
        return n

    regressed = None
    if screen is None and n_units > CHAMPIONS and dtype == np.float32 and halves:
        near = value[first] + sharpest(n_draws)[0]
        if allowed is not None and (near > (1 - LITTLE_ROOM) * allowed[first]).any():
            near = allowed[first]
        typical = np.median(value[sample] - gained[sample])
        room = float((near - gained[first]).max() - typical)
        pilot = draw_views(view, FIRST_STAGE // 2, rng)
        a = tilts.fold(view_posterior(view, pilot)) @ tilts.masks(sample, np.float64)
        level = math.log(4 * n_units / gamma)
        plan = AdvantageRegression.planned(a, room=room, n_draws=n_draws, level=level)
        if plan is not None and plan.cost(tilts.rows, n_units) < seen(room):
            regressed = RegressedSums(plan, tilts)
    look(draw(sums_of(first), n_draws, regressed), value[first])
    goal, sharp = float((upper[first] - gained[first]).max()), value[first]

    def found() -> AdvantageBounds:
        weight = tilts.weight(before, EVERYONE)
        slack = 2 * view.slack * shortened(weight)[0] + ROUNDING
        np.subtract(lower, slack, out=lower)
        np.maximum(lower, 0.0, out=lower)
        np.add(upper, slack, out=upper)
        return AdvantageBounds(value=value, lower=lower, upper=upper, n_draws=n_draws)

    if allowed is not None and (upper[first] > allowed[first]).any():
        np.minimum(value, sharp.max(), out=value)
        value[first] = upper[first]
        return found()
    # of the others' bounds: to be no worse than the first
    limit = lengthened(shortened(gained)[0] + goal, n_units)
    if allowed is not None and screen is None:
        given = max(float((allowed[first] - gained[first]).max()), 1e-300)
        if 1 - goal / given <= LITTLE_ROOM:
            limit = lengthened(np.maximum(*shortened(limit, allowed)), n_units)
    room = float(np.quantile(limit[sample] - value[sample], 1 - FIRST_DROPPED))
    others = np.ones(n_units, dtype=np.bool_)
    others[first] = False
    n_seen = seen(room)
    if regressed is not None:
        value, high = regressed.bounds(EVERYONE, np.where(others, limit, math.inf))
        np.maximum(high, gained, out=high)
        np.minimum(upper, high, out=upper)
        del high
    if screen is not None:
        above = np.flatnonzero(others & (upper > limit))
        finer = screen.bounds(above, screen.rank(SCREEN_TAILS[1] * most**2))
        upper[above] = np.minimum(upper[above], np.maximum(finer, gained[above]))
        n_seen = min(FIRST_STAGE, n_draws)
    sums = sums_of(np.flatnonzero(others & (upper > limit)))
    center = value[sums.units]
    for n in np.geomspace(n_seen, n_draws, _looks(n_draws) - 1).astype(np.int64):
        if len(sums) and n > sums.n_draws:
            look(draw(sums, int(n) - sums.n_draws), center, (sharpest(int(n))[1],))
            kept = (upper > limit)[sums.units]
            sums, center = sums.of(kept), center[kept]
    value[first] = sharp
    np.clip(value, lower, upper, out=value)
    return found()


def _ascending(values: Vector) -> Units:
    """Return places in ascending order, those of about equal values as they come.

    Many units may be as good as equal: who is looked at must not hang on how a machine rounds.
    """
    scaled = values / max(float(np.abs(values).max(initial=0.0)), 1e-300)
    return np.argsort(np.round(scaled, 5, out=scaled), kind="stable")


def _looks(n_draws: int) -> int:
    """Return how often one unit is bounded at most."""
    return 3 + max(0, math.ceil(math.log2(max(1.0, n_draws / FIRST_STAGE))))


def _half_width(
    variance: float,
    n: int,
    gamma: float,
    width: float = 1.0,
    rates: tuple[float, ...] = RATES,
) -> float:
    level = math.log((3 if width > 1 else 1) * len(rates) / gamma) / n
    return float(advantage_deviation(np.array([variance]), np.full(1, width), level, rates)[0])


def _block(n_units: int) -> int:
    """Return how many posterior entries to hold at a time."""
    return BLOCK_CELLS // 4 if n_units > CHAMPIONS else BLOCK_CELLS // 16


def _contenders(gain: tuple[Vector, Vector]) -> npt.NDArray[np.bool_]:
    """Return which units may still be the one whose advantage grows most."""
    lower, upper = gain
    kept: npt.NDArray[np.bool_] = upper > lower.max()
    kept[int(np.argmax(upper))] = True
    return kept


def _on_a_line(view: View, tilts: ViewTilts, before: Vector) -> AdvantageBounds:
    """Bound ``E |a|`` for outputs of rank 1 on finer and finer grids (claim A-5)."""
    units = np.arange(tilts.n_units, dtype=np.int64)
    value, lower, upper = np.empty((3, len(units)))
    active, nodes = units, 0
    for step in GRID_STEPS:
        exact = len(active) * 8 <= len(units) or len(units) <= 4096
        dtype = np.float64 if exact else np.float32
        here, error, n_nodes = line_advantage(view, tilts, active, step, dtype)
        nodes += n_nodes
        a0, worst = before[active], tilts.most[active]
        slack = (step**2 / 4 * CURVATURE + 2 * view.slack) * tilts.weight(a0, active)
        slack += error * worst + ROUNDING
        value[active] = np.maximum(here, np.abs(a0))
        lower[active] = np.maximum(here - slack, np.abs(a0))
        upper[active] = np.maximum(here + slack, lower[active])
        value[active] = np.clip(value[active], lower[active], upper[active])
        gained = np.abs(a0)
        active = active[_contenders((lower[active] - gained, upper[active] - gained))]
    return AdvantageBounds(value=value, lower=lower, upper=upper, n_draws=nodes)


def has_plane_advantage(view: View) -> bool:
    """Whether an integral over a grid is the better way: rank 2, and no candidate far away."""
    if view.points.shape[1] != 2 or view.groups is not None or view.gaps is not None:
        return False
    return _area(view) <= LARGEST_PLANE


def _area(view: View) -> float:
    alive = view.points[np.isfinite(view.log_prior)]
    return float(np.prod(np.ptp(alive, axis=0) + 2 * PLANE_REACH))


def finest_advantage_step(view: View) -> float:
    """Return the step of a grid on a plane whose nodes are as many as is worth it."""
    return math.sqrt(_area(view) / PLANE_NODES)


def plane_advantage(
    view: View, tilts: ViewTilts, units: Units, step: float
) -> tuple[Vector, float]:
    """Return the sum of ``|D|`` over a grid on the plane, per unit, and how far it may be off.

    The second number is for ``W = 1`` (claim A-8). The density of a candidate is a product of two,
    so the sum for a unit is that of the entries of one product of matrices.
    """
    alive, sides = np.isfinite(view.log_prior), []
    for along in view.points[alive].T:
        nodes = np.arange(along.min() - PLANE_REACH, along.max() + PLANE_REACH + step, step)
        sides.append(_two_steps(nodes, along))
    (near, near_rough), (far, far_rough) = sorted(sides, key=lambda side: len(side[0]))
    error = step**2 / 2 * CURVATURE + 2 * ROUGH_ERROR
    lost = (near.shape[1] + far.shape[1] + 16) * HALF_PRECISION
    dtype = np.float32 if lost < 0.1 * error else np.float64
    near, far = (step * near).astype(dtype), np.ascontiguousarray((step * far).T, dtype=dtype)
    weights, found = np.exp(view.log_prior[alive]), np.empty(len(units))
    for place, masks in tilts.blocks(units, np.float64, whole=True):
        terms = masks[alive] * weights[:, None]
        for k in range(terms.shape[1]):
            rough = ((near_rough * terms[:, k]) @ far_rough.T).astype(dtype)
            density = (near @ rough) @ far
            found[place.start + k] = np.abs(density, out=density).sum(dtype=np.float64)
    return found, error + (lost if dtype == np.float32 else 0.0)


def _two_steps(nodes: Vector, points: Vector) -> tuple[Matrix, Matrix]:
    """Return matrices whose product is ``φ(z - w)`` at all nodes and points (claim A-8).

    Half of the noise brings the points to a rough grid, the other half brings them to the nodes.
    """
    reach = max(points.min() - nodes[0], nodes[-1] - points.max()) / 2 + 3.75
    rough = np.arange(points.min() - reach, points.max() + reach + ROUGH, ROUGH)
    first = ROUGH / math.sqrt(math.pi) * np.exp(-np.square(rough[:, None] - points))
    second = np.exp(-np.square(nodes[:, None] - rough)) / math.sqrt(math.pi)
    for density in (first, second):
        density[density < NOTHING] = 0.0  # numbers that are nearly zero are slow
    return second, first


def _on_a_plane(
    view: View, tilts: ViewTilts, before: Vector, screen: Vector
) -> AdvantageBounds | None:
    """Bound ``E |a|`` for outputs of rank 2 on finer and finer grids (claim A-8).

    Units are taken in the order of their second moments, until no other can be the worst; None
    where that would be too many. A sample of them tells what the others' advantage is like.
    """
    units = np.arange(len(before), dtype=np.int64)
    gained, weight = np.abs(before), tilts.weight(before, units)
    always = 2 * view.slack * weight + 16 * _tail(PLANE_REACH) * tilts.most + ROUNDING
    value, lower, upper = np.empty(len(units)), gained.copy(), np.maximum(screen + always, gained)
    looked = np.zeros(len(units), dtype=np.bool_)
    finest = finest_advantage_step(view)
    first = max(finest, math.sqrt(0.16 * min(1.0, float((upper - gained).max()))))  # at most 0.4

    def look(some: Units, step: float) -> None:
        chosen = np.sort(some)
        here, error = plane_advantage(view, tilts, chosen, step)
        slack = error * weight[chosen] + always[chosen]
        lower[chosen] = np.maximum(lower[chosen], here - slack)
        upper[chosen] = np.maximum(np.minimum(upper[chosen], here + slack), lower[chosen])
        value[chosen] = np.clip(here, lower[chosen], upper[chosen])
        looked[chosen] = True

    order = np.argsort(gained - upper)
    sample = order[:: max(1, len(units) // PLANE_BATCH)]
    look(sample, first)
    ratio = float(value[sample].sum() / screen[sample].sum())
    for start in range(0, len(units), PLANE_BATCH):
        chosen = order[start : start + PLANE_BATCH]
        if (upper - gained)[chosen].max() <= (lower - gained).max():
            break
        if start >= PLANE_LOOKS:
            return None
        look(chosen[~looked[chosen]], first)
    for step in (math.sqrt(first * finest), finest):
        look(np.flatnonzero(_contenders((lower - gained, upper - gained))), step)
    value[~looked] = np.clip(ratio * screen, lower, upper)[~looked]
    return AdvantageBounds(value=value, lower=lower, upper=upper, n_draws=PLANE_NODES)


def has_line_advantage(view: View) -> bool:
    """Whether an integral over a grid is the better way: rank 1, and no candidate out of sight."""
    if view.points.shape[1] != 1 or view.groups is not None:
        return False
    return float(np.ptp(view.points)) <= LONGEST_LINE


def has_short_line_advantage(view: View) -> bool:
    """Whether posteriors at all nodes of a grid are affordable too."""
    if not has_line_advantage(view) or view.gaps is not None:
        return False
    length = float(np.ptp(view.points))
    return length <= SHORT_LINE or length * view.n_subsets <= LINE_CELLS


def has_banded_advantage(view: View) -> bool:
    """Whether a line is so long that most candidates are out of sight of each other."""
    return has_line_advantage(view) and float(np.ptp(view.points)) > BANDED_LINE


def line_advantage(
    view: View, tilts: ViewTilts, units: Units, step: float, dtype: npt.DTypeLike = np.float64
) -> tuple[Vector, float, int]:
    """Return the sum of ``|D|`` over a grid on the line, per unit; what it lost; its nodes.

    What is lost to rounding, and by looking at no candidate from afar, is in units of the largest
    mask (claim A-5).
    """
    found, error = np.zeros(len(units)), 2.0 * _tail(REACH)
    if not has_banded_advantage(view):
        nodes = _line_nodes(view, step)
        alive = np.isfinite(view.log_prior)
        fine, rough = _two_steps(nodes, view.points[alive, 0])
        parts = np.zeros((len(rough), view.n_subsets))
        parts[:, alive] = rough * np.exp(view.log_prior[alive])
        fine, folded = (step * fine).astype(dtype), tilts.fold(parts)
        error += ROUGH_ERROR
        if dtype == np.float32:
            mass = float(fine.sum(axis=0, dtype=np.float64) @ np.abs(folded).sum(axis=1))
            error += mass * (tilts.rows + len(rough) + 16) * HALF_PRECISION
        folded = folded.astype(dtype)
        for place, masks in tilts.blocks(units, dtype):
            brought = folded @ masks
            for start in range(0, len(fine), LINE_BLOCK):
                sizes = np.abs(fine[start : start + LINE_BLOCK] @ brought)
                found[place] += sizes.sum(axis=0, dtype=np.float64)
        return found, error, len(nodes)
    order = np.argsort(view.points[:, 0])
    bands = [(near, density.astype(dtype)) for near, density in _bands(view, order, step)]
    error += 6.0 * _tail(REACH) + 2.0**-50 * float(np.ptp(view.points))
    if dtype == np.float32:
        error += (max(density.shape[1] for _, density in bands) + 8) * HALF_PRECISION * 1.01
    for place, masks in tilts.blocks(units, dtype, whole=True):
        ordered = masks[order]
        for near, density in bands:
            sizes = np.abs(density @ ordered[near])
            found[place] += sizes.sum(axis=0, dtype=np.float64)
    return found, error, sum(len(density) for _, density in bands)


def _bands(view: View, order: npt.NDArray[np.intp], step: float) -> Iterator[tuple[slice, Matrix]]:
    """Yield the candidates near each stretch of a grid, and their parts of the density there.

    Candidates that no other one overlaps have a grid of one node.
    """
    points, weights = view.points[order, 0], np.exp(view.log_prior[order])
    ends = np.flatnonzero(np.diff(points) > 2 * REACH) + 1
    for first, last in zip([0, *ends], [*ends, len(points)], strict=True):
        if last - first == 1:
            yield slice(first, last), weights[first:last, None]
            continue
        along = points[first:last] - (points[first] - REACH)
        n_nodes, block = math.ceil((along[-1] + REACH) / step) + 1, math.ceil(REACH / step)
        for start in range(0, n_nodes, block):
            z = step * np.arange(start, min(start + block, n_nodes))
            low, high = np.searchsorted(along, (z[0] - REACH, z[-1] + REACH))
            if low < high:
                near = slice(first + low, first + high)
                density = np.exp(-0.5 * np.square(z[:, None] - along[low:high])) * weights[near]
                yield near, step / math.sqrt(2 * math.pi) * density


def _tail(reach: float) -> float:
    return 0.5 * math.erfc(reach / math.sqrt(2))


def _line_nodes(view: View, step: float) -> Vector:
    alive = view.points[np.isfinite(view.log_prior), 0]
    low, high = float(alive.min()) - REACH, float(alive.max()) + REACH
    nodes: Vector = low + step * np.arange(math.ceil((high - low) / step) + 1, dtype=np.float64)
    return nodes


def line_advantage_posteriors(view: View, step: float) -> Iterator[tuple[Matrix, Vector]]:
    """Yield posteriors at the nodes of a grid, with the probability of each node's cell."""
    points, nodes = view.points[:, 0], _line_nodes(view, step)
    block = max(16, BLOCK_CELLS // 4 // len(points))
    for start in range(0, len(nodes), block):
        z = nodes[start : start + block]
        log_p = view.log_prior - 0.5 * (z[:, None] - points) ** 2
        top = log_p.max(axis=1)
        weights = np.exp(log_p - top[:, None])
        total = weights.sum(axis=1)
        mass = step / math.sqrt(2 * math.pi) * np.exp(top) * total
        yield weights / total[:, None], mass


def advantage_room(
    view: View, pool: Candidates, variance: float, n_draws: int, *, gamma: float
) -> float:
    """Return about how far above the truth the bound of the worst unit's success will be."""
    if has_line_advantage(view):
        return GRID_STEPS[-1] ** 2 / 8 * CURVATURE
    if has_plane_advantage(view):
        return finest_advantage_step(view) ** 2 / 4 * CURVATURE
    share = pool.counts() / pool.n_subsets
    most = 0.5 / float(np.minimum(share, 1 - share).min())
    per_side = gamma / (4 * pool.n_units * _looks(n_draws))
    return 0.5 * _half_width(4 * variance, n_draws, per_side, most)


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
    """Foretell the bounds of few units on ``n_draws`` draws from other ones; and the variances."""
    sums = _Sums(units, tilts.before(view.log_prior, units), tilts.share[units])
    for draws in draw_view_blocks(view, n_measured, rng):
        sums.add(tilts, tilts.fold(view_posterior(view, draws, np.float32)))
    mean, _, square, _ = sums.sums / n_measured
    sums.sums, sums.error = sums.sums * n_draws / n_measured, sums.error * n_draws / n_measured
    sums.n_draws = n_draws
    upper = sums.bounds(mean, gamma / (4 * tilts.n_units * _looks(n_draws)))[2]
    return upper, np.maximum(square - mean**2, 0.0)
