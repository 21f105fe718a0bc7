"""Subsample-and-aggregate and PATE: blocks, private middles, votes and their accounting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from pacprivacy.dp import audit_dp
from pacprivacy.dp.aggregate import (
    MeanAggregator,
    MedianAggregator,
    count_pate_votes,
    draw_aggregate_blocks,
    label_by_votes,
    map_aggregate_blocks,
    subsample_aggregate,
)
from pacprivacy.dp.noise import dp_noise_source
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.theory import gaussian_parameter

# --- blocks ---------------------------------------------------------------------------------


@pytest.mark.claim("DP-14")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_blocks_are_disjoint_and_cover_all_records(neighbours: str) -> None:
    blocks, _ = draw_aggregate_blocks(1003, 10, neighbours=neighbours, source=dp_noise_source(0))  # type: ignore[arg-type]
    assert np.array_equal(np.sort(np.concatenate(blocks)), np.arange(1003))
    sizes = [len(block) for block in blocks]
    if neighbours == "replace":
        assert max(sizes) - min(sizes) <= 1
    else:
        assert stats.chisquare(sizes).pvalue > 1e-6
        assert max(sizes) - min(sizes) > 1
    again, _ = draw_aggregate_blocks(1003, 10, neighbours=neighbours, source=dp_noise_source(1))  # type: ignore[arg-type]
    assert not np.array_equal(blocks[0], again[0])


@pytest.mark.claim("DP-14")
def test_a_failing_block_does_not_show(recwarn: pytest.WarningsRecorder) -> None:
    def fit(x: np.ndarray) -> float:
        if x.min() == 0:
            raise ZeroDivisionError("a record was zero")
        return float(np.log(-x).mean())

    values = (np.arange(6.0),)
    assert map_aggregate_blocks(fit, values, [[0, 1], [2, 3]], seeds=[1, 2], failed=7.0)[0] == 7.0
    assert not recwarn.list


def test_too_few_records_are_refused() -> None:
    for n, k in ((9, 5), (0, 2)):
        with pytest.raises(DataError, match="n_blocks must leave 2 or more"):
            draw_aggregate_blocks(n, k, neighbours="replace", source=dp_noise_source(0))
    with pytest.raises(DataError, match="n_blocks must be at least 2"):
        draw_aggregate_blocks(100, 1, neighbours="add_remove", source=dp_noise_source(0))
    with pytest.raises(DataError, match="Use fewer blocks"):
        subsample_aggregate(
            np.mean, (np.arange(30.0),), n_blocks=20, size=1, epsilon=1.0,
            aggregator=MeanAggregator(clip_norm=1.0), neighbours="replace",
        )  # fmt: skip


# --- aggregation ----------------------------------------------------------------------------


@pytest.mark.claim("DP-14")
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_clipped_mean_has_the_noise_of_one_block(delta: float) -> None:
    data = (np.random.default_rng(0).normal(3.0, 1.0, size=2000),)
    release = subsample_aggregate(
        np.mean, data, n_blocks=100, size=1, aggregator=MeanAggregator(clip_norm=5.0), epsilon=1.0,
        delta=delta, simulate=1,
    )  # fmt: skip
    noise = release.certificate.noise
    assert noise is not None
    expected = 10.0 / 100 / gaussian_parameter(1.0, delta) if delta else math.sqrt(2) * 10.0 / 100
    assert noise["std"] == pytest.approx(expected, rel=1e-6)
    assert abs(release.value[0] - 3.0) < 5 * expected


@pytest.mark.claim("DP-14")
def test_clipped_mean_passes_the_audit_on_a_block_that_flips() -> None:
    source = dp_noise_source(2)
    mean = MeanAggregator(clip_norm=1.0)

    def draw(side: int, n: int) -> np.ndarray:
        # one of two blocks turns from one end to the other
        outputs = np.array([[0.2], [100.0 if side else -100.0]])
        return np.array([mean.combine(outputs, 1.0, 0.0, source)[0][0] for _ in range(n)])

    found = audit_dp(draw, epsilon=1.0, delta=0.0, n_trials=1000)
    assert found.verdict == "holds"
    assert found.epsilon_lower > 0.3


@pytest.mark.claim("DP-14")
def test_median_scores_move_by_at_most_one() -> None:
    rng = np.random.default_rng(3)
    grid = np.linspace(-1, 1, 41)
    for _ in range(200):
        values = rng.uniform(-1.5, 1.5, size=9).round(1)
        other = values.copy()
        other[rng.integers(9)] = rng.uniform(-1.5, 1.5)
        scores = [
            np.maximum((v[:, None] < grid).sum(axis=0), (v[:, None] > grid).sum(axis=0))
            for v in (values, other)
        ]
        assert np.abs(scores[0] - scores[1]).max() <= 1


@pytest.mark.claim("DP-14")
def test_median_ignores_a_wild_block_and_composes() -> None:
    median = MedianAggregator(bounds=(-5.0, np.array([5.0, 10.0])), n_points=201)
    outputs = np.random.default_rng(4).normal([1.0, 4.0], 0.1, size=(300, 2))
    outputs[0] = 1e12
    value, noise, _ = median.combine(outputs, 2.0, 0.0, dp_noise_source(0))
    assert np.allclose(value, [1.0, 4.0], atol=0.3)
    assert noise["epsilon of each coordinate"] == 1.0
    many = np.zeros((300, 200))
    _, noise, _ = MedianAggregator(bounds=(-1.0, 1.0)).combine(many, 1.0, 1e-5, dp_noise_source(0))
    share = noise["epsilon of each coordinate"]
    assert share > 1.0 / 200
    rho = 200 * share**2 / 2
    assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.claim("DP-14")
def test_median_passes_the_audit_on_a_block_that_flips() -> None:
    source = dp_noise_source(7)
    median = MedianAggregator(bounds=(-1.0, 1.0), n_points=5)

    def draw(side: int, n: int) -> np.ndarray:
        outputs = np.array([[-1.0], [1.0], [1.0 if side else -1.0]])
        return np.array([median.combine(outputs, 1.0, 0.0, source)[0][0] for _ in range(n)])

    found = audit_dp(draw, epsilon=1.0, delta=0.0, n_trials=2000)
    assert found.verdict == "holds"
    assert found.epsilon_lower > 0.1


def test_outputs_of_the_wrong_kind_count_as_the_centre() -> None:
    release = subsample_aggregate(
        lambda x: [math.nan, 1.0] if x.mean() > 0 else "text", (np.arange(100.0),), n_blocks=10,
        size=2, aggregator=MedianAggregator(bounds=(-1.0, 3.0), n_points=5), epsilon=50.0,
        simulate=0,
    )  # fmt: skip
    assert np.array_equal(release.value, [1.0, 1.0])


def test_bad_aggregations_are_refused() -> None:
    settings: dict[str, Any] = {
        "n_blocks": 5, "size": 1, "epsilon": 1.0, "aggregator": MeanAggregator(clip_norm=1.0)
    }  # fmt: skip
    data = (np.arange(50.0),)
    for change, match in (
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"neighbours": "all"}, "neighbours must be"),
    ):
        with pytest.raises(BudgetError, match=match):
            subsample_aggregate(np.mean, data, **(settings | change))  # type: ignore[operator]
    with pytest.raises(DataError, match="equal length"):
        subsample_aggregate(np.mean, (np.arange(5), np.arange(6)), **settings)
    with pytest.raises(BudgetError, match="clip_norm must be"):
        MeanAggregator(clip_norm=0.0)
    with pytest.raises(BudgetError, match="bounds must be two finite ends"):
        MedianAggregator(bounds=(1.0, 1.0))


# --- votes ----------------------------------------------------------------------------------


@pytest.mark.claim("DP-15")
def test_a_record_changes_one_vote_per_question() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    asked = rng.normal(size=(30, 2))
    counts = []
    for label in ("yes", "no"):
        changed = y.copy()
        changed[17] = label
        counts.append(
            count_pate_votes(
                DecisionTreeClassifier(random_state=0), X, changed, asked, classes=("no", "yes"),
                n_teachers=20, neighbours="replace", source=dp_noise_source(1),
            )
        )  # fmt: skip
    change = counts[0] - counts[1]
    assert np.abs(change).max() <= 1
    assert np.linalg.norm(change) <= math.sqrt(2 * 30)
    assert (counts[0].sum(axis=1) == 20).all()


@pytest.mark.claim("DP-15")
def test_noise_of_votes_is_that_of_the_promise() -> None:
    votes = np.tile([60, 40], (50, 1))
    release = label_by_votes(votes, epsilon=2.0, delta=1e-6, neighbours="replace", simulate=0)
    expected = math.sqrt(100) / gaussian_parameter(2.0, 1e-6)
    assert release.certificate.noise is not None
    assert release.certificate.noise["std of votes"] == pytest.approx(expected, rel=1e-6)
    wins = np.mean(label_by_votes(np.tile([60, 40], (4000, 1)), epsilon=30.0, delta=1e-3,
                                  neighbours="replace", simulate=0).value == 0)  # fmt: skip
    std = math.sqrt(8000) / gaussian_parameter(30.0, 1e-3)
    chance = stats.norm.cdf(20 / (math.sqrt(2) * std))
    assert wins == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / 4000))


@pytest.mark.claim("DP-15")
def test_votes_pass_the_audit() -> None:
    seeds = iter(range(10**6))
    near = {0: np.array([[10, 11]]), 1: np.array([[11, 10]])}

    def draw(side: int, n: int) -> np.ndarray:
        settings: dict[str, Any] = {"epsilon": 1.0, "delta": 0.05, "neighbours": "replace"}
        return np.array(
            [
                label_by_votes(near[side], simulate=next(seeds), **settings).value[0]
                for _ in range(n)
            ]
        )

    assert audit_dp(draw, epsilon=1.0, delta=0.05, n_trials=1000).verdict == "holds"


def test_bad_votes_are_refused() -> None:
    X, y = np.zeros((20, 2)), np.array([0, 1] * 10)
    settings: dict[str, Any] = {
        "classes": (0, 1), "n_teachers": 4, "neighbours": "replace", "source": dp_noise_source(0)
    }  # fmt: skip
    with pytest.raises(DataError, match="classes must be of the type"):
        count_pate_votes(LogisticRegression(), X, y.astype(str), X, **settings)
    with pytest.raises(DataError, match="questions must have the features"):
        count_pate_votes(LogisticRegression(), X, y, X[:, :1], **settings)
    with pytest.raises(DataError, match="Use fewer blocks"):
        count_pate_votes(LogisticRegression(), X, y, X, **(settings | {"n_teachers": 15}))
    with pytest.raises(DataError, match="votes must be whole numbers"):
        label_by_votes(np.array([[0.5, 1.0]]), epsilon=1.0, delta=1e-5, neighbours="replace")  # type: ignore[arg-type]
    for epsilon, delta, match in ((0.0, 0.1, "epsilon"), (1.0, 0.0, "delta")):
        with pytest.raises(BudgetError, match=f"{match} must be"):
            label_by_votes(np.array([[1, 2]]), epsilon=epsilon, delta=delta, neighbours="replace")
