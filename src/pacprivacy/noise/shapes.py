"""Shapes of noise, and their information and membership risk at any scale.

The same simulated draws serve every scale, so the curves are smooth and can be bisected. A search
only proposes; fresh draws certify.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary import (
    Heat,
    View,
    ViewTilts,
    exact_information,
    has_line_advantage,
    heat_potential,
    heat_slope,
    line_advantage_posteriors,
    make_view,
    view_log_ratios,
)
from pacprivacy.errors import BudgetError
from pacprivacy.noise.lattice import Integers
from pacprivacy.noise.plan import NoisePlan, Spread, SpreadFrame, make_plan, waterfill
from pacprivacy.sample import Pool

PROBE_ELEMENTS = 1 << 23
LINE_STEP = 0.05  # of the noise, for outputs of rank 1
N_WORST = 128  # units that a search looks at
COARSE_DRAWS = 1024  # draws of a search by membership; the place that it finds is measured on more
SAFETY_MARGIN_SD = 1.3  # between search and proof, in standard deviations
RANKING_DRAWS = (48, 256)  # draws that rank all units
RANKING_COST = 10**10  # multiplications

LEAST_NOISE = 1e-18  # of the spread's variance: a search that may go on stops here
LARGEST_LOG_SCALE = 60.0
FIRST_STEP = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Noise of these variances along the columns of ``rotation``."""

    rotation: Matrix
    noise_var: Vector

    @property
    def total_variance(self) -> float:
        return float(self.noise_var.sum())

    def scaled(self, noise_scale: float) -> Shape:
        return Shape(rotation=self.rotation, noise_var=self.noise_var * noise_scale**2)

    def view(self, spread: Spread, log_p: Vector) -> View:
        """Return the attacker's view under this noise."""
        points = spread.coordinates @ self.rotation / np.sqrt(self.noise_var)
        return make_view(points, log_p)

    def plan(self, spread: Spread, *, rule: str, notes: tuple[str, ...] = ()) -> NoisePlan:
        return make_plan(
            rule=rule,
            frame=SpreadFrame(spread=spread, rotation=self.rotation),
            center=spread.center,
            noise_std=np.sqrt(self.noise_var),
            values=spread.values,
            notes=notes,
        )


def axis_shape(noise_var: Vector) -> Shape:
    keep = noise_var > 0
    return Shape(rotation=np.eye(len(noise_var))[:, keep], noise_var=noise_var[keep])


def _least_scale(shape: Shape, spread: Spread) -> float:
    """Return the scale below which a search ends, as good as no noise."""
    return math.sqrt(LEAST_NOISE * float(spread.eigenvalues.sum()) / shape.total_variance)


def shape_scale(
    excess: Callable[[float], float], *, start: float = 1.0, tolerance: float = 1e-3
) -> float:
    """Return nearly the smallest scale with ``excess`` <= 0, never a smaller one."""
    high, step = math.log(start), FIRST_STEP
    above = below = 0.0  # the excess at the two ends of the bracket
    while (below := excess(math.exp(high))) > 0:
        low, above = high, below
        high += step
        step *= 3
        if high > LARGEST_LOG_SCALE:
            raise BudgetError(
                "budget must be reachable: no amount of noise meets it for this pool. "
                "Use a larger budget or more subsets."
            )
    step = FIRST_STEP
    while above <= 0:
        low = high - step
        step *= 3
        if low < -LARGEST_LOG_SCALE:
            return math.exp(high)
        if (here := excess(math.exp(low))) > 0:
            above = here
        else:
            high, below = low, here
    bisect = False
    while high - low > tolerance:
        share = below / (below - above) if math.isfinite(above) else 0.5
        if share * (high - low) < 0.3 * tolerance:  # the root is this close, by a straight line
            break
        share = 0.5 if bisect else share
        middle = max(high - share * (high - low) + 0.2 * tolerance, low + 0.1 * tolerance)
        middle, width = min(middle, high - 0.1 * tolerance), high - low
        here = excess(math.exp(middle))
        if here > 0:
            low, above = middle, here
        else:
            high, below = middle, here
        bisect = high - low > 0.5 * width  # a curve that bends is halved instead
    return math.exp(high)


