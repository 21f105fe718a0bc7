"""One unit's entries must not change how those of others are read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy import stats
from pacprivacy.cli import app
from pacprivacy.errors import MechanismError
from pacprivacy.sample import Coins

pytestmark = pytest.mark.claim("C-9")

BUDGET = "membership<=0.6"
N = 400


def planned(statistic: Any, table: pd.DataFrame) -> tuple[np.ndarray, str]:
    """Exact sums, and all that is told besides."""
    plan: Any = pac.plan(statistic, table, BUDGET, sample=Coins(rows_per_unit=1), units="unit")
    return plan.sums.total().values, plan.certificate.to_json()


@pytest.mark.parametrize(
    ("entry", "added", "levels"),
    [
        (1, "x", ["1.0", "2.0"]),
        (1, "x", ["01"]),
        (1.0, "x", [1, 2]),
        (True, "maybe", [True, False]),
        ("05/04/2020", "25/04/2020", ["2020-04-05"]),
        ("2020-04-05", "zz", ["2020-04-05"]),
    ],
)
@pytest.mark.parametrize("grouped", [False, True])
def test_levels_of_others_do_not_follow_from_one_entry(
    entry: Any, added: Any, levels: list[Any], grouped: bool
) -> None:
    base = pd.DataFrame({"g": [entry] * N, "unit": range(N)})
    more = pd.concat([base, pd.DataFrame({"g": [added], "unit": [N]})], ignore_index=True)
    statistic = (
        stats.count(by="g", levels={"g": levels})
        if grouped
        else stats.count("g", levels={"g": levels})
    )
    (without, told), (with_unit, told_too) = planned(statistic, base), planned(statistic, more)
    assert told == told_too
    assert np.abs(with_unit - without).sum() <= 1
    names = [
        list(pac.privatize(statistic, t, BUDGET, sample=Coins(rows_per_unit=1), units="unit").value)
        for t in (base, more)
    ]
    assert names[0] == names[1]


def test_formats_of_dates_are_declared_not_found() -> None:
    table = pd.DataFrame({"d": ["2020-04-05", "2020-04-25"] * 10})
    for statistic in (
        stats.mean("d", ranges={"d": (0, 40_000)}),
        stats.count(where="d > '2020-04-06'"),
        stats.count("d", levels={"d": ["2020-04-05"]}, where="d > '2020-04-06'"),
    ):
        with pytest.raises(MechanismError, match="formats of dates must be declared"):
            pac.privatize(statistic, table, BUDGET, sample=Coins(rows_per_unit=1))
    declared = stats.count(where="d > '2020-04-06'", date_formats={"d": "ISO"})
    assert pac.privatize(declared, table, BUDGET, sample=Coins(rows_per_unit=1)).value["rows"] < 60


def test_a_refusal_does_not_tell_of_gaps() -> None:
    said = []
    for gap in (1.0, np.nan):
        table = pd.DataFrame({"x": [0.0, 1.0, 2.0, gap] * 5})
        with pytest.raises(MechanismError) as refused:
            pac.privatize(
                stats.mean("x", missing="error", ranges={"x": (0, 3)}),
                table,
                BUDGET,
                sample=Coins(rows_per_unit=1),
            )
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_a_level_is_named_once() -> None:
    table = pd.DataFrame({"g": [1, 2] * 10})
    with pytest.raises(MechanismError, match="must differ as numbers"):
        pac.privatize(
            stats.count("g", levels={"g": ["1", "1.0"]}),
            table,
            BUDGET,
            sample=Coins(rows_per_unit=1),
        )


@pytest.mark.parametrize("budget", [BUDGET, "epsilon<=1"])
@pytest.mark.parametrize(
    ("entry", "added", "levels"),
    [
        ("1", "x", "1.0,2.0"),
        ("01", "x", "1,2"),
        ("05/04/2020", "25/04/2020", "2020-04-05"),
        ("2020-04-05", "zz", "2020-04-05"),
    ],
)
def test_a_file_is_read_alike_with_another_row(
    tmp_path: Path, budget: str, entry: str, added: str, levels: str
) -> None:
    found = []
    for more in ([], [added]):
        source, out = tmp_path / f"t{len(more)}.csv", tmp_path / f"o{len(more)}"
        source.write_text("g\n" + "".join(f"{each}\n" for each in [entry] * N + more))
        asked = ["release", str(source), "--promise", "dp", "--model", "count", "--group-by", "g"]
        asked += ["--levels", f"g={levels}", "--budget", budget, "-o", str(out)]
        ran = CliRunner().invoke(app, asked)
        assert ran.exit_code == 0, ran.output
        lines = list(csv.reader((out / "values.csv").read_text().splitlines()))[1:]
        found.append({name: float(value) for name, value, *_ in lines})
    assert list(found[0]) == list(found[1])
    for name in found[0]:
        assert abs(found[0][name] - found[1][name]) < 40


def test_the_decimal_mark_is_declared_not_found(tmp_path: Path) -> None:
    """One 1.234,5 must not make thousands of everybody's 1.234."""
    source, out = tmp_path / "t.csv", tmp_path / "out"
    source.write_text("x;y\n" + "1.234;a\n" * N + "1.234,5;a\n")
    asked = ["release", str(source), "--promise", "dp", "--model", "mean", "--columns", "x"]
    ran = CliRunner().invoke(
        app, [*asked, "--ranges", "0,2000", "--budget", BUDGET, "-o", str(out)]
    )
    assert ran.exit_code == 2, "text among numbers"
    assert not out.exists()
