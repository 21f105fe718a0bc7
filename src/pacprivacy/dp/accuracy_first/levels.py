"""Grids of privacy levels, and the whole numbers of grid steps that stand for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Vector, check_positive
from pacprivacy.errors import BudgetError
from pacprivacy.noise import MAX_UNITS_PER_SCALE

LEAST_UNITS: Final = 1 << 24  # grid steps in the smallest noise scale


def geometric_levels(low: float, high: float, n_levels: int = 1000) -> Vector:
    """Return ``n_levels`` levels in geometric progression, both ends included.

    Examples
    --------
    >>> geometric_levels(0.001, 1.0, 4).round(6).tolist()
    [0.001, 0.01, 0.1, 1.0]
    """
    low = check_positive("low", low, advice="Use 1/n.")
    high = check_positive("high", high, advice="Use four times what the theory demands.")
    if not low < high or n_levels < 2:
        raise BudgetError(
            f"levels must go from a smaller to a larger epsilon in at least two steps; got {low:g} "
            f"to {high:g} in {n_levels}. Use 1/n, four times the theory's epsilon, and 1000."
        )
    return np.asarray(np.geomspace(low, high, n_levels), dtype=np.float64)


def doubling_levels(low: float, high: float) -> Vector:
    """Return ``low, 2 low, 4 low, ...`` up to the first that is not below ``high``.

    Examples
    --------
    >>> doubling_levels(0.1, 0.5).round(6).tolist()
    [0.1, 0.2, 0.4, 0.8]
    """
    low = check_positive("low", low, advice="Use 1/n.")
    high = check_positive("high", high, advice="Use four times what the theory demands.")
    n_doublings = max(0, math.ceil(math.log2(high / low) - 1e-12))
    return np.asarray(low * 2.0 ** np.arange(n_doublings + 1), dtype=np.float64)


def as_levels(epsilons: Sequence[float] | Vector | Any) -> Vector:
    """Return levels as an array; refuse anything but positive, strictly increasing numbers."""
    levels = np.array(epsilons, dtype=np.float64)
    ordered = levels.ndim == 1 and levels.size > 0 and bool((np.diff(levels) > 0).all())
    if not (ordered and levels[0] > 0 and math.isfinite(levels[-1])):
        raise BudgetError(
            "epsilons must be positive, finite and strictly increasing: from the noisiest level "
            f"to the least noisy; got an array of shape {levels.shape}. Use geometric_levels."
        )
    return levels


def lattice_units(
    epsilons: Vector, *, sensitivity: float, n_numbers: int
) -> tuple[float, list[int]]:
    """Return a grid step and, for every level, its noise scale in whole steps, rounded up."""
    reach = check_positive(
        "sensitivity", sensitivity, advice="Bound what one record contributes, by clipping."
    )
    _, exponent = np.frexp(reach / float(epsilons[-1]) / LEAST_UNITS)
    grid_step = float(np.ldexp(1.0, int(exponent) - 1))
    steps = Fraction(reach) / Fraction(grid_step) + n_numbers
    units = [math.ceil(steps / Fraction(float(epsilon))) for epsilon in epsilons]
    if units[0] > MAX_UNITS_PER_SCALE:
        raise BudgetError(
            "epsilons must span a factor of at most 2**25; got "
            f"{epsilons[0]:g} to {epsilons[-1]:g}. Start at a larger epsilon."
        )
    return grid_step, units
