"""Converts nested values to vectors of floats and back, and their types to JSON.

Everything that can leave is either in the vector, which gets noise, or in the structure, which
must be the same for every subset and so tells nothing about the secret (claim M-1). A structure is
a tree of nodes: leaves that are measured, static leaves, containers. A node restores its value from
numbers alone; fields marked ``compare=False`` are cosmetic and taken from the first subset.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
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
    """Layout of a value as a vector; public, and equal for all subsets of a pool."""

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
        return _difference(self.root, other.root)


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
    are static. Values that cannot be measured are refused, with their place.
    """
    pieces: list[Vector] = []
    root = build_node(value, pieces, "value")
    vector = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.float64)
    return vector, Structure(root=root, size=vector.size)


def build_node(value: Value, pieces: list[Vector], path: str) -> Node:
    """Append the numbers of a value to ``pieces``; return the structure around them."""
    if value is None or isinstance(value, str | bytes):
        return StaticNode(value=str(value) if isinstance(value, np.str_) else value)
    if isinstance(value, bool | int | float | np.generic | np.ndarray):
        return _build_array(value, pieces, path)
    if isinstance(value, dict):
        return _build_mapping(value, pieces, path)
    if isinstance(value, tuple | list):
        nodes = tuple(build_node(item, pieces, f"{path}[{i}]") for i, item in enumerate(value))
        named = isinstance(value, tuple) and hasattr(value, "_fields")
        kind = type(value) if named else (tuple if isinstance(value, tuple) else list)
        return ContainerNode(kind=kind, nodes=nodes)
    for is_one, build in _BUILDERS:
        if is_one(value):
            return build(value, pieces, path)
    if is_data_table(value):
        return _build_table(value, pieces, path)
    if hasattr(value, "__array__") and not isinstance(value, type):
        return _build_array(np.asarray(value), pieces, path)
    raise MechanismError(
        f"{path} must be a number, an array, a frame, a fitted estimator, or a dict, tuple or "
        f"list of those; got {type(value).__name__}. Return its numbers as arrays."
    )


def _build_array(value: Value, pieces: list[Vector], path: str) -> Node:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise MechanismError(
            f"{path} must have no masked entries; got a masked array. Fill them: whether an "
            "entry is missing would leave without noise."
        )
    python = not isinstance(value, np.generic | np.ndarray)
    try:
        array = np.asarray(float(value) if python else value)
    except OverflowError as error:
        raise MechanismError(
            f"{path} must fit a float; got an integer that is too large. Return its logarithm."
        ) from error
    kind = array.dtype.kind
    if kind not in "biuf":
        advice = "Return an array of numbers."
        if kind in "UST":
            advice = "Return scores, counts or a one-hot encoding of the labels instead."
        elif kind == "c":
            advice = "Return the real and the imaginary part."
        raise MechanismError(f"{path} must hold real numbers; got dtype {array.dtype}. {advice}")
    pieces.append(array.astype(np.float64).ravel())
    dtype = array.dtype.newbyteorder("=") if kind == "f" else np.dtype(np.float64)
    is_number = not isinstance(value, np.ndarray)
    return ArrayNode(shape=array.shape, dtype=dtype.str, is_number=is_number, is_python=python)


def _build_mapping(value: dict[Any, Value], pieces: list[Vector], path: str) -> Node:
    for key in value:
        members = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(member, _KEY_TYPES) for member in members):
            raise MechanismError(
                f"{path} must have plain keys (strings, numbers); got {type(key).__name__}. "
                "Use strings as keys."
            )
    keys = _sorted_keys(value)
    nodes = tuple(build_node(value[key], pieces, f"{path}[{key!r}]") for key in keys)
    kind = OrderedDict if isinstance(value, OrderedDict) else dict
    return ContainerNode(kind=kind, keys=keys, nodes=nodes)


def _sorted_keys(keys: Iterable[Any]) -> tuple[Any, ...]:
    """Return keys in an order that does not depend on insertion, which may follow the data."""
    return tuple(sorted(keys, key=lambda key: (type(key).__name__, repr(key))))


