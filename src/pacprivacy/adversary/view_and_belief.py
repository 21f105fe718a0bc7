"""The attacker's view: candidate positions in units of the noise; beliefs.

In coordinates where the noise has unit variance the attacker's posterior after seeing
``z = w_J + n`` is ``P_k(z) ∝ p_k exp(w_k·z - |w_k|²/2)`` (math (3)). A part of the output that is
released without noise is an exact observation: only candidates of the same *group* remain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_log_belief, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.errors import PoolError
from pacprivacy.sample import Pool
from pacprivacy.theory import entropy

MASK_CELLS = 1 << 21  # of a block of masks, so that it fits in the cache
EVERYONE = slice(None)  # in the place of a list of units
PRODUCT_CELLS = 1 << 23  # of one product

LARGE_SQUARE = 1e8  # squared positions beyond this lose digits that matter in |a|² - 2ab + |b|²
FEW_DIRECTIONS = 32  # up to here exact differences cost little
UNEVEN = 1e4  # squared positions that differ by this factor from the typical one are outliers

BLOCK_ELEMENTS = 1 << 19  # posterior entries at a time
FULL_PRECISION = 2.0**-53
NOISE_TAIL = 9.0  # the norm of q-dimensional noise is above sqrt(q) + 9 once in 10^17 draws
LEAST_LOG_PRIOR = -745.0  # a log belief below this is the probability 0 in double precision

Units: TypeAlias = npt.NDArray[np.int64]
Groups: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[Any]  # of single or of double precision
Step: TypeAlias = tuple[slice, Units | slice]  # places in a list of units, and those that are there


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Candidates as the attacker compares them; curator-only.

    ``points``, shape (m, q), are centred positions in units of the noise, ``q <= m``; ``log_prior``
    the normalised log belief. The release shows the group of its candidate.
    ``slack`` is the total variation between the sampled noise and the Gaussian (claim L-2) plus the
    rounding error. ``gaps`` are squared distances, where an expanded square would lose the small
    ones.
    """

    points: Matrix
    log_prior: Vector
    groups: Groups | None = None
    slack: float = 0.0
    gaps: Matrix | None = None

    def __post_init__(self) -> None:
        for array in (self.points, self.log_prior, self.groups, self.gaps):
            if array is not None:
                freeze(array)

    @property
    def n_subsets(self) -> int:
        return len(self.log_prior)

    @property
    def prior_entropy(self) -> float:
        return float(entropy(self.log_prior))

    def scaled(self, noise_scale: float) -> View:
        """Return the view when every noise standard deviation is ``noise_scale`` times larger."""
        gaps = None if self.gaps is None else self.gaps / noise_scale**2
        return replace(self, points=self.points / noise_scale, gaps=gaps)


def view_log_ratios(view: View, rows: Groups) -> Matrix:
    """Return the noiseless log likelihood ratios ``-|w_j - w_k|²/2`` of all ``k`` to ``rows``."""
    if view.gaps is not None:
        return -0.5 * view.gaps[rows]
    points = view.points
    halves = 0.5 * np.einsum("kq,kq->k", points, points)
    uneven = float(halves.max(initial=0.0)) > UNEVEN * float(np.median(halves))
    if points.shape[1] <= FEW_DIRECTIONS or uneven:
        return -0.5 * _squared_distances(points[rows], points)
    ratios: Matrix = points[rows] @ points.T
    ratios -= halves
    ratios -= halves[rows][:, None]
    return np.minimum(ratios, 0.0, out=ratios)


def _squared_distances(points: Matrix, others: Matrix) -> Matrix:
    if points.shape[1] > FEW_DIRECTIONS // 4:
        from scipy.spatial.distance import cdist  # slow to import, not always needed

        squares: Matrix = cdist(points, others, "sqeuclidean")
        return squares
    squares = np.zeros((len(points), len(others)))
    for here, there in zip(points.T, others.T, strict=True):
        squares += np.square(np.subtract.outer(here, there))
    return squares


