"""Pictures of values: what is drawn follows from what the numbers are."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy._values import read_bin, row_interval
from pacprivacy.reporting import ReportData, plot_release, render_page
from pacprivacy.reporting.charts import HistogramLayout, TwoWayLayout, value_layout
from pacprivacy.statistics import Histogram

BUDGET = "membership<=0.75"


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 900
    return pd.DataFrame({
        "age": rng.integers(0, 100, n).astype(float),
        "pay": rng.normal(50.0, 9.0, n),
        "region": rng.choice(["east", "north", "west"], n),
        "smoker": rng.choice(["no", "yes"], n),
    })  # fmt: skip


def released(people: Any, statistic: Any) -> pac.Release:
    return pac.privatize(
        statistic, people, BUDGET, sample=pac.Coins(keep=0.9), rng=0, simulate=True
    )


def test_histograms_are_drawn_between_their_edges(people: pd.DataFrame) -> None:
    release = released(people["age"], Histogram(bins=4, ranges=(0, 100)))
    layout = value_layout(release.value, len(release.rows()))
    edges = (0.0, 25.0, 50.0, 75.0, 100.0)
    assert layout == (HistogramLayout("", edges),)
    assert value_layout({"age": release.value}, 4) == (HistogramLayout("age", edges),)
    axes = plot_release(release).axes[0]
    assert [bar.get_x() for bar in axes.patches] == [0.0, 25.0, 50.0, 75.0]
    assert [bar.get_height() for bar in axes.patches] == list(release.value["counts"])
    lower, upper = (end["counts"] for end in release.interval())
    drawn = [line.get_ydata() for line in axes.lines]
    assert np.array_equal(drawn, np.column_stack([lower, upper]))


def test_bars_of_unequal_bins_have_the_area_of_their_counts(people: pd.DataFrame) -> None:
    release = released(people, pac.stats.histogram("age", bins=[0, 20, 60, 100]))
    axes = plot_release(release).axes[0]
    areas = [bar.get_height() * bar.get_width() for bar in axes.patches]
    values = [row.value for row in release.rows()]
    np.testing.assert_allclose(areas, 20 * np.array(values))
    ends = [line.get_ydata() for line in axes.lines]
    shown = [[row.lower, row.upper] for row in release.rows()]
    np.testing.assert_allclose(ends, np.array(shown) / [[1], [2], [2]])
    assert "count for each 20 of width, with 95 % interval" in {
        text.get_text() for text in axes.findobj(match=lambda part: hasattr(part, "get_text"))
    }


def test_what_is_counted_is_said_beside_the_numbers(people: pd.DataFrame, tmp_path: Path) -> None:
    people = people.assign(weight=2.0)
    of_persons = people.assign(person=np.arange(len(people)) // 3)
    counted = "Every row counts, and a person may have several."
    weighted = "Rows are weighted by 'weight'."
    said: tuple[str, ...]
    for number, (statistic, units, said) in enumerate(
        (
            (pac.stats.histogram("age", bins=[0, 50, 100]), "person", (counted,)),
            (pac.stats.mean("pay", by="region", weights="weight"), "person", (counted, weighted)),
            (pac.stats.count(by="region", weights="weight"), None, (weighted,)),
            (np.mean, None, ()),
        )
    ):
        data: Any = people if units is None else of_persons
        data = people["pay"].to_numpy() if statistic is np.mean else data
        release = pac.privatize(statistic, data, BUDGET, units=units, sample=pac.Coins(keep=0.9))
        assert release.certificate.counted == said
        page = pac.report(release.save(tmp_path / str(number))).read_text(encoding="utf-8")
        assert [line for line in (counted, weighted) if line.replace("'", "&#39;") in page] == [
            *said
        ]
        officer = render_page(ReportData(release.certificate), officer=True)
        for text in (page, officer):
            assert "At the odds of this release, &#34;used&#34; is right 90 times in 100" in text


def test_two_way_tables_are_heat_maps(people: pd.DataFrame) -> None:
    release = released(people, pac.stats.crosstab("region", "smoker"))
    layout = value_layout(release.value, len(release.rows()))
    assert layout == TwoWayLayout(("east", "north", "west"), ("no", "yes"))
    axes = plot_release(release).axes[0]
    alphas = [cell.get_alpha() for cell in axes.patches]
    values = [release.value[line][column] for line in layout.lines for column in layout.columns]
    assert np.array_equal(np.argsort(alphas), np.argsort(values))
    assert axes.texts[0].get_text().startswith(f"{values[0]:,.0f} ± ")


def test_groups_are_dots_and_coefficients_lie_around_zero(people: pd.DataFrame) -> None:
    release = released(people, pac.stats.mean("pay", by="region"))
    assert value_layout(release.value, len(release.rows())) is None
    axes = plot_release(release).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["east", "north", "west"]
    first = release.rows()[0]
    assert list(axes.lines[0].get_xdata()) == [first.lower, first.upper]
    fit = released(people, pac.stats.ols("pay", ["age"]))
    assert any(list(line.get_xdata()) == [0, 0] for line in plot_release(fit).axes[0].lines)


@pytest.mark.parametrize(
    "value",
    [
        3.0,
        {},
        {"a": {"x": 1.0}, "b": {"y": 1.0}},
        {"a": {"x": [1.0], "y": 2.0}},
        {"a": 1.0, "b": {}},
    ],
)
def test_other_values_have_no_layout(value: Any) -> None:
    assert value_layout(value, 4) is None


def test_values_are_written_as_tables(people: pd.DataFrame, tmp_path: Path) -> None:
    table = people.assign(region=people["region"].replace({"east": "=1+1"}))
    release = released(table, pac.stats.mean("pay", by="region"))
    release.to_csv(tmp_path / "values.csv")
    release.to_excel(tmp_path / "values.xlsx")
    with (tmp_path / "values.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    sheet = list(openpyxl.load_workbook(tmp_path / "values.xlsx").active.iter_rows())
    assert [cell.value for cell in sheet[0]] == lines[0]
    assert [cell.data_type for cell in sheet[1]] == ["s", "n", "n", "n", "n"]
    assert sheet[1][0].value == "=1+1"
    written = [float(cell.value) for cell in sheet[1][1:]]
    assert np.allclose(written, list(map(float, lines[1][1:])), rtol=1e-14)  # Excel has 16 digits
    assert json.loads(release.to_json()) == json.loads(json.dumps(release.to_public_dict()))
    assert release.summary() == str(release)


def test_named_bins_are_drawn_and_listed_from_low_to_high() -> None:
    people = pd.DataFrame({"age": np.random.default_rng(3).uniform(0, 120, 600)})
    statistic = pac.stats.histogram("age", ranges=(0, 120), bins=6)
    study = pac.Study({"ages": statistic, "mean": pac.stats.mean("age")})
    for released in (statistic, study):
        release = pac.privatize(released, people, "membership<=0.6")
        names = [row.name for row in release.rows() if " to " in row.name]
        assert [read_bin(name)[1] for name in names] == [0, 20, 40, 60, 80, 100]
    layout = value_layout(release.value["ages"], 6)
    assert layout == (HistogramLayout("", (0, 20, 40, 60, 80, 100, 120)),)
    assert value_layout({"0 to 5": 1.0, "7 to 9": 2.0}, 2) is None
    assert read_bin("region north") is None


def test_means_of_dates_are_dates_and_their_errors_days() -> None:
    visits = pd.DataFrame({"day": pd.date_range("2023-01-01", periods=600), "age": 40.0})
    release = pac.privatize(pac.stats.mean("day"), visits, "membership<=0.6")
    (line,) = [line for line in release.lines() if line.startswith("day")]
    assert "2023-10-2" in line
    assert " days " in line
    (row,) = release.rows()
    assert row_interval(row).startswith("2023-10-")
    assert 19_600 < row.value < 19_700
    for statistic in (pac.stats.variance("day"), pac.stats.mean(["day", "age"])):
        other = pac.privatize(statistic, visits, "membership<=0.6")
        assert "days" not in "".join(other.lines())