def _build_table(value: Value, pieces: list[Vector], path: str) -> TableNode:
    try:
        table = read_data_table(value)
    except Exception as error:
        raise MechanismError(
            f"{path} must be a frame with distinct column names; got one that cannot be read "
            f"({type(error).__name__}). Return arrays instead."
        ) from error
    library = table.implementation.name.lower()
    if library not in ("pandas", "polars"):
        raise MechanismError(
            f"{path} must be a frame or series of pandas or polars; got one of {library}. "
            "Return arrays instead."
        )
    columns, texts = [], []
    for place, (_, column) in enumerate(data_table_columns(table)):
        entries = column.to_list() if column.dtype == nw.Object else [""]
        text = column.dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object)
        if column.dtype.is_numeric() or column.dtype == nw.Boolean:
            columns.append(column)
            pieces.append(column.to_numpy().astype(np.float64))
        elif isinstance(table, nw.DataFrame) and text and all(isinstance(x, str) for x in entries):
            entries = [None if x is None or x != x else str(x) for x in column.to_list()]
            texts.append((place, column.name, tuple(entries)))
        else:
            raise MechanismError(
                f"{path} must hold real numbers, beside texts that name its rows; got a column of "
                f"type {column.dtype}. Return labels as scores or one-hot, dates as texts."
            )
    if texts and not columns:
        raise MechanismError(f"{path} must hold real numbers; got texts alone. Return counts.")
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


# --- nodes -------------------------------------------------------------------------------------


class NodeReader:
    """Hands out a vector from front to back."""

    def __init__(self, vector: Vector) -> None:
        self._vector, self._position = vector, 0

    def take(self, size: int) -> Vector:
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

    @classmethod
    def of(cls, array: Array) -> StaticNode:
        dtype = "O" if array.dtype.kind in "OT" else array.dtype.str
        return cls(value=tuple(array.ravel().tolist()), dtype=dtype, shape=array.shape)

    def restore(self, reader: NodeReader) -> Value:
        if self.dtype is None or self.shape is None:
            return self.value
        result = np.empty(len(self.value), dtype=self.dtype)
        result[:] = self.value
        return result.reshape(self.shape)

    def describe(self) -> str:
        return "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerNode(Node):
    """A dictionary with its keys in a fixed order; without keys a tuple or a list."""

    kind: type
    nodes: tuple[Node, ...]
    keys: tuple[Any, ...] | None = None

    @property
    def children(self) -> tuple[tuple[str, Node], ...]:
        fields: Sequence[str] = getattr(self.kind, "_fields", ())
        labels = [f".{name}" for name in fields]
        if not labels:
            keys = range(len(self.nodes)) if self.keys is None else self.keys
            labels = [f"[{key!r}]" for key in keys]
        return tuple(zip(labels, self.nodes, strict=True))

    def restore(self, reader: NodeReader) -> Value:
        items = [node.restore(reader) for node in self.nodes]
        if self.keys is not None:
            return self.kind(zip(self.keys, items, strict=True))
        return self.kind(*items) if hasattr(self.kind, "_fields") else self.kind(items)

    def describe(self) -> str:
        texts = [node.describe() for node in self.nodes]
        if self.keys is not None:
            texts = [f"{key!r}: {text}" for key, text in zip(self.keys, texts, strict=True)]
        return f"{self.kind.__name__}({', '.join(texts)})"

    def as_record(self) -> Node:
        return replace(self, nodes=tuple(node.as_record() for node in self.nodes))


def _difference(first: Node, second: Node, path: str = "value") -> str | None:
    if first == second:
        return None
    labels = [label for label, _ in first.children]
    if type(first) is type(second) and labels == [label for label, _ in second.children]:
        for (label, mine), (_, other) in zip(first.children, second.children, strict=True):
            difference = _difference(mine, other, path + label)
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
        # pandas and polars are optional: this is reached only by those who returned a frame.
        module = nw.Implementation[self.library.upper()].to_native_namespace()
        if self.library == "pandas":
            labels, names = list(self.index or ()), self.index_names
            if len(names) > 1:
                index = module.MultiIndex.from_tuples(labels, names=list(names))
            else:
                index = module.Index(labels, name=names[0])
            if self.is_series:
                return module.Series(cells[0], index=index, name=self.columns[0])
            frame = module.DataFrame(cells.T, index=index, columns=list(self.columns))
            for place, name, entries in self.texts:
                frame.insert(place, name, list(entries))
            return frame
        if self.is_series:
            return module.Series(self.columns[0], cells[0])
        columns: list[tuple[Any, Any]] = list(zip(self.columns, cells, strict=True))
        for place, name, entries in self.texts:
            columns.insert(place, (name, list(entries)))
        return module.DataFrame(dict(columns))

    def describe(self) -> str:
        if self.is_series:
            return f"series[{self.n_rows}]"
        return f"frame[{self.n_rows}, {len(self.columns)}]"


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
    elif isinstance(node, ContainerNode) and node.keys is not None:
        listed = dict(zip(node.keys, node.nodes, strict=True)).get("columns")
        if isinstance(listed, ContainerNode) and listed.keys is None:
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


