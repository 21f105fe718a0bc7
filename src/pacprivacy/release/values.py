"""What a released value was made of, beside its JSON form, so that a file gives it back.

JSON knows lists, texts, numbers and dictionaries with texts as keys. The *types* of a value say
what else there was: arrays, tuples, other keys, frames with their labels. They hold what is the
same for every candidate (claim M-1), never a number that was measured.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np

from pacprivacy.mechanism import Reader, TableNode, build_table, is_table


def type_of(value: Any) -> Any:
    """Return what JSON does not say about a value, as JSON types; None if there is nothing."""
    if isinstance(value, np.ndarray):
        kind = "O" if value.dtype.kind in "OT" else value.dtype.str
        return {"array": kind} if value.size else {"array": kind, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return {"number": value.dtype.str}
    if isinstance(value, Mapping):
        return _type_of_mapping(value)
    if isinstance(value, tuple | list):
        items = [type_of(item) for item in value]
        if isinstance(value, list):
            return {"list": items} if any(items) else None
        fields = list(getattr(value, "_fields", ()))
        return {"tuple": items} | (
            {"name": type(value).__name__, "fields": fields} if fields else {}
        )
    if hasattr(value, "get_params"):
        parts = getattr(value, "steps", None) or vars(value).items()
        found = {k: type_of(v) for k, v in parts if hasattr(value, "steps") or k.endswith("_")}
        return {"estimator": {name: item for name, item in found.items() if item is not None}}
    if is_table(value):
        node = build_table(value, [], "value")
        return {
            "table": node.library,
            "series": node.is_series,
            "n_rows": node.n_rows,
            "columns": [_label(column) for column in node.columns],
            "index": None if node.index is None else [_label(row) for row in node.index],
            "index_names": [_label(name) for name in node.index_names],
        }
    return None


def _type_of_mapping(value: Mapping[Any, Any]) -> Any:
    items = {str(key): type_of(item) for key, item in value.items()}
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


def with_type(plain: Any, kind: Any, *, floats: bool = False) -> Any:
    """Return a value from a file as it was released; ``floats`` leaves all numbers floats.

    An estimator is a dictionary of its attributes. A frame whose library is not installed stays a
    list.
    """
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
        items = [with_type(p, k, floats=floats) for p, k in zip(plain, kinds, strict=True)]
        if "fields" in kind:
            return namedtuple(kind["name"], kind["fields"])(*items)
        return items if "list" in kind else tuple(items)
    if "estimator" in kind:
        inner = next((name for name in ("attributes", "steps") if name in plain), None)
        if "estimator" in plain and inner is not None:
            return {**plain, inner: with_type(plain[inner], kind, floats=floats)}
    kinds, keys = kind.get("dict") or kind.get("estimator") or {}, kind.get("keys", {})
    made = OrderedDict if kind.get("ordered") else dict
    return made(
        (_read_label(keys.get(k, k)), with_type(item, kinds.get(k), floats=floats))
        for k, item in plain.items()
    )


def _table(plain: Any, kind: Any) -> Any:
    index = kind["index"]
    node = TableNode(
        library={"pandas": "pandas", "polars": "polars"}[kind["table"]],
        is_series=kind["series"],
        columns=tuple(_read_label(column) for column in kind["columns"]),
        n_rows=kind["n_rows"],
        index=None if index is None else tuple(_read_label(row) for row in index),
        index_names=tuple(_read_label(name) for name in kind["index_names"]),
    )
    cells = np.array(plain, dtype=np.float64).reshape(node.n_rows, -1).T.ravel()
    try:
        return node.restore(Reader(cells))
    except ImportError:
        return plain
