"""What may be compared in ``where``: each case is right, as pandas says, or refused."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pacprivacy import stats
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism import coerce_data, find_date_formats, read_dates
from pacprivacy.tables import Reading, category_rows_where, read_table

N = 400
OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ORDERS, EQUAL = ("<", "<=", ">", ">="), ("==", "!=")
REFUSED = None


def _truth() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    days = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 900, N), unit="D")
    low = pd.to_datetime(
        {"year": rng.integers(2022, 2025, N), "month": rng.integers(1, 13, N)}
        | {"day": rng.integers(1, 13, N)}
    )
    return pd.DataFrame(
        {
            "age": np.where(rng.random(N) < 0.05, np.nan, rng.integers(18, 91, N)),
            "flag": rng.integers(0, 2, N),
            "region": rng.choice(["north", "south", "east=west"], N),
            "day": days,
            "time": days + pd.to_timedelta(rng.integers(1, 1440, N), unit="min"),
            "low": low,
            "mixed": rng.choice(["<5", "neg", "7", "12"], N),
            "clock": rng.choice(["09:30", "10:15", "23:00"], N),
        }
    )


TRUTH = _truth()
WRITTEN = {  # how a column of the truth is written in the file
    "age": ("age", lambda c: c.map(lambda x: "" if x != x else f"{x:.0f}")),
    "comma": ("age", lambda c: c.map(lambda x: "" if x != x else f"{x:.1f}".replace(".", ","))),
    "flag": ("flag", lambda c: c.astype(str)),
    "region": ("region", lambda c: c),
    "iso": ("day", lambda c: c.dt.strftime("%Y-%m-%d")),
    "dash": ("day", lambda c: c.dt.strftime("%d-%m-%Y")),
    "dmy": ("day", lambda c: c.dt.strftime("%d/%m/%Y")),
    "mdy": ("day", lambda c: c.dt.strftime("%m/%d/%Y")),
    "german": ("day", lambda c: c.dt.strftime("%d.%m.%Y")),
    "sas": ("day", lambda c: c.dt.strftime("%d%b%Y")),
    "words": ("day", lambda c: c.dt.strftime("%B %d, %Y")),
    "slashed": ("day", lambda c: c.dt.strftime("%Y/%m/%d")),
    "time": ("time", lambda c: c.dt.strftime("%Y-%m-%d %H:%M")),
    "zoned": ("time", lambda c: c.dt.strftime("%Y-%m-%dT%H:%M+02:00")),
    "low": ("low", lambda c: c.dt.strftime("%m/%d/%Y")),
    "short": ("day", lambda c: c.dt.strftime("%d/%m/%y")),
    "mixed": ("mixed", lambda c: c),
    "clock": ("clock", lambda c: c),
}
DATES = ("iso", "dash", "dmy", "mdy", "german", "sas", "words", "slashed")
DAY = pd.Timestamp("2023-08-18")


def _cases() -> list[Any]:
    """Return column, operator, literal as typed, and what it means; None must be refused."""
    every, cases = (*EQUAL, *ORDERS), []
    for column in ("age", "comma"):
        cases += [(column, op, "50", 50.0) for op in every]
        cases += [(column, op, literal, REFUSED) for op in every for literal in ("'50'", "True")]
        cases += [(column, ">=", "'2024-01-01'", REFUSED), (column, "==", "'x'", REFUSED)]
    cases += [("flag", "==", "True", 1.0), ("flag", "!=", "1", 1.0), ("flag", "==", "'1'", REFUSED)]
    for column in DATES:
        cases += [(column, op, "'2023-08-18'", DAY) for op in every]
        cases += [(column, ">=", "2024", REFUSED), (column, ">=", "'2024'", REFUSED)]
        cases += [(column, "<", "'2023-08'", REFUSED), (column, "==", "True", REFUSED)]
        cases += [(column, ">", "'18 of August'", REFUSED), (column, "<", "'18.08.23'", REFUSED)]
    cases += [("dash", "<", "'18-08-2023'", DAY), ("dmy", ">=", "'18/08/2023'", DAY)]
    cases += [("mdy", ">=", "'08/18/2023'", DAY), ("mdy", ">=", "'18/08/2023'", REFUSED)]
    cases += [("sas", "==", "'18Aug2023'", DAY), ("iso", ">=", "'18/08/2023'", REFUSED)]
    for column in ("time", "zoned"):
        cases += [(column, op, "'2023-08-18 12:00'", DAY.replace(hour=12)) for op in every]
        cases += [(column, op, "'2023-08-18'", DAY) for op in ("<", ">=")]
        cases += [(column, op, "'2023-08-18'", REFUSED) for op in ("==", "!=", "<=", ">")]
        cases += [(column, ">", "'2023-08-18 12:00+02:00'", REFUSED)]
    for column in ("region", "mixed", "clock"):
        literal = {"region": "east=west", "mixed": "7", "clock": "10:15"}[column]
        cases += [(column, op, f"'{literal}'", literal) for op in EQUAL]
        cases += [(column, op, f"'{literal}'", REFUSED) for op in ORDERS]
        cases += [(column, op, "7", REFUSED) for op in ("==", ">")]
    cases += [("low", op, "'2023-08-18'", REFUSED) for op in every]
    cases += [("short", op, "'2023-08-18'", REFUSED) for op in every]
    cases += [("age", "==", "9007199254740993", REFUSED)]
    return cases


CASES = _cases()


@pytest.fixture(scope="module", params=["small", "large"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file; a large one is read by pyarrow."""
    file: Path = tmp_path_factory.mktemp("table") / "table.csv"
    frame = pd.DataFrame({name: how(TRUTH[of]) for name, (of, how) in WRITTEN.items()})
    if request.param == "large":
        frame["padding"] = "x" * 3000
    frame.to_csv(file, index=False, sep=";")
    return file


