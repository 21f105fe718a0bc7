"""Tables from files of every kind: what cells mean, and what is refused."""

import gzip
import sys
from datetime import date, time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pacprivacy.errors import DataError
from pacprivacy.tables import table as tables
from pacprivacy.tables.table import (
    Reading,
    Table,
    TableColumn,
    read_table,
    table_unit_labels,
)
from pacprivacy.tables.terms import Categories, ModelOptions


def write(folder: Path, text: str) -> Path:
    path = folder / "data.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_csv_with_any_usual_separator(mark: str, tmp_path: Path) -> None:
    table = read_table(write(tmp_path, f"a{mark}b\n1{mark}2.5\n-3{mark}4e2\n"))
    assert table.names == ("a", "b")
    assert table.n_rows == 2
    assert table.columns["a"].numbers.tolist() == [1, -3]
    assert table.columns["b"].numbers.tolist() == [2.5, 400]


def test_csv_with_mark_quotes_spaces_and_blank_lines(tmp_path: Path) -> None:
    text = '\ufeffname, age \n"Li, Ada", 3 \n\n"two\nlines",4\n'
    table = read_table(write(tmp_path, text))
    assert table.names == ("name", "age")
    assert table.columns["age"].numbers.tolist() == [3, 4]
    assert table.columns["name"].numbers is None
    assert table.columns["name"].labels.tolist() == ["Li, Ada", "two\nlines"]


@pytest.mark.parametrize("quick", [False, True])
def test_both_ways_to_split_cells_agree(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "QUICK_BYTES", 0 if quick else 1 << 40)
    text = 'a,b,c,id\n1,1,x,7\n\n2,,y,07\n3,n/a,"4\n,",7\n4,oops,5,9\n5,3,6,9\n'
    table = read_table(write(tmp_path, text))
    assert table.n_rows == 5
    assert table.columns["a"].numbers.tolist() == [1, 2, 3, 4, 5]
    assert numeric(table) == {"a", "id"}, "one word makes a column text"
    assert table.columns["id"].labels.tolist() == ["7", "07", "7", "9", "9"]
    assert table.columns["c"].labels.tolist() == ["x", "y", "4\n,", "5", "6"]
    assert np.flatnonzero(table.columns["b"].gaps).tolist() == [1, 2]


CELLS = {
    "blanks": [" 1", "2 ", "\u00a03", "NA "],
    "plus": ["+1", "2", "1_000"],
    "infinite": ["inf", "-Infinity", "1"],
    "not nan": ["nan(1)", "2", "3"],
    "gaps": ["N/A", "-", "None", "<NA>"],
    "comma": ["1,5", "", "-2,25"],
    "padded comma": ["1,5 ", "?", " 3"],
    "German": ["1.234,5", "2.000", "7"],
    "English": ["1,234.5", "2,000,000", "7"],
    "unclear": ["1,234", "2,500", "n/a"],
    "thousands": ["1.234", "2.500", ""],
    "late word": ["1", "2", "kg"],
    "late comma": ["1", "2,5", "3"],
    "early word": ["kg", "1", "2"],
    "ISO": ["2024-05-31", "", "2024-06-01 10:15"],
    "dates": ["31.5.2024", "1.12.1999", "NA"],
    "mixed dates": ["2024-05-31", "31.5.2024", ""],
    "ids": ["007", "7", "07"],
    "versions": ["1.2.3", "1.2", "4"],
    "words": ["Ärger", " Ärger ", "none"],
    "digits": ["\u0663", "4", ""],
}


