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
from pacprivacy.adversary.view import View

__all__ = ["Draws", "draw_releases", "posterior", "posterior_blocks"]

BLOCK_ELEMENTS = 1 << 21


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


def posterior(view: View, draws: Draws) -> tuple[Matrix, Vector]:
    """Return the attacker's posterior on each draw, and its entropy.

    Returns
    -------
    array of shape (N, m)
        ``P_k(z)`` of math (3); rows sum to one.
    array of shape (N,)
        Entropy of each row in nats.
    """
    points = view.points
    released = points[draws.indices] + draws.noise
    log_p: Matrix = released @ points.T
    log_p += view.log_prior - 0.5 * np.einsum("kq,kq->k", points, points)
    if view.groups is not None:
        log_p[view.groups[draws.indices][:, None] != view.groups[None, :]] = -np.inf
    log_p -= log_p.max(axis=1, keepdims=True)
    p = np.exp(log_p)
    total = p.sum(axis=1)
    np.maximum(log_p, -800.0, out=log_p)  # where p is 0 the product below must be 0, not NaN
    entropies: Vector = np.log(total) - np.einsum("ij,ij->i", p, log_p) / total
    p /= total[:, None]
    return p, np.maximum(entropies, 0.0)


def posterior_blocks(
    view: View, n_draws: int, rng: np.random.Generator
) -> Iterator[tuple[Matrix, Vector]]:
    """Yield posteriors and entropies for ``n_draws`` fresh draws, in blocks that fit in memory."""
    block = max(16, min(4096, BLOCK_ELEMENTS // view.n_subsets))
    for start in range(0, n_draws, block):
        yield posterior(view, draw_releases(view, min(block, n_draws - start), rng))
