"""Any nested value to one vector of floats, and back.

Everything that can leave is either in the vector, which gets noise, or in the structure, which
must be the same for every subset and so tells nothing about the secret (claim M-1).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Array, Mask, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import Value, is_data_table
from pacprivacy.mechanism.estimator import EstimatorNode, build_estimator, is_estimator
from pacprivacy.mechanism.nodes import (
    ArrayNode,
    MappingNode,
    Node,
    NodeReader,
    ScalarNode,
    SequenceNode,
    StaticNode,
    TableNode,
    build_table_node,
    node_difference,
    sort_node_keys,
)

_DESCRIBE_LIMIT: Final = 200
_LISTED_NAMES: Final = 8
_BY_COLUMN: Final = ("matrix", "coef", "centres", "components", "mean")  # of named columns
_KEY_TYPES: Final = (str, bytes, int, float, bool, type(None), np.str_, np.integer, np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """How to build a value from a vector; public, and equal for all subsets of a pool."""

    root: Node = field(repr=False)
    size: int

    def restore(self, vector: npt.ArrayLike) -> Value:
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
        return self.root.restore(NodeReader(numbers))

    def describe(self) -> str:
        """Return a short public text, such as ``tuple(array[3], number)``."""
        text = self.root.describe()
        return text if len(text) <= _DESCRIBE_LIMIT else text[: _DESCRIBE_LIMIT - 3] + "..."

    def names(self, most: int | None = None) -> tuple[str, ...]:
        """Return names of the first numbers, or of all: ``north.income``, ``coef_[0]``."""
        return tuple(islice(_names(self.root, ""), most))

    def parts(self) -> tuple[slice, ...]:
        """Return where each array, column or lone number lies in the vector."""
        stops = np.cumsum(list(_sizes(self.root)), dtype=np.int64).tolist()
        return tuple(map(slice, [0, *stops[:-1]], stops))

    def as_record(self) -> Structure:
        """Return the structure with dictionaries of attributes in the place of estimators."""
        return replace(self, root=_without_estimators(self.root))

    def difference(self, other: Structure) -> str | None:
        """Return the place where another structure parts from this one, or None."""
        return node_difference(self.root, other.root)


def shown_name(name: str) -> str:
    """Return what people read in the place of a name of :meth:`Structure.names`."""
    return f"value{name}" if name[:1] in ("", "[") else name


def total_numbers(totals: str | tuple[str, ...], structure: Structure) -> Mask:
    """Return which numbers of a value are totals: by name, by a label in it, or by declared kind.

    ``count`` means ``age[count]``; ``("sum",)`` means all numbers of a value without labels.
    """
    if isinstance(totals, str):
        return np.ones(structure.size, dtype=np.bool_)
    names = structure.names()
    chosen = np.zeros(len(names), dtype=np.bool_)
    labelled = any(re.sub(r"\[[\d, ]*\]", "", name) not in ("", "value") for name in names)
    for total in totals:
        label = re.compile(rf"(?:^|[.\[]|, ){re.escape(total)}(?:$|[.\[\]]|, )")
        matching = np.array(
            [total == shown_name(name) or label.search(name) is not None for name in names],
            dtype=np.bool_,
        )
        if not matching.any() and (labelled or total not in ("sum", "count")):
            listed = ", ".join(dict.fromkeys(map(shown_name, names[:_LISTED_NAMES])))
            raise MechanismError(
                f"totals must name numbers of the value ({listed[:_DESCRIBE_LIMIT]}); got "
                f"{total!r:.60}. Name some of those, or write totals=True for all."
            )
        chosen |= matching if matching.any() else True
    return chosen


def flatten(value: Value) -> tuple[Vector, Structure]:
    """Split a value into the numbers that are measured and the structure around them.

    Integers and booleans become floats: a noisy count is not an integer. Strings, bytes and None
    are static. What cannot be measured is refused, with its place.
    """
    pieces: list[Vector] = []
    root = _build(value, pieces, "value")
    vector = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.float64)
    return vector, Structure(root=root, size=vector.size)


def _build(value: Value, pieces: list[Vector], path: str) -> Node:
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
    if is_data_table(value):
        return build_table_node(value, pieces, path)
    if hasattr(value, "__array__") and not isinstance(value, type):
        return _build_array(np.asarray(value), pieces, path)
    raise MechanismError(
        f"{path} must be a number, an array, a frame, a fitted estimator, or a dict, tuple or "
        f"list of those; got {type(value).__name__}. Return its numbers as arrays."
    )


def _build_scalar(value: Value, pieces: list[Vector], path: str) -> Node:
    python = not isinstance(value, np.generic)
    try:
        array = _check_dtype(np.asarray(float(value) if python else value), path)
    except OverflowError as error:
        raise MechanismError(
            f"{path} must fit a float; got an integer that is too large. Return its logarithm."
        ) from error
    pieces.append(array.astype(np.float64).reshape(1))
    return ScalarNode(dtype=_restored_dtype(array.dtype), python=python)


def _build_array(value: Array, pieces: list[Vector], path: str) -> Node:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise MechanismError(
            f"{path} must have no masked entries; got a masked array. Fill them: whether an "
            "entry is missing would leave without noise."
        )
    array = _check_dtype(np.asarray(value), path)
    pieces.append(array.astype(np.float64).ravel())
    return ArrayNode(shape=array.shape, dtype=_restored_dtype(array.dtype))


def _check_dtype(array: Array, path: str) -> Array:
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


def _build_sequence(value: Value, pieces: list[Vector], path: str) -> Node:
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
    keys = sort_node_keys(value)
    nodes = tuple(_build(value[key], pieces, f"{path}[{key!r}]") for key in keys)
    kind = OrderedDict if isinstance(value, OrderedDict) else dict
    return MappingNode(kind=kind, keys=keys, nodes=nodes)


# --- what the numbers are called, and what belongs together ------------------------------------


def _names(node: Node, path: str, columns: tuple[str, ...] = ()) -> Iterator[str]:
    """Name the numbers below a node; the last axis of an array has the names of ``columns``."""
    if isinstance(node, ScalarNode):
        yield path or "value"
    elif isinstance(node, ArrayNode):
        what = path.rpartition(".")[2]
        fits = what in _BY_COLUMN and node.shape[-1:] == (len(columns),)
        named, both = columns if fits else (), fits and what == "matrix"
        for place in np.ndindex(node.shape):
            labels: list[object] = list(place)
            if named:
                labels[-1] = named[place[-1]]
            if both:
                labels[0] = named[place[0]]
            yield f"{path}[{_label(tuple(labels))}]" if place else path or "value"
    elif isinstance(node, TableNode):
        for column in node.columns:
            name = path if node.is_series and (path or column is None) else _joined(path, column)
            yield from (f"{name}[{_label(row)}]" for row in node.row_labels)
    elif isinstance(node, MappingNode):
        listed = dict(zip(node.keys, node.nodes, strict=True)).get("columns")
        if isinstance(listed, SequenceNode):
            columns = tuple(str(getattr(item, "value", "")) for item in listed.nodes)
        for key, child in zip(node.keys, node.nodes, strict=True):
            yield from _names(child, _joined(path, _label(key)), columns)
    else:
        for label, child in node.children:
            inner = _joined(path, label[1:]) if label.startswith(".") else path + label
            yield from _names(child, inner, columns)


def _joined(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _label(key: object) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _sizes(node: Node) -> Iterator[int]:
    if isinstance(node, TableNode):
        yield from (node.n_rows for _ in node.columns)
    elif isinstance(node, ScalarNode | ArrayNode):
        yield node.size
    else:
        for _, child in node.children:
            yield from _sizes(child)


def _without_estimators(node: Node) -> Node:
    if isinstance(node, EstimatorNode):
        names, nodes = zip(*node.released, strict=True) if node.released else ((), ())
        inner = tuple(map(_without_estimators, nodes))
        return MappingNode(kind=dict, keys=names, nodes=inner)
    if isinstance(node, SequenceNode | MappingNode):
        return replace(node, nodes=tuple(map(_without_estimators, node.nodes)))
    return node
