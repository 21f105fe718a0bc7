"""Frames and series as outputs: the numbers are measured, the labels must never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import is_table, table_column
from pacprivacy.mechanism.nodes import Node, Reader

__all__ = ["TableNode", "build_table", "is_output_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNode:
    """A frame (or a series) of numbers with fixed column names and a fixed index."""

    library: str
    is_series: bool
    columns: tuple[Any, ...]
    n_rows: int
    index: tuple[Any, ...] | None
    index_names: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.n_rows * len(self.columns)

    @property
    def children(self) -> tuple[tuple[str, Node], ...]:
        """None."""
        return ()

    def restore(self, reader: Reader) -> Any:
        """Return a frame or series of float64 in the same library."""
        cells = reader.take(self.size).reshape(len(self.columns), self.n_rows)
        if self.library == "pandas":
            return self._restore_pandas(cells)
        backend: Any = _implementation(self.library)
        series = [
            nw.new_series(str(name), values, nw.Float64, backend=backend)
            for name, values in zip(self.columns, cells, strict=True)
        ]
        if self.is_series:
            return series[0].to_native()
        return nw.from_dict({s.name: s for s in series}).to_native()

    def _restore_pandas(self, cells: npt.NDArray[np.float64]) -> Any:
        pandas = _implementation(self.library).to_native_namespace()
        labels = list(self.index or ())
        if len(self.index_names) > 1:
            index = pandas.MultiIndex.from_tuples(labels, names=list(self.index_names))
        else:
            index = pandas.Index(labels, name=self.index_names[0])
        if self.is_series:
            return pandas.Series(cells[0], index=index, name=self.columns[0])
        return pandas.DataFrame(cells.T, index=index, columns=list(self.columns))

    def describe(self) -> str:
        """Return a short public text."""
        if self.is_series:
            return f"series[{self.n_rows}]"
        return f"frame[{self.n_rows}, {len(self.columns)}]"


def is_output_table(value: Any) -> bool:
    """Whether a value is a frame or series (arrays excluded)."""
    return is_table(value)


def build_table(value: Any, pieces: list[npt.NDArray[np.float64]], path: str) -> TableNode:
    """Measure the cells of a frame or series, column by column."""
    try:
        table = nw.from_native(value, eager_only=True, allow_series=True)
    except Exception as error:
        raise MechanismError(
            f"{path} must be a frame with distinct column names; got one that cannot be read "
            f"({type(error).__name__}). Return arrays instead."
        ) from error
    columns = [table] if isinstance(table, nw.Series) else [table[name] for name in table.columns]
    for column in columns:
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
            raise MechanismError(
                f"{path} must hold real numbers; got a column of type {column.dtype}. "
                "Return only numeric columns; labels as scores or one-hot."
            )
        pieces.append(table_column(column).astype(np.float64))
    library = table.implementation.name.lower()
    labels, names = _index_of(value) if library == "pandas" else (None, ())
    return TableNode(
        library=library,
        is_series=isinstance(table, nw.Series),
        columns=tuple(column.name for column in columns),
        n_rows=len(table),
        index=labels,
        index_names=names,
    )


def _index_of(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(value.index.tolist()), tuple(value.index.names)


def _implementation(library: str) -> nw.Implementation:
    return nw.Implementation[library.upper()]
