"""Any nested value to one vector of floats, and back.

Everything that can leave is either in the vector, which gets noise, or in the structure, which
must be the same for every subset and so tells nothing about the secret (claim M-1).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import is_table
from pacprivacy.mechanism.nodes import (
    ArrayNode,
    MappingNode,
    Node,
    Reader,
    ScalarNode,
    SequenceNode,
    StaticNode,
    build_table,
    find_difference,
)
from pacprivacy.mechanism.sklearn import build_estimator, is_estimator

_DESCRIBE_LIMIT: Final = 200
_KEY_TYPES: Final = (str, bytes, int, float, bool, type(None), np.str_, np.integer, np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """How to build a value from a vector; public, and equal for all subsets of a pool."""

    root: Node = field(repr=False)
    size: int

    def restore(self, vector: npt.ArrayLike) -> Any:
        """Build the value from a vector of :attr:`size` numbers.

        Guarantee
        ---------
        Claim M-1. The result is a function of ``vector`` and of this structure alone.
        """
        numbers = np.asarray(vector, dtype=np.float64)
        if numbers.shape != (self.size,):
            raise MechanismError(
                f"vector must have shape ({self.size},); got {numbers.shape}. "
                "Restore with the structure that the value was flattened with."
            )
        return self.root.restore(Reader(numbers))

    def describe(self) -> str:
        """Return a short public text, such as ``tuple(array[3], number)``."""
        text = self.root.describe()
        return text if len(text) <= _DESCRIBE_LIMIT else text[: _DESCRIBE_LIMIT - 3] + "..."

    def difference(self, other: Structure) -> str | None:
        """Return the place where another structure parts from this one, or None."""
        return find_difference(self.root, other.root)


def flatten(value: Any) -> tuple[Vector, Structure]:
    """Split a value into the numbers that are measured and the structure around them.

    Parameters
    ----------
    value : number, array, series, frame, fitted estimator, or dict, tuple, list of those
        Integers and booleans become floats: a noisy count is not an integer. Strings, bytes and
        None are static.

    Returns
    -------
    vector : array of shape (d,), curator-only
    structure : Structure, public once it is known to be equal for all subsets

    Raises
    ------
    MechanismError
        If something inside cannot be measured; the message names the place.
    """
    pieces: list[Vector] = []
    root = _build(value, pieces, "value")
    vector = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.float64)
    return vector, Structure(root=root, size=vector.size)


def _build(value: Any, pieces: list[Vector], path: str) -> Node:
    if value is None or isinstance(value, str | bytes):
        return StaticNode(value=str(value) if isinstance(value, np.str_) else value)
    if isinstance(value, bool | int | float | np.generic):
        return _build_scalar(value, pieces, path)
    if isinstance(value, np.ndarray):
        return _build_array(value, pieces, path)
    if isinstance(value, dict):
        return _build_mapping(value, pieces, path)
    if isinstance(value, tuple | list):
        return _build_sequence(value, pieces, path)
    if is_estimator(value):
        return build_estimator(value, pieces, path, _build)
    if is_table(value):
        return build_table(value, pieces, path)
    if hasattr(value, "__array__") and not isinstance(value, type):
        return _build_array(np.asarray(value), pieces, path)
    raise MechanismError(
        f"{path} must be a number, an array, a frame, a fitted estimator, or a dict, tuple or "
        f"list of those; got {type(value).__name__}. Return its numbers as arrays."
    )


def _build_scalar(value: Any, pieces: list[Vector], path: str) -> Node:
    python = not isinstance(value, np.generic)
    try:
        array = _check_dtype(np.asarray(float(value) if python else value), path)
    except OverflowError as error:
        raise MechanismError(
            f"{path} must fit a float; got an integer that is too large. Return its logarithm."
        ) from error
    pieces.append(array.astype(np.float64).reshape(1))
    return ScalarNode(dtype=_restored_dtype(array.dtype), python=python)


def _build_array(value: npt.NDArray[Any], pieces: list[Vector], path: str) -> Node:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise MechanismError(
            f"{path} must have no masked entries; got a masked array. Fill them: whether an "
            "entry is missing would leave without noise."
        )
    array = _check_dtype(np.asarray(value), path)
    pieces.append(array.astype(np.float64).ravel())
    return ArrayNode(shape=array.shape, dtype=_restored_dtype(array.dtype))


def _check_dtype(array: npt.NDArray[Any], path: str) -> npt.NDArray[Any]:
    kind = array.dtype.kind
    if kind in "biuf":
        return array
    advice = "Return an array of numbers."
    if kind in "UST":
        advice = "Return scores, counts or a one-hot encoding of the labels instead."
    elif kind == "c":
        advice = "Return the real and the imaginary part."
    raise MechanismError(f"{path} must hold real numbers; got dtype {array.dtype}. {advice}")


def _restored_dtype(dtype: np.dtype[Any]) -> str:
    return dtype.newbyteorder("=").str if dtype.kind == "f" else np.dtype(np.float64).str


def _build_sequence(value: Any, pieces: list[Vector], path: str) -> Node:
    named = isinstance(value, tuple) and hasattr(value, "_fields")
    kind = type(value) if named else (tuple if isinstance(value, tuple) else list)
    nodes = tuple(_build(item, pieces, f"{path}[{i}]") for i, item in enumerate(value))
    return SequenceNode(kind=kind, nodes=nodes)


def _build_mapping(value: dict[Any, Any], pieces: list[Vector], path: str) -> Node:
    for key in value:
        members = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(member, _KEY_TYPES) for member in members):
            raise MechanismError(
                f"{path} must have plain keys (strings, numbers); got {type(key).__name__}. "
                "Use strings as keys."
            )
    inserted = list(value)
    keys = sorted(inserted, key=lambda key: (type(key).__name__, repr(key)))
    nodes = tuple(_build(value[key], pieces, f"{path}[{key!r}]") for key in keys)
    position = {key: i for i, key in enumerate(keys)}
    kind = OrderedDict if isinstance(value, OrderedDict) else dict
    order = tuple(position[key] for key in inserted)
    return MappingNode(kind=kind, keys=tuple(keys), nodes=nodes, order=order)
