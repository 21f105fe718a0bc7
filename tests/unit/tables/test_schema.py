"""A schema of a table: guessed, edited, read; what is guessed is never declared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacprivacy.errors import DataError
from pacprivacy.tables import Reading, Schema, read_folder, read_table, schema_notes

FILE = """\
person;age;region;visit;crp;pay
p1;34;north;01/02/2023;<5;1,5
p1;-9;south;15/02/2023;7,5;2,25
p2;51;north;20/03/2023;8;3
p3;60;refused;21/03/2023;<2;4,75
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text(FILE, encoding="utf-8")
    return tmp_path / "people.csv"


def written(tmp_path: Path, text: str) -> Schema:
    (tmp_path / "schema.toml").write_text(text, encoding="utf-8")
    return Schema.read(tmp_path / "schema.toml")


@pytest.mark.claim("M-7")
def test_what_is_guessed_is_read_back_and_not_declared(path: Path, tmp_path: Path) -> None:
    reading = Reading(decimal=",")
    table = read_table(path, reading)
    guess = Schema.guess(table, reading)
    text = guess.to_toml(notes=schema_notes(table)).replace('"?"', '"half"')
    schema = written(tmp_path, text)
    assert schema.columns["region"].levels == ("north", "refused", "south")
    assert schema.columns["age"].range == (-10.0, 60.0)
    assert schema.levels == {}
    assert schema.ranges(["age"]) is None
    declared = written(tmp_path, text.replace('guessed = ["type", "range"]', ""))
    assert declared.ranges(["age", "pay", "region"]) == {"age": (-10.0, 60.0), "pay": (1.0, 5.0)}
    assert declared.ranges(["age", "crp"]) is None  # one has none
    assert declared.levels == {}


def test_codes_of_gaps_and_detection_limits_are_read_as_the_schema_says(
    path: Path, tmp_path: Path
) -> None:
    limits = {"half": [2.5, 7.5, 8, 1], "limit": [5, 7.5, 8, 2], "zero": [0, 7.5, 8, 0]}
    limits["gap"] = [np.nan, 7.5, 8, np.nan]
    for choice, expected in limits.items():
        schema = written(
            tmp_path,
            f'decimal = ","\nmissing = ["-9"]\n[columns.crp]\nless_than = "{choice}"\n'
            '[columns.region]\nmissing = ["refused"]\n[columns.age]\ntype = "number"\n',
        )
        columns = read_table(path, schema.reading).columns
        np.testing.assert_array_equal(columns["crp"].numbers, expected)
        np.testing.assert_array_equal(columns["age"].numbers, [34, np.nan, 51, 60])
        assert columns["region"].labels.tolist() == ["north", "south", "north", None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("decimel = ','", "Did you mean 'decimal'"),
        ("[columns.age]\nrnge = [0, 1]", "Did you mean 'range'"),
        ("[columns.age]\nrange = [1, 0]", r"range in \[columns.age\] must be \[low, high\]"),
        ("[columns.age]\ntype = 'int'", "type in .* must be one of number, date"),
        ("[columns.age]\nguessed = ['colour']", "distinct, of"),
        ("[columns.crp]\nless_than = '?'", "one of limit, half, zero, gap"),
        ("header_row = 0", "the number of a row"),
        ("columns = 3", "must be tables"),
        ("unit = ", "must be a schema in TOML"),
    ],
)
def test_what_a_schema_does_not_know_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        written(tmp_path, text)


def test_a_file_that_is_not_as_its_schema_says_is_refused(path: Path, tmp_path: Path) -> None:
    for text, reason in (
        ("[columns.agee]\ntype = 'number'", "Did you mean 'age'"),
        ("[columns.region]\ntype = 'number'", "'region' must hold numbers, as its schema says"),
        ("[columns.age]\ntype = 'date'", "'age' must hold dates"),
    ):
        with pytest.raises(DataError, match=reason) as caught:
            read_table(path, written(tmp_path, text).reading)
        assert "refused" not in str(caught.value)
        assert "north" not in str(caught.value)


