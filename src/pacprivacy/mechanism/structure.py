"""Any nested value to one vector of floats, and back.

Everything that can leave is either in the vector, which gets noise, or in the structure, which
must be the same for every subset and so tells nothing about the secret (claim M-1). A structure is
a tree of nodes: leaves that are measured, static leaves, containers. A node restores its value from
numbers alone; fields marked ``compare=False`` are cosmetic and taken from the first subset.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Array, Mask, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.columns import data_table_columns, is_data_table, read_data_table
from pacprivacy.mechanism.data import Value

_DESCRIBE_LIMIT: Final = 200
_LISTED_NAMES: Final = 8
_BY_COLUMN: Final = ("matrix", "coef", "centres", "components", "mean")  # of named columns
_KEY_TYPES: Final = (str, bytes, int, float, bool, type(None), np.str_, np.integer, np.bool_)
NodeBuilder: TypeAlias = Callable[[Value, list[Vector], str], "Node"]
_BUILDERS: Final[list[tuple[Callable[[Value], bool], NodeBuilder]]] = []


def register_node_builder(is_one: Callable[[Value], bool], build: NodeBuilder) -> None:
    """Say how values of another kind are measured: fitted estimators."""
    _BUILDERS.append((is_one, build))


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
                "Use the structure of the flattened value."
            )
        return self.root.restore(NodeReader(numbers))

    def describe(self) -> str:
        text = self.root.describe()
        return text if len(text) <= _DESCRIBE_LIMIT else text[: _DESCRIBE_LIMIT - 3] + "..."

    def names(self, most: int | None = None) -> tuple[str, ...]:
        """Return names of the first numbers, or of all: ``north.income``, ``coef_[0]``."""
        return tuple(islice(_names(self.root, ""), most))

    def parts(self) -> tuple[slice, ...]:
        """Return the slice of each array, column or single number in the vector."""
        stops = np.cumsum(list(_sizes(self.root)), dtype=np.int64).tolist()
        return tuple(map(slice, [0, *stops[:-1]], stops))

    def as_record(self) -> Structure:
        return replace(self, root=self.root.as_record())

    def difference(self, other: Structure) -> str | None:
        """Return the first difference from another structure, or None."""
        return node_difference(self.root, other.root)


def shown_name(name: str) -> str:
    """Return the readable form of a name of :meth:`Structure.names`."""
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
    root = build_node(value, pieces, "value")
    vector = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.float64)
    return vector, Structure(root=root, size=vector.size)


def build_node(value: Value, pieces: list[Vector], path: str) -> Node:
    """Append the numbers of a value to ``pieces``; return the structure around them."""
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
    for is_one, build in _BUILDERS:
        if is_one(value):
            return build(value, pieces, path)
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
    dtype = _restored_dtype(array.dtype)
    return ArrayNode(shape=(), dtype=dtype, is_number=True, is_python=python)


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
    nodes = tuple(build_node(item, pieces, f"{path}[{i}]") for i, item in enumerate(value))
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
    nodes = tuple(build_node(value[key], pieces, f"{path}[{key!r}]") for key in keys)
    kind = OrderedDict if isinstance(value, OrderedDict) else dict
    return MappingNode(kind=kind, keys=keys, nodes=nodes)


# --- nodes -------------------------------------------------------------------------------------


class NodeReader:
    """Hands out a vector from front to back."""

    __slots__ = ("_position", "_vector")

    def __init__(self, vector: npt.NDArray[np.float64]) -> None:
        self._vector = vector
        self._position = 0

    def take(self, size: int) -> npt.NDArray[np.float64]:
        start = self._position
        self._position += size
        return self._vector[start : start + size].copy()


class Node(ABC):
    """One place in a structure."""

    __slots__ = ()

    @property
    def children(self) -> tuple[tuple[str, Node], ...]:
        """The places below, with their labels."""
        return ()

    @property
    def size(self) -> int:
        return sum(node.size for _, node in self.children)

    @abstractmethod
    def restore(self, reader: NodeReader) -> Value:
        """Build the value from the next ``size`` numbers."""

    @abstractmethod
    def describe(self) -> str: ...

    def as_record(self) -> Node:
        """Return the node with dictionaries of attributes in the place of estimators."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayNode(Node):
    """Measured floats: an array, or one number. Integers and booleans come back as floats."""

    shape: tuple[int, ...]
    dtype: str
    is_number: bool = False
    is_python: bool = field(default=False, compare=False)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def restore(self, reader: NodeReader) -> Value:
        numbers = reader.take(self.size).reshape(self.shape).astype(self.dtype)
        if not self.is_number:
            return numbers
        return float(numbers) if self.is_python else numbers[()]

    def describe(self) -> str:
        return "number" if self.is_number else f"array{list(self.shape)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticNode(Node):
    """A value that is not measured and so must be the same for every subset."""

    size = 0
    value: Value
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def restore(self, reader: NodeReader) -> Value:
        if self.dtype is None or self.shape is None:
            return self.value
        result = np.empty(len(self.value), dtype=self.dtype)
        result[:] = self.value
        return result.reshape(self.shape)

    def describe(self) -> str:
        return "fixed"


