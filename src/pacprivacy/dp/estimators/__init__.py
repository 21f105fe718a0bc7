"""Estimators under differential privacy, with scikit-learn's interface."""

from pacprivacy.dp.estimators.aggregate import SubsampleAggregate
from pacprivacy.dp.estimators.base import DPBase
from pacprivacy.dp.estimators.cost import DPFitCost, DPSearchCost
from pacprivacy.dp.estimators.logistic import DPLogisticRegression
from pacprivacy.dp.estimators.pate import PATEClassifier
from pacprivacy.dp.estimators.regression import DPLinearRegression
from pacprivacy.dp.estimators.search import dp_search_cost, note_dp_fit
from pacprivacy.dp.estimators.sgd import DPSGDClassifier

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
