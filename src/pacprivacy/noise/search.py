"""Shapes of noise, and fast what-if: information and membership risk of a shape at any scale.

The same simulated draws serve every scale (common random numbers), so the curves are smooth and
a bisection is safe from Monte-Carlo jitter. What a search finds here is only a proposal; it is
certified afterwards on fresh draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary import (
    Candidates,
    SignBlocks,
    View,
    exact_information,
    log_ratios,
    make_view,
)
from pacprivacy.errors import BudgetError
from pacprivacy.noise.formulas import waterfill
from pacprivacy.noise.plan import Integers, NoisePlan, Revealed, Spread, SpreadFrame, make_plan
from pacprivacy.theory import entropy

LEAST_NOISE = 1e-18  # of the spread's variance: a search that may go on stops here
PROBE_ELEMENTS = 1 << 23
LARGEST_LOG_SCALE = 60.0
FIRST_STEP = 0.05
TINY_SCALE = 1e-15  # below, powers of it leave the range of single precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Noise with variances ``noise_var`` along the columns of ``rotation``.

    ``groups`` tells candidates apart without noise (an exact observation); everything that the
    rotation does not span is then a function of the group.
    """

    rotation: Matrix
    noise_var: Vector
    groups: Integers | None = None

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise."""
        return float(self.noise_var.sum())

    def scaled(self, noise_scale: float) -> Shape:
        """Return the shape with every standard deviation multiplied."""
        return Shape(
            rotation=self.rotation, noise_var=self.noise_var * noise_scale**2, groups=self.groups
        )

    def view(self, spread: Spread, log_p: Vector) -> View:
        """Return what the attacker compares under this noise."""
        points = spread.coordinates @ self.rotation / np.sqrt(self.noise_var)
        return make_view(points, log_p, groups=self.groups)

    def plan(self, spread: Spread, *, rule: str, notes: tuple[str, ...] = ()) -> NoisePlan:
        """Put this noise on its lattice."""
        return make_plan(
            rule=rule,
            frame=SpreadFrame(spread=spread, rotation=self.rotation),
            center=spread.center,
            noise_std=np.sqrt(self.noise_var),
            values=spread.values,
            revealed=None if self.groups is None else self._reveal(spread),
            notes=notes,
        )

    def _reveal(self, spread: Spread) -> Revealed:
        """Fix the noiseless part of each group at that of its first candidate."""
        assert self.groups is not None  # guarded by the caller
        _, first = np.unique(self.groups, return_index=True)
        coordinates = spread.coordinates[first]
        outside = coordinates - coordinates @ self.rotation @ self.rotation.T
        bases = np.stack([spread.center + spread.expand(row) for row in outside])
        return Revealed(groups=self.groups, bases=bases)


def axis_shape(noise_var: Vector) -> Shape:
    """Return noise along the principal directions themselves."""
    keep = noise_var > 0
    return Shape(rotation=np.eye(len(noise_var))[:, keep], noise_var=noise_var[keep])


def least_scale(shape: Shape, spread: Spread) -> float:
    """Return the scale below which a shape is as good as no noise.

    Some budgets are met by any noise along the directions of the spread, however little (outputs
    that are nearly atoms). Without an end a search would follow them down to zero.
    """
    return math.sqrt(LEAST_NOISE * float(spread.eigenvalues.sum()) / shape.total_variance)


class Probe:
    """Simulated draws of a view, kept so that any scale of the noise can be tried on them."""

    def __init__(self, view: View, rng: np.random.Generator, *, n_draws: int | None = None) -> None:
        m, points = view.n_subsets, view.points
        n = n_draws or int(np.clip(PROBE_ELEMENTS // m, 512, 16384))
        self._view, self.n_draws = view, n
        order = rng.permutation(n)
        cumulative = np.cumsum(np.exp(view.log_prior))
        strata = (order + rng.random(n)) / n * cumulative[-1]
        chosen = np.minimum(np.searchsorted(cumulative, strata, side="right"), m - 1)
        noise = _stratified_normals(rng, n, points.shape[1])
        signal, cross = log_ratios(view, chosen), noise @ points.T
        cross -= np.einsum("iq,iq->i", noise, points[chosen])[:, None]  # near ones stay apart
        # single precision is enough for a proposal unless the exponents are huge
        dtype = np.float32 if float(np.abs(signal).max(initial=0.0)) < 1e4 else np.float64
        self._signal = signal.astype(dtype)
        self._cross = cross.astype(dtype)
        self._log_prior = view.log_prior.astype(dtype)[None, :]
        if view.groups is not None:
            apart = view.groups[chosen][:, None] != view.groups[None, :]
            self._log_prior = np.where(apart, -np.inf, self._log_prior).astype(dtype)

    def posterior(self, scale: float) -> npt.NDArray[Any]:
        """Return the posteriors when the noise is ``scale`` times larger."""
        p, total = self._likelihoods(scale)[1:]
        p /= total[:, None]
        return p

    def information(self, scale: float) -> tuple[float, float]:
        """Return the mean and the sample variance of the information gain."""
        log_p, p, total = self._likelihoods(scale)
        np.maximum(log_p, -80.0, out=log_p)  # where p is 0 the product must be 0, not NaN
        weighted = np.einsum("ij,ij->i", p, log_p, dtype=np.float64)
        gains = self._view.prior_entropy - np.log(total) + weighted / total
        return float(gains.mean()), float(gains.var(ddof=1))

    def tilt(self, scale: float, signs: SignBlocks) -> tuple[Vector, Vector]:
        """Return mean and variance of ``|2Q - 1|`` for each unit of ``signs``."""
        folded = signs.fold(self.posterior(scale))
        mean, variance = np.empty(signs.n_units), np.empty(signs.n_units)
        for units, block in signs:
            tilt = np.abs(folded @ block)
            mean[units] = tilt.mean(axis=0)
            variance[units] = tilt.var(axis=0)
        return mean, variance

    def _likelihoods(self, scale: float) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Vector]:
        dtype = self._signal.dtype if scale > TINY_SCALE else np.float64
        with np.errstate(over="ignore"):  # a candidate that far away is ruled out
            log_p = np.multiply(self._signal, 1 / scale**2, dtype=dtype)
        log_p += np.multiply(self._cross, 1 / scale, dtype=dtype)
        log_p += self._log_prior
        log_p -= log_p.max(axis=1, keepdims=True)
        p = np.exp(log_p)
        return log_p, p, p.sum(axis=1, dtype=np.float64)


class RiskProbe:
    """How far the success on any unit is above its cap, as a function of the scale."""

    def __init__(self, probe: Probe, pool: Candidates, caps: Vector, *, n_worst: int = 256) -> None:
        self._probe, self._pool, self._caps = probe, pool, caps
        self._all = SignBlocks(pool, np.float32, None)
        self._few: tuple[SignBlocks, Vector] | None = None
        self._n_worst = n_worst

    def focus(self, scale: float) -> None:
        """Keep only the units that are closest to their caps at this scale."""
        if self._pool.n_units <= 2 * self._n_worst:
            return
        success = 0.5 + 0.5 * self._probe.tilt(scale, self._all)[0]
        worst = np.argsort(self._caps - success)[: self._n_worst].astype(np.int64)
        self._few = (SignBlocks(self._pool, np.float32, np.sort(worst)), self._caps[np.sort(worst)])

    def excess(self, scale: float, *, everyone: bool = False) -> tuple[float, float]:
        """Return the largest excess over a cap, and the variance of success there."""
        signs, caps = (self._all, self._caps) if everyone or not self._few else self._few
        mean, variance = self._probe.tilt(scale, signs)
        over = 0.5 + 0.5 * mean - caps
        worst = int(np.argmax(over))
        return float(over[worst]), float(variance[worst]) / 4


def _stratified_normals(rng: np.random.Generator, n: int, dimension: int) -> Matrix:
    """Return standard normals; the first few coordinates are stratified to reduce variance."""
    from scipy.special import ndtri  # slow to import, not always needed

    noise = rng.standard_normal((n, dimension))
    for column in range(min(dimension, 8)):
        noise[:, column] = ndtri((rng.permutation(n) + rng.random(n)) / n)
    return noise


def smallest_scale(
    excess: Callable[[float], float], *, start: float = 1.0, tolerance: float = 1e-3
) -> float:
    """Return a scale at which a decreasing ``excess`` is not positive, close to the smallest.

    The answer is the upper end of the bracket: never too little noise.
    """
    log_high = math.log(start)
    step = FIRST_STEP
    while excess(math.exp(log_high)) > 0:
        log_high += step
        step *= 3
        if log_high > LARGEST_LOG_SCALE:
            raise BudgetError(
                "budget must be reachable: no amount of noise meets it for this pool. "
                "Use a larger budget or more subsets."
            )
    step = FIRST_STEP
    log_low = log_high - step
    while excess(math.exp(log_low)) <= 0:
        log_high, log_low = log_low, log_low - step
        step *= 3
        if log_low < -LARGEST_LOG_SCALE:
            return math.exp(log_high)
    while log_high - log_low > tolerance:
        middle = 0.5 * (log_low + log_high)
        if excess(math.exp(middle)) > 0:
            log_low = middle
        else:
            log_high = middle
    return math.exp(log_high)


Watch: TypeAlias = Callable[[str, int, float], None]

MAX_ATOM_DIRECTIONS = 64
MAX_ATOM_DEPTH = 4
FLAT = 1e-12  # within-group variance below this share of the largest is rounding error
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
    watch: Watch | None = None,
) -> list[Shape]:
    """Return promising shapes with their scale set to the budget, least total noise first.

    The Gaussian answer (``waterfill``) is always among them. Scales come from simulated draws
    that were also used to choose the shape: certify before use. ``watch`` is called with the
    name of the start, the number of the step and the total noise of every iterate.
    """
    gaussian = axis_shape(waterfill(spread.eigenvalues, mi_nats=mi_nats))
    found = [gaussian]
    partitions = _partitions(spread, log_p, mi_nats)
    gap = _relative_gap(gaussian, spread, log_p, mi_nats, rng)
    if not partitions and gap < SMALL_GAP:
        return found
    n_steps = 24 if spread.rank <= 32 else 6

    def improve(start: Shape, name: str, steps: int) -> Shape:
        told = None if watch is None else partial(watch, name)
        return refine(start, spread, log_p, mi_nats=mi_nats, rng=rng, n_steps=steps, watch=told)

    found.append(improve(gaussian, "waterfill", n_steps))
    groups: Integers | None = None
    for depth in range(1, MAX_ATOM_DEPTH + 1):
        starts = list(_group_starts(groups, partitions, spread, log_p, mi_nats))
        if not starts:
            break
        name = f"{depth} released exactly"
        tried = [improve(start, f"{name}, try {i}", 3) for i, start in enumerate(starts, 1)]
        best = min(tried, key=lambda shape: shape.total_variance)
        if best.total_variance >= min(shape.total_variance for shape in found):
            break
        found.append(improve(best, name, n_steps))
        groups = best.groups
    return sorted(found, key=lambda shape: shape.total_variance)


def refine(
    start: Shape,
    spread: Spread,
    log_p: Vector,
    *,
    mi_nats: float,
    rng: np.random.Generator,
    n_steps: int,
    watch: Callable[[int, float], None] | None = None,
) -> Shape:
    """Run the damped fixed point from one start; return its best iterate at the budget.

    Where the budget allows any scale, however small, that is the least that is worth a name.
    """
    seed = int(rng.integers(2**63))
    shape, best, stalled = start, None, 0
    for step in range(n_steps + 1):
        probe = Probe(shape.view(spread, log_p), np.random.default_rng(seed), n_draws=N_DRAWS)
        scale = smallest_scale(lambda c, p=probe: p.information(c)[0] - mi_nats)  # type: ignore[misc]
        least = least_scale(shape, spread)
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
    shape: Shape, probe: Probe, scale: float, spread: Spread, *, damping: float
) -> Shape:
    """Move ``log Σ_B`` a part of the way towards ``log E^{1/2}``."""
    coordinates = spread.coordinates @ shape.rotation
    error = mean_square_error(probe.posterior(scale).astype(np.float64), coordinates)
    values, vectors = np.linalg.eigh(error)
    values = np.maximum(values, FLOOR**2 * max(float(values.max()), 1e-300))
    target = (vectors * (0.5 * np.log(values))) @ vectors.T
    current = np.log(shape.noise_var)
    target += np.eye(len(current)) * (current.mean() - np.trace(target) / len(current))
    moved = (1 - damping) * np.diag(current) + damping * target
    log_var, turn = np.linalg.eigh(moved)
    log_var = np.maximum(log_var, log_var.max() + 2 * math.log(FLOOR))
    return Shape(rotation=shape.rotation @ turn, noise_var=np.exp(log_var), groups=shape.groups)


def mean_square_error(posterior: Matrix, coordinates: Matrix) -> Matrix:
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
    found = exact_information(view, n_draws=n_draws, gamma=0.1, rng=rng)
    return (mi_nats - found.value) / mi_nats


def _partitions(spread: Spread, log_p: Vector, mi_nats: float) -> list[Integers]:
    """Group the candidates by directions with few distinct values, within the budget."""
    found: dict[bytes, Integers] = {}
    for direction in _atom_directions(spread):
        groups = _distinct(spread.coordinates @ direction)
        if groups.max() > 0 and _group_entropy(groups, log_p) < mi_nats:
            found.setdefault(groups.tobytes(), groups)
    return list(found.values())


def _atom_directions(spread: Spread) -> Iterator[Vector]:
    if spread.rank <= MAX_ATOM_DIRECTIONS:
        yield from np.eye(spread.rank)
    if spread.basis is not None and len(spread.basis) <= MAX_ATOM_DIRECTIONS:
        for row in spread.basis:
            norm = float(np.linalg.norm(row))
            if norm > 1e-9:
                yield row / norm


def _distinct(values: Vector) -> Integers:
    """Group candidates by value; values closer than a billionth of the range are one."""
    order = np.argsort(values, kind="stable")
    gaps = np.diff(values[order]) > 1e-9 * max(float(np.ptp(values)), 1e-300)
    groups = np.empty(len(values), dtype=np.int64)
    groups[order] = np.concatenate([[0], np.cumsum(gaps)])
    return groups


def _group_entropy(groups: Integers, log_p: Vector) -> float:
    mass = np.bincount(groups, np.exp(log_p))
    return float(entropy(np.log(mass[mass > 0])))


def _group_starts(
    groups: Integers | None,
    partitions: list[Integers],
    spread: Spread,
    log_p: Vector,
    mi_nats: float,
) -> Iterator[Shape]:
    """Yield shapes that reveal one more partition and water-fill what is left of the budget."""
    weights = np.exp(log_p)
    for partition in partitions:
        merged = partition if groups is None else groups * (int(partition.max()) + 1) + partition
        _, merged = np.unique(merged, return_inverse=True)
        merged = merged.astype(np.int64)
        left = mi_nats - _group_entropy(merged, log_p)
        if left <= 1e-6 or (groups is not None and merged.max() == groups.max()):
            continue
        mass = np.bincount(merged, weights)
        sums = np.zeros((len(mass), spread.rank))
        np.add.at(sums, merged, weights[:, None] * spread.coordinates)
        inside = spread.coordinates - (sums / np.maximum(mass, 1e-300)[:, None])[merged]
        values, vectors = np.linalg.eigh((inside.T * weights) @ inside)
        keep = values > FLAT * max(float(spread.eigenvalues.max()), 1e-300)
        if keep.any():
            noise_var = waterfill(values[keep], mi_nats=left)
            yield Shape(rotation=vectors[:, keep], noise_var=noise_var, groups=merged)


MI_LEVELS = (0.1, 1.5)
POWERS = (1.0, 0.8, 0.6)  # flatter versions of the hiding ellipsoid do better for large caps
SHIFT_BLOCK = 4096


def risk_shapes(
    spread: Spread, pool: Candidates, log_p: Vector, caps: Vector, *, rng: np.random.Generator
) -> list[Shape]:
    """Return shapes scaled to the caps, least total noise first; certify before use."""
    shapes = [axis_shape(waterfill(spread.eigenvalues, mi_nats=level)) for level in MI_LEVELS]
    hiding = _hiding_shape(spread, pool, log_p)
    shapes += [
        Shape(rotation=hiding.rotation, noise_var=hiding.noise_var**power) for power in POWERS
    ]
    scaled = []
    for shape in shapes:
        probe = RiskProbe(Probe(shape.view(spread, log_p), rng, n_draws=1024), pool, caps)
        probe.focus(1.0)
        scale = smallest_scale(lambda c, p=probe: p.excess(c)[0], tolerance=0.02)  # type: ignore[misc]
        scaled.append(shape.scaled(max(scale, least_scale(shape, spread))))
    return sorted(scaled, key=lambda shape: shape.total_variance)


def unit_shifts(spread: Spread, pool: Candidates, log_p: Vector) -> Matrix:
    """Return how far each unit's membership moves the mean output, in spread coordinates."""
    weights = np.exp(log_p)
    weighted = weights[:, None] * spread.coordinates
    shifts = np.empty((pool.n_units, spread.rank))
    for start in range(0, pool.n_units, SHIFT_BLOCK):
        stop = min(start + SHIFT_BLOCK, pool.n_units)
        signs = pool.signs(start, stop, dtype=np.float64)
        tilt = weights @ signs
        spread_of_sign = np.maximum(1 - tilt**2, 1e-12)
        covariance = signs.T @ weighted - np.outer(tilt, weights @ spread.coordinates)
        shifts[start:stop] = covariance / spread_of_sign[:, None]
    return shifts


