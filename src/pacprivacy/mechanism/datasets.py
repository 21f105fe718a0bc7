"""Universes in files that do not fit into memory: Parquet folders and Arrow datasets.

A :class:`Dataset` is read from the front, a chunk at a time. What mechanisms see of it is a
:class:`DatasetStream`, which answers as a matrix does to the few things that sums over subsets
need: rows in order, means, spreads and extremes of columns, shifts and products; one pass each.
"""

from __future__ import annotations

import glob
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Array, Matrix, Vector, as_told
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.sample import Pool, encode_pool_labels, named_pool_units

Entries = tuple[Array, Array | None]  # of a column, and of texts the distinct ones

_BATCH_ROWS: Final = 1 << 16
_READ_BYTES: Final = 1 << 24


class Dataset:
    """A table in Parquet files, or an Arrow dataset, as a universe that is read in passes.

    Statistics and models that are sums over rows run on it in memory that does not grow with it:
    means, covariances, histograms, quantiles on a grid, ridge and logistic regression, steps of
    k-means. Any other function is handed the rows of one candidate at a time, as an array.

    Parameters
    ----------
    source : path, pattern, list of paths, or pyarrow Dataset
        Files with the same columns; in the order of their names, which is the order of the rows.
    unit : str, optional
        Column that says whose row it is. Rows of a unit must follow each other.
    columns : sequence of str or str, optional
        What mechanisms see, all of numbers; by default every column but ``unit``. A single name
        gives a vector. ``dataset["income"]`` and ``dataset[["age", "income"]]`` say it later.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import pacprivacy as pac
    >>> from pacprivacy.statistics import Mean
    >>> folder = getfixture("tmp_path")
    >>> ages = np.random.default_rng(0).normal(40, 10, size=500)
    >>> pd.DataFrame({"age": ages}).to_parquet(folder / "people.parquet")
    >>> people = pac.Dataset(folder / "*.parquet")
    >>> release = pac.privatize(Mean(), people["age"], "membership<=0.6", n_subsets=64, rng=0)
    >>> release.certificate.scheme
    'balanced-blocks'
    """

    def __init__(
        self, source: Any, *, unit: str | None = None, columns: Sequence[str] | str | None = None
    ) -> None:
        self._table = _open(source)
        self.unit, names = unit, self._table.schema.names
        self.single = isinstance(columns, str)
        if columns is None:
            self.columns = tuple(name for name in names if name != unit)
        else:
            selection: Any = columns  # also of those who do not read types
            several = isinstance(selection, Iterable) and not self.single
            self.columns = tuple(selection) if several else (selection,)
        needed = (*self.columns, *(() if unit is None else (unit,)))
        here, named = Counter(names), Counter(self.columns)
        wrong = [name for name in needed if here[name] != 1 or named[name] > 1]
        if wrong or not self.columns:
            raise DataError(
                "columns and unit must be columns of the files; got "
                f"{', '.join(map(str, wrong[:5]))!r}. There are {', '.join(names[:10])}, and each "
                "may be named once."
            )
        self._stamps = self._look()
        with _hide_arrow_words():
            self._n_rows = int(self._table.count_rows())
        if not self._n_rows:
            raise DataError("files of a Dataset must have records; got none. Export them again.")
        self._units: npt.NDArray[np.int32] | None = None
        self._stream: DatasetStream | None = None

    def __len__(self) -> int:
        return self._n_rows

    def __repr__(self) -> str:
        return f"Dataset({self._n_rows} rows, columns={list(self.columns)}, unit={self.unit!r})"

    def __getitem__(self, columns: str | list[str]) -> Dataset:
        """Return the same rows with these columns."""
        return Dataset(self._table, unit=self.unit, columns=columns)

    def first_entries(self) -> dict[str, Callable[[], Entries]]:
        """Return how to read the first rows of every column in the files, without gaps."""

        def read(name: str) -> Entries:
            column = next(self._batches([name])).column(0).drop_null()
            entries = column.to_numpy(zero_copy_only=False)
            texts = column.unique().to_numpy(zero_copy_only=False)
            return entries, texts if entries.dtype.kind == "O" else None

        times = Counter(self._table.schema.names)
        return {name: partial(read, name) for name in times if times[name] == 1}

    def units(self) -> Any:
        """Return the unit of every row, numbered in order of appearance; None without a column."""
        if self.unit is None:
            return None
        if self._units is None:
            labels = np.concatenate(
                [b.column(0).to_numpy(False) for b in self._batches([self.unit])]
            )
            self._units, _ = encode_pool_labels(labels, self._n_rows, name="unit")
            self.check_units(self._units)
        return named_pool_units(self._units, self.unit)

    def check_units(self, codes: npt.NDArray[np.integer[Any]]) -> None:
        """Refuse units whose rows do not follow each other, in order: passes could not sum them."""
        if (np.diff(codes) < 0).any():
            raise DataError(
                "rows of a unit must follow each other in a Dataset; got a unit that comes again "
                "after others. Sort the files by it."
            )

    def stream(self) -> DatasetStream:
        """Return the columns as a matrix, or as a vector, that is read in passes."""
        if self._stream is None:  # kept, because it remembers means and spreads
            shape = (self._n_rows,) if self.single else (self._n_rows, len(self.columns))
            self._stream = DatasetStream(self._chunks, shape)
        return self._stream

    def take(self, rows: npt.NDArray[np.int64]) -> Matrix:
        chunks, first = [], 0
        for chunk in self._chunks():
            start, stop = np.searchsorted(rows, (first, first + len(chunk)))
            chunks.append(chunk[rows[start:stop] - first])
            first += len(chunk)
        taken = np.concatenate(chunks)
        return taken[:, 0] if self.single else taken

    def digest(self) -> str:
        """Return a hash of names and contents of the files, and of the columns."""
        state = hashlib.blake2b(repr((self.columns, self.single, self.unit)).encode())
        if not self._stamps:  # no files of this machine
            units = self.units()
            for block in (*([] if units is None else [units]), *self._chunks()):
                state.update(np.ascontiguousarray(block).data)
        for path, *_ in self._stamps:
            with Path(path).open("rb") as file:
                while content := file.read(_READ_BYTES):
                    state.update(content)
        return state.hexdigest()

    def _look(self) -> list[tuple[str, int, int]]:
        files = [Path(path) for path in getattr(self._table, "files", ())]
        if not all(file.is_file() for file in files):
            return []
        return [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]

    def _check_unchanged(self) -> None:
        if self._look() != self._stamps:
            raise DataError(
                "files must stay as they are while a Dataset is used; at least one has changed. "
                "Open it again, with pac.Dataset(...), when nobody writes to them."
            )

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        self._check_unchanged()
        with _hide_arrow_words():
            for fragment in self._table.get_fragments():
                batches = fragment.to_batches(
                    schema=self._table.schema,
                    columns=list(columns),
                    batch_size=_BATCH_ROWS,
                    batch_readahead=2,
                    fragment_readahead=1,
                )
                yield from (batch for batch in batches if batch.num_rows)
        self._check_unchanged()
        from pyarrow import default_memory_pool  # not always needed

        default_memory_pool().release_unused()  # what comes after a pass needs the room

    def _chunks(self) -> Iterator[Matrix]:
        return (_read_batch(batch, self.columns) for batch in self._batches(self.columns))


