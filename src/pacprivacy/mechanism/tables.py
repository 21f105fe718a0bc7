"""Frames and series as outputs: the numbers are measured, the labels must never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import read_table, table_columns
from pacprivacy.mechanism.nodes import Node, Reader

__all__ = ["TableNode", "build_table"]


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
        polars = _namespace(self.library)
        if self.is_series:
            return polars.Series(self.columns[0], cells[0])
        return polars.DataFrame(dict(zip(self.columns, cells, strict=True)))

    def _restore_pandas(self, cells: npt.NDArray[np.float64]) -> Any:
        pandas = _namespace(self.library)
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


def build_table(value: Any, pieces: list[npt.NDArray[np.float64]], path: str) -> TableNode:
    """Measure the cells of a frame or series, column by column."""
    table = _read(value, path)
    columns = [column for _, column in table_columns(table)]
    for column in columns:
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
            raise MechanismError(
                f"{path} must hold real numbers; got a column of type {column.dtype}. "
                "Return only numeric columns; labels as scores or one-hot."
            )
        pieces.append(column.to_numpy().astype(np.float64))
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


def _read(value: Any, path: str) -> Any:
    try:
        table = read_table(value)
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


def _index_of(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(value.index.tolist()), tuple(value.index.names)


def _namespace(library: str) -> Any:
    # pandas and polars are optional: this is reached only by those who returned a frame.
    return nw.Implementation[library.upper()].to_native_namespace()
