"""The covariance of the outputs: directions, and formulas of the noise along them.

Outputs are measured, and noise is added, along a *frame*: the output's own axes, or the principal
directions over the pool (the *spread*).

A formula maps variances to noise *variances*, one per direction; a direction along which the output
never moves gets none. Rules apply formulas and prove them by the log-determinant bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_positive, freeze
from pacprivacy.theory import entropy, water_filled_noise

ADVICE = "Use about 0.02 to keep any membership guess below 60 %."
ROUND_UP = 1 + 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Belief-weighted mean and principal directions of the outputs; curator-only.

    ``eigenvalues`` are the ``r`` variances, largest first, all positive; ``coordinates``, shape (m,
    r), the centred outputs. Directions are the columns of ``basis``.
    """

    center: Vector
    eigenvalues: Vector
    coordinates: Matrix
    basis: Matrix
    values: Matrix

    def __post_init__(self) -> None:
        for array in (self.center, self.eigenvalues, self.coordinates, self.basis):
            freeze(array)

    @property
    def rank(self) -> int:
        return len(self.eigenvalues)

    def expand(self, coordinates: Vector) -> Vector:
        """Return the vector of length ``d`` with these coordinates (without the centre)."""
        expanded: Vector = self.basis @ coordinates
        return expanded

    def project(self, vectors: Matrix) -> Matrix:
        """Return coordinates of centred vectors of shape (n, d) along the directions."""
        projected: Matrix = vectors @ self.basis
        return projected


def weighted_spread_mean(values: Matrix, weights: Vector) -> Vector:
    """Return the weighted mean of the rows; a column that never moves keeps its exact value."""
    anchor = values[int(np.argmax(weights))]
    mean: Vector = anchor + weights @ (values - anchor)
    return mean


def axis_spread_variances(values: Matrix, center: Vector, weights: Vector) -> Vector:
    """Return the belief-weighted variance of each output coordinate; zero where it is constant."""
    return np.asarray(weights @ np.square(values - center))


def spread_of(values: Matrix, weights: Vector) -> Spread:
    """Return the principal directions of the outputs, but for those within rounding error."""
    center, root = weighted_spread_mean(values, weights), np.sqrt(weights)
    centred = values - center
    centred -= weights @ centred  # what rounding left of a centre far from the origin
    _, singular, right = np.linalg.svd(root[:, None] * centred, full_matrices=False)
    tiny = max(centred.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)
    keep = singular > tiny
    basis = np.ascontiguousarray(right[keep].T)
    return Spread(
        center=center,
        eigenvalues=singular[keep] ** 2,
        coordinates=centred @ basis,
        basis=basis,
        values=values,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisFrame:
    """A selection of the output's own coordinates."""

    axes: npt.NDArray[np.int64]
    center: Vector

    def coordinates(self, values: Matrix) -> Matrix:
        return values[:, self.axes] - self.center[self.axes]

    def expand(self, coordinates: Vector) -> Vector:
        full = np.zeros(len(self.center))
        full[self.axes] = coordinates
        return full

    def variances(self, along: Vector) -> Vector:
        full = np.zeros(len(self.center))
        full[self.axes] = along
        return full


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFrame:
    """The principal directions of the outputs, or the combinations that ``rotation`` gives."""

    spread: Spread
    rotation: Matrix | None = None

    def coordinates(self, values: Matrix) -> Matrix:
        """Return centred coordinates; known ones for the calibrated outputs."""
        if values is self.spread.values:
            along = self.spread.coordinates
        else:
            along = self.spread.project(values - self.spread.center)
        return along if self.rotation is None else along @ self.rotation

    def expand(self, coordinates: Vector) -> Vector:
        along = coordinates if self.rotation is None else self.rotation @ coordinates
        return self.spread.expand(along)

    def variances(self, along: Vector) -> Vector:
        """Return the variance per coordinate of noise with these variances along the directions."""
        basis = self.spread.basis if self.rotation is None else self.spread.basis @ self.rotation
        return np.asarray(np.square(basis) @ along)


Frame: TypeAlias = AxisFrame | SpreadFrame


Formula: TypeAlias = Callable[..., Vector]


def isotropic(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the same noise in every direction: ``tr Σ / 2β`` (claim N-1, by ``ln(1+x) <= x``)."""
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    return np.full(len(variances), ROUND_UP * float(variances.sum()) / (2 * beta))


def isotropic_max(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the papers' baseline: the largest ``proportional`` variance everywhere (claim N-1)."""
    return np.full(len(variances), float(proportional(variances, mi_nats=mi_nats).max(initial=0.0)))


def proportional(variances: Vector, *, mi_nats: float) -> Vector:
    """Return noise in proportion to each direction's standard deviation ``s_i`` (claim N-2).

    ``s_i Σ_j s_j / 2β``: the least total noise with ``Σ_i s_i² / 2 e_i <= β``. Along the coordinate
    axes this is the papers' rule.
    """
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    std = np.sqrt(variances)
    noise_var: Vector = ROUND_UP * std * std.sum() / (2 * beta)
    return noise_var


def waterfill(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the least noise *variance* along each axis that the log-determinant bound can certify.

    Guarantee
    ---------
    Claim N-3. Assumes ``variances`` are exact for the pool (divisor m). Ensures
    ``log_det_bound(variances, result) <= mi_nats``; the root is approached from the side of more
    noise.
    """
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    noise_var = np.zeros(len(variances))
    moving = variances > 0
    if not moving.any():
        return noise_var
    top = float(variances.max())
    scaled = np.maximum(variances[moving] / top, 1e-300)  # a quotient must not become zero
    noise_var[moving] = top * water_filled_noise(scaled, beta)
    return noise_var


def log_det_of_points(
    points: Matrix, weights: Vector, groups: npt.NDArray[np.int64] | None
) -> float:
    """Bound the information of whitened points: ``H(G) + 1/2 ln det(I + E[Cov(W | G)])``."""
    group_nats = 0.0
    if groups is None:
        centred = points - weights @ points
    else:
        mass = np.bincount(groups, weights)
        alive = mass > 0
        group_nats = float(entropy(np.log(mass[alive])))
        sums = np.zeros((len(mass), points.shape[1]))
        np.add.at(sums, groups, weights[:, None] * points)
        centred = points - (sums / np.where(alive, mass, 1.0)[:, None])[groups]
    weighted = np.sqrt(weights)[:, None] * centred
    small = weighted.T @ weighted if weighted.shape[1] <= len(weighted) else weighted @ weighted.T
    eigenvalues = np.maximum(np.linalg.eigvalsh(small), 0.0) if small.size else np.zeros(0)
    return group_nats + 0.5 * float(np.log1p(eigenvalues).sum())
