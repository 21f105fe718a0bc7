"""Every private estimator stops spending when it is good enough on public rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import pacprivacy as pac
from pacprivacy.estimators import PrivateLogisticRegression, PrivateRidge
from pacprivacy.session import GradualRelease

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2)) + np.repeat([[0.0], [4.0]], 60, axis=0)
Y = np.repeat([0, 1], 60)
KEPT, PUBLIC = np.arange(0, 120, 2), np.arange(1, 120, 2)
SETTINGS: dict[str, Any] = {
    "budget": pac.Information(4.0),
    "n_subsets": 32,
    "rule": "waterfill",
    "simulate": True,
    "random_state": 1,
}


def near(model: Any, rows: Any) -> float:
    """Minus the mean distance to the nearest centre."""
    gaps = np.linalg.norm(rows[:, None] - model.cluster_centers_[None], axis=2)
    return -float(gaps.min(axis=1).mean())


def restored(model: Any, rows: Any) -> float:
    back = model.inverse_transform(model.transform(rows))
    return -float(np.square(back - rows).mean())


@pytest.mark.claim("S-3")
@pytest.mark.parametrize(
    ("model", "target"),
    [
        (pac.PrivateLinearSVC(1.0), pac.Accuracy(at_least=0.9, on=(X[PUBLIC], Y[PUBLIC]))),
        (PrivateLogisticRegression(), pac.Accuracy(at_least=0.9, on=(X[PUBLIC], Y[PUBLIC]))),
        (PrivateRidge(), pac.Accuracy(at_least=0.5, on=(X[PUBLIC], Y[PUBLIC]))),
        (
            pac.PrivateForestClassifier(2, max_depth=1),
            pac.Accuracy(at_least=0.9, on=(X[PUBLIC], Y[PUBLIC])),
        ),
        (pac.PrivateKMeans(2), pac.Accuracy(at_least=-2.0, on=(X[PUBLIC],), metric=near)),
        (pac.PrivatePCA(1), pac.Accuracy(at_least=-2.0, on=(X[PUBLIC],), metric=restored)),
        (
            pac.PrivateEstimator(LogisticRegression()),
            pac.Accuracy(at_least=0.9, on=(X[PUBLIC], Y[PUBLIC])),
        ),
    ],
    ids=lambda item: type(item).__name__ if hasattr(item, "fit") else "",
)
def test_estimators_stop_when_good_enough(model: Any, target: pac.Accuracy) -> None:
    model = clone(model).set_params(**SETTINGS, target=target)
    model.fit(X[KEPT], Y[KEPT])
    assert isinstance(model.release_, GradualRelease)
    assert model.release_.reached
    assert model.release_.spent.mi_nats < 4.0
    assert model.certificate_.mi_upper_nats == 4.0
    again = target.metric(model, *target.on) if target.metric else model.score(*target.on)
    assert again == model.release_.looks[-1].score
    assert again >= target.at_least