def _open(source: Any) -> Any:
    try:
        from pyarrow import ArrowInvalid, dataset
    except ImportError:
        raise DataError(
            "pyarrow must be installed to read a Dataset; it is not. "
            "Run in a checkout: pip install '.[data]'."
        ) from None
    if isinstance(source, dataset.Dataset):
        return source
    several = isinstance(source, Iterable) and not isinstance(source, str | Path)
    paths = list(source) if several else [source]
    if hasattr(source, "columns") or not all(isinstance(path, str | Path) for path in paths):
        raise DataError(
            "source must be paths of Parquet files or a pyarrow Dataset; got "
            f"{type(source).__name__}. What is in memory needs no Dataset: pass it as it is."
        )
    files = [file for path in paths for file in _expand(str(path))]
    if not files:
        raise DataError(
            f"source must name Parquet files; got {as_told(source)}, none there. Check the path."
        )
    for file in files:
        if Path(file).exists() and not Path(file).is_file():
            raise DataError(
                f"source must name regular files; got {file[:60]!r}, a pipe or a device. "
                "Name Parquet files."
            )
    try:
        return dataset.dataset(files, format="parquet")
    except (ArrowInvalid, OSError) as error:
        raise DataError(
            f"source must be Parquet files with the same columns; got {type(error).__name__}. "
            "Look at the first of them."
        ) from error


@contextmanager
def _hide_arrow_words() -> Iterator[None]:
    """Raise errors of Arrow without its words, which may quote an entry."""
    from pyarrow import ArrowException  # not always needed

    try:
        yield
    except (ArrowException, OSError) as error:
        raise DataError(
            "files of a Dataset must be whole Parquet files with the same columns and types; got "
            f"{type(error).__name__} while reading. Look for one that was cut off, or has another "
            "type in a column, and write it again."
        ) from None


def _expand(path: str) -> list[str]:
    folder = Path(path)
    if folder.is_dir():
        return sorted(str(file) for file in folder.rglob("*.parquet"))
    return sorted(glob.glob(path, recursive=True))


