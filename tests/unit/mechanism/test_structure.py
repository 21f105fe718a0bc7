"""Values to vectors and back: containers, precision, static parts, refusals."""

from __future__ import annotations

import pickle
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import flatten

Point = namedtuple("Point", "x y")
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
LEAVES = (
    FLOATS
    | st.integers(-(2**40), 2**40)
    | st.booleans()
    | st.none()
    | st.text(max_size=3)
    | hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(max_dims=3, max_side=3),
        elements=FLOATS,
    )
    | hnp.arrays(np.int32, hnp.array_shapes(min_dims=0, max_dims=2, max_side=3, min_side=0))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Point, inner, inner)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


def assert_same(restored: Any, value: Any) -> None:
    """Equal in type and content, where integers and booleans have become floats."""
    if isinstance(value, np.ndarray):
        wanted = value.dtype if value.dtype.kind == "f" else np.float64
        assert restored.dtype == wanted
        assert restored.shape == value.shape
        np.testing.assert_array_equal(restored, value)
    elif isinstance(value, dict):
        assert type(restored) is type(value)
        assert list(restored) == sorted(value, key=lambda key: (type(key).__name__, repr(key)))
        for key in value:
            assert_same(restored[key], value[key])
    elif isinstance(value, tuple | list):
        assert type(restored) is type(value)
        assert len(restored) == len(value)
        for mine, other in zip(restored, value, strict=True):
            assert_same(mine, other)
    elif isinstance(value, bool | int | float):
        assert type(restored) is float
        assert restored == value
    else:
        assert type(restored) is type(value)
        assert restored == value


@pytest.mark.claim("M-1")
@given(VALUES)
def test_restore_is_the_inverse_of_flatten(value: Any) -> None:
    vector, structure = flatten(value)
    assert vector.dtype == np.float64
    assert vector.shape == (structure.size,)
    assert_same(structure.restore(vector), value)
    again = pickle.loads(pickle.dumps(structure))
    assert again == structure
    assert structure.difference(again) is None


def shifted(value: Any) -> Any:
    """Another value with the same structure."""
    if isinstance(value, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(value * 2 + 1, dtype=value.dtype)
    if isinstance(value, dict):
        return dict(reversed([(key, shifted(item)) for key, item in value.items()]))
    if isinstance(value, tuple | list):
        items = [shifted(item) for item in value]
        return Point(*items) if isinstance(value, Point) else type(value)(items)
    return value * 2.5 + 1 if isinstance(value, bool | int | float) else value


@pytest.mark.claim("M-1")
@given(VALUES)
def test_structure_of_one_value_restores_another_of_the_same_kind(value: Any) -> None:
    # What is released is built by the structure of subset 0 from the numbers of another subset.
    _, structure = flatten(value)
    vector, other = flatten(shifted(value))
    assert structure == other
    np.testing.assert_array_equal(flatten(structure.restore(vector))[0], vector)


def test_numpy_scalars_keep_their_precision() -> None:
    vector, structure = flatten((np.float32(0.1), np.int64(3), np.float64(2.0), np.bool_(True)))
    restored = structure.restore(vector)
    kinds = [type(item) for item in restored]
    assert kinds == [np.float32, np.float64, np.float64, np.float64]
    assert restored == (np.float32(0.1), 3.0, 2.0, 1.0)


def test_order_of_insertion_does_not_move_numbers() -> None:
    first, structure = flatten({"b": 1.0, "a": 2.0, 3: 4.0})
    second, other = flatten({3: 4.0, "a": 2.0, "b": 1.0})
    assert structure == other
    np.testing.assert_array_equal(first, second)
    assert list(structure.restore(second)) == [3, "a", "b"]
    assert list(other.restore(second)) == [3, "a", "b"]


def test_ordered_dict_stays_one_and_other_kinds_become_plain() -> None:
    vector, structure = flatten(OrderedDict(z=1, a=2))
    assert structure.restore(vector) == OrderedDict(a=2.0, z=1.0)
    assert isinstance(structure.restore(vector), OrderedDict)


@pytest.mark.parametrize(
    "value",
    [
        pd.Series([1.0, 2.0], index=["u", "v"], name="s"),
        pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.5]}, index=pd.Index([5, 7], name="k")),
        pd.DataFrame({("a", 1): [1.0]}, index=[0]).T.stack().rename("c"),
    ],
)
def test_pandas_outputs_keep_their_labels(value: Any) -> None:
    vector, structure = flatten({"out": value})
    restored = structure.restore(vector)["out"]
    test = pd.testing.assert_series_equal if value.ndim == 1 else pd.testing.assert_frame_equal
    test(restored, value)
    assert structure != flatten({"out": value.iloc[:0]})[1]


