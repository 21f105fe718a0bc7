"""Advice is what the fight has measured, and nothing else."""

import json
import math
from pathlib import Path

import pytest

from pacprivacy.cli.plan import advise, describe_advice, measurements

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "versus"


def stored() -> dict[tuple[str, str, float], tuple[dict, dict]]:
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")]
    found = {}
    for cell in cells:
        better = max if cell["larger_is_better"] else min
        for row in cell["rows"]:
            dp, ours = row["dp"], [row["pool"], *row.get("coins", [])]
            best = {
                side: better(all_, key=lambda one: one["score"])
                for side, all_ in (("dp", dp), ("pac", ours))
            }
            key = cell["task"], cell["data"], row["advantage"]
            found[key] = cell, row | best | {"rivals": dp}
    return found


def test_every_row_is_a_measured_one_and_none_is_left_out():
    assert {(row.task, row.data, row.advantage) for row in measurements()} == set(stored())


def test_rows_agree_with_the_scores_that_were_stored():
    results = stored()
    for row in measurements():
        cell, found = results[row.task, row.data, row.advantage]
        for family, said in (("pac", row.pac), ("dp", row.dp)):
            scores = [score for seed in found[family]["scores"] for score in seed]
            assert len(scores) == 30
            # scores and means are stored with five and four digits
            assert said == pytest.approx(math.fsum(scores) / 30, rel=6e-4, abs=1e-9)
        assert (row.pac_method, row.dp_method) == (found["pac"]["method"], found["dp"]["method"])
        assert (row.n_records, row.metric) == (cell["n_records"], cell["metric"])


def test_who_is_ahead_follows_from_the_scores():
    results = stored()
    for row in measurements():
        cell, found = results[row.task, row.data, row.advantage]
        gain = found["pac"]["score"] - found["dp"]["score"]
        if not cell["larger_is_better"]:
            gain = -gain
        doubt = math.hypot(found["pac"]["half_width"], found["dp"]["half_width"])
        expected = "PAC" if gain > doubt else "DP" if gain < -doubt else "level"
        assert row.ahead == expected


def test_each_dp_row_keeps_its_own_tight_advantage():
    for _, row in stored().values():
        for rival in row["rivals"]:
            assert 0.99 * row["advantage"] <= rival["advantage"] <= row["advantage"]


def test_the_nearest_success_is_taken():
    low, high = advise("mean", success=0.52), advise("mean", success=0.9)
    assert ({row.advantage for row in low}, {row.advantage for row in high}) == ({0.1}, {0.35})
    assert all(row.task == "mean" for row in low)


def test_nothing_is_said_about_tasks_that_were_not_measured():
    assert advise("survival", success=0.6) == []


def test_the_text_gives_the_measured_reason():
    rows = advise("crosstab", success=0.588)
    text = describe_advice(rows)
    assert "prefer DP" in text
    for row in rows:
        assert f"{row.pac:.4g} by PAC, {row.dp:.4g} by {row.dp_method}" in text
    assert max(map(len, text.splitlines())) <= 100
