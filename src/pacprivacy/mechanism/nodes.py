"""The pieces a structure is made of: leaves that are measured, static leaves, containers.

A node restores its value from numbers alone; whatever else it needs was the same for every
subset. Fields marked ``compare=False`` are cosmetic and taken from the first subset. The *type* of
a value says what JSON does not know: arrays, tuples, other keys, frames with their labels; never a
number that was measured (claim M-1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, namedtuple
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Array
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import Value, data_table_columns, is_data_table, read_data_table


class NodeReader:
    """Hands out a vector from front to back."""

    __slots__ = ("_position", "_vector")

    def __init__(self, vector: npt.NDArray[np.float64]) -> None:
        self._vector = vector
        self._position = 0

    def take(self, size: int) -> npt.NDArray[np.float64]:
        """Return a copy of the next ``size`` numbers."""
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
        """How many measured numbers belong to this place."""
        return sum(node.size for _, node in self.children)

    @abstractmethod
    def restore(self, reader: NodeReader) -> Value:
        """Build the value from the next ``size`` numbers."""

    @abstractmethod
    def describe(self) -> str:
        """Return a short public text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode(Node):
    """One measured number. Integers and booleans come back as floats."""

    size = 1
    dtype: str
    python: bool = field(compare=False)

    def restore(self, reader: NodeReader) -> Value:
        """Return a float of the original precision."""
        value = reader.take(1)[0]
        return float(value) if self.python else np.dtype(self.dtype).type(value)

    def describe(self) -> str:
        """Return a short public text."""
        return "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayNode(Node):
    """A measured array of floats."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape, dtype=np.int64))

    def restore(self, reader: NodeReader) -> Array:
        """Return an array of the original shape and precision."""
        return reader.take(self.size).reshape(self.shape).astype(self.dtype)

    def describe(self) -> str:
        """Return a short public text."""
        return f"array{list(self.shape)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticNode(Node):
    """A value that is not measured and so must be the same for every subset."""

    size = 0
    value: Value
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def restore(self, reader: NodeReader) -> Value:
        """Return the value."""
        if self.dtype is None or self.shape is None:
            return self.value
        result = np.empty(len(self.value), dtype=self.dtype)
        result[:] = self.value
        return result.reshape(self.shape)

    def describe(self) -> str:
        """Return a short public text."""
        return "fixed"


def static_node_array(array: Array) -> StaticNode:
    """Return a static leaf for an array of labels."""
    dtype = "O" if array.dtype.kind in "OT" else array.dtype.str
    return StaticNode(value=tuple(array.ravel().tolist()), dtype=dtype, shape=array.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceNode(Node):
    """A tuple, a list or a named tuple."""

    kind: type
    nodes: tuple[Node, ...]

    @property
    def children(self) -> tuple[tuple[str, Node], ...]:
        """The items, labelled by position or field name."""
        names: Sequence[str] = getattr(self.kind, "_fields", ())
        labels = [f".{name}" for name in names] or [f"[{i}]" for i in range(len(self.nodes))]
        return tuple(zip(labels, self.nodes, strict=True))

    def restore(self, reader: NodeReader) -> Value:
        """Return the same kind of sequence."""
        items = [node.restore(reader) for node in self.nodes]
        return self.kind(*items) if hasattr(self.kind, "_fields") else self.kind(items)

    def describe(self) -> str:
        """Return a short public text."""
        return f"{self.kind.__name__}({', '.join(node.describe() for node in self.nodes)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode(Node):
    """A dictionary ordered by :func:`sort_node_keys`: insertion may follow the data."""

    kind: type
    keys: tuple[Any, ...]
    nodes: tuple[Node, ...]

    @property
    def children(self) -> tuple[tuple[str, Node], ...]:
        """The entries, labelled by key."""
        labels = [f"[{key!r}]" for key in self.keys]
        return tuple(zip(labels, self.nodes, strict=True))

    def restore(self, reader: NodeReader) -> Value:
        """Return the same kind of dictionary, with sorted keys."""
        return self.kind(
            (key, node.restore(reader)) for key, node in zip(self.keys, self.nodes, strict=True)
        )

    def describe(self) -> str:
        """Return a short public text."""
        inner = ", ".join(f"{label[1:-1]}: {node.describe()}" for label, node in self.children)
        return f"{self.kind.__name__}({inner})"


def sort_node_keys(keys: Iterable[Any]) -> tuple[Any, ...]:
    """Return keys in the one order in which they are released, whoever inserted them how."""
    return tuple(sorted(keys, key=lambda key: (type(key).__name__, repr(key))))


def node_difference(first: Node, second: Node, path: str = "value") -> str | None:
    """Return the place where two structures part, or None if they are equal."""
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
        """What rows are called: by the index, else by the texts, else by numbers."""
        plain = self.index is None or self.index == tuple(range(self.n_rows))
        if plain and self.texts:
            columns = [entries for _, _, entries in self.texts]
            return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return range(self.n_rows) if self.index is None else self.index

    @property
    def size(self) -> int:
        """Number of cells that are measured."""
        return self.n_rows * len(self.columns)

    def restore(self, reader: NodeReader) -> Value:
        """Return a frame or series of float64 in the same library."""
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
        """Return a short public text."""
        if self.is_series:
            return f"series[{self.n_rows}]"
        return f"frame[{self.n_rows}, {len(self.columns)}]"


def build_table_node(value: Value, pieces: list[npt.NDArray[np.float64]], path: str) -> TableNode:
    """Measure the cells of a frame or series, column by column; texts are as an index is."""
    table = _read(value, path)
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


def _read(value: Value, path: str) -> Any:
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


def node_type(value: Value) -> Any:
    """Return what JSON does not say about a value, as JSON types; None if there is nothing."""
    if isinstance(value, np.ndarray):
        kind = "O" if value.dtype.kind in "OT" else value.dtype.str
        return {"array": kind} if value.size else {"array": kind, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return {"number": value.dtype.str}
    if isinstance(value, Mapping):
        return _type_of_mapping(value)
    if isinstance(value, tuple | list):
        items = [node_type(item) for item in value]
        if isinstance(value, list):
            return {"list": items} if any(items) else None
        fields = list(getattr(value, "_fields", ()))
        return {"tuple": items} | (
            {"name": type(value).__name__, "fields": fields} if fields else {}
        )
    if hasattr(value, "get_params"):
        parts = getattr(value, "steps", None) or vars(value).items()
        kinds = {k: node_type(v) for k, v in parts if hasattr(value, "steps") or k.endswith("_")}
        return {"estimator": {name: item for name, item in kinds.items() if item is not None}}
    if is_data_table(value):
        node = build_table_node(value, [], "value")
        return {
            "table": node.library,
            "series": node.is_series,
            "n_rows": node.n_rows,
            "columns": [_label(column) for column in node.columns],
            "index": None if node.index is None else [_label(row) for row in node.index],
            "index_names": [_label(name) for name in node.index_names],
        } | (
            {"texts": [[place, _label(name), list(e)] for place, name, e in node.texts]}
            if node.texts
            else {}
        )
    return None


def _type_of_mapping(value: Mapping[Any, Any]) -> Any:
    items = {str(key): node_type(item) for key, item in value.items()}
    items = {key: item for key, item in items.items() if item is not None}
    keys = {str(key): _label(key) for key in value if not isinstance(key, str)}
    ordered = isinstance(value, OrderedDict)
    if not (items or keys or ordered):
        return None
    return (
        {"dict": items} | ({"keys": keys} if keys else {}) | ({"ordered": True} if ordered else {})
    )


def _label(key: Any) -> Any:
    """Return a label as JSON types; tuples and moments say what they are."""
    if isinstance(key, tuple):
        return {"tuple": [_label(part) for part in key]}
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, date):
        return {"time": key.isoformat()}
    return key if key is None or isinstance(key, str | int | float) else str(key)


def _read_label(plain: Any) -> Any:
    if isinstance(plain, dict):
        if "time" in plain:
            return datetime.fromisoformat(plain["time"])
        return tuple(_read_label(part) for part in plain["tuple"])
    return plain


def node_value(plain: Any, kind: Any, *, floats: bool = False) -> Any:
    """Return a value from a file as it was released; ``floats`` leaves all numbers floats."""
    if kind is None or plain is None:
        return plain
    if "array" in kind or "number" in kind:
        dtype = np.dtype(kind.get("array") or kind["number"])
        if floats and dtype.kind in "iub":
            dtype = np.dtype(np.float64)
        if "number" in kind:
            return dtype.type(plain)
        return np.array(plain, dtype=dtype).reshape(kind.get("shape") or np.shape(plain))
    if "table" in kind:
        return _table(plain, kind)
    if "list" in kind or "tuple" in kind:
        kinds = kind.get("list") or kind["tuple"]
        items = [node_value(p, k, floats=floats) for p, k in zip(plain, kinds, strict=True)]
        if "fields" in kind:
            return namedtuple(kind["name"], kind["fields"])(*items)
        return items if "list" in kind else tuple(items)
    if "estimator" in kind:
        inner = next((name for name in ("attributes", "steps") if name in plain), None)
        if "estimator" in plain and inner is not None:
            return {**plain, inner: node_value(plain[inner], kind, floats=floats)}
    kinds, keys = kind.get("dict") or kind.get("estimator") or {}, kind.get("keys", {})
    mapping = OrderedDict if kind.get("ordered") else dict
    members = {
        _read_label(keys.get(k, k)): node_value(item, kinds.get(k), floats=floats)
        for k, item in plain.items()
    }
    return mapping((key, members[key]) for key in sort_node_keys(members))


def _table(plain: Any, kind: Any) -> Any:
    index = kind["index"]
    node = TableNode(
        library={"pandas": "pandas", "polars": "polars"}[kind["table"]],
        is_series=kind["series"],
        columns=tuple(_read_label(column) for column in kind["columns"]),
        n_rows=kind["n_rows"],
        index=None if index is None else tuple(_read_label(row) for row in index),
        index_names=tuple(_read_label(name) for name in kind["index_names"]),
        texts=tuple((i, _read_label(name), tuple(e)) for i, name, e in kind.get("texts", ())),
    )
    places = {place for place, _, _ in node.texts}
    if places and not node.is_series:
        plain = [[cell for i, cell in enumerate(row) if i not in places] for row in plain]
    cells = np.array(plain, dtype=np.float64).reshape(node.n_rows, -1).T.ravel()
    try:
        return node.restore(NodeReader(cells))
    except ImportError:
        return plain
