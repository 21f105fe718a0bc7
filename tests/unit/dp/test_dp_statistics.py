"""Statistics of declared ranges: what is promised, what comes out, and how far a record reaches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pacprivacy.dp import STATISTICS, release_dp_statistic, verify_dp
from pacprivacy.dp.statistics import _read
from pacprivacy.errors import BudgetError, DataError

RNG = np.random.default_rng(0)
AGES = np.append(RNG.uniform(20, 60, size=2999), np.nan)
CELLS = RNG.integers(-1, 2, size=3000)
GIVEN: dict[str, Any] = {"ranges": [(0.0, 100.0)], "cells": CELLS, "cell_names": ["f", "m"]}


@pytest.mark.claim("DP-40")
@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_certificate_keeps_what_was_asked(statistic: str) -> None:
    asked: dict[str, Any] = {"statistic": statistic, **GIVEN}
    found = release_dp_statistic({"age": AGES}, epsilon=0.7, **asked).certificate
    assert verify_dp(found).digest
    assert (found.epsilon, found.delta) == (0.7, 0.0)
    if statistic in ("median", "quantiles"):
        found = release_dp_statistic({"age": AGES}, success=0.6, **asked).certificate
        assert 0.598 < found.membership_bound <= 0.6


@pytest.mark.claim("DP-40")
@pytest.mark.parametrize("statistic", ["count", "sum", "mean", "histogram"])
def test_a_record_moves_the_totals_by_what_is_paid_for(statistic: str) -> None:
    """Remove each of some records, the extreme ones among them, and measure the move."""
    two = {"a": np.append(AGES[:200], [1e9, -1e9, 0.0, 100.0]), "b": np.arange(204.0) % 101}
    cells = np.append(CELLS[:200], [0, 1, 0, 1])
    ranges = [(0.0, 100.0), (0.0, 100.0)]

    def totals(keep: Any) -> Any:
        columns = _read(
            {name: column[keep] for name, column in two.items()},
            statistic,
            ranges,
            cells[keep],
            ["f", "m"],
        )
        blocks = [column.totals(statistic, 2, 10) for column in columns]
        return np.concatenate([np.ravel(block) for block in blocks])

    everyone = np.arange(204)
    whole, reach = totals(everyone), 1.5 if statistic == "mean" else 1.0
    moves = [whole - totals(np.delete(everyone, i)) for i in (0, 9, 77, *range(200, 204))]
    farthest = max(float(np.abs(move).sum()) for move in moves)
    assert 0.9 * 2 * reach < farthest <= 2 * reach + 1e-12  # no more noise than is needed


@pytest.mark.claim("DP-40")
def test_noise_is_paid_for_every_column_that_a_record_is_in() -> None:
    few, scales = np.arange(20.0), []
    for count in (1, 3):
        columns = {f"c{i}": few for i in range(count)}
        given: Any = {"ranges": [(0, 20)] * count, "simulate": 0, "epsilon": 1.0}
        found = release_dp_statistic(columns, statistic="sum", **given).certificate
        scales.append((found.noise or {})["std"])
    assert scales[1] == pytest.approx(3 * scales[0], rel=1e-3)
    assert scales[1] >= 3 * scales[0] * (1 - 1e-6)


@pytest.mark.claim("DP-40")
@pytest.mark.parametrize("level", [0.1, 0.5, 0.75])
def test_a_record_moves_the_score_of_a_quantile_by_what_is_paid_for(
    level: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def choose(scores: Any, *, sensitivity: float, epsilon: float, **_: Any) -> int:
        seen.append((np.asarray(scores), sensitivity, epsilon))
        return 0

    monkeypatch.setattr("pacprivacy.dp.mechanisms.exponential_choice", choose)
    for people in (AGES[:40], AGES[1:40], np.append(AGES[:40], 3.0), np.append(AGES[:40], 1e9)):
        columns = {"a": people, "b": people}
        given: Any = {"ranges": [(0, 100)] * 2, "q": [level, 0.5], "epsilon": 1.0}
        release_dp_statistic(columns, statistic="quantiles", **given)
    whole, *others = seen[::4]
    moves = [np.abs(scores - whole[0]).max() for scores, _, _ in others]
    assert max(level, 1 - level) - 1e-9 <= max(moves) <= whole[1]
    assert sum(epsilon for _, _, epsilon in seen[:4]) == pytest.approx(1.0)


@pytest.mark.parametrize(("level", "middle"), [(0.25, 10.0), (0.5, 30.0), (0.75, 50.0)])
def test_a_quantile_of_equal_numbers_is_one_of_them(level: float, middle: float) -> None:
    ages = {"age": np.repeat([10.0, 30.0, 50.0], 200)}
    common: dict[str, Any] = {"ranges": [(0.0, 100.0)], "epsilon": 1.0, "q": [level]}
    found = [
        release_dp_statistic(ages, statistic="quantiles", simulate=seed, **common).value
        for seed in range(20)
    ]
    assert [each["quantiles"]["age"] for each in found] == [middle] * 20


@pytest.mark.claim("DP-40")
def test_values_are_right_within_their_noise() -> None:
    truth = {name: AGES[(k == CELLS) & ~np.isnan(AGES)] for k, name in enumerate(("f", "m"))}
    of = {"count": len, "sum": np.sum, "mean": np.mean}
    for statistic, compute in of.items():
        misses = []
        for seed in range(60):
            found = release_dp_statistic(
                {"age": AGES}, statistic=statistic, epsilon=0.5, simulate=seed, **GIVEN
            ).value
            misses += [
                (found[statistic]["age"][name] - compute(truth[name]))
                / found["noise_std"]["age"][name]
                for name in truth
            ]
        assert 0.75 < np.std(misses) < 1.25
        assert abs(np.mean(misses)) < 0.5
    found = release_dp_statistic(
        {"age": AGES}, statistic="median", success=0.6, simulate=0, **GIVEN
    )
    for name, values in truth.items():
        assert abs(found.value["median"]["age"][name] - np.median(values)) < 3


@pytest.mark.claim("DP-17")
@pytest.mark.parametrize("odd", ["secret", None, [1, 2], "nan"])
def test_an_entry_that_is_no_number_is_a_gap(odd: Any) -> None:
    common: dict[str, Any] = {"statistic": "count", "epsilon": 600.0, "simulate": 0}
    found = release_dp_statistic({"age": [1.0, 2.0, odd]}, **common)
    assert found.value["count"]["age"] == 2.0


def test_a_histogram_counts_what_is_inside() -> None:
    found = release_dp_statistic(
        {"x": np.array([-1.0, 0.0, 5.0, 10.0, 11.0] * 1000)},
        statistic="histogram",
        ranges=[(0, 10)],
        bins=2,
        epsilon=4.0,
        simulate=0,
    ).value["histogram"]["x"]
    assert list(found) == ["0 to 5", "5 to 10"]
    assert abs(found["0 to 5"] - 1000) < 10
    assert abs(found["5 to 10"] - 2000) < 10


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"statistic": "mode", "success": 0.6}, "statistic must be one of"),
        ({"statistic": "mean"}, "only one"),
        ({"statistic": "mean", "success": 0.6, "epsilon": 1.0}, "only one"),
        ({"statistic": "mean", "success": 0.6}, "rows_per_unit=1"),
        ({"statistic": "median", "success": 0.4}, "above 1/2"),
        ({"statistic": "mean", "epsilon": 1.0, "ranges": []}, "one pair for each"),
        ({"statistic": "mean", "epsilon": 1.0, "ranges": [(1, 0)]}, "low < high"),
        ({"statistic": "mean", "epsilon": -1.0}, "epsilon must be"),
        ({"statistic": "mean", "epsilon": 1.0, "cells": CELLS[:5]}, "cells must be"),
        ({"statistic": "quantiles", "success": 0.6, "q": (2.0,)}, "between 0 and 1"),
        ({"statistic": "histogram", "epsilon": 1.0, "bins": 0}, "bins must be"),
    ],
)
def test_what_cannot_be_promised_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises((BudgetError, DataError), match=said):
        release_dp_statistic({"age": AGES}, **{**GIVEN, **given})