def _hiding_shape(spread: Spread, pool: Candidates, log_p: Vector, n_steps: int = 30) -> Shape:
    """Return the least-trace ellipsoid that covers every unit's shift, by multiplicative weights.

    With ``M = (Σ_i ν_i φ_i φ_iᵀ)^{1/2}`` and ``ν`` raised where ``φ_iᵀ M^{-1} φ_i`` is large,
    ``M`` tends to the least-trace matrix with ``φ_iᵀ M^{-1} φ_i <= 1`` for all units.
    """
    shifts = unit_shifts(spread, pool, log_p)
    importance = np.full(len(shifts), 1.0 / len(shifts))
    typical = float(np.square(shifts).sum(axis=1).mean())
    if typical <= 1e-18 * float(spread.eigenvalues.sum()):  # nobody's membership shifts the mean
        return Shape(rotation=np.eye(spread.rank), noise_var=spread.eigenvalues)
    ridge = 1e-9 * typical
    values, vectors = np.ones(spread.rank), np.eye(spread.rank)
    for _ in range(n_steps):
        second = (shifts.T * importance) @ shifts + ridge * np.eye(spread.rank)
        values, vectors = np.linalg.eigh(second)
        values = np.sqrt(np.maximum(values, ridge))
        lengths = np.square(shifts @ vectors) @ (1 / values)
        importance *= np.sqrt(lengths / lengths.mean())
        importance /= importance.sum()
    return Shape(rotation=vectors, noise_var=values)
