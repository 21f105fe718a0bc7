"""Types of values that JSON cannot express, to restore values from files.

Arrays, tuples, other keys, frames with their labels; never a number that was measured (claim M-1).
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np

from pacprivacy.mechanism.columns import is_data_table
from pacprivacy.mechanism.data import Value
from pacprivacy.mechanism.structure import (
    NodeReader,
    TableNode,
    build_table_node,
    sort_node_keys,
)


def node_type(value: Value) -> Any:
    """Return the type information that JSON lacks, as JSON; None if it lacks nothing."""
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
            "columns": [_plain_key(column) for column in node.columns],
            "index": None if node.index is None else [_plain_key(row) for row in node.index],
            "index_names": [_plain_key(name) for name in node.index_names],
        } | (
            {"texts": [[place, _plain_key(name), list(e)] for place, name, e in node.texts]}
            if node.texts
            else {}
        )
    return None


def _type_of_mapping(value: Mapping[Any, Any]) -> Any:
    items = {str(key): node_type(item) for key, item in value.items()}
    items = {key: item for key, item in items.items() if item is not None}
    keys = {str(key): _plain_key(key) for key in value if not isinstance(key, str)}
    ordered = isinstance(value, OrderedDict)
    if not (items or keys or ordered):
        return None
    return (
        {"dict": items} | ({"keys": keys} if keys else {}) | ({"ordered": True} if ordered else {})
    )


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
    mapping = OrderedDict if kind.get("ordered") else dict
    members = {
        _read_key(keys.get(k, k)): node_value(item, kinds.get(k), floats=floats)
        for k, item in plain.items()
    }
    return mapping((key, members[key]) for key in sort_node_keys(members))


def _restore_table(plain: Any, kind: Any) -> Any:
    index = kind["index"]
    node = TableNode(
        library={"pandas": "pandas", "polars": "polars"}[kind["table"]],
        is_series=kind["series"],
        columns=tuple(_read_key(column) for column in kind["columns"]),
        n_rows=kind["n_rows"],
        index=None if index is None else tuple(_read_key(row) for row in index),
        index_names=tuple(_read_key(name) for name in kind["index_names"]),
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
