"""Targets of attacks: simulated releases, and a model of their noise.

An auditor plays the release many times with indices that they chose themselves. The secret of
the real release is not in a bundle and takes no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np

from pacprivacy._checks import (
    ArrayLike,
    Integers,
    Mask,
    Matrix,
    Vector,
    as_outputs,
    check_log_belief,
    distances_between_rows,
    freeze,
)
from pacprivacy.errors import AuditError
from pacprivacy.release import Bundle
from pacprivacy.sample import Pool

Blocks: TypeAlias = Iterator[tuple[slice, Matrix]]
Draw = Callable[[Integers, np.random.Generator], Matrix]
ReleaseProcedure = Callable[[int, np.random.Generator], ArrayLike]

UNLIKELY = 1e-6
EDGE = 1e-9  # of a share: a unit that is in all subsets, or in none
BLOCK_CELLS = 1 << 21
UNIT_BLOCK = 2048
RELEASES_PER_DIRECTION = 10  # below this a full covariance is noise itself
SMALLEST_SHARE = 1e-15
SMALLEST_STD = 1e-9
ROUNDING = 1e-4  # directions that move less are left out of the noise law as rounding errors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Releases:
    """Simulated releases: the index behind each, its values, its revealed group; curator-only."""

    indices: Integers
    values: Matrix
    groups: Integers | None

    def __len__(self) -> int:
        return len(self.indices)

    def part(self, chosen: slice | Integers) -> Releases:
        groups = None if self.groups is None else self.groups[chosen]
        return Releases(indices=self.indices[chosen], values=self.values[chosen], groups=groups)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target:
    """A release procedure under attack; curator-only.

    ``centers``, shape (m, q), are the values of the candidates without noise, ``log_p`` the law
    of the index; ``draw(indices, rng)`` returns one release per index. ``noise_std`` is that of
    simulated Gaussian noise; where it is None the attacker learns it. ``declared_std`` is the
    procedure's own statement; no attack trusts it. The release shows the group of its candidate.
    """

    centers: Matrix
    pool: Pool
    log_p: Vector
    draw: Draw
    noise_std: Vector | None = None
    declared_std: Vector | None = None
    groups: Integers | None = None

    def __post_init__(self) -> None:
        freeze(self.centers)
        if len(self.centers) != self.pool.n_subsets:
            raise AuditError(
                f"outputs must have one row per subset of the pool, {self.pool.n_subsets}; got "
                f"{len(self.centers)}. Pass the pool that the outputs were computed on."
            )

    def __repr__(self) -> str:
        return f"Target(curator-only, {len(self.centers)} candidates)"

    @classmethod
    def of_bundle(cls, bundle: Bundle) -> Self:
        """Attack the noise law of a bundle: lattice points plus rounded Gaussian noise."""
        _check_points(bundle)
        points, step, units = bundle.points, bundle.grid_step, bundle.units_per_std

        def draw(indices: Integers, rng: np.random.Generator) -> Matrix:
            noise = np.rint(rng.standard_normal((len(indices), len(units))) * units)
            return (points[indices] + noise.astype(np.int64)) * step

        return cls(
            centers=points * step,
            pool=bundle.pool,
            log_p=check_log_belief(bundle.log_p, len(points)),
            draw=draw,
            noise_std=step * units,
            groups=bundle.groups,
        )

    @classmethod
    def of(
        cls,
        outputs: object,
        pool: Pool,
        release_fn: ReleaseProcedure,
        *,
        log_p: Vector | None = None,
        declared_std: ArrayLike | None = None,
    ) -> Self:
        """Attack an arbitrary procedure, trusting nothing that it says about its noise.

        ``outputs``, shape (m, d), are all that it would release for each candidate without noise;
        ``release_fn(index, rng)`` returns one released vector; ``declared_std`` multiplies its
        noise.
        """
        centers = as_outputs(outputs)

        def draw(indices: Integers, rng: np.random.Generator) -> Matrix:
            rows = [np.asarray(release_fn(int(k), rng), dtype=np.float64).ravel() for k in indices]
            if any(row.shape != centers.shape[1:] for row in rows):
                raise AuditError(
                    f"release_fn must return {centers.shape[1]} numbers, as the outputs have; "
                    f"got {next(r.size for r in rows if r.size != centers.shape[1])}. "
                    "Put everything that leaves into the outputs."
                )
            return np.array(rows).reshape(len(indices), centers.shape[1])

        std = None
        if declared_std is not None:
            std = np.broadcast_to(np.asarray(declared_std, np.float64), centers.shape[1:])
        return cls(
            centers=centers,
            pool=pool,
            log_p=check_log_belief(log_p, len(centers)),
            draw=draw,
            declared_std=std,
        )

    @property
    def simulated(self) -> bool:
        """Whether releases come from a stated law rather than from running a procedure."""
        return self.noise_std is not None

    def releases(self, n_releases: int, rng: np.random.Generator) -> Releases:
        """Draw independent releases."""
        weights = np.exp(self.log_p)
        indices = rng.choice(len(weights), size=n_releases, p=weights / weights.sum())
        return self._release(indices, rng)

    def _release(self, indices: Integers, rng: np.random.Generator) -> Releases:
        groups = None if self.groups is None else self.groups[indices]
        return Releases(indices=indices, values=self.draw(indices, rng), groups=groups)

    def members(self, units: Integers | slice) -> Mask:
        return self.pool.inside(units).view(np.bool_)

    def shares(self, units: Integers | slice) -> Vector:
        """Return the share of the subsets that contain each unit."""
        shares: Vector = self.members(units).mean(axis=0)
        return np.clip(shares, EDGE, 1 - EDGE)

    def odds(self, unit: int) -> tuple[float, float]:
        """Return the rate of *in* among trials of a unit, and the weight of success above 1/2."""
        members = self.members(np.array([unit]))[:, 0]
        share = float(members.mean())
        if not np.ptp(self.log_p) or not 0 < share < 1:
            return 0.5, 1.0
        inside = min(1.0, float(np.exp(self.log_p) @ members))
        weight_in, weight_out = inside / (2 * share), (1 - inside) / (2 * (1 - share))
        return weight_in / (weight_in + weight_out), weight_in + weight_out

    def trials_of(self, unit: int, trials: Releases, rng: np.random.Generator) -> Releases:
        """Return independent releases in which a unit is in as often as the game says."""
        members = self.members(np.array([unit]))[:, 0]
        chance, _ = self.odds(unit)
        inside = float(np.exp(self.log_p) @ members)
        if math.isclose(inside, chance, abs_tol=1e-12):
            return trials
        is_in, weights = rng.random(len(trials)) < chance, np.exp(self.log_p)
        indices = np.empty(len(trials), dtype=np.int64)
        for side in (True, False):
            law = weights * (members == side)
            chosen = is_in == side
            if chosen.any():
                indices[chosen] = rng.choice(len(law), size=chosen.sum(), p=law / law.sum())
        return self._release(indices, rng)


def _check_points(bundle: Bundle) -> None:
    """Refuse lattice points that are closer to each other than the outputs."""
    m = len(bundle.outputs)
    if bundle.iid_rule is not None or m != len(bundle.points):
        return
    weights = np.exp(bundle.log_p)
    likely = np.flatnonzero(weights >= UNLIKELY / m)  # the rest has no part in the noise law
    outputs, points = bundle.outputs[likely], bundle.points[likely]
    groups = np.zeros(len(likely)) if bundle.groups is None else bundle.groups[likely]
    lattice = (points - points[0]) * bundle.grid_step
    largest = max(
        float(apart[groups[rows, None] == groups].max())
        for rows, apart in distances_between_rows(outputs)
    )
    room = ROUNDING * largest + float(bundle.grid_step.sum())
    pairs = zip(distances_between_rows(outputs), distances_between_rows(lattice), strict=True)
    for (rows, apart), (_, steps) in pairs:
        together = groups[rows, None] == groups
        if not (together & (steps < apart - room)).any():
            continue
        raise AuditError(
            "points of the bundle must be as far apart as the outputs; some are closer. "
            "The noise law does not cover the whole output: do not rely on this certificate."
        )


# --- the attacker's model of the noise ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseModel:
    """The attacker's model of the noise: Gaussian, white after ``whiten``; curator-only."""

    shift: Vector
    whiten: Matrix

    def __post_init__(self) -> None:
        freeze(self.shift)
        freeze(self.whiten)

    def distances(self, released: Matrix, centers: Matrix) -> Matrix:
        """Return squared distances in units of the noise, shape (N, m)."""
        from scipy.spatial.distance import cdist  # slow to import, not always needed

        if not self.whiten.shape[1]:
            return np.zeros((len(released), len(centers)))
        white = (released - self.shift) @ self.whiten
        squared: Matrix = cdist(white, centers @ self.whiten, "sqeuclidean")
        return squared


def learn_noise_model(target: Target, shadow: Releases) -> NoiseModel:
    """Return the noise law of a simulation, or learn it from releases with known indices."""
    if target.noise_std is not None:
        q = len(target.noise_std)
        return NoiseModel(shift=np.zeros(q), whiten=np.diag(1.0 / target.noise_std))
    residuals = shadow.values - target.centers[shadow.indices]
    shift = residuals.mean(axis=0)
    residuals = residuals - shift
    spread = np.ptp(target.centers, axis=0)
    smallest = (SMALLEST_STD * max(float(spread.max(initial=0.0)), 1e-300)) ** 2
    variances, axes = noise_model_axes(residuals)
    variances = np.maximum(variances, SMALLEST_SHARE * variances.max(initial=0.0) + smallest)
    return NoiseModel(shift=shift, whiten=axes / np.sqrt(variances))


def noise_model_axes(centered: Matrix) -> tuple[Vector, Matrix]:
    """Return variances and their axes: principal axes if there are enough draws."""
    n, q = centered.shape
    if n < RELEASES_PER_DIRECTION * q:
        return np.square(centered).mean(axis=0), np.eye(q)
    variances, axes = np.linalg.eigh(centered.T @ centered / n)
    return variances, axes


def noise_model_blocks(target: Target, model: NoiseModel, releases: Releases) -> Blocks:
    """Yield blocks of squared distances to the candidates, infinite for other groups."""
    centers = target.centers
    block = max(1, BLOCK_CELLS // max(len(centers), UNIT_BLOCK))
    for start in range(0, len(releases), block):
        chosen = slice(start, min(start + block, len(releases)))
        part = releases.part(chosen)
        distances = model.distances(part.values, centers)
        if target.groups is not None and part.groups is not None:
            distances[part.groups[:, None] != target.groups] = np.inf
        yield chosen, distances


def noise_model_posteriors(target: Target, model: NoiseModel, releases: Releases) -> Blocks:
    """Yield the posterior over the candidates for blocks of releases; rows sum to one."""
    for chosen, distances in noise_model_blocks(target, model, releases):
        yield chosen, noise_model_weights(target.log_p - 0.5 * distances)


def noise_model_weights(logs: Matrix) -> Matrix:
    top = logs.max(axis=1, keepdims=True)
    weights: Matrix = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    empty = total[:, 0] == 0.0  # nothing is consistent: back to a blind guess
    weights[empty], total[empty] = 1.0, weights.shape[1]
    weights /= total
    return weights


def noise_model_units(target: Target, posterior: Matrix, units: Integers | slice) -> Matrix:
    members = target.members(units).astype(np.float64)
    inside: Matrix = posterior @ members
    return inside


def noise_model_unit_blocks(n_units: int) -> Iterator[slice]:
    for start in range(0, n_units, UNIT_BLOCK):
        yield slice(start, min(start + UNIT_BLOCK, n_units))
