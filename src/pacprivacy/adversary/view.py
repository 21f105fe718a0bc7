"""What the optimal attacker compares: every candidate's position in units of the noise.

In coordinates where the noise has unit variance the attacker's posterior after seeing
``z = w_J + n`` is ``P_k(z) ∝ p_k exp(w_k·z - |w_k|²/2)`` (math (3)). A part of the output that is
released without noise is an exact observation: only candidates of the same *group* remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_log_belief, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.theory import entropy

LARGE_SQUARE = 1e8  # squared positions beyond this lose digits that matter in |a|² - 2ab + |b|²
FEW_DIRECTIONS = 32  # up to here exact differences cost little
UNEVEN = 1e4  # squared positions that differ by this factor from the typical one are outliers

BLOCK_ELEMENTS = 1 << 19  # posterior entries at a time
LEAST_LOG = -80.0  # of a weight in single precision, the largest being 0

Groups = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Candidates as the attacker sees them; curator-only.

    Parameters
    ----------
    points : array of shape (m, q)
        Positions in units of the noise, centred; ``q`` is at most ``m``.
    log_prior : array of shape (m,)
        Normalised log belief before the release.
    groups : integer array of shape (m,) or None
        Candidates of different groups are told apart for certain.
    slack : float
        Total-variation distance between the sampled (integer) noise and the Gaussian (claim L-2).
    gaps : array of shape (m, m) or None
        Squared distances between the points, kept only where some are so far apart that an
        expanded square would lose the distances between the near ones.
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
        """Number of candidates."""
        return len(self.log_prior)

    @property
    def prior_entropy(self) -> float:
        """Entropy of the belief before the release, in nats."""
        return float(entropy(self.log_prior))

    def scaled(self, noise_scale: float) -> View:
        """Return the view when every noise standard deviation is ``noise_scale`` times larger."""
        gaps = None if self.gaps is None else self.gaps / noise_scale**2
        return replace(self, points=self.points / noise_scale, gaps=gaps)


def view_log_ratios(view: View, rows: Groups) -> Matrix:
    """Return ``-|w_j - w_k|²/2`` for candidates ``j`` in ``rows`` against every ``k``.

    It is the noiseless part of the log likelihood ratio of ``k`` to ``j``.
    """
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
    from scipy.spatial.distance import cdist  # slow to import, not always needed

    found: Matrix = cdist(points, others, "sqeuclidean")
    return found


def _are_far(points: Matrix) -> bool:
    return float(np.einsum("kq,kq->k", points, points).max(initial=0.0)) > LARGE_SQUARE


def _reduce_points(points: Matrix, log_prior: Vector) -> Matrix:
    """Centre the points and rotate them into at most ``m`` coordinates.

    White noise looks the same in every orthonormal basis and carries nothing outside the span
    of the candidates, so this changes no likelihood ratio.
    """
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
    return View(points=reduced, log_prior=log_prior, groups=groups, slack=slack, gaps=gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Simulated releases: which candidate, and the unit-variance noise."""

    indices: npt.NDArray[np.int64]
    noise: Matrix

    def __len__(self) -> int:
        return len(self.indices)


def view_generator(rng: np.random.Generator | int | None, stream: str) -> np.random.Generator:
    """Return a generator as it is; for a seed, or None, that of a named stream."""
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


def view_posterior(view: View, draws: Draws, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return the attacker's posterior on each draw: ``P_k(z)`` of math (3), shape (N, m).

    In single precision a row is off by at most ``2 (ln m + 8) 2^-24`` in all (claim A-2).
    """
    p, total = _likelihoods(view, draws, dtype)[1:]
    p /= total.astype(dtype, copy=False)[:, None]
    return p


def view_entropy(view: View, draws: Draws) -> Vector:
    """Return the entropy of the attacker's posterior on each draw, in nats, shape (N,)."""
    log_p, p, total = _likelihoods(view, draws)
    np.maximum(log_p, -800.0, out=log_p)  # where p is 0 the product below must be 0, not NaN
    entropies: Vector = np.log(total) - np.einsum("ij,ij->i", p, log_p) / total
    return np.maximum(entropies, 0.0)


def _likelihoods(
    view: View, draws: Draws, dtype: npt.DTypeLike = np.float64
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Vector]:
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
    lowered = log_p if dtype == np.float64 else np.empty(log_p.shape, dtype=dtype)
    with np.errstate(over="ignore"):  # a candidate that far away is ruled out
        np.subtract(log_p, log_p.max(axis=1, keepdims=True), out=lowered, casting="same_kind")
    if dtype == np.float32:  # numbers that are nearly zero are slow
        np.maximum(lowered, LEAST_LOG, out=lowered)
    p = np.exp(lowered)
    return lowered, p, p.sum(axis=1, dtype=np.float64)


def draw_view_blocks(
    view: View, n_draws: int, rng: np.random.Generator, *, block_elements: int | None = None
) -> Iterator[Draws]:
    """Yield ``n_draws`` fresh draws, in blocks whose posteriors fit in the cache."""
    block = max(16, min(4096, (block_elements or BLOCK_ELEMENTS) // view.n_subsets))
    for start in range(0, n_draws, block):
        yield draw_views(view, min(block, n_draws - start), rng)