def test_files_of_statistics_packages_are_read_with_their_labels(tmp_path: Path) -> None:
    pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
    frame = pd.DataFrame({"age": [34.0, np.nan, 51.0], "sex": [1, 2, 9], "town": ["a", "b", "a"]})
    labels = {"sex": {1: "f", 2: "m"}}
    missing = {"sex": [{"lo": 9, "hi": 9}]}
    pyreadstat.write_sav(
        frame, str(tmp_path / "p.sav"), variable_value_labels=labels, missing_ranges=missing
    )
    pyreadstat.write_dta(frame, str(tmp_path / "p.dta"), variable_value_labels=labels)
    for name in ("p.sav", "p.dta"):
        columns = read_table(tmp_path / name).columns
        np.testing.assert_array_equal(columns["age"].numbers, [34, np.nan, 51])
        assert columns["sex"].labels.tolist()[:2] == ["f", "m"]
        assert columns["town"].labels.tolist() == ["a", "b", "a"]
    assert read_table(tmp_path / "p.sav").columns["sex"].gaps.tolist() == [False, False, True]
    (tmp_path / "bad.sav").write_bytes(b"not one")
    with pytest.raises(DataError, match="must be a readable file of a statistics package"):
        read_table(tmp_path / "bad.sav")


def test_a_sheet_and_its_header_row_are_named(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    sheet = book.create_sheet("people")
    for row in (["Survey of 2023"], [], ["age", "town"], [34, "a"], [-9, "b"]):
        sheet.append(row)
    book.save(tmp_path / "p.xlsx")
    schema = written(tmp_path, 'sheet = "people"\nheader_row = 3\nmissing = ["-9"]')
    columns = read_table(tmp_path / "p.xlsx", schema.reading).columns
    np.testing.assert_array_equal(columns["age"].numbers, [34, np.nan])
    with pytest.raises(DataError, match="Did you mean 'people'"):
        read_table(tmp_path / "p.xlsx", Reading(sheet="peopel"))


def test_tables_of_queries_are_read_by_their_schemas(path: Path, tmp_path: Path) -> None:
    folder, schemas = tmp_path / "tables", tmp_path / "schemas"
    folder.mkdir(), schemas.mkdir()
    path.rename(folder / "people.csv")
    (folder / "visits.csv").write_text("person,cost\np1,5\np2,7\n", encoding="utf-8")
    (schemas / "people.toml").write_text(
        'decimal = ","\nmissing = ["-9"]\n[columns.crp]\nless_than = "half"\n'
        '[columns.visit]\ntype = "date"\ndate_format = "%d/%m/%Y"\n',
        encoding="utf-8",
    )
    tables = read_folder(folder, schemas)
    people = tables["people"].to_pydict()
    assert people["age"] == [34, None, 51, 60]
    assert people["crp"] == [2.5, 7.5, 8, 1]
    assert people["visit"][1].date().isoformat() == "2023-02-15"
    assert people["region"] == ["north", "south", "north", "refused"]
    assert tables["visits"].to_pydict() == {"person": ["p1", "p2"], "cost": [5, 7]}
    (alone,) = read_folder(folder / "people.csv", schemas / "people.toml").items()
    assert alone[0] == "people"
    assert alone[1].to_pydict() == people
    (schemas / "peopel.toml").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"each schema must be that of a table.*peopel\.toml"):
        read_folder(folder, schemas)