# --- types that JSON cannot express ------------------------------------------------------------
#
# Arrays, tuples, other keys, frames with their labels; never a number that was measured (M-1).


def node_type(value: Value) -> Any:
    """Return the type information that JSON lacks, as JSON; None if it lacks nothing."""
    if isinstance(value, np.ndarray):
        kind = "O" if value.dtype.kind in "OT" else value.dtype.str
        return {"array": kind} if value.size else {"array": kind, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return {"number": value.dtype.str}
    if isinstance(value, Mapping):
        items = {str(key): kind for key, item in value.items() if (kind := node_type(item))}
        plain: dict[str, Any] = {"dict": items}
        if keys := {str(key): _plain_key(key) for key in value if not isinstance(key, str)}:
            plain["keys"] = keys
        if isinstance(value, OrderedDict):
            plain["ordered"] = True
        return plain if items or len(plain) > 1 else None
    if isinstance(value, tuple | list):
        kinds = [node_type(item) for item in value]
        if isinstance(value, list):
            return {"list": kinds} if any(kinds) else None
        fields = list(getattr(value, "_fields", ()))
        named = {"name": type(value).__name__, "fields": fields} if fields else {}
        return {"tuple": kinds, **named}
    if hasattr(value, "get_params"):
        parts = getattr(value, "steps", None) or vars(value).items()
        known = (pair for pair in parts if hasattr(value, "steps") or pair[0].endswith("_"))
        return {"estimator": {name: kind for name, v in known if (kind := node_type(v))}}
    if is_data_table(value):
        node = _build_table(value, [], "value")
        texts = [[place, _plain_key(name), list(e)] for place, name, e in node.texts]
        return {
            "table": node.library,
            "series": node.is_series,
            "n_rows": node.n_rows,
            "columns": list(map(_plain_key, node.columns)),
            "index": None if node.index is None else list(map(_plain_key, node.index)),
            "index_names": list(map(_plain_key, node.index_names)),
        } | ({"texts": texts} if texts else {})
    return None


def _plain_key(key: Any) -> Any:
    """Return a label as JSON; tuples and times carry their type."""
    if isinstance(key, tuple):
        return {"tuple": [_plain_key(part) for part in key]}
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, date):
        return {"time": key.isoformat()}
    return key if key is None or isinstance(key, str | int | float) else str(key)


def _read_key(plain: Any) -> Any:
    if isinstance(plain, dict):
        if "time" in plain:
            return datetime.fromisoformat(plain["time"])
        return tuple(_read_key(part) for part in plain["tuple"])
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
        return _restore_table(plain, kind)
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
    members = {
        _read_key(keys.get(k, k)): node_value(item, kinds.get(k), floats=floats)
        for k, item in plain.items()
    }
    mapping = OrderedDict if kind.get("ordered") else dict
    return mapping((key, members[key]) for key in _sorted_keys(members))


def _restore_table(plain: Any, kind: Any) -> Any:
    index = kind["index"]
    node = TableNode(
        library={"pandas": "pandas", "polars": "polars"}[kind["table"]],
        is_series=kind["series"],
        columns=tuple(map(_read_key, kind["columns"])),
        n_rows=kind["n_rows"],
        index=None if index is None else tuple(map(_read_key, index)),
        index_names=tuple(map(_read_key, kind["index_names"])),
        texts=tuple((i, _read_key(name), tuple(e)) for i, name, e in kind.get("texts", ())),
    )
    places = {place for place, _, _ in node.texts}
    if places and not node.is_series:
        plain = [[cell for i, cell in enumerate(row) if i not in places] for row in plain]
    cells = np.array(plain, dtype=np.float64).reshape(node.n_rows, -1).T.ravel()
    try:
        return node.restore(NodeReader(cells))
    except ImportError:
        return plain


def plain_value(value: Any) -> Any:
    """Turn a released value into JSON types: lists, numbers, text, dictionaries."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    if hasattr(value, "steps") and hasattr(value, "get_params"):
        return {"estimator": "Pipeline", "steps": {n: plain_value(step) for n, step in value.steps}}
    if hasattr(value, "get_params"):
        fitted = {k: plain_value(v) for k, v in vars(value).items() if k.endswith("_")}
        return {"estimator": type(value).__name__, "attributes": fitted}
    return np.asarray(value).tolist()
