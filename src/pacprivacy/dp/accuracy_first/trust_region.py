"""The least value of a quadratic over a ball, whatever its curvature: a trust-region problem."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy import optimize

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.errors import DataError

RELATIVE_GAP: Final = 1e-14  # eigenvalues nearer to the least one than this are the least one


def solve_trust_region(matrix: Matrix, vector: Vector, *, radius: float) -> Vector:
    """Minimise ``½ θᵀAθ - bᵀθ`` over ``|θ| <= radius``; ``A`` symmetric, of any signature.

    Parameters
    ----------
    matrix : array of shape (d, d)
        ``A``; only its symmetric part counts.
    vector : array of shape (d,)
        ``b``.
    radius : float > 0
        Of the ball.

    Returns
    -------
    array of shape (d,)
        A global minimiser. Where there are several (the hard case), one of them.

    Guarantee
    ---------
    Claim AF-6. The result satisfies the conditions that are necessary and sufficient for a global
    minimum, up to rounding: ``(A + μI) θ = b`` with ``μ >= 0``, ``A + μI`` positive
    semidefinite, and ``μ (radius - |θ|) = 0``.

    Examples
    --------
    >>> solve_trust_region(np.eye(2), np.array([0.3, 0.4]), radius=1.0)
    array([0.3, 0.4])
    >>> solve_trust_region(np.diag([-1.0, 1.0]), np.array([0.0, 1.0]), radius=1.0).round(4)
    array([0.866, 0.5  ])
    """
    radius = check_positive("radius", radius, advice="Use a norm that models rarely exceed.")
    square, right = np.asarray(matrix, dtype=np.float64), np.asarray(vector, dtype=np.float64)
    if square.shape != (right.size, right.size) or right.ndim != 1:
        raise DataError(
            f"matrix and vector must have shapes (d, d) and (d,); got {square.shape} and "
            f"{right.shape}. Pass one entry for each coordinate."
        )
    if not (np.isfinite(square).all() and np.isfinite(right).all()):
        raise DataError("matrix and vector must be finite. Clip before solving.")
    curvature, axes = np.linalg.eigh(0.5 * (square + square.T))
    turned = axes.T @ right
    solution = axes @ _solve_turned(curvature, turned, radius)
    # Rounding may leave the length a little above the radius.
    length = float(np.linalg.norm(solution))
    return np.asarray(solution * min(1.0, radius / length) if length > 0 else solution)


def _solve_turned(curvature: Vector, turned: Vector, radius: float) -> Vector:
    """Solve it in the axes of the matrix, where it is diagonal; curvatures ascend."""
    least = float(curvature[0])
    scale = max(float(np.abs(curvature).max()), float(np.linalg.norm(turned)) / radius)
    if scale == 0.0:
        return np.zeros_like(turned)
    if least > 0:
        inside = turned / curvature
        if float(np.linalg.norm(inside)) <= radius:
            return np.asarray(inside)
    flat = curvature - least <= RELATIVE_GAP * scale
    start = max(0.0, -least)
    pull = float(np.linalg.norm(turned[flat]))
    rest = np.where(flat, 0.0, turned) / np.where(flat, 1.0, curvature + start)
    if least <= 0 and pull <= RELATIVE_GAP * scale * radius:
        length = float(np.linalg.norm(rest))
        if length <= radius:  # the hard case: fill the ball along the flattest axis
            rest[0] = math.sqrt(radius**2 - length**2) if least < 0 else 0.0
            return np.asarray(rest)
    return _on_the_sphere(curvature, turned, radius, start)


def _on_the_sphere(curvature: Vector, turned: Vector, radius: float, start: float) -> Vector:
    """Find ``μ >= start`` with ``|(A + μI)^-1 b| = radius``: the secular equation."""
    lengths = curvature + start  # >= 0, the least of them 0 where the matrix is not positive

    def gap(shift: float) -> float:
        # 1/|θ(μ)| is nearly linear in μ and increases, so bracketing is safe and fast.
        return 1.0 / float(np.linalg.norm(turned / (lengths + shift))) - 1.0 / radius

    high = float(np.linalg.norm(turned)) / radius
    low = high
    while gap(low) > 0 and low > 0:
        low *= 0.25
    while gap(high) < 0:
        high *= 2.0
    shift = low if low == high else optimize.brentq(gap, low, high, xtol=1e-300, rtol=1e-14)
    return np.asarray(turned / (lengths + shift))
