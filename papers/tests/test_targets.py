"""Accuracy-first PAC on Rice: near what was asked on separate rows, below a fixed budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from papers.accuracy_first.targets import WANTED, measure_target


@pytest.mark.claim("S-3")
def test_runs_stay_near_the_target_and_below_the_fixed_budget(
    require_data: Callable[..., None],
) -> None:
    require_data("rice_cammeo_osmancik.arff.gz")
    row = measure_target("rice k-means", n_runs=200, n_subsets=64)
    assert row.reached == 1.0
    assert row.within_a_point >= WANTED
    assert row.fixed_nats is not None
    assert row.mean_spent < row.fixed_nats
    assert row.largest_spent <= row.cap_nats
    assert row.mean_accuracy < row.accuracy_without_noise


def test_an_unreachable_target_spends_the_cap_and_says_so(
    require_data: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from papers.accuracy_first import targets as target_runs

    require_data("rice_cammeo_osmancik.arff.gz")
    task = replace(target_runs.TASKS["rice k-means"], at_least=0.99, cap_nats=0.25)
    monkeypatch.setitem(target_runs.TASKS, "rice k-means", task)
    row = measure_target("rice k-means", n_runs=5, n_subsets=64)
    assert row.reached == 0.0
    assert 0.24 < row.mean_spent <= 0.25


def test_the_section_is_on_the_page_of_accuracy_first(
    require_data: Callable[..., None], tmp_path: Path
) -> None:
    from papers.accuracy_first import ACCURACY_FIRST

    require_data("rice_cammeo_osmancik.arff.gz")
    page = ACCURACY_FIRST.reproduce(tmp_path, quick=True, only=("pac",), n_jobs=1)
    text = page.read_text()
    assert "The PAC counterpart" in text
    assert "| rice k-means | 85.00 % | 0.99 |" in text
    assert (tmp_path / "accuracy-first_pac.csv").exists()