def test_pandas_index_is_static() -> None:
    _, first = flatten(pd.Series([1.0, 2.0], index=["u", "v"]))
    _, second = flatten(pd.Series([1.0, 2.0], index=["u", "w"]))
    assert first.difference(second) == "value"


@pytest.mark.parametrize(
    "value", [pl.Series("s", [1.0, 2.0]), pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.5]})]
)
def test_polars_outputs_come_back(value: Any) -> None:
    vector, structure = flatten(value)
    assert structure.restore(vector).equals(value)


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (np.zeros(3), np.zeros(4), "value"),
        (np.zeros(3), np.zeros(3, np.float32), "value"),
        ({"a": 1.0}, {"b": 1.0}, "value"),
        ({"a": (1.0, "x")}, {"a": (1.0, "y")}, r"value['a'][1]"),
        ({"a": [1.0, None]}, {"a": [1.0, 2.0]}, r"value['a'][1]"),
        ((1.0, 2.0), [1.0, 2.0], "value"),
        (Point(1.0, np.zeros(2)), Point(1.0, np.zeros(1)), "value.y"),
        (1.0, np.float32(1.0), "value"),
        (1.0, np.zeros(()), "value"),
    ],
)
def test_difference_names_the_place(first: Any, second: Any, place: str) -> None:
    mine, other = flatten(first)[1], flatten(second)[1]
    assert mine != other
    assert mine.difference(other) == place


def test_integers_and_floats_have_the_same_structure() -> None:
    # max(0, x) returns an integer on some subsets; both come back as floats.
    assert flatten(0)[1] == flatten(0.5)[1] == flatten(np.float64(0.5))[1] == flatten(False)[1]


def test_describe_is_short_and_shows_no_values() -> None:
    text = flatten({"coef": np.full((2, 3), 77.0), "note": "s3cret", "n": 77})[1].describe()
    assert text == "dict('coef': array[2, 3], 'n': number, 'note': fixed)"
    assert len(flatten([1.0] * 1000)[1].describe()) == 200


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1j]), "value must hold real numbers; got dtype complex128.*imaginary"),
        (1j, "got complex"),
        (np.array(["a", "b"]), "one-hot"),
        (np.array([1, None], dtype=object), "got dtype object"),
        ({"a": [np.array(["x"])]}, r"value\['a'\]\[0\] must hold real numbers"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "got dtype datetime64"),
        (np.ma.masked_array([1.0, 2.0], mask=[0, 1]), "masked"),
        ({1.0, 2.0}, "got set"),
        (lambda: 0, "got function"),
        ({frozenset(): 1.0}, "plain keys"),
        (pd.Series(["a", "b"]), "got a column of type"),
        (pl.DataFrame({"a": ["x"]}), "got texts alone"),
        (pa.table({"a": [1.0]}), "of pandas or polars; got one of pyarrow"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), "distinct column names"),
        pytest.param(10**400, "too large", id="huge"),
    ],
)
def test_unmeasurable_values_are_refused(value: Any, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        flatten(value)


def test_restore_refuses_another_length() -> None:
    _, structure = flatten(np.zeros(3))
    with pytest.raises(MechanismError, match=r"vector must have shape \(3,\); got \(4,\)"):
        structure.restore(np.zeros(4))


def test_restored_arrays_are_independent_and_writable() -> None:
    vector, structure = flatten(np.zeros(3))
    restored = structure.restore(vector)
    restored += 1.0
    assert not vector.any()
