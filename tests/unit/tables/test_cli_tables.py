"""Tables from CSV and Parquet, and the choice of columns."""

import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from pacprivacy.errors import DataError
from pacprivacy.tables import files as tables
from pacprivacy.tables.files import Table, numeric_matrix, read_table, unit_labels


def write(folder: Path, text: str) -> Path:
    path = folder / "data.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_csv_with_any_usual_separator(mark: str, tmp_path: Path) -> None:
    table = read_table(write(tmp_path, f"a{mark}b\n1{mark}2.5\n-3{mark}4e2\n"))
    assert table.names == ("a", "b")
    assert table.n_rows == 2
    assert table.numbers["a"].tolist() == [1, -3]
    assert table.numbers["b"].tolist() == [2.5, 400]


def test_csv_with_mark_quotes_spaces_and_blank_lines(tmp_path: Path) -> None:
    text = '\ufeffname, age \n"Li, Ada", 3 \n\n"two\nlines",4\n'
    table = read_table(write(tmp_path, text), labels=["name"])
    assert table.names == ("name", "age")
    assert table.numbers["age"].tolist() == [3, 4]
    assert "name" not in table.numbers
    assert table.labels["name"].tolist() == ["Li, Ada", "two\nlines"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_csv_does_not_depend_on_chunks(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHUNK_ROWS", chunk)
    text = "a,b,c,id\n1,1,x,7\n2,,y,07\n3,n/a,4,7\n4,oops,5,9\n5,3,6,9\n"
    table = read_table(write(tmp_path, text), labels=["id"])
    assert table.n_rows == 5
    assert table.numbers["a"].tolist() == [1, 2, 3, 4, 5]
    assert set(table.numbers) == {"a", "id"}, "one word makes a column text"
    assert table.labels["id"].tolist() == ["7", "07", "7", "9", "9"]
    assert table.missing == {"b": "line 3"}


def test_a_missing_number_is_not_a_number_but_the_column_stays_numeric(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a\n1\n?\n3\n"))
    assert np.isnan(table.numbers["a"]).tolist() == [False, True, False]
    with pytest.raises(DataError, match="column 'a' must have no missing values; got one in line"):
        numeric_matrix(table, ["a"])


def test_messages_name_columns_but_no_values(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "age,diagnosis\n41,gout\n52,flu\n"))
    with pytest.raises(DataError) as caught:
        numeric_matrix(table, ["age", "diagnosis"])
    assert "'diagnosis'" in str(caught.value)
    assert "--columns age" in str(caught.value)
    assert "gout" not in str(caught.value)


def test_many_columns_are_counted_not_listed() -> None:
    names = tuple(f"c{i}" for i in range(40))
    table = Table(names=names, n_rows=1, numbers={}, labels={}, missing={})
    with pytest.raises(DataError, match="'c0', 'c1', 'c2', 'c3', 'c4', 'c5' and 34 more"):
        numeric_matrix(table, names)
    with pytest.raises(DataError, match=r"column 'x' must be in the file; .* and 34 more"):
        unit_labels(table, "x")


def test_missing_units_are_refused(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "id,a\nx,1\n,2\n"), labels=["id"])
    with pytest.raises(DataError, match="column 'id' must have no missing values; got one in line"):
        unit_labels(table, "id")


# --- Parquet --------------------------------------------------------------------------------


def test_parquet_columns_of_every_kind(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data.parquet"
    columns = {
        "small": pa.array([1, 2, 3], pa.int8()),
        "large": pa.array([2**60, 0, 1], pa.int64()),
        "real": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "yes": pa.array([True, False, True]),
        "money": pa.array([Decimal("1.50"), Decimal("2"), Decimal("3")]),
        "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        "gap": pa.array([1, None, 3], pa.int32()),
    }
    pq.write_table(pa.table(columns), path)
    table = read_table(path, labels=["word", "small"])
    assert table.names == tuple(columns)
    assert set(table.numbers) == {"small", "large", "real", "yes", "money", "gap"}
    assert table.numbers["large"][0] == 2.0**60
    assert table.numbers["yes"].tolist() == [1, 0, 1]
    assert table.numbers["money"].tolist() == [1.5, 2, 3]
    assert table.labels["word"].tolist() == ["a", "b", "a"]
    assert table.labels["small"].tolist() == [1, 2, 3]
    assert table.missing == {"gap": "record 2"}
    with pytest.raises(DataError, match="got one in record 2"):
        numeric_matrix(table, ["gap"])


def test_parquet_and_csv_agree(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=20), rng.integers(0, 9, size=20)
    text = "x,y\n" + "".join(f"{float(a)!r},{b}\n" for a, b in zip(x, y, strict=True))
    path = tmp_path / "data.pq"
    pq.write_table(pa.table({"x": x, "y": y}), path)
    from_csv, from_parquet = read_table(write(tmp_path, text)), read_table(path)
    for name in ("x", "y"):
        assert np.array_equal(from_csv.numbers[name], from_parquet.numbers[name])


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1....")
    with pytest.raises(DataError, match=r"pip install 'pacprivacy\[data\]'"):
        read_table(path)
    csv = read_table(write(tmp_path, "a\n1\n"))
    assert csv.n_rows == 1, "CSV needs neither pyarrow nor pandas"
