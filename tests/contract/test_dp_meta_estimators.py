"""scikit-learn's own suite on estimators that teach or regress under DP."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from pacprivacy.dp import DPLinearRegression
from pacprivacy.errors import BudgetError, MechanismError

# Seeded, and with promises so weak that the suite's demands on accuracy can be met on its tiny
# data; how strong a promise is does not matter to scikit-learn.
WEAK: dict[str, Any] = {"epsilon": 300.0, "delta": 1e-2, "random_state": 0, "simulate": True}
ESTIMATORS = [
    DPLinearRegression(x_bound=6.0, y_bound=4.0, **WEAK),
]
# What scikit-learn wants refused is a fact about single records here, and errors would tell it.
NOT_REFUSED = {
    "check_estimators_nan_inf": "a record that is not finite is left out, unseen",
    "check_dtype_object": "an entry that is no number is missing; one of them is not refused",
}
FOR_REGRESSORS = NOT_REFUSED | {
    "check_supervised_y_no_nan": "a record without a finite target is left out, unseen",
    "check_estimators_empty_data_messages": "that there are no records at all is not public",
}
STRICT: dict[str, Any] = {}
if "xfail_strict" in inspect.signature(parametrize_with_checks).parameters:
    STRICT["xfail_strict"] = True


@parametrize_with_checks(
    ESTIMATORS,
    expected_failed_checks=lambda model: FOR_REGRESSORS if is_regressor(model) else NOT_REFUSED,
    **STRICT,
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 3))
Y = (X @ [1.0, -1.0, 0.5] > 0).astype(int)
TARGET = X @ [1.0, -1.0, 0.5] + 2.0
SEEDED: dict[str, Any] = {"random_state": 1, "simulate": True}


@pytest.mark.claim("DP-13")
@pytest.mark.parametrize("method", ["adassp", "statistics"])
def test_regressions_come_near(method: Any) -> None:
    many = np.tile(X, (20, 1))
    target = np.tile(TARGET, 20)
    model = DPLinearRegression(
        method, x_bound=4.0, y_bound=8.0, epsilon=5.0, delta=1e-5, alpha=10.0,
        neighbours="replace", **SEEDED,
    ).fit(many, target)  # fmt: skip
    assert model.score(X, TARGET) > 0.95
    assert model.coef_.shape == (3,)
    flat = DPLinearRegression(x_bound=4.0, y_bound=8.0, fit_intercept=False, **SEEDED)
    assert flat.fit(X, TARGET).intercept_ == 0.0


def test_seeds_decide_only_in_simulations() -> None:
    seeded = DPLinearRegression(x_bound=4.0, y_bound=8.0, **SEEDED)
    assert np.array_equal(clone(seeded).fit(X, TARGET).coef_, seeded.fit(X, TARGET).coef_)
    real = DPLinearRegression(x_bound=4.0, y_bound=8.0, random_state=1)
    assert not np.array_equal(clone(real).fit(X, TARGET).coef_, real.fit(X, TARGET).coef_)
    assert not real.certificate_.simulation
    assert seeded.certificate_.simulation


@pytest.mark.parametrize(
    ("model", "error", "match"),
    [
        (DPLinearRegression(), BudgetError, "x_bound must be a positive"),
        (DPLinearRegression("ols", x_bound=1.0, y_bound=1.0), MechanismError, "method must be"),
        (DPLinearRegression(x_bound=1.0, y_bound=1.0, epsilon=0.0), BudgetError, "epsilon must"),
        (DPLinearRegression(x_bound=1.0, y_bound=1.0, delta=1.0), BudgetError, "delta must"),
    ],
)
def test_bad_settings_are_refused_and_nothing_is_kept(
    model: Any, error: type[Exception], match: str
) -> None:
    target = TARGET if isinstance(model, DPLinearRegression) else Y
    with pytest.raises(error, match=match):
        model.fit(X, target)
    assert not hasattr(model, "certificate_")
    assert not hasattr(model, "release_")
