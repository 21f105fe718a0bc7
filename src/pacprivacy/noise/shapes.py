"""A shape of Gaussian noise in the coordinates of the spread, before its scale is fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary import View, make_view
from pacprivacy.noise.plan import Integers, NoisePlan, Revealed, make_plan
from pacprivacy.noise.rules import Exact, Protect, Shaped
from pacprivacy.noise.spread import Spread, SpreadFrame

LEAST_NOISE = 1e-18  # of the spread's variance: a search that may go on stops here


class Scalable(Protocol):
    """Noise whose level is still free."""

    @property
    def groups(self) -> Integers | None:
        """Groups of candidates that are told apart without noise."""
        ...

    def scaled(self, noise_scale: float) -> Self:
        """Return the same noise with every standard deviation multiplied."""
        ...

    def view(self, spread: Spread, log_p: Vector) -> View:
        """Return what the attacker compares under this noise."""
        ...

    def plan(self, spread: Spread, *, rule: str, notes: tuple[str, ...] = ()) -> NoisePlan:
        """Put this noise on its lattice."""
        ...


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
    """Return the covariance of a plan's noise in the output's own coordinates; curator-only."""
    columns = [
        plan.frame.expand(std * row)
        for std, row in zip(plan.noise_std, np.eye(plan.n_directions), strict=True)
    ]
    factor = np.stack(columns) if columns else np.zeros((0, len(plan.center)))
    covariance: Matrix = factor.T @ factor
    return covariance