FLOOR = 1e-9
N_DRAWS = 2048
GAP_COST = 1 << 24  # posterior entries
SMALL_GAP = 0.009  # of the budget: less is not worth a search and a proof
PATIENCE = 3


def exact_shapes(
    spread: Spread,
    log_p: Vector,
    *,
    mi_nats: float,
    rng: np.random.Generator,
    watch: Callable[[int, float], None] | None = None,
) -> list[Shape]:
    """Return promising shapes with their scale set to the budget, least total noise first.

    The Gaussian answer (``waterfill``) is always among them. Certify before use: the draws that set
    the scale also chose the shape. ``watch`` gets the step and the noise of every iterate.
    """
    gaussian = axis_shape(waterfill(spread.eigenvalues, mi_nats=mi_nats))
    if _relative_gap(gaussian, spread, log_p, mi_nats, rng) < SMALL_GAP:
        return [gaussian]
    n_steps = 24 if spread.rank <= 32 else 6
    refined = refine_shape(
        gaussian, spread, log_p, mi_nats=mi_nats, rng=rng, n_steps=n_steps, watch=watch
    )
    return sorted([gaussian, refined], key=lambda shape: shape.total_variance)


def refine_shape(
    start: Shape,
    spread: Spread,
    log_p: Vector,
    *,
    mi_nats: float,
    rng: np.random.Generator,
    n_steps: int,
    watch: Callable[[int, float], None] | None = None,
) -> Shape:
    """Run the damped fixed point from one start; return its best iterate at the budget."""
    seed = int(rng.integers(2**63))
    shape, best, stalled = start, None, 0
    for step in range(n_steps + 1):
        probe = ShapeProbe(shape.view(spread, log_p), np.random.default_rng(seed), n_draws=N_DRAWS)
        scale = shape_scale(lambda c, p=probe: p.information(c)[0] - mi_nats)  # type: ignore[misc]
        least = _least_scale(shape, spread)
        if scale <= least:
            return shape.scaled(least)
        shape = shape.scaled(scale)
        if watch is not None:
            watch(step, shape.total_variance)
        stalled = (
            0 if best is None or shape.total_variance < 0.998 * best.total_variance else stalled + 1
        )
        if best is None or shape.total_variance < best.total_variance:
            best = shape
        if stalled >= PATIENCE or shape.total_variance > 1.5 * best.total_variance:
            break
        if step < n_steps:
            shape = _stationary_step(shape, probe, scale, spread, damping=0.6)
    assert best is not None  # the loop runs at least once
    return best


def _stationary_step(
    shape: Shape, probe: ShapeProbe, scale: float, spread: Spread, *, damping: float
) -> Shape:
    """Move ``log Σ_B`` a part of the way towards ``log E^{1/2}``."""
    coordinates = spread.coordinates @ shape.rotation
    error = _mean_square_error(probe.posterior(scale), coordinates)
    values, vectors = np.linalg.eigh(error)
    values = np.maximum(values, FLOOR**2 * max(float(values.max()), 1e-300))
    target = (vectors * (0.5 * np.log(values))) @ vectors.T
    current = np.log(shape.noise_var)
    target += np.eye(len(current)) * (current.mean() - np.trace(target) / len(current))
    moved = (1 - damping) * np.diag(current) + damping * target
    log_var, turn = np.linalg.eigh(moved)
    log_var = np.maximum(log_var, log_var.max() + 2 * math.log(FLOOR))
    return Shape(rotation=shape.rotation @ turn, noise_var=np.exp(log_var))


def _mean_square_error(posterior: Matrix, coordinates: Matrix) -> Matrix:
    """Return the attacker's error matrix ``E[Cov(Y_J | Z)]`` over simulated draws."""
    guess = posterior @ coordinates
    mass = posterior.mean(axis=0)
    second: Matrix = (coordinates.T * mass) @ coordinates - guess.T @ guess / len(guess)
    return 0.5 * (second + second.T)


def _relative_gap(
    shape: Shape, spread: Spread, log_p: Vector, mi_nats: float, rng: np.random.Generator
) -> float:
    """Return the share of the budget that the Gaussian bound leaves unused, roughly."""
    view = shape.view(spread, log_p)
    n_draws = int(np.clip(GAP_COST // view.n_subsets, 4096, 1 << 15))
    information = exact_information(view, n_draws=n_draws, gamma=0.1, rng=rng)
    return (mi_nats - information.value) / mi_nats


MI_LEVELS = (0.1, 1.5)
POWERS = (1.0, 0.8, 0.6)  # flatter versions of the hiding ellipsoid do better for large caps
N_TRIED = 512  # draws that tell shapes apart
HIDING_STEPS = 30
HIDDEN = (5, 1024)  # after so many steps the search for an ellipsoid goes on with so many units
SMALL_STEP = 1e-6  # an advantage


def risk_shapes(
    spread: Spread,
    pool: Pool,
    log_p: Vector,
    limits: Vector | Heat,
    *,
    rng: np.random.Generator,
) -> list[Shape]:
    """Return shapes scaled to the limits, least total noise first; certify before use."""
    tilts = ViewTilts(pool)
    shifts = tilts.shifts(spread.coordinates, log_p)
    shapes = [axis_shape(waterfill(spread.eigenvalues, mi_nats=level)) for level in MI_LEVELS]
    hiding = _hiding_shape(spread, shifts)
    shapes += [
        Shape(rotation=hiding.rotation, noise_var=hiding.noise_var**power) for power in POWERS
    ]
    scaled = []
    for shape in shapes[:1] if spread.rank == 1 else shapes:
        draws = ShapeProbe(shape.view(spread, log_p), rng, n_draws=N_TRIED)
        probe = risk_shape_probe(draws, tilts, limits)
        probe.look_at(_steps_of(_lengths(shifts, shape.rotation, shape.noise_var)))
        scale = shape_scale(lambda c, p=probe: p.excess(c)[0], tolerance=0.02)  # type: ignore[misc]
        scaled.append(shape.scaled(max(scale, _least_scale(shape, spread))))
    return sorted(scaled, key=lambda shape: shape.total_variance)


def _hiding_shape(spread: Spread, shifts: Matrix) -> Shape:
    """Return the least-trace ellipsoid that covers every unit's shift, by multiplicative weights.

    With ``M = (Σ_i ν_i φ_i φ_iᵀ)^{1/2}`` and ``ν`` raised where ``φ_iᵀ M^{-1} φ_i`` is large, ``M``
    tends to the least-trace matrix with ``φ_iᵀ M^{-1} φ_i <= 1`` for all units.
    """
    importance = np.full(len(shifts), 1.0 / len(shifts))
    typical = float(np.square(shifts).sum()) / len(shifts)
    if typical <= 1e-18 * float(spread.eigenvalues.sum()):  # no unit's membership shifts the mean
        return Shape(rotation=np.eye(spread.rank), noise_var=spread.eigenvalues)
    ridge = 1e-9 * typical
    values, vectors = np.ones(spread.rank), np.eye(spread.rank)
    for step in range(HIDING_STEPS):
        if step == HIDDEN[0] and len(shifts) > HIDDEN[1]:
            heaviest = np.argpartition(importance, -HIDDEN[1])[-HIDDEN[1] :]
            shifts, importance = shifts[heaviest], importance[heaviest] / importance[heaviest].sum()
        second = (shifts.T * importance) @ shifts + ridge * np.eye(spread.rank)
        values, vectors = np.linalg.eigh(second)
        values = np.sqrt(np.maximum(values, ridge))
        lengths = _lengths(shifts, vectors, values)
        lengths /= lengths.mean()
        importance *= np.sqrt(lengths, out=lengths)
        importance /= importance.sum()
    return Shape(rotation=vectors, noise_var=values)


def _lengths(shifts: Matrix, rotation: Matrix, noise_var: Vector) -> Vector:
    """Return the squared shift of every unit in units of the noise."""
    squared: Vector = np.square(shifts @ rotation) @ (1 / noise_var)
    return squared


def _steps_of(lengths: Vector) -> Vector:
    """Turn squared shifts into advantages that rank units within caps that are alike, in place."""
    lengths /= max(float(lengths.max()), 1e-300)
    np.sqrt(lengths, out=lengths)
    lengths *= SMALL_STEP
    return lengths


class ShapeProbe:
    """Simulated draws of a view, or a grid for rank 1, on which any scale of noise can be tried."""

    def __init__(self, view: View, rng: np.random.Generator, *, n_draws: int | None = None) -> None:
        m, points = view.n_subsets, view.points
        n = n_draws or int(np.clip(PROBE_ELEMENTS // m, 512, 8192))
        self.view, self.n_draws = view, n
        order = rng.permutation(n)
        cumulative = np.cumsum(np.exp(view.log_prior))
        strata = (order + rng.random(n)) / n * cumulative[-1]
        chosen = np.minimum(np.searchsorted(cumulative, strata, side="right"), m - 1)
        noise = _stratified_normals(rng, n, points.shape[1])
        self._signal, self._cross = view_log_ratios(view, chosen), noise @ points.T
        # near candidates stay apart
        self._cross -= np.einsum("iq,iq->i", noise, points[chosen])[:, None]

    def posterior(self, scale: float, n_draws: int | None = None) -> Matrix:
        """Return the posteriors on the first draws when the noise is ``scale`` times larger."""
        p, total = self._likelihoods(scale, n_draws)[1:]
        p /= total[:, None]
        return p

    def information(self, scale: float) -> tuple[float, float]:
        log_p, p, total = self._likelihoods(scale)
        np.maximum(log_p, -800.0, out=log_p)  # where p is 0 the product must be 0, not NaN
        weighted = np.einsum("ij,ij->i", p, log_p)
        gains = self.view.prior_entropy - np.log(total) + weighted / total
        return float(gains.mean()), float(gains.var(ddof=1))

    def weighted(self, scale: float) -> tuple[Matrix, Vector]:
        """Return posteriors and their weights, from draws or on a grid."""
        scaled = self.view.scaled(scale)
        if has_line_advantage(scaled):
            rows = list(line_advantage_posteriors(scaled, LINE_STEP))
            return np.concatenate([p for p, _ in rows]), np.concatenate([w for _, w in rows])
        p = self.posterior(scale)
        return p, np.full(len(p), 1 / len(p))

    def _likelihoods(
        self, scale: float, n_draws: int | None = None
    ) -> tuple[Matrix, Matrix, Vector]:
        with np.errstate(over="ignore"):  # a candidate that far away is ruled out
            log_p: Matrix = self._signal[:n_draws] / scale**2
        log_p += self._cross[:n_draws] / scale
        log_p += self.view.log_prior
        log_p -= log_p.max(axis=1, keepdims=True)
        p = np.exp(log_p)
        return log_p, p, p.sum(axis=1)


def _ranking(tilts: ViewTilts) -> int:
    """Return the number of draws for ranking units: fewer for many units and candidates."""
    return int(np.clip(RANKING_COST // (tilts.rows * tilts.n_units), *RANKING_DRAWS))


class RiskShapeProbe:
    """Excess of the success over the caps of the closest units, at any scale."""

    width = 1.0  # of the averaged figures, relative to their limits

    def __init__(self, probe: ShapeProbe, tilts: ViewTilts, caps: Vector) -> None:
        self._probe, self._tilts, self._caps = probe, tilts, caps
        self._choose(np.arange(min(tilts.n_units, 2 * N_WORST)))

    def focus(self, scale: float) -> None:
        """Keep the units that are closest to their caps at this scale: ranked on a few draws."""
        if self._tilts.n_units > 2 * N_WORST:
            ranked = self._probe.posterior(scale, _ranking(self._tilts))
            self.look_at(self._tilts.sizes(ranked) / len(ranked), 4 * N_WORST)
            room = self._caps[self._chosen] - 0.5 * self._means(scale)[0]
            self._choose(self._chosen[np.argsort(room)[:N_WORST]])

    def look_at(self, size: Vector, n_kept: int = N_WORST) -> None:
        """Keep the units closest to their caps, given their advantage or a monotone score."""
        if self._tilts.n_units > 2 * N_WORST:
            count = min(n_kept, self._tilts.n_units - 1)
            self._choose(np.argpartition(self._room_left(size), count)[:count])

    def _choose(self, units: Integers) -> None:
        self._chosen = np.sort(units).astype(np.int64)
        self._masks = self._tilts.masks(self._chosen, np.float64)

    def _means(self, scale: float) -> tuple[Vector, Matrix]:
        sizes = np.abs(self._tilts.fold(self._probe.posterior(scale)) @ self._masks)
        return sizes.mean(axis=0), sizes

    def _room_left(self, size: Vector) -> Vector:
        room: Vector = self._caps - 0.5 - 0.5 * size
        return room

    def excess(self, scale: float) -> tuple[float, float]:
        """Return the largest excess over a cap, and the variance of success there."""
        mean, sizes = self._means(scale)
        over = 0.5 + 0.5 * mean - self._caps[self._chosen]
        worst = int(np.argmax(over))
        return float(over[worst]), float(sizes[:, worst].var()) / 4


class HeatShapeProbe(RiskShapeProbe):
    """Largest relative excess of any unit's charge over its limit, at any scale."""

    def __init__(self, probe: ShapeProbe, tilts: ViewTilts, heat: Heat) -> None:
        super().__init__(probe, tilts, heat.allowed)
        self._heat, (self._gain, self._square) = heat, heat.room()

    def focus(self, scale: float) -> None:
        """Keep the units whose mean square move is nearest to its limit."""
        if self._tilts.n_units > 2 * N_WORST:
            ranked = self._probe.posterior(scale, _ranking(self._tilts))
            folded, squares = self._tilts.fold(ranked), np.empty(self._tilts.n_units)
            for place, masks in self._tilts.blocks(slice(None), np.float64):
                moved = folded @ masks - self._heat.before[place]
                squares[place] = np.square(moved).mean(axis=0)
            self.look_at(np.sqrt(squares))

    def _room_left(self, size: Vector) -> Vector:
        ratio: Vector = -np.square(size) / self._caps
        return ratio

    def excess(self, scale: float) -> tuple[float, float]:
        """Return the largest excess over the limits, and its variance."""
        p, weight = self._probe.weighted(scale)
        tilted = self._tilts.fold(p) @ self._masks
        over = weight @ np.stack(self._growth(tilted, self._chosen)) - 1.0
        which, worst = np.unravel_index(int(np.argmax(over)), over.shape)
        unit = self._chosen[worst : worst + 1]
        values = self._growth(tilted[:, worst : worst + 1], unit)[which][:, 0]
        self.width = float(1 / (self._gain, self._square)[which][unit[0]])
        return float(over[which, worst]), float(weight @ np.square(values - weight @ values))

    def _growth(self, tilted: Matrix, units: Integers) -> tuple[Matrix, Matrix]:
        """Return the growth of the potential and the squared move, relative to their limits."""
        here, moved = self._heat.of(units), tilted - self._heat.before[units]
        after = np.maximum(here.balance - here.allowed, 0.0)
        start, slope = heat_potential(here.before, after), heat_slope(here.before, here.balance)
        grown = (heat_potential(tilted, after) - start - slope * moved) / self._gain[units]
        return grown, np.square(moved) / self._square[units]


def risk_shape_probe(probe: ShapeProbe, tilts: ViewTilts, limits: Vector | Heat) -> RiskShapeProbe:
    if isinstance(limits, Heat):
        return HeatShapeProbe(probe, tilts, limits)
    return RiskShapeProbe(probe, tilts, limits)


def _stratified_normals(rng: np.random.Generator, n: int, dimension: int) -> Matrix:
    """Return standard normals; the first few coordinates are stratified to reduce variance."""
    from scipy.special import ndtri  # slow to import, not always needed

    noise = rng.standard_normal((n, dimension))
    for column in range(min(dimension, 8)):
        noise[:, column] = ndtri((rng.permutation(n) + rng.random(n)) / n)
    return noise
