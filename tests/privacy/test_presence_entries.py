"""Whether a release is refused, and all it says besides its numbers, tell of no unit's entries."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy import stats
from pacprivacy.cli import app
from pacprivacy.errors import PacPrivacyError
from pacprivacy.sample import Coins

pytestmark = pytest.mark.claim("C-9")

BUDGET = "membership<=0.6"
N = 40
RNG = np.random.default_rng(0)
DAYS = [f"2024-05-{1 + i % 28:02d}" for i in range(N)]
BASE = pd.DataFrame(
    {
        "x": RNG.uniform(0, 10, N),
        "w": RNG.uniform(0, 2, N),
        "t": pd.to_datetime(DAYS),
        "n": np.arange(N) % 2,
        "g": pd.Series(RNG.choice(["a", "b"], N), dtype=object),
        "d": pd.Series(DAYS, dtype=object),
        "dd": pd.Series([dt.date(2024, 5, 1 + i % 28) for i in range(N)], dtype=object),
        "b": pd.Series([bool(i % 2) for i in range(N)], dtype=object),
        "s": pd.Series([str(i % 3) for i in range(N)], dtype=object),
    }
)
RANGES = {"x": (0, 10), "w": (0, 2), "d": (0, 40_000), "dd": (0, 40_000), "b": (0, 1)}
LEVELS: dict[str, list[Any]] = {"g": ["a", "b"], "s": ["0", "1", "2"], "n": [0, 1]}
ISO = {"d": "ISO", "dd": "ISO"}
STATISTICS: dict[str, Any] = {
    "mean x": stats.mean("x", ranges=RANGES),
    "mean x by g": stats.mean("x", by="g", levels=LEVELS, ranges=RANGES),
    "weighted": stats.mean("x", weights="w", ranges=RANGES),
    "mean d": stats.mean("d", ranges=RANGES, date_formats=ISO),
    "where d": stats.count(where="d > '2024-05-10'", date_formats=ISO),
    "where d, a time": stats.count(where="d > '2024-05-10 12:00'", date_formats=ISO),
    "mean dd": stats.mean("dd", ranges=RANGES),
    "where dd": stats.count(where="dd <= '2024-05-10'", date_formats=ISO),
    "where dd, undeclared": stats.count(where="dd > '2024-05-10'"),
    "where t": stats.count(where="t > '2024-05-10'"),
    "mean b": stats.mean("b", ranges=RANGES),
    "where b": stats.count(where="b == True", ranges=RANGES),
    "where b, undeclared": stats.count(where="not (b == True)"),
    "count b": stats.count("b", levels={"b": ["True", "False"]}),
    "count s": stats.count("s", levels=LEVELS),
    "where s": stats.count(where="s == '1'"),
    "where s, a number": stats.count(where="s != 1 and s < 7"),
    "where g": stats.count(where="g in ['a', 'c']"),
    "where g, in order": stats.count(where="g < 'b'"),
    "where n": stats.count(where="n == True"),
    "where n, a level": stats.count("n", levels=LEVELS, where="n == '1' or n == 1"),
    "g and s": stats.count(where="g == s"),
    "d and dd": stats.count(where="d == dd", date_formats=ISO),
    "undeclared g": stats.count("g"),
    "a study, undeclared": pac.Study({"means": stats.mean(["x", "g"], ranges=RANGES)}),
    "histogram": stats.histogram("x", bins=[0, 5, 10]),
    "histogram by g": stats.histogram("x", bins=[0, 5, 10], by="g", levels=LEVELS),
    "count x": stats.count("x"),
    "gaps": stats.count("g", levels=LEVELS, missing="category"),
    "crosstab": stats.count(by=["s", "g"], levels=LEVELS),
}
HOSTILE: dict[str, list[Any]] = {
    "x": [np.nan, np.inf, -np.inf, 1e300],
    "w": [np.nan, -1.0, np.inf],
    "t": [pd.NaT, pd.Timestamp("2024-05-20 10:30"), pd.Timestamp("2024-05-10 00:00:01")],
    "n": [7, 0.5, "x", None, dt.date(2024, 1, 1)],
    "g": [
        None,
        "",
        "nan",
        7,
        7.5,
        True,
        dt.date(2024, 1, 1),
        Decimal("sNaN"),
        np.ones(2),
        b"a",
        10**5000,
    ],
    "d": [None, "", "2024-05-31T10:00Z", "2024-05-31 10:00", "2024-02-31", "soon", 5, "0001-01-01"],
    "dd": [None, dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), dt.date(1, 1, 1), "2024-05-01", "x"],
    "b": [None, 2, "True", np.nan, "maybe", 10**400, dt.timedelta(1)],
    "s": [None, 1.0, "01", "2024-05-05", "05/04/2024", "x", True],
}


def planned(statistic: Any, table: pd.DataFrame) -> tuple[str, Any, float]:
    """All that is public before the numbers, or the refusal; the integers; and the reach."""
    try:
        plan: Any = pac.plan(
            statistic, table, BUDGET, sample=Coins(rows_per_unit=1), units="unit", rng=0
        )
    except Exception as error:  # also one that is not ours
        return f"{type(error).__name__}: {error}", None, 0.0
    noise = plan.noise
    everybody = np.ones(len(noise.factors), dtype=bool)
    integers = noise.lattice.add(plan.sums, noise.factors, everybody)
    told = f"{plan.certificate.to_json()} {plan.outputs.structure!r}"
    return told, integers / noise.lattice.units_per_std, plan.certificate.presence.mu


def with_row(table: pd.DataFrame, row: dict[str, Any], *, first: bool) -> pd.DataFrame:
    """The table with one more unit, in columns of the types that pandas gives them."""
    columns = {}
    for name, column in table.items():
        entries = [row[name], *column] if first else [*column, row[name]]
        same = column.dtype != object and not isinstance(row[name], str | dt.date | None)
        kept = same or column.dtype.kind == "M"
        columns[name] = pd.Series(entries) if kept else pd.Series(entries, dtype=object)
    return pd.DataFrame(columns)


@pytest.mark.parametrize("name", STATISTICS)
def test_one_hostile_unit_is_not_told_by_a_refusal(name: str) -> None:
    rng = np.random.default_rng(1)
    base = BASE.iloc[rng.permutation(N)].assign(unit=range(N)).reset_index(drop=True)
    told, without, mu = planned(STATISTICS[name], base)
    refused = ("undeclared", "in order")
    unsure = name != "where b, undeclared" and any(word in name for word in refused)
    assert told.startswith("MechanismError") is unsure, told
    used = [c for c in HOSTILE if c in f"{STATISTICS[name]!r} {name}" or c == "x"]
    for column in used:
        for entry in HOSTILE[column]:
            row = {**base.iloc[int(rng.integers(N))].to_dict(), column: entry, "unit": N}
            table = with_row(base, row, first=bool(rng.integers(2)))
            again, with_unit, _ = planned(STATISTICS[name], table)
            assert again == told, (column, type(entry))
            if with_unit is not None:
                assert np.linalg.norm(with_unit - without) <= mu, (column, type(entry))


def test_conditions_are_met_entry_by_entry() -> None:
    """A day with a time counts as its day; what is of another kind is a gap."""
    table = pd.DataFrame(
        {
            "d": ["2024-05-10T09:00+02:00", "2024-05-11", "soon", None, "2024-05-09 23:59"],
            "k": pd.Series(["01", 1, "x", True, 2.0], dtype=object),
        }
    )
    counts = {
        "d > '2024-05-10'": 1,
        "d <= '2024-05-10'": 2,
        "d == '2024-05-10'": 1,
        "d > '2024-05-10 08:00'": 2,
        "k == 1": 3,
        "k != 1": 1,
        "k != '1'": 2,
        "k in ('x', '1.0')": 4,
    }
    for where, count in counts.items():
        statistic = stats.count(where=where, date_formats={"d": "ISO"})
        sums = statistic.reading_by_entry().prepare(pac.mechanism.coerce_data(table))
        assert sums.evaluate((table,), np.random.default_rng(0)) == count, where


def test_dates_beside_texts_are_refused_by_name() -> None:
    """Without hidden presence, and in our own words."""
    table = pd.DataFrame({"d": pd.Series([dt.date(2024, 5, 1), "soon"] * 200, dtype=object)})
    with pytest.raises(PacPrivacyError, match="'d' must hold dates in every row, or none"):
        pac.privatize(stats.count(where="d > '2024-05-01'"), table, BUDGET, sample=Coins())


def test_a_histogram_hides_presence() -> None:
    age = RNG.uniform(0, 90, 4000)
    table = pd.DataFrame({"age": age})
    release = pac.privatize(
        stats.histogram("age", bins=[0, 30, 60, 90]), table, BUDGET, sample=Coins(rows_per_unit=1)
    )
    counts = np.histogram(age, [0, 30, 60, 90])[0]
    np.testing.assert_allclose(list(release.value.values()), counts, atol=15)
    certificate: Any = release.certificate
    assert certificate.presence.declared == "age: 3 levels; rows of one record: 1"


# --- files ------------------------------------------------------------------------------------

SCHEMA = """
[columns.x]
type = "number"
range = [0, 2000]
[columns.d]
type = "date"
date_format = "ISO"
[columns.flag]
type = "number"
range = [0, 2]
"""
ROW = "é,7,2024-05-07,1,3\n"
OTHERS = "".join(
    f"{'éz'[i % 2]},{i % 50},2024-05-{1 + i % 28:02d},{i % 2},{i % 9}\n" for i in range(300)
)
ROWS = [
    b"\xe9,7,2024-05-07,1,3\n",
    b"\x81\xff\x00,7,2024-05-07,1,3\n",
    "é,7,2024-05-07,2,x\n".encode(),
    'é,"1,234",2024-05-07,0.5,"1,5"\n'.encode(),
    'é,"1,234.5",2024-05-07T10:30,1,1e5\n'.encode(),
    "é,1e2,2024-05-07 10:30Z,1,none\n".encode(),
    "é,inf,2024-02-31,x,-\n".encode(),
    "é,soon,,-,05/04/2024\n".encode(),
    b"a;b;c,7,2024-05-07,1,3\n",
]
ASKED: dict[str, list[str]] = {
    "groups": ["--model", "count", "--group-by", "g", "--levels", "g=é,none"],
    "mean": ["--model", "mean", "--columns", "x"],
    "days": ["--model", "count", "--where", "d > '2024-05-10'"],
    "flag": ["--model", "count", "--where", "flag == True"],
    "undeclared": ["--model", "mean", "--columns", "x", "--where", "k > 3"],
    "undeclared text": ["--model", "count", "--where", "k == '3'"],
    "in order": ["--model", "count", "--where", "k < '2024-05-05'"],
    "a pair": ["--model", "mean", "--columns", "k", "--ranges", "0,10"],
    "shares": ["--model", "mean", "--columns", "k", "--levels", "k=1,2,-"],
    "histogram": ["--model", "histogram", "--columns", "x", "--bins", "3"],
    "median": ["--model", "median", "--columns", "x", "--where", "d > '2024-05-10' and k == 3"],
}


def released(folder: Path, content: bytes, words: list[str], budget: str) -> tuple[Any, ...]:
    """Exit code, the refusal, and every public field but numbers; and the numbers."""
    folder.mkdir()
    source, schema, out = (folder / name for name in ("t.csv", "t.toml", "out"))
    source.write_bytes(b"g,x,d,flag,k\n" + content)
    schema.write_text(SCHEMA, encoding="utf-8")
    asked = ["release", str(source), "--promise", "dp", "--budget", budget, "-o", str(out), "-q"]
    ran = CliRunner().invoke(app, [*asked, "--schema", str(schema), *words])
    if ran.exit_code:
        return ran.exit_code, ran.output.replace(str(folder), ""), None
    public = json.loads((out / "release.json").read_text(encoding="utf-8"))
    value = public.pop("value")
    return 0, json.dumps({**public, "error_bars": 0, "digest": 0}), value


@pytest.mark.parametrize("name", ASKED)
def test_a_file_with_one_hostile_row(tmp_path: Path, name: str) -> None:
    budgets = [BUDGET] if name in ("flag", "in order", "shares") else [BUDGET, "epsilon<=1"]
    for number, budget in enumerate(budgets):
        base = released(tmp_path / f"{number}", OTHERS.encode(), ASKED[name], budget)
        assert (base[0] != 0) is (name == "in order"), base[1]
        for place, row in enumerate(ROWS):
            content = row + OTHERS.encode() if place % 2 else OTHERS.encode() + row
            more = released(tmp_path / f"{number}-{place}", content, ASKED[name], budget)
            assert more[:2] == base[:2], row
    if name == "groups":
        assert abs(base[2]["count"]["records"]["é"] - 150) < 20
        assert abs(base[2]["count"]["records"]["none"]) < 20


@pytest.mark.claim("M-7")
def test_a_number_is_read_by_its_own_entry(tmp_path: Path) -> None:
    words = ["--model", "mean", "--columns", "x", "--delimiter", ","]
    rows = ['é,"1,234",,1,1\n', 'é,"1,234.5",,1,1\n', "é,1e2,,1,1\n"]
    for number, truth in ((1, 1234.0), (2, 1234.25), (3, 856.167)):
        content = "".join(row * 4000 for row in rows[:number]).encode()
        value = released(tmp_path / str(number), content, words, BUDGET)[2]
        assert value["x"] == pytest.approx(truth, abs=20)


def test_another_separator_is_declared(tmp_path: Path) -> None:
    source = tmp_path / "t.csv"
    source.write_text("x;y\n" + "1;2\n" * 9)
    words = ["release", str(source), "--promise", "dp", "--budget", BUDGET, "--model", "count"]
    words += ["-o", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert '--delimiter ";"' in refused.output
    assert CliRunner().invoke(app, [*words, "--delimiter", ";"]).exit_code == 0


def test_the_records_verify_a_release_that_hides_presence(tmp_path: Path) -> None:
    """They are read as the release read them: an odd entry is a gap here, too."""
    content = OTHERS.encode() + b'\xe9,"1,234",soon,x,y\n'
    words = ["--model", "mean", "--columns", "x", "--group-by", "g", "--levels", "g=é,z"]
    assert released(tmp_path / "a", content, words, BUDGET)[0] == 0
    again = ["verify", str(tmp_path / "a/out/release.json"), "--data", str(tmp_path / "a/t.csv")]
    ran = CliRunner().invoke(app, [*again, "--schema", str(tmp_path / "a/t.toml"), *words])
    assert ran.exit_code == 0, ran.output