@pytest.mark.parametrize("decimal", [None, ",", "."])
@pytest.mark.parametrize("beside", ["", "1,5", "1.25"])
def test_pyarrow_reads_as_the_standard_library_does(
    decimal: str | None, beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {**CELLS, "beside": [beside] * 4}
    rows = [[f"{(column + [''] * 4)[i]}" for column in columns.values()] for i in range(4)]
    text = "\n".join(";".join(row) for row in [list(columns), *rows]) + "\n"
    path, found = write(tmp_path, text), []
    for quick in (True, False):
        monkeypatch.setattr(tables, "QUICK_BYTES", 0 if quick else 1 << 40)
        found.append(read_table(path, Reading(decimal=decimal, delimiter=";")))
    for name in columns:
        one, other = (table.columns[name] for table in found)
        assert (one.is_date, one.unclear) == (other.is_date, other.unclear), name
        assert (one.numbers is None) == (other.numbers is None), name
        if one.numbers is not None:
            np.testing.assert_array_equal(one.numbers, other.numbers, err_msg=name)
        assert one.levels.tolist() == other.levels.tolist(), name
        assert one.codes.tolist() == other.codes.tolist(), name


def test_sheets_that_pandas_wrote(tmp_path: Path) -> None:
    moments = [pd.Timestamp("2024-05-31"), None, pd.Timestamp("2024-06-01 12:00")]
    frame = {"n": [1, 2, 3], "x": [1.5, None, 2], "when": moments, "word": ["a", None, "1"]}
    pd.DataFrame(frame).to_excel(tmp_path / "t.xlsx", index=False)
    table = read_table(tmp_path / "t.xlsx")
    assert table.columns["n"].numbers.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(table.columns["x"].numbers, [1.5, np.nan, 2])
    np.testing.assert_array_equal(table.columns["when"].numbers, [19874, np.nan, 19875.5])
    assert table.columns["when"].is_date
    assert table.columns["word"].labels.tolist() == ["a", None, "1"]


def numeric(table: Table) -> set[str]:
    return {name for name, column in table.columns.items() if column.numbers is not None}


def test_a_missing_number_is_not_a_number_but_the_column_stays_numeric(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a\n1\n?\n3\n"))
    assert np.isnan(table.columns["a"].numbers).tolist() == [False, True, False]


def test_many_columns_are_counted_not_listed() -> None:
    names = tuple(f"c{i}" for i in range(40))
    word = TableColumn(numbers=None, coded=(np.array(["x"]), np.zeros(1, np.int32)))
    table = Table(columns=dict.fromkeys(names, word), names=names, n_rows=1)
    with pytest.raises(DataError, match=r"column 'x' must be in the file; .* and 34 more"):
        table_unit_labels(table, "x")


def test_missing_units_are_refused(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "id,a\nx,1\n,2\n"))
    with pytest.raises(
        DataError, match="column 'id' must have no missing values; got one in record 2"
    ):
        table_unit_labels(table, "id")


def test_a_unit_that_is_written_in_two_ways_is_one(tmp_path: Path) -> None:
    rows = "".join(f"{i},1\n{i}.0,2\n" for i in range(10, 14))
    for lines, n in ((rows, 4), (f"{rows}x,3\n", 5), ("07,1\n7,2\n", 2)):
        table = read_table(write(tmp_path, f"id,a\n{lines}"))
        assert len(set(np.asarray(table_unit_labels(table, "id")).tolist())) == n


# --- what cells mean -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "decimal", "numbers"),
    [
        (["1,5", "2,25", "-3"], None, [1.5, 2.25, -3]),
        (["1.234,5", "2.000.000,0"], None, [1234.5, 2e6]),
        (["1,234.5", "2,000,000"], None, [1234.5, 2e6]),
        (["1,234", "2,500"], ",", [1.234, 2.5]),
        (["1.234", "2.500"], ",", [1234, 2500]),
        (["1,234", "2,500"], None, None),
        (["1.234", "2.500"], None, [1.234, 2.5]),
        (["1e3", "-2E-1"], None, [1000, -0.2]),
        (["12,5 kg", "3"], None, None),
    ],
)
def test_decimal_marks_are_found_out_or_left_alone(
    cells: list[str], decimal: str | None, numbers: list[float] | None, tmp_path: Path
) -> None:
    path = write(tmp_path, "a;b\n" + "".join(f"{cell};x\n" for cell in cells))
    found = read_table(path, Reading(decimal=decimal)).columns["a"]
    assert found.numbers is None if numbers is None else found.numbers.tolist() == numbers
    assert found.unclear == (cells[0] == "1,234" and decimal is None)


def test_a_point_among_decimal_commas_is_not_guessed_at(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "pay;rate\n1.200;1,5\n2.400;2,5\n"))
    assert table.columns["rate"].numbers.tolist() == [1.5, 2.5]
    assert table.columns["pay"].unclear, "1200 in this file, 1.2 in another"
    assert table.columns["pay"].numbers is None


@pytest.mark.parametrize(
    "cells", [["2024-01-02", "1970-01-02"], ["2.1.2024", "02.01.1970"], ["2024-01-02 00:00", ""]]
)
def test_dates_are_days(cells: list[str], tmp_path: Path) -> None:
    column = read_table(write(tmp_path, "d,x\n" + "".join(f"{c},1\n" for c in cells))).columns["d"]
    assert column.is_date
    assert column.numbers[0] == 19724
    assert column.numbers[1] == 1 or column.gaps[1]


