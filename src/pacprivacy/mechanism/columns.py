"""The numbers of a single part, as columns, for the built-in statistics."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import is_table, read_table, table_columns

__all__ = ["read_columns", "read_numbers"]

Matrix = npt.NDArray[np.float64]


def read_numbers(parts: tuple[Any, ...], name: str) -> Matrix:
    """Return the only part as float64, in its own shape; a frame as a matrix."""
    if len(parts) != 1:
        raise MechanismError(
            f"{name} must be given one part; got {len(parts)}. Pass X alone, or stack the columns."
        )
    part = parts[0]
    if is_table(part):
        table = read_table(part)
        columns = [_as_float(column.to_numpy(), name) for _, column in table_columns(table)]
        return columns[0] if isinstance(table, nw.Series) else np.column_stack(columns)
    return _as_float(np.asarray(part), name)


def _as_float(array: npt.NDArray[Any], name: str) -> Matrix:
    if array.dtype.kind not in "biuf":
        raise MechanismError(
            f"{name} must be given numbers; got dtype {array.dtype}. Drop or encode that column."
        )
    return array.astype(np.float64, copy=False)


def read_columns(parts: tuple[Any, ...], name: str) -> Matrix:
    """Return the only part as a float64 matrix of rows and columns."""
    X = read_numbers(parts, name)
    if X.ndim > 2:
        raise MechanismError(
            f"{name} must be given a table of rows and columns; got {X.ndim} axes. Reshape it."
        )
    return X[:, None] if X.ndim == 1 else X
