"""Estimators under differential privacy, with scikit-learn's interface."""

from pacprivacy.dp.estimators.base import DPBase
from pacprivacy.dp.estimators.blocks import PATEClassifier, SubsampleAggregate
from pacprivacy.dp.estimators.cost import DPFitCost, DPSearchCost, dp_search_cost, note_dp_fit
from pacprivacy.dp.estimators.linear import (
    DPLinearRegression,
    DPLogisticRegression,
    DPSGDClassifier,
)

__all__ = [
    "DPBase",
    "DPFitCost",
    "DPLinearRegression",
    "DPLogisticRegression",
    "DPSGDClassifier",
    "DPSearchCost",
    "PATEClassifier",
    "SubsampleAggregate",
    "dp_search_cost",
    "note_dp_fit",
]
