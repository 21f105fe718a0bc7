"""Validators. They own the wording of messages, so that every error reads the same way."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy.errors import BudgetError, MechanismError, PacPrivacyError, PoolError

NAMED: Final = 6  # columns that a message names before it only counts them

_CHUNK_NUMBERS: Final = 1 << 18  # two megabytes, which stay in the cache

LARGEST_OUTPUT = 1e140
SMALLEST_RANGE = 1e-140  # squares of what is between the two are normal numbers, with room to spare

Vector: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]  # of any type
ArrayLike: TypeAlias = npt.ArrayLike
Fixed = TypeVar("Fixed")

# What a field of a record that is read from a file may be; `msgspec.convert` holds it.
LARGEST = 1e300  # above the square of any output, with room for sums
LARGEST_COUNT = 2**63 - 1
Finite: TypeAlias = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1 + 1e-9)]  # a sum of probabilities
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]


def freeze(array: npt.NDArray[np.generic]) -> None:
    """Make ``array`` read-only, in place."""
    array.setflags(write=False)


def as_told(value: object) -> str:
    """Describe an option: plain values as they are, possible records by their type."""
    plain = value is None or isinstance(value, str | int | float | complex | np.generic | type)
    return repr(value)[:60] if plain else f"a {type(value).__name__}"


def as_floats(name: str, values: ArrayLike) -> Array:
    """Return an array of floats; refuse other entries without quoting one."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise MechanismError(
            f"{name} must hold numbers; got a {type(values).__name__} of others. Encode or drop "
            "what is no number."
        ) from None


def check_positive(
    name: str, value: float, *, advice: str, error: type[PacPrivacyError] = BudgetError
) -> float:
    """Return ``value`` as a float; refuse anything but a positive finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not (math.isfinite(number) and number > 0):
        raise error(f"{name} must be a positive finite number; got {as_told(value)}. {advice}")
    return number


def check_above_zero(name: str, value: ArrayLike, *, advice: str) -> Array:
    """Return the argument as an array; refuse anything but numbers above 0."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > 0.0):
        raise BudgetError(f"{name} must be above 0; got {_shown(value)}. {advice}")
    return array


def check_not_negative(name: str, value: ArrayLike) -> Array:
    """Return the argument as an array; refuse negative and missing numbers."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array >= 0.0):
        raise BudgetError(
            f"{name} must be at least 0; got {_shown(value)}. Pass variances, not deviations."
        )
    return array


def _shown(value: ArrayLike) -> str:
    """Describe an argument: a number by its value, an array by its shape."""
    array = np.asarray(value)
    return str(value) if array.ndim == 0 else f"an array of shape {array.shape}"


def check_count(name: str, value: object, least: int, *, advice: str) -> None:
    """Refuse a setting that is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise MechanismError(
            f"{name} must be a whole number of at least {least}; got {as_told(value)}. {advice}"
        )


def fixed_mechanism(value: Fixed | None, name: str) -> Fixed:
    """Return the result of ``prepare``; refuse a mechanism that was not prepared."""
    if value is None:
        raise MechanismError(
            f"{name} must be fixed before a subset is evaluated; got None. "
            "Call prepare(data) with all records first."
        )
    return value


def as_outputs(outputs: object) -> Matrix:
    """Return the (m, d) matrix of outputs; refuse NaN, infinities and wrong shapes."""
    values = np.asarray(getattr(outputs, "values", outputs), dtype=np.float64)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[0] < 2:
        raise MechanismError(
            f"outputs must be an array of shape (n_subsets, dimension) with at least two rows; "
            f"got shape {values.shape}. Pass one row per candidate subset."
        )
    for row, output in enumerate(values):  # row by row: no temporary array of the whole size
        largest = max(-float(output.min(initial=0.0)), float(output.max(initial=0.0)))
        if not math.isfinite(largest):
            raise MechanismError(
                f"outputs must be finite; the output of subset {row} holds NaN or infinity. "
                f"Clip or impute inside the mechanism."
            )
        if largest > LARGEST_OUTPUT:
            raise MechanismError(
                f"outputs must be below {LARGEST_OUTPUT:g} in size, so that they can be squared; "
                f"the output of subset {row} is not. Rescale it inside the mechanism."
            )
    return values


def column_spreads(values: Matrix) -> tuple[Vector, Vector, Vector]:
    """Return standard deviation, range and largest size of every column, a few at a time."""
    deviation, extent, size = np.empty((3, values.shape[1]))
    width = max(1, _CHUNK_NUMBERS // max(1, len(values)))
    for start in range(0, values.shape[1], width):
        part = slice(start, start + width)
        block = values[:, part]
        low, high = block.min(axis=0), block.max(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation[part], extent[part] = block.std(axis=0), high - low
        size[part] = np.maximum(high, -low)
    for column in np.flatnonzero((extent > 0) & ~((deviation > 0) & (deviation < np.inf))):
        unit = extent[column]  # squares of such numbers are 0 or infinite
        deviation[column] = unit * ((values[:, column] - values[0, column]) / unit).std()
    return deviation, extent, size


def distances_between_rows(rows: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """Yield the distances of a few rows at a time from all rows; off by 1e-7 of the largest."""
    unit = float(np.abs(rows - rows[0]).max(initial=0.0)) or 1.0
    scaled = (rows - rows[0]) / unit
    squares = np.einsum("ij,ij->i", scaled, scaled)
    step = max(1, _CHUNK_NUMBERS // max(1, len(rows)))
    for start in range(0, len(rows), step):
        block = slice(start, min(start + step, len(rows)))
        distances = squares[block, None] + squares - 2 * (scaled[block] @ scaled.T)
        yield block, unit * np.sqrt(np.maximum(distances, 0.0))


def check_log_belief(log_belief: Vector | None, n_subsets: int) -> Vector:
    """Return a normalised log belief over the pool; ``None`` is uniform."""
    if log_belief is None:
        return np.full(n_subsets, -math.log(n_subsets))
    log_p = np.asarray(log_belief, dtype=np.float64)
    if log_p.shape != (n_subsets,) or np.isnan(log_p).any() or not np.isfinite(log_p.max()):
        raise PoolError(
            f"log_belief must hold one log probability per subset ({n_subsets}); "
            f"got shape {log_p.shape}. Pass None for a uniform belief."
        )
    top = log_p.max()
    normalised: Vector = log_p - (top + math.log(np.exp(log_p - top).sum()))
    return normalised


def shorten(names: Sequence[Any], limit: int = NAMED) -> str:
    """Return names for a message; of many only the first."""
    shown = ", ".join(repr(name)[:60] for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def listed(names: Sequence[Any]) -> str:
    """Return names for a message; of many only the first."""
    return shorten(names)


def suggestion(name: str, names: Collection[str], *, otherwise: str) -> str:
    """Return advice: a similar name if there is one, a default otherwise."""
    similar = get_close_matches(name.lower(), [each.lower() for each in names], 1)
    meant = next((each for each in names if each.lower() in similar), None)
    return otherwise if meant is None else f"Did you mean {meant!r}?"


def quoted(names: Sequence[str]) -> str:
    """Return names as they are typed after ``--columns``."""
    joined = ",".join(names)
    return f'"{joined}"' if any(not name.isidentifier() for name in names) else joined
