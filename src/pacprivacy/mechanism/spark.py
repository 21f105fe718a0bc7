"""Frames of Spark as universes: sums over subsets are made where the partitions are.

What a mechanism sums is a function of a block of rows and of nothing else. It is sent to the
partitions with the law of the pool, whose masks are drawn there by block; what comes home is one
matrix of sums, subsets by features, from each partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

import cloudpickle
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism.datasets import Dataset, DatasetStream, read_dataset_batch
from pacprivacy.pool import Pool

_AT_ONCE: Final = 1 << 22  # cells of masks unpacked at a time
_HERE: dict[str, Matrix] = {}  # in a worker: the block of rows at hand, by the frame's mark

Blocks = Iterator[tuple[npt.NDArray[np.int64], Matrix]]


class SparkDataset(Dataset):
    """A frame of Spark with one row for each unit, as a universe.

    Means, covariances, histograms, quantiles on a grid and ridge regressions are summed by Spark;
    any other function is handed the rows of one candidate at a time, on the driver.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Where units have several rows, aggregate them first: ``frame.groupBy("person").sum()``.
    unit : str
        Column of numbers or text that is different in every row. The order of its values is the
        order of the units, so that partitions may be lost and made again in any order.
    columns : sequence of str or str, optional
        As for :class:`Dataset`.
    """

    def __init__(
        self, frame: Any, *, unit: str, columns: Sequence[str] | str | None = None
    ) -> None:
        self.unit, self._stream, self._units = unit, None, None
        self.single = isinstance(columns, str)
        every = tuple(name for name in frame.columns if name != unit)
        chosen = every if columns is None else columns
        self.columns = (chosen,) if isinstance(chosen, str) else tuple(chosen)
        if unit not in frame.columns or not set(self.columns) <= set(every):
            raise DataError(
                f"columns and unit must be columns of the frame; got {self.columns} and {unit!r}. "
                f"There are {', '.join(frame.columns[:10])}."
            )
        self._every = every
        self._frame = frame.repartitionByRange(unit).sortWithinPartitions(unit)
        keys = np.sort(frame.select(unit).toArrow().column(0).to_numpy())
        if (keys[1:] == keys[:-1]).any():
            raise DataError(
                f"unit must be different in every row; got values of {unit!r} that come again. "
                f"Aggregate them first: frame.groupBy({unit!r}).sum()."
            )
        self._keys, self._n_rows = keys, len(keys)
        self._mark = uuid5(NAMESPACE_OID, f"{unit}/{every}/{len(keys)}").hex

    def __getitem__(self, columns: str | list[str]) -> SparkDataset:
        """Return the same rows with these columns."""
        chosen = object.__new__(SparkDataset)
        chosen.__dict__.update(self.__dict__, _stream=None, single=isinstance(columns, str))
        chosen.columns = (columns,) if isinstance(columns, str) else tuple(columns)
        if not set(chosen.columns) <= set(self._every):
            raise DataError(f"columns must be columns of the frame; got {columns}.")
        return chosen

    def units(self) -> None:
        """Return None: every row is its own unit."""
        return

    def check_units(self, codes: npt.NDArray[np.integer[Any]]) -> None:
        """Refuse units of several rows: sums are made by the key of a row."""
        raise DataError(
            f"units must be left out for a SparkDataset, whose unit is {self.unit!r}; got others. "
            "Aggregate the frame by them first."
        )

    def stream(self) -> DatasetStream:
        """Return the columns as a matrix, or as a vector, that is summed by Spark."""
        if self._stream is None:
            shape = (self._n_rows,) if self.single else (self._n_rows, len(self.columns))
            where = np.array([self._every.index(name) for name in self.columns])
            self._stream = _SparkStream(self, _Columns(self._mark, where), shape)
        return self._stream

    def take(self, rows: npt.NDArray[np.int64]) -> Matrix:
        """Return the chosen rows, in the order of their units, on the driver."""
        wanted = np.zeros(self._n_rows, dtype=np.bool_)
        wanted[rows] = True
        where = [self._every.index(name) for name in self.columns]

        def choose(blocks: Blocks) -> Matrix:
            found = [np.empty((0, len(where)))]
            found += [block[wanted[codes]][:, where] for codes, block in blocks]
            return np.concatenate(found)

        parts = [part.reshape(-1, len(where)) for part in self.gather(choose)]
        taken = np.concatenate(parts)
        return taken[:, 0] if self.single else taken

    def digest(self) -> str:
        """Return a hash of the units and the columns, with their contents; curator-only."""
        rows = spark_frame_digest(self._frame.select(self.unit, *self.columns))
        return hashlib.blake2b(f"{self.columns} {self.unit} {rows}".encode()).hexdigest()

    def gather(self, function: Callable[[Blocks], Matrix]) -> list[Matrix]:
        """Run a function on the numbered rows of every partition; results in their order."""
        context, names, unit = self._frame.sparkSession.sparkContext, self._every, self.unit
        sent = context.broadcast(cloudpickle.dumps((function, self._keys)))

        def part(batches: Any) -> Any:
            import pyarrow
            from pyspark import TaskContext

            function, keys = cloudpickle.loads(sent.value)

            def blocks() -> Blocks:
                for batch in batches:
                    if batch.num_rows:
                        own = batch.column(unit).to_numpy(zero_copy_only=False)
                        yield np.searchsorted(keys, own), read_dataset_batch(batch, names)

            value = np.asarray(function(blocks()), dtype=np.float64).tobytes()
            number = TaskContext.get().partitionId()
            yield pyarrow.RecordBatch.from_pydict({"part": [number], "value": [value]})

        found = self._frame.mapInArrow(part, "part long, value binary").collect()
        sent.unpersist()
        return [np.frombuffer(bytes(row.value)) for row in sorted(found, key=lambda row: row.part)]

    def subset_sums(
        self, pool: Pool, features: Callable[[npt.NDArray[np.int64]], Matrix], n_features: int
    ) -> Matrix:
        """Return the sum of the features over the rows of every subset, shape (m, n_features)."""
        mark, width = self._mark, max(1, _AT_ONCE // pool.n_subsets)

        def add(blocks: Blocks) -> Matrix:
            total = np.zeros((pool.n_subsets, n_features))
            for codes, block in blocks:
                for start in range(0, len(codes), width):
                    some = slice(start, start + width)
                    _place(mark, block[some])
                    values = features(np.arange(len(codes[some])))
                    total += pool.inside(codes[some]).astype(np.float64) @ values
            return total

        sums = np.zeros((pool.n_subsets, n_features))
        for part in self.gather(add):
            sums += part.reshape(sums.shape)
        return sums


def spark_frame_digest(frame: Any) -> str:
    """Return a hash of the columns and rows of a frame, whatever the order of rows; curator-only.

    It tells frames apart that differ by accident: hashes of rows are of 64 bits, and added up.
    """
    from pyspark.sql import functions

    parts = []
    for name in frame.columns:
        column = functions.col("`" + name.replace("`", "``") + "`")
        parts += [column, column.isNull()]  # what is missing has no hash of its own
    row = functions.xxhash64(*parts)
    total = functions.sum(row.cast("decimal(20, 0)"))
    found = frame.agg(functions.count("*"), functions.bit_xor(row), total).collect()
    return hashlib.blake2b(f"{frame.dtypes} {tuple(found[0])}".encode()).hexdigest()


def _place(mark: str, block: Matrix) -> None:
    """Put a block at hand; a function of this module, which functions that travel can name."""
    _HERE[mark] = block


class _Columns:
    """Some columns of the block at hand: where a chain of maps begins."""

    def __init__(self, mark: str, where: npt.NDArray[np.int64]) -> None:
        self.mark, self.where = mark, where

    def __call__(self) -> Matrix:
        if self.mark not in _HERE:
            raise MechanismError(
                "rows of a Spark frame must be summed where they are; got a mechanism that asks "
                "for them on the driver. Use Mean, Covariance, Histogram, Quantiles or JointRidge."
            )
        return _HERE[self.mark][:, self.where]


class _SparkStream(DatasetStream):
    """A stream whose rows are read in the partitions; it travels without its frame."""

    def __init__(
        self, home: SparkDataset | None, read: Callable[[], Matrix], shape: tuple[int, ...]
    ) -> None:
        super().__init__(lambda: iter((read(),)), shape)
        self.home, self.read = home, read

    def __reduce__(self) -> tuple[Any, ...]:
        return _SparkStream, (None, self.read, self.shape)

    def reshape(self, *shape: int) -> DatasetStream:
        return _SparkStream(self.home, self.read, (len(self), self.width))

    def map(self, function: Callable[[Matrix], Matrix], width: int) -> DatasetStream:
        shape = (len(self),) if self.ndim == 1 and width == 1 else (len(self), width)
        read = self.read
        return _SparkStream(self.home, lambda: function(read()), shape)

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> Matrix:
        block = self.read()[rows]
        return block[:, 0] if self.ndim == 1 else block

    def partial(
        self, function: Callable[[Iterator[tuple[Matrix, ...]]], Matrix], *others: DatasetStream
    ) -> list[Matrix]:
        assert self.home is not None  # asked for on the driver alone
        mark = self.home._mark
        readers = [each.read for each in (self, *others) if isinstance(each, _SparkStream)]

        def run(blocks: Blocks) -> Matrix:
            def at_hand() -> Iterator[tuple[Matrix, ...]]:
                for _, block in blocks:
                    _place(mark, block)
                    yield tuple(read() for read in readers)

            return function(at_hand())

        return self.home.gather(run)
