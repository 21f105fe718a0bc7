"""Weightings: a cost of noise per direction, and the spread seen through it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import BudgetError
from pacprivacy.noise.plan import NoisePlan
from pacprivacy.noise.shapes import Shape
from pacprivacy.noise.spread_frames import Spread

FLAT = 1e-12  # variances below this share of the largest are rounding error


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """The spread in coordinates in which the cost of noise is its total variance.

    ``back`` maps a direction of the weighted coordinates to those of the unweighted spread.
    """

    spread: Spread
    plain: Spread
    cost: Matrix
    back: Matrix

    def unweighted(self, shape: Shape) -> Shape:
        """Return a shape found in the weighted coordinates as one of the unweighted spread."""
        factor = self.back @ (shape.rotation * np.sqrt(shape.noise_var))
        rotation, noise_std, _ = np.linalg.svd(factor, full_matrices=False)
        return Shape(rotation=rotation, noise_var=noise_std**2, groups=shape.groups)

    def cost_of(self, plan: NoisePlan) -> float:
        """Return the weighted cost of a plan along directions of the unweighted spread."""
        rotation = getattr(plan.frame, "rotation", None)
        turn = np.eye(self.plain.rank) if rotation is None else rotation
        along = np.einsum("rq,rs,sq->q", turn, self.cost, turn)
        return float(np.square(plan.noise_std) @ along)


def weigh(spread: Spread, weights: Vector, cost: Matrix) -> Weighting:
    """Return the spread seen through a cost of noise along its directions."""
    values, vectors = np.linalg.eigh(cost)
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    stretched = spread.coordinates @ root
    eigenvalues, turn = np.linalg.eigh((stretched.T * weights) @ stretched)
    order = np.argsort(eigenvalues)[::-1]
    eigenvalues, turn = np.maximum(eigenvalues[order], 0.0), turn[:, order]
    back = inverse @ turn
    weighted = Spread(
        center=spread.center,
        eigenvalues=np.maximum(eigenvalues, FLAT**2 * eigenvalues[0]),
        coordinates=stretched @ turn,
        basis=None if spread.basis is None else spread.basis @ back,
        mixing=spread.mixing,
        values=spread.values,
    )
    return Weighting(spread=weighted, plain=spread, cost=cost, back=back)


def contrasts(n: int) -> Matrix:
    """Return ``n - 1`` orthonormal rows that span all differences of ``n`` numbers."""
    if n < 2:
        raise BudgetError(f"n must be at least 2; got {n}. Give the number of classes.")
    rows = np.tril(np.ones((n, n)), -1)[1:]
    rows[np.arange(n - 1), np.arange(1, n)] = -np.arange(1.0, n)
    normalised: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalised
