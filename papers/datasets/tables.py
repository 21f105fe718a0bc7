"""Read delimited text and ARFF into arrays with integer-coded categories, without pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from papers.datasets.store import read_file

__all__ = ["Table", "parse_rows", "read_arff", "split_classes", "split_header", "split_target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A parsed table: one float64 column per name, category codes where ``levels`` says so."""

    names: tuple[str, ...]
    values: npt.NDArray[np.float64]
    levels: Mapping[str, tuple[str, ...]]


class _Coder:
    """Numbers the strings of one column in the order in which they are met."""

    __slots__ = ("codes", "edge")

    def __init__(self, edge: str) -> None:
        self.codes: dict[str, int] = {}
        self.edge = edge

    def __call__(self, text: str) -> float:
        return float(self.codes.setdefault(text.strip(self.edge), len(self.codes)))


def parse_rows(
    parts: Sequence[bytes],
    *,
    names: Sequence[str],
    categorical: Sequence[str] = (),
    stopped: Sequence[str] = (),
    delimiter: str = ",",
) -> tuple[Table, ...]:
    """Parse several bodies of text with the same columns, coding categories alike in all.

    Categories are sorted, so that codes depend neither on the order of the rows nor on which
    split a category was met in first. Spaces around a category are dropped, and in the columns
    ``stopped`` (the labels of Adult's test split and of KDD 1999) the full stop after it too.
    """
    coders = {names.index(name): _Coder(" ." if name in stopped else " ") for name in categorical}
    converters: dict[int | str, Callable[[str], float]] = dict(coders.items())
    arrays = [
        np.loadtxt(
            io.TextIOWrapper(io.BytesIO(part), encoding="utf-8"),
            delimiter=delimiter,
            comments=None,
            quotechar='"',
            converters=converters,
            encoding="utf-8",
            ndmin=2,
        )
        for part in parts
    ]
    levels: dict[str, tuple[str, ...]] = {}
    for column, coder in coders.items():
        ordered = sorted(coder.codes)
        rank = np.empty(len(ordered))
        rank[[coder.codes[level] for level in ordered]] = np.arange(len(ordered))
        for array in arrays:
            array[:, column] = rank[array[:, column].astype(np.intp)]
        levels[names[column]] = tuple(ordered)
    return tuple(Table(names=tuple(names), values=array, levels=levels) for array in arrays)


def split_header(name: str, *, delimiter: str = ",") -> tuple[tuple[str, ...], bytes]:
    """Return the column names in the first line of a data file, and the text below it."""
    header, _, body = read_file(name).partition(b"\n")
    return tuple(next(csv.reader([header.decode().strip()], delimiter=delimiter))), body


def read_arff(name: str) -> Table:
    """Read an ARFF data file; attributes declared as ``{a, b, ...}`` become categories."""
    head, _, body = read_file(name).partition(b"@DATA")
    columns: list[str] = []
    categorical: list[str] = []
    for line in head.decode().splitlines():
        if line.upper().startswith("@ATTRIBUTE"):
            _, column, kind = line.split(maxsplit=2)
            columns.append(column)
            if kind.startswith("{"):
                categorical.append(column)
    (table,) = parse_rows([body.lstrip()], names=columns, categorical=categorical)
    return table


def split_target(
    table: Table, target: str, *, drop: Sequence[str] = ()
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], tuple[str, ...]]:
    """Return the features, the target column and the features' names."""
    kept = [i for i, name in enumerate(table.names) if name != target and name not in drop]
    y = table.values[:, table.names.index(target)].copy()
    return table.values[:, kept], y, tuple(table.names[i] for i in kept)


def split_classes(
    table: Table, target: str, *, drop: Sequence[str] = ()
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], tuple[str, ...]]:
    """Like :func:`split_target`, with the target as integer class codes."""
    X, y, names = split_target(table, target, drop=drop)
    return X, y.astype(np.int64), names
