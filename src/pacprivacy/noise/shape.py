"""A shape of Gaussian noise in the coordinates of the spread, before its scale is fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary.view import View, make_view
from pacprivacy.noise.frames import SpreadFrame
from pacprivacy.noise.plan import Integers, NoisePlan, Revealed, make_plan
from pacprivacy.noise.spread import Spread

__all__ = ["Scalable", "Shape", "axis_shape", "least_scale"]

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