@pytest.mark.parametrize("entry", ["inf", "9007199254740993"])
def test_numbers_that_are_no_whole_ones_of_the_engine_stay_floats(
    tmp_path: Path, entry: str
) -> None:
    """Ids that floats do not tell apart must not become one whole number; nor must infinity."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "people.csv").write_text(f"id,pay\n1,2\n2,{entry}\n", encoding="utf-8")
    pay = read_folder(tmp_path, tmp_path / "schemas")["people"]["pay"]
    assert str(pay.type) == "double"
    assert pay.to_pylist() == [2.0, float(entry)]


@pytest.mark.claim("M-7")
@pytest.mark.parametrize("declared", ["id", "text", "category", "unit", "key"])
def test_ids_stay_as_they_are_written(tmp_path: Path, declared: str) -> None:
    """007 and 7 are two units, whether or not somebody is called A01."""
    (tmp_path / "s").mkdir()
    columns = f'[columns.id]\ntype = "{declared}"\n' if declared not in ("unit", "key") else ""
    unit = 'unit = "id"\n' if declared == "unit" else ""
    (tmp_path / "s" / "people.toml").write_text(unit + columns, encoding="utf-8")
    named = {"people": {"id"}} if declared == "key" else None
    for more in ([], ["A01"]):
        entries = ["007", "7", "010", *more]
        rows = "".join(f"{each},1\n" for each in entries)
        (tmp_path / "people.csv").write_text(f"id,x\n{rows}", encoding="utf-8")
        people = read_folder(tmp_path, tmp_path / "s", named)["people"]
        assert people["id"].to_pylist() == entries
        assert people["x"].to_pylist() == [1] * len(entries)


@pytest.mark.claim("C-16")
def test_numbers_of_a_typed_file_are_the_ids_of_their_texts(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"id": [7, None, 12], "x": [1, 2, 3]}), tmp_path / "people.parquet")
    people = read_folder(tmp_path, tmp_path / "s", {"people": ["id"]})["people"]
    assert people["id"].to_pylist() == ["7", None, "12"]


@pytest.mark.claim("C-16")
def test_an_encoding_is_named_where_ids_must_last(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "people.csv").write_bytes("id,x\nJosé,1\n".encode("cp1252"))
    (tmp_path / "s" / "people.toml").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"must be UTF-8, or its encoding be named.*encoding ="):
        read_folder(tmp_path, tmp_path / "s", {"people": ["id"]})
    assert read_folder(tmp_path, tmp_path / "s")["people"]["id"].to_pylist() == ["José"]
    (tmp_path / "s" / "people.toml").write_text('encoding = "cp1252"', encoding="utf-8")
    people = read_folder(tmp_path, tmp_path / "s", {"people": ["id"]})["people"]
    assert people["id"].to_pylist() == ["José"]


@pytest.mark.claim("M-7")
@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        (["1,234"], [1234.0]),
        (["1,234.5", "1e2"], [1234.5, 100.0]),
        (["-3e2", "1,234"], [-300, 1234]),
    ],
)
@pytest.mark.parametrize("quick", [False, True])
def test_a_declared_decimal_mark_decides_every_entry(
    tmp_path: Path, rows: list[str], numbers: list[float], quick: bool
) -> None:
    path, n = tmp_path / "t.csv", (1 << 18) // len(rows) if quick else 1
    path.write_text("x;y\n" + "".join(f"{row};a\n" for row in rows) * n, encoding="utf-8")
    schema = written(tmp_path, 'delimiter = ";"\ndecimal = "."\n[columns.x]\ntype = "number"')
    found = read_table(path, schema.reading).columns["x"].numbers
    assert found is not None
    np.testing.assert_array_equal(found, numbers * n)
    path.write_text("x;y\n" + "".join(f"{row};a\n" for row in [*rows, "1,5"]), encoding="utf-8")
    with pytest.raises(DataError, match="must hold numbers"):
        read_table(path, schema.reading)


@pytest.mark.claim("M-7")
@pytest.mark.parametrize(
    ("mark", "rule", "entries"),
    [(".", "half", [0.6, np.nan]), (".", "limit", [1.2, np.nan]), (",", "half", [0.6, 0.75])],
)
def test_a_limit_is_read_with_the_declared_mark(
    tmp_path: Path, mark: str, rule: str, entries: list[float]
) -> None:
    """With a decimal point, <1,5 is not below 1.5: it is no number."""
    path, known = tmp_path / "t.csv", f"<1{mark}2"
    path.write_text(f"x;y\n{known};a\n<1,5;b\n", encoding="utf-8")
    schema = written(tmp_path, f'decimal = "{mark}"\n[columns.x]\nless_than = "{rule}"')
    by_entry = replace(schema.reading, delimiter=";", by_entry=True, numbers=frozenset("x"))
    column = read_table(path, by_entry).columns["x"]
    np.testing.assert_allclose(column.numbers, entries)


@pytest.mark.claim("M-7")
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("by_entry", [False, True])
def test_declared_levels_are_no_gaps(tmp_path: Path, quick: bool, by_entry: bool) -> None:
    path, n = tmp_path / "t.csv", (1 << 17) if quick else 1
    path.write_text("x,y\n" + "none,1\n-,2\nNA,3\nsome,4\n" * n, encoding="utf-8")
    schema = written(tmp_path, '[columns.x]\nlevels = ["none", "-", "some"]')
    column = read_table(path, replace(schema.reading, by_entry=by_entry)).columns["x"]
    assert column.labels[:4].tolist() == ["none", "-", None, "some"]
    guessed = written(tmp_path, '[columns.x]\nlevels = ["none"]\nguessed = ["levels"]')
    assert read_table(path, guessed.reading).columns["x"].labels[0] is None
