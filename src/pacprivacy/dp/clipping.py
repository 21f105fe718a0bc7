"""Clipping: rows shrunk to a declared norm, and their sum, exact whatever the order."""

import math
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector, as_floats, check_positive
from pacprivacy.dp.records import finite_records, read_records
from pacprivacy.errors import BudgetError

ROW_BITS: Final = 20  # features in whole multiples of a millionth of their bound
UNITS_PER_BOUND: Final = 28  # bits of a clipped entry of a sum that is released as it is
EXACT_ROWS: Final = 1 << 20  # of such entries, whose sum is exact in float64
SLACK: Final = 1 - 1e-9  # room for the rounding of norms and of the factors themselves
_TINY: Final = 1e-300
SMALLEST, LARGEST = 1e-100, 1e100  # norms whose squares float64 holds
LARGEST_SUM: Final = 1 << 53  # whole numbers that float64 holds: 2^24 rows of the largest


def clip(vectors: Matrix, clip_norm: float) -> Matrix:
    """Shrink every row to a norm of at most ``clip_norm``: ``v · min(1, C/|v|)``."""
    check_positive("clip_norm", clip_norm, advice="Use a norm that gradients rarely exceed.")
    rows = as_floats("vectors", vectors)
    # Divided by their largest entry first, so that no square overflows or vanishes.
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), _TINY)
    shape = rows / largest
    lengths = np.maximum(np.linalg.norm(shape, axis=1, keepdims=True), 1.0)
    return np.where(largest <= clip_norm / lengths, rows, shape * (clip_norm / lengths))


def sum_clipped(rows: Matrix, *, clip_norm: float, norm: Literal["l1", "l2"] = "l2") -> Vector:
    """Return the sum of rows scaled down to ``min(1, clip_norm/|row|)`` of themselves, exactly.

    Guarantee
    ---------
    Claim DP-3. The sensitivity holds for the float64 numbers returned, not only for real ones.
    """
    limit = check_positive("clip_norm", clip_norm, advice="Use a norm that rows rarely exceed.")
    entries = finite_records(read_records(rows, "rows"))
    if not SMALLEST < limit < LARGEST:
        raise BudgetError(
            f"clip_norm must be within {SMALLEST:g} and {LARGEST:g}; got {clip_norm!r}. "
            "Rescale the rows."
        )
    lengths = clipping_norms(entries, order=1 if norm == "l1" else 2)  # an infinite one makes zeros
    # The norm is off by a factor within 1 ± (d + 2) 2^-53; three more roundings follow it.
    safe = limit * (1.0 - (entries.shape[1] + 16) * 2.0**-52)
    shrunk = entries * np.minimum(1.0, safe / np.maximum(lengths, 1e-300))
    # Towards zero, to a power of two: norms only shrink, sums of chunks are whole and exact.
    unit = math.ldexp(1.0, math.frexp(limit)[1] - 1 - UNITS_PER_BOUND)
    total = np.zeros(entries.shape[1], dtype=np.int64)
    for start in range(0, len(entries), EXACT_ROWS):
        whole = np.trunc(shrunk[start : start + EXACT_ROWS] / unit)
        total += whole.sum(axis=0).astype(np.int64)
    return np.asarray(np.clip(total, -LARGEST_SUM, LARGEST_SUM) * unit, dtype=np.float64)


class WholeRows:
    """Features clipped and rounded towards zero, as whole numbers in float64.

    Sums and scores of whole numbers are exact, so what one record contributes does not depend on
    which others are there, nor on the order in which they are added.
    """

    __slots__ = ("norms", "unit", "whole")

    def __init__(self, whole: Matrix, unit: float) -> None:
        self.whole, self.unit = whole, unit
        self.norms: Vector = unit * np.sqrt(np.einsum("ij,ij->i", whole, whole))


def clip_to_whole_rows(X: Any, x_bound: float) -> WholeRows:
    """Clip rows to ``x_bound`` and round them towards zero to a millionth of it.

    A row that is not finite becomes one of zeros.
    """
    check_positive("x_bound", x_bound, advice="Use a norm that rows rarely exceed.")
    features = finite_records(read_records(X))
    unit = x_bound / (1 << ROW_BITS)
    return WholeRows(np.trunc(clip(features, x_bound) * (SLACK / unit)), unit)


def clipping_norms(rows: Matrix, *, order: int = 2) -> Matrix:
    """Return the length of every row, in a column; infinite where float64 ends, without a word."""
    with np.errstate(over="ignore"):
        return np.asarray(np.linalg.norm(rows, ord=order, axis=1, keepdims=True))
