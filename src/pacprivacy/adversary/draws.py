"""Simulated releases and the attacker's posterior on each of them, in blocks.

Draws here are made up (a candidate chosen at random, fresh noise); they know nothing of the
secret index of any real release.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary.view import View, log_ratios

__all__ = ["Draws", "draw_blocks", "draw_releases", "posterior", "posterior_entropy"]

BLOCK_ELEMENTS = 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Simulated releases: which candidate, and the unit-variance noise."""

    indices: npt.NDArray[np.int64]
    noise: Matrix

    def __len__(self) -> int:
        return len(self.indices)


def draw_releases(view: View, n_draws: int, rng: np.random.Generator) -> Draws:
    """Draw candidates independently from the belief, and noise for each."""
    cumulative = np.cumsum(np.exp(view.log_prior))
    uniforms = rng.random(n_draws) * cumulative[-1]
    indices = np.searchsorted(cumulative, uniforms, side="right").astype(np.int64)
    return Draws(
        indices=np.minimum(indices, view.n_subsets - 1),
        noise=rng.standard_normal((n_draws, view.points.shape[1])),
    )


def posterior(view: View, draws: Draws) -> Matrix:
    """Return the attacker's posterior on each draw: ``P_k(z)`` of math (3), shape (N, m)."""
    p, total = _likelihoods(view, draws)[1:]
    p /= total[:, None]
    return p


def posterior_entropy(view: View, draws: Draws) -> Vector:
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
        log_p = log_ratios(view, draws.indices)
        log_p += draws.noise @ points.T
        log_p += view.log_prior
    if view.groups is not None:
        log_p[view.groups[draws.indices][:, None] != view.groups[None, :]] = -np.inf
    log_p -= log_p.max(axis=1, keepdims=True)
    p = np.exp(log_p)
    return log_p, p, p.sum(axis=1)


def draw_blocks(
    view: View, n_draws: int, rng: np.random.Generator, *, block_elements: int | None = None
) -> Iterator[Draws]:
    """Yield ``n_draws`` fresh draws, in blocks whose posteriors fit in the cache."""
    block = max(16, min(4096, (block_elements or BLOCK_ELEMENTS) // view.n_subsets))
    for start in range(0, n_draws, block):
        yield draw_releases(view, min(block, n_draws - start), rng)
