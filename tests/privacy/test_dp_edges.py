"""Every mechanism at its edges: no records, odd and huge ones, tiny and large promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pacprivacy import dp
from pacprivacy.dp import DPRelease
from pacprivacy.dp.accuracy_first import NoiseReduction

X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
ODD = X.copy()
ODD[0], ODD[1, 0], ODD[2, 1] = np.nan, np.inf, -np.inf
RECORDS = {"none": X[:0], "one": X[:1], "odd": ODD, "huge": X * 1e300}
PROMISES = [(1.0, 0.0), (1e-6, 0.0), (600.0, 0.0), (1e-3, 1e-9), (30.0, 1e-6), (20.0, 1e-30)]
MEDIAN = dp.MedianAggregator(bounds=(-1.0, 1.0), n_points=5)


def releases(rows: Any, epsilon: float, delta: float) -> dict[str, Callable[[], DPRelease]]:
    """Return mechanisms under ``add_remove``, whose refusals depend on no record."""
    target, labels = rows[:, 0], rows[:, 0] > 0
    promise: Any = {"epsilon": epsilon, "delta": delta}
    relation: Any = {"neighbours": "add_remove"}
    bounds: Any = {"x_bound": 1.0, **promise}
    classes: Any = {"classes": (False, True), **bounds}
    penalty = 1.0 + 2.0 * dp.least_penalty(epsilon, x_bound=1.0)
    made = {
        "sum": lambda: dp.private_sum(rows, clip_norm=1.0, **promise, **relation),
        "mean": lambda: dp.private_mean(target, clip_norm=1.0, n_public=9, **promise, **relation),
        "moments": lambda: dp.regression_from_statistics(rows, target, y_bound=1.0, **bounds),
        "output": lambda: dp.output_perturbation(rows, labels, penalty=10.0, **classes),
        "clipped mean": lambda: dp.subsample_aggregate(
            np.mean,
            (target,),
            n_blocks=5,
            size=1,
            aggregator=dp.MeanAggregator(clip_norm=1.0),
            **promise,
        ),
        "median": lambda: dp.subsample_aggregate(
            np.mean, (target,), n_blocks=5, size=1, aggregator=MEDIAN, **promise
        ),
    }
    if delta != 1e-30:  # too small for the grid of the linear term
        made["objective"] = lambda: dp.objective_perturbation(
            rows, labels, penalty=penalty, **classes
        )
    if delta:
        made["adassp"] = lambda: dp.adassp(rows, target, y_bound=1.0, **bounds)
        return made
    made["levels"] = lambda: NoiseReduction(
        np.zeros(len(rows)), sensitivity=1.0, epsilons=[epsilon / 2, epsilon], **relation
    ).refine()
    for statistic in dp.STATISTICS:
        made[statistic] = lambda statistic=statistic: dp.release_dp_statistic(
            {"x": target}, statistic=statistic, ranges=[(-1, 1)], epsilon=epsilon
        )
    return made  # fmt: skip


@pytest.mark.claim("DP-17", "DP-20", "R-6")
@pytest.mark.parametrize("records", RECORDS)
@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_what_is_released_is_finite_and_verified(
    records: str, epsilon: float, delta: float
) -> None:
    for name, release in releases(RECORDS[records], epsilon, delta).items():
        released = release()
        certificate = released.certificate
        assert dp.verify_dp(certificate).digest, name
        assert certificate.epsilon == epsilon or name == "levels"
        assert 0.5 <= certificate.membership_bound <= 1.0
        assert "nan" not in str(released).lower()
        assert "inf" not in certificate.to_json().lower()
