"""Validators of the formulas: what must be positive, what must not be negative."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import BudgetError

__all__ = ["Array", "above_zero", "not_negative"]

Array: TypeAlias = npt.NDArray[np.float64]


def above_zero(name: str, value: npt.ArrayLike, *, advice: str) -> Array:
    """Return the argument as an array; refuse anything but numbers above 0."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > 0.0):
        raise BudgetError(f"{name} must be above 0; got {_shown(value)}. {advice}")
    return array


def not_negative(name: str, value: npt.ArrayLike) -> Array:
    """Return the argument as an array; refuse negative and missing numbers."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array >= 0.0):
        raise BudgetError(
            f"{name} must be at least 0; got {_shown(value)}. Pass variances, not deviations."
        )
    return array


def _shown(value: npt.ArrayLike) -> str:
    """Describe an argument: a single number as it is, an array by its shape."""
    array = np.asarray(value)
    return str(value) if array.ndim == 0 else f"an array of shape {array.shape}"
