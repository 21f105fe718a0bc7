"""The page of [AF]: its problems, its rows, its files, and that it does not mix up methods."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from papers.accuracy_first import ACCURACY_FIRST
from papers.accuracy_first import searches as accuracy_first_rows
from papers.accuracy_first import section as accuracy_first_section
from papers.accuracy_first.checks import measure_checks
from papers.accuracy_first.data import STUDIES
from papers.accuracy_first.searches import SearchRow, measure_study

WINE = "winequality-white.csv.gz"
HOUSES = "california_housing_sklearn.csv.gz"


@pytest.fixture(scope="module")
def rows(require_data: Callable[..., None]) -> dict[str, SearchRow]:
    require_data(WINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy_first_rows, "N_LEVELS", 200)
        return {row.method: row for row in measure_study("wine_1", (0.1,), 4, 0)}


def test_the_tables_have_as_many_features_as_the_page_says(
    require_data: Callable[..., None],
) -> None:
    require_data(WINE, HOUSES)
    for name in ("wine_1", "wine_2", "california_1", "california_3"):
        problem = STUDIES[name].prepare(0)
        assert STUDIES[name].title.endswith(f"p = {len(problem.best)}")


def test_losses_are_the_sum_of_their_parts(rows: dict[str, SearchRow]) -> None:
    assert set(rows) == set(accuracy_first_rows.METHODS)
    for row in rows.values():
        assert row.epsilon == pytest.approx(row.test_epsilon + row.level_epsilon)
        assert row.n_runs == 4
    assert rows["theorem"].test_epsilon > 2 * rows["tight"].test_epsilon
    assert rows["printed"].test_epsilon == rows["sure"].test_epsilon == 0.0
    assert rows["tight"].share_accurate == rows["printed"].share_accurate == 1.0


def test_few_features_make_the_theorems_noise_reduction_lose(rows: dict[str, SearchRow]) -> None:
    assert rows["theorem"].epsilon > rows["doubling"].epsilon > rows["tight"].epsilon


def test_doubling_is_not_held_to_a_looser_test_than_ours(rows: dict[str, SearchRow]) -> None:
    row = rows["doubling"]
    fair = accuracy_first_section.tightened_doubling(row)
    assert row.level_epsilon < fair < row.epsilon
    # One test with noise of scale α/2x errs with probability e^-x/2; x for all of them together.
    x = (fair - row.level_epsilon) / row.test_epsilon * np.log(row.n_levels / 0.1)
    assert 1 - (1 - np.exp(-x) / 2) ** row.n_levels == pytest.approx(0.1)
    assert fair > rows["tight"].epsilon


def test_the_claims_of_the_paper_hold(require_data: Callable[..., None]) -> None:
    require_data(WINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("papers.accuracy_first.checks.N_LEVELS", 100)
        found = {row.claim: row for row in measure_checks(30, 1)}
    for row in found.values():
        slack = 5 * np.sqrt(row.at_most / row.n_runs) if row.at_most < 1 else 0.0
        assert row.measured <= row.at_most + slack
    assert found["doubling: releases over the level it stops at"].measured > 1.9


def test_the_page_shows_every_method_and_says_what_is_missing(
    tmp_path: Path, require_data: Callable[..., None]
) -> None:
    require_data(WINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy_first_rows, "N_LEVELS", 100)
        page = ACCURACY_FIRST.reproduce(tmp_path, quick=True, only=("raw",), n_jobs=1)
    text = page.read_text(encoding="utf-8")
    for label in accuracy_first_section.LABELS.values():
        assert label in text
    assert "**simulations**" in text
    assert any("not available" in note for note in accuracy_first_section.RIDGE.notes)
    with (tmp_path / "accuracy-first_raw.csv").open(encoding="utf-8") as stream:
        assert len(list(csv.DictReader(stream))) == 10
    assert (tmp_path / "accuracy-first_raw.png").stat().st_size > 10_000
