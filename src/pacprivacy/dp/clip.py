"""Clipping: no record moves a sum by more than the stated norm, to the last bit."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.errors import DataError

__all__ = ["WholeRows", "clip", "whole_gradients", "whole_rows"]

ROW_BITS: Final = 20  # features in whole multiples of a millionth of their bound
SUM_BITS: Final = 40  # gradients in whole multiples of 2^-40 of the clipping norm
CHUNK_ROWS: Final = 1 << 12  # 2^12 numbers of 2^40 are summed exactly in float64 ...
MOST_ROWS: Final = 1 << 22  # ... and 2^22 of them in int64
SLACK: Final = 1 - 1e-9  # room for the rounding of norms and of the factors themselves
_TINY: Final = 1e-300

Integers = npt.NDArray[np.int64]


def clip(vectors: Matrix, norm: float) -> Matrix:
    """Shrink every row to a norm of at most ``norm``: ``v · min(1, C/|v|)``.

    Parameters
    ----------
    vectors : array of shape (n, d)
        One vector per record.
    norm : float > 0, public
        The bound ``C``. It must not be read off the data.

    Examples
    --------
    >>> clip(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    check_positive("norm", norm, advice="Use a norm that gradients rarely exceed.")
    rows = np.asarray(vectors, dtype=np.float64)
    # Divided by their largest entry first, so that no square overflows or vanishes.
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), _TINY)
    shape = rows / largest
    lengths = np.maximum(np.linalg.norm(shape, axis=1, keepdims=True), 1.0)
    return np.where(largest <= norm / lengths, rows, shape * (norm / lengths))


class WholeRows:
    """Features clipped and rounded towards zero, as whole numbers in float64.

    Sums and scores of whole numbers are exact, so what one record contributes does not depend on
    which others are there, nor on the order in which they are added.
    """

    __slots__ = ("norms", "unit", "whole")

    def __init__(self, whole: Matrix, unit: float) -> None:
        self.whole, self.unit = whole, unit
        self.norms: Vector = unit * np.sqrt(np.einsum("ij,ij->i", whole, whole))


def whole_rows(X: Any, bound: float) -> WholeRows:
    """Clip rows to ``bound`` and round them towards zero to a millionth of it.

    Raises
    ------
    DataError
        If ``X`` is not a finite matrix, or has more than 2^22 rows.

    Examples
    --------
    >>> rows = whole_rows([[3.0, 4.0], [0.5, 0.0]], 1.0)
    >>> (rows.whole * rows.unit).round(5)
    array([[0.6, 0.8],
           [0.5, 0. ]])
    """
    check_positive("x_bound", bound, advice="Use a norm that rows rarely exceed.")
    try:
        features = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("X must hold numbers; got something else. Encode or drop it.") from None
    if features.ndim != 2 or features.size == 0:
        raise DataError(
            f"X must have shape (n_records, n_features); got {features.shape}. "
            "Pass one row for each record."
        )
    if not np.isfinite(features).all():
        raise DataError("X must be finite; got NaN or infinite entries. Drop or fill them.")
    if len(features) > MOST_ROWS:
        raise DataError(
            f"X must have at most {MOST_ROWS} rows for exact sums; got {len(features)}. "
            "Use a part of the records."
        )
    unit = bound / (1 << ROW_BITS)
    return WholeRows(np.trunc(clip(features, bound) * (SLACK / unit)), unit)


def whole_gradients(gradients: Matrix, norm: float) -> Integers:
    """Return the sum of clipped gradients in whole multiples of ``2^-40 norm``.

    Every gradient is clipped, then rounded towards zero, then added in integers; one that is not
    finite counts as zero.

    Parameters
    ----------
    gradients : array of shape (n, d), curator-only
        One gradient per record.
    norm : float > 0, public
        Clipping norm.

    Guarantee
    ---------
    Claim G-1. The sum moves by at most ``2^40`` in Euclidean norm when a row is added.

    Examples
    --------
    >>> total = whole_gradients(np.array([[3.0, 4.0], [0.0, np.inf]]), 1.0)
    >>> (total / 2.0**40).round(6)
    array([0.6, 0.8])
    """
    total = np.zeros(gradients.shape[1], dtype=np.int64)
    for start in range(0, len(gradients), CHUNK_ROWS):
        rows = np.asarray(gradients[start : start + CHUNK_ROWS], dtype=np.float64)
        rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
        whole = np.trunc(clip(rows, norm) / norm * (SLACK * 2.0**SUM_BITS))
        total += whole.sum(axis=0).astype(np.int64)
    return total