def _read_batch(batch: Any, names: Sequence[str]) -> Matrix:
    """Return columns of an Arrow batch as float64; refuse text, gaps and infinite numbers."""
    block = np.empty((batch.num_rows, len(names)))
    for place, name in enumerate(names):
        block[:, place] = _numbers(batch.column(name), name)
    return block


def _numbers(column: Any, name: str) -> Vector:
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        raise MechanismError(
            f"columns must hold numbers; got {column.type} in {name!r}. Choose others: "
            "dataset[['age', 'income']]."
        )
    numbers: Vector = values.astype(np.float64, copy=False)
    if column.null_count or not np.isfinite(numbers).all():
        raise MechanismError(
            f"columns must be finite everywhere; got missing or infinite values in {name!r}. "
            "Fill them in the files, or choose other columns."
        )
    return numbers


class _Pass(threading.local):
    """How far a pass has come; every thread has its own, and none travels."""

    blocks: Iterator[Matrix] | None = None
    block: Matrix = np.empty((0, 1))
    first: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _Pass, ()


class DatasetStream:
    """A matrix or a vector of float64 whose rows come from the front and are not kept.

    ``stream[rows]`` reads rows that follow each other; earlier ones begin another pass.
    """

    __array_ufunc__ = None  # an array minus a stream is no sum over rows, and an error

    def __init__(self, chunks: Callable[[], Iterator[Matrix]], shape: tuple[int, ...]) -> None:
        self.chunks, self.shape = chunks, shape
        self._at = _Pass()
        self._moments: tuple[Vector, Vector, Vector, Vector] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def width(self) -> int:
        return 1 if self.ndim == 1 else self.shape[1]

    def reshape(self, *shape: int) -> DatasetStream:
        """Return the same numbers with two axes; no other shape can be asked for."""
        return DatasetStream(self.chunks, (len(self), self.width))

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> Matrix:
        start, stop = int(rows[0]), int(rows[-1]) + 1
        if stop - start != len(rows):
            raise MechanismError("rows of a stream must be read in order; got rows out of order.")
        at = self._at
        if start < at.first or at.blocks is None:
            at.blocks, at.block, at.first = self.chunks(), np.empty((0, self.width)), 0
        while start >= at.first + len(at.block):
            at.first += len(at.block)
            at.block = next(at.blocks)
        parts = [at.block[start - at.first : stop - at.first]]
        while stop > at.first + len(at.block):
            at.first += len(at.block)
            at.block = next(at.blocks)
            parts.append(at.block[: stop - at.first])
        block = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return block[:, 0] if self.ndim == 1 else block

    def load(self) -> Matrix:
        loaded, first = np.empty((len(self), self.width)), 0
        for block in self.chunks():
            loaded[first : first + len(block)] = block
            first += len(block)
        return loaded[:, 0] if self.ndim == 1 else loaded

    def map(self, function: Callable[[Matrix], Matrix], width: int) -> DatasetStream:
        shape = (len(self),) if self.ndim == 1 and width == 1 else (len(self), width)
        return DatasetStream(lambda: map(function, self.chunks()), shape)

    def __sub__(self, centre: Any) -> DatasetStream:
        return self.map(lambda block: block - centre, self.width)

    def __matmul__(self, matrix: Matrix) -> DatasetStream:
        return self.map(lambda block: block @ matrix, matrix.shape[1])

    def mean(self, axis: int = 0) -> Any:
        return self._moment(0)

    def std(self, axis: int = 0) -> Any:
        return self._moment(1)

    def min(self, axis: int = 0) -> Any:
        return self._moment(2)

    def max(self, axis: int = 0) -> Any:
        return self._moment(3)

    def distinct(self) -> Vector:
        return np.unique(np.concatenate([np.unique(block) for block in self.chunks()]))

    def _moment(self, which: int) -> Any:
        if self._moments is None:
            self._moments = self._measure()
        moment = self._moments[which]
        return float(moment[0]) if self.ndim == 1 else moment.copy()

    def _measure(self) -> tuple[Vector, Vector, Vector, Vector]:
        """Find means, standard deviations and extremes in one pass, pairwise by block."""
        whole = np.zeros((5, self.width))
        for block in self.chunks():
            centre = block.mean(axis=0)
            scatter = np.square(block - centre).sum(axis=0)
            counts = np.full(block.shape[1], float(len(block)))
            part = np.stack([counts, centre, scatter, block.min(axis=0), block.max(axis=0)])
            whole = _merge(whole, part)
        n, mean, scatter, low, high = whole
        return mean, np.where(low == high, 0.0, np.sqrt(scatter / n)), low, high


def _merge(one: Matrix, other: Matrix) -> Matrix:
    if not one[0].any():
        return other
    n, here, move = one[0], other[0], other[1] - one[1]
    mean = one[1] + move * (here / (n + here))
    scatter = one[2] + other[2] + np.square(move) * (n * here / (n + here))
    ends = (np.minimum(one[3], other[3]), np.maximum(one[4], other[4]))
    return np.stack([n + here, mean, scatter, *ends])