def expected(column: str, op: str, value: Any) -> list[bool]:
    """Return the rows by pandas; a row with a gap is not taken."""
    truth = TRUTH[WRITTEN[column][0]]
    return (OPERATORS[op](truth, value) & truth.notna()).tolist()


def refusal(call: Callable[[], Any]) -> str:
    """Return what is said where a call is refused; empty where it is not."""
    try:
        call()
    except (MechanismError, DataError) as error:
        return str(error)
    return ""


def test_a_file_is_compared_right_or_not_at_all(path: Path) -> None:
    table = read_table(path)
    assert len(CASES) > 150
    assert {case[3] is REFUSED for case in CASES} == {True, False}
    for column, op, literal, value in CASES:
        where = f"{column} {op} {literal}"
        if value is REFUSED:
            told = refusal(lambda where=where: category_rows_where(table, where))
            assert re.search(r"where must .*; got .*\. \w", told), where
        else:
            assert category_rows_where(table, where).tolist() == expected(column, op, value), where


def test_a_declared_format_settles_what_the_column_cannot(path: Path) -> None:
    for written, of in {"low=%m/%d/%Y": "low", "short=%d/%m/%y": "short"}.items():
        name, _, date_format = written.partition("=")
        table = read_table(path, Reading(date_formats={name: date_format}))
        for op in OPERATORS:
            rows = category_rows_where(table, f"{name} {op} '2023-08-18'").tolist()
            assert rows == expected(of, op, DAY), (written, op)
    with pytest.raises(DataError, match="--date-format must be that of a column in the file"):
        read_table(path, Reading(date_formats={"iso": "%d.%m.%Y"}))


@pytest.mark.parametrize("typed", ["as in the file", "by their types"])
def test_a_frame_is_compared_right_or_not_at_all(typed: str) -> None:
    """Counts of all rows, through a statistic; what the file makes a number is one in a frame."""
    as_text = pd.DataFrame({name: how(TRUTH[of]) for name, (of, how) in WRITTEN.items()})
    frame = as_text.assign(age=TRUTH.age, comma=TRUTH.age, flag=TRUTH.flag)
    if typed == "by their types":
        frame = frame.assign(**dict.fromkeys(DATES, TRUTH.day))
        frame = frame.assign(time=TRUTH.time, zoned=TRUTH.time.dt.tz_localize("Europe/Berlin"))
    data = coerce_data(frame)
    own = ("'18-08-2023'", "'18/08/2023'", "'08/18/2023'", "'18Aug2023'")
    for column, op, literal, value in CASES:
        if typed == "by their types" and literal in own:
            continue  # dates that have no text have no format of their own
        counted = stats.count(where=f"{column} {op} {literal}")
        if value is REFUSED:
            told = refusal(lambda counted=counted: counted.prepare(data))
            assert re.search(r"must .*; got .*\. \w", told), (column, op, literal)
        else:
            whole = counted.prepare(data)
            found = whole.evaluate(data.parts, np.random.default_rng(0))
            assert found == sum(expected(column, op, value)), (column, op, literal)


def test_columns_beside_each_other() -> None:
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [2.0, 2, 2, 2], "s": list("wxyz")})
    frame = frame.assign(d=pd.to_datetime("2024-01-01"), t=list("wwzz"))
    data = coerce_data(frame)

    def count(where: str) -> float:
        whole = stats.count(where=where).prepare(data)
        return float(whole.evaluate(data.parts, np.random.default_rng(0))[0])

    assert count("a < b") == 1
    assert count("s == t") == 2
    assert count("1 < a <= 3 and not s == 'x'") == 1
    for where in ("a < d", "s < t", "s == a", "d == s"):
        with pytest.raises(MechanismError, match="where must compare columns of"):
            count(where)


def test_formats_are_those_that_read_every_entry() -> None:
    assert find_date_formats(["03/04/2024", "18/04/2024"]) == ("%d/%m/%Y",)
    assert find_date_formats(["03/04/2024", "04/18/2024"]) == ("%m/%d/%Y",)
    assert find_date_formats(["03/04/2024"]) == ("%d/%m/%Y", "%m/%d/%Y")
    assert find_date_formats(["18/04/2024", "04/18/2024"]) == ()
    assert find_date_formats(["2024-05-31T10:00+02:00", "2024-05-31T10:00+01:00"]) == ()
    pairs = itertools.product(("%d-%m-%Y", "%d %b %Y", "%B %d, %Y"), ("", " %H:%M", " %I:%M %p"))
    for day, time in pairs:
        moment = pd.Timestamp("2024-05-31 15:20" if time else "2024-05-31")
        texts = [moment.strftime(day + time), (moment - pd.Timedelta(days=60)).strftime(day + time)]
        (found,) = find_date_formats(texts)
        assert read_dates(texts, found)[0] == (moment - pd.Timestamp(0)) / pd.Timedelta(days=1)
