"""Tables in Parquet folders and Arrow datasets, read a batch at a time; sums over candidates.

A :class:`Dataset` names files and columns. Its rows are read where they are used, into one array of
float64: what is held are the numbers of the chosen columns and nothing else of the files.
"""

from __future__ import annotations

import glob
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
from pacprivacy.sample import Pool, named_pool_units

Entries = tuple[Array, Array | None]  # of a column, and of texts the distinct ones

_BATCH_ROWS: Final = 1 << 16


class Dataset:
    """A table in Parquet files, or an Arrow dataset, of which columns of numbers are read.

    Memory grows with the columns that are used: 0.8 GB for ten columns of ten million rows.

    Parameters
    ----------
    source : path, pattern, list of paths, or pyarrow Dataset
        Files with the same columns; in the order of their names, which is the order of the rows.
    unit : str, optional
        Column that says whose row it is.
    columns : sequence of str or str, optional
        Columns for mechanisms, all of numbers; by default every column but ``unit``. A single name
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
    >>> release = pac.privatize(Mean(), people["age"], "membership<=0.6", rng=0)
    >>> release.certificate.n_units
    500
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
        """Return the unit of every row; None without a column of units."""
        if self.unit is None:
            return None
        batches = self._batches([self.unit])
        labels = [batch.column(0).to_numpy(zero_copy_only=False) for batch in batches]
        return named_pool_units(np.concatenate(labels), self.unit)

    def load(self) -> Matrix:
        """Return the columns of all rows; a vector for a single named column.

        Guarantee
        ---------
        Claim M-6. Every row of the files, in their order; failed reads, gaps, text and infinite
        numbers are errors.
        """
        numbers, first = np.empty((self._n_rows, len(self.columns))), 0
        for batch in self._batches(self.columns):
            rows = slice(first, first + batch.num_rows)
            for place, name in enumerate(self.columns):
                numbers[rows, place] = _numbers(batch.column(name), name)
            first = rows.stop
        return numbers[:, 0] if self.single else numbers

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


# --- sums over the rows of every candidate, by matrix products in bounded memory ----------------

Features = Callable[[npt.NDArray[np.int64]], Matrix]
_CHUNK_NUMBERS: Final = 2**21  # float64 numbers held at a time, about 16 MB


def subset_sums(pool: Pool, features: Features, n_features: int) -> Matrix:
    """Return the sum of the features over the rows of every candidate, shape (m, n_features).

    ``features`` maps row numbers to a float64 matrix with one line per row.
    """
    width = max(1, _CHUNK_NUMBERS // (pool.n_subsets + 2 * n_features))
    sums = np.zeros((pool.n_subsets, n_features))
    for start in range(0, pool.n_rows, width):
        rows = np.arange(start, min(start + width, pool.n_rows))
        sums += pool.rows_inside(start, int(rows[-1]) + 1).astype(np.float64) @ features(rows)
    return sums


def subset_sizes(pool: Pool) -> Matrix:
    """Return the number of rows of every subset, shape (m,)."""
    if pool.row_units is None:
        return pool.sizes().astype(np.float64)
    sizes = subset_sums(pool, lambda rows: np.ones((len(rows), 1)), 1)
    return sizes[:, 0]


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