def is_dataset_stream(value: Any) -> bool:
    """Whether something that answers as a matrix is read in passes."""
    return isinstance(value, DatasetStream)


def dataset_triangle(first: Any, second: Any) -> tuple[Matrix, Vector]:
    """Return few rows with the same sums of products as all rows: the triangular factor."""
    factor = np.empty((0, first.width + 1))
    for blocks in zip(first.chunks(), second.chunks(), strict=True):
        factor = np.asarray(np.linalg.qr(np.vstack([factor, np.hstack(blocks)]), mode="r"))
    return factor[:, :-1], factor[:, -1]


# --- sums over the rows of every candidate, by matrix products in bounded memory ----------------

Features = Callable[[npt.NDArray[np.int64]], Matrix]
_CHUNK_NUMBERS: Final = 2**23  # float64 numbers held at a time, about 64 MB
_CACHED_NUMBERS: Final = 2**19
_SLAB: Final = 4096  # features that are summed at a time


def subset_sums(pool: Pool, features: Features, n_features: int) -> Matrix:
    """Return the sum of the features over the rows of every subset, shape (m, n_features).

    ``features`` maps row numbers to a float64 matrix with one line per row. Takes about 64 MB of
    temporary memory beyond the result, or a quarter of it.
    """
    most = _CHUNK_NUMBERS // (pool.n_subsets + 2 * n_features)
    least = min(pool.n_subsets // 4, pool.n_units)  # of rows that are wider than there are subsets
    width = max(1, least, min(most, max(_CACHED_NUMBERS // pool.n_subsets, n_features)))
    # The complement of a half has the same signed sum, but for the sign.
    n_products = pool.n_subsets // 2 if pool.folds == 2 else pool.n_subsets
    sums = np.zeros((pool.n_subsets, n_features))
    product, total = sums[:n_products], np.zeros(n_features)
    order, starts = _rows_by_unit(pool)
    for start in range(0, pool.n_units, width):
        stop = min(start + width, pool.n_units)
        block = _unit_features(features, order, starts, start, stop)
        total += block.sum(axis=0)
        if pool.folds > 2:
            factor = (1 - pool.inside(slice(start, stop))).astype(np.float64)
        else:
            factor = pool.signs(start, stop, np.float64, n_subsets=n_products)
        for first in range(0, n_features, _SLAB):
            slab = slice(first, first + _SLAB)
            product[:, slab] += factor @ block[:, slab]
    if pool.folds > 2:  # all minus the fold
        return np.subtract(total, sums, out=sums)
    if pool.folds == 2:
        np.negative(product, out=sums[n_products:])
    # A unit counts +1 when it is in and -1 when it is out: the sum over those in is the mean
    # of the signed sum and the total. Exact for counts below 2**52.
    sums += total
    sums /= 2.0
    return sums


def subset_sizes(pool: Pool) -> Matrix:
    """Return the number of rows of every subset, shape (m,)."""
    if pool.row_units is None:
        return pool.sizes().astype(np.float64)
    sizes = subset_sums(pool, lambda rows: np.ones((len(rows), 1)), 1)
    return sizes[:, 0]


def _rows_by_unit(
    pool: Pool,
) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None]:
    if pool.row_units is None:
        return None, None
    order = np.argsort(pool.row_units, kind="stable").astype(np.int64)
    starts = np.searchsorted(pool.row_units[order], np.arange(pool.n_units + 1))
    return order, starts.astype(np.int64)


def _unit_features(
    features: Features,
    order: npt.NDArray[np.int64] | None,
    starts: npt.NDArray[np.int64] | None,
    start: int,
    stop: int,
) -> Matrix:
    if order is None or starts is None:
        return features(np.arange(start, stop, dtype=np.int64))
    first, last = int(starts[start]), int(starts[stop])
    block = features(order[first:last])
    return np.add.reduceat(block, starts[start:stop] - first, axis=0)


def products_of_columns(X: Matrix) -> Matrix:
    """Return the products of every two columns, in the order of an upper triangle."""
    left, right = np.triu_indices(X.shape[1])
    products: Matrix = X[:, left] * X[:, right]
    return products


def symmetric_matrices(triangles: Matrix) -> Matrix:
    """Return the symmetric matrices with these upper triangles, shape (m, p, p)."""
    p = int((np.sqrt(8.0 * triangles.shape[1] + 1.0) - 1.0) / 2.0 + 0.5)
    left, right = np.triu_indices(p)
    full = np.zeros((len(triangles), p, p))
    full[:, left, right] = full[:, right, left] = triangles
    return full