def static_node_array(array: Array) -> StaticNode:
    dtype = "O" if array.dtype.kind in "OT" else array.dtype.str
    return StaticNode(value=tuple(array.ravel().tolist()), dtype=dtype, shape=array.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceNode(Node):
    kind: type
    nodes: tuple[Node, ...]

    @property
    def children(self) -> tuple[tuple[str, Node], ...]:
        names: Sequence[str] = getattr(self.kind, "_fields", ())
        labels = [f".{name}" for name in names] or [f"[{i}]" for i in range(len(self.nodes))]
        return tuple(zip(labels, self.nodes, strict=True))

    def restore(self, reader: NodeReader) -> Value:
        items = [node.restore(reader) for node in self.nodes]
        return self.kind(*items) if hasattr(self.kind, "_fields") else self.kind(items)

    def describe(self) -> str:
        return f"{self.kind.__name__}({', '.join(node.describe() for node in self.nodes)})"

    def as_record(self) -> Node:
        return replace(self, nodes=tuple(node.as_record() for node in self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode(Node):
    """A dictionary ordered by :func:`sort_node_keys`: insertion may follow the data."""

    kind: type
    keys: tuple[Any, ...]
    nodes: tuple[Node, ...]

    @property
    def children(self) -> tuple[tuple[str, Node], ...]:
        labels = [f"[{key!r}]" for key in self.keys]
        return tuple(zip(labels, self.nodes, strict=True))

    def restore(self, reader: NodeReader) -> Value:
        return self.kind(
            (key, node.restore(reader)) for key, node in zip(self.keys, self.nodes, strict=True)
        )

    def describe(self) -> str:
        inner = ", ".join(f"{label[1:-1]}: {node.describe()}" for label, node in self.children)
        return f"{self.kind.__name__}({inner})"

    def as_record(self) -> Node:
        return replace(self, nodes=tuple(node.as_record() for node in self.nodes))


def sort_node_keys(keys: Iterable[Any]) -> tuple[Any, ...]:
    """Return keys in a fixed order that does not depend on insertion."""
    return tuple(sorted(keys, key=lambda key: (type(key).__name__, repr(key))))


def node_difference(first: Node, second: Node, path: str = "value") -> str | None:
    if first == second:
        return None
    labels = [label for label, _ in first.children]
    if type(first) is type(second) and labels == [label for label, _ in second.children]:
        pairs = zip(first.children, second.children, strict=True)
        for (label, mine), (_, other) in pairs:
            difference = node_difference(mine, other, path + label)
            if difference is not None:
                return difference
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNode(Node):
    """A frame or series of numbers with fixed names, index, and texts: place, name and entries."""

    library: str
    is_series: bool
    columns: tuple[Any, ...]
    n_rows: int
    index: tuple[Any, ...] | None
    index_names: tuple[Any, ...]
    texts: tuple[tuple[int, Any, tuple[str | None, ...]], ...] = ()

    @property
    def row_labels(self) -> Sequence[Any]:
        """Return names of rows: the index, else texts, else numbers."""
        plain = self.index is None or self.index == tuple(range(self.n_rows))
        if plain and self.texts:
            columns = [entries for _, _, entries in self.texts]
            return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return range(self.n_rows) if self.index is None else self.index

    @property
    def size(self) -> int:
        return self.n_rows * len(self.columns)

    def restore(self, reader: NodeReader) -> Value:
        cells = reader.take(self.size).reshape(len(self.columns), self.n_rows)
        if self.library == "pandas":
            return self._restore_pandas(cells)
        polars = _namespace(self.library)
        if self.is_series:
            return polars.Series(self.columns[0], cells[0])
        return polars.DataFrame(dict(self._named(cells)))

    def _named(self, cells: npt.NDArray[np.float64]) -> list[tuple[Any, Any]]:
        columns: list[tuple[Any, Any]] = list(zip(self.columns, cells, strict=True))
        for place, name, entries in self.texts:
            columns.insert(place, (name, list(entries)))
        return columns

    def _restore_pandas(self, cells: npt.NDArray[np.float64]) -> Any:
        pandas = _namespace(self.library)
        labels = list(self.index or ())
        if len(self.index_names) > 1:
            index = pandas.MultiIndex.from_tuples(labels, names=list(self.index_names))
        else:
            index = pandas.Index(labels, name=self.index_names[0])
        if self.is_series:
            return pandas.Series(cells[0], index=index, name=self.columns[0])
        frame = pandas.DataFrame(cells.T, index=index, columns=list(self.columns))
        for place, name, entries in self.texts:
            frame.insert(place, name, list(entries))
        return frame

    def describe(self) -> str:
        if self.is_series:
            return f"series[{self.n_rows}]"
        return f"frame[{self.n_rows}, {len(self.columns)}]"


def build_table_node(value: Value, pieces: list[npt.NDArray[np.float64]], path: str) -> TableNode:
    """Measure the cells of a frame or series, column by column; texts are as an index is."""
    table = _read_table(value, path)
    columns, texts = [], []
    for place, (_, column) in enumerate(data_table_columns(table)):
        if column.dtype.is_numeric() or column.dtype == nw.Boolean:
            columns.append(column)
            pieces.append(column.to_numpy().astype(np.float64))
        elif isinstance(table, nw.DataFrame) and _is_text(column):
            entries = tuple(None if x is None or x != x else str(x) for x in column.to_list())
            texts.append((place, column.name, entries))
        else:
            raise MechanismError(
                f"{path} must hold real numbers, beside texts that name its rows; got a column of "
                f"type {column.dtype}. Return labels as scores or one-hot, dates as texts."
            )
    if texts and not columns:
        raise MechanismError(f"{path} must hold real numbers; got texts alone. Return counts.")
    library = table.implementation.name.lower()
    index = value.index if library == "pandas" else None
    return TableNode(
        library=library,
        is_series=isinstance(table, nw.Series),
        columns=tuple(column.name for column in columns),
        n_rows=len(table),
        index=None if index is None else tuple(index.tolist()),
        index_names=() if index is None else tuple(index.names),
        texts=tuple(texts),
    )


def _is_text(column: Any) -> bool:
    if column.dtype in (nw.String, nw.Categorical, nw.Enum):
        return True
    return column.dtype == nw.Object and all(isinstance(x, str) for x in column.to_list())


def _read_table(value: Value, path: str) -> Any:
    try:
        table = read_data_table(value)
    except Exception as error:
        raise MechanismError(
            f"{path} must be a frame with distinct column names; got one that cannot be read "
            f"({type(error).__name__}). Return arrays instead."
        ) from error
    if table.implementation.name not in ("PANDAS", "POLARS"):
        raise MechanismError(
            f"{path} must be a frame or series of pandas or polars; got one of "
            f"{table.implementation.name.lower()}. Return arrays instead."
        )
    return table


def _namespace(library: str) -> Any:
    # pandas and polars are optional: this is reached only by those who returned a frame.
    return nw.Implementation[library.upper()].to_native_namespace()


# --- what the numbers are called, and what belongs together ------------------------------------


def _names(node: Node, path: str, columns: tuple[str, ...] = ()) -> Iterator[str]:
    """Name the numbers below a node; the last axis of an array has the names of ``columns``."""
    if isinstance(node, ArrayNode):
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
    elif isinstance(node, ArrayNode):
        yield node.size
    else:
        for _, child in node.children:
            yield from _sizes(child)
