"""Noise that is cheap where it does not matter: least ``tr(W Σ_B)`` instead of least ``tr Σ_B``.

Multiplying the outputs by ``W^{1/2}`` turns the weighted cost into the plain one, so the same
search runs on the weighted coordinates. What it finds is turned back into a covariance of the
*unweighted* coordinates and decomposed there: the noise that is drawn lies along orthonormal
directions of the output, on the same lattice and under the same proof as every other noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.noise.costs import Exact, Protect, Shaped
from pacprivacy.noise.plan import NoisePlan
from pacprivacy.noise.shape import Shape
from pacprivacy.noise.spread import Spread

__all__ = ["Weighting", "given_shape", "noise_covariance", "weigh"]

LEAST_SHARE = 1e-9  # of the largest variance, for a direction that a given shape leaves out
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


def weigh(spread: Spread, weights: Vector, rule: Exact | Protect) -> Weighting:
    """Return the spread seen through the cost of a rule."""
    cost = _inner_cost(spread, rule)
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


def _inner_cost(spread: Spread, rule: Exact | Protect) -> Matrix:
    """Return the cost matrix along the directions of the spread, ``UᵀWU``."""
    dimension = len(spread.center)
    if isinstance(rule, Protect):
        along = spread.project(rule.orthonormal(dimension))
        return np.eye(spread.rank) + (rule.weight - 1) * (along.T @ along)
    cost = rule.checked_cost(dimension)
    directions = np.stack([spread.expand(row) for row in np.eye(spread.rank)])
    applied = directions * cost if cost.ndim == 1 else directions @ cost
    inner: Matrix = applied @ directions.T
    return 0.5 * (inner + inner.T)


def given_shape(spread: Spread, rule: Shaped) -> Shape:
    """Return the shape of a given covariance along the directions of the spread.

    A direction without noise gets a little: the outputs may differ along it.
    """
    across = spread.project(rule.checked(len(spread.center)))
    noise_var, rotation = np.linalg.eigh(spread.project(np.ascontiguousarray(across.T)))
    return Shape(rotation=rotation, noise_var=np.maximum(noise_var, LEAST_SHARE * noise_var[-1]))


def noise_covariance(plan: NoisePlan) -> Matrix:
    """Return the covariance of a plan's noise in the output's own coordinates; curator-only.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> outputs = np.random.default_rng(0).normal(size=(32, 2))
    >>> plan = calibrate(outputs, pac.Information(0.1), rule="waterfill")
    >>> bool(np.isclose(np.trace(noise_covariance(plan)), plan.total_variance))
    True
    """
    columns = [
        plan.frame.expand(std * row)
        for std, row in zip(plan.noise_std, np.eye(plan.n_directions), strict=True)
    ]
    factor = np.stack(columns) if columns else np.zeros((0, len(plan.center)))
    covariance: Matrix = factor.T @ factor
    return covariance
