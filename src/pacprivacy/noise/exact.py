"""Least Gaussian noise whose *true* mutual information is at most a budget.

Stationarity of the total noise under a true-information budget says ``Σ_B ∝ E^{1/2}``, with
``E`` the attacker's mean-square error matrix (math §5). The problem is not convex, so the
iteration is damped, started from several points (directions with few distinct values may be
released exactly), and only what the exact adversary certifies on fresh draws is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary.information import information_of_view
from pacprivacy.noise.closed_form import waterfill
from pacprivacy.noise.plan import Integers
from pacprivacy.noise.probe import Probe, smallest_scale
from pacprivacy.noise.shape import Shape, axis_shape, least_scale
from pacprivacy.noise.spread import Spread
from pacprivacy.theory.information import entropy

__all__ = ["exact_shapes", "refine"]

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
    found = information_of_view(view, n_draws=n_draws, gamma=0.1, rng=rng)
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