def _are_far(points: Matrix) -> bool:
    return float(np.einsum("kq,kq->k", points, points).max(initial=0.0)) > LARGE_SQUARE


def _reduce_points(points: Matrix, log_prior: Vector) -> Matrix:
    """Centre the points and rotate them into at most ``m`` coordinates: no ratio changes."""
    weights = np.exp(log_prior)
    n_subsets, n_directions = points.shape
    centred: Matrix = points - weights @ points
    if n_directions <= n_subsets or _are_far(centred):
        return centred
    eigenvalues, vectors = np.linalg.eigh(centred @ centred.T)
    rotated: Matrix = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return rotated


def make_view(
    points: Matrix,
    log_belief: Vector | None = None,
    *,
    groups: Groups | None = None,
    slack: float = 0.0,
) -> View:
    """Build a view from whitened points; candidates that are already ruled out stay listed."""
    log_prior = check_log_belief(log_belief, len(points))
    reduced = _reduce_points(points, log_prior)
    gaps = _squared_distances(reduced, reduced) if _are_far(reduced) else None
    view = View(points=reduced, log_prior=log_prior, groups=groups, slack=slack, gaps=gaps)
    return replace(view, slack=slack + rounding_slack(view, points))


def rounding_slack(view: View, whitened: Matrix) -> float:
    """Return the total variation that double precision may cause (claim A-2)."""
    q, n_raw = view.points.shape[1], whitened.shape[1]
    squares = np.einsum("kq,kq->k", view.points, view.points)
    radius = math.sqrt(float(squares.max(initial=0.0)))
    raw = math.sqrt(float(np.einsum("kq,kq->k", whitened, whitened).max(initial=0.0)))
    moved = 2 * FULL_PRECISION * (raw + radius)
    if n_raw > q:  # turned by eigenvectors of the matrix of products
        moved += math.sqrt((n_raw + 8 * q) * FULL_PRECISION * float(squares.sum()))
    noise = math.sqrt(q) + NOISE_TAIL
    far = view.gaps is not None
    added = noise * (2 * noise + radius) if far else radius * (1.5 * radius + noise)
    live = view.log_prior[view.log_prior > LEAST_LOG_PRIOR]
    added += float(np.abs(live).max(initial=0.0)) + 1.0
    return moved + 2 * math.expm1(min(2 * (q + 6) * FULL_PRECISION * added, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    indices: npt.NDArray[np.int64]
    noise: Matrix

    def __len__(self) -> int:
        return len(self.indices)


def view_generator(rng: np.random.Generator | int | None, stream: str) -> np.random.Generator:
    """Return a generator: the given one, that of a seed, or that of a named stream."""
    if isinstance(rng, np.random.Generator):
        return rng
    return public_generator(coerce_seed(rng), stream)


def draw_views(view: View, n_draws: int, rng: np.random.Generator) -> Draws:
    """Draw candidates independently from the belief, and noise for each."""
    cumulative = np.cumsum(np.exp(view.log_prior))
    uniforms = rng.random(n_draws) * cumulative[-1]
    indices = np.searchsorted(cumulative, uniforms, side="right").astype(np.int64)
    return Draws(
        indices=np.minimum(indices, view.n_subsets - 1),
        noise=rng.standard_normal((n_draws, view.points.shape[1])),
    )


def view_posterior(view: View, draws: Draws) -> Matrix:
    """Return the posterior ``P_k(z)`` of math (3) on each draw, shape (N, m)."""
    p, total = _likelihoods(view, draws)[1:]
    p /= total[:, None]
    return p


def view_entropy(view: View, draws: Draws) -> Vector:
    """Return the entropy of the attacker's posterior on each draw, in nats, shape (N,)."""
    log_p, p, total = _likelihoods(view, draws)
    np.maximum(log_p, -800.0, out=log_p)  # where p is 0 the product below must be 0, not NaN
    entropies: Vector = np.log(total) - np.einsum("ij,ij->i", p, log_p) / total
    return np.maximum(entropies, 0.0)


def _likelihoods(view: View, draws: Draws) -> tuple[Matrix, Matrix, Vector]:
    """Return log weights with maximum 0, the weights, and their sums."""
    points = view.points
    if view.gaps is None:
        log_p: Matrix = (points[draws.indices] + draws.noise) @ points.T
        log_p += view.log_prior - 0.5 * np.einsum("kq,kq->k", points, points)
    else:
        log_p = view_log_ratios(view, draws.indices)
        log_p += draws.noise @ points.T
        log_p += view.log_prior
    if view.groups is not None:
        log_p[view.groups[draws.indices][:, None] != view.groups[None, :]] = -np.inf
    log_p -= log_p.max(axis=1, keepdims=True)
    p = np.exp(log_p)
    return log_p, p, p.sum(axis=1)


def draw_view_blocks(
    view: View, n_draws: int, rng: np.random.Generator, *, block_elements: int | None = None
) -> Iterator[Draws]:
    """Yield ``n_draws`` fresh draws, in blocks that fit in the cache."""
    block = max(16, min(4096, (block_elements or BLOCK_ELEMENTS) // view.n_subsets))
    for start in range(0, n_draws, block):
        yield draw_views(view, min(block, n_draws - start), rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Log probabilities over the candidates; a function of the pool and public data."""

    log_p: Vector

    def __post_init__(self) -> None:
        freeze(self.log_p)

    @classmethod
    def uniform(cls, n_subsets: int) -> Belief:
        return cls(log_p=check_log_belief(None, n_subsets))

    def updated(self, log_likelihood: Vector) -> Belief:
        """Return the belief after an observation with this log likelihood per candidate."""
        return Belief(log_p=check_log_belief(self.log_p + log_likelihood, len(self.log_p)))

    @property
    def learned_nats(self) -> float:
        """``KL(belief || uniform)``: nats learned about the secret so far."""
        return max(0.0, math.log(len(self.log_p)) - float(entropy(self.log_p)))

    def success_per_unit(self, pool: Pool) -> Vector:
        """Return the attacker's success on each unit, had both cases been equally likely."""
        check_view_size(len(self.log_p), pool)
        tilts = ViewTilts(pool)
        if not np.ptp(self.log_p):
            return np.broadcast_to(0.5, pool.n_units)
        return np.minimum(0.5 + 0.5 * tilts.sizes(np.exp(self.log_p)[None, :]), 1.0)


class ViewTilts:
    """Turns posteriors into ``a`` for any units, by one product with their centred masks."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.n_units, self.n_subsets = pool.n_units, pool.n_subsets
        m = self.n_subsets
        self._parts = m // pool.folds if pool.folds > 1 else 0
        self.rows = m - self._parts
        counts = pool.counts()
        share = (counts[:1] if self._parts else counts) / m  # a fold has one of all subsets
        if not ((share > 0) & (share < 1)).all():
            raise PoolError(
                "pool must have every unit in some subsets and out of others; one is in all or "
                "in none, so there is nothing to guess. Use Balanced, or more subsets."
            )
        scale, self._halves = 0.5 / (share * (1 - share)), bool((share == 0.5).all())
        numbers = (share, scale, 0.5 / np.minimum(share, 1 - share))  # the last: the largest |a|
        self.share, self.scale, self.most = (np.broadcast_to(x, self.n_units) for x in numbers)
        self.step = max(8, MASK_CELLS // m // 8 * 8)

    def fold(self, weights: Matrix) -> Matrix:
        """Bring posteriors of shape (N, m) to the rows that the masks have."""
        if not self._parts:
            return weights
        free = weights[:, : self.rows].reshape(len(weights), -1, self._parts)
        return (free - weights[:, None, self.rows :]).reshape(len(weights), self.rows)

    def masks(self, units: Units | slice, dtype: npt.DTypeLike, *, whole: bool = False) -> Floats:
        """Return centred and scaled masks of these units, shape (rows, n_listed), or all ``m``."""
        rows = None if whole else self.rows
        inside = self._pool.inside(units, n_subsets=rows)
        if self._halves:  # every entry is 1 or -1
            return (2 * inside.view(np.int8) - 1).astype(dtype)
        masks = inside.astype(dtype)
        masks -= self.share[units].astype(dtype)
        masks *= self.scale[units].astype(dtype)
        return masks

    def blocks(
        self, units: Units | slice, dtype: npt.DTypeLike, *, whole: bool = False
    ) -> Iterator[tuple[slice, Floats]]:
        """Yield places in ``units``, in ascending order, and their masks, in blocks."""
        for place, chosen in self._steps(units):
            yield place, self.masks(chosen, dtype, whole=whole)

    def _steps(self, units: Units | slice, most: int = MASK_CELLS) -> Iterator[Step]:
        """Yield positions in ``units`` and the units there; one slice for all units."""
        size = self.n_units if isinstance(units, slice) else len(units)
        step = max(8, min(self.step, most // 8 * 8))
        for start in range(0, size, step):
            place = slice(start, min(start + step, size))
            yield place, place if isinstance(units, slice) else units[place]

    def products(self, folded: Floats, units: Units | slice) -> Iterator[tuple[slice, Floats]]:
        """Yield ascending positions in ``units``, and their ``a`` for every row."""
        for place, chosen in self._steps(units, PRODUCT_CELLS // max(1, len(folded))):
            yield place, folded @ self.masks(chosen, folded.dtype)

    def sizes(self, weights: Matrix) -> Vector:
        """Return the sum of ``|a|`` over the rows of ``weights``, for every unit."""
        folded, sums = self.fold(weights), np.zeros(self.n_units)
        for place, a in self.products(folded, EVERYONE):
            sums[place] += np.abs(a, out=a).sum(axis=0, dtype=np.float64)
        return sums

    def shifts(self, points: Matrix, log_prior: Vector) -> Matrix:
        """Return the shift of the mean of points by each unit's membership, (n_units, q)."""
        weights = np.exp(log_prior)
        weighted = weights[:, None] * (points - weights @ points)
        size = max(float(np.abs(weighted).max(initial=0.0)), 1e-300)
        folded = self.fold(weighted.T / size).astype(np.float32)
        moved: Matrix = np.empty((self.n_units, points.shape[1]))
        for place, part in self.products(folded, EVERYONE):
            moved[place] = part.T.astype(np.float64) * size
        return moved

    def weight(self, before: Vector, units: Units | slice) -> Vector:
        """Return ``Σ p_k |mask_k|`` for units with this ``a`` before the release; 1 if it is 0."""
        share, scale = self.share[units], self.scale[units]
        inside = share + before / scale
        weight: Vector = (inside * (1 - share) + (1 - inside) * share) * scale
        return weight

    def before(self, log_prior: Vector, units: Units | slice) -> Vector:
        """Return ``a`` before the release; zero under a uniform belief."""
        size = self.n_units if isinstance(units, slice) else len(units)
        if not np.ptp(log_prior):
            return np.broadcast_to(0.0, size)
        weights, before = self.fold(np.exp(log_prior)[None, :]), np.empty(size)
        for place, masks in self.blocks(units, np.float64):
            before[place] = (weights @ masks)[0]
        return before


def unit_beliefs_of_view(
    pool: Pool, log_prior: Vector, units: Units | slice
) -> tuple[Vector, Vector]:
    """Return the share of the candidates that hold each unit, and the belief that it was used."""
    tilts = ViewTilts(pool)
    share = tilts.share[units]
    inside = share + tilts.before(log_prior, units) / tilts.scale[units]
    return share, np.clip(inside, 0.0, 1.0)


def check_view_size(n_outputs: int, pool: Pool) -> None:
    if pool.n_subsets != n_outputs:
        raise PoolError(
            f"pool must have one subset per output; got {pool.n_subsets} subsets for "
            f"{n_outputs} outputs. Pass the pool the outputs were computed on."
        )
