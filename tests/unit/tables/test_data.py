"""Data in any container: what is accepted, what is refused, what a subset looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism import Data, coerce_data
from pacprivacy.statistics import Mean

ROWS = np.array([0, 2, 3])
X = np.arange(10.0).reshape(5, 2)


@pytest.mark.parametrize(
    ("data", "n_rows"),
    [
        (X, 5),
        (np.zeros((6, 2, 3)), 6),
        ([1, 2, 3, 4], 4),
        ([[1.0, 2.0]] * 4, 4),
        (np.array(["a", "b", "c", "d"]), 4),
        (np.array(["a", "b", "c", "d"], dtype=object), 4),
        (np.array(["2020-01-01"] * 4, dtype="datetime64[D]"), 4),
        (pd.DataFrame({"a": range(5), "b": list("vwxyz")}), 5),
        (pd.Series([1.0, 2.0, 3.0, 4.0]), 4),
        (pd.Series([1, 2, 3, 4], dtype="Int64"), 4),
        (pl.DataFrame({"a": [1, 2, 3, 4], "b": list("wxyz")}), 4),
        (pl.Series([True, False, True, False]), 4),
        (pa.table({"a": [1.0, 2.0, 3.0, 4.0]}), 4),
    ],
)
def test_single_part_is_accepted(data: object, n_rows: int) -> None:
    record = coerce_data(data)
    assert (record.n_rows, record.single, len(record.parts)) == (n_rows, True, 1)
    (part,) = record.take(ROWS)
    assert len(part) == 3
    assert record.digest() == coerce_data(data).digest()


def test_tuple_keeps_native_types_and_selects_the_same_rows() -> None:
    parts = (X, pd.DataFrame({"a": range(5)}), pl.Series("s", [5, 6, 7, 8, 9]), [1, 2, 3, 4, 5])
    record = coerce_data(parts)
    assert not record.single
    array, frame, series, numbers = record.take(ROWS)
    np.testing.assert_array_equal(array, X[ROWS])
    assert isinstance(frame, pd.DataFrame)
    assert frame["a"].tolist() == [0, 2, 3]
    assert isinstance(series, pl.Series)
    assert series.to_list() == [5, 7, 8]
    np.testing.assert_array_equal(numbers, [1, 3, 4])


def test_subsets_can_be_written_to() -> None:
    frame = pd.DataFrame({"a": np.arange(5.0)})
    original = X.copy()
    array, table = coerce_data((X, frame)).take(ROWS)
    array[:] = -1.0
    table["a"] = -1.0
    np.testing.assert_array_equal(X, original)
    assert frame["a"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("layout", [np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]])
def test_subset_layout_does_not_depend_on_the_original(layout: np.ndarray) -> None:
    (part,) = coerce_data(layout).take(ROWS)
    assert part.flags.c_contiguous
    np.testing.assert_array_equal(part, X[ROWS])


def test_data_passes_through_and_hides_its_values() -> None:
    record = coerce_data(X)
    assert coerce_data(record) is record
    assert isinstance(record, Data)
    assert repr(record) == "Data(n_rows=5, single=True)"


def test_integer_column_names_are_names() -> None:
    frame = pd.DataFrame(X, columns=[1, 0])
    assert coerce_data(frame).n_rows == 5
    assert coerce_data(frame).digest() != coerce_data(frame[[0, 1]]).digest()


NAN = np.array([1.0, np.nan, 2.0, 3.0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (NAN, r"data must be finite everywhere; got NaN or infinite"),
        ((X[:4], np.array([1.0, np.inf, 2.0, 3.0])), r"data\[1\] must be finite"),
        (np.array(["2020-01-01", "NaT"] * 2, dtype="datetime64[D]"), "must be finite"),
        (np.array([1, None, 2, 3], dtype=object), "without missing values; got an object array"),
        ([1, None, 2, 3], "without missing values; got an object array"),
        (np.ma.masked_array([1, 2, 3, 4], mask=[0, 1, 0, 0]), "got a masked array"),
        ([1, 2, 3], "data must have at least 4 rows; got 3"),
        ((X, X[:4]), r"data\[1\] must have as many rows as data\[0\] \(5\); got 4"),
        ([[1, 2], [3], [4], [5]], "must be rectangular"),
        ((), "at least one part; got an empty tuple"),
        ((1.0, 2.0, 3.0, 4.0), r"data\[0\] must be an array, a list.*got float"),
        (np.float64(3.0), "got float64"),
        (np.array(3.0), "must have rows; got a single number"),
        ({"a": [1, 2, 3, 4]}, "got dict"),
        (pl.LazyFrame({"a": [1, 2, 3, 4]}), r"got LazyFrame.*collect"),
        (np.zeros(4, dtype=[("a", "O")]), "must hold numbers, strings or dates"),
        (pd.DataFrame(X, columns=["a", "a"]), "distinct column names"),
    ],
)
def test_bad_data_is_refused_without_showing_it(data: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        coerce_data(data)


GAPS = {"word": ["a", None, "b", "c"], "n": [1.0, np.nan, 2.0, 3.0], "ok": [1, 2, 3, 4]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_reach_the_function_as_they_are(make: Any) -> None:
    frame = make(GAPS)
    (part,) = coerce_data(frame).take(np.array([1, 2]))
    assert isinstance(part, type(frame))
    seen = [str(part["word"][i]) for i in range(len(part))] if make is not pd.DataFrame else None
    assert seen is None or seen[0] == "None"


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_a_mechanism_names_all_columns_that_it_cannot_use(make: Any) -> None:
    frame = make(GAPS)
    with pytest.raises(MechanismError, match=r"Mean must be given numbers; got text .* in 'word'"):
        Mean().evaluate((frame,), np.random.default_rng(0))
    with pytest.raises(MechanismError, match=r"missing or infinite values in 'n'. Drop, fill"):
        Mean().evaluate((frame[["n", "ok"]],), np.random.default_rng(0))
    assert Mean().evaluate((frame[["ok"]],), np.random.default_rng(0)).tolist() == [2.5]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (X, X.astype(np.float32)),
        (X, X.reshape(10, 1)),
        (X, X + np.eye(5, 2)),
        (pd.DataFrame({"a": range(4)}), pd.DataFrame({"b": range(4)})),
        (pd.DataFrame({"a": list("wxyz")}), pd.DataFrame({"a": list("zyxw")})),
        (np.array(["ab", "c", "d", "e"], object), np.array(["a", "bc", "d", "e"], object)),
        ((X, X), X),
    ],
)
def test_digest_tells_data_apart(first: object, second: object) -> None:
    assert coerce_data(first).digest() != coerce_data(second).digest()


def test_digest_ignores_memory_layout() -> None:
    assert coerce_data(X).digest() == coerce_data(np.asfortranarray(X)).digest()
