"""What is printed first: numbers, the promise, where the rest is; all on one screen."""

import csv

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy._values import Row, row_texts, rows_table, times_in_100
from pacprivacy.dp import release_dp_statistic
from pacprivacy.statistics import Histogram

pytestmark = pytest.mark.usefixtures("few_draws")
X = np.random.default_rng(0).normal(50, 10, size=(400, 3))


@pytest.fixture(scope="module")
def release():
    return pac.privatize(
        lambda x: x.mean(axis=0), X, "membership<=0.6", sample=pac.Balanced(n_subsets=64), rng=0
    )


def test_a_release_prints_its_numbers_first_and_fits_a_screen(release):
    lines = str(release).splitlines()
    assert lines[0].split() == ["name", "value", "standard", "error", "95", "%", "interval"]
    assert lines[1].startswith("value[0]")
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert "at most 60 times in 100; 50 without the release" in " ".join(lines)
    assert lines[-1].endswith("print(release.certificate)")
    assert len(repr(release)) < 120


def test_many_numbers_fit_too():
    wide = np.random.default_rng(0).normal(size=(100, 50))
    release = pac.privatize(
        lambda x: x.mean(axis=0), wide, "mi<=1", sample=pac.Balanced(n_subsets=16), rng=0
    )
    lines = str(release).splitlines()
    assert "and 40 more" in lines
    assert len(lines) <= 20


def test_a_frame_and_a_file_have_all_numbers(release, tmp_path):
    frame = release.to_frame()
    assert list(frame.columns) == ["name", "value", "standard_error", "lower", "upper"]
    lower, upper = release.interval(0.95)
    assert np.allclose(frame["value"], release.value)
    assert np.allclose(frame["lower"], lower)
    assert np.allclose(frame["upper"], upper)
    release.save(tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "values.csv"), frame)


def test_a_simulation_says_so_on_the_first_screen():
    release = pac.privatize(
        np.mean, X[:, 0], "mi<=1", sample=pac.Balanced(n_subsets=16), rng=0, simulate=True
    )
    assert "protects nobody" in str(release)


def test_numbers_without_an_error_are_shown(tmp_path):
    data = np.repeat([1.0, 2.0, 3.0], [200, 100, 60])
    quantiles = pac.privatize(
        pac.stats.quantiles("x", q=(0.1, 0.4, 0.7, 0.95)),
        pd.DataFrame({"x": data}),
        "membership<=0.6",
        sample=pac.Balanced(n_subsets=64),
        rng=0,
    )
    assert [row.name for row in quantiles.rows()] == ["x.0.1", "x.0.4", "x.0.7", "x.0.95"]
    assert {row.std_error for row in quantiles.rows()} >= {0.0}
    quantiles.save(tmp_path)
    assert len(pac.Release.load(tmp_path).rows()) == 4


@pytest.mark.parametrize("columns", [1, 2])
def test_counts_of_a_histogram_are_called_by_their_range(columns):
    release = pac.privatize(
        Histogram(bins=2, ranges=(0, 100)),
        X[:, 0] if columns == 1 else X[:, :columns],
        "membership<=0.75",
        sample=pac.Balanced(n_subsets=64),
        rng=0,
    )
    names = [row.name for row in release.rows()]
    assert len(names) == 2 * columns
    assert all(name.endswith(("0 to under 50", "50 to 100")) for name in names)
    assert len(set(names)) == len(names)


def test_a_dp_release_prints_its_numbers_first(tmp_path):
    release = release_dp_statistic(
        {"age": X[:, 0]}, statistic="mean", ranges=[(0, 100)], epsilon=0.4, simulate=0
    )
    lines = str(release).splitlines()
    assert lines[1].startswith("age")
    assert "59.1 times in 100; 50 without the release" in " ".join(lines)
    assert len(lines) <= 20
    release.save(tmp_path)
    with (tmp_path / "values.csv").open() as file:
        assert next(csv.DictReader(file))["name"] == "age"


@pytest.mark.parametrize(
    ("success", "text"),
    [(0.6, "60"), (0.5991, "60"), (0.6000001, "60.1"), (0.99995, "99.9950"), (0.5, "50")],
)
def test_a_bound_is_rounded_up_to_a_frequency(success, text):
    assert times_in_100(success) == f"{text} times in 100"


def test_a_number_without_an_interval_has_a_dash():
    row = Row("n", 1000.0, float("nan"), float("nan"), float("nan"))
    assert row_texts(row) == ("1,000", "-")
    assert rows_table([row], 1)[1].split() == ["n", "1,000", "-", "-"]