def test_encodings_and_packed_files(tmp_path: Path) -> None:
    text = "name;age\nJürgen;4\nZoë;5\n"
    path = tmp_path / "data.csv"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        path.write_bytes(text.encode(encoding))
        table = read_table(path)
        assert table.columns["name"].labels.tolist() == ["Jürgen", "Zoë"], encoding
        assert bool(table.notes) == (encoding == "cp1252"), "a guess is told"
    path.write_bytes(text.encode("cp437"))
    assert read_table(path, Reading(encoding="cp437")).columns["name"].labels[0] == "Jürgen"
    packed = tmp_path / "data.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_table(packed).columns["age"].numbers.tolist() == [4, 5]
    packed.write_bytes(gzip.compress(text.encode())[:-9])
    with pytest.raises(DataError, match="damaged archive"):
        read_table(packed)
    path.write_bytes(b"\x00\x01\x02binary")
    with pytest.raises(DataError, match="must be a text file, Parquet or Excel"):
        read_table(path)


def test_a_separator_inside_quoted_names_does_not_mislead(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, '"pay, gross, monthly";age\n1;2\n3;4\n'))
    assert table.names == ("pay, gross, monthly", "age")


# --- Excel ------------------------------------------------------------------------------------


def test_excel_sheet(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [["n", "day", "word", "mixed"], [1, date(1970, 1, 2), "a", 1], [None, None, None, "b"]]
    for row in rows:
        book.active.append(row)
    path = tmp_path / "data.xlsx"
    book.save(path)
    table = read_table(path)
    np.testing.assert_array_equal(table.columns["n"].numbers, [1, np.nan])
    np.testing.assert_array_equal(table.columns["day"].numbers, [1, np.nan])
    assert table.columns["word"].labels.tolist() == ["a", None]
    assert table.columns["mixed"].labels.tolist() == ["1", "b"]
    path.write_bytes(b"PK\x03\x04 no workbook")
    with pytest.raises(DataError, match="must be a readable Excel file"):
        read_table(path)


def test_excel_without_its_reader_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    path = tmp_path / "data.xlsx"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=r"pip install '\.\[excel\]'"):
        read_table(path)


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
        "none": pa.nulls(3),
        "clock": pa.array([time(1, 2), None, time(3)]),
        "key": pa.array([b"12", b"34", b"56"], pa.binary(2)),
    }
    pq.write_table(pa.table(columns), path)
    table = read_table(path)
    assert table.names == tuple(columns)
    assert numeric(table) == {"small", "large", "real", "yes", "money", "gap", "none"}
    assert table.columns["clock"].labels.tolist() == ["01:02:00", None, "03:00:00"]
    assert table.columns["key"].labels.tolist() == ["b'12'", "b'34'", "b'56'"]
    assert table.columns["large"].numbers[0] == 2.0**60
    assert table.columns["yes"].numbers.tolist() == [1, 0, 1]
    assert table.columns["money"].numbers.tolist() == [1.5, 2, 3]
    assert table.columns["word"].labels.tolist() == ["a", "b", "a"]
    assert table.columns["small"].labels.tolist() == [1, 2, 3]
    assert table.columns["gap"].gaps.tolist() == [False, True, False]


def test_parquet_in_groups_of_rows_has_its_gaps(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path, gap = tmp_path / "data.pq", np.nan
    words = ["a", None, "b", "a", None]
    table = pa.table({"x": [1.0, None, 3.0, None, 5.0], "n": [None, 2, 3, 4, 5], "word": words})
    pq.write_table(table, path, row_group_size=2)
    columns = read_table(path).columns
    np.testing.assert_array_equal(columns["x"].numbers, [1.0, gap, 3.0, gap, 5.0])
    np.testing.assert_array_equal(columns["n"].numbers, [gap, 2, 3, 4, 5])
    assert columns["word"].labels.tolist() == words


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
        assert np.array_equal(from_csv.columns[name].numbers, from_parquet.columns[name].numbers)


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1....")
    with pytest.raises(DataError, match=r"pip install '\.\[data\]'"):
        read_table(path)
    csv = read_table(write(tmp_path, "a\n1\n"))
    assert csv.n_rows == 1, "CSV needs neither pyarrow nor pandas"


@pytest.mark.claim("R-7")
def test_a_level_of_its_own_for_gaps_is_a_fact_of_the_universe(tmp_path: Path) -> None:
    for cell in ("", "a"):
        table = read_table(write(tmp_path, f"g,x\na,1\nb,2\n{cell},3\n"))
        options = ModelOptions(levels={"g": ("a", "b")}, missing="category")
        found = Categories.find(table, ["g", "x"], options)
        assert ("(missing)" in found.levels["g"]) == (cell == "")
        assert found.facts == ("whether 'g' has gaps",)
