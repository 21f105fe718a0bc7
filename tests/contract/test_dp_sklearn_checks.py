"""scikit-learn's own conformance suite, run on the classifiers under differential privacy."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from pacprivacy.dp import DPLogisticRegression, DPSGDClassifier

# Seeded noise, so that the suite cannot fail by chance. Its data sets are tiny, of many sizes and
# labels: the number of records and the labels are public here, and there is little noise.
SETTINGS: dict[str, Any] = {
    "epsilon": 12.0,
    "delta": 1e-3,
    "x_bound": 5.0,
    "classes": "public",
    "neighbours": "replace",
    "n_steps": 20,
    "random_state": 0,
    "simulate": True,
}

# What scikit-learn wants refused is a fact about single records here, and errors would tell it.
NOT_REFUSED = {
    "check_estimators_nan_inf": "a record that is not finite is left out, unseen",
    "check_dtype_object": "an entry that is no number is missing; one of them is not refused",
}
STRICT: dict[str, Any] = {}
if "xfail_strict" in inspect.signature(parametrize_with_checks).parameters:
    STRICT["xfail_strict"] = True

ESTIMATORS = [
    DPSGDClassifier(**SETTINGS, sampling="full"),
    DPLogisticRegression(**SETTINGS),
]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda model: NOT_REFUSED, **STRICT)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda m: type(m).__name__)
def test_parameters_are_set_as_they_are_given(model: Any) -> None:
    made = type(model)()
    parameters = inspect.signature(type(model)).parameters
    assert set(made.get_params(deep=False)) == set(parameters)
    assert set(vars(made)) == set(parameters)
    assert clone(model).get_params() == model.get_params()
